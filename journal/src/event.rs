//! What a journal says: events in the order they happened, who did them, and what was there before.
//!
//! Paths, processes and versions are small numbers here. The tables that give them meaning are built by the
//! [`Writer`](crate::Writer) while recording and by the [`Reader`](crate::Reader) while reading.

use crate::bytes::ByteString;
use crate::session::{Exit, Timestamp};
use serde::{Deserialize, Serialize};

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

/// What was done. Paths name the object itself, with every symbolic link on the way resolved and none followed at the end.
///
/// The order of the variants and of their fields is part of the format: new variants come last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Op {
    /// A file was opened in a way that may write.
    Open {
        /// The file.
        path: PathId,
        /// The flags of open(2).
        flags: u32,
        /// Permission bits that the file got when this created it, else 0.
        mode: u32,
        /// The open made the file.
        created: bool,
        /// The open emptied it.
        truncated: bool,
        /// The content that came of it.
        version: Option<VersionId>,
    },
    /// A directory was made.
    Mkdir {
        /// The directory.
        path: PathId,
        /// The permission bits it got.
        mode: u32,
    },
    /// A directory was removed.
    Rmdir {
        /// The directory.
        path: PathId,
    },
    /// A name was removed.
    Unlink {
        /// The name.
        path: PathId,
    },
    /// A name was changed, perhaps over another one.
    Rename {
        /// The old name.
        from: PathId,
        /// The new name.
        to: PathId,
        /// The flags of renameat2(2).
        flags: u32,
        /// `to` existed and was replaced.
        replaced: bool,
    },
    /// Two names were exchanged.
    Exchange {
        /// One name.
        path: PathId,
        /// The other.
        to: PathId,
    },
    /// A file got another name.
    Link {
        /// The file.
        from: PathId,
        /// The new name.
        to: PathId,
    },
    /// A symbolic link was made.
    Symlink {
        /// The link.
        path: PathId,
        /// What it points to, as given.
        target: ByteString,
    },
    /// A FIFO, socket, device or file was made by mknod(2).
    Mknod {
        /// The node.
        path: PathId,
        /// Type and the permission bits it got.
        mode: u32,
        /// The device number (as st_rdev), 0 where there is none.
        dev: u64,
    },
    /// A file's length was set by name.
    Truncate {
        /// The file.
        path: PathId,
        /// Its new length.
        len: u64,
        /// The content that came of it.
        version: Option<VersionId>,
    },
    /// Permission bits were set.
    Chmod {
        /// The object.
        path: PathId,
        /// The bits it now has.
        mode: u32,
    },
    /// The owner was set.
    Chown {
        /// The object.
        path: PathId,
        /// The new user, unless unchanged.
        uid: Option<u32>,
        /// The new group, unless unchanged.
        gid: Option<u32>,
    },
    /// Times were set.
    Utimens {
        /// The object.
        path: PathId,
        /// What became of the access time.
        atime: TimeChange,
        /// What became of the modification time.
        mtime: TimeChange,
    },
    /// An extended attribute was set.
    Setxattr {
        /// The object.
        path: PathId,
        /// The attribute.
        name: ByteString,
        /// Its value.
        value: ByteString,
        /// The flags of setxattr(2).
        flags: u32,
    },
    /// An extended attribute was removed.
    Removexattr {
        /// The object.
        path: PathId,
        /// The attribute.
        name: ByteString,
    },
    /// A Unix socket was bound to a name.
    Bind {
        /// The socket.
        path: PathId,
        /// The permission bits it got.
        mode: u32,
    },
    /// The end state of a path that no other event explains.
    Settle {
        /// The path.
        path: PathId,
        /// What is there at the end, if anything.
        state: Option<Box<Stat>>,
        /// Its content.
        version: Option<VersionId>,
    },
    /// A program was executed.
    Exec {
        /// The program, as resolved.
        exe: PathId,
        /// Its arguments, capped by the recorder.
        argv: Vec<ByteString>,
    },
    /// A process ended.
    Exit {
        /// How.
        status: Exit,
    },
    /// Something was read (recorded only on request).
    Read {
        /// What.
        path: PathId,
        /// The kind of call: open, stat, access, readlink, getxattr, chdir.
        call: ReadCall,
    },
    /// A connection was asked for.
    Connect {
        /// To where.
        address: Address,
    },
    /// A note in the command's own words.
    Mark {
        /// The words.
        text: ByteString,
    },
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

impl Op {
    /// The operation's name, as on the command line and in JSON.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Open { .. } => "open",
            Self::Mkdir { .. } => "mkdir",
            Self::Rmdir { .. } => "rmdir",
            Self::Unlink { .. } => "unlink",
            Self::Rename { .. } => "rename",
            Self::Exchange { .. } => "exchange",
            Self::Link { .. } => "link",
            Self::Symlink { .. } => "symlink",
            Self::Mknod { .. } => "mknod",
            Self::Truncate { .. } => "truncate",
            Self::Chmod { .. } => "chmod",
            Self::Chown { .. } => "chown",
            Self::Utimens { .. } => "utimens",
            Self::Setxattr { .. } => "setxattr",
            Self::Removexattr { .. } => "removexattr",
            Self::Bind { .. } => "bind",
            Self::Settle { .. } => "settle",
            Self::Exec { .. } => "exec",
            Self::Exit { .. } => "exit",
            Self::Read { .. } => "read",
            Self::Connect { .. } => "connect",
            Self::Mark { .. } => "mark",
        }
    }

    /// Every operation's name.
    pub const NAMES: [&'static str; 22] = [
        "open",
        "mkdir",
        "rmdir",
        "unlink",
        "rename",
        "exchange",
        "link",
        "symlink",
        "mknod",
        "truncate",
        "chmod",
        "chown",
        "utimens",
        "setxattr",
        "removexattr",
        "bind",
        "settle",
        "exec",
        "exit",
        "read",
        "connect",
        "mark",
    ];

    /// Whether it changes the filesystem.
    #[must_use]
    pub fn is_effect(&self) -> bool {
        !matches!(
            self,
            Self::Exec { .. }
                | Self::Exit { .. }
                | Self::Read { .. }
                | Self::Connect { .. }
                | Self::Mark { .. }
        )
    }

    /// The path it is about (of a rename or link: the old name), if any.
    #[must_use]
    pub fn path(&self) -> Option<PathId> {
        self.paths().0
    }

    /// The second path (of a rename, exchange or link: the new name), if any.
    #[must_use]
    pub fn to(&self) -> Option<PathId> {
        self.paths().1
    }

    /// Both paths.
    #[must_use]
    pub fn paths(&self) -> (Option<PathId>, Option<PathId>) {
        match *self {
            Self::Open { path, .. }
            | Self::Mkdir { path, .. }
            | Self::Rmdir { path }
            | Self::Unlink { path }
            | Self::Symlink { path, .. }
            | Self::Mknod { path, .. }
            | Self::Truncate { path, .. }
            | Self::Chmod { path, .. }
            | Self::Chown { path, .. }
            | Self::Utimens { path, .. }
            | Self::Setxattr { path, .. }
            | Self::Removexattr { path, .. }
            | Self::Bind { path, .. }
            | Self::Settle { path, .. }
            | Self::Exec { exe: path, .. }
            | Self::Read { path, .. }
            | Self::Connect {
                address: Address::Unix(path),
            } => (Some(path), None),
            Self::Rename { from, to, .. }
            | Self::Link { from, to }
            | Self::Exchange { path: from, to } => (Some(from), Some(to)),
            Self::Exit { .. } | Self::Connect { .. } | Self::Mark { .. } => (None, None),
        }
    }

    /// Changes every path in place; the codec turns numbers into distances and back with it.
    pub(crate) fn map_paths(&mut self, map: &mut impl FnMut(&mut PathId)) {
        match self {
            Self::Open { path, .. }
            | Self::Mkdir { path, .. }
            | Self::Rmdir { path }
            | Self::Unlink { path }
            | Self::Symlink { path, .. }
            | Self::Mknod { path, .. }
            | Self::Truncate { path, .. }
            | Self::Chmod { path, .. }
            | Self::Chown { path, .. }
            | Self::Utimens { path, .. }
            | Self::Setxattr { path, .. }
            | Self::Removexattr { path, .. }
            | Self::Bind { path, .. }
            | Self::Settle { path, .. }
            | Self::Exec { exe: path, .. }
            | Self::Read { path, .. }
            | Self::Connect {
                address: Address::Unix(path),
            } => map(path),
            Self::Rename { from, to, .. }
            | Self::Link { from, to }
            | Self::Exchange { path: from, to } => {
                map(from);
                map(to);
            }
            Self::Exit { .. } | Self::Connect { .. } | Self::Mark { .. } => {}
        }
    }

    /// The version that came of it, if any.
    #[must_use]
    pub fn version(&self) -> Option<VersionId> {
        match *self {
            Self::Open { version, .. }
            | Self::Truncate { version, .. }
            | Self::Settle { version, .. } => version,
            _ => None,
        }
    }
}
