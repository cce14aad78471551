//! `effigy commit`: applies net effects to the real files.

use std::io;

use effigy_journal::{ByteString, Session, Store};
use effigy_replay::{Options, Plan, Selection, commit, net_effects};

use crate::cli::{CommitArgs, FilterArgs};
use crate::commands::apply::{
    carry_out, note_asked, show_plan, tell_done, tell_notes, unplanned, warn_in_use,
};
use crate::commands::summary::row;
use crate::failure::Cannot as _;
use crate::filters::{self, words};
use crate::listing::{tally, write_for_review};
use crate::prompt::agree;
use crate::render::colour::Palette;
use crate::risk::Places;
use crate::store::find_to_change;

/// So many effects are shown before the question; of more, additions are folded.
const ROOM: usize = 30;

pub(crate) fn commit(args: &CommitArgs, store: &Store) -> anyhow::Result<()> {
    let mut session = find_to_change(store, args.session.as_deref())?;
    let selection = selection_of(&session, &args.filters)?;
    let options = Options {
        on_conflict: args.apply.on_conflict.into(),
        keep: args.keep,
        devices: args.devices.devices,
        ..Options::default()
    };
    let plan = commit::plan(&session, &selection, &options).map_err(unplanned)?;
    if args.apply.dry_run {
        return show_plan(&plan, &args.apply);
    }
    if !args.apply.quiet {
        warn_in_use(&plan);
    }
    if !args.apply.yes && !plan.is_empty() {
        ask(&session, &selection)?;
    }
    let asked = Asked {
        selection: &selection,
        options: &options,
        words: words(&args.filters),
    };
    carry_plan_out(plan, &mut session, asked, args.apply.quiet)
}

/// The net effects that the filters choose, by path.
fn selection_of(session: &Session, filters: &FilterArgs) -> anyhow::Result<Selection> {
    let by_path = filters::selection(session, filters)?;
    if !filters::chooses_events(filters) {
        return Ok(by_path);
    }
    let chosen = filters::chosen(session, filters)?;
    filters::refuse_partly(&chosen, session, filters)?;
    Ok(chosen.selection)
}

/// What stands in the place of a filter where paths were chosen one by one.
const REVIEWED: &str = "(reviewed)";

/// What a commit was asked for.
struct Asked<'a> {
    selection: &'a Selection,
    options: &'a Options,
    words: Vec<ByteString>,
}

/// Commits all that a session changes, without a question: `effigy run -y`, and `y` at the prompt after a run.
pub(crate) fn commit_whole(session: &mut Session, quiet: bool) -> anyhow::Result<()> {
    commit_selection(session, &Selection::all(), quiet)
}

/// Commits what was chosen in a review, by the ordinary rules, after a question.
pub(crate) fn commit_reviewed(
    session: &mut Session,
    selection: &Selection,
    everything: bool,
) -> anyhow::Result<()> {
    let options = Options::default();
    let plan = commit::plan(session, selection, &options).map_err(unplanned)?;
    warn_in_use(&plan);
    if !plan.is_empty() {
        ask(session, selection)?;
    }
    let words = match everything {
        true => Vec::new(),
        false => vec![REVIEWED.into()],
    };
    let asked = Asked {
        selection,
        options: &options,
        words,
    };
    carry_plan_out(plan, session, asked, false)
}

/// Commits a selection without a question.
pub(crate) fn commit_selection(
    session: &mut Session,
    selection: &Selection,
    quiet: bool,
) -> anyhow::Result<()> {
    let options = Options::default();
    let plan = commit::plan(session, selection, &options).map_err(unplanned)?;
    if !quiet {
        warn_in_use(&plan);
    }
    let asked = Asked {
        selection,
        options: &options,
        words: Vec::new(),
    };
    carry_plan_out(plan, session, asked, quiet)
}

fn carry_plan_out(
    plan: Plan,
    session: &mut Session,
    asked: Asked<'_>,
    quiet: bool,
) -> anyhow::Result<()> {
    if !quiet {
        tell_notes(&plan);
    }
    if plan.is_empty() {
        if !quiet {
            eprintln!("session {} has nothing to commit", session.label());
        }
        return Ok(());
    }
    let copying = Options {
        copy: true,
        ..*asked.options
    };
    let again = |session: &Session| commit::plan(session, asked.selection, &copying);
    note_asked(session, &plan, "commit", asked.words)?;
    let applied = carry_out(plan, session, commit::apply, again, quiet)?;
    if !quiet {
        tell_done("committed", session, applied);
    }
    Ok(())
}

fn ask(session: &Session, selection: &Selection) -> anyhow::Result<()> {
    let effects = net_effects(session, selection).cannot()?;
    let places = Places::from_environment();
    let rows: Vec<_> = effects.iter().map(|e| row(e, &places)).collect();
    let question = format!("Commit session {} ({})?", session.label(), tally(&rows));
    agree(&question, || {
        let mut stderr = io::stderr().lock();
        let palette = Palette::of(&stderr);
        write_for_review(&mut stderr, &rows, palette, Some(ROOM))
    })
}
