//! Driving a plan: apply, undo, and what is done when a step fails.

use crate::engine::{ApplyError, Engine, Fail, Left};
use crate::ledger::{Ledger, PlanFile, Stage, Taking};
use crate::net::NetError;
use crate::options::{Applied, Progress, Trouble};
use effigy_journal::{Session, State};
use std::path::PathBuf;

/// Applies a fresh plan as the apply of this number.
pub(crate) fn apply(
    session: &mut Session,
    number: u32,
    plan: &PlanFile,
    trouble: Trouble,
    progress: &mut dyn FnMut(Progress),
) -> Result<Applied, ApplyError> {
    if !session.is_locked_exclusively() {
        return Err(ApplyError::NotLocked);
    }
    if plan.steps.is_empty() {
        return Ok(Applied::default());
    }
    let ledger = Ledger::new(session, number);
    let created = ledger.create(plan).map_err(|source| Fail::Io {
        action: "write the plan in",
        path: ledger.dir.clone(),
        source,
    });
    if let Err(fail) = created {
        let _ = std::fs::remove_dir_all(&ledger.dir);
        return Err(ApplyError::new(fail, Left::Unchanged));
    }
    let dir = ledger.dir.clone();
    let mut engine = match Engine::new(session, plan, ledger, trouble, progress) {
        Ok(engine) => engine,
        Err(fail) => {
            let _ = std::fs::remove_dir_all(&dir);
            return Err(ApplyError::new(fail, Left::Unchanged));
        }
    };
    let outcome = engine
        .prepare()
        .and_then(|()| engine.forward())
        .and_then(|()| engine.finish(false));
    if let Err(fail) = outcome {
        return Err(rolled_back(&mut engine, fail));
    }
    let marked = engine.settle("done");
    marked.map_err(|fail| ApplyError::new(fail, Left::Interrupted))?;
    session.record.applies = number;
    session.record.state = State::Applied;
    session.save_soon()?;
    Ok(Applied {
        apply: number,
        steps: plan.steps.len() as u64,
        copied: engine.copied(),
    })
}

/// Puts everything back after a failed step.
fn rolled_back(engine: &mut Engine<'_>, fail: Fail) -> ApplyError {
    if matches!(fail, Fail::Stopped) {
        return ApplyError::Stopped;
    }
    match take_back(engine) {
        Ok(_) => ApplyError::new(fail, Left::Unchanged),
        Err(Fail::Stopped) => ApplyError::Stopped,
        Err(_) => ApplyError::new(fail, Left::Interrupted),
    }
}

/// Takes every step back and marks the apply undone.
pub(crate) fn take_back(engine: &mut Engine<'_>) -> Result<Vec<PathBuf>, Fail> {
    engine.resumed = true;
    engine.open_back()?;
    engine.prepare_back()?;
    let left = engine.back()?;
    engine.finish(true)?;
    engine.settle("undone")?;
    if engine.is_unswitched() {
        // Nothing was moved there yet: copies only, perhaps of a disk that they have filled.
        let _ = std::fs::remove_dir_all(engine.ledger.dir.join("before"));
    }
    Ok(left)
}

/// Takes an apply that is in place back.
pub(crate) fn undo(
    session: &mut Session,
    number: u32,
    plan: &PlanFile,
    takings: &[Taking],
    trouble: Trouble,
    progress: &mut dyn FnMut(Progress),
) -> Result<Applied, ApplyError> {
    if !session.is_locked_exclusively() {
        return Err(ApplyError::NotLocked);
    }
    let ledger = Ledger::new(session, number);
    let unchanged = |fail| ApplyError::new(fail, Left::Unchanged);
    let noted = ledger.note_takings(takings);
    noted.map_err(|source| {
        unchanged(Fail::Io {
            action: "write the ledger in",
            path: ledger.dir.clone(),
            source,
        })
    })?;
    let mut engine = Engine::new(session, plan, ledger, trouble, progress).map_err(unchanged)?;
    if let Err(fail) = engine.mark("undoing").and_then(|()| take_back(&mut engine)) {
        return Err(redone(&mut engine, fail));
    }
    let applied = Applied {
        apply: number,
        steps: plan.steps.len() as u64,
        copied: engine.copied(),
    };
    settle_record(session)?;
    Ok(applied)
}

/// Puts an apply in place again after its undo failed.
fn redone(engine: &mut Engine<'_>, fail: Fail) -> ApplyError {
    if matches!(fail, Fail::Stopped) {
        return ApplyError::Stopped;
    }
    engine.resumed = true;
    let again = unmarked(engine, &["undone"])
        .and_then(|()| engine.forward())
        .and_then(|()| engine.finish(false))
        // What was moved there and back has a later stamp than before.
        .and_then(|()| engine.settle("done"))
        .and_then(|()| unmarked(engine, &["restaged", "undoing"]));
    match again {
        Ok(()) => ApplyError::new(fail, Left::Unchanged),
        Err(Fail::Stopped) => ApplyError::Stopped,
        Err(_) => ApplyError::new(fail, Left::Interrupted),
    }
}

fn unmarked(engine: &Engine<'_>, names: &[&str]) -> Result<(), Fail> {
    let unmarked = names.iter().try_for_each(|name| engine.ledger.unmark(name));
    unmarked.map_err(|source| Fail::Io {
        action: "write the ledger in",
        path: engine.ledger.dir.clone(),
        source,
    })
}

/// Makes the session's record say what its ledgers say.
pub(crate) fn settle_record(session: &mut Session) -> Result<(), ApplyError> {
    let mut stages = Vec::new();
    let ledgers = Ledger::all(session).map_err(NetError::io(session.dir()))?;
    for ledger in &ledgers {
        stages.push(ledger.stage()?);
    }
    let applied = stages
        .iter()
        .any(|stage| matches!(stage, Stage::Applied(_)));
    let state = match session.record.state {
        _ if applied => State::Applied,
        State::Applied | State::Undone => State::Undone,
        other => other,
    };
    let applies = ledgers
        .last()
        .map_or(0, |ledger| ledger.number)
        .max(session.record.applies);
    if (state, applies) != (session.record.state, session.record.applies) {
        session.record.state = state;
        session.record.applies = applies;
        session.save()?;
    }
    Ok(())
}
