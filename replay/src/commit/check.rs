//! Whether the kernel will allow a step.

use super::build::{Builder, attributes};
use super::choose::path_of;
use super::place::{FIXED, parent_of};
use crate::conflict::Reason;
use crate::meta::Meta;
use crate::net::NetError;
use crate::node::Node;
use crate::plan::PlanError;
use crate::root::Root;
use crate::scan::Item;
use crate::step::{Loc, SetMeta, Step};
use crate::sys;

/// Why a step would be refused.
pub(super) struct Refusal(pub(super) Reason);

impl Builder<'_> {
    /// Whether something can be put at, or removed from, the item's path. Directories that their owner has locked are
    /// planned to be opened.
    pub(super) fn check_put(
        &mut self,
        item: &Item,
        old: Option<&Node>,
    ) -> Result<Option<Refusal>, PlanError> {
        let path = path_of(self.session, item);
        let forbidden = |errno: i32, at: &std::path::Path| {
            Some(Refusal(Reason::Forbidden {
                errno,
                at: at.to_owned(),
            }))
        };
        let Some(parent_rel) = parent_of(&item.rel) else {
            return Ok(forbidden(libc::EBUSY, &path));
        };
        let user = sys::euid();
        if let Some(old) = old {
            if old.attributes & FIXED != 0 {
                return Ok(forbidden(libc::EPERM, &path));
            }
            // Moving a directory changes its `..`, for which the kernel wants the right to write in it.
            if old.is_dir() && user != 0 && old.uid != user && !self.may_write(item)? {
                return Ok(forbidden(libc::EACCES, &path));
            }
        }
        let Some(parent) = self.parents.get(item.cover, parent_rel)? else {
            return Ok(None);
        };
        let at = path.parent().unwrap_or(&path).to_owned();
        match parent.refusal {
            Some(libc::EACCES) if parent.node.uid == user => {
                self.open_real_directory(item.cover, parent_rel, &parent.node)?
            }
            Some(errno) => return Ok(forbidden(errno, &at)),
            None => {}
        }
        let sticky = parent.node.mode & 0o1000 != 0 && user != 0 && parent.node.uid != user;
        if sticky && old.is_some_and(|old| old.uid != user) {
            return Ok(forbidden(libc::EPERM, &path));
        }
        Ok(None)
    }

    fn may_write(&self, item: &Item) -> Result<bool, PlanError> {
        let Some(target) = self.parents.target(item.cover) else {
            return Ok(false);
        };
        let dir = target
            .open_dir_path(&item.rel)
            .map_err(NetError::io(target.display(&item.rel)))?;
        Ok(sys::access(std::os::fd::AsFd::as_fd(&dir), libc::W_OK).is_ok())
    }

    /// Whether the attributes or content of a real inode can be changed.
    pub(super) fn check_owner(&self, item: &Item, real: &Node) -> Option<Refusal> {
        let user = sys::euid();
        let fixed = real.attributes & FIXED != 0;
        let foreign = user != 0 && real.uid != user;
        (fixed || foreign).then(|| {
            Refusal(Reason::Forbidden {
                errno: libc::EPERM,
                at: path_of(self.session, item),
            })
        })
    }

    /// Plans to give a real directory's owner the right to work in it, and to take it away again at the end.
    fn open_real_directory(
        &mut self,
        cover: u32,
        rel: &[u8],
        node: &Node,
    ) -> Result<(), PlanError> {
        let target = Loc::Target(cover, rel.to_vec());
        let Some(root) = self.parents.target(cover) else {
            return Ok(());
        };
        if !self.opened.insert(target.clone()) {
            return Ok(());
        }
        let (before, opened) = opened_meta(root, rel, node)?;
        let aid = |before: Meta, after: Meta| SetMeta {
            target: target.clone(),
            node: *node,
            before,
            after,
            made_by: None,
            aid: true,
        };
        self.main
            .push(Step::Meta(aid(before.clone(), opened.clone())));
        // When its attributes change anyway, that change closes it.
        match self.metas.iter_mut().find(|meta| meta.target == target) {
            Some(meta) => meta.before = opened,
            None => self.metas.push(aid(opened, before)),
        }
        Ok(())
    }

    /// The same for a directory of the layer and those above it, at the very beginning.
    pub(super) fn open_layer_directory(&mut self, rel: &[u8]) -> Result<(), PlanError> {
        if sys::euid() == 0 {
            return Ok(());
        }
        // The session's own directories are open to it: layers/<n>/upper.
        let ends = rel
            .iter()
            .enumerate()
            .filter(|(_, b)| **b == b'/')
            .map(|(at, _)| at);
        for end in ends.skip(2).chain([rel.len()]) {
            let dir = &rel[..end];
            let target = Loc::Session(dir.to_vec());
            if !self.opened.insert(target.clone()) {
                continue;
            }
            let found = match self.store.find(dir) {
                // Below one that is still locked: it will be seen when that is open, or be refused then.
                Err(e) if e.raw_os_error() == Some(libc::EACCES) => return Ok(()),
                other => other.map_err(NetError::io(self.store.display(dir)))?,
            };
            let Some(node) = found.filter(|node| node.is_dir() && node.mode & 0o300 != 0o300)
            else {
                continue;
            };
            let (before, opened) = opened_meta(self.store, dir, &node)?;
            let aid = |before, after| SetMeta {
                target: target.clone(),
                node,
                before,
                after,
                made_by: None,
                aid: true,
            };
            self.first
                .push(Step::Meta(aid(before.clone(), opened.clone())));
            self.metas.push(aid(opened, before));
        }
        Ok(())
    }
}

fn opened_meta(root: &Root, rel: &[u8], node: &Node) -> Result<(Meta, Meta), PlanError> {
    let found = attributes(root, rel, node).map_err(NetError::io(root.display(rel)))?;
    let before = Meta::of(node, found);
    let mut opened = before.clone();
    opened.mode |= 0o700;
    Ok((before, opened))
}
