//! `effigy summary`: net effects, one line a path.

use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::process::ExitCode;

use effigy_journal::{Session, Store};
use effigy_replay::{Change, NetEffect};
use serde::Serialize;

use crate::cli::SummaryArgs;
use crate::failure::status;
use crate::filters::{Chosen, chosen};
use crate::listing::{self, Code, Row};
use crate::render::colour::Palette;
use crate::render::json;
use crate::render::name::escaped;
use crate::risk::{Places, Touched};
use crate::run::weaker;
use crate::store::find_to_read;

pub(crate) fn summary(args: &SummaryArgs, store: &Store) -> anyhow::Result<ExitCode> {
    let session = find_to_read(store, args.session.as_deref())?;
    let chosen = chosen(&session, &args.filters)?;
    let effects = &chosen.effects;
    let places = Places::from_environment();
    let rows = effects.iter().map(|e| row(e, &places));
    let stdout = io::stdout().lock();
    let palette = Palette::of(&stdout);
    let terminal = stdout.is_terminal();
    let mut out = BufWriter::with_capacity(1 << 16, stdout);
    if args.json {
        for (effect, row) in effects.iter().zip(rows) {
            json::write_line(&mut out, &object(effect, &row, &chosen))?;
        }
    } else if args.null {
        listing::write_null(&mut out, rows)?;
    } else if terminal {
        let rows: Vec<_> = rows.collect();
        listing::write_for_review(&mut out, &rows, palette, None)?;
    } else {
        listing::write_plain(&mut out, rows)?;
    }
    out.flush()?;
    chosen.tell_partly();
    tell_passed(&session);
    weaker::tell(&session);
    Ok(match effects.is_empty() {
        true => ExitCode::from(status::NO),
        false => ExitCode::SUCCESS,
    })
}

/// Says what the list cannot hold: what was done through sockets that were passed.
pub(crate) fn tell_passed(session: &Session) {
    for path in &session.record.passed {
        eprintln!(
            "effigy: outside the recording: what was done through {}",
            escaped(path)
        );
    }
}

pub(crate) fn row<'a>(effect: &'a NetEffect, places: &Places) -> Row<'a> {
    let (code, from) = match &effect.change {
        Change::Added => (Code::Added, None),
        Change::Content => (Code::Content, None),
        Change::Metadata => (Code::Metadata, None),
        Change::Deleted => (Code::Deleted, None),
        Change::TypeChanged => (Code::Type, None),
        Change::Renamed { from } => (Code::Renamed, Some(from.as_path())),
    };
    let node = effect.after.as_ref().or(effect.before.as_ref());
    Row {
        code,
        path: &effect.path,
        from,
        risk: places.risk(Touched {
            path: &effect.path,
            after: effect.after.map(|node| (node.kind, node.mode)),
            existed: effect.before.is_some(),
        }),
        is_directory: node.is_some_and(effigy_replay::Node::is_dir),
    }
}

/// A net effect as docs/JSON.md has it.
#[derive(Serialize)]
struct Object<'a> {
    code: char,
    path: json::Name<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<json::Name<'a>>,
    r#type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    was: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    risk: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    partly: bool,
}

fn object<'a>(effect: &'a NetEffect, row: &Row<'a>, chosen: &Chosen) -> Object<'a> {
    let node = effect.after.as_ref().or(effect.before.as_ref());
    let was = effect.before.as_ref().filter(|_| row.code == Code::Type);
    let file = effect.after.as_ref().filter(|node| node.is_file());
    Object {
        code: row.code.letter(),
        path: json::Name::new(row.path),
        from: row.from.map(json::Name::new),
        r#type: node.map(|node| node.kind.to_string()),
        was: was.map(|node| node.kind.to_string()),
        size: file.map(|node| node.size),
        risk: row.risk.map(|risk| risk.to_string()),
        partly: chosen.is_partly(effect),
    }
}
