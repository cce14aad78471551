//! The kernel calls that nix has no wrapper for: the mount API of Linux 5.2, pidfds, user-namespace joins.
//!
//! Everything `unsafe` of this crate is here. Each function is one call, takes and returns owned or borrowed descriptors, and
//! leaves the policy to its caller.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::unistd::{ForkResult, Pid};

fn check(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

fn owned(result: libc::c_long) -> io::Result<OwnedFd> {
    let fd = i32::try_from(check(result)?).map_err(io::Error::other)?;
    // SAFETY: the kernel has just returned this descriptor to us; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Takes over a descriptor that recvmsg(2) has just put into this process.
pub(crate) fn received(fd: RawFd) -> OwnedFd {
    // SAFETY: SCM_RIGHTS descriptors are new in the receiver; nobody else owns this one.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// A detached copy of the mount at `path` below `dir`, with the mounts below it when `recursive` (open_tree(2), Linux 5.2).
pub(crate) fn open_tree(dir: BorrowedFd<'_>, path: &CStr, recursive: bool) -> io::Result<OwnedFd> {
    let mut flags =
        libc::c_long::from(libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH | libc::AT_NO_AUTOMOUNT)
            | libc::OPEN_TREE_CLONE as libc::c_long
            | libc::OPEN_TREE_CLOEXEC as libc::c_long;
    if recursive {
        flags |= libc::c_long::from(libc::AT_RECURSIVE);
    }
    // SAFETY: `path` is NUL-terminated and outlives the call.
    owned(unsafe { libc::syscall(libc::SYS_open_tree, dir.as_raw_fd(), path.as_ptr(), flags) })
}

/// Attaches the detached mount `tree` at `path` below `dir` (move_mount(2), Linux 5.2).
pub(crate) fn move_mount(tree: BorrowedFd<'_>, dir: BorrowedFd<'_>, path: &CStr) -> io::Result<()> {
    // `path` may be empty: then `dir` itself is the mount point.
    let flags = libc::MOVE_MOUNT_F_EMPTY_PATH | libc::MOVE_MOUNT_T_EMPTY_PATH;
    // SAFETY: both paths are NUL-terminated and outlive the call.
    check(unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            tree.as_raw_fd(),
            c"".as_ptr(),
            dir.as_raw_fd(),
            path.as_ptr(),
            libc::c_ulong::from(flags),
        )
    })
    .map(drop)
}

/// Begins the configuration of a new superblock of type `kind` (fsopen(2), Linux 5.2).
pub(crate) fn fsopen(kind: &CStr) -> io::Result<OwnedFd> {
    // SAFETY: `kind` is NUL-terminated and outlives the call.
    owned(unsafe { libc::syscall(libc::SYS_fsopen, kind.as_ptr(), libc::FSOPEN_CLOEXEC) })
}

/// Sets option `key` to `value`, or as a flag when there is no value (fsconfig(2)).
pub(crate) fn fsconfig_set(
    context: BorrowedFd<'_>,
    key: &CStr,
    value: Option<&CStr>,
) -> io::Result<()> {
    let (command, value) = match value {
        Some(value) => (libc::FSCONFIG_SET_STRING, value.as_ptr()),
        None => (libc::FSCONFIG_SET_FLAG, std::ptr::null()),
    };
    // SAFETY: key and value are NUL-terminated (or null for a flag) and outlive the call.
    check(unsafe {
        libc::syscall(
            libc::SYS_fsconfig,
            context.as_raw_fd(),
            command,
            key.as_ptr(),
            value,
            0,
        )
    })
    .map(drop)
}

/// Creates the superblock that `context` describes and a detached mount of it, with `attributes` (MOUNT_ATTR_*).
pub(crate) fn fsmount(context: BorrowedFd<'_>, attributes: u64) -> io::Result<OwnedFd> {
    let none: *const libc::c_char = std::ptr::null();
    // SAFETY: the command takes no key and no value.
    check(unsafe {
        libc::syscall(
            libc::SYS_fsconfig,
            context.as_raw_fd(),
            libc::FSCONFIG_CMD_CREATE,
            none,
            none,
            0,
        )
    })?;
    // SAFETY: no pointers are passed.
    owned(unsafe {
        libc::syscall(
            libc::SYS_fsmount,
            context.as_raw_fd(),
            libc::FSMOUNT_CLOEXEC,
            attributes,
        )
    })
}

/// Sets and clears MOUNT_ATTR_* bits of the mount at `path` below `dir` (mount_setattr(2), Linux 5.12).
pub(crate) fn mount_setattr(
    dir: BorrowedFd<'_>,
    path: &CStr,
    recursive: bool,
    set: u64,
    clear: u64,
) -> io::Result<()> {
    let attributes = libc::mount_attr {
        attr_set: set,
        attr_clr: clear,
        propagation: 0,
        userns_fd: 0,
    };
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the attribute structure is initialised, its true size is passed, and both pointers outlive the call.
    check(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            dir.as_raw_fd(),
            path.as_ptr(),
            flags,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    })
    .map(drop)
}

/// A descriptor of process `pid` (pidfd_open(2), Linux 5.3).
pub(crate) fn pidfd_open(pid: Pid) -> io::Result<OwnedFd> {
    // SAFETY: no pointers are passed.
    owned(unsafe { libc::syscall(libc::SYS_pidfd_open, pid.as_raw(), 0) })
}

/// Forks. The caller must be single-threaded: the child goes on with ordinary Rust code.
pub(crate) fn fork() -> io::Result<ForkResult> {
    // SAFETY: callers fork while the process has one thread (`start` checks it), so no lock can be held by another.
    unsafe { nix::unistd::fork() }.map_err(io::Error::from)
}

/// Ends the process at once, running no destructors and no exit handlers of the process it was forked from.
pub(crate) fn exit_now(status: i32) -> ! {
    // SAFETY: _exit(2) is always safe to call.
    unsafe { libc::_exit(status) }
}

/// Marks every descriptor from `first` on close-on-exec (close_range(2), Linux 5.11 for the flag).
pub(crate) fn close_on_exec_from(first: u32) -> io::Result<()> {
    // SAFETY: no pointers are passed; the descriptors stay open until execve.
    check(unsafe {
        libc::syscall(
            libc::SYS_close_range,
            first,
            u32::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        )
    })
    .map(drop)
}

/// Replaces the process's program. Returns only on failure. Allocates nothing.
pub(crate) fn execve(
    path: &CStr,
    argv: &[*const libc::c_char],
    envp: &[*const libc::c_char],
) -> io::Error {
    debug_assert!(
        argv.last().is_some_and(|end| end.is_null())
            && envp.last().is_some_and(|end| end.is_null())
    );
    // SAFETY: both arrays are null-terminated arrays of NUL-terminated strings that live in the caller.
    unsafe { libc::execve(path.as_ptr(), argv.as_ptr(), envp.as_ptr()) };
    io::Error::last_os_error()
}

/// Asks for `signal` when the parent of this process ends (cleared by a change of credentials).
pub(crate) fn die_with_parent(signal: i32) -> io::Result<()> {
    // SAFETY: no pointers are passed.
    check(libc::c_long::from(unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, signal, 0, 0, 0)
    }))
    .map(drop)
}

/// Forbids others of the same user to trace this process or to open its files through /proc.
pub(crate) fn set_undumpable() -> io::Result<()> {
    // SAFETY: no pointers are passed.
    check(libc::c_long::from(unsafe {
        libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0)
    }))
    .map(drop)
}

/// The header and the two blocks of capget(2) and capset(2), version 3: each word is effective, permitted, inheritable.
type Capabilities = [[u32; 3]; 2];
const CAPABILITY_HEADER: [u32; 2] = [0x2008_0522, 0];

fn capabilities() -> io::Result<Capabilities> {
    let mut data = Capabilities::default();
    // SAFETY: capget(2) reads a header of two words and writes two blocks of three words, which `data` holds.
    check(unsafe {
        libc::syscall(
            libc::SYS_capget,
            CAPABILITY_HEADER.as_ptr(),
            data.as_mut_ptr(),
        )
    })?;
    Ok(data)
}

/// True when this process holds capability `number` in its effective set.
pub(crate) fn has_capability(number: u32) -> bool {
    capabilities().is_ok_and(|data| data[(number / 32) as usize][0] & (1 << (number % 32)) != 0)
}

/// Makes every permitted capability of the calling thread effective.
pub(crate) fn use_all_capabilities() -> io::Result<()> {
    let mut data = capabilities()?;
    for block in &mut data {
        block[0] = block[1];
    }
    // SAFETY: capset(2) reads a header of two words and two blocks of three words.
    check(unsafe { libc::syscall(libc::SYS_capset, CAPABILITY_HEADER.as_ptr(), data.as_ptr()) })
        .map(drop)
}

/// Brings the loopback interface of the current network namespace up.
pub(crate) fn loopback_up() -> io::Result<()> {
    // SAFETY: no pointers are passed.
    let socket = owned(libc::c_long::from(unsafe {
        libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0)
    }))?;
    // SAFETY: ifreq is a plain C structure for which all zeroes is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[0] = b'l'.cast_signed() as libc::c_char;
    request.ifr_name[1] = b'o'.cast_signed() as libc::c_char;
    #[expect(
        clippy::cast_possible_truncation,
        reason = "IFF_UP and IFF_RUNNING fit the kernel's short"
    )]
    {
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    }
    // SAFETY: the request is initialised and outlives the call.
    check(libc::c_long::from(unsafe {
        libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request)
    }))
    .map(drop)
}

/// Whether the effective ids may do `mode` (R_OK, W_OK, X_OK) to `path` below `dir`, the last link followed.
pub(crate) fn may(dir: BorrowedFd<'_>, path: &CStr, mode: i32) -> bool {
    // SAFETY: `path` is NUL-terminated and outlives the call.
    unsafe { libc::faccessat(dir.as_raw_fd(), path.as_ptr(), mode, libc::AT_EACCESS) == 0 }
}

/// Copies the content of `from` to `to` by sharing its extents (FICLONE); an error where the filesystem cannot.
pub(crate) fn clone_content(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: FICLONE takes a descriptor by value.
    check(libc::c_long::from(unsafe {
        libc::ioctl(to.as_raw_fd(), libc::FICLONE, from.as_raw_fd())
    }))
    .map(drop)
}

/// The extended attribute `name` of the file that `fd` names, if it has one and it is readable.
pub(crate) fn get_attribute(fd: BorrowedFd<'_>, name: &CStr) -> Option<Vec<u8>> {
    let mut value = vec![0_u8; 65_536];
    // SAFETY: the buffer's true size is passed.
    let length = unsafe {
        libc::fgetxattr(
            fd.as_raw_fd(),
            name.as_ptr(),
            value.as_mut_ptr().cast(),
            value.len(),
        )
    };
    value.truncate(usize::try_from(length).ok()?);
    Some(value)
}

/// Sets the extended attribute `name` of the file that `fd` names.
pub(crate) fn set_attribute(fd: BorrowedFd<'_>, name: &CStr, value: &[u8]) -> io::Result<()> {
    // SAFETY: the value's true size is passed.
    check(libc::c_long::from(unsafe {
        libc::fsetxattr(
            fd.as_raw_fd(),
            name.as_ptr(),
            value.as_ptr().cast(),
            value.len(),
            0,
        )
    }))
    .map(drop)
}

/// Makes `seccomp(2)` filters with a notification listener, or names why not: installs one that traps nothing in this process.
pub(crate) fn try_listener(flags: libc::c_ulong) -> io::Result<OwnedFd> {
    // SAFETY: no pointers are passed.
    check(libc::c_long::from(unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    }))?;
    let allow = [libc::sock_filter {
        code: 0x06,
        jt: 0,
        jf: 0,
        k: libc::SECCOMP_RET_ALLOW,
    }];
    let program = libc::sock_fprog {
        len: 1,
        filter: allow.as_ptr().cast_mut(),
    };
    // SAFETY: the program has one instruction, as its length says; the kernel copies it.
    owned(unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | flags,
            &raw const program,
        )
    })
}

/// The ABIs of this machine, as audit architectures, and the number of ioctl(2) in each.
#[cfg(target_arch = "x86_64")]
const IOCTL: &[(u32, u32)] = &[
    (0xc000_003e, 16),
    (0xc000_003e, 0x4000_0000 | 514),
    (0x4000_0003, 54),
];
#[cfg(target_arch = "aarch64")]
const IOCTL: &[(u32, u32)] = &[(0xc000_00b7, 29), (0x4000_0028, 54)];

/// Lets ioctl(2) refuse (EPERM) to put characters into a terminal as if they were typed: the shell would run them once the
/// command has ended. For the calling thread and all it becomes. Allocates nothing.
///
/// Linux 6.2 can be told to refuse it (`dev.tty.legacy_tiocsti`), but few distributions do. TIOCLINUX pastes, on a console.
#[expect(
    clippy::cast_possible_truncation,
    reason = "BPF codes fit 16 bits and terminal requests 32 (linux/bpf_common.h, asm-generic/ioctls.h)"
)]
pub(crate) fn forbid_typing() -> io::Result<()> {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    /// Offsets in struct seccomp_data: the call's number, its ABI, the low half of its second argument (both ABIs are little-endian).
    const NUMBER: u32 = 0;
    const ARCH: u32 = 4;
    const REQUEST: u32 = 24;
    let op = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    const PER_ABI: usize = 8;
    let mut program = [op(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW); IOCTL.len() * PER_ABI + 1];
    for (block, &(arch, number)) in program.chunks_exact_mut(PER_ABI).zip(IOCTL) {
        block.copy_from_slice(&[
            op(LOAD, 0, 0, ARCH),
            op(EQUAL, 0, 6, arch),
            op(LOAD, 0, 0, NUMBER),
            op(EQUAL, 0, 4, number),
            op(LOAD, 0, 0, REQUEST),
            op(EQUAL, 1, 0, libc::TIOCSTI as u32),
            op(EQUAL, 0, 1, libc::TIOCLINUX as u32),
            op(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        ]);
    }
    set_filter(&program)
}

/// Installs a filter on the calling thread; no_new_privs only where it is refused otherwise.
fn set_filter(program: &[libc::sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: u16::try_from(program.len()).map_err(io::Error::other)?,
        filter: program.as_ptr().cast_mut(),
    };
    let install = || {
        // SAFETY: the kernel copies the instructions, which are alive and as many as said.
        check(unsafe {
            libc::syscall(
                libc::SYS_seccomp,
                libc::SECCOMP_SET_MODE_FILTER,
                0,
                &raw const program,
            )
        })
    };
    match install() {
        Err(error) if error.raw_os_error() == Some(libc::EACCES) => {
            // SAFETY: no pointers are passed.
            check(libc::c_long::from(unsafe {
                libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
            }))?;
            install().map(drop)
        }
        other => other.map(drop),
    }
}

/// Asks that a supervisor's answer wakes the waiting task on the same processor (Linux 6.6).
pub(crate) fn try_sync_wake_up(listener: BorrowedFd<'_>) -> io::Result<()> {
    // _IOW('!', 4, __u64); the flag is passed by value.
    const SET_FLAGS: libc::Ioctl = 0x4008_2104;
    // SAFETY: the argument is a value, not a pointer.
    check(libc::c_long::from(unsafe {
        libc::ioctl(listener.as_raw_fd(), SET_FLAGS, 1_u64)
    }))
    .map(drop)
}

/// `/proc/self/fd/N`: a name for `fd` without separators, of bounded length, that mount options can carry.
pub(crate) fn fd_path(fd: &impl AsFd) -> CString {
    let path = format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd());
    CString::new(path).expect("digits hold no NUL")
}

/// Gives a process that is about to execute the command the signal mask of the caller, and SIGPIPE its default, which the Rust
/// runtime had changed.
pub(crate) fn restore_signals(mask: &nix::sys::signal::SigSet) {
    // SAFETY: setting a signal to its default installs no handler.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    // Setting a valid mask cannot fail.
    let _set =
        nix::sys::signal::sigprocmask(nix::sys::signal::SigmaskHow::SIG_SETMASK, Some(mask), None);
}
