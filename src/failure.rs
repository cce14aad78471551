//! Errors as the user meets them: a message, a hint on its own line, and an exit status.

use std::env;
use std::error::Error;
use std::fmt;
use std::io;

use crate::render::name::escaped;

/// The exit statuses of effigy's own doing; see `cli::EXIT_STATUS`.
pub(crate) mod status {
    /// Conflict, refused, or nothing found.
    pub(crate) const NO: u8 = 1;
    /// The command line could not be understood.
    pub(crate) const USAGE: u8 = 2;
    /// effigy itself failed.
    pub(crate) const FAILED: u8 = 125;
    /// The command of a run is there but cannot be executed.
    pub(crate) const NOT_EXECUTABLE: u8 = 126;
    /// The command of a run is not there.
    pub(crate) const NOT_FOUND: u8 = 127;
}

/// An error with what to do next.
#[derive(Debug)]
pub(crate) struct Failure {
    message: String,
    hint: Option<String>,
    status: u8,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl Failure {
    /// Something that could not be done; exit status 125.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            hint: None,
            status: status::FAILED,
            source: None,
        }
    }

    /// A library's error, whose text reads after "cannot …"; exit status 125.
    pub(crate) fn from_error(error: impl Error + Send + Sync + 'static) -> Self {
        Self {
            source: Some(Box::new(error)),
            ..Self::new(String::new())
        }
    }

    /// Something that was asked for and is answered with no: a conflict, a refusal, nothing found; exit status 1.
    pub(crate) fn refused(message: impl Into<String>) -> Self {
        Self {
            status: status::NO,
            ..Self::new(message)
        }
    }

    pub(crate) fn hint(self, hint: impl Into<String>) -> Self {
        self.maybe_hint(Some(hint))
    }

    pub(crate) fn maybe_hint(mut self, hint: Option<impl Into<String>>) -> Self {
        self.hint = hint.map(Into::into);
        self
    }

    /// What the user can do next.
    pub(crate) fn advice(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    pub(crate) fn status(mut self, status: u8) -> Self {
        self.status = status;
        self
    }
}

/// Takes a library's error, whose text reads after "cannot …".
pub(crate) trait Cannot<T> {
    fn cannot(self) -> anyhow::Result<T>;
}

impl<T, E: Error + Send + Sync + 'static> Cannot<T> for Result<T, E> {
    fn cannot(self) -> anyhow::Result<T> {
        self.map_err(|error| Failure::from_error(error).into())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            Some(source) => write!(f, "cannot {source}"),
            None => f.write_str(&self.message),
        }
    }
}

impl Error for Failure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.source {
            Some(source) => Some(source.as_ref()),
            None => None,
        }
    }
}

/// Reports an error on stderr and gives the exit status that goes with it.
///
/// A reader that went away (`effigy diff | head`) is no error.
pub(crate) fn report(error: &anyhow::Error) -> u8 {
    let broken_pipe = error.chain().any(|cause| {
        cause
            .downcast_ref::<io::Error>()
            .is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
    });
    if broken_pipe {
        return 0;
    }
    eprintln!("{}", lines("effigy: ", &message(error)));
    let mut exit = None;
    for failure in error.chain().filter_map(|c| c.downcast_ref::<Failure>()) {
        if let Some(hint) = &failure.hint {
            eprintln!("{}", lines("  hint: ", hint));
        }
        exit.get_or_insert(failure.status);
    }
    if let Some(outer) = env::var_os("EFFIGY_SESSION") {
        eprintln!(
            "  hint: this effigy is nested: it runs already inside session {}, where some things are not possible",
            escaped(&outer)
        );
    }
    exit.unwrap_or(status::FAILED)
}

/// The chain of causes on one line, without a cause whose text its error already repeats.
fn message(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain() {
        let cause = cause.to_string();
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}

/// Keeps line ends, which messages have on purpose, and escapes every other control character, which can only come from
/// a name.
fn lines(prefix: &str, text: &str) -> String {
    let mut out = String::new();
    for (number, line) in text.lines().enumerate() {
        if number > 0 {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', prefix.len()));
        } else {
            out.push_str(prefix);
        }
        for c in line.chars() {
            if c.is_control() {
                out.extend(c.escape_default());
            } else {
                out.push(c);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    #[test]
    fn causes_are_told_once() {
        let inner = io::Error::from_raw_os_error(libc::ENOENT);
        let text = inner.to_string();
        let error = Err::<(), _>(inner)
            .context(format!("cannot open x: {text}"))
            .expect_err("an error");
        assert_eq!(message(&error), format!("cannot open x: {text}"));
    }

    #[test]
    fn names_in_messages_cannot_drive_the_terminal() {
        assert_eq!(
            lines("effigy: ", "cannot open a\x1b[2Jb\r:\nsecond"),
            "effigy: cannot open a\\u{1b}[2Jb\\r:\n        second"
        );
    }
}
