//! A file's content at the end of the session.

use crate::node::Node;
use effigy_journal::Session;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// Where the content was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// In the session's layer.
    Layer,
    /// In the real tree: the session did not touch it.
    Untouched,
    /// In the real tree, where an apply moved it; unchanged since.
    Applied,
    /// In the real tree, where an apply moved it; it was changed since, so this is not what the session left.
    AppliedAndChanged,
}

/// A file as the session left it.
#[derive(Debug)]
pub struct Content {
    /// The file, open for reading.
    pub file: File,
    /// What it is.
    pub node: Node,
    /// Where it was found.
    pub found: Found,
}

/// Why there is no content.
#[derive(Debug, thiserror::Error)]
pub enum ContentError {
    /// The session deleted it, or it never was.
    #[error("show {}: it does not exist at the end of the session", .path.display())]
    Absent {
        /// The path.
        path: PathBuf,
    },
    /// It is no regular file.
    #[error("show {}: it is a {kind}", .path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
        /// What it is.
        kind: crate::node::FileType,
    },
    /// The system refused.
    #[error("read {}: {source}", .path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
}

/// Opens `path` (absolute) as it was at the end of the session.
///
/// # Errors
/// When there is no such file.
pub fn at_end(session: &Session, path: &Path) -> Result<Content, ContentError> {
    let _ = (session, path);
    todo!()
}
