//! Where sessions are kept, and how one is chosen.

use std::env;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use effigy_journal::{
    CreateError, FindError, LockError, OpenError, RecordError, Session, SessionId, State, Store,
};
use nix::unistd::{Uid, User};

use crate::failure::{Cannot as _, Failure};

/// The store that `--store`, `EFFIGY_STORE` or the default names, in this order. Nothing is opened or created.
pub(crate) fn directory(option: Option<PathBuf>) -> anyhow::Result<PathBuf> {
    if let Some(directory) = option {
        if directory.as_os_str().is_empty() {
            return Err(Failure::new("--store names no directory").into());
        }
        return Ok(directory);
    }
    let variable = |name| {
        env::var_os(name)
            .filter(|v| !v.is_empty())
            .map(PathBuf::from)
    };
    if let Some(directory) = variable("EFFIGY_STORE") {
        return Ok(directory);
    }
    // The XDG base directory specification has relative values ignored.
    if let Some(state) = variable("XDG_STATE_HOME").filter(|p| p.is_absolute()) {
        return Ok(state.join("effigy"));
    }
    variable("HOME")
        .filter(|home| home.is_absolute())
        .or_else(home_of_user)
        .map(|home| home.join(".local/state/effigy"))
        .ok_or_else(|| {
            Failure::new("there is no home directory to keep sessions in")
                .hint("name a directory with --store DIR or EFFIGY_STORE")
                .into()
        })
}

fn home_of_user() -> Option<PathBuf> {
    let user = User::from_uid(Uid::effective()).ok().flatten()?;
    Some(user.dir).filter(|home| home.is_absolute() && home != Path::new("/"))
}

/// Opens the store, and makes it when it is not there.
pub(crate) fn open(directory: &Path) -> anyhow::Result<Store> {
    Store::open(directory).map_err(|error| {
        let hint = match &error {
            OpenError::Foreign { .. } => {
                "a store belongs to the user who runs effigy; choose another with --store DIR"
            }
            OpenError::Io { .. } => "choose another place with --store DIR or EFFIGY_STORE",
        };
        Failure::from_error(error).hint(hint).into()
    })
}

/// Finds the session that the user means.
pub(crate) fn find(store: &Store, wanted: Option<&str>) -> anyhow::Result<Session> {
    store.find(wanted).map_err(|error| {
        let hint = match &error {
            FindError::Empty { .. } => Some("make one: effigy run -- COMMAND".to_owned()),
            FindError::NotFound { near, .. } if near.is_empty() => {
                Some("effigy ls lists the sessions".to_owned())
            }
            FindError::NotFound { near, .. } => {
                Some(format!("did you mean {}?", near.join(" or ")))
            }
            FindError::Ambiguous { candidates, .. } => {
                Some(format!("give more of the id: {}", names(candidates)))
            }
            FindError::Damaged(RecordError::TooNew { .. }) => {
                Some("use the effigy that recorded it, or a later one".to_owned())
            }
            FindError::Damaged(_) => Some("effigy discard deletes it".to_owned()),
            FindError::List(_) => None,
        };
        Failure::from_error(error).maybe_hint(hint).into()
    })
}

fn names(candidates: &[(SessionId, Option<String>)]) -> String {
    let names: Vec<String> = candidates
        .iter()
        .map(|(id, name)| match name {
            Some(name) => format!("{id} ({name})"),
            None => id.to_string(),
        })
        .collect();
    names.join(", ")
}

/// Finds a session and takes its lock, so that nobody else changes it; what was read before is read again.
pub(crate) fn find_to_change(store: &Store, wanted: Option<&str>) -> anyhow::Result<Session> {
    let mut session = find(store, wanted)?;
    patiently(|| session.lock_exclusive()).map_err(locked)?;
    session.reload().cannot()?;
    crate::try_face::hide_shown(&session);
    if session.record.state == State::Recording {
        // The run that would have done so was killed.
        session.clear_work().map_err(|error| {
            Failure::new(format!(
                "cannot tidy the layers of session {}: {error}",
                session.label()
            ))
        })?;
    }
    Ok(session)
}

/// Finds a session whose command has ended and keeps it from being changed while it is read.
pub(crate) fn find_to_read(store: &Store, wanted: Option<&str>) -> anyhow::Result<Session> {
    let mut session = find(store, wanted)?;
    patiently(|| session.lock_shared()).map_err(locked)?;
    session.reload().cannot()?;
    Ok(session)
}

/// Tries again for a second when a session is in use: its lock goes a moment after the command, and scripts have the next line ready.
fn patiently(mut lock: impl FnMut() -> Result<(), LockError>) -> Result<(), LockError> {
    for _ in 0..100 {
        match lock() {
            Err(LockError::InUse { .. }) => thread::sleep(Duration::from_millis(10)),
            other => return other,
        }
    }
    lock()
}

/// A session in use is a refusal, not a failure.
pub(crate) fn locked(error: LockError) -> anyhow::Error {
    match error {
        LockError::InUse { .. } => Failure::from_error(error)
            .status(crate::failure::status::NO)
            .hint("wait until that effigy has ended")
            .into(),
        other => Failure::from_error(other).into(),
    }
}

/// Whether an error comes of a full filesystem or an exhausted quota.
fn is_full(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut causes = std::iter::successors(Some(error), |error| error.source());
    causes.any(|cause| {
        let kind = cause
            .downcast_ref::<std::io::Error>()
            .map(std::io::Error::kind);
        matches!(
            kind,
            Some(std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
        )
    })
}

/// Makes a session for a run, locked.
pub(crate) fn create(store: &Store, name: Option<&str>) -> anyhow::Result<Session> {
    store.create(name).map_err(|error| {
        let hint = match &error {
            full if is_full(full) => Some(
                "free some space there (effigy gc, effigy discard), or choose another place with --store DIR or EFFIGY_STORE"
                    .to_owned(),
            ),
            CreateError::NameTaken { name, id } => Some(format!(
                "--resume -s {name} runs on top of it; or choose another name, or delete it: effigy discard {id}"
            )),
            CreateError::Io { .. } => {
                Some("choose another place with --store DIR or EFFIGY_STORE".to_owned())
            }
            CreateError::BadName { .. } | CreateError::Record(_) | CreateError::Lock(_) => None,
        };
        Failure::from_error(error).maybe_hint(hint).into()
    })
}
