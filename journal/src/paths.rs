//! The table of paths: each is the name of an entry in another one, so a directory's name is kept once.

use crate::codec::{Bad, MAX_PATH, MAX_PATH_BYTES, MAX_PATHS};
use crate::event::PathId;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

/// The table of paths that a journal has spoken of so far.
#[derive(Debug, Default)]
pub struct Paths {
    entries: Vec<Entry>,
    names: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// The directory's number, or [`NONE`].
    parent: u32,
    /// Where its name begins in `names`; it ends where the next one begins.
    start: u32,
    /// Bytes of the whole path.
    len: u16,
}

const NONE: u32 = u32::MAX;

impl Paths {
    /// How many there are; numbers are below this.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn push(&mut self, parent: Option<PathId>, name: &[u8]) -> Result<PathId, Bad> {
        let above = match parent {
            None => 0,
            Some(parent) => {
                usize::from(
                    self.entry(parent)
                        .ok_or(Bad("a path is not in the table"))?
                        .len,
                ) + 1
            }
        };
        if name.contains(&0) {
            return Err(Bad("a path has a NUL byte in it"));
        }
        if above + name.len() > MAX_PATH {
            return Err(Bad("a path is longer than 65 535 bytes"));
        }
        if self.entries.len() >= MAX_PATHS as usize
            || self.names.len() + name.len() > MAX_PATH_BYTES
        {
            return Err(Bad("there are too many paths"));
        }
        let id = PathId(u32::try_from(self.entries.len()).expect("the table is limited"));
        self.entries.push(Entry {
            parent: parent.map_or(NONE, |parent| parent.0),
            start: u32::try_from(self.names.len()).expect("the names are limited"),
            len: u16::try_from(above + name.len()).expect("a path is limited"),
        });
        self.names.extend_from_slice(name);
        Ok(id)
    }

    fn entry(&self, id: PathId) -> Option<Entry> {
        self.entries.get(id.0 as usize).copied()
    }

    /// The path, put together from its components. Empty for a number that is not in the table.
    #[must_use]
    pub fn path(&self, id: PathId) -> PathBuf {
        let mut buffer = Vec::new();
        self.read(id, &mut buffer);
        PathBuf::from(OsString::from_vec(buffer))
    }

    /// Writes the path's bytes over those in `buffer`.
    pub fn read(&self, id: PathId, buffer: &mut Vec<u8>) {
        buffer.clear();
        let Some(mut entry) = self.entry(id) else {
            return;
        };
        buffer.resize(entry.len.into(), b'/');
        let mut id = id;
        loop {
            let name = self.name(id);
            let end = usize::from(entry.len);
            buffer[end - name.len()..end].copy_from_slice(name);
            match self
                .parent(id)
                .and_then(|parent| Some((parent, self.entry(parent)?)))
            {
                Some((parent, above)) => (id, entry) = (parent, above),
                None => return,
            }
        }
    }

    /// The directory of a path. That of `/a` is the empty path.
    #[must_use]
    pub fn parent(&self, id: PathId) -> Option<PathId> {
        self.entry(id)
            .map(|entry| entry.parent)
            .filter(|parent| *parent != NONE)
            .map(PathId)
    }

    /// The last component; the whole path when it has no directory.
    #[must_use]
    pub fn name(&self, id: PathId) -> &[u8] {
        let Some(entry) = self.entry(id) else {
            return &[];
        };
        let end = self
            .entries
            .get(id.0 as usize + 1)
            .map_or(self.names.len(), |next| next.start as usize);
        &self.names[entry.start as usize..end]
    }

    /// Whether `id` is `directory` or somewhere below it.
    #[must_use]
    pub fn is_within(&self, id: PathId, directory: PathId) -> bool {
        let mut id = Some(id);
        while let Some(at) = id {
            if at == directory {
                return true;
            }
            // A parent is always older than what is in it.
            if at < directory {
                return false;
            }
            id = self.parent(at);
        }
        false
    }
}
