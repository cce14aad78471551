//! Long output through $PAGER, on a terminal only.

use std::env;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::process::{Child, ChildStdin, Command, Stdio};

use nix::sys::signal::{SigSet, Signal};

/// Where long output goes.
pub(crate) enum Output {
    Plain(BufWriter<io::Stdout>),
    Terminal(BufWriter<File>),
    Paged(Pager),
}

pub(crate) struct Pager {
    child: Child,
    /// `None` once the pager has been told that there is no more.
    input: Option<BufWriter<ChildStdin>>,
}

impl Output {
    /// Standard output, through the pager when it is a terminal.
    pub(crate) fn standard() -> Self {
        let stdout = io::stdout();
        if stdout.is_terminal()
            && let Some(pager) = Pager::start(Stdio::inherit())
        {
            return Self::Paged(pager);
        }
        Self::Plain(BufWriter::new(stdout))
    }

    /// The controlling terminal, through the pager; standard output may be the command's.
    pub(crate) fn terminal() -> io::Result<Self> {
        let terminal = File::options().write(true).open("/dev/tty")?;
        Ok(match Pager::start(terminal.try_clone()?.into()) {
            Some(pager) => Self::Paged(pager),
            None => Self::Terminal(BufWriter::new(terminal)),
        })
    }

    pub(crate) fn is_for_terminal(&self) -> bool {
        match self {
            Self::Plain(_) => io::stdout().is_terminal(),
            Self::Terminal(_) | Self::Paged(_) => true,
        }
    }

    fn writer(&mut self) -> Option<&mut dyn Write> {
        match self {
            Self::Plain(out) => Some(out),
            Self::Terminal(out) => Some(out),
            Self::Paged(pager) => pager.input.as_mut().map(|input| input as &mut dyn Write),
        }
    }

    /// Flushes, and waits until the user has left the pager.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        let flushed = self.flush();
        let Self::Paged(mut pager) = self else {
            return flushed;
        };
        pager.input = None;
        pager.child.wait()?;
        // Pager and effigy share the terminal: a Ctrl-C meant for the pager is over with it.
        let _ = interrupts().thread_unblock();
        match flushed {
            // The user left before the end.
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            other => other,
        }
    }
}

fn interrupts() -> SigSet {
    let mut interrupts = SigSet::empty();
    interrupts.add(Signal::SIGINT);
    interrupts
}

impl Pager {
    /// Starts $PAGER, or `less` when it is unset. `None` when it is empty or `cat`, or cannot be started: then the
    /// output goes to the terminal directly.
    fn start(output: Stdio) -> Option<Self> {
        let pager = match env::var("PAGER") {
            Ok(pager) => pager,
            Err(_) => "less".to_owned(),
        };
        let mut words = pager.split_whitespace();
        let program = words.next().filter(|p| *p != "cat")?;
        let mut command = Command::new(program);
        command.args(words).stdin(Stdio::piped()).stdout(output);
        // As git does: quit when it fits one screen, let colours through, leave the text on the screen.
        if env::var_os("LESS").is_none() {
            command.env("LESS", "FRX");
        }
        if env::var_os("LV").is_none() {
            command.env("LV", "-c");
        }
        let mut child = command.spawn().ok()?;
        let input = child.stdin.take()?;
        // Ctrl-C belongs to the pager; if it ended effigy, the two would fight over the terminal. Blocked only now, so
        // that the pager does not inherit it.
        let _ = interrupts().thread_block();
        Some(Self {
            child,
            input: Some(BufWriter::new(input)),
        })
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.writer() {
            Some(out) => out.write(bytes),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer().map_or(Ok(()), Write::flush)
    }
}
