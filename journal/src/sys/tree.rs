//! Walks over trees that may be hostile.

use super::random;
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag};
use nix::sys::stat::{FchmodatFlags, Mode, fchmod, fchmodat, fstat, fstatat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

const OPEN_DIR: OFlag = OFlag::O_RDONLY
    .union(OFlag::O_DIRECTORY)
    .union(OFlag::O_NOFOLLOW)
    .union(OFlag::O_CLOEXEC);

/// Directories that are held open at once while a tree is removed or measured.
const MAX_DEPTH: usize = 64;

/// Removes `name` in `parent` and everything below it, also directories nobody may enter and trees of any depth.
///
/// Symbolic links are removed, never followed. What is deeper than a few dozen levels is first moved up.
pub(crate) fn remove_tree(parent: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
    let mut salt = [0; 8];
    random(&mut salt)?;
    let mut removal = Removal {
        top: parent,
        salt: u64::from_ne_bytes(salt),
        moved: 0,
        pending: Vec::new(),
    };
    removal.remove(parent, name, 0)?;
    while let Some(name) = removal.pending.pop() {
        removal.remove(parent, &name, 0)?;
    }
    Ok(())
}

/// Removes what the kernel makes in the work directory of every overlay that is not brought to disk, in `layer`, as far as it is just
/// that and nothing more: by name, which takes a tenth of the calls of a walk.
pub(crate) fn clear_volatile(layer: BorrowedFd<'_>) {
    let directories = [
        c"work/work",
        c"work/work/incompat",
        c"work/work/incompat/volatile",
    ];
    let open = |name: &&CStr| {
        // The mode is 0 and these names are in nobody's reach but the kernel's and ours.
        fchmodat(layer, *name, Mode::S_IRWXU, FchmodatFlags::FollowSymlink)
    };
    if directories.iter().try_for_each(open).is_ok()
        && unlinkat(
            layer,
            c"work/work/incompat/volatile/dirty",
            UnlinkatFlags::NoRemoveDir,
        )
        .is_ok()
    {
        let remove = |name: &&CStr| unlinkat(layer, *name, UnlinkatFlags::RemoveDir);
        let _what_is_more = directories.iter().rev().try_for_each(remove);
    }
}

/// A tree being removed.
struct Removal<'a> {
    /// The directory that held it.
    top: BorrowedFd<'a>,
    /// Makes the names of what is moved there unlike all others.
    salt: u64,
    moved: u64,
    /// What was moved there and is still to be removed.
    pending: Vec<CString>,
}

impl Removal<'_> {
    fn remove(&mut self, parent: BorrowedFd<'_>, name: &CStr, depth: usize) -> io::Result<()> {
        match unlinkat(parent, name, UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => return Ok(()),
            Err(Errno::EISDIR) => {}
            Err(errno) => return Err(errno.into()),
        }
        // An empty directory, whatever its mode, goes at once.
        match unlinkat(parent, name, UnlinkatFlags::RemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => return Ok(()),
            Err(Errno::ENOTEMPTY | Errno::EEXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
        // Removing while reading may skip entries on some filesystems: go round until the directory is empty.
        for _ in 0..100_000 {
            let Some(mut dir) = open_unlocked(parent, name)? else {
                return Ok(());
            };
            if depth >= MAX_DEPTH {
                return self.move_up(parent, name);
            }
            for child in some_names(&mut dir, 10_000)? {
                self.remove(dir.as_fd(), &child, depth + 1)?;
            }
            match unlinkat(parent, name, UnlinkatFlags::RemoveDir) {
                Ok(()) | Err(Errno::ENOENT) => return Ok(()),
                Err(Errno::ENOTEMPTY | Errno::EEXIST) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Err(Errno::ENOTEMPTY.into())
    }

    fn move_up(&mut self, parent: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
        let up = CString::new(format!("deep.{:016x}.{}", self.salt, self.moved))?;
        self.moved += 1;
        nix::fcntl::renameat(parent, name, self.top, up.as_c_str())?;
        self.pending.push(up);
        Ok(())
    }
}

/// Up to `limit` names in a directory, without `.` and `..`.
fn some_names(dir: &mut Dir, limit: usize) -> io::Result<Vec<CString>> {
    let mut names = Vec::new();
    for entry in dir.iter() {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            names.push(entry.file_name().to_owned());
            if names.len() == limit {
                break;
            }
        }
    }
    Ok(names)
}

/// Opens a directory for reading and gives its owner all rights to it first if need be; `None` when it has just gone.
fn open_unlocked(parent: BorrowedFd<'_>, name: &CStr) -> io::Result<Option<Dir>> {
    let open = || Dir::openat(parent, name, OPEN_DIR, Mode::empty());
    let dir = match open() {
        Err(Errno::EACCES) => {
            let stat = fstatat(parent, name, AtFlags::AT_SYMLINK_NOFOLLOW)?;
            if stat.st_mode & libc::S_IFMT != libc::S_IFDIR {
                return Err(Errno::ENOTDIR.into());
            }
            fchmodat(parent, name, Mode::S_IRWXU, FchmodatFlags::FollowSymlink)?;
            open()
        }
        other => other,
    };
    let dir = match dir {
        Err(Errno::ENOENT) => return Ok(None),
        other => other?,
    };
    if fstat(dir.as_fd())?.st_mode & libc::S_IRWXU != libc::S_IRWXU {
        fchmod(dir.as_fd(), Mode::S_IRWXU)?;
    }
    Ok(Some(dir))
}

/// Bytes allocated below `path`; what cannot be read counts as nothing, what is deeper than [`MAX_DEPTH`] too.
pub(crate) fn allocated(path: &Path) -> u64 {
    let Ok(top) = File::open(path) else { return 0 };
    let Ok(dir) = Dir::from_fd(OwnedFd::from(top)) else {
        return 0;
    };
    allocated_in(dir, 0)
}

fn allocated_in(mut dir: Dir, depth: usize) -> u64 {
    let mut sum = 0_u64;
    let mut below = Vec::new();
    let entries: Vec<CString> = dir
        .iter()
        .filter_map(|entry| entry.ok().map(|entry| entry.file_name().to_owned()))
        .filter(|name| !matches!(name.to_bytes(), b"." | b".."))
        .collect();
    for name in entries {
        let Ok(stat) = fstatat(dir.as_fd(), name.as_c_str(), AtFlags::AT_SYMLINK_NOFOLLOW) else {
            continue;
        };
        sum = sum.saturating_add(
            u64::try_from(stat.st_blocks)
                .unwrap_or(0)
                .saturating_mul(512),
        );
        if stat.st_mode & libc::S_IFMT == libc::S_IFDIR {
            below.push(name);
        }
    }
    for name in below {
        if depth < MAX_DEPTH
            && let Ok(child) = Dir::openat(dir.as_fd(), name.as_c_str(), OPEN_DIR, Mode::empty())
        {
            sum = sum.saturating_add(allocated_in(child, depth + 1));
        }
    }
    sum
}
