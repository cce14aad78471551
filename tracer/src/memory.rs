//! Reading the memory of a stopped task.
//!
//! By thread id: it means the notifying task while the notification is alive, which the supervisor asks the kernel *after*
//! reading and before acting.

use crate::sys::check;
use std::io;

/// The longest path with its NUL (PATH_MAX).
pub(crate) const PATH_MAX: usize = 4096;
const PAGE: u64 = 4096;

/// Why memory could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The task gave an address that it cannot read itself.
    Bad,
    /// No NUL within PATH_MAX.
    TooLong,
    /// The supervisor may not read this task, or it is gone.
    Denied,
}

/// Reads up to `into.len()` bytes; answers how many could be read before the first bad page.
pub(crate) fn read(tid: u32, address: u64, into: &mut [u8]) -> Result<usize, Fault> {
    if into.is_empty() {
        return Ok(0);
    }
    let Ok(base) = usize::try_from(address) else {
        return Err(Fault::Bad);
    };
    let local = libc::iovec {
        iov_base: into.as_mut_ptr().cast(),
        iov_len: into.len(),
    };
    let remote = libc::iovec {
        iov_base: std::ptr::with_exposed_provenance_mut(base),
        iov_len: into.len(),
    };
    // SAFETY: process_vm_readv(2) writes at most `into.len()` bytes into `into`; the remote address is never used here.
    let got = unsafe {
        libc::process_vm_readv(
            tid.cast_signed(),
            &raw const local,
            1,
            &raw const remote,
            1,
            0,
        )
    };
    match check(got as i64) {
        Ok(n) => Ok(usize::try_from(n).unwrap_or(0)),
        Err(error) => Err(fault(&error)),
    }
}

/// What lies behind one address up to the end of its page: for things that lie close together, so that one read does for many.
#[derive(Debug)]
pub(crate) struct Page {
    tid: u32,
    base: u64,
    bytes: Vec<u8>,
}

impl Page {
    pub(crate) fn of(tid: u32) -> Self {
        Self {
            tid,
            base: 0,
            bytes: Vec::new(),
        }
    }

    /// The bytes from an address on, at least one.
    pub(crate) fn at(&mut self, address: u64) -> Result<&[u8], Fault> {
        let within = address
            .checked_sub(self.base)
            .and_then(|offset| usize::try_from(offset).ok())
            .filter(|offset| *offset < self.bytes.len());
        let offset = match within {
            Some(offset) => offset,
            None => {
                let len = usize::try_from(PAGE - address % PAGE).unwrap_or(1);
                self.base = address;
                self.bytes.clear();
                self.bytes.resize(len, 0);
                let got = read(self.tid, address, &mut self.bytes);
                self.bytes.truncate(*got.as_ref().unwrap_or(&0));
                got?;
                0
            }
        };
        match &self.bytes[offset..] {
            [] => Err(Fault::Bad),
            bytes => Ok(bytes),
        }
    }
}

/// Reads the first bytes at two addresses at once, as far as their pages go: two strings, when both end there.
pub(crate) fn two_strings(tid: u32, addresses: [u64; 2]) -> Option<[Vec<u8>; 2]> {
    const MOST: usize = 256;
    let mut buffers = [[0u8; MOST]; 2];
    let [one, other] = &mut buffers;
    let mut lens = [0; 2];
    let mut remote = [libc::iovec {
        iov_base: std::ptr::null_mut(),
        iov_len: 0,
    }; 2];
    for (index, address) in addresses.into_iter().enumerate() {
        let to_page_end = usize::try_from(PAGE - address % PAGE).ok()?;
        lens[index] = to_page_end.min(MOST);
        remote[index] = libc::iovec {
            iov_base: std::ptr::with_exposed_provenance_mut(usize::try_from(address).ok()?),
            iov_len: lens[index],
        };
    }
    let local = [
        libc::iovec {
            iov_base: one.as_mut_ptr().cast(),
            iov_len: lens[0],
        },
        libc::iovec {
            iov_base: other.as_mut_ptr().cast(),
            iov_len: lens[1],
        },
    ];
    // SAFETY: process_vm_readv(2) writes at most as many bytes into each buffer as its iovec says, which are no more than it
    // has; the remote addresses are never used here.
    let got = unsafe {
        libc::process_vm_readv(tid.cast_signed(), local.as_ptr(), 2, remote.as_ptr(), 2, 0)
    };
    if usize::try_from(got) != Ok(lens[0] + lens[1]) {
        return None;
    }
    let whole = |buffer: &[u8], len: usize| {
        let nul = buffer[..len].iter().position(|byte| *byte == 0)?;
        Some(buffer[..nul].to_vec())
    };
    Some([whole(&*one, lens[0])?, whole(&*other, lens[1])?])
}

fn fault(error: &io::Error) -> Fault {
    match error.raw_os_error() {
        Some(libc::EFAULT) => Fault::Bad,
        _ => Fault::Denied,
    }
}

/// Reads exactly `into.len()` bytes.
pub(crate) fn read_exact(tid: u32, address: u64, into: &mut [u8]) -> Result<(), Fault> {
    if read(tid, address, into)? == into.len() {
        Ok(())
    } else {
        Err(Fault::Bad)
    }
}

/// Reads a NUL-terminated string of at most PATH_MAX bytes (with the NUL) into `buffer`, without the NUL.
pub(crate) fn string(tid: u32, address: u64, buffer: &mut Vec<u8>) -> Result<(), Fault> {
    string_within(tid, address, PATH_MAX, buffer)
}

/// The same with another limit.
pub(crate) fn string_within(
    tid: u32,
    address: u64,
    limit: usize,
    buffer: &mut Vec<u8>,
) -> Result<(), Fault> {
    buffer.clear();
    let mut at = address;
    while buffer.len() < limit {
        // Most strings are short and lie within a page; a read that would cross into an unmapped page must not fail for
        // bytes after the NUL, so it ends at the page's end.
        let to_page_end = usize::try_from(PAGE - at % PAGE).unwrap_or(1);
        let chunk = to_page_end
            .min(if buffer.is_empty() { 256 } else { 4096 })
            .min(limit - buffer.len());
        let have = buffer.len();
        buffer.resize(have + chunk, 0);
        let got = read(tid, at, &mut buffer[have..])?;
        if let Some(nul) = buffer[have..have + got].iter().position(|byte| *byte == 0) {
            buffer.truncate(have + nul);
            return Ok(());
        }
        buffer.truncate(have + got);
        if got < chunk {
            return Err(Fault::Bad);
        }
        at = at.wrapping_add(got as u64);
    }
    Err(Fault::TooLong)
}
