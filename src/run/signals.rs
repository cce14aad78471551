//! Signals while a command runs: it gets what it would get without effigy, and effigy outlives it.

use nix::sys::signal::{SigSet, SigmaskHow, Signal, raise, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd, siginfo};
use nix::unistd::{getpgrp, getpid, getppid, getsid};

/// Signals that would end or stop effigy: they are read, never delivered.
const READ: [Signal; 9] = [
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGTSTP,
    Signal::SIGTTIN,
    Signal::SIGTTOU,
];

/// A signal, and whom it is for.
pub(crate) enum Forward {
    /// The command: somebody sent it to effigy.
    Command(i32),
    /// The command's process group: the terminal sent it to effigy's.
    Group(i32),
}

/// Signals on their way through effigy.
pub(crate) struct Signals {
    before: SigSet,
    /// The command has a process group of its own: nothing that is sent to effigy's reaches it by itself.
    forward_all: bool,
    pub(crate) arriving: SignalFd,
}

impl Signals {
    /// Begins to read signals instead of having them delivered.
    pub(crate) fn read(forward_all: bool) -> nix::Result<Self> {
        let set: SigSet = READ.into_iter().collect();
        let mut before = SigSet::empty();
        sigprocmask(SigmaskHow::SIG_BLOCK, Some(&set), Some(&mut before))?;
        let arriving = SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        Ok(Self {
            before,
            forward_all,
            arriving,
        })
    }

    /// The mask that the command is to have: the one effigy was called with.
    pub(crate) fn mask_of_caller(&self) -> SigSet {
        self.before
    }

    /// The next signal that is meant for the command and has not reached it by itself.
    pub(crate) fn next_to_forward(&self) -> Option<Forward> {
        while let Ok(Some(info)) = self.arriving.read_signal() {
            if let Some(signal) = self.forwarded(&info) {
                return Some(signal);
            }
        }
        None
    }

    /// The terminal sends to the whole process group, and the command is in it; so is what is inside, when it says `kill 0`. Only
    /// what somebody outside sent is forwarded, unless the command's group is another.
    fn forwarded(&self, info: &siginfo) -> Option<Forward> {
        let signal = i32::try_from(info.ssi_signo).ok()?;
        if info.ssi_code > 0 {
            return self.forward_all.then_some(Forward::Group(signal));
        }
        (!is_inside(info.ssi_pid)).then_some(Forward::Command(signal))
    }

    /// Stops this process as the command was stopped, so that the shell sees its job stop. Returns when it is continued.
    pub(crate) fn stop_like_command(&self, signal: i32) {
        if signal != Signal::SIGSTOP as i32 && nobody_continues() {
            return;
        }
        let signal = Signal::try_from(signal).unwrap_or(Signal::SIGSTOP);
        // What the terminal sent to the whole job is about to be raised here; a second one must not stop it again.
        while let Ok(Some(_)) = self.arriving.read_signal() {}
        let set: SigSet = [signal].into_iter().collect();
        let _valid = sigprocmask(SigmaskHow::SIG_UNBLOCK, Some(&set), None);
        let _own = raise(signal);
        if READ.contains(&signal) {
            let _valid = sigprocmask(SigmaskHow::SIG_BLOCK, Some(&set), None);
        }
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        while let Ok(Some(_)) = self.arriving.read_signal() {}
        let _valid = sigprocmask(SigmaskHow::SIG_SETMASK, Some(&self.before), None);
    }
}

/// Whether no shell has this process as a job: then the terminal's stop signals do nothing (the group is orphaned).
fn nobody_continues() -> bool {
    getpgrp() == getpid() && getsid(Some(getppid())) != getsid(None)
}

/// Whether a process lives in a PID namespace below this one. One that is gone is taken to have been outside.
fn is_inside(pid: u32) -> bool {
    let levels = |pid: &str| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("NSpid:"))?;
        Some(line.split_whitespace().count())
    };
    match (levels(&pid.to_string()), levels("self")) {
        (Some(sender), Some(own)) => sender > own,
        _ => false,
    }
}
