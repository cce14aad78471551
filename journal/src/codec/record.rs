//! One record: from a value to bytes and back.

use super::{Bad, MAX_PATHS, MAX_PROCESSES, MAX_RECORD, READ, WRITE};
use crate::event::{
    By, NewEvent, Note, Op, Outcome, PathId, Precondition, ProcessId, Stat, Tid, VersionContent,
    VersionId, VersionRecord,
};
use serde::{Deserialize, Serialize};

/// One record of a frame.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Record<'a> {
    /// The next path: `name` in `parent`, or a whole path when there is no parent.
    Path {
        parent: Option<PathId>,
        name: &'a [u8],
        /// It was not there when it was first touched.
        absent: bool,
    },
    /// The next process.
    Process {
        parent: Option<ProcessId>,
        pid: u32,
        time: u64,
    },
    Precondition(Precondition),
    Event(NewEvent),
    Version(VersionRecord),
    Note(Note),
}

/// A record as it is on disk. The order of variants and fields is the format.
#[derive(Serialize, Deserialize)]
enum Wire<'a> {
    Name(#[serde(borrow)] Bytes<'a>),
    Path(u32, #[serde(borrow)] Bytes<'a>),
    AbsentPath(u32, #[serde(borrow)] Bytes<'a>),
    Process(i64, Option<u32>, u32),
    Absent(u32),
    Present(u32, Stat),
    Event(WireEvent),
    Version(VersionId, VersionContent, Option<Stat>),
    Note(Note),
}

/// The numbers of [`Wire::Path`] and [`Wire::AbsentPath`], which differ in nothing else.
const TAG_PATH: u8 = 1;
const TAG_ABSENT_PATH: u8 = 2;

#[derive(Serialize, Deserialize)]
struct WireEvent {
    time: i64,
    process: u32,
    tid: i32,
    by: By,
    result: Outcome,
    op: Op,
}

/// Bytes that are borrowed from the frame.
struct Bytes<'a>(&'a [u8]);

impl Serialize for Bytes<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Bytes<'a> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <&'de [u8]>::deserialize(deserializer).map(Bytes)
    }
}

/// What both sides remember of the records before. Encoding and decoding the same records keep it the same.
#[derive(Debug, Default)]
pub(crate) struct Context {
    time: u64,
    version: u32,
    flags: u32,
    mode: u32,
    paths: u32,
    pids: Vec<u32>,
}

/// The part of a [`Context`] that a record which is not written after all must not have changed.
#[derive(Clone, Copy)]
struct Scalars {
    time: u64,
    version: u32,
    flags: u32,
    mode: u32,
}

impl Context {
    /// The time of the last record that has one.
    pub(crate) fn time(&self) -> u64 {
        self.time
    }

    /// The number of processes so far.
    pub(crate) fn processes(&self) -> usize {
        self.pids.len()
    }

    /// Appends a record. On an error nothing is appended and nothing remembered.
    pub(crate) fn encode(&mut self, record: Record<'_>, out: &mut Vec<u8>) -> Result<(), Bad> {
        let before = Scalars {
            time: self.time,
            version: self.version,
            flags: self.flags,
            mode: self.mode,
        };
        let start = out.len();
        let done = self.wire(record).and_then(|(wire, entered)| {
            bincode::serde::encode_into_std_write(wire, out, WRITE)
                .map_err(|_| Bad("it cannot be encoded"))?;
            if out.len() - start > MAX_RECORD {
                return Err(Bad("a record is larger than 1 MiB"));
            }
            Ok(entered)
        });
        match done {
            Ok(Entered::Nothing) => Ok(()),
            Ok(Entered::Path) => {
                self.paths += 1;
                Ok(())
            }
            Ok(Entered::Process(pid)) => {
                self.pids.push(pid);
                Ok(())
            }
            Err(bad) => {
                out.truncate(start);
                let Scalars {
                    time,
                    version,
                    flags,
                    mode,
                } = before;
                (self.time, self.version, self.flags, self.mode) = (time, version, flags, mode);
                Err(bad)
            }
        }
    }

    fn wire<'a>(&mut self, record: Record<'a>) -> Result<(Wire<'a>, Entered), Bad> {
        Ok(match record {
            Record::Path {
                parent,
                name,
                absent,
            } => {
                if self.paths >= MAX_PATHS {
                    return Err(Bad("there are too many paths"));
                }
                let wire = match parent {
                    None => Wire::Name(Bytes(name)),
                    Some(parent) if absent => {
                        Wire::AbsentPath(self.distance(parent)?.0, Bytes(name))
                    }
                    Some(parent) => Wire::Path(self.distance(parent)?.0, Bytes(name)),
                };
                (wire, Entered::Path)
            }
            Record::Process { parent, pid, time } => {
                if self.pids.len() >= MAX_PROCESSES as usize {
                    return Err(Bad("there are too many processes"));
                }
                if let Some(parent) = parent {
                    self.pid(parent)?;
                }
                (
                    Wire::Process(self.time_to(time), parent.map(|p| p.0), pid),
                    Entered::Process(pid),
                )
            }
            Record::Precondition(Precondition { path, before }) => {
                let path = self.distance(path)?.0;
                let wire = before.map_or(Wire::Absent(path), |stat| Wire::Present(path, stat));
                (wire, Entered::Nothing)
            }
            Record::Event(mut event) => {
                let pid = self.pid(event.process)?;
                self.pack(&mut event.op)?;
                let wire = WireEvent {
                    time: self.time_to(event.time),
                    process: event.process.0,
                    tid: event.tid.0.wrapping_sub(pid).cast_signed(),
                    by: event.by,
                    result: event.result,
                    op: event.op,
                };
                (Wire::Event(wire), Entered::Nothing)
            }
            Record::Version(v) => (Wire::Version(v.id, v.content, v.stat), Entered::Nothing),
            Record::Note(mut note) => {
                self.pack_note(&mut note)?;
                (Wire::Note(note), Entered::Nothing)
            }
        })
    }

    /// Reads one record from the beginning of `bytes` and says how long it is.
    pub(crate) fn decode<'a>(&mut self, bytes: &'a [u8]) -> Result<(Record<'a>, usize), Bad> {
        let bytes = &bytes[..bytes.len().min(MAX_RECORD)];
        let (wire, len) = bincode::serde::borrow_decode_from_slice::<Wire<'a>, _>(bytes, READ)
            .map_err(|_| Bad("a record cannot be decoded"))?;
        let record = match wire {
            Wire::Name(name) => self.path(None, name.0, false)?,
            Wire::Path(parent, name) => self.path(Some(parent), name.0, false)?,
            Wire::AbsentPath(parent, name) => self.path(Some(parent), name.0, true)?,
            Wire::Process(time, parent, pid) => {
                let parent = parent.map(ProcessId);
                if let Some(parent) = parent {
                    self.pid(parent)?;
                }
                if self.pids.len() >= MAX_PROCESSES as usize {
                    return Err(Bad("there are too many processes"));
                }
                self.pids.push(pid);
                Record::Process {
                    parent,
                    pid,
                    time: self.time_from(time),
                }
            }
            Wire::Absent(path) => Record::Precondition(Precondition {
                path: self.path_at(PathId(path))?,
                before: None,
            }),
            Wire::Present(path, stat) => {
                let path = self.path_at(PathId(path))?;
                Record::Precondition(Precondition {
                    path,
                    before: Some(stat),
                })
            }
            Wire::Event(mut wire) => {
                let process = ProcessId(wire.process);
                let pid = self.pid(process)?;
                self.unpack(&mut wire.op)?;
                Record::Event(NewEvent {
                    time: self.time_from(wire.time),
                    process,
                    tid: Tid(pid.wrapping_add(wire.tid.cast_unsigned())),
                    by: wire.by,
                    op: wire.op,
                    result: wire.result,
                })
            }
            Wire::Version(id, content, stat) => {
                Record::Version(VersionRecord { id, content, stat })
            }
            Wire::Note(mut note) => {
                self.unpack_note(&mut note)?;
                Record::Note(note)
            }
        };
        Ok((record, len))
    }

    fn path<'a>(
        &mut self,
        parent: Option<u32>,
        name: &'a [u8],
        absent: bool,
    ) -> Result<Record<'a>, Bad> {
        let parent = parent
            .map(|distance| self.path_at(PathId(distance)))
            .transpose()?;
        if self.paths >= MAX_PATHS {
            return Err(Bad("there are too many paths"));
        }
        self.paths += 1;
        Ok(Record::Path {
            parent,
            name,
            absent,
        })
    }

    /// How far a path is from the end of the table: 1 for the newest.
    fn distance(&self, path: PathId) -> Result<PathId, Bad> {
        match self.paths.checked_sub(path.0) {
            Some(distance @ 1..) => Ok(PathId(distance)),
            _ => Err(Bad("a path is not in the table")),
        }
    }

    /// The path at a distance.
    fn path_at(&self, distance: PathId) -> Result<PathId, Bad> {
        match self.paths.checked_sub(distance.0) {
            Some(id) if id < self.paths => Ok(PathId(id)),
            _ => Err(Bad("a path is not in the table")),
        }
    }

    fn pid(&self, process: ProcessId) -> Result<u32, Bad> {
        let pid = self.pids.get(process.0 as usize);
        pid.copied().ok_or(Bad("a process is not in the table"))
    }

    fn time_to(&mut self, time: u64) -> i64 {
        let difference = time.wrapping_sub(self.time).cast_signed();
        self.time = time;
        difference
    }

    fn time_from(&mut self, difference: i64) -> u64 {
        self.time = self.time.wrapping_add(difference.cast_unsigned());
        self.time
    }

    fn pack(&mut self, op: &mut Op) -> Result<(), Bad> {
        op.map_paths(&mut |path| self.distance(path))?;
        match op {
            Op::Open {
                flags,
                mode,
                version,
                ..
            } => {
                let (f, m) = (*flags, *mode);
                *flags ^= self.flags;
                *mode ^= self.mode;
                (self.flags, self.mode) = (f, m);
                self.pack_version(version);
            }
            Op::Truncate { version, .. } | Op::Settle { version, .. } => self.pack_version(version),
            _ => {}
        }
        Ok(())
    }

    fn unpack(&mut self, op: &mut Op) -> Result<(), Bad> {
        op.map_paths(&mut |path| self.path_at(path))?;
        match op {
            Op::Open {
                flags,
                mode,
                version,
                ..
            } => {
                *flags ^= self.flags;
                *mode ^= self.mode;
                (self.flags, self.mode) = (*flags, *mode);
                self.unpack_version(version);
            }
            Op::Truncate { version, .. } | Op::Settle { version, .. } => {
                self.unpack_version(version)
            }
            _ => {}
        }
        Ok(())
    }

    fn pack_version(&mut self, version: &mut Option<VersionId>) {
        if let Some(VersionId(id)) = version {
            let difference = id.wrapping_sub(self.version).cast_signed();
            self.version = *id;
            *id = zigzag(difference);
        }
    }

    fn unpack_version(&mut self, version: &mut Option<VersionId>) {
        if let Some(VersionId(id)) = version {
            self.version = self.version.wrapping_add(unzigzag(*id).cast_unsigned());
            *id = self.version;
        }
    }

    fn pack_note(&self, note: &mut Note) -> Result<(), Bad> {
        if let Note::Unexplained { path } = note {
            *path = self.distance(*path)?;
        }
        self.check_note(note)
    }

    fn unpack_note(&self, note: &mut Note) -> Result<(), Bad> {
        if let Note::Unexplained { path } = note {
            *path = self.path_at(*path)?;
        }
        self.check_note(note)
    }

    fn check_note(&self, note: &Note) -> Result<(), Bad> {
        match note {
            Note::IoUringRefused { process } | Note::Refused { process, .. } => {
                self.pid(*process).map(drop)
            }
            Note::Unexplained { .. } | Note::Text(_) => Ok(()),
        }
    }
}

/// What a record adds to the tables.
enum Entered {
    Nothing,
    Path,
    Process(u32),
}

/// Turns the record of a path, of which `tag` is the first byte, into that of a path that was absent.
///
/// Says whether it could.
pub(crate) fn mark_absent(tag: &mut u8) -> bool {
    let path = *tag == TAG_PATH;
    if path {
        *tag = TAG_ABSENT_PATH;
    }
    path
}

fn zigzag(n: i32) -> u32 {
    ((n << 1) ^ (n >> 31)).cast_unsigned()
}

fn unzigzag(n: u32) -> i32 {
    (n >> 1).cast_signed() ^ -(n & 1).cast_signed()
}
