//! The real tree, as the mount plan asks about it.

use std::ffi::{CString, OsStr, OsString};
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use nix::dir::{Dir, Type};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag};
use nix::sys::stat::{Mode, SFlag, fstatat};

use crate::plan::{InLayer, Tree};
use crate::sys;

/// The filesystem of this process, seen with its effective ids.
#[derive(Debug, Clone, Copy)]
pub struct RealTree;

impl Tree for RealTree {
    fn may_write(&self, dir: &Path) -> bool {
        may(dir, libc::W_OK | libc::X_OK)
    }

    fn may_search(&self, dir: &Path) -> bool {
        may(dir, libc::X_OK)
    }

    fn is_foreign(&self, dir: &Path) -> bool {
        let (uid, gid) = (
            nix::unistd::geteuid().as_raw(),
            nix::unistd::getegid().as_raw(),
        );
        fstatat(nix::fcntl::AT_FDCWD, dir, AtFlags::AT_SYMLINK_NOFOLLOW)
            .is_ok_and(|stat| stat.st_uid != uid || stat.st_gid != gid)
    }

    fn is_directory(&self, path: &Path) -> Option<bool> {
        is_directory(nix::fcntl::AT_FDCWD, path.as_os_str())
    }

    fn directories(&self, dir: &Path) -> Option<(Vec<OsString>, bool)> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let mut dir = Dir::open(dir, flags, Mode::empty()).ok()?;
        let mut names = Vec::new();
        let mut others = false;
        let mut unknown = Vec::new();
        for entry in dir.iter() {
            let entry = entry.ok()?;
            let name = OsString::from_vec(entry.file_name().to_bytes().to_vec());
            if name == "." || name == ".." {
                continue;
            }
            match entry.file_type() {
                Some(Type::Directory) => names.push(name),
                Some(_) => others = true,
                None => unknown.push(name),
            }
        }
        for name in unknown {
            if is_directory(&dir, &name) == Some(true) {
                names.push(name);
            } else {
                others = true;
            }
        }
        names.sort();
        Some((names, others))
    }

    fn in_layer(&self, path: &Path) -> InLayer {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        match nix::fcntl::open(path, flags, Mode::empty()) {
            Ok(dir) => InLayer::Directory {
                opaque: sys::get_attribute(dir.as_fd(), c"user.overlay.opaque")
                    .is_some_and(|value| value == b"y"),
            },
            Err(Errno::ENOENT) => InLayer::Nothing,
            // One that its owner may not read: it is there, and its marks cannot be told.
            Err(Errno::EACCES) => {
                let stat = fstatat(nix::fcntl::AT_FDCWD, path, AtFlags::AT_SYMLINK_NOFOLLOW);
                InLayer::Unreadable {
                    writable: stat.is_ok_and(|stat| stat.st_mode & 0o200 != 0),
                }
            }
            Err(_) => InLayer::Other,
        }
    }
}

fn is_directory(dir: impl AsFd, name: &OsStr) -> Option<bool> {
    fstatat(dir, name, AtFlags::AT_SYMLINK_NOFOLLOW)
        .ok()
        .map(|stat| SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT == SFlag::S_IFDIR)
}

fn may(path: &Path, mode: i32) -> bool {
    CString::new(path.as_os_str().as_bytes())
        .is_ok_and(|path| sys::may(nix::fcntl::AT_FDCWD, &path, mode))
}
