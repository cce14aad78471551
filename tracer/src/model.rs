//! What the session has done to which path so far: which version a file holds, and what the events explain.

use effigy_journal::{Stat, VersionId};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Bound;
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

/// What events say of a path.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    /// The version its content is; shared by all names of a file.
    pub(crate) version: Option<Rc<Cell<VersionId>>>,
    /// An event explains its content.
    pub(crate) content: bool,
    /// An event has removed it.
    pub(crate) gone: bool,
    /// It came here with everything below it.
    pub(crate) moved: bool,
    pub(crate) attributes: Option<Attributes>,
}

/// All paths the session has changed.
#[derive(Debug, Default)]
pub(crate) struct Model {
    paths: BTreeMap<Vec<u8>, Known>,
}

impl Model {
    pub(crate) fn get(&self, path: &[u8]) -> Option<&Known> {
        self.paths.get(path)
    }

    pub(crate) fn version(&self, path: &[u8]) -> Option<VersionId> {
        self.paths
            .get(path)?
            .version
            .as_ref()
            .map(|version| version.get())
    }

    /// An entry of its own for something made here.
    pub(crate) fn created(&mut self, path: &[u8], stat: Option<&Stat>, version: Option<VersionId>) {
        let known = Known {
            version: version.map(|version| Rc::new(Cell::new(version))),
            content: true,
            attributes: stat.map(Attributes::from),
            ..Known::default()
        };
        self.paths.insert(path.to_vec(), known);
    }

    /// New content for a file, under all its names.
    pub(crate) fn written(&mut self, path: &[u8], version: VersionId) {
        let known = self.paths.entry(path.to_vec()).or_default();
        known.content = true;
        known.gone = false;
        match &known.version {
            Some(shared) => shared.set(version),
            None => known.version = Some(Rc::new(Cell::new(version))),
        }
    }

    pub(crate) fn changed(&mut self, path: &[u8], stat: Option<&Stat>) {
        let known = self.paths.entry(path.to_vec()).or_default();
        known.gone = false;
        if let Some(stat) = stat {
            known.attributes = Some(Attributes::from(stat));
        }
    }

    pub(crate) fn removed(&mut self, path: &[u8]) {
        if let Some(known) = self.paths.get_mut(path) {
            *known = Known {
                gone: true,
                ..Known::default()
            };
        } else {
            self.paths.insert(
                path.to_vec(),
                Known {
                    gone: true,
                    ..Known::default()
                },
            );
        }
    }

    pub(crate) fn linked(&mut self, from: &[u8], to: &[u8]) {
        // The link may have copied the file up under its old name, too.
        let known = self.paths.entry(from.to_vec()).or_default();
        known.content = true;
        let known = known.clone();
        self.paths.insert(to.to_vec(), known);
    }

    fn take_below(&mut self, path: &[u8]) -> Vec<(Vec<u8>, Known)> {
        let mut low = path.to_vec();
        low.push(b'/');
        let mut high = path.to_vec();
        high.push(b'/' + 1);
        let keys: Vec<Vec<u8>> = self
            .paths
            .range::<Vec<u8>, _>((Bound::Included(low), Bound::Excluded(high)))
            .map(|(key, _)| key.clone())
            .collect();
        keys.into_iter()
            .filter_map(|key| self.paths.remove_entry(&key))
            .collect()
    }

    /// Everything at and below `from` is now at and below `to`.
    pub(crate) fn renamed(&mut self, from: &[u8], to: &[u8], directory: bool) {
        let mut top = self.paths.remove(from).unwrap_or_default();
        top.content = true;
        top.moved = true;
        top.gone = false;
        if directory {
            self.take_below(to);
            for (key, known) in self.take_below(from) {
                let mut new = to.to_vec();
                new.extend_from_slice(&key[from.len()..]);
                self.paths.insert(new, known);
            }
        }
        self.paths.insert(to.to_vec(), top);
        self.removed(from);
    }

    pub(crate) fn exchanged(&mut self, a: &[u8], b: &[u8]) {
        let mut of_a = self.take_below(a);
        let mut of_b = self.take_below(b);
        for (path, list) in [(a, &mut of_a), (b, &mut of_b)] {
            let mut known = self.paths.remove(path).unwrap_or_default();
            known.content = true;
            known.moved = true;
            list.push((path.to_vec(), known));
        }
        for (list, from, to) in [(of_a, a, b), (of_b, b, a)] {
            for (key, known) in list {
                let mut new = to.to_vec();
                new.extend_from_slice(&key[from.len()..]);
                self.paths.insert(new, known);
            }
        }
    }

    /// Whether the path came along with a directory that was moved.
    pub(crate) fn came_along(&self, path: &[u8]) -> bool {
        let mut end = path.len();
        while let Some(slash) = path[..end].iter().rposition(|byte| *byte == b'/') {
            if slash == 0 {
                return false;
            }
            end = slash;
            if self
                .paths
                .get(&path[..end])
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
        assert!(model.came_along(b"/e/s/x") && !model.came_along(b"/d.txt"));
    }

    #[test]
    fn names_of_one_file_share_its_version() {
        let mut model = Model::default();
        model.created(b"/a", None, Some(VersionId(1)));
        model.linked(b"/a", b"/b");
        model.written(b"/b", VersionId(2));
        assert_eq!(model.version(b"/a"), Some(VersionId(2)));
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
