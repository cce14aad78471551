//! Colours: on a terminal, and only when the user has not said otherwise.

use std::env;
use std::fmt;
use std::io::IsTerminal;

/// The few roles that have a colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ink {
    Added,
    Changed,
    Deleted,
    Renamed,
    Heading,
    Faint,
    Risky,
}

impl Ink {
    fn sequence(self) -> &'static str {
        match self {
            Self::Added => "\x1b[32m",
            Self::Changed => "\x1b[33m",
            Self::Deleted => "\x1b[31m",
            Self::Renamed => "\x1b[36m",
            Self::Heading => "\x1b[1m",
            Self::Faint => "\x1b[2m",
            Self::Risky => "\x1b[1;31m",
        }
    }
}

/// Whether to colour what goes to one stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Palette {
    coloured: bool,
}

impl Palette {
    /// Colours when the stream is a terminal and colours are wanted.
    pub(crate) fn of(stream: &impl IsTerminal) -> Self {
        Self {
            coloured: stream.is_terminal() && Self::is_wanted(),
        }
    }

    /// For what is known to go to the terminal.
    pub(crate) fn for_terminal() -> Self {
        Self {
            coloured: Self::is_wanted(),
        }
    }

    /// Whether the terminal understands colours and NO_COLOR is unset or empty (no-color.org).
    pub(crate) fn is_wanted() -> bool {
        let refused = env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
        let dumb = env::var_os("TERM").is_none_or(|t| t.is_empty() || t == "dumb");
        !refused && !dumb
    }

    pub(crate) const fn plain() -> Self {
        Self { coloured: false }
    }

    #[cfg(test)]
    pub(crate) const fn always() -> Self {
        Self { coloured: true }
    }

    pub(crate) fn paint<T: fmt::Display>(self, ink: Ink, text: T) -> Painted<T> {
        Painted {
            ink: self.coloured.then_some(ink),
            text,
        }
    }
}

pub(crate) struct Painted<T> {
    ink: Option<Ink>,
    text: T,
}

impl<T: fmt::Display> fmt::Display for Painted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(ink) = self.ink else {
            return self.text.fmt(f);
        };
        f.write_str(ink.sequence())?;
        self.text.fmt(f)?;
        f.write_str("\x1b[0m")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_means_no_escape_at_all() {
        assert_eq!(Palette::plain().paint(Ink::Added, "x").to_string(), "x");
        assert_eq!(
            Palette::always().paint(Ink::Added, "x").to_string(),
            "\x1b[32mx\x1b[0m"
        );
    }

    #[test]
    fn width_counts_the_text_alone() {
        let painted = Palette::always().paint(Ink::Faint, "ab");
        assert_eq!(format!("{painted:4}|"), "\x1b[2mab  \x1b[0m|");
    }
}
