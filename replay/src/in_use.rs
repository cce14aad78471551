//! Files that a plan replaces or removes while a process outside holds them open for writing, or locked.
//!
//! Such a process goes on with the file that is gone: databases above all lose what they write from then on. It is no conflict,
//! as what stands there is still what the session met; but whoever applies should know. What is asked is what the kernel tells
//! about processes of the same user (root: all), without touching the files, which could block.

use crate::known::absolute;
use crate::ledger::Taking;
use crate::node::Node;
use crate::plan::{Kind, Plan};
use crate::step::Step;
use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

/// Descriptors that are looked at; beyond that the answer is not complete, as it may be anyway.
const MAX_DESCRIPTORS: usize = 200_000;

/// What a process does with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Use {
    /// It has it open for writing.
    Written,
    /// It holds a lock on it.
    Locked,
}

/// A file in use.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InUse {
    /// The file.
    pub path: PathBuf,
    /// How.
    pub how: Use,
    /// The process; 0 when only the lock is known.
    pub pid: u32,
    /// The name of its program.
    pub command: OsString,
}

impl fmt::Display for InUse {
    /// Names stand as they are: escape them for a terminal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match self.how {
            Use::Written => write!(f, "{path} is open for writing")?,
            Use::Locked => write!(f, "{path} is locked")?,
        }
        match self.pid {
            0 => write!(f, " by another process"),
            pid => write!(f, " by {} (process {pid})", self.command.display()),
        }
    }
}

/// What of the files that a plan replaces or removes is in use, sorted by path.
#[must_use]
pub fn in_use(plan: &Plan) -> Vec<InUse> {
    let losing = Losing::of(plan);
    if losing.files.is_empty() && losing.directories.is_empty() {
        return Vec::new();
    }
    let mut found = HashSet::new();
    losing.locked(&mut found);
    losing.written(&mut found);
    // A lock that is held through a descriptor for writing says no more than that one does.
    let written: HashSet<PathBuf> = found
        .iter()
        .filter(|used| used.how == Use::Written)
        .map(|used| used.path.clone())
        .collect();
    found.retain(|used| used.pid != 0 || !written.contains(&used.path));
    let mut found: Vec<InUse> = found.into_iter().collect();
    found.sort();
    found
}

/// What is replaced or removed.
#[derive(Debug, Default)]
struct Losing {
    files: HashSet<PathBuf>,
    /// Files by device and inode, as the table of locks names them.
    inodes: HashMap<(u32, u32, u64), PathBuf>,
    /// With all that is below.
    directories: HashSet<PathBuf>,
}

impl Losing {
    fn of(plan: &Plan) -> Self {
        let mut losing = Self::default();
        let back = |index: usize| match &plan.kind {
            Kind::Commit => Some(false),
            Kind::Undo(takings) if takings.get(index) == Some(&Taking::Skip) => None,
            Kind::Undo(_) => Some(true),
        };
        for (index, step) in plan.file.steps.iter().enumerate() {
            let Some(back) = back(index) else { continue };
            let (target, node) = match step {
                Step::Put(put) => {
                    let new = put.new.as_ref().map(|new| new.node);
                    (&put.target, if back { new } else { put.old })
                }
                Step::Rewrite(rewrite) => {
                    let node = if back { rewrite.new } else { rewrite.old };
                    (&rewrite.target, Some(node))
                }
                _ => continue,
            };
            if let (Some(node), Some(path)) = (node, absolute(&plan.file, target)) {
                losing.add(path, &node);
            }
        }
        losing
    }

    fn add(&mut self, path: PathBuf, node: &Node) {
        if node.is_dir() {
            self.directories.insert(path);
        } else if node.is_file() {
            if node.ino != 0 {
                self.inodes
                    .insert((node.dev.0, node.dev.1, node.ino), path.clone());
            }
            self.files.insert(path);
        }
    }

    fn holds(&self, path: &Path) -> bool {
        let below = || {
            path.ancestors()
                .skip(1)
                .any(|above| self.directories.contains(above))
        };
        self.files.contains(path) || (!self.directories.is_empty() && below())
    }

    fn locked(&self, found: &mut HashSet<InUse>) {
        let Ok(table) = fs::read("/proc/locks") else {
            return;
        };
        for line in table.split(|&byte| byte == b'\n') {
            let Some((pid, inode)) = lock(line) else {
                continue;
            };
            if let Some(path) = self
                .inodes
                .get(&inode)
                .filter(|_| pid != std::process::id())
            {
                found.insert(InUse {
                    path: path.clone(),
                    how: Use::Locked,
                    pid,
                    command: command(pid),
                });
            }
        }
    }

    fn written(&self, found: &mut HashSet<InUse>) {
        let mut budget = MAX_DESCRIPTORS;
        for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let name = process.file_name();
            let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else {
                continue;
            };
            if pid == std::process::id() {
                continue;
            }
            // Another user's, or one that has just ended.
            for descriptor in fs::read_dir(process.path().join("fd"))
                .into_iter()
                .flatten()
                .flatten()
            {
                budget -= 1;
                if budget == 0 {
                    return;
                }
                let Ok(path) = fs::read_link(descriptor.path()) else {
                    continue;
                };
                if self.holds(&path) && writes(&process.path(), &descriptor.file_name()) {
                    found.insert(InUse {
                        path,
                        how: Use::Written,
                        pid,
                        command: command(pid),
                    });
                }
            }
        }
    }
}

/// Whether a descriptor was opened for writing.
fn writes(process: &Path, descriptor: &OsStr) -> bool {
    let Ok(text) = fs::read(process.join("fdinfo").join(descriptor)) else {
        return false;
    };
    let flags = text
        .split(|&byte| byte == b'\n')
        .find_map(|line| line.strip_prefix(b"flags:"));
    let flags = flags.and_then(|flags| std::str::from_utf8(flags.trim_ascii()).ok());
    let flags = flags.and_then(|flags| i32::from_str_radix(flags, 8).ok());
    flags.is_some_and(|flags| flags & libc::O_ACCMODE != libc::O_RDONLY)
}

/// The holder and the file of a line of /proc/locks: `1: POSIX  ADVISORY  WRITE 7539 fe:00:2179468 0 EOF`. 0 is nobody's number: that
/// of a lock which belongs to an open file, and of a process in another PID namespace.
fn lock(line: &[u8]) -> Option<(u32, (u32, u32, u64))> {
    let line = std::str::from_utf8(line).ok()?;
    let mut words = line.split_ascii_whitespace().skip(1);
    // `->` waits for a lock; leases are asked for by servers and give way.
    if !matches!(words.next()?, "POSIX" | "FLOCK" | "OFDLCK") {
        return None;
    }
    let pid = words.nth(2)?.parse().unwrap_or(0);
    let mut inode = words.next()?.split(':');
    let device = (
        u32::from_str_radix(inode.next()?, 16).ok()?,
        u32::from_str_radix(inode.next()?, 16).ok()?,
    );
    Some((pid, (device.0, device.1, inode.next()?.parse().ok()?)))
}

fn command(pid: u32) -> OsString {
    let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    OsString::from_vec(name.trim_ascii_end().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_table_of_locks() {
        let found = |line: &str| lock(line.as_bytes());
        assert_eq!(
            found("5: FLOCK  ADVISORY  WRITE 25439 fe:00:754948 0 EOF"),
            Some((25439, (0xfe, 0, 754_948)))
        );
        assert_eq!(
            found("1: OFDLCK ADVISORY  READ -1 00:1b:3136297 0 EOF"),
            Some((0, (0, 0x1b, 3_136_297)))
        );
        assert_eq!(found("1: -> POSIX  ADVISORY  WRITE 7 fe:00:1 0 EOF"), None);
        assert_eq!(found("1: LEASE  ACTIVE    READ 7 fe:00:1 0 EOF"), None);
        assert_eq!(found(""), None);
    }
}
