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

/// The widest that the filter of an apply is shown there.
const FILTER_WIDTH: usize = 40;

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
        let rows: Vec<_> = sessions.iter().map(|s| row(s, &sessions, now)).collect();
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

fn row(session: &Session, all: &[Session], now: Timestamp) -> [String; 8] {
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
        format!("{}{}", state(session), lower(session, all)),
        cut(&command_line(&record.argv), COMMAND_WIDTH),
    ]
}

/// The state; when only a part is in place, with the filter that chose it.
fn state(session: &Session) -> String {
    let state = session.status();
    let whole = |apply: &Apply<'_>| apply.filter.is_empty();
    let in_place: Vec<_> = applies(session)
        .into_iter()
        .filter(|a| a.in_place)
        .collect();
    match in_place.last() {
        Some(last) if !in_place.iter().any(whole) => {
            let words: Vec<_> = last.filter.iter().map(|word| word.os_str()).collect();
            format!("{state} {}", cut(&command_line(&words), FILTER_WIDTH))
        }
        _ => state.to_string(),
    }
}

/// The sessions that it rests on, the topmost first.
fn lower(session: &Session, all: &[Session]) -> String {
    let ids = &session.record.lower;
    if ids.is_empty() {
        return String::new();
    }
    let labels: Vec<&str> = ids
        .iter()
        .map(|id| {
            let found = all.iter().find(|other| other.record.id == *id);
            found.map_or(id.as_str(), Session::label)
        })
        .collect();
    format!(" on {}", labels.join(","))
}

/// A session as docs/JSON.md has it.
#[derive(Serialize)]
pub(crate) struct Object<'a> {
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
    passed: Vec<json::Name<'a>>,
    on: Vec<&'a str>,
    confined: Vec<json::Name<'a>>,
    weaker: &'a [String],
    applies: Vec<Apply<'a>>,
}

/// An apply as docs/JSON.md has it.
#[derive(Serialize)]
pub(crate) struct Apply<'a> {
    pub(crate) apply: u32,
    pub(crate) verb: &'a str,
    pub(crate) filter: Vec<json::Name<'a>>,
    pub(crate) in_place: bool,
}

/// The applies of a session, the first first. One whose ledger cannot be read is left out: whoever needs it says why.
pub(crate) fn applies(session: &Session) -> Vec<Apply<'_>> {
    let asked = &session.record.asked;
    if asked.is_empty() {
        return Vec::new();
    }
    let ledgers = effigy_replay::applied::applies(session).unwrap_or_default();
    let both = ledgers.into_iter().filter_map(|(apply, in_place)| {
        let asked = asked.iter().find(|asked| asked.apply == apply)?;
        Some(Apply {
            apply,
            verb: &asked.verb,
            filter: asked.filter.iter().map(json::Name::new).collect(),
            in_place,
        })
    });
    both.collect()
}

pub(crate) fn object(session: &Session) -> Object<'_> {
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
        passed: record.passed.iter().map(json::Name::new).collect(),
        on: record.lower.iter().map(|id| id.as_str()).collect(),
        confined: record.confined.iter().map(json::Name::new).collect(),
        weaker: &record.weaker,
        applies: applies(session),
    }
}

/// The size at the end of the run, as long as nothing has changed it since; measuring walks the whole session.
fn occupied(session: &Session) -> u64 {
    match (session.status(), session.record.bytes) {
        (Status::Recorded, Some(bytes)) => bytes,
        _ => session.measure(),
    }
}
