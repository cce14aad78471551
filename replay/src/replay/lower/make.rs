//! What is made aside, before any name is changed.

use super::*;
use crate::replay::source::Bytes;

impl Lower<'_> {
    pub(super) fn link_target(&self, obj: Obj) -> Option<Vec<u8>> {
        if let Some(Op::Symlink { target, .. }) = self.view.made(obj) {
            return Some(target.0.clone());
        }
        let (rel, _) = self.view.layer(&self.ground, obj)?;
        let spot = self.ground.store.spot(&rel).ok()?;
        sys::readlink(spot.dir(), &spot.leaf).ok()
    }

    /// Type and number of a node.
    pub(super) fn device(&self, obj: Obj) -> (u32, (u32, u32)) {
        let kind = match self.view.kind(obj) {
            FileType::Fifo => libc::S_IFIFO,
            FileType::Socket => libc::S_IFSOCK,
            FileType::Block => libc::S_IFBLK,
            _ => libc::S_IFCHR,
        };
        let number = match self.view.made(obj) {
            Some(Op::Mknod { dev, .. }) => (libc::major(*dev), libc::minor(*dev)),
            _ => {
                let layer = self.view.layer(&self.ground, obj);
                layer.map_or((0, 0), |(_, node)| node.rdev)
            }
        };
        (kind, number)
    }

    /// What something new will look like.
    pub(super) fn nominal(&self, obj: Obj, meta: &Meta, size: u64) -> Node {
        Node {
            kind: self.view.kind(obj),
            mode: meta.mode,
            uid: meta.uid,
            gid: meta.gid,
            size,
            mtime: meta.mtime.unwrap_or_default(),
            ctime: Time::default(),
            ino: 0,
            birth: Time::default(),
            dev: (0, 0),
            rdev: (0, 0),
            nlink: 1,
            attributes: 0,
            mount: 0,
        }
    }

    pub(super) fn make_file(&mut self, obj: Obj, at: &Loc, meta: Meta, bytes: Option<Bytes>) {
        let made = match bytes {
            Some(Bytes { from, len }) if len > 0 => Made::File { from, len },
            _ => Made::Empty,
        };
        self.push_make(at, made, Some(meta));
        self.sources.insert(obj, at.clone());
    }

    /// Makes something and all that is in it. The attributes of a directory come later, after what is in it.
    pub(super) fn make(&mut self, obj: Obj, at: &Loc, meta: Meta) -> Done {
        let made = match self.view.kind(obj) {
            FileType::Regular => {
                let bytes = self.view.bytes(&self.ground, obj)?;
                self.make_file(obj, at, meta, bytes);
                return Ok(());
            }
            FileType::Directory => {
                self.push_make(at, Made::Directory, None);
                return self.make_inside(obj, at);
            }
            FileType::Symlink => match self.link_target(obj) {
                Some(target) => Made::Symlink(target),
                None => return Ok(()),
            },
            _ => {
                let (mode, rdev) = self.device(obj);
                Made::Node { mode, rdev }
            }
        };
        self.push_make(at, made, Some(meta));
        self.sources.insert(obj, at.clone());
        Ok(())
    }

    fn make_inside(&mut self, dir: Obj, at: &Loc) -> Done {
        for index in 0..self.view.loaded.model.object(dir).kids.len() {
            let model = &self.view.loaded.model;
            let name = model.object(dir).kids[index];
            let slot = Slot { dir, name };
            let Some(obj) = self.occupant(slot) else {
                continue;
            };
            let at = at.join(model.name(slot));
            let source = match self.born(obj) {
                Born::Real(_) => self.now(obj).and_then(|path| self.ground.loc(&path)),
                _ => self.sources.get(&obj).cloned(),
            };
            if let Some(source) = source {
                self.push_make(&at, Made::Link(source), None);
                continue;
            }
            let meta = self.view.meta(&self.ground, obj);
            self.make(obj, &at, meta.clone())?;
            if self.view.kind(obj) == FileType::Directory {
                self.push_make(&at, Made::Attributes, Some(meta));
            }
        }
        Ok(())
    }
}
