//! `run --on`: the earlier sessions that a run is laid over.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use effigy_journal::{Below, Cover, Session, SessionId, State, Store};
use effigy_replay::recover;
use effigy_semisolate::{Lower, LowerCover, Plan};

use crate::failure::Failure;
use crate::store::find_to_read;

/// For each mount point the directories of earlier sessions below its cover, and whether they hide the real one.
pub(super) type Beneath = HashMap<PathBuf, (Vec<Below>, bool)>;

/// So many sessions may lie over each other: a record with more is not read again.
const MOST: usize = 256;

/// The sessions that a run is laid over, the topmost first, locked so that nobody changes them while it runs.
#[derive(Debug, Default)]
pub(super) struct Stack {
    sessions: Vec<Session>,
}

impl Stack {
    /// Looks the sessions up that the user names, and those they rest on themselves.
    pub(super) fn find(store: &Store, names: &[String]) -> anyhow::Result<Self> {
        let mut stack = Self::default();
        for name in names {
            let session = find_to_read(store, Some(name))?;
            let below = session.record.lower.clone();
            stack.push(session)?;
            for id in below {
                let lower = find_to_read(store, Some(id.as_str()))?;
                // What is applied is real.
                if lower.record.state != State::Applied {
                    stack.push(lower)?;
                }
            }
        }
        stack.check_order()?;
        if stack.sessions.len() > MOST {
            return Err(Failure::refused(format!(
                "cannot run on {} sessions: {MOST} are the most",
                stack.sessions.len()
            ))
            .hint("commit or discard some of them")
            .into());
        }
        Ok(stack)
    }

    /// The sessions that a session rests on which goes on.
    pub(super) fn below(store: &Store, session: &Session) -> anyhow::Result<Self> {
        let mut stack = Self::default();
        for id in &session.record.lower {
            stack.push(find_to_read(store, Some(id.as_str()))?)?;
        }
        Ok(stack)
    }

    fn push(&mut self, session: Session) -> anyhow::Result<()> {
        if self
            .sessions
            .iter()
            .any(|other| other.record.id == session.record.id)
        {
            return Ok(());
        }
        let label = session.label().to_owned();
        if recover::is_needed(&session) {
            return Err(Failure::refused(format!(
                "cannot run on session {label}: an apply of it was interrupted"
            ))
            .hint(format!(
                "effigy recover {label} finishes it or rolls it back"
            ))
            .into());
        }
        if session.record.state == State::Applied {
            return Err(Failure::refused(format!(
                "cannot run on session {label}: it is applied, so the command sees its effects anyway"
            ))
            .hint(format!("leave it out, or take it back first: effigy undo {label}"))
            .into());
        }
        self.sessions.push(session);
        Ok(())
    }

    /// A session sees those that it was laid over, so it cannot lie below one of them.
    fn check_order(&self) -> anyhow::Result<()> {
        for (at, session) in self.sessions.iter().enumerate() {
            let above = self.sessions[..at]
                .iter()
                .find(|above| session.record.lower.contains(&above.record.id));
            if let Some(above) = above {
                return Err(Failure::refused(format!(
                    "session {} was itself run on session {}, and must be named before it",
                    session.label(),
                    above.label()
                ))
                .into());
            }
        }
        Ok(())
    }

    pub(super) fn ids(&self) -> Vec<SessionId> {
        self.sessions
            .iter()
            .map(|session| session.record.id.clone())
            .collect()
    }

    /// Paths that one of the sessions hid from its command, and that are as they were: hidden for this run too, which would
    /// otherwise see more than the sessions it is laid over.
    pub(super) fn hidden(&self) -> impl Iterator<Item = &PathBuf> {
        self.sessions.iter().flat_map(hidden)
    }

    /// What lies below each cover of a plan laid over these sessions, as a record has it.
    pub(super) fn beneath(&self, plan: &Plan) -> Beneath {
        let covers = plan.covers();
        covers
            .map(|(path, cover)| {
                let layers = cover.below.layers.iter();
                let below = layers.filter_map(|dir| self.named(dir)).collect();
                (path.to_owned(), (below, cover.below.opaque))
            })
            .collect()
    }

    fn named(&self, dir: &Path) -> Option<Below> {
        self.sessions.iter().find_map(|session| {
            Some(Below {
                session: session.record.id.clone(),
                path: dir.strip_prefix(session.dir()).ok()?.to_owned(),
            })
        })
    }

    pub(super) fn lowers(&self) -> Vec<Lower> {
        self.sessions.iter().map(lower).collect()
    }
}

/// The paths that a session hid from its command, and that are as they were.
pub(super) fn hidden(session: &Session) -> impl Iterator<Item = &PathBuf> {
    session.record.hidden.iter().filter(|path| {
        let cover = session.record.cover_of(path);
        cover.is_some_and(|cover| is_whiteout(session, cover, path))
    })
}

/// A session as what a run is laid over.
pub(super) fn lower(session: &Session) -> Lower {
    let covers = session.record.covers.iter();
    Lower {
        name: session.label().to_owned(),
        covers: covers.map(|cover| lower_cover(session, cover)).collect(),
    }
}

fn lower_cover(session: &Session, cover: &Cover) -> LowerCover {
    let upper = session.upper(cover.layer);
    let given = (cover.root.mode & 0o7777, cover.root.uid, cover.root.gid);
    let dressed = fs::symlink_metadata(&upper)
        .is_ok_and(|stat| (stat.mode() & 0o7777, stat.uid(), stat.gid()) != given);
    LowerCover {
        mount_point: cover.mount_point.clone(),
        upper,
        mounted: cover.mounted,
        dressed,
    }
}

fn is_whiteout(session: &Session, cover: &Cover, path: &Path) -> bool {
    let rest = path.strip_prefix(&cover.mount_point).unwrap_or(path);
    fs::symlink_metadata(session.upper(cover.layer).join(rest))
        .is_ok_and(|stat| stat.file_type().is_char_device() && stat.rdev() == 0)
}
