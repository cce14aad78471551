//! Contents that would have been lost, one file a version: `versions/<n>`.
//!
//! The cheapest way comes first: another name for the same file, then shared blocks, then a copy, and that only within a
//! budget.

use crate::event::{VersionContent, VersionId};
use crate::sys;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt as _;

mod table;

pub use table::{Location, VersionTable};

/// A file of at most this many bytes is copied by hand at once: sharing its blocks takes longer.
const SMALL: u64 = 64 << 10;

/// How much content is worth a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Budget {
    /// Everything is kept.
    All,
    /// A file of more bytes than this is not copied, but linked or reflinked where that can be done.
    File(u64),
    /// Nothing is kept.
    None,
}

impl Default for Budget {
    fn default() -> Self {
        Self::File(64 << 20)
    }
}

/// How a version was kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sealed {
    /// By another name of the same file.
    Linked,
    /// By sharing the blocks.
    Reflinked,
    /// By a copy.
    Copied,
    /// Not at all: over the budget.
    OverBudget,
}

/// Why a version could not be sealed. Nothing of it is left behind.
#[derive(Debug, thiserror::Error)]
#[error("keep version {}: {action}: {source}", .id.0)]
pub struct SealError {
    /// The version.
    pub id: VersionId,
    /// What was tried.
    pub action: &'static str,
    /// The reason.
    pub source: io::Error,
}

/// The directory of versions of one session, while it is recorded.
///
/// It is known by its descriptor, since the recorder's root is not the user's.
#[derive(Debug)]
pub struct Versions {
    dir: OwnedFd,
    budget: Budget,
    next: u32,
}

impl Versions {
    /// Takes the session's `versions` directory; `next` is the first number not used yet (0 in a new session).
    #[must_use]
    pub fn new(dir: OwnedFd, budget: Budget, next: u32) -> Self {
        Self { dir, budget, next }
    }

    /// A number for the content that is about to come into being.
    pub fn allocate(&mut self) -> VersionId {
        let id = VersionId(self.next);
        self.next = self.next.saturating_add(1);
        id
    }

    /// Keeps the regular file `name` in `dir` (of a layer), whose name is about to go: by a link, else as
    /// [`seal_content`](Self::seal_content) does.
    ///
    /// # Errors
    /// When it can be neither linked nor copied.
    pub fn seal_name(
        &self,
        id: VersionId,
        dir: BorrowedFd<'_>,
        name: &CStr,
    ) -> Result<(Sealed, VersionContent), SealError> {
        let error = |action| move |source| SealError { id, action, source };
        if self.budget != Budget::None {
            let linked = sys::link(dir, name, self.dir.as_fd(), &file_name(id)).and_then(|()| {
                // The link is looked at, not the name: the name may be another file by now.
                sys::regular_size(self.dir.as_fd(), &file_name(id))
            });
            match linked {
                Ok(Some(len)) => return Ok((Sealed::Linked, VersionContent::Sealed { len })),
                Ok(None) => {
                    self.forget(id);
                    return Err(error("link")(io::ErrorKind::InvalidInput.into()));
                }
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => return Err(error("link")(e)),
                Err(_) => {}
            }
        }
        let file = sys::open_regular(dir, name).map_err(error("open"))?;
        self.seal_content(id, file.as_fd())
    }

    /// Keeps the content of an open, readable file that is about to be overwritten: by reflink unless it is small, else by a copy
    /// within the budget. The file's offset is not moved.
    ///
    /// # Errors
    /// When it can be neither reflinked nor copied.
    pub fn seal_content(
        &self,
        id: VersionId,
        file: BorrowedFd<'_>,
    ) -> Result<(Sealed, VersionContent), SealError> {
        let error = |action| move |source| SealError { id, action, source };
        let (size, sparse) = sys::content_size(file).map_err(error("examine"))?;
        let lost = (Sealed::OverBudget, VersionContent::Lost { len: size });
        if self.budget == Budget::None {
            return Ok(lost);
        }
        let name = file_name(id);
        if size <= SMALL && !sparse && self.within(size) {
            let content = sys::read_small(file, size).map_err(error("read"))?;
            let target = sys::create_new(self.dir.as_fd(), &name).map_err(error("create"))?;
            let len = content.len() as u64;
            return match target.write_all_at(&content, 0) {
                Ok(()) => Ok((Sealed::Copied, VersionContent::Sealed { len })),
                Err(source) => {
                    self.forget(id);
                    Err(error("copy")(source))
                }
            };
        }
        let target = sys::create_new(self.dir.as_fd(), &name).map_err(error("create"))?;
        if sys::reflink(file, target.as_fd()).is_ok() {
            return Ok((Sealed::Reflinked, VersionContent::Sealed { len: size }));
        }
        if !self.within(size) {
            self.forget(id);
            return Ok(lost);
        }
        match sys::copy(file, &target, size, sparse) {
            Ok(len) => Ok((Sealed::Copied, VersionContent::Sealed { len })),
            Err(source) => {
                self.forget(id);
                Err(error("copy")(source))
            }
        }
    }

    /// Whether a file is worth a copy whatever its size.
    #[must_use]
    pub fn keeps_all(&self) -> bool {
        self.budget == Budget::All
    }

    /// Whether a file of this size may be copied.
    fn within(&self, size: u64) -> bool {
        match self.budget {
            Budget::All => true,
            Budget::File(limit) => size <= limit,
            Budget::None => false,
        }
    }

    /// Removes what was kept of a version, if anything: when the call that would have lost the content failed, say.
    pub fn forget(&self, id: VersionId) {
        // What stays behind is a file that no record speaks of: it wastes space and harms nobody.
        let _ = sys::unlink(self.dir.as_fd(), &file_name(id));
    }

    /// Opens a version that was sealed.
    ///
    /// # Errors
    /// When it is not there, or is no regular file.
    pub fn open(&self, id: VersionId) -> io::Result<File> {
        sys::open_regular(self.dir.as_fd(), &file_name(id))
    }
}

/// Opens a sealed version in a session's `versions` directory.
///
/// # Errors
/// When it is not there, or is no regular file.
pub fn open(dir: BorrowedFd<'_>, id: VersionId) -> io::Result<File> {
    sys::open_regular(dir, &file_name(id))
}

fn file_name(id: VersionId) -> CString {
    CString::new(id.0.to_string()).expect("digits have no NUL")
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use std::fs;
    use std::io::{Read as _, Seek as _, Write as _};

    struct Scratch {
        dir: tempfile::TempDir,
        layer: File,
    }

    fn scratch() -> Scratch {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("versions")).unwrap();
        fs::create_dir(dir.path().join("layer")).unwrap();
        let layer = File::open(dir.path().join("layer")).unwrap();
        Scratch { dir, layer }
    }

    impl Scratch {
        fn versions(&self, budget: Budget) -> Versions {
            Versions::new(
                File::open(self.dir.path().join("versions")).unwrap().into(),
                budget,
                7,
            )
        }

        fn file(&self, content: &[u8]) -> File {
            let path = self.dir.path().join("layer/f");
            fs::write(&path, content).unwrap();
            File::open(path).unwrap()
        }

        fn kept(&self) -> usize {
            fs::read_dir(self.dir.path().join("versions"))
                .unwrap()
                .count()
        }
    }

    fn content(mut file: File) -> Vec<u8> {
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn a_name_is_kept_by_a_link_whatever_its_size() {
        let s = scratch();
        s.file(b"hello");
        let mut versions = s.versions(Budget::File(1));
        let id = versions.allocate();
        assert_eq!(id, VersionId(7));
        let sealed = versions.seal_name(id, s.layer.as_fd(), c"f").unwrap();
        assert_eq!(sealed, (Sealed::Linked, VersionContent::Sealed { len: 5 }));
        fs::remove_file(s.dir.path().join("layer/f")).unwrap();
        assert_eq!(content(versions.open(id).unwrap()), b"hello");
        versions.forget(id);
        assert_eq!(s.kept(), 0);
    }

    #[test]
    fn content_is_copied_within_the_budget_only() {
        let s = scratch();
        let mut file = s.file(b"hello");
        file.seek(io::SeekFrom::Start(3)).unwrap();
        let (how, sealed) = s
            .versions(Budget::File(5))
            .seal_content(VersionId(1), file.as_fd())
            .unwrap();
        assert!(matches!(how, Sealed::Copied | Sealed::Reflinked));
        assert_eq!(sealed, VersionContent::Sealed { len: 5 });
        assert_eq!(
            file.stream_position().unwrap(),
            3,
            "the offset may be the command's"
        );
        let dir = File::open(s.dir.path().join("versions")).unwrap();
        assert_eq!(content(open(dir.as_fd(), VersionId(1)).unwrap()), b"hello");
        for (id, budget) in [(2, Budget::File(4)), (3, Budget::None)] {
            let (how, sealed) = s
                .versions(budget)
                .seal_content(VersionId(id), file.as_fd())
                .unwrap();
            if how == Sealed::Reflinked {
                continue;
            }
            assert_eq!(
                (how, sealed),
                (Sealed::OverBudget, VersionContent::Lost { len: 5 })
            );
            assert_eq!(s.kept(), 1);
        }
        assert!(
            s.versions(Budget::All)
                .seal_content(VersionId(1), file.as_fd())
                .is_err()
        );
        assert_eq!(s.kept(), 1, "a version is never written twice");
    }

    #[test]
    fn holes_stay_holes() {
        use std::os::unix::fs::MetadataExt as _;
        let s = scratch();
        s.file(b"");
        let mut file = File::options()
            .write(true)
            .read(true)
            .open(s.dir.path().join("layer/f"))
            .unwrap();
        file.seek(io::SeekFrom::Start(3 << 20)).unwrap();
        file.write_all(b"in the middle").unwrap();
        file.set_len(8 << 20).unwrap();
        let versions = s.versions(Budget::All);
        let (_, sealed) = versions.seal_content(VersionId(0), file.as_fd()).unwrap();
        assert_eq!(sealed, VersionContent::Sealed { len: 8 << 20 });
        let copy = versions.open(VersionId(0)).unwrap();
        assert!(copy.metadata().unwrap().blocks() * 512 < 4 << 20);
        let copy = content(copy);
        assert_eq!(copy.len(), 8 << 20);
        assert_eq!(&copy[3 << 20..][..13], b"in the middle");
    }

    #[test]
    fn only_regular_files_are_kept() {
        let s = scratch();
        std::os::unix::fs::symlink("/etc/passwd", s.dir.path().join("layer/link")).unwrap();
        nix::unistd::mkfifo(
            &s.dir.path().join("layer/fifo"),
            nix::sys::stat::Mode::S_IRWXU,
        )
        .unwrap();
        for name in [c"link", c"fifo", c"absent"] {
            let versions = s.versions(Budget::All);
            assert!(
                versions
                    .seal_name(VersionId(0), s.layer.as_fd(), name)
                    .is_err()
            );
            assert_eq!(s.kept(), 0);
        }
    }
}
