//! Calls that give the task a descriptor or a new program: it executes them itself.

use super::names::{cstring, spot};
use super::{Asked, Handled, Supervisor};
use crate::decode::Name;
use crate::pending::{Evidence, Expected, Spot};
use crate::resolve::{self, Place, Start};
use crate::sys::{self, Errno, Seen};
use crate::syscalls::{Reading, WRITING};
use effigy_journal::event::ReadCall;
use effigy_journal::{By, ByteString, Kind, Op, Outcome, Why};
use std::os::fd::AsFd;
use std::rc::Rc;

/// How a file is to be opened.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opening {
    pub(super) flags: i32,
    pub(super) mode: u32,
    /// The supervisor could execute it as it is.
    pub(super) plain: bool,
}

/// What an open would meet.
enum Target {
    /// An object; the place when it was met there and not through a link.
    There(Vec<u8>, Seen, Option<Place>),
    /// Nothing, at this place.
    Missing(Vec<u8>, Place),
}

impl Supervisor {
    fn target(&mut self, asked: &Asked, at: &Name, follow: bool) -> sys::Result<Target> {
        if at.bytes().is_empty() {
            return Err(Errno(libc::ENOENT));
        }
        let mut place = self.place(asked, at)?;
        let mut name = at.clone();
        let mut start = None;
        for _ in 0..40 {
            match sys::statx(place.fd(), &place.last, libc::AT_SYMLINK_NOFOLLOW) {
                Err(Errno(libc::ENOENT)) => return Ok(Target::Missing(place.name(), place)),
                Err(errno) => return Err(errno),
                Ok(seen) if seen.kind() == Kind::Symlink && follow => {
                    let from = match start.take() {
                        Some(start) => start,
                        None => self.start(asked, at)?,
                    };
                    match resolve::object(&from, &name, true) {
                        Ok(mut object) => {
                            self.name_truly(&mut object);
                            let place = self.place_of(&from, &object);
                            return Ok(Target::There(object.name, object.seen, place));
                        }
                        // A dangling link: an open that creates makes what it points to.
                        Err(Errno(libc::ENOENT)) => {
                            let mut target = Vec::new();
                            sys::readlinkat(place.fd(), &place.last, &mut target)?;
                            name = Name {
                                dir: None,
                                path: cstring(target),
                                fault: None,
                            };
                            let dir = if name.is_absolute() {
                                Rc::clone(&from.root)
                            } else {
                                place.dir
                            };
                            let next = Start { dir, ..from };
                            (place, _) = resolve::place(&next, &name)?;
                            self.mark_elsewhere(asked, &mut place)?;
                            start = Some(next);
                        }
                        Err(errno) => return Err(errno),
                    }
                }
                Ok(seen) => {
                    let last = place.last.as_bytes();
                    let name = if matches!(last, b"." | b"..") {
                        resolve::name_of(sys::walk(place.fd(), &place.last, 0, false)?.as_fd())?
                    } else {
                        place.name()
                    };
                    return Ok(Target::There(name, seen, Some(place)));
                }
            }
        }
        Err(Errno(libc::ELOOP))
    }

    /// Where an object that was reached through links is itself.
    fn place_of(&self, start: &Start, object: &resolve::Object) -> Option<Place> {
        let name = Name {
            dir: None,
            path: cstring(object.name.clone()),
            fault: None,
        };
        let (place, _) = resolve::place(start, &name).ok()?;
        let seen = sys::statx(place.fd(), &place.last, libc::AT_SYMLINK_NOFOLLOW).ok()?;
        seen.same(&object.seen).then_some(place)
    }

    pub(super) fn open(&mut self, asked: &Asked, at: &Name, opening: Opening) -> Handled {
        let flags = opening.flags;
        if flags.cast_unsigned() & WRITING == 0 || flags & libc::O_PATH != 0 {
            return self.read(asked, at, Reading::Open);
        }
        if flags & libc::O_TMPFILE == libc::O_TMPFILE {
            // Nothing has a name yet; what gets one does so by linkat.
            return self.go_on(asked);
        }
        if flags & libc::O_CREAT != 0 && at.bytes().last() == Some(&b'/') {
            // Never makes anything.
            return self.go_on(asked);
        }
        let exclusive = flags & libc::O_CREAT != 0 && flags & libc::O_EXCL != 0;
        let follow = flags & libc::O_NOFOLLOW == 0 && !exclusive;
        match self.target(asked, at, follow) {
            Err(errno) => self.open_fails(asked, None, at, opening, errno),
            Ok(Target::Missing(path, place)) => self.open_missing(asked, path, &place, at, opening),
            Ok(Target::There(path, seen, place)) => {
                if exclusive {
                    self.open_fails(asked, Some(path), at, opening, Errno(libc::EEXIST))
                } else if seen.kind() == Kind::File && self.covers.holds(&path) {
                    self.open_there(asked, (path, seen, place), at, opening)
                } else if seen.kind() == Kind::Directory {
                    self.open_fails(asked, Some(path), at, opening, Errno(libc::EISDIR))
                } else {
                    // A device or a pipe is nobody's effect.
                    self.go_on(asked)
                }
            }
        }
    }

    /// An open that cannot succeed as things are. It is answered where the supervisor has found out what the kernel would have,
    /// so that it stays so until the answer.
    fn open_fails(
        &mut self,
        asked: &Asked,
        path: Option<Vec<u8>>,
        at: &Name,
        opening: Opening,
        errno: Errno,
    ) -> Handled {
        let Opening { flags, plain, .. } = opening;
        let path = path
            .or_else(|| self.as_given(asked, at))
            .filter(|path| self.covers.holds(path));
        let exact = asked.home && plain && flags & libc::O_DIRECTORY == 0 && path.is_some();
        if exact {
            self.answer(asked, Err(errno))?;
        } else {
            self.go_on(asked)?;
        }
        if let Some(path) = path {
            let by = if exact {
                By::Performed
            } else {
                By::Observed(self.why(asked))
            };
            self.open_event(asked, by, &path, flags, Outcome::Errno(errno.0));
        }
        Ok(())
    }

    fn open_event(&mut self, asked: &Asked, by: By, path: &[u8], flags: i32, result: Outcome) {
        if let Some(path) = self.recorder.path(path) {
            let op = Op::Open {
                path,
                flags: flags.cast_unsigned(),
                mode: 0,
                created: false,
                truncated: false,
                version: None,
            };
            self.recorder.append(asked.who, by, op, result);
        }
    }

    fn open_missing(
        &mut self,
        asked: &Asked,
        path: Vec<u8>,
        place: &Place,
        at: &Name,
        opening: Opening,
    ) -> Handled {
        let flags = opening.flags;
        if flags & libc::O_CREAT == 0 {
            return self.open_fails(asked, Some(path), at, opening, Errno(libc::ENOENT));
        }
        if !self.covers.holds(&path) {
            return self.go_on(asked);
        }
        if self.is_fought_over(asked, at, &path, opening) {
            return self.open_for_task(asked, path, place, at, opening);
        }
        if self.wait_for(asked, &path) {
            // It may be there now.
            if let Ok(seen) = sys::statx(place.fd(), &place.last, libc::AT_SYMLINK_NOFOLLOW) {
                if flags & libc::O_EXCL != 0 {
                    return self.open_fails(asked, Some(path), at, opening, Errno(libc::EEXIST));
                }
                if seen.kind() == Kind::File {
                    return self.open_there(asked, (path, seen, None), at, opening);
                }
            }
        }
        self.recorder.touch(&path, None);
        let version = self.recorder.new_version();
        let evidence = Evidence::Appears(spot(place, &path));
        let expected = Expected::Open {
            path,
            flags,
            creates: true,
            truncates: false,
            version,
        };
        self.leave(asked, Why::Class, expected, evidence, Outcome::Unknown)
    }

    fn open_there(
        &mut self,
        asked: &Asked,
        (path, seen, place): (Vec<u8>, Seen, Option<Place>),
        at: &Name,
        opening: Opening,
    ) -> Handled {
        let flags = opening.flags;
        if let Some(place) = place.as_ref().filter(|_| !self.copies_up(&path, &seen))
            && self.is_fought_over(asked, at, &path, opening)
        {
            return self.open_for_task(asked, path, place, at, opening);
        }
        self.wait_for(asked, &path);
        let spot = match &place {
            Some(place) => spot(place, &path),
            None => self.absolute(&path),
        };
        let seen = spot.look().unwrap_or(seen);
        let empties = flags & libc::O_TRUNC != 0;
        if asked.home
            && let Err(errno) = may_open(&spot, flags)
        {
            self.go_on(asked)?;
            self.open_event(
                asked,
                By::Observed(Why::Class),
                &path,
                flags,
                Outcome::Errno(errno.0),
            );
            return Ok(());
        }
        self.touch(&path, Some(&seen));
        let writes = flags & libc::O_ACCMODE != libc::O_RDONLY || empties;
        if !writes {
            // O_CREAT of a file that is there, for reading.
            return self.go_on(asked);
        }
        let version = self.recorder.new_version();
        if empties && seen.stat.size > 0 {
            let seal = self.recorder.seal_content(&self.covers, &path, &seen);
            self.recorder.confirm_seal(seal, true);
            let evidence = Evidence::Changes(spot, seen);
            let expected = Expected::Open {
                path,
                flags,
                creates: false,
                truncates: true,
                version,
            };
            let otherwise = if asked.home {
                Outcome::Ok
            } else {
                Outcome::Unknown
            };
            return self.leave(asked, self.why(asked), expected, evidence, otherwise);
        }
        self.recorder.seal_reopen(
            &self.covers,
            &path,
            &seen,
            flags & libc::O_APPEND != 0,
            version,
        );
        self.go_on(asked)?;
        if let Some(id) = self.recorder.path(&path) {
            let op = Op::Open {
                path: id,
                flags: flags.cast_unsigned(),
                mode: 0,
                created: false,
                truncated: empties,
                version: Some(version),
            };
            let by = By::Observed(self.why(asked));
            self.recorder.append(asked.who, by, op, Outcome::Ok);
            self.recorder.model.written(&path, version);
        }
        Ok(())
    }

    /// Whether the order of this open among others is at risk, so that the supervisor executes it: several threads are at work
    /// there, or it goes through a link that may change before the task gets to it.
    fn is_fought_over(&self, asked: &Asked, at: &Name, path: &[u8], opening: Opening) -> bool {
        let last = |path: &[u8]| {
            path.rsplit(|byte| *byte == b'/')
                .next()
                .unwrap_or_default()
                .to_vec()
        };
        asked.home
            && opening.plain
            && (self.recent.contended(path, asked.who.tid, asked.who.time)
                || last(at.bytes()) != last(path))
    }

    /// Opens a name that several threads fight over, and gives the task the descriptor: the order is exact.
    fn open_for_task(
        &mut self,
        asked: &Asked,
        path: Vec<u8>,
        place: &Place,
        at: &Name,
        opening: Opening,
    ) -> Handled {
        let Opening { flags, mode, .. } = opening;
        self.wait_for(asked, &path);
        let before = sys::statx(place.fd(), &place.last, libc::AT_SYMLINK_NOFOLLOW).ok();
        match before.map(|seen| seen.kind()) {
            None | Some(Kind::File) => {}
            Some(Kind::Directory) => {
                return self.open_fails(asked, Some(path), at, opening, Errno(libc::EISDIR));
            }
            Some(_) => return self.go_on(asked),
        }
        if !self.still_asks(asked)? {
            return Ok(());
        }
        self.take_umask(asked);
        let empties = flags & libc::O_TRUNC != 0;
        let version = self.recorder.new_version();
        let mut seal = None;
        if let Some(seen) = &before
            && empties
        {
            if seen.stat.size == 0 {
                seal = self.recorder.seal_beginning(&path, seen, version);
            } else if may_open(&spot(place, &path), flags).is_ok() {
                seal = self.recorder.seal_content(&self.covers, &path, seen);
            }
        }
        let plain = || {
            sys::openat(
                place.fd(),
                &place.last,
                flags & !libc::O_CLOEXEC & !libc::O_CREAT & !libc::O_EXCL,
                mode,
            )
        };
        let mut created = false;
        let opened = if flags & libc::O_CREAT == 0 {
            plain()
        } else {
            // Exclusively first, to know who made it; the kernel does not keep the flag.
            match sys::openat(
                place.fd(),
                &place.last,
                (flags | libc::O_EXCL) & !libc::O_CLOEXEC,
                mode,
            ) {
                Err(Errno(libc::EEXIST)) if flags & libc::O_EXCL == 0 => plain(),
                Err(errno) => Err(errno),
                Ok(fd) => {
                    created = true;
                    Ok(fd)
                }
            }
        };
        let writes = flags & libc::O_ACCMODE != libc::O_RDONLY || empties || created;
        // Before the task has the descriptor: it may write at once.
        if let (Ok(_), Some(seen)) = (&opened, &before)
            && writes
            && !created
            && !empties
        {
            let append = flags & libc::O_APPEND != 0;
            self.recorder
                .seal_reopen(&self.covers, &path, seen, append, version);
        }
        let result = match &opened {
            Err(errno) => {
                self.answer(asked, Err(*errno))?;
                Err(*errno)
            }
            Ok(fd) => match self.listener.send_descriptor(
                asked.id,
                fd.as_fd(),
                flags & libc::O_CLOEXEC != 0,
            ) {
                Ok(_) => Ok(()),
                // The task's table is full.
                Err(error) => {
                    let errno = Errno::from(error);
                    self.answer(asked, Err(errno))?;
                    if created { Ok(()) } else { Err(errno) }
                }
            },
        };
        self.recorder.confirm_seal(seal, result.is_ok());
        if !writes && result.is_ok() {
            return Ok(());
        }
        let now = opened
            .as_ref()
            .ok()
            .and_then(|fd| sys::stat_fd(fd.as_fd()).ok());
        if result.is_ok() {
            self.recorder.touch(
                &path,
                before.as_ref().filter(|_| !created).map(|seen| &seen.stat),
            );
            if created {
                self.spoil(&path);
                self.recorder.model.created(
                    &path,
                    now.as_ref().map(|seen| &seen.stat),
                    Some(version),
                );
            } else {
                self.recorder.model.written(&path, version);
            }
        }
        let op = self.recorder.path(&path).map(|path| Op::Open {
            path,
            flags: flags.cast_unsigned(),
            mode: if created {
                now.map_or(0, |seen| seen.stat.mode)
            } else {
                0
            },
            created,
            truncated: empties && !created && result.is_ok(),
            version: result.is_ok().then_some(version),
        });
        self.performed(asked, op, result);
        Ok(())
    }

    fn why(&self, asked: &Asked) -> Why {
        if asked.home { Why::Class } else { Why::Foreign }
    }

    pub(super) fn exec(
        &mut self,
        asked: &Asked,
        at: &Name,
        argv: Vec<ByteString>,
        flags: i32,
    ) -> Handled {
        let object = self.object(asked, at, flags);
        let (path, result) = match object {
            Ok(object) => {
                let path = resolve::by_descriptor(object.fd.as_fd(), b"");
                let allowed = if object.seen.kind() != Kind::File {
                    Err(Errno(libc::EACCES))
                } else if asked.home {
                    sys::access(sys::CWD, &path, libc::X_OK, 0)
                } else {
                    Ok(())
                };
                (Some(object.name), super::outcome(allowed))
            }
            Err(errno) => (self.as_given(asked, at), Outcome::Errno(errno.0)),
        };
        if let Some(exe) = path.and_then(|path| self.recorder.path(&path)) {
            self.recorder.append(
                asked.who,
                By::Observed(Why::Class),
                Op::Exec { exe, argv },
                result,
            );
        }
        // Also when it seems to fail: looking at the process again is cheap.
        self.tasks.executed(asked.pid);
        self.go_on(asked)
    }

    pub(super) fn read(&mut self, asked: &Asked, at: &Name, kind: Reading) -> Handled {
        if !self.reads {
            return self.go_on(asked);
        }
        let call = match kind {
            Reading::Open => ReadCall::Open,
            Reading::Stat => ReadCall::Stat,
            Reading::Access => ReadCall::Access,
            Reading::Readlink => ReadCall::Readlink,
            Reading::Getxattr => ReadCall::Getxattr,
            Reading::Chdir => ReadCall::Chdir,
        };
        let flags = if kind == Reading::Readlink {
            libc::AT_SYMLINK_NOFOLLOW
        } else {
            0
        };
        let (path, result) = match self.object(asked, at, flags) {
            Ok(object) => (Some(object.name), Outcome::Ok),
            Err(errno) => (self.as_given(asked, at), Outcome::Errno(errno.0)),
        };
        self.go_on(asked)?;
        if let Some(path) = path.filter(|path| self.covers.holds(path))
            && let Some(path) = self.recorder.path(&path)
        {
            self.recorder.append(
                asked.who,
                By::Observed(Why::Class),
                Op::Read { path, call },
                result,
            );
        }
        Ok(())
    }
}

/// What the kernel would say to an open for writing of a file that is there.
fn may_open(spot: &Spot, flags: i32) -> sys::Result<()> {
    let write = if flags & libc::O_TRUNC != 0 {
        libc::W_OK
    } else {
        0
    };
    let mode = match flags & libc::O_ACCMODE {
        libc::O_RDONLY => libc::R_OK | write,
        libc::O_WRONLY => libc::W_OK,
        _ => libc::R_OK | libc::W_OK,
    };
    sys::access(spot.dir.fd.as_fd(), &spot.last, mode, 0)
}
