//! Calls that a task was told to go on with, until it can be told what came of them.

use crate::recorder::{Seal, Who};
use crate::sys::{self, Seen};
use crate::tasks::Held;
use effigy_journal::{Op, Outcome, VersionId, Why};
use std::ffi::CString;
use std::os::fd::AsFd;
use std::rc::Rc;

/// A name that is looked at again later, through the directory that was resolved.
#[derive(Clone, Debug)]
pub(crate) struct Spot {
    pub(crate) dir: Rc<Held>,
    pub(crate) last: CString,
    pub(crate) path: Vec<u8>,
}

impl Spot {
    pub(crate) fn look(&self) -> sys::Result<Seen> {
        sys::statx(self.dir.fd.as_fd(), &self.last, libc::AT_SYMLINK_NOFOLLOW)
    }
}

/// How it shows that the call was carried out.
#[derive(Clone, Debug)]
pub(crate) enum Evidence {
    /// Something is there that was not.
    Appears(Spot),
    /// What was there is not, or is another object.
    Vanishes(Spot, Seen),
    /// It has another change time.
    Changes(Spot, Seen),
    /// The object of the first has come to the second.
    Moves(Spot, Spot, Seen),
    /// It cannot be told from what is there.
    None,
}

impl Evidence {
    /// What there is now when the call has shown.
    pub(crate) fn shows(&self) -> Option<Option<Seen>> {
        match self {
            Self::Appears(spot) => spot.look().ok().map(Some),
            Self::Vanishes(spot, before) => match spot.look() {
                Ok(now) if now.same(before) => None,
                Ok(now) => Some(Some(now)),
                Err(_) => Some(None),
            },
            Self::Changes(spot, before) => {
                let now = spot.look().ok()?;
                (now.stat.ctime != before.stat.ctime
                    || now.stat.size != before.stat.size
                    || now.stat.ino != before.stat.ino)
                    .then_some(Some(now))
            }
            Self::Moves(from, to, before) => {
                let now = to.look().ok()?;
                let left = !from
                    .look()
                    .is_ok_and(|there| there.stat.ino == before.stat.ino);
                (left && now.kind() == before.kind()).then_some(Some(now))
            }
            Self::None => None,
        }
    }

    fn paths(&self) -> [Option<&[u8]>; 2] {
        match self {
            Self::Appears(spot) | Self::Vanishes(spot, _) | Self::Changes(spot, _) => {
                [Some(&spot.path), None]
            }
            Self::Moves(from, to, _) => [Some(&from.path), Some(&to.path)],
            Self::None => [None, None],
        }
    }
}

/// What the event will be.
#[derive(Clone, Debug)]
pub(crate) enum Expected {
    /// An open; what else it says is known when it shows.
    Open {
        path: Vec<u8>,
        flags: i32,
        creates: bool,
        truncates: bool,
        version: VersionId,
    },
    /// A Unix socket is bound.
    Bind { path: Vec<u8> },
    /// A nameless file gets a name.
    Named { path: Vec<u8>, version: VersionId },
    /// Any other, complete but for its result.
    Other {
        op: Op,
        effect: Effect,
        /// The content it loses when it is carried out.
        seal: Option<Seal>,
    },
}

/// What a performed-class call that is only observed does to the model.
#[derive(Clone, Debug)]
pub(crate) enum Effect {
    Creates(Vec<u8>),
    Removes(Vec<u8>),
    Changes(Vec<u8>),
    Writes(Vec<u8>, VersionId),
    Renames(Vec<u8>, Vec<u8>, bool),
    Exchanges(Vec<u8>, Vec<u8>),
    Links(Vec<u8>, Vec<u8>),
}

/// One call in the hands of its task.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    pub(crate) who: Who,
    pub(crate) why: Why,
    pub(crate) expected: Expected,
    pub(crate) evidence: Evidence,
    /// What the call fails with when it does not show, as far as that can be told.
    pub(crate) otherwise: Outcome,
}

impl Pending {
    /// What was at and below `from` is at and below `to` now.
    pub(crate) fn rebase(&mut self, from: &[u8], to: &[u8]) {
        let rebase = |path: &mut Vec<u8>| {
            if path.len() > from.len() && crate::covers::below(path, from) {
                *path = [to, &path[from.len()..]].concat();
            }
        };
        match &mut self.evidence {
            Evidence::Appears(spot) | Evidence::Vanishes(spot, _) | Evidence::Changes(spot, _) => {
                rebase(&mut spot.path)
            }
            Evidence::Moves(a, b, _) => {
                rebase(&mut a.path);
                rebase(&mut b.path);
            }
            Evidence::None => {}
        }
        match &mut self.expected {
            Expected::Open { path, .. }
            | Expected::Bind { path }
            | Expected::Named { path, .. } => rebase(path),
            Expected::Other { .. } => {}
        }
    }

    /// Whether it may change what a name leads to that goes through a directory or a link, when it is carried out.
    pub(crate) fn turns_names(&self) -> bool {
        let Expected::Other { op, .. } = &self.expected else {
            return false;
        };
        matches!(
            op,
            Op::Rename { .. } | Op::Exchange { .. } | Op::Link { .. } | Op::Symlink { .. }
        )
    }

    /// Whether it is worth waiting for.
    pub(crate) fn may_show(&self) -> bool {
        match &self.evidence {
            Evidence::None => false,
            Evidence::Appears(spot) => {
                sys::access(spot.dir.fd.as_fd(), c".", libc::W_OK | libc::X_OK, 0).is_ok()
            }
            _ => true,
        }
    }

    /// Whether an event about `path` could depend on this one.
    pub(crate) fn concerns(&self, path: &[u8]) -> bool {
        self.evidence
            .paths()
            .into_iter()
            .flatten()
            .any(|mine| crate::covers::below(mine, path) || crate::covers::below(path, mine))
    }
}
