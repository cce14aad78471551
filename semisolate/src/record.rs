//! How a recorder takes part in a run.

use std::io;
use std::os::fd::BorrowedFd;

use crate::nodes::NodeMaker;
use crate::supervisor::Pump;
use crate::view::Built;

/// Records what a command does, from two of the processes of a run.
pub trait Recorder {
    /// Called in the process that becomes the command, as the last thing before execve. What the supervisor needs is sent over
    /// `to_supervisor`. The process was forked: this must not allocate, and what it arms must not trap sendmsg(2) or close(2).
    ///
    /// # Errors
    /// Recording cannot be set up; the command is then not started.
    fn arm(&self, to_supervisor: BorrowedFd<'_>) -> io::Result<()>;

    /// Called in the supervisor once init was told to start the command. Returns when `world.pump` says that all has ended,
    /// with everything recorded on disk.
    ///
    /// # Errors
    /// The recording broke. The supervisor then ends, and the command with it.
    fn supervise(&mut self, world: World<'_>) -> io::Result<()>;
}

/// What a recorder has to work with in the supervisor.
pub struct World<'w> {
    /// Where what `Recorder::arm` sent arrives. At its end when the command never came to arm.
    pub from_command: BorrowedFd<'w>,
    /// Init, PID 1 of the command's PID namespace.
    pub init: BorrowedFd<'w>,
    /// Init's number in the supervisor's PID namespace.
    pub init_pid: i32,
    /// The process directory of the supervisor's own PID namespace, which the view does not hold.
    pub outer_proc: BorrowedFd<'w>,
    /// The session's directory of layers, which the view hides.
    pub layers: BorrowedFd<'w>,
    /// Makes device nodes: in a session of real root, where the supervisor itself may not. Taken by the recorder.
    pub nodes: Option<NodeMaker>,
    /// How the mount plan turned out.
    pub built: &'w Built,
    /// What else the supervisor must attend to.
    pub pump: Pump<'w>,
}
