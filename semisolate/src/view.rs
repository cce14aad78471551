//! Building the view: carrying out a mount plan.
//!
//! The invariant: when the view is entered, no path in it leads to a real file through a mount that could be written. So the base
//! and every bind are read-only before anything else is done with them, and a cover that cannot be mounted becomes a read-only bind
//! with the kernel's reason, never a hole. Everything happens in a private mount namespace and on detached mounts: nothing is
//! created in the real tree, also when this process is killed.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, open, openat};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::stat::{Mode, mkdirat};
use serde::{Deserialize, Serialize};

use crate::error::{Context, StartError};
use crate::plan::{Cover, Place, Plan, Restrictions, What};
use crate::stage::Staged;
use crate::{devices, stage, sys};

/// What was built: how the mount plan turned out on this machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Built {
    /// The covers that stand.
    pub covers: Vec<BuiltCover>,
    /// Paths that are read-only inside although they can be written outside, and why.
    pub named: Vec<(PathBuf, String)>,
}

/// One cover of the view.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuiltCover {
    /// The number of its layer.
    pub layer: u32,
    /// Where it is mounted, and which real directory it overlays.
    pub mount_point: PathBuf,
    /// Its lower layer is a staged copy of the directory's own files.
    pub staged: bool,
    /// Mode bits that the upper directory, which is the cover's root, was given.
    pub mode: u32,
    /// The owner it was given.
    pub uid: u32,
    /// The group it was given.
    pub gid: u32,
}

/// Identity for which the view is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owner {
    /// May give files away and make device nodes.
    pub(crate) privileged: bool,
    /// The user as seen from the namespace in which the view is built.
    pub(crate) uid: u32,
}

/// The view under construction.
pub(crate) struct View<'v> {
    root: OwnedFd,
    /// Where the view is attached, and the directory of the layers that it hides there.
    at: &'v Path,
    layers: OwnedFd,
    owner: Owner,
    plan: &'v Plan,
    built: Built,
}

/// How directories are opened: as names, never followed, closed on exec.
pub(crate) const NAME: OFlag = OFlag::O_PATH
    .union(OFlag::O_NOFOLLOW)
    .union(OFlag::O_CLOEXEC);

impl<'v> View<'v> {
    /// Begins a view, in a mount namespace of its own. The view is attached over `layers`, which hides that directory in this
    /// namespace only.
    pub(crate) fn begin(plan: &'v Plan, at: &'v Path, owner: Owner) -> Result<Self, StartError> {
        mount(
            None::<&str>,
            "/",
            None::<&str>,
            MsFlags::MS_REC | MsFlags::MS_PRIVATE,
            None::<&str>,
        )
        .doing(|| "keep mounts private to the run".to_owned())?;
        let layers = open_dir(at)?;
        let mut view = Self {
            root: open_dir(at)?,
            at,
            layers,
            owner,
            plan,
            built: Built::default(),
        };
        let doing = || "make the root of the view".to_owned();
        let mut staged = None;
        let root = match plan.places.first().map(|place| &place.what) {
            Some(What::Cover(cover)) => {
                let (root, stage) = view.overlay(Path::new("/"), cover).doing(doing)?;
                staged = stage;
                root
            }
            _ => view
                .read_only_bind(Path::new("/"), plan.locked)
                .doing(doing)?,
        };
        debug_assert!(staged.is_none(), "without locked mounts nothing is staged");
        sys::move_mount(root.as_fd(), AT_FDCWD, &c_path(at)).doing(doing)?;
        view.root = open_dir(at)?;
        Ok(view)
    }

    /// Places everything but the process directory, which only a process of the new PID namespace can make.
    pub(crate) fn build(&mut self) -> Result<(), StartError> {
        let mut places = self.plan.places.iter();
        if let Some(Place {
            what: What::Bind {
                reason: Some(reason),
            },
            path,
        }) = places.next()
        {
            self.built.named.push((path.clone(), reason.clone()));
        }
        for place in places {
            self.place(place)?;
        }
        Ok(())
    }

    /// Ends construction: the root of the view, and how the plan turned out.
    pub(crate) fn finish(self) -> (OwnedFd, Built) {
        (self.root, self.built)
    }

    fn place(&mut self, place: &Place) -> Result<(), StartError> {
        let path = &place.path;
        match &place.what {
            What::Base | What::Processes => Ok(()),
            What::Cover(cover) => match self.cover(path, cover) {
                Ok(()) => Ok(()),
                Err(error) => {
                    self.bind(path)?;
                    self.built
                        .named
                        .push((path.clone(), format!("it cannot be overlaid: {error}")));
                    Ok(())
                }
            },
            What::Bind { reason } => {
                self.bind(path)?;
                self.built
                    .named
                    .extend(reason.iter().map(|reason| (path.clone(), reason.clone())));
                Ok(())
            }
            What::Devices => devices::place(&self.root, self.owner)
                .doing(|| "make the device directory".to_owned()),
            What::SharedMemory => {
                let tree = tmpfs(c"1777", libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV)
                    .doing(|| "make a shared-memory directory".to_owned())?;
                match self.attach(&tree, path) {
                    Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
                    other => other.doing(|| format!("attach {}", path.display())),
                }
            }
            What::Mask => self
                .mask(path)
                .doing(|| format!("hide the sessions in {}", path.display())),
            What::ReadOnly => self
                .make_read_only(path)
                .doing(|| format!("make {} read-only", path.display())),
        }
    }

    fn cover(&mut self, path: &Path, cover: &Cover) -> io::Result<()> {
        let (tree, staged) = self.overlay(path, cover)?;
        self.attach(&tree, path)?;
        if path == Path::new("/") {
            self.root = open(self.at, NAME | OFlag::O_DIRECTORY, Mode::empty())?;
        }
        if let Some(staged) = staged {
            let real = open(path, NAME | OFlag::O_DIRECTORY, Mode::empty())?;
            let covered = openat(
                &self.root,
                below_root(path).as_c_str(),
                NAME | OFlag::O_DIRECTORY,
                Mode::empty(),
            )?;
            staged.bind_foreign(&real, &covered)?;
        }
        Ok(())
    }

    /// A detached overlay of the real `path`, and its staged lower layer if it has one.
    fn overlay(&mut self, path: &Path, cover: &Cover) -> io::Result<(OwnedFd, Option<Staged>)> {
        let lower = open(path, NAME | OFlag::O_DIRECTORY, Mode::empty())?;
        let layer = cover.layer.to_string();
        make_dir(&self.layers, layer.as_str(), 0o700)?;
        let layer = openat(
            &self.layers,
            layer.as_str(),
            NAME | OFlag::O_DIRECTORY,
            Mode::empty(),
        )?;
        make_dir(&layer, "upper", 0o700)?;
        make_dir(&layer, "work", 0o700)?;
        let upper = openat(&layer, "upper", NAME | OFlag::O_DIRECTORY, Mode::empty())?;
        let work = openat(&layer, "work", NAME | OFlag::O_DIRECTORY, Mode::empty())?;
        let staged = if cover.staged {
            Some(stage::stage(&lower, path, &layer, self.owner.uid)?)
        } else {
            None
        };
        for name in &cover.hidden {
            stage::whiteout(&upper, name)?;
        }
        let root = stage::dress(&lower, path, &upper, self.owner)?;
        let tree = mount_overlay(
            staged.as_ref().map_or(&lower, |staged| &staged.lower),
            &upper,
            &work,
            cover.restrictions,
        )?;
        self.built.covers.push(BuiltCover {
            layer: cover.layer,
            mount_point: path.to_path_buf(),
            staged: cover.staged,
            mode: root.mode,
            uid: root.uid,
            gid: root.gid,
        });
        Ok((tree, staged))
    }

    /// Attaches `tree` at `path` of the view.
    fn attach(&self, tree: &OwnedFd, path: &Path) -> io::Result<()> {
        sys::move_mount(tree.as_fd(), self.root.as_fd(), &below_root(path))
    }

    /// Binds the real mount at `path`, read-only.
    fn bind(&self, path: &Path) -> Result<(), StartError> {
        let result = self
            .read_only_bind(path, false)
            .and_then(|tree| self.attach(&tree, path));
        match result {
            // The mount point may lie below a directory that this user may not search: then nothing inside can reach it either.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EACCES | libc::ENOENT)) => {
                Ok(())
            }
            // A directory with locked mounts below it can only be bound with them.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => self
                .read_only_bind(path, true)
                .and_then(|tree| self.attach(&tree, path))
                .doing(|| format!("bind {}", path.display())),
            other => other.doing(|| format!("bind {}", path.display())),
        }
    }

    /// A detached, read-only copy of the real mount at `path`.
    fn read_only_bind(&self, path: &Path, recursive: bool) -> io::Result<OwnedFd> {
        let tree = sys::open_tree(AT_FDCWD, &c_path(path), recursive)?;
        sys::mount_setattr(tree.as_fd(), c"", recursive, libc::MOUNT_ATTR_RDONLY, 0)?;
        Ok(tree)
    }

    fn mask(&self, path: &Path) -> io::Result<()> {
        let tree = tmpfs(
            c"700",
            libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NODEV | libc::MOUNT_ATTR_NOEXEC,
        )?;
        match self.attach(&tree, path) {
            // Hidden already, or below a directory that is not there inside.
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
            other => other,
        }
    }

    fn make_read_only(&self, path: &Path) -> io::Result<()> {
        let name = below_root(path);
        let tree = sys::open_tree(self.root.as_fd(), &name, true)?;
        sys::mount_setattr(tree.as_fd(), c"", true, libc::MOUNT_ATTR_RDONLY, 0)?;
        self.attach(&tree, path)
    }
}

/// Makes the view the root of this process's mount namespace and lets the real tree go.
pub(crate) fn pivot(root: &OwnedFd) -> Result<(), StartError> {
    let doing = || "enter the view".to_owned();
    nix::unistd::fchdir(root).doing(doing)?;
    nix::unistd::pivot_root(".", ".").doing(doing)?;
    umount2(".", MntFlags::MNT_DETACH).doing(|| "let the real tree go".to_owned())?;
    nix::unistd::chdir("/").doing(doing)
}

/// A detached, empty tmpfs whose root has `mode` (octal digits).
pub(crate) fn tmpfs(mode: &CStr, attributes: u64) -> io::Result<OwnedFd> {
    let context = sys::fsopen(c"tmpfs")?;
    sys::fsconfig_set(context.as_fd(), c"mode", Some(mode))?;
    sys::fsmount(context.as_fd(), attributes)
}

/// Mounts an overlay, detached. Layers are named through their descriptors, so no path needs escaping and none is too long.
pub(crate) fn mount_overlay(
    lower: &OwnedFd,
    upper: &OwnedFd,
    work: &OwnedFd,
    restrictions: Restrictions,
) -> io::Result<OwnedFd> {
    let context = sys::fsopen(c"overlay")?;
    let context = context.as_fd();
    sys::fsconfig_set(context, c"source", Some(c"effigy"))?;
    let lower = sys::fd_path(lower);
    // lowerdir+ came with Linux 6.5; before it, one name without separators needs no escaping either.
    if sys::fsconfig_set(context, c"lowerdir+", Some(&lower)).is_err() {
        sys::fsconfig_set(context, c"lowerdir", Some(&lower))?;
    }
    sys::fsconfig_set(context, c"upperdir", Some(&sys::fd_path(upper)))?;
    sys::fsconfig_set(context, c"workdir", Some(&sys::fd_path(work)))?;
    sys::fsconfig_set(context, c"userxattr", None)?;
    sys::fsmount(context, attributes(restrictions))
}

fn attributes(restrictions: Restrictions) -> u64 {
    [
        (restrictions.nosuid, libc::MOUNT_ATTR_NOSUID),
        (restrictions.nodev, libc::MOUNT_ATTR_NODEV),
        (restrictions.noexec, libc::MOUNT_ATTR_NOEXEC),
        (restrictions.noatime, libc::MOUNT_ATTR_NOATIME),
    ]
    .into_iter()
    .filter_map(|(set, attribute)| set.then_some(attribute))
    .fold(0, |all, attribute| all | attribute)
}

/// Makes a directory unless it is there.
pub(crate) fn make_dir<P: nix::NixPath + ?Sized>(
    dir: &OwnedFd,
    name: &P,
    mode: u32,
) -> io::Result<()> {
    match mkdirat(dir, name, Mode::from_bits_truncate(mode)) {
        Ok(()) | Err(Errno::EEXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn open_dir(path: &Path) -> Result<OwnedFd, StartError> {
    open(path, NAME | OFlag::O_DIRECTORY, Mode::empty())
        .doing(|| format!("open {}", path.display()))
}

/// `path` as the kernel takes it.
pub(crate) fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes())
        .expect("paths of mounts and sessions come from the kernel and hold no NUL")
}

/// `path` relative to the root of the view; the root itself is the empty path.
pub(crate) fn below_root(path: &Path) -> CString {
    c_path(path.strip_prefix("/").unwrap_or(path))
}
