//! Where content and attributes as of an effect are.

use super::ReplayError;
use super::ground::Ground;
use super::load::Loaded;
use super::model::{Act, At, Obj, Slot};
use super::wanted::{Modified, State, Wanted};
use crate::meta::{Meta, Xattrs, xattrs};
use crate::node::{FileType, Node, Time};
use crate::root::Root;
use crate::step::Loc;
use effigy_journal::{Kind, Location, Op, Session, Timestamp, VersionId};
use std::cell::RefCell;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// Bytes that can be copied: the first `len` of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bytes {
    pub(super) from: Loc,
    pub(super) len: u64,
}

/// Where in the session something stands, and what it is; `None` when nothing does.
type Found = Option<(Vec<u8>, Node)>;

/// What the layers hold under a name.
type Copy = (Slot, (Vec<u8>, Node));

/// Everything a replay looks at.
pub(super) struct View<'a> {
    pub(super) session: &'a Session,
    pub(super) loaded: &'a Loaded,
    pub(super) wanted: &'a Wanted,
    /// Objects whose times an effect sets.
    timed: HashSet<Obj>,
    /// Objects whose owner an effect sets.
    owned: HashSet<Obj>,
    /// What the layers hold of the object asked for last.
    looked_up: RefCell<Option<(Obj, Found)>>,
}

impl<'a> View<'a> {
    pub(super) fn new(session: &'a Session, loaded: &'a Loaded, wanted: &'a Wanted) -> Self {
        let (mut timed, mut owned) = (HashSet::new(), HashSet::new());
        for (effect, fact) in loaded.effects.iter().zip(&loaded.facts) {
            match (&effect.op, fact.act) {
                (Op::Utimens { .. }, Act::Set { obj }) => drop(timed.insert(obj)),
                (Op::Chown { .. }, Act::Set { obj }) => drop(owned.insert(obj)),
                _ => {}
            }
        }
        Self {
            session,
            loaded,
            wanted,
            timed,
            owned,
            looked_up: RefCell::new(None),
        }
    }

    /// What the layers hold of an object at the end.
    pub(super) fn layer(&self, ground: &Ground, obj: Obj) -> Found {
        // Content and attributes are asked for one after the other.
        if let Some((last, found)) = &*self.looked_up.borrow()
            && *last == obj
        {
            return found.clone();
        }
        let found = self.look_up(ground, obj);
        *self.looked_up.borrow_mut() = Some((obj, found.clone()));
        found
    }

    fn look_up(&self, ground: &Ground, obj: Obj) -> Found {
        let mut found = self.copies(ground, obj);
        if is_split(&found) {
            // Content is where it was written last: not where a time was set, or nothing but attributes changed.
            let state = self.state(obj);
            let before = self.loaded.model.object(obj).before;
            let set = state.and_then(|state| match state.modified {
                Modified::Set(time) => Some(from(time)),
                _ => None,
            });
            let time = before.map(|stat| from(stat.mtime));
            let is_timed = |(_, (_, node)): &Copy| ![time, set].contains(&Some(node.mtime));
            let is_sized = |(_, (_, node)): &Copy| before.is_some_and(|b| b.size != node.size);
            // A time can be set through a descriptor, of which no event tells; another size is another content.
            if found.iter().any(is_sized) {
                found.retain(is_sized);
            } else if found.iter().any(is_timed) {
                found.retain(is_timed);
            }
            let last = state.and_then(|state| state.content);
            if let Some(at) = last.and_then(|last| self.under(&found, last)) {
                return Some(found.swap_remove(at).1);
            }
        }
        let last = found.into_iter().map(|(_, copy)| copy);
        last.reduce(|one, other| {
            if other.1.mtime > one.1.mtime {
                other
            } else {
                one
            }
        })
    }

    /// Which of these copies has the name that an effect speaks of.
    fn under(&self, copies: &[Copy], at: At) -> Option<usize> {
        let id = self.loaded.effects[at as usize].op.path()?;
        let path = self.loaded.reader.paths().path(id);
        let path = path.as_os_str().as_bytes();
        copies
            .iter()
            .position(|(slot, _)| self.loaded.model.path_of(*slot).as_deref() == Some(path))
    }

    /// What the layers hold under each name of an object. In an ordinary user's view the names of a real file are files of their own
    /// once they are changed.
    fn copies(&self, ground: &Ground, obj: Obj) -> Vec<Copy> {
        let names = &self.loaded.model.object(obj).names;
        let copy = |slot: &Slot| Some((*slot, self.layer_at(ground, obj, *slot)?));
        names.iter().filter_map(copy).collect()
    }

    /// Whether the attributes of an object are those of what the layers hold of it.
    fn is_told_by_layer(&self, ground: &Ground, obj: Obj) -> bool {
        let several = self.loaded.model.object(obj).names.len() > 1;
        self.is_complete(obj) && !(several && is_split(&self.copies(ground, obj)))
    }

    fn layer_at(&self, ground: &Ground, obj: Obj, slot: Slot) -> Found {
        let object = self.loaded.model.object(obj);
        let path = self.loaded.model.path_of(slot)?;
        let record = &self.session.record;
        let cover = record.cover_of(Path::new(OsStr::from_bytes(&path)))?;
        let point = cover.mount_point.as_os_str().as_bytes();
        let point = if point == b"/" { b"" } else { point };
        let rest = path.strip_prefix(point)?;
        let rel = [format!("layers/{}/upper", cover.layer).as_bytes(), rest].concat();
        let node = ground.find_in_session(&rel)?;
        // A whiteout is a device without a number.
        let fits = match object.kind {
            Some(kind) => file_type(kind) == node.kind,
            None => !(node.kind == FileType::Character && node.rdev == (0, 0)),
        };
        fits.then_some((rel, node))
    }

    /// The state that the chosen effects gave an object.
    pub(super) fn state(&self, obj: Obj) -> Option<&State> {
        self.wanted.states.get(&obj)
    }

    /// Whether the layers tell what the attributes of an object are to be.
    pub(super) fn is_exact(&self, ground: &Ground, obj: Obj) -> bool {
        self.is_told_by_layer(ground, obj) && self.layer(ground, obj).is_some()
    }

    fn is_complete(&self, obj: Obj) -> bool {
        self.wanted.is_complete(self.loaded, obj)
    }

    /// The content that a regular file is to have; `None`: none at all.
    pub(super) fn bytes(&self, ground: &Ground, obj: Obj) -> Result<Option<Bytes>, ReplayError> {
        if self.is_complete(obj)
            && let Some((rel, node)) = self.layer(ground, obj)
        {
            return Ok(Some(Bytes {
                from: Loc::Session(rel),
                len: node.size,
            }));
        }
        let Some(at) = self.state(obj).and_then(|state| state.content) else {
            return Ok(None);
        };
        match self.loaded.effects[at as usize].op.version() {
            Some(version) => self.version(ground, at, version).map(Some),
            None => Ok(None),
        }
    }

    fn version(&self, ground: &Ground, at: At, version: VersionId) -> Result<Bytes, ReplayError> {
        let lost = || self.lost(at);
        match self.loaded.versions.locate(version) {
            Location::Sealed { file, len } => {
                let rel = format!("versions/{}", file.0).into_bytes();
                let found = ground.store.find(&rel).ok().flatten();
                let whole = found.is_some_and(|node| node.is_file() && node.size >= len);
                let bytes = Bytes {
                    from: Loc::Session(rel),
                    len,
                };
                if whole { Ok(bytes) } else { Err(lost()) }
            }
            Location::Live { of, len } => {
                let obj = self.loaded.model.holder(of).ok_or_else(lost)?;
                if let Some((rel, node)) = self.layer(ground, obj) {
                    let len = len.unwrap_or(node.size).min(node.size);
                    return Ok(Bytes {
                        from: Loc::Session(rel),
                        len,
                    });
                }
                // A commit has moved it to where it belongs.
                let path = self.loaded.model.last_path(obj).ok_or_else(lost)?;
                let node = ground
                    .find(&path)
                    .ok()
                    .flatten()
                    .filter(Node::is_file)
                    .ok_or_else(lost)?;
                if !ground.is_own(&path, &node) {
                    return Err(lost());
                }
                let from = ground.loc(&path).ok_or_else(lost)?;
                Ok(Bytes {
                    from,
                    len: len.unwrap_or(node.size).min(node.size),
                })
            }
            Location::Lost => Err(lost()),
        }
    }

    fn lost(&self, at: At) -> ReplayError {
        let effect = &self.loaded.effects[at as usize];
        let path = effect
            .op
            .path()
            .map(|id| self.loaded.reader.paths().path(id));
        ReplayError::NoContent {
            seq: effect.seq.0,
            path: path.unwrap_or_default(),
        }
    }

    /// The type an object is of.
    pub(super) fn kind(&self, obj: Obj) -> FileType {
        self.loaded
            .model
            .object(obj)
            .kind
            .map_or(FileType::Regular, file_type)
    }

    /// The target of a symbolic link, the number of a device.
    pub(super) fn made(&self, obj: Obj) -> Option<&Op> {
        let at = self.state(obj)?.content?;
        Some(&self.loaded.effects[at as usize].op)
    }

    /// Attributes for something new.
    pub(super) fn meta(&self, ground: &Ground, obj: Obj) -> Meta {
        if self.is_told_by_layer(ground, obj)
            && let Some((rel, node)) = self.layer(ground, obj)
        {
            return Meta::of(&node, attributes(&ground.store, &rel, &node));
        }
        let nothing = State::default();
        let state = self.state(obj).unwrap_or(&nothing);
        let record = &self.session.record;
        let kind = self.kind(obj);
        let usual = match kind {
            FileType::Directory => 0o755,
            FileType::Symlink => 0o777,
            _ => 0o644,
        };
        // Of what no effect gave another owner, whatever is kept tells who made it.
        let sealed = self.sealed(state).map(|stat| (stat.uid, stat.gid));
        let kept = || {
            self.layer(ground, obj)
                .map(|(_, node)| (node.uid, node.gid))
        };
        let owner = match self.owned.contains(&obj) {
            true => None,
            false => sealed.or_else(kept),
        };
        let owner = owner.unwrap_or((record.uid, record.gid));
        let mut meta = Meta {
            mode: state.mode.unwrap_or(usual),
            uid: state.uid.unwrap_or(owner.0),
            gid: state.gid.unwrap_or(owner.1),
            mtime: self
                .mtime(ground, obj, state)
                .or_else(|| self.event_time(state))
                .filter(|_| kind != FileType::Directory),
            xattrs: Xattrs::new(),
        };
        change_xattrs(&mut meta.xattrs, state);
        meta
    }

    /// The attributes a real object is to have, given what it has.
    pub(super) fn changed(&self, ground: &Ground, obj: Obj, before: &Meta, node: &Node) -> Meta {
        let Some(state) = self.state(obj) else {
            return before.clone();
        };
        if self.is_told_by_layer(ground, obj)
            && let Some((rel, layer)) = self.layer(ground, obj)
        {
            let mut meta = Meta::of(&layer, attributes(&ground.store, &rel, &layer));
            if node.kind == FileType::Symlink {
                meta.mode = before.mode;
            }
            return meta;
        }
        let mut meta = before.clone();
        meta.mode = state.mode.unwrap_or(meta.mode);
        if state.uid.is_some_and(|uid| uid != meta.uid)
            || state.gid.is_some_and(|gid| gid != meta.gid)
        {
            meta.uid = state.uid.unwrap_or(meta.uid);
            meta.gid = state.gid.unwrap_or(meta.gid);
            if state.mode.is_none() && !node.is_dir() {
                meta.mode &= !0o4000;
                if meta.mode & 0o10 != 0 {
                    meta.mode &= !0o2000;
                }
            }
        }
        if !node.is_dir() && state.modified != Modified::Untouched {
            meta.mtime = self.mtime(ground, obj, state);
        }
        change_xattrs(&mut meta.xattrs, state);
        meta
    }

    /// What was done to a file of before the session under names that are no more its own: its content, if that was changed, and its
    /// attributes. It concerns the names that the session has not met. `None` when nothing was done, or it is not known what.
    pub(super) fn parting(
        &self,
        ground: &Ground,
        obj: Obj,
        before: &Meta,
        node: &Node,
    ) -> Option<(Option<Bytes>, Meta)> {
        let state = self.state(obj)?;
        let bytes = match state.content {
            Some(at) => {
                let mut bytes = self.version(ground, at, self.version_of(at)?).ok()?;
                // Whoever held it open may have gone on writing.
                if let Loc::Session(rel) = &bytes.from
                    && rel.starts_with(b"versions/")
                    && self.is_complete(obj)
                {
                    bytes.len = ground.store.find(rel).ok()??.size;
                }
                Some(bytes)
            }
            None => None,
        };
        let mut after = self.changed(ground, obj, before, node);
        if let Some(stat) = self.sealed(state).filter(|_| self.is_complete(obj)) {
            (after.mode, after.uid, after.gid) = (stat.mode & 0o7777, stat.uid, stat.gid);
        }
        Some((bytes, after))
    }

    fn version_of(&self, at: At) -> Option<VersionId> {
        self.loaded.effects[at as usize].op.version()
    }

    fn sealed(&self, state: &State) -> Option<effigy_journal::Stat> {
        let version = self.loaded.effects[state.content? as usize].op.version()?;
        self.loaded.versions.get(version)?.stat
    }

    /// When the effect happened that gave an object its content.
    fn event_time(&self, state: &State) -> Option<Time> {
        match state.modified {
            Modified::With(at) => Some(from(self.loaded.effects[at as usize].time)),
            _ => None,
        }
    }

    /// The time of a file, as far as it is known exactly.
    fn mtime(&self, ground: &Ground, obj: Obj, state: &State) -> Option<Time> {
        match state.modified {
            Modified::Untouched => None,
            Modified::Set(time) => Some(from(time)),
            Modified::With(at) => {
                let version = self.loaded.effects[at as usize].op.version();
                let sealed = version.and_then(|version| self.loaded.versions.get(version)?.stat);
                if let Some(stat) = sealed {
                    return Some(from(stat.mtime));
                }
                // Content that is still live has its time, unless a time was set that is not wanted.
                let live = version.is_some() && self.loaded.model.object(obj).version == version;
                let layer = self.layer(ground, obj);
                let all = self.is_complete(obj) || !self.timed.contains(&obj);
                let exact = layer.filter(|_| live && all);
                // Whoever opened the file last may have set its time, under that name.
                let copies = self.copies(ground, obj);
                let last = self.under(&copies, at).filter(|_| is_split(&copies));
                // Opened and not written to, it has the time that it had.
                let before = self.loaded.model.object(obj).before;
                let before = before.map(|stat| from(stat.mtime));
                let last = last.map(|last| copies[last].1.1);
                let last = last.filter(|node| Some(node.mtime) != before);
                exact.map(|(_, node)| last.unwrap_or(node).mtime)
            }
        }
    }
}

/// Whether copies of one file are no more one file.
fn is_split(copies: &[Copy]) -> bool {
    let inode = |(_, (_, node)): &Copy| (node.dev, node.ino);
    copies
        .windows(2)
        .any(|pair| inode(&pair[0]) != inode(&pair[1]))
}

fn change_xattrs(xattrs: &mut Xattrs, state: &State) {
    for (name, value) in state.xattrs.iter().flat_map(|changes| changes.iter()) {
        match value {
            Some(value) => xattrs.insert(name.clone(), value.clone()),
            None => xattrs.remove(name),
        };
    }
}

fn from(time: Timestamp) -> Time {
    Time {
        sec: time.seconds(),
        nsec: time.nanoseconds(),
    }
}

pub(super) fn file_type(kind: Kind) -> FileType {
    match kind {
        Kind::File => FileType::Regular,
        Kind::Directory => FileType::Directory,
        Kind::Symlink => FileType::Symlink,
        Kind::Fifo => FileType::Fifo,
        Kind::Socket => FileType::Socket,
        Kind::CharDevice => FileType::Character,
        Kind::BlockDevice => FileType::Block,
    }
}

/// The extended attributes of what stands at a path; those its owner cannot read do not change.
pub(super) fn attributes(root: &Root, rel: &[u8], node: &Node) -> Xattrs {
    if node.kind == FileType::Symlink {
        return Xattrs::new();
    }
    let found = root
        .spot(rel)
        .and_then(|spot| xattrs(spot.dir(), Some(&spot.leaf)));
    found.unwrap_or_default()
}

/// Whether a file has exactly these bytes.
pub(super) fn holds(ground: &Ground, loc: &Loc, bytes: Option<&Bytes>) -> std::io::Result<bool> {
    use std::io::{BufReader, Read as _};
    let open = |loc: &Loc| {
        let (root, rel) = ground.root_of(loc).ok_or(std::io::ErrorKind::NotFound)?;
        root.open_file(rel, libc::O_RDONLY).map(std::fs::File::from)
    };
    let Some(bytes) = bytes else { return Ok(true) };
    if *loc == bytes.from {
        return Ok(true);
    }
    let mut one = BufReader::with_capacity(1 << 16, open(loc)?);
    let mut other = BufReader::with_capacity(1 << 16, open(&bytes.from)?.take(bytes.len));
    let (mut a, mut b) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    loop {
        let n = fill(&mut one, &mut a)?;
        let m = fill(&mut other, &mut b)?;
        if a[..n] != b[..m] {
            return Ok(false);
        }
        if n == 0 {
            return Ok(true);
        }
    }
}

fn fill(reader: &mut impl std::io::Read, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut got = 0;
    while got < buffer.len() {
        match reader.read(&mut buffer[got..])? {
            0 => break,
            n => got += n,
        }
    }
    Ok(got)
}
