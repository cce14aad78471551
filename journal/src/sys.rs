//! The few system calls that std does not offer, and the walks over hostile trees built on them.

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::stat::{Mode, SFlag, fstat, mknodat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use std::ffi::CStr;
use std::fs;
use std::io::{self, Read as _};
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

mod content;
mod tree;

pub(crate) use content::{
    content_size, copy, create_new, link, open_regular, read_small, reflink, regular_size, unlink,
};
pub(crate) use tree::{allocated, clear_volatile, remove_tree};

/// Fills `buffer` from the kernel's random source.
pub(crate) fn random(buffer: &mut [u8]) -> io::Result<()> {
    // SAFETY: getrandom(2) writes at most `len` bytes to the buffer, which is that long and writable.
    let got = unsafe { libc::getrandom(buffer.as_mut_ptr().cast(), buffer.len(), 0) };
    match usize::try_from(got) {
        Ok(n) if n == buffer.len() => Ok(()),
        Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

fn whole_file(kind: i32) -> libc::flock {
    libc::flock {
        l_type: i16::try_from(kind).expect("lock types are 0, 1 and 2"),
        l_whence: 0,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    }
}

/// Locks a file through its open file description, so that forked processes hold the lock too, without waiting.
pub(crate) fn lock(file: BorrowedFd<'_>, exclusive: bool) -> io::Result<()> {
    let kind = if exclusive {
        libc::F_WRLCK
    } else {
        libc::F_RDLCK
    };
    match fcntl(file, FcntlArg::F_OFD_SETLK(&whole_file(kind))) {
        Ok(_) => Ok(()),
        Err(Errno::EACCES | Errno::EAGAIN) => Err(io::ErrorKind::WouldBlock.into()),
        Err(errno) => Err(errno.into()),
    }
}

/// Gives a lock up for every process that shares the open file description.
pub(crate) fn unlock(file: BorrowedFd<'_>) -> io::Result<()> {
    Ok(fcntl(file, FcntlArg::F_OFD_SETLK(&whole_file(libc::F_UNLCK))).map(drop)?)
}

/// Whether another open file description holds the exclusive lock. Takes no lock itself, so it never gets in anyone's way.
pub(crate) fn is_locked_exclusively(file: BorrowedFd<'_>) -> io::Result<bool> {
    let mut question = whole_file(libc::F_RDLCK);
    fcntl(file, FcntlArg::F_OFD_GETLK(&mut question))?;
    Ok(i32::from(question.l_type) != libc::F_UNLCK)
}

/// Locks a file exclusively and waits for it.
pub(crate) fn lock_waiting(file: BorrowedFd<'_>) -> io::Result<()> {
    loop {
        match fcntl(file, FcntlArg::F_OFD_SETLKW(&whole_file(libc::F_WRLCK))) {
            Ok(_) => return Ok(()),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Whether `path` (not followed) still names the open file.
pub(crate) fn same_file(file: BorrowedFd<'_>, path: &Path) -> io::Result<bool> {
    let open = fstat(file)?;
    let named = match fs::symlink_metadata(path) {
        Ok(named) => named,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(e) => return Err(e),
    };
    Ok(open.st_dev == named.dev() && open.st_ino == named.ino())
}

/// Reads a regular file of at most `limit` bytes; `None` when it is something else or larger. Never blocks on a FIFO.
pub(crate) fn read_regular(path: &Path, limit: u64) -> io::Result<Option<Vec<u8>>> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = match fs::OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)
    {
        Err(e)
            if e.raw_os_error() == Some(libc::ELOOP) || e.raw_os_error() == Some(libc::ENXIO) =>
        {
            return Ok(None);
        }
        other => other?,
    };
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.len() > limit {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= limit).then_some(bytes))
}

/// Brings everything on the filesystem of a directory to disk.
pub(crate) fn sync_filesystem(dir: &Path) -> io::Result<()> {
    Ok(nix::unistd::syncfs(fs::File::open(dir)?)?)
}

/// What a filesystem says about itself.
pub(crate) struct Filesystem {
    /// Its magic number.
    pub(crate) magic: i64,
    /// Bytes an ordinary user can still write.
    pub(crate) free_bytes: u64,
    /// Files that can still be made; `None` when it has no such limit.
    pub(crate) free_inodes: Option<u64>,
}

pub(crate) fn filesystem(file: BorrowedFd<'_>) -> io::Result<Filesystem> {
    let s = nix::sys::statfs::fstatfs(file)?;
    let unit = u64::try_from(s.block_size()).unwrap_or(0);
    Ok(Filesystem {
        magic: s.filesystem_type().0,
        free_bytes: s.blocks_available().saturating_mul(unit),
        free_inodes: (s.files() > 0).then(|| s.files_free()),
    })
}

/// Sets an extended attribute of an open file and reads it back.
pub(crate) fn try_xattr(file: BorrowedFd<'_>, name: &CStr, value: &[u8]) -> io::Result<bool> {
    // SAFETY: fsetxattr(2) reads the NUL-terminated name and `len` bytes of the value; both live across the call.
    let set = unsafe {
        libc::fsetxattr(
            file.as_raw_fd(),
            name.as_ptr(),
            value.as_ptr().cast(),
            value.len(),
            0,
        )
    };
    if set != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut back = vec![0_u8; value.len() + 1];
    // SAFETY: fgetxattr(2) writes at most `back.len()` bytes to `back`.
    let got = unsafe {
        libc::fgetxattr(
            file.as_raw_fd(),
            name.as_ptr(),
            back.as_mut_ptr().cast(),
            back.len(),
        )
    };
    let got = usize::try_from(got).map_err(|_| io::Error::last_os_error())?;
    Ok(back.get(..got) == Some(value))
}

/// Makes a whiteout (a character device 0:0) named `name`, and removes it again.
pub(crate) fn try_whiteout(dir: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
    mknodat(dir, name, SFlag::S_IFCHR, Mode::empty(), 0)?;
    unlinkat(dir, name, UnlinkatFlags::NoRemoveDir)?;
    Ok(())
}
