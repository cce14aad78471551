//! The terminal lent to the command: a process group of its own is in front on it, as a shell does it for what it starts.
//!
//! In effigy's group the command could not find that group: from its PID namespace it has no number, and interactive shells end
//! with an error where they want to give the terminal back to it. Like the shell, effigy sees the command stop, stops itself, and
//! lends the terminal again when it goes on.

use std::io::{self, IsTerminal as _};

use effigy_semisolate::Running;
use nix::sys::signal::Signal;
use nix::unistd::{getpgrp, getpid, tcgetpgrp};

use crate::terminal::take_back;

/// A controlling terminal that is standard input, and nobody's but this job's.
pub(crate) struct Front(());

impl Front {
    /// `None` where others are in effigy's group, a pipeline or a script: they must get what the terminal sends to the command.
    pub(crate) fn of_this_job() -> Option<Self> {
        let alone =
            getpgrp() == getpid() && io::stdin().is_terminal() && io::stdout().is_terminal();
        let front = Self(());
        (alone && front.is_effigys()).then_some(front)
    }

    fn is_effigys(&self) -> bool {
        tcgetpgrp(io::stdin()).is_ok_and(|group| group == getpgrp())
    }

    /// Puts the command in front, if effigy is. Otherwise the shell has the terminal, and the command runs in the background.
    pub(crate) fn lend(&self, running: &Running) {
        if self.is_effigys() {
            running.to_front();
        }
    }

    /// Whether a command was stopped only because it wants the terminal, while effigy has it: the shell has brought the job to the
    /// front without a word.
    pub(crate) fn is_waited_for(&self, signal: i32) -> bool {
        let wants = [Signal::SIGTTIN, Signal::SIGTTOU].map(|signal| signal as i32);
        wants.contains(&signal) && self.is_effigys()
    }

    /// After the command's end, with SIGTTOU blocked.
    pub(crate) fn take_back(&self) {
        let _is_the_shells = take_back(io::stdin());
    }
}
