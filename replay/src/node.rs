//! What stands at a path: type, identity and attributes.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The type of a file, as in inode(7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FileType {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A Unix socket.
    Socket,
    /// A character device.
    Character,
    /// A block device.
    Block,
}

impl FileType {
    /// The type in the `S_IFMT` bits of a mode; what no kernel gives counts as regular.
    #[must_use]
    pub fn from_mode(mode: u32) -> Self {
        match mode & libc::S_IFMT {
            libc::S_IFDIR => Self::Directory,
            libc::S_IFLNK => Self::Symlink,
            libc::S_IFIFO => Self::Fifo,
            libc::S_IFSOCK => Self::Socket,
            libc::S_IFCHR => Self::Character,
            libc::S_IFBLK => Self::Block,
            _ => Self::Regular,
        }
    }

    /// Whether it is a character or block device.
    #[must_use]
    pub fn is_device(self) -> bool {
        matches!(self, Self::Character | Self::Block)
    }
}

impl fmt::Display for FileType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Regular => "file",
            Self::Directory => "directory",
            Self::Symlink => "symbolic link",
            Self::Fifo => "fifo",
            Self::Socket => "socket",
            Self::Character => "character device",
            Self::Block => "block device",
        })
    }
}

/// A moment as the filesystem keeps it.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Time {
    /// Seconds since 1970-01-01 UTC.
    pub sec: i64,
    /// Nanoseconds, below 1 000 000 000.
    pub nsec: u32,
}

impl From<Time> for effigy_journal::Timestamp {
    fn from(time: Time) -> Self {
        Self::from_parts(time.sec, time.nsec)
    }
}

/// What stands at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Its type.
    pub kind: FileType,
    /// Permission bits with set-user-id, set-group-id and sticky: 0o7777.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes; of a symbolic link the length of its target.
    pub size: u64,
    /// Last change of content.
    pub mtime: Time,
    /// Last change of anything.
    pub ctime: Time,
    /// Inode number.
    pub ino: u64,
    /// When the inode was made; 0 where the filesystem does not tell.
    pub birth: Time,
    /// Device the filesystem is on, major and minor.
    pub dev: (u32, u32),
    /// Device this node stands for, major and minor.
    pub rdev: (u32, u32),
    /// Number of names.
    pub nlink: u32,
    /// Attributes as statx(2) gives them: immutable, append-only…
    pub attributes: u64,
    /// The mount it was seen through.
    pub mount: u64,
}

impl Node {
    /// Whether it is a directory.
    #[must_use]
    pub fn is_dir(&self) -> bool {
        self.kind == FileType::Directory
    }

    /// Whether it is a regular file.
    #[must_use]
    pub fn is_file(&self) -> bool {
        self.kind == FileType::Regular
    }

    /// Tells inodes of one filesystem apart, also one that has taken the number of another: the number of a file that was
    /// removed is soon given away again, its birth is not. Without births the number alone. Never 0.
    pub(crate) fn identity(&self, births: bool) -> u64 {
        let birth = if births { self.birth } else { Time::default() };
        let nanoseconds = birth
            .sec
            .cast_unsigned()
            .wrapping_mul(1_000_000_000)
            .wrapping_add(u64::from(birth.nsec));
        (self.ino ^ nanoseconds.wrapping_mul(0x9e37_79b9_7f4a_7c15)).max(1)
    }

    /// Whether everything but names, identity and ctime agrees.
    pub(crate) fn looks_like(&self, other: &Self) -> bool {
        // A directory may have been made writable for its owner so that it can be moved.
        let mode = |n: &Self| if n.is_dir() { n.mode | 0o200 } else { n.mode };
        let stat = |n: &Self| (n.kind, mode(n), n.uid, n.gid, n.rdev);
        stat(self) == stat(other)
            && (self.is_dir() || (self.size, self.mtime) == (other.size, other.mtime))
    }
}
