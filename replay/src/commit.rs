//! Putting the net effects of a session in place.

use crate::engine::{self, ApplyError};
use crate::execute;
use crate::known::Known;
use crate::ledger::{Ledger, Stage, plan_file};
use crate::mounted;
use crate::net::NetError;
use crate::options::{Applied, Options, Progress};
use crate::plan::{Kind, Plan, PlanError};
use crate::recollect::Recollection;
use crate::root::Root;
use crate::scan;
use crate::selection::Selection;
use crate::stack;
use effigy_journal::Session;
use std::collections::HashMap;
use std::path::Path;

mod build;
mod check;
mod choose;
mod place;

pub(crate) use choose::{is_effect, path_of};

/// Plans the commit of the selected net effects and validates every step. Nothing is changed.
///
/// # Errors
/// When a path is in conflict, a pattern matches nothing, there is no room, or the layers cannot be read.
pub fn plan(
    session: &Session,
    selection: &Selection,
    options: &Options,
) -> Result<Plan, PlanError> {
    let number = next_number(session)?;
    stack::check_apply(session)?;
    let memory = Recollection::of(session);
    let collapse = selection.is_all() && !options.keep;
    let mut scanned = scan::scan(session, &memory, collapse)?;
    if collapse && must_list(&scanned) {
        scanned = scan::scan(session, &memory, false)?;
    }
    let known = Known::of(session)?;
    let chosen = choose::choose(session, &scanned, selection, options, &known, &memory)?;
    let store = Root::open(session.dir()).map_err(NetError::io(session.dir()))?;
    let targets: Vec<&Path> = session
        .record
        .covers
        .iter()
        .map(|cover| cover.mount_point.as_path())
        .collect();
    let mut file = plan_file(&targets);
    let ground = build::Ground {
        session,
        store: &store,
        scanned: &scanned,
        memory: &memory,
    };
    let notes = build::build(&ground, chosen, options, number, &mut file)?;
    mounted::check(session, &file)?;
    place::check_space(&store, &scanned, &file)?;
    Ok(Plan {
        kind: Kind::Commit,
        number,
        to_copy: engine::to_copy(&file),
        file,
        notes,
        trouble: options.trouble(),
    })
}

/// Whether the inside of new directories matters.
fn must_list(scanned: &scan::Scanned) -> bool {
    scanned.unlisted_devices || has_unseen_links(scanned) || has_links(scanned)
}

/// Whether a file that the real tree has too may have further names in new directories whose inside was not listed.
fn has_unseen_links(scanned: &scan::Scanned) -> bool {
    let mut names: HashMap<(u32, u64), (u32, u32, bool)> = HashMap::new();
    for item in &scanned.items {
        if let Some(upper) = item
            .upper
            .filter(|upper| !upper.is_dir() && upper.nlink > 1)
        {
            let entry = names
                .entry((item.cover, upper.ino))
                .or_insert((0, upper.nlink, false));
            entry.0 += 1;
            entry.2 |= item.real.is_some();
        }
    }
    names
        .into_values()
        .any(|(seen, all, real)| real && seen < all)
}

/// Whether a file that has several names was changed or removed: it may have been moved into a new directory whose inside was not
/// listed.
fn has_links(scanned: &scan::Scanned) -> bool {
    scanned.items.iter().any(build::has_several_names)
}

/// The number of the next apply, unless one was interrupted.
pub(crate) fn next_number(session: &Session) -> Result<u32, PlanError> {
    let ledgers = Ledger::all(session).map_err(NetError::io(session.dir()))?;
    for ledger in &ledgers {
        if matches!(ledger.stage()?, Stage::Applying | Stage::Undoing(_)) {
            return Err(PlanError::Interrupted);
        }
    }
    let last = ledgers
        .last()
        .map_or(0, |ledger| ledger.number)
        .max(session.record.applies);
    Ok(last.saturating_add(1))
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
    execute::apply(session, plan.number, &plan.file, plan.trouble, progress)
}

/// Plans and applies; when the filesystem refuses to move between layer and target, plans again with copies.
///
/// # Errors
/// As [`plan`] and [`apply`].
pub fn commit(
    session: &mut Session,
    selection: &Selection,
    options: &Options,
    progress: &mut dyn FnMut(Progress),
) -> Result<Applied, CommitError> {
    let first = plan(session, selection, options)?;
    match apply(first, session, progress) {
        Err(ApplyError::CrossDevice { .. }) if !options.copy => {
            let second = plan(
                session,
                selection,
                &Options {
                    copy: true,
                    ..*options
                },
            )?;
            Ok(apply(second, session, progress)?)
        }
        other => Ok(other?),
    }
}

/// Why a commit was not made.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// There is no plan.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// It failed.
    #[error(transparent)]
    Apply(#[from] ApplyError),
}
