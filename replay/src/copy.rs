//! Copies that lose nothing: content with its holes, type, all attributes, hard links among what is copied.

use crate::layer::{self, Marks};
use crate::meta::{Meta, Xattrs, xattrs};
use crate::node::{FileType, Node};
use crate::root::{Pinned, Root, open_regular, pin};
use crate::sys;
use std::collections::HashMap;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

/// Files up to this size are read and written as they are: to share their blocks, or to copy them in the kernel, costs more.
const SMALL: usize = 16 << 10;

/// Files up to this size are one block: they have no holes.
const BLOCK: i64 = 4096;

/// Bytes copied between two calls of the progress function.
const CHUNK: usize = 1 << 20;

/// Why a copy stopped.
pub(crate) struct CopyError {
    pub(crate) action: &'static str,
    /// Relative to the source's or target's root.
    pub(crate) rel: Vec<u8>,
    pub(crate) at_source: bool,
    pub(crate) source: io::Error,
}

/// Copies between two trees.
pub(crate) struct Copier<'a> {
    pub(crate) from: &'a Root,
    pub(crate) to: &'a Root,
    /// The source is a layer: its overlay attributes and whiteouts stay behind, and what its owner cannot read is
    /// made readable while it is read.
    pub(crate) layer: bool,
    /// A before-image: an owner that this user cannot give is not insisted on.
    pub(crate) lenient: bool,
    /// Nobody else reaches what is made: files have their mode from the beginning.
    pub(crate) private: bool,
    /// Where files with several names were copied to.
    pub(crate) links: &'a mut HashMap<(u32, u32, u64), Vec<u8>>,
    /// Told of every chunk; `false` stops the copy.
    pub(crate) progress: &'a mut dyn FnMut(u64) -> bool,
}

/// Makes something readable that its owner locked, until dropped.
struct Thawed(Option<(Pinned, u32)>);

impl Drop for Thawed {
    fn drop(&mut self) {
        if let Some((pinned, mode)) = &self.0 {
            // A mode that cannot be set back here is set again from the plan.
            let _ = sys::chmod(pinned.fd.as_fd(), *mode);
        }
    }
}

impl Copier<'_> {
    /// Copies `from` to `to`, which must not exist, with all that is below.
    pub(crate) fn tree(&mut self, from: &[u8], to: &[u8]) -> Result<(), CopyError> {
        let (a, b) = (self.from, self.to);
        let source = a.spot(from).map_err(Self::failed("read", from, true))?;
        let target = b
            .spot(to)
            .map_err(Self::failed("open the parent of", to, false))?;
        let node =
            sys::stat(source.dir(), &source.leaf).map_err(Self::failed("read", from, true))?;
        self.node(
            from,
            to,
            (source.dir(), &source.leaf),
            (target.dir(), &target.leaf),
            &node,
        )
    }

    fn failed(
        action: &'static str,
        rel: &[u8],
        at_source: bool,
    ) -> impl FnOnce(io::Error) -> CopyError + use<> {
        let rel = rel.to_vec();
        move |source| CopyError {
            action,
            rel,
            at_source,
            source,
        }
    }

    fn node(
        &mut self,
        from: &[u8],
        to: &[u8],
        source: (BorrowedFd<'_>, &CStr),
        target: (BorrowedFd<'_>, &CStr),
        node: &Node,
    ) -> Result<(), CopyError> {
        let read = || Self::failed("read", from, true);
        let make = || Self::failed("make", to, false);
        let key = (node.dev.0, node.dev.1, node.ino);
        if !node.is_dir() && node.nlink > 1 {
            if let Some(first) = self.links.get(&key) {
                let first = self.to.spot(first).map_err(make())?;
                return sys::link(first.dir(), &first.leaf, target.0, target.1).map_err(make());
            }
            self.links.insert(key, to.to_vec());
        }
        let thawed = self.thaw(source, node).map_err(read())?;
        let own = || xattrs(source.0, Some(source.1));
        let (made, attributes) = match node.kind {
            FileType::Regular => self.file(from, to, source, target, node)?,
            FileType::Directory => {
                sys::mkdir(target.0, target.1, 0o700).map_err(make())?;
                let outside = std::mem::replace(&mut self.private, true);
                let copied = self.children(from, to);
                self.private = outside;
                copied?;
                (
                    pin(target.0, target.1).map_err(make())?,
                    own().map_err(read())?,
                )
            }
            FileType::Symlink => {
                let link = sys::readlink(source.0, source.1).and_then(|link| sys::cstring(&link));
                sys::symlink(&link.map_err(read())?, target.0, target.1).map_err(make())?;
                (pin(target.0, target.1).map_err(make())?, Xattrs::new())
            }
            FileType::Fifo | FileType::Socket | FileType::Character | FileType::Block => {
                let kind = match node.kind {
                    FileType::Fifo => libc::S_IFIFO,
                    FileType::Socket => libc::S_IFSOCK,
                    FileType::Character => libc::S_IFCHR,
                    _ => libc::S_IFBLK,
                };
                sys::mknod(target.0, target.1, kind | 0o600, node.rdev).map_err(make())?;
                (
                    pin(target.0, target.1).map_err(make())?,
                    own().map_err(read())?,
                )
            }
        };
        drop(thawed);
        let mut meta = Meta::of(node, attributes);
        meta.mtime = Some(node.mtime);
        self.attributes(meta, &made)
            .map_err(Self::failed("set the attributes of", to, false))
    }

    fn attributes(&self, mut meta: Meta, made: &Pinned) -> io::Result<()> {
        match meta.give(made.fd.as_fd(), &made.node) {
            Err(e) if self.lenient && e.raw_os_error() == Some(libc::EPERM) => {
                (meta.uid, meta.gid) = (made.node.uid, made.node.gid);
                meta.set(made)
            }
            // A filesystem without such attributes cannot have been given any by the command.
            Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                meta.xattrs.clear();
                meta.set(made)
            }
            other => other,
        }
    }

    /// Only in the session's own directory: elsewhere nothing is changed for the sake of a copy.
    fn thaw(&self, source: (BorrowedFd<'_>, &CStr), node: &Node) -> io::Result<Thawed> {
        let need = if node.is_dir() { 0o700 } else { 0o400 };
        let locked = node.mode & need != need && (node.is_dir() || node.is_file());
        if !self.layer || !locked || sys::euid() == 0 {
            return Ok(Thawed(None));
        }
        let pinned = pin(source.0, source.1)?;
        sys::chmod(pinned.fd.as_fd(), node.mode | need)?;
        Ok(Thawed(Some((pinned, node.mode))))
    }

    fn children(&mut self, from: &[u8], to: &[u8]) -> Result<(), CopyError> {
        let read = || Self::failed("read", from, true);
        let dir = self.from.open_dir(from).map_err(read())?;
        let target = self
            .to
            .open_dir_path(to)
            .map_err(Self::failed("open", to, false))?;
        let marks = if self.layer {
            layer::marks(dir.as_fd(), None).map_err(read())?
        } else {
            Marks::default()
        };
        for entry in sys::read_dir(dir.as_fd()).map_err(read())? {
            let below = |rel: &[u8]| [rel, b"/".as_slice(), entry.name.to_bytes()].concat();
            let node = sys::stat(dir.as_fd(), &entry.name).map_err(Self::failed(
                "read",
                &below(from),
                true,
            ))?;
            let whiteout = self.layer
                && layer::is_whiteout(dir.as_fd(), &entry.name, &node, &marks)
                    .map_err(Self::failed("read", &below(from), true))?;
            if !whiteout {
                let (source, made) = (
                    (dir.as_fd(), entry.name.as_c_str()),
                    (target.as_fd(), entry.name.as_c_str()),
                );
                self.node(&below(from), &below(to), source, made, &node)?;
            }
        }
        Ok(())
    }

    /// Copies a regular file; the copy, still open, and the attributes it is to have.
    fn file(
        &mut self,
        from: &[u8],
        to: &[u8],
        source: (BorrowedFd<'_>, &CStr),
        target: (BorrowedFd<'_>, &CStr),
        node: &Node,
    ) -> Result<(Pinned, Xattrs), CopyError> {
        let read = || Self::failed("read", from, true);
        let make = || Self::failed("make", to, false);
        let input = open_regular(source.0, source.1, libc::O_RDONLY).map_err(read())?;
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW;
        let mode = if self.private {
            node.mode & 0o777
        } else {
            0o600
        };
        let output = sys::openat(target.0, target.1, flags, mode).map_err(make())?;
        content(&input, &output, node.size, self.progress)
            .map_err(Self::failed("copy to", to, false))?;
        let attributes = xattrs(input.as_fd(), None).map_err(read())?;
        let made = sys::stat(output.as_fd(), c"").map_err(make())?;
        Ok((
            Pinned {
                fd: output,
                node: made,
            },
            attributes,
        ))
    }
}

/// Makes the (empty) output's content the input's: shared blocks where the filesystem can, else the data without the holes.
pub(crate) fn content(
    input: &OwnedFd,
    output: &OwnedFd,
    size: u64,
    progress: &mut dyn FnMut(u64) -> bool,
) -> io::Result<()> {
    if size > SMALL as u64 && sys::clone_file(input.as_fd(), output.as_fd()).is_ok() {
        return if progress(0) { Ok(()) } else { Err(stopped()) };
    }
    let end = i64::try_from(size).map_err(|_| io::ErrorKind::FileTooLarge)?;
    let (mut at, mut copied_to) = (0, 0);
    while at < end {
        let start = if end <= BLOCK {
            at
        } else {
            match sys::seek(input.as_fd(), at, true) {
                Ok(Some(start)) => start.min(end),
                Ok(None) => break,
                // A filesystem that knows no holes.
                Err(_) => at,
            }
        };
        let hole = if end <= BLOCK {
            None
        } else {
            sys::seek(input.as_fd(), start, false).ok().flatten()
        };
        let stop = hole.unwrap_or(end).clamp(start, end);
        at = start;
        while at < stop {
            let want = usize::try_from(stop - at).unwrap_or(CHUNK).min(CHUNK);
            let copied = range(input, output, at, want)?;
            if copied == 0 {
                // The input has become shorter; the caller's check of it will tell.
                return truncate(output, end);
            }
            at += i64::try_from(copied).unwrap_or(0);
            if !progress(copied as u64) {
                return Err(stopped());
            }
        }
        copied_to = at;
    }
    // Only what ends in a hole is shorter than it is to be.
    if copied_to < end {
        truncate(output, end)
    } else {
        Ok(())
    }
}

/// How a copy that was told to stop ends.
fn stopped() -> io::Error {
    io::ErrorKind::Interrupted.into()
}

/// In the kernel where both sides allow it, else through a buffer.
fn range(input: &OwnedFd, output: &OwnedFd, at: i64, want: usize) -> io::Result<usize> {
    if want <= SMALL {
        return through(input, output, at, &mut [0; SMALL][..want]);
    }
    match sys::copy_range(input.as_fd(), output.as_fd(), at, want) {
        Ok(copied) if copied > 0 => return Ok(copied),
        Ok(_) => {}
        Err(e)
            if matches!(
                e.raw_os_error(),
                Some(libc::ENOSPC | libc::EDQUOT | libc::EIO | libc::EFBIG)
            ) =>
        {
            return Err(e);
        }
        Err(_) => {}
    }
    through(input, output, at, &mut vec![0; want])
}

fn through(input: &OwnedFd, output: &OwnedFd, at: i64, buffer: &mut [u8]) -> io::Result<usize> {
    let n = nix::sys::uio::pread(input, buffer, at)?;
    let mut written = 0;
    while let Some(rest) = buffer.get(written..n).filter(|rest| !rest.is_empty()) {
        let offset = at + i64::try_from(written).unwrap_or(0);
        written += nix::sys::uio::pwrite(output, rest, offset)?;
    }
    Ok(n)
}

fn truncate(output: &OwnedFd, size: i64) -> io::Result<()> {
    Ok(nix::unistd::ftruncate(output, size)?)
}

/// Removes what stands at `rel` with all that is below; nothing there is well. Links are removed, never followed.
pub(crate) fn remove_tree(root: &Root, rel: &[u8]) -> io::Result<()> {
    let Some(node) = root.find(rel)? else {
        return Ok(());
    };
    if node.is_dir() {
        let pinned = root.pin(rel)?;
        if pinned.node.mode & 0o700 != 0o700 && sys::euid() != 0 {
            sys::chmod(pinned.fd.as_fd(), pinned.node.mode | 0o700)?;
        }
        let dir = root.open_dir(rel)?;
        for entry in sys::read_dir(dir.as_fd())? {
            let known_file = !matches!(entry.kind, libc::DT_DIR | libc::DT_UNKNOWN);
            if known_file {
                sys::unlink(dir.as_fd(), &entry.name, false)?;
            } else {
                remove_tree(
                    root,
                    &[rel, b"/".as_slice(), entry.name.to_bytes()].concat(),
                )?;
            }
        }
    }
    let spot = root.spot(rel)?;
    sys::unlink(spot.dir(), &spot.leaf, node.is_dir())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use std::fs::{self, File};
    use std::os::unix::fs::{FileExt as _, MetadataExt as _};
    use std::path::Path;

    #[test]
    fn holes_stay_holes_and_the_end_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let cases: &[(u64, &[u64])] = &[
            (0, &[]),
            (1, &[0]),
            (100, &[]),
            (8 << 20, &[5_000_000]),
            (8 << 20, &[0, 8_388_600]),
            (70_000, &[0, 69_990]),
        ];
        for (number, (size, data)) in cases.iter().enumerate() {
            let (from, to) = (
                dir.path().join(format!("{number}a")),
                dir.path().join(format!("{number}b")),
            );
            let input = File::create_new(&from).unwrap();
            input.set_len(*size).unwrap();
            for at in *data {
                input.write_all_at(b"x", *at).unwrap();
            }
            let root = Root::open(&dir.path().canonicalize().unwrap()).unwrap();
            let mut copier = Copier {
                from: &root,
                to: &root,
                layer: false,
                lenient: false,
                private: false,
                links: &mut HashMap::new(),
                progress: &mut |_| true,
            };
            let name = |path: &Path| path.file_name().unwrap().as_encoded_bytes().to_vec();
            assert!(copier.tree(&name(&from), &name(&to)).is_ok());
            assert_eq!(
                fs::read(&from).unwrap(),
                fs::read(&to).unwrap(),
                "case {number}"
            );
            let blocks = |path: &Path| fs::metadata(path).unwrap().blocks();
            assert!(
                blocks(&to) <= blocks(&from) + 16,
                "case {number}: {} {}",
                blocks(&to),
                blocks(&from)
            );
        }
    }
}
