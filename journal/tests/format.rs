//! The format stays what it is: journals of every released version are read, and the current one is written byte by byte
//! as the fixture and docs/JOURNAL.md have it.
//!
//! After a deliberate change of the format: raise the version, add its line to the changelogs in `codec` and
//! docs/JOURNAL.md, keep the old fixture, and run the tests once with `EFFIGY_BLESS=1` to write the new one.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use effigy_journal::{
    Address, By, Entry, Event, Exit, Kind, NewEvent, Note, Op, Outcome, Precondition, ProcessId,
    ReadCall, Reader, Seq, Session, Stat, State, Tail, Tid, TimeChange, Timestamp, VersionContent,
    VersionId, VersionRecord, Why, Writer, codec,
};
use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

fn here(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn bytes(mut file: File) -> Vec<u8> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0)).unwrap();
    file.read_to_end(&mut bytes).unwrap();
    bytes
}

const STAT: Stat = Stat {
    kind: Kind::File,
    dev: 64769,
    ino: 1_234_567,
    size: 512,
    mtime: Timestamp(1_700_000_000_123_456_789),
    ctime: Timestamp(-1),
    mode: 0o4755,
    uid: 1000,
    gid: 100,
    nlink: 2,
    rdev: 0,
};

/// Writes one of everything that version 1.0 knows, and says what must be read.
fn everything() -> (Vec<u8>, Vec<Entry>) {
    let mut writer = Writer::create(tempfile::tempfile().unwrap()).unwrap();
    let mut entries = Vec::new();
    let first = writer.process(None, 2, 0).unwrap();
    let second = writer.process(Some(first), 70_000, 1_500).unwrap();
    entries.extend([Entry::Process(first), Entry::Process(second)]);
    let new = writer.path(Path::new("/home/u/new")).unwrap();
    writer.precondition(new, None).unwrap();
    let old = writer.path(Path::new("/home/u/old")).unwrap();
    writer.precondition(old, Some(&STAT)).unwrap();
    let missing = writer.path(Path::new("/missing")).unwrap();
    let odd = writer.path(Path::new("relative")).unwrap();
    writer.precondition(missing, None).unwrap();
    writer.precondition(odd, None).unwrap();
    for (path, before) in [(new, None), (old, Some(STAT)), (missing, None), (odd, None)] {
        entries.push(Entry::Precondition(Precondition { path, before }));
    }
    let set = TimeChange::Set(Timestamp(7));
    let version = Some(VersionId(3));
    let ops = [
        Op::Open {
            path: new,
            flags: 0x80241,
            mode: 0o644,
            created: true,
            truncated: false,
            version,
        },
        Op::Open {
            path: old,
            flags: 0x80401,
            mode: 0,
            created: false,
            truncated: true,
            version: Some(VersionId(1)),
        },
        Op::Mkdir {
            path: new,
            mode: 0o755,
        },
        Op::Rmdir { path: new },
        Op::Unlink { path: old },
        Op::Rename {
            from: old,
            to: new,
            flags: 1,
            replaced: true,
        },
        Op::Exchange { path: old, to: new },
        Op::Link { from: old, to: new },
        Op::Symlink {
            path: new,
            target: vec![b'.', b'.', b'/', 0xff].into(),
        },
        Op::Mknod {
            path: new,
            mode: 0o10644,
            dev: 259,
        },
        Op::Truncate {
            path: old,
            len: 1 << 40,
            version: None,
        },
        Op::Chmod {
            path: old,
            mode: 0o600,
        },
        Op::Chown {
            path: old,
            uid: Some(0),
            gid: None,
        },
        Op::Utimens {
            path: old,
            atime: TimeChange::Omit,
            mtime: set,
        },
        Op::Utimens {
            path: old,
            atime: TimeChange::Now(Timestamp(9)),
            mtime: set,
        },
        Op::Setxattr {
            path: old,
            name: "user.a".into(),
            value: "b".into(),
            flags: 1,
        },
        Op::Removexattr {
            path: old,
            name: "user.a".into(),
        },
        Op::Bind {
            path: new,
            mode: 0o755,
        },
        Op::Settle {
            path: old,
            state: Some(Box::new(STAT)),
            version,
        },
        Op::Settle {
            path: new,
            state: None,
            version: None,
        },
        Op::Exec {
            exe: old,
            argv: vec!["sh".into(), "".into()],
        },
        Op::Exit {
            status: Exit::Code(1),
        },
        Op::Exit {
            status: Exit::Signal(9),
        },
        Op::Read {
            path: old,
            call: ReadCall::Open,
        },
        Op::Read {
            path: old,
            call: ReadCall::Chdir,
        },
        Op::Connect {
            address: Address::Unix(old),
        },
        Op::Connect {
            address: Address::Abstract("bus".into()),
        },
        Op::Connect {
            address: Address::V4([127, 0, 0, 1], 443),
        },
        Op::Connect {
            address: Address::V6([1; 16], 80),
        },
        Op::Connect {
            address: Address::Other(16),
        },
        Op::Mark {
            text: "here".into(),
        },
    ];
    let results = [Outcome::Ok, Outcome::Errno(17), Outcome::Unknown];
    let authors = [
        By::Performed,
        By::Observed(Why::Class),
        By::Observed(Why::Foreign),
        By::Observed(Why::Repeatable),
    ];
    for (n, op) in ops.into_iter().enumerate() {
        // Not rising: the codec must keep also what comes late.
        let time = [2_000, 1_000_000, 900_000][n % 3];
        let process = ProcessId(u32::try_from(n % 2).unwrap());
        let tid = Tid(70_000);
        let (by, result) = (authors[n % 4], results[n % 3]);
        let seq = writer
            .append(NewEvent {
                time,
                process,
                tid,
                by,
                op: op.clone(),
                result,
            })
            .unwrap();
        assert_eq!(seq, Seq(n as u64 + 1));
        entries.push(Entry::Event(Event {
            seq,
            time,
            process,
            tid,
            by,
            op,
            result,
        }));
        if n == 9 {
            writer.flush().unwrap();
        }
    }
    let contents = [
        VersionContent::Sealed { len: 512 },
        VersionContent::Prefix {
            of: VersionId(3),
            len: 10,
        },
        VersionContent::Lost { len: 1 << 33 },
    ];
    for (n, content) in contents.into_iter().enumerate() {
        let record = VersionRecord {
            id: VersionId(u32::try_from(n).unwrap()),
            content,
            stat: (n == 0).then_some(STAT),
        };
        writer.version(record).unwrap();
        entries.push(Entry::Version(record));
    }
    let notes = [
        Note::IoUringRefused { process: second },
        Note::Refused {
            process: first,
            text: "mount".into(),
        },
        Note::Unexplained { path: old },
        Note::Text("words".into()),
    ];
    for note in notes {
        writer.note(note.clone()).unwrap();
        entries.push(Entry::Note(note));
    }
    let events = writer.last().0;
    let file = writer.finish(2_000_000, 1).unwrap();
    entries.push(Entry::End(effigy_journal::End {
        time: 2_000_000,
        events,
        unexplained: 1,
    }));
    (bytes(file), entries)
}

fn read(bytes: &[u8]) -> Vec<Entry> {
    let mut reader = Reader::open(bytes).unwrap();
    let mut entries = Vec::new();
    while let Some(entry) = reader.next_entry().unwrap() {
        entries.push(entry);
    }
    assert_eq!(reader.tail(), Tail::Complete);
    let path = |n| reader.paths().path(effigy_journal::PathId(n));
    assert_eq!(path(3), Path::new("/home/u/new"));
    assert_eq!(path(6), Path::new("relative"));
    entries
}

#[test]
fn version_1_0_is_read_and_written_as_it_was() {
    let (written, entries) = everything();
    let fixture = here("tests/fixtures/1.0.journal");
    if std::env::var_os("EFFIGY_BLESS").is_some() {
        fs::write(&fixture, &written).unwrap();
    }
    let fixture = fs::read(&fixture).unwrap();
    assert_eq!(read(&fixture), entries);
    assert_eq!(
        (codec::MAJOR, codec::MINOR),
        (1, 0),
        "a new version needs a fixture of its own"
    );
    assert!(
        fixture == written,
        "the format has changed: see the top of this file"
    );
}

/// What docs/JOURNAL.md takes apart byte by byte.
fn example() -> Vec<u8> {
    let mut writer = Writer::create(tempfile::tempfile().unwrap()).unwrap();
    let process = writer.process(None, 2, 0).unwrap();
    let path = writer.path(Path::new("/tmp/a")).unwrap();
    writer.precondition(path, None).unwrap();
    let op = Op::Mkdir { path, mode: 0o755 };
    let by = By::Performed;
    writer
        .append(NewEvent {
            time: 1_000,
            process,
            tid: Tid(2),
            by,
            op,
            result: Outcome::Ok,
        })
        .unwrap();
    bytes(writer.finish(2_000, 0).unwrap())
}

#[test]
fn the_example_in_the_documentation_is_true() {
    let documentation = fs::read_to_string(here("../docs/JOURNAL.md")).unwrap();
    let dump = documentation
        .split("```hex\n")
        .nth(1)
        .and_then(|rest| rest.split("```").next())
        .unwrap();
    // Each line: bytes, two spaces, words about them.
    let bytes: Vec<u8> = dump
        .lines()
        .flat_map(|line| line.split("  ").next().unwrap_or("").split_whitespace())
        .map(|byte| u8::from_str_radix(byte, 16).unwrap())
        .collect();
    let hex = |bytes: &[u8]| {
        bytes
            .iter()
            .map(|b| format!("{b:02x} "))
            .collect::<String>()
    };
    assert_eq!(hex(&bytes), hex(&example()));
}

#[test]
fn the_first_session_record_is_read() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("k3f9-x2mq");
    fs::create_dir(&dir).unwrap();
    fs::copy(
        here("tests/fixtures/session-1.json"),
        dir.join("session.json"),
    )
    .unwrap();
    let session = Session::read(&dir).unwrap();
    let record = &session.record;
    assert_eq!(record.name.as_deref(), Some("install"));
    assert_eq!(
        record.argv,
        ["npm".into(), "install".into(), vec![0xff, 0xfe].into()]
    );
    assert_eq!(record.cwd, Path::new("/home/u/project"));
    assert_eq!(
        (record.state, record.exit),
        (State::Applied, Some(Exit::Code(0)))
    );
    assert_eq!(record.covers.len(), 2);
    assert_eq!(
        record
            .cover_of(Path::new("/home/u/project/x"))
            .unwrap()
            .layer,
        1
    );
    assert_eq!(record.cover_of(Path::new("/homes")).unwrap().layer, 0);
    assert_eq!(record.hidden, [Path::new("/home/u/.ssh")]);
    assert_eq!(record.released, Timestamp(1_790_000_000_000_200_000));
    // What a later effigy adds is passed over; what is not there has a default.
    assert_eq!(record.bytes, None);
}
