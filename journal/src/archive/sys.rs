//! Extended attributes of open files.

use nix::errno::Errno;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

/// Attributes that are neither another machine's business nor made anew by the kernel.
fn travels(name: &[u8]) -> bool {
    name.starts_with(b"user.")
        || name.starts_with(b"trusted.")
        || matches!(
            name,
            b"security.capability" | b"system.posix_acl_access" | b"system.posix_acl_default"
        )
}

/// The attributes that travel, with their values.
pub(super) fn attributes(file: BorrowedFd<'_>) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    // SAFETY: flistxattr(2) writes at most `len` bytes to the buffer, which is that long.
    let list =
        grow(|buffer, len| unsafe { libc::flistxattr(file.as_raw_fd(), buffer.cast(), len) })?;
    let Some(list) = list else {
        return Ok(Vec::new());
    };
    let mut found = Vec::new();
    for name in list.split(|&byte| byte == 0).filter(|name| travels(name)) {
        let key = CString::new(name)?;
        // SAFETY: fgetxattr(2) reads a NUL-terminated name and writes at most `len` bytes to the buffer, which is that long.
        let value = grow(|buffer, len| unsafe {
            libc::fgetxattr(file.as_raw_fd(), key.as_ptr(), buffer, len)
        })?;
        if let Some(value) = value {
            found.push((name.to_vec(), value));
        }
    }
    Ok(found)
}

/// Calls with larger and larger buffers; `None` when there is nothing to get.
fn grow(call: impl Fn(*mut libc::c_void, usize) -> isize) -> io::Result<Option<Vec<u8>>> {
    let mut buffer = vec![0_u8; 1024];
    loop {
        let got = call(buffer.as_mut_ptr().cast(), buffer.len());
        match usize::try_from(got).map_err(|_| Errno::last()) {
            Ok(len) => {
                buffer.truncate(len);
                return Ok(Some(buffer));
            }
            Err(Errno::ERANGE) if buffer.len() < 1 << 20 => buffer.resize(buffer.len() * 8, 0),
            Err(Errno::ENODATA | Errno::EOPNOTSUPP) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Sets an attribute of an open file.
pub(super) fn set_attribute(file: BorrowedFd<'_>, name: &CStr, value: &[u8]) -> io::Result<()> {
    // SAFETY: fsetxattr(2) reads a NUL-terminated name and `len` bytes of the value; both live across the call.
    let done = unsafe {
        libc::fsetxattr(
            file.as_raw_fd(),
            name.as_ptr(),
            value.as_ptr().cast(),
            value.len(),
            0,
        )
    };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
