//! Which events are wanted.

use effigy_journal::{Event, Outcome, Session};
use effigy_replay::{Choice, EventSelection};

use super::Names;
use crate::cli::FilterArgs;
use crate::filters::{events, refuse_unmatched};

/// The filters of `log`, with what they have found so far.
pub(crate) struct Filter {
    events: EventSelection,
    until: u64,
    failed: bool,
}

impl Filter {
    pub(crate) fn new(session: &Session, args: &FilterArgs, failed: bool) -> anyhow::Result<Self> {
        Ok(Self {
            events: events(session, args)?,
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
        self.events.choose(event, names.paths, names.processes) == Choice::Chosen
    }

    /// A call that failed is wanted only with `--failed`.
    pub(crate) fn wants_result(&self, outcome: Outcome) -> bool {
        self.failed || !matches!(outcome, Outcome::Errno(_))
    }

    pub(crate) fn wants_failed(&self) -> bool {
        self.failed
    }

    /// Refuses when what was asked for has matched nothing in the whole journal.
    pub(crate) fn check_matched(&self) -> anyhow::Result<()> {
        refuse_unmatched(&self.events.unmatched(), "event")
    }
}
