//! Laying a run over earlier sessions: which of their directories lie between the real ones and the run's own.
//!
//! Two mount plans need not agree. A cover of an earlier session that this plan lacks is added to it, so that nothing of what was
//! written there is missing; where that cannot be, the run is refused. A cover that an earlier session lacked takes its part of the
//! cover that held the directory then. A session that goes on has the same covers as before, for the same reasons.

use std::path::{Path, PathBuf};

use super::{Cover, Place, Plan, PlanError, Tree, What};
use crate::mountinfo::{self, Mount};

/// An earlier session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lower {
    /// What it is called, for messages.
    pub name: String,
    /// Its covers.
    pub covers: Vec<LowerCover>,
}

/// A cover of an earlier session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LowerCover {
    /// Where it was.
    pub mount_point: PathBuf,
    /// The directory that took the writes.
    pub upper: PathBuf,
    /// The real directory was the root of a mount. `None` when that is not known.
    pub mounted: Option<bool>,
    /// The session has changed the attributes of the cover's root.
    pub dressed: bool,
}

/// What lies below a cover's own layer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Below {
    /// Directories of earlier sessions, the topmost first.
    pub layers: Vec<PathBuf>,
    /// They hide all of the real directory.
    pub opaque: bool,
    /// The directory whose attributes the cover's root gets, instead of the real one.
    pub dress: Option<PathBuf>,
}

/// What the upper directory of an earlier session has at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InLayer {
    /// Nothing: what is below shows.
    Nothing,
    /// A directory; nothing shows through when it is opaque.
    Directory {
        /// It hides what is below it.
        opaque: bool,
    },
    /// A directory that its owner may not read.
    Unreadable {
        /// The owner may make and remove names in it.
        writable: bool,
    },
    /// A whiteout, or anything else that is no directory.
    Other,
}

/// What one earlier session has for a directory.
enum Part {
    Nothing,
    Layer {
        path: PathBuf,
        opaque: bool,
        dressed: bool,
    },
    /// The directory does not exist.
    Gone,
}

impl Plan {
    /// Lays the run over earlier sessions, the topmost first. `mounts` are those the plan was made from.
    ///
    /// # Errors
    /// Something that one of them wrote could not be shown.
    pub fn lay_over(
        &mut self,
        sessions: &[Lower],
        mounts: &[Mount],
        tree: &dyn Tree,
    ) -> Result<(), PlanError> {
        for session in sessions {
            for cover in &session.covers {
                self.keep(session, cover, mounts, tree)?;
            }
        }
        let mut gone = Vec::new();
        for place in &mut self.places {
            let What::Cover(cover) = &mut place.what else {
                continue;
            };
            for session in sessions {
                match part(session, &place.path, cover, tree)? {
                    Part::Nothing => {}
                    Part::Layer {
                        path,
                        opaque,
                        dressed,
                    } => {
                        if dressed && cover.below.dress.is_none() {
                            cover.below.dress = Some(path.clone());
                        }
                        cover.below.layers.push(path);
                        cover.below.opaque = opaque;
                    }
                    Part::Gone if cover.below.layers.is_empty() => {
                        gone.push(place.path.clone());
                        break;
                    }
                    Part::Gone => {
                        return Err(refusal(
                            session,
                            &place.path,
                            "it removed the directory, in which a session above it wrote",
                        ));
                    }
                }
                if cover.below.opaque {
                    break;
                }
            }
        }
        // What a session has removed is whited out in the cover that holds it; made anew, it is made there.
        self.places
            .retain(|place| !gone.iter().any(|gone| place.path.starts_with(gone)));
        self.arrange();
        Ok(())
    }

    /// Lets a session go on: what it has written is there, and its layers (by mount point) take the writes again. `below` are the
    /// sessions it was laid over, the topmost first.
    ///
    /// # Errors
    /// Something that was written could not be shown.
    pub fn go_on(
        &mut self,
        session: &Lower,
        layers: &[(PathBuf, u32)],
        below: &[Lower],
        mounts: &[Mount],
        tree: &dyn Tree,
    ) -> Result<(), PlanError> {
        for cover in &session.covers {
            self.keep(session, cover, mounts, tree)?;
        }
        let own = |path: &Path| session.covers.iter().any(|own| own.mount_point == path);
        let mut held = Vec::new();
        for (path, cover) in self.covers().filter(|(path, _)| !own(path)) {
            // The cover that held the directory before goes on holding it.
            if !matches!(part(session, path, cover, tree)?, Part::Nothing) {
                held.push(path.to_owned());
            }
        }
        self.places
            .retain(|place| !held.iter().any(|held| place.path.starts_with(held)));
        self.lay_over(below, mounts, tree)?;
        let mut next = layers
            .iter()
            .map(|(_, layer)| layer.saturating_add(1))
            .max()
            .unwrap_or(0);
        for place in &mut self.places {
            let What::Cover(cover) = &mut place.what else {
                continue;
            };
            match layers.iter().find(|(path, _)| *path == place.path) {
                Some((_, layer)) => {
                    cover.layer = *layer;
                    cover.resumed = true;
                }
                None => {
                    cover.layer = next;
                    next = next.saturating_add(1);
                }
            }
        }
        Ok(())
    }

    /// Makes sure that what was written in a cover of an earlier session can be shown.
    fn keep(
        &mut self,
        session: &Lower,
        cover: &LowerCover,
        mounts: &[Mount],
        tree: &dyn Tree,
    ) -> Result<(), PlanError> {
        let path = &cover.mount_point;
        if !cover.dressed && is_empty(&cover.upper, tree) {
            return Ok(());
        }
        let refuse = |reason| Err(refusal(session, path, reason));
        let mounted = mounts.iter().any(|mount| mount.mount_point == *path);
        match cover.mounted {
            Some(true) if !mounted => {
                return refuse("the filesystem that was mounted there is not mounted now");
            }
            Some(false) if mounted => {
                return refuse("another filesystem has been mounted there since");
            }
            _ => {}
        }
        if self.covers().any(|(at, _)| at == path) {
            return Ok(());
        }
        if tree.is_directory(path) != Some(true) {
            return refuse("the real directory is gone");
        }
        let holder = self
            .places
            .iter()
            .filter(|place| path.starts_with(&place.path) && !place.what.confines())
            .max_by_key(|place| place.path.as_os_str().len());
        let Some(What::Cover(holder)) = holder.map(|place| &place.what) else {
            return refuse("changes there are not kept aside in this run");
        };
        let below =
            |mount: &Mount| mount.mount_point.starts_with(path) && mount.mount_point != *path;
        if self.locked && mountinfo::reachable(mounts).into_iter().any(below) {
            return refuse("filesystems have been mounted below it since");
        }
        let added = Cover {
            staged: false,
            hidden: Vec::new(),
            mounted,
            below: Below::default(),
            resumed: false,
            ..holder.clone()
        };
        self.places.push(Place {
            path: path.clone(),
            what: What::Cover(added),
        });
        Ok(())
    }
}

fn refusal(session: &Lower, path: &Path, reason: &'static str) -> PlanError {
    PlanError::CannotShow {
        session: session.name.clone(),
        path: path.to_owned(),
        reason,
    }
}

/// What `session` has for the directory at `path`, which this plan covers.
fn part(session: &Lower, path: &Path, cover: &Cover, tree: &dyn Tree) -> Result<Part, PlanError> {
    let above = session
        .covers
        .iter()
        .filter(|lower| path.starts_with(&lower.mount_point))
        .max_by_key(|lower| lower.mount_point.as_os_str().len());
    let Some(lower) = above else {
        return Ok(Part::Nothing);
    };
    let rest = path
        .strip_prefix(&lower.mount_point)
        .unwrap_or(Path::new(""));
    if rest.as_os_str().is_empty() {
        return Ok(match tree.in_layer(&lower.upper) {
            InLayer::Nothing => Part::Nothing,
            _ if !lower.dressed && is_empty(&lower.upper, tree) => Part::Nothing,
            _ => Part::Layer {
                path: lower.upper.clone(),
                opaque: false,
                dressed: lower.dressed,
            },
        });
    }
    let mut at = lower.upper.clone();
    let mut hides = false;
    for name in rest {
        at.push(name);
        match tree.in_layer(&at) {
            InLayer::Nothing if hides => return Ok(Part::Gone),
            InLayer::Nothing => return Ok(Part::Nothing),
            InLayer::Directory { opaque } => hides |= opaque,
            InLayer::Unreadable { .. } => {
                return Err(refusal(
                    session,
                    path,
                    "a directory above it cannot be read in the session",
                ));
            }
            InLayer::Other => {
                if cover.mounted {
                    return Err(refusal(
                        session,
                        path,
                        "it removed the directory, and another filesystem has been mounted there since",
                    ));
                }
                return Ok(Part::Gone);
            }
        }
    }
    if cover.mounted && !is_empty(&at, tree) {
        return Err(refusal(
            session,
            path,
            "another filesystem has been mounted there since",
        ));
    }
    if cover.mounted {
        return Ok(Part::Nothing);
    }
    Ok(Part::Layer {
        path: at,
        opaque: hides,
        dressed: true,
    })
}

/// Whether there is nothing in a directory of an earlier session, whose mode it has not changed.
fn is_empty(dir: &Path, tree: &dyn Tree) -> bool {
    match tree.in_layer(dir) {
        InLayer::Nothing => true,
        InLayer::Unreadable { writable } => !writable,
        _ => matches!(tree.directories(dir), Some((names, false)) if names.is_empty()),
    }
}

#[cfg(test)]
mod tests;
