//! Journals written, read, cut, damaged and gone on with.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use effigy_journal::{
    Address, By, ByteString, Entry, Event, Exit, Kind, NewEvent, Note, Op, Outcome, PathId,
    Precondition, ProcessId, ReadCall, ReadError, Reader, Seq, Stat, Tail, Tid, TimeChange,
    Timestamp, VersionContent, VersionId, VersionRecord, Why, WriteError, Writer, codec,
};
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

/// One call of the writer. Paths and processes are chosen from the tables, modulo their length.
#[derive(Clone, Debug)]
enum Action {
    Path(Vec<u8>),
    Process(Option<u32>, u32, u64),
    Precondition(u32, Option<Stat>),
    Event(NewEvent),
    Version(VersionRecord),
    Note(Note),
    Flush,
}

fn bytes() -> impl Strategy<Value = ByteString> {
    vec(any::<u8>(), 0..40).prop_map(ByteString)
}

fn path() -> impl Strategy<Value = Vec<u8>> {
    let name = prop_oneof![
        8 => "[a-c]{1,2}".prop_map(String::into_bytes),
        1 => vec(1_u8..=255, 0..6),
    ];
    vec(name, 0..5).prop_map(|names| {
        names
            .iter()
            .flat_map(|n| [b"/", n.as_slice()].concat())
            .collect()
    })
}

fn stat() -> impl Strategy<Value = Stat> {
    let kind = prop_oneof![
        Just(Kind::File),
        Just(Kind::Directory),
        Just(Kind::Symlink),
        Just(Kind::BlockDevice)
    ];
    let times = (any::<i64>(), any::<i64>());
    (kind, any::<[u64; 4]>(), times, any::<[u32; 4]>()).prop_map(|(kind, a, (mtime, ctime), b)| {
        Stat {
            kind,
            dev: a[0],
            ino: a[1],
            size: a[2],
            mtime: Timestamp(mtime),
            ctime: Timestamp(ctime),
            mode: b[0],
            uid: b[1],
            gid: b[2],
            nlink: b[3],
            rdev: a[3],
        }
    })
}

fn version() -> impl Strategy<Value = Option<VersionId>> {
    proptest::option::of(any::<u32>().prop_map(VersionId))
}

fn time_change() -> impl Strategy<Value = TimeChange> {
    prop_oneof![
        Just(TimeChange::Omit),
        any::<i64>().prop_map(|t| TimeChange::Now(Timestamp(t))),
        any::<i64>().prop_map(|t| TimeChange::Set(Timestamp(t))),
    ]
}

fn address() -> impl Strategy<Value = Address> {
    prop_oneof![
        any::<u32>().prop_map(|p| Address::Unix(PathId(p))),
        bytes().prop_map(Address::Abstract),
        any::<([u8; 4], u16)>().prop_map(|(a, p)| Address::V4(a, p)),
        any::<([u8; 16], u16)>().prop_map(|(a, p)| Address::V6(a, p)),
        any::<u16>().prop_map(Address::Other),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let p = || any::<u32>().prop_map(PathId);
    let exit = prop_oneof![
        any::<i32>().prop_map(Exit::Code),
        any::<i32>().prop_map(Exit::Signal)
    ];
    let n = any::<u32>();
    prop_oneof![
        (p(), n, n, any::<(bool, bool)>(), version()).prop_map(
            |(path, flags, mode, (created, truncated), version)| {
                Op::Open {
                    path,
                    flags,
                    mode,
                    created,
                    truncated,
                    version,
                }
            }
        ),
        (p(), n).prop_map(|(path, mode)| Op::Mkdir { path, mode }),
        p().prop_map(|path| Op::Rmdir { path }),
        p().prop_map(|path| Op::Unlink { path }),
        (p(), p(), n, any::<bool>()).prop_map(|(from, to, flags, replaced)| Op::Rename {
            from,
            to,
            flags,
            replaced
        }),
        (p(), p()).prop_map(|(path, to)| Op::Exchange { path, to }),
        (p(), p()).prop_map(|(from, to)| Op::Link { from, to }),
        (p(), bytes()).prop_map(|(path, target)| Op::Symlink { path, target }),
        (p(), n, any::<u64>()).prop_map(|(path, mode, dev)| Op::Mknod { path, mode, dev }),
        (p(), any::<u64>(), version()).prop_map(|(path, len, version)| Op::Truncate {
            path,
            len,
            version
        }),
        (p(), n).prop_map(|(path, mode)| Op::Chmod { path, mode }),
        (p(), any::<Option<u32>>(), any::<Option<u32>>()).prop_map(|(path, uid, gid)| Op::Chown {
            path,
            uid,
            gid
        }),
        (p(), time_change(), time_change()).prop_map(|(path, atime, mtime)| Op::Utimens {
            path,
            atime,
            mtime
        }),
        (p(), bytes(), bytes(), n).prop_map(|(path, name, value, flags)| Op::Setxattr {
            path,
            name,
            value,
            flags
        }),
        (p(), bytes()).prop_map(|(path, name)| Op::Removexattr { path, name }),
        (p(), n).prop_map(|(path, mode)| Op::Bind { path, mode }),
        (p(), proptest::option::of(stat()), version()).prop_map(|(path, state, version)| {
            Op::Settle {
                path,
                state: state.map(Box::new),
                version,
            }
        }),
        (p(), vec(bytes(), 0..5)).prop_map(|(exe, argv)| Op::Exec { exe, argv }),
        exit.prop_map(|status| Op::Exit { status }),
        p().prop_map(|path| Op::Read {
            path,
            call: ReadCall::Readlink
        }),
        address().prop_map(|address| Op::Connect { address }),
        bytes().prop_map(|text| Op::Mark { text }),
    ]
}

fn event() -> impl Strategy<Value = NewEvent> {
    let by = prop_oneof![
        Just(By::Performed),
        Just(By::Observed(Why::Class)),
        Just(By::Observed(Why::Repeatable))
    ];
    let result = prop_oneof![
        Just(Outcome::Ok),
        any::<i32>().prop_map(Outcome::Errno),
        Just(Outcome::Unknown)
    ];
    let time = prop_oneof![0..1_000_000_u64, any::<u64>()];
    (time, any::<u32>(), any::<u32>(), by, op(), result).prop_map(
        |(time, process, tid, by, op, result)| NewEvent {
            time,
            process: ProcessId(process),
            tid: Tid(tid),
            by,
            op,
            result,
        },
    )
}

fn action() -> impl Strategy<Value = Action> {
    let content = prop_oneof![
        any::<u64>().prop_map(|len| VersionContent::Sealed { len }),
        any::<(u32, u64)>().prop_map(|(of, len)| VersionContent::Prefix {
            of: VersionId(of),
            len
        }),
        any::<u64>().prop_map(|len| VersionContent::Lost { len }),
    ];
    let note = prop_oneof![
        any::<u32>().prop_map(|p| Note::IoUringRefused {
            process: ProcessId(p)
        }),
        (any::<u32>(), bytes()).prop_map(|(p, text)| Note::Refused {
            process: ProcessId(p),
            text
        }),
        any::<u32>().prop_map(|p| Note::Unexplained { path: PathId(p) }),
        bytes().prop_map(Note::Text),
    ];
    prop_oneof![
        6 => path().prop_map(Action::Path),
        2 => (any::<Option<u32>>(), any::<u32>(), any::<u64>()).prop_map(|(a, b, c)| Action::Process(a, b, c)),
        3 => (any::<u32>(), proptest::option::of(stat())).prop_map(|(p, s)| Action::Precondition(p, s)),
        10 => event().prop_map(Action::Event),
        1 => (any::<u32>(), content, proptest::option::of(stat())).prop_map(|(id, content, stat)| {
            Action::Version(VersionRecord { id: VersionId(id), content, stat })
        }),
        1 => note.prop_map(Action::Note),
        1 => Just(Action::Flush),
    ]
}

/// What was written, to compare with what is read.
#[derive(Default)]
struct Written {
    entries: Vec<Entry>,
    paths: Vec<PathBuf>,
    /// For each path, how many entries had been written when it was first asked for.
    touched: HashSet<PathId>,
    processes: u32,
    seq: u64,
}

impl Written {
    fn path(&self, any: PathId) -> PathId {
        PathId(any.0 % u32::try_from(self.paths.len()).unwrap())
    }

    fn process(&self, any: ProcessId) -> ProcessId {
        ProcessId(any.0 % self.processes)
    }

    fn map(&self, op: Op) -> Op {
        // Serde-free: clone and replace by hand through the public constructors.
        let p = |path| self.path(path);
        match op {
            Op::Open {
                path,
                flags,
                mode,
                created,
                truncated,
                version,
            } => Op::Open {
                path: p(path),
                flags,
                mode,
                created,
                truncated,
                version,
            },
            Op::Mkdir { path, mode } => Op::Mkdir {
                path: p(path),
                mode,
            },
            Op::Rmdir { path } => Op::Rmdir { path: p(path) },
            Op::Unlink { path } => Op::Unlink { path: p(path) },
            Op::Rename {
                from,
                to,
                flags,
                replaced,
            } => Op::Rename {
                from: p(from),
                to: p(to),
                flags,
                replaced,
            },
            Op::Exchange { path, to } => Op::Exchange {
                path: p(path),
                to: p(to),
            },
            Op::Link { from, to } => Op::Link {
                from: p(from),
                to: p(to),
            },
            Op::Symlink { path, target } => Op::Symlink {
                path: p(path),
                target,
            },
            Op::Mknod { path, mode, dev } => Op::Mknod {
                path: p(path),
                mode,
                dev,
            },
            Op::Truncate { path, len, version } => Op::Truncate {
                path: p(path),
                len,
                version,
            },
            Op::Chmod { path, mode } => Op::Chmod {
                path: p(path),
                mode,
            },
            Op::Chown { path, uid, gid } => Op::Chown {
                path: p(path),
                uid,
                gid,
            },
            Op::Utimens { path, atime, mtime } => Op::Utimens {
                path: p(path),
                atime,
                mtime,
            },
            Op::Setxattr {
                path,
                name,
                value,
                flags,
            } => Op::Setxattr {
                path: p(path),
                name,
                value,
                flags,
            },
            Op::Removexattr { path, name } => Op::Removexattr {
                path: p(path),
                name,
            },
            Op::Bind { path, mode } => Op::Bind {
                path: p(path),
                mode,
            },
            Op::Settle {
                path,
                state,
                version,
            } => Op::Settle {
                path: p(path),
                state,
                version,
            },
            Op::Exec { exe, argv } => Op::Exec { exe: p(exe), argv },
            Op::Read { path, call } => Op::Read {
                path: p(path),
                call,
            },
            Op::Connect {
                address: Address::Unix(path),
            } => Op::Connect {
                address: Address::Unix(p(path)),
            },
            other => other,
        }
    }

    fn run(&mut self, writer: &mut Writer, action: Action) {
        match action {
            Action::Path(path) => {
                let path = PathBuf::from(OsString::from_vec(path));
                let id = writer.path(&path).unwrap();
                assert_eq!(writer.path(&path).unwrap(), id, "a path has one number");
                let paths = writer.paths();
                assert_eq!(paths.path(id), path);
                for number in self.paths.len()..paths.len() {
                    self.paths
                        .push(paths.path(PathId(u32::try_from(number).unwrap())));
                }
            }
            Action::Process(parent, pid, time) => {
                let parent = parent.map(|parent| self.process(ProcessId(parent)));
                let id = writer.process(parent, pid, time).unwrap();
                assert_eq!(id.0, self.processes);
                self.processes += 1;
                self.entries.push(Entry::Process(id));
            }
            Action::Precondition(path, before) => {
                let path = self.path(PathId(path));
                assert_eq!(writer.is_touched(path), self.touched.contains(&path));
                writer.precondition(path, before.as_ref()).unwrap();
                if self.touched.insert(path) {
                    self.entries
                        .push(Entry::Precondition(Precondition { path, before }));
                }
            }
            Action::Event(mut event) => {
                event.process = self.process(event.process);
                event.op = self.map(event.op);
                self.seq += 1;
                let NewEvent {
                    time,
                    process,
                    tid,
                    by,
                    op,
                    result,
                } = event.clone();
                assert_eq!(writer.append(event).unwrap(), Seq(self.seq));
                self.entries.push(Entry::Event(Event {
                    seq: Seq(self.seq),
                    time,
                    process,
                    tid,
                    by,
                    op,
                    result,
                }));
            }
            Action::Version(version) => {
                writer.version(version).unwrap();
                self.entries.push(Entry::Version(version));
            }
            Action::Note(mut note) => {
                match &mut note {
                    Note::IoUringRefused { process } | Note::Refused { process, .. } => {
                        *process = self.process(*process)
                    }
                    Note::Unexplained { path } => *path = self.path(*path),
                    _ => {}
                }
                writer.note(note.clone()).unwrap();
                self.entries.push(Entry::Note(note));
            }
            Action::Flush => writer.flush().unwrap(),
        }
    }

    fn all(&mut self, writer: &mut Writer, actions: Vec<Action>) {
        self.run(writer, Action::Path(b"/".to_vec()));
        self.run(writer, Action::Process(None, 2, 0));
        for action in actions {
            self.run(writer, action);
        }
    }
}

fn contents(file: &File) -> Vec<u8> {
    let mut file = file;
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0)).unwrap();
    file.read_to_end(&mut bytes).unwrap();
    bytes
}

fn read(bytes: &[u8]) -> (Vec<Entry>, Tail) {
    let mut reader = Reader::open(bytes).unwrap();
    let mut entries = Vec::new();
    while let Some(entry) = reader.next_entry().unwrap() {
        check(&entry, &reader);
        entries.push(entry);
    }
    let tail = reader.tail();
    assert_eq!(reader.next_entry().unwrap(), None);
    assert_eq!(reader.tail(), tail, "asking again changes nothing");
    (entries, tail)
}

/// What an entry speaks of is in the tables.
fn check(entry: &Entry, reader: &Reader<&[u8]>) {
    match entry {
        Entry::Event(event) => {
            let (path, to) = event.op.paths();
            for path in path.into_iter().chain(to) {
                assert!((path.0 as usize) < reader.paths().len());
                assert!(reader.paths().path(path).as_os_str().len() <= codec::MAX_PATH);
            }
            assert!(reader.processes().get(event.process).is_some());
            assert!(reader.processes().ancestry(event.process).count() >= 1);
        }
        Entry::Precondition(precondition) => {
            assert!((precondition.path.0 as usize) < reader.paths().len())
        }
        Entry::Process(id) => assert!(reader.processes().get(*id).is_some()),
        _ => {}
    }
}

/// Whether `part` are the first of `all`, but for the absence of a path, which is told with its first mention: it may
/// come before what was written in between.
fn is_prefix(part: &[Entry], all: &[Entry]) -> bool {
    let absent = |entry: &&Entry| {
        matches!(
            entry,
            Entry::Precondition(Precondition { before: None, .. })
        )
    };
    let rest = |entries: &[Entry]| -> Vec<Entry> {
        entries.iter().filter(|e| !absent(e)).cloned().collect()
    };
    let (some, every) = (rest(part), rest(all));
    let known: Vec<&Entry> = all.iter().filter(absent).collect();
    every.starts_with(&some)
        && part
            .iter()
            .filter(absent)
            .all(|entry| known.contains(&entry))
}

fn written(actions: Vec<Action>) -> (Vec<u8>, Written) {
    let mut writer = Writer::create(tempfile::tempfile().unwrap()).unwrap();
    let mut written = Written::default();
    written.all(&mut writer, actions);
    let file = writer.finish(77, 3).unwrap();
    written.entries.push(Entry::End(effigy_journal::End {
        time: 77,
        events: written.seq,
        unexplained: 3,
    }));
    (contents(&file), written)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_is_read(actions in vec(action(), 0..120)) {
        let (bytes, written) = written(actions);
        let (entries, tail) = read(&bytes);
        prop_assert_eq!(tail, Tail::Complete);
        prop_assert_eq!(entries.len(), written.entries.len());
        prop_assert!(is_prefix(&entries, &written.entries));
        let mut reader = Reader::open(bytes.as_slice()).unwrap();
        while reader.next_entry().unwrap().is_some() {}
        prop_assert_eq!(reader.paths().len(), written.paths.len());
        for (number, path) in written.paths.iter().enumerate() {
            prop_assert_eq!(&reader.paths().path(PathId(u32::try_from(number).unwrap())), path);
        }
    }

    #[test]
    fn a_cut_journal_is_a_prefix(actions in vec(action(), 0..60), cut in any::<prop::sample::Index>()) {
        let (bytes, written) = written(actions);
        let cut = cut.index(bytes.len());
        match Reader::open(&bytes[..cut]) {
            Err(ReadError::NotAJournal) => prop_assert!(cut < codec::HEADER_LEN),
            Err(e) => panic!("{e}"),
            Ok(_) => {
                let (entries, tail) = read(&bytes[..cut]);
                prop_assert!(is_prefix(&entries, &written.entries));
                prop_assert!(matches!(tail, Tail::Torn { .. } | Tail::Unfinished), "{tail:?}");
            }
        }
    }

    #[test]
    fn a_changed_byte_is_found(
        actions in vec(action(), 0..60), at in any::<prop::sample::Index>(), flip in 1_u8..=255,
    ) {
        let (mut bytes, written) = written(actions);
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        match Reader::open(bytes.as_slice()) {
            Err(_) => prop_assert!(at < codec::HEADER_LEN),
            Ok(_) => {
                let (entries, tail) = read(&bytes);
                prop_assert!(is_prefix(&entries, &written.entries));
                prop_assert!(entries.len() < written.entries.len());
                prop_assert!(matches!(tail, Tail::Torn { .. } | Tail::Damaged { .. }), "{tail:?}");
            }
        }
    }

    #[test]
    fn frames_put_elsewhere_are_found(actions in vec(action(), 20..60)) {
        let mut writer = Writer::create(tempfile::tempfile().unwrap()).unwrap();
        let mut log = Written::default();
        log.all(&mut writer, Vec::new());
        writer.flush().unwrap();
        let first = log.entries.len();
        for action in actions {
            log.run(&mut writer, action);
        }
        let mut bytes = contents(&writer.finish(0, 0).unwrap());
        // Without its first frame the second is not the same frame.
        let len = u32::from_le_bytes(bytes[16..20].try_into().unwrap()) as usize;
        bytes.drain(16..16 + 9 + len);
        prop_assert!(first > 0);
        let (entries, tail) = read(&bytes);
        prop_assert!(entries.is_empty());
        let damaged = matches!(tail, Tail::Damaged { offset: 16, .. });
        prop_assert!(damaged);
    }

    /// Frames with right checksums and senseless payloads: nothing may panic, whatever the records say.
    #[test]
    fn senseless_frames_do_no_harm(payloads in vec((vec(any::<u8>(), 0..200), 0..3_u8), 0..5)) {
        let mut bytes = written(Vec::new()).0[..16].to_vec();
        let mut chain = crc32c::crc32c(&bytes);
        for (payload, kind) in payloads {
            let mut head = u32::try_from(payload.len()).unwrap().to_le_bytes().to_vec();
            head.push(kind);
            chain = crc32c::crc32c_append(crc32c::crc32c_append(chain, &head), &payload);
            head.extend_from_slice(&chain.to_le_bytes());
            bytes.extend_from_slice(&head);
            bytes.extend_from_slice(&payload);
        }
        read(&bytes);
    }

    #[test]
    fn a_journal_can_be_gone_on_with(
        first in vec(action(), 0..40), second in vec(action(), 0..40), cut in any::<prop::sample::Index>(), end in any::<bool>(),
    ) {
        let mut writer = Writer::create(tempfile::tempfile().unwrap()).unwrap();
        let mut log = Written::default();
        log.all(&mut writer, first);
        writer.flush().unwrap();
        let mut file = writer.finish(5, 0).unwrap();
        let whole = contents(&file);
        if end {
            log.entries.push(Entry::End(effigy_journal::End { time: 5, events: log.seq, unexplained: 0 }));
        } else {
            // The end frame is torn: nine bytes and three small integers.
            let end = whole.len() - 1 - cut.index(8);
            file.set_len(end as u64).unwrap();
        }
        let resumed = Writer::resume(file.try_clone().unwrap()).unwrap();
        prop_assert_eq!(resumed.cut == 0, end);
        let mut writer = resumed.writer;
        for action in second {
            log.run(&mut writer, action);
        }
        file = writer.finish(9, 1).unwrap();
        log.entries.push(Entry::End(effigy_journal::End { time: 9, events: log.seq, unexplained: 1 }));
        let (entries, tail) = read(&contents(&file));
        prop_assert_eq!(tail, Tail::Complete);
        prop_assert_eq!(entries.len(), log.entries.len());
        prop_assert!(is_prefix(&entries, &log.entries));
    }
}

fn unlink(
    writer: &mut Writer,
    path: &str,
    process: ProcessId,
    time: u64,
) -> Result<Seq, WriteError> {
    let path = writer.path(Path::new(path))?;
    writer.append(NewEvent {
        time,
        process,
        tid: Tid(2),
        by: By::Performed,
        op: Op::Unlink { path },
        result: Outcome::Ok,
    })
}

#[test]
fn a_live_journal_is_followed() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut writer = Writer::create(file.reopen().unwrap()).unwrap();
    let mut reader = Reader::open(File::open(file.path()).unwrap()).unwrap();
    assert_eq!(reader.next_entry().unwrap(), None);
    assert_eq!(reader.tail(), Tail::Unfinished);
    let process = writer.process(None, 2, 0).unwrap();
    for n in 1..=3 {
        unlink(&mut writer, "/a", process, n).unwrap();
        assert_eq!(
            reader.next_entry().unwrap(),
            None,
            "it is still in the buffer"
        );
        writer.flush().unwrap();
        if n == 1 {
            assert_eq!(reader.next_entry().unwrap(), Some(Entry::Process(process)));
        }
        match reader.next_entry().unwrap() {
            Some(Entry::Event(event)) => assert_eq!((event.seq, event.time), (Seq(n), n)),
            other => panic!("{other:?}"),
        }
        assert_eq!(reader.next_entry().unwrap(), None);
    }
    writer.finish(9, 0).unwrap();
    assert!(matches!(reader.next_entry().unwrap(), Some(Entry::End(_))));
    assert_eq!(reader.next_entry().unwrap(), None);
    assert_eq!(reader.tail(), Tail::Complete);
}

#[test]
fn a_full_disk_loses_nothing() {
    // A sealed memory file refuses to grow, as a full disk does.
    let flags = MFdFlags::MFD_ALLOW_SEALING;
    let file = File::from(memfd_create(c"journal", flags).unwrap());
    let seal = |seals| fcntl(&file, FcntlArg::F_ADD_SEALS(seals)).unwrap();
    let mut writer = Writer::create(file.try_clone().unwrap()).unwrap();
    let process = writer.process(None, 2, 0).unwrap();
    unlink(&mut writer, "/a", process, 1).unwrap();
    writer.flush().unwrap();
    seal(SealFlag::F_SEAL_GROW);
    unlink(&mut writer, "/b", process, 2).unwrap();
    assert!(matches!(writer.flush(), Err(WriteError::Io(_))));
    unlink(&mut writer, "/c", process, 3).unwrap();
    assert!(matches!(writer.flush(), Err(WriteError::Io(_))));
    let (entries, tail) = read(&contents(&file));
    assert_eq!(entries.len(), 2);
    assert_eq!(tail, Tail::Unfinished);
}

#[test]
fn limits_are_answered_and_nothing_is_recorded() {
    let mut writer = Writer::create(tempfile::tempfile().unwrap()).unwrap();
    let process = writer.process(None, 2, 0).unwrap();
    let long = format!("/{}", "x".repeat(70_000));
    assert!(matches!(
        writer.path(Path::new(&long)),
        Err(WriteError::Limit(_))
    ));
    assert!(matches!(
        writer.path(Path::new("/a\0b")),
        Err(WriteError::Limit(_))
    ));
    let event = |op, process| NewEvent {
        time: 1,
        process,
        tid: Tid(2),
        by: By::Performed,
        op,
        result: Outcome::Ok,
    };
    let path = writer.path(Path::new("/a")).unwrap();
    let large = Op::Symlink {
        path,
        target: vec![b'x'; 2 << 20].into(),
    };
    assert!(matches!(
        writer.append(event(large, process)),
        Err(WriteError::Limit(_))
    ));
    let nobody = event(Op::Unlink { path }, ProcessId(9));
    assert!(matches!(writer.append(nobody), Err(WriteError::Limit(_))));
    let nowhere = event(Op::Unlink { path: PathId(99) }, process);
    assert!(matches!(writer.append(nowhere), Err(WriteError::Limit(_))));
    assert_eq!(unlink(&mut writer, "/a", process, 1).unwrap(), Seq(1));
    let (entries, tail) = read(&contents(&writer.finish(1, 0).unwrap()));
    assert_eq!((entries.len(), tail), (3, Tail::Complete));
}

#[test]
fn the_tables_know_ancestry_and_programs() {
    let mut writer = Writer::create(tempfile::tempfile().unwrap()).unwrap();
    let shell = writer.process(None, 2, 0).unwrap();
    let exec = |writer: &mut Writer, process, exe: &str, result| {
        let path = writer.path(Path::new(exe)).unwrap();
        let op = Op::Exec {
            exe: path,
            argv: vec![exe.into(), "-x".into()],
        };
        let event = NewEvent {
            time: 1,
            process,
            tid: Tid(2),
            by: By::Observed(Why::Class),
            op,
            result,
        };
        writer.append(event).unwrap();
    };
    exec(&mut writer, shell, "/bin/sh", Outcome::Ok);
    let child = writer.process(Some(shell), 3, 5).unwrap();
    exec(&mut writer, child, "/bin/none", Outcome::Errno(2));
    let grandchild = writer.process(Some(child), 4, 6).unwrap();
    exec(&mut writer, grandchild, "/usr/bin/cp", Outcome::Ok);
    let op = Op::Exit {
        status: Exit::Code(3),
    };
    let by = By::Observed(Why::Class);
    writer
        .append(NewEvent {
            time: 8,
            process: child,
            tid: Tid(3),
            by,
            op,
            result: Outcome::Ok,
        })
        .unwrap();
    let bytes = contents(&writer.finish(9, 0).unwrap());
    let mut reader = Reader::open(bytes.as_slice()).unwrap();
    while reader.next_entry().unwrap().is_some() {}
    let table = reader.processes();
    let names: Vec<&[u8]> = table
        .ancestry(grandchild)
        .map(|(_, process)| process.name(reader.paths()))
        .collect();
    assert_eq!(names, [b"cp".as_slice(), b"sh", b"sh"]);
    let child = table.get(child).unwrap();
    assert_eq!(
        (child.start, child.end, child.exit),
        (5, Some(8), Some(Exit::Code(3)))
    );
    assert_eq!(child.argv[0], "/bin/sh".into());
    assert!(table.get(ProcessId(3)).is_none());
    let cp = table.get(grandchild).unwrap().exe.unwrap();
    let paths = reader.paths();
    assert_eq!(paths.path(cp).as_os_str().as_bytes(), b"/usr/bin/cp");
    let usr = paths.parent(paths.parent(cp).unwrap()).unwrap();
    assert_eq!(paths.path(usr), Path::new("/usr"));
    assert!(paths.is_within(cp, usr) && !paths.is_within(usr, cp));
}

#[test]
fn other_formats_are_told_apart() {
    let bytes = contents(
        &Writer::create(tempfile::tempfile().unwrap())
            .unwrap()
            .finish(0, 0)
            .unwrap(),
    );
    let with_crc = |mut bytes: Vec<u8>| {
        let crc = crc32c::crc32c(&bytes[..12]);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        bytes
    };
    let mut newer = bytes.clone();
    newer[8] = 2;
    match Reader::open(with_crc(newer).as_slice()) {
        Err(e @ ReadError::TooNew { major: 2, minor: 0 }) => {
            assert!(e.to_string().contains("2.0"));
        }
        other => panic!("{other:?}"),
    }
    let mut text = bytes.clone();
    text[0] = b'#';
    assert!(matches!(
        Reader::open(text.as_slice()),
        Err(ReadError::NotAJournal)
    ));
    assert!(matches!(
        Reader::open(&bytes[..7]),
        Err(ReadError::NotAJournal)
    ));
    // A later minor version is read, and its new frames are passed over.
    let mut minor = bytes[..16].to_vec();
    minor[10] = 9;
    let mut minor = with_crc(minor);
    let mut chain = crc32c::crc32c(&minor);
    for (kind, payload) in [(0x80, &[1, 2, 3][..]), (2, &[5, 0, 0][..])] {
        let mut head = u32::try_from(payload.len()).unwrap().to_le_bytes().to_vec();
        head.push(kind);
        chain = crc32c::crc32c_append(crc32c::crc32c_append(chain, &head), payload);
        head.extend_from_slice(&chain.to_le_bytes());
        minor.extend_from_slice(&head);
        minor.extend_from_slice(payload);
    }
    let (entries, tail) = read(&minor);
    assert_eq!((entries.len(), tail), (1, Tail::Complete));
}
