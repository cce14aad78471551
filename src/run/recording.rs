//! The recorder of a run: what connects the semisolate's supervisor with the tracer.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::time::Instant;

use effigy_journal::writer::{WriteError, Writer};
use effigy_journal::{Budget, Session, Timestamp, Versions};
use effigy_semisolate::{Identity, Pump, Recorder, Turn, User, World};
use effigy_tracer::{Attend, Flow, Layer, Options, Prepared, Tracer, receive_listener, supervise};
use nix::fcntl::{OFlag, openat};
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::Mode;
use nix::unistd::chown;

use crate::cli::RunOptions;

/// Records one run into its session.
pub(super) struct Recording {
    prepared: Prepared,
    /// Taken by the supervisor.
    journal: Option<Journal>,
    budget: Budget,
    hidden: Vec<PathBuf>,
    /// The command starts without capabilities.
    without_capabilities: bool,
    /// The view is built with the powers of real root.
    privileged: bool,
    start: Instant,
}

/// What is recorded into.
struct Journal {
    writer: Writer,
    /// The same, for reading what earlier runs of the session have done.
    recorded: Option<File>,
    /// Nanoseconds since the session's start.
    earlier: u64,
    next_version: u32,
}

impl Journal {
    /// Begins the journal of a session.
    fn create(session: &Session) -> Result<Self, WriteError> {
        let journal = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(session.journal())?;
        Ok(Self {
            writer: Writer::create(journal)?,
            recorded: None,
            earlier: 0,
            next_version: 0,
        })
    }

    /// Goes on with the journal of a session.
    fn resume(session: &Session) -> Result<Self, WriteError> {
        let open = || {
            OpenOptions::new()
                .read(true)
                .write(true)
                .custom_flags(libc::O_NOFOLLOW)
                .open(session.journal())
        };
        let resumed = Writer::resume(open()?)?;
        let since = Timestamp::now().since(session.record.start);
        Ok(Self {
            writer: resumed.writer,
            recorded: Some(open()?),
            // A clock that was set back does not set the journal back.
            earlier: since.max(resumed.time),
            next_version: resumed.next_version,
        })
    }
}

impl Recording {
    /// Makes the journal of `session`, or goes on with it, and builds the filter.
    pub(super) fn prepare(
        session: &Session,
        identity: Identity,
        user: Option<&User>,
        options: &RunOptions,
    ) -> Result<Self, WriteError> {
        if let Some(user) = user {
            // Versions are kept with the rights of whom calls are performed for.
            chown(&session.versions(), Some(user.uid), Some(user.gid)).map_err(io::Error::from)?;
        }
        let journal = match options.resume {
            true => Journal::resume(session)?,
            false => Journal::create(session)?,
        };
        Ok(Self {
            prepared: Tracer::prepare(Options {
                reads: options.reads,
            }),
            journal: Some(journal),
            budget: options.keep_versions.unwrap_or_default(),
            hidden: session.record.hidden.clone(),
            without_capabilities: identity == Identity::Own || user.is_some(),
            privileged: identity.is_privileged(),
            start: Instant::now(),
        })
    }
}

impl Recorder for Recording {
    fn arm(&self, to_supervisor: BorrowedFd<'_>) -> io::Result<()> {
        self.prepared.arm(to_supervisor)
    }

    fn supervise(&mut self, world: World<'_>) -> io::Result<()> {
        let World {
            from_command,
            init_pid,
            outer_proc,
            layers,
            nodes,
            built,
            mut pump,
            ..
        } = world;
        if !wait_for_listener(from_command, &mut pump)? {
            return Ok(());
        }
        let listener = match receive_listener(from_command) {
            // It could not arm the recorder, and says itself why.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return pump.run();
            }
            received => received?,
        };
        let directory =
            |path: &str| Ok::<OwnedFd, io::Error>(openat(layers, path, NAME, Mode::empty())?);
        let layers = built
            .covers
            .iter()
            .map(|cover| {
                Ok(Layer {
                    number: cover.layer,
                    mount_point: cover.mount_point.clone(),
                    upper: directory(&format!("{}/upper", cover.layer))?,
                    unprivileged: !self.privileged,
                    filesystem: u64::from(cover.mount),
                })
            })
            .collect::<io::Result<Vec<_>>>()?;
        let journal = self
            .journal
            .take()
            .ok_or_else(|| io::Error::other("the journal is in use"))?;
        let report = supervise(effigy_tracer::World {
            listener,
            outer_proc: outer_proc.try_clone_to_owned()?,
            init: init_pid.unsigned_abs(),
            layers,
            journal: journal.writer,
            // Opened through the mount that holds the layers: files are linked from there, and links do not cross mounts.
            versions: Versions::new(directory("../versions")?, self.budget, journal.next_version),
            start: self.start,
            earlier: journal.earlier,
            recorded: journal.recorded,
            options: self.prepared.options(),
            command_caps: self.without_capabilities.then_some(0),
            nodes,
            own: std::mem::take(&mut self.hidden),
            outer_numbers: built.without_processes,
            attend: &mut Duties(&mut pump),
        });
        report.map(drop).map_err(io::Error::other)
    }
}

/// How directories of the session are opened.
const NAME: OFlag = OFlag::O_PATH
    .union(OFlag::O_DIRECTORY)
    .union(OFlag::O_NOFOLLOW)
    .union(OFlag::O_CLOEXEC);

/// Waits until the command has armed its filter. False when it ended before.
fn wait_for_listener(from_command: BorrowedFd<'_>, pump: &mut Pump<'_>) -> io::Result<bool> {
    loop {
        let [caller, init] = pump.readable();
        let mut fds = [from_command, caller, init].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        match poll(&mut fds, PollTimeout::NONE) {
            Err(nix::Error::EINTR) => continue,
            other => other?,
        };
        if fds[0].any().unwrap_or(false) {
            return Ok(true);
        }
        if pump.turn()? != Turn::GoOn {
            return Ok(false);
        }
    }
}

/// What the supervisor does beside recording.
struct Duties<'d, 'p>(&'d mut Pump<'p>);

impl Attend for Duties<'_, '_> {
    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        self.0.readable().to_vec()
    }

    fn attend(&mut self) -> io::Result<Flow> {
        Ok(match self.0.turn()? {
            Turn::GoOn => Flow::Continue,
            Turn::Ended => Flow::Ended,
            Turn::Abandoned => Flow::Stop,
        })
    }
}
