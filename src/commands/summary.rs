//! `effigy summary`: net effects, one line a path.

use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::process::ExitCode;

use effigy_journal::{Session, Store};
use effigy_replay::{Change, NetEffect, Selection, applied};
use serde_json::{Map, Value};

use crate::cli::{FilterArgs, SummaryArgs};
use crate::failure::{Cannot as _, Failure, status};
use crate::listing::{self, Code, Row};
use crate::render::colour::Palette;
use crate::render::json;
use crate::render::name::escaped;
use crate::risk::{Places, Touched};
use crate::store::find_to_read;

pub(crate) fn summary(args: &SummaryArgs, store: &Store) -> anyhow::Result<ExitCode> {
    let session = find_to_read(store, args.session.as_deref())?;
    let effects = chosen(&session, &args.filters)?;
    let places = Places::from_environment();
    let rows = effects.iter().map(|e| row(e, &places));
    let stdout = io::stdout().lock();
    let palette = Palette::of(&stdout);
    let terminal = stdout.is_terminal();
    let mut out = BufWriter::with_capacity(1 << 16, stdout);
    if args.json {
        for (effect, row) in effects.iter().zip(rows) {
            writeln!(out, "{}", object(effect, &row))?;
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
    Ok(match effects.is_empty() {
        true => ExitCode::from(status::NO),
        false => ExitCode::SUCCESS,
    })
}

/// The effects of a session that the filters choose; a pattern that matches nothing is refused.
pub(crate) fn chosen(session: &Session, filters: &FilterArgs) -> anyhow::Result<Vec<NetEffect>> {
    let selection = selection(session, filters)?;
    let effects = applied::all_effects(session, &selection).cannot()?;
    let unmatched = selection.unmatched();
    if unmatched.is_empty() {
        return Ok(effects);
    }
    let patterns: Vec<String> = unmatched.iter().map(|p| escaped(p).to_string()).collect();
    Err(Failure::refused(format!("no effect matches {}", patterns.join(", ")))
        .hint("patterns are anchored at the directory the command was run in; ** crosses directories")
        .into())
}

pub(crate) fn selection(session: &Session, filters: &FilterArgs) -> anyhow::Result<Selection> {
    Selection::new(&session.record, &filters.only, &filters.exclude)
        .map_err(|error| Failure::from_error(error).status(status::USAGE).into())
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

fn object(effect: &NetEffect, row: &Row<'_>) -> Value {
    let mut object = Map::new();
    let mut put = |name: &str, value: Value| object.insert(name.to_owned(), value);
    put("code", row.code.letter().to_string().into());
    put("path", json::name(row.path));
    if let Some(from) = row.from {
        put("from", json::name(from));
    }
    if let Some(node) = effect.after.as_ref().or(effect.before.as_ref()) {
        put("type", node.kind.to_string().into());
    }
    if let (Code::Type, Some(before)) = (row.code, &effect.before) {
        put("was", before.kind.to_string().into());
    }
    if let Some(node) = effect.after.as_ref().filter(|node| node.is_file()) {
        put("size", node.size.into());
    }
    if let Some(risk) = row.risk {
        put("risk", risk.to_string().into());
    }
    Value::Object(object)
}
