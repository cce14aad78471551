//! What the chosen effects, and those they rest on, come to.

use super::load::{Effect, Loaded};
use super::model::{Act, At, Born, Obj, Slot};
use crate::conflict::{Conflict, Reason};
use crate::selection::Choice;
use effigy_journal::{Kind, Op, PathId, Seq, TimeChange, Timestamp};
use std::collections::{BTreeMap, HashMap};

/// Extended attributes that were set or, without a value, removed.
pub(super) type Xattrs = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// When a file was last changed, as the chosen effects have it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Modified {
    #[default]
    Untouched,
    /// When it got the content of this effect.
    With(At),
    Set(Timestamp),
}

/// What the chosen effects made of an object.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    /// The effect that gave it its content.
    pub(super) content: Option<At>,
    pub(super) mode: Option<u32>,
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    pub(super) modified: Modified,
    pub(super) xattrs: Option<Box<Xattrs>>,
    /// How many effects of the object were chosen.
    pub(super) effects: u32,
}

/// An effect that was added to the chosen ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Added {
    pub(super) at: At,
    pub(super) because_of: At,
}

/// The outcome.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    /// Names the chosen effects have touched.
    entries: HashMap<Slot, Option<Obj>>,
    pub(super) states: HashMap<Obj, State>,
    pub(super) added: Vec<Added>,
    /// Removals of directories that are left out because something excluded stays in them.
    pub(super) dropped: Vec<At>,
    pub(super) conflicts: Vec<Conflict>,
    /// Whether anything was chosen at all.
    pub(super) any: bool,
}

impl Wanted {
    /// What a name stands for in the end.
    pub(super) fn occupant(&self, loaded: &Loaded, slot: Slot) -> Option<Obj> {
        match self.entries.get(&slot) {
            Some(now) => *now,
            None => loaded.model.entry(slot).initial,
        }
    }

    pub(super) fn is_touched(&self, slot: Slot) -> bool {
        self.entries.contains_key(&slot)
    }

    /// Whether everything that the session did to this object was chosen.
    pub(super) fn is_complete(&self, loaded: &Loaded, obj: Obj) -> bool {
        let chosen = self.states.get(&obj).map_or(0, |state| state.effects);
        chosen == loaded.model.object(obj).effects
    }
}

/// Executes the chosen effects, and those they need, in their order.
pub(super) fn execute(loaded: &Loaded) -> Wanted {
    let mut run = Run {
        loaded,
        chosen: loaded
            .choices
            .iter()
            .map(|choice| *choice == Choice::Chosen)
            .collect(),
        dropped: vec![false; loaded.facts.len()],
        added: Vec::new(),
    };
    // Each round adds or drops at least one effect; few are ever needed.
    loop {
        run.complete();
        let mut wanted = Wanted::default();
        if run.round(&mut wanted) {
            wanted.added = run.added;
            wanted.added.sort_by_key(|added| added.at);
            return wanted;
        }
    }
}

struct Run<'a> {
    loaded: &'a Loaded,
    chosen: Vec<bool>,
    dropped: Vec<bool>,
    added: Vec<Added>,
}

impl Run<'_> {
    /// Adds what the chosen effects need; all of that is earlier.
    fn complete(&mut self) {
        for index in (0..self.chosen.len()).rev() {
            if self.chosen[index] {
                for &need in &self.loaded.facts[index].needs {
                    self.add(need, at(index));
                }
            }
        }
    }

    fn add(&mut self, need: At, because_of: At) -> bool {
        let index = need as usize;
        if self.chosen[index] || self.dropped[index] {
            return false;
        }
        self.chosen[index] = true;
        self.added.push(Added {
            at: need,
            because_of,
        });
        true
    }

    /// Executes; `false` when something was found missing and was added.
    fn round(&mut self, wanted: &mut Wanted) -> bool {
        let mut whole = true;
        for index in 0..self.chosen.len() {
            if !self.chosen[index] {
                continue;
            }
            wanted.any = true;
            let fact = &self.loaded.facts[index];
            match fact.act {
                Act::Bind { to, .. } | Act::Move { to, over: None, .. } => {
                    if wanted.occupant(self.loaded, to).is_some() {
                        whole &= self.make_room(index, fact.room, wanted);
                    }
                }
                // What it replaced may not be what stands there without the other effects.
                Act::Move {
                    to,
                    over: Some(obj),
                    ..
                } => match wanted.occupant(self.loaded, to) {
                    Some(other) if other != obj => {
                        whole &= self.make_room(index, fact.room, wanted);
                    }
                    Some(_) => whole &= self.empty(index, obj, wanted),
                    None => {}
                },
                Act::Unbind { obj, .. } => whole &= self.empty(index, obj, wanted),
                Act::Swap { .. } | Act::Set { .. } | Act::Nothing => {}
            }
            if self.chosen[index] {
                act(self.loaded, at(index), wanted);
            }
        }
        let dropped = self
            .dropped
            .iter()
            .enumerate()
            .filter(|(_, dropped)| **dropped);
        wanted.dropped = dropped.map(|(index, _)| at(index)).collect();
        whole
    }

    /// Something stands where the effect wants to put something.
    fn make_room(&mut self, index: usize, room: Option<At>, wanted: &mut Wanted) -> bool {
        let Some(room) = room else { return true };
        if self.chosen[room as usize] {
            return true;
        }
        let refused =
            self.dropped[room as usize] || self.loaded.choices[room as usize] == Choice::Excluded;
        if refused {
            wanted.conflicts.push(Conflict {
                path: self.path(index),
                reason: Reason::ExcludedBelow {
                    path: self.path(room as usize),
                },
                wanted: None,
                found: None,
            });
            return true;
        }
        !self.add(room, at(index))
    }

    /// Whether the directory that goes is empty; what is still in it has to go too.
    fn empty(&mut self, index: usize, obj: Obj, wanted: &Wanted) -> bool {
        let model = &self.loaded.model;
        let mut whole = true;
        for &name in &model.object(obj).kids {
            let slot = Slot { dir: obj, name };
            if wanted.occupant(self.loaded, slot).is_none() {
                continue;
            }
            let Some(gone) = model.entry(slot).vacated_by else {
                continue;
            };
            let stays = self.dropped[gone as usize]
                || self.loaded.choices[gone as usize] == Choice::Excluded;
            if stays {
                self.chosen[index] = false;
                self.dropped[index] = true;
                return false;
            }
            whole &= !self.add(gone, at(index));
        }
        whole
    }

    fn path(&self, index: usize) -> std::path::PathBuf {
        let id = subject(&self.loaded.effects[index].op);
        id.map(|id| self.loaded.reader.paths().path(id))
            .unwrap_or_default()
    }
}

/// The path that an effect is told by: of a rename or link the new name.
pub(crate) fn subject(op: &Op) -> Option<PathId> {
    op.to().or(op.path())
}

/// An effect as it is named to the user.
pub(super) fn told(effect: &Effect) -> (Seq, &'static str) {
    (effect.seq, effect.op.name())
}

fn at(index: usize) -> At {
    u32::try_from(index).unwrap_or(At::MAX)
}

fn act(loaded: &Loaded, at: At, wanted: &mut Wanted) {
    match loaded.facts[at as usize].act {
        Act::Bind { to, obj } => {
            let made = loaded.model.object(obj).born == Born::Made(at);
            wanted.entries.insert(to, Some(obj));
            let state = wanted.states.entry(obj).or_default();
            state.effects += 1;
            if made {
                set(loaded, at, obj, state);
            }
        }
        Act::Unbind { from, .. } => {
            wanted.entries.insert(from, None);
        }
        Act::Move { from, to, obj, .. } => {
            wanted.entries.insert(from, None);
            wanted.entries.insert(to, Some(obj));
        }
        Act::Swap { one, other, x, y } => {
            wanted.entries.insert(one, Some(y));
            wanted.entries.insert(other, Some(x));
        }
        Act::Set { obj } => {
            let state = wanted.states.entry(obj).or_default();
            state.effects += 1;
            set(loaded, at, obj, state);
        }
        Act::Nothing => {}
    }
}

fn set(loaded: &Loaded, at: At, obj: Obj, state: &mut State) {
    match &loaded.effects[at as usize].op {
        Op::Open { mode, created, .. } => {
            state.content = Some(at);
            state.modified = Modified::With(at);
            if *created {
                state.mode = Some(mode & 0o7777);
            }
        }
        Op::Truncate { .. } => {
            state.content = Some(at);
            state.modified = Modified::With(at);
        }
        Op::Mkdir { mode, .. } | Op::Mknod { mode, .. } | Op::Bind { mode, .. } => {
            state.content = Some(at);
            state.modified = Modified::With(at);
            state.mode = Some(mode & 0o7777);
        }
        Op::Symlink { .. } => {
            state.content = Some(at);
            state.modified = Modified::With(at);
        }
        Op::Chmod { mode, .. } => state.mode = Some(mode & 0o7777),
        Op::Chown { uid, gid, .. } => {
            state.uid = uid.or(state.uid);
            state.gid = gid.or(state.gid);
            if loaded.model.object(obj).kind != Some(Kind::Directory)
                && let Some(mode) = &mut state.mode
            {
                // As chown(2) does.
                *mode &= !0o4000;
                if *mode & 0o10 != 0 {
                    *mode &= !0o2000;
                }
            }
        }
        Op::Utimens { mtime, .. } => match mtime {
            TimeChange::Omit => {}
            TimeChange::Now(time) | TimeChange::Set(time) => state.modified = Modified::Set(*time),
        },
        Op::Setxattr { name, value, .. } => {
            let xattrs = state.xattrs.get_or_insert_default();
            xattrs.insert(name.0.clone(), Some(value.0.clone()));
        }
        Op::Removexattr { name, .. } => {
            state
                .xattrs
                .get_or_insert_default()
                .insert(name.0.clone(), None);
        }
        Op::Settle {
            state: Some(stat),
            version,
            ..
        } => {
            state.mode = Some(stat.mode & 0o7777);
            state.uid = Some(stat.uid);
            state.gid = Some(stat.gid);
            if version.is_some()
                || state.content.is_none() && loaded.model.object(obj).born == Born::Made(at)
            {
                state.content = Some(at);
            }
            state.modified = Modified::Set(stat.mtime);
        }
        _ => {}
    }
}
