//! Carries out programs: the tests' own binary, started anew inside and outside, is the program whose effects are compared.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;

use super::step::{Call, Data, How, Mode, Name, Program, Step, Text};
use super::sys;

/// Names the file with the programs; without it there is nothing to do.
pub(super) const PROGRAMS: &str = "EFFIGY_LAW_PROGRAMS";
/// Names the file with the answers of an earlier run: calls that were not possible in it are left out.
pub(super) const ANSWERS: &str = "EFFIGY_LAW_ANSWERS";
/// After each call that changes a file's content, its content is told too.
pub(super) const CONTENTS: &str = "EFFIGY_LAW_CONTENTS";

/// How a line of answers begins, in what the tests' binary says besides.
pub(super) const ANSWER: &str = "answer: ";

/// The answer of an open that gave something else than a regular file.
const NO_FILE: i32 = 10_000;
/// The answer of a call on a descriptor that is not there.
const NO_SLOT: i32 = 10_001;

#[test]
fn carries_out_the_programs_it_is_given() {
    let Some(path) = std::env::var_os(PROGRAMS) else {
        return;
    };
    let programs: Vec<Program> =
        serde_json::from_slice(&std::fs::read(path).expect("the programs")).expect("programs");
    let mut answers: Vec<Vec<i32>> = match std::env::var_os(ANSWERS) {
        Some(path) => {
            serde_json::from_slice(&std::fs::read(path).expect("the answers")).expect("answers")
        }
        None => Vec::new(),
    };
    answers.resize(programs.len(), Vec::new());
    let contents = std::env::var_os(CONTENTS).is_some();
    let top = std::env::current_dir().expect("the working directory");
    for (program, answers) in programs.iter().zip(&answers) {
        run(&top.join(&program.dir), &program.steps, answers, contents);
    }
}

/// Three processes take the steps in turn, so that every run has the same order.
fn run(dir: &Path, steps: &[Step], answers: &[i32], contents: bool) {
    std::env::set_current_dir(dir).expect("the program's directory");
    sys::umask(0o022);
    let mut process = Process::new(contents);
    let take = |process: &mut Process, at: usize| {
        let impossible = answers.get(at) == Some(&libc::EXDEV);
        let answer = if impossible {
            (libc::EXDEV, None)
        } else {
            process.take(&steps[at].1)
        };
        let content = answer
            .1
            .map(|content| format!(" {}", content.escape_ascii()))
            .unwrap_or_default();
        let line = format!("{ANSWER}{}{content}\n", answer.0);
        io::stdout()
            .write_all(line.as_bytes())
            .and_then(|()| io::stdout().flush())
            .expect("tell");
    };
    let mut others = Vec::new();
    for _ in 1..3 {
        let (mut orders, mut order) = io::pipe().expect("a pipe");
        let (mut done, mut tell) = io::pipe().expect("a pipe");
        let pid = sys::fork(|| {
            let mut at = [0; 8];
            let mut process = Process::new(contents);
            while orders.read_exact(&mut at).is_ok() && at != [0xff; 8] {
                take(&mut process, usize::from_ne_bytes(at));
                tell.write_all(b".").expect("tell");
            }
        });
        let pid = pid.expect("fork");
        others.push((pid, move |at: [u8; 8]| {
            order.write_all(&at).expect("order");
            if at != [0xff; 8] {
                done.read_exact(&mut [0]).expect("the process has died");
            }
        }));
    }
    for (at, step) in steps.iter().enumerate() {
        match usize::from(step.0) {
            0 => take(&mut process, at),
            other => others[other - 1].1(at.to_ne_bytes()),
        }
    }
    for (pid, mut order) in others {
        order([0xff; 8]);
        sys::wait(pid);
    }
}

/// What a process has open.
struct Process {
    first: OwnedFd,
    files: HashMap<u8, File>,
    dirs: HashMap<u8, OwnedFd>,
    contents: bool,
}

type Answer = (i32, Option<Vec<u8>>);

impl Process {
    fn new(contents: bool) -> Self {
        let first = sys::open(libc::AT_FDCWD, b".", libc::O_RDONLY | libc::O_DIRECTORY, 0)
            .expect("the directory");
        sys::fchdir(first.as_raw_fd()).expect("stay there");
        Self {
            first,
            files: HashMap::new(),
            dirs: HashMap::new(),
            contents,
        }
    }

    fn take(&mut self, call: &Call) -> Answer {
        let answer = match self.call(call) {
            Ok(()) => 0,
            Err(error) => error.raw_os_error().unwrap_or(NO_SLOT),
        };
        let content = match call {
            Call::Put(name, ..) | Call::Truncate(name, _) if self.contents && answer == 0 => {
                self.content(name)
            }
            _ => None,
        };
        (answer, content)
    }

    fn content(&self, name: &Name) -> Option<Vec<u8>> {
        let (dir, path) = self.at(name);
        let mut file = File::from(sys::open(dir, path, libc::O_RDONLY, 0).ok()?);
        let mut content = Vec::new();
        file.read_to_end(&mut content).ok().map(|_| content)
    }

    /// A name as *at calls take it. One relative to a directory that is not held is taken from the working directory.
    fn at<'n>(&self, name: &'n Name) -> (RawFd, &'n [u8]) {
        let dir = name.base.and_then(|slot| self.dirs.get(&slot));
        (
            dir.map_or(libc::AT_FDCWD, |dir| dir.as_raw_fd()),
            &name.path,
        )
    }

    fn file(&self, slot: u8) -> io::Result<&File> {
        self.files.get(&slot).ok_or(io::ErrorKind::NotFound.into())
    }

    fn open(&self, name: &Name, how: How, mode: Mode) -> io::Result<File> {
        let flags = match how {
            How::Creat => libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC,
            How::Append => libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND,
            How::Exclusive => libc::O_RDWR | libc::O_CREAT | libc::O_EXCL,
            How::NoFollow => libc::O_WRONLY | libc::O_CREAT | libc::O_NOFOLLOW,
            How::Update => libc::O_RDWR,
            How::Empty => libc::O_WRONLY | libc::O_TRUNC,
        };
        let (dir, path) = self.at(name);
        // A FIFO must not stop the program.
        let file = File::from(sys::open(dir, path, flags | libc::O_NONBLOCK, mode.0)?);
        match file.metadata()?.is_file() {
            true => Ok(file),
            false => Err(io::Error::from_raw_os_error(NO_FILE)),
        }
    }

    /// Gives a file its content, also where an ordinary user would first have to make it writable.
    fn give(&self, name: &Name, made: Option<Mode>, content: &Text) -> io::Result<()> {
        let (dir, path) = self.at(name);
        let flags = libc::O_WRONLY | libc::O_TRUNC | if made.is_some() { libc::O_CREAT } else { 0 };
        let open = || sys::open(dir, path, flags, made.map_or(0, |mode| mode.0));
        let file = match open() {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                self.writable(path, open)?
            }
            other => other?,
        };
        File::from(file).write_all(&content.0)
    }

    fn writable<T>(&self, path: &[u8], work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let at = Path::new(std::ffi::OsStr::from_bytes(path));
        let mode = at.metadata()?.mode() & 0o7777;
        sys::chmod(libc::AT_FDCWD, path, mode | 0o600)?;
        let done = work();
        sys::chmod(libc::AT_FDCWD, path, mode)?;
        done
    }

    fn call(&mut self, call: &Call) -> io::Result<()> {
        let nofollow = libc::AT_SYMLINK_NOFOLLOW;
        match call {
            Call::Mkdir(name, mode) => sys::mkdir(self.at(name).0, &name.path, mode.0),
            Call::Rmdir(name) => sys::unlink(self.at(name).0, &name.path, libc::AT_REMOVEDIR),
            Call::Unlink(name) => sys::unlink(self.at(name).0, &name.path, 0),
            Call::Rename(one, other) => sys::rename(self.at(one), self.at(other), 0),
            Call::RenameNoreplace(one, other) => {
                sys::rename(self.at(one), self.at(other), libc::RENAME_NOREPLACE)
            }
            Call::Exchange(one, other) => {
                sys::rename(self.at(one), self.at(other), libc::RENAME_EXCHANGE)
            }
            Call::Link(one, other) => sys::link(self.at(one), self.at(other), 0),
            Call::LinkFollow(one, other) => {
                sys::link(self.at(one), self.at(other), libc::AT_SYMLINK_FOLLOW)
            }
            Call::Symlink(target, name) => sys::symlink(&target.path, self.at(name).0, &name.path),
            Call::Fifo(name, mode) => {
                sys::mknod(self.at(name).0, &name.path, libc::S_IFIFO | mode.0)
            }
            Call::Node(name, mode) => {
                sys::mknod(self.at(name).0, &name.path, libc::S_IFREG | mode.0)
            }
            Call::Truncate(name, len) => sys::truncate(&name.path, *len),
            Call::Chmod(name, mode) => sys::chmod(self.at(name).0, &name.path, mode.0),
            Call::Chown(name, uid, gid) => {
                sys::chown(self.at(name).0, &name.path, id(*uid), id(*gid), 0)
            }
            Call::Lchown(name, uid, gid) => {
                sys::chown(self.at(name).0, &name.path, id(*uid), id(*gid), nofollow)
            }
            Call::Utimens(name, time) => sys::utimens(self.at(name).0, &name.path, *time, 0),
            Call::Lutimens(name, time) => {
                sys::utimens(self.at(name).0, &name.path, *time, nofollow)
            }
            Call::Setxattr(name, key, value) => {
                sys::setxattr(&name.path, &attribute(*key), &bytes(*value))
            }
            Call::Removexattr(name, key) => sys::removexattr(&name.path, &attribute(*key)),
            Call::Attribute(name, key, value) => {
                let change = || match value {
                    Some(value) => sys::setxattr(&name.path, &attribute(*key), &bytes(*value)),
                    None => sys::removexattr(&name.path, &attribute(*key)),
                };
                match change() {
                    Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                        self.writable(&name.path, change)
                    }
                    other => other,
                }
            }
            Call::Put(name, how, mode, data) => {
                self.open(name, *how, *mode)?.write_all(&bytes(*data))
            }
            Call::Become(name, made, content) => self.give(name, *made, content),
            Call::Open(slot, name, how, mode) => {
                let file = self.open(name, *how, *mode)?;
                self.files.insert(*slot, file);
                Ok(())
            }
            Call::Write(slot, data) => self.file(*slot)?.write_all(&bytes(*data)),
            Call::WriteAt(slot, at, data) => {
                self.file(*slot)?.write_all_at(&bytes(*data), (*at).into())
            }
            Call::Ftruncate(slot, len) => sys::ftruncate(self.file(*slot)?.as_raw_fd(), *len),
            Call::Fallocate(slot, at, len) => {
                sys::fallocate(self.file(*slot)?.as_raw_fd(), 0, *at, *len)
            }
            Call::PunchHole(slot, at, len) => {
                let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
                sys::fallocate(self.file(*slot)?.as_raw_fd(), mode, *at, *len)
            }
            Call::Fchmod(slot, mode) => sys::fchmod(self.file(*slot)?.as_raw_fd(), mode.0),
            Call::Fsetxattr(slot, key, value) => sys::fsetxattr(
                self.file(*slot)?.as_raw_fd(),
                &attribute(*key),
                &bytes(*value),
            ),
            Call::Map(slot, at, byte) => {
                let file = self.file(*slot)?;
                let len = file.metadata()?.len().min(4096);
                match usize::try_from(len) {
                    Ok(len) if len > 0 => sys::map(file.as_fd(), *at as usize % len, *byte),
                    _ => Err(io::ErrorKind::NotFound.into()),
                }
            }
            Call::Close(slot) => self
                .files
                .remove(slot)
                .map(drop)
                .ok_or(io::ErrorKind::NotFound.into()),
            Call::Tmpfile(slot, dir, mode, data) => {
                let (at, path) = self.at(dir);
                let mut file =
                    File::from(sys::open(at, path, libc::O_TMPFILE | libc::O_RDWR, mode.0)?);
                file.write_all(&bytes(*data))?;
                self.files.insert(*slot, file);
                Ok(())
            }
            Call::NameTmpfile(slot, name) => {
                let path = format!("/proc/self/fd/{}", self.file(*slot)?.as_raw_fd());
                let flags = libc::AT_SYMLINK_FOLLOW;
                sys::link((libc::AT_FDCWD, path.as_bytes()), self.at(name), flags)?;
                // It has a name now, and is held like other files.
                if let Some(file) = self.files.remove(slot) {
                    self.files.insert(slot % 3, file);
                }
                Ok(())
            }
            Call::Hold(slot, name) => {
                let (at, path) = self.at(name);
                let dir = sys::open(at, path, libc::O_PATH | libc::O_DIRECTORY, 0)?;
                self.dirs.insert(*slot, dir);
                Ok(())
            }
            Call::Chdir(None) => sys::fchdir(self.first.as_raw_fd()),
            Call::Chdir(Some(name)) => sys::chdir(&name.path),
            Call::Umask(mode) => {
                sys::umask(mode.0);
                Ok(())
            }
        }
    }
}

fn id(id: Option<u32>) -> u32 {
    id.unwrap_or(u32::MAX)
}

fn attribute(key: u8) -> Vec<u8> {
    format!("user.law{key}").into_bytes()
}

fn bytes(data: Data) -> Vec<u8> {
    vec![data.0; data.1 as usize]
}
