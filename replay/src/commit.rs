//! Putting the net effects of a session in place.

use crate::engine::ApplyError;
use crate::options::{Applied, Options, Progress};
use crate::plan::{Plan, PlanError};
use crate::selection::Selection;
use effigy_journal::Session;

/// Plans the commit of the selected net effects and validates every step. Nothing is changed.
///
/// # Errors
/// When a path is in conflict, a pattern matches nothing, there is no room, or the layers cannot be read.
pub fn plan(
    session: &Session,
    selection: &Selection,
    options: &Options<'_>,
) -> Result<Plan, PlanError> {
    let _ = (session, selection, options);
    todo!()
}

/// Carries a plan out. The session must be locked exclusively; its record is updated and saved.
///
/// # Errors
/// When a step fails; everything is then put back.
pub fn apply(
    plan: Plan,
    session: &mut Session,
    progress: &mut dyn FnMut(Progress),
) -> Result<Applied, ApplyError> {
    let _ = (plan, session, progress);
    todo!()
}
