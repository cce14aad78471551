//! Replaying journalled effects: the chosen ones, with those they rest on, onto the real tree or another one.
//!
//! The effects are executed in recorded order over a model of names and objects; what that comes to is compared with
//! what stands in the tree, and the difference becomes the steps of a plan like a commit's. Executing them one by one
//! on the real tree would end in the same state, but could not be validated before the first step is taken.

use crate::commit::next_number;
use crate::conflict::Conflict;
use crate::engine::{self, ApplyError};
use crate::known::absolute;
use crate::ledger::{PlanFile, plan_file};
use crate::mounted;
use crate::net::{NetError, net_effects};
use crate::node::FileType;
use crate::options::{Applied, Options, Progress, Trouble};
use crate::plan::{Kind, Note, Plan, PlanError};
use crate::selection::{EventSelection, Selection};
use crate::stack;
use crate::step::{Loc, Made, Make, Step};
use crate::sys;
use effigy_journal::{ReadError, Session, State, Tail};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

mod ground;
pub(crate) mod load;
mod lower;
pub(crate) mod model;
pub(crate) mod parted;
mod source;
mod standing;
pub(crate) mod wanted;

/// An effect that a selection lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Needed {
    /// Its number.
    pub seq: u64,
    /// Its operation.
    pub op: &'static str,
    /// Its path; of a rename or link the new name.
    pub path: PathBuf,
    /// The effect that rests on it.
    pub by: (u64, &'static str),
}

/// Why there is no plan. Nothing has been changed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// As for a commit.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The session was recorded without a journal.
    #[error("replay session {session}: it has no journal")]
    NoJournal {
        /// The session.
        session: String,
    },
    /// The journal cannot be read.
    #[error(transparent)]
    Journal(#[from] ReadError),
    /// The selection lacks effects that the chosen ones rest on, and must not be completed.
    #[error("replay: the selection lacks {} {} that it rests on", .0.len(), if .0.len() == 1 { "event" } else { "events" })]
    Incomplete(Vec<Needed>),
    /// A content was not kept.
    #[error("replay event {seq}: the content it gave {} is not kept any more", .path.display())]
    NoContent {
        /// The event.
        seq: u64,
        /// The file.
        path: PathBuf,
    },
    /// The selection moves a directory that a commit of the session has given other content: which of what is in it was
    /// there before cannot be told any more.
    #[error("replay the move of {}: a commit of the session has put something in it", .path.display())]
    Committed {
        /// The directory.
        path: PathBuf,
    },
    /// The journal has more effects than can be told apart.
    #[error("replay: the journal is too long")]
    TooLong,
}

impl From<NetError> for ReplayError {
    fn from(error: NetError) -> Self {
        Self::Plan(PlanError::Net(error))
    }
}

/// How to replay.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReplayOptions<'a> {
    /// As for a commit.
    pub options: Options,
    /// Another tree: every path is taken below this directory.
    pub root: Option<&'a Path>,
    /// Refuse a selection that lacks what it rests on, instead of completing it.
    pub strict: bool,
}

/// Plans the replay of the selected effects and validates every step. Nothing is changed.
///
/// # Errors
/// When a path is in conflict, a pattern matches nothing, content is missing, there is no room, or the journal cannot be
/// read.
pub fn plan(
    session: &Session,
    selection: &mut EventSelection,
    replay: &ReplayOptions<'_>,
) -> Result<Plan, ReplayError> {
    let options = replay.options;
    let number = next_number(session)?;
    if replay.root.is_none() {
        stack::check_apply(session)?;
    }
    if is_in_place(session, selection, replay)? {
        return Ok(Plan {
            kind: Kind::Commit,
            number,
            file: plan_file(&[]),
            notes: Vec::new(),
            to_copy: 0,
            trouble: Trouble::default(),
        });
    }
    let loaded = load::load(session, selection)?;
    let unmatched = selection.unmatched();
    if !unmatched.is_empty() {
        return Err(PlanError::NoMatch(unmatched).into());
    }
    let mut wanted = wanted::execute(&loaded);
    let needed: Vec<Needed> = wanted
        .added
        .iter()
        .map(|added| tell(&loaded, added))
        .collect();
    if replay.strict && !needed.is_empty() {
        return Err(ReplayError::Incomplete(needed));
    }
    let conflicts = std::mem::take(&mut wanted.conflicts);
    let mut notes: Vec<Note> = needed.into_iter().map(Note::Needed).collect();
    if loaded.reader.tail() != Tail::Complete {
        notes.push(Note::CutOff);
    }
    for &at in &wanted.dropped {
        let effect = &loaded.effects[at as usize];
        let path = effect.op.path().map(|id| loaded.reader.paths().path(id));
        notes.push(Note::Kept {
            path: path.unwrap_or_default(),
        });
    }
    notes.extend(refused(conflicts, options)?);
    let ground = ground::Ground::new(session, replay.root, &options)?;
    let mut file = plan_file(&[]);
    let roots = ground.roots(session);
    let roots: Vec<&Path> = roots.iter().map(PathBuf::as_path).collect();
    file.targets = plan_file(&roots).targets;
    let standing = standing::Standing::of(session)?;
    let standing = if replay.root.is_some() {
        standing::Standing::default()
    } else {
        standing
    };
    let view = source::View::new(session, &loaded, &wanted);
    let lower = lower::Lower::new(view, ground, standing, options, number);
    let (told, ground) = lower.plan(&mut file)?;
    notes.extend(told);
    if replay.root.is_none() {
        mounted::check(session, &file)?;
    }
    check_space(&ground, &file.steps)?;
    let devices = devices(&file);
    if !devices.is_empty() && !options.devices {
        return Err(PlanError::Devices(devices).into());
    }
    Ok(Plan {
        kind: Kind::Commit,
        number,
        to_copy: engine::to_copy(&file),
        file,
        notes,
        trouble: options.trouble(),
    })
}

/// Whether the tree already is what the whole session comes to. A commit may have got there by other means than the
/// recorded ones: it does not move directories, so where they went cannot be told from its ledger.
fn is_in_place(
    session: &Session,
    selection: &EventSelection,
    replay: &ReplayOptions<'_>,
) -> Result<bool, ReplayError> {
    if session.record.state != State::Applied || replay.root.is_some() || !selection.is_all() {
        return Ok(false);
    }
    Ok(net_effects(session, &Selection::all())?.is_empty())
}

/// Conflicts of the selection with itself cannot be overwritten.
fn refused(conflicts: Vec<Conflict>, options: Options) -> Result<Vec<Note>, ReplayError> {
    if conflicts.is_empty() || options.on_conflict == crate::options::OnConflict::Skip {
        return Ok(conflicts.into_iter().map(Note::Skipped).collect());
    }
    Err(PlanError::Conflicts(conflicts).into())
}

fn tell(loaded: &load::Loaded, added: &wanted::Added) -> Needed {
    let effect = &loaded.effects[added.at as usize];
    let (seq, op) = wanted::told(effect);
    let path = wanted::subject(&effect.op).map(|id| loaded.reader.paths().path(id));
    let (by, by_op) = wanted::told(&loaded.effects[added.because_of as usize]);
    Needed {
        seq: seq.0,
        op,
        path: path.unwrap_or_default(),
        by: (by.0, by_op),
    }
}

/// Where device nodes would be made.
fn devices(file: &PlanFile) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for step in &file.steps {
        let Step::Make(make) = step else { continue };
        let Made::Node { mode, .. } = make.made else {
            continue;
        };
        if FileType::from_mode(mode).is_device() {
            found.extend(destination(file, &make.at));
        }
    }
    found
}

/// The real path of what is made at a place aside.
fn destination(file: &PlanFile, at: &Loc) -> Option<PathBuf> {
    file.steps.iter().find_map(|step| {
        let Step::Put(put) = step else { return None };
        let target = if &put.hold == at {
            put.target.clone()
        } else {
            let rest = at.rel().strip_prefix(put.hold.rel())?.strip_prefix(b"/")?;
            put.target.join(rest)
        };
        absolute(file, &target)
    })
}

/// Whether there is room for what is written.
fn check_space(ground: &ground::Ground, steps: &[Step]) -> Result<(), ReplayError> {
    let mut needed: HashMap<(u32, u32), (u64, Loc)> = HashMap::new();
    let mut add = |loc: &Loc, bytes: u64| {
        if let Some((root, _)) = ground.root_of(loc) {
            needed
                .entry(root.node().dev)
                .or_insert_with(|| (0, loc.clone()))
                .0 += bytes;
        }
    };
    for step in steps {
        match step {
            Step::Make(Make {
                at,
                made: Made::File { len, .. },
                ..
            }) => add(at, *len),
            Step::Put(put) if put.copied => {
                add(&Loc::Session(Vec::new()), put.old.map_or(0, |old| old.size));
            }
            Step::Rewrite(rewrite) => {
                add(&Loc::Session(Vec::new()), rewrite.old.size);
                add(
                    &rewrite.target,
                    rewrite.new.size.saturating_sub(rewrite.old.size),
                );
            }
            _ => {}
        }
    }
    for (bytes, loc) in needed.into_values().filter(|(bytes, _)| *bytes > 0) {
        let Some((root, _)) = ground.root_of(&loc) else {
            continue;
        };
        let free = sys::free_bytes(root.fd()).map_err(NetError::io(root.path()))?;
        if bytes > free {
            let path = root.path().to_owned();
            return Err(PlanError::NoSpace {
                path,
                needed: bytes,
                free,
            }
            .into());
        }
    }
    Ok(())
}

/// Carries a plan out. The session must be locked exclusively; its record is updated and saved.
///
/// # Errors
/// When a step fails; everything is then put back.
pub fn apply(
    plan: Plan,
    session: &mut Session,
    progress: &mut dyn FnMut(Progress),
) -> Result<Applied, ApplyError> {
    crate::commit::apply(plan, session, progress)
}
