//! Runs a program under the supervisor, on a plain directory: a child installs the filter and executes the program, a thread
//! of the test supervises.

use effigy_journal::{Budget, Entry, Event, Note, Op, Reader, Tail, Versions, Writer};
use effigy_tracer::{Attend, Flow, Layer, Options, Report, Tracer, World};
use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Instant;

/// Ends the loop when the other end of a socket pair closes.
struct Closed(UnixStream);

impl Attend for Closed {
    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.0.as_fd()]
    }

    fn attend(&mut self) -> std::io::Result<Flow> {
        Ok(if self.0.read(&mut [0; 8])? == 0 {
            Flow::Ended
        } else {
            Flow::Continue
        })
    }
}

pub(crate) struct Recording {
    pub(crate) stdout: Vec<u8>,
    pub(crate) status: ExitStatus,
    pub(crate) report: Report,
    pub(crate) entries: Vec<Entry>,
    pub(crate) events: Vec<Event>,
    pub(crate) lines: Vec<String>,
    /// The paths of each event.
    pub(crate) paths: Vec<(PathBuf, Option<PathBuf>)>,
    pub(crate) notes: Vec<Note>,
    pub(crate) versions: PathBuf,
    pub(crate) journal_bytes: u64,
    pub(crate) tail: Tail,
}

pub(crate) struct Scratch {
    pub(crate) dir: tempfile::TempDir,
    layered: bool,
}

impl Scratch {
    pub(crate) fn new() -> Self {
        let dir = tempfile::Builder::new()
            .prefix("effigy-tracer-")
            .tempdir()
            .unwrap();
        std::fs::create_dir(dir.path().join("work")).unwrap();
        Self {
            dir,
            layered: false,
        }
    }

    /// With the working directory as the one layer.
    pub(crate) fn layered() -> Self {
        Self {
            layered: true,
            ..Self::new()
        }
    }

    /// Where programs run.
    pub(crate) fn work(&self) -> PathBuf {
        std::fs::canonicalize(self.dir.path().join("work")).unwrap()
    }

    pub(crate) fn run(&self, program: &str, args: &[&str]) -> Recording {
        self.run_with(program, args, Options::default())
    }

    pub(crate) fn python(&self, code: &str) -> Recording {
        self.run(python(), &["-c", code])
    }

    pub(crate) fn run_with(&self, program: &str, args: &[&str], options: Options) -> Recording {
        let store = self.dir.path().join("store");
        if store.exists() {
            std::fs::remove_dir_all(&store).unwrap();
        }
        std::fs::create_dir_all(store.join("versions")).unwrap();
        let journal = File::create_new(store.join("journal")).unwrap();
        let versions = OwnedFd::from(File::open(store.join("versions")).unwrap());
        let (to, from) = UnixStream::pair().unwrap();
        let (end, ended) = UnixStream::pair().unwrap();

        // Stands for an overlay whose upper directory shows everything.
        let layers = if self.layered {
            vec![Layer {
                number: 0,
                mount_point: self.work(),
                upper: OwnedFd::from(File::open(self.work()).unwrap()),
                unprivileged: false,
                filesystem: 1,
            }]
        } else {
            Vec::new()
        };
        let supervisor = std::thread::spawn(move || {
            let listener = effigy_tracer::receive_listener(from.as_fd()).unwrap();
            let mut attend = Closed(ended);
            effigy_tracer::supervise(World {
                listener,
                outer_proc: OwnedFd::from(File::open("/proc").unwrap()),
                init: 0,
                layers,
                journal: Writer::create(journal).unwrap(),
                versions: Versions::new(versions, Budget::default(), 0),
                earlier: 0,
                recorded: None,
                start: Instant::now(),
                options,
                command_caps: None,
                nodes: None,
                own: Vec::new(),
                outer_numbers: false,
                attend: &mut attend,
            })
        });

        let prepared = Tracer::prepare(options);
        let mut command = Command::new(program);
        command.args(args).current_dir(self.work());
        // SAFETY: between fork and exec only `arm` runs, which allocates nothing.
        unsafe { command.pre_exec(move || prepared.arm(to.as_fd())) };
        let output = command
            .stderr(std::process::Stdio::inherit())
            .output()
            .unwrap();
        let status = output.status;
        drop(end);
        let report = supervisor.join().unwrap().unwrap();
        self.read(&store, (status, output.stdout), report)
    }

    fn read(
        &self,
        store: &Path,
        (status, stdout): (ExitStatus, Vec<u8>),
        report: Report,
    ) -> Recording {
        let file = File::open(store.join("journal")).unwrap();
        let journal_bytes = file.metadata().unwrap().len();
        let mut reader = Reader::open(file).unwrap();
        let mut paths = Vec::new();
        let (mut entries, mut events, mut lines, mut notes) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let work = self.work();
        while let Some(entry) = reader.next_entry().unwrap() {
            match &entry {
                Entry::Event(event) => {
                    let show = |id: Option<effigy_journal::PathId>| {
                        let path = id.map(|id| reader.paths().path(id)).unwrap_or_default();
                        path.strip_prefix(&work)
                            .unwrap_or(&path)
                            .to_string_lossy()
                            .into_owned()
                    };
                    paths.push((
                        event
                            .op
                            .path()
                            .map(|id| reader.paths().path(id))
                            .unwrap_or_default(),
                        event.op.to().map(|id| reader.paths().path(id)),
                    ));
                    let (a, b) = (show(event.op.path()), show(event.op.to()));
                    let result = match event.result {
                        effigy_journal::Outcome::Ok => "ok".to_owned(),
                        effigy_journal::Outcome::Errno(errno) => {
                            format!("{}", nix::errno::Errno::from_raw(errno))
                                .split(':')
                                .next()
                                .unwrap()
                                .to_owned()
                        }
                        effigy_journal::Outcome::Unknown => "?".to_owned(),
                    };
                    if event.op.is_effect() {
                        let by = match event.by {
                            effigy_journal::By::Performed => "p",
                            effigy_journal::By::Observed(_) => "o",
                        };
                        lines.push(
                            format!("{} {a} {b} {result} {by}", event.op.name()).replace("  ", " "),
                        );
                    }
                    events.push(event.clone());
                }
                Entry::Note(note) => notes.push(note.clone()),
                _ => {}
            }
            entries.push(entry);
        }
        Recording {
            stdout,
            paths,
            status,
            report,
            entries,
            events,
            lines,
            notes,
            versions: store.join("versions"),
            journal_bytes,
            tail: reader.tail(),
        }
    }
}

impl Recording {
    /// Fails unless a line begins with this.
    pub(crate) fn has(&self, start: &str) {
        assert!(
            self.lines.iter().any(|line| line.starts_with(start)),
            "no {start:?} in {:#?}",
            self.lines
        );
    }

    pub(crate) fn ok(&self) -> &Self {
        assert!(
            self.status.success(),
            "{:?}: {:#?}",
            self.status,
            self.lines
        );
        self
    }

    pub(crate) fn execs(&self) -> usize {
        self.events
            .iter()
            .filter(|event| matches!(event.op, Op::Exec { .. }))
            .count()
    }
}

/// A Python that is no shim: shims fork.
pub(crate) fn python() -> &'static str {
    if Path::new("/usr/bin/python3").exists() {
        "/usr/bin/python3"
    } else {
        "python3"
    }
}
