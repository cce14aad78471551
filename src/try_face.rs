//! The `try` face: binpash/try's command line, words and exit statuses over what effigy does anyway.
//!
//! A sandbox directory is a name for a session: it holds the shape that try's scripts read, and a link to the session. Where try
//! joins the arguments and loses their quotes, a command keeps its arguments; where try loses a command's exit status, it is kept;
//! what cannot be committed as a whole is not committed at all.

mod choice;
mod sandbox;
mod shell;
mod trace;

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory as _};
use effigy_journal::{Session, SessionId, Store};
use nix::unistd::{AccessFlags, access};

use crate::after_run::settle;
use crate::cli::{Cli, RunArgs, RunOptions, TryArgs};
use crate::failure::{report, status};
use crate::place::absolute;
use crate::render::name::escaped;
use crate::run::{Ran, exit_code, to_its_end};
use crate::store;
use choice::{Choice, Lines, commit};
use sandbox::Sandbox;
pub(crate) use sandbox::hide_shown;

/// The version of try whose command line this is.
const VERSION: &str = "0.2.0";

/// What is said in try's words, and the status that goes with it.
#[derive(Debug)]
struct Stop {
    words: String,
    status: u8,
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

impl std::error::Error for Stop {}

fn stop(status: u8, words: impl Into<String>) -> anyhow::Error {
    let words = words.into();
    Stop { words, status }.into()
}

/// What becomes of the effects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ending {
    /// Shown, and asked about.
    Ask,
    /// Kept, and the sandbox's directory printed.
    Show,
    /// Kept without a word.
    Quiet,
    /// Committed.
    Commit,
}

/// The arguments as `effigy` takes them, whether it is called by its own name or through a link named `try`.
pub(crate) fn as_subcommand(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let name = arguments.first().map(Path::new).and_then(Path::file_name);
    if name == Some(OsStr::new("try")) {
        arguments.insert(1, "try".into());
    }
    arguments
}

/// Whether the arguments are meant for this face, though they may be wrong.
pub(crate) fn is_meant(arguments: &[OsString]) -> bool {
    matches_of(arguments).is_some_and(|matches| matches.subcommand_name() == Some("try"))
}

fn matches_of(arguments: &[OsString]) -> Option<ArgMatches> {
    let tolerant = Cli::command().ignore_errors(true);
    tolerant.try_get_matches_from(arguments).ok()
}

/// Says how it is called: on standard error, as try does, which calls every unknown option a question for help.
pub(crate) fn usage() {
    let mut command = Cli::command();
    command.build();
    if let Some(command) = command.find_subcommand_mut("try") {
        let text = command.render_help().to_string();
        // The usage first.
        let about = text.find("Usage:").unwrap_or(0);
        eprint!("{}", text.get(about..).unwrap_or(&text));
    }
}

/// Does what try does.
pub(crate) fn run(args: &TryArgs, arguments: &[OsString], store: Option<PathBuf>) -> ExitCode {
    if args.version {
        eprintln!(
            "try version {VERSION}\neffigy {}",
            env!("CARGO_PKG_VERSION")
        );
        return ExitCode::SUCCESS;
    }
    if args.help {
        usage();
        return ExitCode::SUCCESS;
    }
    let done = store::directory(store).and_then(|store| {
        let face = Face {
            args,
            ending: ending(arguments),
            store,
        };
        face.run()
    });
    done.unwrap_or_else(|error| ExitCode::from(failed(&error)))
}

/// Reports an error and gives the status that goes with it.
fn failed(error: &anyhow::Error) -> u8 {
    if let Some(stop) = error.downcast_ref::<Stop>() {
        eprintln!("try: {stop}");
        return stop.status;
    }
    match report(error) {
        kept @ (0 | status::NO | status::NOT_EXECUTABLE | status::NOT_FOUND) => kept,
        _ => 2,
    }
}

/// Of the options that say what becomes of the effects the last one counts.
fn ending(arguments: &[OsString]) -> Ending {
    let Some(matches) = matches_of(arguments) else {
        return Ending::Ask;
    };
    let Some(matches) = matches.subcommand_matches("try") else {
        return Ending::Ask;
    };
    let given = |id: &str, ending| {
        let last = (matches.value_source(id) == Some(ValueSource::CommandLine))
            .then(|| matches.indices_of(id).and_then(Iterator::max));
        last.flatten().map(|last| (last, ending))
    };
    [
        given("keep", Ending::Show),
        given("yes", Ending::Commit),
        given("sandbox", Ending::Quiet),
        given("lower", Ending::Quiet),
    ]
    .into_iter()
    .flatten()
    .max_by_key(|(last, _)| *last)
    .map_or(Ending::Ask, |(_, ending)| ending)
}

/// One call.
struct Face<'a> {
    args: &'a TryArgs,
    ending: Ending,
    store: PathBuf,
}

impl Face<'_> {
    fn run(&self) -> anyhow::Result<ExitCode> {
        for dir in &self.args.sandbox {
            if !dir.is_dir() {
                let dir = escaped(dir);
                return Err(stop(2, format!("could not find sandbox directory '{dir}'")));
            }
        }
        if self.args.lower.len() > 1 {
            return Err(stop(2, "the -L option has been specified multiple times"));
        }
        for helper in &self.args.union_helper {
            if access(helper, AccessFlags::X_OK).is_err() {
                let helper = escaped(helper);
                let words = format!("could not find executable union helper '{helper}'");
                return Err(stop(2, words));
            }
        }
        let Some(first) = self.args.words.first() else {
            if !self.args.sandbox.is_empty() && !self.args.lower.is_empty() {
                return self.gather();
            }
            usage();
            return Ok(ExitCode::from(2));
        };
        let named = || self.named_or(self.args.words.get(1));
        match first.as_bytes() {
            b"summary" => self.summary(&named().unwrap_or_default()),
            b"commit" => self.commit(&named().unwrap_or_default()),
            b"explore" => {
                let dir = named().filter(|dir| !dir.as_os_str().is_empty());
                if let Some(dir) = &dir
                    && !dir.is_dir()
                {
                    let dir = escaped(dir);
                    return Err(stop(2, format!("could not find sandbox directory {dir}")));
                }
                self.try_out(vec![shell::find()], dir)
            }
            _ => {
                let shell = shell::find();
                let script = shell::script(&self.args.words);
                self.try_out(vec![shell, "-c".into(), script], self.named_or(None))
            }
        }
    }

    /// The sandbox directory that -N names, or else this one.
    fn named_or(&self, other: Option<&OsString>) -> Option<PathBuf> {
        let option = self.args.sandbox.last().cloned();
        option.or_else(|| other.map(PathBuf::from))
    }

    fn choice(&self) -> Choice<'_> {
        Choice {
            include: &self.args.include,
            exclude: &self.args.exclude,
        }
    }

    fn summary(&self, dir: &Path) -> anyhow::Result<ExitCode> {
        let sandbox = Sandbox::existing(dir)?;
        let (_, session) = sandbox.read()?;
        let lines = self.choice().of(&session)?;
        if lines.is_empty() {
            return Ok(ExitCode::from(1));
        }
        let mut out = io::BufWriter::new(io::stdout().lock());
        lines.write(&mut out)?;
        out.flush()?;
        Ok(ExitCode::SUCCESS)
    }

    fn commit(&self, dir: &Path) -> anyhow::Result<ExitCode> {
        let sandbox = Sandbox::existing(dir)?;
        let (_, mut session) = sandbox.change()?;
        let lines = self.choice().of(&session)?;
        sandbox.hide(&session)?;
        let committed = commit(&mut session, &lines);
        sandbox.show(&session);
        committed?;
        Ok(ExitCode::SUCCESS)
    }

    /// Brings the sandboxes of -L together in that of -N.
    fn gather(&self) -> anyhow::Result<ExitCode> {
        let Some(dir) = self.args.sandbox.last() else {
            return Ok(ExitCode::from(2));
        };
        let sandbox = Sandbox::to_work_in(dir)?;
        let store = sandbox.store(&self.store)?;
        let mut args = self.arguments(vec!["true".into()], &store);
        args.options.no_trace = true;
        let previous = sandbox.previous(&store)?.map(|previous| previous.id);
        args.options.on = self.on(previous.as_ref(), &store)?;
        let Ran { mut session, .. } =
            to_its_end(&args, &store).inspect_err(|_| sandbox.show_again())?;
        sandbox.take(&store, &mut session, previous)?;
        for id in session.record.lower.clone() {
            sandbox::put_below(&store, &mut session, &id, true)?;
        }
        settle(&mut session)?;
        sandbox.show(&session);
        Ok(ExitCode::SUCCESS)
    }

    fn arguments(&self, command: Vec<OsString>, store: &Store) -> RunArgs {
        RunArgs {
            options: RunOptions {
                keep: self.ending != Ending::Ask,
                reads: self.args.trace.is_some(),
                no_net: self.args.no_net,
                ..RunOptions::default()
            },
            command,
            store: store.dir().to_owned(),
            environment: vec![("TRY_SHELL".into(), shell::find())],
        }
    }

    /// The sessions that a run is laid over, the topmost first: what is in the sandbox already, then those of -L.
    fn on(&self, previous: Option<&SessionId>, store: &Store) -> anyhow::Result<Vec<String>> {
        let mut on: Vec<String> = previous.iter().map(ToString::to_string).collect();
        let dirs = self.args.lower.iter().flat_map(|dirs| {
            dirs.as_bytes()
                .split(|&byte| byte == b':')
                .filter(|dir| !dir.is_empty())
                .map(|dir| Path::new(OsStr::from_bytes(dir)))
        });
        for dir in dirs {
            let sandbox = Sandbox::existing(dir)?;
            let (its_store, session) = sandbox.read()?;
            if its_store.dir() != store.dir() {
                let (dir, place) = (escaped(dir), escaped(its_store.dir()));
                return Err(stop(
                    2,
                    format!("the sandbox {dir} is kept apart, in {place}: give --store with that"),
                ));
            }
            // What is committed is real.
            if !self.choice().everything().of(&session)?.is_empty() {
                on.push(session.record.id.to_string());
            }
        }
        Ok(on)
    }

    /// Runs a command in a sandbox, new or old.
    fn try_out(&self, command: Vec<OsString>, dir: Option<PathBuf>) -> anyhow::Result<ExitCode> {
        let mut sandbox = dir.as_deref().map(Sandbox::to_work_in).transpose()?;
        let store = match &sandbox {
            Some(sandbox) => sandbox.store(&self.store)?,
            None => store::open(&self.store)?,
        };
        let mut args = self.arguments(command, &store);
        args.options.hide = self.hidden()?;
        let mut previous = match &sandbox {
            Some(sandbox) => sandbox.previous(&store)?,
            None => None,
        };
        let mut first = 0;
        if args.options.hide.is_empty()
            && self.args.lower.is_empty()
            && let Some(session) = previous.take_if(|session| session.goes_on)
        {
            first = session.first;
            args.options.session = Some(session.id.to_string());
            args.options.resume = true;
        }
        let previous = previous.map(|session| session.id);
        args.options.on = self.on(previous.as_ref(), &store)?;
        let Ran {
            mut session,
            mut status,
        } = to_its_end(&args, &store).inspect_err(|_| {
            if let Some(sandbox) = &sandbox {
                sandbox.show_again();
            }
        })?;
        settle(&mut session)?;
        if let Some(path) = &self.args.trace
            && let Err(error) = trace::write(&session, first, path)
        {
            report(&error);
            status = 1;
        }
        if let Some(sandbox) = &sandbox {
            sandbox.take(&store, &mut session, previous)?;
        }
        alone(&mut session);
        let lines = self.choice().of(&session)?;
        let chosen = match self.ending {
            Ending::Quiet | Ending::Show => None,
            Ending::Commit => Some(lines),
            Ending::Ask if lines.is_empty() => {
                if sandbox.is_none() && self.choice().everything().of(&session)?.is_empty() {
                    // Nothing happened: there is nothing to keep.
                    let _shown_by_ls = store.discard(session);
                    return Ok(exit_code(status));
                }
                if let Some(sandbox) = &sandbox {
                    sandbox.show(&session);
                }
                return Ok(exit_code(status));
            }
            Ending::Ask => ask(lines)?,
        };
        let mut tell = self.ending == Ending::Show || self.ending == Ending::Ask;
        let mut kept = None;
        if let Some(lines) = chosen {
            match commit(&mut session, &lines) {
                Ok(()) => {
                    if let Some(sandbox) = &sandbox {
                        sandbox.show(&session);
                    }
                    return Ok(exit_code(status));
                }
                Err(error) => {
                    failed(&error);
                    kept = Some(1);
                    tell = true;
                }
            }
        }
        if tell || sandbox.is_some() {
            let sandbox = match sandbox.take() {
                Some(sandbox) => sandbox,
                None => Sandbox::made_for(&store, &session)?,
            };
            sandbox.show(&session);
            if tell {
                print_path(sandbox.dir())?;
            }
        }
        Ok(exit_code(kept.unwrap_or(status)))
    }

    /// What -i names, as far as it exists: what does not exist is hidden already.
    fn hidden(&self) -> anyhow::Result<Vec<PathBuf>> {
        let mut hidden = Vec::new();
        for path in &self.args.hide {
            let Ok(path) = absolute(path) else { continue };
            if path == Path::new("/") {
                return Err(stop(2, "cannot hide /"));
            }
            if path.exists() {
                hidden.push(path);
            }
        }
        Ok(hidden)
    }
}

/// Shows what changed and asks; what is to be committed, or nothing.
fn ask(lines: Lines) -> anyhow::Result<Option<Lines>> {
    let mut err = io::stderr().lock();
    lines.write(&mut err)?;
    write!(err, "\nCommit these changes? [y/i/N] ")?;
    err.flush()?;
    drop(err);
    let chosen = match answer()?.as_slice() {
        b"y" | b"Y" | b"yes" | b"YES" => Some(lines),
        b"i" | b"I" => lines.edited()?,
        _ => None,
    };
    if chosen.is_none() {
        eprintln!("Not committing.");
    }
    Ok(chosen)
}

/// A line of standard input, and not a byte more: what follows belongs to the editor.
fn answer() -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    let mut byte = [0];
    loop {
        match nix::unistd::read(io::stdin(), &mut byte) {
            Ok(1) if byte[0] != b'\n' => line.push(byte[0]),
            // Without a standard input there is no answer.
            Ok(_) | Err(nix::Error::EBADF | nix::Error::EIO) => {
                return Ok(line.trim_ascii().to_vec());
            }
            Err(nix::Error::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Prints a path exactly: scripts take it from standard output.
fn print_path(path: &Path) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(path.as_os_str().as_bytes())?;
    out.write_all(b"\n")?;
    out.flush()
}

/// The effects of a session as try has them: against the real files alone, also when it rests on others.
fn alone(session: &mut Session) {
    let record = &mut session.record;
    record.lower.clear();
    for cover in &mut record.covers {
        cover.below.clear();
        cover.hides = false;
    }
}
