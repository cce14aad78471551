//! Making a session of an archive.

use super::kept::{self, Device, Kept};
use super::place::Place;
use super::{FORMAT, Head, MAX_PAX, UNPACKING, pax, sparse, sys, without_applies};
use crate::reader::{ReadError, Reader};
use crate::session::{LockError, MAX_RECORD, Record, RecordError, Session, SessionId};
use crate::store::{CreateError, Store, create_error};
use flate2::read::MultiGzDecoder;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::{
    Mode, SFlag, UtimensatFlags, fchmod, futimens, makedev, mkdirat, mknodat, utimensat,
};
use nix::sys::time::TimeSpec;
use nix::unistd::{Gid, LinkatFlags, Uid, fchown, fchownat, linkat, symlinkat};
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use tar::{EntryType, Header};

/// Directories above one another in a layer: deeper than any path a program can name.
const MAX_DEPTH: usize = 4096;

const CHUNK: usize = 64 << 10;

/// Why an archive could not be imported. Nothing of it is left.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// It could not be read or is not compressed as it should be.
    #[error("read the archive: {0}")]
    Read(io::Error),
    /// It is no archive of a session, or a damaged one.
    #[error("read the archive: {reason}{}", name_in(.name))]
    Damaged {
        /// The entry.
        name: Vec<u8>,
        /// What is wrong.
        reason: &'static str,
    },
    /// A later effigy made it.
    #[error("read the archive: it has format {found}, this effigy reads up to {FORMAT}")]
    TooNew {
        /// Its format.
        found: u32,
    },
    /// Its record is none.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// Its journal is none.
    #[error("read the archive: its journal: {0}")]
    Journal(#[from] ReadError),
    /// A session that it lies over is not here.
    #[error("import a session layered over {lower}, which is not in the store")]
    NoLower {
        /// The other session.
        lower: SessionId,
    },
    /// The session could not be made.
    #[error(transparent)]
    Create(#[from] CreateError),
    /// Something in the new session could not be made.
    #[error("unpack{}: {source}", name_in(.name))]
    Write {
        /// The entry.
        name: Vec<u8>,
        /// The reason.
        source: io::Error,
    },
}

fn name_in(name: &[u8]) -> String {
    if name.is_empty() {
        return String::new();
    }
    format!(" ({})", std::ffi::OsStr::from_bytes(name).display())
}

impl From<LockError> for ImportError {
    fn from(error: LockError) -> Self {
        Self::Create(error.into())
    }
}

/// An imported session.
#[derive(Debug)]
pub struct Imported {
    /// The session, locked exclusively.
    pub session: Session,
    /// The id it had, when that was taken here and it got another one.
    pub former: Option<SessionId>,
    /// Owners that an ordinary user cannot give, kept as data.
    pub owners: u64,
    /// Device nodes that could not be made, kept as data: absolute paths outside the session are not told apart here.
    pub devices: u64,
    /// Extended attributes that could not be set.
    pub attributes: u64,
}

impl Store {
    /// Makes a session of an archive, under its own name or `name`.
    ///
    /// It is listed when it is whole, and not before; an import that is killed leaves what [`gc`](Self::gc) sweeps up.
    ///
    /// # Errors
    /// When the archive is damaged, hostile or of a later format, the name is taken, or the system refuses.
    pub fn import(&self, archive: impl Read, name: Option<&str>) -> Result<Imported, ImportError> {
        let mut random = [0; 8];
        crate::sys::random(&mut random).map_err(create_error(self.dir()))?;
        let temporary = format!("{UNPACKING}{:016x}", u64::from_ne_bytes(random));
        let mut draft = self.draft(&temporary)?;
        let made = unpack(archive, draft.dir())
            .and_then(|unpacked| self.adopt(&mut draft, unpacked, name));
        if made.is_err() {
            // The error that matters is the first one; what cannot be removed is swept up later.
            let _rest = self.remove_draft(&temporary);
        }
        made
    }

    fn adopt(
        &self,
        draft: &mut Session,
        unpacked: Unpacked,
        name: Option<&str>,
    ) -> Result<Imported, ImportError> {
        let mut record = unpacked.record;
        if let Some(name) = name {
            record.name = Some(name.to_owned());
        }
        let former = record.id.clone();
        let damage = |error: io::Error| ImportError::Write {
            name: Vec::new(),
            source: error,
        };
        kept::write(draft.dir(), &unpacked.kept).map_err(damage)?;
        crate::sys::sync_filesystem(draft.dir()).map_err(damage)?;
        let dir = self.settle(draft, record)?;
        let session = Session::read(&dir)?;
        let changed = session.record.id != former;
        let mut session = session;
        session.take_lock_of(draft);
        let devices = unpacked
            .kept
            .iter()
            .filter(|kept| kept.device.is_some())
            .count() as u64;
        Ok(Imported {
            session,
            former: changed.then_some(former),
            owners: unpacked.kept.len() as u64 - devices,
            devices,
            attributes: unpacked.attributes,
        })
    }
}

/// What an archive came to.
struct Unpacked {
    record: Record,
    kept: Vec<Kept>,
    attributes: u64,
}

/// Unpacks an archive into the fresh directory of a session.
fn unpack(archive: impl Read, dir: &Path) -> Result<Unpacked, ImportError> {
    let top = File::open(dir).map_err(|error| write_error(b"", error))?;
    let mut work = Work {
        top: top.into(),
        last: None,
        directories: Vec::new(),
        kept: Vec::new(),
        attributes: 0,
        privileged: nix::unistd::geteuid().is_root(),
        record: None,
        head: false,
    };
    let mut archive = tar::Archive::new(MultiGzDecoder::new(BufReader::with_capacity(
        CHUNK, archive,
    )));
    let entries = archive.entries().map_err(ImportError::Read)?.raw(true);
    let mut pax = Vec::new();
    for entry in entries {
        let mut entry = entry.map_err(ImportError::Read)?;
        let header = entry.header().clone();
        match header.entry_type() {
            EntryType::XHeader => {
                let size = header.entry_size().unwrap_or(u64::MAX);
                if size > MAX_PAX || !pax.is_empty() {
                    return Err(damaged(
                        &header.path_bytes(),
                        "a pax header is too large, or there are two",
                    ));
                }
                entry.read_to_end(&mut pax).map_err(ImportError::Read)?;
            }
            // Comments that other tools add.
            EntryType::XGlobalHeader => {}
            _ => {
                let item = Item::of(&header, &pax)?;
                work.place(&item, &mut entry)?;
                pax.clear();
            }
        }
    }
    if !pax.is_empty() {
        return Err(damaged(b"", "it ends with a pax header"));
    }
    work.finish(dir)
}

fn damaged(name: &[u8], reason: &'static str) -> ImportError {
    ImportError::Damaged {
        name: name.to_vec(),
        reason,
    }
}

fn write_error(name: &[u8], source: impl Into<io::Error>) -> ImportError {
    ImportError::Write {
        name: name.to_vec(),
        source: source.into(),
    }
}

/// An entry as it is meant.
struct Item {
    name: Vec<u8>,
    kind: EntryType,
    socket: bool,
    link: Vec<u8>,
    meta: Meta,
    device: (u32, u32),
    /// The size of a file that is stored in pieces.
    sparse: Option<u64>,
}

/// Attributes of an entry.
#[derive(Clone)]
struct Meta {
    mode: u32,
    uid: u32,
    gid: u32,
    mtime: TimeSpec,
    attributes: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Item {
    fn of(header: &Header, records: &[u8]) -> Result<Self, ImportError> {
        let mut name = header.path_bytes().into_owned();
        let wrong = |reason| damaged(&header.path_bytes(), reason);
        let id = |value: io::Result<u64>| {
            value
                .ok()
                .and_then(|id| u32::try_from(id).ok())
                .ok_or_else(|| wrong("its owner is no number"))
        };
        let number = |value: io::Result<Option<u32>>| value.ok().flatten().unwrap_or(0);
        let seconds = header.mtime().map_err(|_| wrong("its time is no number"))?;
        let mut item = Self {
            name: Vec::new(),
            kind: header.entry_type(),
            socket: false,
            link: header
                .link_name_bytes()
                .map(|link| link.into_owned())
                .unwrap_or_default(),
            meta: Meta {
                mode: header.mode().map_err(|_| wrong("its mode is no number"))? & 0o7777,
                uid: id(header.uid())?,
                gid: id(header.gid())?,
                mtime: TimeSpec::new(i64::try_from(seconds).unwrap_or(i64::MAX), 0),
                attributes: Vec::new(),
            },
            device: (number(header.device_major()), number(header.device_minor())),
            sparse: None,
        };
        let (mut major, mut minor, mut real) = (None, None, None);
        for (key, value) in
            pax::parse(records).ok_or_else(|| wrong("its pax header is not well formed"))?
        {
            match key {
                b"path" => name = value.to_vec(),
                b"linkpath" => item.link = value.to_vec(),
                b"mtime" => {
                    item.meta.mtime = time(value).ok_or_else(|| wrong("its time is no number"))?
                }
                b"EFFIGY.type" => item.socket = value == b"socket",
                b"GNU.sparse.major" => major = Some(value),
                b"GNU.sparse.minor" => minor = Some(value),
                b"GNU.sparse.realsize" => real = pax::number(value),
                b"size" | b"uid" | b"gid" => {
                    return Err(wrong("effigy does not write such a pax header"));
                }
                _ => {
                    if let Some(attribute) = key.strip_prefix(b"SCHILY.xattr.") {
                        item.meta
                            .attributes
                            .push((pax::attribute_name(attribute), value.to_vec()));
                    }
                }
            }
        }
        if major.is_some() {
            let known = (major, minor) == (Some(b"1"), Some(b"0"));
            item.sparse = Some(
                real.filter(|_| known)
                    .ok_or_else(|| wrong("its form for holes is not known"))?,
            );
        }
        if name.last() == Some(&b'/') {
            name.pop();
        }
        item.name = name;
        Ok(item)
    }
}

/// `seconds` or `seconds.fraction`.
fn time(text: &[u8]) -> Option<TimeSpec> {
    let text = std::str::from_utf8(text).ok()?;
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let nanoseconds = format!("{fraction:0<9}").get(..9)?.parse().ok()?;
    Some(TimeSpec::new(seconds.parse().ok()?, nanoseconds))
}

struct Work {
    top: OwnedFd,
    /// The directory in which the last entry was placed.
    last: Option<(Vec<u8>, OwnedFd)>,
    /// Directories get their attributes when nothing more comes into them.
    directories: Vec<(Vec<u8>, Meta)>,
    kept: Vec<Kept>,
    attributes: u64,
    privileged: bool,
    record: Option<Record>,
    head: bool,
}

impl Work {
    fn place(&mut self, item: &Item, data: &mut impl Read) -> Result<(), ImportError> {
        let name = item.name.as_slice();
        let place =
            Place::of(name).ok_or_else(|| damaged(name, "it names no place in a session"))?;
        if !self.head && place != Place::Head {
            return Err(damaged(
                name,
                "it is no archive of a session, which begins with effigy.json",
            ));
        }
        let must_be = |kind: EntryType| match item.kind == kind {
            true => Ok(()),
            false => Err(damaged(name, "it is of the wrong type")),
        };
        match place {
            Place::Head => {
                must_be(EntryType::Regular)?;
                let head: Head = serde_json::from_slice(&text(data, name)?)
                    .map_err(|_| damaged(name, "it is no archive of a session"))?;
                if head.format > FORMAT {
                    return Err(ImportError::TooNew { found: head.format });
                }
                self.head = true;
                Ok(())
            }
            Place::Record => {
                must_be(EntryType::Regular)?;
                let text = text(data, name)?;
                if self.record.is_some() {
                    return Err(damaged(name, "it is in the archive twice"));
                }
                self.record = Some(Record::of_text(&text, Path::new("session.json"))?);
                Ok(())
            }
            Place::Journal => {
                must_be(EntryType::Regular)?;
                self.file(item, data, true)
            }
            Place::Holder => must_be(EntryType::Directory),
            Place::Version if item.kind != EntryType::Regular => {
                must_be(EntryType::Link)?;
                self.item(item, data)
            }
            Place::Layer => {
                must_be(EntryType::Directory)?;
                self.directory(item, false)
            }
            Place::Version | Place::Upper => self.item(item, data),
        }
    }

    fn item(&mut self, item: &Item, data: &mut impl Read) -> Result<(), ImportError> {
        match item.kind {
            EntryType::Regular | EntryType::GNUSparse => self.file(item, data, false),
            EntryType::Directory => self.directory(item, true),
            EntryType::Link => self.link(item),
            EntryType::Symlink => self.symlink(item),
            EntryType::Char | EntryType::Block | EntryType::Fifo => self.node(item),
            _ => Err(damaged(
                &item.name,
                "effigy does not write entries of its type",
            )),
        }
    }

    /// The directory that holds a name, reached without following anything, and the last component.
    fn parent(&mut self, name: &[u8]) -> Result<(BorrowedFd<'_>, CString), ImportError> {
        let cut = name.iter().rposition(|&byte| byte == b'/');
        let (dir, leaf) = match cut {
            Some(cut) => (&name[..cut], &name[cut + 1..]),
            None => (&b""[..], name),
        };
        let leaf = CString::new(leaf).map_err(|_| damaged(name, "it has a NUL in its name"))?;
        if self.last.as_ref().is_none_or(|(last, _)| last != dir) {
            let open = open_below(self.top.as_fd(), dir).map_err(|errno| match errno {
                Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP => {
                    damaged(name, "what should be the directory it lies in is none")
                }
                errno => write_error(name, errno),
            })?;
            self.last = Some((dir.to_vec(), open));
        }
        let top = self.top.as_fd();
        Ok((self.last.as_ref().map_or(top, |(_, dir)| dir.as_fd()), leaf))
    }

    fn directory(&mut self, item: &Item, with_meta: bool) -> Result<(), ImportError> {
        let name = item.name.as_slice();
        let (dir, leaf) = self.parent(name)?;
        mkdirat(dir, leaf.as_c_str(), Mode::S_IRWXU).map_err(|errno| made(name, errno))?;
        if with_meta {
            self.directories.push((name.to_vec(), item.meta.clone()));
        }
        Ok(())
    }

    fn file(&mut self, item: &Item, data: &mut impl Read, plain: bool) -> Result<(), ImportError> {
        let name = item.name.as_slice();
        let (dir, leaf) = self.parent(name)?;
        let flags =
            OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let file = openat(dir, leaf.as_c_str(), flags, Mode::S_IRUSR | Mode::S_IWUSR);
        let file = File::from(file.map_err(|errno| made(name, errno))?);
        match item.sparse {
            None => write_whole(&file, data, 0, u64::MAX, name)
                .and_then(|end| file.set_len(end).map_err(|error| write_error(name, error)))?,
            Some(size) => {
                let pieces = sparse::read_list(data, size).map_err(ImportError::Read)?;
                let pieces =
                    pieces.ok_or_else(|| damaged(name, "its list of pieces is not well formed"))?;
                for (at, len) in pieces {
                    if write_whole(&file, data, at, len, name)? != at + len {
                        return Err(damaged(name, "it is shorter than it says"));
                    }
                }
                file.set_len(size)
                    .map_err(|error| write_error(name, error))?;
            }
        }
        if plain {
            return Ok(());
        }
        self.dress(file.as_fd(), name, &item.meta)
    }

    /// Owner, mode, attributes and times of an open file or directory, as far as this user can give them.
    fn dress(&mut self, file: BorrowedFd<'_>, name: &[u8], meta: &Meta) -> Result<(), ImportError> {
        let fail = |errno| write_error(name, errno);
        let mut mode = meta.mode;
        if self.own(name, meta, |uid, gid| fchown(file, Some(uid), Some(gid)))? {
            // Another's rights are not to be had under one's own name.
            mode &= 0o1777;
        }
        for (key, value) in &meta.attributes {
            let Ok(key) = CString::new(key.as_slice()) else {
                return Err(damaged(name, "an attribute has a NUL in its name"));
            };
            match sys::set_attribute(file, &key, value) {
                Ok(()) => {}
                Err(error) if matters(&key) => return Err(write_error(name, error)),
                Err(_) => self.attributes += 1,
            }
        }
        fchmod(file, Mode::from_bits_truncate(mode)).map_err(fail)?;
        futimens(file, &meta.mtime, &meta.mtime).map_err(fail)
    }

    /// Gives an entry its owner, or keeps that as data; says whether it had to.
    fn own(
        &mut self,
        name: &[u8],
        meta: &Meta,
        chown: impl FnOnce(Uid, Gid) -> nix::Result<()>,
    ) -> Result<bool, ImportError> {
        let (uid, gid) = (Uid::from_raw(meta.uid), Gid::from_raw(meta.gid));
        if !self.privileged && (uid, gid) == (nix::unistd::geteuid(), nix::unistd::getegid()) {
            return Ok(false);
        }
        match chown(uid, gid) {
            Ok(()) => return Ok(false),
            Err(Errno::EPERM | Errno::EINVAL | Errno::EOVERFLOW) => {}
            Err(errno) => return Err(write_error(name, errno)),
        }
        self.keep(name, meta, None);
        Ok(true)
    }

    fn keep(&mut self, name: &[u8], meta: &Meta, device: Option<Device>) {
        self.kept.push(Kept {
            name: name.to_vec().into(),
            mode: meta.mode,
            uid: meta.uid,
            gid: meta.gid,
            device,
        });
    }

    fn link(&mut self, item: &Item) -> Result<(), ImportError> {
        let name = item.name.as_slice();
        let target = item.link.as_slice();
        if !matches!(Place::of(target), Some(Place::Version | Place::Upper)) {
            return Err(damaged(name, "it is a link to no place in a session"));
        }
        let (dir, first) = self.parent(target)?;
        let dir = dir
            .try_clone_to_owned()
            .map_err(|error| write_error(name, error))?;
        let (to, leaf) = self.parent(name)?;
        let linked = linkat(
            dir.as_fd(),
            first.as_c_str(),
            to,
            leaf.as_c_str(),
            LinkatFlags::empty(),
        );
        linked.map_err(|errno| match errno {
            Errno::ENOENT | Errno::EPERM => {
                damaged(name, "it is a link to nothing that can be linked")
            }
            errno => made(name, errno),
        })
    }

    fn symlink(&mut self, item: &Item) -> Result<(), ImportError> {
        let name = item.name.as_slice();
        let target = CString::new(item.link.as_slice())
            .map_err(|_| damaged(name, "its target has a NUL in it"))?;
        let (dir, leaf) = self.parent(name)?;
        symlinkat(target.as_c_str(), dir, leaf.as_c_str()).map_err(|errno| made(name, errno))?;
        self.dress_name(item)
    }

    fn node(&mut self, item: &Item) -> Result<(), ImportError> {
        let name = item.name.as_slice();
        let (kind, (major, minor)) = match item.kind {
            EntryType::Char => (SFlag::S_IFCHR, item.device),
            EntryType::Block => (SFlag::S_IFBLK, item.device),
            _ if item.socket => (SFlag::S_IFSOCK, (0, 0)),
            _ => (SFlag::S_IFIFO, (0, 0)),
        };
        let mode = Mode::from_bits_truncate(item.meta.mode);
        let (dir, leaf) = self.parent(name)?;
        match mknodat(
            dir,
            leaf.as_c_str(),
            kind,
            Mode::S_IRUSR | Mode::S_IWUSR,
            makedev(major.into(), minor.into()),
        ) {
            Ok(()) => {}
            // Only root makes device nodes; a whiteout is none.
            Err(Errno::EPERM)
                if matches!(item.kind, EntryType::Char | EntryType::Block)
                    && (major, minor) != (0, 0) =>
            {
                let device = Device {
                    block: item.kind == EntryType::Block,
                    major,
                    minor,
                    mtime: item.meta.mtime.tv_sec(),
                };
                self.keep(name, &item.meta, Some(device));
                return Ok(());
            }
            Err(errno) => return Err(made(name, errno)),
        }
        let changed = nix::sys::stat::fchmodat(
            dir,
            leaf.as_c_str(),
            mode,
            nix::sys::stat::FchmodatFlags::FollowSymlink,
        );
        changed.map_err(|errno| write_error(name, errno))?;
        self.dress_name(item)
    }

    /// Owner and times of what cannot be opened.
    fn dress_name(&mut self, item: &Item) -> Result<(), ImportError> {
        let name = item.name.as_slice();
        let (dir, leaf) = self.parent(name)?;
        let dir = dir
            .try_clone_to_owned()
            .map_err(|error| write_error(name, error))?;
        self.own(name, &item.meta, |uid, gid| {
            fchownat(
                dir.as_fd(),
                leaf.as_c_str(),
                Some(uid),
                Some(gid),
                AtFlags::AT_SYMLINK_NOFOLLOW,
            )
        })?;
        let mtime = &item.meta.mtime;
        let done = utimensat(
            dir.as_fd(),
            leaf.as_c_str(),
            mtime,
            mtime,
            UtimensatFlags::NoFollowSymlink,
        );
        done.map_err(|errno| write_error(name, errno))
    }

    fn finish(mut self, dir: &Path) -> Result<Unpacked, ImportError> {
        let directories = std::mem::take(&mut self.directories);
        // The last first: what is below a directory comes after it, and cannot be reached once it has its own mode.
        for (name, meta) in directories.into_iter().rev() {
            let (parent, leaf) = self.parent(&name)?;
            let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
            let open = openat(parent, leaf.as_c_str(), flags, Mode::empty())
                .map_err(|errno| write_error(&name, errno))?;
            self.dress(open.as_fd(), &name, &meta)?;
        }
        let mut record = self
            .record
            .ok_or_else(|| damaged(b"session.json", "there is none"))?;
        without_applies(&mut record);
        record.imported = true;
        record.traced = match File::open(dir.join("journal")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            other => {
                Reader::open(other.map_err(|error| write_error(b"journal", error))?)?;
                true
            }
        };
        // The upper's own owner, which is no effect, is this user now.
        let (uid, gid) = (
            nix::unistd::geteuid().as_raw(),
            nix::unistd::getegid().as_raw(),
        );
        for cover in &mut record.covers {
            let upper = format!("layers/{}/upper", cover.layer);
            let kept = self
                .kept
                .iter()
                .find(|kept| kept.name.as_bytes() == upper.as_bytes());
            if kept.is_some_and(|kept| (kept.uid, kept.gid) == (cover.root.uid, cover.root.gid)) {
                (cover.root.uid, cover.root.gid) = (uid, gid);
                cover.root.mode &= 0o1777;
            }
        }
        Ok(Unpacked {
            record,
            kept: self.kept,
            attributes: self.attributes,
        })
    }
}

/// Attributes without which a layer means something else.
fn matters(name: &CStr) -> bool {
    name.to_bytes().starts_with(b"user.overlay.")
}

/// What stands in an archive twice cannot be made twice.
fn made(name: &[u8], errno: Errno) -> ImportError {
    match errno {
        Errno::EEXIST => damaged(name, "it is in the archive twice"),
        errno => write_error(name, errno),
    }
}

fn open_below(top: BorrowedFd<'_>, dir: &[u8]) -> nix::Result<OwnedFd> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let mut open = openat(top, c".", flags, Mode::empty())?;
    for (depth, name) in dir
        .split(|&byte| byte == b'/')
        .filter(|name| !name.is_empty())
        .enumerate()
    {
        if depth > MAX_DEPTH {
            return Err(Errno::ELOOP);
        }
        let name = CString::new(name).map_err(|_| Errno::ENOENT)?;
        open = openat(&open, name.as_c_str(), flags, Mode::empty())?;
    }
    Ok(open)
}

/// A small file, whole.
fn text(data: &mut impl Read, name: &[u8]) -> Result<Vec<u8>, ImportError> {
    let mut text = Vec::new();
    data.take(MAX_RECORD + 1)
        .read_to_end(&mut text)
        .map_err(ImportError::Read)?;
    match text.len() as u64 > MAX_RECORD {
        true => Err(damaged(name, "it is too large")),
        false => Ok(text),
    }
}

/// Writes up to `len` bytes of the data from `at` on, zeros as holes; says where they end.
fn write_whole(
    file: &File,
    data: &mut impl Read,
    at: u64,
    len: u64,
    name: &[u8],
) -> Result<u64, ImportError> {
    let mut buffer = vec![0; CHUNK];
    let mut end = at;
    let mut data = data.take(len);
    loop {
        let mut filled = 0;
        while filled < buffer.len() {
            match data.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(got) => filled += got,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(ImportError::Read(error)),
            }
        }
        if filled == 0 {
            return Ok(end);
        }
        if buffer[..filled].iter().any(|&byte| byte != 0) || filled < buffer.len() {
            file.write_all_at(&buffer[..filled], end)
                .map_err(|error| write_error(name, error))?;
        }
        end += filled as u64;
    }
}
