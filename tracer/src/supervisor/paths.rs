//! What a name of a task means: its working directory, descriptors and root, and the places and objects below them.

use super::{Asked, Supervisor};
use crate::decode::Name;
use crate::resolve::{self, Caller, Object, Place, Start};
use crate::sys::{self, Errno};
use crate::tasks::Held;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

/// What the names of objects outside the covers begin with: no path does.
const ELSEWHERE: &[u8] = b"elsewhere:";

impl Supervisor {
    pub(super) fn caller(&self, asked: &Asked) -> Caller {
        let process = self
            .tasks
            .process(asked.pid)
            .map_or(0, |process| process.inner);
        let thread = self
            .tasks
            .thread(asked.who.tid)
            .map_or(0, |thread| thread.inner);
        Caller {
            inner: (process, thread),
        }
    }

    /// Where a name of this task begins.
    pub(super) fn start(&mut self, asked: &Asked, name: &Name) -> sys::Result<Start> {
        let caller = self.caller(asked);
        let root = if asked.home {
            Rc::clone(&self.root)
        } else {
            self.foreign_root(asked)?
        };
        let dir = match name.dir {
            _ if name.is_absolute() => Rc::clone(&root),
            None => self.cwd(asked)?,
            Some(fd) => Rc::new(resolve::hold(self.descriptor(asked, fd)?)?),
        };
        Ok(Start {
            dir,
            root,
            caller,
            scoped: !asked.home,
        })
    }

    /// The object behind a task's descriptor.
    pub(super) fn descriptor(&mut self, asked: &Asked, fd: i32) -> sys::Result<OwnedFd> {
        if fd < 0 {
            return Err(Errno(libc::EBADF));
        }
        if let Some(process) = self.tasks.process(asked.pid) {
            match sys::pidfd_getfd(process.pidfd.as_fd(), fd) {
                Err(Errno(libc::EBADF)) => return Err(Errno(libc::EBADF)),
                Err(_) => {}
                Ok(fd) => return Ok(fd),
            }
        }
        // The first thread has ended before the others, or the task may not be looked into that way.
        let path = format!("{}/fd/{fd}", asked.who.tid);
        let path = std::ffi::CString::new(path).map_err(|_| Errno(libc::EBADF))?;
        sys::openat(self.tasks.proc(), &path, libc::O_PATH, 0).map_err(|_| Errno(libc::EBADF))
    }

    pub(super) fn foreign_root(&mut self, asked: &Asked) -> sys::Result<Rc<Held>> {
        let path = std::ffi::CString::new(format!("{}/root", asked.who.tid))
            .map_err(|_| Errno(libc::ENOENT))?;
        Ok(Rc::new(resolve::hold(sys::openat(
            self.tasks.proc(),
            &path,
            libc::O_PATH | libc::O_DIRECTORY,
            0,
        )?)?))
    }

    /// The task's working directory, asked for once a call.
    pub(super) fn cwd(&mut self, asked: &Asked) -> sys::Result<Rc<Held>> {
        match &self.last_cwd {
            Some((id, held)) if *id == asked.id => Ok(Rc::clone(held)),
            _ => {
                let held = self.present_cwd(asked)?;
                self.last_cwd = Some((asked.id, Rc::clone(&held)));
                Ok(held)
            }
        }
    }

    /// The task's working directory. Asking whether it is still the same costs a third of asking for it.
    pub(super) fn present_cwd(&mut self, asked: &Asked) -> sys::Result<Rc<Held>> {
        let path = cwd_path(asked.who.tid);
        let epoch = self.epoch;
        if let Some((held, since)) = self
            .tasks
            .process(asked.pid)
            .and_then(|process| process.cwd.as_ref())
            && *since == epoch
            && sys::statx(self.tasks.proc(), &path, 0)?.same(&held.seen)
        {
            return Ok(Rc::clone(held));
        }
        let fd = sys::openat(
            self.tasks.proc(),
            &path,
            libc::O_PATH | libc::O_DIRECTORY,
            0,
        )?;
        let held = Rc::new(resolve::hold(fd)?);
        if let Some(process) = self.tasks.process_mut(asked.pid) {
            process.cwd = Some((Rc::clone(&held), epoch));
        }
        Ok(held)
    }

    pub(super) fn place(&mut self, asked: &Asked, name: &Name) -> sys::Result<Place> {
        if let Some(errno) = name.fault {
            return Err(Errno(errno));
        }
        if name.bytes().is_empty() {
            return Err(Errno(libc::ENOENT));
        }
        let start = self.start(asked, name)?;
        let mut place = resolve::place(&start, name)?;
        self.mark_elsewhere(asked, &mut place)?;
        Ok(place)
    }

    /// The object a name means; an empty name with AT_EMPTY_PATH means what the descriptor holds.
    pub(super) fn object(&mut self, asked: &Asked, name: &Name, flags: i32) -> sys::Result<Object> {
        if name.bytes().is_empty() && flags & libc::AT_EMPTY_PATH != 0 {
            let fd = match name.dir {
                Some(fd) => self.descriptor(asked, fd)?,
                None => sys::duplicate(self.cwd(asked)?.fd.as_fd())?,
            };
            let seen = sys::stat_fd(fd.as_fd())?;
            let name = resolve::name_of(fd.as_fd())?;
            return Ok(Object { fd, seen, name });
        }
        if name.bytes().is_empty() {
            return Err(Errno(libc::ENOENT));
        }
        let start = self.start(asked, name)?;
        let mut object = resolve::object(&start, name, flags & libc::AT_SYMLINK_NOFOLLOW == 0)?;
        if !asked.home && self.covers.is_elsewhere(object.fd.as_fd()) {
            object.name.splice(0..0, ELSEWHERE.iter().copied());
        }
        Ok(object)
    }

    /// Takes the name of a place outside the covers away, so that nothing there is taken for an effect.
    pub(super) fn mark_elsewhere(&self, asked: &Asked, place: &mut Place) -> sys::Result<()> {
        if !asked.home && self.covers.is_elsewhere(place.fd()) {
            place.dir = Rc::new(Held {
                fd: sys::duplicate(place.fd())?,
                seen: place.dir.seen,
                name: [ELSEWHERE, &place.dir.name].concat(),
            });
        }
        Ok(())
    }

    /// A name for the event of a call that could not be resolved.
    pub(super) fn as_given(&mut self, asked: &Asked, name: &Name) -> Option<Vec<u8>> {
        let start = self.start(asked, name).ok()?;
        Some(resolve::as_given(&start, &name.path))
    }
}

fn cwd_path(tid: u32) -> std::ffi::CString {
    use std::io::Write as _;
    let mut path = Vec::with_capacity(16);
    // Writing into a Vec cannot fail.
    let _done = write!(path, "{tid}/cwd");
    std::ffi::CString::new(path).unwrap_or_default()
}
