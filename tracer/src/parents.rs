//! Directories that names have led through, kept open so that the next name in one costs one question instead of three calls.
//!
//! What is kept is never believed for its name's sake. The kernel walks the task's own name each time, with the rights the task
//! has, and the kept descriptor is taken only when that walk ends at the very object it holds: the object is open, so neither
//! its number nor its mount's can have gone to another. What the walk does not tell is the directory's absolute name. That
//! changes only with a move of a directory or a mount, of which the supervisor hears: its epoch counts them. It counts symbolic
//! links that come or move as well, so that a name which once led through no magic link of /proc (those mean whoever asks)
//! leads through none now.

use crate::tasks::Held;
use std::collections::HashMap;
use std::rc::Rc;

/// How many are kept; each is a descriptor.
const MOST: usize = 256;

/// The kept directories, by the bytes before the last component of a name.
#[derive(Debug, Default)]
pub(crate) struct Parents {
    held: HashMap<Vec<u8>, Rc<Held>>,
    epoch: u64,
}

impl Parents {
    /// The directory these bytes led to last, in this epoch.
    pub(crate) fn get(&self, parent: &[u8], epoch: u64) -> Option<&Rc<Held>> {
        if self.epoch == epoch {
            self.held.get(parent)
        } else {
            None
        }
    }

    /// Keeps what a walk without links of /proc led to.
    pub(crate) fn insert(&mut self, parent: &[u8], held: Rc<Held>, epoch: u64) {
        if self.epoch != epoch || self.held.len() >= MOST {
            self.clear();
            self.epoch = epoch;
        }
        self.held.insert(parent.to_vec(), held);
    }

    /// Lets go of all.
    pub(crate) fn clear(&mut self) {
        self.held.clear();
    }
}
