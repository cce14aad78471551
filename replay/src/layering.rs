//! The layers of a session as one tree, and the layers of one session put below those of another.
//!
//! Both walk an upper directory beside another tree and place there what is missing. Names that stand on both sides are decided as
//! overlayfs decides them: the upper one counts, directories are merged unless the upper one is opaque.

use crate::copy::Copier;
use crate::layer;
use crate::meta::{Meta, set_mode, xattrs};
use crate::node::Node;
use crate::root::{Root, absent_is_none, pin};
use crate::sys;
use effigy_journal::Session;
use std::collections::HashMap;
use std::ffi::{CStr, OsStr};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

const ORIGIN: &CStr = c"user.overlay.origin";
const OPAQUE: &CStr = c"user.overlay.opaque";

/// Why layers could not be brought together.
#[derive(Debug, thiserror::Error)]
#[error("{action} {}: {source}", .path.display())]
pub struct LayeringError {
    action: &'static str,
    path: PathBuf,
    source: io::Error,
}

/// How the entries of a layer get to their new place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Files get a further name; nothing is copied.
    Linking,
    /// They leave the layer.
    Moving,
    /// They are copied; the layer stays as it is.
    Copying,
}

/// Shows all layers of a session as one tree below `at`, an existing directory: `/etc/fstab` is `at`/etc/fstab, what was
/// deleted is there as a whiteout.
///
/// The files are those of the layers, under further names. Whoever runs or applies the session afterwards removes the tree
/// first, so that a file has the names only that the command gave it.
///
/// # Errors
/// When the system refuses; what was made until then stays.
pub fn show(session: &Session, at: &Path) -> Result<(), LayeringError> {
    let mut covers: Vec<_> = session.record.covers.iter().collect();
    covers.sort_by(|a, b| a.mount_point.cmp(&b.mount_point));
    for cover in covers {
        let upper = session.upper(cover.layer);
        if std::fs::read_dir(&upper).is_ok_and(|mut entries| entries.next().is_none()) {
            continue;
        }
        let mut to = at.to_owned();
        for name in cover.mount_point.components().skip(1) {
            to.push(name);
            // A link of the session's in the way is refused when the directory is opened.
            if std::fs::symlink_metadata(&to).is_err() {
                std::fs::create_dir(&to).map_err(failed("make", &to))?;
            }
            open(&to)?;
        }
        let mut walk = Walk {
            from: open(&upper)?,
            to: open(&to)?,
            by: By::Linking,
            elsewhere: HashMap::new(),
            hidden: Vec::new(),
            place: Place::default(),
            links: HashMap::new(),
        };
        walk.root()?;
    }
    Ok(())
}

/// Puts what `lower` holds below what `session` holds, which was run over it: afterwards `session` has the effects of both, and
/// does not rest on `lower` any more. What was moved leaves `lower` such that `session` over it still shows the same; so a call
/// that was interrupted can be repeated.
///
/// The journal of `session` tells only half of what it now holds, and is removed.
///
/// # Errors
/// When the system refuses.
pub fn absorb(session: &mut Session, lower: &Session, by: By) -> Result<(), LayeringError> {
    let uppers: HashMap<PathBuf, PathBuf> = session
        .record
        .covers
        .iter()
        .map(|cover| (cover.mount_point.clone(), session.upper(cover.layer)))
        .collect();
    let hidden: Vec<PathBuf> = session
        .record
        .hidden
        .iter()
        .filter(|path| !lower.record.hidden.contains(path))
        .cloned()
        .collect();
    for cover in &lower.record.covers {
        // One that is not in the newer session held nothing when that was planned.
        let Some(own) = uppers.get(&cover.mount_point) else {
            continue;
        };
        let mut walk = Walk {
            from: open(&lower.upper(cover.layer))?,
            to: open(own)?,
            by,
            elsewhere: uppers.clone(),
            hidden: hidden.clone(),
            place: Place {
                path: cover.mount_point.clone(),
                rel: Vec::new(),
            },
            links: HashMap::new(),
        };
        walk.root()?;
    }
    let record = &mut session.record;
    for own in &mut record.covers {
        // What it was given it was given by the older session.
        let given = lower
            .record
            .covers
            .iter()
            .find(|cover| cover.mount_point == own.mount_point);
        own.root = given.map_or(own.root, |cover| cover.root);
        own.below.retain(|below| below.session != lower.record.id);
        if own.hides
            && own.below.is_empty()
            && let Some(upper) = uppers.get(&own.mount_point)
        {
            // What hid the real directory is in this session now.
            let root = open(upper)?;
            sys::set_xattr(root.fd(), OPAQUE, b"y").map_err(failed("mark", upper))?;
            own.hides = false;
        }
    }
    record.lower.retain(|id| *id != lower.record.id);
    for id in &lower.record.lower {
        if !record.lower.contains(id) {
            record.lower.push(id.clone());
        }
    }
    record.start = record.start.min(lower.record.start);
    record.released = record.released.min(lower.record.released);
    // What the older session has made of something that the newer one hid is not hidden any more.
    let shown: Vec<&PathBuf> = hidden
        .iter()
        .filter(|path| is_shown(session, path))
        .collect();
    let record = &mut session.record;
    record.hidden.retain(|path| !shown.contains(&path));
    for path in &lower.record.hidden {
        if !record.hidden.contains(path) {
            record.hidden.push(path.clone());
        }
    }
    record.traced = false;
    let journal = session.journal();
    match std::fs::remove_file(&journal) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(failed("remove", &journal)(error))
        }
        _ => Ok(()),
    }
}

/// Whether a session's layer has something at a path that is no whiteout.
fn is_shown(session: &Session, path: &Path) -> bool {
    session.record.cover_of(path).is_some_and(|cover| {
        let rest = path.strip_prefix(&cover.mount_point).unwrap_or(path);
        let found = std::fs::symlink_metadata(session.upper(cover.layer).join(rest));
        found.is_ok_and(|found| !found.file_type().is_char_device())
    })
}

fn open(path: &Path) -> Result<Root, LayeringError> {
    Root::open(path).map_err(failed("open", path))
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> LayeringError + use<> {
    let path = path.to_owned();
    move |source| LayeringError {
        action,
        path,
        source,
    }
}

/// Where a walk is.
#[derive(Clone, Debug, Default)]
struct Place {
    /// The real path.
    path: PathBuf,
    /// Relative to both roots.
    rel: Vec<u8>,
}

/// The walk through one upper directory.
struct Walk {
    from: Root,
    to: Root,
    by: By,
    /// Other upper directories on the target's side, by what they cover.
    elsewhere: HashMap<PathBuf, PathBuf>,
    /// Whiteouts on the target's side that only hid something from its command.
    hidden: Vec<PathBuf>,
    place: Place,
    /// Where files with several names were copied to.
    links: HashMap<(u32, u32, u64), Vec<u8>>,
}

/// A directory made passable for its owner until dropped.
struct Thawed {
    fd: OwnedFd,
    mode: Option<u32>,
}

impl Drop for Thawed {
    fn drop(&mut self) {
        if let Some(mode) = self.mode {
            // Its mode when it is put in place comes from the layer; one that stays thawed shows as changed.
            let _ = sys::chmod(self.fd.as_fd(), mode);
        }
    }
}

impl Walk {
    fn root(&mut self) -> Result<(), LayeringError> {
        let from = thaw(self.from.fd(), c".").map_err(self.failed("read"))?;
        let to = thaw(self.to.fd(), c".").map_err(self.failed("open"))?;
        self.entries(&from, &to)
    }

    fn failed(&self, action: &'static str) -> impl FnOnce(io::Error) -> LayeringError + use<> {
        failed(action, &self.from.display(&self.place.rel))
    }

    fn entries(&mut self, from: &Thawed, to: &Thawed) -> Result<(), LayeringError> {
        let (length, path) = (self.place.rel.len(), self.place.path.clone());
        for entry in sys::read_dir(from.fd.as_fd()).map_err(self.failed("read"))? {
            if !self.place.rel.is_empty() {
                self.place.rel.push(b'/');
            }
            self.place.rel.extend_from_slice(entry.name.to_bytes());
            self.place
                .path
                .push(OsStr::from_bytes(entry.name.to_bytes()));
            self.entry(from.fd.as_fd(), to.fd.as_fd(), &entry.name)?;
            self.place.rel.truncate(length);
            self.place.path.clone_from(&path);
        }
        Ok(())
    }

    fn entry(
        &mut self,
        from: BorrowedFd<'_>,
        to: BorrowedFd<'_>,
        name: &CStr,
    ) -> Result<(), LayeringError> {
        let node = sys::stat(from, name).map_err(self.failed("read"))?;
        if let Some(upper) = self.elsewhere.get(&self.place.path)
            && node.is_dir()
        {
            // Covered apart on the other side.
            let mut apart = Walk {
                from: self.from.try_clone().map_err(self.failed("open"))?,
                to: open(upper)?,
                by: self.by,
                elsewhere: self.elsewhere.clone(),
                hidden: self.hidden.clone(),
                place: self.place.clone(),
                links: HashMap::new(),
            };
            let (from, to) = (
                thaw(from, name).map_err(self.failed("read"))?,
                thaw(apart.to.fd(), c".").map_err(self.failed("open"))?,
            );
            return apart.entries(&from, &to);
        }
        match absent_is_none(sys::stat(to, name)).map_err(self.failed("read"))? {
            None => self.absent(from, to, name, &node),
            Some(there)
                if layer::is_whiteout_device(&there) && self.hidden.contains(&self.place.path) =>
            {
                sys::unlink(to, name, false).map_err(self.failed("show"))?;
                self.absent(from, to, name, &node)
            }
            Some(there) if there.is_dir() && node.is_dir() => self.both(from, to, name, &node),
            Some(there) if there.is_file() && node.is_file() && self.by != By::Linking => {
                self.inherit_origin(from, to, name)
            }
            Some(_) => Ok(()),
        }
    }

    /// Nothing stands there yet.
    fn absent(
        &mut self,
        from: BorrowedFd<'_>,
        to: BorrowedFd<'_>,
        name: &CStr,
        node: &Node,
    ) -> Result<(), LayeringError> {
        let divided = node.is_dir()
            && self
                .elsewhere
                .keys()
                .any(|covered| covered.starts_with(&self.place.path));
        match (self.by, node.is_dir()) {
            // Not as a whole what is covered in part elsewhere.
            (By::Moving, _) if !divided => {
                let _thawed = match node.is_dir() {
                    // A directory that changes its parent is written to.
                    true => Some(thaw(from, name).map_err(self.failed("open"))?),
                    false => None,
                };
                sys::rename(from, name, to, name, libc::RENAME_NOREPLACE)
                    .map_err(self.failed("move"))
            }
            (By::Linking, false) => sys::link(from, name, to, name).map_err(self.failed("link")),
            (By::Copying, false) => self.copy(),
            (By::Moving | By::Linking | By::Copying, _) => {
                sys::mkdir(to, name, 0o700).map_err(self.failed("make"))?;
                {
                    let (source, target) = self.thaw_both(from, to, name)?;
                    self.entries(&source, &target)?;
                }
                self.dress(from, to, name, node)
            }
        }
    }

    fn copy(&mut self) -> Result<(), LayeringError> {
        let mut copier = Copier {
            from: &self.from,
            to: &self.to,
            layer: false,
            lenient: false,
            private: false,
            links: &mut self.links,
            progress: &mut |_| true,
        };
        let rel = self.place.rel.clone();
        copier
            .tree(&rel, &rel)
            .map_err(|error| failed("copy", &self.from.display(&error.rel))(error.source))
    }

    fn thaw_both(
        &self,
        from: BorrowedFd<'_>,
        to: BorrowedFd<'_>,
        name: &CStr,
    ) -> Result<(Thawed, Thawed), LayeringError> {
        Ok((
            thaw(from, name).map_err(self.failed("read"))?,
            thaw(to, name).map_err(self.failed("open"))?,
        ))
    }

    /// Both sides have a directory of this name.
    fn both(
        &mut self,
        from: BorrowedFd<'_>,
        to: BorrowedFd<'_>,
        name: &CStr,
        node: &Node,
    ) -> Result<(), LayeringError> {
        let (source, target) = self.thaw_both(from, to, name)?;
        if self.by == By::Linking {
            self.entries(&source, &target)?;
            drop(target);
            return self.dress(from, to, name, node);
        }
        let marks = |fd: &Thawed| layer::marks(fd.fd.as_fd(), None);
        if marks(&target).map_err(self.failed("read"))?.opaque {
            return Ok(());
        }
        let below = marks(&source).map_err(self.failed("read"))?;
        self.entries(&source, &target)?;
        // Last: until all is merged the lower directory must still show through.
        if below.opaque {
            sys::set_xattr(target.fd.as_fd(), OPAQUE, b"y").map_err(self.failed("mark"))?;
        }
        drop((source, target));
        self.inherit_origin(from, to, name)
    }

    /// What was copied up from the lower session stands for what that was copied up from, if for anything.
    fn inherit_origin(
        &self,
        from: BorrowedFd<'_>,
        to: BorrowedFd<'_>,
        name: &CStr,
    ) -> Result<(), LayeringError> {
        let inherit = || {
            if sys::get_xattr(to, Some(name), ORIGIN)?.is_none() {
                return Ok(());
            }
            let made = pin(to, name)?;
            let locked = made.node.mode & 0o200 == 0 && sys::euid() != 0;
            if locked {
                sys::chmod(made.fd.as_fd(), made.node.mode | 0o200)?;
            }
            match sys::get_xattr(from, Some(name), ORIGIN)? {
                Some(origin) => sys::set_xattr(made.fd.as_fd(), ORIGIN, &origin)?,
                None => sys::remove_xattr(made.fd.as_fd(), None, ORIGIN)?,
            }
            if locked {
                sys::chmod(made.fd.as_fd(), made.node.mode)?;
            }
            Ok(())
        };
        inherit().map_err(self.failed("mark"))
    }

    /// Gives a directory made here the attributes of the one in the layer.
    fn dress(
        &self,
        from: BorrowedFd<'_>,
        to: BorrowedFd<'_>,
        name: &CStr,
        node: &Node,
    ) -> Result<(), LayeringError> {
        let source = thaw(from, name).map_err(self.failed("read"))?;
        let dress = || {
            let made = pin(to, name)?;
            let mut meta = Meta::of(node, xattrs(source.fd.as_fd(), None)?);
            meta.mtime = Some(node.mtime);
            for (name, value) in layer::marks(source.fd.as_fd(), None)?.attributes {
                sys::set_xattr(made.fd.as_fd(), &sys::cstring(&name)?, &value)?;
            }
            meta.set(&made)?;
            // Whoever may remove the shown tree must be able to.
            if self.by == By::Linking && node.mode & 0o700 != 0o700 {
                set_mode(&made, node.mode | 0o700)?;
            }
            Ok(())
        };
        match dress() {
            // Where the shown tree stands there may be no such attributes; the names are what it is for.
            Err(_) if self.by == By::Linking => Ok(()),
            other => other.map_err(self.failed("set the attributes of what is made of")),
        }
    }
}

/// Opens a directory for reading and passing, which its owner may have locked for itself.
fn thaw(dir: BorrowedFd<'_>, name: &CStr) -> io::Result<Thawed> {
    let node = sys::stat(dir, name)?;
    let mode = (node.mode & 0o700 != 0o700 && node.uid == sys::euid() && sys::euid() != 0)
        .then_some(node.mode);
    if mode.is_some() {
        sys::chmod(pin(dir, name)?.fd.as_fd(), node.mode | 0o700)?;
    }
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_NONBLOCK;
    Ok(Thawed {
        fd: sys::openat(dir, name, flags, 0)?,
        mode,
    })
}
