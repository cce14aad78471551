//! `effigy discard` and `effigy gc`: deleting sessions.

use std::time::Duration;

use anyhow::bail;
use effigy_journal::{DiscardError, FindError, GcLimits, Session, SessionId, Store, Timestamp};

use effigy_replay::recover;

use crate::cli::{DiscardArgs, GcArgs};
use crate::failure::{Cannot as _, Failure, status};
use crate::prompt::agree;
use crate::render::quantity::{count, size};
use crate::store::{find, locked};

pub(crate) fn discard(args: &DiscardArgs, store: &Store) -> anyhow::Result<()> {
    if !args.all && args.older_than.is_none() {
        return discard_named(&args.sessions, store);
    }
    let listing = store.list().cannot()?;
    let chosen: Vec<Session> = listing
        .sessions
        .into_iter()
        .filter(|s| !s.is_in_use() && !recover::is_needed(s))
        .filter(|s| args.older_than.is_none_or(|limit| is_older(s, limit)))
        .collect();
    let damaged: Vec<SessionId> = match args.all {
        true => listing.damaged.into_iter().map(|d| d.id).collect(),
        false => Vec::new(),
    };
    let number = chosen.len() + damaged.len();
    if number == 0 {
        eprintln!("there is no session to discard");
        return Ok(());
    }
    if !args.yes {
        agree(&format!("Discard {}?", count(number, "session")), || Ok(()))?;
    }
    store.discard_all(chosen).map_err(refused)?;
    for id in damaged {
        store.discard_damaged(&id).map_err(refused)?;
    }
    eprintln!("discarded {}", count(number, "session"));
    Ok(())
}

/// All are looked up before the first is deleted, so that a misspelt name deletes nothing.
fn discard_named(wanted: &[String], store: &Store) -> anyhow::Result<()> {
    let mut sessions: Vec<Session> = Vec::new();
    let mut damaged = Vec::new();
    for name in wanted {
        // The newest one is never meant here: an empty word comes from an unset variable in a script.
        if name.is_empty() {
            bail!(Failure::new("an empty name names no session"));
        }
        match store.find(Some(name)) {
            Ok(session) if sessions.iter().any(|s| s.record.id == session.record.id) => {}
            Ok(session) => sessions.push(session),
            Err(FindError::Damaged(_)) => {
                damaged.extend(SessionId::parse(name));
            }
            Err(_) => {
                find(store, Some(name))?;
            }
        }
    }
    if let Some(session) = sessions.iter().find(|s| recover::is_needed(s)) {
        return Err(Failure::refused(format!(
            "session {} has an interrupted apply, and holds what that has replaced",
            session.label()
        ))
        .hint("effigy recover finishes it or rolls it back")
        .into());
    }
    // Before the first is deleted, too.
    for session in &sessions {
        let others = store.upper(&session.record.id);
        let rest: Vec<String> = others
            .iter()
            .filter(|other| sessions.iter().all(|s| s.record.id != other.record.id))
            .map(|other| other.label().to_owned())
            .collect();
        if !rest.is_empty() {
            let name = session.label().to_owned();
            return Err(refused(DiscardError::Needed { name, upper: rest }));
        }
    }
    store.discard_all(sessions).map_err(refused)?;
    for id in damaged {
        store.discard_damaged(&id).map_err(refused)?;
    }
    Ok(())
}

fn is_older(session: &Session, limit: Duration) -> bool {
    let ended = session.record.end.unwrap_or(session.record.start);
    Duration::from_nanos(Timestamp::now().since(ended)) > limit
}

fn refused(error: DiscardError) -> anyhow::Error {
    match error {
        DiscardError::Lock(error) => locked(error),
        DiscardError::Needed { ref upper, .. } => {
            let hint = format!(
                "discard these first, or together: effigy discard {}",
                upper.join(" ")
            );
            Failure::from_error(error)
                .status(status::NO)
                .hint(hint)
                .into()
        }
        other => Failure::from_error(other).into(),
    }
}

pub(crate) fn gc(args: &GcArgs, store: &Store) -> anyhow::Result<()> {
    let limits = GcLimits {
        age: args.max_age,
        count: args.max_count,
        bytes: args.max_size,
    };
    // What an interrupted apply has replaced is only in its session.
    let report = store
        .gc(&limits, &mut |session| recover::is_needed(session))
        .cannot()?;
    for (id, name, bytes) in &report.discarded {
        let name = name.as_deref().unwrap_or("-");
        println!("discarded {id} {name} {}", size(*bytes));
    }
    for id in &report.kept {
        println!("kept {id}: it is in use or still needed");
    }
    let mut failed = report.failed.into_iter();
    if let Some(first) = failed.next() {
        for error in failed {
            eprintln!("effigy: cannot {error}");
        }
        return Err(Failure::from_error(first).into());
    }
    Ok(())
}
