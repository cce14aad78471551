//! Steps that change a real inode and keep it: its attributes, or, where it has other names, its content.

use super::{Builder, Other};
use crate::commit::check::Refusal;
use crate::commit::choose::path_of;
use crate::commit::place::parent_of;
use crate::conflict::Conflict;
use crate::meta::{Meta, Xattrs, xattrs};
use crate::net::NetError;
use crate::node::{FileType, Node};
use crate::plan::PlanError;
use crate::root::Root;
use crate::scan::{Item, streams_differ};
use crate::step::{Loc, Rewrite, SetMeta, Step};
use std::fs::File;
use std::io;

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
        self.note_overwritten(index);
        let target = Loc::Target(item.cover, item.rel.clone());
        self.metas.push(SetMeta::of(target, real, before, after));
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
        self.note_overwritten(index);
        let source = self.upper_rel(item.cover, &item.rel);
        self.rewrite_as(item, new, old, before, source)
    }

    /// Writes what an item holds over a real file that has, or is to have, the item's name.
    fn rewrite_as(
        &mut self,
        item: &Item,
        new: Node,
        old: Node,
        before: Meta,
        source: Vec<u8>,
    ) -> Result<(), PlanError> {
        let after = self.upper_meta(item)?;
        self.note_name(item, &old, &before, &after);
        let Loc::Session(archive) = self.next_archive() else {
            return Ok(());
        };
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
                self.rewritten
                    .insert((item.cover, old.ino), self.main.len());
                self.main.push(Step::Rewrite(step));
            }
        }
        Ok(())
    }
}

impl Builder<'_> {
    /// Makes the real file that gets an item's name what the session has made of it. `source` is where that is when all names are
    /// in place.
    pub(super) fn change(
        &mut self,
        item: &Item,
        other: &Other,
        source: Vec<u8>,
    ) -> Result<(), PlanError> {
        let (Some(upper), Loc::Target(cover, rel)) = (item.upper, &other.at) else {
            return Ok(());
        };
        let Some(root) = self.parents.target(*cover).filter(|_| other.changed) else {
            return Ok(());
        };
        let (old, shown) = (other.node, root.display(rel));
        let found = attributes(root, rel, &old).map_err(NetError::io(&shown))?;
        let before = Meta::of(&old, found);
        let layer = self.upper_rel(item.cover, &item.rel);
        let differs = upper.is_file()
            && (upper.size != old.size
                || upper.size > 0
                    && content_differs((self.store, &layer, &upper), (root, rel, &old))
                        .map_err(NetError::io(&shown))?);
        let mut after = self.upper_meta(item)?;
        if upper.kind == FileType::Symlink {
            after.mode = before.mode;
        }
        if !differs && after == before {
            return Ok(());
        }
        if let Some(Refusal(reason)) = self.check_owner(item, &old) {
            self.conflicts.push(Conflict {
                path: path_of(self.session, item),
                reason,
                wanted: item.upper,
                found: Some(old),
            });
            return Ok(());
        }
        if differs {
            return self.rewrite_as(item, upper, old, before, source);
        }
        self.note_name(item, &old, &before, &after);
        let target = Loc::Target(item.cover, item.rel.clone());
        self.metas.push(SetMeta::of(target, old, before, after));
        Ok(())
    }
}

/// Whether two files of one size differ. Of one that its owner cannot read the time is all there is to go by.
fn content_differs(one: (&Root, &[u8], &Node), other: (&Root, &[u8], &Node)) -> io::Result<bool> {
    let open = |(root, rel, _): (&Root, &[u8], &Node)| root.open_file(rel, libc::O_RDONLY);
    match (open(one), open(other)) {
        (Ok(a), Ok(b)) => streams_differ(File::from(a), File::from(b), one.2.size),
        (Err(e), _) | (_, Err(e)) if e.raw_os_error() == Some(libc::EACCES) => {
            Ok(one.2.mtime != other.2.mtime)
        }
        (Err(e), _) | (_, Err(e)) => Err(e),
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
