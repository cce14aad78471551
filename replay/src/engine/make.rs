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
            if let Step::Put(put) = step
                && put
                    .new
                    .as_ref()
                    .is_some_and(|new| new.source == Source::Move)
                && let Some(rest) = below(&at, &put.target)
            {
                at = if rest.is_empty() {
                    put.hold.clone()
                } else {
                    put.hold.join(&rest)
                };
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

/// What is left of a place below another one.
fn below(loc: &Loc, above: &Loc) -> Option<Vec<u8>> {
    let (rest, same) = match (loc, above) {
        (Loc::Target(n, loc), Loc::Target(m, above)) => {
            (loc.strip_prefix(above.as_slice())?, n == m)
        }
        (Loc::Session(loc), Loc::Session(above)) => (loc.strip_prefix(above.as_slice())?, true),
        _ => return None,
    };
    match rest.split_first() {
        _ if !same => None,
        None => Some(Vec::new()),
        Some((b'/', rest)) => Some(rest.to_vec()),
        Some(_) => None,
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
