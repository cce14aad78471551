//! Which events are meant: by path, operation, process and number.

use super::Selection;
use effigy_journal::{Event, Op, PathId, Paths, ProcessId, Processes};
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;

/// What is asked of an event besides its paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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

impl EventFilter {
    /// Whether nothing is asked.
    #[must_use]
    pub fn is_all(&self) -> bool {
        *self == Self::default()
    }

    /// What is asked, as it would be typed, one word each.
    #[must_use]
    pub fn words(&self) -> Vec<OsString> {
        let Self {
            ops,
            pids,
            by,
            from,
            until,
        } = self;
        let mut words: Vec<OsString> = Vec::new();
        let mut add = |option: &str, value: OsString| words.extend([option.into(), value]);
        if !ops.is_empty() {
            add("--op", ops.join(",").into());
        }
        for pid in pids {
            add("--pid", pid.to_string().into());
        }
        for name in by {
            add("--by", name.clone());
        }
        for (option, seq) in [("--from", from), ("--until", until)] {
            if let Some(seq) = seq {
                add(option, seq.to_string().into());
            }
        }
        words
    }
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
    /// It settles a path and says neither who did it nor when: it is meant if all else that was done to the object is.
    Follows,
}

/// A choice of events.
#[derive(Debug, Default)]
pub struct EventSelection {
    paths: Selection,
    ops: HashSet<String>,
    filter: EventFilter,
    /// What is known of each path of the journal.
    known: Vec<Option<Verdict>>,
    /// By process id asked for: one has been met.
    met_pids: HashSet<u32>,
    /// By name of a program asked for, as it stands in the filter: one has been met.
    met_by: HashSet<usize>,
    /// Something was chosen.
    chosen: bool,
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
            ..Self::default()
        }
    }

    /// Whether everything is meant.
    #[must_use]
    pub fn is_all(&self) -> bool {
        self.paths.is_all() && self.filter.is_all()
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
        let by = self.is_by(event.process, paths, processes);
        let filter = &self.filter;
        let seq = event.seq.0;
        let within = filter.from.is_none_or(|from| seq >= from)
            && filter.until.is_none_or(|until| seq <= until);
        let settles = matches!(event.op, Op::Settle { .. });
        // Whoever the journal names for it, nobody is known to have done it.
        let by = by && !(settles && (!filter.pids.is_empty() || !filter.by.is_empty()));
        let chosen =
            wanted && within && by && (self.ops.is_empty() || self.ops.contains(event.op.name()));
        self.chosen |= chosen && !excluded;
        match (excluded, chosen) {
            (true, _) => Choice::Excluded,
            (false, true) => Choice::Chosen,
            (false, false) if wanted && settles => Choice::Follows,
            (false, false) => Choice::Left,
        }
    }

    /// Who did it is always asked whole, so that every name and number knows whether it is of any use.
    fn is_by(&mut self, process: ProcessId, paths: &Paths, processes: &Processes) -> bool {
        let EventFilter { pids, by, .. } = &self.filter;
        let pid = processes.get(process).map(|process| process.pid);
        let asked = pid.filter(|pid| pids.contains(pid));
        self.met_pids.extend(asked);
        let mut named = by.is_empty();
        for (_, ancestor) in processes.ancestry(process).take_while(|_| !by.is_empty()) {
            // `sh` may be a link to dash: the program is known by both names.
            let called = ancestor
                .argv
                .first()
                .map_or(&b""[..], |word| word.as_bytes());
            let called = called.rsplit(|&byte| byte == b'/').next().unwrap_or(called);
            let name = ancestor.name(paths);
            let at = by
                .iter()
                .position(|by| [name, called].contains(&by.as_bytes()));
            named |= at.is_some();
            self.met_by.extend(at);
        }
        named && (pids.is_empty() || asked.is_some())
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

    /// What has matched nothing so far, as given: patterns, processes, programs; and if each has matched something but all
    /// together nothing, the filters for events as a whole.
    #[must_use]
    pub fn unmatched(&self) -> Vec<OsString> {
        let mut none = self.paths.unmatched();
        let EventFilter { pids, by, .. } = &self.filter;
        let pids = pids.iter().filter(|pid| !self.met_pids.contains(pid));
        none.extend(pids.map(|pid| OsString::from(format!("--pid {pid}"))));
        for (at, name) in by.iter().enumerate() {
            // A name that is given twice is met where it stands first.
            let first = by.iter().position(|by| by == name).unwrap_or(at);
            if !self.met_by.contains(&first) {
                let mut word = OsString::from("--by ");
                word.push(name);
                none.push(word);
            }
        }
        if none.is_empty() && !self.chosen && !self.filter.is_all() {
            none.push(self.filter.words().join(OsStr::new(" ")));
        }
        none
    }
}
