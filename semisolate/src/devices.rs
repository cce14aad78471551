//! The device directory of the view.
//!
//! In a user namespace device nodes cannot be made, and a bind of the one file `ptmx` does not find its `pts` directory (measured:
//! ENOENT). So there the real device directory is what the base already shows: read-only as a directory, its character devices as
//! usable as outside, its terminals the real ones; block devices that the user could open are made unreachable. Real root gets
//! a new directory with the nodes that programs need and nothing that reaches hardware beyond them: an overlay cannot hold what a
//! write to a disk or to a kernel interface does.

use std::ffi::{CStr, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;

use nix::dir::{Dir, Type};
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, openat, readlinkat};
use nix::sys::stat::{FchmodatFlags, Mode, SFlag, fchmodat, fstatat, mknodat};
use nix::unistd::{Gid, Uid, fchownat};

use crate::mounts::{self, Access, At};
use crate::plan::Restrictions;
use crate::sys;
use crate::view::{NAME, Owner, make_dir, unless_absent};

/// Character devices that every program may need.
const ORDINARY: &[&str] = &["null", "zero", "full", "random", "urandom", "tty", "ptmx"];
/// Character devices that some programs need; they are there inside when they are there outside.
const OPTIONAL: &[&str] = &[
    "fuse",
    "kvm",
    "net/tun",
    "vsock",
    "nvidiactl",
    "nvidia-uvm",
    "nvidia-modeset",
];
/// Directories of the real device directory whose character devices (graphics) are kept.
const OPTIONAL_DIRS: &[&str] = &["dri"];

/// Places the device directory in the view below `root`.
pub(crate) fn place(root: &OwnedFd, owner: Owner) -> io::Result<()> {
    if owner.privileged {
        make(root)
    } else {
        restrict(root)
    }
}

/// Makes terminals usable in the read-only bind of the real directory and block devices unreachable.
fn restrict(root: &OwnedFd) -> io::Result<()> {
    // A bind of a container's /dev may have no terminals of its own.
    match mounts::set_writable(At::new(root, c"dev/pts")) {
        Err(error) if !matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINVAL)) => {
            return Err(error);
        }
        _ => {}
    }
    let dev = openat(
        root,
        "dev",
        OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC,
        Mode::empty(),
    )?;
    let mut blocked = Vec::new();
    for entry in Dir::from_fd(dev.try_clone()?)?.iter() {
        let entry = entry?;
        let name = entry.file_name();
        let may_open = |mode| sys::may(dev.as_fd(), name, mode);
        if entry.file_type() == Some(Type::BlockDevice)
            && (may_open(libc::R_OK) || may_open(libc::W_OK))
        {
            blocked.push(name.to_owned());
        }
    }
    if blocked.is_empty() {
        return Ok(());
    }
    // A file that nobody can open, on a filesystem that is nowhere but under the first of these nodes.
    let mut blocked = blocked.iter();
    let Some(first) = blocked.next() else {
        return Ok(());
    };
    let holder = At::new(root, c"dev/shm");
    mounts::tmpfs(holder, c"700", Restrictions::default(), false)?;
    let shm = openat(root, "dev/shm", NAME | OFlag::O_DIRECTORY, Mode::empty())?;
    mknodat(&shm, "blocked", SFlag::S_IFREG, Mode::empty(), 0)?;
    for name in std::iter::once(first).chain(blocked) {
        mounts::bind(
            At::new(&shm, c"blocked"),
            At::new(&dev, name),
            false,
            Access::ReadOnly,
        )?;
    }
    Ok(())
}

/// Makes a new device directory, as real root.
fn make(root: &OwnedFd) -> io::Result<()> {
    let real = openat(AT_FDCWD, "/dev", NAME | OFlag::O_DIRECTORY, Mode::empty())?;
    let restrictions = Restrictions {
        nosuid: true,
        ..Restrictions::default()
    };
    mounts::tmpfs(At::new(root, c"dev"), c"755", restrictions, false)?;
    let dev = openat(root, "dev", NAME | OFlag::O_DIRECTORY, Mode::empty())?;
    for name in ORDINARY {
        copy_node(&real, &dev, name)?;
    }
    make_dir(&dev, "net", 0o755)?;
    for name in OPTIONAL {
        copy_node(&real, &dev, name)?;
    }
    for name in OPTIONAL_DIRS {
        copy_nodes(&real, &dev, name)?;
    }
    copy_links(&real, &dev)?;
    for name in ["pts", "shm", "mqueue"] {
        make_dir(&dev, name, 0o755)?;
    }
    for name in [c"pts", c"mqueue"] {
        bind(&real, &dev, name)?;
    }
    Ok(())
}

/// Binds the real directory `name`, if there is one.
fn bind(real: &OwnedFd, dev: &OwnedFd, name: &CStr) -> io::Result<()> {
    unless_absent(mounts::bind(
        At::new(real, name),
        At::new(dev, name),
        false,
        Access::Same,
    ))
}

/// Copies a character device node, if there is one of this name.
fn copy_node(real: &OwnedFd, dev: &OwnedFd, name: &str) -> io::Result<()> {
    let stat = match fstatat(real, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(Errno::ENOENT) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    if SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT != SFlag::S_IFCHR {
        return Ok(());
    }
    let mode = Mode::from_bits_truncate(stat.st_mode & 0o7777);
    mknodat(dev, name, SFlag::S_IFCHR, mode, stat.st_rdev)?;
    fchownat(
        dev,
        name,
        Some(Uid::from_raw(stat.st_uid)),
        Some(Gid::from_raw(stat.st_gid)),
        AtFlags::AT_SYMLINK_NOFOLLOW,
    )?;
    Ok(fchmodat(dev, name, mode, FchmodatFlags::FollowSymlink)?)
}

fn copy_nodes(real: &OwnedFd, dev: &OwnedFd, name: &str) -> io::Result<()> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let Ok(mut dir) = Dir::openat(real, name, flags, Mode::empty()) else {
        return Ok(());
    };
    make_dir(dev, name, 0o755)?;
    for entry in dir.iter() {
        let entry = entry?;
        let Ok(file) = entry.file_name().to_str() else {
            continue;
        };
        copy_node(real, dev, &format!("{name}/{file}"))?;
    }
    Ok(())
}

/// Copies the symbolic links (fd, stdin, stdout, stderr, core).
fn copy_links(real: &OwnedFd, dev: &OwnedFd) -> io::Result<()> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    for entry in Dir::openat(real, ".", flags, Mode::empty())?.iter() {
        let entry = entry?;
        if entry.file_type() == Some(Type::Symlink) {
            let name = OsString::from_vec(entry.file_name().to_bytes().to_vec());
            nix::unistd::symlinkat(
                readlinkat(real, name.as_os_str())?.as_os_str(),
                dev,
                name.as_os_str(),
            )?;
        }
    }
    Ok(())
}

/// Paths below /proc that let root reach the kernel, some of them with no right but the number: made read-only for root.
const KERNEL_CONTROLS: &[&CStr] = &[
    c"proc/sys",
    c"proc/sysrq-trigger",
    c"proc/irq",
    c"proc/bus",
    c"proc/fs",
    c"proc/acpi",
    c"proc/scsi",
    c"proc/driver",
    c"proc/mtrr",
];

/// Mounts the process directory of the calling process's PID namespace in the view below `root`.
pub(crate) fn place_processes(root: &OwnedFd, owner: Owner) -> io::Result<()> {
    mounts::processes(At::new(root, c"proc"))?;
    if owner.privileged || owner.root_outside {
        for path in KERNEL_CONTROLS {
            let at = At::new(root, path);
            unless_absent(mounts::bind(at, at, false, Access::ReadOnly))?;
        }
    }
    Ok(())
}

/// Where the machine's own process directory is, when none can be made.
const OUTER: &CStr = c".host";

/// Places what of the machine's own process directory is harmless, over that of the base, which is read-only.
///
/// Its numbers of processes are not those that the command knows, so processes have no directories here: one that is not found does
/// no harm, another one's would. What leads on from those of outside (`root`, `cwd`, `fd`, `mem`) is closed by the kernel, since they
/// are in a user namespace in which the command has no rights (cap_ptrace_access_check of security/commoncap.c).
pub(crate) fn place_no_processes(root: &OwnedFd) -> io::Result<()> {
    let restrictions = Restrictions {
        nosuid: true,
        nodev: true,
        noexec: true,
        noatime: false,
    };
    let at = At::new(root, c"proc");
    mounts::tmpfs(at, c"755", restrictions, false)?;
    let proc = openat(root, "proc", NAME | OFlag::O_DIRECTORY, Mode::empty())?;
    make_dir(&proc, OUTER, 0o755)?;
    // Not yet in the view, this process has the machine's own there.
    let real = At {
        dir: AT_FDCWD,
        path: c"/proc",
    };
    mounts::bind(real, At::new(&proc, OUTER), true, Access::ReadOnly)?;
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    for entry in Dir::openat(AT_FDCWD, real.path, flags, Mode::empty())?.iter() {
        let entry = entry?;
        let name = entry.file_name();
        let bytes = name.to_bytes();
        if matches!(bytes, b"." | b"..") || bytes.iter().all(u8::is_ascii_digit) {
            continue;
        }
        let target = [OUTER.to_bytes(), b"/", bytes].concat();
        nix::unistd::symlinkat(target.as_slice(), &proc, name)?;
    }
    mounts::set_read_only(at)
}
