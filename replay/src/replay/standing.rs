//! Where earlier applies of the session have left what was there before it.

use crate::known::anywhere;
use crate::ledger::{Ledger, PlanFile, Stage};
use crate::net::NetError;
use crate::step::{Loc, Source, Step};
use effigy_journal::Session;
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// What the applies in place have moved and removed, and where they have put something.
#[derive(Debug, Default)]
pub(super) struct Standing {
    /// Paths whose former object is in the session now; when that happened.
    gone: HashMap<PathBuf, usize>,
    /// What was moved within the real tree, and when.
    moves: Vec<(usize, PathBuf, PathBuf)>,
    placed: HashSet<PathBuf>,
    /// Directories that a commit has put something of the layers in.
    merged: HashSet<PathBuf>,
}

impl Standing {
    pub(super) fn of(session: &Session) -> Result<Self, NetError> {
        let mut standing = Self::default();
        let mut time = 0;
        for ledger in Ledger::all(session).map_err(NetError::io(session.dir()))? {
            if !matches!(ledger.stage()?, Stage::Applied(_)) {
                continue;
            }
            let Some(plan) = ledger.plan()? else { continue };
            if !is_of_real_tree(session, &plan) {
                continue;
            }
            for step in &plan.steps {
                let Step::Put(put) = step else { continue };
                let target = anywhere(&plan, &put.target);
                let changed = put
                    .new
                    .as_ref()
                    .is_some_and(|new| new.source == Source::Changed);
                if changed {
                    continue;
                }
                time += 1;
                if put.old.is_some() {
                    standing.gone.insert(target.clone(), time);
                }
                let Some(new) = &put.new else {
                    standing.placed.remove(&target);
                    continue;
                };
                let layer = matches!(&put.hold, Loc::Session(rel) if rel.starts_with(b"layers/"));
                if new.source == Source::Move && !layer {
                    let from = anywhere(&plan, &put.hold);
                    standing.moves.push((time, from, target));
                    continue;
                }
                if layer || matches!(new.source, Source::Copy(_)) {
                    let parent = target.parent().map(Path::to_owned);
                    standing.merged.extend(parent);
                }
                standing.placed.insert(target);
            }
        }
        Ok(standing)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.gone.is_empty() && self.moves.is_empty() && self.placed.is_empty()
    }

    /// Where what was at `path` before the session is now; `None` when it is in the session.
    pub(super) fn now(&self, path: &[u8]) -> Option<Vec<u8>> {
        let mut path = PathBuf::from(OsStr::from_bytes(path));
        let mut since = 0;
        loop {
            let gone = path
                .ancestors()
                .filter_map(|p| self.gone.get(p))
                .filter(|t| **t > since)
                .min();
            let moved = self
                .moves
                .iter()
                .find(|(t, from, _)| *t > since && path.starts_with(from));
            match (gone, moved) {
                (Some(gone), Some((time, ..))) if gone <= time => return None,
                (Some(_), None) => return None,
                (None, None) => return Some(path.into_os_string().into_encoded_bytes()),
                (_, Some((time, from, to))) => {
                    let rest = path.strip_prefix(from).unwrap_or(Path::new(""));
                    let next = if rest.as_os_str().is_empty() {
                        to.clone()
                    } else {
                        to.join(rest)
                    };
                    since = *time;
                    path = next;
                }
            }
        }
    }

    /// Whether a directory is the new one of a commit although it has the inode of the old one.
    pub(super) fn is_merged(&self, path: &Path) -> bool {
        self.merged.contains(path)
    }

    /// Whether a commit has put something in one of these directories or below.
    pub(super) fn has_merged(&self, dirs: [&Path; 2]) -> bool {
        self.merged
            .iter()
            .any(|path| dirs.iter().any(|dir| path.starts_with(dir)))
    }

    /// Whether an apply has put something at this very path, or above it.
    pub(super) fn has_placed(&self, path: &Path) -> bool {
        !self.placed.is_empty() && path.ancestors().any(|p| self.placed.contains(p))
    }
}

/// Whether a plan changes the tree that was recorded, not another one (`--root`).
fn is_of_real_tree(session: &Session, plan: &PlanFile) -> bool {
    let is_cover = |target: &Vec<u8>| {
        let covers = &session.record.covers;
        covers
            .iter()
            .any(|cover| cover.mount_point.as_os_str().as_bytes() == target)
    };
    plan.targets.iter().all(is_cover)
}
