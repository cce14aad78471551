//! What can go wrong with a store, one enum per operation.

use crate::session::{LockError, RecordError, SessionId};
use std::io;
use std::path::PathBuf;

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The system refused.
    #[error("open the store {}: {source}", .path.display())]
    Io {
        /// The directory.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// It belongs to somebody else, who could change what is in it.
    #[error("open the store {}: it belongs to user {owner}", .path.display())]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// Its owner.
        owner: u32,
    },
}

/// Why a session could not be made.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// Another session has the name.
    #[error("make session {name}: the name is taken by session {id}")]
    NameTaken {
        /// The name.
        name: String,
        /// Who has it.
        id: SessionId,
    },
    /// It is no name.
    #[error(
        "make session {name:?}: a name is 1 to 64 letters, digits and . _ - + :, does not begin with . or -, and does not look like an id"
    )]
    BadName {
        /// What was given.
        name: String,
    },
    /// The system refused.
    #[error("make a session in {}: {source}", .path.display())]
    Io {
        /// Where.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The record could not be written.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The new session could not be locked.
    #[error(transparent)]
    Lock(#[from] LockError),
}

/// Why no session was found.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    /// There is none at all.
    #[error("find a session: there is none in {}", .store.display())]
    Empty {
        /// The store.
        store: PathBuf,
    },
    /// None is called so.
    #[error("find session {wanted}: there is none of that name or id in {}", .store.display())]
    NotFound {
        /// What was asked for.
        wanted: String,
        /// The store.
        store: PathBuf,
        /// Names and ids that are much like it, the most alike first.
        near: Vec<String>,
    },
    /// Several ids begin so.
    #[error("find session {wanted}: {} sessions have ids that begin so", .candidates.len())]
    Ambiguous {
        /// What was asked for.
        wanted: String,
        /// They: id and name.
        candidates: Vec<(SessionId, Option<String>)>,
    },
    /// It is there but cannot be read.
    #[error(transparent)]
    Damaged(RecordError),
    /// The store cannot be read.
    #[error(transparent)]
    List(#[from] ListError),
}

/// Why the sessions could not be listed.
#[derive(Debug, thiserror::Error)]
#[error("list sessions in {}: {source}", .path.display())]
pub struct ListError {
    /// The directory.
    pub path: PathBuf,
    /// The reason.
    pub source: io::Error,
}

/// Why a session could not be discarded.
#[derive(Debug, thiserror::Error)]
pub enum DiscardError {
    /// Other sessions rest on it.
    #[error("discard session {name}: {} on it", rest(.upper))]
    Needed {
        /// Its name, or its id.
        name: String,
        /// They: name or id.
        upper: Vec<String>,
    },
    /// It is in use.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The system refused to take it out of the list; it is as it was.
    #[error("discard {}: {source}", .path.display())]
    Io {
        /// Its directory.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// It is out of the list, but not all of it could be removed; the next gc tries again.
    #[error("remove all of the discarded session: {} remains: {source}", .path.display())]
    Rest {
        /// What is left.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
}

/// `session a rests`, `sessions a and b rest`.
fn rest(labels: &[String]) -> String {
    match labels {
        [one] => format!("session {one} rests"),
        more => format!("sessions {} rest", more.join(" and ")),
    }
}
