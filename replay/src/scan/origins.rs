//! Which new file is a deleted one under another name, and which has lost its real counterpart.

use super::{Item, Scanned, What};
use crate::layer::Origin;
use crate::node::Node;
use crate::sys;
use std::collections::{HashMap, HashSet};

/// Sets `renamed_from`, and [`What::Missing`] where a copied-up file was neither renamed nor linked.
///
/// With `replaced`, an undo has put copies of real files in their place, which no origin knows.
pub(super) fn resolve(scanned: &mut Scanned, replaced: bool) {
    relinked(scanned);
    if !scanned.items.iter().any(is_moved) {
        return;
    }
    let mut handles = HashMap::new();
    for (index, item) in scanned.items.iter().enumerate() {
        if item.real.is_some_and(|real| real.is_file())
            && let Some(handle) = handle(scanned, item)
        {
            handles.insert((item.cover, handle), index);
        }
    }
    // A name made with link(2) of a copied-up file has its inode.
    let linked: HashSet<(u32, u64)> = scanned
        .items
        .iter()
        .filter(|i| i.real.is_some())
        .filter_map(inode)
        .collect();
    let mut taken = HashSet::new();
    for index in 0..scanned.items.len() {
        let item = &scanned.items[index];
        if !is_moved(item) {
            continue;
        }
        let source = match &item.origin {
            Some(Origin::Handle(kind, bytes)) => {
                handles.get(&(item.cover, (*kind, bytes.clone()))).copied()
            }
            _ => None,
        };
        let known = replaced || source.is_some() || item.origin == Some(Origin::Unknown);
        let is_link = inode(item).is_some_and(|inode| linked.contains(&inode));
        let inside = item.parent.is_some();
        let deleted = source.filter(|&source| scanned.items[source].what == What::Deleted);
        let item = &mut scanned.items[index];
        match deleted {
            Some(source) if taken.insert(source) => item.renamed_from = Some(source),
            _ if !known && !is_link && !inside => item.what = What::Missing,
            _ => {}
        }
    }
}

/// Names that are one file in the layer and several in the real tree: making them one is a change too.
fn relinked(scanned: &mut Scanned) {
    let mut first: HashMap<(u32, u64), u64> = HashMap::new();
    for item in &mut scanned.items {
        let (What::Linked, Some(upper), Some(real)) = (&item.what, item.upper, item.real) else {
            continue;
        };
        if *first.entry((item.cover, upper.ino)).or_insert(real.ino) != real.ino {
            item.what = What::Metadata;
        }
    }
}

fn is_moved(item: &Item) -> bool {
    item.what == What::Added
        && item.origin.is_some()
        && item.upper.is_some_and(|upper| upper.is_file())
}

fn inode(item: &Item) -> Option<(u32, u64)> {
    let several = |upper: &Node| upper.is_file() && upper.nlink > 1;
    item.upper
        .filter(several)
        .map(|upper| (item.cover, upper.ino))
}

fn handle(scanned: &Scanned, item: &Item) -> Option<(u8, Vec<u8>)> {
    let target = scanned
        .targets
        .get(usize::try_from(item.cover).ok()?)?
        .as_ref()?;
    let spot = target.spot(&item.rel).ok()?;
    sys::file_handle(spot.dir(), &spot.leaf)
}
