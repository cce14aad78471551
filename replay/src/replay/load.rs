//! The effects of a journal, read into memory.

use super::ReplayError;
use super::model::{Act, Fact, Model, Obj};
use crate::selection::{Choice, EventSelection};
use effigy_journal::{Entry, Event, Op, Outcome, Reader, Seq, Session, Timestamp, VersionTable};
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;

/// One effect.
#[derive(Debug)]
pub(crate) struct Effect {
    pub(crate) seq: Seq,
    pub(crate) time: Timestamp,
    pub(crate) op: Op,
}

/// All that a journal says about effects.
pub(crate) struct Loaded {
    pub(crate) reader: Reader,
    pub(crate) effects: Vec<Effect>,
    /// What each does, by effect.
    pub(crate) facts: Vec<Fact>,
    pub(crate) choices: Vec<Choice>,
    pub(crate) model: Model,
    pub(crate) versions: VersionTable,
}

/// Reads the journal of a session up to its end, or to where it was cut off.
pub(crate) fn load(
    session: &Session,
    selection: &mut EventSelection,
) -> Result<Loaded, ReplayError> {
    let file = File::open(session.journal()).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => ReplayError::NoJournal {
            session: session.label().to_string(),
        },
        _ => ReplayError::Journal(source.into()),
    })?;
    let mut reader = Reader::open(file)?;
    let mut loaded_effects = Vec::new();
    let mut facts = Vec::new();
    let mut choices = Vec::new();
    let mut model = Model::new();
    let mut versions = VersionTable::default();
    while let Some(entry) = reader.next_entry()? {
        match entry {
            Entry::Event(Event {
                op,
                result: Outcome::Ok,
                seq,
                time,
                process,
                tid,
                by,
            }) if op.is_effect() => {
                let event = Event {
                    seq,
                    time,
                    process,
                    tid,
                    by,
                    op,
                    result: Outcome::Ok,
                };
                choices.push(selection.choose(&event, reader.paths(), reader.processes()));
                let start = session.record.start.0;
                let time = Timestamp(start.saturating_add(i64::try_from(time).unwrap_or(0)));
                let index = u32::try_from(facts.len()).map_err(|_| ReplayError::TooLong)?;
                facts.push(model.take(index, &event.op, reader.paths()));
                let op = event.op;
                loaded_effects.push(Effect { seq, time, op });
            }
            Entry::Precondition(precondition) => {
                if let Some(stat) = precondition.before {
                    model.met(precondition.path, stat, reader.paths());
                }
            }
            Entry::Version(version) => versions.insert(version),
            _ => {}
        }
    }
    join_names(&loaded_effects, &facts, &model, &mut choices);
    follow(&loaded_effects, &facts, &mut choices);
    Ok(Loaded {
        reader,
        effects: loaded_effects,
        facts,
        choices,
        model,
        versions,
    })
}

/// What settles one name of a file that has others tells of what was done under those, too: it is not meant for its path alone.
fn join_names(effects: &[Effect], facts: &[Fact], model: &Model, choices: &mut [Choice]) {
    let mut spoken: HashSet<Obj> = HashSet::new();
    for (effect, fact) in effects.iter().zip(facts) {
        if let (Act::Set { obj } | Act::Bind { obj, .. }, false) =
            (fact.act, matches!(effect.op, Op::Settle { .. }))
        {
            spoken.insert(obj);
        }
    }
    for ((effect, fact), choice) in effects.iter().zip(facts).zip(choices) {
        if let (Op::Settle { .. }, Act::Set { obj }, Choice::Chosen) =
            (&effect.op, fact.act, *choice)
            && model.object(obj).originals.len() > 1
            && spoken.contains(&obj)
        {
            *choice = Choice::Follows;
        }
    }
}

/// Settles what follows: an event that settles an object goes with the others on it when all of them are chosen.
fn follow(effects: &[Effect], facts: &[Fact], choices: &mut [Choice]) {
    if !choices.contains(&Choice::Follows) {
        return;
    }
    let mut whole: HashMap<Obj, bool> = HashMap::new();
    for ((effect, fact), choice) in effects.iter().zip(facts).zip(choices.iter()) {
        if matches!(effect.op, Op::Settle { .. }) {
            continue;
        }
        let (first, second) = match fact.act {
            Act::Bind { obj, .. } | Act::Set { obj } | Act::Move { obj, .. } => (obj, None),
            Act::Swap { x, y, .. } => (x, Some(y)),
            Act::Unbind { .. } | Act::Nothing => continue,
        };
        for obj in [Some(first), second].into_iter().flatten() {
            *whole.entry(obj).or_insert(true) &= *choice == Choice::Chosen;
        }
    }
    for (fact, choice) in facts.iter().zip(choices) {
        if *choice == Choice::Follows {
            let goes = match fact.act {
                Act::Bind { obj, .. } | Act::Set { obj } => whole.get(&obj) == Some(&true),
                _ => false,
            };
            *choice = if goes { Choice::Chosen } else { Choice::Left };
        }
    }
}
