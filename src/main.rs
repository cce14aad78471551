//! effigy: the command line. It holds no mechanism: what a semisolate, a session and an apply are is in the crates beside.

mod after_run;
mod cli;
mod commands;
mod event;
mod failure;
mod filters;
mod history;
mod listing;
mod pager;
mod place;
mod progress;
mod prompt;
mod recording;
mod render;
mod risk;
mod run;
mod store;
mod terminal;
mod try_face;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser as _};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::cli::{Cli, Command, RunArgs};
use crate::failure::{report, status};

fn main() -> ExitCode {
    let arguments = try_face::as_subcommand(std::env::args_os().collect());
    let cli = match Cli::try_parse_from(&arguments) {
        Ok(cli) => cli,
        Err(_) if try_face::is_meant(&arguments) => {
            try_face::usage();
            return ExitCode::SUCCESS;
        }
        Err(error) => return usage(&error, &arguments),
    };
    if let Command::Try(args) = &cli.command {
        return try_face::run(args, &arguments, cli.store.clone());
    }
    dispatch(cli).unwrap_or_else(|error| report(&error).into())
}

fn dispatch(cli: Cli) -> anyhow::Result<ExitCode> {
    if !matches!(cli.command, Command::Run(_) | Command::Shell(_)) {
        raise_descriptor_limit();
    }
    let open = || store::open(&store::directory(cli.store.clone())?);
    match cli.command {
        // `main` has seen to it: its words and statuses are its own.
        Command::Try(_) => {}
        Command::Run(args) => return Ok(run(args, cli.store)),
        Command::Shell(args) => {
            let args = RunArgs {
                options: args.options,
                command: vec![shell()],
                ..RunArgs::default()
            };
            return Ok(run(args, cli.store));
        }
        Command::Ls(args) => commands::ls::ls(&args, &open()?)?,
        Command::Summary(args) => return commands::summary::summary(&args, &open()?),
        Command::Diff(args) => commands::diff::diff(&args, &open()?)?,
        Command::Log(args) => commands::log::log(&args, &open()?)?,
        Command::Show(args) => commands::show::show(&args, &open()?)?,
        Command::Cat(args) => commands::cat::cat(&args, &open()?)?,
        Command::Review(args) => return commands::review::review(&args, &open()?),
        Command::Commit(args) => commands::commit::commit(&args, &open()?)?,
        Command::Replay(args) => commands::replay::replay(&args, &open()?)?,
        Command::Undo(args) => commands::undo::undo(&args, &open()?)?,
        Command::Recover(args) => commands::recover::recover(&args, &open()?)?,
        Command::Export(args) => commands::export::export(&args, &open()?)?,
        Command::Report(args) => commands::report::report(&args, &open()?)?,
        Command::Import(args) => commands::import::import(&args, &open()?)?,
        Command::Discard(args) => commands::discard::discard(&args, &open()?)?,
        Command::Gc(args) => commands::discard::gc(&args, &open()?)?,
        Command::Doctor(args) => {
            return commands::doctor::doctor(&args, &store::directory(cli.store)?);
        }
        Command::Completions(args) => commands::generate::completions(args.shell),
        Command::Man(args) => commands::generate::man(args.directory.as_deref())?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs a command; whatever goes wrong with effigy itself is 125, since every lower status can be the command's own.
fn run(mut args: RunArgs, store: Option<PathBuf>) -> ExitCode {
    let status = store::directory(store).and_then(|directory| {
        args.store = directory;
        run::run(&args)
    });
    status.unwrap_or_else(|error| {
        let status = report(&error);
        ExitCode::from(match status {
            status::NOT_EXECUTABLE | status::NOT_FOUND => status,
            _ => status::FAILED,
        })
    })
}

/// The user's shell; `/bin/sh` where there is none named.
fn shell() -> OsString {
    std::env::var_os("SHELL")
        .filter(|shell| !shell.is_empty())
        .unwrap_or_else(|| "/bin/sh".into())
}

/// A tree is walked with a descriptor for each level. `run` does this when its command has the limit it was called with.
pub(crate) fn raise_descriptor_limit() {
    // Where it cannot be raised, what needs more says so.
    let _as_it_was = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, hard)| setrlimit(Resource::RLIMIT_NOFILE, hard, hard));
}

/// Prints a usage error, or the help that was asked for.
///
/// A wrong line for `run` or `shell` ends with 125 as every failure of theirs: 2 could be the command's own status.
fn usage(error: &clap::Error, arguments: &[OsString]) -> ExitCode {
    // Nothing can be done about a stream that does not take the message.
    let _ = error.print();
    if !error.use_stderr() {
        return ExitCode::SUCCESS;
    }
    let tolerant = Cli::command().ignore_errors(true);
    let runs = tolerant
        .try_get_matches_from(arguments)
        .is_ok_and(|m| matches!(m.subcommand_name(), Some("run" | "shell")));
    ExitCode::from(if runs { status::FAILED } else { status::USAGE })
}
