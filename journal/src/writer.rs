//! Writing a journal.

use crate::event::{NewEvent, Note, PathId, ProcessId, Seq, Stat, VersionRecord};
use std::fs::File;
use std::io;
use std::path::Path;

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
    /// The system refused.
    #[error("write the journal: {0}")]
    Io(#[from] io::Error),
    /// A limit of the format was reached.
    #[error("write the journal: {0}")]
    Limit(&'static str),
}

/// What [`Writer::resume`] found.
#[derive(Debug)]
pub struct Resumed {
    /// The writer, which goes on after the last valid entry.
    pub writer: Writer,
    /// The last time in the journal, in nanoseconds since the session's start.
    pub time: u64,
    /// Bytes of a torn tail that were cut off.
    pub cut: u64,
}

/// Appends to a journal. Everything is buffered until [`flush`](Self::flush); dropping it without [`finish`](Self::finish)
/// leaves a valid, incomplete journal.
#[derive(Debug)]
pub struct Writer {
    file: File,
}

impl Writer {
    /// Begins a journal in an empty file.
    ///
    /// # Errors
    /// When the header cannot be written.
    pub fn create(file: File) -> Result<Self, WriteError> {
        Ok(Self { file })
    }

    /// Goes on with a journal (`effigy run --resume`); a torn tail is cut off.
    ///
    /// # Errors
    /// When it cannot be read or written, or is no journal.
    pub fn resume(_file: File) -> Result<Resumed, WriteError> {
        Err(WriteError::Limit("not yet"))
    }

    /// The number of an absolute path, whose bytes are kept as they are.
    ///
    /// # Errors
    /// When it is longer than 65 535 bytes, or there are too many paths.
    pub fn path(&mut self, _path: &Path) -> Result<PathId, WriteError> {
        Ok(PathId(0))
    }

    /// The number of the entry `name` of a directory that already has a number: cheaper than [`path`](Self::path).
    ///
    /// # Errors
    /// As [`path`](Self::path).
    pub fn child(&mut self, _directory: PathId, _name: &[u8]) -> Result<PathId, WriteError> {
        Ok(PathId(0))
    }

    /// Enters a process into the table.
    ///
    /// # Errors
    /// When there are too many.
    pub fn process(
        &mut self,
        _parent: Option<ProcessId>,
        _pid: u32,
        _time: u64,
    ) -> Result<ProcessId, WriteError> {
        Ok(ProcessId(0))
    }

    /// Whether a precondition of the path has been recorded.
    #[must_use]
    pub fn is_touched(&self, _path: PathId) -> bool {
        false
    }

    /// Records what stood at a path when it was first touched; does nothing if that is already recorded.
    ///
    /// # Errors
    /// When the buffer had to be written and could not be.
    pub fn precondition(
        &mut self,
        _path: PathId,
        _before: Option<&Stat>,
    ) -> Result<(), WriteError> {
        Ok(())
    }

    /// Records an event and gives it its number.
    ///
    /// # Errors
    /// When it is too large, or the buffer had to be written and could not be.
    pub fn append(&mut self, _event: NewEvent) -> Result<Seq, WriteError> {
        Ok(Seq(0))
    }

    /// Records what became of a version.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn version(&mut self, _version: VersionRecord) -> Result<(), WriteError> {
        Ok(())
    }

    /// Records a note.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn note(&mut self, _note: Note) -> Result<(), WriteError> {
        Ok(())
    }

    /// The number of the last event; 0 before the first.
    #[must_use]
    pub fn last(&self) -> Seq {
        Seq(0)
    }

    /// Hands everything buffered to the kernel, without waiting for the disk. To be called every 100 ms.
    ///
    /// # Errors
    /// When the system refuses; what was buffered stays buffered and is tried again with the next flush.
    pub fn flush(&mut self) -> Result<(), WriteError> {
        Ok(())
    }

    /// Marks the end, flushes, and gives the file back (sync it or not).
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn finish(self, _time: u64, _unexplained: u64) -> Result<File, WriteError> {
        Ok(self.file)
    }
}
