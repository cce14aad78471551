//! A real tree, a store, and sessions whose layers a real overlayfs has written.

use effigy_journal::{Cover, RootState, Session, State, Store, Timestamp};
use effigy_replay::{Options, Selection, commit, recover, undo};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Everything of one test, removed at its end.
pub(crate) struct World {
    pub(crate) dir: PathBuf,
    /// The real tree.
    pub(crate) tree: PathBuf,
    store: Store,
    _store_dir: Option<tempfile::TempDir>,
    _dir: tempfile::TempDir,
}

/// A tree by path: everything that a command could have set.
pub(crate) type Dump = BTreeMap<PathBuf, String>;

impl World {
    /// A tree made by a script; the store on the same filesystem.
    pub(crate) fn new(set_up: &str) -> Self {
        Self::on(Path::new("/var/tmp"), None, set_up)
    }

    /// Tree and store on a tmpfs, where the disk does not blur what is measured.
    pub(crate) fn in_memory(set_up: &str) -> Self {
        Self::on(Path::new("/dev/shm"), None, set_up)
    }

    /// The store on another filesystem.
    pub(crate) fn across(set_up: &str) -> Self {
        Self::on(Path::new("/var/tmp"), Some(Path::new("/dev/shm")), set_up)
    }

    fn on(place: &Path, store: Option<&Path>, set_up: &str) -> Self {
        let dir = tempfile::Builder::new()
            .prefix("replay")
            .tempdir_in(place)
            .unwrap();
        let path = dir.path().canonicalize().unwrap();
        let tree = path.join("tree");
        fs::create_dir(&tree).unwrap();
        sh(&tree, set_up);
        let store_dir = store.map(|store| {
            tempfile::Builder::new()
                .prefix("replay")
                .tempdir_in(store)
                .unwrap()
        });
        let at = store_dir
            .as_ref()
            .map_or_else(|| path.join("store"), |dir| dir.path().join("store"));
        Self {
            tree,
            store: Store::open(&at).unwrap(),
            dir: path,
            _store_dir: store_dir,
            _dir: dir,
        }
    }

    /// A copy of the tree on which the script has run as in life.
    pub(crate) fn bare(&self, script: &str) -> Dump {
        let copy = self.dir.join("bare");
        assert!(
            Command::new("cp")
                .arg("-a")
                .arg(&self.tree)
                .arg(&copy)
                .status()
                .unwrap()
                .success()
        );
        sh(&copy, script);
        let dump = dump(&copy, false);
        remove(&copy);
        dump
    }

    /// A session in which the script has run over the tree.
    pub(crate) fn run(&self, script: &str) -> Session {
        let mut session = self.store.create(None).unwrap();
        session.create_layer(0).unwrap();
        let upper = session.upper(0);
        let meta = fs::metadata(&self.tree).unwrap();
        fs::set_permissions(&upper, meta.permissions()).unwrap();
        let root = RootState {
            mode: meta.mode() & 0o7777,
            uid: meta.uid(),
            gid: meta.gid(),
        };
        session.record.covers = vec![Cover {
            layer: 0,
            mount_point: self.tree.clone(),
            root,
            staged: false,
            mounted: None,
            below: Vec::new(),
            hides: false,
        }];
        session.record.cwd = self.tree.clone();
        session.record.released = Timestamp::now();
        std::thread::sleep(std::time::Duration::from_millis(12));
        let view = self.dir.join("view");
        fs::create_dir_all(&view).unwrap();
        let mount = format!(
            "set -e; umask 022; mount -t overlay -o userxattr,index={},lowerdir={},upperdir={},workdir={} overlay {}; cd {}; ",
            if is_root() { "on" } else { "off" },
            self.tree.display(),
            upper.display(),
            session.work(0).display(),
            view.display(),
            view.display()
        );
        let mut command = Command::new("unshare");
        command.arg(if is_root() { "-m" } else { "-rm" });
        let output = command
            .args(["sh", "-c", &format!("{mount}{script}")])
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{script}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        session.clear_work().unwrap();
        session.record.state = State::Recorded;
        session.record.end = Some(Timestamp::now());
        session.save().unwrap();
        session
    }

    pub(crate) fn dump(&self) -> Dump {
        dump(&self.tree, true)
    }

    /// The tree without times, to be compared with what another run has made.
    pub(crate) fn timeless(&self) -> Dump {
        dump(&self.tree, false)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // Locked directories would keep the rest from being removed.
        let _ = Command::new("chmod")
            .args(["-R", "u+rwx"])
            .arg(&self.dir)
            .output();
    }
}

pub(crate) fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

pub(crate) fn sh(dir: &Path, script: &str) {
    let output = Command::new("timeout")
        .args(["60", "sh", "-c", &format!("set -e; umask 022; {script}")])
        .current_dir(dir)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{script}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn remove(path: &Path) {
    let _ = Command::new("chmod")
        .args(["-R", "u+rwx"])
        .arg(path)
        .output();
    fs::remove_dir_all(path).unwrap();
}

/// Reads a tree. Times only of what is no directory, and only when asked for.
pub(crate) fn dump(root: &Path, times: bool) -> Dump {
    let mut dump = Dump::new();
    let mut names: BTreeMap<(u64, u64), Vec<PathBuf>> = BTreeMap::new();
    visit(root, root, times, &mut dump, &mut names);
    for group in names.into_values().filter(|group| group.len() > 1) {
        for path in &group {
            dump.get_mut(path)
                .unwrap()
                .push_str(&format!(" linked with {group:?}"));
        }
    }
    dump
}

fn visit(
    root: &Path,
    path: &Path,
    times: bool,
    dump: &mut Dump,
    names: &mut BTreeMap<(u64, u64), Vec<PathBuf>>,
) {
    let meta = fs::symlink_metadata(path).unwrap();
    let kind = meta.file_type();
    let need = if kind.is_dir() { 0o500 } else { 0o400 };
    let locked = !is_root() && !kind.is_symlink() && meta.mode() & need != need;
    let content = if kind.is_file() {
        unlocked(locked, || {
            String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned()
        })
    } else if kind.is_symlink() {
        fs::read_link(path).unwrap().display().to_string()
    } else {
        String::new()
    };
    let digest = if content.len() > 100 {
        format!("{} bytes, sum {}", content.len(), sum(&content))
    } else {
        content
    };
    let xattrs = if kind.is_file() || kind.is_dir() {
        unlocked(locked, || xattrs(path))
    } else {
        Vec::new()
    };
    let size = if kind.is_dir() { 0 } else { meta.size() };
    let mut line = format!(
        "{:o} {}:{} size {size} rdev {} {digest:?} {xattrs:?}",
        meta.mode(),
        meta.uid(),
        meta.gid(),
        meta.rdev()
    );
    if times && !kind.is_dir() {
        line.push_str(&format!(" mtime {}.{}", meta.mtime(), meta.mtime_nsec()));
    }
    let rel = path.strip_prefix(root).unwrap().to_owned();
    if !kind.is_dir() {
        names
            .entry((meta.dev(), meta.ino()))
            .or_default()
            .push(rel.clone());
    }
    dump.insert(rel, line);
    if kind.is_dir() {
        unlocked(locked, || {
            for entry in fs::read_dir(path).unwrap() {
                visit(root, &entry.unwrap().path(), times, dump, names);
            }
        });
    }
}

/// Looks into what its owner has not locked: opening it would be a change that undo must refuse to overwrite.
fn unlocked<T: Default>(locked: bool, look: impl FnOnce() -> T) -> T {
    if locked { T::default() } else { look() }
}

fn sum(text: &str) -> u64 {
    text.bytes().fold(14_695_981_039_346_656_037, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(1_099_511_628_211)
    })
}

/// Names and values as getfattr(1) prints them, overlayfs's own included: none may ever be seen.
fn xattrs(path: &Path) -> Vec<String> {
    let name = std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap();
    let mut list = vec![0_u8; 65536];
    // SAFETY: the buffer outlives the call and its length is given.
    let n = unsafe { libc::llistxattr(name.as_ptr(), list.as_mut_ptr().cast(), list.len()) };
    let n = usize::try_from(n).unwrap_or(0);
    let mut found = Vec::new();
    for attribute in list[..n].split(|&b| b == 0).filter(|name| !name.is_empty()) {
        let key = std::ffi::CString::new(attribute).unwrap();
        let mut value = vec![0_u8; 65536];
        // SAFETY: as above.
        let n = unsafe {
            libc::lgetxattr(
                name.as_ptr(),
                key.as_ptr(),
                value.as_mut_ptr().cast(),
                value.len(),
            )
        };
        value.truncate(usize::try_from(n).unwrap_or(0));
        found.push(format!(
            "{}={}",
            key.to_string_lossy(),
            std::ffi::OsString::from_vec(value).display()
        ));
    }
    found.sort();
    found
}

/// Commits everything.
pub(crate) fn commit_all(session: &mut Session, options: &Options) {
    let options = &Options {
        devices: true,
        ..*options
    };
    session.lock_exclusive().unwrap();
    let options = Options {
        devices: true,
        ..*options
    };
    commit::commit(session, &Selection::all(), &options, &mut |_| ()).unwrap();
}

/// Takes the last apply back.
pub(crate) fn undo_last(session: &mut Session) {
    session.lock_exclusive().unwrap();
    let plan = undo::plan(session, &Options::default()).unwrap();
    undo::apply(plan, session, &mut |_| ()).unwrap();
}

/// Recovers, and says what it did.
pub(crate) fn recovered(session: &mut Session) -> recover::Outcome {
    session.lock_exclusive().unwrap();
    let recovered = recover::recover(session, &Options::default(), &mut |_| ()).unwrap();
    assert!(recovered.left.is_empty(), "left: {:?}", recovered.left);
    recovered.outcome
}
