//! `run --resume`: a session that goes on in its own layers.

use std::fs;
use std::path::PathBuf;

use effigy_journal::{Reader, Session, State, Status, Store, Tail, Timestamp};
use effigy_replay::recover;
use effigy_semisolate::{Lower, Plan, RealTree, mountinfo::Mount};

use super::stack;
use crate::cli::RunOptions;
use crate::failure::{Cannot as _, Failure};
use crate::recording;
use crate::render::name::escaped;
use crate::store::find_to_change;

/// Finds the session that is to go on and locks it. What stands in the way is refused before anything is changed.
pub(super) fn find(store: &Store, options: &RunOptions) -> anyhow::Result<Session> {
    let session = find_to_change(store, options.session.as_deref())?;
    let label = session.label().to_owned();
    let refuse = |reason: &str, hint: String| {
        let message = format!("cannot go on with session {label}: {reason}");
        Err::<Session, anyhow::Error>(Failure::refused(message).hint(hint).into())
    };
    if recover::is_needed(&session) {
        let hint = format!("effigy recover {label} finishes it or rolls it back");
        return refuse("an apply of it was interrupted", hint);
    }
    if session.record.state == State::Applied {
        let hint = format!(
            "run the command in a session of its own, or take it back first: effigy undo {label}"
        );
        return refuse("it is applied, at least in part", hint);
    }
    let upper: Vec<String> = store
        .upper(&session.record.id)
        .iter()
        .map(|upper| upper.label().to_owned())
        .collect();
    if !upper.is_empty() {
        let hint = format!("effigy run --on {} goes on above them", upper.join(","));
        return refuse(
            &format!("it would change what {} rests on", upper.join(" and ")),
            hint,
        );
    }
    let uid = nix::unistd::geteuid().as_raw();
    if session.record.uid != uid {
        let reason = format!("it was recorded by user {}", session.record.uid);
        return refuse(
            &reason,
            format!("effigy run --on {label} runs on top of it"),
        );
    }
    if session.record.traced == options.no_trace {
        let (reason, hint) = match options.no_trace {
            true => (
                "it has a journal, in which this run would be missing",
                "leave --no-trace out",
            ),
            false => (
                "it was run with --no-trace, so there is no journal to go on with",
                "give --no-trace again",
            ),
        };
        return refuse(reason, hint.to_owned());
    }
    if session.record.traced {
        check_journal(&session, options.quiet)?;
    }
    if session.status() != Status::Recorded
        && went_down_since(session.record.start)
        && !options.quiet
    {
        eprintln!(
            "effigy: the machine went down after session {label} was begun: what was written last may be missing from its files"
        );
        eprintln!("  hint: look at it before you commit: effigy diff {label}");
    }
    // The name of a killed run's record, or of an early effigy's, tells nothing; the room for the last words is needed again.
    session.keep_room().map_err(|error| {
        Failure::new(format!("cannot write in the store: {error}"))
            .hint("free some space there: effigy gc, effigy discard")
    })?;
    Ok(session)
}

/// Reads the journal to its end: a torn tail will be cut off, and anything else that is wrong with it is refused.
fn check_journal(session: &Session, quiet: bool) -> anyhow::Result<()> {
    let mut reader: Reader = recording::open(session)?;
    while reader.next_entry().cannot()?.is_some() {}
    match reader.tail() {
        Tail::Complete => Ok(()),
        tail @ (Tail::Unfinished | Tail::Torn { .. }) => {
            if !quiet {
                eprintln!(
                    "effigy: the journal of session {} is {}",
                    session.label(),
                    recording::ending(tail, 0)
                );
                eprintln!(
                    "  it goes on after event {}; what was done after that shows as changes that no event explains",
                    reader.last().0
                );
            }
            Ok(())
        }
        tail => Err(Failure::refused(format!(
            "cannot go on with session {}: its journal is {}",
            session.label(),
            recording::ending(tail, 0)
        ))
        .hint(format!(
            "effigy run --on {} runs on top of it, in a session of its own",
            session.label()
        ))
        .into()),
    }
}

/// Whether the machine was started after this moment: the layers of a session are not brought to disk while it is recorded.
fn went_down_since(start: Timestamp) -> bool {
    let uptime = fs::read_to_string("/proc/uptime").ok();
    let seconds = uptime
        .as_deref()
        .and_then(|text| text.split(['.', ' ']).next()?.parse::<u64>().ok());
    seconds.is_some_and(|up| Timestamp::now().since(start) / 1_000_000_000 > up)
}

/// Gives the plan the covers and layers of the session.
pub(super) fn go_on(
    plan: &mut Plan,
    session: &Session,
    below: &[Lower],
    mounts: &[Mount],
) -> anyhow::Result<()> {
    let covers = session.record.covers.iter();
    let layers: Vec<(PathBuf, u32)> = covers
        .map(|cover| (cover.mount_point.clone(), cover.layer))
        .collect();
    plan.go_on(&stack::lower(session), &layers, below, mounts, &RealTree)
        .cannot()
        .map_err(|error| {
            error.context(format!(
                "cannot go on with session {}",
                escaped(session.label())
            ))
        })
}
