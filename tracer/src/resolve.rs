//! From a name to what it means: always through descriptors, starting at the task's own working directory, descriptor or root,
//! and never by editing the text of a path.
//!
//! The kernel does the walking wherever a walk of the supervisor's means the same as one of the task's. It does not below
//! /proc/self and /proc/thread-self, which mean whoever asks: there the walk goes component by component.

use crate::decode::Name;
use crate::sys::{self, Errno, Result, Seen};
use crate::tasks::Held;
use effigy_journal::Kind;
use std::collections::VecDeque;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

/// The most symbolic links the kernel follows in one walk (MAXSYMLINKS).
const MAX_LINKS: usize = 40;
/// PROC_SUPER_MAGIC of linux/magic.h.
const PROC_MAGIC: i64 = 0x9fa0;
/// The root inode of every procfs (PROC_ROOT_INO).
const PROC_ROOT_INODE: u64 = 1;

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    /// Process and thread number as the view's /proc has them.
    pub(crate) inner: (u32, u32),
}

/// Where a name's walk begins.
#[derive(Debug)]
pub(crate) struct Start {
    pub(crate) dir: Rc<Held>,
    pub(crate) root: Rc<Held>,
    pub(crate) caller: Caller,
    /// The root is not the supervisor's own: absolute paths are walked within it.
    pub(crate) scoped: bool,
}

/// A parent directory and the last component: what calls that make, remove and rename names act on.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) dir: Rc<Held>,
    /// The last component, with the slashes behind it.
    pub(crate) last: CString,
}

impl Place {
    /// The absolute name. Meaningless for `.` and `..`, with which no call succeeds that takes a place.
    pub(crate) fn name(&self) -> Vec<u8> {
        join(&self.dir.name, trim(self.last.as_bytes()))
    }

    /// The last component without the slashes behind it; the root has none.
    pub(crate) fn bare(&self) -> Option<CString> {
        let bare = trim(self.last.as_bytes());
        (!bare.is_empty()).then(|| CString::new(bare).unwrap_or_default())
    }

    /// Whether the last component is the name of an entry: the root, `.` and `..` are not.
    pub(crate) fn is_plain(&self) -> bool {
        !matches!(trim(self.last.as_bytes()), b"" | b"." | b"..")
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.dir.fd.as_fd()
    }
}

/// An existing object.
#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) fd: OwnedFd,
    pub(crate) seen: Seen,
    /// Its absolute name, or what the kernel says of it when it has none (`pipe:[1]`).
    pub(crate) name: Vec<u8>,
}

fn trim(component: &[u8]) -> &[u8] {
    let end = component
        .iter()
        .rposition(|byte| *byte != b'/')
        .map_or(0, |last| last + 1);
    &component[..end]
}

/// `directory/name`.
pub(crate) fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let mut whole = Vec::with_capacity(directory.len() + name.len() + 1);
    whole.extend_from_slice(directory);
    if whole.last() != Some(&b'/') {
        whole.push(b'/');
    }
    whole.extend_from_slice(name);
    whole
}

/// Parent and last component of a path; the parent is `None` when there is no slash before the last component.
pub(crate) fn split(path: &[u8]) -> (Option<&[u8]>, &[u8]) {
    let end = trim(path).len();
    match path[..end].iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (Some(&path[..=slash]), &path[slash + 1..]),
        None => (None, path),
    }
}

/// `self/fd/N`, from the working directory of the supervisor, which is the outer /proc.
pub(crate) fn by_descriptor(fd: BorrowedFd<'_>, rest: &[u8]) -> CString {
    use std::io::Write as _;
    use std::os::fd::AsRawFd as _;
    let mut path = Vec::with_capacity(32 + rest.len());
    // Writing into a Vec cannot fail.
    let _done = write!(path, "self/fd/{}", fd.as_raw_fd());
    path.extend_from_slice(rest);
    CString::new(path).unwrap_or_default()
}

/// The absolute name of what a descriptor holds.
pub(crate) fn name_of(fd: BorrowedFd<'_>) -> Result<Vec<u8>> {
    let mut name = Vec::new();
    sys::readlinkat(sys::CWD, &by_descriptor(fd, b""), &mut name)?;
    Ok(name)
}

/// A directory with its name, from a new descriptor.
pub(crate) fn hold(fd: OwnedFd) -> Result<Held> {
    let seen = sys::stat_fd(fd.as_fd())?;
    let name = name_of(fd.as_fd())?;
    Ok(Held { fd, seen, name })
}

/// The bytes of a name that lead to a directory other than the one it begins at.
pub(crate) fn leading(name: &Name) -> Option<&[u8]> {
    split(name.bytes())
        .0
        .filter(|parent| !trim(parent).is_empty())
}

/// The last component of a name, with the slashes behind it; `/` for the root.
pub(crate) fn last(name: &Name) -> Result<CString> {
    if trim(name.bytes()).is_empty() {
        Ok(c"/".to_owned())
    } else {
        cstring(split(name.bytes()).1)
    }
}

/// Finds the place of a name. Answers as well whether the kernel walked there without a link of /proc.
pub(crate) fn place(start: &Start, name: &Name) -> Result<(Place, bool)> {
    if name.bytes().is_empty() {
        return Err(Errno(libc::ENOENT));
    }
    let begin = if name.is_absolute() {
        &start.root
    } else {
        &start.dir
    };
    let last = last(name)?;
    let Some(parent) = leading(name) else {
        let dir = Rc::clone(begin);
        return Ok((Place { dir, last }, false));
    };
    let scoped = start.scoped && name.is_absolute();
    let walked = sys::walk(
        begin.fd.as_fd(),
        &cstring(parent)?,
        libc::O_DIRECTORY,
        scoped,
    );
    let plain = walked.is_ok();
    let fd = match walked {
        Err(Errno(libc::ELOOP | libc::ENOENT)) => step_by_step(start, begin, parent, true)?,
        other => other?,
    };
    let dir = Rc::new(hold(fd)?);
    Ok((Place { dir, last }, plain))
}

/// The object at a place, unless its name takes more to be told: `.`, `..`, slashes behind it, and links to be followed.
pub(crate) fn beside(place: &Place, follow: bool) -> Result<Option<Object>> {
    if !place.is_plain() || place.last.as_bytes().ends_with(b"/") {
        return Ok(None);
    }
    let fd = sys::walk(place.fd(), &place.last, libc::O_NOFOLLOW, false)?;
    let seen = sys::stat_fd(fd.as_fd())?;
    if seen.kind() == Kind::Symlink && follow {
        return Ok(None);
    }
    let name = place.name();
    Ok(Some(Object { fd, seen, name }))
}

/// Finds the object of a name.
pub(crate) fn object(start: &Start, name: &Name, follow: bool) -> Result<Object> {
    let path = name.bytes();
    if path.is_empty() {
        return Err(Errno(libc::ENOENT));
    }
    let begin = if name.is_absolute() {
        &start.root
    } else {
        &start.dir
    };
    // The usual case, a plain name in the working directory that is no link, needs no question for its name.
    if !path.contains(&b'/') && path != b"." && path != b".." {
        let fd = sys::walk(begin.fd.as_fd(), &name.path, libc::O_NOFOLLOW, false)?;
        let seen = sys::stat_fd(fd.as_fd())?;
        if seen.kind() != Kind::Symlink || !follow {
            return Ok(Object {
                fd,
                seen,
                name: join(&begin.name, path),
            });
        }
    }
    let flags = if follow { 0 } else { libc::O_NOFOLLOW };
    let fd = match sys::walk(
        begin.fd.as_fd(),
        &cstring(relative(path))?,
        flags,
        start.scoped && name.is_absolute(),
    ) {
        Err(Errno(libc::ELOOP | libc::ENOENT)) => step_by_step(start, begin, path, follow)?,
        other => other?,
    };
    let seen = sys::stat_fd(fd.as_fd())?;
    let name = name_of(fd.as_fd())?;
    Ok(Object { fd, seen, name })
}

/// The path without the slashes before it, `.` for the root itself.
fn relative(path: &[u8]) -> &[u8] {
    let start = path
        .iter()
        .position(|byte| *byte != b'/')
        .unwrap_or(path.len());
    if start == path.len() {
        b"."
    } else {
        &path[start..]
    }
}

fn cstring(bytes: &[u8]) -> Result<CString> {
    CString::new(bytes).map_err(|_| Errno(libc::ENOENT))
}

/// A component still to be walked. Whether it must be a directory is known by what follows it.
type Rest = VecDeque<Vec<u8>>;

fn push_front(rest: &mut Rest, path: &[u8]) {
    for component in path.split(|byte| *byte == b'/').rev() {
        if !component.is_empty() {
            rest.push_front(component.to_vec());
        }
    }
}

/// Walks as the caller would, one component at a time.
fn step_by_step(start: &Start, begin: &Held, path: &[u8], follow_last: bool) -> Result<OwnedFd> {
    let mut current = sys::duplicate(begin.fd.as_fd())?;
    let mut rest = Rest::new();
    push_front(&mut rest, path);
    if path.last() == Some(&b'/') {
        rest.push_back(b".".to_vec());
    }
    let mut links = 0;
    while let Some(component) = rest.pop_front() {
        let name = cstring(&component)?;
        let next = sys::openat(current.as_fd(), &name, libc::O_PATH | libc::O_NOFOLLOW, 0)?;
        let seen = sys::stat_fd(next.as_fd())?;
        if seen.kind() != Kind::Symlink || (rest.is_empty() && !follow_last) {
            if !rest.is_empty() && seen.kind() != Kind::Directory {
                return Err(Errno(libc::ENOTDIR));
            }
            current = next;
            continue;
        }
        links += 1;
        if links > MAX_LINKS {
            return Err(Errno(libc::ELOOP));
        }
        if sys::fs_magic(current.as_fd())? == PROC_MAGIC {
            let at_root = sys::stat_fd(current.as_fd())?.stat.ino == PROC_ROOT_INODE;
            match (at_root, component.as_slice()) {
                (true, b"self") => rest.push_front(start.caller.inner.0.to_string().into_bytes()),
                (true, b"thread-self") => {
                    let (process, thread) = start.caller.inner;
                    push_front(&mut rest, format!("{process}/task/{thread}").as_bytes());
                }
                (true, _) => {
                    let target = link_target(next.as_fd())?;
                    push_front(&mut rest, &target);
                }
                // A magic link: only the kernel can follow it.
                (false, _) => current = sys::openat(current.as_fd(), &name, libc::O_PATH, 0)?,
            }
            continue;
        }
        let target = link_target(next.as_fd())?;
        if target.first() == Some(&b'/') {
            current = sys::duplicate(start.root.fd.as_fd())?;
        }
        if target.last() == Some(&b'/') && rest.is_empty() {
            rest.push_front(b".".to_vec());
        }
        push_front(&mut rest, &target);
    }
    Ok(current)
}

fn link_target(link: BorrowedFd<'_>) -> Result<Vec<u8>> {
    let mut target = Vec::new();
    sys::readlinkat(link, c"", &mut target)?;
    if target.is_empty() {
        Err(Errno(libc::ENOENT))
    } else {
        Ok(target)
    }
}

/// A name for a call whose path does not resolve: the text as given, after the directory it is relative to. For the reader of a
/// failed call only.
pub(crate) fn as_given(start: &Start, path: &CStr) -> Vec<u8> {
    let path = path.to_bytes();
    if path.first() == Some(&b'/') {
        path.to_vec()
    } else {
        join(&start.dir.name, trim(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_like_the_kernel() {
        assert_eq!(split(b"a"), (None, &b"a"[..]));
        assert_eq!(split(b"a/"), (None, &b"a/"[..]));
        assert_eq!(split(b"a//b//"), (Some(&b"a//"[..]), &b"b//"[..]));
        assert_eq!(split(b"/b"), (Some(&b"/"[..]), &b"b"[..]));
        assert_eq!(split(b"a/.."), (Some(&b"a/"[..]), &b".."[..]));
    }

    #[test]
    fn joins_below_the_root() {
        assert_eq!(join(b"/", b"a"), b"/a");
        assert_eq!(join(b"/d", b"\xff"), b"/d/\xff");
    }
}
