//! Every traced call returns inside what it returns outside, and leaves the same tree.

use crate::harness::{Scratch, python};
use std::process::Command;

const MATRIX: &str = include_str!("matrix.py");

fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// Runs the matrix bare and supervised and compares line by line.
fn same_as_bare(probe: &str) {
    let bare = Scratch::new();
    let output = Command::new(python())
        .args(["-c", MATRIX, probe])
        .current_dir(bare.work())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "bare: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let traced = Scratch::new();
    let run = traced.run(python(), &["-c", MATRIX, probe]);
    run.ok();
    let text = |bytes: &[u8], scratch: &Scratch| {
        String::from_utf8_lossy(bytes).replace(scratch.work().to_str().unwrap(), "HERE")
    };
    let (bare, traced) = (text(&output.stdout, &bare), text(&run.stdout, &traced));
    let differences: Vec<_> = bare
        .lines()
        .zip(traced.lines())
        .filter(|(a, b)| a != b)
        .map(|(a, b)| format!("bare   {a}\ntraced {b}"))
        .collect();
    assert!(
        differences.is_empty(),
        "{} differences:\n{}",
        differences.len(),
        differences.join("\n")
    );
    assert_eq!(bare.lines().count(), traced.lines().count());
    assert!(bare.lines().count() > 10, "{bare}");
}

macro_rules! probes {
    ($($name:ident)*) => { $(
        #[test]
        fn $name() {
            same_as_bare(stringify!($name).trim_start_matches("root_"));
        }
    )* };
}

probes! { plain limit umask subdir thread fork deleted userns landlock }

#[test]
fn as_root_chroot_dropped_and_nocaps() {
    if !is_root() {
        println!("skipped: needs root");
        return;
    }
    for probe in ["chroot", "dropped", "nocaps"] {
        same_as_bare(probe);
    }
}

/// The whole of this binary once more as an ordinary user.
#[test]
fn everything_as_an_ordinary_user() {
    if !is_root() {
        return;
    }
    let home = tempfile::Builder::new()
        .prefix("effigy-user-")
        .tempdir()
        .unwrap();
    std::os::unix::fs::chown(home.path(), Some(65534), Some(65534)).unwrap();
    let copy = home.path().join("supervise");
    std::fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(&copy)
        .args(["--test-threads=2"])
        .env("TMPDIR", home.path())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
}
