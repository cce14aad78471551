//! Which paths are meant: `--only` and `--exclude`.

use effigy_journal::Record;
use std::ffi::OsString;
use std::path::Path;

/// A choice of paths.
#[derive(Debug, Default)]
pub struct Selection {}

/// Why a pattern cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SelectionError {
    /// It is no glob.
    #[error("use the pattern {pattern}: {reason}")]
    Invalid {
        /// As given.
        pattern: String,
        /// What is wrong.
        reason: String,
    },
}

impl Selection {
    /// Everything.
    #[must_use]
    pub fn all() -> Self {
        Self::default()
    }

    /// What matches one of `only` (all when there are none) and none of `exclude`. Relative patterns are anchored at
    /// the working directory of the run; `*` stays within a component, `**` crosses; a match takes all that is below.
    ///
    /// # Errors
    /// When a pattern is no glob.
    pub fn new(
        record: &Record,
        only: &[OsString],
        exclude: &[OsString],
    ) -> Result<Self, SelectionError> {
        let _ = (record, only, exclude);
        todo!()
    }

    /// Whether everything is meant.
    #[must_use]
    pub fn is_all(&self) -> bool {
        todo!()
    }

    /// Whether this absolute path is meant; notes which patterns matched.
    pub fn contains(&self, path: &Path) -> bool {
        let _ = path;
        todo!()
    }

    /// The patterns, as given, that have matched nothing so far. To be asked after the effects have been read; the plan
    /// functions ask themselves and refuse.
    #[must_use]
    pub fn unmatched(&self) -> Vec<OsString> {
        todo!()
    }
}
