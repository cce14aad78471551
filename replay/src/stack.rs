//! Sessions that rest on others (`effigy run --on`): what was before the upper one is what the lower ones left.
//!
//! One rule keeps the real tree right: the lower sessions are applied first and taken back last. So an upper session is applied
//! only when nothing of those it rests on is outstanding, and none of them is taken back while it is applied.

use crate::commit::{is_effect, path_of};
use crate::known::absolute;
use crate::ledger::{Ledger, Stage};
use crate::net::NetError;
use crate::plan::PlanError;
use crate::scan;
use crate::step::Step;
use effigy_journal::{RecordError, Session, SessionId, State};
use std::collections::HashSet;
use std::path::Path;

/// The sessions that `session` rests on, the topmost first. They lie beside it in the store.
///
/// # Errors
/// One of them is not there, or cannot be read.
pub fn lower(session: &Session) -> Result<Vec<Session>, NetError> {
    let beside = session.dir().parent().unwrap_or(Path::new("/"));
    let read = |id: &SessionId| {
        Session::read(&beside.join(id.as_str())).map_err(|error| match error {
            RecordError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
                NetError::NoLower {
                    session: session.label().to_owned(),
                    lower: id.clone(),
                }
            }
            RecordError::Io { path, source, .. } => NetError::Io { path, source },
            other => NetError::Damaged {
                path: beside.join(id.as_str()),
                reason: other.to_string(),
            },
        })
    };
    session.record.lower.iter().map(read).collect()
}

/// The sessions that `session` rests on and that are not applied as a whole, the lowest first: they must be committed in this order
/// before it.
///
/// # Errors
/// One of them cannot be read.
pub fn outstanding(session: &Session) -> Result<Vec<Session>, NetError> {
    let mut found = Vec::new();
    for lower in lower(session)?.into_iter().rev() {
        // A session is applied over the real tree only.
        if lower.record.state != State::Applied || lacks(&lower)? {
            found.push(lower);
        }
    }
    Ok(found)
}

/// Whether the applies of a session have left some of its effects out. What they have put in place counts as being there,
/// whatever sessions over it have made of it since.
fn lacks(session: &Session) -> Result<bool, NetError> {
    let mut placed = HashSet::new();
    for ledger in Ledger::all(session).map_err(NetError::io(session.dir()))? {
        let Stage::Applied(_) = ledger.stage()? else {
            continue;
        };
        let Some(plan) = ledger.plan()? else { continue };
        for step in &plan.steps {
            placed.extend(step.target().and_then(|loc| absolute(&plan, loc)));
            if let Step::Put(put) = step {
                placed.extend(absolute(&plan, &put.hold));
            }
        }
    }
    let scanned = scan::scan(session, true)?;
    Ok(scanned.items.iter().any(|item| {
        let path = path_of(session, item);
        is_effect(item) && !path.ancestors().any(|path| placed.contains(path))
    }))
}

/// Refuses to apply a session before those it rests on.
pub(crate) fn check_apply(session: &Session) -> Result<(), PlanError> {
    if session.record.lower.is_empty() {
        return Ok(());
    }
    let lower = outstanding(session)?;
    if lower.is_empty() {
        return Ok(());
    }
    Err(PlanError::Rests {
        session: session.label().to_owned(),
        lower: lower.iter().map(|lower| lower.label().to_owned()).collect(),
    })
}

/// Refuses to take a session back before those that rest on it.
pub(crate) fn check_undo(session: &Session) -> Result<(), PlanError> {
    let beside = session.dir().parent().unwrap_or(Path::new("/"));
    let entries = std::fs::read_dir(beside).map_err(NetError::io(beside))?;
    // One that cannot be read rests on nothing that could be told.
    let mut upper: Vec<Session> = entries
        .flatten()
        .filter_map(|entry| Session::read(&entry.path()).ok())
        .filter(|other| {
            other.record.lower.contains(&session.record.id) && other.record.state == State::Applied
        })
        .collect();
    if upper.is_empty() {
        return Ok(());
    }
    upper.sort_by_key(|upper| std::cmp::Reverse(upper.record.start));
    Err(PlanError::Carries {
        session: session.label().to_owned(),
        upper: upper.iter().map(|upper| upper.label().to_owned()).collect(),
    })
}
