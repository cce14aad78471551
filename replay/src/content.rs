//! A file's content at the end of the session.

use crate::known::absolute;
use crate::layer;
use crate::ledger::{Ledger, Stage};
use crate::net::NetError;
use crate::node::Node;
use crate::root::{Root, absent_is_none};
use crate::stack;
use crate::sys;
use effigy_journal::{Cover, Session, Timestamp};
use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Where the content was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// In the session's layer.
    Layer,
    /// In the layer of a session that it rests on.
    Lower,
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
    /// The ledger of an apply cannot be read.
    #[error(transparent)]
    Ledger(#[from] NetError),
}

/// What a layer says of a path.
enum Says {
    /// It is in the layer.
    Here,
    /// It does not exist in the view.
    Gone,
    /// The real tree shows through.
    Nothing,
}

/// Opens `path` (absolute, without symbolic links) as it was at the end of the session.
///
/// # Errors
/// When there is no such file.
pub fn at_end(session: &Session, path: &Path) -> Result<Content, ContentError> {
    look(session, path, true)
}

/// Opens `path` (absolute, without symbolic links) as it is without the session: as the sessions that it rests on have left it.
///
/// # Errors
/// When there is no such file.
pub fn without(session: &Session, path: &Path) -> Result<Content, ContentError> {
    look(session, path, false)
}

/// `own`: the session's own layer counts.
fn look(session: &Session, path: &Path, own: bool) -> Result<Content, ContentError> {
    let io = |source| ContentError::Io {
        path: path.to_owned(),
        source,
    };
    let absent = || ContentError::Absent {
        path: path.to_owned(),
    };
    let Some(cover) = session.record.cover_of(path) else {
        return Err(absent());
    };
    let lower = stack::outstanding(session)?;
    let below = lower.iter().rev().filter_map(|lower| {
        let cover = lower.record.cover_of(path)?;
        Some((lower, cover, Found::Lower))
    });
    let mut place = None;
    let own = own.then_some((session, cover, Found::Layer));
    for (session, cover, found) in own.into_iter().chain(below) {
        match ask_layer(session, cover, below_cover(cover, path)).map_err(io)? {
            Says::Here => {
                place = Some((session.upper(cover.layer), cover, found));
                break;
            }
            Says::Gone => return Err(absent()),
            Says::Nothing => {}
        }
    }
    let (root, cover, found) =
        place.unwrap_or_else(|| (cover.mount_point.clone(), cover, Found::Untouched));
    let root = Root::open(&root).map_err(io)?;
    let rel = below_cover(cover, path);
    let node = match root.find(rel) {
        Ok(Some(node)) => node,
        Ok(None) => return Err(absent()),
        Err(e) => return Err(io(e)),
    };
    if !node.is_file() {
        return Err(ContentError::NotAFile {
            path: path.to_owned(),
            kind: node.kind,
        });
    }
    let file = File::from(root.open_file(rel, libc::O_RDONLY).map_err(io)?);
    let found = if found == Found::Untouched {
        in_place(session, path, &node)?
    } else {
        found
    };
    Ok(Content { file, node, found })
}

/// A path relative to the cover that holds it.
fn below_cover<'p>(cover: &Cover, path: &'p Path) -> &'p [u8] {
    let rest = path.strip_prefix(&cover.mount_point);
    rest.unwrap_or(Path::new("")).as_os_str().as_bytes()
}

/// Walks down the layer: the first whiteout, or the end of an opaque directory, decides.
fn ask_layer(session: &Session, cover: &Cover, rel: &[u8]) -> io::Result<Says> {
    let upper = match absent_is_none(Root::open(&session.upper(cover.layer)))? {
        Some(root) => root,
        None => return Ok(Says::Nothing),
    };
    let mut opaque = false;
    let mut dir = upper.open_dir(b"")?;
    let mut names = rel.split(|&b| b == b'/').peekable();
    while let Some(name) = names.next() {
        let marks = layer::marks(dir.as_fd(), None)?;
        opaque |= marks.opaque;
        let leaf = sys::cstring(name)?;
        let Some(node) = absent_is_none(sys::stat(dir.as_fd(), &leaf))? else {
            return Ok(if opaque { Says::Gone } else { Says::Nothing });
        };
        if layer::is_whiteout(dir.as_fd(), &leaf, &node, &marks)? {
            return Ok(Says::Gone);
        }
        if names.peek().is_none() {
            return Ok(Says::Here);
        }
        if !node.is_dir() {
            return Ok(Says::Gone);
        }
        dir = sys::openat(
            dir.as_fd(),
            &leaf,
            libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW,
            0,
        )?;
    }
    Ok(Says::Nothing)
}

/// Whether an apply has put a real file there, and whether it was changed since.
fn in_place(session: &Session, path: &Path, node: &Node) -> Result<Found, NetError> {
    let mut found = Found::Untouched;
    for ledger in Ledger::all(session).map_err(NetError::io(session.dir()))? {
        let Stage::Applied(done) = ledger.stage()? else {
            continue;
        };
        let Some(plan) = ledger.plan()? else { continue };
        let targets = plan
            .steps
            .iter()
            .filter_map(|step| absolute(&plan, step.target()?));
        if targets.into_iter().any(|target| path.starts_with(target)) {
            let changed = Timestamp::from(node.ctime) > done;
            found = if changed {
                Found::AppliedAndChanged
            } else {
                Found::Applied
            };
        }
    }
    Ok(found)
}
