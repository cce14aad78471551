//! Sessions that rest on others (`effigy run --on`): what was before the upper one is what the lower ones left.
//!
//! One rule keeps the real tree right: the lower sessions are applied first and taken back last. So an upper session is applied
//! only when nothing of those it rests on is outstanding, and none of them is taken back while it is applied.

use crate::commit::{is_effect, path_of};
use crate::known::absolute;
use crate::ledger::{Ledger, Stage};
use crate::net::NetError;
use crate::plan::PlanError;
use crate::recollect::Recollection;
use crate::scan;
use crate::step::Step;
use effigy_journal::{Asked, RecordError, Session, SessionId, State};
use std::collections::{HashSet, VecDeque};
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

/// The sessions that `session` rests on and of which something is not applied, the lowest first: they must be committed in this
/// order before it.
///
/// # Errors
/// One of them cannot be read.
pub fn outstanding(session: &Session) -> Result<Vec<Session>, NetError> {
    let mut found = VecDeque::new();
    for lower in lower(session)?.into_iter().rev() {
        if lacks(&lower, found.make_contiguous())? {
            found.push_front(lower);
        }
    }
    Ok(found.into_iter().rev().collect())
}

/// Whether some effects of a session are not applied. What its applies have put in place counts as being there, whatever sessions
/// over it have made of it since. `lower` are those that it may rest on, the topmost first.
fn lacks(session: &Session, lower: &[Session]) -> Result<bool, NetError> {
    // What was only copied up by a run without effects may differ from what a session over it has made of it.
    if session.record.effects == Some(0) {
        return Ok(false);
    }
    let mut placed = HashSet::new();
    for ledger in Ledger::all(session).map_err(NetError::io(session.dir()))? {
        let Stage::Applied(_) = ledger.stage()? else {
            continue;
        };
        let whole = |asked: &Asked| asked.apply == ledger.number && asked.filter.is_empty();
        if session.record.asked.iter().any(whole) {
            return Ok(false);
        }
        let Some(plan) = ledger.plan()? else { continue };
        for step in &plan.steps {
            placed.extend(step.target().and_then(|loc| absolute(&plan, loc)));
            if let Step::Put(put) = step {
                placed.extend(absolute(&plan, &put.hold));
            }
        }
    }
    let scanned = scan::scan_over(session, lower, &Recollection::of(session), true)?;
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
