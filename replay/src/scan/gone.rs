//! What the real tree has and the session removed.

use super::{Item, Walk, What, push_name};
use crate::conflict::Reason;
use crate::net::NetError;
use crate::node::Node;
use crate::root::absent_is_none;
use crate::sys::{self, Entry};
use std::os::fd::AsFd as _;

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
        let real = match target.open_dir(rel) {
            Err(e) if e.raw_os_error() == Some(libc::EACCES) => {
                let reason = Reason::Unreadable {
                    errno: libc::EACCES,
                };
                let node = target.find(rel).map_err(self.real_error(rel))?;
                let item = self.item(rel, What::Blocked(reason), None);
                self.push(Item { real: node, ..item });
                return Ok(());
            }
            other => other.map_err(self.real_error(rel))?,
        };
        let length = rel.len();
        for entry in sys::read_dir(real.as_fd()).map_err(self.real_error(rel))? {
            if upper.binary_search_by(|u| u.name.cmp(&entry.name)).is_ok() {
                continue;
            }
            if let Some(index) = index {
                self.items[index]
                    .unlisted
                    .push(entry.name.to_bytes().to_vec());
            }
            push_name(rel, &entry.name);
            let node = absent_is_none(sys::stat(real.as_fd(), &entry.name))
                .map_err(self.real_error(rel))?;
            if let Some(node) = node {
                self.deleted(rel, node, None)?;
            }
            rel.truncate(length);
        }
        Ok(())
    }

    /// Something real that is to go, with all that is below.
    pub(super) fn deleted(
        &mut self,
        rel: &mut Vec<u8>,
        real: Node,
        parent: Option<usize>,
    ) -> Result<usize, NetError> {
        let mount = self.target.map(|target| target.node().mount);
        let what = if Some(real.mount) == mount {
            What::Deleted
        } else {
            What::Blocked(Reason::MountInTheWay)
        };
        let index = self.push(Item {
            real: Some(real),
            ..self.item(rel, what.clone(), parent)
        });
        if real.is_dir() && what == What::Deleted {
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
        let dir = match target.open_dir(rel) {
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
        for entry in sys::read_dir(dir.as_fd()).map_err(self.real_error(rel))? {
            push_name(rel, &entry.name);
            let node = absent_is_none(sys::stat(dir.as_fd(), &entry.name))
                .map_err(self.real_error(rel))?;
            if let Some(node) = node {
                self.deleted(rel, node, Some(index))?;
            }
            rel.truncate(length);
        }
        self.depth -= 1;
        Ok(())
    }
}
