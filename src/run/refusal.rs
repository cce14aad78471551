//! Why a run was refused, in the words of `effigy doctor`.

use std::path::Path;

use effigy_journal::{ProbeError, Store};
use effigy_semisolate::features::capabilities;
use effigy_semisolate::{ExecError, StartError};

use crate::failure::Failure;
use crate::render::name::escaped;
use crate::render::quantity::size;

/// Less than this and a command may well fail for want of room.
const LITTLE: u64 = 256 << 20;

/// Where an ordinary user may write on most machines.
const PLACES: [&str; 3] = ["/var/tmp", "/tmp", "/dev/shm"];

/// Refuses a store in which a layer cannot be kept, before anything is made in it, and says when there is little room.
pub(crate) fn check_store(store: &Store, quiet: bool) -> anyhow::Result<()> {
    match store.probe() {
        Ok(capacity) => {
            if capacity.free_bytes < LITTLE && !quiet {
                let (free, dir) = (size(capacity.free_bytes), escaped(store.dir()));
                eprintln!("effigy: only {free} free for what the command writes, in {dir}");
                eprintln!(
                    "  hint: effigy gc and effigy discard make room; --store DIR chooses another place"
                );
            }
            Ok(())
        }
        Err(error) => {
            let remedy = remedy(&error);
            Err(Failure::from_error(error).hint(remedy).into())
        }
    }
}

/// What to do about a store that cannot hold layers: where there is a place that can, its name.
pub(crate) fn remedy(error: &ProbeError) -> String {
    let place = match error {
        ProbeError::Io { .. } => None,
        _ => PLACES.iter().find_map(|place| {
            let capacity = Store::probe_place(Path::new(place)).ok()?;
            let enough = capacity.free_bytes >= LITTLE;
            enough.then_some((place, capacity.in_memory))
        }),
    };
    let Some((place, in_memory)) = place else {
        return error.remedy().to_owned();
    };
    let memory = match in_memory {
        true => " (in memory: sessions there are gone when the machine goes down)",
        false => "",
    };
    let uid = nix::unistd::geteuid();
    format!(
        "--store {place}/effigy-{uid} can hold them{memory}; EFFIGY_STORE sets it for all commands"
    )
}

/// Names what the machine refuses, when it is that.
pub(super) fn not_built(error: StartError, scratch: &Path) -> anyhow::Error {
    let refused: Vec<String> = capabilities(scratch)
        .into_iter()
        .filter(|capability| capability.needed && !capability.ok)
        .map(|capability| {
            let remedy = capability
                .remedy
                .map(|remedy| format!("; {remedy}"))
                .unwrap_or_default();
            format!(
                "this machine refuses {}: {}{remedy}",
                capability.name, capability.detail
            )
        })
        .collect();
    let hint = if refused.is_empty() {
        "effigy doctor says what this machine allows".to_owned()
    } else {
        refused.join("\n")
    };
    Failure::from_error(error).hint(hint).into()
}

/// The command could not be executed: 127 not found, 126 not executable, as shells have it.
pub(super) fn not_started(error: ExecError) -> anyhow::Error {
    let (status, hint) = match &error {
        ExecError::NotFound(_) => (127, None),
        ExecError::NotExecutable(_, nix::libc::ENOEXEC) => (
            126,
            Some("it has no #! line and is no program: give its interpreter, such as sh FILE"),
        ),
        ExecError::NotExecutable(..) => (126, None),
        ExecError::WorkingDirectory(..) => (125, Some("cd to a directory that exists inside too")),
        ExecError::User(_) => (125, None),
        ExecError::Terminal(_) => (
            125,
            Some(
                "this takes a kernel with CONFIG_SECCOMP_FILTER; without a terminal it is not needed",
            ),
        ),
        ExecError::Recording(nix::libc::EBUSY) => (
            125,
            Some(
                "another supervisor has the notifications of system calls already, as inside another recording, some containers, \
                 and WSL: --no-trace keeps the effects only, --weaker trace does so where it must",
            ),
        ),
        ExecError::Recording(_) => (
            125,
            Some("effigy doctor says what this machine allows; --no-trace keeps the effects only"),
        ),
    };
    Failure::from_error(error)
        .status(status)
        .maybe_hint(hint)
        .into()
}
