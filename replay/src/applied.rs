//! What of a session is in place.

use crate::known::{Known, absolute};
use crate::ledger::{Ledger, PlanFile, Stage};
use crate::net::{Change, NetEffect, NetError, net_effects};
use crate::node::Node;
use crate::root::{Root, absent_is_none};
use crate::selection::Selection;
use crate::step::{Loc, Put, Source, Step};
use crate::sys;
use effigy_journal::{Session, Timestamp};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// The numbers of the applies, and whether each is in place (or else was taken back, or interrupted).
///
/// # Errors
/// When a ledger cannot be read.
pub fn applies(session: &Session) -> Result<Vec<(u32, bool)>, NetError> {
    let ledgers = Ledger::all(session).map_err(NetError::io(session.dir()))?;
    let standing =
        |ledger: &Ledger| Ok((ledger.number, matches!(ledger.stage()?, Stage::Applied(_))));
    ledgers.iter().map(standing).collect()
}

/// Whether an apply in place has moved contents out of the session's layers: they are then no longer whole.
///
/// # Errors
/// When a ledger cannot be read.
pub fn has_moved(session: &Session) -> Result<bool, NetError> {
    for ledger in Ledger::all(session).map_err(NetError::io(session.dir()))? {
        if !matches!(
            ledger.stage()?,
            Stage::Applied(_) | Stage::Applying | Stage::Undoing(_)
        ) {
            continue;
        }
        let steps = ledger.plan()?.map(|plan| plan.steps).unwrap_or_default();
        let moves = |step: &Step| match step {
            Step::Put(put) => {
                let moved = put
                    .new
                    .as_ref()
                    .is_some_and(|new| new.source == Source::Move);
                moved && matches!(put.hold, Loc::Session(_))
            }
            Step::Strip { .. } | Step::Unwhiteout { .. } => true,
            _ => false,
        };
        if steps.iter().any(moves) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The effects that the applies in place (not those undone) have put there, sorted by path.
///
/// What lies in a directory that was moved as a whole is read where it now is: what somebody else has added there since
/// is left out, what was changed is marked.
///
/// # Errors
/// When a ledger or a real directory cannot be read.
pub fn effects(session: &Session, selection: &Selection) -> Result<Vec<NetEffect>, NetError> {
    let mut found: BTreeMap<PathBuf, NetEffect> = BTreeMap::new();
    for ledger in Ledger::all(session).map_err(NetError::io(session.dir()))? {
        let Stage::Applied(done) = ledger.stage()? else {
            continue;
        };
        let Some(plan) = ledger.plan()? else { continue };
        let known = Known::since(session, done, ledger.number)?;
        let roots = plan
            .targets
            .iter()
            .map(|path| Root::open(Path::new(OsStr::from_bytes(path))).ok())
            .collect();
        let session_root = Root::open(session.dir()).map_err(NetError::io(session.dir()))?;
        let mut reader = Reader {
            plan: &plan,
            session: session_root,
            roots,
            known,
            done,
            number: ledger.number,
            found: Vec::new(),
        };
        for step in &plan.steps {
            reader.step(step)?;
        }
        for effect in reader.found {
            match found.get_mut(&effect.path) {
                // Touched by two applies: from what was there before the first to what the second made of it.
                Some(earlier) => {
                    let before = (earlier.before, earlier.before_at.take());
                    *earlier = NetEffect {
                        before: before.0,
                        before_at: before.1,
                        ..effect
                    };
                }
                None => {
                    found.insert(effect.path.clone(), effect);
                }
            }
        }
    }
    Ok(found
        .into_values()
        .filter(|effect| selection.contains(&effect.path))
        .collect())
}

/// All effects of the session, in place or still in its layers, sorted by path: what `summary` and `diff` show.
///
/// # Errors
/// As [`effects`] and [`net_effects`].
pub fn all_effects(session: &Session, selection: &Selection) -> Result<Vec<NetEffect>, NetError> {
    let applied = effects(session, selection)?;
    let mut all = net_effects(session, selection)?;
    if !applied.is_empty() {
        let pending: std::collections::HashSet<PathBuf> =
            all.iter().map(|effect| effect.path.clone()).collect();
        all.extend(
            applied
                .into_iter()
                .filter(|effect| !pending.contains(&effect.path)),
        );
        all.sort_unstable_by(|a, b| a.path.as_os_str().cmp(b.path.as_os_str()));
    }
    Ok(all)
}

struct Reader<'a> {
    plan: &'a PlanFile,
    session: Root,
    roots: Vec<Option<Root>>,
    known: Known,
    done: Timestamp,
    number: u32,
    found: Vec<NetEffect>,
}

impl Reader<'_> {
    fn root(&self, loc: &Loc) -> Option<&Root> {
        match loc {
            Loc::Session(_) => Some(&self.session),
            Loc::Target(n, _) => self.roots.get(*n as usize)?.as_ref(),
        }
    }

    fn now(&self, loc: &Loc) -> Option<Node> {
        self.root(loc)?.find(loc.rel()).ok().flatten()
    }

    fn effect(
        &self,
        path: PathBuf,
        change: Change,
        before: Option<Node>,
        after: Option<Node>,
    ) -> NetEffect {
        NetEffect {
            path,
            change,
            before,
            after,
            applied: Some(self.number),
            changed_since: false,
            before_at: None,
            before_in: None,
            after_at: None,
        }
    }

    fn step(&mut self, step: &Step) -> Result<(), NetError> {
        let Some(target) = step.target() else {
            return Ok(());
        };
        let Some(path) = absolute(self.plan, target) else {
            return Ok(());
        };
        let (change, before, after, before_at) = match step {
            Step::Put(put) => return self.put(put, path),
            Step::Meta(meta) if meta.aid || meta.made_by.is_some() => return Ok(()),
            Step::Meta(meta) => {
                let after = Node {
                    mode: meta.after.mode,
                    uid: meta.after.uid,
                    gid: meta.after.gid,
                    ..meta.node
                };
                let after = Node {
                    mtime: meta.after.mtime.unwrap_or(meta.node.mtime),
                    ..after
                };
                (Change::Metadata, Some(meta.node), Some(after), None)
            }
            Step::Rewrite(rewrite) => {
                let archive = Some(Loc::Session(rewrite.archive.clone()));
                (
                    Change::Content,
                    Some(rewrite.old),
                    Some(rewrite.new),
                    archive,
                )
            }
            _ => return Ok(()),
        };
        let mut effect = self.effect(path, change, before, after);
        effect.changed_since = self.is_changed(&effect.path, target, after.as_ref());
        effect.before_at = before_at;
        effect.after_at = Some(target.clone());
        self.found.push(effect);
        Ok(())
    }

    fn is_changed(&self, path: &Path, at: &Loc, made: Option<&Node>) -> bool {
        match (self.now(at), made) {
            (None, None) => false,
            (Some(now), Some(made)) => self.known.is_foreign(path, &now) && !now.looks_like(made),
            _ => true,
        }
    }

    fn put(&mut self, put: &Put, path: PathBuf) -> Result<(), NetError> {
        let new = put.new.as_ref().map(|new| new.node);
        let change = match (&put.old, &new) {
            (None, _) => Change::Added,
            (Some(_), None) => Change::Deleted,
            (Some(old), Some(new)) if old.kind != new.kind => Change::TypeChanged,
            (Some(_), Some(_))
                if matches!(
                    put.new.as_ref().map(|new| &new.source),
                    Some(Source::Link(_))
                ) =>
            {
                Change::Metadata
            }
            (Some(_), Some(_)) => Change::Content,
        };
        let mut effect = self.effect(path.clone(), change, put.old, new);
        effect.changed_since = self.is_changed(&path, &put.target, new.as_ref());
        effect.before_at.clone_from(&put.archive);
        effect.after_at = new.map(|_| put.target.clone());
        self.found.push(effect);
        if let (Some(archive), Some(old)) = (&put.archive, &put.old)
            && old.is_dir()
        {
            self.below(archive, &path, &Change::Deleted)?;
        }
        if put.new.as_ref().is_some_and(|new| new.tree) {
            self.below(&put.target, &path, &Change::Added)?;
        }
        Ok(())
    }

    /// What went, or came, together with a directory.
    fn below(&mut self, dir: &Loc, path: &Path, change: &Change) -> Result<(), NetError> {
        let Some(root) = self.root(dir) else {
            return Ok(());
        };
        let open = match root.open_dir(dir.rel()) {
            // Gone since, or locked by its owner: there is nothing to be told.
            Err(e)
                if matches!(
                    e.raw_os_error(),
                    Some(libc::ENOENT | libc::ENOTDIR | libc::EACCES | libc::ELOOP)
                ) =>
            {
                return Ok(());
            }
            other => other.map_err(NetError::io(path))?,
        };
        for entry in sys::read_dir(open.as_fd()).map_err(NetError::io(path))? {
            let below = path.join(OsStr::from_bytes(entry.name.to_bytes()));
            let node = match absent_is_none(sys::stat(open.as_fd(), &entry.name)) {
                // It can be listed but not passed.
                Err(e) if e.raw_os_error() == Some(libc::EACCES) => None,
                other => other.map_err(NetError::io(&below))?,
            };
            let Some(node) = node else { continue };
            let loc = dir.join(entry.name.to_bytes());
            let added = *change == Change::Added;
            if added && Timestamp::from(node.birth) > self.done {
                continue;
            }
            let (before, after) = if added {
                (None, Some(node))
            } else {
                (Some(node), None)
            };
            let mut effect = self.effect(below.clone(), change.clone(), before, after);
            effect.changed_since = added && self.known.is_foreign(&below, &node);
            effect.before_at = before.map(|_| loc.clone());
            effect.after_at = after.map(|_| loc.clone());
            self.found.push(effect);
            if node.is_dir() {
                self.below(&loc, &below, change)?;
            }
        }
        Ok(())
    }
}
