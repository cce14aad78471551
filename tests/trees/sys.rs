//! Extended attributes of a file, a link not followed.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

pub(super) fn attributes(path: &Path) -> io::Result<BTreeMap<OsString, Vec<u8>>> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: `path` is NUL-terminated; the buffer is as long as the length given with it (llistxattr(2)).
    let names =
        filled(|buffer, size| unsafe { libc::llistxattr(path.as_ptr(), buffer.cast(), size) })?;
    let mut attributes = BTreeMap::new();
    for name in names
        .split(|&byte| byte == 0)
        .filter(|name| !name.is_empty())
    {
        let c_name = CString::new(name)?;
        // SAFETY: both strings are NUL-terminated; the buffer is as long as the length given with it (lgetxattr(2)).
        let value = filled(|buffer, size| unsafe {
            libc::lgetxattr(path.as_ptr(), c_name.as_ptr(), buffer.cast(), size)
        })?;
        attributes.insert(OsStr::from_bytes(name).to_owned(), value);
    }
    Ok(attributes)
}

fn filled(call: impl Fn(*mut u8, usize) -> isize) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0_u8; 65536];
    match usize::try_from(call(buffer.as_mut_ptr(), buffer.len())) {
        Ok(length) => {
            buffer.truncate(length);
            Ok(buffer)
        }
        Err(_) => match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::ENOTSUP) => Ok(Vec::new()),
            error => Err(error),
        },
    }
}
