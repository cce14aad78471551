//! Which events are meant: by path, operation, process and number.

use super::Selection;
use effigy_journal::{Event, PathId, Paths, ProcessId, Processes};
use std::collections::HashSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;

/// What is asked of an event besides its paths.
#[derive(Clone, Debug, Default)]
pub struct EventFilter {
    /// Names of operations; none: all.
    pub ops: Vec<String>,
    /// Ids of processes; none: all.
    pub pids: Vec<u32>,
    /// Names of programs that did it, or that started a program that did it; none: all.
    pub by: Vec<OsString>,
    /// The first event.
    pub from: Option<u64>,
    /// The last event.
    pub until: Option<u64>,
}

/// What a selection says of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// It is meant.
    Chosen,
    /// It is not.
    Left,
    /// It is not, because one of its paths was excluded by name.
    Excluded,
}

/// A choice of events.
#[derive(Debug, Default)]
pub struct EventSelection {
    paths: Selection,
    ops: HashSet<String>,
    filter: EventFilter,
    /// What is known of each path of the journal.
    known: Vec<Option<Verdict>>,
}

#[derive(Clone, Copy, Debug)]
struct Verdict {
    only: bool,
    excluded: bool,
}

impl EventSelection {
    /// Everything.
    #[must_use]
    pub fn all() -> Self {
        Self::default()
    }

    /// What `paths` and `filter` both mean.
    #[must_use]
    pub fn new(paths: Selection, filter: EventFilter) -> Self {
        Self {
            paths,
            ops: filter.ops.iter().cloned().collect(),
            filter,
            known: Vec::new(),
        }
    }

    /// Whether everything is meant.
    #[must_use]
    pub fn is_all(&self) -> bool {
        let EventFilter {
            ops,
            pids,
            by,
            from,
            until,
        } = &self.filter;
        self.paths.is_all()
            && ops.is_empty()
            && pids.is_empty()
            && by.is_empty()
            && from.is_none()
            && until.is_none()
    }

    /// Whether an event is meant. An event with two paths is, when one of them is wanted and none excluded.
    pub fn choose(&mut self, event: &Event, paths: &Paths, processes: &Processes) -> Choice {
        let (first, second) = event.op.paths();
        let mut wanted = self.paths.only.is_empty();
        let mut excluded = false;
        // Both are asked, so that every pattern knows whether it is of any use.
        for id in [first, second].into_iter().flatten() {
            let verdict = self.verdict(id, paths);
            wanted |= verdict.only;
            excluded |= verdict.excluded;
        }
        let filter = &self.filter;
        let seq = event.seq.0;
        let within = filter.from.is_none_or(|from| seq >= from)
            && filter.until.is_none_or(|until| seq <= until);
        let chosen = wanted
            && within
            && (self.ops.is_empty() || self.ops.contains(event.op.name()))
            && self.is_by(event.process, paths, processes);
        match (excluded, chosen) {
            (true, _) => Choice::Excluded,
            (false, true) => Choice::Chosen,
            (false, false) => Choice::Left,
        }
    }

    fn is_by(&self, process: ProcessId, paths: &Paths, processes: &Processes) -> bool {
        let EventFilter { pids, by, .. } = &self.filter;
        let pid = processes.get(process).map(|process| process.pid);
        (pids.is_empty() || pid.is_some_and(|pid| pids.contains(&pid)))
            && (by.is_empty()
                || processes.ancestry(process).any(|(_, ancestor)| {
                    let name = ancestor.name(paths);
                    by.iter().any(|by| by.as_bytes() == name)
                }))
    }

    fn verdict(&mut self, id: PathId, paths: &Paths) -> Verdict {
        let at = id.0 as usize;
        if self.known.len() <= at {
            self.known.resize(paths.len().max(at + 1), None);
        }
        if let Some(Some(verdict)) = self.known.get(at) {
            return *verdict;
        }
        let verdict = if self.paths.is_all() {
            Verdict {
                only: true,
                excluded: false,
            }
        } else {
            let path = paths.path(id);
            // All are asked, so that each knows whether it is of any use.
            let any = |patterns: &[super::Pattern]| {
                let matching = patterns.iter().filter(|pattern| pattern.matches(&path));
                matching.count() > 0
            };
            Verdict {
                only: any(&self.paths.only),
                excluded: any(&self.paths.exclude),
            }
        };
        if let Some(known) = self.known.get_mut(at) {
            *known = Some(verdict);
        }
        verdict
    }

    /// The patterns, as given, that have matched nothing so far.
    #[must_use]
    pub fn unmatched(&self) -> Vec<OsString> {
        self.paths.unmatched()
    }
}
