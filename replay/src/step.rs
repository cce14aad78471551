//! The steps of a plan, as the ledger keeps them.
//!
//! Each step is one change whose state can be told from the disk alone, by inode numbers: there is no progress to write
//! while steps are taken, and a plan that was interrupted anywhere can be driven to either end.

use crate::layer::Attributes;
use crate::meta::Meta;
use crate::node::Node;
use serde::{Deserialize, Serialize};

/// A place: in the real tree below a cover's mount point, or in the session's directory.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Loc {
    /// Relative to the target root of this number.
    Target(u32, Vec<u8>),
    /// Relative to the session's directory.
    Session(Vec<u8>),
}

impl Loc {
    pub(crate) fn rel(&self) -> &[u8] {
        match self {
            Self::Target(_, rel) | Self::Session(rel) => rel,
        }
    }

    /// The same place's entry `below`.
    pub(crate) fn join(&self, below: &[u8]) -> Self {
        let join = |rel: &[u8]| [rel, b"/".as_slice(), below].concat();
        match self {
            Self::Target(n, rel) => Self::Target(*n, join(rel)),
            Self::Session(rel) => Self::Session(join(rel)),
        }
    }

    /// What is left of a place below another one.
    pub(crate) fn below(&self, above: &Self) -> Option<Vec<u8>> {
        let (rest, same) = match (self, above) {
            (Self::Target(n, rel), Self::Target(m, above)) => {
                (rel.strip_prefix(above.as_slice())?, n == m)
            }
            (Self::Session(rel), Self::Session(above)) => {
                (rel.strip_prefix(above.as_slice())?, true)
            }
            _ => return None,
        };
        match rest.split_first() {
            _ if !same => None,
            None => Some(Vec::new()),
            Some((b'/', rest)) => Some(rest.to_vec()),
            Some(_) => None,
        }
    }
}

/// Where the new thing of a [`Put`] comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Source {
    /// It is moved from the hold itself (the layer).
    Move,
    /// It is copied with all that is below.
    Copy(Vec<u8>),
    /// A directory like this one, empty. The attributes it is to have at first.
    Directory(Meta),
    /// Another name of this real file.
    Link(Loc),
    /// It was made at the hold by the [`Make`] steps before.
    Made,
    /// The same; it is the old thing with other content.
    Changed,
}

/// What is put at a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct New {
    pub(crate) source: Source,
    /// What it will be; its inode number counts only for `Move` and `Link`.
    pub(crate) node: Node,
    /// It brings entries below it along.
    pub(crate) tree: bool,
}

/// Puts something at a path, replaces what is there, or removes it: by renames between the target, the hold and the
/// archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Put {
    pub(crate) target: Loc,
    /// What stands there.
    pub(crate) old: Option<Node>,
    pub(crate) new: Option<New>,
    /// Where the new thing is before, and the old one after.
    pub(crate) hold: Loc,
    /// Where the old thing is kept in the end. Equal to `hold`, or a place that the old thing is moved on to, or
    /// (`copied`) a copy made beforehand.
    pub(crate) archive: Option<Loc>,
    /// The archive is a copy, and the hold a temporary name in the real tree.
    pub(crate) copied: bool,
}

/// Changes the attributes of a real inode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SetMeta {
    pub(crate) target: Loc,
    pub(crate) node: Node,
    pub(crate) before: Meta,
    pub(crate) after: Meta,
    /// The step that puts the inode there; `node` has no number then.
    pub(crate) made_by: Option<u32>,
    /// Not an effect: only opens a directory for the other steps, or closes it again.
    pub(crate) aid: bool,
}

impl SetMeta {
    /// Of an inode that is there. A time that stays is not set.
    pub(crate) fn of(target: Loc, node: Node, before: Meta, mut after: Meta) -> Self {
        if after.mtime == before.mtime {
            after.mtime = None;
        }
        Self {
            target,
            node,
            before,
            after,
            made_by: None,
            aid: false,
        }
    }
}

/// Changes the content of a real file that has several names, so that all of them follow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Rewrite {
    pub(crate) target: Loc,
    pub(crate) old: Node,
    pub(crate) before: Meta,
    pub(crate) new: Node,
    pub(crate) after: Meta,
    /// In the session's directory.
    pub(crate) source: Vec<u8>,
    /// A copy of the old content, in the session's directory.
    pub(crate) archive: Vec<u8>,
}

impl Rewrite {
    /// Gives the file `old` at `target` the `len` bytes of a file in the session's directory, and attributes.
    pub(crate) fn with(
        (target, old): (Loc, Node),
        (before, after): (Meta, Meta),
        (source, len): (Vec<u8>, u64),
        archive: Vec<u8>,
    ) -> Self {
        let mut new = old;
        new.size = len;
        new.mtime = after.mtime.unwrap_or(old.mtime);
        new.mode = after.mode;
        Self {
            target,
            old,
            before,
            new,
            after,
            source,
            archive,
        }
    }
}

/// What a [`Make`] makes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Made {
    /// A regular file with the first `len` bytes of that file.
    File { from: Loc, len: u64 },
    /// A regular file without content.
    Empty,
    /// An empty directory, open for its owner; `Attributes` gives it its own.
    Directory,
    /// A symbolic link to this.
    Symlink(Vec<u8>),
    /// A FIFO, socket or device: mode with its type, device number.
    Node { mode: u32, rdev: (u32, u32) },
    /// Another name of this file.
    Link(Loc),
    /// Nothing new: the attributes of what stands there.
    Attributes,
}

/// Makes something while copies are prepared, in a place where it does not count yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Make {
    pub(crate) at: Loc,
    pub(crate) made: Made,
    /// Its attributes; those of another name are the file's.
    pub(crate) meta: Option<Meta>,
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Step {
    /// Takes overlay attributes off something in the layer that is about to be moved.
    Strip {
        at: Vec<u8>,
        ino: u64,
        mode: u32,
        attributes: Attributes,
    },
    /// Makes a whiteout in a directory of the layer that is opaque, which changes nothing of the view.
    Whiteout {
        at: Vec<u8>,
    },
    /// Removes a whiteout of the layer that covers nothing.
    Unwhiteout {
        at: Vec<u8>,
    },
    /// Makes a directory of the layer no longer opaque, once whiteouts stand for all it hides.
    Transparent {
        at: Vec<u8>,
        mode: u32,
    },
    Put(Put),
    Meta(SetMeta),
    Rewrite(Rewrite),
    Make(Make),
}

impl Step {
    /// The real path it changes.
    pub(crate) fn target(&self) -> Option<&Loc> {
        match self {
            Self::Put(put) => Some(&put.target),
            Self::Meta(meta) => Some(&meta.target),
            Self::Rewrite(rewrite) => Some(&rewrite.target),
            _ => None,
        }
    }
}
