//! A session whose journal is written by the test, and the tree it is about.

use effigy_journal::{
    By, Cover, Entry, NewEvent, Op, Outcome, PathId, ProcessId, Reader, RootState, Session, State,
    Store, Tid, Timestamp, VersionContent, VersionId, VersionRecord, Writer,
};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A tree by path: type, mode, size, target or content, and which names are of one file.
pub(crate) type Dump = BTreeMap<PathBuf, String>;

pub(crate) struct Recording {
    pub(crate) tree: PathBuf,
    pub(crate) session: Session,
    writer: Option<Writer>,
    process: ProcessId,
    versions: u32,
    _dir: tempfile::TempDir,
}

impl Recording {
    /// A tree made by a script, and a session that begins now.
    pub(crate) fn of(set_up: &str) -> Self {
        let dir = tempfile::Builder::new()
            .prefix("replay")
            .tempdir_in("/var/tmp")
            .unwrap();
        let path = dir.path().canonicalize().unwrap();
        let tree = path.join("tree");
        fs::create_dir(&tree).unwrap();
        sh(&tree, set_up);
        let store = Store::open(&path.join("store")).unwrap();
        let mut session = store.create(Some("s")).unwrap();
        session.create_layer(0).unwrap();
        fs::create_dir_all(session.versions()).unwrap();
        session.record.cwd.clone_from(&tree);
        session.record.covers.push(Cover {
            layer: 0,
            mount_point: tree.clone(),
            root: RootState {
                mode: 0o755,
                uid: 0,
                gid: 0,
            },
            staged: false,
            mounted: None,
            below: Vec::new(),
            hides: false,
        });
        session.record.traced = true;
        // What the script has made is not foreign.
        std::thread::sleep(std::time::Duration::from_millis(15));
        session.record.released = Timestamp::now();
        session.record.state = State::Recorded;
        session.save().unwrap();
        let mut options = fs::OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true);
        let mut writer = Writer::create(options.open(session.journal()).unwrap()).unwrap();
        let process = writer.process(None, 2, 0).unwrap();
        Self {
            tree,
            session,
            writer: Some(writer),
            process,
            versions: 0,
            _dir: dir,
        }
    }

    fn writer(&mut self) -> &mut Writer {
        self.writer.as_mut().unwrap()
    }

    pub(crate) fn path(&mut self, name: &str) -> PathId {
        let path = self.tree.join(name);
        self.writer().path(&path).unwrap()
    }

    pub(crate) fn event(&mut self, op: Op) {
        let process = self.process;
        self.writer()
            .append(NewEvent {
                time: 0,
                process,
                tid: Tid(2),
                by: By::Performed,
                op,
                result: Outcome::Ok,
            })
            .unwrap();
    }

    /// A version with this content.
    fn version(&mut self, content: &str) -> VersionId {
        let id = VersionId(self.versions);
        self.versions += 1;
        fs::write(self.session.versions().join(id.0.to_string()), content).unwrap();
        let content = VersionContent::Sealed {
            len: content.len() as u64,
        };
        let stat = None;
        self.writer()
            .version(VersionRecord { id, content, stat })
            .unwrap();
        id
    }

    pub(crate) fn write(&mut self, name: &str, created: bool, content: &str) {
        let version = Some(self.version(content));
        let path = self.path(name);
        self.event(Op::Open {
            path,
            flags: 0,
            mode: if created { 0o640 } else { 0 },
            created,
            truncated: !created,
            version,
        });
    }

    pub(crate) fn mkdir(&mut self, name: &str) {
        let path = self.path(name);
        self.event(Op::Mkdir { path, mode: 0o750 });
    }

    pub(crate) fn rmdir(&mut self, name: &str) {
        let path = self.path(name);
        self.event(Op::Rmdir { path });
    }

    pub(crate) fn unlink(&mut self, name: &str) {
        let path = self.path(name);
        self.event(Op::Unlink { path });
    }

    pub(crate) fn rename(&mut self, from: &str, to: &str, replaced: bool) {
        let (from, to) = (self.path(from), self.path(to));
        self.event(Op::Rename {
            from,
            to,
            flags: 0,
            replaced,
        });
    }

    pub(crate) fn exchange(&mut self, one: &str, other: &str) {
        let (path, to) = (self.path(one), self.path(other));
        self.event(Op::Exchange { path, to });
    }

    pub(crate) fn link(&mut self, from: &str, to: &str) {
        let (from, to) = (self.path(from), self.path(to));
        self.event(Op::Link { from, to });
    }

    pub(crate) fn symlink(&mut self, name: &str, target: &str) {
        let path = self.path(name);
        self.event(Op::Symlink {
            path,
            target: target.as_bytes().into(),
        });
    }

    pub(crate) fn chmod(&mut self, name: &str, mode: u32) {
        let path = self.path(name);
        self.event(Op::Chmod { path, mode });
    }

    /// Ends the journal.
    pub(crate) fn end(&mut self) {
        self.writer.take().unwrap().finish(0, 0).unwrap();
        self.session.save().unwrap();
    }

    /// The number of events.
    pub(crate) fn len(&self) -> u64 {
        let file = fs::File::open(self.session.journal()).unwrap();
        let mut reader = Reader::open(file).unwrap();
        let mut last = 0;
        while let Some(entry) = reader.next_entry().unwrap() {
            if let Entry::Event(event) = entry {
                last = event.seq.0;
            }
        }
        last
    }

    pub(crate) fn dump(&self) -> Dump {
        dump(&self.tree)
    }
}

pub(crate) fn sh(dir: &Path, script: &str) {
    let shell = Command::new("sh")
        .args(["-euc", script])
        .current_dir(dir)
        .status();
    assert!(shell.unwrap().success(), "{script}");
}

pub(crate) fn dump(root: &Path) -> Dump {
    let mut found = Dump::new();
    let mut names = BTreeMap::new();
    visit(root, Path::new(""), &mut found, &mut names);
    found
}

fn visit(root: &Path, name: &Path, into: &mut Dump, names: &mut BTreeMap<u64, PathBuf>) {
    let path = root.join(name);
    let node = fs::symlink_metadata(&path).unwrap();
    let kind = node.file_type();
    let what = if kind.is_symlink() {
        format!("-> {}", fs::read_link(&path).unwrap().display())
    } else if kind.is_dir() {
        let mut below: Vec<_> = fs::read_dir(&path)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        below.sort();
        for entry in below {
            visit(root, &name.join(entry), into, names);
        }
        "directory".to_owned()
    } else {
        let first = names.entry(node.ino()).or_insert_with(|| name.to_owned());
        let content = std::ffi::OsString::from_vec(fs::read(&path).unwrap());
        format!("{} as {}", content.display(), first.display())
    };
    into.insert(name.to_owned(), format!("{:o} {what}", node.mode()));
}
