//! One session: its record (`session.json`), its directory and its lock.
//!
//! Whatever stands in the record was perhaps not written by effigy: it is bounded, checked and never trusted to name
//! a place outside the session's directory.

use crate::sys;
use serde::Deserialize;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

mod record;

pub use record::{
    Asked, Below, Cover, Exit, FORMAT, Named, Record, RootState, SessionId, State, Status,
    Timestamp, environment_digest, is_valid_name,
};

/// Room kept aside in a session, so that its record can be written when the command has filled the filesystem.
const RESERVE: usize = 32 << 10;

/// The largest `session.json` that is read.
pub(crate) const MAX_RECORD: u64 = 4 << 20;

/// Why a session's record could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The system refused.
    #[error("{action} {}: {source}", .path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// It is no record.
    #[error("read {}: {reason}", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// It was written by a later effigy.
    #[error("read {}: it has format {found}, this effigy reads up to {FORMAT}", .path.display())]
    TooNew {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u32,
    },
}

/// Why a session could not be locked.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Somebody else holds the lock.
    #[error("use session {name}: it is in use by another effigy")]
    InUse {
        /// The session's name, or its id.
        name: String,
    },
    /// The session has just been discarded.
    #[error("use session {name}: it was discarded meanwhile")]
    Gone {
        /// The session's name, or its id.
        name: String,
    },
    /// The system refused.
    #[error("lock {}: {source}", .path.display())]
    Io {
        /// The lock file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
}

impl Record {
    /// The record in the text of a `session.json`, checked; `path` says in errors where the text is from.
    pub(crate) fn of_text(text: &[u8], path: &Path) -> Result<Self, RecordError> {
        let damaged = |reason: String| RecordError::Damaged {
            path: path.to_owned(),
            reason,
        };
        #[derive(Deserialize)]
        struct Format {
            format: u32,
        }
        let format: Format = serde_json::from_slice(text).map_err(|e| damaged(e.to_string()))?;
        if format.format > FORMAT {
            return Err(RecordError::TooNew {
                path: path.to_owned(),
                found: format.format,
            });
        }
        let record: Self = serde_json::from_slice(text).map_err(|e| damaged(e.to_string()))?;
        record
            .check(&record.id)
            .map_err(|reason| damaged(reason.to_owned()))?;
        Ok(record)
    }
}

/// A held lock. Given up with this value, and not only when the last process that inherited it has ended: whoever waits for a command
/// to end finds its session free then.
#[derive(Debug)]
struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        // Without it the lock goes with the last descriptor, a moment later.
        let _later = sys::unlock(self.0.as_fd());
    }
}

/// A session on disk, and perhaps its lock, which ends with this value; of a process that is killed, with every one it had forked.
#[derive(Debug)]
pub struct Session {
    /// What is known about it. [`save`](Self::save) makes it last.
    pub record: Record,
    dir: PathBuf,
    lock: Option<Lock>,
    exclusive: bool,
}

impl Session {
    pub(crate) fn new(dir: PathBuf, record: Record) -> Self {
        Self {
            record,
            dir,
            lock: None,
            exclusive: false,
        }
    }

    /// Reads the session in `dir`, whose last component is its id.
    ///
    /// # Errors
    /// When there is no record, or none that can be trusted.
    pub fn read(dir: &Path) -> Result<Self, RecordError> {
        let path = dir.join("session.json");
        let damaged = |reason: &str| RecordError::Damaged {
            path: path.clone(),
            reason: reason.to_owned(),
        };
        let id = dir
            .file_name()
            .and_then(|name| name.to_str())
            .and_then(SessionId::parse);
        let id = id.ok_or_else(|| damaged("its directory's name is no session id"))?;
        let io = |source| RecordError::Io {
            action: "read",
            path: path.clone(),
            source,
        };
        let text = sys::read_regular(&path, MAX_RECORD).map_err(io)?;
        let text = text.ok_or_else(|| damaged("it is no regular file of at most 4 MiB"))?;
        let record = Record::of_text(&text, &path)?;
        record.check(&id).map_err(damaged)?;
        Ok(Self::new(dir.to_owned(), record))
    }

    /// Reads the record again, as another effigy may have changed it before the lock was taken.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn reload(&mut self) -> Result<(), RecordError> {
        self.record = Self::read(&self.dir)?.record;
        Ok(())
    }

    /// Makes the record last: a new file is written, brought to disk, and renamed over the old one.
    ///
    /// # Errors
    /// When the system refuses; the old record then still stands.
    pub fn save(&self) -> Result<(), RecordError> {
        self.write(true)
    }

    /// As [`save`](Self::save), but without waiting for the disk: enough while nothing real has been changed.
    ///
    /// # Errors
    /// As [`save`](Self::save).
    pub fn save_soon(&self) -> Result<(), RecordError> {
        self.write(false)
    }

    fn write(&self, sync: bool) -> Result<(), RecordError> {
        let path = self.dir.join("session.json");
        let new = self
            .dir
            .join(format!("session.json.{}", std::process::id()));
        let write = || -> io::Result<()> {
            let mut text = serde_json::to_vec_pretty(&self.record)?;
            text.push(b'\n');
            let mut options = fs::OpenOptions::new();
            let mut file = options
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&new)?;
            file.write_all(&text)?;
            if sync {
                file.sync_all()?;
            }
            fs::rename(&new, &path)?;
            if sync {
                File::open(&self.dir)?.sync_all()?;
            }
            Ok(())
        };
        let is_full =
            |error: &io::Error| matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT));
        let mut result = write();
        if result.as_ref().is_err_and(is_full) && fs::remove_file(self.reserve()).is_ok() {
            result = write();
        }
        result.map_err(|source| {
            // What is left of a failed write would only waste space; the error that matters is the first one.
            let _ = fs::remove_file(&new);
            RecordError::Io {
                action: "write",
                path,
                source,
            }
        })
    }

    /// Where the room kept aside is.
    fn reserve(&self) -> PathBuf {
        self.dir.join("reserve")
    }

    /// Keeps room aside for the record's last writing.
    ///
    /// # Errors
    /// There is none.
    pub fn keep_room(&self) -> io::Result<()> {
        fs::write(self.reserve(), [0x5a; RESERVE])
    }

    /// Gives back the room kept aside: the run has ended and its record is written.
    pub fn release_room(&self) {
        // Without it, or unable to remove it, a session is as good.
        let _none = fs::remove_file(self.reserve());
    }

    /// The session's directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Its name, or its id when it has none.
    #[must_use]
    pub fn label(&self) -> &str {
        self.record
            .name
            .as_deref()
            .unwrap_or(self.record.id.as_str())
    }

    /// The directory of all layers.
    #[must_use]
    pub fn layers(&self) -> PathBuf {
        self.dir.join("layers")
    }

    /// The upper directory of a layer.
    #[must_use]
    pub fn upper(&self, layer: u32) -> PathBuf {
        self.layers().join(layer.to_string()).join("upper")
    }

    /// The overlay's working directory of a layer.
    #[must_use]
    pub fn work(&self, layer: u32) -> PathBuf {
        self.layers().join(layer.to_string()).join("work")
    }

    /// Makes the two directories of a layer, both of mode 0700.
    ///
    /// # Errors
    /// When the system refuses, or the layer exists.
    pub fn create_layer(&self, layer: u32) -> io::Result<()> {
        let mut builder = fs::DirBuilder::new();
        builder.mode(0o700);
        builder.create(self.layers().join(layer.to_string()))?;
        builder.create(self.upper(layer))?;
        builder.create(self.work(layer))
    }

    /// Removes what only the mounted overlays needed: what they kept for themselves, and what stood in for real directories. Among
    /// it are further names of files with several (their index), which must not be counted when such a file is put in place; and
    /// the mark that an overlay was not unmounted in order, with which the kernel refuses to mount it again.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn clear_work(&self) -> io::Result<()> {
        // A run that was killed early has layers that its record does not name.
        for entry in fs::read_dir(self.layers())? {
            let mut options = fs::OpenOptions::new();
            let layer = options
                .read(true)
                .custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW)
                .open(entry?.path())?;
            sys::clear_volatile(layer.as_fd());
            for name in [c"work", c"lower", c"below"] {
                sys::remove_tree(layer.as_fd(), name)?;
            }
        }
        Ok(())
    }

    /// The journal.
    #[must_use]
    pub fn journal(&self) -> PathBuf {
        self.dir.join("journal")
    }

    /// The directory of versions.
    #[must_use]
    pub fn versions(&self) -> PathBuf {
        self.dir.join("versions")
    }

    /// The directory of the k-th apply.
    #[must_use]
    pub fn apply(&self, k: u32) -> PathBuf {
        self.dir.join("apply").join(k.to_string())
    }

    /// Takes the lock that a run, commit, undo or discard needs, without waiting. Held already: nothing happens.
    ///
    /// # Errors
    /// [`LockError::InUse`] when another process holds either lock.
    pub fn lock_exclusive(&mut self) -> Result<(), LockError> {
        self.lock_as(true)
    }

    /// Takes the lock that keeps the session as it is while it is read, without waiting.
    ///
    /// # Errors
    /// [`LockError::InUse`] when another process holds the exclusive lock.
    pub fn lock_shared(&mut self) -> Result<(), LockError> {
        self.lock_as(false)
    }

    fn lock_as(&mut self, exclusive: bool) -> Result<(), LockError> {
        if self.lock.is_some() && self.exclusive == exclusive {
            return Ok(());
        }
        let path = self.dir.join("lock");
        let name = || self.label().to_owned();
        let io = |source: io::Error| match source.kind() {
            io::ErrorKind::NotFound => LockError::Gone { name: name() },
            io::ErrorKind::WouldBlock => LockError::InUse { name: name() },
            _ => LockError::Io {
                path: path.clone(),
                source,
            },
        };
        let opened = match &self.lock {
            Some(_) => None,
            None => {
                let mut options = fs::OpenOptions::new();
                options
                    .read(true)
                    .write(true)
                    .create(true)
                    .mode(0o600)
                    .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
                Some(Lock(options.open(&path).map_err(io)?))
            }
        };
        if let Some(Lock(file)) = opened.as_ref().or(self.lock.as_ref()) {
            sys::lock(file.as_fd(), exclusive).map_err(io)?;
            // A discard renames the directory away before it takes things apart: a lock on what is no longer the session is none.
            if !sys::same_file(file.as_fd(), &path).map_err(io)? {
                return Err(LockError::Gone { name: name() });
            }
        }
        self.lock = opened.or(self.lock.take());
        self.exclusive = exclusive;
        Ok(())
    }

    /// Takes over the lock of a session that has become this one by a rename.
    pub(crate) fn take_lock_of(&mut self, other: &mut Self) {
        self.lock = other.lock.take();
        self.exclusive = other.exclusive;
    }

    /// Gives the lock up.
    pub fn unlock(&mut self) {
        self.lock = None;
        self.exclusive = false;
    }

    /// Whether this value holds the exclusive lock.
    #[must_use]
    pub fn is_locked_exclusively(&self) -> bool {
        self.lock.is_some() && self.exclusive
    }

    /// The descriptor that holds the lock, for a process that must keep the session locked by inheriting it.
    #[must_use]
    pub fn lock_fd(&self) -> Option<BorrowedFd<'_>> {
        self.lock.as_ref().map(|Lock(file)| file.as_fd())
    }

    /// Whether some process (this one too) holds the exclusive lock now.
    #[must_use]
    pub fn is_in_use(&self) -> bool {
        if self.is_locked_exclusively() {
            return true;
        }
        let mut options = fs::OpenOptions::new();
        let file = options
            .read(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(self.dir.join("lock"));
        let Ok(file) = file else { return false };
        sys::is_locked_exclusively(file.as_fd()).unwrap_or(false)
    }

    /// The state as it is to be shown: a recording whose lock nobody holds was interrupted.
    #[must_use]
    pub fn status(&self) -> Status {
        match self.record.state {
            State::Recording if self.is_in_use() => Status::Recording,
            State::Recording => Status::Interrupted,
            State::Recorded => Status::Recorded,
            State::Applied => Status::Applied,
            State::Undone => Status::Undone,
        }
    }

    /// Bytes that the session's files occupy (allocated blocks; a file with several names counts once per name).
    ///
    /// What cannot be read, such as the overlay's own locked directory, counts as nothing.
    #[must_use]
    pub fn measure(&self) -> u64 {
        sys::allocated(&self.dir)
    }
}
