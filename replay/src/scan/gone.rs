//! What the real tree has and the session removed.

use super::beneath::Seen;
use super::{Item, Walk, What, push_name};
use crate::conflict::Reason;
use crate::net::NetError;
use crate::sys::Entry;

impl Walk<'_> {
    /// The real names in a directory whose upper hides them.
    pub(super) fn unlisted(
        &mut self,
        rel: &mut Vec<u8>,
        upper: &[Entry],
        index: Option<usize>,
    ) -> Result<(), NetError> {
        let Some(target) = self.target else {
            return Ok(());
        };
        let real = match target.dir(rel, true) {
            Err(e) if e.raw_os_error() == Some(libc::EACCES) => {
                let reason = Reason::Unreadable {
                    errno: libc::EACCES,
                };
                let node = match target.real() {
                    Some(real) => real.find(rel).map_err(self.real_error(rel))?,
                    None => None,
                };
                let item = self.item(rel, What::Blocked(reason), None);
                self.push(Item { real: node, ..item });
                return Ok(());
            }
            other => other.map_err(self.real_error(rel))?,
        };
        let length = rel.len();
        for name in real.names().map_err(self.real_error(rel))? {
            if upper.binary_search_by(|u| u.name.cmp(&name)).is_ok() {
                continue;
            }
            let found = real.stat(&name).map_err(self.real_error(rel))?;
            let Some((seen, _)) = found else { continue };
            if let Some(index) = index {
                self.items[index].unlisted.push(name.to_bytes().to_vec());
            }
            push_name(rel, &name);
            self.deleted(rel, seen, None)?;
            rel.truncate(length);
        }
        Ok(())
    }

    /// Something real that is to go, with all that is below.
    pub(super) fn deleted(
        &mut self,
        rel: &mut Vec<u8>,
        seen: Seen,
        parent: Option<usize>,
    ) -> Result<usize, NetError> {
        let what = if self.is_elsewhere(&seen) {
            What::Blocked(Reason::MountInTheWay)
        } else {
            What::Deleted
        };
        let index = self.push(Item {
            real: Some(seen.node),
            layer: seen.layer,
            ..self.item(rel, what.clone(), parent)
        });
        if seen.node.is_dir() && what == What::Deleted {
            self.deleted_children(rel, index)?;
            self.close(index);
        }
        Ok(index)
    }

    pub(super) fn deleted_children(
        &mut self,
        rel: &mut Vec<u8>,
        index: usize,
    ) -> Result<(), NetError> {
        let Some(target) = self.target else {
            return Ok(());
        };
        self.enter(rel)?;
        let dir = match target.dir(rel, true) {
            Ok(dir) => dir,
            Err(e) if e.raw_os_error() == Some(libc::EACCES) => {
                // What cannot be listed cannot be known to be what the session saw.
                self.items[index].what = What::Blocked(Reason::Unreadable {
                    errno: libc::EACCES,
                });
                self.depth -= 1;
                return Ok(());
            }
            Err(e) => return Err(self.real_error(rel)(e)),
        };
        let length = rel.len();
        for name in dir.names().map_err(self.real_error(rel))? {
            push_name(rel, &name);
            let found = dir.stat(&name).map_err(self.real_error(rel))?;
            if let Some((seen, _)) = found {
                self.deleted(rel, seen, Some(index))?;
            }
            rel.truncate(length);
        }
        self.depth -= 1;
        Ok(())
    }
}
