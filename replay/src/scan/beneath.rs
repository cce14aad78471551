//! What a layer lies over: the real directory, or that with the layers of earlier sessions over it.

use crate::layer::{self, Marks};
use crate::node::Node;
use crate::root::{Root, absent_is_none};
use crate::sys::{self, Entry};
use effigy_journal::{Cover, Session};
use std::collections::HashSet;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// The directories that show through a layer.
#[derive(Debug)]
pub(crate) struct Beneath {
    /// Of earlier sessions, the topmost first.
    layers: Vec<Root>,
    real: Option<Root>,
    node: Node,
}

/// A node, and the directory that has it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) node: Node,
    /// The number of the earlier session's directory; `None` for the real one.
    pub(super) layer: Option<usize>,
}

/// One directory as it shows through: in each layer that has it, and in the real tree.
pub(super) struct Dir {
    layers: Vec<Part>,
    real: Option<OwnedFd>,
}

/// A directory in the layer of an earlier session.
struct Part {
    layer: usize,
    dir: OwnedFd,
    marks: Marks,
    /// Its owner may read it.
    listable: bool,
}

impl Part {
    fn open(layer: usize, parent: BorrowedFd<'_>, name: &CStr) -> io::Result<Self> {
        let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
        let (dir, listable) = match sys::openat(parent, name, flags | libc::O_RDONLY, 0) {
            Err(e) if e.raw_os_error() == Some(libc::EACCES) => {
                (sys::openat(parent, name, flags | libc::O_PATH, 0)?, false)
            }
            other => (other?, true),
        };
        let marks = match listable {
            true => layer::marks(dir.as_fd(), None)?,
            false => Marks::default(),
        };
        Ok(Self {
            layer,
            dir,
            marks,
            listable,
        })
    }
}

impl Beneath {
    /// What `cover` lies over; of the sessions it rests on, these count.
    pub(super) fn open(cover: &Cover, lower: &[Session]) -> io::Result<Self> {
        let mut layers = Vec::new();
        for below in &cover.below {
            let Some(session) = lower.iter().find(|s| s.record.id == below.session) else {
                continue;
            };
            // A commit may have taken it away as a whole.
            layers.extend(absent_is_none(Root::open(
                &session.dir().join(&below.path),
            ))?);
        }
        let hidden = cover.hides && !layers.is_empty();
        let real = match Root::open(&cover.mount_point) {
            Err(_) if hidden => None,
            other => Some(other?),
        };
        // The root's attributes were taken from the topmost.
        let node = match (layers.first(), &real) {
            (Some(top), Some(real)) if !hidden => Node {
                mount: real.node().mount,
                ..*top.node()
            },
            (Some(top), _) => *top.node(),
            (None, Some(real)) => *real.node(),
            (None, None) => return Err(io::ErrorKind::NotFound.into()),
        };
        Ok(Self {
            layers,
            real: real.filter(|_| !hidden),
            node,
        })
    }

    /// The real tree alone.
    pub(crate) fn real(&self) -> Option<&Root> {
        self.real.as_ref()
    }

    pub(super) fn node(&self) -> &Node {
        &self.node
    }

    /// The path of a real name; for messages.
    pub(super) fn display(&self, rel: &[u8]) -> PathBuf {
        let root = self.real.as_ref().or(self.layers.first());
        root.map(|root| root.display(rel)).unwrap_or_default()
    }

    /// The directory that has what was seen.
    pub(super) fn root(&self, layer: Option<usize>) -> Option<&Root> {
        match layer {
            Some(number) => self.layers.get(number),
            None => self.real.as_ref(),
        }
    }

    /// Where what was seen lies, when that is not the real tree.
    pub(crate) fn layer_path(&self, layer: Option<usize>) -> Option<&Path> {
        self.layers.get(layer?).map(Root::path)
    }

    /// Whether a real node lies on another mount than the cover's own.
    pub(super) fn is_elsewhere(&self, seen: &Seen) -> bool {
        let mount = self.real.as_ref().map(|real| real.node().mount);
        seen.layer.is_none() && Some(seen.node.mount) != mount
    }

    /// Opens a directory; to `list` it takes the right to read it.
    pub(super) fn dir(&self, rel: &[u8], list: bool) -> io::Result<Dir> {
        let (layers, hidden) = self.walk(rel)?;
        let real = match self.real.as_ref().filter(|_| !hidden) {
            None => None,
            Some(real) if list => Some(real.open_dir(rel)),
            Some(real) => Some(real.open_dir_path(rel)),
        };
        let real = match real.transpose() {
            Err(e)
                if !layers.is_empty()
                    && matches!(
                        e.raw_os_error(),
                        Some(libc::ENOENT | libc::ENOTDIR | libc::ELOOP)
                    ) =>
            {
                None
            }
            other => other?,
        };
        if layers.is_empty() && real.is_none() {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(Dir { layers, real })
    }

    /// The layers that have a directory, and whether they hide what is below them.
    fn walk(&self, rel: &[u8]) -> io::Result<(Vec<Part>, bool)> {
        let mut at = Vec::new();
        for (number, root) in self.layers.iter().enumerate() {
            at.push(Part::open(number, root.fd(), c".")?);
        }
        let mut hidden = false;
        for name in rel.split(|b| *b == b'/').filter(|name| !name.is_empty()) {
            let name = sys::cstring(name)?;
            let mut next = Vec::new();
            for part in &at {
                let Some(node) = absent_is_none(sys::stat(part.dir.as_fd(), &name))? else {
                    continue;
                };
                if !node.is_dir() {
                    hidden = true;
                    break;
                }
                next.push(Part::open(part.layer, part.dir.as_fd(), &name)?);
                if next.last().is_some_and(|part| part.marks.opaque) {
                    hidden = true;
                    break;
                }
            }
            at = next;
        }
        Ok((at, hidden))
    }
}

impl Dir {
    /// What shows under a name, and the directory it is in.
    pub(super) fn stat(&self, name: &CStr) -> io::Result<Option<(Seen, BorrowedFd<'_>)>> {
        for part in &self.layers {
            let dir = part.dir.as_fd();
            let Some(node) = absent_is_none(sys::stat(dir, name))? else {
                continue;
            };
            if layer::is_whiteout(dir, name, &node, &part.marks)? {
                return Ok(None);
            }
            let layer = Some(part.layer);
            return Ok(Some((Seen { node, layer }, dir)));
        }
        let Some(real) = &self.real else {
            return Ok(None);
        };
        let node = absent_is_none(sys::stat(real.as_fd(), name))?;
        Ok(node.map(|node| (Seen { node, layer: None }, real.as_fd())))
    }

    /// All names, sorted; some may be whiteouts.
    pub(super) fn names(&self) -> io::Result<Vec<CString>> {
        if !self.layers.iter().all(|part| part.listable) {
            return Err(io::Error::from_raw_os_error(libc::EACCES));
        }
        let layers = self.layers.iter().map(|part| &part.dir);
        let dirs = layers.chain(&self.real);
        let mut names = HashSet::new();
        for dir in dirs {
            names.extend(
                sys::read_dir(dir.as_fd())?
                    .into_iter()
                    .map(|Entry { name, .. }| name),
            );
        }
        let mut names: Vec<CString> = names.into_iter().collect();
        names.sort_unstable();
        Ok(names)
    }
}
