//! Writing a real file in place, so that its other names follow.

use super::{Engine, Fail};
use crate::copy;
use crate::meta::Meta;
use crate::node::Node;
use crate::root::Pinned;
use crate::step::{Loc, Rewrite};
use crate::sys;
use std::io;
use std::os::fd::AsFd as _;

impl Engine<'_> {
    /// Keeps a copy of what is there now.
    pub(super) fn prepare_rewrite(&mut self, step: &Rewrite) -> Result<(), Fail> {
        let archive = Loc::Session(step.archive.clone());
        self.copy(&self.before_moves(&step.target), &archive, false, true)?;
        self.changed()
    }

    pub(super) fn rewrite_forward(&mut self, step: &Rewrite) -> Result<(), Fail> {
        let pinned = self.rewrite_pinned(step)?;
        let now = &pinned.node;
        let ours = self.resumed || stamp(now) == stamp(&step.new);
        if stamp(now) != stamp(&step.old) && !ours {
            return Err(Fail::Raced(self.path(&step.target)));
        }
        self.write_over(step, &pinned, &step.source, &step.new, &step.after, true)
    }

    /// Writes the old content back, unless the file was never touched. A torn write looks like neither.
    pub(super) fn rewrite_back(&mut self, step: &Rewrite) -> Result<(), Fail> {
        let pinned = match self.rewrite_pinned(step) {
            // It has not come here yet, so nothing was written.
            Err(Fail::Raced(_)) if self.relocates() => return Ok(()),
            other => other?,
        };
        let untouched =
            stamp(&pinned.node) == stamp(&step.old) && pinned.node.ctime == step.old.ctime;
        let archive = Loc::Session(step.archive.clone());
        if untouched || !self.exists(&archive)? {
            return Ok(());
        }
        self.write_over(step, &pinned, &step.archive, &step.old, &step.before, false)
    }

    pub(super) fn is_rewrite_complete(&self, step: &Rewrite) -> Result<bool, Fail> {
        match self.rewrite_pinned(step) {
            Ok(pinned) => {
                Ok(stamp(&pinned.node) == stamp(&step.new) && step.after.fits(&pinned.node))
            }
            Err(Fail::Raced(_)) => Ok(false),
            Err(e) => Err(e),
        }
    }

    fn rewrite_pinned(&self, step: &Rewrite) -> Result<Pinned, Fail> {
        let (root, rel) = self.place(&step.target)?;
        match root.pin(rel) {
            Ok(pinned) if self.id(&pinned.node) == self.id(&step.old) => Ok(pinned),
            Err(e) if e.raw_os_error() != Some(libc::ENOENT) => {
                Err(self.failed("open", &step.target)(e))
            }
            _ => Err(Fail::Raced(self.path(&step.target))),
        }
    }

    fn write_over(
        &mut self,
        step: &Rewrite,
        pinned: &Pinned,
        source: &[u8],
        node: &Node,
        meta: &Meta,
        layer: bool,
    ) -> Result<(), Fail> {
        let from = Loc::Session(source.to_vec());
        let input = self
            .open_layer_file(source, node, layer)
            .map_err(self.failed("read", &from))?;
        let (root, rel) = self.place(&step.target)?;
        let output = match root.open_file(rel, libc::O_WRONLY) {
            Err(e) if e.raw_os_error() == Some(libc::EACCES) => {
                sys::chmod(pinned.fd.as_fd(), pinned.node.mode | 0o200)
                    .and_then(|()| root.open_file(rel, libc::O_WRONLY))
            }
            other => other,
        };
        let output = output.map_err(self.failed("write", &step.target))?;
        let same = sys::stat(output.as_fd(), c"").map_err(self.failed("look at", &step.target))?;
        if self.id(&same) != self.id(&step.old) {
            return Err(Fail::Raced(self.path(&step.target)));
        }
        nix::unistd::ftruncate(&output, 0)
            .map_err(io::Error::from)
            .map_err(self.failed("write", &step.target))?;
        self.changed()?;
        let written = copy::content(&input, &output, node.size, &mut |_| true);
        written.map_err(self.failed("write", &step.target))?;
        self.now.copied += node.size;
        self.changed()?;
        meta.set(pinned)
            .map_err(self.failed("set the attributes of", &step.target))?;
        self.changed()
    }

    /// Opens a file of the session that its owner may have made unreadable.
    fn open_layer_file(
        &self,
        rel: &[u8],
        node: &Node,
        layer: bool,
    ) -> io::Result<std::os::fd::OwnedFd> {
        match self.session.open_file(rel, libc::O_RDONLY) {
            Err(e) if e.raw_os_error() == Some(libc::EACCES) => {
                let pinned = self.session.pin(rel)?;
                sys::chmod(pinned.fd.as_fd(), node.mode | 0o400)?;
                let file = self.session.open_file(rel, libc::O_RDONLY);
                if layer {
                    sys::chmod(pinned.fd.as_fd(), node.mode)?;
                }
                file
            }
            other => other,
        }
    }
}

fn stamp(node: &Node) -> (u64, crate::node::Time) {
    (node.size, node.mtime)
}
