//! System calls the supervisor makes: thin, safe, and each with the error number the kernel gave.

use effigy_journal::{Kind, Stat, Timestamp};
use libc::{c_int, c_uint, c_ulong};
use std::ffi::CStr;
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// A positive error number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) i32);

impl From<io::Error> for Errno {
    fn from(error: io::Error) -> Self {
        Self(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

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

/// The calling thread's effective, permitted and inheritable capabilities.
pub(crate) fn capget() -> io::Result<[u64; 3]> {
    let header = CapHeader {
        version: CAP_VERSION_3,
        pid: 0,
    };
    let mut data = [CapData::default(); 2];
    // SAFETY: version 3 wants two data structs; both objects are alive.
    check(unsafe { libc::syscall(libc::SYS_capget, &raw const header, data.as_mut_ptr()) })?;
    let join = |f: fn(&CapData) -> u32| u64::from(f(&data[0])) | u64::from(f(&data[1])) << 32;
    Ok([
        join(|d| d.effective),
        join(|d| d.permitted),
        join(|d| d.inheritable),
    ])
}

/// Sets the calling thread's effective capabilities, within the permitted ones.
pub(crate) fn set_effective(effective: u64) -> io::Result<()> {
    let [_, permitted, inheritable] = capget()?;
    let header = CapHeader {
        version: CAP_VERSION_3,
        pid: 0,
    };
    #[expect(clippy::cast_possible_truncation, reason = "halves are wanted")]
    let half = |index: u32| CapData {
        effective: ((effective & permitted) >> (32 * index)) as u32,
        permitted: (permitted >> (32 * index)) as u32,
        inheritable: (inheritable >> (32 * index)) as u32,
    };
    let data = [half(0), half(1)];
    // SAFETY: version 3 wants two data structs; both objects are alive.
    check(unsafe { libc::syscall(libc::SYS_capset, &raw const header, data.as_ptr()) }).map(drop)
}

const CAP_VERSION_3: u32 = 0x2008_0522;

#[repr(C)]
struct CapHeader {
    version: u32,
    pid: c_int,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct CapData {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// pidfd_open(2); `thread` asks for PIDFD_THREAD (6.9).
pub(crate) fn pidfd_open(pid: u32, thread: bool) -> Result<OwnedFd> {
    let flags: c_uint = if thread { libc::PIDFD_THREAD } else { 0 };
    // SAFETY: plain numbers.
    let fd = errno_long(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, flags) })?;
    Ok(own(c_int::try_from(fd).map_err(|_| Errno(libc::EBADF))?))
}

/// struct pidfd_info (linux/pidfd.h), as far as 6.15 knows it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct PidfdInfo {
    mask: u64,
    cgroupid: u64,
    pid: u32,
    tgid: u32,
    ppid: u32,
    ids: [u32; 8],
    exit_code: i32,
}

/// The wait status of a process that has been reaped (PIDFD_INFO_EXIT, 6.15).
pub(crate) fn pidfd_exit(pidfd: BorrowedFd<'_>) -> Option<i32> {
    const INFO_EXIT: u64 = 1 << 3;
    const { assert!(mem::size_of::<PidfdInfo>() == 64) };
    // _IOWR(0xFF, 11, struct pidfd_info) with the first size, which every kernel that knows the call takes.
    const GET_INFO: c_ulong = (3 << 30) | (64 << 16) | (0xff << 8) | 11;
    let mut info = PidfdInfo {
        mask: INFO_EXIT,
        ..PidfdInfo::default()
    };
    // SAFETY: the kernel writes at most the 64 bytes that the request's number says.
    let done = unsafe { libc::ioctl(pidfd.as_raw_fd(), GET_INFO as _, &raw mut info) };
    (done == 0 && info.mask & INFO_EXIT != 0).then_some(info.exit_code)
}

/// pidfd_getfd(2).
pub(crate) fn pidfd_getfd(pidfd: BorrowedFd<'_>, fd: i32) -> Result<OwnedFd> {
    // SAFETY: plain numbers.
    let fd = errno_long(unsafe { libc::syscall(libc::SYS_pidfd_getfd, pidfd.as_raw_fd(), fd, 0) })?;
    Ok(own(c_int::try_from(fd).map_err(|_| Errno(libc::EBADF))?))
}

/// An epoll set whose members carry a number.
#[derive(Debug)]
pub(crate) struct Epoll(OwnedFd);

/// What a member of the set has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ready {
    pub(crate) token: u64,
    pub(crate) readable: bool,
    pub(crate) hung_up: bool,
}

impl Epoll {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: plain flags.
        let fd = check(i64::from(unsafe {
            libc::epoll_create1(libc::EPOLL_CLOEXEC)
        }))?;
        Ok(Self(own(
            c_int::try_from(fd).map_err(|_| io::ErrorKind::InvalidData)?
        )))
    }

    fn control(&self, op: c_int, fd: BorrowedFd<'_>, events: c_int, token: u64) -> io::Result<()> {
        let mut event = libc::epoll_event {
            events: events.cast_unsigned(),
            u64: token,
        };
        // SAFETY: `event` is alive; descriptors are plain numbers.
        check(i64::from(unsafe {
            libc::epoll_ctl(self.0.as_raw_fd(), op, fd.as_raw_fd(), &raw mut event)
        }))
        .map(drop)
    }

    /// Waits for readability and hang-up, or only for hang-up.
    pub(crate) fn add(&self, fd: BorrowedFd<'_>, token: u64, readable: bool) -> io::Result<()> {
        self.control(
            libc::EPOLL_CTL_ADD,
            fd,
            if readable { libc::EPOLLIN } else { 0 },
            token,
        )
    }

    /// From now on only hang-up is waited for.
    pub(crate) fn only_hangup(&self, fd: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, 0, token)
    }

    pub(crate) fn remove(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_DEL, fd, 0, 0)
    }

    /// Waits up to `timeout` milliseconds; -1 waits for ever.
    pub(crate) fn wait(&self, timeout: c_int, into: &mut Vec<Ready>) -> io::Result<()> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 32];
        into.clear();
        // SAFETY: at most 32 events are written.
        let got = unsafe { libc::epoll_wait(self.0.as_raw_fd(), events.as_mut_ptr(), 32, timeout) };
        match check(i64::from(got)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(error),
            Ok(got) => {
                into.extend(
                    events
                        .iter()
                        .take(usize::try_from(got).unwrap_or(0))
                        .map(|event| {
                            let bits = event.events;
                            Ready {
                                token: event.u64,
                                readable: bits & libc::EPOLLIN.cast_unsigned() != 0,
                                hung_up: bits & (libc::EPOLLHUP | libc::EPOLLERR).cast_unsigned()
                                    != 0,
                            }
                        }),
                );
                Ok(())
            }
        }
    }
}

/// Raises the soft limit of descriptors to the hard one: a supervisor holds a few for every process.
pub(crate) fn raise_descriptor_limit() {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is alive; a refusal changes nothing.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
}

/// Lets another thread run.
pub(crate) fn pause_briefly() {
    let time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 20_000,
    };
    // SAFETY: `time` is alive; the remainder is not asked for.
    unsafe { libc::nanosleep(&raw const time, std::ptr::null_mut()) };
}

/// Effective user and group of the supervisor, and its supplementary groups, sorted.
pub(crate) fn own_ids() -> (u32, u32, Vec<u32>) {
    let mut groups = vec![0; 65536];
    // SAFETY: at most 65 536 groups (NGROUPS_MAX) are written; the id calls cannot fail.
    let (uid, gid, count) = unsafe {
        (
            libc::geteuid(),
            libc::getegid(),
            libc::getgroups(65536, groups.as_mut_ptr()),
        )
    };
    groups.truncate(usize::try_from(count).unwrap_or(0));
    groups.sort_unstable();
    (uid, gid, groups)
}

/// A second descriptor for the same open file.
pub(crate) fn duplicate(fd: BorrowedFd<'_>) -> Result<OwnedFd> {
    fd.as_fd().try_clone_to_owned().map_err(Errno::from)
}
