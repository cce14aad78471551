//! The mount plan: what is placed where in the view, decided from data before anything is mounted.
//!
//! As real root every mount can be overlaid as a whole. In a user namespace the inherited mounts are *locked*: the kernel refuses
//! an overlay of a directory that has one of them below it. There the view starts from a read-only bind of the whole real tree (so
//! nothing is ever missing and nothing not covered can be written), and covers are laid over every directory without mounts below
//! it. A directory with mounts below it that the user may write to is *staged*: its own files are copied aside (large or foreign
//! ones are bound read-only), so that changes to them are captured too.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::mountinfo::{self, Mount};

mod stack;

pub use stack::{Below, InLayer, Lower, LowerCover};

/// The mount plan, parents before children, and `--read-only` after all else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// What is placed where, in the order in which it is placed.
    pub places: Vec<Place>,
    /// Whether inherited mounts are locked, because the view is built in a user namespace.
    pub locked: bool,
}

/// One thing placed in the view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Where: absolute, without symbolic links.
    pub path: PathBuf,
    /// What.
    pub what: What,
}

/// What is placed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// The whole real tree, read-only.
    Base,
    /// An overlay of the real directory.
    Cover(Cover),
    /// The real mount itself, read-only. With a reason when it could be written outside.
    Bind {
        /// Why it is not covered, when it is writable outside.
        reason: Option<String>,
    },
    /// The device directory.
    Devices,
    /// A shared-memory directory of the run's own.
    SharedMemory,
    /// A process directory of the run's own PID namespace.
    Processes,
    /// An empty directory that cannot be written, over the place where sessions are kept.
    Mask,
    /// What is there by then, read-only (`--read-only`).
    ReadOnly,
    /// The real Unix socket (`--pass-socket`).
    Socket,
    /// What is there by then, as writable as it is: it stays so when the covers are locked (`--write`).
    Open,
    /// All covers but those below these paths become read-only (`--write`).
    Lock {
        /// The paths.
        except: Vec<PathBuf>,
    },
    /// Something that cannot be opened (`--deny-read`).
    Denied,
}

/// An overlay of one real directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cover {
    /// The number of the layer that takes the writes.
    pub layer: u32,
    /// The number of the real mount that holds the directory: covers with the same one are parts of one filesystem.
    pub mount: u32,
    /// The lower layer is a staged copy of the directory's own files, because mounts lie below the directory.
    pub staged: bool,
    /// The mount's own restrictions, kept inside.
    pub restrictions: Restrictions,
    /// Names in this directory that do not exist inside (`--hide`).
    pub hidden: Vec<OsString>,
    /// The real directory is the root of a mount.
    pub mounted: bool,
    /// What earlier sessions left here.
    pub below: Below,
    /// The layer is that of an earlier run of the same session.
    pub resumed: bool,
}

/// Restrictions of a mount that its cover inherits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Restrictions {
    /// Set-user-id bits have no effect.
    pub nosuid: bool,
    /// Device nodes cannot be opened.
    pub nodev: bool,
    /// Programs cannot be executed.
    pub noexec: bool,
    /// Access times are not kept.
    pub noatime: bool,
}

/// What the user asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wishes {
    /// Paths that do not exist inside: absolute, without symbolic links.
    pub hide: Vec<PathBuf>,
    /// Paths that cannot be written inside: absolute, without symbolic links.
    pub read_only: Vec<PathBuf>,
    /// The only paths that can be written inside, unless there is none here: absolute, without symbolic links.
    pub write: Vec<PathBuf>,
    /// Paths whose content cannot be read inside: absolute, without symbolic links.
    pub deny_read: Vec<PathBuf>,
    /// Unix sockets that can be reached inside: absolute, without symbolic links.
    pub sockets: Vec<PathBuf>,
    /// The run's working directory.
    pub working_directory: PathBuf,
    /// Other directories in which the command is likely to write: its home, its place for temporary files.
    pub likely: Vec<PathBuf>,
    /// Where sessions are kept.
    pub store: PathBuf,
}

/// A mount plan that cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// Nothing is mounted at `/`.
    #[error("find the root of the mounts: mountinfo names none at /")]
    NoRoot,
    /// A path that cannot be made absent.
    #[error("hide {path}: {reason}")]
    CannotHide {
        /// The path as asked for.
        path: PathBuf,
        /// Why not.
        reason: &'static str,
    },
    /// What an earlier session wrote somewhere cannot be shown there now.
    #[error("show what session {session} wrote in {path}: {reason}")]
    CannotShow {
        /// The session.
        session: String,
        /// Where.
        path: PathBuf,
        /// Why not.
        reason: &'static str,
    },
}

/// What the plan needs to know about the real tree: a trait, so that plans for machines of any shape can be tested.
pub trait Tree {
    /// Whether the user may make and remove names in `dir`.
    fn may_write(&self, dir: &Path) -> bool;
    /// Whether the user may reach what is in `dir`.
    fn may_search(&self, dir: &Path) -> bool;
    /// Whether `dir` belongs to another user or group: in a user namespace such a directory cannot be copied up.
    fn is_foreign(&self, dir: &Path) -> bool;
    /// Whether `path` is a directory. `None` when the user cannot look at it, and so cannot reach anything in it either.
    fn is_directory(&self, path: &Path) -> Option<bool>;
    /// The names of the directories in `dir`, and whether it holds anything else. `None` when it cannot be read.
    fn directories(&self, dir: &Path) -> Option<(Vec<OsString>, bool)>;
    /// What the upper directory of an earlier session has at a path, whose last component is not followed.
    fn in_layer(&self, path: &Path) -> InLayer;
}

/// Filesystems that show the kernel's state: bound read-only, since an overlay cannot hold what a write to them does.
const PSEUDO: &[&str] = &[
    "autofs",
    "binfmt_misc",
    "bpf",
    "cgroup",
    "cgroup2",
    "configfs",
    "debugfs",
    "devpts",
    "devtmpfs",
    "efivarfs",
    "fusectl",
    "hugetlbfs",
    "mqueue",
    "nfsd",
    "nsfs",
    "proc",
    "pstore",
    "resctrl",
    "rpc_pipefs",
    "securityfs",
    "selinuxfs",
    "smackfs",
    "sysfs",
    "tracefs",
];

impl Plan {
    /// Decides what is placed where, for the mounts of a machine. `locked` is true when the view is built in a user namespace.
    ///
    /// # Errors
    /// No root mount, or a path to hide that cannot be.
    pub fn new(
        mounts: &[Mount],
        locked: bool,
        wishes: &Wishes,
        tree: &dyn Tree,
    ) -> Result<Self, PlanError> {
        let reachable = mountinfo::reachable(mounts);
        if reachable.is_empty() {
            return Err(PlanError::NoRoot);
        }
        let mut planner = Planner {
            mounts,
            locked,
            wishes,
            tree,
            places: Vec::new(),
        };
        if locked {
            planner.place(Path::new("/"), What::Base);
        }
        for mount in &reachable {
            planner.mount(mount);
        }
        planner.own_mounts();
        planner.hide(&reachable)?;
        planner.bind_below_staged(&reachable);
        let mut places = planner.places;
        // Nothing can be placed in the empty directory that hides the sessions. What makes a tree read-only comes when all of the tree
        // is in place: a cover laid into it later could be written.
        places.retain(|place| place.what == What::Mask || !place.path.starts_with(&wishes.store));
        let mut plan = Self { places, locked };
        plan.arrange();
        Ok(plan)
    }

    /// Puts the places in order and numbers the layers.
    fn arrange(&mut self) {
        let key = |place: &Place| (place.what.phase(), rank(&place.what));
        self.places.sort_by(|a, b| {
            let ((phase, rank), (other_phase, other_rank)) = (key(a), key(b));
            (phase, &a.path, rank).cmp(&(other_phase, &b.path, other_rank))
        });
        let mut layer = 0;
        for place in &mut self.places {
            if let What::Cover(cover) = &mut place.what {
                cover.layer = layer;
                layer += 1;
            }
        }
    }

    /// The covers, with where they are.
    pub fn covers(&self) -> impl Iterator<Item = (&Path, &Cover)> {
        self.places.iter().filter_map(|place| match &place.what {
            What::Cover(cover) => Some((place.path.as_path(), cover)),
            _ => None,
        })
    }
}

impl What {
    /// What confines comes when all else is in place: a cover laid into a read-only tree later could be written.
    fn phase(&self) -> u8 {
        match self {
            Self::Open => 1,
            Self::Lock { .. } => 2,
            Self::ReadOnly => 3,
            Self::Denied => 4,
            _ => 0,
        }
    }

    /// Whether it only takes away from what is in place.
    fn confines(&self) -> bool {
        self.phase() > 0
    }
}

/// At one path: what restricts comes after what it restricts.
fn rank(what: &What) -> u8 {
    match what {
        What::Base => 0,
        What::Bind { .. } => 1,
        What::Devices | What::SharedMemory | What::Processes | What::Cover(_) => 2,
        What::Mask | What::Socket => 3,
        What::Open | What::Lock { .. } | What::ReadOnly | What::Denied => 4,
    }
}

struct Planner<'p> {
    mounts: &'p [Mount],
    locked: bool,
    wishes: &'p Wishes,
    tree: &'p dyn Tree,
    places: Vec<Place>,
}

impl Planner<'_> {
    fn place(&mut self, path: &Path, what: What) {
        self.places.push(Place {
            path: path.to_path_buf(),
            what,
        });
    }

    fn mount(&mut self, mount: &Mount) {
        let path = &mount.mount_point;
        let shared_memory = Path::new("/dev/shm");
        if path.starts_with("/proc") {
            return;
        }
        if path.starts_with("/dev")
            && !(path.starts_with(shared_memory) && self.works_in_shared_memory())
        {
            return;
        }
        if mount.kind == "proc" {
            // A process directory of the PID namespace outside: the processes in it are none of the command's business.
            if self.tree.is_directory(path) == Some(true) {
                self.place(path, What::Mask);
            }
        } else if let Some(reason) = self.why_not_covered(mount) {
            // Where the base shows it already, nothing needs to be placed; the reason is kept for the header all the same.
            if !self.locked || reason.is_some() {
                self.place(path, What::Bind { reason });
            }
        } else if self.locked {
            let below: Vec<PathBuf> = mountinfo::attached(self.mounts, mount)
                .iter()
                .map(|path| path.to_path_buf())
                .collect();
            self.cover_around(mount, path, &below, false);
        } else {
            self.cover(mount, path, false);
        }
    }

    /// `None` to cover it; otherwise bind it, with a reason when it can be written outside.
    #[expect(
        clippy::option_option,
        reason = "the two levels are whether to bind and whether to say why"
    )]
    fn why_not_covered(&self, mount: &Mount) -> Option<Option<String>> {
        let below_sys = mount.mount_point.starts_with("/sys");
        if mount.is_read_only() || below_sys || PSEUDO.contains(&mount.kind.as_str()) {
            return Some(None);
        }
        match self.tree.is_directory(&mount.mount_point) {
            Some(true) => None,
            Some(false) => Some(Some(
                "a file that is a mount of its own cannot be overlaid".to_owned(),
            )),
            // Another user's FUSE mount, or one below a directory of another user: it cannot be written outside either.
            None => Some(None),
        }
    }

    fn works_in_shared_memory(&self) -> bool {
        let shared_memory = Path::new("/dev/shm");
        let below = |path: &PathBuf| path.starts_with(shared_memory) && path != shared_memory;
        self.wishes.working_directory.starts_with(shared_memory)
            || self.wishes.likely.iter().any(below)
    }

    fn cover(&mut self, mount: &Mount, path: &Path, staged: bool) {
        let restrictions = Restrictions {
            nosuid: mount.has("nosuid"),
            // Device nodes that a command makes may exist, but an overlay cannot hold what a write to one does.
            nodev: mount.has("nodev") || !self.locked,
            noexec: mount.has("noexec"),
            noatime: mount.has("noatime"),
        };
        self.place(
            path,
            What::Cover(Cover {
                layer: 0,
                mount: mount.id,
                staged,
                restrictions,
                hidden: Vec::new(),
                mounted: path == mount.mount_point,
                below: Below::default(),
                resumed: false,
            }),
        );
    }

    /// Covers `dir` of `mount`, going down where one of the mounts `below` is in the way. `in_staged`: the directory that holds `dir` is
    /// staged, so that nothing shows here until something is placed.
    fn cover_around(&mut self, mount: &Mount, dir: &Path, below: &[PathBuf], in_staged: bool) {
        if below.iter().any(|point| point == dir) {
            return; // another mount is there, and it is planned for itself
        }
        if !below.iter().any(|point| point.starts_with(dir)) {
            if self.can_change(dir) {
                self.cover(mount, dir, false);
                self.cover_foreign(mount, dir);
            } else if in_staged {
                self.place(dir, What::Bind { reason: None });
            }
            return;
        }
        let staged = self.tree.may_write(dir);
        if staged {
            self.cover(mount, dir, true);
        } else if in_staged {
            self.place(dir, What::Bind { reason: None });
        }
        if let Some((names, _)) = self.tree.directories(dir) {
            for name in names {
                self.cover_around(mount, &mountinfo::join(dir, &name), below, staged);
            }
        }
    }

    /// Gives covers of their own to directories below the covered `dir` in which the user may make changes but whose copy-up a user
    /// namespace refuses (EOVERFLOW), because they or a directory above them belong to somebody else: /var/tmp, or a user's
    /// directories in /var/www. They are looked for where they usually are: directly below `dir`, on the way to the working directory
    /// and the like, and below a working directory that is foreign itself.
    fn cover_foreign(&mut self, mount: &Mount, dir: &Path) {
        let mut found = self.children(dir);
        found.retain(|path| self.needs_own_cover(path));
        for likely in self
            .wishes
            .likely
            .iter()
            .chain([&self.wishes.working_directory])
            .filter(|likely| likely.starts_with(dir))
        {
            let mut way: Vec<&Path> = likely.ancestors().take_while(|path| *path != dir).collect();
            way.reverse();
            let mut below_foreign = false;
            for path in way {
                if self.needs_own_cover(path) {
                    found.push(path.to_path_buf());
                    below_foreign = false;
                } else if self.tree.is_foreign(path) {
                    below_foreign = true;
                    let mut beside = self.children(path);
                    beside.retain(|child| self.tree.may_write(child));
                    found.extend(beside);
                } else if below_foreign {
                    found.push(path.to_path_buf());
                    below_foreign = false;
                }
            }
        }
        let work = &self.wishes.working_directory;
        if work.starts_with(dir) && self.needs_own_cover(work) {
            let mut pending = vec![work.clone()];
            let mut budget = 256_u32;
            while let Some(next) = pending.pop()
                && budget > 0
            {
                budget -= 1;
                for path in self.children(&next) {
                    if self.needs_own_cover(&path) {
                        found.push(path.clone());
                    }
                    pending.push(path);
                }
            }
        }
        found.sort();
        found.dedup();
        for path in found {
            self.cover(mount, &path, false);
        }
    }

    /// The directories in `dir`.
    fn children(&self, dir: &Path) -> Vec<PathBuf> {
        let names = self.tree.directories(dir).map(|(names, _)| names);
        names
            .unwrap_or_default()
            .iter()
            .map(|name| mountinfo::join(dir, name))
            .collect()
    }

    fn needs_own_cover(&self, dir: &Path) -> bool {
        self.tree.may_write(dir) && self.tree.is_foreign(dir)
    }

    /// Whether anything below `dir` could be changed by the user: what can't needs no cover.
    fn can_change(&self, dir: &Path) -> bool {
        if !self.tree.may_search(dir) {
            return false;
        }
        let empty = matches!(self.tree.directories(dir), Some((names, false)) if names.is_empty());
        !empty || self.tree.may_write(dir) || dir == self.wishes.working_directory
    }

    fn own_mounts(&mut self) {
        self.place(Path::new("/proc"), What::Processes);
        self.place(Path::new("/dev"), What::Devices);
        if !self.works_in_shared_memory() {
            self.place(Path::new("/dev/shm"), What::SharedMemory);
        }
        self.place(&self.wishes.store, What::Mask);
        for path in &self.wishes.sockets {
            self.place(path, What::Socket);
        }
        for path in &self.wishes.read_only {
            self.place(path, What::ReadOnly);
        }
        for path in &self.wishes.deny_read {
            self.place(path, What::Denied);
        }
        for path in &self.wishes.write {
            self.place(path, What::Open);
        }
        if !self.wishes.write.is_empty() {
            let except = self.wishes.write.clone();
            self.place(Path::new("/"), What::Lock { except });
        }
    }

    /// Gives each path to hide a cover rooted at its parent, in whose layer a whiteout can stand.
    fn hide(&mut self, reachable: &[&Mount]) -> Result<(), PlanError> {
        let within_another = |path: &Path| {
            self.wishes
                .hide
                .iter()
                .any(|other| path != other && path.starts_with(other))
        };
        for path in self.wishes.hide.iter().filter(|path| !within_another(path)) {
            let refuse = |reason| PlanError::CannotHide {
                path: path.clone(),
                reason,
            };
            let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
                return Err(refuse("it is the root directory"));
            };
            if [Path::new("/proc"), Path::new("/dev")]
                .iter()
                .any(|own| path.starts_with(own))
            {
                return Err(refuse("it is made anew inside"));
            }
            if path.starts_with(&self.wishes.store) || self.wishes.store.starts_with(path) {
                return Err(refuse(
                    "the sessions are kept there; name another place with --store",
                ));
            }
            if self.wishes.working_directory.starts_with(path) {
                return Err(refuse("the command is to run in it"));
            }
            self.places.retain(|place| !place.path.starts_with(path));
            let here =
                |place: &&mut Place| place.path == parent && matches!(place.what, What::Cover(_));
            if self.places.iter_mut().find(here).is_none() {
                let holder = reachable
                    .iter()
                    .rev()
                    .find(|mount| parent.starts_with(&mount.mount_point));
                let mount = holder.ok_or(PlanError::NoRoot)?;
                let in_the_way = mountinfo::attached(self.mounts, mount)
                    .iter()
                    .any(|point| point.starts_with(parent));
                if self.why_not_covered(mount).is_some() {
                    return Err(refuse("it lies on a filesystem that is not overlaid"));
                }
                if self.locked && in_the_way {
                    return Err(refuse(
                        "there are mounts beside it, and the directory that holds it is not yours to change",
                    ));
                }
                self.cover(mount, parent, false);
            }
            if let Some(Place {
                what: What::Cover(cover),
                ..
            }) = self.places.iter_mut().find(here)
            {
                cover.hidden.push(name.to_owned());
            }
        }
        Ok(())
    }

    /// A staged directory hides the mounts below it: those that are not covered must be bound again.
    fn bind_below_staged(&mut self, reachable: &[&Mount]) {
        let staged: Vec<PathBuf> = self
            .places
            .iter()
            .filter(|place| matches!(&place.what, What::Cover(cover) if cover.staged))
            .map(|place| place.path.clone())
            .collect();
        for mount in reachable {
            let path = &mount.mount_point;
            let shadowed = staged
                .iter()
                .any(|dir| path != dir && path.starts_with(dir));
            let hidden = self
                .wishes
                .hide
                .iter()
                .any(|hidden| path.starts_with(hidden));
            // The device directory of a user's view is the real one, restricted; what is mounted in it comes along.
            let devices = path == Path::new("/dev");
            let made_anew = !devices && (path.starts_with("/proc") || path.starts_with("/dev"));
            let placed = !devices && self.places.iter().any(|place| place.path == *path);
            if shadowed && !hidden && !made_anew && !placed {
                self.place(path, What::Bind { reason: None });
            }
        }
    }
}

#[cfg(test)]
mod tests;
