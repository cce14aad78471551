//! What an apply is told, and what it tells.

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

/// How to plan and apply.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// What to do about conflicts.
    pub on_conflict: OnConflict,
    /// Copy instead of move, so that the session stays whole.
    pub keep: bool,
    /// Copy also within one filesystem (when renames are refused there, see [`ApplyError::CrossDevice`](crate::ApplyError)).
    pub copy: bool,
    /// Device nodes may be made in the real tree.
    pub devices: bool,
    /// For tests: stop dead after this many changes of the disk, as if the process had been killed.
    pub stop_after: Option<u64>,
    /// For tests: what the system refuses.
    pub failure: Option<Failure>,
}

/// A change of the disk that the system refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// It comes after this many changes.
    pub after: u64,
    /// The error number.
    pub errno: i32,
    /// Everything after it is refused too.
    pub lasting: bool,
}

/// What goes wrong on the way, in tests.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Trouble {
    pub(crate) stop_after: Option<u64>,
    pub(crate) failure: Option<Failure>,
}

impl Options {
    pub(crate) fn trouble(&self) -> Trouble {
        Trouble {
            stop_after: self.stop_after,
            failure: self.failure,
        }
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
