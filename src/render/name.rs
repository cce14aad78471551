//! Names as text. A name is bytes and may hold anything; what reaches a screen or a line-oriented reader must not.

use std::ffi::OsStr;
use std::fmt::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;

/// Shows a name on one line: control characters, characters that reorder or hide text, and bytes that are not UTF-8 are
/// escaped as `\n`, `\x1b`, `\u{202e}`, and a backslash is doubled so that the form can be read back.
pub(crate) fn escaped<S: AsRef<OsStr> + ?Sized>(name: &S) -> Escaped<'_> {
    Escaped(name.as_ref())
}

pub(crate) struct Escaped<'a>(&'a OsStr);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if f.width().is_some() {
            let mut text = String::new();
            write_bytes(&mut text, self.0.as_bytes())?;
            return f.pad(&text);
        }
        write_bytes(f, self.0.as_bytes())
    }
}

fn write_bytes(out: &mut dyn fmt::Write, bytes: &[u8]) -> fmt::Result {
    for chunk in bytes.utf8_chunks() {
        write_text(out, chunk.valid())?;
        for byte in chunk.invalid() {
            write!(out, "\\x{byte:02x}")?;
        }
    }
    Ok(())
}

fn write_text(out: &mut dyn fmt::Write, text: &str) -> fmt::Result {
    let mut plain = 0;
    for (at, c) in text.char_indices() {
        if !needs_escape(c) {
            continue;
        }
        out.write_str(&text[plain..at])?;
        plain = at + c.len_utf8();
        match c {
            '\\' => out.write_str("\\\\")?,
            '\n' => out.write_str("\\n")?,
            '\r' => out.write_str("\\r")?,
            '\t' => out.write_str("\\t")?,
            c if c.is_ascii() => write!(out, "\\x{:02x}", u32::from(c))?,
            c => write!(out, "\\u{{{:x}}}", u32::from(c))?,
        }
    }
    out.write_str(&text[plain..])
}

/// Characters that a terminal acts on, or that make a name look like another one: controls, line and paragraph
/// separators, bidirectional overrides and isolates, zero-width characters.
pub(crate) fn needs_escape(c: char) -> bool {
    match c {
        '\\' => true,
        c if c.is_ascii() => c.is_ascii_control(),
        '\u{80}'..='\u{9f}'
        | '\u{ad}'
        | '\u{61c}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}' => true,
        _ => false,
    }
}

/// Shows a command line so that it could be pasted into a POSIX shell, as long as it holds no escapes.
pub(crate) fn command_line<S: AsRef<OsStr>>(argv: &[S]) -> String {
    let mut line = String::new();
    for word in argv {
        if !line.is_empty() {
            line.push(' ');
        }
        let word = word.as_ref();
        if is_plain_word(word.as_bytes()) {
            // Formatting into a String cannot fail.
            let _ = write!(line, "{}", escaped(word));
        } else {
            let text = escaped(word).to_string().replace('\'', "'\\''");
            let _ = write!(line, "'{text}'");
        }
    }
    line
}

fn is_plain_word(word: &[u8]) -> bool {
    !word.is_empty()
        && word
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || b"-_./=:,@%+^".contains(b) || !b.is_ascii())
}

/// Cuts a text to a number of characters, its end replaced by `…` when something was cut.
pub(crate) fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(width.saturating_sub(1)).collect();
    short.push('…');
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(bytes: &[u8]) -> String {
        escaped(OsStr::from_bytes(bytes)).to_string()
    }

    #[test]
    fn plain_names_stay() {
        assert_eq!(
            show(b"/home/u/a file 'x' \"q\""),
            "/home/u/a file 'x' \"q\""
        );
        assert_eq!(show("é/日本".as_bytes()), "é/日本");
    }

    #[test]
    fn no_control_character_survives() {
        for byte in 0..=255u8 {
            let shown = show(&[b'a', byte, b'b']);
            assert!(!shown.chars().any(char::is_control), "{byte}: {shown:?}");
        }
        assert_eq!(show(b"a\nb\rc\td"), "a\\nb\\rc\\td");
        assert_eq!(show(b"\x1b[31m"), "\\x1b[31m");
        assert_eq!(show(b"\xff\xfex"), "\\xff\\xfex");
        assert_eq!(show(b"a\x7f\xc2\x9bz"), "a\\x7f\\u{9b}z");
    }

    #[test]
    fn names_cannot_pose_as_others() {
        assert_eq!(show("a\u{202e}txt.exe".as_bytes()), "a\\u{202e}txt.exe");
        assert_ne!(show(b"a\nb"), show(b"a\\nb"));
    }

    #[test]
    fn command_lines_are_quoted() {
        assert_eq!(
            command_line(&["sh", "-c", "echo 'a b'; rm *"]),
            "sh -c 'echo '\\''a b'\\''; rm *'"
        );
        assert_eq!(command_line(&["printf", ""]), "printf ''");
        assert_eq!(command_line(&["printf", "\n"]), "printf '\\n'");
    }

    #[test]
    fn texts_are_cut_by_characters() {
        assert_eq!(cut("été long", 4), "été…");
        assert_eq!(cut("été", 3), "été");
    }
}
