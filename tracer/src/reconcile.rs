//! After the end: layers and journal are compared. The layers are the truth about the end state; what no event explains is
//! settled with an event of its own.

use crate::covers::Covers;
use crate::model::{Attributes, Known};
use crate::recorder::{Recorder, Who};
use crate::resolve::{by_descriptor, join};
use crate::sys::{self, Errno, Seen};
use effigy_journal::{By, Kind, Note, Op, Outcome, ProcessId, Why};
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;

/// What the comparison found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// Effects no event speaks of.
    pub(crate) unexplained: u64,
    /// Known paths whose last attributes no event gave.
    pub(crate) settled: u64,
}

/// An object in an upper directory.
enum Upper {
    Whiteout,
    Directory { opaque: bool },
    Other,
}

struct Comparison<'a> {
    recorder: &'a mut Recorder,
    /// Paths where effigy itself put something.
    own: &'a dyn Fn(&[u8]) -> bool,
    found: Found,
}

/// Compares every layer with what the recorder knows.
pub(crate) fn reconcile(
    recorder: &mut Recorder,
    covers: &Covers,
    own: &dyn Fn(&[u8]) -> bool,
) -> Found {
    let mut comparison = Comparison {
        recorder,
        own,
        found: Found::default(),
    };
    for layer in covers.layers() {
        let point = layer.mount_point.as_os_str().as_bytes();
        if let Ok(dir) = sys::openat(
            layer.upper.as_fd(),
            c".",
            libc::O_RDONLY | libc::O_DIRECTORY,
            0,
        ) {
            comparison.directory(dir, point, false, 0);
        }
    }
    comparison.found
}

impl Comparison<'_> {
    /// `fresh`: nothing of a lower layer shows through here.
    fn directory(&mut self, dir: std::os::fd::OwnedFd, path: &[u8], fresh: bool, depth: usize) {
        // Deeper than any path a program can name.
        if depth > 2048 {
            return;
        }
        let Ok(mut listing) = nix::dir::Dir::from_fd(dir) else {
            return;
        };
        let mut names: Vec<CString> = Vec::new();
        for entry in listing.iter().flatten() {
            if entry.file_name() != c"." && entry.file_name() != c".." {
                names.push(entry.file_name().to_owned());
            }
        }
        names.sort();
        for name in names {
            let whole = join(path, name.to_bytes());
            let Ok(seen) = sys::statx(listing.as_fd(), &name, libc::AT_SYMLINK_NOFOLLOW) else {
                continue;
            };
            let upper = classify(listing.as_fd(), &name, &seen);
            let below = fresh || matches!(upper, Upper::Directory { opaque: true });
            let came_along = self.entry(&whole, &upper, &seen, fresh);
            if let Upper::Directory { .. } = upper {
                let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW;
                match sys::openat(listing.as_fd(), &name, flags, 0) {
                    Ok(dir) => self.directory(dir, &whole, below, depth + 1),
                    Err(Errno(_)) if came_along => {}
                    Err(_) => self.unexplained(&whole, Some(&seen)),
                }
            }
        }
    }

    /// Answers whether an event accounts for the entry and what is below it.
    fn entry(&mut self, path: &[u8], upper: &Upper, seen: &Seen, fresh: bool) -> bool {
        if (self.own)(path) {
            return true;
        }
        let known = self.recorder.model.get(path).cloned();
        let came_along = || self.recorder.model.came_along(path);
        match (upper, known) {
            (Upper::Whiteout, Some(known)) if known.gone || known.moved => {}
            (Upper::Whiteout, _) => {
                if !came_along() {
                    self.unexplained(path, None);
                }
            }
            (Upper::Directory { opaque }, None) => {
                // A directory of the lower layer is here because something below it is.
                if (*opaque || fresh) && !came_along() {
                    self.unexplained(path, Some(seen));
                    return false;
                }
            }
            (Upper::Other, None) => {
                if !came_along() {
                    self.unexplained(path, Some(seen));
                }
            }
            (_, Some(known)) if known.gone => self.unexplained(path, Some(seen)),
            (_, Some(known)) => self.attributes(path, &known, seen),
        }
        true
    }

    fn attributes(&mut self, path: &[u8], known: &Known, seen: &Seen) {
        let Some(last) = known.attributes() else {
            return;
        };
        // A write takes set-id bits away, which nobody calls for.
        let plain = |a: Attributes| Attributes {
            mode: a.mode & 0o1777,
            ..a
        };
        let now = Attributes::from(&seen.stat);
        if plain(last) != plain(now) && seen.kind() != Kind::Symlink {
            self.found.settled += 1;
            self.settle(path, Some(seen));
        }
    }

    fn unexplained(&mut self, path: &[u8], seen: Option<&Seen>) {
        self.found.unexplained += 1;
        if let Some(path) = self.recorder.path(path) {
            self.recorder.note(Note::Unexplained { path });
        }
        self.settle(path, seen);
    }

    fn settle(&mut self, path: &[u8], seen: Option<&Seen>) {
        let who = Who {
            process: ProcessId(0),
            tid: 0,
            time: self.recorder.now(),
        };
        let version = self.recorder.model.version(path);
        let Some(path) = self.recorder.path(path) else {
            return;
        };
        let state = seen.map(|seen| Box::new(seen.stat));
        self.recorder.append(
            who,
            By::Observed(Why::Reconciled),
            Op::Settle {
                path,
                state,
                version,
            },
            Outcome::Ok,
        );
    }
}

fn classify(dir: BorrowedFd<'_>, name: &CStr, seen: &Seen) -> Upper {
    match seen.kind() {
        Kind::CharDevice if seen.stat.rdev == 0 => Upper::Whiteout,
        Kind::Directory => {
            let rest = [b"/", name.to_bytes()].concat();
            let path = by_descriptor(dir, &rest);
            let opaque = sys::getxattr(&path, c"user.overlay.opaque", false)
                .is_ok_and(|value| value == b"y");
            Upper::Directory { opaque }
        }
        Kind::File if seen.stat.size == 0 => {
            let rest = [b"/", name.to_bytes()].concat();
            let path = by_descriptor(dir, &rest);
            if sys::getxattr(&path, c"user.overlay.whiteout", false).is_ok() {
                Upper::Whiteout
            } else {
                Upper::Other
            }
        }
        _ => Upper::Other,
    }
}
