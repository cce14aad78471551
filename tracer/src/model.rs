//! What the session has done to which path so far: which version a file holds, and what the events explain.

use effigy_journal::{Stat, VersionId};
use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;

/// Attributes that an event has set or shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attributes {
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

impl From<&Stat> for Attributes {
    fn from(stat: &Stat) -> Self {
        Self {
            mode: stat.mode,
            uid: stat.uid,
            gid: stat.gid,
        }
    }
}

/// What events say of an object; shared by all its names.
#[derive(Debug, Default)]
pub(crate) struct Object {
    /// The version its content is.
    version: Cell<Option<VersionId>>,
    attributes: Cell<Option<Attributes>>,
}

/// What events say of a path.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    object: Rc<Object>,
    /// An event explains its content.
    pub(crate) content: bool,
    /// An event has removed it.
    pub(crate) gone: bool,
    /// It came here with everything below it.
    pub(crate) moved: bool,
}

impl Known {
    pub(crate) fn attributes(&self) -> Option<Attributes> {
        self.object.attributes.get()
    }
}

/// All paths the session has changed: a tree of names, in which a directory that moves takes what is below it along at the cost
/// of one entry.
#[derive(Debug)]
pub(crate) struct Model {
    /// By number; `None` for one that is there only because of what is below it.
    nodes: Vec<Option<Known>>,
    /// Numbers by the number of the directory, four bytes, and the name behind them.
    numbers: HashMap<Box<[u8]>, u32>,
    /// The directory of the last path asked for, and its number: most paths lie beside the one before.
    last: (Vec<u8>, u32),
    key: Vec<u8>,
    /// Objects that have, or may get, names other than the one they are opened by: by device and inode number.
    several: HashMap<(u64, u64), Rc<Object>>,
}

impl Default for Model {
    fn default() -> Self {
        Self {
            nodes: vec![None],
            numbers: HashMap::new(),
            last: (Vec::new(), ROOT),
            key: Vec::new(),
            several: HashMap::new(),
        }
    }
}

/// The number of what every path begins with.
const ROOT: u32 = 0;

/// The directory of a path, without the slash behind it, and the name in it.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (&[], path),
    }
}

fn key(buffer: &mut Vec<u8>, directory: u32, name: &[u8]) {
    buffer.clear();
    buffer.extend_from_slice(&directory.to_le_bytes());
    buffer.extend_from_slice(name);
}

impl Model {
    fn find(&self, path: &[u8]) -> Option<u32> {
        let (directory, name) = split(path);
        let mut buffer = Vec::with_capacity(4 + name.len());
        let mut child = |above: u32, name: &[u8]| {
            key(&mut buffer, above, name);
            self.numbers.get(buffer.as_slice()).copied()
        };
        let mut above = ROOT;
        if self.last.0 == directory {
            above = self.last.1;
        } else {
            for component in directory.split(|byte| *byte == b'/').skip(1) {
                above = child(above, component)?;
            }
        }
        child(above, name)
    }

    fn child(&mut self, above: u32, name: &[u8]) -> u32 {
        key(&mut self.key, above, name);
        if let Some(number) = self.numbers.get(self.key.as_slice()) {
            return *number;
        }
        // More than four thousand million names do not fit into a journal.
        let number = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX);
        self.nodes.push(None);
        self.numbers.insert(self.key.as_slice().into(), number);
        number
    }

    /// The number of a path's directory.
    fn above(&mut self, directory: &[u8]) -> u32 {
        if self.last.0 == directory {
            return self.last.1;
        }
        let mut above = ROOT;
        for component in directory.split(|byte| *byte == b'/').skip(1) {
            above = self.child(above, component);
        }
        self.last.0.clear();
        self.last.0.extend_from_slice(directory);
        self.last.1 = above;
        above
    }

    fn number(&mut self, path: &[u8]) -> u32 {
        let (directory, name) = split(path);
        let above = self.above(directory);
        self.child(above, name)
    }

    fn slot(&mut self, path: &[u8]) -> &mut Option<Known> {
        let number = self.number(path);
        &mut self.nodes[number as usize]
    }

    pub(crate) fn get(&self, path: &[u8]) -> Option<&Known> {
        self.nodes.get(self.find(path)? as usize)?.as_ref()
    }

    pub(crate) fn version(&self, path: &[u8]) -> Option<VersionId> {
        self.get(path)?.object.version.get()
    }

    /// How many names events have given the object at a path, or met it under.
    pub(crate) fn names(&self, path: &[u8]) -> usize {
        self.get(path)
            .map_or(0, |known| Rc::strong_count(&known.object))
    }

    /// An entry of its own for something made here.
    pub(crate) fn created(&mut self, path: &[u8], stat: Option<&Stat>, version: Option<VersionId>) {
        let object = Object {
            version: Cell::new(version),
            attributes: Cell::new(stat.map(Attributes::from)),
        };
        *self.slot(path) = Some(Known {
            object: Rc::new(object),
            content: true,
            ..Known::default()
        });
    }

    /// New content for a file.
    pub(crate) fn written(&mut self, path: &[u8], version: VersionId) {
        let known = self.slot(path).get_or_insert_default();
        known.content = true;
        known.gone = false;
        known.object.version.set(Some(version));
    }

    pub(crate) fn changed(&mut self, path: &[u8], stat: Option<&Stat>) {
        let known = self.slot(path).get_or_insert_default();
        known.gone = false;
        if let Some(stat) = stat {
            known.object.attributes.set(Some(Attributes::from(stat)));
        }
    }

    pub(crate) fn removed(&mut self, path: &[u8]) {
        *self.slot(path) = Some(Known {
            gone: true,
            ..Known::default()
        });
    }

    /// `stat`: what both are, if that is known.
    pub(crate) fn linked(&mut self, from: &[u8], to: &[u8], stat: Option<&Stat>) {
        // The link may have copied the file up under its old name, too.
        let known = self.slot(from).get_or_insert_default();
        known.content = true;
        let known = known.clone();
        *self.slot(to) = Some(known);
        self.may_get_names(to, stat);
    }

    /// What is at a path will be asked for its names.
    pub(crate) fn may_get_names(&mut self, path: &[u8], stat: Option<&Stat>) {
        let (Some(stat), Some(known)) = (stat, self.get(path)) else {
            return;
        };
        let object = Rc::clone(&known.object);
        self.several.insert((stat.dev, stat.ino), object);
    }

    /// Paths that an object had when it was last heard of.
    pub(crate) fn names_of(&self, stat: &Stat) -> Vec<Vec<u8>> {
        let Some(object) = self.several.get(&(stat.dev, stat.ino)) else {
            return Vec::new();
        };
        let mut above: Vec<Option<&[u8]>> = vec![None; self.nodes.len()];
        for (key, number) in &self.numbers {
            above[*number as usize] = Some(key);
        }
        let path = |number: usize| {
            let mut names = Vec::new();
            let mut number = number;
            while let Some((directory, name)) = above[number].and_then(<[u8]>::split_first_chunk) {
                names.push(name);
                number = u32::from_le_bytes(*directory) as usize;
            }
            let names = names.iter().rev().flat_map(|name| [b"/", *name]);
            names.collect::<Vec<&[u8]>>().concat()
        };
        let known = self.nodes.iter().enumerate();
        known
            .filter_map(|(number, known)| Some((number, known.as_ref()?)))
            .filter(|(_, known)| !known.gone && Rc::ptr_eq(&known.object, object))
            .map(|(number, _)| path(number))
            .collect()
    }

    /// Makes a path another entry's, with everything below that.
    fn set(&mut self, path: &[u8], number: u32) {
        let (directory, name) = split(path);
        let above = self.above(directory);
        key(&mut self.key, above, name);
        self.numbers.insert(self.key.as_slice().into(), number);
    }

    /// What is at a path has come there with everything below it.
    fn came(&mut self, number: u32) {
        let known = self.nodes[number as usize].get_or_insert_default();
        known.content = true;
        known.moved = true;
        known.gone = false;
    }

    /// Everything at and below `from` is now at and below `to`.
    pub(crate) fn renamed(&mut self, from: &[u8], to: &[u8], directory: bool) {
        if directory {
            // What stood there before goes the other way, and is gone.
            self.exchanged(from, to);
        } else {
            let known = self.slot(from).take();
            let number = self.number(to);
            self.nodes[number as usize] = known;
            self.came(number);
        }
        self.removed(from);
    }

    pub(crate) fn exchanged(&mut self, a: &[u8], b: &[u8]) {
        let (of_a, of_b) = (self.number(a), self.number(b));
        for (path, number) in [(a, of_b), (b, of_a)] {
            self.came(number);
            self.set(path, number);
        }
        // It may have been one of them, or below one.
        self.last = (Vec::new(), ROOT);
    }

    /// Whether the path came along with a directory that was moved.
    pub(crate) fn came_along(&self, path: &[u8]) -> bool {
        let (directory, _) = split(path);
        let mut buffer = Vec::new();
        let mut above = ROOT;
        for component in directory.split(|byte| *byte == b'/').skip(1) {
            key(&mut buffer, above, component);
            let Some(number) = self.numbers.get(buffer.as_slice()) else {
                return false;
            };
            above = *number;
            if self.nodes[above as usize]
                .as_ref()
                .is_some_and(|known| known.moved)
            {
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test")]
mod tests {
    use super::*;

    #[test]
    fn a_renamed_directory_takes_what_is_below_along_and_nothing_beside_it() {
        let mut model = Model::default();
        for (n, path) in ["/d", "/d/a", "/d/s/b", "/d.txt", "/d0"].iter().enumerate() {
            model.created(
                path.as_bytes(),
                None,
                Some(VersionId(u32::try_from(n).unwrap())),
            );
        }
        model.renamed(b"/d", b"/e", true);
        assert_eq!(model.version(b"/e/s/b"), Some(VersionId(2)));
        assert_eq!(model.version(b"/d.txt"), Some(VersionId(3)));
        assert_eq!(model.version(b"/d0"), Some(VersionId(4)));
        assert!(model.get(b"/d").unwrap().gone && model.get(b"/d/a").is_none());
        assert_eq!(model.version(b"/d/s/b"), None);
        assert!(model.came_along(b"/e/s/x") && !model.came_along(b"/d.txt"));
    }

    #[test]
    fn names_of_one_file_share_what_is_known_of_it() {
        let mut model = Model::default();
        model.created(b"/a", None, Some(VersionId(1)));
        model.linked(b"/a", b"/b", None);
        model.written(b"/b", VersionId(2));
        assert_eq!(model.version(b"/a"), Some(VersionId(2)));
        model.created(b"/b", None, Some(VersionId(3)));
        assert_eq!(model.version(b"/a"), Some(VersionId(2)), "another file");
    }

    #[test]
    fn names_are_found_where_they_have_moved_to() {
        let stat = crate::sys::statx(crate::sys::CWD, c"/", 0).unwrap().stat;
        let mut model = Model::default();
        model.created(b"/d/a", None, Some(VersionId(1)));
        model.linked(b"/d/a", b"/d/s/b", Some(&stat));
        model.removed(b"/d/a");
        model.renamed(b"/d", b"/e", true);
        assert_eq!(model.names_of(&stat), [b"/e/s/b".to_vec()]);
    }

    #[test]
    fn an_exchange_is_its_own_reverse() {
        let mut model = Model::default();
        model.created(b"/a/x", None, Some(VersionId(1)));
        model.created(b"/b", None, Some(VersionId(2)));
        model.exchanged(b"/a", b"/b");
        assert_eq!(
            (model.version(b"/a"), model.version(b"/b/x")),
            (Some(VersionId(2)), Some(VersionId(1)))
        );
        model.exchanged(b"/a", b"/b");
        assert_eq!(
            (model.version(b"/b"), model.version(b"/a/x")),
            (Some(VersionId(2)), Some(VersionId(1)))
        );
    }
}
