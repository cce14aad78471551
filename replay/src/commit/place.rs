//! Where things are kept and whether they can be moved there.

use crate::layer;
use crate::ledger::PlanFile;
use crate::net::NetError;
use crate::node::Node;
use crate::plan::PlanError;
use crate::root::Root;
use crate::scan::Scanned;
use crate::step::{Loc, Source, Step};
use crate::sys;
use std::collections::HashMap;
use std::io;

/// Files with these flags cannot be changed, nor entries of such directories.
pub(super) const FIXED: u64 = 0x10 | 0x20;

/// What is known of a real directory that steps work in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parent {
    pub(super) node: Node,
    /// Renames between it and the session work.
    pub(super) movable: bool,
    /// Why nothing can be made or removed in it.
    pub(super) refusal: Option<i32>,
}

/// Real directories, looked at once each.
pub(super) struct Parents<'a> {
    scanned: &'a Scanned,
    store: &'a Root,
    copy: bool,
    cache: HashMap<(u32, Vec<u8>), Option<Parent>>,
}

/// The path of the directory above; `None` for the root itself.
pub(super) fn parent_of(rel: &[u8]) -> Option<&[u8]> {
    if rel.is_empty() {
        return None;
    }
    Some(
        rel.iter()
            .rposition(|&b| b == b'/')
            .map_or(b"".as_slice(), |cut| &rel[..cut]),
    )
}

impl<'a> Parents<'a> {
    pub(super) fn new(scanned: &'a Scanned, store: &'a Root, copy: bool) -> Self {
        Self {
            scanned,
            store,
            copy,
            cache: HashMap::new(),
        }
    }

    pub(super) fn target(&self, cover: u32) -> Option<&'a Root> {
        self.scanned.target(cover)
    }

    /// The real directory of this path; `None` when there is none (a step will make it).
    pub(super) fn get(&mut self, cover: u32, rel: &[u8]) -> Result<Option<Parent>, NetError> {
        let key = (cover, rel.to_vec());
        if let Some(found) = self.cache.get(&key) {
            return Ok(*found);
        }
        let Some(target) = self.target(cover) else {
            return Ok(None);
        };
        let found = match target.find(rel) {
            Ok(Some(node)) if node.is_dir() => Some(
                self.look(target, rel, node)
                    .map_err(NetError::io(target.display(rel)))?,
            ),
            Ok(_) => None,
            // A step of the plan will make a directory of what is none yet.
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENOTDIR | libc::ELOOP)) => None,
            Err(e) => return Err(NetError::io(target.display(rel))(e)),
        };
        self.cache.insert(key, found);
        Ok(found)
    }

    fn look(&self, target: &Root, rel: &[u8], node: Node) -> io::Result<Parent> {
        let store = self.store.node();
        let movable = !self.copy && (node.dev, node.mount) == (store.dev, store.mount);
        let dir = target.open_dir_path(rel)?;
        let fixed = node.attributes & FIXED != 0;
        let refusal = match sys::access(std::os::fd::AsFd::as_fd(&dir), libc::W_OK | libc::X_OK) {
            _ if fixed => Some(libc::EPERM),
            Ok(()) => None,
            Err(e) => Some(e.raw_os_error().unwrap_or(libc::EACCES)),
        };
        Ok(Parent {
            node,
            movable,
            refusal,
        })
    }

    /// Whether something to be made at `rel`, perhaps in directories that are to be made too, can be moved there.
    pub(super) fn is_movable(&mut self, cover: u32, rel: &[u8]) -> Result<bool, NetError> {
        let mut at = parent_of(rel);
        while let Some(dir) = at {
            if let Some(parent) = self.get(cover, dir)? {
                return Ok(parent.movable);
            }
            at = parent_of(dir);
        }
        Ok(false)
    }
}

/// Whether the copies of a plan have room.
pub(super) fn check_space(
    store: &Root,
    scanned: &Scanned,
    file: &PlanFile,
) -> Result<(), PlanError> {
    let mut needed: HashMap<(u32, u32), (u64, &Root)> = HashMap::new();
    for step in &file.steps {
        let copies: [(Option<&Root>, u64); 2] = match step {
            Step::Put(put) => {
                let root = match &put.hold {
                    Loc::Target(n, _) => scanned.target(*n),
                    Loc::Session(_) => Some(store),
                };
                let new = put
                    .new
                    .as_ref()
                    .filter(|new| matches!(new.source, Source::Copy(_)));
                [
                    (root, new.map_or(0, |new| new.node.size)),
                    (
                        Some(store),
                        put.old.filter(|_| put.copied).map_or(0, |old| old.size),
                    ),
                ]
            }
            Step::Rewrite(rewrite) => {
                let root = match &rewrite.target {
                    Loc::Target(n, _) => scanned.target(*n),
                    Loc::Session(_) => None,
                };
                [
                    (root, rewrite.new.size.saturating_sub(rewrite.old.size)),
                    (Some(store), rewrite.old.size),
                ]
            }
            _ => continue,
        };
        for (root, bytes) in copies {
            if let Some(root) = root {
                needed.entry(root.node().dev).or_insert((0, root)).0 += bytes;
            }
        }
    }
    for (bytes, root) in needed.into_values().filter(|(bytes, _)| *bytes > 0) {
        let free = sys::free_bytes(root.fd()).map_err(NetError::io(root.path()))?;
        if bytes > free {
            return Err(PlanError::NoSpace {
                path: root.path().to_owned(),
                needed: bytes,
                free,
            });
        }
    }
    Ok(())
}

/// The overlay attribute that makes a directory opaque, among these.
pub(super) fn is_opaque(attributes: &layer::Attributes) -> bool {
    attributes
        .iter()
        .any(|(name, value)| name == b"user.overlay.opaque" && value == b"y")
}
