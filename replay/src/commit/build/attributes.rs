//! Steps that change a real inode and keep it: its attributes, or, where it has other names, its content.

use super::Builder;
use crate::commit::check::Refusal;
use crate::commit::place::parent_of;
use crate::meta::{Meta, Xattrs, xattrs};
use crate::net::NetError;
use crate::node::{FileType, Node};
use crate::plan::PlanError;
use crate::root::Root;
use crate::scan::Item;
use crate::step::{Loc, Rewrite, SetMeta, Step};

impl Builder<'_> {
    /// Attributes of the layer's inode.
    pub(super) fn upper_meta(&self, item: &Item) -> Result<Meta, PlanError> {
        let rel = self.upper_rel(item.cover, &item.rel);
        let node = item.upper.ok_or_else(|| {
            NetError::io(self.store.display(&rel))(std::io::ErrorKind::NotFound.into())
        })?;
        let found = attributes(self.store, &rel, &node);
        Ok(Meta::of(
            &node,
            found.map_err(NetError::io(self.store.display(&rel)))?,
        ))
    }

    /// Attributes of the real inode.
    pub(super) fn real_meta(&self, item: &Item, node: &Node) -> Result<Meta, PlanError> {
        let Some(target) = self.parents.target(item.cover) else {
            return Ok(Meta::of(node, Xattrs::new()));
        };
        let found = attributes(target, &item.rel, node);
        Ok(Meta::of(
            node,
            found.map_err(NetError::io(target.display(&item.rel)))?,
        ))
    }

    pub(super) fn meta(&mut self, index: usize) -> Result<(), PlanError> {
        let item = self.item(index);
        let (Some(upper), Some(real)) = (item.upper, item.real) else {
            return Ok(());
        };
        if let Some(Refusal(reason)) = self.check_owner(item, &real) {
            self.refuse(index, reason);
            return Ok(());
        }
        let before = self.real_meta(item, &real)?;
        let mut after = self.upper_meta(item)?;
        if item.rel.is_empty() {
            after.xattrs.clone_from(&before.xattrs);
        }
        if upper.kind == FileType::Symlink {
            after.mode = before.mode;
        }
        self.note_name(item, &real, &before, &after);
        if after.mtime == before.mtime {
            after.mtime = None;
        }
        self.note_overwritten(index);
        let target = Loc::Target(item.cover, item.rel.clone());
        self.metas.push(SetMeta {
            target,
            node: real,
            before,
            after,
            made_by: None,
            aid: false,
        });
        Ok(())
    }

    pub(super) fn rewrite(&mut self, index: usize) -> Result<(), PlanError> {
        let item = self.item(index);
        let (Some(new), Some(old)) = (item.upper, item.real) else {
            return Ok(());
        };
        if let Some(Refusal(reason)) = self.check_owner(item, &old) {
            self.refuse(index, reason);
            return Ok(());
        }
        let before = self.real_meta(item, &old)?;
        let after = self.upper_meta(item)?;
        self.note_name(item, &old, &before, &after);
        let Loc::Session(archive) = self.next_archive() else {
            return Ok(());
        };
        let source = self.upper_rel(item.cover, &item.rel);
        if let Some(parent) = parent_of(&source) {
            self.open_layer_directory(parent)?;
        }
        let target = Loc::Target(item.cover, item.rel.clone());
        let step = Rewrite {
            target,
            old,
            before,
            new,
            after,
            source,
            archive,
        };
        // Of several names that were written to, the one written last counts; the other is in place with it.
        match self.rewritten.get(&(item.cover, old.ino)).copied() {
            Some(at) => {
                if let Some(Step::Rewrite(first)) = self.main.get_mut(at) {
                    let mut other = step;
                    if first.new.mtime < other.new.mtime {
                        std::mem::swap(first, &mut other);
                    }
                    self.metas.push(SetMeta {
                        target: other.target,
                        node: other.old,
                        before: other.before,
                        after: other.after,
                        made_by: None,
                        aid: false,
                    });
                }
            }
            None => {
                self.note_overwritten(index);
                self.rewritten
                    .insert((item.cover, old.ino), self.main.len());
                self.main.push(Step::Rewrite(step));
            }
        }
        Ok(())
    }
}

/// The extended attributes of what stands at a path.
pub(in crate::commit) fn attributes(
    root: &Root,
    rel: &[u8],
    node: &Node,
) -> std::io::Result<Xattrs> {
    if node.kind == FileType::Symlink {
        return Ok(Xattrs::new());
    }
    let spot = root.spot(rel)?;
    match xattrs(spot.dir(), Some(&spot.leaf)) {
        // Its owner cannot read them; nothing is known to change then.
        Err(e) if e.raw_os_error() == Some(libc::EACCES) => Ok(Xattrs::new()),
        other => other,
    }
}
