//! Extended attributes, by a name in a directory or by descriptor, also one opened with `O_PATH`.
//!
//! Since Linux 6.13 there are calls that take a directory descriptor and a name. Before, and for a descriptor opened with
//! `O_PATH`, the way leads through its name in /proc, which costs three times as much.

use super::{check, cstring, length, proc_name};
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// From asm-generic/unistd.h; the same on every architecture Rust's Linux targets have. libc does not know them yet.
const GETXATTRAT: libc::c_long = 464;
const LISTXATTRAT: libc::c_long = 465;
const REMOVEXATTRAT: libc::c_long = 466;

/// struct xattr_args.
#[repr(C, align(8))]
struct Arguments {
    value: u64,
    size: u32,
    flags: u32,
}

/// Whether the kernel has turned out to lack the newer calls.
static LACKING: AtomicBool = AtomicBool::new(false);

/// Tries the newer call; `None` where there is none.
fn newer(call: impl FnOnce() -> libc::c_long) -> Option<io::Result<usize>> {
    if LACKING.load(Ordering::Relaxed) {
        return None;
    }
    let result = usize::try_from(call()).map_err(|_| io::Error::last_os_error());
    if matches!(&result, Err(e) if e.raw_os_error() == Some(libc::ENOSYS)) {
        LACKING.store(true, Ordering::Relaxed);
        return None;
    }
    Some(result)
}

/// The names of the extended attributes of `leaf` below `dir`, not followed, or of `dir` itself (also `O_PATH`).
pub(crate) fn list_xattrs(dir: BorrowedFd<'_>, leaf: Option<&CStr>) -> io::Result<Vec<CString>> {
    let mut small = [0; 512];
    let large;
    let names = match list(dir, leaf, &mut small) {
        Ok(n) => &small[..n],
        Err(e) if e.raw_os_error() == Some(libc::ERANGE) => {
            // 64 KiB is XATTR_LIST_MAX.
            let mut buffer = vec![0; 65536];
            let n = list(dir, leaf, &mut buffer)?;
            buffer.truncate(n);
            large = buffer;
            &large[..]
        }
        Err(e) if matches!(e.raw_os_error(), Some(libc::EOPNOTSUPP)) => return Ok(Vec::new()),
        Err(e) => return Err(e),
    };
    names
        .split_inclusive(|&b| b == 0)
        .map(|n| cstring(n.strip_suffix(&[0]).unwrap_or(n)))
        .collect()
}

fn list(dir: BorrowedFd<'_>, leaf: Option<&CStr>, buffer: &mut [u8]) -> io::Result<usize> {
    let (pointer, size) = (buffer.as_mut_ptr(), buffer.len());
    let Some(leaf) = leaf else {
        // SAFETY: flistxattr(2) writes at most size bytes.
        let result = length(unsafe { libc::flistxattr(dir.as_raw_fd(), pointer.cast(), size) });
        if !matches!(&result, Err(e) if e.raw_os_error() == Some(libc::EBADF)) {
            return result;
        }
        let path = proc_name(dir, None)?;
        // SAFETY: listxattr(2) reads a NUL-terminated path and writes at most size bytes.
        return length(unsafe { libc::listxattr(path.as_ptr(), pointer.cast(), size) });
    };
    let listed = newer(|| {
        let flags = libc::AT_SYMLINK_NOFOLLOW;
        // SAFETY: listxattrat(2) reads a NUL-terminated path and writes at most size bytes.
        unsafe {
            libc::syscall(
                LISTXATTRAT,
                dir.as_raw_fd(),
                leaf.as_ptr(),
                flags,
                pointer,
                size,
            )
        }
    });
    if let Some(listed) = listed {
        return listed;
    }
    let path = proc_name(dir, Some(leaf))?;
    // SAFETY: llistxattr(2) reads a NUL-terminated path and writes at most size bytes.
    length(unsafe { libc::llistxattr(path.as_ptr(), pointer.cast(), size) })
}

/// The value of an extended attribute, see [`list_xattrs`]; `None` when there is none.
pub(crate) fn get_xattr(
    dir: BorrowedFd<'_>,
    leaf: Option<&CStr>,
    name: &CStr,
) -> io::Result<Option<Vec<u8>>> {
    let mut small = [0; 256];
    match get(dir, leaf, name, &mut small) {
        Ok(n) => Ok(Some(small[..n].to_vec())),
        Err(e) if e.raw_os_error() == Some(libc::ERANGE) => {
            // 64 KiB is XATTR_SIZE_MAX.
            let mut buffer = vec![0; 65536];
            let n = get(dir, leaf, name, &mut buffer)?;
            buffer.truncate(n);
            Ok(Some(buffer))
        }
        // EPERM: user attributes of a symlink or special file.
        Err(e)
            if matches!(
                e.raw_os_error(),
                Some(libc::ENODATA | libc::EOPNOTSUPP | libc::EPERM)
            ) =>
        {
            Ok(None)
        }
        Err(e) => Err(e),
    }
}

fn get(
    dir: BorrowedFd<'_>,
    leaf: Option<&CStr>,
    name: &CStr,
    buffer: &mut [u8],
) -> io::Result<usize> {
    let (pointer, size) = (buffer.as_mut_ptr(), buffer.len());
    let Some(leaf) = leaf else {
        let path = proc_name(dir, None)?;
        // SAFETY: getxattr(2) reads two NUL-terminated strings and writes at most size bytes.
        return length(unsafe {
            libc::getxattr(path.as_ptr(), name.as_ptr(), pointer.cast(), size)
        });
    };
    let got = newer(|| {
        let arguments = Arguments {
            value: pointer as u64,
            size: u32::try_from(size).unwrap_or(u32::MAX),
            flags: 0,
        };
        // SAFETY: getxattrat(2) reads two NUL-terminated strings and the arguments, and writes at most their size bytes.
        unsafe {
            libc::syscall(
                GETXATTRAT,
                dir.as_raw_fd(),
                leaf.as_ptr(),
                libc::AT_SYMLINK_NOFOLLOW,
                name.as_ptr(),
                &raw const arguments,
                size_of::<Arguments>(),
            )
        }
    });
    if let Some(got) = got {
        return got;
    }
    let path = proc_name(dir, Some(leaf))?;
    // SAFETY: lgetxattr(2) reads two NUL-terminated strings and writes at most size bytes.
    length(unsafe { libc::lgetxattr(path.as_ptr(), name.as_ptr(), pointer.cast(), size) })
}

/// Sets an extended attribute of the file that `fd` (also `O_PATH`) is.
pub(crate) fn set_xattr(fd: BorrowedFd<'_>, name: &CStr, value: &[u8]) -> io::Result<()> {
    let (pointer, length) = (value.as_ptr().cast(), value.len());
    // SAFETY: fsetxattr(2) reads a NUL-terminated string and value.len() bytes.
    let result =
        check(unsafe { libc::fsetxattr(fd.as_raw_fd(), name.as_ptr(), pointer, length, 0) });
    if !matches!(&result, Err(e) if e.raw_os_error() == Some(libc::EBADF)) {
        return result;
    }
    let path = proc_name(fd, None)?;
    // SAFETY: setxattr(2) reads two NUL-terminated strings and value.len() bytes.
    check(unsafe { libc::setxattr(path.as_ptr(), name.as_ptr(), pointer, length, 0) })
}

/// Removes an extended attribute, see [`list_xattrs`]; none there is well.
pub(crate) fn remove_xattr(
    dir: BorrowedFd<'_>,
    leaf: Option<&CStr>,
    name: &CStr,
) -> io::Result<()> {
    match remove(dir, leaf, name) {
        Err(e) if e.raw_os_error() == Some(libc::ENODATA) => Ok(()),
        result => result,
    }
}

fn remove(dir: BorrowedFd<'_>, leaf: Option<&CStr>, name: &CStr) -> io::Result<()> {
    let Some(leaf) = leaf else {
        let path = proc_name(dir, None)?;
        // SAFETY: removexattr(2) reads two NUL-terminated strings.
        return check(unsafe { libc::removexattr(path.as_ptr(), name.as_ptr()) });
    };
    let removed = newer(|| {
        let flags = libc::AT_SYMLINK_NOFOLLOW;
        // SAFETY: removexattrat(2) reads two NUL-terminated strings.
        unsafe {
            libc::syscall(
                REMOVEXATTRAT,
                dir.as_raw_fd(),
                leaf.as_ptr(),
                flags,
                name.as_ptr(),
            )
        }
    });
    if let Some(removed) = removed {
        return removed.map(drop);
    }
    let path = proc_name(dir, Some(leaf))?;
    // SAFETY: lremovexattr(2) reads two NUL-terminated strings.
    check(unsafe { libc::lremovexattr(path.as_ptr(), name.as_ptr()) })
}
