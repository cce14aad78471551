//! What the session's own applies have put in place although layer and real tree still differ.

use super::{Item, Scanned, What};
use crate::conflict::Reason;
use crate::ledger::{Ledger, PlanFile, Stage};
use crate::net::NetError;
use crate::step::{Loc, Step};
use effigy_journal::{Session, Timestamp};
use std::collections::{HashMap, HashSet};

/// Takes such items for no effect. The ledgers are read only when there is one that may be so.
pub(super) fn pass_over(session: &Session, scanned: &mut Scanned) -> Result<(), NetError> {
    if !scanned
        .items
        .iter()
        .any(|item| is_locked(item) || has_other_names(item))
    {
        return Ok(());
    }
    let mut applied = Vec::new();
    for ledger in Ledger::all(session).map_err(NetError::io(session.dir()))? {
        if let (Stage::Applied(time), Some(plan)) = (ledger.stage()?, ledger.plan()?) {
            applied.push((time, plan));
        }
    }
    pass_over_locked(scanned, &applied);
    pass_over_names(scanned, &applied);
    Ok(())
}

fn is_locked(item: &Item) -> bool {
    item.what
        == What::Blocked(Reason::Unreadable {
            errno: libc::EACCES,
        })
}

fn has_other_names(item: &Item) -> bool {
    let several = item
        .real
        .is_some_and(|real| real.nlink > 1 && !real.is_dir());
    several && matches!(item.what, What::Content | What::Metadata)
}

/// What an apply has put into a directory that it then locked for its owner is in place, though it cannot be compared.
fn pass_over_locked(scanned: &mut Scanned, applied: &[(Timestamp, PlanFile)]) {
    let steps = applied.iter().flat_map(|(_, plan)| &plan.steps);
    let placed: HashSet<&Loc> = steps.filter_map(Step::target).collect();
    for item in scanned.items.iter_mut().filter(|item| is_locked(item)) {
        let ends = item
            .rel
            .iter()
            .enumerate()
            .filter(|(_, b)| **b == b'/')
            .map(|(at, _)| at);
        let mut above = ends
            .chain([item.rel.len()])
            .map(|end| item.rel[..end].to_vec());
        if above.any(|rel| placed.contains(&Loc::Target(item.cover, rel))) {
            item.what = What::Linked;
        }
    }
}

/// Copy-up splits the names of a file. What was changed under each of them was put into the one real file, so that none of
/// the layer's copies need look like it.
fn pass_over_names(scanned: &mut Scanned, applied: &[(Timestamp, PlanFile)]) {
    let mut names: HashMap<(&Loc, u64), Timestamp> = HashMap::new();
    let mut inodes: HashMap<((u32, u32), u64), Timestamp> = HashMap::new();
    for (time, plan) in applied {
        for step in &plan.steps {
            let (target, node) = match step {
                Step::Meta(meta) if !meta.aid => (&meta.target, &meta.node),
                Step::Rewrite(rewrite) => (&rewrite.target, &rewrite.old),
                _ => continue,
            };
            names.insert((target, node.ino), *time);
            inodes.insert((node.dev, node.ino), *time);
        }
    }
    for item in scanned
        .items
        .iter_mut()
        .filter(|item| has_other_names(item))
    {
        let (Some(upper), Some(real)) = (item.upper, item.real) else {
            continue;
        };
        let target = Loc::Target(item.cover, item.rel.clone());
        let named = names.get(&(&target, real.ino));
        let latest = inodes.get(&(real.dev, real.ino));
        if named.is_some_and(|time| Timestamp::from(upper.ctime) <= *time)
            && latest.is_some_and(|time| Timestamp::from(real.ctime) <= *time)
        {
            item.what = What::Linked;
        }
    }
}
