//! Which changes of real files are effigy's own.

use crate::ledger::{Ledger, PlanFile, Stage};
use crate::net::NetError;
use crate::node::{FileType, Node};
use crate::stack;
use crate::step::{Loc, Made, Make, Put, Source, Step};
use effigy_journal::{Kind, Session, Stat, Timestamp};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::hash::Hash;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Up to when a path is known to be as the session left or met it.
#[derive(Debug, Default)]
pub(crate) struct Known {
    base: Timestamp,
    /// Paths that earlier applies and undos of this session have touched.
    paths: HashMap<PathBuf, Timestamp>,
    /// What those met and made, by device and inode: it may have other names, and it may have been moved and moved back since.
    inodes: HashMap<((u32, u32), u64), Timestamp>,
    /// Directories that were copied back as a whole.
    trees: HashMap<PathBuf, Timestamp>,
    /// The session was imported: identities and change times of what it met are perhaps another machine's.
    imported: bool,
}

impl Known {
    /// What is known for a commit: the time the command was let go, and the session's own applies and undos since.
    ///
    /// What the sessions that it rests on have put in place is what it saw, too.
    pub(crate) fn of(session: &Session) -> Result<Self, NetError> {
        // Of an imported session everything counts as changed that does not look as it was met.
        let base = match session.record.imported {
            true => Timestamp(i64::MIN),
            false => session.record.released,
        };
        let mut known = Self::since(session, base, 0)?;
        known.imported = session.record.imported;
        // Without one of them the session is not applied; onto another tree it is, and nothing there is known.
        for lower in stack::lower(session).unwrap_or_default() {
            known.applies(&lower, 0)?;
        }
        Ok(known)
    }

    /// What is known on top of `base`, from the applies after number `after`.
    pub(crate) fn since(session: &Session, base: Timestamp, after: u32) -> Result<Self, NetError> {
        let mut known = Self {
            base,
            ..Self::default()
        };
        known.applies(session, after)?;
        // Other sessions matter only when they have put something back since.
        for (time, plan) in undone_elsewhere(session, base) {
            known.restored(&plan, time);
        }
        Ok(known)
    }

    fn applies(&mut self, session: &Session, after: u32) -> Result<(), NetError> {
        for ledger in Ledger::all(session).map_err(NetError::io(session.dir()))? {
            if ledger.number <= after {
                continue;
            }
            match ledger.stage()? {
                Stage::Applied(time) => self.add(&ledger, time, false)?,
                Stage::Undone(time) => self.add(&ledger, time, true)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Paths that another session changed and put back count as unchanged when they were so before.
    fn restored(&mut self, plan: &PlanFile, time: Timestamp) {
        // What was moved before it is named by where it was, and is again.
        let mut moves: Vec<(PathBuf, PathBuf)> = Vec::new();
        for step in &plan.steps {
            let Some(target) = step.target() else {
                continue;
            };
            let path = before(&moves, anywhere(plan, target));
            if let Step::Put(put) = step
                && origin(&moves, plan, put).is_some()
            {
                moves.push((anywhere(plan, &put.hold), anywhere(plan, target)));
            }
            if matches!(target, Loc::Session(_)) {
                continue;
            }
            let found = match step {
                Step::Put(put) => put.old,
                Step::Meta(meta) => Some(meta.node),
                Step::Rewrite(rewrite) => Some(rewrite.old),
                _ => None,
            };
            let Some(found) = found else { continue };
            if !self.is_foreign(&path, &found) {
                if found.nlink > 1 && !found.is_dir() {
                    raise(&mut self.inodes, (found.dev, found.ino), time);
                }
                if let Some(parent) = path.parent() {
                    raise(&mut self.paths, parent, time);
                }
                raise(&mut self.paths, &path, time);
            }
        }
    }

    fn add(&mut self, ledger: &Ledger, time: Timestamp, undone: bool) -> Result<(), NetError> {
        let Some(plan) = ledger.plan()? else {
            return Ok(());
        };
        // What was moved before it is named by where it was.
        let mut moves: Vec<(PathBuf, PathBuf)> = Vec::new();
        for step in &plan.steps {
            // What was overwritten in spite of a conflict is in conflict again once it is back.
            let conflicting = undone
                && step
                    .target()
                    .is_some_and(|loc| plan.overwritten.contains(loc));
            for node in nodes(step).into_iter().flatten().filter(|_| !conflicting) {
                raise(&mut self.inodes, (node.dev, node.ino), time);
            }
            // A further name of a file changes that, too.
            if let Step::Make(Make {
                made: Made::Link(from),
                ..
            }) = step
                && let Some(path) = absolute(&plan, from)
            {
                raise(&mut self.paths, path, time);
            }
            let Some(target) = step.target() else {
                continue;
            };
            // What was moved from elsewhere in the real tree may be there again.
            if let Step::Put(put) = step
                && let Some(from) = origin(&moves, &plan, put)
            {
                moves.push((anywhere(&plan, &put.hold), anywhere(&plan, target)));
                from.parent()
                    .into_iter()
                    .for_each(|p| raise(&mut self.paths, p, time));
                raise(&mut self.paths, from, time);
            }
            let Some(path) = absolute(&plan, target) else {
                continue;
            };
            if let Some(parent) = path.parent() {
                raise(&mut self.paths, parent, time);
            }
            if let Step::Put(put) = step
                && !undone
                && put.new.as_ref().is_some_and(|new| new.tree)
            {
                raise(&mut self.trees, &path, time);
            }
            if conflicting {
                continue;
            }
            if undone
                && matches!(step, Step::Put(put) if put.copied && put.old.is_some_and(|old| old.is_dir()))
            {
                raise(&mut self.trees, &path, time);
            }
            if undone && !moves.is_empty() {
                let origin = before(&moves, path.clone());
                if let Some(parent) = origin.parent() {
                    raise(&mut self.paths, parent, time);
                }
                raise(&mut self.paths, &origin, time);
            }
            raise(&mut self.paths, &path, time);
        }
        Ok(())
    }

    /// The latest moment at which a change of this path may have been effigy's, when there was one.
    pub(crate) fn touched(&self, path: &Path) -> Option<Timestamp> {
        let exact = self.paths.get(path).copied();
        let trees = if self.trees.is_empty() {
            None
        } else {
            path.ancestors().find_map(|p| self.trees.get(p)).copied()
        };
        exact.max(trees)
    }

    /// Whether what stands at `path` was changed by somebody else.
    pub(crate) fn is_foreign(&self, path: &Path, node: &Node) -> bool {
        let own = self.changed(path, node);
        Timestamp::from(node.ctime) > own.map_or(self.base, |time| time.max(self.base))
    }

    /// Whether a real file is as the command met it. Of a directory, entries may have changed.
    pub(crate) fn looks_as_seen(&self, seen: &Stat, node: &Node) -> bool {
        if self.imported {
            return match node.kind {
                FileType::Directory => seen.kind == Kind::Directory,
                FileType::Symlink => seen.kind == Kind::Symlink && seen.size == node.size,
                FileType::Regular => {
                    let time = seen.mtime == Timestamp::from(node.mtime);
                    seen.kind == Kind::File && time && seen.size == node.size
                }
                _ => false,
            };
        }
        if node.is_dir() {
            return (seen.mode, seen.uid, seen.gid) == (node.mode, node.uid, node.gid);
        }
        let times =
            seen.mtime == Timestamp::from(node.mtime) && seen.ctime == Timestamp::from(node.ctime);
        times && seen.size == node.size
    }

    /// Whether any apply of the session has touched it last.
    pub(crate) fn is_own(&self, path: &Path, node: &Node) -> bool {
        self.changed(path, node)
            .is_some_and(|time| Timestamp::from(node.ctime) <= time)
    }

    /// The same for a path or another name of the file there.
    fn changed(&self, path: &Path, node: &Node) -> Option<Timestamp> {
        let inode = self.inodes.get(&(node.dev, node.ino)).copied();
        self.touched(path).max(inode)
    }
}

/// The plans that other sessions of the store have taken back later than `since`, the earliest first. What cannot be
/// read of them does not count.
fn undone_elsewhere(session: &Session, since: Timestamp) -> Vec<(Timestamp, PlanFile)> {
    let mut found = Vec::new();
    let Some(Ok(sessions)) = session.dir().parent().map(std::fs::read_dir) else {
        return found;
    };
    for other in sessions.flatten().map(|entry| entry.path()) {
        if other == session.dir() {
            continue;
        }
        for ledger in Ledger::in_dir(&other).unwrap_or_default() {
            if let Ok(Stage::Undone(time)) = ledger.stage()
                && time > since
                && let Ok(Some(plan)) = ledger.plan()
            {
                found.push((time, plan));
            }
        }
    }
    found.sort_by_key(|(time, _)| *time);
    found
}

/// What a step found or puts in place.
fn nodes(step: &Step) -> [Option<&Node>; 2] {
    match step {
        Step::Put(put) => [put.old.as_ref(), put.new.as_ref().map(|new| &new.node)],
        Step::Meta(meta) => [Some(&meta.node), None],
        Step::Rewrite(rewrite) => [Some(&rewrite.old), None],
        _ => [None, None],
    }
}

/// Whether it moves something from elsewhere in the real tree.
pub(crate) fn is_relocation(put: &Put) -> bool {
    let moves = put
        .new
        .as_ref()
        .is_some_and(|new| new.source == Source::Move);
    moves && matches!(put.hold, Loc::Target(..))
}

/// Where in the real tree something stood before these moves that a step moves on; `None` when it moves nothing of the real tree.
fn origin(moves: &[(PathBuf, PathBuf)], plan: &PlanFile, put: &Put) -> Option<PathBuf> {
    let new = put.new.as_ref()?;
    let from = before(moves, anywhere(plan, &put.hold));
    (new.source == Source::Move && from.is_absolute()).then_some(from)
}

/// Where what is at a path after these moves was before them.
fn before(moves: &[(PathBuf, PathBuf)], path: PathBuf) -> PathBuf {
    moves
        .iter()
        .rev()
        .fold(path, |path, (old, new)| match path.strip_prefix(new) {
            Ok(rest) if rest.as_os_str().is_empty() => old.clone(),
            Ok(rest) => old.join(rest),
            Err(_) => path,
        })
}

fn raise<K: Eq + Hash>(map: &mut HashMap<K, Timestamp>, key: impl Into<K>, time: Timestamp) {
    let entry = map.entry(key.into()).or_insert(time);
    *entry = time.max(*entry);
}

/// The absolute path of a target.
pub(crate) fn absolute(plan: &PlanFile, loc: &Loc) -> Option<PathBuf> {
    match loc {
        Loc::Target(n, rel) => {
            let root = Path::new(OsStr::from_bytes(plan.targets.get(*n as usize)?));
            Some(if rel.is_empty() {
                root.to_owned()
            } else {
                root.join(OsStr::from_bytes(rel))
            })
        }
        Loc::Session(_) => None,
    }
}

/// The path of a place; what waits in the session has one that no tree has.
pub(crate) fn anywhere(plan: &PlanFile, loc: &Loc) -> PathBuf {
    absolute(plan, loc).unwrap_or_else(|| {
        let aside = [b"\0", loc.rel()].concat();
        PathBuf::from(OsStr::from_bytes(&aside))
    })
}
