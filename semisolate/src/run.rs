//! Running a command in a semisolate: the four processes.
//!
//! P0, the caller, forks P1 while it is single-threaded and keeps the real filesystem. P1, the supervisor, builds the view and
//! enters it, but not its PID namespace, so the command can neither see nor signal it. P2 is PID 1 of the new PID namespace: it
//! mounts /proc, reaps, and ends with P1. P3 becomes the command.
//!
//! The final user and mount namespaces are made after everything is in place and own nothing of it. So every mount of the view is
//! locked for whatever runs inside, with whatever capabilities: nothing can be unmounted or made writable again.

use std::ffi::{CString, OsString};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;

use nix::sys::signal::{SigSet, Signal};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid};

use crate::channel::{Channel, Ended, FromInit, FromSupervisor, ToSupervisor};
use crate::error::{Context, ExecError, StartError};
use crate::ids::{self, Identity, User};
use crate::nodes::{self, NodeService};
use crate::plan::Plan;
use crate::record::Recorder;
use crate::view::Built;
use crate::{supervisor, sys};

/// What to run, and in which surroundings.
pub struct Request<'r> {
    /// The program and its arguments, as given.
    pub argv: Vec<OsString>,
    /// The command's environment: `NAME=value`.
    pub environment: Vec<CString>,
    /// The command's working directory: absolute, without symbolic links.
    pub working_directory: PathBuf,
    /// What is placed where.
    pub plan: Plan,
    /// Who the command is inside.
    pub identity: Identity,
    /// Another user than root, for the command of a real root.
    pub user: Option<User>,
    /// The session's directory of layers.
    pub layers: PathBuf,
    /// Without, the command has a loopback interface only.
    pub network: bool,
    /// The signal mask that the command is to have.
    pub signal_mask: SigSet,
    /// Which process group the command is in.
    pub group: Group,
    /// Where no process directory can be mounted (containers mask parts of theirs), go on with what of the machine's own is harmless:
    /// read-only, and without its processes listed.
    pub without_processes: bool,
    /// Records what the command does.
    pub recorder: Option<Box<dyn Recorder + 'r>>,
}

/// The process group of the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// The caller's. From inside it has no number: an interactive shell that wants to give the terminal back to it cannot.
    Callers,
    /// One of its own, for a command without a terminal: what it sends to its group reaches nobody outside.
    Own,
    /// One of its own, in front on the terminal that is standard input. The caller's must be in front until then.
    Front,
}

/// A semisolate in which nothing runs yet.
#[derive(Debug)]
pub struct Ready {
    running: Running,
    /// How the mount plan turned out.
    pub built: Built,
}

/// A command that runs in a semisolate. Dropping it kills the command and everything it started.
#[derive(Debug)]
pub struct Running {
    channel: Channel,
    supervisor: Pid,
    program: OsString,
    working_directory: PathBuf,
    /// Served from when the command is let go.
    nodes: Option<NodeService>,
}

/// What happens to a running command.
#[derive(Debug)]
pub enum Progress {
    /// It could not be executed; `Ended` follows.
    NotStarted(ExecError),
    /// A signal stopped it.
    Stopped(i32),
    /// It goes on.
    Continued,
    /// It and all its descendants have ended.
    Ended(Ended),
    /// The supervisor is gone, and the command with it; why, if it could still say so.
    Lost(Option<StartError>),
}

impl<'r> Request<'r> {
    /// A request with an empty environment and signal mask, with network and without recorder.
    #[must_use]
    pub fn new(
        argv: Vec<OsString>,
        plan: Plan,
        identity: Identity,
        working_directory: PathBuf,
        layers: PathBuf,
    ) -> Self {
        Self {
            argv,
            environment: Vec::new(),
            working_directory,
            plan,
            identity,
            user: None,
            layers,
            network: true,
            signal_mask: SigSet::empty(),
            group: Group::Callers,
            without_processes: false,
            recorder: None,
        }
    }

    /// Builds the semisolate. The caller must be single-threaded.
    ///
    /// # Errors
    /// What the machine refuses; nothing real has been changed then, and the layers hold nothing.
    pub fn build(self) -> Result<Ready, StartError> {
        let (ours, theirs) = Channel::pair().doing(|| "make a socket pair".to_owned())?;
        let program = self.argv.first().cloned().unwrap_or_default();
        let working_directory = self.working_directory.clone();
        let identity = self.identity;
        let (maker, nodes) = (identity == Identity::All)
            .then(nodes::pair)
            .transpose()
            .doing(|| "make a socket pair".to_owned())?
            .unzip();
        let supervisor = match sys::fork().doing(|| "fork the supervisor".to_owned())? {
            ForkResult::Parent { child } => child,
            ForkResult::Child => {
                drop((ours, nodes));
                supervisor::main(self, theirs, maker)
            }
        };
        drop((theirs, maker));
        let running = Running {
            channel: ours,
            supervisor,
            program,
            working_directory,
            nodes,
        };
        loop {
            match running
                .channel
                .receive()
                .doing(|| "hear from the supervisor".to_owned())?
            {
                Some(FromSupervisor::MapIds) => {
                    ids::map_all(supervisor, identity)?;
                    running.send(ToSupervisor::Mapped)?;
                }
                Some(FromSupervisor::Ready(built)) => return Ok(Ready { running, built }),
                Some(FromSupervisor::Refused { message, errno }) => {
                    return Err(StartError::Refused { message, errno });
                }
                Some(FromSupervisor::Command(_)) | None => return Err(StartError::Gone),
            }
        }
    }
}

impl Ready {
    /// Lets the command go.
    ///
    /// # Errors
    /// The supervisor is gone.
    pub fn go(mut self) -> Result<Running, StartError> {
        if let Some(nodes) = self.running.nodes.take() {
            nodes
                .start()
                .doing(|| "start the maker of device nodes".to_owned())?;
        }
        self.running.send(ToSupervisor::Go)?;
        Ok(self.running)
    }
}

impl Running {
    /// Readable when `wait` has something to say.
    #[must_use]
    pub fn readable(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }

    /// Waits for what happens next.
    pub fn wait(&mut self) -> Progress {
        match self.channel.receive() {
            Ok(Some(FromSupervisor::Command(FromInit::Exec(failure)))) => {
                Progress::NotStarted(failure.explain(self.program.clone(), &self.working_directory))
            }
            Ok(Some(FromSupervisor::Command(FromInit::Stopped(signal)))) => {
                Progress::Stopped(signal)
            }
            Ok(Some(FromSupervisor::Command(FromInit::Continued))) => Progress::Continued,
            Ok(Some(FromSupervisor::Command(FromInit::Ended(ended)))) => Progress::Ended(ended),
            Ok(Some(FromSupervisor::Refused { message, errno })) => {
                Progress::Lost(Some(StartError::Refused { message, errno }))
            }
            _ => Progress::Lost(None),
        }
    }

    /// Sends a signal to the command. It may have ended meanwhile.
    pub fn signal(&self, signal: i32) {
        // A supervisor that is gone is told by `wait`.
        let _gone = self.send(ToSupervisor::Signal(signal));
    }

    /// Sends a signal to the command and all in its process group, if that is its own.
    pub fn signal_group(&self, signal: i32) {
        // As above.
        let _gone = self.send(ToSupervisor::GroupSignal(signal));
    }

    /// Puts the group of a command that has one of its own in front on the terminal.
    pub fn to_front(&self) {
        // As above.
        let _gone = self.send(ToSupervisor::Front);
    }

    fn send(&self, message: ToSupervisor) -> Result<(), StartError> {
        self.channel
            .send(&message)
            .doing(|| "tell the supervisor".to_owned())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Its death takes init along, and init's death everything below.
        let _ended = nix::sys::signal::kill(self.supervisor, Signal::SIGKILL);
        let _reaped = waitpid(self.supervisor, None);
    }
}
