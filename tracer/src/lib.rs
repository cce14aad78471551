//! effigy-tracer: the seccomp user-notify supervisor that records what a command does to the filesystem.
//!
//! It guards one invariant: **what the journal calls performed is what the kernel executed, in that order.** One serial loop
//! receives every trapped call, resolves its path by descriptor, executes it with the rights of the calling task, answers with
//! the exact result, and only then appends the event. What the supervisor cannot execute itself it lets the task execute, and
//! the event says why.
//!
//! ```
//! use effigy_tracer::{Options, Tracer};
//!
//! // Before anything is forked:
//! let prepared = Tracer::prepare(Options { reads: false });
//! assert!(prepared.instructions() < 4096);
//! // In the child, just before execve:   prepared.arm(socket)?;
//! // In the supervisor:                  let listener = effigy_tracer::receive_listener(socket)?;
//! //                                     let report = effigy_tracer::supervise(world)?;
//! ```

#![warn(missing_docs)]
#![warn(clippy::exit, clippy::print_stdout, clippy::print_stderr)]

mod covers;
mod decode;
pub mod filter;
mod listener;
mod memory;
mod model;
mod move_tree;
mod parents;
mod pending;
mod recall;
mod recent;
mod reconcile;
mod recorder;
mod resolve;
mod supervisor;
mod sys;
pub mod syscalls;
mod tasks;

use effigy_journal::writer::WriteError;
use effigy_journal::{Versions, Writer};
use effigy_semisolate::NodeMaker;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::Instant;

/// What to trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Record opens for reading, stat, access, readlink, getxattr and chdir too.
    pub reads: bool,
}

/// Prepares what a command needs to be traced.
#[derive(Clone, Copy, Debug)]
pub struct Tracer;

impl Tracer {
    /// Builds the filter for this machine, before anything is forked. Nothing is installed yet.
    #[must_use]
    pub fn prepare(options: Options) -> Prepared {
        Prepared {
            options,
            program: filter::build(options.reads),
        }
    }
}

/// A filter ready to be installed.
#[derive(Clone)]
pub struct Prepared {
    options: Options,
    program: Vec<libc::sock_filter>,
}

impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prepared")
            .field("options", &self.options)
            .field("instructions", &self.program.len())
            .finish()
    }
}

impl Prepared {
    /// The options it was made with.
    #[must_use]
    pub fn options(&self) -> Options {
        self.options
    }

    /// How long the filter is.
    #[must_use]
    pub fn instructions(&self) -> usize {
        self.program.len()
    }

    /// Installs the filter on the calling thread and sends the listener over `socket` (a Unix socket: SCM_RIGHTS and one byte).
    ///
    /// To be called in the process that becomes the command, single-threaded, just before execve. Allocates nothing, and makes
    /// no trapped call after the filter stands. The execve that follows is trapped: the supervisor must be running by then.
    /// no_new_privs is set only where installing without it is refused (no CAP_SYS_ADMIN in the user namespace).
    ///
    /// # Errors
    ///
    /// EBUSY: a listener is already present (a run within a run). EINVAL: the kernel lacks wait-killable notifications (before
    /// 5.19).
    pub fn arm(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        listener::open_to_supervisor()?;
        let listener = listener::install(&self.program)?;
        listener::send(socket, listener.as_fd())
    }
}

/// Receives the listener that [`Prepared::arm`] sent, in the supervisor.
///
/// # Errors
///
/// UnexpectedEof when the sender ended without arming, else what recvmsg(2) says.
pub fn receive_listener(socket: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    listener::receive(socket)
}

/// One covered mount as the supervisor sees it.
#[derive(Debug)]
pub struct Layer {
    /// Number of the cover in the session record.
    pub number: u32,
    /// Its mount point in the view: absolute, without symbolic links.
    pub mount_point: PathBuf,
    /// The upper directory, opened O_PATH (or for reading) before the view hid it.
    pub upper: OwnedFd,
    /// The overlay was mounted inside a user namespace: identities of lower files do not survive a link there.
    pub unprivileged: bool,
    /// Tells mounts of the real tree apart: covers with the same number stand for parts of one real mount, between which a
    /// rename would have succeeded.
    pub filesystem: u64,
}

/// What the loop should do after the rest of the supervisor's duties was attended to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Go on.
    Continue,
    /// The whole tree has ended.
    Ended,
    /// End at once; the recording stays incomplete.
    Stop,
}

/// What else the supervising process must attend to: it knows when all has ended.
pub trait Attend {
    /// Descriptors to wait for.
    fn fds(&self) -> Vec<BorrowedFd<'_>>;

    /// Called when one of them is readable or at its end.
    ///
    /// # Errors
    ///
    /// Ends the loop.
    fn attend(&mut self) -> io::Result<Flow>;
}

/// Attends to nothing but the end of one process, such as the init of the command's PID namespace.
#[derive(Debug)]
pub struct UntilEnd {
    /// Its pidfd.
    pub pidfd: OwnedFd,
}

impl Attend for UntilEnd {
    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.pidfd.as_fd()]
    }

    fn attend(&mut self) -> io::Result<Flow> {
        Ok(Flow::Ended)
    }
}

/// All the supervisor needs from whoever built the semisolate. Descriptors were opened before the view hid what they hold.
pub struct World<'w> {
    /// The listener of the filter.
    pub listener: OwnedFd,
    /// O_PATH descriptor of the /proc of the supervisor's own PID namespace.
    pub outer_proc: OwnedFd,
    /// The pid, in the supervisor's namespace, of the init of the command's PID namespace; 0 without one.
    pub init: u32,
    /// The covers of the view. Without any (tests), everything outside /proc, /sys and /dev is recorded.
    pub layers: Vec<Layer>,
    /// The journal.
    pub journal: Writer,
    /// The versions.
    pub versions: Versions,
    /// The start of the run.
    pub start: Instant,
    /// Nanoseconds from the start of the session to that of the run: event times count from the former.
    pub earlier: u64,
    /// The journal once more, when the session goes on: what earlier runs have done is read from it.
    pub recorded: Option<File>,
    /// What is traced: the options given to [`Tracer::prepare`].
    pub options: Options,
    /// The effective capabilities the command starts with; the supervisor performs calls with these. `None`: those the
    /// supervisor has.
    pub command_caps: Option<u64>,
    /// Makes device nodes where the supervisor's user namespace may not: in a session of real root.
    pub nodes: Option<NodeMaker>,
    /// Paths in the view where effigy itself put something (hidden paths): no effects.
    pub own: Vec<PathBuf>,
    /// The view's /proc has the numbers of the supervisor's PID namespace, not of the command's.
    pub outer_numbers: bool,
    /// The rest of the supervisor's duties.
    pub attend: &'w mut dyn Attend,
}

impl fmt::Debug for World<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World")
            .field("listener", &self.listener)
            .field("layers", &self.layers)
            .finish_non_exhaustive()
    }
}

/// What came of a supervised run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Events appended.
    pub events: u64,
    /// Calls the supervisor executed.
    pub performed: u64,
    /// Calls the tasks executed themselves, and observations.
    pub observed: u64,
    /// Net effects that no event explained; each has a settle event now. 0: the recording is complete.
    pub unexplained: u64,
    /// Known paths whose final attributes were settled.
    pub settled: u64,
    /// The kernel wakes supervisor and task synchronously (6.6).
    pub synchronous: bool,
    /// The loop ended because [`Flow::Stop`] was answered: the journal is flushed and incomplete.
    pub stopped: bool,
}

/// Why a run could not be supervised.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SuperviseError {
    /// The supervising process could not be set up.
    #[error("set up the supervisor: {action}")]
    Setup {
        /// What was tried.
        action: &'static str,
        /// The reason.
        source: io::Error,
    },
    /// The listener failed for good.
    #[error("receive trapped calls")]
    Listener(#[source] io::Error),
    /// What earlier runs of the session have recorded cannot be read.
    #[error(transparent)]
    Recorded(effigy_journal::ReadError),
    /// The journal cannot be written, and a recording must not go on in silence.
    #[error(transparent)]
    Journal(WriteError),
    /// What else had to be attended to failed.
    #[error("attend to the rest of the run")]
    Attend(#[source] io::Error),
}

/// CAP_SYS_PTRACE: to read the memory of tasks that made themselves undumpable.
const PTRACE: u64 = 1 << 19;

/// Runs until the tree has ended, compares layers and journal, and finishes the journal.
///
/// To be called in the supervising process, in the view, with the root directory of the view as its root. The calling thread
/// gets a working directory and an umask of its own, and keeps of its effective capabilities only those the command has (and
/// CAP_SYS_PTRACE), so that performed calls have exactly the rights of the task; all come back for the comparison.
///
/// # Errors
///
/// When the kernel or the disk refuses. The journal then holds what was recorded until then.
pub fn supervise(world: World<'_>) -> Result<Report, SuperviseError> {
    let World {
        listener,
        outer_proc,
        init,
        layers,
        journal,
        versions,
        start,
        earlier,
        recorded,
        options,
        command_caps,
        nodes,
        own,
        outer_numbers,
        attend,
    } = world;
    let setup = |action| move |source| SuperviseError::Setup { action, source };
    sys::raise_descriptor_limit();
    sys::lift_size_limit();
    sys::unshare_fs().map_err(setup("unshare the working directory"))?;
    // Names below it are how descriptors and tasks are reached, whatever the view holds.
    sys::fchdir(outer_proc.as_fd()).map_err(setup("enter the outer /proc"))?;
    let [effective, permitted, _] = sys::capget().map_err(setup("read capabilities"))?;
    let caps = command_caps.unwrap_or(effective);
    sys::set_effective(caps | PTRACE).map_err(setup("give capabilities up"))?;

    let (listener, synchronous) = listener::Listener::new(listener);
    let covers = covers::Covers::new(layers, outer_proc.as_fd());
    let tasks = tasks::Tasks::new(outer_proc, init, caps)
        .map_err(|errno| setup("look at the view")(io::Error::from_raw_os_error(errno.0)))?;
    let mut recorder = recorder::Recorder::new(journal, versions, start, earlier);
    if let Some(recorded) = recorded {
        recorder.model = recall::recall(recorded).map_err(SuperviseError::Recorded)?;
    }
    let mut supervisor =
        supervisor::Supervisor::new(listener, tasks, covers, recorder, nodes, options.reads)
            .map_err(setup("wait for several things"))?;
    supervisor.outer_numbers = outer_numbers;
    let stopped = supervisor.run(attend)?;
    supervisor.settle_all();
    let (mut recorder, covers) = supervisor.into_parts();

    let mut report = Report {
        synchronous,
        stopped,
        ..Report::default()
    };
    if !stopped {
        sys::set_effective(permitted).map_err(setup("take capabilities back"))?;
        let own: Vec<&[u8]> = own
            .iter()
            .map(|path| std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str()))
            .collect();
        let found = reconcile::reconcile(&mut recorder, &covers, &|path| own.contains(&path));
        (report.unexplained, report.settled) = (found.unexplained, found.settled);
    }
    (report.events, report.performed, report.observed) =
        (recorder.events, recorder.performed, recorder.observed);
    if stopped {
        recorder.flush();
    }
    if let Some(failure) = recorder.failure() {
        return Err(SuperviseError::Journal(failure));
    }
    if !stopped {
        recorder
            .finish(report.unexplained)
            .map_err(SuperviseError::Journal)?;
    }
    Ok(report)
}
