//! What of an archive could not be made for want of rights, kept as data beside the session: owners and device nodes.

use crate::bytes::ByteString;
use crate::session::Session;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::io::{self, BufRead as _, Write as _};
use std::path::Path;

/// The most that is read of such a file.
const MAX: u64 = 256 << 20;

/// Its name in the session's directory.
const NAME: &str = "kept";

/// What an entry was in the archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Kept {
    /// Its name in the archive.
    pub(super) name: ByteString,
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// A device node, which is not there at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) device: Option<Device>,
}

/// A device node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Device {
    pub(super) block: bool,
    pub(super) major: u32,
    pub(super) minor: u32,
    pub(super) mtime: i64,
}

/// Writes what was kept, one a line.
pub(super) fn write(session: &Path, kept: &[Kept]) -> io::Result<()> {
    if kept.is_empty() {
        return Ok(());
    }
    let mut out = io::BufWriter::new(std::fs::File::create_new(session.join(NAME))?);
    for entry in kept {
        serde_json::to_writer(&mut out, entry)?;
        out.write_all(b"\n")?;
    }
    out.flush()
}

/// Reads it, by name in the archive.
pub(super) fn read(session: &Path) -> io::Result<HashMap<Vec<u8>, Kept>> {
    let text = match crate::sys::read_regular(&session.join(NAME), MAX) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(HashMap::new()),
        other => other?.ok_or(io::ErrorKind::InvalidData)?,
    };
    let mut found = HashMap::new();
    for line in text.as_slice().lines() {
        let kept: Kept = serde_json::from_str(&line?)?;
        found.insert(kept.name.as_bytes().to_vec(), kept);
    }
    Ok(found)
}

/// Who owned what of an imported session, as far as the user who imported it could not make it so.
#[derive(Debug, Default)]
pub struct Owners(HashMap<Vec<u8>, Kept>);

impl Owners {
    /// Of this session: nothing, unless it was imported.
    ///
    /// # Errors
    /// When what was kept cannot be read.
    pub fn of(session: &Session) -> io::Result<Self> {
        if !session.record.imported {
            return Ok(Self::default());
        }
        read(session.dir()).map(Self)
    }

    /// Permission bits, owner and group of an entry of a layer, when it has others here.
    #[must_use]
    pub fn find(&self, layer: u32, rel: &[u8]) -> Option<(u32, u32, u32)> {
        if self.0.is_empty() {
            return None;
        }
        let name = [format!("layers/{layer}/upper/").as_bytes(), rel].concat();
        self.0
            .get(&name)
            .map(|kept| (kept.mode, kept.uid, kept.gid))
    }
}
