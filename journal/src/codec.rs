//! The bytes of the journal; docs/JOURNAL.md describes them one by one.
//!
//! This is the only module that knows bincode. A record on disk differs from the value it stands for in that paths are
//! distances from the end of the table, times and versions are differences from the one before, and flags are compared
//! with those of the open before: most fields then take one byte.

use crate::writer::End;
use bincode::config::{Configuration, Limit, LittleEndian, Varint, standard};

mod record;

pub(crate) use record::{Context, Record, mark_absent};

/// The first bytes of every journal.
pub const MAGIC: [u8; 8] = *b"\x8eEFFIGY\n";

/// The major version of the format: a reader refuses any other.
///
/// Changelog: 1, the first.
pub const MAJOR: u16 = 1;

/// The minor version of the format: it may add frames that older readers pass over.
///
/// Changelog of major version 1: 0, the first.
pub const MINOR: u16 = 0;

/// Bytes of the header: magic, major, minor, CRC-32C of these.
pub const HEADER_LEN: usize = 16;

/// Bytes before the payload of a frame: length, type, chained CRC-32C.
pub const FRAME_LEN: usize = 9;

/// The largest payload of a frame.
pub const MAX_FRAME: usize = 2 << 20;

/// The largest record.
pub const MAX_RECORD: usize = 1 << 20;

/// The longest path.
pub const MAX_PATH: usize = 65_535;

/// The most paths in a journal.
pub const MAX_PATHS: u32 = 1 << 24;

/// The most bytes that the components of all paths may take.
pub const MAX_PATH_BYTES: usize = 1 << 30;

/// The most processes in a journal.
pub const MAX_PROCESSES: u32 = 1 << 22;

/// A frame of records.
pub(crate) const FRAME_RECORDS: u8 = 1;

/// The end of a recording.
pub(crate) const FRAME_END: u8 = 2;

/// Frames of this type and above may be passed over by a reader that does not know them.
pub(crate) const FRAME_IGNORABLE: u8 = 0x80;

const WRITE: Configuration = standard();

/// bincode counts decoded sizes, not encoded ones, hence the distance from [`MAX_RECORD`].
const READ: Configuration<LittleEndian, Varint, Limit<{ 16 * MAX_RECORD }>> =
    standard().with_limit::<{ 16 * MAX_RECORD }>();

/// The header of a journal.
pub(crate) fn header() -> [u8; HEADER_LEN] {
    let mut header = [0; HEADER_LEN];
    header[..8].copy_from_slice(&MAGIC);
    header[8..10].copy_from_slice(&MAJOR.to_le_bytes());
    header[10..12].copy_from_slice(&MINOR.to_le_bytes());
    let crc = crc32c::crc32c(&header[..12]);
    header[12..].copy_from_slice(&crc.to_le_bytes());
    header
}

/// What is before the payload of a frame. The checksum covers type, length and payload, and all frames before.
pub(crate) fn frame_header(chain: u32, kind: u8, payload: &[u8]) -> [u8; FRAME_LEN] {
    let len = u32::try_from(payload.len()).expect("a frame is smaller than 4 GiB");
    let mut header = [0; FRAME_LEN];
    header[..4].copy_from_slice(&len.to_le_bytes());
    header[4] = kind;
    let crc = frame_crc(chain, &header, payload);
    header[5..].copy_from_slice(&crc.to_le_bytes());
    header
}

/// The checksum a frame should have.
pub(crate) fn frame_crc(chain: u32, header: &[u8; FRAME_LEN], payload: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c_append(chain, &header[..5]), payload)
}

/// The checksum in a frame's header, on which that of the next frame is chained.
pub(crate) fn chain_of(header: &[u8; FRAME_LEN]) -> u32 {
    let [.., a, b, c, d] = *header;
    u32::from_le_bytes([a, b, c, d])
}

/// The payload of an end frame.
pub(crate) fn encode_end(end: &End) -> Vec<u8> {
    bincode::serde::encode_to_vec(end, WRITE).expect("three integers can be encoded")
}

/// Reads the payload of an end frame; what a later minor version may have put behind it is passed over.
pub(crate) fn decode_end(payload: &[u8]) -> Result<End, Bad> {
    let (end, _) = bincode::serde::decode_from_slice(payload, READ).map_err(|_| Bad("no end"))?;
    Ok(end)
}

/// Why a record is not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bad(pub(crate) &'static str);
