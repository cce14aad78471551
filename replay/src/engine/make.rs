//! Making what is new before any name is changed.

use super::{Engine, Fail};
use crate::copy;
use crate::known::is_relocation;
use crate::root::{Pinned, Root, open_pinned, pin};
use crate::step::{Loc, Made, Make, Source, Step};
use crate::sys;
use std::io;
use std::os::fd::AsFd as _;

impl Engine<'_> {
    /// Makes it at its place, with its attributes.
    pub(super) fn make(&mut self, make: &Make) -> Result<(), Fail> {
        let failed = self.failed("make", &make.at);
        let copied = self.made(make).map_err(failed)?;
        self.now.copied += copied;
        self.changed()
    }

    fn made(&self, make: &Make) -> io::Result<u64> {
        let place = |loc| {
            self.place(loc)
                .map_err(|_| io::Error::from_raw_os_error(libc::ENOENT))
        };
        let (root, rel): (&Root, &[u8]) = place(&make.at)?;
        let spot = root.spot(rel)?;
        match &make.made {
            Made::Empty | Made::File { .. } => {
                let mut copied = 0;
                let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW;
                // In the session nobody else reaches it; elsewhere it is closed until it has its owner.
                let mode = match (&make.at, &make.meta) {
                    (Loc::Session(_), Some(meta)) => meta.mode & 0o777,
                    _ => 0o600,
                };
                let output = sys::openat(spot.dir(), &spot.leaf, flags, mode)?;
                if let Made::File { from, len } = &make.made {
                    let (source, from_rel) = place(from)?;
                    let input = open_source(source, from_rel)?;
                    copied = *len;
                    copy::content(&input.fd, &output, *len, &mut |_| true)?;
                    if input.node.size != *len {
                        // Sharing of blocks is of whole files.
                        nix::unistd::ftruncate(
                            &output,
                            i64::try_from(*len).map_err(io::Error::other)?,
                        )?;
                    }
                }
                if let Some(meta) = &make.meta {
                    meta.give(output.as_fd(), &sys::stat(output.as_fd(), c"")?)?;
                }
                return Ok(copied);
            }
            Made::Directory => sys::mkdir(spot.dir(), &spot.leaf, 0o700)?,
            Made::Symlink(target) => {
                sys::symlink(&sys::cstring(target)?, spot.dir(), &spot.leaf)?;
            }
            Made::Node { mode, rdev } => {
                sys::mknod(spot.dir(), &spot.leaf, mode & libc::S_IFMT | 0o600, *rdev)?;
            }
            Made::Link(from) => {
                let (source, from_rel) = place(from)?;
                let source = source.spot(from_rel)?;
                sys::link(source.dir(), &source.leaf, spot.dir(), &spot.leaf)?;
            }
            Made::Attributes => {}
        }
        if let Some(meta) = &make.meta {
            meta.set(&pin(spot.dir(), &spot.leaf)?)?;
        }
        Ok(0)
    }

    /// Where what is at a place after all moves of the plan is before them.
    pub(super) fn before_moves(&self, loc: &Loc) -> Loc {
        let mut at = loc.clone();
        for step in self.plan.steps.iter().rev() {
            let Step::Put(put) = step else { continue };
            let joined = |loc: &Loc, rest: &[u8]| match rest.is_empty() {
                true => loc.clone(),
                false => loc.join(rest),
            };
            if let Some(archive) = put.archive.as_ref().filter(|_| !put.copied)
                && let Some(rest) = at.below(archive)
            {
                at = joined(&put.target, &rest);
                continue;
            }
            if let Some(crate::step::New {
                source: Source::Link(from),
                ..
            }) = &put.new
                && at == put.target
            {
                // Linked before anything is moved.
                return from.clone();
            }
            let moved = |new: &crate::step::New| new.source == Source::Move;
            if put.new.as_ref().is_some_and(moved)
                && let Some(rest) = at.below(&put.target)
            {
                at = joined(&put.hold, &rest);
            }
        }
        at
    }

    /// Whether the plan moves things within the real tree, so that the paths of later steps may not be there yet.
    pub(super) fn relocates(&self) -> bool {
        let relocation = |step: &Step| matches!(step, Step::Put(put) if is_relocation(put));
        self.plan.steps.iter().any(relocation)
    }
}

/// Opens what is to be copied; its owner may have made it unreadable.
fn open_source(root: &Root, rel: &[u8]) -> io::Result<Pinned> {
    let open = || {
        let spot = root.spot(rel)?;
        open_pinned(spot.dir(), &spot.leaf, libc::O_RDONLY)
    };
    match open() {
        Err(e) if e.raw_os_error() == Some(libc::EACCES) => {
            let pinned = root.pin(rel)?;
            sys::chmod(pinned.fd.as_fd(), pinned.node.mode | 0o400)?;
            let file = open();
            sys::chmod(pinned.fd.as_fd(), pinned.node.mode)?;
            file
        }
        other => other,
    }
}
