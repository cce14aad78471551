//! P2, init of the semisolate's PID namespace, and P3, which becomes the command.

use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, setns};
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::stat::Mode;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::{ForkResult, Pid};

use crate::channel::{Channel, Ended, ExecFailure, Exit, FromInit, ToInit};
use crate::devices;
use crate::error::{Context, StartError};
use crate::run::{Group, Request};
use crate::supervisor::Limit;
use crate::sys;
use crate::view::Owner;

/// What init is born with.
pub(crate) struct Init<'i> {
    pub(crate) request: &'i Request<'i>,
    pub(crate) channel: Channel,
    pub(crate) supervisor: OwnedFd,
    pub(crate) root: OwnedFd,
    pub(crate) owner: Owner,
    pub(crate) to_supervisor: OwnedFd,
    /// The command's own limit on open files.
    pub(crate) descriptor_limit: Limit,
}

/// Init's life. Never returns.
pub(crate) fn main(init: Init<'_>) -> ! {
    let status = match live(&init) {
        Ok(()) => 0,
        Err(error) => {
            let message = FromInit::Refused {
                message: error.to_string(),
                errno: error.errno().unwrap_or(0),
            };
            // A supervisor that is gone needs no reason.
            let _gone = init.channel.send(&message);
            1
        }
    };
    sys::exit_now(status)
}

fn live(init: &Init<'_>) -> Result<(), StartError> {
    let doing = || "set up init".to_owned();
    sys::die_with_parent(Signal::SIGKILL as i32).doing(doing)?;
    let own = place_processes(init).doing(|| "mount /proc".to_owned())?;
    let proc = own
        .then(|| {
            let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
            openat(&init.root, "proc", flags, Mode::empty())
        })
        .transpose()
        .doing(|| "open /proc inside".to_owned())?;
    init.channel.send(&FromInit::Mounted { own }).doing(doing)?;
    match init.channel.receive().doing(doing)? {
        Some(ToInit::Join) => {}
        _ => return Err(StartError::Gone),
    }
    setns(
        &init.supervisor,
        CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS,
    )
    .doing(|| "join the inner namespaces".to_owned())?;
    sys::die_with_parent(Signal::SIGKILL as i32).doing(doing)?;
    // The command must not trace its init: it could write its own end.
    sys::set_undumpable().doing(doing)?;
    init.channel.send(&FromInit::Joined).doing(doing)?;
    match init.channel.receive().doing(doing)? {
        Some(ToInit::Go) => {}
        _ => return Err(StartError::Gone),
    }
    let mut wanted = SigSet::empty();
    wanted.add(Signal::SIGCHLD);
    sigprocmask(SigmaskHow::SIG_BLOCK, Some(&wanted), None).doing(doing)?;
    let children = SignalFd::with_flags(&wanted, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
        .doing(doing)?;

    let program = Program::prepare(init.request);
    let argv = pointers(&program.argv);
    let environment = pointers(&program.environment);
    let (failed, failing) = nix::unistd::pipe2(OFlag::O_CLOEXEC).doing(doing)?;
    let command = match sys::fork().doing(|| "fork the command".to_owned())? {
        ForkResult::Parent { child } => child,
        ForkResult::Child => become_command(init, &program, &argv, &environment, &failing),
    };
    drop(failing);
    if let Some(failure) = read_failure(&failed) {
        init.channel.send(&FromInit::Exec(failure)).doing(doing)?;
    }
    reap(init, &children, command, proc.as_ref()).doing(|| "wait for the command".to_owned())
}

/// Places the process directory. False when it is not that of the PID namespace.
fn place_processes(init: &Init<'_>) -> io::Result<bool> {
    match devices::place_processes(&init.root, init.owner) {
        Err(error)
            if init.request.without_processes
                && matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES)) =>
        {
            devices::place_no_processes(&init.root).map(|()| false)
        }
        placed => placed.map(|()| true),
    }
}

/// Reaps and reports until the command has ended, then kills and reaps what is left.
fn reap(
    init: &Init<'_>,
    children: &SignalFd,
    command: Pid,
    proc: Option<&OwnedFd>,
) -> io::Result<()> {
    let exit = loop {
        if let Some(exit) = reap_waiting(init, command)? {
            break exit;
        }
        let mut fds = [
            PollFd::new(children.as_fd(), PollFlags::POLLIN),
            PollFd::new(init.channel.as_fd(), PollFlags::POLLIN),
        ];
        match poll(&mut fds, PollTimeout::NONE) {
            Err(Errno::EINTR) => continue,
            other => other?,
        };
        let from_supervisor = fds[1].any().unwrap_or(false);
        while children.read_signal()?.is_some() {}
        if from_supervisor {
            match init.channel.receive()? {
                Some(ToInit::Signal(signal)) => send(signal, command),
                Some(ToInit::GroupSignal(signal)) => match init.request.group {
                    Group::Callers => send(signal, command),
                    Group::Own | Group::Front => send(signal, Pid::from_raw(-command.as_raw())),
                },
                Some(ToInit::Front) => {
                    // The terminal may have been hung up.
                    let _hung_up = put_in_front(command);
                }
                Some(_) => {}
                None => sys::exit_now(1),
            }
        }
    };
    let running = proc.map(count_running);
    let mut killed = 0;
    loop {
        // Everything in this PID namespace but init itself; ESRCH when nothing is left.
        let _none = kill(Pid::from_raw(-1), Signal::SIGKILL);
        match waitid(Id::All, WaitPidFlag::WEXITED) {
            Err(Errno::ECHILD) => break,
            Ok(WaitStatus::Signaled(_, Signal::SIGKILL, _)) => killed += 1,
            Err(Errno::EINTR) | Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
    }
    // Of what dies together, a parent that asks for no news of its children takes some from the count.
    let survivors = running.unwrap_or(killed);
    init.channel
        .send(&FromInit::Ended(Ended { exit, survivors }))
}

/// Reaps all that waits to be. The command's end, if it is among it.
fn reap_waiting(init: &Init<'_>, command: Pid) -> io::Result<Option<Exit>> {
    let flags = WaitPidFlag::WEXITED
        | WaitPidFlag::WSTOPPED
        | WaitPidFlag::WCONTINUED
        | WaitPidFlag::WNOHANG;
    loop {
        match waitid(Id::All, flags) {
            Ok(WaitStatus::Exited(pid, status)) if pid == command => {
                return Ok(Some(Exit::Code(status)));
            }
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == command => {
                return Ok(Some(Exit::Signal(signal as i32)));
            }
            Ok(WaitStatus::Stopped(pid, signal)) if pid == command => {
                init.channel.send(&FromInit::Stopped(signal as i32))?;
            }
            Ok(WaitStatus::Continued(pid)) if pid == command => {
                init.channel.send(&FromInit::Continued)?
            }
            Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => return Ok(None),
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// How many processes but init run in this PID namespace; those that have ended and wait to be reaped do not count.
fn count_running(proc: &OwnedFd) -> u32 {
    let Ok(dir) = proc
        .try_clone()
        .map_err(Errno::from_io)
        .and_then(Dir::from_fd)
    else {
        return 0;
    };
    let mut count = 0;
    for entry in dir.into_iter().flatten() {
        let name = entry.file_name().to_bytes();
        if !name.iter().all(u8::is_ascii_digit) || name == b"1" {
            continue;
        }
        let stat = OsStr::from_bytes(&[name, b"/stat"].concat()).to_owned();
        let mut text = [0_u8; 512];
        let Ok(file) = openat(
            proc,
            stat.as_os_str(),
            OFlag::O_RDONLY | OFlag::O_CLOEXEC,
            Mode::empty(),
        ) else {
            continue;
        };
        let Ok(length) = nix::unistd::read(&file, &mut text) else {
            continue;
        };
        // The state follows the last parenthesis: the name between them may hold any.
        let state = text[..length]
            .rsplitn(2, |&byte| byte == b')')
            .next()
            .and_then(|rest| rest.get(1).copied());
        if !matches!(state, Some(b'Z' | b'X') | None) {
            count += 1;
        }
    }
    count
}

trait FromIo {
    fn from_io(error: io::Error) -> Self;
}

impl FromIo for Errno {
    fn from_io(error: io::Error) -> Self {
        Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

/// Everything that execve needs, made before the fork because nothing may be allocated after it.
struct Program {
    candidates: Vec<CString>,
    argv: Vec<CString>,
    environment: Vec<CString>,
    working_directory: CString,
}

impl Program {
    fn prepare(request: &Request<'_>) -> Self {
        // Arguments come from this process's own argv and getcwd(2), which hold no NUL.
        let c = |bytes: &[u8]| CString::new(bytes).unwrap_or_default();
        let name = request
            .argv
            .first()
            .map_or(&b""[..], |name| name.as_bytes());
        let candidates = if name.contains(&b'/') || name.is_empty() {
            vec![c(name)]
        } else {
            let path = request
                .environment
                .iter()
                .find_map(|entry| entry.to_bytes().strip_prefix(b"PATH="));
            path.unwrap_or(b"/bin:/usr/bin")
                .split(|&byte| byte == b':')
                .map(|dir| {
                    if dir.is_empty() {
                        c(name)
                    } else {
                        c(&[dir, b"/", name].concat())
                    }
                })
                .collect()
        };
        Self {
            candidates,
            argv: request.argv.iter().map(|word| c(word.as_bytes())).collect(),
            environment: request.environment.clone(),
            working_directory: c(request.working_directory.as_os_str().as_bytes()),
        }
    }
}

fn pointers(words: &[CString]) -> Vec<*const libc::c_char> {
    words
        .iter()
        .map(|word| word.as_ptr())
        .chain([std::ptr::null()])
        .collect()
}

/// P3 from fork to execve.
fn become_command(
    init: &Init<'_>,
    program: &Program,
    argv: &[*const libc::c_char],
    environment: &[*const libc::c_char],
    failing: &OwnedFd,
) -> ! {
    let failure = execute(init, program, argv, environment);
    let (kind, errno) = match failure {
        ExecFailure::WorkingDirectory(errno) => (0_u8, errno),
        ExecFailure::Recording(errno) => (1, errno),
        ExecFailure::Program(errno) => (2, errno),
        ExecFailure::Terminal(errno) => (3, errno),
        ExecFailure::User(errno) => (4, errno),
    };
    let mut report = [kind; 5];
    report[1..].copy_from_slice(&errno.to_ne_bytes());
    // Init is on the other end for as long as this process lives.
    let _gone = nix::unistd::write(failing, &report);
    sys::exit_now(127)
}

fn execute(
    init: &Init<'_>,
    program: &Program,
    argv: &[*const libc::c_char],
    envp: &[*const libc::c_char],
) -> ExecFailure {
    let number = |error: io::Error| error.raw_os_error().unwrap_or(libc::EIO);
    if let Err(error) = nix::unistd::chdir(program.working_directory.as_c_str()) {
        return ExecFailure::WorkingDirectory(error as i32);
    }
    if init.request.group != Group::Callers
        && let Err(error) = nix::unistd::setpgid(Pid::from_raw(0), Pid::from_raw(0))
    {
        return ExecFailure::Program(error as i32);
    }
    if init.request.group == Group::Front {
        // The terminal may have been hung up.
        let _hung_up = put_in_front(Pid::this());
    }
    if let Err(error) = sys::close_on_exec_from(3) {
        return ExecFailure::Program(number(error));
    }
    let Limit { soft, hard } = init.descriptor_limit;
    if let Err(error) = setrlimit(Resource::RLIMIT_NOFILE, soft, hard) {
        return ExecFailure::Program(error as i32);
    }
    if let Some(user) = &init.request.user
        && let Err(error) = user.take_on()
    {
        return ExecFailure::User(number(error));
    }
    if init.request.group != Group::Own
        && let Err(error) = sys::forbid_typing()
    {
        return ExecFailure::Terminal(number(error));
    }
    if let Some(recorder) = &init.request.recorder
        && let Err(error) = recorder.arm(init.to_supervisor.as_fd())
    {
        return ExecFailure::Recording(number(error));
    }
    sys::restore_signals(&init.request.signal_mask);
    // As execvp(3): a candidate that may not be executed is remembered, and the search goes on.
    let mut answer = libc::ENOENT;
    for candidate in &program.candidates {
        match number(sys::execve(candidate, argv, envp)) {
            libc::ENOENT | libc::ENOTDIR => {}
            libc::EACCES => answer = libc::EACCES,
            other => return ExecFailure::Program(other),
        }
    }
    ExecFailure::Program(answer)
}

fn send(signal: i32, to: Pid) {
    if let Ok(signal) = Signal::try_from(signal) {
        // It may have ended in this instant.
        let _ended = kill(to, signal);
    }
}

/// Puts a process group in front on the terminal that is standard input.
fn put_in_front(group: Pid) -> nix::Result<()> {
    let mut stop = SigSet::empty();
    stop.add(Signal::SIGTTOU);
    let mut before = SigSet::empty();
    // From the background it stops whoever does not block it.
    sigprocmask(SigmaskHow::SIG_BLOCK, Some(&stop), Some(&mut before))?;
    let result = nix::unistd::tcsetpgrp(std::io::stdin(), group);
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&before), None)?;
    result
}

fn read_failure(failed: &OwnedFd) -> Option<ExecFailure> {
    let mut report = [0_u8; 5];
    let length = loop {
        match nix::unistd::read(failed, &mut report) {
            Err(Errno::EINTR) => {}
            other => break other.ok()?,
        }
    };
    let [kind, errno @ ..] = report;
    let errno = i32::from_ne_bytes(errno);
    match (length, kind) {
        (5, 0) => Some(ExecFailure::WorkingDirectory(errno)),
        (5, 1) => Some(ExecFailure::Recording(errno)),
        (5, 2) => Some(ExecFailure::Program(errno)),
        (5, 3) => Some(ExecFailure::Terminal(errno)),
        (5, 4) => Some(ExecFailure::User(errno)),
        _ => None,
    }
}
