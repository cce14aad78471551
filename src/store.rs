//! Where sessions are kept, and how one is chosen.

use std::env;
use std::path::{Path, PathBuf};

use nix::unistd::{Uid, User};

use crate::failure::Failure;

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
