//! System calls the supervisor makes: thin, safe, and each with the error number the kernel gave.

mod process;

use effigy_journal::{Kind, Stat, Timestamp};
use libc::{c_int, c_uint};
use std::ffi::CStr;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// A positive error number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) i32);

impl From<io::Error> for Errno {
    fn from(error: io::Error) -> Self {
        Self(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

pub(crate) use process::*;

pub(crate) type Result<T> = std::result::Result<T, Errno>;

/// -1 into the calling thread's error number.
pub(crate) fn check(result: i64) -> io::Result<i64> {
    if result == -1 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

fn errno(result: c_int) -> Result<c_int> {
    if result == -1 {
        Err(Errno(last()))
    } else {
        Ok(result)
    }
}

fn last() -> i32 {
    // SAFETY: the location of errno is this thread's own and always valid.
    unsafe { *libc::__errno_location() }
}

fn errno_long(result: libc::c_long) -> Result<libc::c_long> {
    if result == -1 {
        Err(Errno(last()))
    } else {
        Ok(result)
    }
}

fn unit(result: c_int) -> Result<()> {
    errno(result).map(drop)
}

/// The working directory, for calls that take a directory descriptor.
// SAFETY: AT_FDCWD is not a descriptor that could be closed, and not -1; every *at call understands it.
pub(crate) const CWD: BorrowedFd<'static> = unsafe { BorrowedFd::borrow_raw(libc::AT_FDCWD) };

/// A new descriptor, from a call that succeeded.
fn own(fd: c_int) -> OwnedFd {
    // SAFETY: every caller passes the result of a successful call that returns a new descriptor.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

pub(crate) fn openat(
    dir: BorrowedFd<'_>,
    path: &CStr,
    flags: c_int,
    mode: c_uint,
) -> Result<OwnedFd> {
    // SAFETY: `path` is NUL-terminated and alive.
    errno(unsafe {
        libc::openat(
            dir.as_raw_fd(),
            path.as_ptr(),
            flags | libc::O_CLOEXEC,
            mode,
        )
    })
    .map(own)
}

/// openat2(2) with O_PATH, never through a magic link. `in_root` makes `dir` the root of the walk.
pub(crate) fn walk(
    dir: BorrowedFd<'_>,
    path: &CStr,
    flags: c_int,
    in_root: bool,
) -> Result<OwnedFd> {
    // SAFETY: open_how consists of plain numbers.
    let mut how: libc::open_how = unsafe { mem::zeroed() };
    how.flags = u64::from((libc::O_PATH | libc::O_CLOEXEC | flags).cast_unsigned());
    how.resolve = libc::RESOLVE_NO_MAGICLINKS | if in_root { libc::RESOLVE_IN_ROOT } else { 0 };
    // SAFETY: `path` is NUL-terminated, `how` is alive and its size is given.
    let fd = errno_long(unsafe {
        libc::syscall(
            libc::SYS_openat2,
            dir.as_raw_fd(),
            path.as_ptr(),
            &raw const how,
            mem::size_of::<libc::open_how>(),
        )
    })?;
    Ok(own(c_int::try_from(fd).map_err(|_| Errno(libc::EBADF))?))
}

/// What statx(2) told, with the mount it was seen through.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub(crate) stat: Stat,
    pub(crate) mount: u64,
}

impl Seen {
    /// Whether both are the same object seen through the same mount.
    pub(crate) fn same(&self, other: &Self) -> bool {
        self.stat.ino == other.stat.ino
            && self.stat.dev == other.stat.dev
            && self.mount == other.mount
    }

    pub(crate) fn kind(&self) -> Kind {
        self.stat.kind
    }
}

pub(crate) fn statx(dir: BorrowedFd<'_>, path: &CStr, flags: c_int) -> Result<Seen> {
    // SAFETY: statx consists of plain numbers.
    let mut raw: libc::statx = unsafe { mem::zeroed() };
    let mask = libc::STATX_BASIC_STATS | libc::STATX_MNT_ID;
    // SAFETY: `path` is NUL-terminated and `raw` is a whole struct statx.
    unit(unsafe {
        libc::statx(
            dir.as_raw_fd(),
            path.as_ptr(),
            flags | libc::AT_NO_AUTOMOUNT,
            mask,
            &raw mut raw,
        )
    })?;
    let time = |t: libc::statx_timestamp| Timestamp::from_parts(t.tv_sec, t.tv_nsec);
    let mode = u32::from(raw.stx_mode);
    let kind = Kind::of_mode(mode).unwrap_or(Kind::File);
    let device = matches!(kind, Kind::CharDevice | Kind::BlockDevice);
    Ok(Seen {
        stat: Stat {
            kind,
            dev: libc::makedev(raw.stx_dev_major, raw.stx_dev_minor),
            ino: raw.stx_ino,
            size: raw.stx_size,
            mtime: time(raw.stx_mtime),
            ctime: time(raw.stx_ctime),
            mode: mode & 0o7777,
            uid: raw.stx_uid,
            gid: raw.stx_gid,
            nlink: raw.stx_nlink,
            rdev: if device {
                libc::makedev(raw.stx_rdev_major, raw.stx_rdev_minor)
            } else {
                0
            },
        },
        mount: raw.stx_mnt_id,
    })
}

/// statx(2) of the object behind a descriptor.
pub(crate) fn stat_fd(fd: BorrowedFd<'_>) -> Result<Seen> {
    statx(fd, c"", libc::AT_EMPTY_PATH)
}

/// The filesystem's magic number behind a descriptor.
pub(crate) fn fs_magic(fd: BorrowedFd<'_>) -> Result<i64> {
    // SAFETY: statfs consists of plain numbers.
    let mut raw: libc::statfs = unsafe { mem::zeroed() };
    // SAFETY: `raw` is a whole struct statfs.
    unit(unsafe { libc::fstatfs(fd.as_raw_fd(), &raw mut raw) })?;
    #[expect(
        clippy::useless_conversion,
        reason = "the type differs between machines"
    )]
    Ok(i64::from(raw.f_type))
}

/// Whether nothing can be changed through the mount of a descriptor, or on its whole filesystem.
pub(crate) fn is_read_only(fd: BorrowedFd<'_>) -> bool {
    // SAFETY: statvfs consists of plain numbers.
    let mut raw: libc::statvfs = unsafe { mem::zeroed() };
    // SAFETY: `raw` is a whole struct statvfs.
    let done = unit(unsafe { libc::fstatvfs(fd.as_raw_fd(), &raw mut raw) });
    done.is_ok() && raw.f_flag & libc::ST_RDONLY != 0
}

/// The target of a symbolic link; an empty path means the link behind `dir`.
pub(crate) fn readlinkat(dir: BorrowedFd<'_>, path: &CStr, into: &mut Vec<u8>) -> Result<()> {
    into.clear();
    into.resize(4096, 0);
    // SAFETY: at most `into.len()` bytes are written.
    let got = unsafe {
        libc::readlinkat(
            dir.as_raw_fd(),
            path.as_ptr(),
            into.as_mut_ptr().cast(),
            into.len(),
        )
    };
    match usize::try_from(got) {
        Ok(got) => {
            into.truncate(got);
            Ok(())
        }
        Err(_) => Err(Errno::from(io::Error::last_os_error())),
    }
}

/// What a file of /proc says that is made when it is read: what is not as long as asked for is all.
pub(crate) fn read_at_once(fd: OwnedFd) -> Result<Vec<u8>> {
    use std::io::Read as _;
    let mut file = std::fs::File::from(fd);
    let mut text = vec![0; 4096];
    let mut len = 0;
    loop {
        match file.read(&mut text[len..]) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
            Ok(got) if len + got == text.len() => {
                len = text.len();
                text.resize(2 * len, 0);
            }
            Ok(got) => {
                text.truncate(len + got);
                return Ok(text);
            }
        }
    }
}

pub(crate) fn mkdirat(dir: BorrowedFd<'_>, name: &CStr, mode: u32) -> Result<()> {
    // SAFETY: `name` is NUL-terminated.
    unit(unsafe { libc::mkdirat(dir.as_raw_fd(), name.as_ptr(), mode) })
}

pub(crate) fn unlinkat(dir: BorrowedFd<'_>, name: &CStr, flags: c_int) -> Result<()> {
    // SAFETY: `name` is NUL-terminated.
    unit(unsafe { libc::unlinkat(dir.as_raw_fd(), name.as_ptr(), flags) })
}

pub(crate) fn renameat2(
    a: BorrowedFd<'_>,
    from: &CStr,
    b: BorrowedFd<'_>,
    to: &CStr,
    flags: u32,
) -> Result<()> {
    // SAFETY: both names are NUL-terminated.
    unit(unsafe {
        libc::renameat2(
            a.as_raw_fd(),
            from.as_ptr(),
            b.as_raw_fd(),
            to.as_ptr(),
            flags,
        )
    })
}

pub(crate) fn linkat(
    a: BorrowedFd<'_>,
    from: &CStr,
    b: BorrowedFd<'_>,
    to: &CStr,
    flags: c_int,
) -> Result<()> {
    // SAFETY: both names are NUL-terminated.
    unit(unsafe {
        libc::linkat(
            a.as_raw_fd(),
            from.as_ptr(),
            b.as_raw_fd(),
            to.as_ptr(),
            flags,
        )
    })
}

pub(crate) fn symlinkat(target: &CStr, dir: BorrowedFd<'_>, name: &CStr) -> Result<()> {
    // SAFETY: both strings are NUL-terminated.
    unit(unsafe { libc::symlinkat(target.as_ptr(), dir.as_raw_fd(), name.as_ptr()) })
}

pub(crate) fn mknodat(dir: BorrowedFd<'_>, name: &CStr, mode: u32, dev: u64) -> Result<()> {
    // SAFETY: `name` is NUL-terminated.
    unit(unsafe { libc::mknodat(dir.as_raw_fd(), name.as_ptr(), mode, dev) })
}

/// fchmodat(2): follows a symbolic link at the end.
pub(crate) fn chmod(dir: BorrowedFd<'_>, name: &CStr, mode: u32) -> Result<()> {
    // SAFETY: `name` is NUL-terminated. The system call has no flags; the C library's would emulate some.
    errno_long(unsafe { libc::syscall(libc::SYS_fchmodat, dir.as_raw_fd(), name.as_ptr(), mode) })
        .map(drop)
}

/// fchmodat2(2) (6.6).
pub(crate) fn fchmodat2(dir: BorrowedFd<'_>, name: &CStr, mode: u32, flags: u32) -> Result<()> {
    const SYS_FCHMODAT2: libc::c_long = 452;
    // SAFETY: `name` is NUL-terminated.
    errno_long(unsafe { libc::syscall(SYS_FCHMODAT2, dir.as_raw_fd(), name.as_ptr(), mode, flags) })
        .map(drop)
}

pub(crate) fn fchownat(
    dir: BorrowedFd<'_>,
    name: &CStr,
    uid: u32,
    gid: u32,
    flags: c_int,
) -> Result<()> {
    // SAFETY: `name` is NUL-terminated.
    unit(unsafe { libc::fchownat(dir.as_raw_fd(), name.as_ptr(), uid, gid, flags) })
}

pub(crate) fn utimensat(
    dir: BorrowedFd<'_>,
    name: &CStr,
    times: Option<&[libc::timespec; 2]>,
    flags: c_int,
) -> Result<()> {
    let times = times.map_or(std::ptr::null(), |times| times.as_ptr());
    // SAFETY: `name` is NUL-terminated; `times` is null or points to two timespecs.
    unit(unsafe { libc::utimensat(dir.as_raw_fd(), name.as_ptr(), times, flags) })
}

pub(crate) fn truncate(path: &CStr, len: i64) -> Result<()> {
    // SAFETY: `path` is NUL-terminated.
    unit(unsafe { libc::truncate(path.as_ptr(), len) })
}

pub(crate) fn setxattr(
    path: &CStr,
    name: &CStr,
    value: &[u8],
    flags: c_int,
    follow: bool,
) -> Result<()> {
    let call = if follow {
        libc::setxattr
    } else {
        libc::lsetxattr
    };
    // SAFETY: both strings are NUL-terminated; `value` is as long as said.
    unit(unsafe {
        call(
            path.as_ptr(),
            name.as_ptr(),
            value.as_ptr().cast(),
            value.len(),
            flags,
        )
    })
}

pub(crate) fn removexattr(path: &CStr, name: &CStr, follow: bool) -> Result<()> {
    let call = if follow {
        libc::removexattr
    } else {
        libc::lremovexattr
    };
    // SAFETY: both strings are NUL-terminated.
    unit(unsafe { call(path.as_ptr(), name.as_ptr()) })
}

/// Names of the extended attributes of the object behind a path, NUL-separated.
pub(crate) fn listxattr(path: &CStr, follow: bool) -> Result<Vec<u8>> {
    let call = if follow {
        libc::listxattr
    } else {
        libc::llistxattr
    };
    let mut names = vec![0u8; 65536];
    // SAFETY: at most `names.len()` bytes are written.
    let got = unsafe { call(path.as_ptr(), names.as_mut_ptr().cast(), names.len()) };
    names.truncate(usize::try_from(got).map_err(|_| Errno::from(io::Error::last_os_error()))?);
    Ok(names)
}

pub(crate) fn getxattr(path: &CStr, name: &CStr, follow: bool) -> Result<Vec<u8>> {
    let call = if follow {
        libc::getxattr
    } else {
        libc::lgetxattr
    };
    let mut value = vec![0u8; 65536];
    // SAFETY: at most `value.len()` bytes are written.
    let got = unsafe {
        call(
            path.as_ptr(),
            name.as_ptr(),
            value.as_mut_ptr().cast(),
            value.len(),
        )
    };
    value.truncate(usize::try_from(got).map_err(|_| Errno::from(io::Error::last_os_error()))?);
    Ok(value)
}

/// faccessat2(2) with the effective ids.
pub(crate) fn access(dir: BorrowedFd<'_>, name: &CStr, mode: c_int, flags: c_int) -> Result<()> {
    // SAFETY: `name` is NUL-terminated.
    errno_long(unsafe {
        libc::syscall(
            libc::SYS_faccessat2,
            dir.as_raw_fd(),
            name.as_ptr(),
            mode,
            flags | libc::AT_EACCESS,
        )
    })
    .map(drop)
}

pub(crate) fn umask(mask: u32) -> u32 {
    // SAFETY: umask(2) takes and gives plain numbers.
    unsafe { libc::umask(mask) }
}

/// Gives the calling thread its own working directory, root and umask.
pub(crate) fn unshare_fs() -> io::Result<()> {
    // SAFETY: unshare(2) takes plain flags.
    check(i64::from(unsafe { libc::unshare(libc::CLONE_FS) })).map(drop)
}

pub(crate) fn fchdir(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: plain numbers.
    check(i64::from(unsafe { libc::fchdir(fd.as_raw_fd()) })).map(drop)
}
