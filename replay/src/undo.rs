//! Taking back the last apply of a session.

use crate::conflict::{Advice, Conflict, Reason};
use crate::engine::ApplyError;
use crate::execute;
use crate::known::{Known, absolute};
use crate::ledger::{Ledger, PlanFile, Stage, Taking};
use crate::net::NetError;
use crate::node::Node;
use crate::options::{Applied, OnConflict, Options, Progress};
use crate::plan::{Kind, Note, Plan, PlanError};
use crate::root::{Root, absent_is_none};
use crate::stack;
use crate::step::{Loc, Put, Rewrite, SetMeta, Source, Step};
use crate::sys;
use effigy_journal::Session;
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Plans the undo of the last apply that is in place and validates it. Nothing is changed.
///
/// With [`OnConflict::Skip`] paths that were changed since are left as they are. With [`OnConflict::Overwrite`] they are as
/// before the apply; what is there now goes into the session: to where it was moved from, or to `kept/` in the directory of
/// the apply.
///
/// # Errors
/// When nothing is applied, or a path was changed since ([`PlanError::Conflicts`]).
pub fn plan(session: &Session, options: &Options) -> Result<Plan, PlanError> {
    let (ledger, done) = last_applied(session)?;
    stack::check_undo(session)?;
    let plan_path = ledger.dir.join("plan");
    let damaged = || NetError::Damaged {
        path: plan_path.clone(),
        reason: "it is not whole".into(),
    };
    let file = ledger.plan()?.ok_or_else(damaged)?;
    let staged = ledger
        .inodes("staged", file.steps.len())
        .map_err(NetError::io(&plan_path))?
        .ok_or_else(damaged)?;
    let known = Known::since(session, done, ledger.number)?;
    let mut check = Check::new(&file, &staged, known);
    let mut takings = vec![Taking::Back; file.steps.len()];
    let mut notes = Vec::new();
    let mut conflicts = Vec::new();
    // Directories made for a part come last, as they can go only when all in them goes.
    let last = |step: &Step| matches!(step, Step::Put(put) if is_shallow(put));
    let order = file
        .steps
        .iter()
        .enumerate()
        .filter(|(_, step)| !last(step));
    let order = order.chain(
        file.steps
            .iter()
            .enumerate()
            .rev()
            .filter(|(_, step)| last(step)),
    );
    for (index, step) in order {
        let found = check.step(index, step)?;
        if found.is_empty() {
            check.goes.extend(step.target().cloned());
            continue;
        }
        match options.on_conflict {
            OnConflict::Skip => {
                takings[index] = Taking::Skip;
                notes.extend(found.into_iter().map(Note::Skipped));
            }
            OnConflict::Overwrite if found.iter().all(|found| can_force(step, found)) => {
                takings[index] = Taking::Force;
                notes.extend(found.into_iter().map(Note::Overwritten));
                check.goes.extend(step.target().cloned());
            }
            OnConflict::Abort | OnConflict::Overwrite => conflicts.extend(found),
        }
    }
    if !conflicts.is_empty() {
        return Err(PlanError::Conflicts(conflicts));
    }
    let number = ledger.number;
    Ok(Plan {
        kind: Kind::Undo(takings),
        number,
        file,
        notes,
        to_copy: 0,
        trouble: options.trouble(),
    })
}

fn last_applied(session: &Session) -> Result<(Ledger, effigy_journal::Timestamp), PlanError> {
    let mut last = None;
    for ledger in Ledger::all(session).map_err(NetError::io(session.dir()))? {
        match ledger.stage()? {
            Stage::Applying | Stage::Undoing(_) => return Err(PlanError::Interrupted),
            Stage::Applied(time) => last = Some((ledger, time)),
            Stage::Nothing | Stage::Undone(_) => {}
        }
    }
    last.ok_or(PlanError::NothingApplied)
}

/// Carries the undo out: the real tree and the layers are as before the apply, so the session can be applied again.
///
/// # Errors
/// When a step fails; the apply is then in place as before.
pub fn apply(
    plan: Plan,
    session: &mut Session,
    progress: &mut dyn FnMut(Progress),
) -> Result<Applied, ApplyError> {
    let takings = match &plan.kind {
        Kind::Undo(takings) => takings.clone(),
        Kind::Commit => vec![Taking::Back; plan.file.steps.len()],
    };
    execute::undo(
        session,
        plan.number,
        &plan.file,
        &takings,
        plan.trouble,
        progress,
    )
}

/// Whether a step can be taken back in spite of this conflict. The file whose attributes or content in place are to be as before
/// must be that very file.
fn can_force(step: &Step, conflict: &Conflict) -> bool {
    let is = |node: &Node| conflict.found.is_some_and(|found| found.ino == node.ino);
    conflict.advice() == Advice::Choose
        && match step {
            Step::Meta(meta) => is(&meta.node),
            Step::Rewrite(rewrite) => is(&rewrite.old),
            _ => true,
        }
}

fn is_shallow(put: &Put) -> bool {
    put.new
        .as_ref()
        .is_some_and(|new| matches!(new.source, Source::Directory(_)))
}

/// Whether everything is still as the apply left it.
struct Check<'a> {
    file: &'a PlanFile,
    staged: &'a [u64],
    known: Known,
    roots: Vec<Option<Root>>,
    /// Targets that will be taken back.
    goes: HashSet<Loc>,
    /// The last step that puts something at a target.
    last: HashMap<&'a Loc, usize>,
}

impl<'a> Check<'a> {
    fn new(file: &'a PlanFile, staged: &'a [u64], known: Known) -> Self {
        let roots = file
            .targets
            .iter()
            .map(|path| Root::open(Path::new(OsStr::from_bytes(path))).ok())
            .collect();
        Self {
            file,
            staged,
            known,
            roots,
            goes: HashSet::new(),
            last: file
                .steps
                .iter()
                .enumerate()
                .filter_map(|(index, step)| match step {
                    Step::Put(put) => Some((&put.target, index)),
                    _ => None,
                })
                .collect(),
        }
    }

    /// The conflicts of one step.
    fn step(&self, index: usize, step: &Step) -> Result<Vec<Conflict>, NetError> {
        let Some(loc @ Loc::Target(n, rel)) = step.target() else {
            return Ok(Vec::new());
        };
        let path = absolute(self.file, loc).unwrap_or_default();
        let conflict = |reason, found| {
            vec![Conflict {
                path: path.clone(),
                reason,
                wanted: None,
                found,
            }]
        };
        let Some(Some(root)) = self.roots.get(*n as usize) else {
            return Ok(conflict(
                Reason::ParentGone {
                    parent: path.clone(),
                },
                None,
            ));
        };
        let parent = || path.parent().unwrap_or(&path).to_owned();
        let found = match root.stat(rel) {
            Ok(found) => found,
            Err(e) => match e.raw_os_error() {
                Some(libc::ELOOP | libc::ENOTDIR) => {
                    return Ok(conflict(Reason::ParentReplaced { parent: parent() }, None));
                }
                Some(libc::EXDEV) => return Ok(conflict(Reason::MountInTheWay, None)),
                // What was put there is gone together with its parent.
                Some(libc::ENOENT) if matches!(step, Step::Put(put) if put.old.is_none()) => {
                    return Ok(Vec::new());
                }
                Some(libc::ENOENT) => {
                    return Ok(conflict(Reason::ParentGone { parent: parent() }, None));
                }
                // A directory that the apply has locked for its owner: nobody can have changed what lies in it, and
                // taking back looks again.
                Some(libc::EACCES) if sys::euid() != 0 => return Ok(Vec::new()),
                _ => return Err(NetError::io(&path)(e)),
            },
        };
        let reason = match step {
            Step::Put(put) => return self.put(index, put, root, rel, &path, found),
            Step::Meta(meta) => self.meta(meta, &path, found),
            Step::Rewrite(rewrite) => self.rewrite(rewrite, &path, found),
            _ => None,
        };
        Ok(reason.map_or_else(Vec::new, |reason| conflict(reason, found)))
    }

    fn put(
        &self,
        index: usize,
        put: &Put,
        root: &Root,
        rel: &[u8],
        path: &Path,
        found: Option<Node>,
    ) -> Result<Vec<Conflict>, NetError> {
        let conflict = |reason| {
            vec![Conflict {
                path: path.to_owned(),
                reason,
                wanted: put.old,
                found,
            }]
        };
        // What a later step has replaced is not there to be looked at.
        if self.last.get(&put.target).is_some_and(|last| *last > index) {
            return Ok(Vec::new());
        }
        if let Some(refusal) = self.refusal(put, root, rel, path) {
            return Ok(conflict(refusal));
        }
        let (new, node) = match (&put.new, found) {
            (None, None) => return Ok(Vec::new()),
            (None, Some(_)) => return Ok(conflict(Reason::AppearedMeanwhile)),
            // Somebody removed what is to be taken away.
            (Some(_), None) if put.old.is_none() => return Ok(Vec::new()),
            (Some(_), None) => return Ok(conflict(Reason::GoneMeanwhile)),
            (Some(new), Some(node)) => (new, node),
        };
        let births = sys::keeps_births(root.fd());
        let id = if new.source == Source::Move {
            new.node.identity(births)
        } else {
            self.staged.get(index).copied().unwrap_or(0)
        };
        if node.identity(births) != id {
            return Ok(conflict(Reason::ChangedMeanwhile));
        }
        // Attributes of directories may have been set by the plan itself.
        if !node.is_dir() && self.known.is_foreign(path, &node) && !node.looks_like(&new.node) {
            return Ok(conflict(Reason::ChangedMeanwhile));
        }
        let mut below = Vec::new();
        if node.is_dir() && (new.tree || is_shallow(put)) {
            self.below(&put.target, root, rel, new.tree, &mut below)?;
        }
        Ok(below)
    }

    /// What lies in a directory that is to go and was not put there by the apply.
    fn below(
        &self,
        dir: &Loc,
        root: &Root,
        rel: &[u8],
        tree: bool,
        into: &mut Vec<Conflict>,
    ) -> Result<(), NetError> {
        let failed = |rel: &[u8]| NetError::io(root.display(rel));
        let open = match root.open_dir(rel) {
            // It was moved as it was: its owner cannot look into it, and nobody else has.
            Err(e) if e.raw_os_error() == Some(libc::EACCES) => return Ok(()),
            other => other.map_err(failed(rel))?,
        };
        for entry in sys::read_dir(open.as_fd()).map_err(failed(rel))? {
            let loc = dir.join(entry.name.to_bytes());
            let below = [rel, b"/".as_slice(), entry.name.to_bytes()].concat();
            let node = match absent_is_none(sys::stat(open.as_fd(), &entry.name)) {
                // It can be listed but not passed.
                Err(e) if e.raw_os_error() == Some(libc::EACCES) => None,
                other => other.map_err(failed(&below))?,
            };
            let Some(node) = node else { continue };
            let path = root.display(&below);
            // A directory too: one that was moved in brings entries of any age along.
            let foreign = !tree || self.known.is_foreign(&path, &node);
            let known = into.len();
            if tree && node.is_dir() {
                self.below(&loc, root, &below, tree, into)?;
            }
            // A directory whose entries say what was changed need not be told of itself.
            if foreign && !self.goes.contains(&loc) && into.len() == known {
                into.push(Conflict {
                    path,
                    reason: Reason::UnseenBelow,
                    wanted: None,
                    found: Some(node),
                });
            }
        }
        Ok(())
    }

    fn meta(&self, meta: &SetMeta, path: &Path, found: Option<Node>) -> Option<Reason> {
        if meta.aid || meta.made_by.is_some() {
            return None;
        }
        match found {
            None => Some(Reason::GoneMeanwhile),
            Some(node) if node.ino != meta.node.ino => Some(Reason::ChangedMeanwhile),
            Some(node) => {
                let changed = self.known.is_foreign(path, &node) && !meta.after.fits(&node);
                changed.then_some(Reason::ChangedMeanwhile)
            }
        }
    }

    fn rewrite(&self, rewrite: &Rewrite, path: &Path, found: Option<Node>) -> Option<Reason> {
        match found {
            None => Some(Reason::GoneMeanwhile),
            Some(node) if node.ino != rewrite.old.ino => Some(Reason::ChangedMeanwhile),
            Some(node) => {
                let changed = self.known.is_foreign(path, &node) && !rewrite.after.fits(&node);
                changed.then_some(Reason::ChangedMeanwhile)
            }
        }
    }

    /// Whether the parent can still be worked in, unless a step of the plan opens it.
    fn refusal(&self, put: &Put, root: &Root, rel: &[u8], path: &Path) -> Option<Reason> {
        let parent = rel
            .iter()
            .rposition(|&b| b == b'/')
            .map_or(b"".as_slice(), |cut| &rel[..cut]);
        let Loc::Target(n, _) = &put.target else {
            return None;
        };
        let here = Loc::Target(*n, parent.to_vec());
        let dir = root.open_dir_path(parent).ok()?;
        let refused = sys::access(dir.as_fd(), libc::W_OK | libc::X_OK).err()?;
        let at: PathBuf = path.parent().unwrap_or(path).to_owned();
        let opened = self
            .file
            .steps
            .iter()
            .any(|step| matches!(step, Step::Meta(meta) if meta.target == here));
        (!opened).then(|| Reason::Forbidden {
            errno: refused.raw_os_error().unwrap_or(libc::EACCES),
            at,
        })
    }
}
