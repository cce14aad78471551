//! Writing a session into an archive.

use super::kept::{self, Device, Kept};
use super::{FORMAT, Head, pax, rewrite, sparse, sys, without_applies};
use crate::redact::redact;
use crate::session::{RecordError, Session};
use crate::writer::WriteError;
use flate2::Compression;
use flate2::write::GzEncoder;
use nix::dir::Dir;
use nix::fcntl::{AtFlags, OFlag, openat, readlinkat};
use nix::sys::stat::{FileStat, Mode, fstat, fstatat, major, minor};
use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use tar::{EntryType, Header};

/// Fast, and not much larger than the best.
const LEVEL: u32 = 4;

/// Why a session could not be exported.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// Something of the session could not be read, or the archive not written.
    #[error("export {}: {source}", .path.display())]
    Io {
        /// What of the session.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The record is no JSON any more.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The journal could not be written without what is secret.
    #[error("export {}: {source}", .path.display())]
    Journal {
        /// The journal.
        path: PathBuf,
        /// The reason.
        source: WriteError,
    },
}

impl From<(PathBuf, io::Error)> for ExportError {
    fn from((path, source): (PathBuf, io::Error)) -> Self {
        Self::Io { path, source }
    }
}

/// What went into an archive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exported {
    /// Files, directories and all else.
    pub entries: u64,
    /// Arguments that looked like secrets and were left out.
    pub redacted: u64,
}

/// Writes a session into an archive. The session should be locked, and its layers whole: nothing of it moved by a commit.
///
/// With `redacted`, arguments of commands that look like secrets are left out (see [`redact`]).
///
/// # Errors
/// When something cannot be read or written. The archive is then of no use.
pub fn export(session: &Session, redacted: bool, out: impl Write) -> Result<Exported, ExportError> {
    let kept = kept::read(session.dir()).map_err(super::at(session.dir()))?;
    let mut writer = Writer {
        tar: tar::Builder::new(GzEncoder::new(out, Compression::new(LEVEL))),
        links: HashMap::new(),
        kept,
        exported: Exported::default(),
    };
    let head = Head {
        format: FORMAT,
        effigy: session.record.effigy.clone(),
    };
    writer.text(
        "effigy.json",
        &serde_json::to_vec(&head).unwrap_or_default(),
        session,
    )?;
    let mut record = session.record.clone();
    without_applies(&mut record);
    if redacted {
        writer.exported.redacted += redact(&mut record.argv);
    }
    let record = serde_json::to_vec_pretty(&record).map_err(|error| {
        let path = session.dir().join("session.json");
        super::at(path)(error.into())
    })?;
    writer.text("session.json", &record, session)?;
    writer.journal(session, redacted)?;
    writer.below(session, "versions")?;
    for cover in &session.record.covers {
        let layer = format!("layers/{}", cover.layer);
        if session.layers().join(cover.layer.to_string()).exists() {
            writer.directory(session.dir(), &layer, false)?;
            writer.below(session, &format!("{layer}/upper"))?;
        }
    }
    let finish = || -> io::Result<()> { writer.tar.into_inner()?.finish()?.flush() };
    finish().map_err(super::at("the archive"))?;
    Ok(writer.exported)
}

struct Writer<W: Write> {
    tar: tar::Builder<GzEncoder<W>>,
    /// Names of files that may have further ones, by device and inode.
    links: HashMap<(u64, u64), Vec<u8>>,
    kept: HashMap<Vec<u8>, Kept>,
    exported: Exported,
}

/// One entry, before it has its form.
struct Entry<'a> {
    name: &'a [u8],
    kind: EntryType,
    stat: FileStat,
    link: Option<&'a [u8]>,
    records: Vec<u8>,
    size: u64,
}

impl<W: Write> Writer<W> {
    fn put(&mut self, entry: Entry<'_>, data: impl Read) -> io::Result<()> {
        let Entry {
            name,
            kind,
            stat,
            link,
            mut records,
            size,
        } = entry;
        let kept = self.kept.get(name);
        let mut header = Header::new_ustar();
        header.set_entry_type(kind);
        header.set_size(size);
        header.set_mode(kept.map_or(stat.st_mode, |kept| kept.mode) & 0o7777);
        header.set_uid(kept.map_or(stat.st_uid, |kept| kept.uid).into());
        header.set_gid(kept.map_or(stat.st_gid, |kept| kept.gid).into());
        header.set_mtime(u64::try_from(stat.st_mtime).unwrap_or(0));
        if matches!(kind, EntryType::Char | EntryType::Block) {
            header
                .set_device_major(u32::try_from(major(stat.st_rdev)).map_err(io::Error::other)?)?;
            header
                .set_device_minor(u32::try_from(minor(stat.st_rdev)).map_err(io::Error::other)?)?;
        }
        let fields = header.as_old_mut();
        if !fit(name, &mut fields.name) {
            pax::push(&mut records, b"path", name);
        }
        if let Some(link) = link
            && !fit(link, &mut fields.linkname)
        {
            pax::push(&mut records, b"linkpath", link);
        }
        if kind != EntryType::Link {
            // Before 1970 the fraction still counts upwards, which pax cannot say: whole seconds then.
            let mtime = match (stat.st_mtime, stat.st_mtime_nsec) {
                (seconds @ 0.., nanoseconds @ 1..) => format!("{seconds}.{nanoseconds:09}"),
                (seconds, _) => seconds.to_string(),
            };
            pax::push(&mut records, b"mtime", mtime.as_bytes());
        }
        header.set_cksum();
        let mut before = Header::new_ustar();
        before.set_entry_type(EntryType::XHeader);
        before.set_size(records.len() as u64);
        before.set_mode(0o600);
        before.as_old_mut().name[..3].copy_from_slice(b"pax");
        before.set_cksum();
        self.tar.append(&before, records.as_slice())?;
        let mut data = Counted { data, read: 0 };
        self.tar.append(&header, &mut data)?;
        if data.read != size {
            return Err(io::Error::other("it has become shorter"));
        }
        self.exported.entries += 1;
        Ok(())
    }

    fn text(&mut self, name: &str, text: &[u8], session: &Session) -> Result<(), ExportError> {
        let path = session.dir().join(name);
        let mut stat =
            nix::sys::stat::stat(session.dir()).map_err(|e| super::at(&path)(e.into()))?;
        stat.st_mode = 0o600;
        let entry = Entry {
            name: name.as_bytes(),
            kind: EntryType::Regular,
            stat,
            link: None,
            records: Vec::new(),
            size: text.len() as u64,
        };
        Ok(self.put(entry, text).map_err(super::at(path))?)
    }

    fn journal(&mut self, session: &Session, redacted: bool) -> Result<(), ExportError> {
        let path = session.journal();
        let file = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other.map_err(super::at(&path))?,
        };
        let file = if redacted {
            let scratch = session
                .dir()
                .join(format!("journal.redacted.{}", std::process::id()));
            let written = rewrite::without_secrets(file, &scratch);
            // It has no name from here on, whatever becomes of it.
            let _gone = std::fs::remove_file(&scratch);
            let (file, count) = written.map_err(|source| ExportError::Journal {
                path: path.clone(),
                source,
            })?;
            self.exported.redacted += count;
            file
        } else {
            file
        };
        let put = |writer: &mut Self| -> io::Result<()> {
            let stat = fstat(&file)?;
            writer.file(b"journal", &file, stat)
        };
        Ok(put(self).map_err(super::at(path))?)
    }

    /// A directory of the session and all below it.
    fn below(&mut self, session: &Session, name: &str) -> Result<(), ExportError> {
        self.directory(session.dir(), name, true)
    }

    fn directory(&mut self, top: &Path, name: &str, whole: bool) -> Result<(), ExportError> {
        let path = top.join(name);
        let open = || -> io::Result<Dir> {
            Ok(Dir::open(
                &path,
                OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC,
                Mode::empty(),
            )?)
        };
        let mut dir = open().map_err(super::at(&path))?;
        self.open_directory(&mut dir, name.as_bytes(), whole)
            .map_err(|(name, error)| {
                super::at(top.join(std::ffi::OsStr::from_bytes(&name)))(error).into()
            })
    }

    fn open_directory(
        &mut self,
        dir: &mut Dir,
        name: &[u8],
        whole: bool,
    ) -> Result<(), (Vec<u8>, io::Error)> {
        let here = |error: io::Error| (name.to_vec(), error);
        let stat = fstat(&*dir).map_err(|error| here(error.into()))?;
        let put = |writer: &mut Self, dir: &Dir| -> io::Result<()> {
            let entry = Entry {
                name,
                kind: EntryType::Directory,
                stat,
                link: None,
                records: attribute_records(dir.as_fd())?,
                size: 0,
            };
            writer.put(entry, io::empty())
        };
        put(self, dir).map_err(here)?;
        if !whole {
            return Ok(());
        }
        let names = names(dir).map_err(here)?;
        for leaf in &names {
            let name = [name, b"/", leaf.to_bytes()].concat();
            let stat = fstatat(&*dir, leaf.as_c_str(), AtFlags::AT_SYMLINK_NOFOLLOW);
            let stat = stat.map_err(|error| (name.clone(), error.into()))?;
            if stat.st_mode & libc::S_IFMT == libc::S_IFDIR {
                let flags =
                    OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
                let below = Dir::openat(&*dir, leaf.as_c_str(), flags, Mode::empty());
                let mut below = below.map_err(|error| (name.clone(), error.into()))?;
                self.open_directory(&mut below, &name, true)?;
            } else {
                self.leaf(dir.as_fd(), leaf, &name, stat)
                    .map_err(|error| (name, error))?;
            }
        }
        self.lost_devices(name, stat).map_err(here)
    }

    fn leaf(
        &mut self,
        dir: BorrowedFd<'_>,
        leaf: &CStr,
        name: &[u8],
        stat: FileStat,
    ) -> io::Result<()> {
        if stat.st_nlink > 1 {
            let first = self.links.entry((stat.st_dev, stat.st_ino));
            match first {
                std::collections::hash_map::Entry::Occupied(first) => {
                    let first = first.get().clone();
                    let entry = Entry {
                        name,
                        kind: EntryType::Link,
                        stat,
                        link: Some(&first),
                        records: Vec::new(),
                        size: 0,
                    };
                    return self.put(entry, io::empty());
                }
                std::collections::hash_map::Entry::Vacant(first) => {
                    first.insert(name.to_vec());
                }
            }
        }
        let mut records = Vec::new();
        let mut target = None;
        let kind = match stat.st_mode & libc::S_IFMT {
            libc::S_IFREG => {
                let flags =
                    OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
                let file = File::from(openat(dir, leaf, flags, Mode::empty())?);
                let stat = fstat(&file)?;
                return self.file(name, &file, stat);
            }
            libc::S_IFLNK => {
                target = Some(readlinkat(dir, leaf)?);
                EntryType::Symlink
            }
            libc::S_IFIFO => EntryType::Fifo,
            libc::S_IFCHR => EntryType::Char,
            libc::S_IFBLK => EntryType::Block,
            _ => {
                pax::push(&mut records, b"EFFIGY.type", b"socket");
                EntryType::Fifo
            }
        };
        let entry = Entry {
            name,
            kind,
            stat,
            link: target.as_ref().map(|target| target.as_bytes()),
            records,
            size: 0,
        };
        self.put(entry, io::empty())
    }

    fn file(&mut self, name: &[u8], file: &File, stat: FileStat) -> io::Result<()> {
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        let mut entry = Entry {
            name,
            kind: EntryType::Regular,
            stat,
            link: None,
            records: attribute_records(file.as_fd())?,
            size,
        };
        if stat.st_blocks.saturating_mul(512) >= stat.st_size {
            return self.put(
                entry,
                At {
                    file,
                    at: 0,
                    end: size,
                },
            );
        }
        let pieces = sparse::pieces(file, size)?;
        for (key, value) in [
            (&b"GNU.sparse.major"[..], &b"1"[..]),
            (b"GNU.sparse.minor", b"0"),
            (b"GNU.sparse.name", name),
            (b"GNU.sparse.realsize", size.to_string().as_bytes()),
        ] {
            pax::push(&mut entry.records, key, value);
        }
        let list = sparse::list(&pieces);
        entry.size = pieces.iter().map(|(_, len)| len).sum::<u64>() + list.len() as u64;
        let data = Pieces {
            file,
            pieces: pieces.iter(),
            now: None,
        };
        self.put(entry, list.as_slice().chain(data))
    }

    /// Device nodes that an import could not make in this directory.
    fn lost_devices(&mut self, dir: &[u8], stat: FileStat) -> io::Result<()> {
        let is_here = |name: &[u8]| {
            name.strip_prefix(dir)
                .and_then(|rest| rest.strip_prefix(b"/"))
                .is_some_and(|rest| !rest.contains(&b'/'))
        };
        let lost: Vec<(Vec<u8>, Kept, Device)> = self
            .kept
            .iter()
            .filter(|(name, _)| is_here(name))
            .filter_map(|(name, kept)| Some((name.clone(), kept.clone(), kept.device?)))
            .collect();
        for (name, kept, device) in lost {
            let mut stat = stat;
            (stat.st_mode, stat.st_mtime, stat.st_mtime_nsec) = (kept.mode, device.mtime, 0);
            stat.st_rdev = nix::sys::stat::makedev(device.major.into(), device.minor.into());
            let entry = Entry {
                name: &name,
                kind: if device.block {
                    EntryType::Block
                } else {
                    EntryType::Char
                },
                stat,
                link: None,
                records: Vec::new(),
                size: 0,
            };
            self.put(entry, io::empty())?;
        }
        Ok(())
    }
}

/// Puts a name into a field of a header; a longer one only its beginning, for tars that know no pax.
fn fit(name: &[u8], field: &mut [u8; 100]) -> bool {
    let len = name.len().min(field.len());
    field[..len].copy_from_slice(&name[..len]);
    len == name.len()
}

fn attribute_records(file: BorrowedFd<'_>) -> io::Result<Vec<u8>> {
    let mut records = Vec::new();
    for (name, value) in sys::attributes(file)? {
        pax::push(&mut records, &pax::attribute_key(&name), &value);
    }
    Ok(records)
}

fn names(dir: &mut Dir) -> io::Result<Vec<CString>> {
    let mut names = Vec::new();
    for entry in dir.iter() {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            names.push(entry.file_name().to_owned());
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// A piece of a file, read without moving its offset.
struct At<'a> {
    file: &'a File,
    at: u64,
    end: u64,
}

impl Read for At<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.end - self.at).unwrap_or(usize::MAX);
        let want = buffer.len().min(left);
        let got = self.file.read_at(&mut buffer[..want], self.at)?;
        self.at += got as u64;
        Ok(got)
    }
}

/// The pieces of a file with holes, one after the other.
struct Pieces<'a> {
    file: &'a File,
    pieces: std::slice::Iter<'a, (u64, u64)>,
    now: Option<At<'a>>,
}

impl Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(now) = &mut self.now {
                let got = now.read(buffer)?;
                if got > 0 || buffer.is_empty() {
                    return Ok(got);
                }
            }
            let Some(&(at, len)) = self.pieces.next() else {
                return Ok(0);
            };
            let file = self.file;
            self.now = Some(At {
                file,
                at,
                end: at + len,
            });
        }
    }
}

struct Counted<R> {
    data: R,
    read: u64,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let got = self.data.read(buffer)?;
        self.read += got as u64;
        Ok(got)
    }
}
