//! Whether a filesystem can hold upper layers, found out by trying.

use crate::sys;
use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

/// How the names of scratch directories begin.
pub(super) const PREFIX: &str = "probe.";

/// Filesystems that the kernel refuses as an upper layer although they pass every test that can be made from outside.
const REFUSED: &[(i64, &str)] = &[
    (0x794c_7630, "overlayfs"),
    (0x6969, "NFS"),
    (0x6573_5546, "FUSE"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB"),
    (0x0102_1997, "9p"),
    (0x00c3_6400, "Ceph"),
    (0x6b41_4653, "AFS"),
    (0x6165_676c, "a pstore"),
    (0x2468_1357, "a v7 filesystem"),
    (0x0000_4d44, "FAT"),
    (0x2011_bab0, "exFAT"),
];

/// TMPFS_MAGIC of linux/magic.h.
const TMPFS: i64 = 0x0102_1994;

/// What a store's filesystem has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Bytes an ordinary user can still write.
    pub free_bytes: u64,
    /// Files that can still be made; `None` when there is no such limit.
    pub free_inodes: Option<u64>,
    /// What is kept there is gone when the machine goes down.
    pub in_memory: bool,
}

/// Why a store cannot hold upper layers.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The kernel takes no upper layer on such a filesystem.
    #[error("keep layers in {}: it is on {filesystem}, which overlayfs refuses as an upper layer", .path.display())]
    Refused {
        /// The store.
        path: PathBuf,
        /// The kind of filesystem.
        filesystem: &'static str,
    },
    /// It has no `user.*` extended attributes.
    #[error("keep layers in {}: its filesystem does not keep user.* extended attributes ({source})", .path.display())]
    NoXattrs {
        /// The store.
        path: PathBuf,
        /// The answer.
        source: io::Error,
    },
    /// It refuses whiteouts.
    #[error("keep layers in {}: its filesystem does not keep whiteouts ({source})", .path.display())]
    NoWhiteouts {
        /// The store.
        path: PathBuf,
        /// The answer.
        source: io::Error,
    },
    /// There is no room.
    #[error("keep layers in {}: no space is left there", .path.display())]
    NoSpace {
        /// The store.
        path: PathBuf,
    },
    /// The system refused.
    #[error("keep layers in {}: {source}", .path.display())]
    Io {
        /// The store.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
}

impl ProbeError {
    /// What the user can do about it.
    #[must_use]
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::Refused { .. } | Self::NoXattrs { .. } | Self::NoWhiteouts { .. } => {
                "choose a directory on ext4, xfs, btrfs or tmpfs (for tmpfs: Linux 6.6 or later) with --store DIR or EFFIGY_STORE"
            }
            Self::NoSpace { .. } => {
                "free some space (effigy gc, effigy discard), or choose another place with --store DIR or EFFIGY_STORE"
            }
            Self::Io { .. } => {
                "make the directory writable, or choose another one with --store DIR or EFFIGY_STORE"
            }
        }
    }
}

pub(super) fn probe(store: &Path, scratch: &Path) -> Result<Capacity, ProbeError> {
    let path = store.to_owned();
    let io = |source: io::Error| match source.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT) => ProbeError::NoSpace { path: path.clone() },
        _ => ProbeError::Io {
            path: path.clone(),
            source,
        },
    };
    let store_dir = File::open(store).map_err(io)?;
    let filesystem = sys::filesystem(store_dir.as_fd()).map_err(io)?;
    if let Some(&(_, name)) = REFUSED.iter().find(|(magic, _)| *magic == filesystem.magic) {
        return Err(ProbeError::Refused {
            path,
            filesystem: name,
        });
    }
    let mut random = [0; 8];
    sys::random(&mut random).map_err(io)?;
    let name = format!("{PREFIX}{:016x}", u64::from_ne_bytes(random));
    let dir = scratch.join(&name);
    fs::DirBuilder::new().mode(0o700).create(&dir).map_err(io)?;
    let answer = (|| {
        let dir = File::open(&dir).map_err(io)?;
        match sys::try_xattr(dir.as_fd(), c"user.overlay.effigy", b"y") {
            Ok(true) => {}
            Ok(false) => {
                return Err(ProbeError::NoXattrs {
                    path: path.clone(),
                    source: io::ErrorKind::InvalidData.into(),
                });
            }
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT)) => {
                return Err(io(e));
            }
            Err(source) => {
                return Err(ProbeError::NoXattrs {
                    path: path.clone(),
                    source,
                });
            }
        }
        sys::try_whiteout(dir.as_fd(), c"whiteout").map_err(|source| match source.raw_os_error() {
            Some(libc::ENOSPC | libc::EDQUOT) => ProbeError::NoSpace { path: path.clone() },
            _ => ProbeError::NoWhiteouts {
                path: path.clone(),
                source,
            },
        })
    })();
    if let Ok(name) = CString::new(name)
        && let Ok(scratch) = File::open(scratch)
    {
        // Left behind it is swept up by the next gc.
        let _ = sys::remove_tree(scratch.as_fd(), &name);
    }
    answer?;
    Ok(Capacity {
        free_bytes: filesystem.free_bytes,
        free_inodes: filesystem.free_inodes,
        in_memory: filesystem.magic == TMPFS,
    })
}
