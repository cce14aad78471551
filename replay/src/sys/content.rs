//! Content of files: shared blocks, copies in the kernel, holes.

use super::{check, length};
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

/// FICLONE: makes `to` share all of `from`'s blocks.
pub(crate) fn clone_file(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: FICLONE takes a descriptor by value.
    check(unsafe { libc::ioctl(to.as_raw_fd(), libc::FICLONE, from.as_raw_fd()) })
}

/// copy_file_range(2) at the same offset of both files: bytes copied, 0 at the end.
pub(crate) fn copy_range(
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    offset: i64,
    len: usize,
) -> io::Result<usize> {
    let (mut source, mut target) = (offset, offset);
    // SAFETY: copy_file_range(2) reads and writes the two offsets, which outlive the call.
    length(unsafe {
        libc::copy_file_range(
            from.as_raw_fd(),
            &raw mut source,
            to.as_raw_fd(),
            &raw mut target,
            len,
            0,
        )
    })
}

/// The next offset at or after `offset` with data (or in a hole); `None` behind the last.
pub(crate) fn seek(fd: BorrowedFd<'_>, offset: i64, data: bool) -> io::Result<Option<i64>> {
    let whence = if data {
        libc::SEEK_DATA
    } else {
        libc::SEEK_HOLE
    };
    // SAFETY: lseek(2) takes integers only.
    let at = unsafe { libc::lseek(fd.as_raw_fd(), offset, whence) };
    if at >= 0 {
        return Ok(Some(at));
    }
    let error = io::Error::last_os_error();
    if error.raw_os_error() == Some(libc::ENXIO) {
        Ok(None)
    } else {
        Err(error)
    }
}
