//! The trace-event form that chrome://tracing, Perfetto and speedscope read: a bar for each program that a process executed,
//! and a mark for each chosen effect.

use std::collections::HashMap;
use std::io::Write;

use effigy_journal::{Entry, Op, Outcome, ProcessId, Reader, Session};
use serde::Serialize;

use crate::cli::FilterArgs;
use crate::commands::log::leave_out;
use crate::event::Names;
use crate::event::filter::Filter;
use crate::failure::Cannot as _;
use crate::recording::open;
use crate::render::name::{command_line, cut, escaped};

/// The widest that a command is shown in a bar.
const WIDTH: usize = 200;

#[derive(Serialize)]
struct Trace<'a> {
    name: &'a str,
    ph: &'a str,
    /// Microseconds.
    ts: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    pid: u32,
    tid: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    s: Option<&'a str>,
    args: Arguments<'a>,
}

#[derive(Serialize)]
struct Arguments<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    seq: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<String>,
}

/// A program being executed.
struct Bar {
    start: u64,
    pid: u32,
    name: String,
    command: String,
}

pub(super) fn write(
    session: &Session,
    filters: &FilterArgs,
    redact: bool,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let mut filter = Filter::new(session, filters, false)?;
    let mut reader = open(session)?;
    let mut lines = Lines { out, first: true };
    let mut bars: HashMap<ProcessId, Bar> = HashMap::new();
    let mut last = 0;
    lines
        .out
        .write_all(b"{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n")?;
    while let Some(entry) = reader.next_entry().cannot()? {
        match entry {
            Entry::Event(mut event) => {
                if redact {
                    leave_out(&mut event.op);
                }
                last = last.max(event.time);
                let names = Names {
                    paths: reader.paths(),
                    processes: reader.processes(),
                };
                let chosen =
                    filter.matches(&event, names) && !matches!(event.result, Outcome::Errno(_));
                match &event.op {
                    Op::Exec { argv, .. } if event.result == Outcome::Ok => {
                        let bar = Bar {
                            start: event.time,
                            pid: pid(&reader, event.process),
                            name: program(&reader, event.process),
                            command: cut(&command_line(argv), WIDTH),
                        };
                        if let Some(before) = bars.insert(event.process, bar) {
                            lines.bar(&before, event.time)?;
                        }
                    }
                    Op::Exit { .. } => {
                        if let Some(bar) = bars.remove(&event.process) {
                            lines.bar(&bar, event.time)?;
                        }
                    }
                    op if chosen => {
                        let shown = |id| escaped(&names.path(id)).to_string();
                        lines.write(&Trace {
                            name: op.name(),
                            ph: "i",
                            ts: microseconds(event.time),
                            dur: None,
                            pid: pid(&reader, event.process),
                            tid: event.tid.0,
                            s: Some("t"),
                            args: Arguments {
                                seq: Some(event.seq.0),
                                command: None,
                                path: op.path().map(shown),
                                to: op.to().map(shown),
                            },
                        })?;
                    }
                    _ => {}
                }
            }
            Entry::End(end) => last = last.max(end.time),
            _ => {}
        }
    }
    let mut open: Vec<Bar> = bars.into_values().collect();
    open.sort_by_key(|bar| (bar.start, bar.pid));
    for bar in &open {
        lines.bar(bar, last)?;
    }
    lines.out.write_all(b"\n]}\n")?;
    filter.check_matched()
}

/// The elements of the list, one a line.
struct Lines<'a> {
    out: &'a mut dyn Write,
    first: bool,
}

impl Lines<'_> {
    fn write(&mut self, trace: &Trace<'_>) -> anyhow::Result<()> {
        if !std::mem::take(&mut self.first) {
            self.out.write_all(b",\n")?;
        }
        Ok(serde_json::to_writer(&mut *self.out, trace)?)
    }

    fn bar(&mut self, bar: &Bar, end: u64) -> anyhow::Result<()> {
        self.write(&Trace {
            name: &bar.name,
            ph: "X",
            ts: microseconds(bar.start),
            dur: Some(microseconds(end.saturating_sub(bar.start))),
            pid: bar.pid,
            tid: bar.pid,
            s: None,
            args: Arguments {
                seq: None,
                command: Some(&bar.command),
                path: None,
                to: None,
            },
        })
    }
}

fn pid(reader: &Reader, process: ProcessId) -> u32 {
    reader
        .processes()
        .get(process)
        .map_or(0, |process| process.pid)
}

fn program(reader: &Reader, process: ProcessId) -> String {
    let name = reader
        .processes()
        .get(process)
        .map(|process| process.name(reader.paths()));
    let name: &std::ffi::OsStr = std::os::unix::ffi::OsStrExt::from_bytes(name.unwrap_or_default());
    escaped(name).to_string()
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a run is shorter than 2^53 nanoseconds, which are 104 days"
)]
fn microseconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1000.0
}
