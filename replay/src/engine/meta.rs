//! Changing attributes of a real inode.

use super::{Engine, Fail};
use crate::meta::{Meta, xattrs};
use crate::node::FileType;
use crate::root::Pinned;
use crate::step::SetMeta;
use std::os::fd::AsFd as _;

impl Engine<'_> {
    /// The inode, when it is still the one that was planned.
    fn meta_pinned(&self, step: &SetMeta) -> Result<Pinned, Fail> {
        let (root, rel) = self.place(&step.target)?;
        let pinned = match root.pin(rel) {
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => {
                return Err(Fail::Raced(self.path(&step.target)));
            }
            other => other.map_err(self.failed("open", &step.target))?,
        };
        let id = step.made_by.map_or(self.id(&step.node), |index| {
            self.staged.get(index as usize).copied().unwrap_or(0)
        });
        if self.id(&pinned.node) == id {
            Ok(pinned)
        } else {
            Err(Fail::Raced(self.path(&step.target)))
        }
    }

    pub(super) fn meta_forward(&mut self, step: &SetMeta) -> Result<(), Fail> {
        let pinned = self.meta_pinned(step)?;
        if step.aid && self.resumed && !is_between(&step.before, &step.after, &pinned) {
            return Ok(());
        }
        let expected = is_between(&step.before, &step.after, &pinned)
            && (step.after.mtime.is_none() || pinned.node.size == step.node.size);
        if !expected {
            return Err(Fail::Raced(self.path(&step.target)));
        }
        step.after
            .set(&pinned)
            .map_err(self.failed("set the attributes of", &step.target))?;
        self.changed()
    }

    pub(super) fn meta_back(&mut self, index: usize, step: &SetMeta) -> Result<(), Fail> {
        let pinned = match self.meta_pinned(step) {
            // What this plan has put there is not there any more.
            Err(Fail::Raced(_)) if step.made_by.is_some() || self.relocates() => return Ok(()),
            other => other?,
        };
        if !(is_between(&step.before, &step.after, &pinned) || self.is_forced(index)) {
            return Err(Fail::Raced(self.path(&step.target)));
        }
        step.before
            .set(&pinned)
            .map_err(self.failed("set the attributes of", &step.target))?;
        self.changed()
    }

    pub(super) fn is_meta_complete(&self, step: &SetMeta) -> Result<bool, Fail> {
        let pinned = match self.meta_pinned(step) {
            Err(Fail::Raced(_)) => return Ok(false),
            other => other?,
        };
        // What only aids the other steps may have been undone by its counterpart.
        let fits = step.aid || step.after.fits(&pinned.node);
        let symlink = pinned.node.kind == FileType::Symlink;
        let same = || {
            symlink || xattrs(pinned.fd.as_fd(), None).is_ok_and(|found| found == step.after.xattrs)
        };
        Ok(fits && (step.aid || same()))
    }
}

/// Whether each attribute is that of before or that of after: an interrupted change leaves a mixture.
fn is_between(before: &Meta, after: &Meta, pinned: &Pinned) -> bool {
    let node = pinned.node;
    let own = before.mode ^ after.mode;
    // Changing the owner clears set-user-id and set-group-id; attributes of a file without the right to write need 0200;
    // a directory may have been opened for its owner by an aiding step.
    let passing = own | if node.is_dir() { 0o6700 } else { 0o6200 };
    (node.mode ^ after.mode) & !passing == 0
        && (node.uid == before.uid || node.uid == after.uid)
        && (node.gid == before.gid || node.gid == after.gid)
        && (after.mtime.is_none() || [before.mtime, after.mtime].contains(&Some(node.mtime)))
}
