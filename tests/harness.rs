//! The scene of a test: who runs `effigy`, where, and what came of it.

mod program;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::trees::{Times, Tree};
pub(crate) use program::Program;

/// Nothing here takes long; what hangs is killed.
const PATIENCE: Duration = Duration::from_secs(60);

/// Who runs the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    /// The tests' own user.
    Self_,
    /// This uid and gid, without other groups: only when the tests run as root.
    User(u32),
}

/// The uid whose number is also the one that stands for users without a number in a namespace.
pub(crate) const NOBODY: u32 = 65534;

pub(crate) fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// Runs a check as root, or says why not.
pub(crate) fn as_root(check: fn(&Scene)) {
    if is_root() {
        check(&Scene::new(Who::Self_));
    } else {
        skip("only root can check this as root");
    }
}

/// Runs a check as an ordinary user: when the tests run as root, as two users of different kinds.
pub(crate) fn as_user(check: fn(&Scene)) {
    if is_root() {
        check(&Scene::new(Who::User(NOBODY)));
        check(&Scene::new(Who::User(4242)));
    } else {
        check(&Scene::new(Who::Self_));
    }
}

/// Says aloud that a test is skipped, past the capture of output.
pub(crate) fn skip(reason: &str) {
    let name = thread::current().name().unwrap_or("a test").to_owned();
    let _unseen = writeln!(io::stderr(), "skipped: {name}: {reason}");
}

/// Whether the program is installed where `scene`'s user can reach it; if not, says that the test is skipped.
pub(crate) fn has(scene: &Scene, program: &str) -> bool {
    let found = scene
        .bare(&["sh", "-c", "command -v \"$0\"", program])
        .run()
        .status
        == 0;
    if !found {
        skip(&format!(
            "{program} is not installed where this user can reach it"
        ));
    }
    found
}

/// Defines each check as two tests: as root, and as an ordinary user.
macro_rules! as_everyone {
    ($($(#[$attribute:meta])* fn $name:ident($scene:ident: &Scene) $body:block)*) => {
        $($(#[$attribute])* mod $name {
            use super::*;

            fn check($scene: &Scene) $body

            #[test]
            fn as_root() {
                crate::harness::as_root(check);
            }

            #[test]
            fn as_an_ordinary_user() {
                crate::harness::as_user(check);
            }
        })*
    };
}
pub(crate) use as_everyone;

/// A private place for one test. Everything in it goes when the test ends.
pub(crate) struct Scene {
    pub(crate) who: Who,
    dir: TempDir,
    program: Arc<Program>,
    toolchain: PathBuf,
    /// Keeps the scene's mount namespace.
    mounts: Option<Child>,
}

impl Scene {
    pub(crate) fn new(who: Who) -> Self {
        Self::within(who, &place())
    }

    /// A scene below this directory.
    pub(crate) fn within(who: Who, place: &Path) -> Self {
        let dir = TempDir::with_prefix_in("effigy-test.", place).expect("a directory for the test");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("let others in");
        let scene = Self {
            who,
            dir,
            program: Program::reachable(),
            toolchain: PathBuf::new(),
            mounts: None,
        };
        for part in ["area", "area/home", "area/work", "store"] {
            scene.make_dir(part);
        }
        scene
    }

    /// A directory of the user's below the scene.
    pub(crate) fn make_dir(&self, name: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        fs::create_dir_all(&path).expect("a directory");
        self.give(&path);
        path
    }

    pub(crate) fn give(&self, path: &Path) {
        if let Who::User(id) = self.who {
            chown(path, Some(id), Some(id)).expect("give it to the user");
        }
    }

    /// The scene's own directory, which belongs to the tests' user.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// What a command may change in the ordinary course of things: holds `home` and `work`.
    pub(crate) fn area(&self) -> PathBuf {
        self.dir.path().join("area")
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.dir.path().join("area/work")
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.dir.path().join("area/home")
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.dir.path().join("store")
    }

    pub(crate) fn is_root(&self) -> bool {
        self.who == Who::Self_ && is_root()
    }

    /// The uid that commands run with.
    pub(crate) fn uid(&self) -> u32 {
        match self.who {
            Who::Self_ => nix::unistd::geteuid().as_raw(),
            Who::User(id) => id,
        }
    }

    /// Where the program is.
    pub(crate) fn program(&self) -> &Path {
        self.program.path()
    }

    /// A command run as the scene's user, without effigy.
    pub(crate) fn bare<S: AsRef<OsStr>>(&self, argv: &[S]) -> Job<'_> {
        Job {
            argv: argv.iter().map(|word| word.as_ref().to_owned()).collect(),
            environment: vec![
                ("PATH".into(), path_for(self.who)),
                ("LANG".into(), "C.UTF-8".into()),
                ("HOME".into(), self.home().into()),
                ("EFFIGY_STORE".into(), self.store().into()),
            ],
            dir: self.work(),
            scene: self,
            input: None,
        }
    }

    /// The same scene with mounts of its own: `script` is run by root in a mount namespace in which every command of the scene then runs.
    pub(crate) fn with_mounts(mut self, script: &str) -> Self {
        let mut holder = Command::new("unshare")
            .args(["-m", "--propagation", "private", "sh", "-euc"])
            .arg(format!("cd \"$0\"; {script}\necho ready; exec sleep 600"))
            .arg(self.dir())
            .stdout(Stdio::piped())
            .spawn()
            .expect("unshare");
        wait_for_line(&mut holder, "ready");
        self.mounts = Some(holder);
        self
    }

    /// The same scene with a Rust toolchain: where it is, or mounted where an ordinary user can reach it.
    pub(crate) fn with_toolchain(mut self, toolchain: &Path, mounted: bool) -> Self {
        if !mounted {
            self.toolchain = toolchain.to_owned();
            return self;
        }
        let at = self.dir().join("toolchain");
        fs::create_dir(&at).expect("a mount point");
        self.toolchain = at;
        self.with_mounts(&format!("mount --bind '{}' toolchain", toolchain.display()))
    }

    pub(crate) fn toolchain_dir(&self) -> &Path {
        &self.toolchain
    }

    /// A shell script run as the scene's user, without effigy.
    pub(crate) fn sh(&self, script: &str) -> Job<'_> {
        self.bare(&["sh", "-euc", script])
    }

    /// `effigy` with these arguments.
    pub(crate) fn effigy<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Job<'_> {
        let mut argv: Vec<OsString> = vec![self.program().into()];
        argv.extend(
            arguments
                .iter()
                .map(|argument| argument.as_ref().to_owned()),
        );
        self.bare(&argv)
    }

    /// `effigy run -n -s SESSION -- sh -euc SCRIPT`.
    pub(crate) fn run_script(&self, session: &str, script: &str) -> Job<'_> {
        self.effigy(&["run", "-n", "-s", session, "--", "sh", "-euc", script])
    }

    /// The lines of `effigy summary SESSION`, with the scene's directory replaced by `@`.
    pub(crate) fn summary(&self, session: &str) -> Vec<String> {
        let done = self.effigy(&["summary", session]).run();
        assert!(
            done.status == 0 || done.status == 1 && done.stdout.is_empty(),
            "summary: {done}"
        );
        let dir = self.dir.path().display().to_string();
        done.text()
            .lines()
            .map(|line| line.replace(&dir, "@"))
            .collect()
    }

    /// Commits a session, which must succeed.
    #[track_caller]
    pub(crate) fn commit(&self, session: &str) {
        self.effigy(&["commit", session, "-y"]).run().must_succeed();
    }

    /// Commits what matches a pattern, which must succeed.
    #[track_caller]
    pub(crate) fn commit_only(&self, session: &str, pattern: &str) {
        self.effigy(&["commit", session, "-y", "--only", pattern])
            .run()
            .must_succeed();
    }

    #[track_caller]
    pub(crate) fn undo(&self, session: &str) {
        self.effigy(&["undo", session, "-y"]).run().must_succeed();
    }

    /// The area as it is.
    pub(crate) fn tree(&self) -> Tree {
        Tree::read(&self.area())
    }

    /// The law: a command run bare on one copy of a tree, and run and committed or replayed on another, gives the same; run alone it
    /// changes nothing; and undone it leaves what was there. `leave_out` names paths of the area whose content differs from run to run anyway.
    #[track_caller]
    pub(crate) fn differential(&self, setup: &str, script: &str, times: Times, leave_out: &[&str]) {
        self.differential_again("replay", setup, script, times, leave_out);
    }

    /// The same, committed twice instead of committed and replayed.
    #[track_caller]
    pub(crate) fn committed_twice(&self, setup: &str, script: &str) {
        self.differential_again("commit", setup, script, Times::Ignored, &[]);
    }

    #[track_caller]
    fn differential_again(
        &self,
        again: &str,
        setup: &str,
        script: &str,
        times: Times,
        leave_out: &[&str],
    ) {
        let work = self.work().display().to_string();
        let clear = || {
            let clear = "cd .. && chmod -R u+rwx home work 2>/dev/null; rm -rf home work && mkdir home work";
            self.bare(&["sh", "-c", clear]).run().must_succeed();
        };
        let copy = |from: &Path, to: &Path| {
            let copied = Command::new("cp")
                .arg("-a")
                .arg(from.join("."))
                .arg(to)
                .output();
            copied.expect("cp").status.success()
        };
        clear();
        self.sh(setup).run().must_succeed();
        // The tests' own user may not be able to read everything: then the tree is set up once more instead.
        let pristine = self.dir().join("pristine");
        let copied = copy(&self.area(), &pristine);
        let before = self.tree();
        let ran = self.run_script("differential", script).run();
        self.tree().must_equal(
            &before,
            Times::OfAll,
            "the tree after the run alone",
            "before it",
        );
        self.commit("differential");
        let committed = self.tree();
        self.undo("differential");
        self.tree().must_equal(
            &before,
            Times::OfFiles,
            "the tree after undo",
            "before the run",
        );
        let done = self.effigy(&[again, "differential", "-y"]).run();
        done.must_succeed();
        self.tree()
            .must_equal(&committed, Times::OfFiles, again, "committed");
        clear();
        if copied {
            assert!(
                copy(&pristine, &self.area()),
                "the copy cannot be copied back"
            );
        } else {
            self.sh(setup).run().must_succeed();
        }
        let bare = self.sh(script).run();
        assert_eq!(
            ran.status, bare.status,
            "the exit status in effigy, and bare: {ran}\n{bare}"
        );
        let (committed, bare) = (committed.without(leave_out), self.tree().without(leave_out));
        committed.must_equal(&bare, times, "run and committed", "run bare");
        assert!(
            committed != before.without(leave_out),
            "{work}: the command changed nothing"
        );
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if let Some(holder) = &mut self.mounts {
            let _gone = holder.kill();
            let _reaped = holder.wait();
        }
        // Directories without permissions keep an ordinary user from removing the scene.
        let _best_effort = Command::new("chmod")
            .args(["-R", "u+rwx"])
            .arg(self.dir.path())
            .stderr(Stdio::null())
            .status();
    }
}

/// A filesystem that can hold layers: not an overlay, as in a container.
pub(crate) fn place() -> PathBuf {
    let places = [
        std::env::temp_dir(),
        PathBuf::from("/var/tmp"),
        PathBuf::from("/dev/shm"),
    ];
    let overlay = |path: &Path| {
        let kind = Command::new("stat")
            .args(["-f", "-c", "%T"])
            .arg(path)
            .output()
            .expect("stat");
        kind.stdout.starts_with(b"overlay")
    };
    places
        .into_iter()
        .find(|path| path.is_dir() && !overlay(path))
        .expect("a place that is no overlay")
}

/// The search path: as the tests were given it, and where the system keeps the tools of root, for an ordinary user only what it can reach.
fn path_for(who: Who) -> OsString {
    let system = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    match (who, std::env::var_os("PATH")) {
        (Who::Self_, Some(mut path)) => {
            path.push(":");
            path.push(system);
            path
        }
        _ => system.into(),
    }
}

/// A command that is about to run.
pub(crate) struct Job<'s> {
    argv: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    dir: PathBuf,
    scene: &'s Scene,
    input: Option<Vec<u8>>,
}

impl Job<'_> {
    pub(crate) fn arg(mut self, word: impl AsRef<OsStr>) -> Self {
        self.argv.push(word.as_ref().to_owned());
        self
    }

    pub(crate) fn args(mut self, words: &[&str]) -> Self {
        self.argv.extend(words.iter().map(OsString::from));
        self
    }

    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.environment.retain(|(other, _)| other != name);
        self.environment
            .push((name.into(), value.as_ref().to_owned()));
        self
    }

    pub(crate) fn without_env(mut self, name: &str) -> Self {
        self.environment.retain(|(other, _)| other != name);
        self
    }

    pub(crate) fn dir(mut self, dir: impl AsRef<Path>) -> Self {
        self.dir = dir.as_ref().to_owned();
        self
    }

    pub(crate) fn input(mut self, input: &[u8]) -> Self {
        self.input = Some(input.to_vec());
        self
    }

    /// With a standard input that stays open until it is dropped.
    pub(crate) fn piped(self) -> Self {
        self.input(b"")
    }

    fn command(&self) -> Command {
        let mut argv: Vec<OsString> = Vec::new();
        if let Some(holder) = &self.scene.mounts {
            argv.push("nsenter".into());
            argv.push(format!("--mount=/proc/{}/ns/mnt", holder.id()).into());
            if let Who::User(id) = self.scene.who {
                argv.push("setpriv".into());
                argv.extend(
                    [
                        format!("--reuid={id}"),
                        format!("--regid={id}"),
                        "--clear-groups".into(),
                    ]
                    .map(OsString::from),
                );
            }
            argv.extend(["sh", "-c", "cd \"$0\" && exec \"$@\""].map(OsString::from));
            argv.push(self.dir.clone().into());
        }
        argv.extend(self.argv.iter().cloned());
        let mut command = Command::new(&argv[0]);
        command
            .args(&argv[1..])
            .env_clear()
            .envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.stdin(if self.input.is_some() {
            Stdio::piped()
        } else {
            Stdio::null()
        });
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        // What a command sends to its process group must not reach the tests.
        command.process_group(0);
        if self.scene.mounts.is_none() {
            command.current_dir(&self.dir);
            if let Who::User(id) = self.scene.who {
                // The standard library drops the other groups with it.
                command.gid(id).uid(id);
            }
        }
        command
    }

    /// Starts the command. What it is to read is written first, so that must be little; its standard input then stays open.
    pub(crate) fn start(self) -> Child {
        let mut child = self.spawn();
        if let (Some(input), Some(stdin)) = (&self.input, &mut child.stdin) {
            // A command that does not read is its own business.
            let _unread = stdin.write_all(input);
        }
        child
    }

    fn spawn(&self) -> Child {
        let mut command = self.command();
        command
            .spawn()
            .unwrap_or_else(|error| panic!("start {:?}: {error}", self.argv))
    }

    pub(crate) fn run(self) -> Done {
        let shown = format!("in {}: {:?}", self.dir.display(), self.argv);
        let mut child = self.spawn();
        let writer = child.stdin.take().map(|mut stdin| {
            let input = self.input.unwrap_or_default();
            thread::spawn(move || stdin.write_all(&input))
        });
        let done = finish(child, shown);
        // What a command does not read is its own business.
        let _unread = writer.map(thread::JoinHandle::join);
        done
    }
}

/// Reads a command's standard output, byte by byte so that the rest is left, until a line says this.
pub(crate) fn wait_for_line(child: &mut Child, wanted: &str) {
    let out = child.stdout.as_mut().expect("a pipe");
    let mut seen = Vec::new();
    let mut byte = [0];
    while !seen.ends_with(format!("{wanted}\n").as_bytes()) {
        match out.read(&mut byte) {
            Ok(1) => seen.push(byte[0]),
            _ => panic!("no line {wanted:?} but {}", seen.escape_ascii()),
        }
    }
}

/// Waits for a command and takes what it said; one that hangs is killed, and the test fails.
pub(crate) fn finish(mut child: Child, shown: String) -> Done {
    let (mut out, mut err) = (
        child.stdout.take().expect("a pipe"),
        child.stderr.take().expect("a pipe"),
    );
    let reader = thread::spawn(move || {
        let mut text = Vec::new();
        out.read_to_end(&mut text).map(|_| text)
    });
    let errors = thread::spawn(move || {
        let mut text = Vec::new();
        err.read_to_end(&mut text).map(|_| text)
    });
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("wait") {
            break status;
        }
        if begun.elapsed() > PATIENCE {
            let _gone = child.kill();
            let _reaped = child.wait();
            panic!("{shown} did not end");
        }
        thread::sleep(Duration::from_millis(3));
    };
    let read = |thread: thread::JoinHandle<io::Result<Vec<u8>>>| {
        thread.join().expect("a reader").expect("output")
    };
    Done {
        status: status
            .code()
            .unwrap_or_else(|| 128 + status.signal().unwrap_or(0)),
        stdout: read(reader),
        stderr: String::from_utf8_lossy(&read(errors)).into_owned(),
        command: shown,
    }
}

/// A command that has ended.
pub(crate) struct Done {
    /// The exit status; 128+n when signal n ended it.
    pub(crate) status: i32,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
    command: String,
}

impl Done {
    #[track_caller]
    pub(crate) fn must_succeed(self) -> Self {
        self.must_exit(0)
    }

    #[track_caller]
    pub(crate) fn must_exit(self, status: i32) -> Self {
        assert_eq!(self.status, status, "{self}");
        self
    }

    /// Every one of these words must be in what was said on standard error.
    #[track_caller]
    pub(crate) fn must_say(self, words: &[&str]) -> Self {
        for word in words {
            assert!(self.stderr.contains(word), "nothing about {word:?}: {self}");
        }
        self
    }

    /// Standard output as text.
    #[track_caller]
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.stdout.clone()).unwrap_or_else(|_| panic!("not UTF-8: {self}"))
    }
}

impl std::fmt::Display for Done {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let out = self.stdout[..self.stdout.len().min(4000)]
            .escape_ascii()
            .to_string()
            .replace("\\n", "\n");
        write!(
            f,
            "{}\nexited with {}\n--- output\n{out}\n--- errors\n{}",
            self.command, self.status, self.stderr
        )
    }
}
