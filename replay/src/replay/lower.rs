//! From what is wanted to steps.

use super::ReplayError;
use super::ground::{Ground, join, parent};
use super::model::{Born, Obj, ROOT, Slot};
use super::parted;
use super::source::{View, attributes, holds};
use super::standing::Standing;
use crate::conflict::{Advice, Conflict, Reason};
use crate::ledger::{PlanFile, archive};
use crate::meta::Meta;
use crate::net::NetError;
use crate::node::{FileType, Node, Time};
use crate::options::{OnConflict, Options};
use crate::plan::Note;
use crate::root::absent_is_none;
use crate::step::{Loc, Made, Make, New, Put, Rewrite, SetMeta, Source, Step};
use crate::sys;
use effigy_journal::Op;
use std::collections::{HashMap, HashSet};
use std::os::fd::AsFd as _;
use std::path::PathBuf;

mod conflict;
mod make;
mod put;
mod relocate;

/// Makes the steps.
pub(super) struct Lower<'a> {
    pub(super) view: View<'a>,
    pub(super) ground: Ground,
    standing: Standing,
    options: Options,
    number: u32,
    /// The names each object has in the end, in the order of the walk.
    homes: HashMap<Obj, Vec<Slot>>,
    /// Moves within the real tree that are planned, in order.
    moves: Vec<(Vec<u8>, Vec<u8>)>,
    /// Paths that the moves have made free.
    vacated: HashSet<Vec<u8>>,
    /// What waits aside until its place is ready.
    parked: HashMap<Obj, (relocate::Moving, Loc)>,
    /// New directories that are in place before anything is moved into them.
    placed: HashSet<Obj>,
    /// New directories into which something real is moved.
    shallow: HashSet<Obj>,
    /// Where a file can be linked from while copies are prepared.
    sources: HashMap<Obj, Loc>,
    opened: HashSet<Vec<u8>>,
    /// What closes them again.
    closing: Vec<(Vec<u8>, SetMeta)>,
    first: Vec<Step>,
    main: Vec<Step>,
    /// After all others, as they show under every name of a file.
    rewrites: Vec<Step>,
    metas: Vec<SetMeta>,
    overwritten: Vec<Loc>,
    kept: u32,
    notes: Vec<Note>,
    conflicts: Vec<Conflict>,
}

/// The result of a step of planning that may fail.
type Done<T = ()> = Result<T, ReplayError>;

impl<'a> Lower<'a> {
    pub(super) fn new(
        view: View<'a>,
        ground: Ground,
        standing: Standing,
        options: Options,
        number: u32,
    ) -> Self {
        let mut lower = Self {
            view,
            ground,
            standing,
            options,
            number,
            homes: HashMap::new(),
            moves: Vec::new(),
            vacated: HashSet::new(),
            parked: HashMap::new(),
            placed: HashSet::new(),
            shallow: HashSet::new(),
            sources: HashMap::new(),
            opened: HashSet::new(),
            closing: Vec::new(),
            first: Vec::new(),
            main: Vec::new(),
            rewrites: Vec::new(),
            metas: Vec::new(),
            overwritten: Vec::new(),
            kept: 0,
            notes: Vec::new(),
            conflicts: Vec::new(),
        };
        lower.find_homes();
        lower
    }

    fn find_homes(&mut self) {
        let objects = self.view.loaded.model.objects.len();
        for dir in 0..u32::try_from(objects).unwrap_or(u32::MAX) {
            for &name in &self.view.loaded.model.object(dir).kids {
                let slot = Slot { dir, name };
                if let Some(obj) = self.occupant(slot) {
                    self.homes.entry(obj).or_default().push(slot);
                }
            }
        }
    }

    /// Plans everything; the steps go into `file`.
    pub(super) fn plan(mut self, file: &mut PlanFile) -> Done<(Vec<Note>, Ground)> {
        self.relocate_all()?;
        self.change(ROOT, b"", Some(b""))?;
        self.walk(ROOT, b"", Some(b""))?;
        self.part()?;
        if !self.conflicts.is_empty() {
            self.conflicts.sort_by(|a, b| a.path.cmp(&b.path));
            self.conflicts.dedup_by(|a, b| a.path == b.path);
            return Err(ReplayError::Plan(crate::plan::PlanError::Conflicts(
                self.conflicts,
            )));
        }
        self.close();
        self.open_layers();
        let offset = u32::try_from(self.first.len()).unwrap_or(u32::MAX);
        // What lies deeper comes first: a directory may lose the owner's right to enter it.
        self.metas.sort_by_key(|meta| {
            std::cmp::Reverse(meta.target.rel().iter().filter(|&&b| b == b'/').count())
        });
        for meta in &mut self.metas {
            meta.made_by = meta.made_by.map(|index| index.saturating_add(offset));
        }
        file.steps = self.first;
        file.steps.append(&mut self.main);
        file.steps.append(&mut self.rewrites);
        file.steps.extend(self.metas.into_iter().map(Step::Meta));
        file.overwritten = self.overwritten;
        Ok((self.notes, self.ground))
    }

    fn occupant(&self, slot: Slot) -> Option<Obj> {
        self.view.wanted.occupant(self.view.loaded, slot)
    }

    fn born(&self, obj: Obj) -> Born {
        self.view.loaded.model.object(obj).born
    }

    /// Whether a name was this object's before the session.
    fn is_original(&self, slot: Slot, obj: Obj) -> bool {
        self.view.loaded.model.entry(slot).initial == Some(obj)
    }

    /// The name by which an object of before the session is changed: one it keeps, or the one it is moved from.
    fn origin(&self, obj: Obj) -> Option<Slot> {
        let Born::Real(home) = self.born(obj) else {
            return None;
        };
        let homes = self.homes.get(&obj).map_or(&[][..], Vec::as_slice);
        if homes.contains(&home) {
            return Some(home);
        }
        let mut homes = homes.iter().copied();
        homes
            .find(|slot| self.is_original(*slot, obj))
            .or(Some(home))
    }

    /// Where what had a name before the session is now.
    fn was_at(&self, slot: Slot) -> Option<Vec<u8>> {
        let path = self.view.loaded.model.first_path(slot)?;
        if self.standing.is_empty() {
            Some(path)
        } else {
            self.standing.now(&path)
        }
    }

    /// Where an object of before the session is now.
    fn now(&self, obj: Obj) -> Option<Vec<u8>> {
        if obj == ROOT {
            return Some(Vec::new());
        }
        self.was_at(self.origin(obj)?)
    }

    /// Whether somebody else has changed an object of before the session.
    fn is_foreign(&self, obj: Obj, here: &[u8], node: &Node) -> bool {
        let object = self.view.loaded.model.object(obj);
        let foreign = |path: &[u8]| self.ground.is_foreign(path, node, object.before.as_ref());
        // What was done under one name of a file shows under the others.
        foreign(here)
            && (object.originals.len() < 2
                || object
                    .originals
                    .iter()
                    .all(|slot| self.was_at(*slot).is_none_or(|path| foreign(&path))))
    }

    /// The path that a name has in the end.
    fn final_path(&self, slot: Slot) -> Option<Vec<u8>> {
        let model = &self.view.loaded.model;
        let mut names = vec![model.name(slot)];
        let mut at = slot.dir;
        while at != ROOT && names.len() < 4096 {
            let slot = *self.homes.get(&at)?.first()?;
            names.push(model.name(slot));
            at = slot.dir;
        }
        let mut path = Vec::new();
        for name in names.into_iter().rev() {
            path.push(b'/');
            path.extend_from_slice(name);
        }
        Some(path)
    }

    /// `now`: where the directory stands at present, if it does.
    fn walk(&mut self, dir: Obj, fin: &[u8], now: Option<&[u8]>) -> Done {
        for index in 0..self.view.loaded.model.object(dir).kids.len() {
            let model = &self.view.loaded.model;
            let slot = Slot {
                dir,
                name: model.object(dir).kids[index],
            };
            let name = model.name(slot);
            let fin = join(fin, name);
            let now = now.map(|now| join(now, name));
            let Some(obj) = self.occupant(slot) else {
                self.vacant(slot, &fin, now.as_deref())?;
                continue;
            };
            match self.born(obj) {
                Born::Real(_) if self.origin(obj) == Some(slot) => self.real(obj, &fin, now)?,
                Born::Real(_) if self.is_original(slot, obj) => {}
                Born::Real(_)
                    if self.is_moved(obj)
                        && self.homes.get(&obj).and_then(|h| h.first()) == Some(&slot) =>
                {
                    let now = self.now(obj).or(now);
                    self.real(obj, &fin, now)?;
                }
                Born::Real(_) => self.link(obj, slot, &fin, now.as_deref())?,
                Born::Made(_) | Born::Unseen if self.sources.contains_key(&obj) => {
                    self.link(obj, slot, &fin, now.as_deref())?;
                }
                Born::Made(_) | Born::Unseen => self.new_object(obj, slot, &fin, now.as_deref())?,
            }
        }
        Ok(())
    }

    /// Whether an object of before the session has lost the names it had and got another.
    fn is_moved(&self, obj: Obj) -> bool {
        matches!(self.born(obj), Born::Real(_))
            && self
                .homes
                .get(&obj)
                .is_some_and(|homes| !homes.iter().any(|slot| self.is_original(*slot, obj)))
    }

    /// An object of before the session, with what was changed of it and in it.
    fn real(&mut self, obj: Obj, fin: &[u8], here: Option<Vec<u8>>) -> Done {
        let touched = self.view.state(obj).is_some();
        let kids = !self.view.loaded.model.object(obj).kids.is_empty();
        if !touched && !kids {
            return Ok(());
        }
        let now = if self.standing.is_empty() {
            here
        } else {
            self.now(obj).or(here)
        };
        // Where it was moved to by an earlier replay it stays, unless this one moves it.
        let stays = !self.is_moved(obj) && !self.standing.is_empty();
        let fin = match &now {
            Some(now) if stays => now.clone(),
            _ => fin.to_vec(),
        };
        if touched {
            self.change(obj, &fin, now.as_deref())?;
        }
        if kids {
            self.walk(obj, &fin, now.as_deref())?;
        }
        Ok(())
    }

    /// Changes content and attributes of a real object.
    fn change(&mut self, obj: Obj, fin: &[u8], now: Option<&[u8]>) -> Done {
        if self.view.state(obj).is_none() {
            return Ok(());
        }
        let found = match now.map(|now| self.ground.find(now)) {
            Some(Ok(found)) => found,
            Some(Err(reason)) => return self.refuse(fin, reason, None).map(drop),
            None => None,
        };
        let content = self
            .view
            .state(obj)
            .is_some_and(|state| state.content.is_some());
        let (Some(now), Some(real)) = (now, found) else {
            let missing =
                now.is_none_or(|now| self.ground.find(parent(now)).is_ok_and(|dir| dir.is_none()));
            let reason = if missing && now.is_some() {
                Reason::ParentGone {
                    parent: self.shown_parent(fin),
                }
            } else {
                Reason::GoneMeanwhile
            };
            if self.refuse(fin, reason, None)? && content {
                self.put_new(obj, fin, now, None)?;
            }
            return Ok(());
        };
        let before = &self.view.loaded.model.object(obj).before;
        if content && !real.is_file()
            || before.is_some_and(|stat| super::source::file_type(stat.kind) != real.kind)
        {
            return self
                .refuse(fin, Reason::ChangedMeanwhile, Some(real))
                .map(drop);
        }
        let Some(target) = self.ground.loc(fin) else {
            return Ok(());
        };
        let Some(at) = self.ground.loc(now) else {
            return Ok(());
        };
        let before = self.meta_at(&at, &real);
        let mut after = self.view.changed(&self.ground, obj, &before, &real);
        let foreign = self.is_foreign(obj, now, &real);
        if content && !self.view.is_exact(&self.ground, obj) && self.ground.is_own(now, &real) {
            after.forgive_set_id(&before);
        }
        if target.rel().is_empty() {
            // What the root of a layer carries is the layer's.
            after.xattrs.clone_from(&before.xattrs);
        }
        let bytes = if content {
            self.view.bytes(&self.ground, obj)?
        } else {
            None
        };
        self.sources.insert(obj, at.clone());
        if let Some(bytes) = &bytes {
            let same = bytes.len == real.size
                && holds(&self.ground, &at, Some(bytes))
                    .map_err(NetError::io(self.ground.shown(now)))?;
            if !same {
                if foreign && !self.refuse(fin, Reason::ChangedMeanwhile, Some(real))? {
                    return Ok(());
                }
                let several =
                    real.nlink > 1 || self.homes.get(&obj).is_some_and(|homes| homes.len() > 1);
                return if several {
                    self.rewrite(fin, now, real, before, after, bytes)
                } else {
                    self.put_file(obj, fin, Some(now), Some(real), after, Some(bytes.clone()))
                };
            }
        }
        let same = is_alike(&before, &after);
        let timed = after.mtime.is_none() || after.mtime == before.mtime;
        // A time alone is no reason to quarrel with somebody who has written the same.
        if same && (timed || foreign && content) {
            return Ok(());
        }
        if foreign && !self.refuse(fin, Reason::ChangedMeanwhile, Some(real))? {
            return Ok(());
        }
        if let Some(errno) = self.ground.is_owned(&real) {
            let at = self.ground.shown(fin);
            return self
                .refuse(fin, Reason::Forbidden { errno, at }, Some(real))
                .map(drop);
        }
        if timed {
            after.mtime = None;
        }
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

    fn rewrite(
        &mut self,
        fin: &[u8],
        now: &[u8],
        real: Node,
        before: Meta,
        after: Meta,
        bytes: &super::source::Bytes,
    ) -> Done {
        if let Some(errno) = self.ground.is_owned(&real) {
            let at = self.ground.shown(now);
            return self
                .refuse(fin, Reason::Forbidden { errno, at }, Some(real))
                .map(drop);
        }
        let Some(target) = self.ground.loc(fin) else {
            return Ok(());
        };
        let (Loc::Session(source), Loc::Session(archive)) =
            (bytes.from.clone(), self.next_archive())
        else {
            return Err(ReplayError::NoContent {
                seq: 0,
                path: self.ground.shown(fin),
            });
        };
        self.rewrites.push(Step::Rewrite(Rewrite::with(
            (target, real),
            (before, after),
            (source, bytes.len),
            archive,
        )));
        Ok(())
    }

    /// Files that have lost all names the session knew, and have others: these show what was done under the lost ones.
    fn part(&mut self) -> Done {
        let states = self.view.wanted.states.keys();
        let parted = states.filter(|obj| {
            matches!(self.born(**obj), Born::Real(_)) && !self.homes.contains_key(obj)
        });
        let mut parted: Vec<Obj> = parted.copied().collect();
        parted.sort_unstable();
        for obj in parted {
            let originals = &self.view.loaded.model.object(obj).originals;
            let names = originals.iter().filter_map(|slot| self.was_at(*slot));
            let names: Vec<_> = names
                .filter_map(|here| Some((self.ground.loc(&self.position(&here))?, here)))
                .collect();
            let Some(parting) = parted::parting(&self.view, &self.ground, &self.main, obj, &names)?
            else {
                continue;
            };
            if let Some(errno) = self.ground.is_owned(&parting.real) {
                let at = self.ground.shown(&parting.path);
                self.refuse(
                    &parting.path,
                    Reason::Forbidden { errno, at },
                    Some(parting.real),
                )?;
                continue;
            }
            let Loc::Session(archive) = self.next_archive() else {
                continue;
            };
            match parting.step(archive) {
                Step::Meta(meta) => self.metas.push(meta),
                other => self.rewrites.push(other),
            }
        }
        Ok(())
    }

    /// Nothing is to stand there.
    fn vacant(&mut self, slot: Slot, fin: &[u8], now: Option<&[u8]>) -> Done {
        if !self.view.wanted.is_touched(slot) {
            return Ok(());
        }
        let initial = self.view.loaded.model.entry(slot).initial;
        let (here, old) = match initial {
            // It goes elsewhere.
            Some(obj) if self.is_moved(obj) && self.origin(obj) == Some(slot) => return Ok(()),
            Some(obj) => (self.was_at(slot), Some(obj)),
            // What came and went is looked for only where an earlier replay may have put it.
            None if self.standing.is_empty() => return Ok(()),
            None => (now.map(<[u8]>::to_vec), None),
        };
        let Some(here) = here.filter(|here| !self.vacated.contains(here)) else {
            return Ok(());
        };
        let real = match self.ground.find(&here) {
            Ok(Some(real)) => real,
            Ok(None) => return Ok(()),
            Err(reason) => return self.refuse(fin, reason, None).map(drop),
        };
        match old {
            None if !self.is_placed(&here, &real) => return Ok(()),
            None => {}
            Some(obj) if !self.may_go(obj, fin, &here, &real)? => return Ok(()),
            Some(_) => {}
        }
        let place = if self.standing.is_empty() {
            fin.to_vec()
        } else {
            here.clone()
        };
        self.remove(&place, &here, real)
    }

    fn shown_parent(&self, path: &[u8]) -> PathBuf {
        let shown = self.ground.shown(path);
        shown.parent().unwrap_or(&shown).to_owned()
    }

    /// Whether an earlier apply has put there what stands there.
    fn is_placed(&self, path: &[u8], real: &Node) -> bool {
        let shown = self.ground.shown(path);
        self.standing.has_placed(&shown) && self.ground.is_own(path, real)
    }

    /// The attributes of what stands at a place.
    fn meta_at(&self, loc: &Loc, node: &Node) -> Meta {
        let root = self.ground.root_of(loc);
        let xattrs = root.map(|(root, rel)| attributes(root, rel, node));
        Meta::of(node, xattrs.unwrap_or_default())
    }

    /// Directories that were opened are closed again, wherever they are by then. When attributes of one change
    /// anyway, that closes it.
    fn close(&mut self) {
        for (dir, mut meta) in std::mem::take(&mut self.closing) {
            if let Some(target) = self.ground.loc(&self.position(&dir)) {
                meta.target = target;
            }
            let other = self
                .metas
                .iter_mut()
                .find(|other| other.target == meta.target);
            match other {
                Some(other) => other.before = meta.before,
                None => self.metas.push(meta),
            }
        }
    }

    /// Locked directories of layers are opened before anything else, and closed again at the end.
    fn open_layers(&mut self) {
        let mut opening = Vec::new();
        for (target, node, before) in self.ground.locked() {
            let mut open = before.clone();
            open.mode |= 0o700;
            let aid = |before: &Meta, after: &Meta| SetMeta {
                target: target.clone(),
                node,
                before: before.clone(),
                after: after.clone(),
                made_by: None,
                aid: true,
            };
            opening.push(Step::Meta(aid(&before, &open)));
            self.metas.push(aid(&open, &before));
        }
        self.first.splice(0..0, opening);
    }

    fn next_archive(&mut self) -> Loc {
        self.kept += 1;
        archive(self.number, self.kept)
    }
}

/// Whether a path is `dir` or lies below it.
fn is_below(path: &[u8], dir: &[u8]) -> bool {
    path.strip_prefix(dir)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

/// Whether everything but the time agrees.
pub(super) fn is_alike(one: &Meta, other: &Meta) -> bool {
    (one.mode, one.uid, one.gid) == (other.mode, other.uid, other.gid) && one.xattrs == other.xattrs
}
