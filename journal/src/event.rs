//! What a journal says: events in the order they happened, who did them, and what was there before.
//!
//! Paths, processes and versions are small numbers here. The tables that give them meaning are built by the
//! [`Writer`](crate::Writer) while recording and by the [`Reader`](crate::Reader) while reading.

use crate::bytes::ByteString;
use crate::session::Timestamp;
use serde::{Deserialize, Serialize};

mod op;

pub use op::Op;

/// The number of an event in its session, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seq(pub u64);

/// A thread id, in the PID namespace of the supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Tid(pub u32);

/// An index into the session's table of processes, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ProcessId(pub u32);

/// An index into the session's table of paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PathId(pub u32);

/// The number of a version: the content that came of one effect. `versions/<n>` holds it when it was sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct VersionId(pub u32);

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its place in the order.
    pub seq: Seq,
    /// Nanoseconds since the session's start. Not necessarily rising: an observed call is placed when it is confirmed.
    pub time: u64,
    /// Who did it.
    pub process: ProcessId,
    /// The thread of that process.
    pub tid: Tid,
    /// Who executed the call.
    pub by: By,
    /// What was done.
    pub op: Op,
    /// How it ended.
    pub result: Outcome,
}

/// An event that has no number yet: what the recorder hands to [`Writer::append`](crate::Writer::append).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEvent {
    /// Nanoseconds since the session's start.
    pub time: u64,
    /// Who did it.
    pub process: ProcessId,
    /// The thread of that process.
    pub tid: Tid,
    /// Who executed the call.
    pub by: By,
    /// What was done.
    pub op: Op,
    /// How it ended.
    pub result: Outcome,
}

/// Who executed a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum By {
    /// The supervisor: result and order are exact.
    Performed,
    /// The command itself: the result is inferred and confirmed later.
    Observed(Why),
}

/// Why a call was left to the command instead of being performed by the supervisor.
///
/// The order of the variants is part of the format: new ones come last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Why {
    /// Calls of this kind are always observed.
    Class,
    /// The caller's credentials, root, namespaces or Landlock domain are not the semisolate's.
    Foreign,
    /// It copies up a file too large to wait for.
    CopyUp,
    /// It may block: a FIFO or a device.
    Blocking,
    /// The caller's memory could not be read, so the path is not known.
    Unreadable,
    /// It concerns a file without a name.
    Nameless,
    /// The supervisor may not or cannot do what the caller may.
    Unable,
    /// Nothing was seen: the layers showed it at the end.
    Reconciled,
    /// A kernel without wait-killable notifications could repeat a performed call.
    Repeatable,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Outcome {
    /// It succeeded.
    Ok,
    /// It failed with this error number (positive, as in errno(3)).
    Errno(i32),
    /// It was observed and its result could not be told.
    Unknown,
}

/// The call behind an [`Op::Read`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ReadCall {
    /// open(2) for reading.
    Open,
    /// stat(2) and its kin.
    Stat,
    /// access(2).
    Access,
    /// readlink(2).
    Readlink,
    /// getxattr(2), listxattr(2).
    Getxattr,
    /// chdir(2).
    Chdir,
}

/// Where a connection was to go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Address {
    /// A Unix socket with a name in the filesystem.
    Unix(PathId),
    /// A Unix socket in the abstract namespace, without the leading NUL.
    Abstract(ByteString),
    /// IPv4 address and port.
    V4([u8; 4], u16),
    /// IPv6 address and port.
    V6([u8; 16], u16),
    /// Another family.
    Other(u16),
}

/// What utimensat(2) did to one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TimeChange {
    /// It was left alone (UTIME_OMIT).
    Omit,
    /// It was set to the current time (UTIME_NOW), which was this.
    Now(Timestamp),
    /// It was set to this.
    Set(Timestamp),
}

/// The type of a filesystem object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A FIFO.
    Fifo,
    /// A socket.
    Socket,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
}

impl Kind {
    /// The type in the S_IFMT bits of a mode.
    #[must_use]
    pub fn of_mode(mode: u32) -> Option<Self> {
        Some(match mode & libc::S_IFMT {
            libc::S_IFREG => Self::File,
            libc::S_IFDIR => Self::Directory,
            libc::S_IFLNK => Self::Symlink,
            libc::S_IFIFO => Self::Fifo,
            libc::S_IFSOCK => Self::Socket,
            libc::S_IFCHR => Self::CharDevice,
            libc::S_IFBLK => Self::BlockDevice,
            _ => return None,
        })
    }
}

/// The attributes of an object at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stat {
    /// Type.
    pub kind: Kind,
    /// Device that holds it (st_dev).
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
    /// Bytes.
    pub size: u64,
    /// Modification time.
    pub mtime: Timestamp,
    /// Change time.
    pub ctime: Timestamp,
    /// Permission bits (07777).
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of names.
    pub nlink: u32,
    /// Device number of a device node, else 0.
    pub rdev: u64,
}

/// What stood at a path when the session first touched it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Precondition {
    /// The path.
    pub path: PathId,
    /// What was there, if anything.
    pub before: Option<Stat>,
}

/// What became of one version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionRecord {
    /// The version.
    pub id: VersionId,
    /// Where its bytes are.
    pub content: VersionContent,
    /// The attributes of the file then.
    pub stat: Option<Stat>,
}

/// Where the bytes of a version are. A version that no record speaks of is still live in the layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum VersionContent {
    /// In `versions/<id>`.
    Sealed {
        /// Bytes.
        len: u64,
    },
    /// The first `len` bytes of a later version.
    Prefix {
        /// The later version.
        of: VersionId,
        /// Bytes.
        len: u64,
    },
    /// Over the budget, or it could not be kept.
    Lost {
        /// Bytes it had.
        len: u64,
    },
}

/// Something the reader of a journal should know that is no event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Note {
    /// The command asked for io_uring and was told that there is none.
    IoUringRefused {
        /// Who.
        process: ProcessId,
    },
    /// A call was refused because it could not be recorded.
    Refused {
        /// Who.
        process: ProcessId,
        /// Which call, and why.
        text: ByteString,
    },
    /// A path whose end state no event explained.
    Unexplained {
        /// The path.
        path: PathId,
    },
    /// Anything else worth telling.
    Text(ByteString),
}

/// What a journal holds, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Entry {
    /// Something happened.
    Event(Event),
    /// A path was touched for the first time: this is what was there. Comes before the event that touched it.
    Precondition(Precondition),
    /// A process appeared; it is in [`Reader::processes`](crate::Reader::processes) from now on.
    Process(ProcessId),
    /// A version was sealed, or given up.
    Version(VersionRecord),
    /// Something to know.
    Note(Note),
    /// The recording ended here (or this part of it, when the session was resumed).
    End(crate::writer::End),
}
