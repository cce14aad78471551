//! The executor of plans, forward and back.
//!
//! Order of an apply: plan written → copies prepared → their inode numbers noted → everything on disk → names switched,
//! step by step → temporary names removed → done. Each step looks at the disk before it acts and does only what is
//! missing, so that driving a plan that was interrupted anywhere to either end is the same as driving a fresh one.

use crate::copy::{Copier, CopyError};
use crate::ledger::{Ledger, PlanFile, Taking};
use crate::node::Node;
use crate::options::{Failure, Phase, Progress, Trouble};
use crate::root::{Root, absent_is_none};
use crate::step::{Loc, Made, Make, Source, Step};
use crate::sys;
use effigy_journal::{Session, Timestamp};
use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

mod early;
mod error;
mod layers;
mod make;
mod meta;
mod put;
mod rewrite;

pub use error::{ApplyError, Left};

/// How a step ends that does not succeed.
#[derive(Debug)]
pub(crate) enum Fail {
    Io {
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// The path is not as it was validated; it was left as it is.
    Raced(PathBuf),
    /// The test option.
    Stopped,
}

/// Drives the steps of one plan.
pub(crate) struct Engine<'a> {
    session: Root,
    targets: Vec<Option<Root>>,
    pub(crate) plan: &'a PlanFile,
    pub(crate) ledger: Ledger,
    staged: Vec<u64>,
    restaged: Vec<u64>,
    /// What an undo does about each step.
    takings: Vec<Taking>,
    /// Inodes are told apart by their births too.
    births: bool,
    /// The plan was interrupted, so a file may be half written.
    pub(crate) resumed: bool,
    stop_after: Cell<Option<u64>>,
    failure: Cell<Option<Failure>>,
    progress: &'a mut dyn FnMut(Progress),
    now: Progress,
    links: HashMap<(u32, u32, u64), Vec<u8>>,
}

impl<'a> Engine<'a> {
    /// An engine for a plan whose ledger exists.
    pub(crate) fn new(
        session: &Session,
        plan: &'a PlanFile,
        ledger: Ledger,
        trouble: Trouble,
        progress: &'a mut dyn FnMut(Progress),
    ) -> Result<Self, Fail> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| Fail::Io {
                action: "open",
                path,
                source,
            }
        };
        let steps = plan.steps.len();
        let staged = ledger
            .inodes("staged", steps)
            .map_err(failed(&ledger.dir))?
            .unwrap_or_else(|| vec![0; steps]);
        let restaged = ledger
            .inodes("restaged", steps)
            .map_err(failed(&ledger.dir))?
            .unwrap_or_else(|| vec![0; steps]);
        let mut targets = Vec::new();
        for (index, path) in plan.targets.iter().enumerate() {
            let path = Path::new(OsStr::from_bytes(path));
            let used = plan
                .steps
                .iter()
                .any(|s| matches!(s.target(), Some(Loc::Target(n, _)) if *n as usize == index));
            targets.push(if used {
                Some(Root::open(path).map_err(failed(path))?.remembering())
            } else {
                None
            });
        }
        let takings = ledger.takings(steps).map_err(failed(&ledger.dir))?;
        let births = targets
            .iter()
            .flatten()
            .all(|root| sys::keeps_births(root.fd()));
        let now = Progress {
            phase: Phase::Preparing,
            done: 0,
            total: 0,
            copied: 0,
            to_copy: to_copy(plan),
        };
        Ok(Self {
            session: Root::open(session.dir())
                .map_err(failed(session.dir()))?
                .remembering(),
            targets,
            plan,
            ledger,
            staged,
            restaged,
            takings,
            births,
            resumed: false,
            stop_after: Cell::new(trouble.stop_after),
            failure: Cell::new(trouble.failure),
            progress,
            now,
            links: HashMap::new(),
        })
    }

    fn is_skipped(&self, index: usize) -> bool {
        self.takings.get(index) == Some(&Taking::Skip)
    }

    fn is_forced(&self, index: usize) -> bool {
        self.takings.get(index) == Some(&Taking::Force)
    }

    /// Where what an undo has found in a step's place is kept.
    fn kept(&self, index: usize) -> Loc {
        Loc::Session(self.ledger.rel(&format!("kept/{index}")))
    }

    /// Tells inodes apart.
    fn id(&self, node: &Node) -> u64 {
        node.identity(self.births)
    }

    /// The root and the path below it.
    fn place<'l>(&self, loc: &'l Loc) -> Result<(&Root, &'l [u8]), Fail> {
        match loc {
            Loc::Session(rel) => Ok((&self.session, rel)),
            Loc::Target(n, rel) => match self.targets.get(*n as usize) {
                Some(Some(root)) => Ok((root, rel)),
                _ => Err(Fail::Raced(PathBuf::from(OsStr::from_bytes(rel)))),
            },
        }
    }

    fn path(&self, loc: &Loc) -> PathBuf {
        self.place(loc).map_or_else(
            |_| PathBuf::from(OsStr::from_bytes(loc.rel())),
            |(root, rel)| root.display(rel),
        )
    }

    fn failed(&self, action: &'static str, loc: &Loc) -> impl FnOnce(io::Error) -> Fail + use<> {
        let path = self.path(loc);
        move |source| match source.raw_os_error() {
            // A parent has become a link, a mount or something else while we were at work.
            Some(libc::ELOOP | libc::ENOTDIR) => Fail::Raced(path),
            _ => Fail::Io {
                action,
                path,
                source,
            },
        }
    }

    /// Counts a change of the disk; the tests stop or fail here.
    fn changed(&self) -> Result<(), Fail> {
        if let Some(failure) = self.failure.get() {
            let left = failure.after.saturating_sub(1);
            let rest = Failure {
                after: left,
                ..failure
            };
            self.failure
                .set(Some(rest).filter(|_| left > 0 || failure.lasting));
            if left == 0 {
                return Err(Fail::Io {
                    action: "change",
                    path: self.session.path().to_owned(),
                    source: io::Error::from_raw_os_error(failure.errno),
                });
            }
        }
        let left = self.stop_after.get().map(|n| n.saturating_sub(1));
        self.stop_after.set(left);
        if left == Some(0) {
            Err(Fail::Stopped)
        } else {
            Ok(())
        }
    }

    fn report(&mut self, phase: Phase, done: usize) {
        self.now.phase = phase;
        self.now.done = done as u64;
        self.now.total = self.plan.steps.len() as u64;
        (self.progress)(self.now);
    }

    /// Bytes copied so far.
    pub(crate) fn copied(&self) -> u64 {
        self.now.copied
    }

    /// Copies a tree between two places.
    fn copy(&mut self, from: &Loc, to: &Loc, layer: bool, lenient: bool) -> Result<(), Fail> {
        let mut links = std::mem::take(&mut self.links);
        let stop = &self.stop_after;
        let mut now = self.now;
        let result = {
            let (source, from_rel) = self.place(from)?;
            let (target, to_rel) = self.place(to)?;
            let mut alone = HashMap::new();
            let (source, target) = (reopened(source)?, reopened(target)?);
            let mut progress = |bytes: u64| {
                now.copied += bytes;
                (self.progress)(now);
                stop.set(stop.get().map(|n| n.saturating_sub(1)));
                stop.get() != Some(0)
            };
            // Names of one file stay names of one file among all that is staged; a before-image stands for itself.
            let links = if lenient { &mut alone } else { &mut links };
            let mut copier = Copier {
                from: &source,
                to: &target,
                layer,
                lenient,
                private: matches!(to, Loc::Session(_)),
                links,
                progress: &mut progress,
            };
            copier
                .tree(from_rel, to_rel)
                .map_err(|e| copy_failed(e, &source, &target))
        };
        self.links = links;
        self.now = now;
        match result {
            Err(_) if self.stop_after.get() == Some(0) => Err(Fail::Stopped),
            other => other,
        }
    }

    /// Makes all copies, then brings everything to disk.
    pub(crate) fn prepare(&mut self) -> Result<(), Fail> {
        let plan = self.plan;
        // Directories of the layer that their owner has locked are opened before anything is read from them.
        let opens = |step: &&Step| matches!(step, Step::Meta(meta) if meta.aid && matches!(meta.target, Loc::Session(_)));
        for step in plan.steps.iter().take_while(opens) {
            if let Step::Meta(meta) = step {
                self.meta_forward(meta)?;
            }
        }
        let early = self.sync_early()?;
        for (index, step) in plan.steps.iter().enumerate() {
            match step {
                Step::Put(put) => self.prepare_put(index, put)?,
                Step::Rewrite(rewrite) => self.prepare_rewrite(rewrite)?,
                Step::Make(make) => self.make(make)?,
                _ => {}
            }
            self.report(Phase::Preparing, index + 1);
        }
        let noted = self.ledger.note_inodes("staged", &self.staged, false);
        noted.map_err(self.failed(
            "write the ledger in",
            &Loc::Session(self.ledger.rel("staged")),
        ))?;
        self.changed()?;
        if let Some(early) = early {
            let at = Loc::Session(Vec::new());
            early
                .end()
                .map_err(self.failed("bring to disk what was copied from", &at))?;
        }
        self.sync(true)
    }

    /// Takes every step forward.
    pub(crate) fn forward(&mut self) -> Result<(), Fail> {
        let plan = self.plan;
        self.forget_all();
        for (index, step) in plan.steps.iter().enumerate() {
            if !self.is_skipped(index) {
                match step {
                    Step::Put(put) => self.put_forward(index, put)?,
                    Step::Meta(meta) => self.meta_forward(meta)?,
                    Step::Rewrite(rewrite) => self.rewrite_forward(rewrite)?,
                    layer => self.layer_forward(layer)?,
                }
            }
            self.forget(step);
            self.report(Phase::Switching, index + 1);
        }
        Ok(())
    }

    /// Repeats what a power loss may have torn although it looks complete.
    pub(crate) fn repeat_rewrites(&mut self) -> Result<(), Fail> {
        let plan = self.plan;
        for step in &plan.steps {
            if let Step::Rewrite(rewrite) = step {
                self.rewrite_forward(rewrite)?;
            }
        }
        Ok(())
    }

    /// Takes back the attributes that were set last: they may have locked directories that are now to be looked into.
    pub(crate) fn open_back(&mut self) -> Result<(), Fail> {
        let plan = self.plan;
        self.forget_all();
        for (index, step) in plan.steps.iter().enumerate().rev() {
            let Step::Meta(meta) = step else { break };
            if !self.is_skipped(index) {
                match self.meta_back(index, meta) {
                    // It is told of when all is taken back.
                    Err(Fail::Raced(_)) => {}
                    other => other?,
                }
            }
        }
        Ok(())
    }

    /// Makes the copies that taking back needs.
    pub(crate) fn prepare_back(&mut self) -> Result<(), Fail> {
        let plan = self.plan;
        let noted = self.ledger.inodes("restaged", plan.steps.len());
        if noted
            .map_err(self.failed("read", &Loc::Session(self.ledger.rel("restaged"))))?
            .is_some()
        {
            return Ok(());
        }
        let mut any = false;
        for (index, step) in plan.steps.iter().enumerate() {
            match step {
                Step::Put(put) if !self.is_skipped(index) => any |= self.restage(index, put)?,
                Step::Rewrite(rewrite) if self.is_forced(index) => {
                    self.keep(&rewrite.target, index)?;
                    any = true;
                }
                _ => {}
            }
            self.report(Phase::Preparing, index + 1);
        }
        if any {
            let noted = self.ledger.note_inodes("restaged", &self.restaged, false);
            noted.map_err(self.failed(
                "write the ledger in",
                &Loc::Session(self.ledger.rel("restaged")),
            ))?;
            self.changed()?;
            self.sync(true)?;
        }
        Ok(())
    }

    /// Takes every step back, the last first. What somebody else has changed is left alone and returned.
    pub(crate) fn back(&mut self) -> Result<Vec<PathBuf>, Fail> {
        let plan = self.plan;
        self.forget_all();
        let mut left = Vec::new();
        for (done, (index, step)) in plan.steps.iter().enumerate().rev().enumerate() {
            if !self.is_skipped(index) {
                let result = match step {
                    Step::Put(put) => self.put_back(index, put),
                    Step::Meta(meta) => self.meta_back(index, meta),
                    Step::Rewrite(rewrite) => self.rewrite_back(rewrite),
                    layer => self.layer_back(layer),
                };
                match result {
                    Err(Fail::Raced(path)) => left.push(path),
                    other => other?,
                }
            }
            self.forget(step);
            self.report(Phase::Switching, done + 1);
        }
        Ok(left)
    }

    /// A directory was moved: what is known of parents may no longer be so.
    fn forget(&self, step: &Step) {
        let moved = |put: &crate::step::Put| {
            let new = put.new.as_ref().map(|new| new.node);
            [put.old, new].iter().flatten().any(Node::is_dir)
        };
        if matches!(step, Step::Put(put) if moved(put)) {
            self.forget_all();
        }
    }

    fn forget_all(&self) {
        self.session.forget();
        self.targets.iter().flatten().for_each(Root::forget);
    }

    /// Removes the temporary names. `back`: those that taking back has left.
    pub(crate) fn finish(&mut self, back: bool) -> Result<(), Fail> {
        let plan = self.plan;
        self.forget_all();
        if plan
            .steps
            .iter()
            .any(|step| matches!(step, Step::Put(put) if put.copied))
        {
            self.sync(false)?;
        }
        if back {
            self.keep_found()?;
        }
        for (index, step) in plan.steps.iter().enumerate() {
            if let Step::Put(put) = step {
                self.finish_put(put, back)?;
            }
            self.report(Phase::Finishing, index + 1);
        }
        Ok(())
    }

    /// Whether every step is taken.
    pub(crate) fn is_complete(&mut self) -> Result<bool, Fail> {
        for (index, step) in self.plan.steps.iter().enumerate() {
            let complete = match step {
                // What lies in a directory that is locked by now was put there before.
                Step::Put(put) => match self.is_put_complete(index, put) {
                    Err(Fail::Io { source, .. }) if source.raw_os_error() == Some(libc::EACCES) => {
                        true
                    }
                    other => other?,
                },
                Step::Meta(meta) => self.is_meta_complete(meta)?,
                Step::Rewrite(rewrite) => self.is_rewrite_complete(rewrite)?,
                _ => true,
            };
            if !complete {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Brings the filesystems of the session and, where copies were made or files written there, of the targets to disk.
    pub(crate) fn sync(&mut self, session: bool) -> Result<(), Fail> {
        self.report(Phase::Syncing, 0);
        self.synced(session)?.into_iter().try_for_each(to_disk)
    }

    /// The trees that `sync` brings to disk, one for each filesystem.
    fn synced(&self, session: bool) -> Result<Vec<&Root>, Fail> {
        let mut roots = self.written()?;
        if session {
            roots.retain(|root| root.node().dev != self.session.node().dev);
            roots.push(&self.session);
        }
        Ok(roots)
    }

    /// The targets with copies or files that were written to, one for each filesystem.
    fn written(&self) -> Result<Vec<&Root>, Fail> {
        let mut roots: Vec<&Root> = Vec::new();
        for step in &self.plan.steps {
            let copies = match step {
                Step::Put(put) => put.copied,
                Step::Rewrite(_) | Step::Meta(_) => true,
                _ => false,
            };
            if copies && let Some(loc) = step.target() {
                let (root, _) = self.place(loc)?;
                if !roots.iter().any(|r| r.node().dev == root.node().dev) {
                    roots.push(root);
                }
            }
        }
        Ok(roots)
    }

    /// Brings all to disk and sets the mark that says so. What is stamped on return is later than the mark.
    ///
    /// Other filesystems come first. That of the session, where the names of a plan that moves things have changed too,
    /// takes names and mark together. The mark is never brought to disk by itself: a filesystem that can put one file
    /// ahead of others (btrfs) would have it there without the names.
    pub(crate) fn settle(&mut self, name: &str) -> Result<(), Fail> {
        // What is changed while the disk is waited for is not ours, so the time is taken before.
        let until = Timestamp::now();
        self.report(Phase::Syncing, 0);
        let mut roots = self.written()?;
        roots.retain(|root| root.node().dev != self.session.node().dev);
        roots.into_iter().try_for_each(to_disk)?;
        let loc = Loc::Session(self.ledger.rel(name));
        let marked = self.ledger.mark_soon(name, until);
        marked.map_err(self.failed("write the ledger in", &loc))?;
        let synced = match self.is_one_rename() {
            true => Ok(()),
            false => to_disk(&self.session),
        };
        if let Err(fail) = synced {
            // It is not known to be there: what was done is to be looked at again.
            let _ = self.ledger.unmark(name);
            return Err(fail);
        }
        self.ledger.wait_beyond(name, until);
        self.changed()
    }

    /// Whether the plan is a single rename out of the session, within one filesystem. Whatever is lost with the power, that is
    /// there or not, never in part, and recovering tells which: so it is waited for no longer than mv waits.
    fn is_one_rename(&self) -> bool {
        let [Step::Put(put)] = self.plan.steps.as_slice() else {
            return false;
        };
        let moved = put
            .new
            .as_ref()
            .is_some_and(|new| new.source == Source::Move);
        moved && put.old.is_none() && matches!(put.hold, Loc::Session(_))
    }

    /// Sets a mark with the present time.
    pub(crate) fn mark(&mut self, name: &str) -> Result<(), Fail> {
        let marked = self.ledger.mark(name, Timestamp::now());
        marked.map_err(self.failed("write the ledger in", &Loc::Session(self.ledger.rel(name))))?;
        self.changed()
    }

    /// Whether the copies were never all made, so that no name has been changed.
    pub(crate) fn is_unswitched(&self) -> bool {
        !self.ledger.dir.join("staged").exists()
    }

    /// What stands at a place; `None` also when a parent is missing.
    fn find(&self, loc: &Loc) -> Result<Option<Node>, Fail> {
        let (root, rel) = self.place(loc)?;
        root.find(rel).map_err(self.failed("look at", loc))
    }

    fn exists(&self, loc: &Loc) -> Result<bool, Fail> {
        let (root, rel) = self.place(loc)?;
        absent_is_none(root.find(rel))
            .map(|found| found.flatten().is_some())
            .map_err(self.failed("look at", loc))
    }
}

/// Bytes a plan copies.
pub(crate) fn to_copy(plan: &PlanFile) -> u64 {
    let bytes = plan.steps.iter().map(|step| match step {
        Step::Put(put) => {
            let new = put
                .new
                .as_ref()
                .filter(|new| matches!(new.source, crate::step::Source::Copy(_)));
            let old = put.old.filter(|_| put.copied);
            new.map_or(0, |new| new.node.size) + old.map_or(0, |old| old.size)
        }
        Step::Rewrite(rewrite) => rewrite.old.size + rewrite.new.size,
        Step::Make(Make {
            made: Made::File { len, .. },
            ..
        }) => *len,
        _ => 0,
    });
    bytes.sum()
}

/// Brings the filesystem of a tree to disk.
fn to_disk(root: &Root) -> Result<(), Fail> {
    // syncfs needs a descriptor that is really open.
    let synced = root
        .open_dir(b"")
        .and_then(|dir| sys::sync_filesystem(dir.as_fd()));
    match synced {
        // A root that may be passed but not read (mode 0711) cannot be opened for this; the kernel flushes in its own time.
        Err(e) if e.raw_os_error() != Some(libc::EACCES) => Err(Fail::Io {
            action: "bring to disk",
            path: root.path().to_owned(),
            source: e,
        }),
        _ => Ok(()),
    }
}

/// A second handle of the same directory, so that progress can be told while it is in use.
fn reopened(root: &Root) -> Result<Root, Fail> {
    root.try_clone().map_err(|source| Fail::Io {
        action: "open",
        path: root.path().to_owned(),
        source,
    })
}

fn copy_failed(e: CopyError, source: &Root, target: &Root) -> Fail {
    let path = if e.at_source {
        source.display(&e.rel)
    } else {
        target.display(&e.rel)
    };
    Fail::Io {
        action: e.action,
        path,
        source: e.source,
    }
}
