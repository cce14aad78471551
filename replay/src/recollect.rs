//! What the journal of a session remembers that its layers do not show.
//!
//! The layers tell what is, not how it came to be. For a file with several names that matters: written to, its other names follow;
//! replaced by another, they do not. In a user namespace overlayfs leaves no mark of the difference.

use effigy_journal::{Entry, Op, Outcome, PathId, Paths, Reader, Session, Stat};
use std::cell::OnceCell;
use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};

/// Which file a name stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Identity {
    /// The one that stood at this path before the session.
    Former(PathBuf),
    /// One that the session made.
    Made,
    /// None.
    Nothing,
}

/// The journal of a session, read when it is first asked: a wholly new tree is put in place without it.
#[derive(Debug)]
pub(crate) struct Recollection<'s> {
    session: &'s Session,
    memory: OnceCell<Memory>,
}

/// What is remembered.
#[derive(Debug, Default)]
struct Memory {
    now: HashMap<PathBuf, Identity>,
    seen: HashMap<PathBuf, Stat>,
    /// Something was renamed: what is met below it stood elsewhere before.
    renamed: bool,
}

impl<'s> Recollection<'s> {
    pub(crate) fn of(session: &'s Session) -> Self {
        Self {
            session,
            memory: OnceCell::new(),
        }
    }

    fn memory(&self) -> &Memory {
        self.memory.get_or_init(|| Memory::read(self.session))
    }

    /// What stood at a path when the command first met it.
    pub(crate) fn seen(&self, path: &Path) -> Option<&Stat> {
        self.memory().seen.get(path)
    }

    /// Whether the file now at `path` is the one that stood there before, changed in place, or another one that took its name.
    /// `None` when that was not recorded.
    pub(crate) fn is_changed_in_place(&self, path: &Path) -> Option<bool> {
        match self.memory().now.get(path)? {
            Identity::Former(former) => Some(former == path),
            Identity::Made => Some(false),
            Identity::Nothing => None,
        }
    }

    /// The name that the file at `path` had before the session, when it has another one now.
    pub(crate) fn former_name(&self, path: &Path) -> Option<&Path> {
        match self.memory().now.get(path)? {
            Identity::Former(former) if former != path => Some(former),
            _ => None,
        }
    }
}

impl Memory {
    /// Reads the journal as far as it can be read: what is lost of it is not remembered.
    fn read(session: &Session) -> Self {
        let mut memory = Self::default();
        let Some(mut reader) = File::open(session.journal())
            .ok()
            .and_then(|file| Reader::open(file).ok())
        else {
            return memory;
        };
        while let Ok(Some(entry)) = reader.next_entry() {
            match entry {
                Entry::Event(event) if event.result == Outcome::Ok && event.op.is_effect() => {
                    memory.take(&event.op, reader.paths());
                }
                Entry::Precondition(precondition) => {
                    let path = reader.paths().path(precondition.path);
                    if let Some(before) = precondition
                        .before
                        .filter(|_| memory.is_where_it_was(&path))
                    {
                        memory.seen.insert(path, before);
                    }
                }
                _ => {}
            }
        }
        memory
    }

    fn take(&mut self, op: &Op, paths: &Paths) {
        let path = |id: PathId| paths.path(id);
        match op {
            Op::Rename { from, to, .. } => {
                self.renamed = true;
                let (from, to) = (path(*from), path(*to));
                let moved = self.identity(&from);
                self.move_below(&from, &to);
                self.now.insert(from, Identity::Nothing);
                self.now.insert(to, moved);
            }
            Op::Exchange { path: a, to: b } => {
                self.renamed = true;
                let (a, b) = (path(*a), path(*b));
                let (of_a, of_b) = (self.identity(&a), self.identity(&b));
                self.now.insert(a, of_b);
                self.now.insert(b, of_a);
            }
            Op::Link { from, to } => {
                let identity = self.identity(&path(*from));
                self.now.insert(path(*to), identity);
            }
            Op::Unlink { path: gone } | Op::Rmdir { path: gone } => {
                self.now.insert(path(*gone), Identity::Nothing);
            }
            Op::Open {
                path: at,
                created: true,
                ..
            } => {
                self.now.insert(path(*at), Identity::Made);
            }
            Op::Mkdir { path: at, .. }
            | Op::Symlink { path: at, .. }
            | Op::Mknod { path: at, .. }
            | Op::Bind { path: at, .. } => {
                self.now.insert(path(*at), Identity::Made);
            }
            // What is left changes the file that stands there.
            other => {
                if let Some(at) = other.path().map(path) {
                    let identity = self.identity(&at);
                    self.now.insert(at, identity);
                }
            }
        }
    }

    /// Whether the directories above a path are those that were there before the session.
    fn is_where_it_was(&self, path: &Path) -> bool {
        !self.renamed
            || path
                .ancestors()
                .skip(1)
                .all(|above| match self.now.get(above) {
                    Some(Identity::Former(former)) => former == above,
                    Some(_) => false,
                    None => true,
                })
    }

    fn identity(&self, path: &Path) -> Identity {
        self.now
            .get(path)
            .cloned()
            .unwrap_or_else(|| Identity::Former(path.to_owned()))
    }

    /// Names that are known below a directory go with it.
    fn move_below(&mut self, from: &Path, to: &Path) {
        let below = |path: &PathBuf| path.starts_with(from) && path != from;
        let names: Vec<PathBuf> = self
            .now
            .keys()
            .filter(|path| below(path))
            .cloned()
            .collect();
        for name in names {
            if let (Some(identity), Ok(rest)) = (self.now.remove(&name), name.strip_prefix(from)) {
                self.now.insert(to.join(rest), identity);
            }
        }
    }
}
