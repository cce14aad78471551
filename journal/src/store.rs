//! The store: a private directory that holds sessions.
//!
//! ```text
//! <store>/lock            held while a session is made
//! <store>/sessions/<id>/  one session
//! <store>/trash/          what is being discarded; may be removed at any time
//! ```

use crate::archive::{ImportError, UNPACKING};
use crate::session::{Record, RecordError, Session, SessionId, Timestamp, is_valid_name};
use crate::sys;
use std::cmp::Reverse;
use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

mod error;
mod names;
mod probe;

pub use error::{CreateError, DiscardError, FindError, ListError, OpenError};
pub use probe::{Capacity, ProbeError};

/// Sessions that are discarded with one look at what rests on what. Each has a descriptor open until then.
const LOCKED_AT_ONCE: usize = 256;

/// A directory of sessions.
#[derive(Clone, Debug)]
pub struct Store {
    dir: PathBuf,
}

/// What is in a store.
#[derive(Debug, Default)]
pub struct Listing {
    /// The sessions, the oldest first.
    pub sessions: Vec<Session>,
    /// Directories that have an id but no record that can be read.
    pub damaged: Vec<Damaged>,
}

/// A session without a readable record. It can still be discarded.
#[derive(Debug)]
pub struct Damaged {
    /// Its id.
    pub id: SessionId,
    /// Why it cannot be read.
    pub error: RecordError,
}

/// What [`Store::gc`] keeps. `None` means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GcLimits {
    /// Sessions that ended longer ago go.
    pub age: Option<Duration>,
    /// Of more sessions than this the oldest go.
    pub count: Option<usize>,
    /// While the sessions occupy more bytes than this, the oldest goes.
    pub bytes: Option<u64>,
}

/// What [`Store::gc`] did.
#[derive(Debug, Default)]
pub struct GcReport {
    /// Sessions that were discarded: id, name, bytes they occupied.
    pub discarded: Vec<(SessionId, Option<String>, u64)>,
    /// Sessions beyond a limit that were kept: in use, wanted by the caller or by another session.
    pub kept: Vec<SessionId>,
    /// What could not be discarded.
    pub failed: Vec<DiscardError>,
    /// Remains of earlier discards and of killed creations that were removed.
    pub remains: usize,
}

impl Store {
    /// Opens the store in `dir` and makes it, for nobody but its owner, if it is not there.
    ///
    /// # Errors
    /// When it cannot be made, or belongs to another user.
    pub fn open(dir: &Path) -> Result<Self, OpenError> {
        let io = |source| OpenError::Io {
            path: dir.to_owned(),
            source,
        };
        let mut builder = fs::DirBuilder::new();
        builder.mode(0o700).recursive(true);
        builder.create(dir).map_err(io)?;
        let dir = dir.canonicalize().map_err(io)?;
        let io = |source| OpenError::Io {
            path: dir.clone(),
            source,
        };
        let me = nix::unistd::geteuid();
        let owner = fs::metadata(&dir).map_err(io)?.uid();
        if owner != me.as_raw() && !me.is_root() {
            return Err(OpenError::Foreign { path: dir, owner });
        }
        builder.create(dir.join("sessions")).map_err(io)?;
        builder.create(dir.join("trash")).map_err(io)?;
        Ok(Self { dir })
    }

    /// Where it is: absolute, without symbolic links.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    fn sessions(&self) -> PathBuf {
        self.dir.join("sessions")
    }

    fn trash(&self) -> PathBuf {
        self.dir.join("trash")
    }

    /// Finds out by trying whether upper layers can live here, and how much room there is.
    ///
    /// # Errors
    /// When they cannot; [`ProbeError::remedy`] says what to do.
    pub fn probe(&self) -> Result<Capacity, ProbeError> {
        probe::probe(&self.dir, &self.trash())
    }

    /// The same for a store that could be made in a directory. Nothing is left there.
    ///
    /// # Errors
    /// When layers could not be kept there.
    pub fn probe_place(dir: &Path) -> Result<Capacity, ProbeError> {
        probe::probe(dir, dir)
    }

    /// Makes a session, locked exclusively, in state [`State::Recording`](crate::State::Recording).
    ///
    /// # Errors
    /// When the name is taken or no name, or the system refuses.
    pub fn create(&self, name: Option<&str>) -> Result<Session, CreateError> {
        let guard = self.guard().map_err(create_error(&self.dir.join("lock")))?;
        self.check_name(name)?;
        let (id, dir) = loop {
            let id = SessionId::random().map_err(create_error(&self.dir))?;
            let dir = self.sessions().join(id.as_str());
            match private_directories().create(&dir) {
                Ok(()) => break (id, dir),
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(create_error(&dir)(e)),
            }
        };
        let mut session = Session::new(dir, Record::new(id, name.map(str::to_owned)));
        furnish(&mut session)?;
        session.keep_room().map_err(create_error(session.dir()))?;
        session.save_soon()?;
        drop(guard);
        Ok(session)
    }

    /// Whether a new session can have this name. To be asked under the store's lock.
    fn check_name(&self, name: Option<&str>) -> Result<(), CreateError> {
        if let Some(name) = name {
            if !is_valid_name(name) {
                return Err(CreateError::BadName {
                    name: name.to_owned(),
                });
            }
            let listing = self.list().map_err(|e| CreateError::Io {
                path: e.path,
                source: e.source,
            })?;
            if let Some(other) = listing
                .sessions
                .iter()
                .find(|s| s.record.name.as_deref() == Some(name))
            {
                return Err(CreateError::NameTaken {
                    name: name.to_owned(),
                    id: other.record.id.clone(),
                });
            }
        }
        Ok(())
    }

    /// Makes a directory for a session that is to be unpacked, locked and not listed.
    pub(crate) fn draft(&self, name: &str) -> Result<Session, CreateError> {
        let dir = self.sessions().join(name);
        let id = SessionId::random().map_err(create_error(&dir))?;
        let _guard = self.guard().map_err(create_error(&dir))?;
        private_directories()
            .create(&dir)
            .map_err(create_error(&dir))?;
        let mut session = Session::new(dir, Record::new(id, None));
        furnish(&mut session)?;
        Ok(session)
    }

    /// Removes a draft.
    pub(crate) fn remove_draft(&self, name: &str) -> io::Result<()> {
        let sessions = File::open(self.sessions())?;
        sys::remove_tree(sessions.as_fd(), &CString::new(name)?)
    }

    /// Lists a draft as the session of this record: under its id, or another one when that is taken. Gives its directory.
    pub(crate) fn settle(
        &self,
        draft: &mut Session,
        mut record: Record,
    ) -> Result<PathBuf, ImportError> {
        let _guard = self.guard().map_err(create_error(&self.dir))?;
        self.check_name(record.name.as_deref())?;
        for lower in &record.lower {
            if !self.sessions().join(lower.as_str()).exists() {
                let lower = lower.clone();
                return Err(ImportError::NoLower { lower });
            }
        }
        while fs::symlink_metadata(self.sessions().join(record.id.as_str())).is_ok() {
            record.id = SessionId::random().map_err(create_error(&self.dir))?;
        }
        let dir = self.sessions().join(record.id.as_str());
        draft.record = record;
        draft.save()?;
        fs::rename(draft.dir(), &dir).map_err(create_error(&dir))?;
        Ok(dir)
    }

    /// Finds a session by name, id or unique prefix of its id; without any, the newest. It is not locked.
    ///
    /// # Errors
    /// When there is none, or more than one.
    pub fn find(&self, wanted: Option<&str>) -> Result<Session, FindError> {
        let Listing {
            mut sessions,
            damaged,
        } = self.list()?;
        let Some(wanted) = wanted else {
            return sessions.pop().ok_or_else(|| FindError::Empty {
                store: self.dir.clone(),
            });
        };
        let exact = |s: &Session| {
            s.record.name.as_deref() == Some(wanted) || s.record.id.as_str() == wanted
        };
        if let Some(found) = sessions.iter().position(exact) {
            return Ok(sessions.swap_remove(found));
        }
        if let Some(damaged) = damaged
            .into_iter()
            .find(|damaged| damaged.id.as_str() == wanted)
        {
            return Err(FindError::Damaged(damaged.error));
        }
        let begins = |s: &Session| !wanted.is_empty() && s.record.id.as_str().starts_with(wanted);
        let (mut found, others): (Vec<_>, Vec<_>) = sessions.into_iter().partition(begins);
        match found.len() {
            0 => Err(FindError::NotFound {
                wanted: wanted.to_owned(),
                store: self.dir.clone(),
                near: names::near(wanted, &others),
            }),
            1 => Ok(found.swap_remove(0)),
            _ => Err(FindError::Ambiguous {
                wanted: wanted.to_owned(),
                candidates: found
                    .into_iter()
                    .map(|s| (s.record.id, s.record.name))
                    .collect(),
            }),
        }
    }

    /// All sessions, the oldest first.
    ///
    /// # Errors
    /// When the store cannot be read; a session that cannot be read is listed as damaged instead.
    pub fn list(&self) -> Result<Listing, ListError> {
        let path = self.sessions();
        let mut listing = Listing::default();
        let entries = fs::read_dir(&path).map_err(|source| ListError {
            path: path.clone(),
            source,
        })?;
        for entry in entries {
            let entry = entry.map_err(|source| ListError {
                path: path.clone(),
                source,
            })?;
            let Some(id) = entry.file_name().to_str().and_then(SessionId::parse) else {
                continue;
            };
            match Session::read(&entry.path()) {
                Ok(session) => listing.sessions.push(session),
                // Being made at this moment, or discarded at this moment.
                Err(RecordError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                }
                Err(error) => listing.damaged.push(Damaged { id, error }),
            }
        }
        listing
            .sessions
            .sort_by(|a, b| (a.record.start, &a.record.id).cmp(&(b.record.start, &b.record.id)));
        listing.damaged.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(listing)
    }

    /// Removes a session and everything in it.
    ///
    /// It leaves the list at once, by a rename; so also a killed discard leaves nothing half listed.
    ///
    /// # Errors
    /// When it is in use, another session rests on it, or the system refuses.
    pub fn discard(&self, session: Session) -> Result<(), DiscardError> {
        self.discard_all(vec![session])
    }

    /// Removes sessions, those that rest on others first. The first that cannot be removed ends it.
    ///
    /// # Errors
    /// As [`discard`](Self::discard).
    pub fn discard_all(&self, mut sessions: Vec<Session>) -> Result<(), DiscardError> {
        sessions.sort_by_key(|session| Reverse(session.record.start));
        for some in sessions.chunks_mut(LOCKED_AT_ONCE) {
            for session in &mut *some {
                session.lock_exclusive()?;
            }
            // From now on nothing can come to rest on any of them, so to look once is enough.
            let mut listed = self.list().unwrap_or_default().sessions;
            for session in &*some {
                let id = &session.record.id;
                let rests = |other: &&Session| other.record.lower.contains(id);
                let upper = listed.iter().rev().filter(rests);
                let upper: Vec<String> = upper.map(|upper| upper.label().to_owned()).collect();
                if !upper.is_empty() {
                    let name = session.label().to_owned();
                    return Err(DiscardError::Needed { name, upper });
                }
                self.discard_dir(session.dir(), id)?;
                listed.retain(|other| other.record.id != *id);
            }
        }
        Ok(())
    }

    /// The sessions that rest on this one, the newest first. What cannot be read rests on nothing that could be told.
    #[must_use]
    pub fn upper(&self, id: &SessionId) -> Vec<Session> {
        let mut sessions = self.list().unwrap_or_default().sessions;
        sessions.retain(|session| session.record.lower.contains(id));
        sessions.reverse();
        sessions
    }

    /// Removes a session whose record cannot be read.
    ///
    /// # Errors
    /// As [`discard`](Self::discard).
    pub fn discard_damaged(&self, id: &SessionId) -> Result<(), DiscardError> {
        let dir = self.sessions().join(id.as_str());
        let mut session = Session::new(dir, Record::new(id.clone(), None));
        session.lock_exclusive()?;
        self.discard_dir(session.dir(), &session.record.id)
    }

    fn discard_dir(&self, dir: &Path, id: &SessionId) -> Result<(), DiscardError> {
        let io = |source| DiscardError::Io {
            path: dir.to_owned(),
            source,
        };
        let mut random = [0; 8];
        sys::random(&mut random).map_err(io)?;
        let name = format!("{id}.{:016x}", u64::from_ne_bytes(random));
        let target = self.trash().join(&name);
        fs::rename(dir, &target).map_err(io)?;
        let rest = |source| DiscardError::Rest {
            path: target.clone(),
            source,
        };
        let trash = File::open(self.trash()).map_err(rest)?;
        let name = CString::new(name).map_err(|e| rest(e.into()))?;
        sys::remove_tree(trash.as_fd(), &name).map_err(rest)
    }

    /// Discards what is beyond the limits, the oldest first, and sweeps up remains.
    ///
    /// Never touched: sessions in use, those for which `keep` answers true (an apply that waits for recovery, say), and
    /// those that a session layered over them still needs.
    ///
    /// # Errors
    /// When the store cannot be read. What could not be discarded is in the report.
    pub fn gc(
        &self,
        limits: &GcLimits,
        keep: &mut dyn FnMut(&Session) -> bool,
    ) -> Result<GcReport, ListError> {
        let mut report = GcReport {
            remains: self.sweep()?,
            ..GcReport::default()
        };
        let sessions = self.list()?.sessions;
        let mut count = sessions.len();
        let sizes: Vec<u64> = match limits.bytes {
            Some(_) => sessions.iter().map(Session::measure).collect(),
            None => vec![0; sessions.len()],
        };
        let mut bytes: u64 = sizes.iter().fold(0, |sum, size| sum.saturating_add(*size));
        let mut needed: Vec<(SessionId, SessionId)> = sessions
            .iter()
            .flat_map(|s| {
                s.record
                    .lower
                    .iter()
                    .map(|lower| (lower.clone(), s.record.id.clone()))
            })
            .collect();
        let now = Timestamp::now();
        for (session, size) in sessions.into_iter().zip(sizes) {
            let ended = session.record.end.unwrap_or(session.record.start);
            let too_old = limits
                .age
                .is_some_and(|age| u128::from(now.since(ended)) > age.as_nanos());
            let too_many = limits.count.is_some_and(|limit| count > limit);
            if !too_old && !too_many && limits.bytes.is_none_or(|limit| bytes <= limit) {
                continue;
            }
            let id = session.record.id.clone();
            if session.is_in_use() || needed.iter().any(|(lower, _)| *lower == id) || keep(&session)
            {
                report.kept.push(id);
                continue;
            }
            let name = session.record.name.clone();
            let size = if limits.bytes.is_some() {
                size
            } else {
                session.measure()
            };
            match self.discard(session) {
                Ok(()) => {
                    count -= 1;
                    bytes = bytes.saturating_sub(size);
                    needed.retain(|(_, over)| *over != id);
                    report.discarded.push((id, name, size));
                }
                Err(DiscardError::Lock(_) | DiscardError::Needed { .. }) => report.kept.push(id),
                Err(error) => report.failed.push(error),
            }
        }
        Ok(report)
    }

    /// Removes what killed discards and killed creations have left; says how many things it removed.
    fn sweep(&self) -> Result<usize, ListError> {
        let mut swept = 0;
        let error = |path: &Path| {
            let path = path.to_owned();
            move |source| ListError { path, source }
        };
        let trash = self.trash();
        let dir = File::open(&trash).map_err(error(&trash))?;
        for entry in fs::read_dir(&trash).map_err(error(&trash))? {
            let entry = entry.map_err(error(&trash))?;
            let Ok(name) = CString::new(entry.file_name().as_bytes()) else {
                continue;
            };
            // Somebody may be probing at this moment; only what is old is a remain.
            let age = entry.metadata().and_then(|m| m.modified());
            let fresh = age.is_ok_and(|at| at.elapsed().is_ok_and(|age| age.as_secs() < 60));
            if fresh && name.to_bytes().starts_with(probe::PREFIX.as_bytes()) {
                continue;
            }
            // A failure here is met again, and then reported, by whoever discards; the sweep only tidies.
            swept += usize::from(sys::remove_tree(dir.as_fd(), &name).is_ok());
        }
        // Under the store's lock nothing is being made, so what has no record and no lock holder never will have one.
        let guard = self.guard().map_err(error(&self.dir))?;
        let sessions = self.sessions();
        for entry in fs::read_dir(&sessions).map_err(error(&sessions))? {
            let entry = entry.map_err(error(&sessions))?;
            let name = entry.file_name();
            if name.as_bytes().starts_with(UNPACKING.as_bytes()) {
                swept +=
                    usize::from(self.is_abandoned(&entry.path()) && self.remove_draft_of(&name));
            }
            let Some(id) = name.to_str().and_then(SessionId::parse) else {
                continue;
            };
            let record = entry.path().join("session.json");
            if matches!(fs::symlink_metadata(&record), Err(e) if e.kind() == io::ErrorKind::NotFound)
            {
                swept += usize::from(self.discard_damaged(&id).is_ok());
            }
        }
        drop(guard);
        Ok(swept)
    }

    /// Whether nobody unpacks into this draft any more.
    fn is_abandoned(&self, dir: &Path) -> bool {
        let id = SessionId::random();
        id.is_ok_and(|id| {
            Session::new(dir.to_owned(), Record::new(id, None))
                .lock_exclusive()
                .is_ok()
        })
    }

    fn remove_draft_of(&self, name: &std::ffi::OsStr) -> bool {
        name.to_str()
            .is_some_and(|name| self.remove_draft(name).is_ok())
    }

    /// Holds the store's lock until the file is dropped.
    fn guard(&self) -> io::Result<File> {
        let mut options = fs::OpenOptions::new();
        options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600);
        let file = options
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(self.dir.join("lock"))?;
        sys::lock_waiting(file.as_fd())?;
        Ok(file)
    }
}

/// Makes an I/O error in making a session keep its path.
pub(crate) fn create_error(path: &Path) -> impl FnOnce(io::Error) -> CreateError + use<> {
    let path = path.to_owned();
    move |source| CreateError::Io { path, source }
}

fn private_directories() -> fs::DirBuilder {
    let mut builder = fs::DirBuilder::new();
    builder.mode(0o700);
    builder
}

/// Locks a session whose directory has just been made, and makes the directories in it.
fn furnish(session: &mut Session) -> Result<(), CreateError> {
    session.lock_exclusive()?;
    for below in ["layers", "versions", "apply"] {
        let path = session.dir().join(below);
        private_directories()
            .create(&path)
            .map_err(create_error(&path))?;
    }
    Ok(())
}
