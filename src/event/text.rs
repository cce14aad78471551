//! An event as a line of the log, for people.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use effigy_journal::{Event, Exit, Kind, Op, Outcome, PathId, TimeChange};

use super::object::{device, exact, octal, read_call};
use super::{Names, address, result};
use crate::render::colour::{Ink, Palette};
use crate::render::name::{command_line, escaped};

/// How lines are written.
#[derive(Clone, Copy)]
pub(crate) struct Style<'a> {
    pub(crate) palette: Palette,
    /// The directory of the run: paths below it are shown relative to it.
    pub(crate) cwd: &'a Path,
}

impl Style<'_> {
    pub(crate) fn path(self, id: PathId, names: Names<'_>) -> PathBuf {
        let path = names.path(id);
        match path.strip_prefix(self.cwd) {
            Ok(below) if below.as_os_str().is_empty() => PathBuf::from("."),
            Ok(below) if self.cwd != Path::new("/") => below.to_owned(),
            _ => path,
        }
    }
}

/// Writes number, time, process, operation, paths and result.
pub(crate) fn write_line(
    out: &mut dyn Write,
    event: &Event,
    names: Names<'_>,
    style: Style<'_>,
) -> io::Result<()> {
    let palette = style.palette;
    let (pid, comm) = names.process(event);
    let process = format!("{}[{pid}]", escaped(comm));
    let micros = event.time / 1_000;
    let time = format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
    write!(
        out,
        "{:>6}  {:>11}  {process:16}  {:11}  ",
        event.seq.0,
        palette.paint(Ink::Faint, time),
        palette.paint(ink(&event.op), event.op.name()),
    )?;
    let (path, to) = event.op.paths();
    if let Some(path) = path {
        write!(out, "{}", escaped(&style.path(path, names)))?;
    }
    if let Some(to) = to {
        let arrow = if matches!(event.op, Op::Exchange { .. }) {
            "<->"
        } else {
            "->"
        };
        write!(out, " {arrow} {}", escaped(&style.path(to, names)))?;
    }
    let detail = detail(&event.op, names);
    if !detail.is_empty() {
        let space = match &event.op {
            Op::Exec { .. } => ": ",
            _ if path.is_some() => " ",
            _ => "",
        };
        write!(out, "{space}{detail}")?;
    }
    let result_ink = match event.result {
        Outcome::Ok => Ink::Faint,
        Outcome::Errno(_) | Outcome::Unknown => Ink::Deleted,
    };
    writeln!(out, "  {}", palette.paint(result_ink, result(event.result)))
}

fn ink(op: &Op) -> Ink {
    match op {
        Op::Unlink { .. } | Op::Rmdir { .. } => Ink::Deleted,
        Op::Open { created: true, .. }
        | Op::Mkdir { .. }
        | Op::Symlink { .. }
        | Op::Link { .. }
        | Op::Mknod { .. }
        | Op::Bind { .. } => Ink::Added,
        Op::Rename { .. } | Op::Exchange { .. } => Ink::Renamed,
        op if op.is_effect() => Ink::Changed,
        _ => Ink::Faint,
    }
}

/// What an operation's name and paths leave unsaid.
pub(crate) fn detail(op: &Op, names: Names<'_>) -> String {
    match op {
        Op::Open {
            created, truncated, ..
        } => match (created, truncated) {
            (true, _) => "(created)".to_owned(),
            (false, true) => "(truncated)".to_owned(),
            (false, false) => String::new(),
        },
        Op::Mkdir { mode, .. } | Op::Chmod { mode, .. } => octal(*mode),
        Op::Mknod { mode, dev, .. } => match Kind::of_mode(*mode) {
            Some(Kind::CharDevice | Kind::BlockDevice) => {
                format!("{} {}", kind_of_mode(*mode), device(*dev))
            }
            _ => kind_of_mode(*mode).to_owned(),
        },
        Op::Rename { replaced: true, .. } => "(replaced)".to_owned(),
        Op::Symlink { target, .. } => format!("-> {}", escaped(target)),
        Op::Truncate { len, .. } => format!("to {len} bytes"),
        Op::Chown { uid, gid, .. } => {
            let id = |id: Option<u32>| id.map_or_else(String::new, |id| id.to_string());
            format!("{}:{}", id(*uid), id(*gid))
        }
        Op::Utimens { mtime, .. } => match mtime {
            TimeChange::Omit => "(access time)".to_owned(),
            TimeChange::Now(_) => "(now)".to_owned(),
            TimeChange::Set(time) => exact(*time),
        },
        Op::Setxattr { name, .. } | Op::Removexattr { name, .. } => escaped(name).to_string(),
        Op::Settle { state, .. } => match state.as_deref() {
            None => "(absent at the end)".to_owned(),
            Some(stat) => format!("({}, {})", kind(stat.kind), octal(stat.mode)),
        },
        Op::Exec { argv, .. } => command_line(argv),
        Op::Exit {
            status: Exit::Code(code),
        } => code.to_string(),
        Op::Exit {
            status: Exit::Signal(signal),
        } => format!("signal {signal}"),
        Op::Read { call, .. } => format!("({})", read_call(*call)),
        // A socket with a path is shown by that.
        Op::Connect { address: to } if op.path().is_none() => {
            escaped(&address(to, names)).to_string()
        }
        Op::Mark { text } => escaped(text).to_string(),
        _ => String::new(),
    }
}

fn kind_of_mode(mode: u32) -> &'static str {
    Kind::of_mode(mode).map_or("file", kind)
}

pub(crate) const fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::File => "file",
        Kind::Directory => "directory",
        Kind::Symlink => "symbolic link",
        Kind::Fifo => "fifo",
        Kind::Socket => "socket",
        Kind::CharDevice => "character device",
        Kind::BlockDevice => "block device",
    }
}

/// `1 event, 2 failed`, and what else a reader of the whole should know.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) shown: u64,
    pub(crate) failed: u64,
    pub(crate) sockets: u64,
    pub(crate) network: u64,
    pub(crate) io_uring: u64,
    pub(crate) refused: u64,
}

impl Totals {
    pub(crate) fn count(&mut self, op: &Op, outcome: Outcome) {
        if matches!(outcome, Outcome::Errno(_)) {
            self.failed += 1;
        }
        if let Op::Connect { .. } = op {
            match op.path() {
                Some(_) => self.sockets += 1,
                None => self.network += 1,
            }
        }
    }

    /// Lines for the end of a log. `passed`: sockets that the command was let reach.
    pub(crate) fn lines(
        &self,
        ending: &str,
        failed_shown: bool,
        passed: &[PathBuf],
    ) -> Vec<String> {
        let plural = |n: u64, noun: &str| match n {
            1 => format!("1 {noun}"),
            n => format!("{n} {noun}s"),
        };
        let mut first = plural(self.shown, "event");
        if self.failed > 0 && !failed_shown {
            let _ = write!(
                first,
                "; {} that failed not shown (--failed)",
                plural(self.failed, "call")
            );
        }
        let _ = write!(first, "; {ending}");
        let mut lines = vec![first];
        let mut outside = Vec::new();
        if self.network > 0 {
            outside.push(plural(self.network, "network connection"));
        }
        if self.sockets > 0 {
            outside.push(plural(self.sockets, "connection") + " to a Unix socket");
        }
        outside.extend(
            passed
                .iter()
                .map(|path| format!("passed socket {}", escaped(path))),
        );
        if !outside.is_empty() {
            lines.push(format!(
                "effects outside the recording are possible: {}",
                outside.join(", ")
            ));
        }
        if self.io_uring > 0 {
            lines.push(
                "io_uring was asked for and refused: programs fall back to ordinary calls"
                    .to_owned(),
            );
        }
        if self.refused > 0 {
            lines.push(format!(
                "{} refused because it could not be recorded",
                plural(self.refused, "call")
            ));
        }
        lines
    }
}
