//! `run --as-user`: root builds the semisolate, in which every owner and group is known, and the command is an ordinary user.

use std::env;
use std::ffi::{CString, OsString};

use effigy_semisolate::{Identity, User};
use nix::unistd::{self, Gid, Uid, getgrouplist};

use crate::failure::Failure;

/// Who the command is to be.
#[derive(Debug)]
pub(super) struct Account {
    pub(super) user: User,
    /// As the machine's list of users has it; a number may be nobody's.
    known: Option<unistd::User>,
}

impl Account {
    /// What programs look at to find out who they are.
    pub(super) fn environment(&self) -> Vec<(&'static str, OsString)> {
        let Some(known) = &self.known else {
            return Vec::new();
        };
        vec![
            ("HOME", known.dir.clone().into()),
            ("SHELL", known.shell.clone().into()),
            ("USER", known.name.clone().into()),
            ("LOGNAME", known.name.clone().into()),
        ]
    }
}

/// The user of `--as-user`: a name, a number, or, when empty, whoever called sudo, doas or pkexec.
pub(super) fn of(wanted: Option<&str>, identity: Identity) -> anyhow::Result<Option<Account>> {
    let Some(wanted) = wanted else {
        return Ok(None);
    };
    if !identity.is_privileged() {
        return Err(
            Failure::new("cannot run the command as another user: only root can")
                .hint("sudo effigy run --as-user runs it as you, with every file's owner known")
                .into(),
        );
    }
    let wanted = match wanted {
        "" => caller().ok_or_else(|| {
            Failure::new("cannot tell which user --as-user means: sudo, doas or pkexec would say")
                .hint("name one: --as-user=USER")
        })?,
        name => name.to_owned(),
    };
    find(&wanted).map(Some)
}

fn caller() -> Option<String> {
    ["SUDO_UID", "DOAS_USER", "PKEXEC_UID"]
        .iter()
        .find_map(|name| env::var(name).ok())
        .filter(|user| !user.is_empty())
}

fn find(wanted: &str) -> anyhow::Result<Account> {
    let number = wanted.parse().ok().map(Uid::from_raw);
    let known = match number {
        Some(uid) => unistd::User::from_uid(uid),
        None => unistd::User::from_name(wanted),
    };
    match (known, number) {
        (Ok(Some(known)), _) => {
            let name = CString::new(known.name.as_bytes())?;
            Ok(Account {
                user: User {
                    uid: known.uid,
                    gid: known.gid,
                    groups: getgrouplist(&name, known.gid)?,
                },
                known: Some(known),
            })
        }
        (Ok(None), Some(uid)) => {
            let gid = Gid::from_raw(uid.as_raw());
            Ok(Account {
                user: User {
                    uid,
                    gid,
                    groups: vec![gid],
                },
                known: None,
            })
        }
        (Ok(None), None) => Err(Failure::new(format!("no user {wanted}"))
            .hint("--as-user takes a name or a number")
            .into()),
        (Err(error), _) => {
            Err(Failure::new(format!("cannot look user {wanted} up: {error}")).into())
        }
    }
}
