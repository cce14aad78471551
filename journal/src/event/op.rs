//! The operations.

use super::{Address, PathId, ReadCall, Stat, TimeChange, VersionId};
use crate::bytes::ByteString;
use crate::session::Exit;
use serde::{Deserialize, Serialize};

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

/// Tells operations with one path, with two and without any apart, the same for reading and for changing them.
macro_rules! by_paths {
    ($op:expr, $path:ident => $one:expr, ($from:ident, $to:ident) => $two:expr, $none:expr) => {
        match $op {
            Op::Open { path: $path, .. }
            | Op::Mkdir { path: $path, .. }
            | Op::Rmdir { path: $path }
            | Op::Unlink { path: $path }
            | Op::Symlink { path: $path, .. }
            | Op::Mknod { path: $path, .. }
            | Op::Truncate { path: $path, .. }
            | Op::Chmod { path: $path, .. }
            | Op::Chown { path: $path, .. }
            | Op::Utimens { path: $path, .. }
            | Op::Setxattr { path: $path, .. }
            | Op::Removexattr { path: $path, .. }
            | Op::Bind { path: $path, .. }
            | Op::Settle { path: $path, .. }
            | Op::Exec { exe: $path, .. }
            | Op::Read { path: $path, .. }
            | Op::Connect {
                address: Address::Unix($path),
            } => $one,
            Op::Rename {
                from: $from,
                to: $to,
                ..
            }
            | Op::Link {
                from: $from,
                to: $to,
            }
            | Op::Exchange {
                path: $from,
                to: $to,
            } => $two,
            Op::Exit { .. } | Op::Connect { .. } | Op::Mark { .. } => $none,
        }
    };
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
        by_paths!(*self, path => (Some(path), None), (from, to) => (Some(from), Some(to)), (None, None))
    }

    /// Changes every path in place; the codec turns numbers into distances and back with it.
    pub(crate) fn map_paths<E>(
        &mut self,
        map: &mut impl FnMut(PathId) -> Result<PathId, E>,
    ) -> Result<(), E> {
        by_paths!(
            self,
            path => *path = map(*path)?,
            (from, to) => {
                *from = map(*from)?;
                *to = map(*to)?;
            },
            {}
        );
        Ok(())
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
