//! `effigy run`: from the command line to a recorded session.

mod confinement;
mod explain;
mod front;
mod recording;
pub(crate) mod refusal;
mod resume;
mod signals;
mod sockets;
mod stack;
mod user;
pub(crate) mod weaker;

use std::env;
use std::ffi::{CString, OsString};
use std::io::{self, IsTerminal as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use effigy_journal::session::environment_digest;
use effigy_journal::{Cover, Exit, Named, Record, RootState, Session, State, Store, Timestamp};
use effigy_semisolate::{
    Built, Ended, ExecError, Group, Identity, Plan, Progress, RealTree, Request, Running, Wishes,
    current_mounts,
};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::{SFlag, fstat};
use nix::unistd::{Whence, lseek};

use crate::after_run;
use crate::cli::{RunArgs, Weaker};
use crate::failure::{Cannot as _, Failure};
use crate::render::name::escaped;
use crate::store;
use crate::terminal::Terminal;
use confinement::Confinement;
use front::Front;
use recording::Recording;
use signals::{Forward, Signals};
use stack::{Beneath, Stack};
use user::Account;

/// What the command came to.
enum Outcome {
    Ended(Ended),
    NotStarted(ExecError),
    /// The supervisor is gone: nobody knows what the command came to, and what it wrote is in the session.
    Lost(anyhow::Error),
}

/// A command that has run: its session, locked exclusively, whose record says `Recorded`.
pub(crate) struct Ran {
    pub(crate) session: Session,
    /// The command's own exit status, 128+n when signal n killed it.
    pub(crate) status: i32,
}

/// Runs a command in a semisolate, keeps what it did as a session, and says or asks what becomes of that.
pub(crate) fn run(args: &RunArgs) -> anyhow::Result<ExitCode> {
    let store = store::open(&args.store)?;
    let Ran { session, status } = to_its_end(args, &store)?;
    after_run::finish(&args.options, &store, session, status == 0)?;
    Ok(exit_code(status))
}

pub(crate) fn exit_code(status: i32) -> ExitCode {
    ExitCode::from(u8::try_from(status & 0xff).unwrap_or(u8::MAX))
}

/// Runs a command to its end and keeps what it did as a session.
pub(crate) fn to_its_end(args: &RunArgs, store: &Store) -> anyhow::Result<Ran> {
    refuse_directories_as_streams()?;
    refusal::check_store(store, args.options.quiet)?;
    let cwd = env::current_dir().map_err(|error| {
        Failure::new(format!("cannot find the working directory: {error}"))
            .hint("cd to one that exists")
    })?;
    let identity = Identity::of_this_process(args.options.root);
    let resumed = match args.options.resume {
        true => Some(resume::find(store, &args.options)?),
        false => None,
    };
    let stack = match &resumed {
        Some(session) => Stack::below(store, session)?,
        None => Stack::find(store, &args.options.on)?,
    };
    let passed = sockets::named(&args.options)?;
    let hidden = stack.hidden().chain(resumed.iter().flat_map(stack::hidden));
    let wishes = wishes(args, &cwd, store.dir(), hidden, &passed)?;
    let mounts = current_mounts().cannot()?;
    let mut plan = Plan::new(&mounts, !identity.is_privileged(), &wishes, &RealTree).cannot()?;
    match &resumed {
        Some(session) => resume::go_on(&mut plan, session, &stack.lowers(), &mounts)?,
        None => plan
            .lay_over(&stack.lowers(), &mounts, &RealTree)
            .cannot()?,
    }
    let below = stack.beneath(&plan);

    let terminal = has_terminal().then(Terminal::remember).flatten();
    let before = resumed.as_ref().map(|session| session.record.clone());
    let mut session = match resumed {
        Some(session) => session,
        None => {
            let mut session = store::create(store, args.options.session.as_deref())?;
            session.record.start = Timestamp::now();
            session.record.hidden = wishes.hide.clone();
            session.record.lower = stack.ids();
            session
        }
    };
    describe(&mut session, args, &cwd, identity);
    session.record.confined = confinement::words(&wishes);
    session.record.passed.extend(passed);
    session.record.passed.sort();
    session.record.passed.dedup();
    let outcome = match execute(args, &mut session, plan, &below, identity, &cwd) {
        Ok(outcome) => outcome,
        Err(error) => {
            give_up(store, session, before);
            return Err(error);
        }
    };
    if let Some(terminal) = &terminal
        && must_restore(args, &outcome)
    {
        terminal.restore();
    }
    write_after_command();
    crate::raise_descriptor_limit();
    match outcome {
        Outcome::Lost(error) => Err(error),
        Outcome::NotStarted(error) => {
            give_up(store, session, before);
            Err(refusal::not_started(error))
        }
        Outcome::Ended(ended) => {
            if !args.options.quiet {
                tell(&session, &ended, &wishes.sockets);
            }
            let status = match ended.exit {
                effigy_semisolate::Exit::Code(code) => code,
                effigy_semisolate::Exit::Signal(signal) => 128 + signal,
            };
            Ok(Ran { session, status })
        }
    }
}

/// Builds the semisolate and runs the command in it to its end.
fn execute(
    args: &RunArgs,
    session: &mut Session,
    plan: Plan,
    below: &Beneath,
    identity: Identity,
    cwd: &Path,
) -> anyhow::Result<Outcome> {
    let front = Front::of_this_job();
    let group = match &front {
        Some(_) => Group::Front,
        None if std::fs::File::open("/dev/tty").is_err() => Group::Own,
        None => Group::Callers,
    };
    let signals = Signals::read(group != Group::Callers).context("cannot read signals")?;
    let mut request = Request::new(
        args.command.clone(),
        plan,
        identity,
        cwd.to_owned(),
        session.layers(),
    );
    let user = user::of(args.options.as_user.as_deref(), identity)?;
    request.environment = environment(session, user.as_ref(), &args.environment)?;
    request.user = user.map(|account| account.user);
    request.network = !args.options.no_net;
    request.signal_mask = signals.mask_of_caller();
    request.group = group;
    request.without_processes = weaker::may_lack(&args.options, Weaker::Pid);
    if weaker::traces(&args.options) {
        let recording = Recording::prepare(session, identity, request.user.as_ref(), &args.options)
            .map_err(|error| {
                Failure::new(format!("cannot make the journal of the session: {error}"))
            })?;
        session.record.traced = true;
        request.recorder = Some(Box::new(recording));
    }
    let ready = request
        .build()
        .map_err(|error| refusal::not_built(error, &session.layers()))?;
    keep_built(session, &ready.built, below, identity);
    weaker::keep(session, &args.options, &ready.built);
    if !args.options.resume {
        // Of a session that goes on, what was changed between its runs was changed meanwhile.
        session.record.released = Timestamp::now();
    }
    session.record.state = State::Recording;
    session.save_soon().cannot()?;
    // Reaped when all is written down: taking the mounts apart takes as long.
    let mut running = ready.go().cannot()?;
    let attended = attend(&mut running, &signals, front.as_ref());
    if let Some(front) = &front {
        front.take_back();
    }
    let outcome = match attended {
        Ok(outcome) => outcome,
        Err(error) => return Ok(Outcome::Lost(error)),
    };
    if let Outcome::Ended(ended) = &outcome {
        session.clear_work().map_err(|error| {
            Failure::new(format!("cannot tidy the layers of the session: {error}"))
        })?;
        session.record.end = Some(Timestamp::now());
        session.record.exit = Some(match ended.exit {
            effigy_semisolate::Exit::Code(code) => Exit::Code(code),
            effigy_semisolate::Exit::Signal(signal) => Exit::Signal(signal),
        });
        session.record.killed_survivors = ended.survivors;
        session.record.state = State::Recorded;
        session.save_soon().cannot()?;
    }
    Ok(outcome)
}

/// Follows a running command and passes on to it what is meant for it.
fn attend(
    running: &mut Running,
    signals: &Signals,
    front: Option<&Front>,
) -> anyhow::Result<Outcome> {
    let mut not_started = None;
    loop {
        wait(running.readable(), signals.arriving.as_fd())?;
        while let Some(signal) = signals.next_to_forward() {
            match signal {
                Forward::Command(signal) => running.signal(signal),
                Forward::Group(signal) => running.signal_group(signal),
            }
        }
        if !readable(running.readable())? {
            continue;
        }
        match running.wait() {
            Progress::NotStarted(error) => not_started = Some(error),
            Progress::Stopped(signal) => {
                if !front.is_some_and(|front| front.is_waited_for(signal)) {
                    signals.stop_like_command(signal);
                }
                if let Some(front) = front {
                    front.lend(running);
                }
                running.signal_group(nix::libc::SIGCONT);
            }
            Progress::Continued => {}
            Progress::Ended(ended) => {
                return Ok(not_started.map_or(Outcome::Ended(ended), Outcome::NotStarted));
            }
            Progress::Lost(reason) => {
                let why = reason
                    .map(|reason| format!(": cannot {reason}"))
                    .unwrap_or_default();
                return Err(Failure::new(format!(
                    "the supervisor ended before the command did, and the command was killed{why}"
                ))
                .hint("the session holds what was done until then: effigy ls")
                .into());
            }
        }
    }
}

fn wait(command: BorrowedFd<'_>, signals: BorrowedFd<'_>) -> io::Result<()> {
    let mut fds = [
        PollFd::new(command, PollFlags::POLLIN),
        PollFd::new(signals, PollFlags::POLLIN),
    ];
    match poll(&mut fds, PollTimeout::NONE) {
        Ok(_) | Err(nix::Error::EINTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn readable(fd: BorrowedFd<'_>) -> io::Result<bool> {
    let mut fds = [PollFd::new(fd, PollFlags::POLLIN)];
    Ok(poll(&mut fds, PollTimeout::ZERO)? > 0)
}

/// Says what of the run its user should know.
fn tell(session: &Session, ended: &Ended, sockets: &[PathBuf]) {
    if ended.survivors > 0 {
        let (count, were) = (
            ended.survivors,
            if ended.survivors == 1 {
                "process that was"
            } else {
                "processes that were"
            },
        );
        eprintln!("effigy: killed {count} {were} still running when the command ended");
    }
    weaker::tell(session);
    explain::explain(session, sockets);
}

/// A command may have opened the file behind standard error anew (`>/dev/stderr`) and written to it: what effigy says comes after
/// that and not over it.
fn write_after_command() {
    // Not a regular file: nothing to move.
    let _not_a_file = lseek(io::stderr(), 0, Whence::SeekEnd);
}

/// Whether this run has the terminal to itself. In a pipeline another program may use it, and what that did to it is its own.
fn has_terminal() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// Whether the terminal must be taken back: a shell does so for a program that a signal killed, but sees none of that here; and a
/// question needs a terminal that echoes.
fn must_restore(args: &RunArgs, outcome: &Outcome) -> bool {
    let killed = matches!(
        outcome,
        Outcome::Ended(Ended {
            exit: effigy_semisolate::Exit::Signal(_),
            ..
        })
    );
    killed || !(args.options.yes || args.options.keep)
}

/// A session in which nothing ran is not worth keeping; when it cannot be deleted, `effigy ls` shows it. One that was to go on is
/// as it was.
fn give_up(store: &Store, mut session: Session, before: Option<Record>) {
    let Some(before) = before else {
        let _shown_by_ls = store.discard(session);
        return;
    };
    session.record = before;
    // With either failing the session counts as interrupted, and loses nothing.
    let _interrupted = session.clear_work();
    let _interrupted = session.save_soon();
}

fn describe(session: &mut Session, args: &RunArgs, cwd: &Path, identity: Identity) {
    let record = &mut session.record;
    record.argv = args
        .command
        .iter()
        .map(|word| word.as_bytes().to_vec().into())
        .collect();
    record.cwd = cwd.to_owned();
    record.uid = nix::unistd::geteuid().as_raw();
    record.gid = nix::unistd::getegid().as_raw();
    record.as_root = identity == Identity::Root;
    record.environment = environment_digest(
        env::vars_os().map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec())),
    );
    record.end = None;
    record.exit = None;
    record.effects = None;
    record.bytes = None;
    record.kernel = nix::sys::utsname::uname()
        .map(|name| escaped(name.release()).to_string())
        .unwrap_or_default();
    record.effigy = env!("CARGO_PKG_VERSION").to_owned();
}

fn keep_built(session: &mut Session, built: &Built, below: &Beneath, identity: Identity) {
    // Inside, an ordinary user's directories belong to the number the user has there; on disk they belong to the user.
    let on_disk = |inside: u32, own: u32| {
        if identity.is_privileged() {
            inside
        } else {
            own
        }
    };
    let (own_uid, own_gid) = (session.record.uid, session.record.gid);
    let earlier = std::mem::take(&mut session.record.covers);
    // Of a layer that goes on, what its root was given at first still counts.
    let given = |path: &Path| {
        let cover = earlier.iter().find(|cover| cover.mount_point == path);
        cover.map(|cover| cover.root)
    };
    session.record.covers = built
        .covers
        .iter()
        .map(|cover| {
            (
                cover,
                below.get(&cover.mount_point).cloned().unwrap_or_default(),
            )
        })
        .map(|(cover, (below, hides))| Cover {
            layer: cover.layer,
            mount_point: cover.mount_point.clone(),
            root: given(&cover.mount_point).unwrap_or(RootState {
                mode: cover.mode,
                uid: on_disk(cover.uid, own_uid),
                gid: on_disk(cover.gid, own_gid),
            }),
            staged: cover.staged,
            mounted: Some(cover.mounted),
            below,
            hides,
        })
        .collect();
    session.record.named = built
        .named
        .iter()
        .map(|(path, reason)| Named {
            path: path.clone(),
            reason: reason.clone(),
        })
        .collect();
}

/// The command's environment: this one, what is added to it, and the session's id; of another user, what says who and where that
/// is.
fn environment(
    session: &Session,
    user: Option<&Account>,
    added: &[(OsString, OsString)],
) -> anyhow::Result<Vec<CString>> {
    let id = OsString::from(session.record.id.as_str());
    let mut own = vec![(OsString::from("EFFIGY_SESSION"), id)];
    let account = user.into_iter().flat_map(Account::environment);
    own.extend(account.map(|(name, value)| (OsString::from(name), value)));
    own.extend(added.iter().cloned());
    let kept = env::vars_os().filter(|(name, _)| own.iter().all(|(own, _)| name != own));
    kept.chain(own.iter().cloned())
        .map(|(name, value)| {
            Ok(CString::new(
                [name.as_bytes(), b"=", value.as_bytes()].concat(),
            )?)
        })
        .collect()
}

fn wishes<'p>(
    args: &RunArgs,
    cwd: &Path,
    store: &Path,
    hidden: impl Iterator<Item = &'p PathBuf>,
    passed: &[PathBuf],
) -> anyhow::Result<Wishes> {
    let resolve = |paths: &[PathBuf]| {
        paths
            .iter()
            .map(|path| resolve(path))
            .collect::<anyhow::Result<Vec<_>>>()
    };
    let likely = [
        "HOME",
        "TMPDIR",
        "XDG_CACHE_HOME",
        "XDG_CONFIG_HOME",
        "XDG_DATA_HOME",
    ]
    .iter()
    .filter_map(env::var_os)
    .filter_map(|path| PathBuf::from(path).canonicalize().ok())
    .collect();
    let mut hide = resolve(&args.options.hide)?;
    hide.extend(hidden.cloned());
    hide.sort();
    hide.dedup();
    let confinement = Confinement::of(&args.options, cwd)?;
    let mut read_only = resolve(&args.options.read_only)?;
    read_only.extend(confinement.protect);
    Ok(Wishes {
        hide,
        read_only,
        write: confinement.write,
        deny_read: confinement.deny_read,
        sockets: passed.iter().cloned().chain(sockets::agent()).collect(),
        working_directory: cwd.to_owned(),
        likely,
        store: store.to_owned(),
    })
}

fn resolve(path: &Path) -> anyhow::Result<PathBuf> {
    path.canonicalize().map_err(|error| {
        Failure::new(format!(
            "cannot find {}: {error}",
            escaped(path.as_os_str())
        ))
        .hint("--hide, --read-only and --pass-socket take paths that exist")
        .into()
    })
}

/// A directory as a standard stream would be a way around the semisolate: openat(2) relative to it reaches the real files.
fn refuse_directories_as_streams() -> anyhow::Result<()> {
    let (input, output, error) = (io::stdin(), io::stdout(), io::stderr());
    for (name, stream) in [
        ("input", input.as_fd()),
        ("output", output.as_fd()),
        ("error", error.as_fd()),
    ] {
        let is_directory = fstat(stream).is_ok_and(|stat| {
            SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT == SFlag::S_IFDIR
        });
        if is_directory {
            return Err(Failure::new(format!(
                "standard {name} is a directory: through it the command would reach the real files"
            ))
            .hint("redirect it from or to a file")
            .into());
        }
    }
    Ok(())
}
