//! Finding the number of a path.

use crate::event::PathId;
use crate::paths::Paths;
use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};

/// Finds paths by directory and name.
#[derive(Debug, Default)]
pub(super) struct Index {
    state: RandomState,
    /// The newest path with a hash.
    newest: HashMap<u64, u32, Identity>,
    /// For each path the one before it with the same hash.
    older: Vec<Option<u32>>,
}

impl Index {
    pub(super) fn of(paths: &Paths) -> Self {
        let mut index = Self::default();
        for number in 0..paths.len() {
            let id = PathId(u32::try_from(number).expect("the table is limited"));
            let hash = index.hash(paths.parent(id), paths.name(id));
            index.insert(hash, id);
        }
        index
    }

    pub(super) fn hash(&self, parent: Option<PathId>, name: &[u8]) -> u64 {
        self.state.hash_one((parent, name))
    }

    pub(super) fn find(
        &self,
        hash: u64,
        parent: Option<PathId>,
        name: &[u8],
        paths: &Paths,
    ) -> Option<PathId> {
        let mut candidate = self.newest.get(&hash).copied();
        while let Some(number) = candidate {
            let id = PathId(number);
            if paths.parent(id) == parent && paths.name(id) == name {
                return Some(id);
            }
            candidate = self.older.get(number as usize).copied().flatten();
        }
        None
    }

    pub(super) fn insert(&mut self, hash: u64, id: PathId) {
        let older = self.newest.insert(hash, id.0);
        self.older.push(older);
    }
}

/// The keys are hashes already.
#[derive(Clone, Debug, Default)]
pub(super) struct Identity;

impl std::hash::BuildHasher for Identity {
    type Hasher = IdentityHasher;

    fn build_hasher(&self) -> Self::Hasher {
        IdentityHasher(0)
    }
}

pub(super) struct IdentityHasher(u64);

impl std::hash::Hasher for IdentityHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, n: u64) {
        self.0 = n;
    }
}
