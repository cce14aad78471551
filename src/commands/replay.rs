//! `effigy replay`: applies the chosen effects as they were recorded.

use std::path::PathBuf;

use effigy_journal::{Session, Store};
use effigy_replay::net::NetError;
use effigy_replay::{
    Needed, Note, Options, Plan, PlanError, ReplayError, ReplayOptions, replay as engine,
};

use crate::cli::{FilterArgs, ReplayArgs};
use crate::commands::apply::{
    carry_out, note_asked, show_plan, tell_done, tell_notes, unplanned, warn_in_use,
};
use crate::failure::{Failure, status};
use crate::filters::{events, words};
use crate::prompt::agree;
use crate::render::name::escaped;
use crate::render::quantity::count;
use crate::store::find_to_change;

pub(crate) fn replay(args: &ReplayArgs, store: &Store) -> anyhow::Result<()> {
    let mut session = find_to_change(store, args.session.as_deref())?;
    let root = args.root.as_ref().map(whole).transpose()?;
    let options = ReplayOptions {
        options: Options {
            on_conflict: args.apply.on_conflict.into(),
            devices: args.devices.devices,
            ..Options::default()
        },
        root: root.as_deref(),
        strict: args.strict,
    };
    let plan = plan(&session, &args.filters, &options)?.map_err(refused)?;
    if args.apply.dry_run {
        return show_plan(&plan, &args.apply);
    }
    if !args.apply.quiet {
        warn_in_use(&plan);
        tell_notes(&plan);
    }
    if plan.is_empty() {
        if plan.notes().iter().any(|note| matches!(note, Note::CutOff)) {
            let message = format!(
                "nothing to replay is left in the journal of session {}",
                session.label()
            );
            return Err(Failure::refused(message)
                .hint("effigy log tells how the journal ends; effigy summary and commit go by the layers, which hold what there is")
                .into());
        }
        if !args.apply.quiet {
            eprintln!("session {} has nothing to replay", session.label());
        }
        return Ok(());
    }
    if !args.apply.yes {
        let steps = count(plan.len(), "step");
        let question = format!("Replay session {} ({steps})?", session.label());
        agree(&question, || Ok(()))?;
    }
    let copying = ReplayOptions {
        options: Options {
            copy: true,
            ..options.options
        },
        ..options
    };
    let again = |session: &Session| {
        let damaged = |reason: String| {
            let path = session.journal();
            PlanError::Net(NetError::Damaged { path, reason })
        };
        match self::plan(session, &args.filters, &copying) {
            Ok(Ok(plan)) => Ok(plan),
            Ok(Err(ReplayError::Plan(error))) => Err(error),
            Ok(Err(error)) => Err(damaged(error.to_string())),
            Err(error) => Err(damaged(error.to_string())),
        }
    };
    note_asked(&mut session, &plan, "replay", words(&args.filters))?;
    let applied = carry_out(plan, &mut session, engine::apply, again, args.apply.quiet)?;
    if !args.apply.quiet {
        tell_done("replayed", &session, applied);
    }
    Ok(())
}

fn plan(
    session: &Session,
    filters: &FilterArgs,
    options: &ReplayOptions<'_>,
) -> anyhow::Result<Result<Plan, ReplayError>> {
    let mut events = events(session, filters)?;
    Ok(engine::plan(session, &mut events, options))
}

/// The directory of `--root` without symbolic links, which the engine does not follow.
fn whole(root: &PathBuf) -> anyhow::Result<PathBuf> {
    std::fs::canonicalize(root).map_err(|error| {
        let message = format!("cannot replay onto {}: {error}", escaped(root));
        Failure::refused(message)
            .hint("--root names a directory that exists; what the first effects need must be in it")
            .into()
    })
}

fn refused(error: ReplayError) -> anyhow::Error {
    match error {
        ReplayError::Plan(error) => unplanned(error),
        ReplayError::Incomplete(needed) => incomplete(&needed),
        ReplayError::NoJournal { .. } => Failure::from_error(error)
            .status(status::NO)
            .hint("effigy commit applies what it changes")
            .into(),
        ReplayError::NoContent { .. } => Failure::from_error(error)
            .status(status::NO)
            .hint("leave the file out with --exclude, or choose a later event that gives it its content")
            .into(),
        ReplayError::Committed { .. } => Failure::from_error(error)
            .status(status::NO)
            .hint("effigy undo takes the commit back; then any part can be replayed")
            .into(),
        other => Failure::from_error(other).into(),
    }
}

/// Names each event that `--strict` misses.
fn incomplete(needed: &[Needed]) -> anyhow::Error {
    for event in needed {
        let (by, op) = event.by;
        let path = escaped(&event.path);
        eprintln!(
            "effigy: {op} #{by} needs {} #{} of {path}",
            event.op, event.seq
        );
    }
    let events = count(needed.len(), "event");
    Failure::refused(format!(
        "the selection lacks {events} that it rests on; nothing was changed"
    ))
    .hint("without --strict they are added")
    .into()
}
