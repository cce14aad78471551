//! Finishing or rolling back what was interrupted.

use crate::engine::ApplyError;
use crate::options::{Options, Progress};
use effigy_journal::Session;
use std::path::PathBuf;

/// What a recovery did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing was interrupted.
    Nothing,
    /// An interrupted apply was finished.
    Finished,
    /// An interrupted apply was rolled back.
    RolledBack,
    /// An interrupted undo was finished.
    Undone,
}

/// The outcome, and what could not be put right.
#[derive(Clone, Debug)]
pub struct Recovered {
    /// What was done.
    pub outcome: Outcome,
    /// Paths that somebody else has changed since the interruption and that were left alone.
    pub left: Vec<PathBuf>,
}

/// Whether an apply or undo of this session was interrupted. Cheap.
#[must_use]
pub fn is_needed(session: &Session) -> bool {
    let _ = session;
    todo!()
}

/// Finishes or rolls back what was interrupted; the real tree is then wholly new or wholly old. Idempotent.
///
/// # Errors
/// When the system refuses; it may be tried again.
pub fn recover(
    session: &mut Session,
    options: &Options<'_>,
    progress: &mut dyn FnMut(Progress),
) -> Result<Recovered, ApplyError> {
    let _ = (session, options, progress);
    todo!()
}
