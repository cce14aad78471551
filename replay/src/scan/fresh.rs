//! What the layer has and the real tree has not.

use super::{Inner, Item, Walk, What, push_name};
use crate::conflict::Reason;
use crate::layer::{self, Marks};
use crate::net::NetError;
use crate::node::Node;
use crate::sys::{self, Entry};
use std::ffi::CStr;
use std::os::fd::{AsFd as _, BorrowedFd};

impl Walk<'_> {
    /// Something of the upper where nothing real stands.
    pub(super) fn absent(
        &mut self,
        rel: &mut Vec<u8>,
        upper: Node,
        marks: Marks,
    ) -> Result<(), NetError> {
        if upper.is_dir() && marks.origin.is_some() {
            let parent = self
                .target
                .map(|target| target.display(rel))
                .unwrap_or_default();
            return self.blocked(rel, Reason::ParentGone { parent });
        }
        self.added(rel, upper, marks, None, false).map(drop)
    }

    /// A real mount stands where the layer has something.
    pub(super) fn mounted(&mut self, rel: &[u8], upper: Node, real: Node) -> Result<(), NetError> {
        if upper.is_dir() && real.is_dir() && self.is_empty(rel)? {
            return Ok(());
        }
        let item = self.item(rel, What::Blocked(Reason::MountInTheWay), None);
        self.push(Item {
            upper: Some(upper),
            real: Some(real),
            ..item
        });
        Ok(())
    }

    pub(super) fn is_empty(&self, rel: &[u8]) -> Result<bool, NetError> {
        let dir = self.open_upper(rel)?;
        Ok(sys::read_dir(dir.fd.as_fd())
            .map_err(self.upper_error(rel))?
            .is_empty())
    }

    /// A directory of the layer whose real place is gone: one conflict, unless nothing changed in it.
    pub(super) fn blocked(&mut self, rel: &mut Vec<u8>, reason: Reason) -> Result<(), NetError> {
        let upper = self.upper.stat(rel).map_err(self.upper_error(rel))?;
        let index = self.push(Item {
            upper,
            ..self.item(rel, What::Blocked(reason), None)
        });
        self.new_children(rel, &Marks::default(), index, true)?;
        if self.items.len() == index + 1 {
            self.items.pop();
        } else {
            self.close(index);
        }
        Ok(())
    }

    /// Something new with all that is below. `quiet`: its whiteouts are of no interest.
    pub(super) fn added(
        &mut self,
        rel: &mut Vec<u8>,
        upper: Node,
        marks: Marks,
        parent: Option<usize>,
        quiet: bool,
    ) -> Result<usize, NetError> {
        let index = self.push(Item {
            upper: Some(upper),
            opaque: marks.opaque,
            attributes: marks.attributes.clone(),
            origin: marks.origin.clone(),
            ..self.item(rel, What::Added, parent)
        });
        if upper.is_dir() {
            self.new_children(rel, &marks, index, quiet)?;
            self.close(index);
        }
        Ok(index)
    }

    /// The entries of a directory that is new as a whole.
    pub(super) fn new_children(
        &mut self,
        rel: &mut Vec<u8>,
        marks: &Marks,
        index: usize,
        quiet: bool,
    ) -> Result<(), NetError> {
        self.enter(rel)?;
        let dir = self.open_upper(rel)?;
        let length = rel.len();
        let collapse = self.collapse && !quiet;
        let mut entries = Vec::new();
        let mut directories = 0;
        let read = sys::each_entry(dir.fd.as_fd(), |name, kind| {
            directories += u32::from(kind == libc::DT_DIR);
            if !(collapse && is_plain(kind, marks)) {
                entries.push(Entry {
                    name: name.to_owned(),
                    kind,
                });
            }
        });
        read.map_err(self.upper_error(rel))?;
        entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        let counted = dir.node.nlink == directories + 2;
        for entry in &entries {
            push_name(rel, &entry.name);
            if collapse {
                self.collapsed(rel, dir.fd.as_fd(), entry, (marks, counted), index)?;
            } else {
                self.new_entry(rel, dir.fd.as_fd(), &entry.name, marks, index, quiet)?;
            }
            rel.truncate(length);
        }
        self.depth -= 1;
        Ok(())
    }

    pub(super) fn new_entry(
        &mut self,
        rel: &mut Vec<u8>,
        dir: BorrowedFd<'_>,
        name: &CStr,
        parent: &Marks,
        index: usize,
        quiet: bool,
    ) -> Result<(), NetError> {
        let node = sys::stat(dir, name).map_err(self.upper_error(rel))?;
        if layer::is_whiteout(dir, name, &node, parent).map_err(self.upper_error(rel))? {
            self.items[index]
                .inner
                .push(Inner::Whiteout { rel: rel.clone() });
            return Ok(());
        }
        let mut marks = Marks::default();
        if node.is_dir() || (node.is_file() && parent.impure) {
            marks = self
                .read_marks(dir, name, &node)
                .map_err(self.upper_error(rel))?;
        }
        self.added(rel, node, marks, Some(index), quiet).map(drop)
    }

    /// An entry of a new directory, looked at only for what must not reach the real tree. `counted`: the filesystem counts
    /// directories in the number of links of the one they are in.
    pub(super) fn collapsed(
        &mut self,
        rel: &mut Vec<u8>,
        dir: BorrowedFd<'_>,
        entry: &Entry,
        (parent, counted): (&Marks, bool),
        index: usize,
    ) -> Result<(), NetError> {
        let node = sys::stat(dir, &entry.name).map_err(self.upper_error(rel))?;
        if layer::is_whiteout(dir, &entry.name, &node, parent).map_err(self.upper_error(rel))? {
            self.items[index]
                .inner
                .push(Inner::Whiteout { rel: rel.clone() });
            return Ok(());
        }
        if !(node.is_dir() || node.is_file()) {
            self.unlisted_devices |= node.kind.is_device();
            return Ok(());
        }
        let marks = self
            .read_marks(dir, &entry.name, &node)
            .map_err(self.upper_error(rel))?;
        if !marks.attributes.is_empty() {
            let attributes = marks.attributes.clone();
            self.items[index].inner.push(Inner::Strip {
                rel: rel.clone(),
                ino: node.ino,
                mode: node.mode,
                attributes,
            });
        }
        if node.is_dir() && !(counted && has_plain_files_only(&node, &marks)) {
            self.new_children(rel, &marks, index, false)?;
        }
        Ok(())
    }
}

/// Whether nothing in such a directory can be overlayfs's own, or must be asked about, so that it need not be opened: there is no
/// directory in it and no file that was copied up; a whiteout only ever lies in a directory that was copied up itself, and a
/// device only where root has been at work.
fn has_plain_files_only(node: &Node, marks: &Marks) -> bool {
    node.nlink == 2 && marks.attributes.is_empty() && sys::euid() != 0
}

/// Whether nothing about such an entry of a new directory can be overlayfs's own, or must be asked about.
fn is_plain(kind: u8, parent: &Marks) -> bool {
    match kind {
        libc::DT_REG => !parent.impure && !parent.xwhiteouts,
        libc::DT_LNK | libc::DT_FIFO | libc::DT_SOCK => true,
        _ => false,
    }
}
