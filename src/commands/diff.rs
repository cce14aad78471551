//! `effigy diff`: net effects as a unified diff.

use std::io;
use std::path::PathBuf;

use effigy_journal::{Session, Store};
use effigy_replay::NetEffect;
use effigy_replay::diff::{DiffOptions, write};

use crate::cli::DiffArgs;
use crate::failure::Failure;
use crate::filters::chosen;
use crate::pager::Output;
use crate::place::absolute;
use crate::render::colour::Palette;
use crate::store::find_to_read;

pub(crate) fn diff(args: &DiffArgs, store: &Store) -> anyhow::Result<()> {
    let session = find_to_read(store, args.session.as_deref())?;
    let mut chosen = chosen(&session, &args.filters)?;
    let effects = &mut chosen.effects;
    if !args.paths.is_empty() {
        let wanted = args
            .paths
            .iter()
            .map(|p| absolute(p))
            .collect::<Result<Vec<PathBuf>, _>>()?;
        for path in &wanted {
            if !effects.iter().any(|e| e.path.starts_with(path)) {
                let message = format!(
                    "session {} changes nothing at {}",
                    session.label(),
                    path.display()
                );
                return Err(Failure::refused(message).into());
            }
        }
        effects.retain(|e| wanted.iter().any(|path| e.path.starts_with(path)));
    }
    write_effects(&session, &chosen.effects, Output::standard())?;
    chosen.tell_partly();
    Ok(())
}

/// Writes the diff of all effects; to a terminal in colours and with control characters escaped.
pub(crate) fn write_effects(
    session: &Session,
    effects: &[NetEffect],
    mut output: Output,
) -> anyhow::Result<()> {
    let terminal = output.is_for_terminal();
    let options = DiffOptions {
        colour: terminal && Palette::is_wanted(),
        escape: terminal,
        ..DiffOptions::default()
    };
    let mut written = Ok(());
    for effect in effects {
        written = write(session, effect, &options, &mut output);
        if written.is_err() {
            break;
        }
    }
    let finished = output.finish();
    match written {
        // Whoever reads has seen enough.
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(finished?),
        other => Ok(other.and(finished)?),
    }
}
