//! From what differs to steps.

use super::choose::{Chosen, first_unselected, path_of};
use super::place::Parents;
use crate::conflict::{Advice, Conflict, Reason};
use crate::layer::Origin;
use crate::ledger::PlanFile;
use crate::node::Node;
use crate::options::{OnConflict, Options};
use crate::plan::{Note, PlanError};
use crate::recollect::Recollection;
use crate::root::Root;
use crate::scan::{Item, Scanned, What, file_handle};
use crate::step::{Loc, SetMeta, Step};
use crate::sys;
use effigy_journal::Session;
use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};

mod attributes;
mod names;
mod put;

pub(super) use attributes::attributes;

/// What a plan is made from.
pub(super) struct Ground<'a> {
    pub(super) session: &'a Session,
    pub(super) store: &'a Root,
    pub(super) scanned: &'a Scanned,
    pub(super) memory: &'a Recollection<'a>,
}

/// Turns the chosen items into the steps of `file`, the plan of this number.
pub(super) fn build(
    ground: &Ground<'_>,
    chosen: Chosen,
    options: &Options,
    number: u32,
    file: &mut PlanFile,
) -> Result<Vec<Note>, PlanError> {
    let Ground {
        session,
        store,
        scanned,
        memory,
    } = *ground;
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
        has_links: OnceCell::new(),
        removed_names: OnceCell::new(),
        names: HashMap::new(),
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
    builder.part()?;
    builder.into_file(file)
}

/// A real file, under a name that it has before all steps.
pub(super) struct Other {
    at: Loc,
    node: Node,
    /// The session may have changed it.
    changed: bool,
}

/// Whether it stands for a real file that has several names.
pub(in crate::commit) fn has_several_names(item: &Item) -> bool {
    let real = item.real.as_ref();
    real.is_some_and(|real| real.nlink > 1 && !real.is_dir())
}

pub(super) struct Builder<'a> {
    pub(super) session: &'a Session,
    pub(super) store: &'a Root,
    pub(super) scanned: &'a Scanned,
    pub(super) options: Options,
    /// What the journal knows.
    memory: &'a Recollection<'a>,
    number: u32,
    pub(super) parents: Parents<'a>,
    /// By inode of a layer: the item whose real file its other names are to be links of.
    masters: HashMap<(u32, u64), usize>,
    /// Directories that were opened for their owner.
    pub(super) opened: HashSet<Loc>,
    /// By real inode: the step that rewrites it.
    rewritten: HashMap<(u32, u64), usize>,
    has_links: OnceCell<bool>,
    removed_names: OnceCell<HashMap<names::Inode, u32>>,
    /// What was done under each name of a file that has several.
    names: HashMap<names::Inode, Vec<names::Named>>,
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
        self.merge_names();
        // What is open for other steps stays so until they are taken.
        for step in &mut self.transparent {
            if let Step::Transparent { at, mode } = step
                && sys::euid() != 0
                && *mode & 0o300 != 0o300
                && self.opened.contains(&Loc::Session(at.clone()))
            {
                *mode |= 0o700;
            }
        }
        self.layer.append(&mut self.transparent);
        let offset = self.first.len() + self.layer.len();
        // What lies deeper comes first: a directory may lose the owner's right to enter it.
        self.metas.sort_by_key(|meta| {
            std::cmp::Reverse(meta.target.rel().iter().filter(|&&b| b == b'/').count())
        });
        // What is written in place shows under every name of a file, so other steps must have looked at those before.
        let is_rewrite = |step: &Step| matches!(step, Step::Rewrite(_));
        let mut places = Vec::with_capacity(self.main.len());
        let mut next = offset;
        for step in &self.main {
            places.push(u32::try_from(next).unwrap_or(u32::MAX));
            next += usize::from(!is_rewrite(step));
        }
        for meta in &mut self.metas {
            let place = |index: u32| places.get(index as usize).copied();
            meta.made_by = meta.made_by.and_then(place);
        }
        let (mut rewrites, mut puts): (Vec<_>, Vec<_>) =
            self.main.into_iter().partition(is_rewrite);
        file.steps = self.first;
        file.steps.append(&mut self.layer);
        file.steps.append(&mut puts);
        file.steps.append(&mut rewrites);
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
            if upper.is_dir() || upper.nlink < 2 || upper.kind != real.kind {
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
            .filter(|upper| !upper.is_dir() && upper.nlink > 1)?;
        let master = self.item(*self.masters.get(&(item.cover, upper.ino))?);
        (!std::ptr::eq(master, item)).then_some(master)
    }

    /// The real file that an item is to become a name of.
    fn other_name(&self, item: &Item) -> Option<Other> {
        let other = match self.former(item) {
            Some(former) => former,
            None => {
                let master = self.master(item)?;
                Other {
                    at: Loc::Target(master.cover, master.rel.clone()),
                    node: master.real?,
                    changed: false,
                }
            }
        };
        (item.real.map(|real| real.ino) != Some(other.node.ino)).then_some(other)
    }

    /// The file with several names that an item was under another name.
    fn former(&self, item: &Item) -> Option<Other> {
        let upper = item.upper.filter(|upper| !upper.is_dir())?;
        if !self.has_links() {
            return None;
        }
        let path = path_of(self.session, item);
        if self.memory.is_changed_in_place(&path) == Some(true) {
            return None;
        }
        let mut names = self.memory.former_names(&path).into_iter();
        names.find_map(|name| {
            let (cover, rel) = self.scanned.place(self.session, &name)?;
            let node = self.parents.target(cover)?.find(&rel).ok().flatten()?;
            let is_it = node.nlink > 1 && node.kind == upper.kind;
            // With all its names gone the layer's file, which has as many, stands for it.
            let leaves = upper.nlink >= node.nlink && self.removed_names(&node) >= node.nlink;
            let at = Loc::Target(cover, rel);
            let changed = true;
            (is_it && !leaves).then_some(Other { at, node, changed })
        })
    }

    /// How many names of a real file the session has removed.
    fn removed_names(&self, node: &Node) -> u32 {
        let removed = self.removed_names.get_or_init(|| {
            let mut removed = HashMap::new();
            for item in &self.scanned.items {
                if let (What::Deleted, Some(real)) = (&item.what, &item.real) {
                    *removed.entry(names::inode(real)).or_insert(0) += 1;
                }
            }
            removed
        });
        removed.get(&names::inode(node)).copied().unwrap_or(0)
    }

    /// Whether any real file that the session has changed, moved or removed has several names.
    fn has_links(&self) -> bool {
        *self
            .has_links
            .get_or_init(|| self.scanned.items.iter().any(has_several_names))
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
                match self.other_name(item) {
                    Some(other) => self.link(index, other)?,
                    _ if self.is_replaced(item) => self.put_node(index)?,
                    _ => self.meta(index)?,
                }
                Ok(index + 1)
            }
            What::Content if selected => {
                match self.other_name(item) {
                    Some(other) => self.link(index, other)?,
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
                    match self.other_name(item) {
                        Some(other) => self.link(index, other)?,
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
        has_several_names(item) && !self.is_same_file(item)
    }

    fn new_directory(&mut self, index: usize) -> Result<usize, PlanError> {
        let item = self.item(index);
        if !self.any(index) {
            return Ok(item.end);
        }
        // Copies cannot be made links of a real file afterwards: then every entry is put by itself.
        let range = &self.scanned.items[index + 1..item.end];
        let links = range.iter().any(|below| self.other_name(below).is_some());
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
        } else if let Some(other) = self.other_name(item) {
            self.link(index, other)?;
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
}
