//! Comparing two files.

use super::{Walk, What};
use crate::layer::{self, Marks};
use crate::meta::xattrs;
use crate::node::{FileType, Node};
use crate::root::{open_regular, pin};
use crate::sys;
use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

/// Whether extended attributes differ.
pub(super) fn xattrs_differ(
    upper: BorrowedFd<'_>,
    real: BorrowedFd<'_>,
    name: &CStr,
) -> io::Result<bool> {
    Ok(xattrs_of(upper, name)? != xattrs_of(real, name)?)
}

/// Whether two files of the same size differ in content. A modification time proves nothing: it can be set.
pub(super) fn content_differs(
    upper_dir: BorrowedFd<'_>,
    real_dir: BorrowedFd<'_>,
    name: &CStr,
    upper: &Node,
    real: &Node,
) -> io::Result<bool> {
    let a = open_upper(upper_dir, name, upper)?;
    let b = match open_entry(real_dir, name) {
        Ok(file) => File::from(file),
        // The owner cannot read it either; its time is all there is to go by.
        Err(e) if e.raw_os_error() == Some(libc::EACCES) => return Ok(upper.mtime != real.mtime),
        Err(e) => return Err(e),
    };
    streams_differ(a, b, upper.size)
}

fn open_upper(dir: BorrowedFd<'_>, name: &CStr, node: &Node) -> io::Result<File> {
    match open_entry(dir, name) {
        Err(e) if e.raw_os_error() == Some(libc::EACCES) => {
            let pinned = pin(dir, name)?;
            sys::chmod(pinned.fd.as_fd(), node.mode | 0o400)?;
            let file = open_entry(dir, name);
            sys::chmod(pinned.fd.as_fd(), node.mode)?;
            file.map(File::from)
        }
        other => other.map(File::from),
    }
}

/// Compares up to the first difference.
pub(crate) fn streams_differ(mut a: File, mut b: File, size: u64) -> io::Result<bool> {
    let chunk = usize::try_from(size.clamp(1, 256 << 10)).unwrap_or(256 << 10);
    let (mut left, mut right) = (vec![0; chunk], vec![0; chunk]);
    loop {
        let n = read_full(&mut a, &mut left)?;
        let m = read_full(&mut b, &mut right)?;
        if left.get(..n) != right.get(..m) {
            return Ok(true);
        }
        if n < chunk {
            return Ok(false);
        }
    }
}

/// Reads until the buffer is full or the file ends.
fn read_full(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read(rest) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(filled)
}

impl Walk<'_> {
    /// Marks of an entry, which its owner may have made unreadable.
    pub(super) fn read_marks(
        &self,
        dir: BorrowedFd<'_>,
        name: &CStr,
        node: &Node,
    ) -> io::Result<Marks> {
        match layer::marks(dir, Some(name)) {
            Err(e) if e.raw_os_error() == Some(libc::EACCES) => {
                let pinned = crate::root::pin(dir, name)?;
                sys::chmod(pinned.fd.as_fd(), node.mode | 0o400)?;
                let marks = layer::marks(dir, Some(name));
                sys::chmod(pinned.fd.as_fd(), node.mode)?;
                marks
            }
            other => other,
        }
    }

    /// How two of the same type, no directories, differ.
    pub(super) fn compare(
        &self,
        upper_dir: BorrowedFd<'_>,
        real_dir: BorrowedFd<'_>,
        name: &CStr,
        upper: &Node,
        real: &Node,
    ) -> io::Result<Option<What>> {
        let content = match upper.kind {
            FileType::Regular if upper.size != real.size => true,
            FileType::Regular => {
                upper.size > 0 && content_differs(upper_dir, real_dir, name, upper, real)?
            }
            FileType::Symlink => sys::readlink(upper_dir, name)? != sys::readlink(real_dir, name)?,
            FileType::Character | FileType::Block => upper.rdev != real.rdev,
            _ => false,
        };
        if content {
            return Ok(Some(What::Content));
        }
        let stat = |n: &Node| {
            (
                if n.kind == FileType::Symlink {
                    0
                } else {
                    n.mode
                },
                n.uid,
                n.gid,
                n.mtime,
            )
        };
        if stat(upper) != stat(real) {
            return Ok(Some(What::Metadata));
        }
        // Those of a symbolic link are nobody's effect; FIFOs, sockets and devices have access control lists.
        let kept = upper.kind != FileType::Symlink;
        Ok((kept && xattrs_differ(upper_dir, real_dir, name)?).then_some(What::Metadata))
    }
}

/// Attributes of one entry that may be unreadable for its owner: then there are none to be seen.
fn xattrs_of(dir: BorrowedFd<'_>, name: &CStr) -> io::Result<crate::meta::Xattrs> {
    match xattrs(dir, Some(name)) {
        Err(e) if e.raw_os_error() == Some(libc::EACCES) => Ok(crate::meta::Xattrs::new()),
        other => other,
    }
}

/// Opens an entry to read it.
fn open_entry(dir: BorrowedFd<'_>, name: &CStr) -> io::Result<OwnedFd> {
    open_regular(dir, name, libc::O_RDONLY)
}
