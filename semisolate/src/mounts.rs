//! Mounting, through the mount interface of Linux 5.2 and 5.12 where it is there, else through mount(2).
//!
//! Targets are a directory's descriptor and a path below it, so what is mounted never depends on a path that somebody could change.
//! Where the new interface is missing (an older kernel, a container's filter that answers ENOSYS), descriptors are named through
//! /proc/self/fd, which mount(2) follows.

use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::fcntl::{OFlag, openat, readlink};
use nix::mount::{MsFlags, mount};
use nix::sys::stat::Mode;
use nix::sys::statvfs::{FsFlags, fstatvfs};

use crate::plan::Restrictions;
use crate::{mountinfo, sys};

/// A place in a tree: a directory and a path below it; the empty path is the directory itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct At<'a> {
    pub(crate) dir: BorrowedFd<'a>,
    pub(crate) path: &'a CStr,
}

impl<'a> At<'a> {
    pub(crate) fn new(dir: &'a impl AsFd, path: &'a CStr) -> Self {
        Self {
            dir: dir.as_fd(),
            path,
        }
    }

    /// The place itself, the last link not followed: its topmost mount, if something is mounted there.
    fn open(self) -> io::Result<OwnedFd> {
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        if self.path.is_empty() {
            // What is mounted over a directory is found through its parent only.
            let path = readlink(sys::fd_path(&self.dir).as_c_str())?;
            return Ok(openat(self.dir, path.as_os_str(), flags, Mode::empty())?);
        }
        Ok(openat(self.dir, self.path, flags, Mode::empty())?)
    }
}

/// The directories of an overlay.
pub(crate) struct Overlay<'o> {
    /// Keep the names of a file with several together when it is copied up. Only real root can: it takes the right to open by handle.
    pub(crate) keep_links: bool,
    /// The topmost first.
    pub(crate) lower: Vec<&'o OwnedFd>,
    pub(crate) upper: &'o OwnedFd,
    pub(crate) work: &'o OwnedFd,
}

/// What a bind allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// What the mount it is a copy of allows.
    Same,
    /// Nothing can be changed.
    ReadOnly,
    /// Nothing can be changed, and device nodes cannot be opened.
    ReadOnlyNoDevices,
}

/// Binds what is at `from` to `to`; with the mounts below it when `recursive`.
pub(crate) fn bind(from: At<'_>, to: At<'_>, recursive: bool, access: Access) -> io::Result<()> {
    let new = || {
        let tree = sys::open_tree(from.dir, from.path, recursive)?;
        let attributes = match access {
            Access::Same => 0,
            Access::ReadOnly => libc::MOUNT_ATTR_RDONLY,
            Access::ReadOnlyNoDevices => libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NODEV,
        };
        if attributes != 0 {
            sys::mount_setattr(tree.as_fd(), c"", recursive, attributes, 0)?;
        }
        sys::move_mount(tree.as_fd(), to.dir, to.path)
    };
    or_classic(new, || {
        let recursion = if recursive {
            MsFlags::MS_REC
        } else {
            MsFlags::empty()
        };
        classic(
            Some(&sys::fd_path(&from.open()?)),
            to,
            None,
            MsFlags::MS_BIND | recursion,
            None,
        )?;
        match access {
            Access::Same => Ok(()),
            Access::ReadOnly => remount(to, recursive, MsFlags::MS_RDONLY),
            Access::ReadOnlyNoDevices => {
                remount(to, recursive, MsFlags::MS_RDONLY | MsFlags::MS_NODEV)
            }
        }
    })
}

/// Mounts an overlay. Its directories are named through their descriptors: no path needs escaping, none is too long.
pub(crate) fn overlay(
    dirs: &Overlay<'_>,
    to: At<'_>,
    restrictions: Restrictions,
) -> io::Result<()> {
    let [upper, work] = [dirs.upper, dirs.work].map(sys::fd_path);
    let new = || {
        let context = sys::fsopen(c"overlay")?;
        let context = context.as_fd();
        sys::fsconfig_set(context, c"source", Some(c"effigy"))?;
        set_lower(context, &dirs.lower)?;
        sys::fsconfig_set(context, c"upperdir", Some(&upper))?;
        sys::fsconfig_set(context, c"workdir", Some(&work))?;
        sys::fsconfig_set(context, c"userxattr", None)?;
        // Without it, the end of a run would bring the whole filesystem of the layers to disk, once for each cover.
        sys::fsconfig_set(context, c"volatile", None)?;
        if dirs.keep_links {
            sys::fsconfig_set(context, c"index", Some(c"on"))?;
        }
        let tree = sys::fsmount(context, attributes(restrictions))?;
        sys::move_mount(tree.as_fd(), to.dir, to.path)
    };
    or_classic_overlay(&dirs.lower, new, || {
        let options: [&[u8]; 8] = [
            b"lowerdir=",
            &joined(&dirs.lower),
            b",upperdir=",
            upper.to_bytes(),
            b",workdir=",
            work.to_bytes(),
            b",userxattr,volatile",
            if dirs.keep_links { b",index=on" } else { b"" },
        ];
        let options = CString::new(options.concat())?;
        classic(
            Some(c"effigy"),
            to,
            Some(c"overlay"),
            flags(restrictions),
            Some(&options),
        )
    })
}

/// Shows a directory as a filesystem of its own, read-only. It is mounted at `at`, over an empty one: an overlay without an upper
/// layer wants two lower ones. With `keep_links` its files have handles, by which an overlay of it keeps the names of one together.
pub(crate) fn apart(real: &OwnedFd, at: At<'_>, keep_links: bool) -> io::Result<OwnedFd> {
    tmpfs(at, c"700", Restrictions::default(), true)?;
    let nothing = at.open()?;
    let lower = [real, &nothing];
    let new = || {
        let context = sys::fsopen(c"overlay")?;
        let context = context.as_fd();
        sys::fsconfig_set(context, c"source", Some(c"effigy"))?;
        set_lower(context, &lower)?;
        sys::fsconfig_set(context, c"userxattr", None)?;
        if keep_links {
            sys::fsconfig_set(context, c"redirect_dir", Some(c"nofollow"))?;
            sys::fsconfig_set(context, c"nfs_export", Some(c"on"))?;
        }
        let tree = sys::fsmount(context, libc::MOUNT_ATTR_RDONLY)?;
        sys::move_mount(tree.as_fd(), at.dir, at.path)
    };
    or_classic(new, || {
        let links: &[u8] = if keep_links {
            b",redirect_dir=nofollow,nfs_export=on"
        } else {
            b""
        };
        let options = [
            b"lowerdir=",
            joined(&lower).as_slice(),
            b",userxattr",
            links,
        ]
        .concat();
        classic(
            Some(c"effigy"),
            at,
            Some(c"overlay"),
            MsFlags::MS_RDONLY,
            Some(&CString::new(options)?),
        )
    })?;
    at.open()
}

/// What fsconfig(2) takes as one value, with its NUL.
const LONGEST_VALUE: usize = 256;

/// Names the lower layers, the topmost first.
fn set_lower(context: BorrowedFd<'_>, lower: &[&OwnedFd]) -> io::Result<()> {
    let whole = joined(lower);
    // Before Linux 6.5 overlayfs takes every option as it comes, and fails later for those that it does not know.
    if whole.len() < LONGEST_VALUE {
        return sys::fsconfig_set(context, c"lowerdir", Some(&CString::new(whole)?));
    }
    let mut names = lower.iter().map(|dir| sys::fd_path(*dir));
    names.try_for_each(|name| sys::fsconfig_set(context, c"lowerdir+", Some(&name)))
}

/// Mounts an overlay the new way, or the classic one: also when it has more lower layers than one value names and the kernel does
/// not take them one by one.
fn or_classic_overlay(
    lower: &[&OwnedFd],
    new: impl FnOnce() -> io::Result<()>,
    old: impl Fn() -> io::Result<()>,
) -> io::Result<()> {
    match or_classic(new, &old) {
        Err(error)
            if error.raw_os_error() == Some(libc::EINVAL)
                && joined(lower).len() >= LONGEST_VALUE =>
        {
            old()
        }
        result => result,
    }
}

/// The names of lower layers as one option has them.
fn joined(lower: &[&OwnedFd]) -> Vec<u8> {
    let names: Vec<CString> = lower.iter().map(|dir| sys::fd_path(*dir)).collect();
    let names: Vec<&[u8]> = names.iter().map(|name| name.to_bytes()).collect();
    names.join(&b':')
}

/// Mounts an empty tmpfs whose root has `mode` (octal digits).
pub(crate) fn tmpfs(
    to: At<'_>,
    mode: &CStr,
    restrictions: Restrictions,
    read_only: bool,
) -> io::Result<()> {
    let new = || {
        let context = sys::fsopen(c"tmpfs")?;
        sys::fsconfig_set(context.as_fd(), c"mode", Some(mode))?;
        let read_only = if read_only {
            libc::MOUNT_ATTR_RDONLY
        } else {
            0
        };
        let tree = sys::fsmount(context.as_fd(), attributes(restrictions) | read_only)?;
        sys::move_mount(tree.as_fd(), to.dir, to.path)
    };
    or_classic(new, || {
        let options = CString::new([b"mode=", mode.to_bytes()].concat())?;
        let read_only = if read_only {
            MsFlags::MS_RDONLY
        } else {
            MsFlags::empty()
        };
        classic(
            Some(c"effigy"),
            to,
            Some(c"tmpfs"),
            flags(restrictions) | read_only,
            Some(&options),
        )
    })
}

/// Mounts the process directory of the calling process's PID namespace.
pub(crate) fn processes(to: At<'_>) -> io::Result<()> {
    let restrictions = Restrictions {
        nosuid: true,
        nodev: true,
        noexec: true,
        noatime: false,
    };
    let new = || {
        let context = sys::fsopen(c"proc")?;
        let tree = sys::fsmount(context.as_fd(), attributes(restrictions))?;
        sys::move_mount(tree.as_fd(), to.dir, to.path)
    };
    or_classic(new, || {
        classic(Some(c"proc"), to, Some(c"proc"), flags(restrictions), None)
    })
}

/// Makes the mount at `at` writable again.
pub(crate) fn set_writable(at: At<'_>) -> io::Result<()> {
    or_classic(
        || sys::mount_setattr(at.dir, at.path, false, 0, libc::MOUNT_ATTR_RDONLY),
        || remount(at, false, MsFlags::empty()),
    )
}

/// Makes the mount at `at` read-only, and no other.
pub(crate) fn set_read_only(at: At<'_>) -> io::Result<()> {
    or_classic(
        || sys::mount_setattr(at.dir, at.path, false, libc::MOUNT_ATTR_RDONLY, 0),
        || remount(at, false, MsFlags::MS_RDONLY),
    )
}

/// Gives the mount at `at`, and those below it when `recursive`, the restrictions they have and `more`; read-only is not kept.
fn remount(at: At<'_>, recursive: bool, more: MsFlags) -> io::Result<()> {
    let top = at.open()?;
    remount_one(&top, more)?;
    if recursive {
        for path in mount_points_below(&top)? {
            // Hidden mounts cannot be opened by path, nor reached by anybody.
            if let Ok(fd) = openat(
                &top,
                path.as_path(),
                OFlag::O_PATH | OFlag::O_CLOEXEC,
                Mode::empty(),
            ) {
                remount_one(&fd, more)?;
            }
        }
    }
    Ok(())
}

fn remount_one(top: &OwnedFd, more: MsFlags) -> io::Result<()> {
    // Flags that are left out would be cleared, which the kernel refuses for inherited mounts.
    let have = fstatvfs(top)?.flags();
    let keep = [
        (FsFlags::ST_NOSUID, MsFlags::MS_NOSUID),
        (FsFlags::ST_NODEV, MsFlags::MS_NODEV),
        (FsFlags::ST_NOEXEC, MsFlags::MS_NOEXEC),
        (FsFlags::ST_NOATIME, MsFlags::MS_NOATIME),
        (FsFlags::ST_NODIRATIME, MsFlags::MS_NODIRATIME),
        (FsFlags::ST_RELATIME, MsFlags::MS_RELATIME),
    ];
    let mut flags = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | more;
    flags.extend(
        keep.iter()
            .filter(|(flag, _)| have.contains(*flag))
            .map(|(_, flag)| *flag),
    );
    Ok(mount(
        None::<&CStr>,
        sys::fd_path(top).as_c_str(),
        None::<&CStr>,
        flags,
        None::<&CStr>,
    )?)
}

/// The mount points below the directory that `top` names, relative to it.
fn mount_points_below(top: &OwnedFd) -> io::Result<Vec<PathBuf>> {
    let own = PathBuf::from(readlink(sys::fd_path(top).as_c_str())?);
    let text = std::fs::read("/proc/self/mountinfo")?;
    let mounts = mountinfo::parse(&text).map_err(io::Error::other)?;
    let below = |path: &Path| {
        path.strip_prefix(&own)
            .ok()
            .filter(|rest| *rest != Path::new(""))
            .map(Path::to_path_buf)
    };
    Ok(mounts
        .iter()
        .filter_map(|mount| below(&mount.mount_point))
        .collect())
}

fn or_classic(
    new: impl FnOnce() -> io::Result<()>,
    old: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    match new() {
        Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => old(),
        other => other,
    }
}

fn classic(
    source: Option<&CStr>,
    to: At<'_>,
    kind: Option<&CStr>,
    flags: MsFlags,
    options: Option<&CStr>,
) -> io::Result<()> {
    let target = to.open()?;
    Ok(mount(
        source,
        sys::fd_path(&target).as_c_str(),
        kind,
        flags,
        options,
    )?)
}

/// The restrictions that are set, as both interfaces name them.
fn restricted(restrictions: Restrictions) -> impl Iterator<Item = (u64, MsFlags)> {
    let Restrictions {
        nosuid,
        nodev,
        noexec,
        noatime,
    } = restrictions;
    let all = [
        (nosuid, libc::MOUNT_ATTR_NOSUID, MsFlags::MS_NOSUID),
        (nodev, libc::MOUNT_ATTR_NODEV, MsFlags::MS_NODEV),
        (noexec, libc::MOUNT_ATTR_NOEXEC, MsFlags::MS_NOEXEC),
        (noatime, libc::MOUNT_ATTR_NOATIME, MsFlags::MS_NOATIME),
    ];
    all.into_iter()
        .filter_map(|(set, attribute, flag)| set.then_some((attribute, flag)))
}

fn attributes(restrictions: Restrictions) -> u64 {
    restricted(restrictions).fold(0, |bits, (attribute, _)| bits | attribute)
}

fn flags(restrictions: Restrictions) -> MsFlags {
    restricted(restrictions).map(|(_, flag)| flag).collect()
}

/// `path` as the kernel takes it.
pub(crate) fn c_path(path: &Path) -> CString {
    c_name(path.as_os_str())
}

/// A directory entry, or any other name, as the kernel takes it.
pub(crate) fn c_name(name: &OsStr) -> CString {
    CString::new(name.as_bytes())
        .expect("names of mounts, entries and sessions come from the kernel and hold no NUL")
}

/// `path` relative to the root of the view; the root itself is the empty path.
pub(crate) fn below_root(path: &Path) -> CString {
    c_path(path.strip_prefix("/").unwrap_or(path))
}
