//! The file of `-t`: the ordered log, then what was read and what was written.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use effigy_journal::{Entry, Op, Outcome, Session};

use crate::cli::FilterArgs;
use crate::commands::log::write_text;
use crate::failure::Cannot as _;
use crate::recording;
use crate::render::colour::Palette;
use crate::render::name::escaped;

/// The number of the next event of a session that goes on.
pub(super) fn next_event(session: &Session) -> anyhow::Result<u64> {
    let mut reader = recording::open(session)?;
    while reader.next_entry().cannot()?.is_some() {}
    Ok(reader.last().0 + 1)
}

/// Writes the file, of the events from `first` on.
pub(super) fn write(session: &Session, first: u64, path: &Path) -> anyhow::Result<()> {
    let cannot = || format!("cannot write the log to {}", escaped(path));
    let mut out = io::BufWriter::new(File::create(path).with_context(cannot)?);
    let filters = FilterArgs {
        from: Some(first),
        ..FilterArgs::default()
    };
    write_text(session, &filters, Palette::plain(), &mut out)?;
    let mut sets = Sets::default();
    let mut reader = recording::open(session)?;
    while let Some(entry) = reader.next_entry().cannot()? {
        let Entry::Event(event) = entry else { continue };
        if event.seq.0 < first {
            continue;
        }
        let path = |id| reader.paths().path(id);
        match (&event.op, event.result) {
            // What was looked for and not found was read all the same.
            (Op::Read { .. } | Op::Exec { .. }, _) => {
                sets.reads.extend(event.op.path().map(path));
            }
            (Op::Link { from, to }, Outcome::Ok) => {
                sets.reads.insert(path(*from));
                sets.writes.insert(path(*to));
            }
            (op, Outcome::Ok) if op.is_effect() => {
                sets.writes
                    .extend([op.path(), op.to()].into_iter().flatten().map(path));
            }
            (op, _) if op.is_effect() => sets.reads.extend(op.path().map(path)),
            _ => {}
        }
    }
    sets.write(&mut out).with_context(cannot)?;
    out.flush().with_context(cannot)
}

#[derive(Default)]
struct Sets {
    reads: BTreeSet<PathBuf>,
    writes: BTreeSet<PathBuf>,
}

impl Sets {
    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        for (heading, paths) in [("#reads", &self.reads), ("#writes", &self.writes)] {
            writeln!(out, "{heading}")?;
            // Devices are nobody's files.
            for path in paths.iter().filter(|path| !path.starts_with("/dev")) {
                writeln!(out, "{}", escaped(path.as_os_str()))?;
            }
        }
        Ok(())
    }
}
