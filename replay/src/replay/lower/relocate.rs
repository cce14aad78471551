//! Moves of what was there before the session: the first steps of a plan.
//!
//! What can go where it belongs at once does: its new name is free, or is that of something that goes, in a directory that
//! stays where it is. All else is first moved aside, the deepest first, so that nothing is in the way of anything else and no
//! directory could come to lie in itself; then it is put where it belongs, from the top of the tree down.

use super::*;

/// Something of before the session that gets another name.
pub(super) struct Moving {
    obj: Obj,
    slot: Slot,
    fin: Vec<u8>,
    /// Where it stands before all moves.
    now: Vec<u8>,
    node: Node,
}

/// Whether a new name can be taken at once.
enum Way {
    /// It can; what stands there is replaced.
    Free(Option<Node>),
    /// What stands there moves away itself.
    After(Vec<u8>),
    Aside,
    /// It is in conflict.
    Refused,
}

impl Lower<'_> {
    /// Plans all moves.
    pub(super) fn relocate_all(&mut self) -> Done {
        let moving = self.moving()?;
        let mut rest = self.move_directly(moving)?;
        rest.sort_by_key(|moving| std::cmp::Reverse(depth(&moving.now)));
        for moving in rest {
            if let Some(aside) = self.park(&moving)? {
                self.parked.insert(moving.obj, (moving, aside));
            }
        }
        let mut parked: Vec<Obj> = self.parked.keys().copied().collect();
        parked.sort_unstable();
        parked.into_iter().try_for_each(|obj| self.unpark(obj))
    }

    /// What moves, and may.
    fn moving(&mut self) -> Done<Vec<Moving>> {
        let homes = self.homes.keys().copied();
        let mut moved: Vec<Obj> = homes.filter(|obj| self.is_moved(*obj)).collect();
        moved.sort_unstable();
        let mut moving = Vec::with_capacity(moved.len());
        for obj in moved {
            let Some(slot) = self.home(obj) else { continue };
            let Some(fin) = self.final_path(slot) else {
                continue;
            };
            let Some(now) = self.now(obj) else {
                // A commit has put a copy there and kept the original.
                let there = self.ground.find(&fin).ok().flatten();
                if !there.is_some_and(|node| self.ground.is_own(&fin, &node)) {
                    self.refuse(&fin, Reason::GoneMeanwhile, None)?;
                }
                continue;
            };
            if now == fin && self.is_in_place(slot.dir) {
                continue;
            }
            let node = match self.ground.find(&now) {
                Ok(Some(node)) => node,
                Ok(None) => {
                    self.refuse(&now, Reason::GoneMeanwhile, None)?;
                    continue;
                }
                Err(reason) => {
                    self.refuse(&now, reason, None)?;
                    continue;
                }
            };
            if node.is_dir() {
                let (from, to) = (self.ground.shown(&now), self.ground.shown(&fin));
                if self.standing.has_merged([&from, &to]) {
                    return Err(ReplayError::Committed { path: from });
                }
            }
            let foreign = !node.is_dir() && self.is_foreign(obj, &now, &node);
            if foreign && !self.refuse(&now, Reason::ChangedMeanwhile, Some(node))? {
                continue;
            }
            if !self.may_work_in(&now, parent(&now), Some(&node))? {
                continue;
            }
            moving.push(Moving {
                obj,
                slot,
                fin,
                now,
                node,
            });
        }
        Ok(moving)
    }

    /// Whether a directory, and those above it, stand where they are to be in the end.
    fn is_in_place(&self, dir: Obj) -> bool {
        let mut at = dir;
        while at != ROOT {
            let Some(slot) = self.home(at) else {
                return false;
            };
            let Some(fin) = self.final_path(slot) else {
                return false;
            };
            let there = match self.born(at) {
                Born::Real(_) => self.now(at).as_deref() == Some(fin.as_slice()),
                // An earlier replay has made it.
                _ => {
                    let found = self.ground.find(&fin).ok().flatten();
                    found.is_some_and(|node| node.is_dir() && self.is_placed(&fin, &node))
                }
            };
            if !there {
                return false;
            }
            at = slot.dir;
        }
        true
    }

    /// Plans the moves of what can go where it belongs at once. Returns the others.
    fn move_directly(&mut self, moving: Vec<Moving>) -> Done<Vec<Moving>> {
        let mut aside = Vec::new();
        let mut waiting: HashMap<Vec<u8>, Moving> = HashMap::new();
        let mut ready = moving;
        ready.reverse();
        while let Some(moving) = ready.pop() {
            match self.way(&moving)? {
                Way::Free(old) => {
                    let now = moving.now.clone();
                    let hold = self.ground.loc(&self.position(&now));
                    self.put_moved(moving, hold, old)?;
                    ready.extend(waiting.remove(&now));
                }
                Way::After(occupied) => drop(waiting.insert(occupied, moving)),
                Way::Aside => aside.push(moving),
                Way::Refused => {}
            }
        }
        aside.extend(waiting.into_values());
        Ok(aside)
    }

    fn way(&mut self, moving: &Moving) -> Done<Way> {
        let mut at = moving.slot.dir;
        while at != ROOT {
            let stays = matches!(self.born(at), Born::Real(_)) && !self.is_moved(at);
            let Some(slot) = self.home(at).filter(|_| stays) else {
                return Ok(Way::Aside);
            };
            at = slot.dir;
        }
        let Some(there) = self.now_of(moving.slot) else {
            return Ok(Way::Aside);
        };
        if self.vacated.contains(&there) {
            return Ok(Way::Free(None));
        }
        if let Some(other) = self.occupant_at(moving.slot, &there)
            && self.is_moved(other)
            && self.origin(other) == Some(moving.slot)
        {
            return Ok(Way::After(there));
        }
        // What lies in a directory that goes may have a place elsewhere.
        if matches!(self.ground.find(&there), Ok(Some(node)) if node.is_dir()) {
            return Ok(Way::Aside);
        }
        Ok(match self.make_free(moving.slot, &moving.fin)? {
            Some(old) => Way::Free(old),
            None => Way::Refused,
        })
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

    /// Puts what was moved aside where it belongs, after all that lies above it.
    fn unpark(&mut self, obj: Obj) -> Done {
        let Some((moving, aside)) = self.parked.remove(&obj) else {
            return Ok(());
        };
        self.place_parents(moving.slot.dir)?;
        if let Some(old) = self.make_free(moving.slot, &moving.fin)? {
            self.put_moved(moving, Some(aside), old)?;
        }
        Ok(())
    }

    fn place_parents(&mut self, dir: Obj) -> Done {
        let Some(slot) = self.home(dir).filter(|_| dir != ROOT) else {
            return Ok(());
        };
        self.place_parents(slot.dir)?;
        match self.born(dir) {
            Born::Real(_) => self.unpark(dir),
            Born::Made(_) | Born::Unseen => self.place_directory(dir, slot),
        }
    }

    /// A new directory into which something real is moved.
    fn place_directory(&mut self, dir: Obj, slot: Slot) -> Done {
        if !self.placed.insert(dir) {
            return Ok(());
        }
        let Some(fin) = self.final_path(slot) else {
            return Ok(());
        };
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

    /// What of before the session stands under a name at present.
    fn occupant_at(&self, slot: Slot, now: &[u8]) -> Option<Obj> {
        let initial = self.view.loaded.model.entry(slot).initial;
        initial.filter(|_| self.was_at(slot).as_deref() == Some(now))
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
        let goes = match self.occupant_at(slot, &now) {
            // It was to move away, and may not.
            Some(other) if self.is_moved(other) && self.origin(other) == Some(slot) => false,
            Some(other) => self.may_go(other, fin, &now, &real)?,
            None => {
                self.is_placed(&now, &real)
                    || self.refuse(fin, Reason::AppearedMeanwhile, Some(real))?
            }
        };
        Ok(goes.then_some(Some(real)))
    }

    /// It waits in the session, or beside where it stands, until its place is ready.
    fn park(&mut self, moving: &Moving) -> Done<Option<Loc>> {
        let position = self.position(&moving.now);
        let Some(hold) = self.ground.loc(&position) else {
            return Ok(None);
        };
        let near = self.ground.nearest(&moving.now)?;
        let target = self.next_archive();
        let aside = match near {
            Some((_, dir)) if dir.movable => [b"\0", target.rel()].concat(),
            _ => self.temporary_path(&self.still_place(moving))?,
        };
        let Some(target) = self.ground.loc(&aside) else {
            return Ok(None);
        };
        self.moves.push((position, aside));
        self.vacated.insert(moving.now.clone());
        let put = Put {
            target: target.clone(),
            old: None,
            new: None,
            hold: hold.clone(),
            archive: None,
            copied: false,
        };
        self.push_move(put, hold, moving.node);
        Ok(Some(target))
    }

    /// A path beside or above where something stands whose directory stays.
    fn still_place(&self, moving: &Moving) -> Vec<u8> {
        let mut place = moving.now.clone();
        let mut at = self.origin(moving.obj).map_or(ROOT, |slot| slot.dir);
        while at != ROOT {
            let Some(slot) = self.origin(at) else { break };
            if !self.homes.contains_key(&at) || self.is_moved(at) {
                place = self.now(at).unwrap_or_default();
            }
            at = slot.dir;
        }
        place
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

    /// Moves it from where it stands after the moves planned so far, or waits.
    fn put_moved(&mut self, moving: Moving, hold: Option<Loc>, old: Option<Node>) -> Done {
        let there = self.now_of(moving.slot);
        let Some(mut put) = self.place_for(&moving.fin, there.as_deref(), old)? else {
            return Ok(());
        };
        if put.copied && old.is_some() {
            // What is exchanged would be left where it must not be removed from.
            self.main.push(Step::Put(put.clone()));
            put.old = None;
            put.archive = None;
        }
        let Some(hold) = hold else { return Ok(()) };
        self.push_move(put, hold, moving.node);
        let position = self.position(&moving.now);
        self.vacated.insert(moving.now);
        self.moves.push((position, moving.fin));
        Ok(())
    }
}

fn depth(path: &[u8]) -> usize {
    path.iter().filter(|byte| **byte == b'/').count()
}
