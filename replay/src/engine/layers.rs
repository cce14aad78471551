//! Steps that change only the layer, and nothing of what is seen through it.

use super::{Engine, Fail};
use crate::layer::{self, Attributes};
use crate::meta::set_mode;
use crate::root::Pinned;
use crate::step::{Loc, Step};
use crate::sys;
use std::io;
use std::os::fd::AsFd as _;

impl Engine<'_> {
    pub(super) fn layer_forward(&mut self, step: &Step) -> Result<(), Fail> {
        if let Step::Strip {
            at,
            ino,
            mode,
            attributes,
        } = step
            && self
                .strip_by_name(at, *ino, *mode, attributes)
                .unwrap_or(false)
        {
            return self.changed();
        }
        let unlocked = self.unlock(step)?;
        let result = self.change_layer(step);
        self.lock(&unlocked).and(result)
    }

    /// The quick way for what its owner can reach and change. Whether it was enough.
    fn strip_by_name(
        &self,
        at: &[u8],
        ino: u64,
        mode: u32,
        attributes: &Attributes,
    ) -> io::Result<bool> {
        let spot = self.session.spot(at)?;
        let node = sys::stat(spot.dir(), &spot.leaf)?;
        if (node.ino, node.mode) != (ino, mode) {
            return Ok(false);
        }
        for (name, _) in attributes {
            sys::remove_xattr(spot.dir(), Some(&spot.leaf), &sys::cstring(name)?)?;
        }
        Ok(true)
    }

    /// Only stripping matters for the layer; the others change nothing of the view.
    pub(super) fn layer_back(&mut self, step: &Step) -> Result<(), Fail> {
        let unlocked = self.unlock(step)?;
        let result = self.restore_layer(step);
        self.lock(&unlocked).and(result)
    }

    /// Opens the directories above a step's path that their owner, who we are, may not pass.
    fn unlock(&self, step: &Step) -> Result<Vec<Pinned>, Fail> {
        let (Step::Strip { at, .. }
        | Step::Transparent { at, .. }
        | Step::Whiteout { at }
        | Step::Unwhiteout { at }) = step
        else {
            return Ok(Vec::new());
        };
        let mut unlocked = Vec::new();
        let is_locked = || {
            self.session
                .stat(at)
                .is_err_and(|e| e.raw_os_error() == Some(libc::EACCES))
        };
        if sys::euid() == 0 || !is_locked() {
            return Ok(unlocked);
        }
        let ends = at
            .iter()
            .enumerate()
            .filter(|(_, byte)| **byte == b'/')
            .map(|(end, _)| end);
        for end in ends {
            let loc = Loc::Session(at[..end].to_vec());
            let pinned = self
                .session
                .pin(&at[..end])
                .map_err(self.failed("open", &loc))?;
            if pinned.node.mode & 0o300 != 0o300 {
                sys::chmod(pinned.fd.as_fd(), pinned.node.mode | 0o700)
                    .map_err(self.failed("open", &loc))?;
                unlocked.push(pinned);
            }
        }
        Ok(unlocked)
    }

    fn lock(&self, unlocked: &[Pinned]) -> Result<(), Fail> {
        for pinned in unlocked.iter().rev() {
            let layers = Loc::Session(b"layers".to_vec());
            set_mode(pinned, pinned.node.mode)
                .map_err(self.failed("set the mode of a directory in", &layers))?;
        }
        Ok(())
    }

    fn change_layer(&mut self, step: &Step) -> Result<(), Fail> {
        match step {
            Step::Strip {
                at,
                ino,
                mode,
                attributes,
            } => {
                // Once it was moved (a plan is being finished) it was stripped before.
                let Some(pinned) = self.pinned(at, *ino)? else {
                    return Ok(());
                };
                let strip = attributes.iter().try_for_each(|(name, _)| {
                    sys::remove_xattr(pinned.fd.as_fd(), None, &sys::cstring(name)?)
                });
                self.writable(at, &pinned, *mode, strip, |pinned| {
                    attributes.iter().try_for_each(|(name, _)| {
                        sys::remove_xattr(pinned.fd.as_fd(), None, &sys::cstring(name)?)
                    })
                })
            }
            Step::Transparent { at, mode } => {
                let loc = Loc::Session(at.clone());
                let pinned = self.session.pin(at).map_err(self.failed("open", &loc))?;
                let remove = |pinned: &Pinned| {
                    sys::remove_xattr(pinned.fd.as_fd(), None, c"user.overlay.opaque")
                };
                let first = remove(&pinned);
                self.writable(at, &pinned, *mode, first, remove)
            }
            Step::Whiteout { at } => {
                let loc = Loc::Session(at.clone());
                let spot = self
                    .session
                    .spot(at)
                    .map_err(self.failed("open the parent of", &loc))?;
                match sys::mknod(spot.dir(), &spot.leaf, libc::S_IFCHR, (0, 0)) {
                    Err(e) if e.raw_os_error() != Some(libc::EEXIST) => {
                        return Err(self.failed("hide", &loc)(e));
                    }
                    _ => {}
                }
                self.changed()
            }
            Step::Unwhiteout { at } => {
                let loc = Loc::Session(at.clone());
                if self.find(&loc)?.is_some_and(|node| {
                    layer::is_whiteout_device(&node) || node.size == 0 && node.is_file()
                }) {
                    let spot = self
                        .session
                        .spot(at)
                        .map_err(self.failed("open the parent of", &loc))?;
                    sys::unlink(spot.dir(), &spot.leaf, false)
                        .map_err(self.failed("remove", &loc))?;
                }
                self.changed()
            }
            Step::Put(_) | Step::Meta(_) | Step::Rewrite(_) | Step::Make(_) => Ok(()),
        }
    }

    fn restore_layer(&mut self, step: &Step) -> Result<(), Fail> {
        let Step::Strip {
            at,
            ino,
            mode,
            attributes,
        } = step
        else {
            return Ok(());
        };
        let Some(pinned) = self.pinned(at, *ino)? else {
            return Ok(());
        };
        let put = |pinned: &Pinned| {
            attributes.iter().try_for_each(|(name, value)| {
                sys::set_xattr(pinned.fd.as_fd(), &sys::cstring(name)?, value)
            })
        };
        let first = put(&pinned);
        self.writable(at, &pinned, *mode, first, put)
    }

    /// The inode of the layer's path when it is still this one.
    fn pinned(&self, at: &[u8], ino: u64) -> Result<Option<Pinned>, Fail> {
        match self.session.pin(at) {
            Ok(pinned) => Ok(Some(pinned).filter(|pinned| pinned.node.ino == ino)),
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            Err(e) => Err(self.failed("open", &Loc::Session(at.to_vec()))(e)),
        }
    }

    /// Tries again with the owner's right to write when the first try was refused, then sets the recorded mode.
    fn writable(
        &mut self,
        at: &[u8],
        pinned: &Pinned,
        mode: u32,
        first: io::Result<()>,
        again: impl Fn(&Pinned) -> io::Result<()>,
    ) -> Result<(), Fail> {
        let result = match first {
            Err(e) if e.raw_os_error() == Some(libc::EACCES) => {
                sys::chmod(pinned.fd.as_fd(), mode | 0o200).and_then(|()| again(pinned))
            }
            other => other,
        };
        let result = result.and_then(|()| set_mode(pinned, mode));
        result.map_err(self.failed("change the attributes of", &Loc::Session(at.to_vec())))?;
        self.changed()
    }
}
