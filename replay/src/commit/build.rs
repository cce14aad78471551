//! From what differs to steps.

use super::check::Refusal;
use super::choose::{Chosen, first_unselected, path_of};
use super::place::{Parents, is_opaque, parent_of};
use crate::conflict::{Advice, Conflict, Reason};
use crate::layer::Origin;
use crate::ledger::PlanFile;
use crate::meta::{Meta, Xattrs, xattrs};
use crate::net::NetError;
use crate::node::{FileType, Node};
use crate::options::{OnConflict, Options};
use crate::plan::{Note, PlanError};
use crate::recollect::Recollection;
use crate::root::Root;
use crate::scan::{Inner, Item, Scanned, What, file_handle};
use crate::step::{Loc, New, Put, Rewrite, SetMeta, Source, Step};
use crate::sys;
use effigy_journal::Session;
use std::collections::{HashMap, HashSet};

/// Turns the chosen items into the steps of `file`.
pub(super) fn build(
    session: &Session,
    store: &Root,
    scanned: &Scanned,
    chosen: Chosen,
    options: &Options,
    memory: &Recollection,
    number: u32,
    file: &mut PlanFile,
) -> Result<Vec<Note>, PlanError> {
    let mut builder = Builder {
        session,
        store,
        scanned,
        options: *options,
        memory,
        number,
        parents: Parents::new(scanned, store, options.copy),
        masters: HashMap::new(),
        opened: HashSet::new(),
        rewritten: HashMap::new(),
        first: Vec::new(),
        layer: Vec::new(),
        transparent: Vec::new(),
        normalised: HashSet::new(),
        main: Vec::new(),
        metas: Vec::new(),
        overwritten: Vec::new(),
        kept: 0,
        conflicts: Vec::new(),
        chosen,
    };
    builder.find_masters();
    let mut index = 0;
    while index < scanned.items.len() {
        index = builder.visit(index)?.max(index + 1);
    }
    builder.into_file(file)
}

pub(super) struct Builder<'a> {
    pub(super) session: &'a Session,
    pub(super) store: &'a Root,
    pub(super) scanned: &'a Scanned,
    pub(super) options: Options,
    /// What the journal knows.
    memory: &'a Recollection,
    number: u32,
    pub(super) parents: Parents<'a>,
    /// By inode of a layer: the item whose real file its other names are to be links of.
    masters: HashMap<(u32, u64), usize>,
    /// Directories that were opened for their owner.
    pub(super) opened: HashSet<Loc>,
    /// By real inode: the step that rewrites it.
    rewritten: HashMap<(u32, u64), usize>,
    /// In this order: opening directories of layers; changes of layers; changes of names and contents; attributes.
    pub(super) first: Vec<Step>,
    layer: Vec<Step>,
    /// After all whiteouts, so that the view is the same at every moment.
    transparent: Vec<Step>,
    normalised: HashSet<(u32, Vec<u8>)>,
    pub(super) main: Vec<Step>,
    pub(super) metas: Vec<SetMeta>,
    overwritten: Vec<Loc>,
    kept: u32,
    conflicts: Vec<Conflict>,
    chosen: Chosen,
}

impl<'a> Builder<'a> {
    fn into_file(mut self, file: &mut PlanFile) -> Result<Vec<Note>, PlanError> {
        if !self.conflicts.is_empty() {
            return Err(PlanError::Conflicts(self.conflicts));
        }
        self.layer.append(&mut self.transparent);
        let offset = self.first.len() + self.layer.len();
        // What lies deeper comes first: a directory may lose the owner's right to enter it.
        self.metas.sort_by_key(|meta| {
            std::cmp::Reverse(meta.target.rel().iter().filter(|&&b| b == b'/').count())
        });
        for meta in &mut self.metas {
            let moved = meta
                .made_by
                .map(|index| index.saturating_add(u32::try_from(offset).unwrap_or(u32::MAX)));
            meta.made_by = moved;
        }
        file.steps = self.first;
        file.steps.append(&mut self.layer);
        file.steps.append(&mut self.main);
        file.steps.extend(self.metas.into_iter().map(Step::Meta));
        file.overwritten = self.overwritten;
        Ok(self.chosen.notes)
    }

    fn item(&self, index: usize) -> &'a Item {
        &self.scanned.items[index]
    }

    fn any(&self, index: usize) -> bool {
        self.chosen.selected[index..self.item(index).end].contains(&true)
    }

    fn whole(&self, index: usize) -> bool {
        self.chosen.selected[index]
            && first_unselected(self.scanned, &self.chosen.selected, index).is_none()
    }

    pub(super) fn upper_rel(&self, cover: u32, rel: &[u8]) -> Vec<u8> {
        let layer = self
            .session
            .record
            .covers
            .get(cover as usize)
            .map_or(0, |cover| cover.layer);
        let mut path = format!("layers/{layer}/upper").into_bytes();
        if !rel.is_empty() {
            path.push(b'/');
            path.extend_from_slice(rel);
        }
        path
    }

    /// What the layer's names of one file must become links of, because the real file keeps its inode.
    fn find_masters(&mut self) {
        for (index, item) in self.scanned.items.iter().enumerate() {
            let (Some(upper), Some(real)) = (item.upper, item.real) else {
                continue;
            };
            if !(upper.is_file() && upper.nlink > 1 && real.is_file()) {
                continue;
            }
            let rank = match item.what {
                What::Linked => 0,
                What::Content if self.chosen.selected[index] && self.is_rewritten(item) => 1,
                What::Metadata if self.chosen.selected[index] => 2,
                _ => continue,
            };
            let rank_of = |item: &Item| match item.what {
                What::Linked => 0,
                What::Content => 1,
                _ => 2,
            };
            let best = self.masters.entry((item.cover, upper.ino)).or_insert(index);
            if rank < rank_of(&self.scanned.items[*best]) {
                *best = index;
            }
        }
    }

    fn master(&self, item: &Item) -> Option<&'a Item> {
        let upper = item
            .upper
            .filter(|upper| upper.is_file() && upper.nlink > 1)?;
        let master = self.item(*self.masters.get(&(item.cover, upper.ino))?);
        (!std::ptr::eq(master, item)).then_some(master)
    }

    /// The deleted item that a new file was, when other hard links of it remain.
    fn former(&self, item: &Item) -> Option<&'a Item> {
        let former = self.memory.former_name(&path_of(self.session, item))?;
        let upper = item.upper?;
        let is_it =
            |other: &&Item| other.what == What::Deleted && path_of(self.session, other) == former;
        let other = self.scanned.items.iter().find(is_it)?;
        other
            .real
            .filter(|real| real.nlink > 1 && real.looks_like(&upper))
            .map(|_| other)
    }

    /// Whether the real file is written in place because other names of it must follow.
    fn is_rewritten(&self, item: &Item) -> bool {
        let (Some(upper), Some(real)) = (item.upper, item.real) else {
            return false;
        };
        let several =
            item.what == What::Content && upper.is_file() && real.is_file() && real.nlink > 1;
        several && self.is_same_file(item)
    }

    /// Whether the layer's file is the real one, changed, and not another that was given its name. Where nothing was recorded, the
    /// mark of its copy-up tells: a file made in the session has none.
    fn is_same_file(&self, item: &Item) -> bool {
        let recorded = self
            .memory
            .is_changed_in_place(&path_of(self.session, item));
        recorded.unwrap_or_else(|| match &item.origin {
            None => false,
            Some(Origin::Unknown) => true,
            Some(Origin::Handle(kind, bytes)) => {
                file_handle(self.scanned, item).is_none_or(|(k, b)| k == *kind && b == *bytes)
            }
        })
    }

    /// Makes the steps of one item; the index of the next one.
    fn visit(&mut self, index: usize) -> Result<usize, PlanError> {
        let item = self.item(index);
        let selected = self.chosen.selected[index];
        let upper_dir = item.upper.is_some_and(|upper| upper.is_dir());
        let real_dir = item.real.is_some_and(|real| real.is_dir());
        match &item.what {
            What::Linked => Ok(index + 1),
            What::Blocked(_) => Ok(item.end),
            What::Merged | What::Metadata if upper_dir => {
                if item.opaque && self.any(index) {
                    self.normalise(index)?;
                }
                if selected {
                    self.meta(index)?;
                }
                Ok(index + 1)
            }
            What::Merged => Ok(index + 1),
            What::Metadata if selected => {
                match self.master(item) {
                    Some(master) if master.real.map(|r| r.ino) != item.real.map(|r| r.ino) => {
                        self.link(index, master)?
                    }
                    _ if self.is_replaced(item) => self.put_node(index)?,
                    _ => self.meta(index)?,
                }
                Ok(index + 1)
            }
            What::Content if selected => {
                match self.master(item) {
                    Some(master) if master.real.map(|r| r.ino) != item.real.map(|r| r.ino) => {
                        self.link(index, master)?
                    }
                    _ if self.is_rewritten(item) => self.rewrite(index)?,
                    _ => self.put_node(index)?,
                }
                Ok(index + 1)
            }
            What::Metadata | What::Content => Ok(index + 1),
            What::Added | What::Missing | What::TypeChanged if upper_dir => {
                self.new_directory(index)
            }
            What::TypeChanged if real_dir => self.directory_replaced(index),
            What::Added | What::Missing | What::TypeChanged => {
                if selected {
                    match self.master(item).or_else(|| self.former(item)) {
                        Some(master) => self.link(index, master)?,
                        None => self.put_node(index)?,
                    }
                }
                Ok(index + 1)
            }
            What::Deleted => self.deleted(index),
        }
    }

    /// A file with several names of which this one was given to another file of the same content.
    fn is_replaced(&self, item: &Item) -> bool {
        let several = item
            .real
            .is_some_and(|real| real.is_file() && real.nlink > 1);
        several && !self.is_same_file(item)
    }

    fn new_directory(&mut self, index: usize) -> Result<usize, PlanError> {
        let item = self.item(index);
        if !self.any(index) {
            return Ok(item.end);
        }
        // Copies cannot be made links of a real file afterwards: then every entry is put by itself.
        let range = &self.scanned.items[index + 1..item.end];
        let links = range.iter().any(|below| self.master(below).is_some());
        if self.whole(index) && (!links || self.moves(item)?) {
            self.put_tree(index)?;
            return Ok(item.end);
        }
        if !self.chosen.selected[index] {
            self.chosen.notes.push(Note::ParentAdded {
                path: path_of(self.session, item),
            });
        }
        if self.put_directory(index)? {
            Ok(index + 1)
        } else {
            Ok(item.end)
        }
    }

    fn directory_replaced(&mut self, index: usize) -> Result<usize, PlanError> {
        let item = self.item(index);
        if !self.chosen.selected[index] {
            return Ok(index + 1);
        }
        if let Some(below) = first_unselected(self.scanned, &self.chosen.selected, index) {
            let path = path_of(self.session, below);
            self.refuse(index, Reason::ExcludedBelow { path });
        } else {
            self.put_node(index)?;
        }
        Ok(item.end)
    }

    fn deleted(&mut self, index: usize) -> Result<usize, PlanError> {
        let item = self.item(index);
        if !self.any(index) {
            return Ok(item.end);
        }
        if self.whole(index) {
            self.put(index, item.real, None)?;
            return Ok(item.end);
        }
        if self.chosen.selected[index] {
            self.chosen.notes.push(Note::Kept {
                path: path_of(self.session, item),
            });
        }
        Ok(index + 1)
    }

    /// Notes that an item cannot be applied: a conflict, or a skipped one.
    fn refuse(&mut self, index: usize, reason: Reason) {
        let item = self.item(index);
        let conflict = Conflict {
            path: path_of(self.session, item),
            reason,
            wanted: item.upper,
            found: item.real,
        };
        if self.options.on_conflict == OnConflict::Skip
            || conflict.advice() == Advice::Choose
                && self.options.on_conflict == OnConflict::Overwrite
        {
            self.chosen.notes.push(Note::Skipped(conflict));
        } else {
            self.conflicts.push(conflict);
        }
    }

    /// A directory that hides the real one must not hide what is put there: whiteouts take over, also in the directories
    /// below that hide only because this one does.
    fn normalise(&mut self, index: usize) -> Result<(), PlanError> {
        for item in &self.scanned.items[index..self.item(index).end] {
            let hides = item.opaque && matches!(item.what, What::Merged | What::Metadata);
            if !hides || !self.normalised.insert((item.cover, item.rel.clone())) {
                continue;
            }
            let at = self.upper_rel(item.cover, &item.rel);
            self.open_layer_directory(&at)?;
            for name in &item.unlisted {
                self.layer.push(Step::Whiteout {
                    at: [at.as_slice(), b"/", name].concat(),
                });
            }
            self.transparent.push(Step::Transparent {
                at,
                mode: item.upper.map_or(0o700, |upper| upper.mode),
            });
        }
        Ok(())
    }

    /// A directory that is new as a whole.
    fn put_tree(&mut self, index: usize) -> Result<(), PlanError> {
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
            if let Some(master) = self.master(below) {
                let source = Source::Link(Loc::Target(master.cover, master.rel.clone()));
                let link = New {
                    source,
                    node: master.real.unwrap_or(node),
                    tree: false,
                };
                let hold = self.next_archive();
                self.main.push(Step::Put(Put {
                    target: Loc::Target(below.cover, below.rel.clone()),
                    old: below.upper,
                    new: Some(link),
                    hold: hold.clone(),
                    archive: Some(hold),
                    copied: false,
                }));
            }
        }
        Ok(())
    }

    /// Takes off what is overlayfs's own, of the item and of what it holds in collapsed form.
    fn strip(&mut self, item: &Item, moves: bool) {
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
    fn moves(&mut self, item: &Item) -> Result<bool, PlanError> {
        Ok(!self.options.keep && self.parents.is_movable(item.cover, &item.rel)?)
    }

    /// Anything but a directory.
    fn put_node(&mut self, index: usize) -> Result<(), PlanError> {
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

    /// Another name of a real file.
    fn link(&mut self, index: usize, master: &Item) -> Result<(), PlanError> {
        let item = self.item(index);
        let Some(node) = master.real else {
            return Ok(());
        };
        let source = Source::Link(Loc::Target(master.cover, master.rel.clone()));
        self.put(
            index,
            item.real,
            Some(New {
                source,
                node,
                tree: false,
            }),
        )
        .map(drop)
    }

    /// A new directory of which only a part is wanted. Whether it could be planned.
    fn put_directory(&mut self, index: usize) -> Result<bool, PlanError> {
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

    fn next_archive(&mut self) -> Loc {
        self.kept += 1;
        Loc::Session(format!("apply/{}/before/{}", self.number, self.kept).into_bytes())
    }

    /// Puts, replaces or removes. Whether it could be planned.
    fn put(
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
    fn is_closed(&self, cover: u32, rel: &[u8]) -> bool {
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

    fn note_overwritten(&mut self, index: usize) {
        let item = self.item(index);
        if self.chosen.overwritten[index..item.end].contains(&true) {
            self.overwritten
                .push(Loc::Target(item.cover, item.rel.clone()));
        }
    }

    /// A name that nobody else uses, beside the target or, when its directory is yet to be made or opened,
    /// above that.
    fn temporary(&mut self, cover: u32, rel: &[u8]) -> Result<Loc, PlanError> {
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

    /// Attributes of the layer's inode.
    fn upper_meta(&self, item: &Item) -> Result<Meta, PlanError> {
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
    fn real_meta(&self, item: &Item, node: &Node) -> Result<Meta, PlanError> {
        let Some(target) = self.parents.target(item.cover) else {
            return Ok(Meta::of(node, Xattrs::new()));
        };
        let found = attributes(target, &item.rel, node);
        Ok(Meta::of(
            node,
            found.map_err(NetError::io(target.display(&item.rel)))?,
        ))
    }

    fn meta(&mut self, index: usize) -> Result<(), PlanError> {
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

    fn rewrite(&mut self, index: usize) -> Result<(), PlanError> {
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
        // Copy-up splits the names of a file: of several that were written to, the one written last counts.
        match self.rewritten.get(&(item.cover, old.ino)).copied() {
            Some(at) => {
                if let Some(Step::Rewrite(first)) = self.main.get_mut(at)
                    && first.new.mtime < step.new.mtime
                {
                    *first = step;
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
pub(super) fn attributes(root: &Root, rel: &[u8], node: &Node) -> std::io::Result<Xattrs> {
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
