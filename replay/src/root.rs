//! The only way to a tree: a directory descriptor, walked component by component without following anything.
//!
//! What is named below a [`Root`] cannot lie outside it, whoever swaps directories for symbolic links meanwhile: parents
//! are resolved with openat2(2) (`RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV`), the last component is
//! only ever used by calls that do not follow.

use crate::node::Node;
use crate::sys;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// A tree.
#[derive(Debug)]
pub struct Root {
    fd: OwnedFd,
    path: PathBuf,
    node: Node,
    /// Parents found last.
    recent: Option<Rc<RefCell<Recent>>>,
}

/// Parents by path, the one looked up last in front.
type Recent = VecDeque<(Vec<u8>, Rc<OwnedFd>)>;

/// How many parents are kept open.
const RECENT: usize = 4;

/// A parent directory and a name in it.
pub(crate) struct Spot<'a> {
    owned: Option<Rc<OwnedFd>>,
    root: &'a OwnedFd,
    pub(crate) leaf: CString,
}

impl Spot<'_> {
    pub(crate) fn dir(&self) -> BorrowedFd<'_> {
        self.owned.as_deref().unwrap_or(self.root).as_fd()
    }
}

/// An inode held by a descriptor, most often an `O_PATH` one: what is done to it cannot hit another one.
pub(crate) struct Pinned {
    pub(crate) fd: OwnedFd,
    pub(crate) node: Node,
}

impl Root {
    /// Opens the directory of this absolute path, which must not contain symbolic links.
    ///
    /// # Errors
    /// When there is none, or a link is on the way (`ELOOP`).
    pub fn open(path: &Path) -> io::Result<Self> {
        let fd = sys::open_root(path.as_os_str())?;
        let node = sys::stat(fd.as_fd(), c"")?;
        Ok(Self {
            fd,
            path: path.to_owned(),
            node,
            recent: None,
        })
    }

    /// A second handle of the same tree. They remember together.
    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        Ok(Self {
            fd: self.fd.try_clone()?,
            path: self.path.clone(),
            node: self.node,
            recent: self.recent.clone(),
        })
    }

    /// The path it was opened by.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the root directory was when it was opened.
    #[must_use]
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// The absolute path of what is named `rel` below it; for messages.
    #[must_use]
    pub fn display(&self, rel: &[u8]) -> PathBuf {
        if rel.is_empty() {
            self.path.clone()
        } else {
            self.path.join(OsStr::from_bytes(rel))
        }
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Walks to a directory. Long paths go in pieces below PATH_MAX.
    fn walk(&self, rel: &[u8], flags: i32) -> io::Result<OwnedFd> {
        let mut rest = rel;
        let mut at: Option<OwnedFd> = None;
        while rest.len() > 3000 {
            let cut = rest[..3000]
                .iter()
                .rposition(|&b| b == b'/')
                .ok_or(io::ErrorKind::InvalidFilename)?;
            let from = at.as_ref().unwrap_or(&self.fd).as_fd();
            at = Some(sys::openat2(
                from,
                &sys::cstring(&rest[..cut])?,
                libc::O_PATH | libc::O_DIRECTORY,
                sys::CONFINED,
            )?);
            rest = &rest[cut + 1..];
        }
        let from = at.as_ref().unwrap_or(&self.fd).as_fd();
        let name = if rest.is_empty() {
            c".".to_owned()
        } else {
            sys::cstring(rest)?
        };
        sys::openat2(from, &name, flags, sys::CONFINED)
    }

    /// The same tree, whose parents are not looked up anew each time: whoever looks one up works in that very directory,
    /// wherever somebody else may move it meanwhile. Whoever moves a directory must [`forget`](Self::forget).
    pub(crate) fn remembering(mut self) -> Self {
        self.recent = Some(Rc::default());
        self
    }

    /// Looks every parent up anew.
    pub(crate) fn forget(&self) {
        if let Some(recent) = &self.recent {
            recent.borrow_mut().clear();
        }
    }

    fn parent(&self, rel: &[u8]) -> io::Result<Rc<OwnedFd>> {
        let open = || {
            self.walk(rel, libc::O_PATH | libc::O_DIRECTORY)
                .map(Rc::new)
        };
        let Some(recent) = &self.recent else {
            return open();
        };
        let mut recent = recent.borrow_mut();
        if let Some((_, fd)) = recent.iter().find(|(path, _)| path == rel) {
            return Ok(Rc::clone(fd));
        }
        let fd = open()?;
        recent.truncate(RECENT - 1);
        recent.push_front((rel.to_vec(), Rc::clone(&fd)));
        Ok(fd)
    }

    /// The parent directory of `rel` and its name there.
    pub(crate) fn spot(&self, rel: &[u8]) -> io::Result<Spot<'_>> {
        match rel.iter().rposition(|&b| b == b'/') {
            None => {
                let leaf = if rel.is_empty() {
                    c".".to_owned()
                } else {
                    sys::cstring(rel)?
                };
                Ok(Spot {
                    owned: None,
                    root: &self.fd,
                    leaf,
                })
            }
            Some(cut) => {
                let owned = self.parent(&rel[..cut])?;
                Ok(Spot {
                    owned: Some(owned),
                    root: &self.fd,
                    leaf: sys::cstring(&rel[cut + 1..])?,
                })
            }
        }
    }

    /// Opens a directory for reading its entries and walking on.
    pub(crate) fn open_dir(&self, rel: &[u8]) -> io::Result<OwnedFd> {
        self.walk(rel, libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NONBLOCK)
    }

    /// Opens a directory without the right to read it.
    pub(crate) fn open_dir_path(&self, rel: &[u8]) -> io::Result<OwnedFd> {
        self.walk(rel, libc::O_PATH | libc::O_DIRECTORY)
    }

    /// Opens a regular file with these flags; what is no regular file is refused without being waited for.
    pub(crate) fn open_file(&self, rel: &[u8], flags: i32) -> io::Result<OwnedFd> {
        let spot = self.spot(rel)?;
        open_regular(spot.dir(), &spot.leaf, flags)
    }

    /// What stands at `rel`; `None` when nothing does.
    ///
    /// # Errors
    /// When a parent is missing (`ENOENT` is then an error too), a link (`ELOOP`), a mount (`EXDEV`), no directory.
    pub fn stat(&self, rel: &[u8]) -> io::Result<Option<Node>> {
        let spot = self.spot(rel)?;
        absent_is_none(sys::stat(spot.dir(), &spot.leaf))
    }

    /// What stands at `rel`; `None` also when a parent is missing.
    pub(crate) fn find(&self, rel: &[u8]) -> io::Result<Option<Node>> {
        absent_is_none(self.stat(rel)).map(Option::flatten)
    }

    /// Holds the inode that stands at `rel`.
    pub(crate) fn pin(&self, rel: &[u8]) -> io::Result<Pinned> {
        if rel.is_empty() {
            // The root is held already; looking it up again takes a right to pass it.
            let fd = self.fd.try_clone()?;
            let node = sys::stat(fd.as_fd(), c"")?;
            return Ok(Pinned { fd, node });
        }
        let spot = self.spot(rel)?;
        pin(spot.dir(), &spot.leaf)
    }
}

/// Holds the inode of this name.
pub(crate) fn pin(dir: BorrowedFd<'_>, leaf: &CStr) -> io::Result<Pinned> {
    let fd = sys::openat(dir, leaf, libc::O_PATH | libc::O_NOFOLLOW, 0)?;
    let node = sys::stat(fd.as_fd(), c"")?;
    Ok(Pinned { fd, node })
}

/// Opens the regular file of this name.
pub(crate) fn open_regular(dir: BorrowedFd<'_>, leaf: &CStr, flags: i32) -> io::Result<OwnedFd> {
    Ok(open_pinned(dir, leaf, flags)?.fd)
}

/// The same, with what it is.
pub(crate) fn open_pinned(dir: BorrowedFd<'_>, leaf: &CStr, flags: i32) -> io::Result<Pinned> {
    let open = |more| {
        let flags = flags | libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
        sys::openat(dir, leaf, flags | more, 0)
    };
    // To be read for a copy is no access that its owner should see, and noting one costs a write. Only the owner may ask for that.
    let fd = match open(libc::O_NOATIME) {
        Err(e) if e.raw_os_error() == Some(libc::EPERM) => open(0)?,
        other => other?,
    };
    let node = sys::stat(fd.as_fd(), c"")?;
    if node.is_file() {
        Ok(Pinned { fd, node })
    } else {
        Err(io::Error::from_raw_os_error(libc::EINVAL))
    }
}

/// Turns "nothing there" into `None`.
pub(crate) fn absent_is_none<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT)) => Ok(None),
        Err(e) => Err(e),
    }
}
