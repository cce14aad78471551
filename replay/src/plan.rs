//! A validated plan: what would be done, step by step.

use crate::conflict::Conflict;
use crate::known::absolute;
use crate::ledger::{PlanFile, Taking};
use crate::net::NetError;
use crate::options::Trouble;
use crate::replay::Needed;
use crate::step::{Source, Step};
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

/// What the user should be told about a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// A directory that is not selected is made because something selected lies in it.
    ParentAdded {
        /// The directory.
        path: PathBuf,
    },
    /// A directory that is to be deleted stays because something excluded lies in it.
    Kept {
        /// The directory.
        path: PathBuf,
    },
    /// An event that is not selected is applied because a selected one rests on it.
    Needed(Needed),
    /// The journal is not whole: what it lacks is not replayed.
    CutOff,
    /// A conflicting path is left as it is.
    Skipped(Conflict),
    /// A conflicting path is overwritten; what is there now is kept for undo.
    Overwritten(Conflict),
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ParentAdded { path } => write!(
                f,
                "{}: added, because something selected lies in it",
                path.display()
            ),
            Self::Kept { path } => write!(
                f,
                "{}: stays, because something excluded lies in it",
                path.display()
            ),
            Self::CutOff => write!(
                f,
                "the journal is not whole: what was done after the last event that can be read is not replayed"
            ),
            Self::Needed(needed) => {
                let (by, op) = needed.by;
                let path = needed.path.display();
                write!(
                    f,
                    "{op} #{by} needs {} #{} of {path}: added",
                    needed.op, needed.seq
                )
            }
            Self::Skipped(conflict) => write!(f, "skipped {conflict}"),
            Self::Overwritten(conflict) => write!(f, "overwritten {conflict}"),
        }
    }
}

/// What a plan is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Commit,
    /// Takes back; what is done about each step.
    Undo(Vec<Taking>),
}

/// What would be done.
#[derive(Debug)]
pub struct Plan {
    pub(crate) kind: Kind,
    pub(crate) number: u32,
    pub(crate) file: PlanFile,
    pub(crate) notes: Vec<Note>,
    pub(crate) to_copy: u64,
    pub(crate) trouble: Trouble,
}

impl Plan {
    /// Whether there is nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.file.steps.is_empty()
    }

    /// The number of the apply that it will be.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The number of steps.
    #[must_use]
    pub fn len(&self) -> usize {
        self.file.steps.len()
    }

    /// Bytes that will be copied, at most.
    #[must_use]
    pub fn to_copy(&self) -> u64 {
        self.to_copy
    }

    /// What the user should be told.
    #[must_use]
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// Each step that changes the real tree in words and its path, for `--dry-run`; exactly what would be done.
    pub fn describe(&self) -> impl Iterator<Item = Description> + '_ {
        let steps: Box<dyn Iterator<Item = (usize, &Step)>> = match &self.kind {
            Kind::Commit => Box::new(self.file.steps.iter().enumerate()),
            Kind::Undo(_) => Box::new(self.file.steps.iter().enumerate().rev()),
        };
        steps.filter_map(|(index, step)| {
            let back = match &self.kind {
                Kind::Commit => false,
                Kind::Undo(takings) if takings.get(index) == Some(&Taking::Skip) => return None,
                Kind::Undo(_) => true,
            };
            let path = absolute(&self.file, step.target()?)?;
            Some(Description {
                action: words(step, back)?,
                path,
            })
        })
    }
}

/// One step in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// What is done.
    pub action: String,
    /// To which real path.
    pub path: PathBuf,
}

impl fmt::Display for Description {
    /// The name stands as it is: escape it for a terminal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.action, self.path.display())
    }
}

fn words(step: &Step, back: bool) -> Option<String> {
    Some(match step {
        Step::Put(put) => {
            let how = match put.new.as_ref().map(|new| &new.source) {
                Some(Source::Copy(_)) => "copy",
                Some(Source::Link(_)) => "link",
                Some(Source::Directory(_)) => "make",
                Some(Source::Made | Source::Changed) => "write",
                _ => "move",
            };
            match (&put.old, &put.new, back) {
                (None, Some(new), false) if new.tree => {
                    format!("{how} new {} and all below it to", new.node.kind)
                }
                (None, Some(new), false) => format!("{how} new {} to", new.node.kind),
                (Some(old), Some(new), false) if old.kind == new.node.kind => {
                    format!("replace {} ({how})", old.kind)
                }
                (Some(old), Some(new), false) => {
                    format!("replace {} by {} ({how})", old.kind, new.node.kind)
                }
                (Some(old), None, false) => format!("remove {}", old.kind),
                (None, Some(new), true) => format!("take away {}", new.node.kind),
                (Some(old), _, true) => format!("restore {}", old.kind),
                (None, None, _) => return None,
            }
        }
        Step::Meta(meta) if meta.aid => return None,
        Step::Meta(_) if back => "restore attributes of".into(),
        Step::Meta(_) => "set attributes of".into(),
        Step::Rewrite(_) if back => "restore, in place, file".into(),
        Step::Rewrite(_) => "write, in place, file".into(),
        _ => return None,
    })
}

/// Why there is no plan. Nothing has been changed.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// Paths are not as the session met them, or cannot be changed. All of them.
    #[error("apply: {} {} in conflict", .0.len(), if .0.len() == 1 { "path is" } else { "paths are" })]
    Conflicts(Vec<Conflict>),
    /// Device nodes would be made, which must be agreed to.
    #[error("apply: {} device {} would be made", .0.len(), if .0.len() == 1 { "node" } else { "nodes" })]
    Devices(Vec<PathBuf>),
    /// Patterns that match nothing.
    #[error("apply: no effect matches {}", .0.iter().map(|p| p.display().to_string()).collect::<Vec<_>>().join(", "))]
    NoMatch(Vec<OsString>),
    /// Not enough room for the copies.
    #[error("apply: {needed} bytes are to be copied to the filesystem of {}, and {free} are free", .path.display())]
    NoSpace {
        /// A directory on the full filesystem.
        path: PathBuf,
        /// Bytes needed.
        needed: u64,
        /// Bytes free.
        free: u64,
    },
    /// An earlier apply was interrupted: recover first.
    #[error("apply: an earlier apply of this session was interrupted")]
    Interrupted,
    /// There is no apply to take back.
    #[error("undo: nothing of this session is applied")]
    NothingApplied,
    /// It rests on sessions that are not applied.
    #[error("apply session {session}: it rests on {}, not applied yet", names(.lower))]
    Rests {
        /// The session.
        session: String,
        /// They, in the order in which they can be applied.
        lower: Vec<String>,
    },
    /// Sessions that are applied rest on it.
    #[error("undo session {session}: {}, applied, {} on it", names(.upper), if .upper.len() == 1 { "rests" } else { "rest" })]
    Carries {
        /// The session.
        session: String,
        /// They, in the order in which they can be taken back.
        upper: Vec<String>,
    },
    /// Mounts that the session was recorded over are gone.
    #[error("apply: nothing is mounted at {} any more, where it was recorded", .0.iter().map(|p| p.display().to_string()).collect::<Vec<_>>().join(", "))]
    Unmounted(Vec<PathBuf>),
    /// The effects could not be read.
    #[error(transparent)]
    Net(#[from] NetError),
}

/// `session a`, `sessions a and b`.
fn names(labels: &[String]) -> String {
    match labels {
        [one] => format!("session {one}"),
        more => format!("sessions {}", more.join(" and ")),
    }
}
