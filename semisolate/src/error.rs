//! Why a semisolate could not be built or entered.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use crate::mountinfo::ParseError;
use crate::plan::PlanError;

/// Why a command could not be started in a semisolate. Nothing real has been changed.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The list of mounts could not be understood.
    #[error(transparent)]
    Mounts(#[from] ParseError),
    /// The mount plan could not be made.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A system call failed.
    #[error("{doing}: {source}")]
    System {
        /// What was being done, after "cannot".
        doing: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The supervisor or the init of the semisolate reported a failure.
    #[error("{message}")]
    Refused {
        /// What failed, after "cannot".
        message: String,
        /// The kernel's error number, 0 when it was none.
        errno: i32,
    },
    /// The supervisor ended before the command was started.
    #[error("start the supervisor: it ended before the command began")]
    Gone,
}

impl StartError {
    /// The error number the kernel gave, if it is one of the kernel's.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::System { source, .. } => source.raw_os_error(),
            Self::Refused { errno, .. } => (*errno != 0).then_some(*errno),
            _ => None,
        }
    }
}

/// Why the command itself could not be executed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExecError {
    /// No such program.
    #[error("find {}", .0.display())]
    NotFound(OsString),
    /// The file is there but cannot be executed.
    #[error("execute {}: {}", .0.display(), io::Error::from_raw_os_error(*.1))]
    NotExecutable(OsString, i32),
    /// The working directory does not exist inside.
    #[error("enter the working directory {}: {}", .0.display(), io::Error::from_raw_os_error(*.1))]
    WorkingDirectory(PathBuf, i32),
    /// The recording could not be set up.
    #[error("set up the recording: {}", io::Error::from_raw_os_error(*.0))]
    Recording(i32),
    /// The command could not be kept from typing into the terminal.
    #[error("keep the command from typing into the terminal: {}", io::Error::from_raw_os_error(*.0))]
    Terminal(i32),
    /// The command could not be given to the user it is to run as.
    #[error("become that user: {}", io::Error::from_raw_os_error(*.0))]
    User(i32),
}

/// Adds what was being done to an I/O error.
pub(crate) trait Context<T> {
    fn doing(self, doing: impl FnOnce() -> String) -> Result<T, StartError>;
}

impl<T, E: Into<io::Error>> Context<T> for Result<T, E> {
    fn doing(self, doing: impl FnOnce() -> String) -> Result<T, StartError> {
        self.map_err(|source| StartError::System {
            doing: doing(),
            source: source.into(),
        })
    }
}
