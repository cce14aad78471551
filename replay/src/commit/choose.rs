//! Which items are applied: the selection, less what is in conflict.

use crate::conflict::{Advice, Conflict, Reason};
use crate::known::Known;
use crate::options::{OnConflict, Options};
use crate::plan::{Note, PlanError};
use crate::recollect::{Identity, Recollection};
use crate::scan::{Item, Scanned, What};
use crate::selection::Selection;
use effigy_journal::Session;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

/// The choice.
pub(super) struct Chosen {
    /// By item.
    pub(super) selected: Vec<bool>,
    /// Items that overwrite a conflict.
    pub(super) overwritten: Vec<bool>,
    pub(super) notes: Vec<Note>,
}

/// The absolute path of an item.
pub(crate) fn path_of(session: &Session, item: &Item) -> PathBuf {
    let cover = session.record.covers.get(item.cover as usize);
    let mount_point = cover
        .map(|cover| cover.mount_point.clone())
        .unwrap_or_default();
    if item.rel.is_empty() {
        mount_point
    } else {
        mount_point.join(OsStr::from_bytes(&item.rel))
    }
}

/// Whether an item is an effect that a user sees.
pub(crate) fn is_effect(item: &Item) -> bool {
    !matches!(item.what, What::Linked | What::Merged)
}

/// Chooses, and finds all conflicts at once.
pub(super) fn choose(
    session: &Session,
    scanned: &Scanned,
    selection: &Selection,
    options: &Options,
    known: &Known,
    memory: &Recollection<'_>,
) -> Result<Chosen, PlanError> {
    let items = &scanned.items;
    let all = selection.is_all();
    let mut selected: Vec<bool> = Vec::with_capacity(items.len());
    for item in items {
        selected.push(is_effect(item) && (all || selection.contains(&path_of(session, item))));
    }
    let unmatched = selection.unmatched();
    if !unmatched.is_empty() {
        return Err(PlanError::NoMatch(unmatched));
    }
    let mut chosen = Chosen {
        overwritten: vec![false; items.len()],
        notes: Vec::new(),
        selected,
    };
    let mut conflicts = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let Some(reason) = conflict(session, scanned, &chosen.selected, index, known, memory)
        else {
            continue;
        };
        let conflict = Conflict {
            path: path_of(session, item),
            reason,
            wanted: item.upper,
            found: item.real,
        };
        match options.on_conflict {
            OnConflict::Skip => {
                chosen.selected[index..item.end].fill(false);
                chosen.notes.push(Note::Skipped(conflict));
            }
            OnConflict::Overwrite if conflict.advice() == Advice::Choose => {
                chosen.overwritten[index] = true;
                chosen.notes.push(Note::Overwritten(conflict));
            }
            OnConflict::Abort | OnConflict::Overwrite => conflicts.push(conflict),
        }
    }
    if !conflicts.is_empty() {
        return Err(PlanError::Conflicts(conflicts));
    }
    let devices: Vec<PathBuf> = items
        .iter()
        .zip(&chosen.selected)
        .filter(|(item, selected)| **selected && makes_device(item))
        .map(|(item, _)| path_of(session, item))
        .collect();
    if devices.is_empty() || options.devices {
        Ok(chosen)
    } else {
        Err(PlanError::Devices(devices))
    }
}

/// Whether it puts a device node where none is. Attributes of one that is there are a change like others.
fn makes_device(item: &Item) -> bool {
    let is_new = matches!(item.what, What::Added | What::TypeChanged);
    is_new && item.upper.is_some_and(|upper| upper.kind.is_device())
}

fn conflict(
    session: &Session,
    scanned: &Scanned,
    selected: &[bool],
    index: usize,
    known: &Known,
    memory: &Recollection<'_>,
) -> Option<Reason> {
    let item = scanned.items.get(index)?;
    if let What::Blocked(reason) = &item.what {
        return selected
            .get(index..item.end)?
            .contains(&true)
            .then(|| reason.clone());
    }
    if !*selected.get(index)? {
        return None;
    }
    let path = path_of(session, item);
    match (&item.what, &item.real) {
        (What::Missing, _) => {
            let taken = match memory.identity(&path) {
                Some(Identity::Former(former)) => known.touched(&former).is_some(),
                _ => false,
            };
            (!taken).then_some(Reason::GoneMeanwhile)
        }
        // The command met something where now nothing is, and effigy has not taken it away.
        (What::Added, _) => {
            let is_file = item.upper.is_some_and(|upper| upper.is_file());
            let gone = is_file
                && item.is_top()
                && known.touched(&path).is_none()
                && memory.is_changed_in_place(&path) == Some(true)
                && memory.seen(&path).is_some();
            gone.then_some(Reason::GoneMeanwhile)
        }
        (_, Some(_)) if item.hidden => Some(Reason::AppearedMeanwhile),
        (what, Some(real)) => {
            // What was changed after the command was let go, but before it met the file, is what it saw.
            let foreign = known.is_foreign(&path, real)
                && !memory
                    .seen(&path)
                    .is_some_and(|stat| known.looks_as_seen(stat, real));
            foreign.then(|| foreign_reason(item, what))
        }
        (_, None) => None,
    }
}

fn foreign_reason(item: &Item, what: &What) -> Reason {
    match what {
        What::Deleted if !item.is_top() => Reason::UnseenBelow,
        _ => Reason::ChangedMeanwhile,
    }
}

/// The first effect below an item that is not selected.
pub(super) fn first_unselected<'a>(
    scanned: &'a Scanned,
    selected: &[bool],
    index: usize,
) -> Option<&'a Item> {
    let item = scanned.items.get(index)?;
    let below = scanned.items.get(index + 1..item.end)?.iter();
    below
        .zip(selected.get(index + 1..item.end)?)
        .find(|(item, selected)| is_effect(item) && !**selected)
        .map(|(item, _)| item)
}
