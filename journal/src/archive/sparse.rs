//! Files with holes, in GNU tar's form 1.0: the data begins with a list of its pieces, padded to a block.

use nix::errno::Errno;
use nix::unistd::{Whence, lseek};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd as _;

/// Pieces a file may have.
const MAX_PIECES: u64 = 4 << 20;

const BLOCK: usize = 512;

/// Where the file has data: offset and length, rising.
pub(super) fn pieces(file: &File, size: u64) -> io::Result<Vec<(u64, u64)>> {
    let mut pieces = Vec::new();
    let mut at = 0_i64;
    let end = i64::try_from(size).map_err(io::Error::other)?;
    while at < end {
        let from = match lseek(file.as_fd(), at, Whence::SeekData) {
            Err(Errno::ENXIO) => break,
            other => other?,
        };
        let to = lseek(file.as_fd(), from, Whence::SeekHole)?.min(end);
        if to <= from {
            break;
        }
        pieces.push((from.unsigned_abs(), to.abs_diff(from)));
        at = to;
    }
    Ok(pieces)
}

/// The list as it stands before the data.
pub(super) fn list(pieces: &[(u64, u64)]) -> Vec<u8> {
    let mut text = format!("{}\n", pieces.len());
    for (offset, len) in pieces {
        text.push_str(&format!("{offset}\n{len}\n"));
    }
    let mut bytes = text.into_bytes();
    bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
    bytes
}

/// Reads the list of a file of `size` bytes; `None` when it is not well formed.
pub(super) fn read_list(data: &mut impl Read, size: u64) -> io::Result<Option<Vec<(u64, u64)>>> {
    let mut used = 0_usize;
    let mut next = || -> io::Result<Option<u64>> {
        let mut digits = Vec::new();
        let mut byte = [0];
        loop {
            data.read_exact(&mut byte)?;
            used += 1;
            match byte[0] {
                b'\n' => return Ok(super::pax::number(&digits)),
                digit if digits.len() < 20 => digits.push(digit),
                _ => return Ok(None),
            }
        }
    };
    let Some(count) = next()?.filter(|count| *count <= MAX_PIECES) else {
        return Ok(None);
    };
    let mut pieces = Vec::new();
    let mut free = 0;
    for _ in 0..count {
        let (Some(offset), Some(len)) = (next()?, next()?) else {
            return Ok(None);
        };
        let end = offset.checked_add(len).filter(|end| *end <= size);
        let (Some(end), true) = (end, offset >= free) else {
            return Ok(None);
        };
        pieces.push((offset, len));
        free = end;
    }
    let padding = used.next_multiple_of(BLOCK) - used;
    io::copy(&mut data.take(padding as u64), &mut io::sink())?;
    Ok(Some(pieces))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_come_back() {
        let pieces = vec![(0, 4096), (1 << 40, 12)];
        let bytes = list(&pieces);
        assert_eq!(bytes.len() % BLOCK, 0);
        let mut data = bytes.as_slice();
        assert_eq!(
            read_list(&mut data, 1 << 41).expect("readable"),
            Some(pieces)
        );
        assert!(data.is_empty());
    }

    #[test]
    fn what_lies_outside_or_overlaps_is_refused() {
        for wrong in [
            "1\n0\n11\n",
            "2\n0\n5\n4\n1\n",
            "1\n18446744073709551615\n2\n",
            "9999999999\n",
            "x\n",
            "1\n-1\n2\n",
        ] {
            let mut bytes = wrong.as_bytes().to_vec();
            bytes.resize(BLOCK, 0);
            assert_eq!(
                read_list(&mut bytes.as_slice(), 10).expect("readable"),
                None,
                "{wrong}"
            );
        }
    }
}
