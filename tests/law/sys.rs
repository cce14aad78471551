//! The calls of a random program, and its processes.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};

/// The result of a call that answers -1 and errno.
fn done(result: libc::c_int) -> io::Result<libc::c_int> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        other => Ok(other),
    }
}

fn c(bytes: &[u8]) -> CString {
    CString::new(bytes).expect("names and attributes have no NUL in them")
}

pub(super) fn open(dir: RawFd, path: &[u8], flags: i32, mode: u32) -> io::Result<OwnedFd> {
    // SAFETY: the path is NUL-terminated; the descriptor that openat(2) answers with is new and owned by nobody else.
    unsafe {
        let fd = done(libc::openat(
            dir,
            c(path).as_ptr(),
            flags | libc::O_CLOEXEC,
            mode,
        ))?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

macro_rules! at_calls {
    ($($(#[$doc:meta])* $name:ident($($argument:ident: $type:ty),*) = $call:expr;)*) => {
        $($(#[$doc])* pub(super) fn $name($($argument: $type),*) -> io::Result<()> {
            // SAFETY: every path and name is NUL-terminated, and pointers are only read by the kernel.
            done(unsafe { $call }).map(drop)
        })*
    };
}

at_calls! {
    mkdir(dir: RawFd, path: &[u8], mode: u32) = libc::mkdirat(dir, c(path).as_ptr(), mode);
    unlink(dir: RawFd, path: &[u8], flags: i32) = libc::unlinkat(dir, c(path).as_ptr(), flags);
    rename(one: (RawFd, &[u8]), other: (RawFd, &[u8]), flags: u32) =
        libc::renameat2(one.0, c(one.1).as_ptr(), other.0, c(other.1).as_ptr(), flags);
    link(one: (RawFd, &[u8]), other: (RawFd, &[u8]), flags: i32) =
        libc::linkat(one.0, c(one.1).as_ptr(), other.0, c(other.1).as_ptr(), flags);
    symlink(target: &[u8], dir: RawFd, path: &[u8]) = libc::symlinkat(c(target).as_ptr(), dir, c(path).as_ptr());
    mknod(dir: RawFd, path: &[u8], mode: u32) = libc::mknodat(dir, c(path).as_ptr(), mode, 0);
    truncate(path: &[u8], len: u32) = libc::truncate(c(path).as_ptr(), len.into());
    chmod(dir: RawFd, path: &[u8], mode: u32) = libc::fchmodat(dir, c(path).as_ptr(), mode, 0);
    chown(dir: RawFd, path: &[u8], uid: u32, gid: u32, flags: i32) =
        libc::fchownat(dir, c(path).as_ptr(), uid, gid, flags);
    /// Sets the time of the last modification, in nanoseconds.
    utimens(dir: RawFd, path: &[u8], time: i64, flags: i32) = {
        let omit = libc::timespec { tv_sec: 0, tv_nsec: libc::UTIME_OMIT };
        let time = libc::timespec { tv_sec: time / 1_000_000_000, tv_nsec: time % 1_000_000_000 };
        libc::utimensat(dir, c(path).as_ptr(), [omit, time].as_ptr(), flags)
    };
    setxattr(path: &[u8], name: &[u8], value: &[u8]) =
        libc::setxattr(c(path).as_ptr(), c(name).as_ptr(), value.as_ptr().cast(), value.len(), 0);
    removexattr(path: &[u8], name: &[u8]) = libc::removexattr(c(path).as_ptr(), c(name).as_ptr());
    fsetxattr(fd: RawFd, name: &[u8], value: &[u8]) =
        libc::fsetxattr(fd, c(name).as_ptr(), value.as_ptr().cast(), value.len(), 0);
    ftruncate(fd: RawFd, len: u32) = libc::ftruncate(fd, len.into());
    fallocate(fd: RawFd, mode: i32, at: u32, len: u32) = libc::fallocate(fd, mode, at.into(), len.into());
    fchmod(fd: RawFd, mode: u32) = libc::fchmod(fd, mode);
    fchdir(fd: RawFd) = libc::fchdir(fd);
    chdir(path: &[u8]) = libc::chdir(c(path).as_ptr());
}

pub(super) fn umask(mode: u32) {
    // SAFETY: umask(2) takes a number and cannot fail.
    unsafe { libc::umask(mode) };
}

/// Writes a byte through a shared mapping of the file's first page.
pub(super) fn map(fd: BorrowedFd<'_>, at: usize, byte: u8) -> io::Result<()> {
    let flags = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping at a place of the kernel's choice; what is written lies within its one page, and within the file,
    // which the caller has made sure of and which nobody cuts meanwhile; it is unmapped and not used again.
    unsafe {
        let page = libc::mmap(
            std::ptr::null_mut(),
            4096,
            flags,
            libc::MAP_SHARED,
            fd.as_raw_fd(),
            0,
        );
        if page == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        page.cast::<u8>().add(at % 4096).write_volatile(byte);
        done(libc::munmap(page, 4096)).map(drop)
    }
}

/// A child process that runs `work` and ends. Returns its number.
pub(super) fn fork(work: impl FnOnce()) -> io::Result<i32> {
    // SAFETY: the calling process has one thread that does anything; the child goes on with that one and leaves by _exit(2).
    unsafe {
        let pid = done(libc::fork())?;
        if pid == 0 {
            work();
            libc::_exit(0);
        }
        Ok(pid)
    }
}

pub(super) fn wait(pid: i32) {
    // SAFETY: waitpid(2) may be given no place for the status.
    unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
}
