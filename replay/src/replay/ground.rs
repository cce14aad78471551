//! The tree that is replayed onto: where paths lie in it, what stands there, and what may be done there.

use super::source::attributes;
use crate::conflict::Reason;
use crate::known::Known;
use crate::meta::Meta;
use crate::net::NetError;
use crate::node::Node;
use crate::options::Options;
use crate::root::{Pinned, Root};
use crate::step::Loc;
use crate::sys;
use effigy_journal::{Session, Stat};
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Files with these flags cannot be changed, nor entries of such directories.
const FIXED: u64 = 0x10 | 0x20;

/// A directory that steps work in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dir {
    pub(super) node: Node,
    /// Renames between it and the session work.
    pub(super) movable: bool,
    /// Why nothing can be made or removed in it.
    pub(super) refusal: Option<i32>,
}

/// The tree.
pub(super) struct Ground {
    pub(super) store: Root,
    targets: Vec<(Vec<u8>, Option<Root>)>,
    /// The targets by length of their paths, the longest first.
    order: Vec<usize>,
    /// Another tree than the one that was recorded (`--root`), and where.
    pub(super) elsewhere: Option<PathBuf>,
    copy: bool,
    pub(super) known: Known,
    dirs: HashMap<Vec<u8>, Option<Dir>>,
    thawed: RefCell<Vec<Thawed>>,
}

/// A directory of a layer that its owner, who we are, has locked: it is open while the plan is made.
pub(super) struct Thawed {
    pub(super) rel: Vec<u8>,
    /// As it was.
    pub(super) pinned: Pinned,
}

impl Drop for Thawed {
    fn drop(&mut self) {
        // Nothing can be done about a failure here; the mode is set again from the plan when it is applied.
        let _ = sys::chmod(self.pinned.fd.as_fd(), self.pinned.node.mode);
    }
}

impl Ground {
    pub(super) fn new(
        session: &Session,
        elsewhere: Option<&Path>,
        options: &Options,
    ) -> Result<Self, NetError> {
        let store = Root::open(session.dir()).map_err(NetError::io(session.dir()))?;
        // Nothing in it moves while a plan is made.
        let store = store.remembering();
        let mut targets = Vec::new();
        match elsewhere {
            Some(dir) => {
                let root = Root::open(dir).map_err(NetError::io(dir))?;
                targets.push((Vec::new(), Some(root)));
            }
            None => {
                for cover in &session.record.covers {
                    let point = cover.mount_point.as_os_str().as_bytes();
                    let point = if point == b"/" { b"" } else { point };
                    targets.push((point.to_vec(), Root::open(&cover.mount_point).ok()));
                }
            }
        }
        let mut order: Vec<usize> = (0..targets.len()).collect();
        order.sort_by_key(|index| std::cmp::Reverse(targets[*index].0.len()));
        Ok(Self {
            store,
            targets,
            order,
            elsewhere: elsewhere.map(Path::to_owned),
            copy: options.copy || options.keep,
            known: Known::of(session)?,
            dirs: HashMap::new(),
            thawed: RefCell::default(),
        })
    }

    /// The absolute paths of the roots, for the plan.
    pub(super) fn roots(&self, session: &Session) -> Vec<PathBuf> {
        match &self.elsewhere {
            Some(dir) => vec![dir.clone()],
            None => session
                .record
                .covers
                .iter()
                .map(|cover| cover.mount_point.clone())
                .collect(),
        }
    }

    /// The path as a user sees it.
    pub(super) fn shown(&self, path: &[u8]) -> PathBuf {
        let path = if path.is_empty() { b"/" } else { path };
        match &self.elsewhere {
            Some(dir) => dir.join(OsStr::from_bytes(path.strip_prefix(b"/").unwrap_or(path))),
            None => PathBuf::from(OsStr::from_bytes(path)),
        }
    }

    /// Where a path lies.
    pub(super) fn loc(&self, path: &[u8]) -> Option<Loc> {
        // Not a path of a tree: what waits in the session.
        if let Some(rel) = path.strip_prefix(b"\0") {
            return Some(Loc::Session(rel.to_vec()));
        }
        for &index in &self.order {
            let (point, _) = &self.targets[index];
            if let Some(rest) = path.strip_prefix(point.as_slice()) {
                let number = u32::try_from(index).ok()?;
                match rest.split_first() {
                    None => return Some(Loc::Target(number, Vec::new())),
                    Some((b'/', rest)) => return Some(Loc::Target(number, rest.to_vec())),
                    Some(_) => {}
                }
            }
        }
        None
    }

    pub(super) fn root_of<'l>(&self, loc: &'l Loc) -> Option<(&Root, &'l [u8])> {
        match loc {
            Loc::Session(rel) => Some((&self.store, rel)),
            Loc::Target(n, rel) => Some((self.targets.get(*n as usize)?.1.as_ref()?, rel)),
        }
    }

    /// What the session holds at a place below its directory, also where a directory of a layer is locked.
    pub(super) fn find_in_session(&self, rel: &[u8]) -> Option<Node> {
        let found = match self.store.find(rel) {
            Err(e) if e.raw_os_error() == Some(libc::EACCES) => {
                self.thaw(rel).and_then(|()| self.store.find(rel))
            }
            other => other,
        };
        let mut node = found.ok().flatten()?;
        let thawed = self.thawed.borrow();
        let locked = thawed
            .iter()
            .map(|thawed| thawed.pinned.node)
            .find(|locked| (locked.dev, locked.ino) == (node.dev, node.ino));
        node.mode = locked.map_or(node.mode, |locked| locked.mode);
        Some(node)
    }

    /// Opens the locked directories above a place.
    fn thaw(&self, rel: &[u8]) -> io::Result<()> {
        let user = sys::euid();
        let ends = rel.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        // The session's own directories are open to it: layers/<n>/upper.
        for (end, _) in ends.skip(2) {
            let dir = &rel[..end];
            let pinned = self.store.pin(dir)?;
            let locked = pinned.node.mode & 0o300 != 0o300;
            if pinned.node.is_dir() && locked && pinned.node.uid == user && user != 0 {
                sys::chmod(pinned.fd.as_fd(), pinned.node.mode | 0o700)?;
                let rel = dir.to_vec();
                self.thawed.borrow_mut().push(Thawed { rel, pinned });
            }
        }
        Ok(())
    }

    /// The directories of layers that are locked, the outer first, with their attributes.
    pub(super) fn locked(&self) -> Vec<(Loc, Node, Meta)> {
        let thawed = self.thawed.borrow();
        let one = |thawed: &Thawed| {
            let node = thawed.pinned.node;
            let found = attributes(&self.store, &thawed.rel, &node);
            (
                Loc::Session(thawed.rel.clone()),
                node,
                Meta::of(&node, found),
            )
        };
        thawed.iter().map(one).collect()
    }

    /// What stands at a path, or why that cannot be told.
    pub(super) fn find(&self, path: &[u8]) -> Result<Option<Node>, Reason> {
        let parent = || {
            let shown = self.shown(path);
            shown.parent().unwrap_or(&shown).to_owned()
        };
        let gone = || Reason::ParentGone { parent: parent() };
        let loc = self.loc(path).ok_or_else(gone)?;
        let (root, rel) = self.root_of(&loc).ok_or_else(gone)?;
        root.find(rel).map_err(|e| match e.raw_os_error() {
            Some(libc::ELOOP | libc::ENOTDIR) => Reason::ParentReplaced { parent: parent() },
            Some(libc::EXDEV) => Reason::MountInTheWay,
            errno => Reason::Unreadable {
                errno: errno.unwrap_or(libc::EIO),
            },
        })
    }

    /// Whether somebody else has changed what stands at a path since the session met it.
    pub(super) fn is_foreign(&self, path: &[u8], node: &Node, before: Option<&Stat>) -> bool {
        if self.elsewhere.is_some() {
            return false;
        }
        let shown = Path::new(OsStr::from_bytes(path));
        if !self.known.is_foreign(shown, node) {
            return false;
        }
        // Later than the start of the command, but before it met the file; or a directory of which only entries changed.
        !before.is_some_and(|stat| self.known.looks_as_seen(stat, node))
    }

    /// Whether the session itself has put there what stands at a path.
    pub(super) fn is_own(&self, path: &[u8], node: &Node) -> bool {
        self.known.is_own(&self.shown(path), node)
    }

    /// The directory of this path; `None` when there is none.
    pub(super) fn dir(&mut self, path: &[u8]) -> Result<Option<Dir>, NetError> {
        if let Some(found) = self.dirs.get(path) {
            return Ok(*found);
        }
        let found = match self.find(path) {
            Ok(Some(node)) if node.is_dir() => self
                .look(path, node)
                .map_err(NetError::io(self.shown(path)))?,
            _ => None,
        };
        self.dirs.insert(path.to_vec(), found);
        Ok(found)
    }

    fn look(&self, path: &[u8], node: Node) -> io::Result<Option<Dir>> {
        let Some(loc) = self.loc(path) else {
            return Ok(None);
        };
        let Some((root, rel)) = self.root_of(&loc) else {
            return Ok(None);
        };
        let store = self.store.node();
        let movable = !self.copy && (node.dev, node.mount) == (store.dev, store.mount);
        let dir = root.open_dir_path(rel)?;
        let refusal = match sys::access(dir.as_fd(), libc::W_OK | libc::X_OK) {
            _ if node.attributes & FIXED != 0 => Some(libc::EPERM),
            Ok(()) => None,
            Err(e) => Some(e.raw_os_error().unwrap_or(libc::EACCES)),
        };
        Ok(Some(Dir {
            node,
            movable,
            refusal,
        }))
    }

    /// The nearest directory above a path that stands.
    pub(super) fn nearest(&mut self, path: &[u8]) -> Result<Option<(Vec<u8>, Dir)>, NetError> {
        let mut at = parent(path);
        loop {
            if let Some(dir) = self.dir(at)? {
                return Ok(Some((at.to_vec(), dir)));
            }
            if at.is_empty() {
                return Ok(None);
            }
            at = parent(at);
        }
    }

    /// Why what stands at a path cannot be replaced or removed, its parent aside.
    pub(super) fn is_held(&self, old: &Node, dir: &Dir) -> Option<i32> {
        let user = sys::euid();
        if old.attributes & FIXED != 0 {
            return Some(libc::EPERM);
        }
        let sticky = dir.node.mode & 0o1000 != 0 && user != 0 && dir.node.uid != user;
        (sticky && old.uid != user).then_some(libc::EPERM)
    }

    /// Why attributes or content of what stands at a path cannot be changed.
    pub(super) fn is_owned(&self, node: &Node) -> Option<i32> {
        let user = sys::euid();
        (node.attributes & FIXED != 0 || user != 0 && node.uid != user).then_some(libc::EPERM)
    }
}

/// The path of the directory above; of `/a` the empty path, which is the root.
pub(super) fn parent(path: &[u8]) -> &[u8] {
    path.iter()
        .rposition(|&b| b == b'/')
        .map_or(b"", |cut| &path[..cut])
}

/// The path of an entry.
pub(super) fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    [dir, b"/", name].concat()
}
