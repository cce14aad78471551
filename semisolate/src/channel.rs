//! Messages between the processes of a run, over socket pairs.
//!
//! One message is one packet. All ends belong to effigy: the command never sees these sockets.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, recv, send, socketpair};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::view::Built;

/// From the supervisor to effigy.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum FromSupervisor {
    /// The user namespace is there; write its id maps.
    MapIds,
    /// The view is ready and nothing of the command has run yet.
    Ready(Built),
    /// The semisolate cannot be built.
    Refused { message: String, errno: i32 },
    /// Something about the command.
    Command(FromInit),
}

/// From effigy to the supervisor.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) enum ToSupervisor {
    /// The id maps are written.
    Mapped,
    /// Start the command.
    Go,
    /// Send this signal to the command.
    Signal(i32),
    /// Send this signal to the command's process group, if that is its own.
    GroupSignal(i32),
    /// Put the command's group in front on the terminal.
    Front,
}

/// From init to the supervisor.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum FromInit {
    /// The process directory is mounted: the PID namespace's own, or what of the machine's is harmless.
    Mounted { own: bool },
    /// The final namespaces are joined.
    Joined,
    /// Something failed before the command was started.
    Refused { message: String, errno: i32 },
    /// The command could not be executed.
    Exec(ExecFailure),
    /// The command was stopped by this signal.
    Stopped(i32),
    /// The command goes on.
    Continued,
    /// The command and all its descendants have ended.
    Ended(Ended),
}

/// From the supervisor to init.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) enum ToInit {
    /// Join the supervisor's namespaces.
    Join,
    /// Start the command.
    Go,
    /// Send this signal to the command.
    Signal(i32),
    /// Send this signal to the command's process group, if that is its own.
    GroupSignal(i32),
    /// Put the command's group in front on the terminal.
    Front,
}

/// How the command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// How the command itself ended.
    pub exit: Exit,
    /// How many of its descendants were still running and were killed.
    pub survivors: u32,
}

/// A process's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Exit {
    /// It exited with this status.
    Code(i32),
    /// This signal killed it.
    Signal(i32),
}

/// Which step of starting the command failed, in the process that was to become it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ExecFailure {
    WorkingDirectory(i32),
    Recording(i32),
    Program(i32),
    Terminal(i32),
    User(i32),
}

/// The program's name is known to effigy; only the failure travels.
impl ExecFailure {
    pub(crate) fn explain(
        self,
        program: OsString,
        directory: &std::path::Path,
    ) -> crate::ExecError {
        use crate::ExecError;
        match self {
            Self::WorkingDirectory(errno) => {
                ExecError::WorkingDirectory(directory.to_path_buf(), errno)
            }
            Self::Recording(errno) => ExecError::Recording(errno),
            Self::Terminal(errno) => ExecError::Terminal(errno),
            Self::User(errno) => ExecError::User(errno),
            Self::Program(libc::ENOENT | libc::ENOTDIR) => ExecError::NotFound(program),
            Self::Program(errno) => ExecError::NotExecutable(program, errno),
        }
    }
}

/// A pair of sockets that keep messages apart.
pub(crate) fn sockets() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(
        AddressFamily::Unix,
        SockType::SeqPacket,
        None,
        SockFlag::SOCK_CLOEXEC,
    )?)
}

/// One end of a socket pair.
#[derive(Debug)]
pub(crate) struct Channel(OwnedFd);

/// The largest message: the report of a view with thousands of covers.
const LARGEST: usize = 4 << 20;

impl Channel {
    pub(crate) fn pair() -> io::Result<(Self, Self)> {
        let (a, b) = sockets()?;
        for end in [&a, &b] {
            // Best effort: the default suffices for some thousand covers.
            let _default =
                nix::sys::socket::setsockopt(end, nix::sys::socket::sockopt::SndBuf, &LARGEST);
        }
        Ok((Self(a), Self(b)))
    }

    pub(crate) fn send(&self, message: &impl Serialize) -> io::Result<()> {
        let bytes = bincode::serde::encode_to_vec(message, bincode::config::standard())
            .map_err(io::Error::other)?;
        loop {
            match send(self.0.as_raw_fd(), &bytes, MsgFlags::MSG_NOSIGNAL) {
                Err(Errno::EINTR) => {}
                other => return Ok(other.map(drop)?),
            }
        }
    }

    /// Waits for a message. `None` when the other end is gone.
    pub(crate) fn receive<M: DeserializeOwned>(&self) -> io::Result<Option<M>> {
        // The peek tells the length, so that no buffer of the largest size is needed.
        let mut probe = [0_u8; 1];
        let length = loop {
            match recv(
                self.0.as_raw_fd(),
                &mut probe,
                MsgFlags::MSG_PEEK | MsgFlags::MSG_TRUNC,
            ) {
                // A reset tells that the other end closed without having read all; what it had sent before comes after.
                Err(Errno::EINTR | Errno::ECONNRESET) => {}
                other => break other?,
            }
        };
        if length == 0 {
            return Ok(None);
        }
        let mut bytes = vec![0_u8; length];
        let got = recv(self.0.as_raw_fd(), &mut bytes, MsgFlags::empty())?;
        let config = bincode::config::standard().with_limit::<LARGEST>();
        let (message, _) =
            bincode::serde::decode_from_slice(&bytes[..got], config).map_err(io::Error::other)?;
        Ok(Some(message))
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
