//! Finishing or rolling back what was interrupted.

use crate::engine::{ApplyError, Engine, Fail, Left};
use crate::execute;
use crate::ledger::{Ledger, PlanFile, Stage};
use crate::net::NetError;
use crate::options::{Options, Progress, Trouble};
use effigy_journal::{Session, State};
use std::path::PathBuf;

/// What a recovery did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// Whether an apply or undo of this session was interrupted (or is under way: ask only with the lock held). Cheap.
#[must_use]
pub fn is_needed(session: &Session) -> bool {
    let Ok(ledgers) = Ledger::all(session) else {
        return false;
    };
    let stages: Vec<_> = ledgers.iter().map(Ledger::stage).collect();
    let settled = |stage: &Result<Stage, NetError>| {
        matches!(
            stage,
            Ok(Stage::Applied(_) | Stage::Undone(_) | Stage::Nothing)
        )
    };
    let applied = stages
        .iter()
        .any(|stage| matches!(stage, Ok(Stage::Applied(_))));
    // Killed between the last step and the record.
    let unrecorded = applied != (session.record.state == State::Applied);
    unrecorded || !stages.iter().all(settled)
}

/// Finishes or rolls back what was interrupted; the real tree is then wholly new or wholly old. Idempotent.
///
/// # Errors
/// When the system refuses; it may be tried again.
pub fn recover(
    session: &mut Session,
    options: &Options,
    progress: &mut dyn FnMut(Progress),
) -> Result<Recovered, ApplyError> {
    if !session.is_locked_exclusively() {
        return Err(ApplyError::NotLocked);
    }
    let mut recovered = Recovered {
        outcome: Outcome::Nothing,
        left: Vec::new(),
    };
    // The last first, as later applies rest on earlier ones.
    for ledger in Ledger::all(session)
        .map_err(NetError::io(session.dir()))?
        .into_iter()
        .rev()
    {
        let stage = ledger.stage()?;
        match stage {
            Stage::Applied(_) | Stage::Undone(_) => continue,
            Stage::Nothing => {
                // The plan was never whole, so nothing was done; the directory holds nothing of worth.
                std::fs::remove_dir_all(&ledger.dir).map_err(NetError::io(&ledger.dir))?;
                continue;
            }
            Stage::Applying | Stage::Undoing(_) => {}
        }
        let Some(plan) = ledger.plan()? else {
            // A plan that never reached the disk whole: steps are taken only after it has.
            std::fs::remove_dir_all(&ledger.dir).map_err(NetError::io(&ledger.dir))?;
            continue;
        };
        let driven = drive(session, &plan, ledger, stage, options.trouble(), progress);
        let (outcome, left) = driven.map_err(|fail| ApplyError::new(fail, Left::Interrupted))?;
        recovered.outcome = outcome;
        recovered.left.extend(left);
    }
    execute::settle_record(session)?;
    Ok(recovered)
}

fn drive(
    session: &Session,
    plan: &PlanFile,
    ledger: Ledger,
    stage: Stage,
    trouble: Trouble,
    progress: &mut dyn FnMut(Progress),
) -> Result<(Outcome, Vec<PathBuf>), Fail> {
    let mut engine = Engine::new(session, plan, ledger, trouble, progress)?;
    engine.resumed = true;
    if matches!(stage, Stage::Undoing(_)) {
        return Ok((Outcome::Undone, execute::take_back(&mut engine)?));
    }
    if engine.is_complete()? {
        engine.repeat_rewrites()?;
        engine.finish(false)?;
        engine.settle("done")?;
        return Ok((Outcome::Finished, Vec::new()));
    }
    Ok((Outcome::RolledBack, execute::take_back(&mut engine)?))
}
