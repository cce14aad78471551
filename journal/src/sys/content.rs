//! Keeping the content of files.

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::{Mode, fstat, fstatat};
use nix::sys::uio::pread;
use nix::unistd::{LinkatFlags, UnlinkatFlags, linkat, unlinkat};
use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::os::unix::fs::FileExt as _;

const CHUNK: usize = 256 << 10;

fn is_regular(mode: u32) -> bool {
    mode & libc::S_IFMT == libc::S_IFREG
}

/// Gives `name` in `dir` a second name, without following it when it is a symbolic link.
pub(crate) fn link(
    dir: BorrowedFd<'_>,
    name: &CStr,
    to: BorrowedFd<'_>,
    new: &CStr,
) -> io::Result<()> {
    Ok(linkat(dir, name, to, new, LinkatFlags::empty())?)
}

pub(crate) fn unlink(dir: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
    Ok(unlinkat(dir, name, UnlinkatFlags::NoRemoveDir)?)
}

/// The size of a regular file; `None` when it is something else.
pub(crate) fn regular_size(dir: BorrowedFd<'_>, name: &CStr) -> io::Result<Option<u64>> {
    let stat = fstatat(dir, name, AtFlags::AT_SYMLINK_NOFOLLOW)?;
    Ok(is_regular(stat.st_mode).then_some(u64::try_from(stat.st_size).unwrap_or(0)))
}

/// Opens a regular file for reading. Neither follows a symbolic link nor waits for a FIFO.
pub(crate) fn open_regular(dir: BorrowedFd<'_>, name: &CStr) -> io::Result<File> {
    let flags = OFlag::O_RDONLY
        | OFlag::O_NOFOLLOW
        | OFlag::O_NONBLOCK
        | OFlag::O_NOCTTY
        | OFlag::O_CLOEXEC;
    let file = File::from(openat(dir, name, flags, Mode::empty())?);
    if !is_regular(fstat(&file)?.st_mode) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    Ok(file)
}

/// Makes a file that nobody but its owner can read.
pub(crate) fn create_new(dir: BorrowedFd<'_>, name: &CStr) -> io::Result<File> {
    let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
    Ok(openat(dir, name, flags, Mode::S_IRUSR | Mode::S_IWUSR)?.into())
}

/// The size of an open regular file, and whether it has holes.
pub(crate) fn content_size(file: BorrowedFd<'_>) -> io::Result<(u64, bool)> {
    let stat = fstat(file)?;
    if !is_regular(stat.st_mode) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    Ok((
        u64::try_from(stat.st_size).unwrap_or(0),
        stat.st_blocks.saturating_mul(512) < stat.st_size,
    ))
}

/// Makes the target share the blocks of the source (btrfs, xfs, bcachefs).
pub(crate) fn reflink(source: BorrowedFd<'_>, target: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: FICLONE takes the source's descriptor as its argument; both are open for the whole call.
    let done = unsafe { libc::ioctl(target.as_raw_fd(), libc::FICLONE, source.as_raw_fd()) };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// The first `size` bytes of a file, or what there is. The offset is not moved.
pub(crate) fn read_small(file: BorrowedFd<'_>, size: u64) -> io::Result<Vec<u8>> {
    let mut content = vec![0; usize::try_from(size).map_err(io::Error::other)?];
    let mut done = 0;
    while done < content.len() {
        let offset = i64::try_from(done).map_err(io::Error::other)?;
        match pread(file, &mut content[done..], offset) {
            Ok(0) => break,
            Ok(got) => done += got,
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    content.truncate(done);
    Ok(content)
}

/// Copies up to `size` bytes into an empty file and says how many there were. The source's offset is not moved.
pub(crate) fn copy(
    source: BorrowedFd<'_>,
    target: &File,
    size: u64,
    sparse: bool,
) -> io::Result<u64> {
    if sparse {
        return copy_by_hand(source, target, 0, size);
    }
    let mut done = 0;
    while done < size {
        let mut from = i64::try_from(done).map_err(io::Error::other)?;
        let mut to = from;
        let len = usize::try_from(size - done)
            .unwrap_or(usize::MAX)
            .min(1 << 30);
        // SAFETY: copy_file_range(2) reads and writes the two offsets, which live across the call.
        let copied = unsafe {
            libc::copy_file_range(
                source.as_raw_fd(),
                &raw mut from,
                target.as_raw_fd(),
                &raw mut to,
                len,
                0,
            )
        };
        match usize::try_from(copied).map_err(|_| Errno::last()) {
            // The source is shorter than it was, or its filesystem makes it up while it is read.
            Ok(0) => return copy_by_hand(source, target, done, size),
            Ok(n) => done += n as u64,
            Err(Errno::EINTR) => {}
            Err(Errno::EXDEV | Errno::EINVAL | Errno::EOPNOTSUPP | Errno::ENOSYS) => {
                return copy_by_hand(source, target, done, size);
            }
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(done)
}

/// Reads and writes, from offset `done` on, and leaves out what is nothing but zeros.
fn copy_by_hand(
    source: BorrowedFd<'_>,
    target: &File,
    mut done: u64,
    size: u64,
) -> io::Result<u64> {
    let mut buffer = vec![0; CHUNK];
    while done < size {
        let want = usize::try_from(size - done).unwrap_or(CHUNK).min(CHUNK);
        let offset = i64::try_from(done).map_err(io::Error::other)?;
        let got = match pread(source, &mut buffer[..want], offset) {
            Ok(0) => break,
            Ok(got) => got,
            Err(Errno::EINTR) => continue,
            Err(errno) => return Err(errno.into()),
        };
        if buffer[..got].iter().any(|byte| *byte != 0) {
            target.write_all_at(&buffer[..got], done)?;
        }
        done += got as u64;
    }
    target.set_len(done)?;
    Ok(done)
}
