//! Several names of one real file, changed each by itself.
//!
//! As an ordinary user overlayfs copies a file up once for each of its names: what was one file before the session is several
//! in the layer, and each has what was done under its name. All of it belongs to the one real file.

use super::Builder;
use crate::commit::choose::path_of;
use crate::commit::place::FIXED;
use crate::conflict::{Conflict, Reason};
use crate::meta::Meta;
use crate::node::{Node, Time};
use crate::plan::PlanError;
use crate::replay::{ReplayError, parted};
use crate::scan::Item;
use crate::step::{Loc, SetMeta, Step};
use crate::sys;
use effigy_journal::Timestamp;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

/// A real inode.
pub(super) type Inode = ((u32, u32), u64);

/// What was done under one name.
pub(super) struct Named {
    /// When the layer's copy was changed last.
    changed: Time,
    /// Attributes of the copy.
    after: Meta,
    mode: bool,
    owner: bool,
    mtime: bool,
}

pub(super) fn inode(node: &Node) -> Inode {
    (node.dev, node.ino)
}

impl Builder<'_> {
    /// Files that have lost all names the command knew, and have others: these show what was done under the lost ones.
    pub(super) fn part(&mut self) -> Result<(), PlanError> {
        if !self.has_links() {
            return Ok(());
        }
        let Some(loaded) = self.memory.loaded() else {
            return Ok(());
        };
        let partings = match parted::partings(self.session, loaded, &self.main) {
            Err(ReplayError::Plan(error)) => return Err(error),
            other => other.unwrap_or_default(),
        };
        for parting in partings {
            let user = sys::euid();
            let real = parting.real;
            let path = PathBuf::from(OsStr::from_bytes(&parting.path));
            if real.attributes & FIXED != 0 || user != 0 && real.uid != user {
                let errno = libc::EPERM;
                let at = path.clone();
                self.conflicts.push(Conflict {
                    path,
                    reason: Reason::Forbidden { errno, at },
                    wanted: None,
                    found: Some(real),
                });
                continue;
            }
            let Loc::Session(archive) = self.next_archive() else {
                continue;
            };
            match parting.step(archive) {
                Step::Meta(meta) => self.metas.push(meta),
                other => self.main.push(other),
            }
        }
        Ok(())
    }

    /// Notes what was done under this name, of a file that has others.
    pub(super) fn note_name(&mut self, item: &Item, real: &Node, before: &Meta, after: &Meta) {
        if real.nlink < 2 || real.is_dir() {
            return;
        }
        let Some(upper) = item.upper else { return };
        // Another name may be in place already: what the session has brought is told by what it first met of the file.
        let seen = self.memory.before(&path_of(self.session, item)).copied();
        let mode = seen.map_or(before.mode, |seen| seen.mode);
        let mtime = seen.map_or(real.mtime.into(), |seen| seen.mtime);
        self.names.entry(inode(real)).or_default().push(Named {
            changed: upper.ctime,
            mode: after.mode != mode,
            owner: (after.uid, after.gid) != (before.uid, before.gid),
            mtime: Timestamp::from(upper.mtime) != mtime,
            after: after.clone(),
        });
    }

    /// Gives every step of such a file what was done under all its names, the last change of each attribute.
    pub(super) fn merge_names(&mut self) {
        let names = std::mem::take(&mut self.names);
        let mut written: HashMap<Inode, Meta> = HashMap::new();
        for step in &mut self.main {
            let Step::Rewrite(rewrite) = step else {
                continue;
            };
            let Some(named) = names.get(&inode(&rewrite.old)) else {
                continue;
            };
            rewrite.after = merged(&rewrite.before, rewrite.old.mtime, named);
            rewrite.new.mode = rewrite.after.mode;
            rewrite.new.mtime = rewrite.after.mtime.unwrap_or(rewrite.new.mtime);
            written.insert(inode(&rewrite.old), rewrite.after.clone());
        }
        let plain = |meta: &&mut SetMeta| !meta.aid && meta.made_by.is_none();
        for meta in self.metas.iter_mut().filter(plain) {
            let Some(named) = names.get(&inode(&meta.node)) else {
                continue;
            };
            let after = written.get(&inode(&meta.node));
            meta.after = match after {
                // Its time is set as it is written.
                Some(after) => Meta {
                    mtime: None,
                    ..after.clone()
                },
                None => merged(&meta.before, meta.node.mtime, named),
            };
            if meta.after.mtime == Some(meta.node.mtime) {
                meta.after.mtime = None;
            }
        }
    }
}

fn merged(before: &Meta, mtime: Time, names: &[Named]) -> Meta {
    let mut order: Vec<&Named> = names.iter().collect();
    order.sort_by_key(|named| named.changed);
    let mut after = Meta {
        mtime: Some(mtime),
        ..before.clone()
    };
    for named in order {
        if named.mode {
            after.mode = named.after.mode;
        }
        if named.owner {
            (after.uid, after.gid) = (named.after.uid, named.after.gid);
        }
        if named.mtime {
            after.mtime = named.after.mtime.or(after.mtime);
        }
        if named.after.xattrs != before.xattrs {
            after.xattrs.clone_from(&named.after.xattrs);
        }
    }
    after
}
