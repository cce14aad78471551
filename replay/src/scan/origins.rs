//! Which new file is a deleted one under another name, and which has lost its real counterpart.

use super::{Item, Scanned, What};
use crate::commit::path_of;
use crate::layer::Origin;
use crate::node::Node;
use crate::recollect::{Identity, Recollection};
use crate::sys;
use effigy_journal::Session;
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Sets `renamed_from`, and [`What::Missing`] where a copied-up file was neither renamed nor linked.
///
/// The journal tells, and where it does not (`--no-trace`), what overlayfs has noted. With `replaced`, an undo has put copies of real
/// files in their place, which no origin knows.
pub(super) fn resolve(
    session: &Session,
    scanned: &mut Scanned,
    memory: &Recollection<'_>,
    replaced: bool,
) {
    relinked(scanned);
    if !scanned.items.iter().any(is_moved) {
        return;
    }
    let mut reals: HashMap<PathBuf, usize> = HashMap::new();
    for (index, item) in scanned.items.iter().enumerate() {
        if item.real.is_some_and(|real| real.is_file()) {
            reals.insert(path_of(session, item), index);
        }
    }
    let mut handles = HashMap::new();
    for (index, item) in scanned.items.iter().enumerate() {
        if item.real.is_some_and(|real| real.is_file())
            && let Some(handle) = file_handle(scanned, item)
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
    let mut vague = Vec::new();
    for index in 0..scanned.items.len() {
        let item = &scanned.items[index];
        if !is_moved(item) || inode(item).is_some_and(|inode| linked.contains(&inode)) {
            continue;
        }
        let path = path_of(session, item);
        if let Some(identity) = memory.identity(&path) {
            let Identity::Former(former) = identity else {
                continue;
            };
            match reals.get(&former).copied() {
                Some(source) => {
                    let renamed =
                        taken.insert(source) && scanned.items[source].what == What::Deleted;
                    scanned.items[index].renamed_from = renamed.then_some(source);
                }
                None if item.parent.is_none() && !stands(session, scanned, &former) => {
                    scanned.items[index].what = What::Missing;
                }
                None => {}
            }
            continue;
        }
        let source = match &item.origin {
            Some(Origin::Handle(kind, bytes)) => {
                handles.get(&(item.cover, (*kind, bytes.clone()))).copied()
            }
            _ => None,
        };
        match source {
            Some(source) => {
                let renamed = taken.insert(source) && scanned.items[source].what == What::Deleted;
                scanned.items[index].renamed_from = renamed.then_some(source);
            }
            None if replaced || item.origin == Some(Origin::Unknown) => vague.push(index),
            None if item.parent.is_none() => scanned.items[index].what = What::Missing,
            None => {}
        }
    }
    guess(scanned, &vague, &mut taken);
}

/// Whether something stands at a path below the layers.
fn stands(session: &Session, scanned: &Scanned, path: &Path) -> bool {
    let Some((cover, rel)) = scanned.place(session, path) else {
        return true;
    };
    let Some(Some(beneath)) = scanned.beneath.get(cover as usize) else {
        return true;
    };
    let rel = Path::new(OsStr::from_bytes(&rel));
    let (Some(parent), Some(name)) = (rel.parent(), rel.file_name()) else {
        return true;
    };
    let found = beneath
        .dir(parent.as_os_str().as_bytes(), false)
        .and_then(|dir| Ok(dir.stat(&sys::cstring(name.as_bytes())?)?.is_some()));
    match found {
        Err(e) => e.raw_os_error() != Some(libc::ENOENT),
        Ok(found) => found,
    }
}

/// Without the right to decode file handles (every ordinary user) overlayfs notes only that something was copied up.
/// What then looks exactly like a deleted file was that file; any other must at least have some file to have been.
fn guess(scanned: &mut Scanned, vague: &[usize], taken: &mut HashSet<usize>) {
    let mut alike: HashMap<_, Vec<usize>> = HashMap::new();
    let mut spare: HashMap<u32, usize> = HashMap::new();
    let look = |node: &Node| (node.size, node.mtime, node.mode, node.uid, node.gid);
    for (index, item) in scanned.items.iter().enumerate() {
        let Some(real) = item
            .real
            .filter(|real| real.is_file() && !taken.contains(&index))
        else {
            continue;
        };
        let replaced =
            matches!(item.what, What::Content | What::TypeChanged) && item.origin.is_none();
        if item.what == What::Deleted {
            alike
                .entry((item.cover, look(&real)))
                .or_default()
                .push(index);
        }
        if item.what == What::Deleted || replaced {
            *spare.entry(item.cover).or_default() += 1;
        }
    }
    let mut others = Vec::new();
    for &index in vague {
        let item = &scanned.items[index];
        let key = item.upper.map(|upper| (item.cover, look(&upper)));
        // Files made in one tick and of one size look the same: with a moved directory the name tells them apart.
        let same_name = |source: &usize| leaf(&scanned.items[*source]) == leaf(item);
        let source = key.and_then(|key| alike.get_mut(&key)).and_then(|alike| {
            let at = alike.iter().rposition(same_name);
            at.map(|at| alike.swap_remove(at)).or_else(|| alike.pop())
        });
        match source {
            Some(source) => {
                *spare.entry(item.cover).or_default() -= 1;
                scanned.items[index].renamed_from = Some(source);
            }
            None => others.push(index),
        }
    }
    for index in others {
        let item = &mut scanned.items[index];
        match spare.get_mut(&item.cover).filter(|spare| **spare > 0) {
            Some(spare) => *spare -= 1,
            None if item.parent.is_none() => item.what = What::Missing,
            None => {}
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

fn leaf(item: &Item) -> Option<&[u8]> {
    item.rel.rsplit(|&byte| byte == b'/').next()
}

fn is_moved(item: &Item) -> bool {
    item.what == What::Added
        && item.origin.is_some()
        && item.upper.is_some_and(|upper| upper.is_file())
}

fn inode(item: &Item) -> Option<(u32, u64)> {
    let several = |upper: &Node| !upper.is_dir() && upper.nlink > 1;
    item.upper
        .filter(several)
        .map(|upper| (item.cover, upper.ino))
}

/// The file handle of what really stands at the item's path.
pub(crate) fn file_handle(scanned: &Scanned, item: &Item) -> Option<(u8, Vec<u8>)> {
    let beneath = scanned
        .beneath
        .get(usize::try_from(item.cover).ok()?)?
        .as_ref()?;
    let spot = beneath.root(item.layer)?.spot(&item.rel).ok()?;
    sys::file_handle(spot.dir(), &spot.leaf)
}
