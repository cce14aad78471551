//! Putting a thing at a path, replacing what is there, or removing it.
//!
//! Between validation and the rename somebody may put another thing there. The exchange takes whatever stands at the
//! path, so what comes out is looked at: if it is not what was validated it goes back at once and the step fails.

use super::{Engine, Fail};
use crate::copy;
use crate::known::is_relocation;
use crate::meta::set_mode;
use crate::node::Node;
use crate::root::{Spot, absent_is_none, pin};
use crate::step::{Loc, Put, Source, Step};
use crate::sys;
use std::io;
use std::os::fd::AsFd as _;

/// Parents and names of a step's places.
struct Spots<'a> {
    target: Spot<'a>,
    hold: Option<Spot<'a>>,
    archive: Option<Spot<'a>>,
}

impl Engine<'_> {
    /// Copies what is about to be replaced, and stages what will be put there.
    pub(super) fn prepare_put(&mut self, index: usize, put: &Put) -> Result<(), Fail> {
        if let (true, Some(_), Some(archive)) = (put.copied, &put.old, &put.archive) {
            self.copy(&put.target, archive, false, true)?;
            self.changed()?;
        }
        let Some(new) = &put.new else { return Ok(()) };
        match &new.source {
            Source::Move => return Ok(()),
            Source::Made | Source::Changed => {}
            Source::Copy(from) => self.copy(&Loc::Session(from.clone()), &put.hold, true, false)?,
            Source::Directory(meta) => {
                let (root, rel) = self.place(&put.hold)?;
                let made = root.spot(rel).and_then(|spot| {
                    sys::mkdir(spot.dir(), &spot.leaf, 0o700)?;
                    meta.set(&pin(spot.dir(), &spot.leaf)?)
                });
                made.map_err(self.failed("make the directory", &put.hold))?;
            }
            Source::Link(from) => {
                let (source, source_rel) = self.place(from)?;
                let (root, rel) = self.place(&put.hold)?;
                let linked = source.spot(source_rel).and_then(|source| {
                    let spot = root.spot(rel)?;
                    sys::link(source.dir(), &source.leaf, spot.dir(), &spot.leaf)
                });
                linked.map_err(self.failed("link", &put.hold))?;
            }
        }
        self.staged[index] = self.find(&put.hold)?.map_or(0, |node| self.id(&node));
        self.changed()
    }

    /// The identity of what is put there; 0 when nothing is, or nothing was staged yet.
    fn new_id(&self, index: usize, put: &Put) -> u64 {
        match &put.new {
            None => 0,
            Some(new) if new.source == Source::Move => self.id(&new.node),
            Some(_) => self.staged[index],
        }
    }

    /// Whether this is what stood at the path, or the copy of it that an undo has put there.
    fn is_old(&self, index: usize, put: &Put, node: &Node) -> bool {
        put.old.is_some_and(|old| self.id(&old) == self.id(node))
            || (self.restaged[index] != 0 && self.restaged[index] == self.id(node))
    }

    fn spots(&self, put: &Put) -> Result<Spots<'_>, Fail> {
        let spot = |loc: &Loc| {
            let (root, rel) = self.place(loc)?;
            absent_is_none(root.spot(rel)).map_err(self.failed("open the parent of", loc))
        };
        let archive = put
            .archive
            .as_ref()
            .filter(|archive| **archive != put.hold && !put.copied);
        Ok(Spots {
            target: spot(&put.target)?.ok_or_else(|| Fail::Raced(self.path(&put.target)))?,
            hold: spot(&put.hold)?,
            archive: archive.map(&spot).transpose()?.flatten(),
        })
    }

    fn node(&self, spot: Option<&Spot<'_>>, loc: &Loc) -> Result<Option<Node>, Fail> {
        let Some(spot) = spot else { return Ok(None) };
        absent_is_none(sys::stat(spot.dir(), &spot.leaf)).map_err(self.failed("look at", loc))
    }

    pub(super) fn put_forward(&mut self, index: usize, put: &Put) -> Result<(), Fail> {
        let spots = self.spots(put)?;
        let found = self.node(Some(&spots.target), &put.target)?;
        let new_id = self.new_id(index, put);
        let raced = || Fail::Raced(self.path(&put.target));
        // Others may be able to swap what was staged in a directory that they can write to.
        let is_new = |node: Option<Node>| {
            node.is_some_and(|node| self.id(&node) == new_id || self.is_forced(index))
        };
        let valid = |node: Option<Node>| match (&put.old, node) {
            (Some(old), Some(node)) => self.is_old(index, put, &node) && node.looks_like(old),
            _ => false,
        };
        let mut is_held = false;
        match (&put.old, &put.new) {
            (_, Some(_)) if found.is_some_and(|node| self.id(&node) == new_id) => {}
            (Some(_), Some(_)) => {
                let hold = spots.hold.as_ref().ok_or_else(raced)?;
                // What waits in the session is as it was planned a moment ago.
                let sure = !self.resumed && matches!(put.hold, Loc::Session(_));
                if !valid(found) || !(sure || is_new(self.node(Some(hold), &put.hold)?)) {
                    return Err(raced());
                }
                self.exchange(put, &spots.target, hold)?;
                if !valid(self.node(Some(hold), &put.hold)?) {
                    self.exchange(put, &spots.target, hold)?;
                    return Err(raced());
                }
                is_held = true;
                self.changed()?;
            }
            (None, Some(_)) => {
                let hold = spots.hold.as_ref().ok_or_else(raced)?;
                if found.is_some() || !is_new(self.node(Some(hold), &put.hold)?) {
                    return Err(raced());
                }
                self.rename(&put.target, hold, &spots.target)?;
                self.changed()?;
            }
            (Some(_), None) => {
                let hold = spots.hold.as_ref().ok_or_else(raced)?;
                if found.is_some() || self.node(Some(hold), &put.hold)?.is_none() {
                    if !valid(found) {
                        return Err(raced());
                    }
                    if self.is_forced(index) && self.node(Some(hold), &put.hold)?.is_some() {
                        // An undo that failed has put there what it had found.
                        self.exchange(put, &spots.target, hold)?;
                        return self.changed();
                    }
                    self.rename(&put.target, &spots.target, hold)?;
                    if !valid(self.node(Some(hold), &put.hold)?) {
                        self.rename(&put.target, hold, &spots.target)?;
                        return Err(raced());
                    }
                    self.changed()?;
                }
            }
            (None, None) => {}
        }
        self.settle_modes(index, put, &spots)?;
        if let (Some(archive), Some(hold)) = (&spots.archive, &spots.hold)
            && (is_held
                || self
                    .node(Some(hold), &put.hold)?
                    .is_some_and(|node| self.is_old(index, put, &node)))
        {
            self.rename(&put.hold, hold, archive)?;
            self.settle_modes(index, put, &spots)?;
            self.changed()?;
        }
        Ok(())
    }

    pub(super) fn put_back(&mut self, index: usize, put: &Put) -> Result<(), Fail> {
        let raced = || Fail::Raced(self.path(&put.target));
        let spots = match self.spots(put) {
            // Its parent is gone, and with it what was put there.
            Err(Fail::Raced(_)) if put.old.is_none() || self.relocates() => return Ok(()),
            other => other?,
        };
        let found = self.node(Some(&spots.target), &put.target)?;
        let new_id = self.new_id(index, put);
        let is_new = found.is_some_and(|node| new_id != 0 && self.id(&node) == new_id);
        let is_old = |node: Option<Node>| node.is_some_and(|node| self.is_old(index, put, &node));
        let is_back = match (&put.old, &put.new) {
            (Some(_), _) => is_old(found),
            (None, _) => found.is_none(),
        };
        // Whatever else stands there was put there by somebody else and stays.
        let is_removed = put.new.is_none() && found.is_none();
        // What an earlier step was to move away is still there.
        if !is_new && put.old.is_none() && found.is_some_and(|node| self.is_to_go(&node)) {
            return Ok(());
        }
        if !(is_back || is_new || is_removed || self.is_forced(index)) {
            if let (Some(archive), Some(hold)) = (&spots.archive, &spots.hold)
                && is_old(self.node(Some(hold), &put.hold)?)
            {
                // What stood there must not be taken for the session's.
                self.rename(&put.hold, hold, archive)?;
            }
            return Err(raced());
        }
        if let (Some(archive), Some(hold)) = (&spots.archive, &spots.hold)
            && is_old(self.node(Some(archive), &put.hold)?)
            && self.node(Some(hold), &put.hold)?.is_none()
        {
            self.rename(&put.hold, archive, hold)?;
            self.changed()?;
        }
        if !is_back {
            let hold = spots.hold.as_ref().ok_or_else(raced)?;
            let held = self.node(Some(hold), &put.hold)?;
            match (&put.old, found) {
                (Some(_), Some(_)) if is_old(held) => self.exchange(put, &spots.target, hold)?,
                (Some(_), None) if is_old(held) => self.rename(&put.target, hold, &spots.target)?,
                (None, Some(_)) if held.is_none() => {
                    self.rename(&put.target, &spots.target, hold)?
                }
                _ => return Err(raced()),
            }
            self.changed()?;
        }
        self.settle_modes(index, put, &spots)
    }

    /// Makes the copy of the old thing again that taking back will put there. Whether there was one to make.
    pub(super) fn restage(&mut self, index: usize, put: &Put) -> Result<bool, Fail> {
        let (true, Some(old), Some(archive)) = (put.copied, &put.old, &put.archive) else {
            return Ok(false);
        };
        let found = self.find(&put.target)?;
        let held = self.find(&put.hold)?;
        if [found, held]
            .iter()
            .flatten()
            .any(|node| self.id(node) == self.id(old))
        {
            return Ok(false);
        }
        if !self.exists(archive)? {
            return Ok(false);
        }
        // Left by an undo that was interrupted while it copied: the name is effigy's own.
        self.remove(&put.hold)?;
        self.copy(archive, &put.hold, false, true)?;
        self.restaged[index] = self.find(&put.hold)?.map_or(0, |node| self.id(&node));
        self.changed()?;
        Ok(true)
    }

    /// Keeps a copy of what stands at a place.
    pub(super) fn keep(&mut self, loc: &Loc, index: usize) -> Result<(), Fail> {
        let kept = self.kept(index);
        // Left by an undo that was interrupted while it copied.
        self.remove(&kept)?;
        self.copy(loc, &kept, false, true)?;
        self.changed()
    }

    /// Keeps what was found in the place of copies, which are about to be removed.
    pub(super) fn keep_found(&mut self) -> Result<(), Fail> {
        let plan = self.plan;
        let mut copied = false;
        for (index, step) in plan.steps.iter().enumerate() {
            let Step::Put(put) = step else { continue };
            if !self.is_forced(index) || !is_removed_after(put, true) || !self.exists(&put.hold)? {
                continue;
            }
            if put.copied {
                self.keep(&put.hold, index)?;
                copied = true;
                continue;
            }
            let kept = self.kept(index);
            let spot = |loc| {
                let (root, rel) = self.place(loc)?;
                root.spot(rel)
                    .map_err(self.failed("open the parent of", loc))
            };
            self.rename(&put.hold, &spot(&put.hold)?, &spot(&kept)?)?;
            self.changed()?;
        }
        if copied { self.sync(true) } else { Ok(()) }
    }

    /// Removes the temporary name that the step has left.
    pub(super) fn finish_put(&mut self, put: &Put, back: bool) -> Result<(), Fail> {
        if is_removed_after(put, back) && self.exists(&put.hold)? {
            self.remove(&put.hold)?;
            self.changed()?;
        }
        Ok(())
    }

    pub(super) fn is_put_complete(&self, index: usize, put: &Put) -> Result<bool, Fail> {
        let new_id = self.new_id(index, put);
        let found = self.find(&put.target)?;
        let placed = match &put.new {
            Some(_) => found.is_some_and(|node| new_id != 0 && self.id(&node) == new_id),
            None => found.is_none(),
        };
        let kept = match (&put.old, &put.archive) {
            (Some(old), Some(archive)) => {
                let kept = self.find(archive)?;
                if put.copied {
                    kept.is_some()
                } else {
                    kept.is_some_and(|node| self.id(&node) == self.id(old))
                }
            }
            _ => true,
        };
        Ok(placed && kept)
    }

    /// Whether it is something that a step moves or replaces.
    fn is_to_go(&self, node: &Node) -> bool {
        let id = self.id(node);
        self.plan.steps.iter().any(|step| match step {
            Step::Put(put) => {
                let moved = put.new.as_ref().filter(|_| is_relocation(put));
                moved.is_some_and(|new| self.id(&new.node) == id)
                    || put.old.is_some_and(|old| self.id(&old) == id)
            }
            _ => false,
        })
    }

    fn remove(&self, loc: &Loc) -> Result<(), Fail> {
        let (root, rel) = self.place(loc)?;
        copy::remove_tree(root, rel).map_err(self.failed("remove the temporary", loc))
    }

    fn exchange(&self, put: &Put, target: &Spot<'_>, hold: &Spot<'_>) -> Result<(), Fail> {
        let swap = || {
            sys::rename(
                hold.dir(),
                &hold.leaf,
                target.dir(),
                &target.leaf,
                libc::RENAME_EXCHANGE,
            )
        };
        let result = match swap() {
            Err(e) if e.raw_os_error() == Some(libc::EACCES) => {
                thaw(hold).and_then(|()| thaw(target)).and_then(|()| swap())
            }
            other => other,
        };
        result.map_err(self.failed("put in place", &put.target))
    }

    /// Renames to a name that must be free.
    fn rename(&self, loc: &Loc, from: &Spot<'_>, to: &Spot<'_>) -> Result<(), Fail> {
        let rename = |flags| sys::rename(from.dir(), &from.leaf, to.dir(), &to.leaf, flags);
        let result = match rename(libc::RENAME_NOREPLACE) {
            Err(e) if e.raw_os_error() == Some(libc::EACCES) => {
                thaw(from).and_then(|()| rename(libc::RENAME_NOREPLACE))
            }
            // A filesystem without the flag (NFS, some FUSE): the name was free a moment ago.
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {
                match absent_is_none(sys::stat(to.dir(), &to.leaf)) {
                    Ok(None) => rename(0),
                    Ok(Some(_)) => Err(io::Error::from_raw_os_error(libc::EEXIST)),
                    Err(e) => Err(e),
                }
            }
            other => other,
        };
        result.map_err(|e| match e.raw_os_error() {
            Some(libc::EEXIST | libc::ENOENT) => Fail::Raced(self.path(loc)),
            _ => self.failed("move", loc)(e),
        })
    }

    /// Gives directories that had to be opened for the move their modes back, wherever they are now.
    fn settle_modes(&self, index: usize, put: &Put, spots: &Spots<'_>) -> Result<(), Fail> {
        if sys::euid() == 0 {
            return Ok(());
        }
        let made = put
            .new
            .as_ref()
            .filter(|new| !matches!(new.source, Source::Directory(_)));
        let made = made.map(|new| (self.new_id(index, put), new.node));
        let old = put.old.map(|old| (self.id(&old), old));
        let copied = put.old.map(|old| (self.restaged[index], old));
        for (ino, node) in [made, old, copied].into_iter().flatten() {
            if !node.is_dir() || node.mode & 0o200 != 0 || ino == 0 {
                continue;
            }
            for spot in [
                Some(&spots.target),
                spots.hold.as_ref(),
                spots.archive.as_ref(),
            ]
            .into_iter()
            .flatten()
            {
                let settled = match absent_is_none(pin(spot.dir(), &spot.leaf)) {
                    Ok(Some(pinned)) if self.id(&pinned.node) == ino => {
                        set_mode(&pinned, node.mode)
                    }
                    Ok(_) => Ok(()),
                    Err(e) => Err(e),
                };
                settled.map_err(self.failed("set the mode of", &put.target))?;
            }
        }
        Ok(())
    }
}

/// Whether what is left at the hold in the end is nobody's.
fn is_removed_after(put: &Put, back: bool) -> bool {
    let staged = put
        .new
        .as_ref()
        .is_some_and(|new| new.source != Source::Move);
    put.copied || (back && staged)
}

/// Moving a directory to another parent needs the right to write in it, as its `..` changes.
fn thaw(spot: &Spot<'_>) -> io::Result<()> {
    let Some(pinned) = absent_is_none(pin(spot.dir(), &spot.leaf))? else {
        return Ok(());
    };
    if pinned.node.is_dir() && pinned.node.mode & 0o200 == 0 && pinned.node.uid == sys::euid() {
        sys::chmod(pinned.fd.as_fd(), pinned.node.mode | 0o200)?;
    }
    Ok(())
}
