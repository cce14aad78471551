//! The system calls that neither the standard library nor nix offer in the form needed here.

use crate::node::{FileType, Node, Time};
use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;

mod content;
mod xattr;

pub(crate) use content::{clone_file, copy_range, seek};
pub(crate) use xattr::{get_xattr, list_xattrs, remove_xattr, set_xattr};

/// The `resolve` of every walk: never leave the root, never follow a link of any kind, never enter another mount.
pub(crate) const CONFINED: u64 = libc::RESOLVE_BENEATH
    | libc::RESOLVE_NO_SYMLINKS
    | libc::RESOLVE_NO_MAGICLINKS
    | libc::RESOLVE_NO_XDEV;

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn length(result: libc::ssize_t) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Makes the argument of a call out of a path's bytes.
pub(crate) fn cstring(bytes: &[u8]) -> io::Result<CString> {
    CString::new(bytes).map_err(|_| io::ErrorKind::InvalidInput.into())
}

/// The name of an open descriptor in /proc: following it leads to exactly that file, also an `O_PATH` symlink itself.
fn proc_name(fd: BorrowedFd<'_>, leaf: Option<&CStr>) -> io::Result<CString> {
    use std::io::Write as _;
    let mut name = Vec::with_capacity(48);
    write!(name, "/proc/self/fd/{}", fd.as_raw_fd())?;
    if let Some(leaf) = leaf {
        name.push(b'/');
        name.extend_from_slice(leaf.to_bytes());
    }
    cstring(&name)
}

/// openat2(2). Asked again while a rename elsewhere makes the kernel unsure (EAGAIN).
pub(crate) fn openat2(
    dir: BorrowedFd<'_>,
    path: &CStr,
    flags: i32,
    resolve: u64,
) -> io::Result<OwnedFd> {
    // SAFETY: open_how is plain integers, for which zero is a value.
    let mut how: libc::open_how = unsafe { MaybeUninit::zeroed().assume_init() };
    how.flags = u64::from((flags | libc::O_CLOEXEC).cast_unsigned());
    how.resolve = resolve;
    for _ in 0..1000 {
        // SAFETY: openat2(2) reads a NUL-terminated path and size_of(open_how) bytes; both outlive the call.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_openat2,
                dir.as_raw_fd(),
                path.as_ptr(),
                &raw const how,
                size_of::<libc::open_how>(),
            )
        };
        if fd >= 0 {
            let fd = i32::try_from(fd).map_err(|_| io::Error::from_raw_os_error(libc::EBADF))?;
            // SAFETY: the kernel has just made this descriptor for us; nobody else owns it.
            return Ok(unsafe { OwnedFd::from_raw_fd(fd) });
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EAGAIN) {
            return Err(error);
        }
    }
    Err(io::Error::from_raw_os_error(libc::EAGAIN))
}

/// openat(2) with a mode.
pub(crate) fn openat(
    dir: BorrowedFd<'_>,
    path: &CStr,
    flags: i32,
    mode: u32,
) -> io::Result<OwnedFd> {
    // SAFETY: openat(2) reads a NUL-terminated path that outlives the call.
    let fd = unsafe {
        libc::openat(
            dir.as_raw_fd(),
            path.as_ptr(),
            flags | libc::O_CLOEXEC,
            mode,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor for us; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// statx(2) of `path` below `dir` without following a final link; the empty path is `dir` itself.
pub(crate) fn stat(dir: BorrowedFd<'_>, path: &CStr) -> io::Result<Node> {
    let mut buffer = MaybeUninit::<libc::statx>::zeroed();
    let flags = libc::AT_SYMLINK_NOFOLLOW | libc::AT_NO_AUTOMOUNT | libc::AT_EMPTY_PATH;
    let mask = libc::STATX_BASIC_STATS | libc::STATX_BTIME | libc::STATX_MNT_ID;
    // SAFETY: statx(2) reads a NUL-terminated path and writes one struct statx.
    check(unsafe {
        libc::statx(
            dir.as_raw_fd(),
            path.as_ptr(),
            flags,
            mask,
            buffer.as_mut_ptr(),
        )
    })?;
    // SAFETY: zeroed before, and filled by the kernel: plain integers either way.
    let s = unsafe { buffer.assume_init() };
    let mode = u32::from(s.stx_mode);
    let time = |t: libc::statx_timestamp| Time {
        sec: t.tv_sec,
        nsec: t.tv_nsec,
    };
    Ok(Node {
        kind: FileType::from_mode(mode),
        mode: mode & 0o7777,
        uid: s.stx_uid,
        gid: s.stx_gid,
        size: s.stx_size,
        mtime: time(s.stx_mtime),
        ctime: time(s.stx_ctime),
        ino: s.stx_ino,
        birth: if s.stx_mask & libc::STATX_BTIME == 0 {
            Time::default()
        } else {
            time(s.stx_btime)
        },
        dev: (s.stx_dev_major, s.stx_dev_minor),
        rdev: (s.stx_rdev_major, s.stx_rdev_minor),
        nlink: s.stx_nlink,
        attributes: s.stx_attributes & s.stx_attributes_mask,
        mount: s.stx_mnt_id,
    })
}

/// renameat2(2).
pub(crate) fn rename(
    from: BorrowedFd<'_>,
    old: &CStr,
    to: BorrowedFd<'_>,
    new: &CStr,
    flags: libc::c_uint,
) -> io::Result<()> {
    // SAFETY: renameat2(2) reads two NUL-terminated paths that outlive the call.
    check(unsafe {
        libc::renameat2(
            from.as_raw_fd(),
            old.as_ptr(),
            to.as_raw_fd(),
            new.as_ptr(),
            flags,
        )
    })
}

/// linkat(2) without following.
pub(crate) fn link(
    from: BorrowedFd<'_>,
    old: &CStr,
    to: BorrowedFd<'_>,
    new: &CStr,
) -> io::Result<()> {
    // SAFETY: linkat(2) reads two NUL-terminated paths that outlive the call.
    check(unsafe {
        libc::linkat(
            from.as_raw_fd(),
            old.as_ptr(),
            to.as_raw_fd(),
            new.as_ptr(),
            0,
        )
    })
}

/// symlinkat(2).
pub(crate) fn symlink(target: &CStr, dir: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
    // SAFETY: symlinkat(2) reads two NUL-terminated paths that outlive the call.
    check(unsafe { libc::symlinkat(target.as_ptr(), dir.as_raw_fd(), name.as_ptr()) })
}

/// mkdirat(2).
pub(crate) fn mkdir(dir: BorrowedFd<'_>, name: &CStr, mode: u32) -> io::Result<()> {
    // SAFETY: mkdirat(2) reads a NUL-terminated path that outlives the call.
    check(unsafe { libc::mkdirat(dir.as_raw_fd(), name.as_ptr(), mode) })
}

/// mknodat(2); `mode` holds the type.
pub(crate) fn mknod(
    dir: BorrowedFd<'_>,
    name: &CStr,
    mode: u32,
    rdev: (u32, u32),
) -> io::Result<()> {
    let device = libc::makedev(rdev.0, rdev.1);
    // SAFETY: mknodat(2) reads a NUL-terminated path that outlives the call.
    check(unsafe { libc::mknodat(dir.as_raw_fd(), name.as_ptr(), mode, device) })
}

/// unlinkat(2) of a directory or of anything else.
pub(crate) fn unlink(dir: BorrowedFd<'_>, name: &CStr, directory: bool) -> io::Result<()> {
    let flags = if directory { libc::AT_REMOVEDIR } else { 0 };
    // SAFETY: unlinkat(2) reads a NUL-terminated path that outlives the call.
    check(unsafe { libc::unlinkat(dir.as_raw_fd(), name.as_ptr(), flags) })
}

/// readlinkat(2); the empty name reads the link that `dir` itself is.
pub(crate) fn readlink(dir: BorrowedFd<'_>, name: &CStr) -> io::Result<Vec<u8>> {
    let mut target = vec![0; 4096];
    // SAFETY: readlinkat(2) reads a NUL-terminated path and writes at most target.len() bytes.
    let n = unsafe {
        libc::readlinkat(
            dir.as_raw_fd(),
            name.as_ptr(),
            target.as_mut_ptr().cast(),
            target.len(),
        )
    };
    target.truncate(length(n)?);
    Ok(target)
}

/// chmod of the file that `fd` (also `O_PATH`) is.
pub(crate) fn chmod(fd: BorrowedFd<'_>, mode: u32) -> io::Result<()> {
    // SAFETY: fchmodat2(2), Linux 6.6, reads the empty path; AT_EMPTY_PATH makes it act on fd itself.
    let result = unsafe {
        libc::syscall(
            libc::SYS_fchmodat2,
            fd.as_raw_fd(),
            c"".as_ptr(),
            mode,
            libc::AT_EMPTY_PATH,
        )
    };
    if result == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    if error.raw_os_error() != Some(libc::ENOSYS) {
        return Err(error);
    }
    let name = proc_name(fd, None)?;
    // SAFETY: chmod(2) reads a NUL-terminated path that outlives the call.
    check(unsafe { libc::chmod(name.as_ptr(), mode) })
}

/// chown of the file that `fd` (also `O_PATH`, also a symlink) is.
pub(crate) fn chown(fd: BorrowedFd<'_>, uid: u32, gid: u32) -> io::Result<()> {
    // SAFETY: fchownat(2) reads the empty path; AT_EMPTY_PATH makes it act on fd itself.
    check(unsafe { libc::fchownat(fd.as_raw_fd(), c"".as_ptr(), uid, gid, libc::AT_EMPTY_PATH) })
}

/// Sets the modification time of the file that `fd` (also `O_PATH`, also a symlink) is; the access time stays.
pub(crate) fn set_mtime(fd: BorrowedFd<'_>, mtime: Time) -> io::Result<()> {
    let times = [
        libc::timespec {
            tv_sec: 0,
            tv_nsec: libc::UTIME_OMIT,
        },
        libc::timespec {
            tv_sec: mtime.sec,
            tv_nsec: i64::from(mtime.nsec),
        },
    ];
    // SAFETY: utimensat(2) reads the empty path, which makes it act on fd itself (Linux 5.8), and two timespecs.
    check(unsafe {
        libc::utimensat(
            fd.as_raw_fd(),
            c"".as_ptr(),
            times.as_ptr(),
            libc::AT_EMPTY_PATH,
        )
    })
}

/// One directory entry: name and `DT_` type.
pub(crate) struct Entry {
    pub(crate) name: CString,
    pub(crate) kind: u8,
}

/// The entries of an open directory from its beginning, without `.` and `..`, sorted by name.
pub(crate) fn read_dir(dir: BorrowedFd<'_>) -> io::Result<Vec<Entry>> {
    let mut entries = Vec::new();
    each_entry(dir, |name, kind| {
        entries.push(Entry {
            name: name.to_owned(),
            kind,
        });
    })?;
    entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    Ok(entries)
}

/// Tells of each entry of an open directory: its name and `DT_` type, in the filesystem's order.
pub(crate) fn each_entry(dir: BorrowedFd<'_>, mut tell: impl FnMut(&CStr, u8)) -> io::Result<()> {
    let mut buffer = vec![0_u8; 32768];
    loop {
        // SAFETY: getdents64(2) writes at most buffer.len() bytes of records.
        let n = unsafe {
            libc::syscall(
                libc::SYS_getdents64,
                dir.as_raw_fd(),
                buffer.as_mut_ptr(),
                buffer.len(),
            )
        };
        let n = usize::try_from(n).map_err(|_| io::Error::last_os_error())?;
        if n == 0 {
            return Ok(());
        }
        let mut rest = buffer.get(..n).unwrap_or_default();
        // A record: ino u64, off i64, length u16, type u8, name to the NUL.
        while let Some((head, _)) = rest.split_first_chunk::<19>() {
            let size = usize::from(u16::from_ne_bytes([head[16], head[17]]));
            let record = rest.get(19..size).ok_or(io::ErrorKind::InvalidData)?;
            let name =
                CStr::from_bytes_until_nul(record).map_err(|_| io::ErrorKind::InvalidData)?;
            if !matches!(name.to_bytes(), b"." | b"..") {
                tell(name, head[18]);
            }
            rest = rest.get(size..).unwrap_or_default();
        }
    }
}

/// Whether the effective user may use the directory (or file) that `fd` is in this way, as faccessat2(2) sees it.
pub(crate) fn access(fd: BorrowedFd<'_>, mode: i32) -> io::Result<()> {
    let flags = libc::AT_EACCESS | libc::AT_EMPTY_PATH;
    // SAFETY: faccessat2(2) reads the empty path.
    let result = unsafe {
        libc::syscall(
            libc::SYS_faccessat2,
            fd.as_raw_fd(),
            c"".as_ptr(),
            mode,
            flags,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// The file handle of `name` below `dir`, as overlayfs notes it: type and bytes. `None` where there are none.
pub(crate) fn file_handle(dir: BorrowedFd<'_>, name: &CStr) -> Option<(u8, Vec<u8>)> {
    #[repr(C)]
    struct Handle {
        bytes: libc::c_uint,
        kind: libc::c_int,
        data: [u8; 128],
    }
    let mut handle = Handle {
        bytes: 128,
        kind: 0,
        data: [0; 128],
    };
    let mut mount: libc::c_int = 0;
    // SAFETY: name_to_handle_at(2) reads the path and writes at most handle.bytes bytes behind the two integers.
    let result = unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            dir.as_raw_fd(),
            name.as_ptr(),
            &raw mut handle,
            &raw mut mount,
            if name.is_empty() {
                libc::AT_EMPTY_PATH
            } else {
                0
            },
        )
    };
    if result != 0 {
        return None;
    }
    let data = handle.data.get(..usize::try_from(handle.bytes).ok()?)?;
    Some((u8::try_from(handle.kind).ok()?, data.to_vec()))
}

/// syncfs(2): everything of the filesystem that `fd` is on reaches the disk.
pub(crate) fn sync_filesystem(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: syncfs(2) takes a descriptor only.
    check(unsafe { libc::syncfs(fd.as_raw_fd()) })
}

/// Bytes that this user can still write to the filesystem that `fd` (also `O_PATH`) is on.
pub(crate) fn free_bytes(fd: BorrowedFd<'_>) -> io::Result<u64> {
    let mut buffer = MaybeUninit::<libc::statvfs>::zeroed();
    // SAFETY: fstatvfs(3) writes one struct statvfs.
    check(unsafe { libc::fstatvfs(fd.as_raw_fd(), buffer.as_mut_ptr()) })?;
    // SAFETY: zeroed before, and filled by the kernel.
    let s = unsafe { buffer.assume_init() };
    Ok(s.f_bavail.saturating_mul(s.f_frsize))
}

/// Whether inodes of the filesystem that `fd` is on keep their time of birth: not on overlayfs, where it changes with the
/// copy-up.
pub(crate) fn keeps_births(fd: BorrowedFd<'_>) -> bool {
    let mut buffer = MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: fstatfs(2) writes one struct statfs.
    let result = unsafe { libc::fstatfs(fd.as_raw_fd(), buffer.as_mut_ptr()) };
    // SAFETY: zeroed before, and filled by the kernel.
    result == 0 && unsafe { buffer.assume_init() }.f_type != libc::OVERLAYFS_SUPER_MAGIC
}

/// The effective user.
pub(crate) fn euid() -> u32 {
    static USER: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
    // SAFETY: geteuid(2) cannot fail and touches nothing.
    *USER.get_or_init(|| unsafe { libc::geteuid() })
}

/// The clock that filesystems stamp with: it moves a tick (1–10 ms) at a time.
pub(crate) fn coarse_now() -> Time {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: clock_gettime(2) writes one timespec; this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME_COARSE, &raw mut now) };
    Time {
        sec: now.tv_sec,
        nsec: u32::try_from(now.tv_nsec).unwrap_or(0),
    }
}

/// Opens a directory of this absolute path as a root: no link of any kind on the way.
pub(crate) fn open_root(path: &OsStr) -> io::Result<OwnedFd> {
    let slash = openat(
        // SAFETY: AT_FDCWD is no descriptor that could be closed, and the path is absolute.
        unsafe { BorrowedFd::borrow_raw(libc::AT_FDCWD) },
        c"/",
        libc::O_PATH | libc::O_DIRECTORY,
        0,
    )?;
    let mut fd = slash;
    // In pieces, as a path may be longer than PATH_MAX.
    for name in path
        .as_bytes()
        .split(|&b| b == b'/')
        .filter(|n| !n.is_empty())
    {
        let resolve =
            libc::RESOLVE_BENEATH | libc::RESOLVE_NO_SYMLINKS | libc::RESOLVE_NO_MAGICLINKS;
        fd = openat2(
            fd.as_fd(),
            &cstring(name)?,
            libc::O_PATH | libc::O_DIRECTORY,
            resolve,
        )?;
    }
    Ok(fd)
}
