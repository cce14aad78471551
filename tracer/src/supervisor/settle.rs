//! Calls in flight: leaving them to the task, seeing what came of them, and keeping events about one path in order.

use super::{Asked, Handled, Supervisor};
use crate::pending::{Effect, Evidence, Expected, Pending};
use crate::sys::{self, Seen};
use effigy_journal::{By, Kind, Op, Outcome, Why};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// How long an event waits for one in flight that it meets. Rarely more than some µs; names that are fought over are not left
/// to tasks again, so a task that does not get to run holds the others up once.
const PATIENCE: Duration = Duration::from_millis(60);
/// A call that has not shown after this long, in nanoseconds, has failed, or cannot be told. On a busy machine a task may have
/// to wait long before it gets to it.
const OVERDUE: u64 = 3_000_000_000;
/// How many calls in flight are looked at with every event.
const GLANCE: usize = 12;

impl Supervisor {
    /// Lets the task execute its call, and remembers to look.
    pub(super) fn leave(
        &mut self,
        asked: &Asked,
        why: Why,
        expected: Expected,
        evidence: Evidence,
        otherwise: Outcome,
    ) -> Handled {
        // Older calls that have shown come first.
        self.collect();
        self.go_on(asked)?;
        self.pending.push(Pending {
            who: asked.who,
            why,
            expected,
            evidence,
            otherwise,
        });
        Ok(())
    }

    /// The thread is in another call, or at its end: what it had in flight is over.
    pub(super) fn thread_said(&mut self, tid: u32) {
        self.collect();
        while let Some(index) = self
            .pending
            .iter()
            .position(|pending| pending.who.tid == tid)
        {
            let pending = self.pending.remove(index);
            let shown = pending.evidence.shows();
            self.conclude(pending, shown);
        }
    }

    /// Records calls in flight that have shown, the oldest first; of many only so many, for each costs a look.
    pub(super) fn collect(&mut self) {
        self.collect_where(GLANCE, &|_| true);
    }

    fn collect_where(&mut self, limit: usize, wanted: &dyn Fn(&Pending) -> bool) {
        let (mut index, mut looked) = (0, 0);
        while index < self.pending.len() && looked < limit {
            if !wanted(&self.pending[index]) {
                index += 1;
                continue;
            }
            looked += 1;
            match self.pending[index].evidence.shows() {
                Some(now) => {
                    let pending = self.pending.remove(index);
                    self.conclude(pending, Some(now));
                }
                None => index += 1,
            }
        }
    }

    /// At every tick: records what has shown, and gives up what should have.
    pub(super) fn sweep(&mut self) {
        self.collect_where(usize::MAX, &|_| true);
        let now = self.recorder.now();
        while let Some(index) = self
            .pending
            .iter()
            .position(|pending| now.saturating_sub(pending.who.time) > OVERDUE)
        {
            let mut pending = self.pending.remove(index);
            // It may still be carried out.
            self.adrift |= pending.turns_names();
            if let Expected::Other { seal, .. } = &mut pending.expected {
                self.recorder.confirm_seal(seal.take(), true);
            }
            self.conclude(pending, None);
        }
    }

    /// At the end: everything that is still in flight is over.
    pub(crate) fn settle_all(&mut self) {
        for pending in std::mem::take(&mut self.pending) {
            let shown = pending.evidence.shows();
            self.conclude(pending, shown);
        }
    }

    /// An event about `path` comes: calls in flight that it meets get a moment to show. Whether there were any.
    pub(super) fn wait_for(&mut self, asked: &Asked, path: &[u8]) -> bool {
        self.recent.note(path, asked.who.tid, asked.who.time);
        if self.pending.is_empty() {
            return false;
        }
        let tid = asked.who.tid;
        let meets = |pending: &Pending| pending.who.tid != tid && pending.concerns(path);
        self.collect_where(usize::MAX, &meets);
        let deadline = Instant::now() + PATIENCE;
        while self.pending.iter().any(|p| meets(p) && p.may_show()) && Instant::now() < deadline {
            sys::pause_briefly();
            self.collect_where(usize::MAX, &meets);
        }
        true
    }

    /// A call that needs `path` to be there was performed: whoever was to make it has.
    pub(super) fn must_have_shown(&mut self, path: &[u8], seen: Option<&Seen>) {
        while let Some(index) = self.pending.iter().position(
            |pending| matches!(&pending.evidence, Evidence::Appears(spot) if spot.path == path),
        ) {
            let pending = self.pending.remove(index);
            self.conclude(pending, Some(seen.copied()));
        }
    }

    /// A directory has moved: what is in flight below it has another name now.
    pub(super) fn rebase(&mut self, from: &[u8], to: &[u8]) {
        for pending in &mut self.pending {
            pending.rebase(from, to);
        }
    }

    /// Somebody else has made what these calls were to make: that it is there shows nothing about them any more.
    pub(super) fn spoil(&mut self, path: &[u8]) {
        for pending in &mut self.pending {
            let Evidence::Appears(spot) = &pending.evidence else {
                continue;
            };
            if spot.path != path {
                continue;
            }
            if let Expected::Open { flags, creates, .. } = &mut pending.expected {
                *creates = false;
                let exclusive = *flags & libc::O_EXCL != 0;
                pending.otherwise = if exclusive {
                    Outcome::Errno(libc::EEXIST)
                } else {
                    Outcome::Ok
                };
            }
            pending.evidence = Evidence::None;
        }
    }

    /// Records a call that was in flight. `shown`: it was carried out, and this is there now.
    fn conclude(&mut self, pending: Pending, shown: Option<Option<Seen>>) {
        let Pending {
            who,
            why,
            expected,
            mut otherwise,
            evidence,
        } = pending;
        let by = By::Observed(why);
        if let (Evidence::Appears(spot), None, Outcome::Unknown) = (&evidence, &shown, otherwise)
            && let Err(errno) = sys::access(spot.dir.fd.as_fd(), c".", libc::W_OK | libc::X_OK, 0)
        {
            otherwise = Outcome::Errno(errno.0);
        }
        let result = if shown.is_some() {
            Outcome::Ok
        } else {
            otherwise
        };
        let now = shown.flatten();
        let mode = now.map_or(0, |seen| seen.stat.mode);
        let stat = now.as_ref().map(|seen| &seen.stat);
        let done = result == Outcome::Ok;
        let op = match expected {
            Expected::Open {
                path,
                flags,
                creates,
                truncates,
                version,
            } => {
                if done && creates {
                    self.recorder.model.created(&path, stat, Some(version));
                } else if done {
                    self.recorder.model.written(&path, version);
                }
                self.recorder.path(&path).map(|path| Op::Open {
                    path,
                    flags: flags.cast_unsigned(),
                    mode: if creates { mode } else { 0 },
                    created: creates && done,
                    truncated: truncates && done,
                    version: done.then_some(version),
                })
            }
            Expected::Bind { path } => {
                if done {
                    self.recorder.model.created(&path, stat, None);
                }
                self.recorder
                    .path(&path)
                    .map(|path| Op::Bind { path, mode })
            }
            Expected::Named { path, version } => {
                if done {
                    self.recorder.model.created(&path, stat, Some(version));
                    self.recorder.model.may_get_names(&path, stat);
                }
                self.recorder.path(&path).map(|path| Op::Open {
                    path,
                    flags: (libc::O_CREAT | libc::O_EXCL | libc::O_RDWR).cast_unsigned(),
                    mode,
                    created: done,
                    truncated: false,
                    version: done.then_some(version),
                })
            }
            Expected::Other { op, effect, seal } => {
                self.recorder.confirm_seal(seal, done);
                if done {
                    self.apply(effect, stat);
                }
                Some(op)
            }
        };
        if let Some(op) = op {
            self.recorder.append(who, by, op, result);
        }
    }

    fn apply(&mut self, effect: Effect, stat: Option<&effigy_journal::Stat>) {
        let model = &mut self.recorder.model;
        match effect {
            Effect::Creates(path) => {
                model.created(&path, stat, None);
                self.epoch += u64::from(stat.is_some_and(|stat| stat.kind == Kind::Symlink));
            }
            Effect::Removes(path) => model.removed(&path),
            Effect::Changes(path) => model.changed(&path, stat),
            Effect::Writes(path, version) => {
                model.changed(&path, stat);
                model.written(&path, version);
            }
            Effect::Renames(from, to, directory) => {
                model.renamed(&from, &to, directory);
                self.epoch += 1;
            }
            Effect::Exchanges(a, b) => {
                model.exchanged(&a, &b);
                self.epoch += 1;
            }
            Effect::Links(from, to) => {
                model.linked(&from, &to, stat);
                self.epoch += 1;
            }
        }
    }
}
