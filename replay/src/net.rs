//! The net effects of a session: what its layers would change in the real tree.

use crate::commit::path_of;
use crate::conflict::Reason;
use crate::node::Node;
use crate::recollect::Recollection;
use crate::scan::{self, Item, Scanned, What};
use crate::selection::Selection;
use crate::stack;
use crate::step::Loc;
use effigy_journal::{Session, SessionId};
use std::collections::HashSet;
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
    /// It was put in place, and somebody has changed it there since.
    pub changed_since: bool,
    pub(crate) before_at: Option<Loc>,
    /// The directory of an earlier session that `before_at` is relative to, when that is where it lies.
    pub(crate) before_in: Option<PathBuf>,
    pub(crate) after_at: Option<Loc>,
}

impl NetEffect {
    /// The path it had before; only of what was renamed.
    #[must_use]
    pub fn former_path(&self) -> Option<&Path> {
        match &self.change {
            Change::Renamed { from } => Some(from),
            _ => None,
        }
    }
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
    /// A session that this one rests on is not there.
    #[error("find session {lower}, on which session {session} rests: it is not in the store")]
    NoLower {
        /// The upper session.
        session: String,
        /// The one it rests on.
        lower: SessionId,
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
/// For a session that rests on others they are the difference to what those have left.
///
/// What is not selected is left out; the patterns that matched are noted in the selection.
///
/// # Errors
/// When a layer or a real directory cannot be read.
pub fn net_effects(session: &Session, selection: &Selection) -> Result<Vec<NetEffect>, NetError> {
    let mut lower = stack::outstanding(session)?;
    lower.reverse();
    let scanned = scan::scan_over(session, &lower, &Recollection::of(session), false)?;
    let sources: HashSet<usize> = scanned
        .items
        .iter()
        .filter_map(|item| renamed(&scanned.items, item))
        .collect();
    let mut effects = Vec::with_capacity(scanned.items.len());
    for (index, item) in scanned.items.iter().enumerate() {
        if sources.contains(&index) {
            continue;
        }
        let source =
            renamed(&scanned.items, item).map(|source| path_of(session, &scanned.items[source]));
        let Some(change) = change(item, source) else {
            continue;
        };
        let path = path_of(session, item);
        // The former name of a file chooses it too.
        let chosen = match &change {
            Change::Renamed { from } => selection.contains(&path) | selection.contains(from),
            _ => selection.contains(&path),
        };
        if chosen {
            effects.push(effect(session, &scanned, item, path, change));
        }
    }
    effects.sort_unstable_by(|a, b| a.path.as_os_str().cmp(b.path.as_os_str()));
    Ok(effects)
}

/// The item that this one was, when only its name has changed.
fn renamed(items: &[Item], item: &Item) -> Option<usize> {
    let source = item.renamed_from?;
    let (upper, real) = (item.upper?, items.get(source)?.real?);
    upper.looks_like(&real).then_some(source)
}

fn change(item: &Item, renamed_from: Option<PathBuf>) -> Option<Change> {
    Some(match &item.what {
        What::Added | What::Missing => {
            renamed_from.map_or(Change::Added, |from| Change::Renamed { from })
        }
        What::Deleted => Change::Deleted,
        What::Content => Change::Content,
        What::Metadata => Change::Metadata,
        What::TypeChanged => Change::TypeChanged,
        // A directory that lost its place is no effect; what lies below is.
        What::Blocked(Reason::ParentGone { .. } | Reason::ParentReplaced { .. })
        | What::Linked
        | What::Merged => return None,
        What::Blocked(_) if item.upper.is_none() => Change::Deleted,
        What::Blocked(_) => Change::Content,
    })
}

fn effect(
    session: &Session,
    scanned: &Scanned,
    item: &Item,
    path: PathBuf,
    change: Change,
) -> NetEffect {
    let items = &scanned.items;
    let former = item
        .renamed_from
        .filter(|_| matches!(change, Change::Renamed { .. }));
    let before_item = former.and_then(|source| items.get(source)).unwrap_or(item);
    let layer = session
        .record
        .covers
        .get(item.cover as usize)
        .map_or(0, |cover| cover.layer);
    let upper = || Loc::Session([format!("layers/{layer}/upper/").as_bytes(), &item.rel].concat());
    NetEffect {
        path,
        change,
        before: before_item.real,
        after: item.upper,
        applied: None,
        changed_since: false,
        before_at: before_item
            .real
            .map(|_| Loc::Target(before_item.cover, before_item.rel.clone())),
        before_in: scanned
            .beneath
            .get(before_item.cover as usize)
            .and_then(|beneath| beneath.as_ref()?.layer_path(before_item.layer))
            .map(Path::to_owned),
        after_at: item.upper.map(|_| upper()),
    }
}
