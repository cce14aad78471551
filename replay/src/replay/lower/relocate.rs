//! Moves of what was there before the session: the first steps of a plan.

use super::*;

/// How far the move of an object is planned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Placing {
    Visiting,
    /// It waits in the session for its place to become free.
    Parked(Loc),
    Done,
}

impl Lower<'_> {
    /// Plans all moves.
    pub(super) fn relocate_all(&mut self) -> Done {
        for obj in self.moved() {
            self.place(obj)?;
        }
        // What has waited for a directory above it.
        for obj in std::mem::take(&mut self.waiting) {
            let Some(slot) = self.home(obj) else { continue };
            let Some(now) = self.now(obj) else { continue };
            let (Some(fin), Ok(Some(node))) = (self.final_path(slot), self.ground.find(&now))
            else {
                continue;
            };
            self.place_parents(slot.dir)?;
            if let Some(old) = self.make_free(slot, &fin)? {
                self.put_moved(obj, slot, &now, node, old)?;
            }
        }
        Ok(())
    }

    /// Whether a directory above the new name is itself still on its way.
    fn is_above_moving(&self, dir: Obj) -> bool {
        let mut at = dir;
        while let Some(slot) = self.home(at).filter(|_| at != ROOT) {
            let moving = matches!(
                self.placing.get(&at),
                Some(Placing::Visiting | Placing::Parked(_))
            );
            if moving {
                return true;
            }
            at = slot.dir;
        }
        false
    }

    fn moved(&self) -> Vec<Obj> {
        let homes = self.homes.keys().copied();
        let mut moved: Vec<Obj> = homes.filter(|obj| self.is_moved(*obj)).collect();
        moved.sort_unstable();
        moved
    }

    /// Where what stands at a path at present will stand after the moves planned so far.
    pub(super) fn position(&self, path: &[u8]) -> Vec<u8> {
        let mut path = path.to_vec();
        for (from, to) in &self.moves {
            if is_below(&path, from) {
                path = [to.as_slice(), &path[from.len()..]].concat();
            }
        }
        path
    }

    fn home(&self, obj: Obj) -> Option<Slot> {
        self.homes.get(&obj)?.first().copied()
    }

    fn place(&mut self, obj: Obj) -> Done {
        match self.placing.get(&obj) {
            Some(Placing::Done | Placing::Parked(_)) => return Ok(()),
            Some(Placing::Visiting) => return self.park(obj),
            None => {}
        }
        let Some(slot) = self.home(obj) else {
            return Ok(());
        };
        let Some(fin) = self.final_path(slot) else {
            return Ok(());
        };
        self.placing.insert(obj, Placing::Done);
        let Some(now) = self.now(obj) else {
            // A commit has put a copy there and kept the original.
            let there = self.ground.find(&fin).ok().flatten();
            if !there.is_some_and(|node| self.ground.is_own(&fin, &node)) {
                self.refuse(&fin, Reason::GoneMeanwhile, None)?;
            }
            return Ok(());
        };
        if now == fin {
            return Ok(());
        }
        let node = match self.ground.find(&now) {
            Ok(Some(node)) => node,
            Ok(None) => return self.refuse(&now, Reason::GoneMeanwhile, None).map(drop),
            Err(reason) => return self.refuse(&now, reason, None).map(drop),
        };
        if node.is_dir() {
            let (from, to) = (self.ground.shown(&now), self.ground.shown(&fin));
            if self.standing.has_merged([&from, &to]) {
                return Err(ReplayError::Committed { path: from });
            }
        }
        let foreign = !node.is_dir() && self.is_foreign(obj, &now, &node);
        if foreign && !self.refuse(&now, Reason::ChangedMeanwhile, Some(node))? {
            return Ok(());
        }
        self.placing.insert(obj, Placing::Visiting);
        self.place_parents(slot.dir)?;
        if self.is_above_moving(slot.dir) {
            if !matches!(self.placing.get(&obj), Some(Placing::Parked(_))) {
                self.park(obj)?;
            }
            self.waiting.push(obj);
            return Ok(());
        }
        match self.make_free(slot, &fin)? {
            Some(old) => self.put_moved(obj, slot, &now, node, old),
            None => {
                self.placing.insert(obj, Placing::Done);
                Ok(())
            }
        }
    }

    /// Whatever lies above the new name has to be in place first.
    fn place_parents(&mut self, dir: Obj) -> Done {
        let Some(slot) = self.home(dir).filter(|_| dir != ROOT) else {
            return Ok(());
        };
        self.place_parents(slot.dir)?;
        match self.born(dir) {
            Born::Real(_) if self.is_moved(dir) => self.place(dir),
            Born::Real(_) => Ok(()),
            Born::Made(_) | Born::Unseen => self.place_directory(dir, slot),
        }
    }

    /// A new directory into which something real is moved.
    fn place_directory(&mut self, dir: Obj, slot: Slot) -> Done {
        if self.placing.contains_key(&dir) {
            return Ok(());
        }
        let Some(fin) = self.final_path(slot) else {
            return Ok(());
        };
        self.placing.insert(dir, Placing::Done);
        let now = self.now_of(slot);
        let free = now.as_ref().is_none_or(|now| self.vacated.contains(now));
        if let Some(now) = now.as_deref().filter(|_| !free) {
            let initial = self.view.loaded.model.entry(slot).initial;
            let met = initial.is_some() && self.was_at(slot).as_deref() == Some(now);
            let stands = matches!(self.ground.find(now), Ok(Some(node)) if node.is_dir());
            if stands && !met {
                return Ok(());
            }
        }
        let Some(old) = self.make_free(slot, &fin)? else {
            return Ok(());
        };
        let meta = self.view.meta(&self.ground, dir);
        let mut staged = meta.clone();
        if sys::euid() != 0 {
            staged.mode |= 0o700;
        }
        let Some(put) = self.place_for(&fin, now.as_deref(), old)? else {
            return Ok(());
        };
        let node = self.nominal(dir, &staged, 0);
        if staged != meta {
            self.metas.push(SetMeta {
                target: put.target.clone(),
                node,
                before: staged.clone(),
                after: meta,
                made_by: u32::try_from(self.main.len()).ok(),
                aid: false,
            });
        }
        let source = Source::Directory(staged);
        let tree = false;
        let new = Some(New { source, node, tree });
        self.main.push(Step::Put(Put { new, ..put }));
        self.shallow.insert(dir);
        Ok(())
    }

    /// Where a name is at present; `None` when its directory does not stand.
    fn now_of(&self, slot: Slot) -> Option<Vec<u8>> {
        let name = self.view.loaded.model.name(slot);
        if slot.dir == ROOT {
            return Some(join(b"", name));
        }
        if self.shallow.contains(&slot.dir) {
            return None;
        }
        let dir = match self.born(slot.dir) {
            Born::Real(_) => self.now(slot.dir)?,
            _ => self.now_of(self.home(slot.dir)?)?,
        };
        Some(join(&dir, name))
    }

    /// Sees to it that a name is free, or is that of something that may be replaced: then that is the answer.
    /// `None`: it is not.
    fn make_free(&mut self, slot: Slot, fin: &[u8]) -> Done<Option<Option<Node>>> {
        let now = self.now_of(slot);
        let Some(now) = now.filter(|now| !self.vacated.contains(now)) else {
            return Ok(Some(None));
        };
        let real = match self.ground.find(&now) {
            Ok(Some(real)) => real,
            Ok(None) => return Ok(Some(None)),
            Err(reason) => {
                self.refuse(fin, reason, None)?;
                return Ok(None);
            }
        };
        let initial = self.view.loaded.model.entry(slot).initial;
        let initial = initial.filter(|_| self.was_at(slot).as_deref() == Some(&now));
        match initial {
            Some(other) if self.is_moved(other) && self.origin(other) == Some(slot) => {
                self.place(other)?;
                Ok(self.vacated.contains(&now).then_some(None))
            }
            Some(other) => {
                self.move_out(&now)?;
                let may = self.may_go(other, fin, &now, &real)?;
                Ok(may.then_some(Some(real)))
            }
            None => {
                let goes = self.is_placed(&now, &real)
                    || self.refuse(fin, Reason::AppearedMeanwhile, Some(real))?;
                Ok(goes.then_some(Some(real)))
            }
        }
    }

    /// What lies below a directory that goes, and has a place elsewhere, is moved out.
    fn move_out(&mut self, dir: &[u8]) -> Done {
        for obj in self.moved() {
            let now = self.now(obj);
            if now.is_some_and(|now| is_below(&now, dir) && now != dir) {
                self.place(obj)?;
            }
        }
        Ok(())
    }

    /// Its place is not free before it has gone itself: it waits in the session.
    fn park(&mut self, obj: Obj) -> Done {
        let Some(now) = self.now(obj) else {
            return Ok(());
        };
        let Ok(Some(node)) = self.ground.find(&now) else {
            return Ok(());
        };
        let Some(hold) = self.ground.loc(&self.position(&now)) else {
            return Ok(());
        };
        if !self.may_work_in(&now, parent(&now), Some(&node))? {
            return Ok(());
        }
        let near = self.ground.nearest(&now)?;
        let target = self.next_archive();
        let aside = match near {
            Some((_, dir)) if dir.movable => [b"\0", target.rel()].concat(),
            _ => self.temporary_path(&now)?,
        };
        let Some(target) = self.ground.loc(&aside) else {
            return Ok(());
        };
        self.placing.insert(obj, Placing::Parked(target.clone()));
        self.moves.push((self.position(&now), aside));
        self.vacated.insert(now);
        self.push_move(
            Put {
                target,
                old: None,
                new: None,
                hold: hold.clone(),
                archive: None,
                copied: false,
            },
            hold,
            node,
        );
        Ok(())
    }

    fn push_move(&mut self, put: Put, hold: Loc, node: Node) {
        let source = Source::Move;
        let tree = false;
        let new = Some(New { source, node, tree });
        let copied = false;
        self.main.push(Step::Put(Put {
            new,
            hold,
            copied,
            ..put
        }));
    }

    fn put_moved(
        &mut self,
        obj: Obj,
        slot: Slot,
        now: &[u8],
        node: Node,
        old: Option<Node>,
    ) -> Done {
        let there = self.now_of(slot);
        let parked = match self.placing.insert(obj, Placing::Done) {
            Some(Placing::Parked(loc)) => Some(loc),
            _ => None,
        };
        let Some(fin) = self.final_path(slot) else {
            return Ok(());
        };
        if parked.is_none() && !self.may_work_in(&fin, parent(now), Some(&node))? {
            return Ok(());
        }
        let Some(mut put) = self.place_for(&fin, there.as_deref(), old)? else {
            return Ok(());
        };
        if put.copied && old.is_some() {
            // What is exchanged would be left where it must not be removed from.
            self.main.push(Step::Put(put.clone()));
            put.old = None;
            put.archive = None;
        }
        let position = self.position(now);
        let Some(hold) = parked.or_else(|| self.ground.loc(&position)) else {
            return Ok(());
        };
        self.push_move(put, hold, node);
        self.vacated.insert(now.to_vec());
        self.moves.push((position, fin));
        Ok(())
    }
}
