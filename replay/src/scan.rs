//! Layers against the real tree: every path that differs, parents before children.

use crate::conflict::Reason;
use crate::layer::{self, Attributes, Marks, Origin};
use crate::ledger::Ledger;
use crate::net::NetError;
use crate::node::Node;
use crate::recollect::Recollection;
use crate::root::Root;
use crate::sys;
use effigy_journal::Session;
use effigy_journal::archive::Owners;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use beneath::{Dir, Seen};

mod beneath;
mod compare;
mod fresh;
mod gone;
mod origins;
mod placed;

pub(crate) use beneath::Beneath;
pub(crate) use compare::streams_differ;
pub(crate) use origins::file_handle;

/// Directories deeper than this are refused: no program can name what lies in them.
const MAX_DEPTH: usize = 1900;

/// How a path differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// New.
    Added,
    /// It was copied up, and the real one is gone.
    Missing,
    /// Whited out, or below something that is.
    Deleted,
    /// Another content.
    Content,
    /// Other attributes only.
    Metadata,
    /// Another type.
    TypeChanged,
    /// No difference, but the layer has several names of this file.
    Linked,
    /// A directory that is merged and opaque; no difference of its own.
    Merged,
    /// It cannot be compared or applied.
    Blocked(Reason),
}

/// Something inside a new directory that must not reach the real tree.
#[derive(Clone, Debug)]
pub(crate) enum Inner {
    /// Overlay attributes; the mode of the file that has them.
    Strip {
        rel: Vec<u8>,
        ino: u64,
        mode: u32,
        attributes: Attributes,
    },
    /// A whiteout.
    Whiteout { rel: Vec<u8> },
}

/// One path that differs.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    /// Index of the cover, which is that of its target root.
    pub(crate) cover: u32,
    /// Relative to the mount point.
    pub(crate) rel: Vec<u8>,
    pub(crate) what: What,
    pub(crate) upper: Option<Node>,
    pub(crate) real: Option<Node>,
    /// The earlier session's directory that has `real`, when it is not the real tree.
    pub(crate) layer: Option<usize>,
    /// The item of the parent directory when that is added, deleted or of another type.
    pub(crate) parent: Option<usize>,
    /// One past the last item below this one.
    pub(crate) end: usize,
    /// The upper directory hides the real one.
    pub(crate) opaque: bool,
    /// Real names in an opaque directory that the upper does not have.
    pub(crate) unlisted: Vec<Vec<u8>>,
    /// Overlay attributes of this very path.
    pub(crate) attributes: Attributes,
    pub(crate) origin: Option<Origin>,
    /// What lies inside and must not reach the real tree. Only on directories that are new.
    pub(crate) inner: Vec<Inner>,
    /// The deleted item that this file was before.
    pub(crate) renamed_from: Option<usize>,
    /// A path that `--hide` took away from the command.
    pub(crate) hidden: bool,
}

impl Item {
    /// Whether the step that takes its parent along takes it along too.
    pub(crate) fn is_top(&self) -> bool {
        self.parent.is_none()
    }
}

/// Everything that differs in all layers.
pub(crate) struct Scanned {
    pub(crate) items: Vec<Item>,
    /// What the layers lie over, by cover.
    pub(crate) beneath: Vec<Option<Beneath>>,
    /// Device nodes lie in new directories whose inside was not listed.
    pub(crate) unlisted_devices: bool,
}

impl Scanned {
    /// The real tree of a cover.
    pub(crate) fn target(&self, cover: u32) -> Option<&Root> {
        self.beneath.get(cover as usize)?.as_ref()?.real()
    }

    /// The cover that has a path, and the path below it.
    pub(crate) fn place(&self, session: &Session, path: &Path) -> Option<(u32, Vec<u8>)> {
        let covers = session.record.covers.iter().enumerate();
        let (index, cover) = covers
            .filter(|(_, cover)| path.starts_with(&cover.mount_point))
            .max_by_key(|(_, cover)| cover.mount_point.as_os_str().len())?;
        let rel = path.strip_prefix(&cover.mount_point).ok()?;
        Some((
            u32::try_from(index).ok()?,
            rel.as_os_str().as_bytes().to_vec(),
        ))
    }
}

/// Compares all layers with the real tree. With `collapse` the inside of new directories is not listed.
pub(crate) fn scan(
    session: &Session,
    memory: &Recollection<'_>,
    collapse: bool,
) -> Result<Scanned, NetError> {
    scan_over(session, &[], memory, collapse)
}

/// Compares all layers with the real tree as these sessions, on which this one rests, have left it.
pub(crate) fn scan_over(
    session: &Session,
    lower: &[Session],
    memory: &Recollection<'_>,
    collapse: bool,
) -> Result<Scanned, NetError> {
    let mut items = Vec::new();
    let mut beneath = Vec::new();
    let mut unlisted_devices = false;
    let owners = Owners::of(session).map_err(NetError::io(session.dir()))?;
    for (index, cover) in session.record.covers.iter().enumerate() {
        let path = session.upper(cover.layer);
        if is_untouched(&path, cover) {
            beneath.push(None);
            continue;
        }
        let upper = match Root::open(&path) {
            Ok(root) => root,
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => {
                beneath.push(Beneath::open(cover, lower).ok());
                continue;
            }
            Err(e) => return Err(NetError::io(&path)(e)),
        };
        let target = Beneath::open(cover, lower);
        let index = u32::try_from(index).unwrap_or(u32::MAX);
        let hidden = hidden_below(&session.record.hidden, &cover.mount_point);
        let mut walk = Walk {
            upper: &upper,
            target: None,
            cover: index,
            layer: cover.layer,
            owners: &owners,
            hidden,
            collapse,
            items,
            depth: 0,
            unlisted_devices: false,
        };
        let gone = match &target {
            Ok(root) => {
                walk.target = Some(root);
                walk.cover_root(cover)?;
                None
            }
            Err(e) => Some(Walk::parent_reason(e, &cover.mount_point)),
        };
        if let Some(reason) = gone {
            walk.blocked(&mut Vec::new(), reason)?;
        }
        unlisted_devices |= walk.unlisted_devices;
        items = walk.items;
        beneath.push(target.ok());
    }
    let mut scanned = Scanned {
        items,
        beneath,
        unlisted_devices,
    };
    // The applies of sessions below have put other files in the place of those that were met.
    let replaced = !session.record.lower.is_empty()
        || Ledger::all(session)
            .map_err(NetError::io(session.dir()))?
            .iter()
            .any(Ledger::has_restaged);
    origins::resolve(session, &mut scanned, memory, replaced);
    placed::pass_over(session, &mut scanned)?;
    Ok(scanned)
}

/// Whether a layer holds nothing and its root is as effigy made it: most are so after most runs.
fn is_untouched(upper: &Path, cover: &effigy_journal::Cover) -> bool {
    let as_given = std::fs::symlink_metadata(upper).is_ok_and(|stat| {
        (stat.mode() & 0o7777, stat.uid(), stat.gid())
            == (cover.root.mode & 0o7777, cover.root.uid, cover.root.gid)
    });
    as_given && std::fs::read_dir(upper).is_ok_and(|mut entries| entries.next().is_none())
}

fn hidden_below(hidden: &[PathBuf], mount_point: &Path) -> Vec<Vec<u8>> {
    use std::os::unix::ffi::OsStrExt as _;
    let below = hidden
        .iter()
        .filter_map(|path| path.strip_prefix(mount_point).ok());
    below
        .map(|path| path.as_os_str().as_bytes().to_vec())
        .collect()
}

/// The walk through one layer.
struct Walk<'a> {
    upper: &'a Root,
    target: Option<&'a Beneath>,
    cover: u32,
    layer: u32,
    owners: &'a Owners,
    hidden: Vec<Vec<u8>>,
    collapse: bool,
    items: Vec<Item>,
    depth: usize,
    unlisted_devices: bool,
}

/// A directory of a layer that is open; gets its mode back when it had to be made readable.
struct UpperDir {
    fd: OwnedFd,
    node: Node,
    restore: Option<(crate::root::Pinned, u32)>,
}

impl Drop for UpperDir {
    fn drop(&mut self) {
        if let Some((pinned, mode)) = &self.restore {
            // Nothing can be done about a failure here; the mode is set again from the plan when it is committed.
            let _ = sys::chmod(pinned.fd.as_fd(), *mode);
        }
    }
}

impl<'a> Walk<'a> {
    fn is_elsewhere(&self, seen: &Seen) -> bool {
        self.target.is_some_and(|target| target.is_elsewhere(seen))
    }

    fn parent_reason(error: &io::Error, parent: &Path) -> Reason {
        let parent = parent.to_owned();
        match error.raw_os_error() {
            Some(libc::ENOENT) => Reason::ParentGone { parent },
            Some(libc::ELOOP | libc::ENOTDIR) => Reason::ParentReplaced { parent },
            Some(libc::EXDEV) => Reason::MountInTheWay,
            errno => Reason::Unreadable {
                errno: errno.unwrap_or(libc::EIO),
            },
        }
    }

    fn upper_error(&self, rel: &[u8]) -> impl FnOnce(io::Error) -> NetError + use<> {
        NetError::io(self.upper.display(rel))
    }

    fn real_error(&self, rel: &[u8]) -> impl FnOnce(io::Error) -> NetError + use<> {
        NetError::io(
            self.target
                .map_or_else(|| self.upper.display(rel), |target| target.display(rel)),
        )
    }

    /// The attributes of the cover's root count only when they are no longer those effigy gave it.
    fn cover_root(&mut self, cover: &effigy_journal::Cover) -> Result<(), NetError> {
        let Some(target) = self.target else {
            return Ok(());
        };
        let upper = *self.upper.node();
        let real = *target.node();
        let given = (cover.root.mode & 0o7777, cover.root.uid, cover.root.gid);
        // Attributes of the user's can be read only by who may read the directory.
        let marks =
            layer::marks(self.open_upper(b"")?.fd.as_fd(), None).map_err(self.upper_error(b""))?;
        if (upper.mode, upper.uid, upper.gid) != given
            && (upper.mode, upper.uid, upper.gid) != (real.mode, real.uid, real.gid)
        {
            self.push(Item {
                upper: Some(upper),
                real: Some(real),
                ..self.item(b"", What::Metadata, None)
            });
        }
        let index = self
            .items
            .len()
            .checked_sub(1)
            .filter(|&i| self.items[i].cover == self.cover);
        self.merged(&mut Vec::new(), &marks, index)
    }

    fn item(&self, rel: &[u8], what: What, parent: Option<usize>) -> Item {
        Item {
            cover: self.cover,
            rel: rel.to_vec(),
            what,
            upper: None,
            real: None,
            layer: None,
            parent,
            end: 0,
            opaque: false,
            unlisted: Vec::new(),
            attributes: Vec::new(),
            origin: None,
            inner: Vec::new(),
            renamed_from: None,
            hidden: false,
        }
    }

    /// Adds an item; its `end` is set for one without anything below.
    fn push(&mut self, mut item: Item) -> usize {
        let index = self.items.len();
        item.end = index + 1;
        self.items.push(item);
        index
    }

    fn close(&mut self, index: usize) {
        self.items[index].end = self.items.len();
    }

    fn open_upper(&self, rel: &[u8]) -> Result<UpperDir, NetError> {
        match self.upper.open_dir(rel) {
            Err(e) if e.raw_os_error() == Some(libc::EACCES) => {
                self.thaw(rel).map_err(self.upper_error(rel))
            }
            other => {
                let fd = other.map_err(self.upper_error(rel))?;
                // One that can be listed but not passed (mode 0600) keeps its entries to itself all the same.
                let node = sys::stat(fd.as_fd(), c"").map_err(self.upper_error(rel))?;
                if node.mode & 0o100 == 0 && node.uid == sys::euid() && sys::euid() != 0 {
                    return self.thaw(rel).map_err(self.upper_error(rel));
                }
                Ok(UpperDir {
                    fd,
                    node,
                    restore: None,
                })
            }
        }
    }

    /// Opens a directory of the layer that its owner, who we are, may not read.
    fn thaw(&self, rel: &[u8]) -> io::Result<UpperDir> {
        let pinned = self.upper.pin(rel)?;
        let mode = pinned.node.mode;
        sys::chmod(pinned.fd.as_fd(), mode | 0o700)?;
        match self.upper.open_dir(rel) {
            Ok(fd) => Ok(UpperDir {
                fd,
                node: pinned.node,
                restore: Some((pinned, mode)),
            }),
            Err(e) => {
                let _ = sys::chmod(pinned.fd.as_fd(), mode);
                Err(e)
            }
        }
    }

    fn enter(&mut self, rel: &[u8]) -> Result<(), NetError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.upper_error(rel)(io::Error::from_raw_os_error(
                libc::ENAMETOOLONG,
            )));
        }
        Ok(())
    }

    /// A directory that both sides have. `index` is its item when it has one. The directories in an opaque one hide what
    /// is real too, without being marked.
    fn merged(
        &mut self,
        rel: &mut Vec<u8>,
        marks: &Marks,
        index: Option<usize>,
    ) -> Result<(), NetError> {
        let Some(target) = self.target else {
            return Ok(());
        };
        self.enter(rel)?;
        let upper = self.open_upper(rel)?;
        let entries = sys::read_dir(upper.fd.as_fd()).map_err(self.upper_error(rel))?;
        let real = target.dir(rel, false).map_err(self.real_error(rel))?;
        if marks.opaque {
            self.unlisted(rel, &entries, index)?;
        }
        let length = rel.len();
        for entry in &entries {
            push_name(rel, &entry.name);
            self.entry(rel, upper.fd.as_fd(), &real, &entry.name, marks)?;
            rel.truncate(length);
        }
        self.depth -= 1;
        Ok(())
    }

    /// One entry of a merged directory.
    fn entry(
        &mut self,
        rel: &mut Vec<u8>,
        upper_dir: BorrowedFd<'_>,
        real_dir: &Dir,
        name: &CStr,
        parent: &Marks,
    ) -> Result<(), NetError> {
        let upper = sys::stat(upper_dir, name).map_err(self.upper_error(rel))?;
        let found = match real_dir.stat(name) {
            // The real directory is locked, if only for its owner: what lies in it is not to be compared.
            Err(e) if e.raw_os_error() == Some(libc::EACCES) => {
                // One that was only copied up is no effect, wherever it lies.
                if upper.is_dir()
                    && layer::marks(upper_dir, Some(name)).is_ok_and(|marks| marks.origin.is_some())
                    && self.is_empty(rel)?
                {
                    return Ok(());
                }
                let reason = Reason::Unreadable {
                    errno: libc::EACCES,
                };
                let item = self.item(rel, What::Blocked(reason), None);
                self.push(Item {
                    upper: Some(upper),
                    ..item
                });
                return Ok(());
            }
            other => other.map_err(self.real_error(rel))?,
        };
        let hidden = self.hidden.iter().any(|h| h == rel);
        if layer::is_whiteout(upper_dir, name, &upper, parent).map_err(self.upper_error(rel))? {
            return match found {
                Some((seen, _)) if !hidden => self.deleted(rel, seen, None).map(drop),
                _ => Ok(()),
            };
        }
        let mut marks = Marks::default();
        if upper.is_dir() || (upper.is_file() && parent.impure) {
            marks = self
                .read_marks(upper_dir, name, &upper)
                .map_err(self.upper_error(rel))?;
        }
        let Some((seen, real_dir)) = found else {
            return self.absent(rel, upper, marks);
        };
        let real = seen.node;
        let upper = self.owned(rel, upper, &real);
        if self.is_elsewhere(&seen) {
            return self.mounted(rel, upper, real);
        }
        let item = Item {
            upper: Some(upper),
            real: Some(real),
            layer: seen.layer,
            opaque: marks.opaque,
            attributes: marks.attributes.clone(),
            origin: marks.origin.clone(),
            hidden,
            ..self.item(rel, What::Content, None)
        };
        if upper.is_dir() && real.is_dir() {
            marks.opaque |= parent.opaque;
            let item = Item {
                opaque: marks.opaque,
                ..item
            };
            return self.both_directories(rel, item, marks, (upper_dir, real_dir, name));
        }
        if upper.kind != real.kind {
            return self.type_changed(rel, item, &marks);
        }
        let what = self
            .compare(upper_dir, real_dir, name, &upper, &real)
            .map_err(self.real_error(rel))?;
        let what = match what {
            None if upper.nlink > 1 && !upper.is_dir() => What::Linked,
            None => return Ok(()),
            Some(what) => what,
        };
        self.push(Item { what, ..item });
        Ok(())
    }

    /// What was imported by a user who could not give it its owner has the one it had, where that is the real one's.
    fn owned(&self, rel: &[u8], upper: Node, real: &Node) -> Node {
        match self.owners.find(self.layer, rel) {
            Some((mode, uid, gid)) if (uid, gid) == (real.uid, real.gid) => Node {
                mode,
                uid,
                gid,
                ..upper
            },
            _ => upper,
        }
    }

    fn both_directories(
        &mut self,
        rel: &mut Vec<u8>,
        item: Item,
        marks: Marks,
        (upper_dir, real_dir, name): (BorrowedFd<'_>, BorrowedFd<'_>, &CStr),
    ) -> Result<(), NetError> {
        let (Some(upper), Some(real)) = (item.upper, item.real) else {
            return Ok(());
        };
        let differs = (upper.mode, upper.uid, upper.gid) != (real.mode, real.uid, real.gid)
            || compare::xattrs_differ(upper_dir, real_dir, name).map_err(self.real_error(rel))?;
        let index = match differs {
            true => Some(self.push(Item {
                what: What::Metadata,
                ..item
            })),
            false if marks.opaque => Some(self.push(Item {
                what: What::Merged,
                ..item
            })),
            false => None,
        };
        self.merged(rel, &marks, index)?;
        if let Some(index) = index {
            self.close(index);
        }
        Ok(())
    }

    fn type_changed(
        &mut self,
        rel: &mut Vec<u8>,
        item: Item,
        marks: &Marks,
    ) -> Result<(), NetError> {
        if item.upper.is_some_and(|u| u.is_dir()) && marks.origin.is_some() {
            // The session met a directory here: what it changed below has lost its place.
            let parent = self
                .target
                .map(|target| target.display(rel))
                .unwrap_or_default();
            return self.blocked(rel, Reason::ParentReplaced { parent });
        }
        let (upper, real) = (item.upper, item.real);
        let index = self.push(Item {
            what: What::TypeChanged,
            ..item
        });
        if upper.is_some_and(|upper| upper.is_dir()) {
            self.new_children(rel, marks, index, false)?;
        } else if real.is_some_and(|real| real.is_dir()) {
            self.deleted_children(rel, index)?;
        }
        self.close(index);
        Ok(())
    }
}

fn push_name(rel: &mut Vec<u8>, name: &CStr) {
    if !rel.is_empty() {
        rel.push(b'/');
    }
    rel.extend_from_slice(name.to_bytes());
}
