//! A path that is not as the session met it.

use crate::node::Node;
use std::fmt;
use std::path::PathBuf;

/// Why a path cannot be applied as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Changed by somebody else since the command was let go (or since the apply, for an undo).
    ChangedMeanwhile,
    /// Something stands where the command found nothing.
    AppearedMeanwhile,
    /// Nothing stands where the command found something.
    GoneMeanwhile,
    /// Below a directory that would be removed or replaced lies something that the command never saw.
    UnseenBelow,
    /// A parent is a symbolic link or no directory.
    ParentReplaced {
        /// The real parent.
        parent: PathBuf,
    },
    /// A parent is missing.
    ParentGone {
        /// The real parent.
        parent: PathBuf,
    },
    /// Another filesystem is mounted there.
    MountInTheWay,
    /// Something that the selection excludes lies below.
    ExcludedBelow {
        /// One such path.
        path: PathBuf,
    },
    /// The permissions of the parent, or a flag of the file, forbid it. `errno` names which.
    Forbidden {
        /// What the kernel would say.
        errno: i32,
        /// The path whose permission lacks.
        at: PathBuf,
    },
    /// It cannot be read, so it cannot be compared.
    Unreadable {
        /// What the kernel said.
        errno: i32,
    },
}

/// What the user can do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// `--on-conflict skip` or `overwrite`, or put the path back.
    Choose,
    /// Make room, or get the permission, and try again.
    Repair,
}

/// One path in conflict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The path, absolute.
    pub path: PathBuf,
    /// Why.
    pub reason: Reason,
    /// What the session made of it; `None` when it is to be deleted.
    pub wanted: Option<Node>,
    /// What is there now.
    pub found: Option<Node>,
}

impl Conflict {
    /// What can be done. Only [`Advice::Choose`] conflicts are settled by `--on-conflict`.
    #[must_use]
    pub fn advice(&self) -> Advice {
        match self.reason {
            Reason::ChangedMeanwhile
            | Reason::AppearedMeanwhile
            | Reason::GoneMeanwhile
            | Reason::UnseenBelow => Advice::Choose,
            _ => Advice::Repair,
        }
    }
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.reason {
            Reason::ChangedMeanwhile => {
                write!(f, "{path}: changed by someone else since the session began")
            }
            Reason::AppearedMeanwhile => {
                write!(f, "{path}: something was put there since the session began")
            }
            Reason::GoneMeanwhile => write!(f, "{path}: it is gone since the session began"),
            Reason::UnseenBelow => write!(
                f,
                "{path}: changed or added since the session began, in a directory to be removed"
            ),
            Reason::ParentReplaced { parent } => write!(
                f,
                "{path}: its parent {} is no longer a directory",
                parent.display()
            ),
            Reason::ParentGone { parent } => {
                write!(f, "{path}: its parent {} is gone", parent.display())
            }
            Reason::MountInTheWay => write!(f, "{path}: another filesystem is mounted there"),
            Reason::ExcludedBelow { path: below } => {
                write!(
                    f,
                    "{path}: it cannot be replaced while {} is to stay",
                    below.display()
                )
            }
            Reason::Forbidden { errno, at } => {
                write!(
                    f,
                    "{path}: {}: {}",
                    at.display(),
                    std::io::Error::from_raw_os_error(*errno)
                )
            }
            Reason::Unreadable { errno } => {
                write!(
                    f,
                    "{path}: cannot be read: {}",
                    std::io::Error::from_raw_os_error(*errno)
                )
            }
        }
    }
}
