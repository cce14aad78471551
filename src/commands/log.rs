//! `effigy log`: the ordered journal.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use effigy_journal::redact::{redact, redact_text};
use effigy_journal::{Entry, Note, Op, Reader, Session, Store, Tail};

use crate::cli::{FilterArgs, LogArgs};
use crate::event::Names;
use crate::event::filter::Filter;
use crate::event::object::Object;
use crate::event::text::{Style, Totals, write_line};
use crate::failure::Cannot as _;
use crate::recording::{ending, open};
use crate::render::colour::{Ink, Palette};
use crate::render::json;
use crate::store::find;

/// How often a journal that grows is looked at; it is flushed as often.
const FOLLOW_EVERY: Duration = Duration::from_millis(100);

pub(crate) fn log(args: &LogArgs, store: &Store) -> anyhow::Result<()> {
    // Not locked: a session can be read while it is recorded.
    let session = find(store, args.session.as_deref())?;
    let filter = Filter::new(&session, &args.filters, args.failed)?;
    let stdout = io::stdout().lock();
    let form = match args.json {
        true => Form::Json,
        false => Form::Text(Palette::of(&stdout)),
    };
    let mut out = BufWriter::with_capacity(1 << 16, stdout);
    let mut log = Log::open(&session, filter, form)?;
    log.write_available(&mut out)?;
    if args.follow {
        log.follow(&session, &mut out)?;
    }
    out.flush()?;
    // While it grows, a pattern may still come to match.
    if log.reader.tail() == Tail::Complete || !session.is_in_use() {
        log.filter.check_matched()?;
    }
    log.write_footer(&mut out)?;
    Ok(out.flush()?)
}

/// Writes the whole log as text.
pub(crate) fn write_whole(
    session: &Session,
    palette: Palette,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    write_text(session, &FilterArgs::default(), palette, out)
}

/// Writes the chosen events as text.
pub(crate) fn write_text(
    session: &Session,
    filters: &FilterArgs,
    palette: Palette,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let filter = Filter::new(session, filters, false)?;
    let mut log = Log::open(session, filter, Form::Text(palette))?;
    log.write_available(out)?;
    Ok(log.write_footer(out)?)
}

/// Writes the chosen events as JSON, without secrets in arguments when `redacted`.
pub(crate) fn write_json(
    session: &Session,
    filters: &FilterArgs,
    redacted: bool,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let filter = Filter::new(session, filters, false)?;
    let mut log = Log::open(session, filter, Form::Json)?;
    log.redacted = redacted;
    log.write_available(out)?;
    log.write_footer(out)?;
    log.filter.check_matched()
}

/// Leaves secrets out of what an operation tells.
pub(crate) fn leave_out(op: &mut Op) {
    match op {
        Op::Exec { argv, .. } => redact(argv),
        Op::Mark { text } => redact_text(text),
        _ => 0,
    };
}

#[derive(Clone, Copy)]
enum Form {
    Json,
    Text(Palette),
}

struct Log<'a> {
    reader: Reader,
    filter: Filter,
    form: Form,
    cwd: &'a Path,
    passed: &'a [PathBuf],
    totals: Totals,
    unexplained: u64,
    redacted: bool,
    /// It is recorded at this moment.
    grows: bool,
}

impl<'a> Log<'a> {
    fn open(session: &'a Session, filter: Filter, form: Form) -> anyhow::Result<Self> {
        Ok(Self {
            reader: open(session)?,
            filter,
            form,
            cwd: &session.record.cwd,
            passed: &session.record.passed,
            totals: Totals::default(),
            unexplained: 0,
            grows: session.is_in_use(),
            redacted: false,
        })
    }

    /// Writes what the journal holds by now.
    fn write_available(&mut self, out: &mut dyn Write) -> anyhow::Result<()> {
        while let Some(entry) = self.reader.next_entry().cannot()? {
            match entry {
                Entry::Event(mut event) => {
                    if self.redacted {
                        leave_out(&mut event.op);
                    }
                    if self.filter.is_past(&event) && !matches!(self.form, Form::Text(_)) {
                        return Ok(());
                    }
                    let names = Names {
                        paths: self.reader.paths(),
                        processes: self.reader.processes(),
                    };
                    if !self.filter.matches(&event, names) {
                        continue;
                    }
                    self.totals.count(&event.op, event.result);
                    if !self.filter.wants_result(event.result) {
                        continue;
                    }
                    self.totals.shown += 1;
                    match self.form {
                        Form::Json => json::write_line(
                            out,
                            &Object {
                                event: &event,
                                names,
                            },
                        )?,
                        Form::Text(palette) => {
                            let style = Style {
                                palette,
                                cwd: self.cwd,
                            };
                            write_line(out, &event, names, style)?;
                        }
                    }
                }
                Entry::Note(Note::IoUringRefused { .. }) => self.totals.io_uring += 1,
                Entry::Note(Note::Refused { .. }) => self.totals.refused += 1,
                Entry::End(end) => self.unexplained = end.unexplained,
                _ => {}
            }
        }
        Ok(())
    }

    /// Goes on until the recording has ended.
    fn follow(&mut self, session: &Session, out: &mut dyn Write) -> anyhow::Result<()> {
        loop {
            out.flush()?;
            // Asked before reading: what was written before the end is then read after it.
            let ended = !session.is_in_use();
            self.write_available(out)?;
            self.grows = !ended;
            if ended || matches!(self.reader.tail(), Tail::Complete | Tail::Damaged { .. }) {
                return Ok(());
            }
            thread::sleep(FOLLOW_EVERY);
        }
    }

    /// Ends a text with counts, how complete the recording is, and what lies outside it.
    fn write_footer(&self, out: &mut dyn Write) -> io::Result<()> {
        let ending = ending(self.reader.tail(), self.unexplained);
        let Form::Text(palette) = self.form else {
            // Those who read the events from standard output must not take a part for the whole.
            if self.reader.tail() != Tail::Complete && !self.grows {
                eprintln!("effigy: the journal is {ending}");
            }
            return Ok(());
        };
        for line in self
            .totals
            .lines(&ending, self.filter.wants_failed(), self.passed)
        {
            writeln!(
                out,
                "{}",
                palette.paint(Ink::Faint, format_args!("# {line}"))
            )?;
        }
        Ok(())
    }
}
