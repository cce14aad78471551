//! The attributes of an inode as a whole: reading, comparing, setting.

use crate::layer::is_overlay_attribute;
use crate::node::{Node, Time};
use crate::root::Pinned;
use crate::sys;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};

/// Extended attributes by name.
pub(crate) type Xattrs = BTreeMap<Vec<u8>, Vec<u8>>;

/// Everything that can be set on an inode but its content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Meta {
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// `None` for directories whose time is left to the kernel.
    pub(crate) mtime: Option<Time>,
    pub(crate) xattrs: Xattrs,
}

/// Whether an attribute belongs to the effects of a command. Labels and measurements that the machine itself keeps do not.
fn is_kept(name: &[u8]) -> bool {
    let own = [
        b"security.selinux".as_slice(),
        b"security.ima",
        b"security.evm",
        b"security.apparmor",
    ];
    (name.starts_with(b"user.") && !is_overlay_attribute(name))
        || (name.starts_with(b"security.") && !own.contains(&name))
        || matches!(
            name,
            b"system.posix_acl_access" | b"system.posix_acl_default"
        )
}

/// Reads the attributes of `leaf` below `dir`, or of `dir` itself.
pub(crate) fn xattrs(dir: BorrowedFd<'_>, leaf: Option<&CStr>) -> io::Result<Xattrs> {
    let mut found = Xattrs::new();
    for name in sys::list_xattrs(dir, leaf)? {
        if is_kept(name.to_bytes())
            && let Some(value) = sys::get_xattr(dir, leaf, &name)?
        {
            found.insert(name.into_bytes(), value);
        }
    }
    Ok(found)
}

impl Meta {
    /// What `node` has, with these extended attributes.
    pub(crate) fn of(node: &Node, xattrs: Xattrs) -> Self {
        let mtime = (!node.is_dir()).then_some(node.mtime);
        Self {
            mode: node.mode,
            uid: node.uid,
            gid: node.gid,
            mtime,
            xattrs,
        }
    }

    /// Whether `node` has these attributes, the extended ones aside.
    pub(crate) fn fits(&self, node: &Node) -> bool {
        (self.mode, self.uid, self.gid) == (node.mode, node.uid, node.gid)
            && self.mtime.is_none_or(|mtime| mtime == node.mtime)
    }

    /// Writing takes set-user-id and set-group-id away, which no event tells: attributes that only lack those count as
    /// these.
    pub(crate) fn forgive_set_id(&mut self, found: &Self) {
        if self.mode & !0o6000 == found.mode {
            self.mode = found.mode;
        }
    }

    /// Gives them to an inode. Idempotent; what already is so is not touched.
    ///
    /// Owner first, as it clears set-user-id and capabilities; the mode after the access list, whose mask it equals;
    /// the time last. A file that its owner cannot write is made writable for as long as attributes are set.
    pub(crate) fn set(&self, to: &Pinned) -> io::Result<()> {
        let fd = to.fd.as_fd();
        self.give(fd, &sys::stat(fd, c"")?)
    }

    /// The same for an inode that is known to be like this `now`.
    pub(crate) fn give(&self, fd: BorrowedFd<'_>, now: &Node) -> io::Result<()> {
        let symlink = now.kind == crate::node::FileType::Symlink;
        let chowned = (now.uid, now.gid) != (self.uid, self.gid);
        if chowned {
            sys::chown(fd, self.uid, self.gid)?;
        }
        let mut mode = if chowned {
            sys::stat(fd, c"")?.mode
        } else {
            now.mode
        };
        let have = if symlink {
            Xattrs::new()
        } else {
            xattrs(fd, None)?
        };
        if have != self.xattrs && !symlink {
            if mode & 0o200 == 0 && sys::euid() != 0 {
                sys::chmod(fd, mode | 0o200)?;
            }
            for name in have.keys().filter(|name| !self.xattrs.contains_key(*name)) {
                sys::remove_xattr(fd, None, &sys::cstring(name)?)?;
            }
            for (name, value) in self
                .xattrs
                .iter()
                .filter(|(name, value)| have.get(*name) != Some(*value))
            {
                sys::set_xattr(fd, &sys::cstring(name)?, value)?;
            }
            mode = sys::stat(fd, c"")?.mode;
        }
        if mode != self.mode && !symlink {
            sys::chmod(fd, self.mode)?;
        }
        match self.mtime {
            Some(mtime) if mtime != now.mtime => sys::set_mtime(fd, mtime),
            _ => Ok(()),
        }
    }
}

/// Changes only the permission bits, and only when they differ.
pub(crate) fn set_mode(to: &Pinned, mode: u32) -> io::Result<()> {
    if sys::stat(to.fd.as_fd(), c"")?.mode == mode {
        Ok(())
    } else {
        sys::chmod(to.fd.as_fd(), mode)
    }
}
