//! Files of before the session that have lost all names the session knew, and have others.
//!
//! What was done to them under the lost names shows under those. It is done to them where a plan keeps a removed name, which is a
//! name of the same file still; where only a copy is kept (on another filesystem) there is none.

use super::ReplayError;
use super::ground::Ground;
use super::load::Loaded;
use super::lower::is_alike;
use super::model::{Born, Obj};
use super::source::{Bytes, View, attributes, holds};
use super::wanted::{self, Wanted};
use crate::meta::Meta;
use crate::net::NetError;
use crate::node::Node;
use crate::options::Options;
use crate::step::{Loc, Rewrite, SetMeta, Step};
use effigy_journal::Session;

/// What such a file is to become.
pub(crate) struct Parting {
    /// The name it had.
    pub(crate) path: Vec<u8>,
    /// Where the plan keeps that.
    kept: Loc,
    pub(crate) real: Node,
    before: Meta,
    after: Meta,
    bytes: Option<Bytes>,
}

impl Parting {
    /// The step that does it; `archive` is where a content that is written over is kept.
    pub(crate) fn step(self, archive: Vec<u8>) -> Step {
        let Self {
            kept: target,
            real,
            before,
            after,
            bytes,
            ..
        } = self;
        match bytes {
            Some(Bytes {
                from: Loc::Session(source),
                len,
            }) => Step::Rewrite(Rewrite::with(
                (target, real),
                (before, after),
                (source, len),
                archive,
            )),
            _ => Step::Meta(SetMeta::of(target, real, before, after)),
        }
    }
}

/// What an object that these steps take the last known names from is to become, if it has others. Of each name: where it is when
/// the steps are taken, and where at present.
pub(super) fn parting(
    view: &View<'_>,
    ground: &Ground,
    steps: &[Step],
    obj: Obj,
    names: &[(Loc, Vec<u8>)],
) -> Result<Option<Parting>, ReplayError> {
    let mut found: Option<(Loc, &Vec<u8>, Node)> = None;
    for (loc, path) in names {
        let Ok(Some(node)) = ground.find(path) else {
            continue;
        };
        if node.is_dir() || usize::try_from(node.nlink).is_ok_and(|all| all <= names.len()) {
            return Ok(None);
        }
        found = found.or_else(|| Some((kept(steps, loc, &node)?, path, node)));
    }
    let Some((kept, path, real)) = found else {
        return Ok(None);
    };
    let Some(at) = ground.loc(path) else {
        return Ok(None);
    };
    let xattrs = ground
        .root_of(&at)
        .map(|(root, rel)| attributes(root, rel, &real));
    let before = Meta::of(&real, xattrs.unwrap_or_default());
    let Some((bytes, after)) = view.parting(ground, obj, &before, &real) else {
        return Ok(None);
    };
    let same = match &bytes {
        Some(bytes) if bytes.len == real.size => {
            holds(ground, &at, Some(bytes)).map_err(NetError::io(ground.shown(path)))?
        }
        other => other.is_none(),
    };
    let timed = after.mtime.is_none() || after.mtime == before.mtime;
    if same && timed && is_alike(&before, &after) {
        return Ok(None);
    }
    Ok(Some(Parting {
        path: path.clone(),
        kept,
        real,
        before,
        after,
        bytes: bytes.filter(|_| !same),
    }))
}

/// Where the steps keep what they remove from a place.
fn kept(steps: &[Step], loc: &Loc, node: &Node) -> Option<Loc> {
    steps.iter().find_map(|step| {
        let Step::Put(put) = step else { return None };
        let (Some(old), Some(archive), false) = (put.old, &put.archive, put.copied) else {
            return None;
        };
        let rest = loc.below(&put.target)?;
        let is_it = old.is_dir() || (old.dev, old.ino) == (node.dev, node.ino);
        match rest.is_empty() {
            true if is_it && !old.is_dir() => Some(archive.clone()),
            false if old.is_dir() => Some(archive.join(&rest)),
            _ => None,
        }
    })
}

/// The same for the steps of a commit.
pub(crate) fn partings(
    session: &Session,
    loaded: &Loaded,
    steps: &[Step],
) -> Result<Vec<Parting>, ReplayError> {
    let wanted: Wanted = wanted::execute(loaded);
    let model = &loaded.model;
    let mut parted: Vec<Obj> = wanted.states.keys().copied().collect();
    parted.retain(|obj| {
        let object = model.object(*obj);
        matches!(object.born, Born::Real(_)) && object.names.is_empty()
    });
    if parted.is_empty() {
        return Ok(Vec::new());
    }
    parted.sort_unstable();
    let ground = Ground::new(session, None, &Options::default())?;
    let view = View::new(session, loaded, &wanted);
    let mut found = Vec::new();
    for obj in parted {
        let originals = model.object(obj).originals.iter();
        let names = originals.filter_map(|slot| model.first_path(*slot));
        let names: Vec<_> = names
            .filter_map(|path| Some((ground.loc(&path)?, path)))
            .collect();
        found.extend(parting(&view, &ground, steps, obj, &names)?);
    }
    Ok(found)
}
