//! Text in a page. What comes from a recording is hostile, and this is the only way in.

use std::fmt::{self, Write as _};

use crate::render::name::needs_escape;

/// Text as the content of an element: nothing in it is markup, and nothing in it hides or reorders what stands there.
pub(super) fn text(text: &str) -> Text<'_> {
    Text(text)
}

/// Text as the value of an attribute, with its quotes.
pub(super) fn attribute(text: &str) -> String {
    format!("\"{}\"", self::text(text))
}

pub(super) struct Text<'t>(&'t str);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                '\\' | '\t' => f.write_char(c)?,
                c if needs_escape(c) => write!(f, "\\u{{{:x}}}", u32::from(c))?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

/// Bytes as text; those that are not UTF-8 are shown by their numbers.
pub(super) fn lossy(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            // Writing into a String cannot fail.
            let _infallible = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_markup() {
        let hostile = "</pre><script>alert('x')</script>&\"\u{202e}\u{0}\u{1b}\u{2028}";
        let shown = text(hostile).to_string();
        assert_eq!(
            shown,
            "&lt;/pre&gt;&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&amp;&quot;\\u{202e}\\u{0}\\u{1b}\\u{2028}"
        );
        assert_eq!(attribute("a\" onload=\"x"), "\"a&quot; onload=&quot;x\"");
    }

    #[test]
    fn bytes_that_are_no_text_are_numbers() {
        assert_eq!(lossy(b"a\xff<"), "a\\xff<");
    }
}
