//! A validated plan: what would be done, step by step.

use crate::conflict::Conflict;
use crate::net::NetError;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

/// What the user should be told about a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// A directory that is not selected is made because something selected lies in it.
    ParentAdded {
        /// The directory.
        path: PathBuf,
    },
    /// A directory that is to be deleted stays because something excluded lies in it.
    Kept {
        /// The directory.
        path: PathBuf,
    },
    /// A conflicting path is left as it is.
    Skipped(Conflict),
    /// A conflicting path is overwritten; what is there now is kept for undo.
    Overwritten(Conflict),
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ParentAdded { path } => write!(
                f,
                "{}: added, because something selected lies in it",
                path.display()
            ),
            Self::Kept { path } => write!(
                f,
                "{}: stays, because something excluded lies in it",
                path.display()
            ),
            Self::Skipped(conflict) => write!(f, "skipped {conflict}"),
            Self::Overwritten(conflict) => write!(f, "overwritten {conflict}"),
        }
    }
}

/// What would be done.
#[derive(Debug)]
pub struct Plan {
    pub(crate) notes: Vec<Note>,
}

impl Plan {
    /// Whether there is nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        todo!()
    }

    /// The number of steps.
    #[must_use]
    pub fn len(&self) -> usize {
        todo!()
    }

    /// Bytes that will be copied, at most.
    #[must_use]
    pub fn to_copy(&self) -> u64 {
        todo!()
    }

    /// What the user should be told.
    #[must_use]
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// Each step in words, for `--dry-run`; exactly what would be done. Names are as they are: escape them for a terminal.
    pub fn describe(&self) -> impl Iterator<Item = String> + '_ {
        std::iter::empty()
    }
}

/// Why there is no plan. Nothing has been changed.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// Paths are not as the session met them, or cannot be changed. All of them.
    #[error("apply: {} {} in conflict", .0.len(), if .0.len() == 1 { "path is" } else { "paths are" })]
    Conflicts(Vec<Conflict>),
    /// Patterns that match nothing.
    #[error("apply: no effect matches {}", .0.iter().map(|p| p.to_string_lossy()).collect::<Vec<_>>().join(", "))]
    NoMatch(Vec<OsString>),
    /// Not enough room for the copies.
    #[error("apply: {needed} bytes are to be copied to the filesystem of {}, and {free} are free", .path.display())]
    NoSpace {
        /// A directory on the full filesystem.
        path: PathBuf,
        /// Bytes needed.
        needed: u64,
        /// Bytes free.
        free: u64,
    },
    /// An earlier apply was interrupted: recover first.
    #[error("apply: an earlier apply of this session was interrupted")]
    Interrupted,
    /// There is no apply to take back.
    #[error("undo: nothing of this session is applied")]
    NothingApplied,
    /// The effects could not be read.
    #[error(transparent)]
    Net(#[from] NetError),
}
