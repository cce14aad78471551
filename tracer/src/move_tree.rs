//! Renames that the overlay refuses with EXDEV and the real filesystem would not: a directory of the lower layer, and anything
//! between two covers that stand for parts of one mount.
//!
//! What is moved is built beside its new name, entry by entry, and gets the name when it is whole. Entries keep their inodes
//! where the overlay can rename them, so open descriptors go along. When a step fails, what was moved goes back.

use crate::resolve::{Place, by_descriptor};
use crate::sys::{self, Errno, Result, Seen};
use effigy_journal::Kind;
use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

/// Deeper trees than this are refused: they stay where they are, and the caller copies.
const MAX_DEPTH: usize = 512;
const NOFOLLOW: i32 = libc::AT_SYMLINK_NOFOLLOW;

/// New names of files that have several.
type Links = HashMap<(u64, u64), (Rc<OwnedFd>, CString)>;

/// Carries a rename out. The target, if any, is replaced as rename(2) would.
pub(crate) fn carry_out(
    from: &Place,
    to: &Place,
    source: &Seen,
    target: Option<&Seen>,
) -> Result<()> {
    let directory = source.kind() == Kind::Directory;
    match target.map(Seen::kind) {
        Some(Kind::Directory) if !directory => return Err(Errno(libc::EISDIR)),
        Some(kind) if directory && kind != Kind::Directory => return Err(Errno(libc::ENOTDIR)),
        _ => {}
    }
    let old = bare(&from.last)?;
    let new = bare(&to.last)?;
    // What moves entry by entry and back is not what it was: descriptors of its directories would be of directories that are gone.
    may_change(&from.dir.seen, from.fd(), source)?;
    match target {
        Some(target) => may_change(&to.dir.seen, to.fd(), target)?,
        None => may_fill(to.fd())?,
    }
    if directory && target.is_some() {
        let target = open_directory((to.fd(), &new))?;
        if !entries(&target)?.is_empty() {
            return Err(Errno(libc::ENOTEMPTY));
        }
    }
    may_move((from.fd(), &old), source, 0)?;
    let aside = aside(&to.dir.fd)?;
    let mut links = Links::new();
    let moved = move_entry((from.fd(), &old), (to.fd(), &aside), source, &mut links, 0);
    if let Err(errno) = moved {
        let _back = put_back((to.fd(), &aside), (from.fd(), &old), directory);
        return Err(errno);
    }
    let switched = if directory && target.is_some() {
        // Only an empty directory may be replaced.
        sys::unlinkat(to.fd(), &new, libc::AT_REMOVEDIR)
    } else {
        Ok(())
    }
    .and_then(|()| sys::renameat2(to.fd(), &aside, to.fd(), &new, 0));
    if let Err(errno) = switched {
        let _back = put_back((to.fd(), &aside), (from.fd(), &old), directory);
        return Err(errno);
    }
    Ok(())
}

/// Lets two objects change places.
pub(crate) fn exchange(a: &Place, b: &Place, first: &Seen, second: &Seen) -> Result<()> {
    let (old, new) = (bare(&a.last)?, bare(&b.last)?);
    may_change(&a.dir.seen, a.fd(), first)?;
    may_change(&b.dir.seen, b.fd(), second)?;
    may_move((a.fd(), &old), first, 0)?;
    may_move((b.fd(), &new), second, 0)?;
    let aside = aside(&b.dir.fd)?;
    let (old, new, aside) = (
        (a.fd(), old.as_c_str()),
        (b.fd(), new.as_c_str()),
        (b.fd(), aside.as_c_str()),
    );
    let steps = [(old, aside, first), (new, old, second), (aside, new, first)];
    for (done, (from, to, seen)) in steps.iter().enumerate() {
        if let Err(errno) = move_entry(*from, *to, seen, &mut Links::new(), 0) {
            // Also what of the failed step had moved already.
            for (from, to, _) in steps[..=done].iter().rev() {
                let _back = put_back(*to, *from, true);
            }
            return Err(errno);
        }
    }
    Ok(())
}

/// Whether entries may be made in a directory and taken out of it.
fn may_fill(dir: BorrowedFd<'_>) -> Result<()> {
    sys::access(dir, c".", libc::W_OK | libc::X_OK, 0)
}

/// Whether an entry may be taken out of its directory, as the kernel decides it.
fn may_change(dir: &Seen, fd: BorrowedFd<'_>, entry: &Seen) -> Result<()> {
    may_fill(fd)?;
    let sticky = dir.stat.mode & libc::S_ISVTX != 0;
    if sticky && ![dir.stat.uid, entry.stat.uid].into_iter().any(sys::acts_as) {
        return Err(Errno(libc::EPERM));
    }
    Ok(())
}

/// Finds what would stop a move on its way, before anything is moved.
fn may_move(at: At<'_>, seen: &Seen, depth: usize) -> Result<()> {
    if seen.kind() != Kind::Directory {
        return Ok(());
    }
    if depth > MAX_DEPTH {
        return Err(Errno(libc::EXDEV));
    }
    if sys::acts_as(seen.stat.uid) && seen.stat.mode & 0o700 != 0o700 {
        // It is opened up when it is moved; until then it cannot be looked into.
        return Ok(());
    }
    let dir = open_directory(at)?;
    let names = entries(&dir)?;
    if !names.is_empty() {
        may_fill(dir.as_fd())?;
    }
    names.into_iter().try_for_each(|name| {
        let entry = sys::statx(dir.as_fd(), &name, NOFOLLOW)?;
        may_change(seen, dir.as_fd(), &entry)?;
        may_move((dir.as_fd(), &name), &entry, depth + 1)
    })
}

fn open_directory(at: At<'_>) -> Result<OwnedFd> {
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW;
    sys::openat(at.0, at.1, flags, 0)
}

/// A name without the slashes behind it.
fn bare(name: &CStr) -> Result<CString> {
    let bytes = name.to_bytes();
    let end = bytes
        .iter()
        .rposition(|byte| *byte != b'/')
        .map_or(0, |last| last + 1);
    CString::new(&bytes[..end]).map_err(|_| Errno(libc::EINVAL))
}

/// A name nobody uses.
fn aside(dir: &OwnedFd) -> Result<CString> {
    for n in 0..1000u32 {
        let name = CString::new(format!(".effigy-move-{}-{n}", std::process::id()))
            .map_err(|_| Errno(libc::EINVAL))?;
        if let Err(Errno(libc::ENOENT)) = sys::statx(dir.as_fd(), &name, NOFOLLOW) {
            return Ok(name);
        }
    }
    Err(Errno(libc::EEXIST))
}

type At<'a> = (BorrowedFd<'a>, &'a CStr);

fn move_entry(
    from: At<'_>,
    to: At<'_>,
    seen: &Seen,
    links: &mut Links,
    depth: usize,
) -> Result<()> {
    if depth > MAX_DEPTH {
        return Err(Errno(libc::EXDEV));
    }
    let several = seen.kind() != Kind::Directory && seen.stat.nlink > 1;
    let key = (seen.stat.dev, seen.stat.ino);
    // The last of several names may be the only one that is left.
    if let Some((dir, name)) = links.get(&key).filter(|_| seen.kind() != Kind::Directory) {
        sys::linkat(dir.as_fd(), name, to.0, to.1, 0)?;
        return sys::unlinkat(from.0, from.1, 0);
    }
    match sys::renameat2(from.0, from.1, to.0, to.1, libc::RENAME_NOREPLACE) {
        Err(Errno(libc::EXDEV)) if seen.kind() == Kind::Directory => {
            move_directory(from, to, seen, links, depth)?
        }
        Err(Errno(libc::EXDEV)) => {
            copy(from, to, seen)?;
            sys::unlinkat(from.0, from.1, 0)?;
        }
        other => other?,
    }
    if several {
        links.insert(key, (Rc::new(sys::duplicate(to.0)?), to.1.to_owned()));
    }
    Ok(())
}

fn move_directory(
    from: At<'_>,
    to: At<'_>,
    seen: &Seen,
    links: &mut Links,
    depth: usize,
) -> Result<()> {
    let writable = 0o700;
    if seen.stat.mode & writable != writable {
        // Entries could not be taken out; the bits are set again on the new directory.
        let flags = libc::AT_SYMLINK_NOFOLLOW.cast_unsigned();
        let mode = seen.stat.mode | writable;
        sys::fchmodat2(from.0, from.1, mode, flags)
            .or_else(|_| sys::chmod(from.0, from.1, mode))?;
    }
    let old = open_directory(from)?;
    if let Err(errno) = sys::mkdirat(to.0, to.1, 0o700) {
        let _mode = sys::chmod(sys::CWD, &by_descriptor(old.as_fd(), b""), seen.stat.mode);
        return Err(errno);
    }
    let new = open_directory(to)?;
    let result = entries(&old)?.into_iter().try_for_each(|name| {
        let entry = sys::statx(old.as_fd(), &name, NOFOLLOW)?;
        move_entry(
            (old.as_fd(), &name),
            (new.as_fd(), &name),
            &entry,
            links,
            depth + 1,
        )
    });
    if let Err(errno) = result {
        if let Ok(names) = entries(&new) {
            for name in names {
                let _back = put_back((new.as_fd(), &name), (old.as_fd(), &name), true);
            }
        }
        let _gone = sys::unlinkat(to.0, to.1, libc::AT_REMOVEDIR);
        let _mode = sys::chmod(sys::CWD, &by_descriptor(old.as_fd(), b""), seen.stat.mode);
        return Err(errno);
    }
    attributes(&old, &new, seen)?;
    sys::unlinkat(from.0, from.1, libc::AT_REMOVEDIR)
}

/// Undoes a move as well as it can be undone.
fn put_back(from: At<'_>, to: At<'_>, _directory: bool) -> Result<()> {
    let seen = sys::statx(from.0, from.1, NOFOLLOW)?;
    match sys::renameat2(from.0, from.1, to.0, to.1, libc::RENAME_NOREPLACE) {
        Err(Errno(libc::EEXIST)) if seen.kind() == Kind::Directory => {
            // The old directory still stands: only what it held goes back.
            let new = sys::openat(from.0, from.1, libc::O_RDONLY | libc::O_DIRECTORY, 0)?;
            let old = sys::openat(to.0, to.1, libc::O_RDONLY | libc::O_DIRECTORY, 0)?;
            for name in entries(&new)? {
                put_back((new.as_fd(), &name), (old.as_fd(), &name), false)?;
            }
            sys::unlinkat(from.0, from.1, libc::AT_REMOVEDIR)
        }
        Err(Errno(libc::EXDEV)) => {
            let mut links = Links::new();
            move_entry(from, to, &seen, &mut links, 0)
        }
        other => other,
    }
}

/// The names in a directory.
fn entries(dir: &OwnedFd) -> Result<Vec<CString>> {
    let listing = sys::openat(dir.as_fd(), c".", libc::O_RDONLY | libc::O_DIRECTORY, 0)?;
    let mut listing = nix::dir::Dir::from_fd(listing).map_err(|errno| Errno(errno as i32))?;
    let mut names = Vec::new();
    for entry in listing.iter() {
        let entry = entry.map_err(|errno| Errno(errno as i32))?;
        let name = entry.file_name();
        if name != c"." && name != c".." {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

/// Copies what cannot be renamed because it lies in another overlay.
fn copy(from: At<'_>, to: At<'_>, seen: &Seen) -> Result<()> {
    match seen.kind() {
        Kind::Symlink => {
            let mut target = Vec::new();
            sys::readlinkat(from.0, from.1, &mut target)?;
            let target = CString::new(target).map_err(|_| Errno(libc::EINVAL))?;
            sys::symlinkat(&target, to.0, to.1)?;
        }
        Kind::File => {
            let old = sys::openat(
                from.0,
                from.1,
                libc::O_RDONLY | libc::O_NOFOLLOW | libc::O_NONBLOCK,
                0,
            )?;
            let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW;
            let new = sys::openat(to.0, to.1, flags, 0o600)?;
            let copied = std::io::copy(
                &mut File::from(old.try_clone()?),
                &mut File::from(new.try_clone()?),
            );
            if let Err(error) = copied
                .map_err(Errno::from)
                .and_then(|_| attributes(&old, &new, seen))
            {
                let _gone = sys::unlinkat(to.0, to.1, 0);
                return Err(error);
            }
            return Ok(());
        }
        kind => {
            let bits = match kind {
                Kind::Fifo => libc::S_IFIFO,
                Kind::Socket => libc::S_IFSOCK,
                Kind::CharDevice => libc::S_IFCHR,
                _ => libc::S_IFBLK,
            };
            sys::mknodat(to.0, to.1, bits | seen.stat.mode, seen.stat.rdev)?;
            sys::chmod(to.0, to.1, seen.stat.mode)?;
        }
    }
    let _owner = sys::fchownat(to.0, to.1, seen.stat.uid, seen.stat.gid, NOFOLLOW);
    sys::utimensat(to.0, to.1, Some(&times(seen)), NOFOLLOW)
}

fn times(seen: &Seen) -> [libc::timespec; 2] {
    let omit = libc::timespec {
        tv_sec: 0,
        tv_nsec: libc::UTIME_OMIT,
    };
    let mtime = seen.stat.mtime;
    [
        omit,
        libc::timespec {
            tv_sec: mtime.seconds(),
            tv_nsec: i64::from(mtime.nanoseconds()),
        },
    ]
}

/// Gives the new object what the old one had: attributes, owner, mode and time, in the order in which they do not undo each other.
fn attributes(old: &OwnedFd, new: &OwnedFd, seen: &Seen) -> Result<()> {
    let (a, b) = (
        by_descriptor(old.as_fd(), b""),
        by_descriptor(new.as_fd(), b""),
    );
    let made = sys::stat_fd(new.as_fd())?.stat;
    if (made.uid, made.gid) != (seen.stat.uid, seen.stat.gid) {
        sys::fchownat(
            new.as_fd(),
            c"",
            seen.stat.uid,
            seen.stat.gid,
            libc::AT_EMPTY_PATH,
        )?;
    }
    for name in sys::listxattr(&a, true)
        .unwrap_or_default()
        .split(|byte| *byte == 0)
    {
        let Ok(name) = CString::new(name) else {
            continue;
        };
        if name.is_empty()
            || name.to_bytes().starts_with(b"user.overlay.")
            || name.to_bytes().starts_with(b"security.selinux")
        {
            continue;
        }
        let value = sys::getxattr(&a, &name, true)?;
        sys::setxattr(&b, &name, &value, 0, true)?;
    }
    sys::chmod(sys::CWD, &b, seen.stat.mode)?;
    sys::utimensat(sys::CWD, &b, Some(&times(seen)), 0)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test")]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
    use std::path::Path;

    fn open(path: &Path) -> OwnedFd {
        fs::File::open(path).unwrap().into()
    }

    /// What a rename must keep of everything in a tree.
    fn describe(top: &Path) -> Vec<String> {
        let mut lines = Vec::new();
        let mut todo = vec![top.to_owned()];
        while let Some(path) = todo.pop() {
            let meta = fs::symlink_metadata(&path).unwrap();
            let name = path.strip_prefix(top).unwrap().to_owned();
            let links = if meta.is_dir() { 0 } else { meta.nlink() };
            lines.push(format!(
                "{name:?} {:o} {links} {} {}",
                meta.mode(),
                meta.mtime(),
                meta.mtime_nsec()
            ));
            if meta.is_dir() {
                todo.extend(
                    fs::read_dir(&path)
                        .unwrap()
                        .map(|entry| entry.unwrap().path()),
                );
            }
        }
        lines.sort();
        lines
    }

    #[test]
    fn a_directory_keeps_everything_when_it_is_moved_entry_by_entry() {
        // Names of descriptors are below /proc, which is the supervisor's working directory.
        sys::unshare_fs().unwrap();
        std::env::set_current_dir("/proc").unwrap();
        let scratch = tempfile::tempdir().unwrap();
        let old = scratch.path().join("old");
        fs::create_dir_all(old.join("s")).unwrap();
        fs::write(old.join("s/f"), "P").unwrap();
        fs::hard_link(old.join("s/f"), old.join("hard")).unwrap();
        symlink("nowhere", old.join("link")).unwrap();
        fs::set_permissions(old.join("s"), fs::Permissions::from_mode(0o711)).unwrap();
        let past = std::time::SystemTime::UNIX_EPOCH
            + std::time::Duration::from_nanos(1_000_000_000_000_000_007);
        fs::File::open(old.join("s"))
            .unwrap()
            .set_modified(past)
            .unwrap();
        fs::File::open(&old).unwrap().set_modified(past).unwrap();
        let before = describe(&old);

        let dir = open(scratch.path());
        let seen = sys::statx(dir.as_fd(), c"old", NOFOLLOW).unwrap();
        move_directory(
            (dir.as_fd(), c"old"),
            (dir.as_fd(), c"new"),
            &seen,
            &mut Links::new(),
            0,
        )
        .unwrap();
        assert!(!old.exists());
        assert_eq!(describe(&scratch.path().join("new")), before);
    }

    #[test]
    fn an_exchange_swaps_and_leaves_nothing_beside() {
        sys::unshare_fs().unwrap();
        std::env::set_current_dir("/proc").unwrap();
        let scratch = tempfile::tempdir().unwrap();
        fs::create_dir_all(scratch.path().join("d/s")).unwrap();
        fs::write(scratch.path().join("f"), "x").unwrap();
        let place = |name: &CStr| Place {
            dir: Rc::new(crate::resolve::hold(open(scratch.path())).unwrap()),
            last: name.to_owned(),
        };
        let seen = |name| sys::statx(open(scratch.path()).as_fd(), name, NOFOLLOW).unwrap();
        exchange(&place(c"d"), &place(c"f"), &seen(c"d"), &seen(c"f")).unwrap();
        assert!(scratch.path().join("f/s").is_dir());
        assert_eq!(fs::read(scratch.path().join("d")).unwrap(), b"x");
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 2);
    }

    #[test]
    fn what_cannot_be_finished_is_put_back() {
        sys::unshare_fs().unwrap();
        std::env::set_current_dir("/proc").unwrap();
        let scratch = tempfile::tempdir().unwrap();
        let old = scratch.path().join("old");
        fs::create_dir_all(old.join("a")).unwrap();
        fs::write(old.join("f"), "x").unwrap();
        fs::set_permissions(&old, fs::Permissions::from_mode(0o555)).unwrap();
        // The new name is taken: nothing may have moved.
        fs::create_dir(scratch.path().join("new")).unwrap();
        let dir = open(scratch.path());
        let seen = sys::statx(dir.as_fd(), c"old", NOFOLLOW).unwrap();
        let moved = move_directory(
            (dir.as_fd(), c"old"),
            (dir.as_fd(), c"new"),
            &seen,
            &mut Links::new(),
            0,
        );
        assert_eq!(moved, Err(Errno(libc::EEXIST)));
        assert!(old.join("a").exists() && old.join("f").exists());
        assert_eq!(fs::metadata(&old).unwrap().mode() & 0o777, 0o555);
    }
}
