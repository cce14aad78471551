//! Whole trees as data, and a readable difference of two.
//!
//! Compared are the names, and of each file its type, permissions, owner, content or target or device number, all extended attributes (so
//! access control lists and capabilities too), which names are links of one file, whether it has holes, and where asked the time of its
//! last modification. Times of directories are not: they say when names came and went, not what is there.

mod sys;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::{self, Write as _};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// What lies below a directory, by path relative to it. The directory itself is the empty path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tree(BTreeMap<PathBuf, Node>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Node {
    kind: Kind,
    permissions: u32,
    owner: (u32, u32),
    attributes: BTreeMap<OsString, Vec<u8>>,
    /// The first of the names that this file has in the tree. A name elsewhere, such as in a before-image, does not count.
    links: PathBuf,
    modified: (i64, i64),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    Directory,
    /// Without content where the tests' user may not read it.
    File {
        content: Option<Vec<u8>>,
        holes: bool,
    },
    Symlink(PathBuf),
    Fifo,
    Socket,
    Device {
        block: bool,
        number: u64,
    },
}

impl Tree {
    /// Reads a whole tree. Whoever reads must be allowed to: tests as root see everything.
    pub(crate) fn read(root: &Path) -> Self {
        let mut nodes = BTreeMap::new();
        let mut names: BTreeMap<(u64, u64), PathBuf> = BTreeMap::new();
        read_below(root, PathBuf::new(), &mut nodes, &mut names);
        Self(nodes)
    }

    /// Leaves out what lies at or below these paths, such as files that hold the time of day. One that starts with `**/` is a name
    /// anywhere.
    pub(crate) fn without(mut self, paths: &[&str]) -> Self {
        let matches = |name: &Path, path: &str| match path.strip_prefix("**/") {
            Some(component) => name.iter().any(|part| part == component),
            None => name.starts_with(path),
        };
        self.0
            .retain(|name, _| !paths.iter().any(|path| matches(name, path)));
        self
    }

    /// Leaves out the extended attributes whose names begin so.
    pub(crate) fn without_attributes(mut self, beginning: &str) -> Self {
        for node in self.0.values_mut() {
            node.attributes
                .retain(|name, _| !name.as_bytes().starts_with(beginning.as_bytes()));
        }
        self
    }

    /// One line for each thing that differs; empty when nothing does.
    pub(crate) fn difference(&self, other: &Self, times: Times) -> String {
        let mut lines = String::new();
        let names: std::collections::BTreeSet<&PathBuf> =
            self.0.keys().chain(other.0.keys()).collect();
        for name in names {
            let shown = name.as_os_str().as_bytes().escape_ascii();
            let mut line = |what: &str, left: &dyn fmt::Display, right: &dyn fmt::Display| {
                let _infallible = writeln!(lines, "{shown}: {what}: {left} against {right}");
            };
            match (self.0.get(name), other.0.get(name)) {
                (Some(node), None) => line("is there", &node.kind, &"nothing"),
                (None, Some(node)) => line("is there", &"nothing", &node.kind),
                (Some(left), Some(right)) => left.compare(right, times, &mut line),
                (None, None) => {}
            }
        }
        lines
    }

    /// Stops the test with the difference if there is one. `left` and `right` say which trees these are.
    #[track_caller]
    pub(crate) fn must_equal(&self, other: &Self, times: Times, left: &str, right: &str) {
        let difference = self.difference(other, times);
        assert!(
            difference.is_empty(),
            "{left} against {right}:\n{difference}"
        );
    }
}

/// Whether times of last modification are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Times {
    /// Not at all.
    Ignored,
    /// Of everything but directories.
    OfFiles,
    /// Of directories too: nothing has been touched.
    OfAll,
}

fn read_below(
    root: &Path,
    name: PathBuf,
    nodes: &mut BTreeMap<PathBuf, Node>,
    names: &mut BTreeMap<(u64, u64), PathBuf>,
) {
    let path = root.join(&name);
    let found = fs::symlink_metadata(&path)
        .unwrap_or_else(|error| panic!("look at {}: {error}", path.display()));
    let kind = kind(&path, &found);
    let is_directory = kind == Kind::Directory;
    let links = match is_directory {
        true => name.clone(),
        false => names
            .entry((found.dev(), found.ino()))
            .or_insert_with(|| name.clone())
            .clone(),
    };
    let node = Node {
        kind,
        permissions: found.mode() & 0o7777,
        owner: (found.uid(), found.gid()),
        attributes: match sys::attributes(&path) {
            Err(error) if closed(&error) => BTreeMap::new(),
            found => {
                found.unwrap_or_else(|error| panic!("attributes of {}: {error}", path.display()))
            }
        },
        links,
        modified: (found.mtime(), found.mtime_nsec()),
    };
    nodes.insert(name.clone(), node);
    if is_directory {
        let entries = match fs::read_dir(&path) {
            Err(error) if closed(&error) => return,
            list => list.unwrap_or_else(|error| panic!("list {}: {error}", path.display())),
        };
        let mut children: Vec<OsString> = entries
            .map(|entry| entry.expect("an entry").file_name())
            .collect();
        children.sort();
        for child in children {
            read_below(root, name.join(child), nodes, names);
        }
    }
}

/// Only root sees everything: what an ordinary user has closed to itself stays closed to its tests.
fn closed(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied && !nix::unistd::geteuid().is_root()
}

fn kind(path: &Path, found: &fs::Metadata) -> Kind {
    let kind = found.file_type();
    if kind.is_dir() {
        Kind::Directory
    } else if kind.is_symlink() {
        Kind::Symlink(fs::read_link(path).expect("the target of a link"))
    } else if kind.is_fifo() {
        Kind::Fifo
    } else if kind.is_socket() {
        Kind::Socket
    } else if kind.is_block_device() || kind.is_char_device() {
        Kind::Device {
            block: kind.is_block_device(),
            number: found.rdev(),
        }
    } else {
        let content = match fs::read(path) {
            Err(error) if closed(&error) => None,
            read => Some(read.unwrap_or_else(|error| panic!("read {}: {error}", path.display()))),
        };
        Kind::File {
            content,
            holes: found.blocks() * 512 + 4096 < found.size(),
        }
    }
}

impl Node {
    fn compare(
        &self,
        other: &Self,
        times: Times,
        line: &mut dyn FnMut(&str, &dyn fmt::Display, &dyn fmt::Display),
    ) {
        if self.kind != other.kind {
            line("content", &self.kind, &other.kind);
        }
        if self.permissions != other.permissions {
            let octal = |node: &Self| format!("{:04o}", node.permissions);
            line("permissions", &octal(self), &octal(other));
        }
        if self.owner != other.owner {
            let owner = |node: &Self| format!("{}:{}", node.owner.0, node.owner.1);
            line("owner", &owner(self), &owner(other));
        }
        if self.attributes != other.attributes {
            line(
                "attributes",
                &Attributes(&self.attributes),
                &Attributes(&other.attributes),
            );
        }
        if self.links != other.links {
            let links = |node: &Self| format!("a name of {}", node.links.display());
            line("links", &links(self), &links(other));
        }
        let timed = match times {
            Times::Ignored => false,
            Times::OfFiles => self.kind != Kind::Directory,
            Times::OfAll => true,
        };
        if timed && self.modified != other.modified {
            let time = |node: &Self| format!("{}.{:09}", node.modified.0, node.modified.1);
            line("modified", &time(self), &time(other));
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory => f.write_str("a directory"),
            Self::File { content: None, .. } => f.write_str("a file that may not be read"),
            Self::File {
                content: Some(content),
                holes,
            } => {
                let holes = if *holes { " with holes" } else { "" };
                let begin = content[..content.len().min(60)].escape_ascii();
                write!(f, "a file of {} bytes{holes}, \"{begin}\"", content.len())
            }
            Self::Symlink(target) => write!(
                f,
                "a link to {}",
                target.as_os_str().as_bytes().escape_ascii()
            ),
            Self::Fifo => f.write_str("a FIFO"),
            Self::Socket => f.write_str("a socket"),
            Self::Device { block, number } => {
                write!(
                    f,
                    "a {} device {number:#x}",
                    if *block { "block" } else { "character" }
                )
            }
        }
    }
}

struct Attributes<'a>(&'a BTreeMap<OsString, Vec<u8>>);

impl fmt::Display for Attributes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("none");
        }
        for (name, value) in self.0 {
            write!(
                f,
                "{}={} ",
                name.as_bytes().escape_ascii(),
                value.escape_ascii()
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Two equal trees, of which `change` then changes the second.
    fn difference_after(change: &str) -> String {
        let dir = tempfile::tempdir().expect("a directory");
        for side in ["a", "b"] {
            let make = "mkdir $0 && cd $0 && echo x >f && ln f g && echo y >h && ln -s f s && mkfifo p && truncate -s 1M z && chmod 4755 h";
            let made = Command::new("sh")
                .args(["-c", make, side])
                .current_dir(dir.path())
                .status()
                .expect("sh");
            assert!(made.success());
        }
        let (left, right) = (dir.path().join("a"), dir.path().join("b"));
        let equal = Tree::read(&left).difference(&Tree::read(&right), Times::Ignored);
        assert_eq!(equal, "");
        let changed = Command::new("sh")
            .args(["-c", change])
            .current_dir(&right)
            .status()
            .expect("sh");
        assert!(changed.success(), "{change}");
        Tree::read(&left).difference(&Tree::read(&right), Times::Ignored)
    }

    #[test]
    fn every_kind_of_difference_is_seen() {
        let cases = [
            ("rm h", "h: is there"),
            ("mkdir new", "new: is there"),
            ("echo longer >h", "h: content"),
            ("chmod 755 h", "h: permissions: 4755 against 0755"),
            ("rm g; cp f g", "g: links: a name of f against a name of g"),
            ("rm z; ln h z", "z: links: a name of z against a name of h"),
            ("ln -sfn g s", "s: content: a link to f against a link to g"),
            ("rm p; : >p", "p: content: a FIFO"),
            (
                "cat z >y; cp --sparse=never y z; rm y",
                "z: content: a file of 1048576 bytes with holes",
            ),
            (
                "setfattr -n user.k -v w h || python3 -c 'import os; os.setxattr(\"h\", \"user.k\", b\"w\")'",
                "h: attributes: none against user.k=w",
            ),
        ];
        for (change, expected) in cases {
            let difference = difference_after(change);
            assert!(difference.contains(expected), "{change}: {difference}");
        }
    }
}
