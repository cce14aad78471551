//! Taking back the last apply of a session.

use crate::engine::ApplyError;
use crate::options::{Applied, Options, Progress};
use crate::plan::{Plan, PlanError};
use effigy_journal::Session;

/// Plans the undo of the last apply that is in place and validates it. Nothing is changed.
///
/// # Errors
/// When nothing is applied, or a path was changed since ([`PlanError::Conflicts`]).
pub fn plan(session: &Session, options: &Options<'_>) -> Result<Plan, PlanError> {
    let _ = (session, options);
    todo!()
}

/// Carries the undo out: the real tree and the layers are as before the apply, so the session can be applied again.
///
/// # Errors
/// When a step fails; the apply is then in place as before.
pub fn apply(
    plan: Plan,
    session: &mut Session,
    progress: &mut dyn FnMut(Progress),
) -> Result<Applied, ApplyError> {
    let _ = (plan, session, progress);
    todo!()
}
