//! A session as one file: a gzip-compressed tar archive that any tar lists and unpacks.
//!
//! ```text
//! effigy.json          {"format":1,"effigy":"0.1.0"}
//! session.json         the record
//! journal              as in the session's directory
//! versions/<n>         kept contents
//! layers/<n>/upper/…   the net content
//! ```
//! Extended attributes are pax records (`SCHILY.xattr.*`), files with holes have GNU's form 1.0, a whiteout is what it is on
//! disk, a character device 0:0. Before-images of applies are not in it: they belong to one machine.
//!
//! An archive may come from anybody. Nothing in it names a place outside the new session's directory, no symbolic link in it
//! is followed, and the session appears whole or not at all: it is unpacked under another name and renamed at the end.

use crate::session::{Record, State};
use std::io;
use std::path::PathBuf;

mod kept;
mod pax;
mod place;
mod read;
mod rewrite;
mod sparse;
mod sys;
mod write;

pub use kept::Owners;
pub use read::{ImportError, Imported};
pub use write::{ExportError, Exported, export};

/// The format of archives that this effigy writes and the newest that it reads.
///
/// Changelog: 1, the first.
pub const FORMAT: u32 = 1;

/// The largest pax header: room for a path, a link and all attributes a file can have.
const MAX_PAX: u64 = 2 << 20;

/// How names of directories begin in which a session is unpacked.
pub(crate) const UNPACKING: &str = "unpacking.";

/// What the head of an archive says.
#[derive(serde::Serialize, serde::Deserialize)]
struct Head {
    format: u32,
    #[serde(default)]
    effigy: String,
}

/// Makes an I/O error keep its path.
fn at(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> (PathBuf, io::Error) {
    let path = path.into();
    move |source| (path, source)
}

/// Makes a record say what travels: not what was applied of the session, and how much room it took.
fn without_applies(record: &mut Record) {
    record.state = match record.state {
        State::Recording => State::Recording,
        _ => State::Recorded,
    };
    (record.applies, record.asked, record.bytes) = (0, Vec::new(), None);
}
