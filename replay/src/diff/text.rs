//! The lines of a diff.

use super::{DiffOptions, PATIENCE};
use similar::{ChangeTag, TextDiff};
use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

const BOLD: &str = "\x1b[1m";
const RED: &str = "\x1b[31m";
const GREEN: &str = "\x1b[32m";
const CYAN: &str = "\x1b[36m";
const RESET: &str = "\x1b[0m";

/// Where lines go, and how.
pub(super) struct Page<'a> {
    pub(super) out: &'a mut dyn Write,
    pub(super) options: DiffOptions,
}

impl Page<'_> {
    /// One line in one colour.
    fn line(&mut self, colour: &str, bytes: &[u8]) -> io::Result<()> {
        if self.options.colour {
            self.out.write_all(colour.as_bytes())?;
        }
        if self.options.escape {
            self.out
                .write_all(escaped(&OsStr::from_bytes(bytes).display().to_string()).as_bytes())?;
        } else {
            self.out.write_all(bytes)?;
        }
        if self.options.colour {
            self.out.write_all(RESET.as_bytes())?;
        }
        self.out.write_all(b"\n")
    }

    pub(super) fn heading(&mut self, words: &str, path: &Path) -> io::Result<()> {
        let line = [words.as_bytes(), b" ", path.as_os_str().as_encoded_bytes()].concat();
        self.line(BOLD, &line)
    }

    pub(super) fn changed(&mut self, what: &str, old: &str, new: &str) -> io::Result<()> {
        self.line(RED, format!("-{what} {old}").as_bytes())?;
        self.line(GREEN, format!("+{what} {new}").as_bytes())
    }

    /// A change of what cannot be shown line by line.
    pub(super) fn described(
        &mut self,
        path: &Path,
        old: Option<&str>,
        new: Option<&str>,
    ) -> io::Result<()> {
        let words = match (old, new) {
            (None, _) => "added",
            (_, None) => "deleted",
            _ => "changed",
        };
        self.heading(words, path)?;
        if let Some(old) = old {
            self.line(RED, format!("-{old}").as_bytes())?;
        }
        if let Some(new) = new {
            self.line(GREEN, format!("+{new}").as_bytes())?;
        }
        Ok(())
    }

    pub(super) fn unified(
        &mut self,
        from: &Path,
        to: &Path,
        old: &[u8],
        new: &[u8],
    ) -> io::Result<()> {
        self.heading("---", from)?;
        self.heading("+++", to)?;
        if old.is_empty() || new.is_empty() {
            return self.one_sided(old, new);
        }
        let diff = TextDiff::configure().timeout(PATIENCE).diff_lines(old, new);
        for hunk in diff
            .unified_diff()
            .context_radius(self.options.context)
            .iter_hunks()
        {
            self.line(CYAN, hunk.header().to_string().as_bytes())?;
            for change in hunk.iter_changes() {
                let (sign, colour) = match change.tag() {
                    ChangeTag::Delete => (b'-', RED),
                    ChangeTag::Insert => (b'+', GREEN),
                    ChangeTag::Equal => (b' ', ""),
                };
                self.content(sign, colour, change.value())?;
            }
        }
        Ok(())
    }

    /// A file that came or went as a whole.
    fn one_sided(&mut self, old: &[u8], new: &[u8]) -> io::Result<()> {
        let (text, sign, colour) = if old.is_empty() {
            (new, b'+', GREEN)
        } else {
            (old, b'-', RED)
        };
        let lines = text.split_inclusive(|&b| b == b'\n').count();
        let header = if old.is_empty() {
            format!("@@ -0,0 +1,{lines} @@")
        } else {
            format!("@@ -1,{lines} +0,0 @@")
        };
        self.line(CYAN, header.as_bytes())?;
        text.split_inclusive(|&b| b == b'\n')
            .try_for_each(|line| self.content(sign, colour, line))
    }

    fn content(&mut self, sign: u8, colour: &str, line: &[u8]) -> io::Result<()> {
        let body = line.strip_suffix(b"\n");
        self.line(colour, &[&[sign], body.unwrap_or(line)].concat())?;
        if body.is_none() {
            self.line("", b"\\ No newline at end of file")?;
        }
        Ok(())
    }
}

/// Control characters and what could hide or reorder text are shown as escapes; tabs stay.
pub(super) fn escaped(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        let reorders = matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if c != '\t' && (c.is_control() || reorders) {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
}
