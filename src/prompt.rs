//! Questions to the user: on /dev/tty, so that standard streams stay the command's.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Write as _};

use crate::failure::Failure;

/// The controlling terminal, opened for a question.
pub(crate) struct Terminal {
    input: BufReader<File>,
    output: File,
}

impl Terminal {
    /// Opens /dev/tty; `None` when this process has no terminal.
    pub(crate) fn open() -> Option<Self> {
        let open = || OpenOptions::new().read(true).write(true).open("/dev/tty");
        Some(Self {
            input: BufReader::new(open().ok()?),
            output: open().ok()?,
        })
    }

    /// Asks and reads one line; `None` at the end of the input (Ctrl-D).
    pub(crate) fn ask(&mut self, question: &str) -> io::Result<Option<String>> {
        write!(self.output, "{question} ")?;
        self.output.flush()?;
        let mut line = String::new();
        if self.input.read_line(&mut line)? == 0 {
            writeln!(self.output)?;
            return Ok(None);
        }
        Ok(Some(line.trim().to_owned()))
    }

    /// Asks until the answer is yes or no; no answer at all is no.
    pub(crate) fn confirm(&mut self, question: &str) -> io::Result<bool> {
        loop {
            let answer = self.ask(&format!("{question} [y/N]"))?;
            match answer.as_deref().map(str::to_ascii_lowercase).as_deref() {
                Some("y" | "yes") => return Ok(true),
                None | Some("" | "n" | "no") => return Ok(false),
                Some(_) => writeln!(self.output, "please answer y or n")?,
            }
        }
    }
}

/// Asks on the terminal, after `tell` has told what it is about; refuses when there is none or when the answer is no.
pub(crate) fn agree(question: &str, tell: impl FnOnce() -> io::Result<()>) -> anyhow::Result<()> {
    let Some(mut terminal) = Terminal::open() else {
        return Err(Failure::refused("there is no terminal to ask on")
            .hint("give -y to go on without a question")
            .into());
    };
    tell()?;
    if terminal.confirm(question)? {
        Ok(())
    } else {
        Err(Failure::refused("nothing was changed").into())
    }
}
