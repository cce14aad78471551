//! Comparing two files.

use super::{open_entry, xattrs_of};
use crate::node::Node;
use crate::root::pin;
use crate::sys;
use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, BorrowedFd};

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
