//! The programs that come with these tests, where every user can read them.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use tempfile::TempDir;

use crate::harness::place;

const ALL: [(&str, &str); 9] = [
    ("calls.py", include_str!("calls.py")),
    ("fixture.py", include_str!("fixture.py")),
    ("matrix.py", include_str!("matrix.py")),
    ("race.py", include_str!("race.py")),
    ("threads.py", include_str!("threads.py")),
    ("threads.go", include_str!("threads.go")),
    ("pool.py", include_str!("pool.py")),
    ("files.mjs", include_str!("files.mjs")),
    ("Files.java", include_str!("Files.java")),
];

/// A directory with all of them.
pub(super) struct Scripts(TempDir);

impl Scripts {
    pub(super) fn new() -> Self {
        let dir = TempDir::with_prefix_in("effigy-scripts.", place()).expect("a directory");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("let others in");
        for (name, text) in ALL {
            fs::write(dir.path().join(name), text).expect("a script");
        }
        Self(dir)
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}
