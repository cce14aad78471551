//! Mounts that a session was recorded over. When one is gone, what was done there must not land in the directory that it covered.

use crate::known::absolute;
use crate::ledger::PlanFile;
use crate::plan::PlanError;
use crate::root::Root;
use effigy_journal::Session;
use std::path::{Path, PathBuf};

/// Refuses a plan for places where nothing is mounted any more.
pub(crate) fn check(session: &Session, file: &PlanFile) -> Result<(), PlanError> {
    let covers = session.record.covers.iter();
    let were = covers.filter(|cover| cover.mounted == Some(true));
    let mut gone: Vec<PathBuf> = were
        .map(|cover| cover.mount_point.clone())
        .filter(|path| !is_mounted(path))
        .collect();
    gone.retain(|mount_point| {
        let within = |path: PathBuf| path.starts_with(mount_point);
        let targets = file.steps.iter().filter_map(|step| step.target());
        targets.filter_map(|loc| absolute(file, loc)).any(within)
    });
    if gone.is_empty() {
        Ok(())
    } else {
        Err(PlanError::Unmounted(gone))
    }
}

/// Whether a path is the root of a mount.
fn is_mounted(path: &Path) -> bool {
    let attribute = u64::try_from(libc::STATX_ATTR_MOUNT_ROOT).unwrap_or(0);
    Root::open(path).is_ok_and(|root| root.node().attributes & attribute != 0)
}
