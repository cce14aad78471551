//! The terminal around a run: kept as it was, whatever the command did to it.

use std::fs::{File, OpenOptions};
use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, killpg, sigprocmask};
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

    /// Takes the terminal back from a command that was killed in raw mode or left another process group in front. One that this job
    /// has given up meanwhile, because it was sent to the background, is the shell's and stays as it is.
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
        if take_back(&self.tty) {
            let _hung_up = tcsetattr(&self.tty, SetArg::TCSADRAIN, &self.modes);
        }
        let _valid = sigprocmask(SigmaskHow::SIG_SETMASK, Some(&before), None);
    }
}

/// Puts this process's group in front again where the one that was is gone, with SIGTTOU blocked. Whether it is in front: a group
/// that lives is the shell's, or what the shell has put there.
pub(crate) fn take_back(tty: impl AsFd) -> bool {
    match tcgetpgrp(&tty) {
        Ok(group) if group == getpgrp() => true,
        Ok(group) if killpg(group, None) == Err(Errno::ESRCH) => tcsetpgrp(&tty, getpgrp()).is_ok(),
        _ => false,
    }
}
