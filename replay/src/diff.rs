//! Net effects as a unified diff.

use crate::net::NetEffect;
use effigy_journal::Session;
use std::io::{self, Write};

/// How to write a diff.
#[derive(Clone, Copy, Debug)]
pub struct DiffOptions {
    /// Unchanged lines around a change.
    pub context: usize,
    /// With ANSI colours.
    pub colour: bool,
    /// Escape control characters in names and contents, for a terminal.
    pub escape: bool,
    /// Files larger than this many bytes are shown by size and type only.
    pub max_size: u64,
}

impl Default for DiffOptions {
    fn default() -> Self {
        Self {
            context: 3,
            colour: false,
            escape: false,
            max_size: 16 << 20,
        }
    }
}

/// Writes the difference that one effect makes. Binary and special files by size and type.
///
/// # Errors
/// When `out` fails. What cannot be read of the session is said in the output.
pub fn write(
    session: &Session,
    effect: &NetEffect,
    options: &DiffOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    let _ = (session, effect, options, out);
    todo!()
}
