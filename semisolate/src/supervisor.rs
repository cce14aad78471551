//! P1, the supervisor: builds the view, enters it, and attends to init and the caller while the command runs.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, unshare};
use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::unistd::{ForkResult, Pid, getppid};

use crate::channel::{Channel, Ended, FromInit, FromSupervisor, ToInit, ToSupervisor};
use crate::error::{Context, StartError};
use crate::ids::{self, Identity, Ids};
use crate::nodes::NodeMaker;
use crate::record::World;
use crate::run::Request;
use crate::view::{self, Owner, View};
use crate::{init, sys};

/// The supervisor's life. Never returns: it must not run what the forked caller would.
pub(crate) fn main(request: Request<'_>, caller: Channel, nodes: Option<NodeMaker>) -> ! {
    let status = match supervise(request, &caller, nodes) {
        Ok(()) => 0,
        Err(error) => {
            let message = FromSupervisor::Refused {
                message: error.to_string(),
                errno: error.errno().unwrap_or(0),
            };
            // A caller that is gone needs no reason.
            let _gone = caller.send(&message);
            1
        }
    };
    sys::exit_now(status)
}

fn supervise(
    mut request: Request<'_>,
    caller: &Channel,
    nodes: Option<NodeMaker>,
) -> Result<(), StartError> {
    let parent = getppid();
    sys::die_with_parent(Signal::SIGKILL as i32).doing(|| "follow the caller".to_owned())?;
    let descriptor_limit =
        raise_descriptor_limit().doing(|| "raise the limit on open files".to_owned())?;
    let ids = Ids::current();
    let privileged = request.identity.is_privileged();
    let outer_proc = nix::fcntl::open(
        "/proc",
        OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC,
        Mode::empty(),
    )
    .doing(|| "open /proc".to_owned())?;
    enter_building_namespaces(&request, &outer_proc, ids)?;
    let inside = ids.inside(request.identity);
    let owner = Owner {
        privileged,
        uid: inside.uid(),
        root_outside: ids.uid() == 0,
    };
    let layers = nix::fcntl::open(
        &request.layers,
        view::NAME | OFlag::O_DIRECTORY,
        Mode::empty(),
    )
    .doing(|| format!("open {}", request.layers.display()))?;
    let mut view = View::begin(&request.plan, &request.layers, owner)?;
    view.build()?;
    let (root, mut built) = view.finish();

    unshare(CloneFlags::CLONE_NEWPID).doing(|| "make a PID namespace".to_owned())?;
    let supervisor =
        sys::pidfd_open(Pid::this()).doing(|| "open the supervisor's pidfd".to_owned())?;
    let (to_init, of_init) = Channel::pair().doing(|| "make a socket pair".to_owned())?;
    let (from_command, of_command) =
        std::os::unix::net::UnixStream::pair().doing(|| "make a socket pair".to_owned())?;
    let init_pid = match sys::fork().doing(|| "fork init".to_owned())? {
        ForkResult::Parent { child } => child,
        ForkResult::Child => {
            let world = init::Init {
                request: &request,
                channel: of_init,
                supervisor,
                root,
                owner,
                to_supervisor: of_command.into(),
                descriptor_limit,
            };
            init::main(world)
        }
    };
    drop((of_init, of_command, supervisor));
    // Out of the terminal's way, and out of reach of what the command sends to its own process group.
    nix::unistd::setpgid(Pid::this(), Pid::this())
        .doing(|| "leave the process group".to_owned())?;
    let init = sys::pidfd_open(init_pid).doing(|| "open init's pidfd".to_owned())?;

    built.without_processes = match expect_from_init(&to_init)? {
        FromInit::Mounted { own } => !own,
        _ => return Err(StartError::Gone),
    };
    view::pivot(&root)?;
    drop(root);
    enter_final_namespaces(&request, caller, &outer_proc, inside)?;
    if let Some(user) = &request.user {
        user.take_on_with_capabilities()
            .doing(|| format!("become user {}", user.uid))?;
    }
    // What changes credentials clears this.
    sys::die_with_parent(Signal::SIGKILL as i32).doing(|| "follow the caller".to_owned())?;
    if getppid() != parent {
        return Err(StartError::Gone);
    }
    to_init
        .send(&ToInit::Join)
        .doing(|| "tell init".to_owned())?;
    if !matches!(expect_from_init(&to_init)?, FromInit::Joined) {
        return Err(StartError::Gone);
    }
    if built.without_processes {
        // There the command sees this process, whose descriptors lead to what is real. (Init could not have joined.)
        sys::set_undumpable().doing(|| "close the supervisor to the command".to_owned())?;
    }

    caller
        .send(&FromSupervisor::Ready(built.clone()))
        .doing(|| "tell the caller".to_owned())?;
    match caller
        .receive()
        .doing(|| "hear from the caller".to_owned())?
    {
        Some(ToSupervisor::Go) => to_init.send(&ToInit::Go).doing(|| "tell init".to_owned())?,
        _ => return Ok(()),
    }
    let mut ended = None;
    let pump = Pump {
        channel: caller,
        init: &to_init,
        ended: &mut ended,
    };
    match &mut request.recorder {
        Some(recorder) => recorder.supervise(World {
            from_command: from_command.as_fd(),
            init: init.as_fd(),
            init_pid: init_pid.as_raw(),
            outer_proc: outer_proc.as_fd(),
            layers: layers.as_fd(),
            nodes,
            built: &built,
            pump,
        }),
        None => pump.run(),
    }
    .doing(|| "record the command".to_owned())?;
    if let Some(ended) = ended {
        caller
            .send(&FromSupervisor::Command(FromInit::Ended(ended)))
            .doing(|| "tell the caller".to_owned())?;
    }
    Ok(())
}

/// Makes room for the descriptors of layers and tracees. The limit that the command is to have again.
fn raise_descriptor_limit() -> io::Result<Limit> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    Ok(Limit { soft, hard })
}

/// A soft and a hard limit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limit {
    pub(crate) soft: rlim_t,
    pub(crate) hard: rlim_t,
}

/// The namespaces in which the view is built: its mounts belong to them and are locked for what runs later.
fn enter_building_namespaces(
    request: &Request<'_>,
    proc: &OwnedFd,
    ids: Ids,
) -> Result<(), StartError> {
    let mut flags = CloneFlags::CLONE_NEWNS;
    if !request.network {
        flags |= CloneFlags::CLONE_NEWNET;
    }
    if !request.identity.is_privileged() {
        flags |= CloneFlags::CLONE_NEWUSER;
    }
    unshare(flags).doing(|| {
        if request.identity.is_privileged() {
            "make a mount namespace"
        } else {
            "make a user namespace"
        }
        .to_owned()
    })?;
    if !request.identity.is_privileged() {
        ids::map_one(proc, ids, request.identity)
            .doing(|| "map the user in the new namespace".to_owned())?;
    }
    if !request.network {
        sys::loopback_up().doing(|| "bring the loopback interface up".to_owned())?;
    }
    Ok(())
}

/// The namespaces in which the command runs.
fn enter_final_namespaces(
    request: &Request<'_>,
    caller: &Channel,
    proc: &OwnedFd,
    ids: Ids,
) -> Result<(), StartError> {
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS)
        .doing(|| "make the inner user namespace".to_owned())?;
    if request.identity == Identity::All {
        caller
            .send(&FromSupervisor::MapIds)
            .doing(|| "tell the caller".to_owned())?;
        match caller
            .receive()
            .doing(|| "hear from the caller".to_owned())?
        {
            Some(ToSupervisor::Mapped) => Ok(()),
            _ => Err(StartError::Gone),
        }
    } else {
        ids::map_one(proc, ids, Identity::Own)
            .doing(|| "map the user in the inner namespace".to_owned())
    }
}

/// What init says next, unless it failed.
fn expect_from_init(init: &Channel) -> Result<FromInit, StartError> {
    match init.receive().doing(|| "hear from init".to_owned())? {
        Some(FromInit::Refused { message, errno }) => Err(StartError::Refused { message, errno }),
        Some(message) => Ok(message),
        None => Err(StartError::Gone),
    }
}

/// What came of a turn of the pump.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// The command runs.
    GoOn,
    /// The command and all its descendants have ended.
    Ended,
    /// The caller or init is gone: nothing is worth waiting for.
    Abandoned,
}

/// What the supervisor must attend to while the command runs: the caller's wishes and init's reports.
pub struct Pump<'p> {
    channel: &'p Channel,
    init: &'p Channel,
    ended: &'p mut Option<Ended>,
}

impl Pump<'_> {
    /// Readable when `turn` has something to do.
    #[must_use]
    pub fn readable(&self) -> [BorrowedFd<'_>; 2] {
        [self.channel.as_fd(), self.init.as_fd()]
    }

    /// Attends to what is waiting.
    ///
    /// # Errors
    /// The caller or init cannot be talked to.
    pub fn turn(&mut self) -> io::Result<Turn> {
        let [from_caller, from_init] = ready(self.readable(), PollTimeout::ZERO)?;
        if from_caller {
            match self.channel.receive()? {
                Some(message) => {
                    let message = match message {
                        ToSupervisor::Signal(signal) => Some(ToInit::Signal(signal)),
                        ToSupervisor::GroupSignal(signal) => Some(ToInit::GroupSignal(signal)),
                        ToSupervisor::Front => Some(ToInit::Front),
                        ToSupervisor::Mapped | ToSupervisor::Go => None,
                    };
                    // Init may have ended.
                    let _gone = message.map(|message| self.init.send(&message));
                }
                None => return Ok(Turn::Abandoned),
            }
        }
        if from_init {
            match self.init.receive()? {
                Some(FromInit::Ended(ended)) => {
                    *self.ended = Some(ended);
                    return Ok(Turn::Ended);
                }
                Some(message) => self.channel.send(&FromSupervisor::Command(message))?,
                None => return Ok(Turn::Abandoned),
            }
        }
        Ok(Turn::GoOn)
    }

    /// Attends to all until the command has ended, or the caller or init is gone.
    ///
    /// # Errors
    /// As for [`turn`](Self::turn).
    pub fn run(mut self) -> io::Result<()> {
        loop {
            ready(self.readable(), PollTimeout::NONE)?;
            if self.turn()? != Turn::GoOn {
                return Ok(());
            }
        }
    }
}

fn ready(fds: [BorrowedFd<'_>; 2], timeout: PollTimeout) -> io::Result<[bool; 2]> {
    let mut fds = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN));
    loop {
        match poll(&mut fds, timeout) {
            Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
            Ok(_) => return Ok(fds.map(|fd| fd.any().unwrap_or(false))),
        }
    }
}
