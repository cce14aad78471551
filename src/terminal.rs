//! The terminal around a run: kept as it was, whatever the command did to it.

use std::fs::{File, OpenOptions};
use std::os::fd::AsFd as _;

use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::sys::termios::{SetArg, Termios, tcgetattr, tcsetattr};
use nix::unistd::{getpgrp, tcgetpgrp, tcsetpgrp};

/// The controlling terminal's modes and foreground as they were before the run.
pub(crate) struct Terminal {
    tty: File,
    modes: Termios,
    was_in_foreground: bool,
}

impl Terminal {
    /// Remembers the state of the controlling terminal; `None` when there is none.
    pub(crate) fn remember() -> Option<Self> {
        let tty = OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/tty")
            .ok()?;
        let modes = tcgetattr(&tty).ok()?;
        let was_in_foreground = tcgetpgrp(&tty).is_ok_and(|group| group == getpgrp());
        Some(Self {
            tty,
            modes,
            was_in_foreground,
        })
    }

    /// Takes the terminal back from a command that was killed in raw mode or left another process group in front.
    ///
    /// Everything here may fail with a terminal that has been hung up; then there is nothing to restore.
    pub(crate) fn restore(&self) {
        if !self.was_in_foreground {
            return;
        }
        let mut stop = SigSet::empty();
        stop.add(Signal::SIGTTOU);
        let mut before = SigSet::empty();
        // A background process that changes the terminal is stopped by SIGTTOU, unless it blocks it.
        if sigprocmask(SigmaskHow::SIG_BLOCK, Some(&stop), Some(&mut before)).is_err() {
            return;
        }
        let _hung_up = tcsetpgrp(self.tty.as_fd(), getpgrp());
        let _hung_up = tcsetattr(&self.tty, SetArg::TCSADRAIN, &self.modes);
        let _valid = sigprocmask(SigmaskHow::SIG_SETMASK, Some(&before), None);
    }
}
