//! Building the view: carrying out a mount plan.
//!
//! The invariant: when the view is entered, no path in it leads to a real file through a mount that could be written. So the base
//! and every bind are read-only before anything else is done with them, and a cover that cannot be mounted becomes a read-only bind
//! with the kernel's reason, never a hole. Everything happens in a private mount namespace and on detached mounts: nothing is
//! created in the real tree, also when this process is killed.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, openat};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::stat::{Mode, SFlag, fstat, mkdirat, mknodat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use serde::{Deserialize, Serialize};

use crate::error::{Context, StartError};
use crate::mounts::{self, Access, At, Overlay, below_root, c_path};
use crate::plan::{Cover, Place, Plan, Restrictions, What};
use crate::{devices, stage};

/// What was built: how the mount plan turned out on this machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Built {
    /// The covers that stand.
    pub covers: Vec<BuiltCover>,
    /// Paths that are read-only inside although they can be written outside, and why.
    pub named: Vec<(PathBuf, String)>,
    /// `/proc` is not of the run's own PID namespace: it has the machine's numbers of processes, and lists none.
    pub without_processes: bool,
}

/// One cover of the view.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuiltCover {
    /// The number of its layer.
    pub layer: u32,
    /// The number of the real mount that holds the directory: covers with the same one are parts of one filesystem.
    pub mount: u32,
    /// Where it is mounted, and which real directory it overlays.
    pub mount_point: PathBuf,
    /// Its lower layer is a staged copy of the directory's own files.
    pub staged: bool,
    /// The real directory is the root of a mount.
    pub mounted: bool,
    /// Mode bits that the upper directory, which is the cover's root, was given, or has from an earlier run.
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
    /// The user is root outside, with whatever rights: some files of the kernel's ask for no more.
    pub(crate) root_outside: bool,
}

impl Owner {
    /// What binds of the real tree allow. Real root could open any device node that a filesystem holds.
    fn bind_access(self) -> Access {
        if self.privileged {
            Access::ReadOnlyNoDevices
        } else {
            Access::ReadOnly
        }
    }
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
        let mut view = Self {
            root: open_dir(at)?,
            at,
            layers: open_dir(at)?,
            owner,
            plan,
            built: Built::default(),
        };
        let doing = || "make the root of the view".to_owned();
        match plan.places.first().map(|place| &place.what) {
            Some(What::Cover(cover)) => view.cover(Path::new("/"), cover).doing(doing)?,
            _ => {
                let real = At {
                    dir: AT_FDCWD,
                    path: c"/",
                };
                mounts::bind(
                    real,
                    At::new(&view.root, c""),
                    plan.locked,
                    owner.bind_access(),
                )
                .doing(doing)?;
                view.root = open_dir(at)?;
            }
        }
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
        self.check_covered()
    }

    /// Refuses a view in which nothing can be written because the machine takes no overlay: the command would fail in puzzling ways.
    fn check_covered(&self) -> Result<(), StartError> {
        let Some((first, _)) = self.plan.covers().next() else {
            return Ok(());
        };
        if !self.built.covers.is_empty() {
            return Ok(());
        }
        let why = self.built.named.iter().find(|(path, _)| path == first);
        let message = why.map_or_else(String::new, |(_, reason)| format!(": {reason}"));
        Err(StartError::Refused {
            message: format!("overlay {} or anything else{message}", first.display()),
            errno: 0,
        })
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
                // What was written there before would be missing without a word.
                Err(error) if cover.resumed || !cover.below.layers.is_empty() => {
                    Err(error).doing(|| format!("show what was written in {}", path.display()))
                }
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
                let restrictions = Restrictions {
                    nosuid: true,
                    nodev: true,
                    ..Restrictions::default()
                };
                let result = mounts::tmpfs(
                    At::new(&self.root, &below_root(path)),
                    c"1777",
                    restrictions,
                    false,
                );
                unless_absent(result).doing(|| format!("mount {}", path.display()))
            }
            What::Mask => {
                let restrictions = Restrictions {
                    nodev: true,
                    noexec: true,
                    ..Restrictions::default()
                };
                let result = mounts::tmpfs(
                    At::new(&self.root, &below_root(path)),
                    c"700",
                    restrictions,
                    true,
                );
                unless_absent(result).doing(|| format!("hide the sessions in {}", path.display()))
            }
            // A read-only mount does not keep anybody from connecting.
            What::Socket => self.bind(path),
            What::ReadOnly => self
                .bind_to_itself(path, Access::ReadOnly)
                .doing(|| format!("make {} read-only", path.display())),
            What::Open => self
                .bind_to_itself(path, Access::Same)
                .doing(|| format!("keep {} writable", path.display())),
            What::Lock { except } => self.lock(except),
            What::Denied => self
                .deny(path)
                .doing(|| format!("deny reading {}", path.display())),
        }
    }

    /// Overlays the real `path`.
    fn cover(&mut self, path: &Path, cover: &Cover) -> io::Result<()> {
        self.cover_with(path, cover)
            .map_err(|error| match error.raw_os_error() {
                // The kernel knows by its handle which directory a layer belongs to.
                Some(libc::ESTALE) if cover.resumed => {
                    io::Error::other("the directory is not the one that was there")
                }
                _ => error,
            })
    }

    fn cover_with(&mut self, path: &Path, cover: &Cover) -> io::Result<()> {
        let real = open_directory(AT_FDCWD, path)?;
        let layer = cover.layer.to_string();
        make_dir(&self.layers, layer.as_str(), 0o700)?;
        let layer = open_directory(&self.layers, layer.as_str())?;
        make_dir(&layer, "upper", 0o700)?;
        make_dir(&layer, "work", 0o700)?;
        let upper = open_directory(&layer, "upper")?;
        let work = open_directory(&layer, "work")?;
        let staged = if cover.staged {
            Some(stage::stage(&real, path, &layer, self.owner.uid)?)
        } else {
            None
        };
        for name in &cover.hidden {
            stage::whiteout(&upper, name)?;
        }
        let dressed = match &cover.below.dress {
            _ if cover.resumed => stage::dressed(&upper)?,
            Some(dress) => {
                let model = open_directory(AT_FDCWD, dress.as_path())?;
                stage::dress(&model, dress, &upper, self.owner)?
            }
            None => stage::dress(&real, path, &upper, self.owner)?,
        };
        let base = staged.as_ref().map_or(&real, |staged| &staged.lower);
        let to = below_root(path);
        self.overlay(base, &upper, &work, &layer, At::new(&self.root, &to), cover)?;
        self.root_covered(path)?;
        if let Some(staged) = staged {
            let covered = match below_root(path) {
                root if root.is_empty() => self.root.try_clone()?,
                below => open_directory(&self.root, below.as_c_str())?,
            };
            staged.bind_foreign(&real, &covered)?;
        }
        self.built.covers.push(BuiltCover {
            layer: cover.layer,
            mount: cover.mount,
            mount_point: path.to_path_buf(),
            staged: cover.staged,
            mounted: cover.mounted,
            mode: dressed.mode,
            uid: dressed.uid,
            gid: dressed.gid,
        });
        Ok(())
    }

    /// Mounts the overlay of `base` and what earlier sessions left over it.
    fn overlay(
        &self,
        base: &OwnedFd,
        upper: &OwnedFd,
        work: &OwnedFd,
        layer: &OwnedFd,
        to: At<'_>,
        cover: &Cover,
    ) -> io::Result<()> {
        let earlier = cover
            .below
            .layers
            .iter()
            .map(|dir| open_directory(AT_FDCWD, dir.as_path()))
            .collect::<io::Result<Vec<_>>>()?;
        let base = (!cover.below.opaque).then_some(base);
        let mut overlay = Overlay {
            keep_links: self.owner.privileged,
            lower: earlier.iter().chain(base).collect(),
            upper,
            work,
        };
        let restrictions = cover.restrictions;
        match (mounts::overlay(&overlay, to, restrictions), base) {
            // The earlier sessions lie within the real directory, which the kernel refuses for two lower layers of one overlay.
            // Seen through an overlay of its own the real directory is another filesystem, in which they do not lie.
            (Err(error), Some(base))
                if error.raw_os_error() == Some(libc::ELOOP) && !earlier.is_empty() =>
            {
                // The attempt has marked the work directory as one that was in use, which the kernel would refuse.
                unlinkat(
                    work,
                    "work/incompat/volatile/dirty",
                    UnlinkatFlags::NoRemoveDir,
                )?;
                unlinkat(work, "work/incompat/volatile", UnlinkatFlags::RemoveDir)?;
                make_dir(layer, "below", 0o700)?;
                let apart = mounts::apart(base, At::new(layer, c"below"), overlay.keep_links)?;
                overlay.lower = earlier.iter().chain([&apart]).collect();
                mounts::overlay(&overlay, to, restrictions)
            }
            (result, _) => result,
        }
    }

    /// What is mounted over the root of the view is its root from then on.
    fn root_covered(&mut self, path: &Path) -> io::Result<()> {
        if path == Path::new("/") {
            self.root = open_directory(AT_FDCWD, self.at)?;
        }
        Ok(())
    }

    /// Binds the real mount at `path`, read-only.
    fn bind(&self, path: &Path) -> Result<(), StartError> {
        let name = c_path(path);
        let below = below_root(path);
        let bind = |recursive| {
            let real = At {
                dir: AT_FDCWD,
                path: &name,
            };
            mounts::bind(
                real,
                At::new(&self.root, &below),
                recursive,
                self.owner.bind_access(),
            )
        };
        let result = match bind(false) {
            // A directory with locked mounts below it can only be bound with them.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => bind(true),
            // The mount point may lie below a directory that this user may not search: then nothing inside can reach it either.
            Err(error) if error.raw_os_error() == Some(libc::EACCES) => Ok(()),
            other => other,
        };
        unless_absent(result).doing(|| format!("bind {}", path.display()))
    }

    /// Makes what is at a path by now, with all mounts below it, a mount of its own.
    fn bind_to_itself(&mut self, path: &Path, access: Access) -> io::Result<()> {
        let below = below_root(path);
        let at = At::new(&self.root, &below);
        mounts::bind(at, at, true, access)?;
        self.root_covered(path)
    }

    /// Makes all covers read-only but those below these paths, which by now are mounts of their own.
    fn lock(&self, except: &[PathBuf]) -> Result<(), StartError> {
        for BuiltCover { mount_point, .. } in &self.built.covers {
            if except.iter().any(|open| mount_point.starts_with(open)) {
                continue;
            }
            let below = below_root(mount_point);
            let result = mounts::set_read_only(At::new(&self.root, &below));
            unless_absent(result).doing(|| format!("make {} read-only", mount_point.display()))?;
        }
        Ok(())
    }

    /// Lays something over a path that cannot be opened: a directory without rights, or else a device node where no device can be
    /// opened, which holds for root too.
    fn deny(&self, path: &Path) -> io::Result<()> {
        let below = below_root(path);
        let is_directory = match openat(&self.root, below.as_c_str(), NAME, Mode::empty()) {
            Ok(fd) => fstat(&fd)?.st_mode & libc::S_IFMT == libc::S_IFDIR,
            Err(Errno::ENOENT) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        };
        // In the work directory of no cover, so that it goes with theirs when the run has ended.
        make_dir(&self.layers, "denied", 0o700)?;
        make_dir(&self.layers, "denied/work", 0o700)?;
        let name = if is_directory {
            make_dir(&self.layers, "denied/work/directory", 0o000)?;
            c"denied/work/directory"
        } else {
            match mknodat(
                &self.layers,
                "denied/work/file",
                SFlag::S_IFCHR,
                Mode::empty(),
                0,
            ) {
                Ok(()) | Err(Errno::EEXIST) => {}
                Err(errno) => return Err(errno.into()),
            }
            c"denied/work/file"
        };
        let nothing = At::new(&self.layers, name);
        mounts::bind(
            nothing,
            At::new(&self.root, &below),
            false,
            Access::ReadOnlyNoDevices,
        )
    }
}

/// A place that does not exist inside needs nothing: it is hidden, or below something that is.
pub(crate) fn unless_absent(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
        other => other,
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
    open_directory(AT_FDCWD, path).doing(|| format!("open {}", path.display()))
}

fn open_directory<P: nix::NixPath + ?Sized>(dir: impl AsFd, path: &P) -> io::Result<OwnedFd> {
    Ok(openat(dir, path, NAME | OFlag::O_DIRECTORY, Mode::empty())?)
}
