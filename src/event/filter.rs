//! Which events are wanted.

use std::collections::HashSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;

use effigy_journal::{Event, Outcome, PathId, ProcessId, Session};
use effigy_replay::Selection;

use super::Names;
use crate::cli::EventFilterArgs;
use crate::commands::summary::{selection, unmatched};

/// The filters of a command, with what they have found so far.
pub(crate) struct Filter {
    selection: Selection,
    /// Whether each path is selected, so that its components are put together only once.
    selected: Vec<Option<bool>>,
    ops: HashSet<String>,
    pids: Vec<u32>,
    by: Vec<OsString>,
    from: u64,
    until: u64,
    failed: bool,
}

impl Filter {
    pub(crate) fn new(
        session: &Session,
        args: &EventFilterArgs,
        failed: bool,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            selection: selection(session, &args.paths)?,
            selected: Vec::new(),
            ops: args.op.iter().cloned().collect(),
            pids: args.pid.clone(),
            by: args.by.clone(),
            from: args.from.unwrap_or(0),
            until: args.until.unwrap_or(u64::MAX),
            failed,
        })
    }

    /// Whether no later event can be wanted.
    pub(crate) fn is_past(&self, event: &Event) -> bool {
        event.seq.0 > self.until
    }

    /// Whether the event is wanted but for its result.
    pub(crate) fn matches(&mut self, event: &Event, names: Names<'_>) -> bool {
        (self.from..=self.until).contains(&event.seq.0)
            && (self.ops.is_empty() || self.ops.contains(event.op.name()))
            && self.is_by(event.process, names)
            && self.is_selected(event, names)
    }

    /// A call that failed is wanted only with `--failed`.
    pub(crate) fn wants_result(&self, outcome: Outcome) -> bool {
        self.failed || !matches!(outcome, Outcome::Errno(_))
    }

    pub(crate) fn wants_failed(&self) -> bool {
        self.failed
    }

    fn is_by(&self, process: ProcessId, names: Names<'_>) -> bool {
        let pid = names.processes.get(process).map(|p| p.pid);
        let pid_matches = self.pids.is_empty() || pid.is_some_and(|pid| self.pids.contains(&pid));
        pid_matches
            && (self.by.is_empty()
                || names.processes.ancestry(process).any(|(_, ancestor)| {
                    let name = ancestor.name(names.paths);
                    self.by.iter().any(|by| by.as_bytes() == name)
                }))
    }

    /// Both paths are asked about, so that every pattern that matches one of them counts as matching.
    fn is_selected(&mut self, event: &Event, names: Names<'_>) -> bool {
        if self.selection.is_all() {
            return true;
        }
        let (path, to) = event.op.paths();
        let path = path.map(|id| self.is_path_selected(id, names));
        let to = to.map(|id| self.is_path_selected(id, names));
        path.into_iter().chain(to).any(|selected| selected)
    }

    fn is_path_selected(&mut self, id: PathId, names: Names<'_>) -> bool {
        let at = id.0 as usize;
        if self.selected.len() <= at {
            self.selected.resize(names.paths.len().max(at + 1), None);
        }
        *self.selected[at].get_or_insert_with(|| self.selection.contains(&names.path(id)))
    }

    /// Refuses when a pattern has matched nothing in the whole journal.
    pub(crate) fn check_matched(&self) -> anyhow::Result<()> {
        unmatched(&self.selection, "event")
    }
}
