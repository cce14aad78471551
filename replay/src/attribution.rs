//! Which events a net effect is made of.
//!
//! A net effect is a path's difference between start and end. It is made of the events on the object that has the path at
//! the end (its making, its content, its attributes, its moves), of the events that took the path from the object that
//! had it before, and of the moves of directories above. A name that came and went in between is no part of it.

use crate::replay::ReplayError;
use crate::replay::load::{Loaded, load};
use crate::replay::model::{Act, At, Born, Model, Obj, ROOT, Slot};
use crate::replay::wanted::subject;
use crate::selection::{Choice, EventSelection};
use effigy_journal::{Op, Session, Tail};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

/// The net effects that chosen events are part of.
#[derive(Debug, Default)]
pub struct Touched {
    /// Their paths.
    pub paths: HashSet<PathBuf>,
    /// Those that other events are part of too, and what other events have taken away again; sorted by path.
    pub partly: Vec<Partly>,
    /// The journal ends before its end, so more events than it tells of may be part of them.
    pub incomplete: bool,
}

/// A net effect that the chosen events do not make alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partly {
    /// The path.
    pub path: PathBuf,
    /// The first of the other events, and its operation.
    pub other: (u64, &'static str),
    /// How many other events there are.
    pub others: usize,
}

/// Finds out which of these paths have net effects that chosen events are part of.
///
/// Events that settle a path at the end tell no author and no time: a path that other events are part of does not need
/// them, and is not touched by them alone.
///
/// # Errors
/// When the session has no journal, it cannot be read, or the selection chooses nothing in it.
pub fn touched<'p>(
    session: &Session,
    selection: &mut EventSelection,
    paths: impl Iterator<Item = &'p Path>,
) -> Result<Touched, ReplayError> {
    let loaded = load(session, selection)?;
    let unmatched = selection.unmatched();
    if !unmatched.is_empty() {
        return Err(crate::plan::PlanError::NoMatch(unmatched).into());
    }
    let by_object = ByObject::of(&loaded);
    let mut touched = Touched {
        incomplete: loaded.reader.tail() != Tail::Complete,
        ..Touched::default()
    };
    for path in paths {
        let mut parts = by_object.parts(&loaded.model, path);
        let settles = |at: &At| matches!(loaded.effects[*at as usize].op, Op::Settle { .. });
        if !parts.iter().all(settles) {
            parts.retain(|at| !settles(at));
        }
        let chosen = |at: &At| loaded.choices[*at as usize] == Choice::Chosen;
        if !parts.iter().any(chosen) {
            continue;
        }
        touched.paths.insert(path.to_owned());
        parts.retain(|at| !chosen(at));
        if let Some(first) = parts.first() {
            let effect = &loaded.effects[*first as usize];
            touched.partly.push(Partly {
                path: path.to_owned(),
                other: (effect.seq.0, effect.op.name()),
                others: parts.len(),
            });
        }
    }
    touched.partly.extend(lost(&loaded, &by_object));
    touched.partly.sort_by(|a, b| a.path.cmp(&b.path));
    touched.partly.dedup_by(|a, b| a.path == b.path);
    Ok(touched)
}

/// What chosen events made and others took away again: no net effect has it.
fn lost(loaded: &Loaded, by_object: &ByObject) -> Vec<Partly> {
    let mut lost = Vec::new();
    let chosen = |at: At| loaded.choices[at as usize] == Choice::Chosen;
    let mut tell = |of: At, by: At| {
        let path = subject(&loaded.effects[of as usize].op)
            .map(|id| loaded.reader.paths().path(id))
            .unwrap_or_default();
        let effect = &loaded.effects[by as usize];
        lost.push(Partly {
            path,
            other: (effect.seq.0, effect.op.name()),
            others: 1,
        });
    };
    // Names: the event that gave one, while it is there.
    let mut given: HashMap<Slot, At> = HashMap::new();
    for (at, fact) in (0..).zip(&loaded.facts) {
        let (gone, new) = match fact.act {
            Act::Bind { to, .. } => ([Some(to), None], [Some(to), None]),
            Act::Unbind { from, .. } => ([Some(from), None], [None, None]),
            Act::Move { from, to, .. } => ([Some(from), Some(to)], [Some(to), None]),
            Act::Swap { one, other, .. } => ([Some(one), Some(other)], [Some(one), Some(other)]),
            Act::Set { obj } => {
                // Changed, and then taken away under whatever name it had.
                let parts = &by_object.0[obj as usize];
                let gone = loaded.model.object(obj).names.is_empty() && obj != ROOT;
                let by = parts
                    .unbound
                    .iter()
                    .chain(&parts.moved)
                    .find(|by| !chosen(**by));
                if let Some(by) = by.filter(|_| gone && chosen(at)) {
                    tell(at, *by);
                }
                continue;
            }
            Act::Nothing => continue,
        };
        for slot in gone.into_iter().flatten() {
            if let Some(by) = given.remove(&slot).filter(|by| chosen(*by) && !chosen(at)) {
                tell(by, at);
            }
        }
        given.extend(new.into_iter().flatten().map(|slot| (slot, at)));
    }
    lost
}

/// The events on each object.
#[derive(Default)]
struct Parts {
    /// They gave it content or attributes.
    set: Vec<At>,
    /// They gave it this name: its first, or a further one.
    bound: Vec<(At, Slot)>,
    /// They took a name away.
    unbound: Vec<At>,
    /// They moved it.
    moved: Vec<At>,
}

struct ByObject(Vec<Parts>);

impl ByObject {
    fn of(loaded: &Loaded) -> Self {
        let mut parts: Vec<Parts> = Vec::new();
        parts.resize_with(loaded.model.objects.len(), Parts::default);
        for (at, fact) in (0..).zip(&loaded.facts) {
            match fact.act {
                Act::Set { obj } => parts[obj as usize].set.push(at),
                Act::Bind { obj, to } => parts[obj as usize].bound.push((at, to)),
                Act::Unbind { obj, .. } => parts[obj as usize].unbound.push(at),
                Act::Move { obj, over, .. } => {
                    parts[obj as usize].moved.push(at);
                    if let Some(over) = over {
                        parts[over as usize].unbound.push(at);
                    }
                }
                Act::Swap { x, y, .. } => {
                    parts[x as usize].moved.push(at);
                    parts[y as usize].moved.push(at);
                }
                Act::Nothing => {}
            }
        }
        Self(parts)
    }

    /// The events that the net effect of a path is made of, in order.
    fn parts(&self, model: &Model, path: &Path) -> BTreeSet<At> {
        let mut parts = BTreeSet::new();
        let (slot, last) = self.walk(model, path, &mut parts, |slot| model.entry(slot).now);
        if let Some(obj) = last {
            let object = &self.0[obj as usize];
            parts.extend(object.set.iter().chain(&object.moved));
            // Of a file with several names, those that it has elsewhere are other paths' affair.
            let others = |to: Slot| object.moved.is_empty() && Some(to) != slot;
            let is_first = |at: At| model.object(obj).born == Born::Made(at);
            let bound = object.bound.iter();
            parts.extend(
                bound
                    .filter(|(at, to)| is_first(*at) || !others(*to))
                    .map(|(at, _)| *at),
            );
        }
        let (_, first) = self.walk(model, path, &mut parts, |slot| model.entry(slot).initial);
        if let Some(obj) = first.filter(|obj| Some(*obj) != last) {
            let object = &self.0[obj as usize];
            // Wherever it went: to take its name away without that would lose it.
            let bound = object.bound.iter().map(|(at, _)| at);
            parts.extend(bound.chain(&object.unbound).chain(&object.moved));
        }
        parts
    }

    /// Goes down the path through the objects that `occupant` names, as far as the journal speaks of them; gives the name at its
    /// end and the object there.
    fn walk(
        &self,
        model: &Model,
        path: &Path,
        parts: &mut BTreeSet<At>,
        occupant: impl Fn(Slot) -> Option<Obj>,
    ) -> (Option<Slot>, Option<Obj>) {
        let (mut slot, mut obj) = (None, Some(ROOT));
        for component in path.components() {
            let Component::Normal(name) = component else {
                continue;
            };
            let Some(dir) = obj else {
                return (None, None);
            };
            // What leads to the name; of the end itself the caller decides.
            parts.extend(&self.0[dir as usize].moved);
            slot = model.slot_of(dir, name.as_bytes());
            obj = slot.and_then(&occupant);
        }
        (slot, obj)
    }
}
