//! `effigy report`: a session as one HTML page, for whoever must explain or judge what a command did.
//!
//! The page needs nothing from elsewhere and allows nothing else to run: its policy names the one script by its digest. Every name,
//! argument and content is hostile text and goes through [`html::text`], which is the only way into the page.

use std::io::{self, BufWriter, IsTerminal as _, Write};

use effigy_journal::redact::{redact, redact_text};
use effigy_journal::{ByteString, Entry, Event, Exit, Outcome, Reader, Session, Store};
use effigy_replay::NetEffect;
use effigy_replay::diff::{DiffOptions, Differ};

use crate::cli::{FilterArgs, ReportArgs};
use crate::commands::export::Whole;
use crate::commands::log::leave_out;
use crate::commands::summary::row;
use crate::event::text::{Style, Totals, detail};
use crate::event::{Names, result};
use crate::failure::{Cannot as _, Failure, status};
use crate::filters::chosen;
use crate::listing::{Row, tally};
use crate::recording::{ending, open};
use crate::render::colour::Palette;
use crate::render::name::{command_line, escaped};
use crate::render::quantity::utc;
use crate::risk::Places;
use crate::run::weaker;
use crate::store::find_to_read;

mod html;

use html::{attribute, text};

const STYLE: &str = include_str!("report/page.css");
const SCRIPT: &str = include_str!("report/page.js");
/// The digest of [`SCRIPT`] as a content security policy has it.
const SCRIPT_DIGEST: &str = "sha256-uU8z6oAw5bIOzD2KpcQYwZp/1gZVF6RWmO6b5MeQdlQ=";

/// A page that a browser still opens: what is beyond is counted, and the command that shows it is named.
const MAX_EVENTS: u64 = 50_000;
const MAX_DIFF: usize = 1 << 18;
const MAX_DIFFS: usize = 16 << 20;
/// Deeper processes are not set further to the right.
const MAX_INDENT: usize = 24;

pub(crate) fn report(args: &ReportArgs, store: &Store) -> anyhow::Result<()> {
    if args.output.is_none() && io::stdout().is_terminal() {
        return Err(Failure::refused("a page is nothing for a terminal")
            .status(status::USAGE)
            .hint("give -o FILE, or redirect standard output")
            .into());
    }
    let session = find_to_read(store, args.session.as_deref())?;
    let Some(path) = &args.output else {
        let mut out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
        write(&session, args.redact, &mut out)?;
        return Ok(out.flush()?);
    };
    let mut file = Whole::create(path)?;
    write(&session, args.redact, file.out())?;
    file.keep()
}

fn write(session: &Session, redacted: bool, out: &mut dyn Write) -> anyhow::Result<()> {
    let effects = chosen(session, &FilterArgs::default())?.effects;
    let journal = match session.journal().exists() {
        true => Some(Journal::read(session, redacted)?),
        false => None,
    };
    begin(session, redacted, out)?;
    head(session, &effects, journal.as_ref(), redacted, out)?;
    net_effects(session, &effects, redacted, out)?;
    match &journal {
        Some(journal) => {
            out.write_all(b"<h2>Processes</h2>\n<ul class=\"tree\">\n")?;
            out.write_all(&journal.processes)?;
            out.write_all(b"</ul>\n<h2>What happened, in order</h2>\n")?;
            out.write_all(
                b"<form id=\"filter\" hidden><input type=\"search\" name=\"words\" placeholder=\"words that must be there\"> \
                  <label><input type=\"checkbox\" name=\"effects\"> effects only</label> \
                  <span id=\"shown\" class=\"faint\"></span></form>\n<table id=\"journal\"><thead><tr><th>event</th><th>seconds</th>\
                  <th>process</th><th>operation</th><th>what</th><th>result</th></tr></thead>\n<tbody>\n",
            )?;
            out.write_all(&journal.rows)?;
            out.write_all(b"</tbody></table>\n")?;
            let mut lines = journal.lines.clone();
            if journal.left_out > 0 {
                let more = journal.left_out;
                let label = session.label();
                lines.push(format!(
                    "{more} more events are not on this page: effigy log {label}"
                ));
            }
            for line in lines {
                writeln!(out, "<p class=\"faint\">{}</p>", text(&line))?;
            }
        }
        None => writeln!(
            out,
            "<p class=\"faint\">The run was not recorded: there is neither an order of events nor a table of processes.</p>"
        )?,
    }
    writeln!(out, "<script>{SCRIPT}</script>\n</body></html>")?;
    Ok(())
}

fn begin(session: &Session, redacted: bool, out: &mut dyn Write) -> io::Result<()> {
    let command = command(session, redacted);
    write!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n<meta http-equiv=\"Content-Security-Policy\" \
         content=\"default-src 'none'; style-src 'unsafe-inline'; script-src '{SCRIPT_DIGEST}'; base-uri 'none'; form-action 'none'\">\n\
         <meta name=\"viewport\" content=\"width=device-width\"><title>effigy: {}</title>\n<style>\n{STYLE}</style></head>\n<body>\n\
         <h1><code>{}</code></h1>\n",
        text(&command),
        text(&command)
    )
}

fn command(session: &Session, redacted: bool) -> String {
    let mut argv = session.record.argv.clone();
    if redacted {
        redact(&mut argv);
    }
    command_line(&argv)
}

/// Who ran what, when, where, and how far this page can be relied on.
fn head(
    session: &Session,
    effects: &[NetEffect],
    journal: Option<&Journal>,
    redacted: bool,
    out: &mut dyn Write,
) -> io::Result<()> {
    let record = &session.record;
    let places = Places::from_environment();
    let rows: Vec<Row<'_>> = effects.iter().map(|effect| row(effect, &places)).collect();
    let user = match nix::unistd::User::from_uid(record.uid.into()) {
        Ok(Some(user)) => format!("{} ({})", user.name, record.uid),
        _ => record.uid.to_string(),
    };
    let mut facts = vec![
        ("session", session.label().to_owned()),
        ("directory", escaped(&record.cwd).to_string()),
        ("user", user),
        ("began", utc(record.start.seconds())),
    ];
    facts.extend(record.end.map(|end| ("ended", utc(end.seconds()))));
    facts.extend(record.exit.map(|exit| ("exit", exit_words(exit))));
    facts.push(("state", session.status().to_string()));
    facts.push((
        "effects",
        match rows.is_empty() {
            true => "nothing changed".to_owned(),
            false => tally(&rows),
        },
    ));
    let recording = journal.map_or("none", |journal| &journal.ending);
    facts.push(("recording", recording.to_owned()));
    if record.killed_survivors > 0 {
        facts.push(("killed at the end", record.killed_survivors.to_string()));
    }
    if !record.confined.is_empty() {
        facts.push(("confined", command_line(&record.confined)));
    }
    for path in &record.passed {
        facts.push((
            "not recorded",
            format!("what was done through {}", escaped(path)),
        ));
    }
    for name in &record.weaker {
        let words = weaker::words(name).unwrap_or_default();
        facts.push(("weaker", format!("{}: {words}", escaped(name))));
    }
    for named in &record.named {
        let words = format!("{}: {}", escaped(&named.path), escaped(&named.reason));
        facts.push(("read-only inside", words));
    }
    if redacted {
        let words = "what looks like a secret in arguments and contents; it is a guess";
        facts.push(("left out", words.to_owned()));
    }
    let by = format!(
        "effigy {}, Linux {}",
        escaped(&record.effigy),
        escaped(&record.kernel)
    );
    facts.push(("recorded by", by));
    writeln!(out, "<dl>")?;
    for (name, value) in facts {
        writeln!(out, "<dt>{name}</dt><dd>{}</dd>", text(&value))?;
    }
    writeln!(out, "</dl>")
}

fn exit_words(exit: Exit) -> String {
    match exit {
        Exit::Code(code) => code.to_string(),
        Exit::Signal(signal) => format!("killed by signal {signal}"),
    }
}

/// The net effects, the risky ones first, each with its difference.
fn net_effects(
    session: &Session,
    effects: &[NetEffect],
    redacted: bool,
    out: &mut dyn Write,
) -> io::Result<()> {
    writeln!(out, "<h2>Net effects</h2>")?;
    let places = Places::from_environment();
    let differ = Differ::new(
        session,
        DiffOptions {
            escape: true,
            max_size: MAX_DIFF as u64,
            ..DiffOptions::default()
        },
    );
    let mut budget = MAX_DIFFS;
    let both = |risky: bool| {
        let rows = effects.iter().map(|effect| (effect, row(effect, &places)));
        rows.filter(move |(_, row)| row.risk.is_some() == risky)
    };
    for (effect, row) in both(true).chain(both(false)) {
        write!(out, "<details><summary><code>{}</code>", row.code.letter())?;
        if let Some(from) = row.from {
            write!(out, "{} → ", text(&escaped(from).to_string()))?;
        }
        write!(out, "{}", text(&escaped(row.path).to_string()))?;
        if let Some(risk) = row.risk {
            write!(out, " <span class=\"risk\">! {risk}</span>")?;
        }
        writeln!(out, "</summary>")?;
        let mut difference = Vec::new();
        if budget > 0 {
            differ.write(effect, &mut difference)?;
        }
        if budget == 0 || difference.len() > MAX_DIFF.min(budget) {
            let path = command_line(&[row.path]);
            let hint = format!("not shown here: effigy diff {} {path}", session.label());
            writeln!(out, "<p class=\"faint\">{}</p>", text(&hint))?;
            budget = budget.saturating_sub(MAX_DIFF);
        } else {
            budget -= difference.len();
            write_difference(&difference, redacted, out)?;
        }
        writeln!(out, "</details>")?;
    }
    Ok(())
}

fn write_difference(difference: &[u8], redacted: bool, out: &mut dyn Write) -> io::Result<()> {
    out.write_all(b"<pre>")?;
    for line in difference.split_inclusive(|&byte| byte == b'\n') {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let mut line = ByteString::from(line.to_vec());
        if redacted {
            redact_text(&mut line);
        }
        let line = html::lossy(line.as_bytes());
        let class = match line.as_bytes() {
            [b'+', b'+', b'+', ..] | [b'-', b'-', b'-', ..] | [b'@', ..] => "hunk",
            [b'+', ..] => "add",
            [b'-', ..] => "del",
            _ => "",
        };
        match class {
            "" => writeln!(out, "{}", text(&line))?,
            class => writeln!(out, "<span class=\"{class}\">{}</span>", text(&line))?,
        }
    }
    out.write_all(b"</pre>\n")
}

/// What the page has of the journal.
struct Journal {
    ending: String,
    rows: Vec<u8>,
    processes: Vec<u8>,
    left_out: u64,
    /// What a reader of the whole should know.
    lines: Vec<String>,
}

impl Journal {
    fn read(session: &Session, redacted: bool) -> anyhow::Result<Self> {
        let mut reader = open(session)?;
        let style = Style {
            palette: Palette::plain(),
            cwd: &session.record.cwd,
        };
        let mut rows = Vec::new();
        let (mut totals, mut unexplained, mut left_out) = (Totals::default(), 0, 0);
        while let Some(entry) = reader.next_entry().cannot()? {
            match entry {
                Entry::Event(mut event) => {
                    totals.count(&event.op, event.result);
                    totals.shown += 1;
                    if totals.shown > MAX_EVENTS {
                        left_out += 1;
                        continue;
                    }
                    if redacted {
                        leave_out(&mut event.op);
                    }
                    write_row(&event, &reader, style, &mut rows)?;
                }
                Entry::End(end) => unexplained = end.unexplained,
                _ => {}
            }
        }
        let ending = ending(reader.tail(), unexplained);
        Ok(Self {
            lines: totals.lines(&ending, true, &session.record.passed),
            ending,
            processes: processes(&reader, redacted)?,
            rows,
            left_out,
        })
    }
}

fn write_row(
    event: &Event,
    reader: &Reader,
    style: Style<'_>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let names = Names {
        paths: reader.paths(),
        processes: reader.processes(),
    };
    let (pid, comm) = names.process(event);
    let mut what = String::new();
    let (path, to) = event.op.paths();
    for (arrow, path) in [("", path), (" → ", to)] {
        if let Some(path) = path {
            what.push_str(arrow);
            what.push_str(&escaped(&style.path(path, names)).to_string());
        }
    }
    let more = detail(&event.op, names);
    if !more.is_empty() {
        what.push_str(if what.is_empty() { "" } else { "  " });
        what.push_str(&more);
    }
    let class = match (event.result, event.op.is_effect()) {
        (Outcome::Errno(_), _) => "failed",
        (_, true) => "effect",
        _ => "",
    };
    let micros = event.time / 1_000;
    writeln!(
        out,
        "<tr class={}><td>{}</td><td>{}.{:06}</td><td>{}[{pid}]</td><td>{}</td><td class=\"what\">{}</td><td>{}</td></tr>",
        attribute(class),
        event.seq.0,
        micros / 1_000_000,
        micros % 1_000_000,
        text(&escaped(comm).to_string()),
        event.op.name(),
        text(&what),
        text(&result(event.result)),
    )
}

/// The processes as a tree, set off by how deep they are. Not nested in the page: a hostile journal's could be any depth.
fn processes(reader: &Reader, redacted: bool) -> io::Result<Vec<u8>> {
    let table = reader.processes();
    let number = |id: usize| u32::try_from(id).map(effigy_journal::ProcessId).ok();
    let all: Vec<_> = (0..table.len())
        .filter_map(|id| table.get(number(id)?))
        .collect();
    let mut children: Vec<Vec<usize>> = vec![Vec::new(); all.len()];
    let mut pending = Vec::new();
    for (id, process) in all.iter().enumerate() {
        let parent = process
            .parent
            .and_then(|parent| usize::try_from(parent.0).ok());
        // A parent is always older, so this is a tree also in a hostile table.
        match parent.filter(|&parent| parent < id) {
            Some(parent) => children[parent].push(id),
            None => pending.push((id, 0)),
        }
    }
    pending.reverse();
    let mut out = Vec::new();
    while let Some((id, depth)) = pending.pop() {
        let process = all[id];
        let mut argv = process.argv.to_vec();
        if redacted {
            redact(&mut argv);
        }
        let words = match argv.is_empty() {
            true => html::lossy(process.name(reader.paths())),
            false => command_line(&argv),
        };
        let end = process.exit.map_or_else(String::new, |exit| match exit {
            Exit::Code(0) => String::new(),
            Exit::Code(code) => format!("exit {code}"),
            Exit::Signal(signal) => format!("killed by signal {signal}"),
        });
        writeln!(
            out,
            "<li style=\"padding-left:{}em\"><span class=\"faint\">{}</span> {} <span class=\"faint\">{}</span></li>",
            depth.min(MAX_INDENT) * 2,
            process.pid,
            text(&words),
            text(&end),
        )?;
        pending.extend(children[id].iter().rev().map(|&child| (child, depth + 1)));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use sha2::{Digest as _, Sha256};

    #[test]
    fn the_policy_allows_the_script_of_the_page_and_no_other() {
        let digest = STANDARD.encode(Sha256::digest(SCRIPT));
        assert_eq!(SCRIPT_DIGEST, format!("sha256-{digest}"));
        assert!(!SCRIPT.contains("</"), "the script would end early");
        assert!(!STYLE.contains("</"), "the style would end early");
    }
}
