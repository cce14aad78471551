//! `--weaker`: what a run goes without where the machine refuses it. Never in silence: it is told at the end and kept in the session.

use effigy_journal::Session;
use effigy_semisolate::Built;
use effigy_semisolate::features::can_record;

use crate::cli::{RunOptions, Weaker};

/// As they stand in the record, and are typed.
const PID: &str = "pid";
const TRACE: &str = "trace";

pub(super) fn may_lack(options: &RunOptions, what: Weaker) -> bool {
    options.weaker.contains(&what)
}

/// Whether the run is recorded. Who asks for what only a recording has, and a session that has a journal already, cannot do
/// without: there the refusal is told.
pub(super) fn traces(options: &RunOptions) -> bool {
    if options.no_trace {
        return false;
    }
    let needs = options.resume || options.reads || options.trace.is_some();
    needs || !may_lack(options, Weaker::Trace) || can_record()
}

/// Keeps what the run goes without in its record.
pub(super) fn keep(session: &mut Session, options: &RunOptions, built: &Built) {
    let lacks = [
        (PID, built.without_processes),
        (TRACE, !session.record.traced && !options.no_trace),
    ];
    let weaker = &mut session.record.weaker;
    weaker.extend(
        lacks
            .iter()
            .filter(|(_, lacks)| *lacks)
            .map(|(name, _)| (*name).to_owned()),
    );
    weaker.sort();
    weaker.dedup();
}

/// Says what the run went without.
pub(crate) fn tell(session: &Session) {
    for name in &session.record.weaker {
        if let Some(words) = words(name) {
            eprintln!("effigy: weaker than usual ({name}): {words}");
        }
    }
}

/// What it means to have gone without.
pub(crate) fn words(name: &str) -> Option<&'static str> {
    match name {
        PID => Some(
            "the machine allows no /proc of the run's own; the command had the machine's, read-only and without processes",
        ),
        TRACE => Some(
            "the machine allows no recording; the session has the effects, but neither their order nor their authors",
        ),
        _ => None,
    }
}
