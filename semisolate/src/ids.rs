//! Who the command is inside: user-namespace id maps.

use std::fmt::Write as _;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use nix::fcntl::{OFlag, openat};
use nix::sys::prctl::set_keepcaps;
use nix::sys::stat::Mode;
use nix::unistd::{Gid, Pid, Uid, setgroups, setresgid, setresuid, write};

use crate::error::{Context, StartError};

/// Who the command is inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Identity {
    /// The same user and group as outside, without capabilities.
    Own,
    /// The user appears as root inside (`--root`).
    Root,
    /// Real root: every id of this process's user namespace is mapped to itself.
    All,
}

impl Identity {
    /// What this process can do: `All` when it may mount, give files away and map every id; otherwise `Own` or `Root`.
    #[must_use]
    pub fn of_this_process(as_root: bool) -> Self {
        const NEEDED: [u32; 6] = [0, 3, 6, 7, 21, 27]; // chown, fowner, setgid, setuid, sys_admin, mknod
        let is_root = nix::unistd::geteuid().is_root();
        if is_root
            && is_initial_namespace()
            && NEEDED
                .iter()
                .all(|&number| crate::sys::has_capability(number))
        {
            Self::All
        } else if as_root || is_root {
            Self::Root
        } else {
            Self::Own
        }
    }

    /// Whether the view is built with the powers of real root.
    #[must_use]
    pub fn is_privileged(self) -> bool {
        self == Self::All
    }
}

/// A user that the command is to be instead of root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// The user's number.
    pub uid: Uid,
    /// The primary group.
    pub gid: Gid,
    /// All groups.
    pub groups: Vec<Gid>,
}

impl User {
    /// Makes this process one of the user's. Allocates nothing.
    pub(crate) fn take_on(&self) -> io::Result<()> {
        setgroups(&self.groups)?;
        setresgid(self.gid, self.gid, self.gid)?;
        Ok(setresuid(self.uid, self.uid, self.uid)?)
    }

    /// The same, and all capabilities stay: whoever performs calls for the user gives them up when it does.
    pub(crate) fn take_on_with_capabilities(&self) -> io::Result<()> {
        set_keepcaps(true)?;
        self.take_on()?;
        crate::sys::use_all_capabilities()
    }
}

/// Whether this process is in the user namespace that the machine began with: only there can mounts be taken apart that others made.
fn is_initial_namespace() -> bool {
    std::fs::read_to_string("/proc/self/uid_map")
        .is_ok_and(|map| map.split_whitespace().eq(["0", "0", "4294967295"]))
}

/// The ids of this process, taken before it enters a user namespace.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ids {
    uid: u32,
    gid: u32,
}

impl Ids {
    pub(crate) fn current() -> Self {
        Self {
            uid: nix::unistd::geteuid().as_raw(),
            gid: nix::unistd::getegid().as_raw(),
        }
    }

    /// The user as seen inside a namespace that `map_one` has mapped.
    pub(crate) fn inside(self, identity: Identity) -> Self {
        if identity == Identity::Root {
            Self { uid: 0, gid: 0 }
        } else {
            self
        }
    }

    pub(crate) fn uid(self) -> u32 {
        self.uid
    }
}

/// Maps this one user and group in the user namespace that this process has just made. `proc` is a process directory in which
/// this process is `self`.
pub(crate) fn map_one(proc: &OwnedFd, outside: Ids, identity: Identity) -> io::Result<()> {
    let inside = outside.inside(identity);
    // Without this an unprivileged process may not write a group map: it could drop groups that deny it something.
    match write_file(proc, "self/setgroups", "deny") {
        Err(error)
            if error.raw_os_error() != Some(libc::ENOENT)
                && error.raw_os_error() != Some(libc::EPERM) =>
        {
            return Err(error);
        }
        _ => {}
    }
    write_file(
        proc,
        "self/uid_map",
        &format!("{} {} 1", inside.uid, outside.uid),
    )?;
    write_file(
        proc,
        "self/gid_map",
        &format!("{} {} 1", inside.gid, outside.gid),
    )
}

/// Maps all ids of this process's user namespace to themselves in the namespace of `process`.
pub(crate) fn map_all(process: Pid, identity: Identity) -> Result<(), StartError> {
    debug_assert!(identity.is_privileged(), "others map themselves");
    let proc = nix::fcntl::open("/proc", OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty())
        .doing(|| "open /proc".to_owned())?;
    for kind in ["uid_map", "gid_map"] {
        let doing = || format!("map all ids inside ({kind})");
        let mut map = String::new();
        for line in std::fs::read_to_string(format!("/proc/self/{kind}"))
            .doing(doing)?
            .lines()
        {
            let numbers: Vec<u32> = line
                .split_whitespace()
                .filter_map(|number| number.parse().ok())
                .collect();
            if let [inside, _, count] = numbers[..] {
                let _infallible = writeln!(map, "{inside} {inside} {count}");
            }
        }
        write_file(&proc, &format!("{process}/{kind}"), &map).doing(doing)?;
    }
    Ok(())
}

fn write_file(dir: &OwnedFd, path: &str, text: &str) -> io::Result<()> {
    let file = openat(dir, path, OFlag::O_WRONLY | OFlag::O_CLOEXEC, Mode::empty())?;
    // These files take their whole content in one write.
    write(file.as_fd(), text.as_bytes())?;
    Ok(())
}
