//! Reading a journal as a stream.

use crate::codec::{self, Bad, Context, FRAME_LEN, HEADER_LEN, MAX_FRAME, Record};
use crate::event::{Entry, Event, NewEvent, Op, Outcome, Precondition, Seq};
use crate::paths::Paths;
use crate::processes::Processes;
use std::fs::File;
use std::io;

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
    #[error(
        "read the journal: it has format {major}.{minor}; an effigy with format {major} reads it, this one has {}",
        codec::MAJOR
    )]
    TooNew {
        /// Major version of the format.
        major: u16,
        /// Minor version of the format.
        minor: u16,
    },
}

/// How the journal ends, as far as it has been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Tail {
    /// More may follow: the end has not been reached.
    Open,
    /// It ends with an end frame: the recording came to its end.
    Complete,
    /// It ends after a whole frame, but without an end frame: effigy was killed, or is still recording.
    Unfinished,
    /// It ends within a frame, which begins here: effigy was killed while writing it.
    Torn {
        /// Bytes before the frame.
        offset: u64,
        /// Bytes of it that are there.
        bytes: u64,
    },
    /// From this offset on it is not valid.
    Damaged {
        /// Bytes before it.
        offset: u64,
        /// What is wrong there.
        reason: &'static str,
    },
}

/// Where the bytes of a journal come from.
pub trait Source {
    /// Reads at most `buffer.len()` bytes from an offset; 0 at the end.
    ///
    /// # Errors
    /// When the system refuses.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
}

impl Source for File {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        std::os::unix::fs::FileExt::read_at(self, buffer, offset)
    }
}

impl Source for &[u8] {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let rest = usize::try_from(offset)
            .ok()
            .and_then(|offset| self.get(offset..))
            .unwrap_or(&[]);
        let n = rest.len().min(buffer.len());
        buffer[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }
}

/// A journal being read, entry by entry, without ever holding more of it than one frame and the two tables.
///
/// ```
/// use effigy_journal::{ByteString, By, Entry, NewEvent, Op, Outcome, Reader, Tail, Tid, Writer};
/// use std::path::Path;
///
/// # let scratch = std::env::temp_dir().join(format!("effigy-reader-{}", std::process::id()));
/// let file = std::fs::OpenOptions::new().read(true).write(true).create_new(true).open(&scratch)?;
/// let mut writer = Writer::create(file)?;
/// let process = writer.process(None, 2, 0)?;
/// let path = writer.path(Path::new("/home/u/notes"))?;
/// writer.append(NewEvent {
///     time: 1_000,
///     process,
///     tid: Tid(2),
///     by: By::Performed,
///     op: Op::Unlink { path },
///     result: Outcome::Ok,
/// })?;
/// let mut reader = Reader::open(writer.finish(2_000, 0)?)?;
/// while let Some(entry) = reader.next_entry()? {
///     if let Entry::Event(event) = entry {
///         let path = event.op.path().map(|path| reader.paths().path(path));
///         assert_eq!(path.as_deref(), Some(Path::new("/home/u/notes")));
///     }
/// }
/// assert_eq!(reader.tail(), Tail::Complete);
/// # std::fs::remove_file(&scratch)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Reader<S = File> {
    source: S,
    minor: u16,
    /// Where the next frame begins.
    offset: u64,
    /// The checksum of the frame before it.
    chain: u32,
    /// The payload of the current frame, how far it has been read, and where the frame begins.
    frame: Vec<u8>,
    position: usize,
    frame_offset: u64,
    context: Context,
    paths: Paths,
    processes: Processes,
    seq: u64,
    /// The last frame was an end frame.
    ended: bool,
    tail: Tail,
    /// A frame with the right checksum had a record in it that is not valid: nothing after it can be understood.
    spoilt: bool,
}

/// What a writer that goes on needs.
pub(crate) struct ReaderState {
    pub(crate) offset: u64,
    pub(crate) chain: u32,
    pub(crate) context: Context,
    pub(crate) paths: Paths,
    pub(crate) seq: u64,
}

impl<S: Source> Reader<S> {
    /// Opens a journal, which may still be growing.
    ///
    /// # Errors
    /// When it cannot be read, or is no journal this effigy reads.
    pub fn open(source: S) -> Result<Self, ReadError> {
        let mut header = [0; HEADER_LEN];
        if read_full(&source, &mut header, 0)? < HEADER_LEN || header[..8] != codec::MAGIC {
            return Err(ReadError::NotAJournal);
        }
        let major = u16::from_le_bytes([header[8], header[9]]);
        let minor = u16::from_le_bytes([header[10], header[11]]);
        let crc = u32::from_le_bytes([header[12], header[13], header[14], header[15]]);
        if crc != crc32c::crc32c(&header[..12]) {
            return Err(ReadError::NotAJournal);
        }
        if major != codec::MAJOR {
            return Err(ReadError::TooNew { major, minor });
        }
        Ok(Self {
            source,
            minor,
            offset: HEADER_LEN as u64,
            chain: crc32c::crc32c(&header),
            frame: Vec::new(),
            position: 0,
            frame_offset: 0,
            context: Context::default(),
            paths: Paths::default(),
            processes: Processes::default(),
            seq: 0,
            ended: false,
            tail: Tail::Open,
            spoilt: false,
        })
    }

    /// The next entry, or `None` where the valid part ends: [`tail`](Self::tail) says how.
    ///
    /// It may be called again later, when more may have been written: that is how a live journal is followed.
    ///
    /// # Errors
    /// Only when the system refuses to read.
    pub fn next_entry(&mut self) -> Result<Option<Entry>, ReadError> {
        loop {
            if self.spoilt {
                return Ok(None);
            }
            if self.position == self.frame.len() {
                match self.next_frame()? {
                    Frame::Records => {}
                    Frame::End(entry) => return Ok(Some(entry)),
                    Frame::None => return Ok(None),
                }
                continue;
            }
            match self.next_record() {
                Ok(Some(entry)) => return Ok(Some(entry)),
                Ok(None) => {}
                Err(Bad(reason)) => {
                    self.spoilt = true;
                    self.tail = Tail::Damaged {
                        offset: self.frame_offset,
                        reason,
                    };
                }
            }
        }
    }

    /// Takes one record from the frame; a path is only entered into its table.
    fn next_record(&mut self) -> Result<Option<Entry>, Bad> {
        let (record, len) = self.context.decode(&self.frame[self.position..])?;
        let entry = match record {
            Record::Path {
                parent,
                name,
                absent,
            } => {
                let path = self.paths.push(parent, name)?;
                absent.then_some(Entry::Precondition(Precondition { path, before: None }))
            }
            Record::Process { parent, pid, time } => {
                Some(Entry::Process(self.processes.push(parent, pid, time)))
            }
            Record::Precondition(precondition) => Some(Entry::Precondition(precondition)),
            Record::Event(NewEvent {
                time,
                process,
                tid,
                by,
                op,
                result,
            }) => {
                match &op {
                    Op::Exec { exe, argv } if result == Outcome::Ok => {
                        self.processes.exec(process, *exe, argv)
                    }
                    Op::Exit { status } => self.processes.exit(process, *status, time),
                    _ => {}
                }
                self.seq += 1;
                Some(Entry::Event(Event {
                    seq: Seq(self.seq),
                    time,
                    process,
                    tid,
                    by,
                    op,
                    result,
                }))
            }
            Record::Version(version) => Some(Entry::Version(version)),
            Record::Note(note) => Some(Entry::Note(note)),
        };
        self.position += len;
        Ok(entry)
    }

    fn next_frame(&mut self) -> Result<Frame, ReadError> {
        loop {
            self.frame.clear();
            self.position = 0;
            let mut header = [0; FRAME_LEN];
            let got = read_full(&self.source, &mut header, self.offset)?;
            if got == 0 {
                self.tail = if self.ended {
                    Tail::Complete
                } else {
                    Tail::Unfinished
                };
                return Ok(Frame::None);
            }
            if got < FRAME_LEN {
                self.tail = Tail::Torn {
                    offset: self.offset,
                    bytes: got as u64,
                };
                return Ok(Frame::None);
            }
            let len = u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize;
            if len > MAX_FRAME {
                return Ok(self.damaged("a frame is longer than 2 MiB"));
            }
            self.frame.resize(len, 0);
            let got = read_full(
                &self.source,
                &mut self.frame,
                self.offset + FRAME_LEN as u64,
            )?;
            if got < len {
                self.frame.clear();
                self.tail = Tail::Torn {
                    offset: self.offset,
                    bytes: (FRAME_LEN + got) as u64,
                };
                return Ok(Frame::None);
            }
            if codec::frame_crc(self.chain, &header, &self.frame) != codec::chain_of(&header) {
                return Ok(self.damaged("a checksum is wrong"));
            }
            let frame = match header[4] {
                codec::FRAME_RECORDS => Some(Frame::Records),
                codec::FRAME_END => match codec::decode_end(&self.frame) {
                    Ok(end) => Some(Frame::End(Entry::End(end))),
                    Err(Bad(reason)) => return Ok(self.damaged(reason)),
                },
                codec::FRAME_IGNORABLE.. => None,
                _ => {
                    return Ok(
                        self.damaged("a frame is of a type that must be understood and is not")
                    );
                }
            };
            self.frame_offset = self.offset;
            self.offset += (FRAME_LEN + len) as u64;
            self.chain = codec::chain_of(&header);
            self.tail = Tail::Open;
            match frame {
                Some(Frame::Records) => {
                    self.ended = false;
                    return Ok(Frame::Records);
                }
                Some(other) => {
                    self.ended = true;
                    self.frame.clear();
                    return Ok(other);
                }
                None => self.frame.clear(),
            }
        }
    }

    fn damaged(&mut self, reason: &'static str) -> Frame {
        self.frame.clear();
        self.tail = Tail::Damaged {
            offset: self.offset,
            reason,
        };
        Frame::None
    }

    /// How the journal ends, as far as it has been read.
    #[must_use]
    pub fn tail(&self) -> Tail {
        self.tail
    }

    /// The minor version of its format.
    #[must_use]
    pub fn minor(&self) -> u16 {
        self.minor
    }

    /// The paths that the entries so far speak of.
    #[must_use]
    pub fn paths(&self) -> &Paths {
        &self.paths
    }

    /// The processes that the entries so far speak of, as of the last entry.
    #[must_use]
    pub fn processes(&self) -> &Processes {
        &self.processes
    }

    /// The number of the last event read; 0 before the first.
    #[must_use]
    pub fn last(&self) -> Seq {
        Seq(self.seq)
    }

    /// Bytes of whole valid frames read so far.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// What a writer needs to go on, unless a frame could only be understood in part.
    pub(crate) fn into_state(self) -> Option<ReaderState> {
        (!self.spoilt).then_some(ReaderState {
            offset: self.offset,
            chain: self.chain,
            context: self.context,
            paths: self.paths,
            seq: self.seq,
        })
    }
}

enum Frame {
    Records,
    End(Entry),
    None,
}

/// Reads until the buffer is full or the source ends.
fn read_full(source: &impl Source, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut got = 0;
    while got < buffer.len() {
        match source.read_at(&mut buffer[got..], offset + got as u64) {
            Ok(0) => break,
            Ok(n) => got += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(got)
}
