//! `effigy ls`: the sessions that are kept.

use std::io::{self, BufWriter, Write};
use std::time::Duration;

use effigy_journal::{Exit, Session, Status, Store, Timestamp};
use serde::Serialize;

use crate::cli::LsArgs;
use crate::failure::Cannot as _;
use crate::render::json;
use crate::render::name::{command_line, cut};
use crate::render::quantity::{age, size, utc};
use crate::render::table::{Align, write_table};

/// The widest that a command is shown in the table.
const COMMAND_WIDTH: usize = 60;

pub(crate) fn ls(args: &LsArgs, store: &Store) -> anyhow::Result<()> {
    let mut listing = store.list().cannot()?;
    listing.sessions.reverse();
    let sessions = listing.sessions;
    let mut out = BufWriter::new(io::stdout().lock());
    if args.json {
        for session in &sessions {
            json::write_line(&mut out, &object(session))?;
        }
    } else if !sessions.is_empty() {
        let now = Timestamp::now();
        let rows: Vec<_> = sessions.iter().map(|s| row(s, now)).collect();
        write_table(&mut out, HEADINGS, &rows)?;
    }
    out.flush()?;
    for damaged in listing.damaged {
        eprintln!(
            "effigy: session {} cannot be read: {}",
            damaged.id, damaged.error
        );
        eprintln!("  hint: effigy discard {} deletes it", damaged.id);
    }
    Ok(())
}

const HEADINGS: [(&str, Align); 8] = [
    ("ID", Align::Left),
    ("NAME", Align::Left),
    ("AGO", Align::Right),
    ("EXIT", Align::Right),
    ("EFFECTS", Align::Right),
    ("SIZE", Align::Right),
    ("STATE", Align::Left),
    ("COMMAND", Align::Left),
];

fn row(session: &Session, now: Timestamp) -> [String; 8] {
    let record = &session.record;
    let exit = match record.exit {
        Some(Exit::Code(code)) => code.to_string(),
        Some(Exit::Signal(signal)) => format!("sig {signal}"),
        None => "-".to_owned(),
    };
    [
        record.id.to_string(),
        record.name.clone().unwrap_or_else(|| "-".to_owned()),
        age(Duration::from_nanos(now.since(record.start))),
        exit,
        record
            .effects
            .map_or_else(|| "-".to_owned(), |n| n.to_string()),
        size(occupied(session)),
        session.status().to_string(),
        cut(&command_line(&record.argv), COMMAND_WIDTH),
    ]
}

/// A session as docs/JSON.md has it.
#[derive(Serialize)]
struct Object<'a> {
    id: &'a str,
    name: Option<&'a str>,
    start: String,
    end: Option<String>,
    command: Vec<json::Name<'a>>,
    cwd: json::Name<'a>,
    exit: Option<i32>,
    signal: Option<i32>,
    effects: Option<u64>,
    size: u64,
    state: String,
}

fn object(session: &Session) -> Object<'_> {
    let record = &session.record;
    let (exit, signal) = match record.exit {
        Some(Exit::Code(code)) => (Some(code), None),
        Some(Exit::Signal(signal)) => (None, Some(signal)),
        None => (None, None),
    };
    Object {
        id: record.id.as_str(),
        name: record.name.as_deref(),
        start: utc(record.start.seconds()),
        end: record.end.map(|end| utc(end.seconds())),
        command: record.argv.iter().map(json::Name::new).collect(),
        cwd: json::Name::new(&record.cwd),
        exit,
        signal,
        effects: record.effects,
        size: occupied(session),
        state: session.status().to_string(),
    }
}

/// The size at the end of the run, as long as nothing has changed it since; measuring walks the whole session.
fn occupied(session: &Session) -> u64 {
    match (session.status(), session.record.bytes) {
        (Status::Recorded, Some(bytes)) => bytes,
        _ => session.measure(),
    }
}
