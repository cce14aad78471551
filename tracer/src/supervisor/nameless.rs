//! Objects that are reached through a descriptor, and no longer by the name they were opened with.

use super::Supervisor;
use super::names::is_at;
use crate::resolve::Object;

/// What the kernel writes behind the last name of what has lost it, or never had one.
const DELETED: &[u8] = b" (deleted)";
/// What the names of objects begin with that have none: no path does.
const NAMELESS: &[u8] = b"nameless:";

impl Supervisor {
    /// Gives an object another of its names when the one the kernel knows it by is gone, or else one that no path is.
    pub(super) fn name_truly(&self, object: &mut Object) {
        if !object.name.ends_with(DELETED) || is_at(&object.name, &object.seen) {
            return;
        }
        let mut names = self.recorder.model.names_of(&object.seen.stat).into_iter();
        object.name = names
            .find(|name| is_at(name, &object.seen))
            .unwrap_or_else(|| [NAMELESS, &object.name].concat());
    }
}
