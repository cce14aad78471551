//! The end of a run: what the command did, and what to do with it.

use std::fs::File;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::Path;

use anyhow::Context as _;
use effigy_journal::{Session, Store};
use effigy_replay::{NetEffect, Selection, net_effects};

use crate::cli::RunOptions;
use crate::commands::commit::commit_whole;
use crate::commands::diff::write_effects;
use crate::commands::log::write_whole;
use crate::commands::review;
use crate::commands::summary::{row, tell_passed};
use crate::failure::{Cannot as _, Failure, report};
use crate::listing::{tally, write_for_review};
use crate::pager::Output;
use crate::prompt::Terminal;
use crate::render::colour::{Ink, Palette};
use crate::risk::Places;

/// So many effects are shown before the question; of more, additions are folded.
const ROOM: usize = 30;

/// Counts the effects into the record, then commits, asks or keeps, as the options and the terminal have it.
///
/// The session is locked exclusively and its record says `Recorded`. An error is effigy's own failure: a commit under
/// `-y` that was refused or failed, or a session that cannot be read; the session is kept in either case. What goes
/// wrong in answer to the question is reported here and asked again.
pub(crate) fn finish(
    options: &RunOptions,
    store: &Store,
    mut session: Session,
    succeeded: bool,
) -> anyhow::Result<()> {
    let effects = settle(&mut session)?;
    if let Some(path) = &options.trace {
        write_trace(&session, path)
            .with_context(|| format!("cannot write the log to {}", path.display()))?;
    }
    if options.yes {
        if succeeded {
            return commit_whole(&mut session, options.quiet);
        }
        if !options.quiet {
            eprintln!("effigy: the command failed: nothing is committed");
        }
    }
    if !options.quiet {
        tell_passed(&session);
    }
    let question = match options.yes || options.keep || !io::stderr().is_terminal() {
        true => None,
        false => Terminal::open(),
    };
    match question {
        Some(terminal) if !effects.is_empty() => ask(store, session, &effects, terminal),
        _ => {
            if !options.quiet {
                tell_kept(&session, &effects);
            }
            Ok(())
        }
    }
}

/// Counts the effects into the record.
pub(crate) fn settle(session: &mut Session) -> anyhow::Result<Vec<NetEffect>> {
    let effects = net_effects(session, &Selection::all()).cannot()?;
    session.record.effects = Some(effects.len() as u64);
    session.save_soon().cannot()?;
    session.release_room();
    Ok(effects)
}

fn write_trace(session: &Session, path: &Path) -> anyhow::Result<()> {
    let mut out = io::BufWriter::new(File::create(path)?);
    write_whole(session, Palette::plain(), &mut out)?;
    Ok(out.flush()?)
}

fn tell_kept(session: &Session, effects: &[NetEffect]) {
    let places = Places::from_environment();
    let rows: Vec<_> = effects.iter().map(|e| row(e, &places)).collect();
    let tally = match rows.is_empty() {
        true => "nothing changed".to_owned(),
        false => tally(&rows),
    };
    eprintln!("effigy: kept session {}: {tally}", session.label());
}

/// Shows the summary and asks until the answer is one that ends the matter. No answer keeps the session.
fn ask(
    store: &Store,
    mut session: Session,
    effects: &[NetEffect],
    mut terminal: Terminal,
) -> anyhow::Result<()> {
    show(effects)?;
    let (question, letters) = match session.journal().exists() {
        true => (
            "[y] commit  [r] review  [l] log  [d] diff  [n] keep  [x] discard:",
            "y, r, l, d, n or x",
        ),
        false => (
            "[y] commit  [r] review  [d] diff  [n] keep  [x] discard:",
            "y, r, d, n or x",
        ),
    };
    loop {
        let answer = terminal.ask(question)?;
        let done = match answer.as_deref().map(str::to_ascii_lowercase).as_deref() {
            Some("y" | "yes" | "commit") => commit_whole(&mut session, false).map(|()| true),
            Some("r" | "review") => {
                review::terminal().and_then(|tty| review::walk(&mut session, effects, tty))
            }
            Some("d" | "diff") => Output::terminal()
                .map_err(anyhow::Error::from)
                .and_then(|output| write_effects(&session, effects, output))
                .map(|()| false),
            Some("l" | "log") => page_log(&session).map(|()| false),
            Some("x" | "discard") => {
                let label = session.label().to_owned();
                return match store.discard(session) {
                    Ok(()) => {
                        eprintln!("discarded session {label}");
                        Ok(())
                    }
                    Err(error) => Err(Failure::from_error(error).into()),
                };
            }
            None | Some("" | "n" | "no" | "keep") => {
                tell_kept(&session, effects);
                Ok(true)
            }
            Some(_) => {
                eprintln!("please answer {letters}");
                Ok(false)
            }
        };
        match done {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            // The session is still there, so there is still a choice.
            Err(error) => {
                report(&error);
            }
        }
    }
}

fn page_log(session: &Session) -> anyhow::Result<()> {
    let mut output = Output::terminal()?;
    let palette = Palette::for_terminal();
    let written = write_whole(session, palette, &mut output);
    output.finish()?;
    match written {
        // The user left the pager before the end.
        Err(e)
            if e.downcast_ref::<io::Error>()
                .is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe) =>
        {
            Ok(())
        }
        other => other,
    }
}

fn show(effects: &[NetEffect]) -> io::Result<()> {
    let places = Places::from_environment();
    let rows: Vec<_> = effects.iter().map(|e| row(e, &places)).collect();
    let stderr = io::stderr().lock();
    let palette = Palette::of(&stderr);
    let mut out = io::BufWriter::new(stderr);
    writeln!(out, "{}", palette.paint(Ink::Heading, tally(&rows)))?;
    write_for_review(&mut out, &rows, palette, Some(ROOM))?;
    out.flush()
}
