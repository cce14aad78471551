//! What the journal of a session remembers that its layers do not show.
//!
//! The layers tell what is, not how it came to be. For a file with several names that matters: written to, its other names follow;
//! replaced by another, they do not. In a user namespace overlayfs leaves no mark of the difference. Nor does it leave one of which
//! file a moved one was.

use crate::replay::load::{self, Loaded};
use crate::replay::model::{Born, Last, Model, Obj};
use crate::selection::EventSelection;
use effigy_journal::{Session, Stat};
use std::cell::OnceCell;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

/// Which file a name stands for at the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Identity {
    /// The one that stood at this path before the session.
    Former(PathBuf),
    /// One that the session made.
    Made,
}

/// The journal of a session, read when it is first asked: a wholly new tree is put in place without it.
pub(crate) struct Recollection<'s> {
    session: &'s Session,
    memory: OnceCell<Option<Loaded>>,
}

impl<'s> Recollection<'s> {
    pub(crate) fn of(session: &'s Session) -> Self {
        Self {
            session,
            memory: OnceCell::new(),
        }
    }

    /// The journal as far as it can be read: what is lost of it is not remembered.
    pub(crate) fn loaded(&self) -> Option<&Loaded> {
        let memory = self
            .memory
            .get_or_init(|| load::load(self.session, &mut EventSelection::all()).ok());
        memory.as_ref()
    }

    fn model(&self) -> Option<&Model> {
        self.loaded().map(|loaded| &loaded.model)
    }

    /// What stood at a path when the command first met it.
    pub(crate) fn seen(&self, path: &Path) -> Option<&Stat> {
        self.model()?.met_at(path.as_os_str().as_bytes())
    }

    /// What the file that has this name now was before the session.
    pub(crate) fn before(&self, path: &Path) -> Option<&Stat> {
        let model = self.model()?;
        match model.last(path.as_os_str().as_bytes()) {
            Last::Object(_, obj) => model.object(obj).before.as_ref(),
            _ => self.seen(path),
        }
    }

    /// Which file has this name now; `None` when that was not recorded.
    pub(crate) fn identity(&self, path: &Path) -> Option<Identity> {
        let model = self.model()?;
        match model.last(path.as_os_str().as_bytes()) {
            Last::Object(_, obj) => match model.object(obj).born {
                Born::Real(slot) => model.first_path(slot).map(owned).map(Identity::Former),
                Born::Made(_) => Some(Identity::Made),
                Born::Unseen => None,
            },
            // The journal does not speak of it, but of the directory above: it went with that.
            Last::Below(dir, rest) => {
                let was = model.former_directory(dir)?;
                let former = owned([was.as_slice(), b"/", rest].concat());
                (former != path).then_some(Identity::Former(former))
            }
            Last::Nothing => None,
        }
    }

    /// Whether the file now at `path` is the one that stood there before, changed in place, or another one that took its name.
    /// `None` when that was not recorded.
    pub(crate) fn is_changed_in_place(&self, path: &Path) -> Option<bool> {
        let model = self.model()?;
        match model.last(path.as_os_str().as_bytes()) {
            Last::Object(slot, obj) => {
                let born = model.object(obj).born;
                let there = || model.first_path(slot).map(owned).as_deref() == Some(path);
                match born {
                    Born::Real(_) => Some(model.entry(slot).initial == Some(obj) && there()),
                    Born::Made(_) => Some(false),
                    Born::Unseen => None,
                }
            }
            _ => self.identity(path).map(|_| false),
        }
    }

    /// The names that the file at `path` had before the session, when it has another one now.
    pub(crate) fn former_names(&self, path: &Path) -> Vec<PathBuf> {
        let names = || {
            let model = self.model()?;
            match model.last(path.as_os_str().as_bytes()) {
                Last::Object(_, obj) => Some(names_of(model, obj)),
                _ => match self.identity(path)? {
                    Identity::Former(former) => Some(vec![former]),
                    Identity::Made => None,
                },
            }
        };
        let mut names = names().unwrap_or_default();
        names.retain(|name| name != path);
        names
    }
}

fn names_of(model: &Model, obj: Obj) -> Vec<PathBuf> {
    let originals = model.object(obj).originals.iter();
    originals
        .filter_map(|slot| model.first_path(*slot).map(owned))
        .collect()
}

fn owned(path: Vec<u8>) -> PathBuf {
    OsString::from_vec(path).into()
}
