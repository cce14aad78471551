//! The journal's only writer, and the versions that are sealed on the way.

use crate::covers::Covers;
use crate::model::Model;
use crate::sys::{self, Seen};
use effigy_journal::writer::WriteError;
use effigy_journal::{
    By, ByteString, Kind, NewEvent, Note, Op, Outcome, PathId, ProcessId, SealError, Stat, Tid,
    VersionContent, VersionId, VersionRecord, Versions, Writer,
};
use std::ffi::{CStr, OsStr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::Instant;

/// Who did something, and when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Who {
    pub(crate) process: ProcessId,
    pub(crate) tid: u32,
    pub(crate) time: u64,
}

/// Writes what happened.
#[derive(Debug)]
pub(crate) struct Recorder {
    writer: Writer,
    versions: Versions,
    pub(crate) model: Model,
    start: Instant,
    earlier: u64,
    failure: Option<WriteError>,
    pub(crate) events: u64,
    pub(crate) performed: u64,
    pub(crate) observed: u64,
    dirty: bool,
}

/// A file of at most this many bytes is copied where something else might do: when it is reopened and perhaps overwritten, and
/// when it loses its last name. A link costs nothing, but the command sees that the file has another name still: whoever holds
/// it open looks for a link count of 0 (lock files, `tail -F`). Such files are small; the content of larger ones is linked.
const SMALL: u64 = 64 << 10;

impl Recorder {
    pub(crate) fn new(writer: Writer, versions: Versions, start: Instant, earlier: u64) -> Self {
        Self {
            writer,
            versions,
            model: Model::default(),
            start,
            earlier,
            failure: None,
            events: 0,
            performed: 0,
            observed: 0,
            dirty: false,
        }
    }

    pub(crate) fn now(&self) -> u64 {
        let run = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.earlier.saturating_add(run)
    }

    /// Keeps the first failure: a recording that cannot go on must not go on in silence.
    fn keep<T>(&mut self, result: Result<T, WriteError>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                self.failure.get_or_insert(error);
                None
            }
        }
    }

    pub(crate) fn failure(&mut self) -> Option<WriteError> {
        self.failure.take()
    }

    pub(crate) fn path(&mut self, path: &[u8]) -> Option<PathId> {
        let result = self.writer.path(Path::new(OsStr::from_bytes(path)));
        self.keep(result)
    }

    pub(crate) fn process(&mut self, parent: Option<ProcessId>, pid: u32) -> Option<ProcessId> {
        let time = self.now();
        let result = self.writer.process(parent, pid, time);
        self.dirty = true;
        self.keep(result)
    }

    /// Records what stood at a path, if this is the first time the session changes it.
    pub(crate) fn touch(&mut self, path: &[u8], before: Option<&Stat>) {
        if let Some(path) = self.path(path)
            && !self.writer.is_touched(path)
        {
            let result = self.writer.precondition(path, before);
            self.keep(result);
        }
    }

    pub(crate) fn append(&mut self, who: Who, by: By, op: Op, result: Outcome) {
        let event = NewEvent {
            time: who.time,
            process: who.process,
            tid: Tid(who.tid),
            by,
            op,
            result,
        };
        self.events += 1;
        match by {
            By::Performed => self.performed += 1,
            By::Observed(_) => self.observed += 1,
        }
        self.dirty = true;
        let result = self.writer.append(event);
        self.keep(result);
    }

    pub(crate) fn note(&mut self, note: Note) {
        self.dirty = true;
        let result = self.writer.note(note);
        self.keep(result);
    }

    pub(crate) fn note_text(&mut self, text: &str) {
        self.note(Note::Text(ByteString::from(text)));
    }

    pub(crate) fn is_dirty(&self) -> bool {
        self.dirty
    }

    pub(crate) fn flush(&mut self) {
        self.dirty = false;
        let result = self.writer.flush();
        self.keep(result);
    }

    pub(crate) fn finish(self, unexplained: u64) -> Result<std::fs::File, WriteError> {
        let time = self.now();
        self.writer.finish(time, unexplained)
    }

    /// A number for content that is about to come into being.
    pub(crate) fn new_version(&mut self) -> VersionId {
        self.versions.allocate()
    }

    /// The file at `path` is about to lose this name; when it has no other, its content is kept. What was kept counts once it
    /// is [confirmed](Self::confirm_seal).
    pub(crate) fn seal_name(&mut self, covers: &Covers, path: &[u8], seen: &Seen) -> Option<Seal> {
        let id = self.model.version(path)?;
        // Names that a real file has besides, and the session has not met, do not keep the content: they are not the copy's.
        if seen.kind() != Kind::File || seen.stat.nlink > 1 && self.model.names(path) > 1 {
            return None;
        }
        let (dir, name) = covers.upper(path)?;
        // A file that may not be read is linked, whatever its size; and one with further names, which show what is written yet.
        if seen.stat.size <= SMALL
            && seen.stat.nlink == 1
            && let Ok(file) = open_for_reading(dir, &name)
        {
            let copied = self.versions.seal_content(id, file.as_fd());
            return seal(id, copied.map(|(_, content)| content), seen);
        }
        let linked = self.versions.seal_name(id, dir, &name);
        seal(id, linked.map(|(_, content)| content), seen)
    }

    /// The content of the file at `path` is about to be cut or overwritten in place.
    pub(crate) fn seal_content(
        &mut self,
        covers: &Covers,
        path: &[u8],
        seen: &Seen,
    ) -> Option<Seal> {
        let id = self.model.version(path)?;
        let file = match covers.upper(path) {
            Some((upper, rest)) => open_for_reading(upper, &rest),
            None => return None,
        };
        let Ok(fd) = file else {
            return Some(lost(id, seen));
        };
        seal(
            id,
            self.versions
                .seal_content(id, fd.as_fd())
                .map(|(_, content)| content),
            seen,
        )
    }

    /// The file at `path` only grows: its content is the beginning of the version `next`.
    pub(crate) fn seal_beginning(&self, path: &[u8], seen: &Seen, next: VersionId) -> Option<Seal> {
        let content = VersionContent::Prefix {
            of: next,
            len: seen.stat.size,
        };
        let id = self.model.version(path)?;
        let stat = seen.stat;
        Some(Seal { id, content, stat })
    }

    /// The call that loses the content was carried out, or (`false`) it was not.
    pub(crate) fn confirm_seal(&mut self, seal: Option<Seal>, done: bool) {
        let Some(Seal { id, content, stat }) = seal else {
            return;
        };
        if done {
            let result = self.writer.version(VersionRecord {
                id,
                content,
                stat: Some(stat),
            });
            self.keep(result);
        } else if matches!(content, VersionContent::Sealed { .. }) {
            self.versions.forget(id);
        }
    }

    /// The file at `path` is opened for writing without being emptied; `next` is the version that comes of it.
    pub(crate) fn seal_reopen(
        &mut self,
        covers: &Covers,
        path: &[u8],
        seen: &Seen,
        append: bool,
        next: VersionId,
    ) {
        let Some(version) = self.model.version(path) else {
            return;
        };
        if append {
            let seal = self.seal_beginning(path, seen, next);
            self.confirm_seal(seal, true);
        } else if seen.stat.size <= SMALL || self.versions.keeps_all() {
            let seal = self.seal_content(covers, path, seen);
            self.confirm_seal(seal, true);
        } else {
            self.confirm_seal(Some(lost(version, seen)), true);
        }
    }
}

/// Content that was kept before a call that would lose it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seal {
    id: VersionId,
    content: VersionContent,
    stat: Stat,
}

fn open_for_reading(dir: BorrowedFd<'_>, name: &CStr) -> sys::Result<OwnedFd> {
    let flags = libc::O_RDONLY | libc::O_NOFOLLOW | libc::O_NONBLOCK;
    sys::openat(dir, name, flags, 0)
}

/// What was kept was perhaps kept before, by a call that failed: then there is nothing to say.
fn seal(id: VersionId, sealed: Result<VersionContent, SealError>, seen: &Seen) -> Option<Seal> {
    match sealed {
        Ok(content) => Some(Seal {
            id,
            content,
            stat: seen.stat,
        }),
        Err(error) if error.source.kind() == std::io::ErrorKind::AlreadyExists => None,
        Err(_) => Some(lost(id, seen)),
    }
}

/// The content is not kept.
fn lost(id: VersionId, seen: &Seen) -> Seal {
    Seal {
        id,
        content: VersionContent::Lost {
            len: seen.stat.size,
        },
        stat: seen.stat,
    }
}
