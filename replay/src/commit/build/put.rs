//! Steps that put things at paths, replace and remove them.

use super::{Builder, Other};
use crate::commit::check::Refusal;
use crate::commit::place::{is_opaque, parent_of};
use crate::ledger::archive;
use crate::node::Node;
use crate::plan::PlanError;
use crate::scan::{Inner, Item};
use crate::step::{Loc, New, Put, SetMeta, Source, Step};
use crate::sys;

impl<'a> Builder<'a> {
    /// A directory that is new as a whole.
    pub(super) fn put_tree(&mut self, index: usize) -> Result<(), PlanError> {
        let item = self.item(index);
        let Some(node) = item.upper else {
            return Ok(());
        };
        let moves = self.moves(item)?;
        let range = &self.scanned.items[index..item.end];
        let new = New {
            source: Source::Move,
            node,
            tree: true,
        };
        if !self.put(index, item.real, Some(new))? {
            return Ok(());
        }
        for below in range {
            self.strip(below, moves);
        }
        // Names inside that are, elsewhere, names of a real file which keeps its inode.
        for below in range.iter().skip(1).filter(|_| moves) {
            if let Some(other) = self.other_name(below) {
                let link = New {
                    source: Source::Link(other.at.clone()),
                    node: other.node,
                    tree: false,
                };
                let hold = self.next_archive();
                self.main.push(Step::Put(Put {
                    target: Loc::Target(below.cover, below.rel.clone()),
                    old: below.upper,
                    new: Some(link),
                    hold: hold.clone(),
                    archive: Some(hold.clone()),
                    copied: false,
                }));
                self.change(below, &other, hold.rel().to_vec())?;
            }
        }
        Ok(())
    }

    /// Takes off what is overlayfs's own, of the item and of what it holds in collapsed form.
    pub(super) fn strip(&mut self, item: &Item, moves: bool) {
        let at = self.upper_rel(item.cover, &item.rel);
        let own = item
            .upper
            .map(|upper| (at, upper.ino, upper.mode, &item.attributes));
        let mut strip =
            |at: Vec<u8>, ino: u64, mode: u32, attributes: &crate::layer::Attributes| {
                if moves && !attributes.is_empty() {
                    self.layer.push(Step::Strip {
                        at,
                        ino,
                        mode,
                        attributes: attributes.clone(),
                    });
                } else if is_opaque(attributes) {
                    self.transparent.push(Step::Transparent { at, mode });
                }
            };
        if let Some((at, ino, mode, attributes)) = own {
            strip(at, ino, mode, attributes);
        }
        for inner in &item.inner {
            match inner {
                Inner::Strip {
                    rel,
                    ino,
                    mode,
                    attributes,
                } => {
                    let layer = self.upper_rel(item.cover, rel);
                    if moves {
                        self.layer.push(Step::Strip {
                            at: layer,
                            ino: *ino,
                            mode: *mode,
                            attributes: attributes.clone(),
                        });
                    } else if is_opaque(attributes) {
                        self.transparent.push(Step::Transparent {
                            at: layer,
                            mode: *mode,
                        });
                    }
                }
                Inner::Whiteout { rel } if moves => {
                    let at = self.upper_rel(item.cover, rel);
                    self.layer.push(Step::Unwhiteout { at });
                }
                Inner::Whiteout { .. } => {}
            }
        }
    }

    /// Whether the item is moved out of the layer.
    pub(super) fn moves(&mut self, item: &Item) -> Result<bool, PlanError> {
        Ok(!self.options.keep && self.parents.is_movable(item.cover, &item.rel)?)
    }

    /// Anything but a directory.
    pub(super) fn put_node(&mut self, index: usize) -> Result<(), PlanError> {
        let item = self.item(index);
        let Some(node) = item.upper else {
            return Ok(());
        };
        let moves = self.moves(item)?;
        if self.put(
            index,
            item.real,
            Some(New {
                source: Source::Move,
                node,
                tree: false,
            }),
        )? && moves
        {
            self.strip(item, true);
        }
        Ok(())
    }

    /// Another name of a real file, with what the session has made of that.
    pub(super) fn link(&mut self, index: usize, other: Other) -> Result<(), PlanError> {
        let item = self.item(index);
        let new = New {
            source: Source::Link(other.at.clone()),
            node: other.node,
            tree: false,
        };
        if self.put(index, item.real, Some(new))? {
            let source = self.upper_rel(item.cover, &item.rel);
            self.change(item, &other, source)?;
        }
        Ok(())
    }

    /// A new directory of which only a part is wanted. Whether it could be planned.
    pub(super) fn put_directory(&mut self, index: usize) -> Result<bool, PlanError> {
        let item = self.item(index);
        let Some(node) = item.upper else {
            return Ok(false);
        };
        let after = self.upper_meta(item)?;
        let mut staged = after.clone();
        if sys::euid() != 0 {
            staged.mode |= 0o700;
        }
        let new = New {
            source: Source::Directory(staged.clone()),
            node,
            tree: false,
        };
        if !self.put(index, item.real, Some(new))? {
            return Ok(false);
        }
        if staged != after {
            let made_by = u32::try_from(self.main.len() - 1).ok();
            let target = Loc::Target(item.cover, item.rel.clone());
            self.metas.push(SetMeta {
                target,
                node,
                before: staged,
                after,
                made_by,
                aid: false,
            });
        }
        if item.opaque {
            let at = self.upper_rel(item.cover, &item.rel);
            self.transparent.push(Step::Transparent {
                at,
                mode: node.mode,
            });
        }
        Ok(true)
    }

    pub(super) fn next_archive(&mut self) -> Loc {
        self.kept += 1;
        archive(self.number, self.kept)
    }

    /// Puts, replaces or removes. Whether it could be planned.
    pub(super) fn put(
        &mut self,
        index: usize,
        old: Option<Node>,
        mut new: Option<New>,
    ) -> Result<bool, PlanError> {
        let item = self.item(index);
        if let Some(Refusal(reason)) = self.check_put(item, old.as_ref())? {
            self.refuse(index, reason);
            return Ok(false);
        }
        let movable = self.parents.is_movable(item.cover, &item.rel)?;
        let upper = self.upper_rel(item.cover, &item.rel);
        let target = Loc::Target(item.cover, item.rel.clone());
        if let Some(new) = &mut new
            && new.source == Source::Move
            && (!movable || self.options.keep)
        {
            new.source = Source::Copy(upper.clone());
        }
        let moved = new.as_ref().is_some_and(|new| new.source == Source::Move);
        if new
            .as_ref()
            .is_some_and(|new| matches!(new.source, Source::Move | Source::Copy(_)))
            && let Some(parent) = parent_of(&upper)
        {
            self.open_layer_directory(parent)?;
        }
        let archive = self.next_archive();
        let put = if !movable {
            let hold = self.temporary(item.cover, &item.rel)?;
            Put {
                target,
                old,
                new,
                hold,
                archive: old.map(|_| archive),
                copied: true,
            }
        } else if moved {
            Put {
                target,
                old,
                new,
                hold: Loc::Session(upper),
                archive: old.map(|_| archive),
                copied: false,
            }
        } else {
            Put {
                target,
                old,
                new,
                hold: archive.clone(),
                archive: old.map(|_| archive),
                copied: false,
            }
        };
        self.note_overwritten(index);
        self.main.push(Step::Put(put));
        Ok(true)
    }

    /// Whether the plan leaves this real directory, or one above it, locked for its owner.
    pub(super) fn is_closed(&self, cover: u32, rel: &[u8]) -> bool {
        let above = |at: &[u8]| {
            let below = rel.strip_prefix(at);
            below.is_some_and(|below| at.is_empty() || below.is_empty() || below.starts_with(b"/"))
        };
        let is =
            |meta: &SetMeta| matches!(&meta.target, Loc::Target(n, at) if *n == cover && above(at));
        sys::euid() != 0
            && self
                .metas
                .iter()
                .any(|meta| is(meta) && meta.after.mode & 0o300 != 0o300)
    }

    pub(super) fn note_overwritten(&mut self, index: usize) {
        let item = self.item(index);
        if self.chosen.overwritten[index..item.end].contains(&true) {
            self.overwritten
                .push(Loc::Target(item.cover, item.rel.clone()));
        }
    }

    /// A name that nobody else uses, beside the target or, when its directory is yet to be made or opened,
    /// above that.
    pub(super) fn temporary(&mut self, cover: u32, rel: &[u8]) -> Result<Loc, PlanError> {
        let name = format!(
            ".effigy-{}-{}-{}",
            self.session.record.id, self.number, self.kept
        )
        .into_bytes();
        let mut at = parent_of(rel);
        while let Some(parent) = at {
            if parent.is_empty() {
                break;
            }
            let found = self.parents.get(cover, parent)?;
            let usable = found.is_some_and(|parent| parent.refusal.is_none());
            if usable && !self.is_closed(cover, parent) {
                return Ok(Loc::Target(cover, [parent, b"/", &name].concat()));
            }
            at = parent_of(parent);
        }
        Ok(Loc::Target(cover, name))
    }
}
