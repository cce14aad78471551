//! What commit, undo and the prompt at the end of a run have in common: conflicts told, consent asked, progress shown.

use std::io::{self, Write as _};

use effigy_journal::{Asked, ByteString, Session};
use effigy_replay::in_use::{Use, in_use};
use effigy_replay::{Advice, Applied, ApplyError, Conflict, OnConflict, Plan, PlanError, Progress};
use serde::Serialize;

use crate::cli::{ApplyOptions, ConflictChoice};
use crate::failure::{Cannot as _, Failure, status};
use crate::progress::Meter;
use crate::render::json;
use crate::render::name::escaped;
use crate::render::quantity::{count, size};

/// The part of the engine that carries a plan out.
pub(crate) type Executor =
    fn(Plan, &mut Session, &mut dyn FnMut(Progress)) -> Result<Applied, ApplyError>;

impl From<ConflictChoice> for OnConflict {
    fn from(choice: ConflictChoice) -> Self {
        match choice {
            ConflictChoice::Abort => Self::Abort,
            ConflictChoice::Skip => Self::Skip,
            ConflictChoice::Overwrite => Self::Overwrite,
        }
    }
}

/// Tells why there is no plan: conflicts one by one with their remedy.
pub(crate) fn unplanned(error: PlanError) -> anyhow::Error {
    match error {
        PlanError::Conflicts(conflicts) => conflicted(&conflicts),
        PlanError::Devices(paths) => {
            for path in &paths {
                eprintln!("effigy: device node: {}", escaped(path));
            }
            Failure::refused(format!("cannot apply: {} would be made; nothing was changed", count(paths.len(), "device node")))
                .hint("--devices agrees to it; --exclude leaves them out")
                .into()
        }
        PlanError::NoMatch(patterns) => {
            let patterns: Vec<String> = patterns.iter().map(|p| escaped(p).to_string()).collect();
            Failure::refused(format!("no effect matches {}; nothing was changed", patterns.join(", ")))
                .hint("patterns are anchored at the directory the command was run in; ** crosses directories")
                .into()
        }
        PlanError::NoSpace { path, needed, free } => Failure::new(format!(
            "cannot apply: {} are to be copied to the filesystem of {}, and {} are free; nothing was changed",
            size(needed),
            escaped(&path),
            size(free)
        ))
        .hint("make room there and try again")
        .into(),
        PlanError::Interrupted => Failure::from_error(error)
            .status(status::NO)
            .hint("effigy recover finishes it or rolls it back")
            .into(),
        PlanError::Rests { ref lower, .. } => {
            let hint = in_order("commit", lower);
            Failure::from_error(error).status(status::NO).hint(hint).into()
        }
        PlanError::Carries { ref upper, .. } => {
            let hint = in_order("undo", upper);
            Failure::from_error(error).status(status::NO).hint(hint).into()
        }
        PlanError::Unmounted(paths) => {
            let paths: Vec<String> = paths.iter().map(|p| escaped(p).to_string()).collect();
            Failure::refused(format!(
                "cannot apply: nothing is mounted at {} any more, where the command found a filesystem; nothing was changed",
                paths.join(", ")
            ))
            .hint("mount it again, or leave out what is there with --exclude")
            .into()
        }
        PlanError::NothingApplied => Failure::from_error(error).status(status::NO).into(),
        PlanError::Net(error) => Failure::from_error(error).into(),
    }
}

/// `first effigy commit a, then effigy commit b`.
fn in_order(command: &str, sessions: &[String]) -> String {
    let commands: Vec<String> = sessions
        .iter()
        .map(|session| format!("effigy {command} {session}"))
        .collect();
    format!("first {}", commands.join(", then "))
}

fn conflicted(conflicts: &[Conflict]) -> anyhow::Error {
    for conflict in conflicts {
        eprintln!("effigy: conflict: {}", escaped(&conflict.to_string()));
    }
    let choose = conflicts.iter().any(|c| c.advice() == Advice::Choose);
    let repair = conflicts.iter().any(|c| c.advice() == Advice::Repair);
    let failure = Failure::refused(format!(
        "{} in conflict; nothing was changed",
        match conflicts.len() {
            1 => "1 path is".to_owned(),
            n => format!("{n} paths are"),
        }
    ));
    match (choose, repair) {
        (true, false) => failure.hint(
            "put these paths back as they were, or choose: --on-conflict skip leaves them as they are now, \
             --on-conflict overwrite goes on all the same, and what was there is kept in the session",
        ),
        (false, _) => failure.hint("mend what is said of each path, or leave it out with --exclude"),
        (true, true) => failure.hint(
            "mend what is said of each path, or leave it out with --exclude; of those that were changed meanwhile, \
             --on-conflict skip or overwrite decides",
        ),
    }
    .into()
}

/// Warns of files that processes outside would lose by it. To be told before anybody is asked.
pub(crate) fn warn_in_use(plan: &Plan) {
    for used in in_use(plan) {
        eprintln!(
            "effigy: warning: {}: it goes on with what is replaced",
            escaped(&used.to_string())
        );
    }
}

/// Shows a plan for `--dry-run`.
pub(crate) fn show_plan(plan: &Plan, options: &ApplyOptions) -> anyhow::Result<()> {
    if options.json {
        return Ok(write_json(plan)?);
    }
    warn_in_use(plan);
    tell_notes(plan);
    Ok(print_steps(plan)?)
}

/// A line of a plan as docs/JSON.md has it.
#[derive(Serialize)]
#[serde(untagged)]
enum Line<'a> {
    Step {
        action: &'a str,
        path: json::Name<'a>,
    },
    Warning {
        warning: &'static str,
        path: json::Name<'a>,
        pid: Option<u32>,
        comm: Option<json::Name<'a>>,
    },
    Note {
        note: String,
    },
}

fn write_json(plan: &Plan) -> io::Result<()> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    for used in in_use(plan) {
        let known = used.pid != 0;
        let line = Line::Warning {
            warning: match used.how {
                Use::Written => "open for writing",
                Use::Locked => "locked",
            },
            path: json::Name::new(&used.path),
            pid: known.then_some(used.pid),
            comm: known.then(|| json::Name::new(&used.command)),
        };
        json::write_line(&mut out, &line)?;
    }
    for note in plan.notes() {
        let note = note.to_string();
        json::write_line(&mut out, &Line::Note { note })?;
    }
    for step in plan.describe() {
        let line = Line::Step {
            action: &step.action,
            path: json::Name::new(&step.path),
        };
        json::write_line(&mut out, &line)?;
    }
    out.flush()
}

/// Tells what the plan does beyond what was asked.
pub(crate) fn tell_notes(plan: &Plan) {
    for note in plan.notes() {
        eprintln!("effigy: {}", escaped(&note.to_string()));
    }
}

/// Prints the steps of a plan for `--dry-run`.
fn print_steps(plan: &Plan) -> io::Result<()> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    for step in plan.describe() {
        writeln!(out, "{}", escaped(&step.to_string()))?;
    }
    out.flush()
}

/// Notes in the session's record what an apply was asked for, before it begins: whoever recovers it finds it there.
pub(crate) fn note_asked(
    session: &mut Session,
    plan: &Plan,
    verb: &str,
    filter: Vec<ByteString>,
) -> anyhow::Result<()> {
    let asked = &mut session.record.asked;
    // One that never began has left its number.
    asked.retain(|asked| asked.apply < plan.number());
    asked.push(Asked {
        apply: plan.number(),
        verb: verb.to_owned(),
        filter,
    });
    session.save_soon().cannot()
}

/// Carries a plan out, with a progress bar.
///
/// `again` makes the plan anew for copying; it is asked when the filesystem refuses to move between the layers and the
/// real tree although they are on the same one.
pub(crate) fn carry_out(
    plan: Plan,
    session: &mut Session,
    execute: Executor,
    again: impl FnOnce(&Session) -> Result<Plan, PlanError>,
    quiet: bool,
) -> anyhow::Result<Applied> {
    let mut meter = Meter::new(quiet);
    match execute(plan, session, &mut |p| meter.update(p)) {
        Err(ApplyError::CrossDevice { .. }) => {
            let plan = again(session).map_err(unplanned)?;
            execute(plan, session, &mut |p| meter.update(p)).map_err(failed)
        }
        other => other.map_err(failed),
    }
}

pub(crate) fn failed(error: ApplyError) -> anyhow::Error {
    match error {
        ApplyError::Raced { .. } => Failure::from_error(error).status(status::NO).into(),
        other => Failure::from_error(other).into(),
    }
}

/// `committed session demo: 12 steps, 4.0M copied`.
pub(crate) fn tell_done(verb: &str, session: &Session, applied: Applied) {
    let steps = count(usize::try_from(applied.steps).unwrap_or(usize::MAX), "step");
    if applied.copied > 0 {
        eprintln!(
            "{verb} session {}: {steps}, {} copied",
            session.label(),
            size(applied.copied)
        );
    } else {
        eprintln!("{verb} session {}: {steps}", session.label());
    }
}
