//! What the filters of the command line mean for a session.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::path::Path;

use effigy_journal::{ByteString, Session};
use effigy_replay::attribution::{Partly, touched};
use effigy_replay::{
    EventFilter, EventSelection, NetEffect, PlanError, ReplayError, Selection, applied,
};

use crate::cli::FilterArgs;
use crate::failure::{Cannot as _, Failure, status};
use crate::render::name::escaped;
use crate::render::quantity::count;

/// Net effects that filters have chosen.
pub(crate) struct Chosen {
    /// The same choice for whoever reads the layers again.
    pub(crate) selection: Selection,
    pub(crate) effects: Vec<NetEffect>,
    /// Those that events which were not chosen are part of too.
    pub(crate) partly: Vec<Partly>,
    /// The journal has no end, so such events may be missing from it.
    pub(crate) incomplete: bool,
}

impl Chosen {
    /// Whether events that were not chosen are part of this effect.
    pub(crate) fn is_partly(&self, effect: &NetEffect) -> bool {
        paths_of(effect).any(|path| {
            self.partly
                .binary_search_by(|partly| partly.path.as_path().cmp(path))
                .is_ok()
        })
    }

    /// Says on stderr which effects are not of the chosen events alone.
    pub(crate) fn tell_partly(&self) {
        let partly = self.effects.iter().filter(|e| self.is_partly(e)).count();
        if partly > 0 {
            let paths = match partly {
                1 => "1 path of these has".to_owned(),
                n => format!("{n} paths of these have"),
            };
            eprintln!(
                "effigy: {paths} been changed by other events too: shown is what came of all"
            );
        }
    }
}

/// The net effects of a session, applied or not, that the filters choose; a filter that chooses nothing is refused.
pub(crate) fn chosen(session: &Session, filters: &FilterArgs) -> anyhow::Result<Chosen> {
    let mut selection = selection(session, filters)?;
    let mut effects = applied::all_effects(session, &selection).cannot()?;
    refuse_unmatched(&selection.unmatched(), "effect")?;
    let mut partly = Vec::new();
    let mut incomplete = false;
    let filter = event_filter(filters);
    if !filter.is_all() {
        // Which paths are meant is said by the paths of the effects, not by those of the events.
        let mut events = EventSelection::new(Selection::all(), filter);
        let paths = effects.iter().flat_map(paths_of);
        let found = touched(session, &mut events, paths).map_err(unread)?;
        effects.retain(|effect| paths_of(effect).any(|path| found.paths.contains(path)));
        if effects.is_empty() {
            refuse_unmatched(
                &[event_filter(filters).words().join(OsStr::new(" "))],
                "effect",
            )?;
        }
        (partly, incomplete) = (found.partly, found.incomplete);
        selection = selection.among(found.paths);
    }
    Ok(Chosen {
        selection,
        effects,
        partly,
        incomplete,
    })
}

/// The path of an effect, and the one it had before.
fn paths_of(effect: &NetEffect) -> impl Iterator<Item = &Path> {
    [Some(effect.path.as_path()), effect.former_path()]
        .into_iter()
        .flatten()
}

fn unread(error: ReplayError) -> anyhow::Error {
    match error {
        ReplayError::NoJournal { session } => Failure::refused(format!(
            "session {session} has no journal, so it cannot be told which events did what"
        ))
        .hint("--only and --exclude choose by path")
        .into(),
        ReplayError::Plan(PlanError::NoMatch(patterns)) => {
            match refuse_unmatched(&patterns, "event") {
                Err(error) => error,
                Ok(()) => Failure::refused("no event matches").into(),
            }
        }
        other => Failure::from_error(other).into(),
    }
}

/// Refuses when something asked for has matched nothing of what was looked at.
pub(crate) fn refuse_unmatched(patterns: &[OsString], noun: &str) -> anyhow::Result<()> {
    if patterns.is_empty() {
        return Ok(());
    }
    let words: Vec<String> = patterns.iter().map(|p| escaped(p).to_string()).collect();
    let failure = Failure::refused(format!("no {noun} matches {}", words.join(", ")));
    let is_glob = |pattern: &OsString| {
        let pattern = pattern.as_encoded_bytes();
        !pattern.starts_with(b"--") && !pattern.contains(&b' ')
    };
    let hint = patterns.iter().any(is_glob).then_some(
        "patterns are anchored at the directory the command was run in; ** crosses directories",
    );
    Err(failure.maybe_hint(hint).into())
}

/// The paths that the arguments mean.
pub(crate) fn selection(session: &Session, filters: &FilterArgs) -> anyhow::Result<Selection> {
    Selection::new(&session.record, &filters.only, &filters.exclude)
        .map_err(|error| Failure::from_error(error).status(status::USAGE).into())
}

/// The events that the arguments mean.
pub(crate) fn events(session: &Session, filters: &FilterArgs) -> anyhow::Result<EventSelection> {
    Ok(EventSelection::new(
        selection(session, filters)?,
        event_filter(filters),
    ))
}

/// Whether they choose by what only a journal knows.
pub(crate) fn chooses_events(filters: &FilterArgs) -> bool {
    !event_filter(filters).is_all()
}

fn event_filter(filters: &FilterArgs) -> EventFilter {
    EventFilter {
        ops: filters.op.clone(),
        pids: filters.pid.clone(),
        by: filters.by.clone(),
        from: filters.from,
        until: filters.until,
    }
}

/// The filters as they would be typed, one word each.
pub(crate) fn words(filters: &FilterArgs) -> Vec<ByteString> {
    let globs = [("--only", &filters.only), ("--exclude", &filters.exclude)];
    let by_path = globs.into_iter().flat_map(|(option, globs)| {
        globs
            .iter()
            .flat_map(move |glob| [option.into(), glob.clone()])
    });
    by_path
        .chain(event_filter(filters).words())
        .map(ByteString::from)
        .collect()
}

/// Refuses to apply net effects that other events than the chosen ones are part of: half of a path's change cannot be told
/// from the other half there.
pub(crate) fn refuse_partly(
    chosen: &Chosen,
    session: &Session,
    filters: &FilterArgs,
) -> anyhow::Result<()> {
    let replay = || {
        let words = words(filters);
        let words = crate::render::name::command_line(&words);
        format!(
            "effigy replay {} {words} applies just the chosen events",
            session.label()
        )
    };
    if chosen.incomplete {
        let message = format!(
            "the journal of session {} has no end, so it cannot be told whether the chosen events are all that changed these paths; \
             nothing was changed",
            session.label()
        );
        return Err(Failure::refused(message).hint(replay()).into());
    }
    if chosen.partly.is_empty() {
        return Ok(());
    }
    let mut told = HashSet::new();
    for Partly {
        path,
        other: (seq, op),
        others,
    } in &chosen.partly
    {
        if !told.insert(path) {
            continue;
        }
        let more = match others - 1 {
            0 => String::new(),
            1 => " and 1 more event".to_owned(),
            n => format!(" and {n} more events"),
        };
        eprintln!(
            "effigy: {} was also changed by {op} #{seq}{more}, not chosen",
            escaped(path)
        );
    }
    let paths = count(told.len(), "path");
    Err(Failure::refused(format!(
        "the chosen events are only a part of what changed {paths}; nothing was changed"
    ))
    .hint(replay())
    .into())
}
