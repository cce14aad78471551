//! Calls that change content and attributes by name.

use super::names::spot;
use super::{Asked, Handled, Supervisor};
use crate::SuperviseError;
use crate::decode::{Name, Times};
use crate::pending::{Effect, Evidence, Expected, Spot};
use crate::recorder::Seal;
use crate::resolve::{self, Object};
use crate::sys::{self, Errno};
use effigy_journal::{
    ByteString, Kind, Op, Outcome, PathId, TimeChange, Timestamp, VersionId, Why,
};
use std::ffi::CStr;
use std::os::fd::AsFd;
use std::rc::Rc;

/// The longest value of an attribute that is kept: XATTR_SIZE_MAX, which is all there can be.
const EMPTY_PATH: i32 = libc::AT_EMPTY_PATH;

/// What else there is to a change.
#[derive(Debug, Default)]
struct Besides {
    /// Only the task can execute it.
    why: Option<Why>,
    /// The content it loses; taken when the call is left to the task.
    seal: Option<Seal>,
    /// The content it makes.
    version: Option<VersionId>,
}

impl Besides {
    /// The kernel asks who opened the descriptor, and how: only the task can answer.
    fn by_descriptor(at: &Name, flags: i32) -> Self {
        Self {
            why: (at.bytes().is_empty() && flags & EMPTY_PATH != 0).then_some(Why::Unable),
            ..Self::default()
        }
    }
}

impl Supervisor {
    /// The shape of every call here: an object that exists is changed by `change`, which gets it and the path to it.
    fn change(
        &mut self,
        asked: &Asked,
        at: &Name,
        flags: i32,
        op: &dyn Fn(PathId) -> Op,
        change: &dyn Fn(&Object, &CStr) -> sys::Result<()>,
        besides: &mut Besides,
    ) -> Result<bool, SuperviseError> {
        let object = match self.object(asked, at, flags) {
            Err(_) if besides.why.is_some() => return self.go_on(asked).map(|()| false),
            Err(errno) => {
                let placeholder = effigy_journal::PathId(0);
                let mut made = op(placeholder);
                return self
                    .fail(asked, errno, [Some(at), None], |[path, _]| {
                        set_path(&mut made, path);
                        made
                    })
                    .map(|()| false);
            }
            Ok(object) if !self.covers.holds(&object.name) => {
                return self.go_on(asked).map(|()| false);
            }
            Ok(mut object) => {
                self.name_truly(&mut object);
                object
            }
        };
        let path = object.name.clone();
        if !self.covers.holds(&path) {
            if !asked.home || besides.why.is_some() {
                return self.go_on(asked).map(|()| false);
            }
            // What has no name left shows nowhere and is no event; but the answer is to be the real filesystem's.
            if self.still_asks(asked)? {
                let by_descriptor = resolve::by_descriptor(object.fd.as_fd(), b"");
                self.answer(asked, change(&object, &by_descriptor))?;
            }
            return Ok(false);
        }
        self.wait_for(asked, &path);
        let why = if !asked.home {
            Some(Why::Foreign)
        } else if self.copies_up(&path, &object.seen) {
            Some(Why::CopyUp)
        } else {
            besides.why
        };
        if let Some(why) = why {
            let Some(id) = self.recorder.path(&path) else {
                return self.go_on(asked).map(|()| false);
            };
            self.touch(&path, Some(&object.seen));
            let evidence = match self.place(asked, at) {
                Ok(place) if place.name() == path => {
                    Evidence::Changes(spot(&place, &path), object.seen)
                }
                _ => Evidence::Changes(self.absolute(&path), object.seen),
            };
            let expected = Expected::Other {
                op: op(id),
                effect: match besides.version {
                    Some(version) => Effect::Writes(path, version),
                    None => Effect::Changes(path),
                },
                seal: besides.seal.take(),
            };
            return self
                .leave(asked, why, expected, evidence, Outcome::Unknown)
                .map(|()| false);
        }
        if !self.still_asks(asked)? {
            return Ok(false);
        }
        let by_descriptor = resolve::by_descriptor(object.fd.as_fd(), b"");
        let result = change(&object, &by_descriptor);
        self.answer(asked, result)?;
        if result.is_ok() {
            self.must_have_shown(&path, Some(&object.seen));
            self.touch(&path, Some(&object.seen));
            let now = sys::stat_fd(object.fd.as_fd()).ok();
            self.recorder
                .model
                .changed(&path, now.as_ref().map(|seen| &seen.stat));
        }
        let op = self.recorder.path(&path).map(op);
        self.performed(asked, op, result);
        Ok(result.is_ok())
    }

    /// A spot for an absolute name.
    pub(super) fn absolute(&self, path: &[u8]) -> Spot {
        let last = super::names::cstring(path.iter().copied().skip(1).collect());
        Spot {
            dir: Rc::clone(&self.root),
            last,
            path: path.to_vec(),
        }
    }

    pub(super) fn truncate(&mut self, asked: &Asked, at: &Name, len: i64) -> Handled {
        let length = len.unsigned_abs();
        // What is cut off is sealed before, if the session made it; so the object is looked at first.
        let object = self
            .object(asked, at, 0)
            .ok()
            .filter(|object| object.seen.kind() == Kind::File);
        let mut besides = Besides::default();
        let mut written = None;
        if let Some(object) = object
            && self.covers.holds(&object.name)
        {
            let number = self.recorder.new_version();
            if length < object.seen.stat.size {
                besides.seal = self
                    .recorder
                    .seal_content(&self.covers, &object.name, &object.seen);
            } else {
                besides.seal = self
                    .recorder
                    .seal_beginning(&object.name, &object.seen, number);
                if length > object.seen.stat.size && !sys::may_grow(asked.who.tid, length) {
                    // Whoever goes beyond a limit gets a signal for it, too.
                    besides.why = Some(Why::Unable);
                }
            }
            besides.version = Some(number);
            written = Some(object.name);
        }
        let number = besides.version;
        let done = self.change(
            asked,
            at,
            0,
            &|path| Op::Truncate {
                path,
                len: length,
                version: number,
            },
            &|_, path| sys::truncate(path, len),
            &mut besides,
        )?;
        self.recorder.confirm_seal(besides.seal, done);
        if let (Some(number), Some(path), true) = (number, written, done) {
            self.recorder.model.written(&path, number);
        }
        Ok(())
    }

    pub(super) fn chmod(&mut self, asked: &Asked, at: &Name, mode: u32, flags: i32) -> Handled {
        let op = |path| Op::Chmod {
            path,
            mode: mode & 0o7777,
        };
        let change = |object: &Object, path: &CStr| {
            match sys::fchmodat2(object.fd.as_fd(), c"", mode, EMPTY_PATH.cast_unsigned()) {
                // Before 6.6.
                Err(Errno(libc::ENOSYS)) if object.seen.kind() != Kind::Symlink => {
                    sys::chmod(sys::CWD, path, mode)
                }
                other => other,
            }
        };
        self.change(asked, at, flags, &op, &change, &mut Besides::default())
            .map(drop)
    }

    pub(super) fn chown(
        &mut self,
        asked: &Asked,
        at: &Name,
        ids: (u32, u32),
        flags: i32,
    ) -> Handled {
        let id = |id: u32| (id != u32::MAX).then_some(id);
        let op = |path| Op::Chown {
            path,
            uid: id(ids.0),
            gid: id(ids.1),
        };
        let may = self.tasks.may_chown();
        let change = |object: &Object, _: &CStr| {
            match sys::fchownat(object.fd.as_fd(), c"", ids.0, ids.1, EMPTY_PATH) {
                // An id that means nothing in the semisolate does outside, where it is just not allowed.
                Err(Errno(libc::EINVAL)) if !may => Err(Errno(libc::EPERM)),
                other => other,
            }
        };
        self.change(asked, at, flags, &op, &change, &mut Besides::default())
            .map(drop)
    }

    pub(super) fn utimens(
        &mut self,
        asked: &Asked,
        at: &Name,
        times: Times,
        flags: i32,
    ) -> Handled {
        let now = Timestamp::now();
        let change = |index: usize| match times {
            None => TimeChange::Now(now),
            Some(times) => match times[index].tv_nsec {
                libc::UTIME_NOW => TimeChange::Now(now),
                libc::UTIME_OMIT => TimeChange::Omit,
                nsec => TimeChange::Set(Timestamp::from_parts(
                    times[index].tv_sec,
                    u32::try_from(nsec).unwrap_or(0),
                )),
            },
        };
        let op = |path| Op::Utimens {
            path,
            atime: change(0),
            mtime: change(1),
        };
        let change = |object: &Object, _: &CStr| {
            sys::utimensat(object.fd.as_fd(), c"", times.as_ref(), EMPTY_PATH)
        };
        self.change(asked, at, flags, &op, &change, &mut Besides::default())
            .map(drop)
    }

    pub(super) fn setxattr(
        &mut self,
        asked: &Asked,
        at: &Name,
        name: &CStr,
        (value, flags): (&[u8], i32),
        at_flags: i32,
    ) -> Handled {
        let op = |path| Op::Setxattr {
            path,
            name: ByteString::from(name.to_bytes()),
            value: ByteString::from(value),
            flags: flags.cast_unsigned(),
        };
        self.change(
            asked,
            at,
            at_flags,
            &op,
            &|object, path| match object.seen.kind() {
                Kind::Symlink => Self::on_link(object, |path| {
                    sys::setxattr(path, name, value, flags, false)
                }),
                _ => sys::setxattr(path, name, value, flags, true)
                    .inspect(|()| Self::keep_name(object)),
            },
            &mut Besides::by_descriptor(at, at_flags),
        )
        .map(drop)
    }

    pub(super) fn removexattr(
        &mut self,
        asked: &Asked,
        at: &Name,
        name: &CStr,
        at_flags: i32,
    ) -> Handled {
        let op = |path| Op::Removexattr {
            path,
            name: ByteString::from(name.to_bytes()),
        };
        self.change(
            asked,
            at,
            at_flags,
            &op,
            &|object, path| match object.seen.kind() {
                Kind::Symlink => Self::on_link(object, |path| sys::removexattr(path, name, false)),
                _ => sys::removexattr(path, name, true).inspect(|()| Self::keep_name(object)),
            },
            &mut Besides::by_descriptor(at, at_flags),
        )
        .map(drop)
    }

    /// Of a file that was copied up under another of its names, overlayfs gives the layer this one only when anything but extended
    /// attributes is set under it: without, the layer would lose the file with the other name.
    fn keep_name(object: &Object) {
        let stat = &object.seen.stat;
        if object.seen.kind() == Kind::File && stat.nlink > 1 {
            // Whoever may set an attribute and not the mode is no owner; then there is nothing that could be done.
            let _ = sys::fchmodat2(
                object.fd.as_fd(),
                c"",
                stat.mode & 0o7777,
                EMPTY_PATH.cast_unsigned(),
            );
        }
    }

    /// An attribute of a symbolic link itself can only be reached by name; `call` gets one below a held parent.
    fn on_link(object: &Object, call: impl Fn(&CStr) -> sys::Result<()>) -> sys::Result<()> {
        let slash = object
            .name
            .iter()
            .rposition(|byte| *byte == b'/')
            .unwrap_or(0);
        let (parent, last) = object.name.split_at(slash);
        let parent = if parent.is_empty() {
            c"/".to_owned()
        } else {
            super::names::cstring(parent.to_vec())
        };
        let parent = sys::walk(sys::CWD, &parent, libc::O_DIRECTORY, false)?;
        let path = resolve::by_descriptor(parent.as_fd(), last);
        // The link may have been replaced since it was resolved, by nobody whose calls are performed here.
        if !sys::statx(sys::CWD, &path, libc::AT_SYMLINK_NOFOLLOW)?.same(&object.seen) {
            return Err(Errno(libc::ENOENT));
        }
        call(&path)
    }

    /// Inode flags: the task sets them itself; there is no event for them, and the layers cannot hold most of them.
    pub(super) fn file_setattr(&mut self, asked: &Asked, at: &Name, at_flags: i32) -> Handled {
        let object = self.object(asked, at, at_flags);
        self.go_on(asked)?;
        if let Ok(object) = object
            && self.covers.holds(&object.name)
        {
            self.touch(&object.name, Some(&object.seen));
            self.recorder
                .note_text("inode flags were set with file_setattr; they are not recorded");
        }
        Ok(())
    }
}

fn set_path(op: &mut Op, new: PathId) {
    match op {
        Op::Truncate { path, .. }
        | Op::Chmod { path, .. }
        | Op::Chown { path, .. }
        | Op::Utimens { path, .. }
        | Op::Setxattr { path, .. }
        | Op::Removexattr { path, .. } => *path = new,
        _ => {}
    }
}
