//! Calls that make, remove and change names.

use super::{Asked, Handled, Supervisor};
use crate::decode::Name;
use crate::pending::{Effect, Evidence, Expected, Spot};
use crate::resolve::Place;
use crate::sys::{self, Errno, Seen};
use effigy_journal::{By, ByteString, Kind, Op, Outcome, PathId, Why};
use effigy_semisolate::NodeMaker;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

pub(super) fn spot(place: &Place, path: &[u8]) -> Spot {
    Spot {
        dir: Rc::clone(&place.dir),
        last: place.last.clone(),
        path: path.to_vec(),
    }
}

pub(super) fn look(place: &Place) -> sys::Result<Seen> {
    sys::statx(place.fd(), &place.last, libc::AT_SYMLINK_NOFOLLOW)
}

/// What the kernel would answer to a link that gets the name of a place before it came to the linking, else EXDEV.
fn before_linking(object: &OwnedFd, seen: &Seen, to: &Place) -> Errno {
    let Some(bare) = to.bare() else {
        return Errno(libc::EEXIST);
    };
    match sys::statx(to.fd(), &bare, libc::AT_SYMLINK_NOFOLLOW) {
        Ok(_) => Errno(libc::EEXIST),
        Err(Errno(libc::ENOENT)) if bare != to.last => Errno(libc::ENOENT),
        Err(Errno(libc::ENOENT)) => {
            let source = crate::resolve::by_descriptor(object.as_fd(), b"");
            if !sys::may_link(&source, seen) && sys::links_are_protected() {
                return Errno(libc::EPERM);
            }
            match sys::access(to.fd(), c".", libc::W_OK | libc::X_OK, 0) {
                Err(errno) => errno,
                Ok(()) => Errno(libc::EXDEV),
            }
        }
        Err(errno) => errno,
    }
}

/// Whether an object has the name it is said to have.
pub(super) fn is_at(path: &[u8], seen: &Seen) -> bool {
    sys::statx(sys::CWD, &cstring(path.to_vec()), libc::AT_SYMLINK_NOFOLLOW)
        .is_ok_and(|there| there.same(seen))
}

/// What a call that makes one name is about.
struct Making<'a> {
    place: Place,
    path: Vec<u8>,
    make: &'a dyn Fn(&Place) -> sys::Result<()>,
    op: &'a dyn Fn(PathId, Option<&Seen>) -> Op,
}

impl Supervisor {
    /// The shape of mkdir, mknod and symlink: nothing is there before, something is after.
    fn make(&mut self, asked: &Asked, making: Making<'_>) -> Handled {
        let Making {
            place,
            path,
            make,
            op,
        } = making;
        if !self.covers.holds(&path) {
            return self.go_on(asked);
        }
        self.wait_for(asked, &path);
        if !asked.home {
            let there = look(&place);
            let Some(id) = self.recorder.path(&path) else {
                return self.go_on(asked);
            };
            self.touch(&path, there.as_ref().ok());
            let evidence = if there.is_ok() {
                Evidence::None
            } else {
                Evidence::Appears(spot(&place, &path))
            };
            let otherwise = if there.is_ok() {
                Outcome::Errno(libc::EEXIST)
            } else {
                Outcome::Unknown
            };
            let expected = Expected::Other {
                op: op(id, None),
                effect: Effect::Creates(path),
                seal: None,
            };
            return self.leave(asked, Why::Foreign, expected, evidence, otherwise);
        }
        if !self.still_asks(asked)? {
            return Ok(());
        }
        self.take_umask(asked);
        let result = make(&place);
        self.answer(asked, result)?;
        let seen = if result.is_ok() {
            look(&place).ok()
        } else {
            None
        };
        if result.is_ok() {
            self.spoil(&path);
            self.recorder.touch(&path, None);
            self.recorder
                .model
                .created(&path, seen.as_ref().map(|seen| &seen.stat), None);
        }
        let op = self.recorder.path(&path).map(|id| op(id, seen.as_ref()));
        self.performed(asked, op, result);
        Ok(())
    }

    pub(super) fn mkdir(&mut self, asked: &Asked, at: &Name, mode: u32) -> Handled {
        let got = |seen: Option<&Seen>| seen.map_or(mode & 0o7777, |seen| seen.stat.mode);
        match self.place(asked, at) {
            Err(errno) => self.fail(asked, errno, [Some(at), None], |[path, _]| Op::Mkdir {
                path,
                mode,
            }),
            Ok(place) => {
                let path = place.name();
                let make = |place: &Place| sys::mkdirat(place.fd(), &place.last, mode);
                self.make(
                    asked,
                    Making {
                        path,
                        place,
                        make: &make,
                        op: &|path, seen| Op::Mkdir {
                            path,
                            mode: got(seen),
                        },
                    },
                )
            }
        }
    }

    pub(super) fn symlink(&mut self, asked: &Asked, target: &CStr, at: &Name) -> Handled {
        let op = |path| Op::Symlink {
            path,
            target: ByteString::from(target.to_bytes()),
        };
        match self.place(asked, at) {
            Err(errno) => self.fail(asked, errno, [Some(at), None], |[path, _]| op(path)),
            Ok(place) => {
                let path = place.name();
                self.epoch += 1;
                let make = |place: &Place| sys::symlinkat(target, place.fd(), &place.last);
                self.make(
                    asked,
                    Making {
                        path,
                        place,
                        make: &make,
                        op: &|path, _| op(path),
                    },
                )
            }
        }
    }

    pub(super) fn mknod(&mut self, asked: &Asked, at: &Name, mode: u32, dev: u64) -> Handled {
        let op = |path, mode| Op::Mknod { path, mode, dev };
        match self.place(asked, at) {
            Err(errno) => self.fail(asked, errno, [Some(at), None], |[path, _]| op(path, mode)),
            Ok(place) => {
                let path = place.name();
                let outside = self.node_maker(asked, mode, dev);
                let make = |place: &Place| match &outside {
                    Some((nodes, umask)) => nodes
                        .make(place.fd(), &place.last, mode, dev, *umask)
                        .map_err(|error| Errno(error.raw_os_error().unwrap_or(libc::EPERM))),
                    None => sys::mknodat(place.fd(), &place.last, mode, dev),
                };
                let kind = if mode & libc::S_IFMT == 0 {
                    libc::S_IFREG
                } else {
                    mode & libc::S_IFMT
                };
                let got =
                    |seen: Option<&Seen>| kind | seen.map_or(mode & 0o7777, |seen| seen.stat.mode);
                self.make(
                    asked,
                    Making {
                        path,
                        place,
                        make: &make,
                        op: &|path, seen| op(path, got(seen)),
                    },
                )
            }
        }
    }

    /// What makes a device node, with the umask to do it under, where this process may not. Whoever asks needs the right itself:
    /// a task without all the rights of the semisolate is not here. 0:0 is what overlays take for a whiteout: the kernel refuses it.
    fn node_maker(&self, asked: &Asked, mode: u32, dev: u64) -> Option<(Rc<NodeMaker>, u32)> {
        let is_device = matches!(mode & libc::S_IFMT, libc::S_IFCHR | libc::S_IFBLK);
        if !is_device || dev == 0 {
            return None;
        }
        let umask = self.tasks.process(asked.pid)?.umask;
        Some((self.nodes.clone()?, umask))
    }

    pub(super) fn remove(&mut self, asked: &Asked, at: &Name, directory: bool) -> Handled {
        let op = |path| {
            if directory {
                Op::Rmdir { path }
            } else {
                Op::Unlink { path }
            }
        };
        let place = match self.place(asked, at) {
            Err(errno) => return self.fail(asked, errno, [Some(at), None], |[path, _]| op(path)),
            Ok(place) => place,
        };
        let path = place.name();
        if !self.covers.holds(&path) {
            return self.go_on(asked);
        }
        self.wait_for(asked, &path);
        let before = look(&place).ok();
        // What cannot be removed this way loses nothing.
        let seal = match &before {
            Some(before) if !directory => self.recorder.seal_name(&self.covers, &path, before),
            _ => None,
        };
        if !asked.home {
            let Some(id) = self.recorder.path(&path) else {
                return self.go_on(asked);
            };
            self.touch(&path, before.as_ref());
            let Some(before) = before else {
                return self.go_on(asked);
            };
            let evidence = Evidence::Vanishes(spot(&place, &path), before);
            let expected = Expected::Other {
                op: op(id),
                effect: Effect::Removes(path),
                seal,
            };
            return self.leave(asked, Why::Foreign, expected, evidence, Outcome::Unknown);
        }
        if !self.still_asks(asked)? {
            return Ok(());
        }
        let result = sys::unlinkat(
            place.fd(),
            &place.last,
            if directory { libc::AT_REMOVEDIR } else { 0 },
        );
        self.answer(asked, result)?;
        self.recorder.confirm_seal(seal, result.is_ok());
        if result.is_ok() {
            self.recorder
                .touch(&path, before.as_ref().map(|before| &before.stat));
            self.recorder.model.removed(&path);
        }
        let op = self.recorder.path(&path).map(op);
        self.performed(asked, op, result);
        Ok(())
    }

    pub(super) fn link(&mut self, asked: &Asked, from: &Name, to: &Name, flags: i32) -> Handled {
        let op = |from, to| Op::Link { from, to };
        let follow = flags & libc::AT_SYMLINK_FOLLOW != 0;
        // With AT_EMPTY_PATH the kernel asks who opened the descriptor: only the task can answer.
        let by_descriptor = flags & libc::AT_EMPTY_PATH != 0;
        let nofollow = if follow { 0 } else { libc::AT_SYMLINK_NOFOLLOW };
        let object = self.object(asked, from, flags & libc::AT_EMPTY_PATH | nofollow);
        let resolved = object.and_then(|object| Ok((object, self.place(asked, to)?)));
        let (mut object, b) = match resolved {
            Err(_) if by_descriptor => return self.go_on(asked),
            Err(errno) => {
                return self.fail(asked, errno, [Some(from), Some(to)], |[a, b]| op(a, b));
            }
            Ok(resolved) => resolved,
        };
        let new = b.name();
        if !self.covers.holds(&new) {
            return self.go_on(asked);
        }
        self.wait_for(asked, &new);
        self.name_truly(&mut object);
        if object.seen.stat.nlink == 0 || !object.name.starts_with(b"/") {
            return self.name_nameless(asked, &b, new);
        }
        let old = object.name;
        self.wait_for(asked, &old);
        let large = self.copies_up(&old, &object.seen);
        if asked.home && !by_descriptor && self.splits_identity(&old, &object.seen) {
            // The two names would be two files. Programs that link copy instead when told that they cannot.
            let result = Err(before_linking(&object.fd, &object.seen, &b));
            self.answer(asked, result)?;
            if let (Some(x), Some(y)) = (self.recorder.path(&old), self.recorder.path(&new)) {
                self.performed(asked, Some(op(x, y)), result);
            }
            return Ok(());
        }
        if !asked.home || by_descriptor || large {
            let (Some(x), Some(y)) = (self.recorder.path(&old), self.recorder.path(&new)) else {
                return self.go_on(asked);
            };
            let there = look(&b).ok();
            self.touch(&new, there.as_ref());
            let why = if !asked.home {
                Why::Foreign
            } else if large {
                Why::CopyUp
            } else {
                Why::Unable
            };
            let evidence = if there.is_some() {
                Evidence::None
            } else {
                Evidence::Appears(spot(&b, &new))
            };
            let otherwise = if there.is_some() {
                Outcome::Errno(libc::EEXIST)
            } else {
                Outcome::Unknown
            };
            let expected = Expected::Other {
                op: op(x, y),
                effect: Effect::Links(old, new),
                seal: None,
            };
            return self.leave(asked, why, expected, evidence, otherwise);
        }
        if !self.still_asks(asked)? {
            return Ok(());
        }
        // By its own name where it has one that does not lead through a link, so that the kernel checks what it would for the task.
        let result = self.link_object(asked, from, follow, &object.fd, &b);
        self.answer(asked, result)?;
        if result.is_ok() {
            if object.seen.kind() == Kind::Symlink {
                self.epoch += 1;
            }
            self.must_have_shown(&old, Some(&object.seen));
            self.spoil(&new);
            self.recorder.touch(&old, Some(&object.seen.stat));
            self.recorder.touch(&new, None);
            let stat = Some(&object.seen.stat);
            self.recorder.model.linked(&old, &new, stat);
        }
        if let (Some(x), Some(y)) = (self.recorder.path(&old), self.recorder.path(&new)) {
            self.performed(asked, Some(op(x, y)), result);
        }
        Ok(())
    }

    fn link_object(
        &mut self,
        asked: &Asked,
        from: &Name,
        follow: bool,
        object: &OwnedFd,
        b: &Place,
    ) -> sys::Result<()> {
        if follow {
            let source = crate::resolve::by_descriptor(object.as_fd(), b"");
            return sys::linkat(sys::CWD, &source, b.fd(), &b.last, libc::AT_SYMLINK_FOLLOW);
        }
        let a = self.place(asked, from)?;
        sys::linkat(a.fd(), &a.last, b.fd(), &b.last, 0)
    }

    /// Whether another name of this file would be another file: an unprivileged overlay copies it up for the link, and knows it by
    /// two inode numbers from then on. What was copied up before is linked as it is.
    fn splits_identity(&self, path: &[u8], seen: &Seen) -> bool {
        seen.kind() != Kind::Directory
            && self
                .covers
                .layer(path)
                .is_some_and(|layer| layer.unprivileged)
            && self.covers.in_upper(path).is_none()
    }

    /// A file made without a name (O_TMPFILE) gets one. Only the task holds it, so the task links it.
    fn name_nameless(&mut self, asked: &Asked, b: &Place, new: Vec<u8>) -> Handled {
        let there = look(b).ok();
        self.touch(&new, there.as_ref());
        let evidence = if there.is_some() {
            Evidence::None
        } else {
            Evidence::Appears(spot(b, &new))
        };
        let otherwise = if there.is_some() {
            Outcome::Errno(libc::EEXIST)
        } else {
            Outcome::Unknown
        };
        let version = self.recorder.new_version();
        self.leave(
            asked,
            Why::Nameless,
            Expected::Named { path: new, version },
            evidence,
            otherwise,
        )
    }

    pub(super) fn touch(&mut self, path: &[u8], before: Option<&Seen>) {
        self.recorder.touch(path, before.map(|seen| &seen.stat));
    }

    pub(super) fn bind(&mut self, asked: &Asked, address: &crate::decode::Address) -> Handled {
        let crate::decode::Address::Path(name) = address else {
            return self.go_on(asked);
        };
        let Ok(place) = self.place(asked, name) else {
            return self.go_on(asked);
        };
        let path = place.name();
        if !self.covers.holds(&path) {
            return self.go_on(asked);
        }
        self.wait_for(asked, &path);
        let there = look(&place).ok();
        if there.is_some() {
            if let Some(id) = self.recorder.path(&path) {
                let op = Op::Bind { path: id, mode: 0 };
                self.recorder.append(
                    asked.who,
                    By::Observed(Why::Class),
                    op,
                    Outcome::Errno(libc::EADDRINUSE),
                );
            }
            return self.go_on(asked);
        }
        self.touch(&path, None);
        let evidence = Evidence::Appears(spot(&place, &path));
        self.leave(
            asked,
            Why::Class,
            Expected::Bind { path },
            evidence,
            Outcome::Unknown,
        )
    }

    pub(super) fn connect(&mut self, asked: &Asked, address: crate::decode::Address) -> Handled {
        use crate::decode::Address as Given;
        use effigy_journal::Address;
        let address = match address {
            Given::V4(ip, port) => Some(Address::V4(ip, port)),
            Given::V6(ip, port) => Some(Address::V6(ip, port)),
            Given::Abstract(name) => Some(Address::Abstract(ByteString::from(name))),
            Given::Other => None,
            Given::Path(name) => {
                let object = self.object(asked, &name, 0);
                let path = object
                    .map(|object| object.name)
                    .ok()
                    .or_else(|| self.as_given(asked, &name));
                path.and_then(|path| self.recorder.path(&path))
                    .map(Address::Unix)
            }
        };
        self.go_on(asked)?;
        if let Some(address) = address {
            self.recorder.append(
                asked.who,
                By::Observed(Why::Class),
                Op::Connect { address },
                Outcome::Unknown,
            );
        }
        Ok(())
    }
}

/// A path of two NUL-free parts.
pub(super) fn cstring(bytes: Vec<u8>) -> CString {
    CString::new(bytes).unwrap_or_default()
}
