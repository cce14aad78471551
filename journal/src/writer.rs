//! Writing a journal.
//!
//! Records are gathered into frames of about 64 KiB, so a frame's fixed bytes are shared by thousands of events. What is
//! gathered is handed to the kernel when the frame is full, or when the caller says so.

use crate::codec::{self, Bad, Context, FRAME_END, FRAME_RECORDS, Record};
use crate::event::{
    Entry, NewEvent, Note, PathId, Precondition, ProcessId, Seq, Stat, VersionId, VersionRecord,
};
use crate::paths::Paths;
use crate::reader::{ReadError, Reader};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

mod index;

use index::Index;

/// A frame of records is closed when it has this many bytes.
const FULL: usize = 64 << 10;

/// Bytes that are held back while the disk refuses them.
const MAX_HELD: usize = 64 << 20;

/// How a recording ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct End {
    /// Nanoseconds since the session's start.
    pub time: u64,
    /// Events in the journal up to here.
    pub events: u64,
    /// Net effects that no event explains; 0 means the recording is complete.
    pub unexplained: u64,
}

/// Why the journal could not be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The system refused. What was to be written is kept and tried again.
    #[error("write the journal: {0}")]
    Io(#[from] io::Error),
    /// A limit of the format was reached, or a number is not from this journal. Nothing was recorded.
    #[error("write the journal: {0}")]
    Limit(&'static str),
    /// The journal to go on with cannot be read.
    #[error("go on with the journal: {0}")]
    Resume(#[from] ReadError),
}

impl From<Bad> for WriteError {
    fn from(bad: Bad) -> Self {
        Self::Limit(bad.0)
    }
}

/// What [`Writer::resume`] found.
#[derive(Debug)]
pub struct Resumed {
    /// The writer, which goes on after the last valid entry.
    pub writer: Writer,
    /// The last time in the journal, in nanoseconds since the session's start.
    pub time: u64,
    /// The first version number that is not used yet.
    pub next_version: u32,
    /// Bytes of a torn tail that were cut off.
    pub cut: u64,
}

/// Appends to a journal. Everything is buffered until [`flush`](Self::flush); dropping it without [`finish`](Self::finish)
/// leaves a valid, incomplete journal.
#[derive(Debug)]
pub struct Writer {
    file: File,
    /// Where the next byte goes.
    offset: u64,
    /// The checksum of the last closed frame.
    chain: u32,
    /// The payload of the frame being filled.
    records: Vec<u8>,
    /// Closed frames that are not written yet.
    closed: Vec<u8>,
    context: Context,
    seq: u64,
    paths: Paths,
    index: Index,
    touched: Vec<u64>,
    /// The newest path, and where in `records` its record begins.
    newest: Option<(PathId, usize)>,
    /// The directory of the last path asked for: most paths lie beside the one before.
    last_dir: (Vec<u8>, Option<PathId>),
}

impl Writer {
    /// Begins a journal in an empty file, which is open for reading and writing.
    ///
    /// # Errors
    /// When the header cannot be written.
    pub fn create(file: File) -> Result<Self, WriteError> {
        let header = codec::header();
        file.write_all_at(&header, 0)?;
        let chain = crc32c::crc32c(&header);
        Ok(Self::new(file, header.len() as u64, chain))
    }

    fn new(file: File, offset: u64, chain: u32) -> Self {
        Self {
            file,
            offset,
            chain,
            records: Vec::with_capacity(FULL + 4096),
            closed: Vec::new(),
            context: Context::default(),
            seq: 0,
            paths: Paths::default(),
            index: Index::default(),
            touched: Vec::new(),
            newest: None,
            last_dir: (Vec::new(), None),
        }
    }

    /// Goes on with a journal (`effigy run --resume`); a torn tail is cut off.
    ///
    /// # Errors
    /// When it cannot be read or written, or is no journal.
    pub fn resume(file: File) -> Result<Resumed, WriteError> {
        let mut reader = Reader::open(file.try_clone()?)?;
        let mut touched = Vec::new();
        let mut next_version = 0;
        while let Some(entry) = reader.next_entry()? {
            match entry {
                Entry::Precondition(Precondition { path, .. }) => set_bit(&mut touched, path),
                Entry::Event(event) => {
                    let version = event
                        .op
                        .version()
                        .map_or(0, |VersionId(id)| id.saturating_add(1));
                    next_version = next_version.max(version);
                }
                Entry::Version(version) => {
                    next_version = next_version.max(version.id.0.saturating_add(1))
                }
                _ => {}
            }
        }
        let state = reader.into_state().ok_or(WriteError::Limit(
            "a frame of the journal to go on with is not valid",
        ))?;
        let len = file.metadata()?.len();
        let cut = len.saturating_sub(state.offset);
        if cut > 0 {
            file.set_len(state.offset)?;
        }
        let mut writer = Self::new(file, state.offset, state.chain);
        writer.index = Index::of(&state.paths);
        writer.paths = state.paths;
        writer.context = state.context;
        writer.seq = state.seq;
        writer.touched = touched;
        let time = writer.context.time();
        Ok(Resumed {
            writer,
            time,
            next_version,
            cut,
        })
    }

    /// The number of a path, whose bytes are kept as they are. It should be absolute; one that is not is kept whole.
    ///
    /// # Errors
    /// When it has a NUL in it, is longer than 65 535 bytes, or there are too many paths.
    pub fn path(&mut self, path: &Path) -> Result<PathId, WriteError> {
        let path = path.as_os_str().as_bytes();
        let Some(slash) = path.iter().rposition(|b| *b == b'/') else {
            return self.intern(None, path);
        };
        let (dir, name) = (&path[..slash], &path[slash + 1..]);
        if let (last, Some(id)) = &self.last_dir
            && last == dir
        {
            let id = *id;
            return self.intern(Some(id), name);
        }
        let mut id = None;
        // Splitting `/a/b` gives an empty component first: the root directory's own.
        for component in dir.split(|b| *b == b'/') {
            id = Some(self.intern(id, component)?);
        }
        self.last_dir.0.clear();
        self.last_dir.0.extend_from_slice(dir);
        self.last_dir.1 = id;
        self.intern(id, name)
    }

    /// The number of the entry `name` of a directory that already has a number: cheaper than [`path`](Self::path).
    ///
    /// # Errors
    /// As [`path`](Self::path).
    pub fn child(&mut self, directory: PathId, name: &[u8]) -> Result<PathId, WriteError> {
        self.intern(Some(directory), name)
    }

    fn intern(&mut self, parent: Option<PathId>, name: &[u8]) -> Result<PathId, WriteError> {
        let hash = self.index.hash(parent, name);
        if let Some(id) = self.index.find(hash, parent, name, &self.paths) {
            return Ok(id);
        }
        if self.records.len() >= FULL {
            self.close(FRAME_RECORDS);
        }
        let id = self.paths.push(parent, name)?;
        let start = self.records.len();
        self.context.encode(
            Record::Path {
                parent,
                name,
                absent: false,
            },
            &mut self.records,
        )?;
        self.index.insert(hash, id);
        self.newest = Some((id, start));
        Ok(id)
    }

    /// The table of paths so far.
    #[must_use]
    pub fn paths(&self) -> &Paths {
        &self.paths
    }

    /// Enters a process into the table.
    ///
    /// # Errors
    /// When there are too many.
    pub fn process(
        &mut self,
        parent: Option<ProcessId>,
        pid: u32,
        time: u64,
    ) -> Result<ProcessId, WriteError> {
        let number = self.context.processes();
        self.record(Record::Process { parent, pid, time })?;
        Ok(ProcessId(
            u32::try_from(number).expect("the table is limited"),
        ))
    }

    /// Whether a precondition of the path has been recorded.
    #[must_use]
    pub fn is_touched(&self, path: PathId) -> bool {
        let word = self.touched.get(path.0 as usize / 64);
        word.is_some_and(|word| word & (1 << (path.0 % 64)) != 0)
    }

    /// Records what stood at a path when it was first touched; does nothing if that is already recorded.
    ///
    /// # Errors
    /// When a full frame had to be written and could not be; it is recorded nevertheless.
    pub fn precondition(&mut self, path: PathId, before: Option<&Stat>) -> Result<(), WriteError> {
        if self.is_touched(path) {
            return Ok(());
        }
        if before.is_none()
            && let Some((newest, start)) = self.newest
            && newest == path
            && codec::mark_absent(&mut self.records[start])
        {
            set_bit(&mut self.touched, path);
            return Ok(());
        }
        let record = Record::Precondition(Precondition {
            path,
            before: before.copied(),
        });
        self.context.encode(record, &mut self.records)?;
        set_bit(&mut self.touched, path);
        self.write_if_full()
    }

    /// Records an event and gives it its number.
    ///
    /// # Errors
    /// When it is too large ([`WriteError::Limit`]: it is not recorded), or a full frame had to be written and could not be
    /// ([`WriteError::Io`]: it is recorded nevertheless, and [`last`](Self::last) is its number).
    pub fn append(&mut self, event: NewEvent) -> Result<Seq, WriteError> {
        self.context
            .encode(Record::Event(event), &mut self.records)?;
        self.seq += 1;
        self.write_if_full()?;
        Ok(Seq(self.seq))
    }

    /// Records what became of a version.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn version(&mut self, version: VersionRecord) -> Result<(), WriteError> {
        self.record(Record::Version(version))
    }

    /// Records a note.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn note(&mut self, note: Note) -> Result<(), WriteError> {
        self.record(Record::Note(note))
    }

    fn record(&mut self, record: Record<'_>) -> Result<(), WriteError> {
        self.context.encode(record, &mut self.records)?;
        self.write_if_full()
    }

    fn write_if_full(&mut self) -> Result<(), WriteError> {
        if self.records.len() < FULL {
            return Ok(());
        }
        self.close(FRAME_RECORDS);
        self.write_closed()
    }

    /// The number of the last event; 0 before the first.
    #[must_use]
    pub fn last(&self) -> Seq {
        Seq(self.seq)
    }

    /// Puts what is in `records` into a frame.
    fn close(&mut self, kind: u8) {
        if self.records.is_empty() {
            return;
        }
        let header = codec::frame_header(self.chain, kind, &self.records);
        self.chain = codec::chain_of(&header);
        self.closed.extend_from_slice(&header);
        self.closed.append(&mut self.records);
        self.newest = None;
    }

    fn write_closed(&mut self) -> Result<(), WriteError> {
        while !self.closed.is_empty() {
            match self.file.write_at(&self.closed, self.offset) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::WriteZero).into()),
                Ok(n) => {
                    self.offset += n as u64;
                    self.closed.drain(..n);
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) if self.closed.len() > MAX_HELD => {
                    return Err(WriteError::Limit("64 MiB could not be written"));
                }
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    /// Hands everything buffered to the kernel, without waiting for the disk. To be called every 100 ms.
    ///
    /// # Errors
    /// When the system refuses; what was buffered stays buffered and is tried again with the next flush.
    pub fn flush(&mut self) -> Result<(), WriteError> {
        self.close(FRAME_RECORDS);
        self.write_closed()
    }

    /// Marks the end, flushes, and gives the file back (to be synced or not).
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn finish(mut self, time: u64, unexplained: u64) -> Result<File, WriteError> {
        self.close(FRAME_RECORDS);
        let end = End {
            time,
            events: self.seq,
            unexplained,
        };
        self.records.extend_from_slice(&codec::encode_end(&end));
        self.close(FRAME_END);
        self.write_closed()?;
        Ok(self.file)
    }
}

fn set_bit(bits: &mut Vec<u64>, path: PathId) {
    let word = path.0 as usize / 64;
    if bits.len() <= word {
        bits.resize(word + 1, 0);
    }
    bits[word] |= 1 << (path.0 % 64);
}
