//! `effigy show`: one event in full, or a session.

use std::ffi::OsString;
use std::io::{self, BufWriter, Write};

use effigy_journal::{
    Entry, Event, PathId, Precondition, Reader, Stat, Store, VersionContent, VersionId,
    VersionRecord,
};
use serde::Serialize;

use crate::cli::ShowArgs;
use crate::event::object::{Ancestor, Object, State};
use crate::event::text::{detail, kind};
use crate::event::{Names, by, result, why};
use crate::failure::{Cannot as _, Failure};
use crate::recording::{open, split_event};
use crate::render::json;
use crate::render::name::{command_line, escaped};
use crate::store::find;

mod session;

pub(crate) fn show(args: &ShowArgs, store: &Store) -> anyhow::Result<()> {
    if !args.event.contains('@') {
        return session::show(&find(store, Some(&args.event))?, args.json);
    }
    let (wanted, number) = split_event(&args.event)?;
    let session = find(store, wanted)?;
    let mut reader = open(&session)?;
    let Some(mut found) = Found::look_for(number, &mut reader)? else {
        let last = reader.last().0;
        return Err(
            Failure::refused(format!("session {} has no event {number}", session.label()))
                .hint(format!("its last event is {last}"))
                .into(),
        );
    };
    found.learn_fates(&mut reader)?;
    let mut out = BufWriter::new(io::stdout().lock());
    let names = Names {
        paths: reader.paths(),
        processes: reader.processes(),
    };
    if args.json {
        json::write_line(&mut out, &found.object(names))?;
    } else {
        found.write(&mut out, names)?;
    }
    Ok(out.flush()?)
}

/// An event and what the journal says around it.
struct Found {
    event: Event,
    ancestry: Vec<Ancestor>,
    /// What stood at its paths when the session first touched them, as far as that was recorded.
    before: Vec<(PathId, Option<Stat>)>,
    /// The content that came of it, and where that is kept.
    version: Option<(VersionId, Option<VersionRecord>)>,
}

#[derive(Serialize)]
struct Full<'a> {
    #[serde(flatten)]
    event: Object<'a>,
    ancestry: &'a [Ancestor],
    before: Vec<Option<State>>,
    content: Option<&'static str>,
}

impl Found {
    fn look_for(number: u64, reader: &mut Reader) -> anyhow::Result<Option<Self>> {
        let mut before: Vec<Precondition> = Vec::new();
        while let Some(entry) = reader.next_entry().cannot()? {
            match entry {
                Entry::Precondition(precondition) => before.push(precondition),
                Entry::Event(event) if event.seq.0 == number => {
                    let (path, to) = event.op.paths();
                    let first =
                        |id: PathId| before.iter().find(|p| p.path == id).map(|p| (id, p.before));
                    return Ok(Some(Self {
                        ancestry: ancestry(&event, reader),
                        before: path.into_iter().chain(to).filter_map(first).collect(),
                        version: event.op.version().map(|id| (id, None)),
                        event,
                    }));
                }
                _ => {}
            }
        }
        Ok(None)
    }

    /// Reads on to where the version is sealed: only then is it known where its content is kept.
    fn learn_fates(&mut self, reader: &mut Reader) -> anyhow::Result<()> {
        let Some((id, fate)) = &mut self.version else {
            return Ok(());
        };
        while let Some(entry) = reader.next_entry().cannot()? {
            if let Entry::Version(record) = entry
                && record.id == *id
            {
                *fate = Some(record);
                break;
            }
        }
        Ok(())
    }

    fn content(&self) -> Option<&'static str> {
        self.version
            .map(|(_, record)| match record.map(|r| r.content) {
                None => "in the layers, or not replaced since",
                Some(VersionContent::Sealed { .. }) => "kept",
                Some(VersionContent::Prefix { .. }) => "kept as the beginning of a later version",
                Some(VersionContent::Lost { .. }) => "not kept: over the budget",
            })
    }

    fn object<'a>(&'a self, names: Names<'a>) -> Full<'a> {
        Full {
            event: Object {
                event: &self.event,
                names,
            },
            ancestry: &self.ancestry,
            before: self
                .before
                .iter()
                .map(|(_, stat)| stat.as_ref().map(State::of))
                .collect(),
            content: self.content(),
        }
    }

    fn write(&self, out: &mut dyn Write, names: Names<'_>) -> io::Result<()> {
        let event = &self.event;
        writeln!(out, "event     {}", event.seq.0)?;
        writeln!(
            out,
            "time      {}.{:09} s after the start",
            event.time / 1_000_000_000,
            event.time % 1_000_000_000
        )?;
        writeln!(
            out,
            "what      {} {}",
            event.op.name(),
            detail(&event.op, names)
        )?;
        let (path, to) = event.op.paths();
        if let Some(path) = path {
            writeln!(out, "path      {}", escaped(&names.path(path)))?;
        }
        if let Some(to) = to {
            writeln!(out, "to        {}", escaped(&names.path(to)))?;
        }
        writeln!(out, "result    {}", result(event.result))?;
        match why(event.by) {
            Some(why) => writeln!(out, "by        {}: {why}", by(event.by))?,
            None => writeln!(out, "by        {}", by(event.by))?,
        }
        for (n, ancestor) in self.ancestry.iter().enumerate() {
            let title = if n == 0 { "process" } else { "  of" };
            writeln!(
                out,
                "{title:8}  {} {}",
                ancestor.pid,
                command_line(&ancestor.argv)
            )?;
        }
        for (id, stat) in &self.before {
            write!(out, "before    {}: ", escaped(&names.path(*id)))?;
            match stat {
                None => writeln!(out, "absent")?,
                Some(stat) => writeln!(
                    out,
                    "{}, mode {:04o}, owner {}:{}, {} bytes",
                    kind(stat.kind),
                    stat.mode,
                    stat.uid,
                    stat.gid,
                    stat.size
                )?,
            }
        }
        if let (Some((id, _)), Some(content)) = (self.version, self.content()) {
            writeln!(out, "content   version {}: {content}", id.0)?;
        }
        Ok(())
    }
}

fn ancestry(event: &Event, reader: &Reader) -> Vec<Ancestor> {
    let chain = reader.processes().ancestry(event.process);
    chain
        .map(|(_, process)| Ancestor {
            pid: process.pid,
            exe: process.exe.map(|exe| reader.paths().path(exe)),
            argv: process
                .argv
                .iter()
                .map(|word| OsString::from(word.as_os_str()))
                .collect(),
        })
        .collect()
}
