//! How an apply fails.

use super::Fail;
use std::io;
use std::path::PathBuf;

/// Why an apply, undo or recovery failed.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The system refused a step. `left` says what state is left.
    #[error("{action} {}: {source}; {left}", .path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// The reason.
        source: io::Error,
        /// What state is left.
        left: Left,
    },
    /// A path was changed between validation and its step; it was not touched.
    #[error("apply {}: it was changed this very moment; {left}", .path.display())]
    Raced {
        /// The path.
        path: PathBuf,
        /// What state is left.
        left: Left,
    },
    /// The filesystem refuses to move between the layer and the target although both are on it (quota projects,
    /// encryption). Everything was put back: plan again with [`Options::copy`](crate::Options).
    #[error("apply {}: the filesystem refuses to move it there; nothing was changed", .path.display())]
    CrossDevice {
        /// The path.
        path: PathBuf,
    },
    /// Stopped by [`Options::stop_after`](crate::Options).
    #[error("apply: stopped by the test option")]
    Stopped,
    /// The session is not locked exclusively by the caller.
    #[error("apply: the session is not locked")]
    NotLocked,
    /// The ledger of an earlier apply cannot be read.
    #[error(transparent)]
    Ledger(#[from] crate::net::NetError),
    /// The session's record could not be written; the real tree is as planned.
    #[error(transparent)]
    Record(#[from] effigy_journal::RecordError),
}

/// The state of the real tree after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// Everything is as it was.
    Unchanged,
    /// Putting back failed: `effigy recover` is needed.
    Interrupted,
}

impl std::fmt::Display for Left {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Unchanged => "nothing was changed",
            Self::Interrupted => "the change is half done: run effigy recover",
        })
    }
}

impl ApplyError {
    /// The failure of a step, after which this state is left.
    pub(crate) fn new(fail: Fail, left: Left) -> Self {
        match fail {
            Fail::Io { path, source, .. }
                if source.raw_os_error() == Some(libc::EXDEV) && left == Left::Unchanged =>
            {
                Self::CrossDevice { path }
            }
            Fail::Io {
                action,
                path,
                source,
            } => Self::Io {
                action,
                path,
                source,
                left,
            },
            Fail::Raced(path) => Self::Raced { path, left },
            Fail::Stopped => Self::Stopped,
        }
    }
}
