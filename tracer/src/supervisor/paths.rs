//! What a name of a task means: its working directory, descriptors and root, and the places and objects below them.

use super::{Asked, Supervisor};
use crate::decode::Name;
use crate::pending::Pending;
use crate::resolve::{self, Caller, Object, Place, Start};
use crate::sys::{self, Errno};
use crate::syscalls::Decode;
use crate::tasks::Held;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

/// What the names of objects outside the covers begin with: no path does.
const ELSEWHERE: &[u8] = b"elsewhere:";

impl Supervisor {
    pub(super) fn caller(&self, asked: &Asked) -> Caller {
        if self.outer_numbers {
            let inner = (asked.pid, asked.who.tid);
            return Caller { inner };
        }
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
        let path = task_path(asked.who.tid, b"cwd", b"");
        let epoch = self.epoch;
        let holds = self.names_hold();
        if let Some((held, since)) = self
            .tasks
            .process(asked.pid)
            .and_then(|process| process.cwd.as_ref())
            && *since == epoch
            && holds
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
        let keeps = self.keeps_parent(asked, name);
        if let Some(parent) = keeps
            && let Some(dir) = self.kept_parent(asked, parent)
        {
            let last = resolve::last(name)?;
            return Ok(Place { dir, last });
        }
        let start = self.start(asked, name)?;
        let (mut place, plain) = resolve::place(&start, name)?;
        self.mark_elsewhere(asked, &mut place)?;
        if let Some(parent) = keeps
            && plain
            && self.covers.holds(&place.dir.name)
        {
            self.parents
                .insert(parent, Rc::clone(&place.dir), self.epoch);
        }
        Ok(place)
    }

    /// The places of two names. When the same bytes lead to both, one walk does for both: nobody could tell it from two without
    /// anything between them.
    pub(super) fn places(
        &mut self,
        asked: &Asked,
        names: [&Name; 2],
    ) -> sys::Result<(Place, Place)> {
        let a = self.place(asked, names[0])?;
        let [one, other] = names;
        let beside = other.fault.is_none()
            && (one.dir, resolve::leading(one)) == (other.dir, resolve::leading(other))
            && one.is_absolute() == other.is_absolute()
            && !other.bytes().is_empty();
        let b = if beside {
            Place {
                dir: Rc::clone(&a.dir),
                last: resolve::last(other)?,
            }
        } else {
            self.place(asked, other)?
        };
        Ok((a, b))
    }

    /// The bytes that lead to a name's directory, when that may be a kept one: not for a task with a root or mounts of its own,
    /// nor while something may be moving directories.
    fn keeps_parent<'n>(&self, asked: &Asked, name: &'n Name) -> Option<&'n [u8]> {
        let parent = resolve::leading(name)?;
        let fits = asked.home && (name.dir.is_none() || name.is_absolute());
        (fits && self.names_hold()).then_some(parent)
    }

    /// Whether no call is in flight that may change the absolute names of directories, so that the epoch tells.
    fn names_hold(&self) -> bool {
        let mounts = || {
            let mut doubts = self.doubted.values();
            doubts.any(|doubt| matches!(doubt, Decode::Mount | Decode::Root))
        };
        !self.adrift && !self.pending.iter().any(Pending::turns_names) && !mounts()
    }

    /// The kept directory that these bytes lead to, when they lead there now.
    fn kept_parent(&self, asked: &Asked, parent: &[u8]) -> Option<Rc<Held>> {
        let held = self.parents.get(parent, self.epoch)?;
        // The walk begins at the task's own working directory, and is refused where the task's would be. What it fails with is
        // found again by the walk in full.
        let now = if parent.first() == Some(&b'/') {
            sys::statx(sys::CWD, &super::names::cstring(parent.to_vec()), 0)
        } else {
            let path = task_path(asked.who.tid, b"cwd/", parent);
            sys::statx(self.tasks.proc(), &path, 0)
        };
        now.is_ok_and(|now| now.same(&held.seen))
            .then(|| Rc::clone(held))
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
        let follow = flags & libc::AT_SYMLINK_NOFOLLOW == 0;
        // What this fails with is found again below.
        if self.keeps_parent(asked, name).is_some()
            && let Ok(place) = self.place(asked, name)
            && let Ok(Some(object)) = resolve::beside(&place, follow)
        {
            return Ok(object);
        }
        let start = self.start(asked, name)?;
        let mut object = resolve::object(&start, name, follow)?;
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

/// `TID/what/rest`, below the outer /proc.
fn task_path(tid: u32, what: &[u8], rest: &[u8]) -> std::ffi::CString {
    use std::io::Write as _;
    let mut path = Vec::with_capacity(16 + rest.len());
    // Writing into a Vec cannot fail.
    let _done = write!(path, "{tid}/");
    path.extend_from_slice(what);
    path.extend_from_slice(rest);
    super::names::cstring(path)
}
