//! The JSON forms that docs/JSON.md promises.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// A name: a string when it is UTF-8, else `{"bytes":"<base64>"}`.
pub(crate) fn name<S: AsRef<OsStr> + ?Sized>(name: &S) -> Value {
    let bytes = name.as_ref().as_bytes();
    match std::str::from_utf8(bytes) {
        Ok(text) => Value::from(text),
        Err(_) => json!({ "bytes": STANDARD.encode(bytes) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_exact() {
        assert_eq!(name("a\nb").to_string(), r#""a\nb""#);
        assert_eq!(
            name(OsStr::from_bytes(b"\xff\xfex")).to_string(),
            r#"{"bytes":"//54"}"#
        );
    }
}
