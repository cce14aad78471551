//! Built programs, where every user can run it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tempfile::TempDir;

/// A program: as cargo built it, or a copy when that lies below a directory that is closed to others.
pub(crate) struct Program {
    path: PathBuf,
    _copy: Option<TempDir>,
}

impl Program {
    /// One copy serves all tests that run at a time, and goes with the last of them.
    pub(crate) fn reachable() -> Arc<Self> {
        static SHARED: Mutex<Weak<Program>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(program) = shared.upgrade() {
            return program;
        }
        // Another build of it can be tried, such as one with optimisations.
        let built = std::env::var_os("EFFIGY_TEST_PROGRAM").map_or_else(
            || PathBuf::from(env!("CARGO_BIN_EXE_effigy")),
            PathBuf::from,
        );
        let program = Arc::new(Self::at(built));
        *shared = Arc::downgrade(&program);
        program
    }

    /// A built program, or a copy of it.
    pub(crate) fn at(built: PathBuf) -> Self {
        let open = |path: &Path| {
            fs::metadata(path).is_ok_and(|found| found.permissions().mode() & 0o001 != 0)
        };
        if built.ancestors().all(open) {
            return Self {
                path: built,
                _copy: None,
            };
        }
        let dir = TempDir::with_prefix_in("effigy-program.", super::place())
            .expect("a directory for the program");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("let others in");
        let path = dir.path().join("effigy");
        fs::copy(&built, &path).expect("copy the program");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("let others run it");
        Self {
            path,
            _copy: Some(dir),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}
