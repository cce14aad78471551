//! The upper and staged lower directories of covers.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat, readlinkat};
use nix::sys::stat::{
    FileStat, Mode, SFlag, UtimensatFlags, fchmodat, fstatat, futimens, mknodat, utimensat,
};
use nix::sys::time::TimeSpec;
use nix::unistd::{Gid, Uid, fchownat};

use crate::mounts::{self, Access, At, c_name};
use crate::sys;
use crate::view::{NAME, Owner, make_dir};

/// Own files up to this size are copied into a staged directory, so that changes to them are captured.
const LARGEST_COPY: i64 = 16 << 20;
/// All copies of one staged directory together stay below this.
const ALL_COPIES: i64 = 256 << 20;

/// A staged lower layer.
pub(crate) struct Staged {
    pub(crate) lower: OwnedFd,
    /// Names that are bound, read-only, onto placeholders.
    foreign: Vec<OsString>,
}

/// Attributes that a cover's root was given.
pub(crate) struct Root {
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// Makes `layer`/lower: links, small own files and pipes as they are; directories empty, to be mounted upon; other files as
/// placeholders.
pub(crate) fn stage(real: &OwnedFd, path: &Path, layer: &OwnedFd, uid: u32) -> io::Result<Staged> {
    make_dir(layer, "lower", 0o755)?;
    let lower = openat(layer, "lower", NAME | OFlag::O_DIRECTORY, Mode::empty())?;
    let mut staged = Staged {
        lower,
        foreign: Vec::new(),
    };
    let mut budget = ALL_COPIES;
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let mut dir = match Dir::openat(real, ".", flags, Mode::empty()) {
        Ok(dir) => dir,
        // A directory that may be searched but not read: names in it cannot be known, so only what is mounted below shows.
        Err(Errno::EACCES) => return Ok(staged),
        Err(error) => return Err(io::Error::from(error)),
    };
    let names: Vec<OsString> = dir
        .iter()
        .map(|entry| entry.map(|entry| OsString::from_vec(entry.file_name().to_bytes().to_vec())))
        .collect::<Result<_, _>>()?;
    for name in names.iter().filter(|name| *name != "." && *name != "..") {
        let Ok(stat) = fstatat(real, name.as_os_str(), AtFlags::AT_SYMLINK_NOFOLLOW) else {
            continue;
        };
        stage_one(real, name, &stat, &mut staged, uid, &mut budget).map_err(|error| {
            io::Error::other(format!("stage {}: {error}", path.join(name).display()))
        })?;
    }
    Ok(staged)
}

fn stage_one(
    real: &OwnedFd,
    name: &OsStr,
    stat: &FileStat,
    staged: &mut Staged,
    uid: u32,
    budget: &mut i64,
) -> io::Result<()> {
    let lower = &staged.lower;
    // The second half: a foreign owner shows as the overflow id, which may be the user's own number.
    let own = stat.st_uid == uid && sys::may(real.as_fd(), &c_name(name), libc::W_OK);
    match SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT {
        SFlag::S_IFDIR => make_dir(lower, name, 0o755),
        SFlag::S_IFLNK => {
            let target = readlinkat(real, name)?;
            nix::unistd::symlinkat(target.as_os_str(), lower, name)?;
            Ok(utimensat(
                lower,
                name,
                &accessed(stat),
                &modified(stat),
                UtimensatFlags::NoFollowSymlink,
            )?)
        }
        SFlag::S_IFREG
            if own
                && stat.st_size <= LARGEST_COPY.min(*budget)
                && copy(real, name, stat, lower).is_ok() =>
        {
            *budget -= stat.st_size;
            Ok(())
        }
        SFlag::S_IFIFO | SFlag::S_IFSOCK if own => {
            let kind = SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT;
            mknodat(
                lower,
                name,
                kind,
                Mode::from_bits_truncate(stat.st_mode & 0o7777),
                0,
            )?;
            Ok(fchmodat(
                lower,
                name,
                Mode::from_bits_truncate(stat.st_mode & 0o7777),
                nix::sys::stat::FchmodatFlags::FollowSymlink,
            )?)
        }
        SFlag::S_IFSOCK => Ok(mknodat(lower, name, SFlag::S_IFSOCK, Mode::empty(), 0)?),
        _ => {
            mknodat(lower, name, SFlag::S_IFREG, Mode::empty(), 0).or_else(
                |error| match error {
                    Errno::EEXIST => Ok(()), // the copy failed half-way; its place is what the bind needs
                    other => Err(other),
                },
            )?;
            staged.foreign.push(name.to_owned());
            Ok(())
        }
    }
}

impl Staged {
    /// Binds the real files that were not copied over their placeholders, read-only. `at` is the staged directory in the view.
    pub(crate) fn bind_foreign(&self, real: &OwnedFd, at: &OwnedFd) -> io::Result<()> {
        for name in &self.foreign {
            let name = c_name(name);
            mounts::bind(
                At::new(real, &name),
                At::new(at, &name),
                false,
                Access::ReadOnly,
            )?;
        }
        Ok(())
    }
}

/// Copies an own regular file with mode, times and extended attributes of the user's.
fn copy(real: &OwnedFd, name: &OsStr, stat: &FileStat, lower: &OwnedFd) -> io::Result<()> {
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let mut from = File::from(openat(real, name, flags, Mode::empty())?);
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
    let mut to = File::from(openat(lower, name, flags, Mode::S_IRUSR | Mode::S_IWUSR)?);
    if sys::clone_content(from.as_fd(), to.as_fd()).is_err() {
        io::copy(&mut from, &mut to)?;
    }
    for attribute in [c"system.posix_acl_access", c"user.mime_type"] {
        if let Some(value) = sys::get_attribute(from.as_fd(), attribute) {
            sys::set_attribute(to.as_fd(), attribute, &value)?;
        }
    }
    nix::sys::stat::fchmod(&to, Mode::from_bits_truncate(stat.st_mode & 0o7777))?;
    Ok(futimens(&to, &accessed(stat), &modified(stat))?)
}

/// What an upper directory has from an earlier run.
pub(crate) fn dressed(upper: &OwnedFd) -> io::Result<Root> {
    let stat = fstatat(upper, "", AtFlags::AT_EMPTY_PATH)?;
    Ok(Root {
        mode: stat.st_mode & 0o7777,
        uid: stat.st_uid,
        gid: stat.st_gid,
    })
}

/// Gives the upper directory, which is the root of a cover, what the real directory has.
///
/// A user cannot give directories away: there the root belongs to the user, with the write permission the user really has, so
/// that what is refused outside is refused inside.
pub(crate) fn dress(
    real: &OwnedFd,
    path: &Path,
    upper: &OwnedFd,
    owner: Owner,
) -> io::Result<Root> {
    let stat = fstatat(real, "", AtFlags::AT_EMPTY_PATH)?;
    let mut mode = stat.st_mode & 0o7777;
    let (mut uid, mut gid) = (stat.st_uid, stat.st_gid);
    if owner.privileged {
        fchownat(
            upper,
            "",
            Some(Uid::from_raw(uid)),
            Some(Gid::from_raw(gid)),
            AtFlags::AT_EMPTY_PATH,
        )?;
    } else {
        let own = fstatat(upper, "", AtFlags::AT_EMPTY_PATH)?;
        // A foreign owner shows as the overflow id, which may be the user's own number: so the kernel is asked either way.
        let name = mounts::c_path(path);
        let rights = [
            (libc::R_OK, 0o400),
            (libc::W_OK, 0o200),
            (libc::X_OK, 0o100),
        ];
        let granted = rights
            .iter()
            .filter(|(right, _)| sys::may(nix::fcntl::AT_FDCWD, &name, *right));
        let granted = granted.fold(0, |bits, (_, bit)| bits | bit);
        let user = if stat.st_uid == owner.uid {
            mode & granted
        } else {
            granted
        };
        mode = (mode & !0o700) | (user & 0o700);
        uid = own.st_uid;
        if nix::unistd::getegid().as_raw() == stat.st_gid {
            fchownat(
                upper,
                "",
                None,
                Some(Gid::from_raw(gid)),
                AtFlags::AT_EMPTY_PATH,
            )?;
        } else {
            gid = own.st_gid;
            mode &= !0o2000;
        }
    }
    let open_flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let writable = openat(upper, ".", open_flags, Mode::empty())?;
    if let Ok(readable) = openat(real, ".", open_flags, Mode::empty()) {
        for attribute in [c"system.posix_acl_access", c"system.posix_acl_default"] {
            if let Some(value) = sys::get_attribute(readable.as_fd(), attribute) {
                // Entries for users that have no number in this namespace cannot be kept; the mode still is.
                let _unmapped = sys::set_attribute(writable.as_fd(), attribute, &value);
            }
        }
    }
    nix::sys::stat::fchmod(&writable, Mode::from_bits_truncate(mode))?;
    futimens(&writable, &accessed(&stat), &modified(&stat))?;
    Ok(Root { mode, uid, gid })
}

/// Makes `name` absent in the overlay whose upper directory this is.
pub(crate) fn whiteout(upper: &OwnedFd, name: &OsStr) -> io::Result<()> {
    match mknodat(upper, name, SFlag::S_IFCHR, Mode::empty(), 0) {
        Ok(()) | Err(Errno::EEXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn accessed(stat: &FileStat) -> TimeSpec {
    TimeSpec::new(stat.st_atime, stat.st_atime_nsec)
}

fn modified(stat: &FileStat) -> TimeSpec {
    TimeSpec::new(stat.st_mtime, stat.st_mtime_nsec)
}
