//! The journal is what happened, in the order in which it happened: its successful events, carried out one after the other on a copy of
//! what was there, never fail, and end in the session's own tree.

use std::ffi::{CString, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use serde_json::Value;

use super::scripts::Scripts;
use crate::harness::{Scene, as_everyone, has};

const START: &str = "mkdir one two; for f in a one/b two/c; do echo old >$f; done";

as_everyone! {
    fn names_fought_over_by_many(scene: &Scene) {
        fought_over(scene);
    }
}

fn fought_over(scene: &Scene) {
    if !has(scene, "python3") {
        return;
    }
    let scripts = Scripts::new();
    for seed in ["1", "2", "3"] {
        let session = format!("race{seed}");
        scene
            .sh(&format!("rm -rf ../work/*; mkdir ../{session}"))
            .run()
            .must_succeed();
        scene.sh(START).run().must_succeed();
        scene
            .sh(START)
            .dir(scene.area().join(&session))
            .run()
            .must_succeed();
        scene
            .effigy(&["run", "-q", "-n", "-s", &session, "--", "python3"])
            .arg(scripts.path("race.py"))
            .args(&[seed, "150"])
            .run()
            .must_succeed();
        let log = scene
            .effigy(&["log", &session, "--json"])
            .run()
            .must_succeed();
        let events: Vec<Event> = log
            .text()
            .lines()
            .filter_map(|line| Event::read(line, &scene.work()))
            .collect();
        assert!(events.len() > 500, "only {} events", events.len());
        for event in &events {
            if let Err(error) = event.carry_out(&scene.area().join(&session)) {
                panic!("{}: {error}, in the order of the journal", event.line);
            }
        }
        scene.commit(&session);
        assert_eq!(
            listing(&scene.area().join(&session)),
            listing(&scene.work()),
            "the events in order, and the session's tree"
        );
    }
}

as_everyone! {
    fn nothing_is_lost_of_a_hundred_thousand_calls(scene: &Scene) {
        if !has(scene, "python3") {
            return;
        }
        let program = "import os\nfor n in range(25000):\n    os.mkdir('d'); os.rename('d', 'e'); os.rmdir('e'); os.symlink('t', 'l%d' % (n % 100)) if n < 100 else os.chmod('f', 0o600 + n % 8)";
        scene.sh(": >f").run().must_succeed();
        scene.effigy(&["run", "-q", "-n", "-s", "many", "--", "python3", "-c", program]).run().must_succeed();
        let log = scene.effigy(&["log", "many", "--json", "--op", "mkdir,rename,rmdir,symlink,chmod"]).run().must_succeed();
        let text = log.text();
        let ops: Vec<&str> = text.lines().map(|line| line.split("\"op\":\"").nth(1).and_then(|rest| rest.split('"').next()).expect("an operation")).collect();
        assert_eq!(ops.len(), 100_000);
        for (number, four) in ops.chunks(4).enumerate() {
            let last = if number < 100 { "symlink" } else { "chmod" };
            assert_eq!(four, ["mkdir", "rename", "rmdir", last], "round {number}");
        }
    }
}

/// Everything in a tree but contents, of which the log only has the numbers.
fn listing(top: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    let mut todo = vec![top.to_owned()];
    while let Some(path) = todo.pop() {
        let meta = path.symlink_metadata().expect("it was listed");
        let target = fs::read_link(&path).unwrap_or_default();
        let name = path.strip_prefix(top).expect("it is below").to_owned();
        let (mode, links) = (meta.mode(), meta.nlink());
        lines.push(format!("{name:?} {mode:o} {links} {target:?}"));
        if meta.is_dir() {
            let entries = fs::read_dir(&path).expect("a directory");
            todo.extend(entries.map(|entry| entry.expect("an entry").path()));
        }
    }
    lines.sort();
    lines
}

/// A successful event that changes something, its paths relative to the working directory of the run.
struct Event {
    line: String,
    op: String,
    path: PathBuf,
    to: Option<PathBuf>,
    fields: Value,
}

impl Event {
    fn read(line: &str, work: &Path) -> Option<Self> {
        let fields: Value = serde_json::from_str(line).expect("JSON");
        let op = fields["op"].as_str().expect("an operation").to_owned();
        if ["exec", "exit", "read", "connect", "mark", "settle"].contains(&op.as_str()) {
            return None;
        }
        let below = |name: &Value| path(name)?.strip_prefix(work).ok().map(Path::to_owned);
        Some(Self {
            path: below(&fields["path"])?,
            to: below(&fields["to"]),
            line: line.to_owned(),
            op,
            fields,
        })
    }

    fn mode(&self) -> io::Result<u32> {
        self.fields["mode"]
            .as_str()
            .and_then(|text| u32::from_str_radix(text, 8).ok())
            .ok_or_else(|| io::Error::other("no mode"))
    }

    fn carry_out(&self, root: &Path) -> io::Result<()> {
        let path = root.join(&self.path);
        let to = || {
            self.to
                .as_ref()
                .map(|to| root.join(to))
                .ok_or_else(|| io::Error::other("no second name"))
        };
        match self.op.as_str() {
            "open" if self.fields["created"] == true => {
                fs::OpenOptions::new()
                    .write(true)
                    .create_new(true)
                    .open(&path)?;
                fs::set_permissions(&path, fs::Permissions::from_mode(self.mode()?))
            }
            "open" => fs::OpenOptions::new().write(true).open(&path).map(drop),
            "mkdir" => {
                fs::DirBuilder::new().mode(0o700).create(&path)?;
                fs::set_permissions(&path, fs::Permissions::from_mode(self.mode()?))
            }
            "rmdir" => fs::remove_dir(&path),
            "unlink" => fs::remove_file(&path),
            "rename" => fs::rename(&path, to()?),
            "exchange" => exchange(&path, &to()?),
            "link" => fs::hard_link(&path, to()?),
            "symlink" => symlink(target(&self.fields["target"])?, &path),
            "chmod" => fs::set_permissions(&path, fs::Permissions::from_mode(self.mode()?)),
            "truncate" => fs::OpenOptions::new().write(true).open(&path).map(drop),
            other => Err(io::Error::other(format!("{other} is not among the calls"))),
        }
    }
}

fn path(name: &Value) -> Option<PathBuf> {
    match name {
        Value::String(name) => Some(name.into()),
        Value::Object(bytes) => {
            let bytes = base64::engine::general_purpose::STANDARD
                .decode(bytes["bytes"].as_str()?)
                .ok()?;
            Some(OsString::from_vec(bytes).into())
        }
        _ => None,
    }
}

fn target(name: &Value) -> io::Result<PathBuf> {
    path(name).ok_or_else(|| io::Error::other("no target"))
}

fn exchange(one: &Path, other: &Path) -> io::Result<()> {
    let name = |path: &Path| CString::new(path.as_os_str().as_bytes());
    let (one, other) = (name(one)?, name(other)?);
    nix::fcntl::renameat2(
        nix::fcntl::AT_FDCWD,
        one.as_c_str(),
        nix::fcntl::AT_FDCWD,
        other.as_c_str(),
        nix::fcntl::RenameFlags::RENAME_EXCHANGE,
    )?;
    Ok(())
}
