//! Names and objects as the effects of a journal change them, one after the other.
//!
//! An object is known by who made it: the event that did, or the name it had before the session. So a directory that
//! is renamed takes along what is below it, and names of one file stay names of one file.

use effigy_journal::{Kind, Op, PathId, Paths, Stat, VersionId};
use std::collections::HashMap;

mod take;

/// An object, by number.
pub(crate) type Obj = u32;
/// An effect, by its place among the effects.
pub(crate) type At = u32;

/// The root directory.
pub(crate) const ROOT: Obj = 0;

/// A name in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Slot {
    pub(crate) dir: Obj,
    pub(crate) name: u32,
}

/// Where an object comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Born {
    /// It was there before the session, under this name.
    Real(Slot),
    /// An event made it.
    Made(At),
    /// It is in a directory of the session, and no event speaks of its making.
    Unseen,
}

#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) born: Born,
    pub(crate) kind: Option<Kind>,
    /// What it was before the session, when that was recorded under its own name.
    pub(crate) before: Option<Stat>,
    /// The names it has now.
    pub(crate) names: Vec<Slot>,
    /// The names it had before the session, of those that have been spoken of.
    pub(crate) originals: Vec<Slot>,
    /// Names that have been spoken of in this directory.
    pub(crate) kids: Vec<u32>,
    /// Effects that gave it content or attributes, and its making.
    pub(crate) effects: u32,
    /// The event that gave it the name it has (a directory has one).
    placed_by: Option<At>,
    pub(crate) version: Option<VersionId>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Entry {
    /// What it was the name of before the session.
    pub(crate) initial: Option<Obj>,
    pub(crate) now: Option<Obj>,
    bound_by: Option<At>,
    pub(crate) vacated_by: Option<At>,
}

/// What an effect does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Bind {
        to: Slot,
        obj: Obj,
    },
    Unbind {
        from: Slot,
        obj: Obj,
    },
    Move {
        from: Slot,
        to: Slot,
        obj: Obj,
        over: Option<Obj>,
    },
    Swap {
        one: Slot,
        other: Slot,
        x: Obj,
        y: Obj,
    },
    Set {
        obj: Obj,
    },
    Nothing,
}

/// What an effect does, and what it rests on.
#[derive(Clone, Debug)]
pub(crate) struct Fact {
    pub(crate) act: Act,
    /// The effects it cannot do without.
    pub(crate) needs: Vec<At>,
    /// The effect that made room for it, should something be in the way.
    pub(crate) room: Option<At>,
}

/// What has a path when all has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Last<'p> {
    Object(Slot, Obj),
    /// The journal speaks of this directory, but not of this path in it.
    Below(Obj, &'p [u8]),
    Nothing,
}

/// All names and objects the journal speaks of.
pub(crate) struct Model {
    pub(crate) objects: Vec<Object>,
    entries: HashMap<Slot, Entry>,
    names: Vec<Box<[u8]>>,
    numbers: HashMap<Box<[u8]>, u32>,
    /// By path: the number of its name, and the directory it is as of an epoch.
    paths: Vec<(u32, u32, Obj)>,
    epoch: u32,
    /// Files that had several names before the session, by device and inode.
    linked: HashMap<(u64, u64), Obj>,
    /// What the session met under names that were there.
    before: HashMap<Slot, Stat>,
    /// Objects by the version they were given last.
    holders: HashMap<VersionId, Obj>,
}

const UNKNOWN: u32 = u32::MAX;

impl Model {
    pub(crate) fn new() -> Self {
        let mut model = Self {
            objects: Vec::new(),
            entries: HashMap::new(),
            names: Vec::new(),
            numbers: HashMap::new(),
            paths: Vec::new(),
            epoch: 1,
            linked: HashMap::new(),
            before: HashMap::new(),
            holders: HashMap::new(),
        };
        let slot = Slot {
            dir: ROOT,
            name: UNKNOWN,
        };
        model.add(Born::Real(slot), Some(Kind::Directory));
        model
    }

    fn add(&mut self, born: Born, kind: Option<Kind>) -> Obj {
        let obj = u32::try_from(self.objects.len()).unwrap_or(UNKNOWN);
        self.objects.push(Object {
            born,
            kind,
            before: None,
            names: Vec::new(),
            originals: Vec::new(),
            kids: Vec::new(),
            effects: 0,
            placed_by: None,
            version: None,
        });
        obj
    }

    pub(crate) fn object(&self, obj: Obj) -> &Object {
        &self.objects[obj as usize]
    }

    fn object_mut(&mut self, obj: Obj) -> &mut Object {
        &mut self.objects[obj as usize]
    }

    pub(crate) fn name(&self, slot: Slot) -> &[u8] {
        self.names.get(slot.name as usize).map_or(b"", |name| name)
    }

    /// The entry of this name in a directory, if the journal speaks of it.
    pub(crate) fn slot_of(&self, dir: Obj, name: &[u8]) -> Option<Slot> {
        let slot = Slot {
            dir,
            name: *self.numbers.get(name)?,
        };
        self.entries.contains_key(&slot).then_some(slot)
    }

    pub(crate) fn entry(&self, slot: Slot) -> Entry {
        self.entries.get(&slot).copied().unwrap_or_default()
    }

    /// What the session met at a path that it had before.
    pub(crate) fn met_at(&self, path: &[u8]) -> Option<&Stat> {
        let mut dir = ROOT;
        let names = path.split(|byte| *byte == b'/');
        let mut names = names.filter(|name| !name.is_empty()).peekable();
        while let Some(name) = names.next() {
            let name = *self.numbers.get(name)?;
            let slot = Slot { dir, name };
            if names.peek().is_none() {
                return self.before.get(&slot);
            }
            dir = self.entry(slot).initial?;
        }
        None
    }

    /// What has a path when all has happened.
    pub(crate) fn last<'p>(&self, path: &'p [u8]) -> Last<'p> {
        let mut last = Last::Below(ROOT, b"");
        let mut dir = ROOT;
        let mut rest = path;
        while let Some(begin) = rest.iter().position(|byte| *byte != b'/') {
            rest = &rest[begin..];
            let end = rest.iter().position(|byte| *byte == b'/');
            let name = &rest[..end.unwrap_or(rest.len())];
            let Some(slot) = self.slot_of(dir, name) else {
                return Last::Below(dir, rest);
            };
            let Some(obj) = self.entry(slot).now else {
                return Last::Nothing;
            };
            last = Last::Object(slot, obj);
            dir = obj;
            rest = &rest[name.len()..];
        }
        last
    }

    /// The path of a directory before the session, if it was there.
    pub(crate) fn former_directory(&self, dir: Obj) -> Option<Vec<u8>> {
        self.path_by(dir, |model, obj| match model.object(obj).born {
            Born::Real(slot) => Some(slot),
            _ => None,
        })
    }

    /// The object that holds a version at the end.
    pub(crate) fn holder(&self, version: VersionId) -> Option<Obj> {
        let obj = *self.holders.get(&version)?;
        (self.object(obj).version == Some(version)).then_some(obj)
    }

    /// The path of a name when all has happened.
    pub(crate) fn path_of(&self, slot: Slot) -> Option<Vec<u8>> {
        let mut path = self.path_by(slot.dir, |model, obj| {
            model.object(obj).names.first().copied()
        })?;
        path.push(b'/');
        path.extend_from_slice(self.name(slot));
        Some(path)
    }

    /// A path that an object has when all has happened.
    pub(crate) fn last_path(&self, obj: Obj) -> Option<Vec<u8>> {
        self.path_by(obj, |model, obj| model.object(obj).names.first().copied())
    }

    /// The path that a name had before the session, when its directory was there.
    pub(crate) fn first_path(&self, slot: Slot) -> Option<Vec<u8>> {
        let mut path = self.former_directory(slot.dir)?;
        path.push(b'/');
        path.extend_from_slice(self.name(slot));
        Some(path)
    }

    fn path_by(&self, obj: Obj, slot: impl Fn(&Self, Obj) -> Option<Slot>) -> Option<Vec<u8>> {
        let mut names = Vec::new();
        let mut at = obj;
        while at != ROOT {
            let slot = slot(self, at)?;
            names.push(self.name(slot));
            at = slot.dir;
            if names.len() > 4096 {
                return None;
            }
        }
        let mut path = Vec::new();
        for name in names.into_iter().rev() {
            path.push(b'/');
            path.extend_from_slice(name);
        }
        Some(path)
    }

    fn number(&mut self, id: PathId, paths: &Paths) -> u32 {
        let at = id.0 as usize;
        if self.paths.len() <= at {
            self.paths
                .resize(paths.len().max(at + 1), (UNKNOWN, 0, ROOT));
        }
        if self.paths[at].0 == UNKNOWN {
            let name = paths.name(id);
            let number = match self.numbers.get(name) {
                Some(number) => *number,
                None => {
                    let number = u32::try_from(self.names.len()).unwrap_or(UNKNOWN);
                    self.names.push(name.into());
                    self.numbers.insert(name.into(), number);
                    number
                }
            };
            self.paths[at].0 = number;
        }
        self.paths[at].0
    }

    /// The directory of this path.
    fn directory(&mut self, id: PathId, paths: &Paths) -> Obj {
        let Some(parent) = paths.parent(id) else {
            return ROOT;
        };
        let name = self.number(id, paths);
        let (_, epoch, obj) = self.paths[id.0 as usize];
        if epoch == self.epoch {
            return obj;
        }
        let dir = self.directory(parent, paths);
        let obj = self.occupant_as(Slot { dir, name }, None);
        self.object_mut(obj).kind.get_or_insert(Kind::Directory);
        self.paths[id.0 as usize] = (name, self.epoch, obj);
        obj
    }

    fn slot(&mut self, id: PathId, paths: &Paths) -> Slot {
        let name = self.number(id, paths);
        let dir = paths
            .parent(id)
            .map_or(ROOT, |parent| self.directory(parent, paths));
        Slot { dir, name }
    }

    /// The entry, known from now on.
    fn known(&mut self, slot: Slot) -> (&mut Entry, bool) {
        let mut fresh = false;
        let objects = &mut self.objects;
        let entry = self.entries.entry(slot).or_insert_with(|| {
            fresh = true;
            objects[slot.dir as usize].kids.push(slot.name);
            Entry::default()
        });
        (entry, fresh)
    }

    /// What the name stands for: something that was there before the session if the journal has not spoken of it.
    fn occupant(&mut self, slot: Slot) -> Obj {
        let before = self.before.get(&slot).copied();
        self.occupant_as(slot, before)
    }

    fn occupant_as(&mut self, slot: Slot, before: Option<Stat>) -> Obj {
        let (entry, fresh) = self.known(slot);
        if let Some(obj) = entry.now {
            return obj;
        }
        let real = fresh && matches!(self.object(slot.dir).born, Born::Real(_));
        let stat = before.filter(|stat| real && stat.kind != Kind::Directory);
        // The last name that is met may be the last that is left.
        let known = stat.and_then(|stat| self.linked.get(&(stat.dev, stat.ino)).copied());
        let linked = stat
            .filter(|stat| stat.nlink > 1)
            .map(|stat| (stat.dev, stat.ino));
        let obj = match known {
            Some(obj) => obj,
            None => {
                let born = if real { Born::Real(slot) } else { Born::Unseen };
                let obj = self.add(born, before.map(|stat| stat.kind));
                self.object_mut(obj).before = before.filter(|_| real);
                self.linked.extend(linked.map(|id| (id, obj)));
                obj
            }
        };
        let object = self.object_mut(obj);
        object.names.push(slot);
        if real {
            object.originals.push(slot);
        }
        let (entry, _) = self.known(slot);
        entry.now = Some(obj);
        if real {
            entry.initial = Some(obj);
        }
        obj
    }

    fn bind(&mut self, slot: Slot, obj: Obj, at: At) {
        let (entry, _) = self.known(slot);
        let old = entry.now.replace(obj);
        entry.bound_by = Some(at);
        if let Some(old) = old.filter(|old| *old != obj) {
            self.object_mut(old).names.retain(|name| *name != slot);
        }
        let object = self.object_mut(obj);
        object.names.push(slot);
        object.placed_by = Some(at);
        if object.kind.is_none_or(|kind| kind == Kind::Directory) {
            self.epoch += 1;
        }
    }

    fn vacate(&mut self, slot: Slot, obj: Obj, at: At) {
        let (entry, _) = self.known(slot);
        entry.now = None;
        entry.vacated_by = Some(at);
        entry.bound_by = None;
        let object = self.object_mut(obj);
        object.names.retain(|name| *name != slot);
        if object.kind.is_none_or(|kind| kind == Kind::Directory) {
            self.epoch += 1;
        }
    }

    /// What an effect in this directory rests on: that the directory and those above are where they are.
    fn chain(&self, dir: Obj, needs: &mut Vec<At>) {
        let mut latest = None;
        let mut at = dir;
        for _ in 0..4096 {
            if at == ROOT {
                break;
            }
            let object = self.object(at);
            // An earlier one is what the later one rests on itself.
            if object.placed_by > latest {
                latest = object.placed_by;
                needs.extend(latest);
            }
            let Some(slot) = object.names.first() else {
                break;
            };
            at = slot.dir;
        }
    }
}
