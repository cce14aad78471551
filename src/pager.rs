//! Long output through $PAGER, on a terminal only.

use std::env;
use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{SigSet, Signal};

/// Standard output, through a pager when it is a terminal.
pub(crate) enum Output {
    Plain(BufWriter<io::Stdout>),
    Paged(Pager),
}

pub(crate) struct Pager {
    child: Child,
    /// `None` once the pager has been told that there is no more.
    input: Option<BufWriter<std::process::ChildStdin>>,
}

impl Output {
    pub(crate) fn paged() -> Self {
        if io::stdout().is_terminal()
            && let Some(pager) = Pager::start()
        {
            return Self::Paged(pager);
        }
        Self::Plain(BufWriter::new(io::stdout()))
    }

    /// Flushes, and waits until the user has left the pager.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        let flushed = self.flush();
        match self {
            Self::Plain(_) => flushed,
            Self::Paged(mut pager) => {
                pager.input = None;
                pager.child.wait()?;
                match flushed {
                    // The user left before the end.
                    Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
                    other => other,
                }
            }
        }
    }
}

impl Pager {
    /// Starts $PAGER, or `less` when it is unset. `None` when it is empty or `cat`, or cannot be started: then the
    /// output goes to the terminal directly.
    fn start() -> Option<Self> {
        let pager = match env::var("PAGER") {
            Ok(pager) => pager,
            Err(_) => "less".to_owned(),
        };
        let mut words = pager.split_whitespace();
        let program = words.next().filter(|p| *p != "cat")?;
        let mut command = Command::new(program);
        command.args(words).stdin(Stdio::piped());
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
        let mut interrupt = SigSet::empty();
        interrupt.add(Signal::SIGINT);
        let _ = interrupt.thread_block();
        Some(Self {
            child,
            input: Some(BufWriter::new(input)),
        })
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(out) => out.write(bytes),
            Self::Paged(Pager {
                input: Some(input), ..
            }) => input.write(bytes),
            Self::Paged(Pager { input: None, .. }) => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(out) => out.flush(),
            Self::Paged(Pager {
                input: Some(input), ..
            }) => input.flush(),
            Self::Paged(Pager { input: None, .. }) => Ok(()),
        }
    }
}
