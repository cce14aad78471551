//! The JSON forms that docs/JSON.md promises.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::ser::{Serialize, SerializeMap as _, Serializer};

/// A name: a string when it is UTF-8, else `{"bytes":"<base64>"}`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Name<'a>(&'a OsStr);

impl<'a> Name<'a> {
    pub(crate) fn new<S: AsRef<OsStr> + ?Sized>(name: &'a S) -> Self {
        Self(name.as_ref())
    }

    pub(crate) fn os_str(&self) -> &'a OsStr {
        self.0
    }
}

impl Serialize for Name<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let bytes = self.0.as_bytes();
        if let Ok(text) = std::str::from_utf8(bytes) {
            return serializer.serialize_str(text);
        }
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry("bytes", &STANDARD.encode(bytes))?;
        map.end()
    }
}

/// Writes one object on a line of its own.
pub(crate) fn write_line(out: &mut dyn Write, object: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, object)?;
    out.write_all(b"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_exact() {
        let text =
            |name: &OsStr| serde_json::to_string(&Name::new(name)).expect("names have a JSON form");
        assert_eq!(text(OsStr::new("a\nb")), r#""a\nb""#);
        assert_eq!(text(OsStr::from_bytes(b"\xff\xfex")), r#"{"bytes":"//54"}"#);
    }
}
