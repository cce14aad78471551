//! `effigy log`: the ordered journal.

use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::path::Path;
use std::thread;
use std::time::Duration;

use effigy_journal::{Entry, Note, Reader, Session, Store, Tail};

use crate::cli::LogArgs;
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
    let reader = open(&session)?;
    let filter = Filter::new(&session, &args.filters, args.failed)?;
    let stdout = io::stdout().lock();
    let palette = Palette::of(&stdout);
    let terminal = stdout.is_terminal();
    let mut log = Log {
        reader,
        filter,
        form: match args.json {
            true => Form::Json,
            false => Form::Text(palette),
        },
        cwd: &session.record.cwd,
        totals: Totals::default(),
        unexplained: 0,
    };
    let mut out = BufWriter::with_capacity(1 << 16, stdout);
    log.write_available(&mut out)?;
    if args.follow {
        log.follow(&session, &mut out)?;
    }
    out.flush()?;
    if log.reader.tail() == Tail::Complete || !session.is_in_use() {
        log.filter.check_matched()?;
    }
    if !args.json && (terminal || log.totals.shown > 0) {
        log.write_footer(&mut out, palette, args.failed)?;
    }
    Ok(out.flush()?)
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
    totals: Totals,
    unexplained: u64,
}

impl Log<'_> {
    /// Writes what the journal holds by now.
    fn write_available(&mut self, out: &mut dyn Write) -> anyhow::Result<()> {
        while let Some(entry) = self.reader.next_entry().cannot()? {
            match entry {
                Entry::Event(event) => {
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
            if ended || matches!(self.reader.tail(), Tail::Complete | Tail::Damaged { .. }) {
                return Ok(());
            }
            thread::sleep(FOLLOW_EVERY);
        }
    }

    fn write_footer(
        &self,
        out: &mut dyn Write,
        palette: Palette,
        failed_shown: bool,
    ) -> io::Result<()> {
        let ending = ending(self.reader.tail(), self.unexplained);
        for line in self.totals.lines(&ending, failed_shown) {
            writeln!(
                out,
                "{}",
                palette.paint(Ink::Faint, format_args!("# {line}"))
            )?;
        }
        Ok(())
    }
}
