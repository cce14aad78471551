//! What is new: where it is put, and what stands there.

use super::*;
use crate::replay::source::Bytes;

impl Lower<'_> {
    /// Another name of a file that is there, or of one that is made.
    pub(super) fn link(&mut self, obj: Obj, slot: Slot, fin: &[u8], now: Option<&[u8]>) -> Done {
        let source = match self.sources.get(&obj) {
            Some(source) => Some(source.clone()),
            None => self.now(obj).and_then(|path| self.ground.loc(&path)),
        };
        let Some(source) = source else {
            return self.refuse(fin, Reason::GoneMeanwhile, None).map(drop);
        };
        let original = self
            .ground
            .root_of(&source)
            .and_then(|(root, rel)| root.find(rel).ok().flatten());
        let Some((old, real)) = self.standing_at(slot, fin, now)? else {
            return Ok(());
        };
        if let (Some(real), Some(original)) = (&real, &original)
            && (real.ino, real.dev) == (original.ino, original.dev)
        {
            return Ok(());
        }
        if let (Some(real), false) = (real, old)
            && !self.refuse(fin, Reason::AppearedMeanwhile, Some(real))?
        {
            return Ok(());
        }
        let nominal = || self.nominal(obj, &self.view.meta(&self.ground, obj), 0);
        let node = original.unwrap_or_else(nominal);
        let Some(put) = self.place_for(fin, now, real)? else {
            return Ok(());
        };
        self.push_make(&put.hold, Made::Link(source), None);
        self.push_new(put, Source::Made, node, false);
        Ok(())
    }

    pub(super) fn push_make(&mut self, at: &Loc, made: Made, meta: Option<Meta>) {
        let at = at.clone();
        self.main.push(Step::Make(Make { at, made, meta }));
    }

    fn push_new(&mut self, put: Put, source: Source, node: Node, tree: bool) {
        let new = Some(New { source, node, tree });
        self.main.push(Step::Put(Put { new, ..put }));
    }

    /// What stands where something new is to be put, and whether it is what the session met there or has put there.
    /// `None`: a conflict.
    fn standing_at(
        &mut self,
        slot: Slot,
        fin: &[u8],
        now: Option<&[u8]>,
    ) -> Done<Option<(bool, Option<Node>)>> {
        let Some(now) = now.filter(|now| !self.vacated.contains(*now)) else {
            return Ok(Some((false, None)));
        };
        let real = match self.ground.find(now) {
            Ok(found) => found,
            Err(reason) => {
                self.refuse(fin, reason, None)?;
                return Ok(None);
            }
        };
        let Some(real) = real else {
            if self.ground.dir(parent(now))?.is_none() {
                let parent = self.shown_parent(now);
                self.refuse(fin, Reason::ParentGone { parent }, None)?;
                return Ok(None);
            }
            return Ok(Some((false, None)));
        };
        let initial = self.view.loaded.model.entry(slot).initial;
        let merged = real.is_dir() && self.standing.is_merged(&self.ground.shown(now));
        let initial = initial.filter(|_| !merged && self.was_at(slot).as_deref() == Some(now));
        if let Some(initial) = initial {
            let may = self.may_go(initial, fin, now, &real)?;
            return Ok(may.then_some((true, Some(real))));
        }
        Ok(Some((self.is_placed(now, &real), Some(real))))
    }

    /// Something the session made.
    pub(super) fn new_object(
        &mut self,
        obj: Obj,
        slot: Slot,
        fin: &[u8],
        now: Option<&[u8]>,
    ) -> Done {
        if self.shallow.contains(&obj) {
            return self.walk(obj, fin, None);
        }
        let initial = self.view.loaded.model.entry(slot).initial;
        let Some((old, real)) = self.standing_at(slot, fin, now)? else {
            return Ok(());
        };
        let (Some(real), Some(now)) = (real, now) else {
            return self.put_new(obj, fin, now, None);
        };
        let merged = real.is_dir() && self.standing.is_merged(&self.ground.shown(now));
        let replaces = initial.is_some() && !merged && self.was_at(slot).as_deref() == Some(now);
        let settled = self.is_settled(obj) && !self.ground.is_foreign(now, &real, None);
        if !replaces && self.is_equal(obj, now, &real)? {
            return self.already(obj, fin, now, real);
        }
        let met = old || settled;
        if !met && !self.refuse(fin, Reason::AppearedMeanwhile, Some(real))? {
            return Ok(());
        }
        self.put_new(obj, fin, Some(now), Some(real))
    }

    /// Whether only the comparison at the end of the run has shown the object, which may have been there before.
    fn is_settled(&self, obj: Obj) -> bool {
        match self.born(obj) {
            Born::Made(at) => {
                matches!(self.view.loaded.effects[at as usize].op, Op::Settle { .. })
            }
            _ => true,
        }
    }

    /// Whether what stands there is what the session made, attributes aside.
    fn is_equal(&self, obj: Obj, now: &[u8], real: &Node) -> Done<bool> {
        if self.view.kind(obj) != real.kind {
            return Ok(false);
        }
        let Some(loc) = self.ground.loc(now) else {
            return Ok(false);
        };
        let failed = || NetError::io(self.ground.shown(now));
        Ok(match real.kind {
            FileType::Directory | FileType::Fifo | FileType::Socket => true,
            FileType::Symlink => {
                let Some((root, rel)) = self.ground.root_of(&loc) else {
                    return Ok(false);
                };
                let target = root
                    .spot(rel)
                    .and_then(|spot| sys::readlink(spot.dir(), &spot.leaf));
                let target = target.map_err(failed())?;
                self.link_target(obj).is_some_and(|wanted| wanted == target)
            }
            FileType::Regular => match self.view.bytes(&self.ground, obj) {
                Ok(None) => real.size == 0,
                Ok(Some(bytes)) if bytes.len != real.size => false,
                Ok(Some(bytes)) => holds(&self.ground, &loc, Some(&bytes)).map_err(failed())?,
                // Its content is in place already, and only there.
                Err(_) => self.ground.is_own(now, real),
            },
            FileType::Character | FileType::Block => self.device(obj).1 == real.rdev,
        })
    }

    /// It is there; only attributes may differ.
    fn already(&mut self, obj: Obj, fin: &[u8], now: &[u8], real: Node) -> Done {
        if let (Some(loc), Some(target)) = (self.ground.loc(now), self.ground.loc(fin)) {
            let before = self.meta_at(&loc, &real);
            let mut after = self.view.changed(&self.ground, obj, &before, &real);
            let own = self.ground.is_own(now, &real);
            if own && !self.view.is_exact(&self.ground, obj) {
                after.forgive_set_id(&before);
            }
            if after.mtime == before.mtime || !own {
                after.mtime = None;
            }
            if real.kind == FileType::Symlink {
                after.mode = before.mode;
            }
            let differs = !is_alike(&before, &after) || after.mtime.is_some();
            if differs {
                if !own && !self.refuse(fin, Reason::AppearedMeanwhile, Some(real))? {
                    return Ok(());
                }
                let node = real;
                let (made_by, aid) = (None, false);
                self.metas.push(SetMeta {
                    target,
                    node,
                    before,
                    after,
                    made_by,
                    aid,
                });
            }
            if !real.is_dir() {
                self.sources.insert(obj, loc);
            }
        }
        if real.is_dir() {
            self.walk(obj, fin, Some(now))
        } else {
            Ok(())
        }
    }

    /// Puts something new in place, with all that is in it.
    pub(super) fn put_new(
        &mut self,
        obj: Obj,
        fin: &[u8],
        now: Option<&[u8]>,
        old: Option<Node>,
    ) -> Done {
        let meta = self.view.meta(&self.ground, obj);
        if self.view.kind(obj) == FileType::Regular {
            let bytes = self.view.bytes(&self.ground, obj)?;
            return self.put_file(obj, fin, now, old, meta, bytes);
        }
        let Some(put) = self.place_for(fin, now, old)? else {
            return Ok(());
        };
        let mut node = self.nominal(obj, &meta, 0);
        let tree = node.is_dir();
        self.make(obj, &put.hold, meta.clone())?;
        if tree {
            let mut top = meta.clone();
            if sys::euid() != 0 {
                // Moving it changes its `..`, and its owner must be able to.
                top.mode |= 0o700;
            }
            self.push_make(&put.hold, Made::Attributes, Some(top.clone()));
            node.mode = top.mode;
            if top != meta {
                self.metas.push(SetMeta {
                    target: put.target.clone(),
                    node,
                    before: top,
                    after: meta,
                    made_by: u32::try_from(self.main.len()).ok(),
                    aid: false,
                });
            }
        } else if node.kind == FileType::Symlink {
            node.size = self
                .link_target(obj)
                .map_or(0, |target| target.len() as u64);
        } else {
            node.rdev = self.device(obj).1;
        }
        self.push_new(put, Source::Made, node, tree);
        Ok(())
    }

    /// Puts a regular file in place.
    pub(super) fn put_file(
        &mut self,
        obj: Obj,
        fin: &[u8],
        now: Option<&[u8]>,
        old: Option<Node>,
        meta: Meta,
        bytes: Option<Bytes>,
    ) -> Done {
        let Some(put) = self.place_for(fin, now, old)? else {
            return Ok(());
        };
        let size = bytes.as_ref().map_or(0, |bytes| bytes.len);
        let node = Node {
            kind: FileType::Regular,
            ..self.nominal(obj, &meta, size)
        };
        self.make_file(obj, &put.hold, meta, bytes);
        let source = match self.born(obj) {
            Born::Real(_) if old.is_some() => Source::Changed,
            _ => Source::Made,
        };
        self.push_new(put, source, node, false);
        Ok(())
    }

    /// Removes what stands there.
    pub(super) fn remove(&mut self, fin: &[u8], now: &[u8], real: Node) -> Done {
        if let Some(put) = self.place_for(fin, Some(now), Some(real))? {
            self.main.push(Step::Put(put));
        }
        Ok(())
    }

    /// A step for this path, without anything new yet: where things are held and kept. `None` when it is forbidden.
    pub(super) fn place_for(
        &mut self,
        fin: &[u8],
        now: Option<&[u8]>,
        old: Option<Node>,
    ) -> Done<Option<Put>> {
        let Some(target) = self.ground.loc(fin) else {
            return Ok(None);
        };
        if target.rel().is_empty() {
            let (errno, at) = (libc::EBUSY, self.ground.shown(fin));
            self.refuse(fin, Reason::Forbidden { errno, at }, old)?;
            return Ok(None);
        }
        if let Some(now) = now
            && !self.may_work_in(fin, parent(now), old.as_ref())?
        {
            return Ok(None);
        }
        let Some((_, near)) = self.ground.nearest(now.unwrap_or(fin))? else {
            let parent = self.shown_parent(fin);
            self.refuse(fin, Reason::ParentGone { parent }, None)?;
            return Ok(None);
        };
        let archive = self.next_archive();
        let copied = !near.movable;
        let hold = match copied {
            true => self.temporary(now.unwrap_or(fin))?,
            false => archive.clone(),
        };
        Ok(Some(Put {
            target,
            old,
            new: None,
            hold,
            archive: old.map(|_| archive),
            copied,
        }))
    }

    /// A name that nobody else uses, in the nearest directory that stands and stays where it is.
    pub(super) fn temporary_path(&mut self, path: &[u8]) -> Done<Vec<u8>> {
        let id = &self.view.session.record.id;
        let name = format!(".effigy-{id}-{}-{}", self.number, self.kept);
        let mut at = parent(path).to_vec();
        loop {
            let moves = self.moves.iter().any(|(from, _)| is_below(&at, from));
            let usable = |dir: super::super::ground::Dir| dir.refusal.is_none();
            if !moves && self.ground.dir(&at)?.is_some_and(usable) || at.is_empty() {
                break;
            }
            at.truncate(parent(&at).len());
        }
        Ok(join(&at, name.as_bytes()))
    }

    fn temporary(&mut self, path: &[u8]) -> Done<Loc> {
        let path = self.temporary_path(path)?;
        let loc = self.ground.loc(&path);
        Ok(loc.unwrap_or(Loc::Target(0, path)))
    }

    /// Whether something can be made, replaced or removed in this directory. One that its owner has locked is opened.
    pub(super) fn may_work_in(&mut self, fin: &[u8], dir: &[u8], old: Option<&Node>) -> Done<bool> {
        let Some(found) = self.ground.dir(dir)? else {
            return Ok(true);
        };
        let errno = match found.refusal {
            Some(libc::EACCES) if found.node.uid == sys::euid() => {
                self.open_directory(dir, found.node);
                None
            }
            Some(errno) => Some(errno),
            None => old.and_then(|old| self.ground.is_held(old, &found)),
        };
        if let Some(errno) = errno {
            let at = self.ground.shown(dir);
            self.refuse(fin, Reason::Forbidden { errno, at }, old.copied())?;
        }
        Ok(errno.is_none())
    }

    /// Plans to give a directory's owner the right to work in it, and to take it away again at the end.
    fn open_directory(&mut self, dir: &[u8], node: Node) {
        let Some(target) = self.ground.loc(dir) else {
            return;
        };
        if !self.opened.insert(dir.to_vec()) {
            return;
        }
        let before = self.meta_at(&target, &node);
        let mut open = before.clone();
        open.mode |= 0o700;
        let aid = |target, before, after| SetMeta {
            target,
            node,
            before,
            after,
            made_by: None,
            aid: true,
        };
        let opening = aid(target.clone(), before.clone(), open.clone());
        self.first.push(Step::Meta(opening));
        self.closing.push((dir.to_vec(), aid(target, open, before)));
    }
}
