//! What is known of a session.

use std::io::{self, BufWriter, Write};

use effigy_journal::{Exit, Session};

use crate::commands::ls::{applies, object};
use crate::render::json;
use crate::render::name::{command_line, escaped};
use crate::render::quantity::utc;
use crate::run::weaker;

pub(super) fn show(session: &Session, as_json: bool) -> anyhow::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    if as_json {
        json::write_line(&mut out, &object(session))?;
    } else {
        write(session, &mut out)?;
    }
    Ok(out.flush()?)
}

fn write(session: &Session, out: &mut dyn Write) -> io::Result<()> {
    let record = &session.record;
    writeln!(out, "session   {}", record.id)?;
    if let Some(name) = &record.name {
        writeln!(out, "name      {}", escaped(name))?;
    }
    writeln!(out, "command   {}", command_line(&record.argv))?;
    writeln!(out, "cwd       {}", escaped(&record.cwd))?;
    writeln!(out, "start     {}", utc(record.start.seconds()))?;
    if let Some(end) = record.end {
        writeln!(out, "end       {}", utc(end.seconds()))?;
    }
    match record.exit {
        Some(Exit::Code(code)) => writeln!(out, "exit      {code}")?,
        Some(Exit::Signal(signal)) => writeln!(out, "exit      killed by signal {signal}")?,
        None => {}
    }
    writeln!(out, "state     {}", session.status())?;
    if let Some(effects) = record.effects {
        writeln!(out, "effects   {effects}")?;
    }
    if !record.confined.is_empty() {
        writeln!(out, "confined  {}", command_line(&record.confined))?;
    }
    for name in &record.weaker {
        let words = weaker::words(name).unwrap_or_default();
        writeln!(out, "weaker    {}: {words}", escaped(name))?;
    }
    for named in &record.named {
        writeln!(
            out,
            "read-only {}: {}",
            escaped(&named.path),
            escaped(&named.reason)
        )?;
    }
    for apply in applies(session) {
        let words: Vec<_> = apply.filter.iter().map(|word| word.os_str()).collect();
        let filter = match words.is_empty() {
            true => "everything".to_owned(),
            false => command_line(&words),
        };
        let standing = match apply.in_place {
            true => "in place",
            false => "not in place",
        };
        writeln!(
            out,
            "apply {:<3} {} {filter}: {standing}",
            apply.apply,
            escaped(apply.verb)
        )?;
    }
    Ok(())
}
