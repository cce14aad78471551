//! What this machine allows: each capability that a run needs, tried out rather than looked up.
//!
//! Every trial happens in a process of its own that ends at once, in namespaces of its own, so nothing of it remains.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use nix::fcntl::{AT_FDCWD, OFlag, open};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::stat::Mode;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::ForkResult;

use crate::ids::{self, Identity, Ids};
use crate::mounts::{self, Access, At, Overlay};
use crate::plan::Restrictions;
use crate::sys;
use crate::view::NAME;

/// One thing that this machine allows or refuses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capability {
    /// Its name, a few words.
    pub name: &'static str,
    /// Whether the machine allows it.
    pub ok: bool,
    /// Whether a run is refused without it.
    pub needed: bool,
    /// What was found: the kernel's answer, or what goes without it.
    pub detail: String,
    /// What to do about a refusal.
    pub remedy: Option<String>,
}

/// Tries everything that a run needs. `scratch` is an empty directory on the store's filesystem, in which layers are made.
///
/// The caller must be single-threaded.
#[must_use]
pub fn capabilities(scratch: &Path) -> Vec<Capability> {
    let identity = Identity::of_this_process(false);
    let mut found = vec![
        trial(
            "namespaces of its own",
            true,
            || all_namespaces(identity),
            refused_namespaces,
        ),
        trial(
            "binding the real tree read-only",
            true,
            || bind_mounts(identity, scratch),
            refused_mounts,
        ),
        trial(
            "overlay on the store's filesystem",
            true,
            || overlay(identity, scratch),
            |errno| match errno {
                libc::ENODEV => Some(
                    "load the overlay module (modprobe overlay), or run a kernel that has it"
                        .to_owned(),
                ),
                libc::EINVAL => Some(
                    "keep sessions on ext4, xfs, btrfs or tmpfs: --store DIR or EFFIGY_STORE"
                        .to_owned(),
                ),
                libc::EPERM => Some(
                    "run Linux 5.11 or later: older ones have no overlay in a user namespace"
                        .to_owned(),
                ),
                _ => refused_mounts(errno),
            },
        ),
        trial(
            "a process directory of its own",
            true,
            || process_directory(identity, scratch),
            |errno| {
                match errno {
            libc::EPERM => Some(
                "this machine masks parts of /proc, as containers do: start the container with --security-opt systempaths=unconfined; \
                 or run with --weaker pid, where /proc lists no processes and is read-only"
                    .to_owned(),
            ),
            _ => None,
        }
            },
        ),
        trial(
            "a network of its own (--no-net)",
            false,
            || own_network(identity),
            |_| None,
        ),
    ];
    let listener = |flags| move || sys::try_listener(flags).map(drop);
    found.push(trial("system call notification", false, listener(0), |errno| match errno {
        libc::EBUSY => Some("another supervisor records this process already: an outer effigy, a container or WSL".to_owned()),
        _ => Some("run Linux 5.9 or later with CONFIG_SECCOMP_FILTER".to_owned()),
    }));
    let killable = libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    found.push(trial(
        "notification without interrupted calls",
        false,
        listener(killable),
        |_| Some("run Linux 5.19 or later".to_owned()),
    ));
    found.push(trial(
        "notification with quick answers",
        false,
        || sys::try_sync_wake_up(sys::try_listener(0)?.as_fd()),
        |_| {
            Some(
                "run Linux 6.6 or later: recording is about four times slower without it"
                    .to_owned(),
            )
        },
    ));
    found
}

/// Whether system calls of a command can be recorded here. The caller must be single-threaded.
#[must_use]
pub fn can_record() -> bool {
    in_child(|| sys::try_listener(0).map(drop)).is_ok_and(|errno| errno == 0)
}

/// Runs `attempt` in a child and tells how it went.
fn trial(
    name: &'static str,
    needed: bool,
    attempt: impl FnOnce() -> io::Result<()>,
    remedy: impl FnOnce(i32) -> Option<String>,
) -> Capability {
    let errno = match in_child(attempt) {
        Ok(errno) => errno,
        Err(error) => error.raw_os_error().unwrap_or(libc::EIO),
    };
    let detail = if errno == 0 {
        String::new()
    } else {
        io::Error::from_raw_os_error(errno).to_string()
    };
    Capability {
        name,
        ok: errno == 0,
        needed,
        detail,
        remedy: if errno == 0 { None } else { remedy(errno) },
    }
}

/// The error number with which `attempt` fails in a child, 0 when it does not.
fn in_child(attempt: impl FnOnce() -> io::Result<()>) -> io::Result<i32> {
    match sys::fork()? {
        ForkResult::Child => {
            let errno = attempt()
                .err()
                .map_or(0, |error| error.raw_os_error().unwrap_or(libc::EIO));
            // Error numbers fit an exit status.
            sys::exit_now(errno)
        }
        ForkResult::Parent { child } => match waitpid(child, None)? {
            WaitStatus::Exited(_, errno) => Ok(errno),
            _ => Ok(libc::EIO),
        },
    }
}

fn building_namespaces(identity: Identity) -> io::Result<()> {
    let ids = Ids::current();
    if identity.is_privileged() {
        unshare(CloneFlags::CLONE_NEWNS)?;
    } else {
        let proc = open("/proc", OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty())?;
        unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS)?;
        ids::map_one(&proc, ids, identity)?;
    }
    Ok(mount(
        None::<&str>,
        "/",
        None::<&str>,
        MsFlags::MS_REC | MsFlags::MS_PRIVATE,
        None::<&str>,
    )?)
}

/// Those in which the view is built, and those in which the command runs.
fn all_namespaces(identity: Identity) -> io::Result<()> {
    building_namespaces(identity)?;
    Ok(unshare(
        CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWPID,
    )?)
}

/// Mounts on `scratch` itself, in a mount namespace that ends with the trial.
fn bind_mounts(identity: Identity, scratch: &Path) -> io::Result<()> {
    building_namespaces(identity)?;
    let scratch = open(scratch, NAME | OFlag::O_DIRECTORY, Mode::empty())?;
    mounts::bind(
        At {
            dir: AT_FDCWD,
            path: c"/",
        },
        At::new(&scratch, c""),
        true,
        Access::ReadOnly,
    )
}

fn overlay(identity: Identity, scratch: &Path) -> io::Result<()> {
    building_namespaces(identity)?;
    let dir = |name: &str| {
        fs::create_dir_all(scratch.join(name))?;
        Ok::<_, io::Error>(open(
            &scratch.join(name),
            NAME | OFlag::O_DIRECTORY,
            Mode::empty(),
        )?)
    };
    let (lower, upper, work) = (dir("lower")?, dir("upper")?, dir("work")?);
    let overlay = Overlay {
        keep_links: false,
        lower: vec![&lower],
        upper: &upper,
        work: &work,
    };
    mounts::overlay(&overlay, At::new(&lower, c""), Restrictions::default())
}

fn process_directory(identity: Identity, scratch: &Path) -> io::Result<()> {
    building_namespaces(identity)?;
    let scratch = open(scratch, NAME | OFlag::O_DIRECTORY, Mode::empty())?;
    unshare(CloneFlags::CLONE_NEWPID)?;
    let errno = in_child(|| mounts::processes(At::new(&scratch, c"")))?;
    if errno == 0 {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(errno))
    }
}

fn own_network(identity: Identity) -> io::Result<()> {
    building_namespaces(identity)?;
    unshare(CloneFlags::CLONE_NEWNET)?;
    sys::loopback_up()
}

fn refused_mounts(errno: i32) -> Option<String> {
    (errno == libc::EPERM || errno == libc::EACCES)
        .then(|| "a container or a security module forbids mounts: start the container with --privileged, or run effigy outside".to_owned())
}

/// Who refuses user namespaces, and what to do about it.
fn refused_namespaces(errno: i32) -> Option<String> {
    let setting = |path: &str| {
        fs::read_to_string(path)
            .ok()
            .map(|text| text.trim().to_owned())
    };
    let is = |path: &str, value: &str| setting(path).as_deref() == Some(value);
    let remedy = if is("/proc/sys/kernel/unprivileged_userns_clone", "0") {
        "this kernel forbids user namespaces to ordinary users: sudo sysctl kernel.unprivileged_userns_clone=1"
    } else if is("/proc/sys/user/max_user_namespaces", "0") {
        "this machine allows no user namespaces: sudo sysctl user.max_user_namespaces=15000"
    } else if is(
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        "1",
    ) {
        "AppArmor restricts user namespaces here (Ubuntu 23.10 and later): give effigy a profile that allows userns (share/effigy/apparmor of \
         an installed effigy, packaging/apparmor/effigy of its sources), or sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0"
    } else if errno == libc::ENOSPC {
        "too many user namespaces are in use or nested: end some, or sudo sysctl user.max_user_namespaces=15000"
    } else if errno == libc::EPERM {
        "a container's seccomp profile or a security module forbids them: start the container with --security-opt \
         seccomp=unconfined, or run effigy outside of it"
    } else {
        return None;
    };
    Some(remedy.to_owned())
}
