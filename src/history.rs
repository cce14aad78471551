//! Names and contents as a journal tells them, up to any event.
//!
//! The tree holds only what the journal speaks of. Everything else is as it was before the session, under the name it had
//! then: a directory that was renamed takes what is below it along.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::path::{Component, Path, PathBuf};

use effigy_journal::{Event, Op, Outcome, Paths, VersionId};

/// Directory entries and file contents after some number of events.
#[derive(Debug)]
pub(crate) struct History {
    root: Node,
    files: Vec<Content>,
}

/// What stands at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Held {
    /// What stood at this real path before the session.
    Original(PathBuf),
    /// The content that came of an event.
    Version(VersionId),
    /// A file made in the session whose content no event tells.
    Unknown,
    /// Something that is no regular file.
    Other,
    Absent,
}

#[derive(Debug)]
enum Node {
    Original(PathBuf),
    Directory {
        /// Where entries that are not in `entries` stood before the session.
        base: Option<PathBuf>,
        entries: HashMap<OsString, Node>,
    },
    /// An index into `files`: hard links share it.
    File(usize),
    Other,
    Absent,
}

#[derive(Debug)]
struct Content {
    original: Option<PathBuf>,
    version: Option<VersionId>,
}

impl Default for History {
    fn default() -> Self {
        Self {
            root: Node::Original(PathBuf::from("/")),
            files: Vec::new(),
        }
    }
}

impl History {
    /// Takes the next event in. Calls that failed change nothing.
    pub(crate) fn apply(&mut self, event: &Event, paths: &Paths) {
        if matches!(event.result, Outcome::Errno(_)) {
            return;
        }
        let path = |id| paths.path(id);
        match event.op {
            Op::Open {
                path: file,
                version,
                created: true,
                ..
            } => {
                let made = self.made(version);
                *self.entry(&path(file)) = made;
            }
            Op::Open {
                path: file,
                version: version @ Some(_),
                ..
            }
            | Op::Truncate {
                path: file,
                version: version @ Some(_),
                ..
            } => {
                let file = self.file(&path(file));
                self.files[file].version = version;
            }
            Op::Mkdir {
                path: directory, ..
            } => {
                *self.entry(&path(directory)) = Node::Directory {
                    base: None,
                    entries: HashMap::new(),
                };
            }
            Op::Rmdir { path: name } | Op::Unlink { path: name } => {
                *self.entry(&path(name)) = Node::Absent
            }
            Op::Rename { from, to, .. } => self.rename(&path(from), &path(to)),
            Op::Exchange {
                path: one,
                to: other,
            } => {
                let taken = std::mem::replace(self.entry(&path(one)), Node::Absent);
                let other = std::mem::replace(self.entry(&path(other)), taken);
                *self.entry(&path(one)) = other;
            }
            Op::Link { from, to } => {
                let file = self.file(&path(from));
                *self.entry(&path(to)) = Node::File(file);
            }
            Op::Symlink { path: name, .. } | Op::Bind { path: name, .. } => {
                *self.entry(&path(name)) = Node::Other
            }
            Op::Mknod {
                path: name, mode, ..
            } => {
                *self.entry(&path(name)) = match mode & libc::S_IFMT {
                    0 | libc::S_IFREG => self.made(None),
                    _ => Node::Other,
                };
            }
            Op::Settle {
                path: name,
                ref state,
                version,
            } => match (state.as_deref(), version) {
                (None, _) => *self.entry(&path(name)) = Node::Absent,
                (Some(_), Some(version)) => {
                    let file = self.file(&path(name));
                    self.files[file].version = Some(version);
                }
                (Some(_), None) => {}
            },
            _ => {}
        }
    }

    /// What stands at a path now.
    pub(crate) fn at(&self, path: &Path) -> Held {
        let mut node = &self.root;
        let mut names = names(path);
        while let Some(name) = names.next() {
            match node {
                Node::Original(base) => {
                    let mut original = base.join(name);
                    original.extend(names);
                    return Held::Original(original);
                }
                Node::Directory { base, entries } => match (entries.get(name), base) {
                    (Some(entry), _) => node = entry,
                    (None, Some(base)) => {
                        let mut original = base.join(name);
                        original.extend(names);
                        return Held::Original(original);
                    }
                    (None, None) => return Held::Absent,
                },
                Node::File(_) | Node::Other | Node::Absent => return Held::Absent,
            }
        }
        match node {
            Node::Original(path) => Held::Original(path.clone()),
            Node::Directory { .. } | Node::Other => Held::Other,
            Node::Absent => Held::Absent,
            Node::File(file) => match &self.files[*file] {
                Content {
                    version: Some(version),
                    ..
                } => Held::Version(*version),
                Content {
                    original: Some(path),
                    ..
                } => Held::Original(path.clone()),
                Content { .. } => Held::Unknown,
            },
        }
    }

    /// A path where a version is the content now.
    pub(crate) fn find(&self, version: VersionId) -> Option<PathBuf> {
        let file = self.files.iter().position(|f| f.version == Some(version))?;
        find(&self.root, file, Path::new("/"))
    }

    /// Whether the file that stood at a real path before the session has got other content since.
    pub(crate) fn has_replaced(&self, original: &Path) -> bool {
        self.at(original) != Held::Original(original.to_owned())
            || self
                .files
                .iter()
                .any(|f| f.version.is_some() && f.original.as_deref() == Some(original))
    }

    fn rename(&mut self, from: &Path, to: &Path) {
        // Two names of one file: rename(2) leaves both.
        let file = match self.entry(from) {
            Node::File(file) => Some(*file),
            _ => None,
        };
        if file.is_some() && matches!(self.entry(to), Node::File(other) if Some(*other) == file) {
            return;
        }
        let moved = std::mem::replace(self.entry(from), Node::Absent);
        *self.entry(to) = moved;
    }

    fn made(&mut self, version: Option<VersionId>) -> Node {
        self.files.push(Content {
            original: None,
            version,
        });
        Node::File(self.files.len() - 1)
    }

    /// The file at a path, which from now on is one the tree knows.
    fn file(&mut self, path: &Path) -> usize {
        let next = self.files.len();
        let entry = self.entry(path);
        let original = match entry {
            Node::File(file) => return *file,
            Node::Original(original) => Some(std::mem::take(original)),
            _ => None,
        };
        *entry = Node::File(next);
        self.files.push(Content {
            original,
            version: None,
        });
        next
    }

    /// The place of a path in the tree, made where it is not there yet.
    fn entry(&mut self, path: &Path) -> &mut Node {
        let mut node = &mut self.root;
        for name in names(path) {
            node = node.child(name);
        }
        node
    }
}

impl Node {
    /// An entry of this node, which becomes a directory if it is not known as one.
    fn child(&mut self, name: &OsStr) -> &mut Self {
        if !matches!(self, Self::Directory { .. }) {
            let base = match self {
                Self::Original(base) => Some(std::mem::take(base)),
                _ => None,
            };
            *self = Self::Directory {
                base,
                entries: HashMap::new(),
            };
        }
        let Self::Directory { base, entries } = self else {
            unreachable!("it has just been made a directory");
        };
        entries
            .entry(name.to_owned())
            .or_insert_with(|| match base {
                Some(base) => Self::Original(base.join(name)),
                None => Self::Absent,
            })
    }
}

fn names(path: &Path) -> impl Iterator<Item = &OsStr> {
    path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name),
        _ => None,
    })
}

fn find(node: &Node, file: usize, path: &Path) -> Option<PathBuf> {
    match node {
        Node::File(found) if *found == file => Some(path.to_owned()),
        Node::Directory { entries, .. } => entries
            .iter()
            .find_map(|(name, entry)| find(entry, file, &path.join(name))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;

    use effigy_journal::{By, Entry, NewEvent, PathId, Reader, Tid, Writer};

    use super::*;

    /// The history after the operations that `tell` makes of paths.
    fn after(tell: impl FnOnce(&mut dyn FnMut(&str) -> PathId) -> Vec<Op>) -> History {
        let scratch = tempfile::tempdir().expect("a temporary directory");
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true);
        let file = options
            .open(scratch.path().join("journal"))
            .expect("a fresh file");
        let mut writer = Writer::create(file).expect("a fresh journal");
        let process = writer.process(None, 7, 0).expect("the first process");
        for op in tell(&mut |path| writer.path(Path::new(path)).expect("a path")) {
            let event = NewEvent {
                time: 0,
                process,
                tid: Tid(7),
                by: By::Performed,
                op,
                result: Outcome::Ok,
            };
            writer.append(event).expect("an event");
        }
        let mut reader = Reader::open(writer.finish(0, 0).expect("the end")).expect("a journal");
        let mut history = History::default();
        while let Some(entry) = reader.next_entry().expect("a readable journal") {
            if let Entry::Event(event) = entry {
                history.apply(&event, reader.paths());
            }
        }
        history
    }

    fn open(path: PathId, version: u32, created: bool) -> Op {
        Op::Open {
            path,
            flags: 0,
            mode: 0,
            created,
            truncated: false,
            version: Some(VersionId(version)),
        }
    }

    fn rename(from: PathId, to: PathId) -> Op {
        Op::Rename {
            from,
            to,
            flags: 0,
            replaced: false,
        }
    }

    fn original(path: &str) -> Held {
        Held::Original(PathBuf::from(path))
    }

    #[test]
    fn versions_follow_names() {
        let history = after(|p| {
            let (f, g, h) = (p("/w/f"), p("/w/g"), p("/w/h"));
            vec![
                open(f, 0, true),
                open(g, 1, true),
                open(f, 2, false),
                rename(f, h),
                Op::Unlink { path: g },
            ]
        });
        assert_eq!(history.at(Path::new("/w/h")), Held::Version(VersionId(2)));
        assert_eq!(history.at(Path::new("/w/f")), Held::Absent);
        assert_eq!(history.at(Path::new("/w/g")), Held::Absent);
        assert_eq!(history.at(Path::new("/w/other")), original("/w/other"));
        assert_eq!(
            history.find(VersionId(2)).as_deref(),
            Some(Path::new("/w/h"))
        );
        assert_eq!(history.find(VersionId(0)), None);
    }

    #[test]
    fn a_renamed_directory_takes_what_is_below_along() {
        let history = after(|p| {
            let (d, e, f) = (p("/w/d"), p("/w/e"), p("/w/e/s/f"));
            vec![
                rename(d, e),
                open(f, 0, false),
                Op::Mkdir {
                    path: d,
                    mode: 0o755,
                },
            ]
        });
        assert_eq!(
            history.at(Path::new("/w/e/s/f")),
            Held::Version(VersionId(0))
        );
        assert_eq!(history.at(Path::new("/w/e/s/g")), original("/w/d/s/g"));
        assert_eq!(history.at(Path::new("/w/d/s/g")), Held::Absent);
        assert!(history.has_replaced(Path::new("/w/d/s/f")));
        assert!(!history.has_replaced(Path::new("/w/x")));
    }

    #[test]
    fn hard_links_share_content() {
        let history = after(|p| {
            let (a, b) = (p("/w/a"), p("/w/b"));
            vec![Op::Link { from: a, to: b }, open(b, 3, false), rename(a, b)]
        });
        assert_eq!(history.at(Path::new("/w/a")), Held::Version(VersionId(3)));
        assert_eq!(history.at(Path::new("/w/b")), Held::Version(VersionId(3)));
    }

    #[test]
    fn names_can_be_exchanged() {
        let history = after(|p| {
            let (a, b) = (p("/w/a"), p("/w/b"));
            vec![open(a, 1, true), Op::Exchange { path: a, to: b }]
        });
        assert_eq!(history.at(Path::new("/w/b")), Held::Version(VersionId(1)));
        assert_eq!(history.at(Path::new("/w/a")), original("/w/b"));
    }
}
