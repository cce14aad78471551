//! What an apply is told, and what it tells.

use crate::node::Time;
use std::fmt;
use std::path::{Path, PathBuf};

/// What is done with a path that somebody else has changed meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnConflict {
    /// Nothing at all is changed.
    #[default]
    Abort,
    /// The path is left as it is.
    Skip,
    /// The path is overwritten; what was there is kept for undo.
    Overwrite,
}

/// What is known of a path as the command first met it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// Nothing: the session's start time decides.
    Unknown,
    /// Nothing stood there.
    Absent,
    /// This stood there.
    Was {
        /// Its inode number.
        ino: u64,
        /// Bytes.
        size: u64,
        /// Last change of content.
        mtime: Time,
        /// Last change of anything.
        ctime: Time,
    },
}

/// What a journal knows beyond the layers. Every answer may be "unknown".
pub trait Before {
    /// What stood at `path` when the command first met it.
    fn recorded(&self, path: &Path) -> Recorded;

    /// Whether the file now at `path` is the one that stood there before, changed in place (`Some(true)`), or another
    /// one that took its name (`Some(false)`). It matters for a file with several hard links.
    fn changed_in_place(&self, path: &Path) -> Option<bool>;

    /// The name that the new file at `path` had before the session, when it was renamed. Without it a renamed file that
    /// has other hard links is put in place as a file of its own.
    fn former_name(&self, path: &Path) -> Option<PathBuf> {
        let _ = path;
        None
    }
}

/// How to plan and apply.
#[derive(Clone, Copy, Default)]
pub struct Options<'a> {
    /// What to do about conflicts.
    pub on_conflict: OnConflict,
    /// Copy instead of move, so that the session stays whole.
    pub keep: bool,
    /// Copy also within one filesystem (when renames are refused there, see [`ApplyError::CrossDevice`](crate::ApplyError)).
    pub copy: bool,
    /// What the journal knows.
    pub before: Option<&'a dyn Before>,
    /// For tests: stop dead after this many changes of the disk, as if the process had been killed.
    pub stop_after: Option<u64>,
}

impl fmt::Debug for Options<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("on_conflict", &self.on_conflict)
            .field("keep", &self.keep)
            .field("copy", &self.copy)
            .field("before", &self.before.is_some())
            .field("stop_after", &self.stop_after)
            .finish()
    }
}

/// The part of an apply that is at work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Copies are made, beside their targets or in the session.
    Preparing,
    /// Data is brought to disk.
    Syncing,
    /// Names are changed.
    Switching,
    /// Temporary names are removed.
    Finishing,
}

/// How far an apply is. The callback is called often: at least once a step and once per MiB copied.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// What is being done.
    pub phase: Phase,
    /// Steps of this phase that are done.
    pub done: u64,
    /// Steps of this phase.
    pub total: u64,
    /// Bytes copied so far.
    pub copied: u64,
    /// Bytes that will be copied, at most.
    pub to_copy: u64,
}

/// What an apply or undo has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// The number of the apply: `apply/<k>` holds its ledger and before-images. 0 when there was nothing to do.
    pub apply: u32,
    /// Steps taken.
    pub steps: u64,
    /// Bytes copied.
    pub copied: u64,
}
