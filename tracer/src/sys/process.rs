//! Calls about processes, their capabilities and their ends.

use super::{Errno, Result, check, errno_long, own};
use libc::{c_int, c_uint, c_ulong};
use std::ffi::CStr;
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

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

/// The size a file may have (RLIMIT_FSIZE) is no matter of the supervisor's, which writes the journal and copies files up: it is
/// raised as far as it goes. Where that is not enough, a write fails instead of ending the process.
pub(crate) fn lift_size_limit() {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is a whole struct rlimit.
    if unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) } != 0
        || limit.rlim_cur == libc::RLIM_INFINITY
    {
        return;
    }
    let all = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: libc::RLIM_INFINITY,
    };
    let most = libc::rlimit {
        rlim_cur: limit.rlim_max,
        rlim_max: limit.rlim_max,
    };
    // SAFETY: both are whole structs; the set of signals is initialised before it is used, and the mask is this thread's own.
    unsafe {
        if libc::setrlimit(libc::RLIMIT_FSIZE, &raw const all) != 0 {
            libc::setrlimit(libc::RLIMIT_FSIZE, &raw const most);
        }
        let mut signal = mem::zeroed::<libc::sigset_t>();
        libc::sigemptyset(&raw mut signal);
        libc::sigaddset(&raw mut signal, libc::SIGXFSZ);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const signal, std::ptr::null_mut());
    }
}

/// Whether a file may grow to `size` by the limits (RLIMIT_FSIZE) of both a task and the supervisor. One that cannot be asked
/// for may not.
pub(crate) fn may_grow(tid: u32, size: u64) -> bool {
    let within = |pid: libc::pid_t| {
        let mut limit = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: `limit` is a whole struct rlimit; none is set.
        let done =
            unsafe { libc::prlimit(pid, libc::RLIMIT_FSIZE, std::ptr::null(), &raw mut limit) };
        done == 0 && (limit.rlim_cur == libc::RLIM_INFINITY || size <= limit.rlim_cur)
    };
    within(0) && libc::pid_t::try_from(tid).is_ok_and(within)
}

/// Whether this process may do what the owner of a file may.
pub(crate) fn acts_as(owner: u32) -> bool {
    const FOWNER: u64 = 1 << 3;
    // SAFETY: geteuid(2) cannot fail.
    let own = unsafe { libc::geteuid() } == owner;
    own || capget().is_ok_and(|[effective, ..]| effective & FOWNER != 0)
}

/// Whether the file at a path may be linked by the rules for protected hard links.
pub(crate) fn may_link(path: &CStr, seen: &super::Seen) -> bool {
    // SAFETY: geteuid(2) cannot fail.
    let own = unsafe { libc::geteuid() } == seen.stat.uid;
    let set_group = libc::S_ISGID | libc::S_IXGRP;
    let safe = seen.kind() == effigy_journal::Kind::File
        && seen.stat.mode & libc::S_ISUID == 0
        && seen.stat.mode & set_group != set_group
        && super::access(super::CWD, path, libc::R_OK | libc::W_OK, 0).is_ok();
    own || safe
}

/// Whether the rules for protected hard links are in force; the working directory is /proc.
pub(crate) fn links_are_protected() -> bool {
    std::fs::read("sys/fs/protected_hardlinks").is_ok_and(|value| value.first() != Some(&b'0'))
}
