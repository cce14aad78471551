//! Reading a journal as a stream.

use crate::bytes::ByteString;
use crate::event::{Entry, PathId, ProcessId};
use crate::session::Exit;
use std::fs::File;
use std::io;
use std::path::PathBuf;

/// Why a journal cannot be read at all. A damaged tail is no error: see [`Tail`].
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The system refused.
    #[error("read the journal: {0}")]
    Io(#[from] io::Error),
    /// It does not begin like a journal.
    #[error("read the journal: it is no journal of effigy")]
    NotAJournal,
    /// It was written by a later effigy.
    #[error("read the journal: it has format {major}.{minor}; effigy with format {major} reads it")]
    TooNew {
        /// Major version of the format.
        major: u16,
        /// Minor version of the format.
        minor: u16,
    },
}

/// How the journal ended, as far as it has been read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Tail {
    /// More may follow: the end has not been reached.
    Open,
    /// It ends with an end frame: the recording came to its end.
    Complete,
    /// It ends after a whole frame, but without an end frame: effigy was killed, or is still recording.
    Unfinished,
    /// From this offset on it is not valid.
    Damaged {
        /// Bytes before it.
        offset: u64,
        /// What is wrong there.
        reason: &'static str,
    },
}

/// The table of paths read so far.
#[derive(Debug, Default)]
pub struct Paths {}

impl Paths {
    /// How many there are; numbers are below this.
    #[must_use]
    pub fn len(&self) -> usize {
        0
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The path, made up of its components. Empty for a number that is not in the table.
    #[must_use]
    pub fn path(&self, _id: PathId) -> PathBuf {
        PathBuf::new()
    }

    /// Writes the path's bytes over those in `buffer`.
    pub fn read(&self, _id: PathId, buffer: &mut Vec<u8>) {
        buffer.clear();
    }

    /// The directory of a path.
    #[must_use]
    pub fn parent(&self, _id: PathId) -> Option<PathId> {
        None
    }

    /// The last component.
    #[must_use]
    pub fn name(&self, _id: PathId) -> &[u8] {
        &[]
    }
}

/// A process as of the point up to which the journal has been read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Who started it.
    pub parent: Option<ProcessId>,
    /// Its id, in the PID namespace of the command.
    pub pid: u32,
    /// Nanoseconds since the session's start.
    pub start: u64,
    /// When it ended, in the same unit.
    pub end: Option<u64>,
    /// How it ended.
    pub exit: Option<Exit>,
    /// Its program: its own last exec, else what it inherited.
    pub exe: Option<PathId>,
    /// Its arguments, likewise.
    pub argv: std::sync::Arc<[ByteString]>,
}

/// The table of processes read so far.
#[derive(Debug, Default)]
pub struct Processes {}

impl Processes {
    /// How many there are; numbers are below this.
    #[must_use]
    pub fn len(&self) -> usize {
        0
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// One process.
    #[must_use]
    pub fn get(&self, _id: ProcessId) -> Option<&Process> {
        None
    }

    /// The process, its parent, and so on up to the first one.
    pub fn ancestry(&self, _id: ProcessId) -> impl Iterator<Item = (ProcessId, &Process)> {
        std::iter::empty()
    }
}

/// A journal being read, entry by entry, without ever holding more of it than one frame and the two tables.
#[derive(Debug)]
pub struct Reader {
    _file: File,
}

impl Reader {
    /// Opens a journal, which may still be growing.
    ///
    /// # Errors
    /// When it cannot be read, or is no journal this effigy reads.
    pub fn open(file: File) -> Result<Self, ReadError> {
        Ok(Self { _file: file })
    }

    /// The next entry, or `None` where the valid part ends: [`tail`](Self::tail) says how. After [`Tail::Unfinished`] and
    /// [`Tail::Complete`] it may be called again later, when more has been written: that is how a live journal is followed.
    ///
    /// # Errors
    /// Only when the system refuses to read.
    pub fn next_entry(&mut self) -> Result<Option<Entry>, ReadError> {
        Ok(None)
    }

    /// How the journal ends, as far as it has been read.
    #[must_use]
    pub fn tail(&self) -> Tail {
        Tail::Open
    }

    /// The paths that the entries so far speak of.
    #[must_use]
    pub fn paths(&self) -> &Paths {
        const { &Paths {} }
    }

    /// The processes that the entries so far speak of.
    #[must_use]
    pub fn processes(&self) -> &Processes {
        const { &Processes {} }
    }

    /// Bytes read so far that were valid.
    #[must_use]
    pub fn offset(&self) -> u64 {
        0
    }
}
