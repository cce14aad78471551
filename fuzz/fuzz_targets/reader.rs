//! Reads whatever comes: nothing may panic, and what the entries speak of must be in the tables.
#![no_main]

use effigy_journal::{Entry, Reader, VersionTable};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((choice, rest)) = input.split_first() else { return };
    match choice % 2 {
        0 => read(rest),
        _ => read(&framed(rest)),
    }
});

fn read(bytes: &[u8]) {
    let Ok(mut reader) = Reader::open(bytes) else { return };
    let mut versions = VersionTable::default();
    let mut buffer = Vec::new();
    let mut count = 0_u64;
    // Nothing but memory can fail here, and nothing here may take much of it.
    while let Some(entry) = reader.next_entry().expect("a slice can be read") {
        match &entry {
            Entry::Event(event) => {
                count += 1;
                assert_eq!(event.seq.0, count);
                for path in [event.op.path(), event.op.to()].into_iter().flatten() {
                    assert!((path.0 as usize) < reader.paths().len());
                    reader.paths().read(path, &mut buffer);
                    assert!(!buffer.contains(&0));
                }
                let process = reader.processes().get(event.process).expect("it is in the table");
                process.name(reader.paths());
                assert!(reader.processes().ancestry(event.process).count() > 0);
                if let Some(version) = event.op.version() {
                    versions.locate(version);
                }
            }
            Entry::Version(record) => versions.insert(*record),
            Entry::Precondition(precondition) => {
                assert!((precondition.path.0 as usize) < reader.paths().len());
            }
            _ => {}
        }
    }
    let tail = reader.tail();
    assert!(reader.next_entry().expect("a slice can be read").is_none());
    assert_eq!(reader.tail(), tail, "asking again changes nothing");
}

/// A journal of the frames that the input lists, with right checksums.
fn framed(mut input: &[u8]) -> Vec<u8> {
    let mut bytes = b"\x8eEFFIGY\n\x01\0\0\0".to_vec();
    bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
    let mut chain = crc32c::crc32c(&bytes);
    while let Some(([kind, low, high], rest)) = input.split_first_chunk() {
        let len = usize::from(u16::from_le_bytes([*low, *high])).min(rest.len());
        let (payload, rest) = rest.split_at(len);
        input = rest;
        let mut head = u32::try_from(len).expect("it fits two bytes").to_le_bytes().to_vec();
        head.push(*kind);
        chain = crc32c::crc32c_append(crc32c::crc32c_append(chain, &head), payload);
        head.extend_from_slice(&chain.to_le_bytes());
        bytes.extend_from_slice(&head);
        bytes.extend_from_slice(payload);
    }
    bytes
}
