//! The net effects of a session: what its layers would change in the real tree.

use crate::node::Node;
use crate::selection::Selection;
use crate::step::Loc;
use effigy_journal::Session;
use std::path::{Path, PathBuf};

/// What became of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is new.
    Added,
    /// Its content, target or device changed (and perhaps its attributes).
    Content,
    /// Only attributes changed: mode, owner, group, modification time, extended attributes, hard-link structure.
    Metadata,
    /// It is gone.
    Deleted,
    /// It is of another type.
    TypeChanged,
    /// It is a file that had another name.
    Renamed {
        /// The former name, absolute.
        from: PathBuf,
    },
}

impl Change {
    /// The code of a summary line.
    #[must_use]
    pub fn code(&self) -> char {
        match self {
            Self::Added => 'A',
            Self::Content => 'M',
            Self::Metadata => 'm',
            Self::Deleted => 'D',
            Self::TypeChanged => 'T',
            Self::Renamed { .. } => 'R',
        }
    }
}

/// One changed path.
#[derive(Clone, Debug)]
pub struct NetEffect {
    /// The path, absolute, byte for byte.
    pub path: PathBuf,
    /// What became of it.
    pub change: Change,
    /// What stands (before a commit) or stood (after it) there without the session.
    pub before: Option<Node>,
    /// What the session made of it.
    pub after: Option<Node>,
    /// The apply that put it in place; `None` while it is only in the layer.
    pub applied: Option<u32>,
    pub(crate) before_at: Option<Loc>,
    pub(crate) after_at: Option<Loc>,
}

/// Why the net effects could not be read.
#[derive(Debug, thiserror::Error)]
pub enum NetError {
    /// The system refused.
    #[error("read {}: {source}", .path.display())]
    Io {
        /// On what.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// The ledger of an apply is damaged.
    #[error("read {}: {reason}", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
}

impl NetError {
    pub(crate) fn io(path: impl AsRef<Path>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.as_ref().to_owned();
        move |source| Self::Io { path, source }
    }
}

/// The net effects that are still in the layers, sorted by path (bytewise).
///
/// What is not selected is left out; the patterns that matched are noted in the selection.
///
/// # Errors
/// When a layer or a real directory cannot be read.
pub fn net_effects(session: &Session, selection: &Selection) -> Result<Vec<NetEffect>, NetError> {
    let _ = (session, selection);
    todo!()
}
