//! What stands in the way of a replay, and what is done about it.

use super::*;
use crate::replay::source;

impl Lower<'_> {
    /// Whether what stood there before the session may be removed or replaced.
    pub(super) fn may_go(&mut self, obj: Obj, fin: &[u8], here: &[u8], real: &Node) -> Done<bool> {
        let before = self.view.loaded.model.object(obj).before;
        if before.is_some_and(|stat| source::file_type(stat.kind) != real.kind) {
            return self.refuse(fin, Reason::ChangedMeanwhile, Some(*real));
        }
        if real.is_dir() {
            let mut unseen = Vec::new();
            self.unseen(obj, here, &mut unseen)?;
            let mut may = true;
            for (path, node) in unseen {
                may &= self.refuse(&path, Reason::UnseenBelow, Some(node))?;
            }
            return Ok(may);
        }
        if self.is_foreign(obj, here, real) {
            return self.refuse(fin, Reason::ChangedMeanwhile, Some(*real));
        }
        Ok(true)
    }

    /// What lies in a directory that is to go and is not known to go itself.
    pub(super) fn unseen(
        &mut self,
        dir: Obj,
        here: &[u8],
        into: &mut Vec<(Vec<u8>, Node)>,
    ) -> Done {
        let failed = |ground: &Ground| NetError::io(ground.shown(here));
        let Some(loc) = self.ground.loc(here) else {
            return Ok(());
        };
        let Some((root, rel)) = self.ground.root_of(&loc) else {
            return Ok(());
        };
        let open = match root.open_dir(rel) {
            Err(e) if e.raw_os_error() == Some(libc::EACCES) => return Ok(()),
            other => other.map_err(failed(&self.ground))?,
        };
        for entry in sys::read_dir(open.as_fd()).map_err(failed(&self.ground))? {
            let path = join(here, entry.name.to_bytes());
            if self.vacated.contains(&path) {
                continue;
            }
            let found = absent_is_none(sys::stat(open.as_fd(), &entry.name))
                .map_err(failed(&self.ground))?;
            let Some(node) = found else { continue };
            let slot = self.view.loaded.model.slot_of(dir, entry.name.to_bytes());
            let object = slot.and_then(|slot| self.view.loaded.model.entry(slot).initial);
            let goes = slot.is_some_and(|slot| {
                self.view.wanted.is_touched(slot) && self.occupant(slot).is_none()
            });
            if !goes {
                into.push((path, node));
            } else if node.is_dir() {
                if let Some(object) = object {
                    self.unseen(object, &path, into)?;
                }
            } else {
                let before = object.and_then(|object| self.view.loaded.model.object(object).before);
                if self.ground.is_foreign(&path, &node, before.as_ref()) {
                    into.push((path, node));
                }
            }
        }
        Ok(())
    }

    /// A path is in conflict. Whether it is to be overwritten all the same.
    pub(super) fn refuse(
        &mut self,
        path: &[u8],
        reason: Reason,
        found: Option<Node>,
    ) -> Done<bool> {
        let conflict = Conflict {
            path: self.ground.shown(path),
            reason,
            wanted: None,
            found,
        };
        match self.options.on_conflict {
            OnConflict::Skip => {
                self.notes.push(Note::Skipped(conflict));
                Ok(false)
            }
            OnConflict::Overwrite if conflict.advice() == Advice::Choose => {
                self.overwritten.extend(self.ground.loc(path));
                self.notes.push(Note::Overwritten(conflict));
                Ok(true)
            }
            OnConflict::Abort | OnConflict::Overwrite => {
                self.conflicts.push(conflict);
                Ok(false)
            }
        }
    }
}
