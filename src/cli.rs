//! What can be typed: the one definition that help, man page and shell completions come from.
//!
//! These are low arguments: nothing here has been looked up, opened or checked beyond its shape. What an argument means
//! is decided where it is used.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use effigy_journal::{Budget, Op};

use crate::render::quantity::{parse_age, parse_budget, parse_size};

const EXIT_STATUS: &str = "\
Exit status of `run` and `shell`: the command's own; 128+n if signal n killed it; 127 command not found; \
126 command not executable; 125 effigy itself failed, also for a usage error.

Exit status of the other commands: 0 done; 1 conflict, refused, or nothing found; 2 usage; 125 failure.";

/// Runs a command against an effigy of the machine, keeps its effects aside, and lets you decide afterwards.
#[derive(Debug, Parser)]
#[command(
    name = "effigy",
    version,
    about = "Run a command, keep its effects aside, decide afterwards",
    long_about = "Runs a command for real against an effigy of the machine: your real files, seen through a layer that takes \
                  every change. Nothing real changes until you commit.",
    after_long_help = EXIT_STATUS,
    propagate_version = false,
    arg_required_else_help = true
)]
pub(crate) struct Cli {
    /// Where sessions are kept [default: $EFFIGY_STORE, else $XDG_STATE_HOME/effigy]
    #[arg(long, global = true, value_name = "DIR", display_order = 900)]
    pub(crate) store: Option<PathBuf>,

    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a command; nothing real changes
    #[command(after_long_help = EXIT_STATUS, override_usage = "effigy run [OPTIONS] [--] CMD [ARG]...")]
    Run(RunArgs),
    /// Run $SHELL the same way
    Shell(ShellArgs),
    /// List the sessions
    Ls(LsArgs),
    /// List a session's net effects, one line a path
    #[command(after_long_help = format!("{SUMMARY_CODES}\n\n{NET_FILTERS}"))]
    Summary(SummaryArgs),
    /// Show a session's net effects as a unified diff
    #[command(after_long_help = NET_FILTERS)]
    Diff(DiffArgs),
    /// Show what happened, in order
    Log(LogArgs),
    /// Show one event in full, or what is known of a session
    Show(ShowArgs),
    /// Print a file as the session left it, or as of one of its events
    Cat(CatArgs),
    /// Walk a session's net effects on a full screen, accept and reject, then commit what is accepted
    Review(ReviewArgs),
    /// Apply a session's net effects to the real files
    #[command(after_long_help = NET_FILTERS)]
    Commit(CommitArgs),
    /// Apply the chosen effects of a session as they were recorded
    Replay(ReplayArgs),
    /// Take back the last apply of a session
    Undo(UndoArgs),
    /// Finish or roll back an apply that was interrupted
    Recover(RecoverArgs),
    /// Write a session for other tools, or whole into one file
    #[command(after_long_help = EXPORT_FORMATS)]
    Export(ExportArgs),
    /// Write a session as one HTML page, for whoever must explain what was done
    Report(ReportArgs),
    /// Make a session of an archive that `effigy export` wrote
    Import(ImportArgs),
    /// Delete sessions
    Discard(DiscardArgs),
    /// Delete old sessions by the limits given
    Gc(GcArgs),
    /// Take the command line of binpash/try; a link named try to effigy is this
    #[command(disable_help_flag = true, after_help = TRY_SUBCOMMANDS, override_usage = TRY_USAGE)]
    Try(TryArgs),
    /// Say what this machine allows, and the remedy for what it refuses
    Doctor(DoctorArgs),
    /// Print a completion script for a shell
    Completions(CompletionsArgs),
    /// Print the man page, or write one for each command into a directory
    #[command(hide = true)]
    Man(ManArgs),
}

const SUMMARY_CODES: &str = "\
Codes: A added, M content changed, m only metadata changed, D deleted, T type changed, R old -> new renamed.

Control characters in names are shown escaped (\\n, \\x1b). With -z every line ends with a NUL byte and names are given \
as they are.";

const EXPORT_FORMATS: &str = "\
archive  the whole session in one file (gzip-compressed tar): record, journal, kept contents and layers. `effigy import` \
makes a session of it, on this or another machine. What a commit moved is not in the layers any more: undo it first, or \
commit with --keep.

json     the events, one JSON object a line, as `effigy log --json`.

chrome   processes and their effects on a time line, for chrome://tracing, ui.perfetto.dev and speedscope.

With --redact, arguments of commands that look like secrets (passwords, tokens, credentials in URLs) are left out. It is a \
guess: contents of files and names are not looked at.";

const NET_FILTERS: &str = "\
Filters for events (--op, --pid, --by, --from, --until) choose the net effects that a chosen event is part of. What other \
events are part of too is shown as it is at the end, and a note says so; commit refuses it, and replay applies just the \
chosen events.";

const TRY_USAGE: &str = "try [-nyvhx] [-E PATTERN] [-I PATTERN] [-i PATH] [-t PATH] [-N DIR] [-L DIR:DIR...] [-U PATH] CMD [ARG]...
       try summary DIR | commit DIR | explore [DIR]";

const TRY_SUBCOMMANDS: &str = "\
summary DIR lists what the sandbox in DIR changes, commit DIR applies it, explore [DIR] runs a shell in it.

One CMD alone is a script for the shell, which is $TRY_SHELL, $SHELL or the login shell; with ARGs it is a command.

Exit status: the command's own; 1 when something could not be committed or there is nothing to list; 2 for what was wrongly asked.";

const CONFINEMENT: &str = "Confinement";

/// What a run can do without where the machine refuses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Weaker {
    /// A process directory of its own
    Pid,
    /// The ordered journal
    Trace,
}

/// How to run, for `run` and `shell` alike.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct RunOptions {
    /// Name the session; the name must be free, unless with --resume
    #[arg(short, long, value_name = "NAME")]
    pub(crate) session: Option<String>,

    /// Run again on top of session NAME, in its layers; its journal goes on
    #[arg(long, requires = "session", conflicts_with_all = ["on", "hide"])]
    pub(crate) resume: bool,

    /// Lay this session over earlier ones that are not applied, the first on top
    ///
    /// The command sees the real files with the net effects of those sessions; what it writes goes to its own layers.
    /// Those sessions must be committed before this one.
    #[arg(long, value_name = "S", value_delimiter = ',')]
    pub(crate) on: Vec<String>,

    /// Commit without asking when the command exits 0
    #[arg(short, long, conflicts_with_all = ["keep", "on"])]
    pub(crate) yes: bool,

    /// Do not ask: keep the session (the default without a terminal)
    #[arg(short = 'n', long)]
    pub(crate) keep: bool,

    /// Also write the ordered log as text to FILE
    #[arg(short, long, value_name = "FILE", conflicts_with = "no_trace")]
    pub(crate) trace: Option<PathBuf>,

    /// Record reads too: opens for reading, stat, access, readlink, getxattr, chdir
    #[arg(long, conflicts_with = "no_trace")]
    pub(crate) reads: bool,

    /// Keep contents that are lost on the way: `all`, `none`, or files of at most SIZE bytes [default: 64M]
    #[arg(long, value_name = "all|SIZE|none", value_parser = parse_budget, conflicts_with = "no_trace")]
    pub(crate) keep_versions: Option<Budget>,

    /// Keep the effects only, without the ordered journal
    #[arg(long)]
    pub(crate) no_trace: bool,

    /// Where this machine refuses one of these to the run, go on without it: `pid`, `trace`
    ///
    /// pid: a process directory of its own. /proc is then the machine's, read-only, and lists no processes. trace: the ordered
    /// journal, as with --no-trace. What was gone without is said at the end of the run and kept in the session.
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        hide_possible_values = true
    )]
    pub(crate) weaker: Vec<Weaker>,

    /// Let PATH not exist inside (repeatable)
    #[arg(long, value_name = "PATH")]
    pub(crate) hide: Vec<PathBuf>,

    /// Let writes below PATH fail with EROFS inside (repeatable)
    #[arg(long, value_name = "PATH")]
    pub(crate) read_only: Vec<PathBuf>,

    /// Let writes (which are kept aside as ever) succeed only below PATH; elsewhere they fail with EROFS (repeatable)
    #[arg(long, value_name = "PATH", help_heading = CONFINEMENT)]
    pub(crate) write: Vec<PathBuf>,

    /// Let PATH not be read inside (repeatable)
    #[arg(long, value_name = "PATH", help_heading = CONFINEMENT)]
    pub(crate) deny_read: Vec<PathBuf>,

    /// Let PATH not be written inside, also below a --write PATH (repeatable)
    #[arg(long, value_name = "PATH", help_heading = CONFINEMENT)]
    pub(crate) protect: Vec<PathBuf>,

    /// Protect what git executes: hooks and config of the repository that holds the working directory
    #[arg(long, help_heading = CONFINEMENT)]
    pub(crate) protect_git: bool,

    /// Let paths of these options be missing
    ///
    /// They take globs too (`*` stays within a component, `**` crosses), which are expanded against what exists when the
    /// run begins. Without this, a path that does not exist and a glob that matches nothing are errors.
    #[arg(long, help_heading = CONFINEMENT)]
    pub(crate) optional: bool,

    /// Give the command no network
    #[arg(long)]
    pub(crate) no_net: bool,

    /// Let the command reach the Unix socket at PATH; what is done through it is not recorded (repeatable; $SSH_AUTH_SOCK always)
    #[arg(long, value_name = "PATH")]
    pub(crate) pass_socket: Vec<PathBuf>,

    /// Let the command show windows: passes the sockets of $WAYLAND_DISPLAY and $DISPLAY
    #[arg(long)]
    pub(crate) display: bool,

    /// Run by root: let the command be this user, or whoever called sudo; it then sees what that user may see, in full
    #[arg(long, value_name = "USER", num_args = 0..=1, require_equals = true, default_missing_value = "", conflicts_with = "root")]
    pub(crate) as_user: Option<String>,

    /// Let the command be uid 0 inside
    #[arg(long)]
    pub(crate) root: bool,

    /// Print nothing of effigy's own on stderr but errors
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

#[derive(Debug, Clone, Default, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) options: RunOptions,

    /// The command and its arguments, executed as given, never through a shell
    #[arg(
        required = true,
        trailing_var_arg = true,
        value_name = "CMD",
        value_hint = clap::ValueHint::CommandWithArguments
    )]
    pub(crate) command: Vec<OsString>,

    /// The store directory as chosen by `--store`, `EFFIGY_STORE` or the default; `main` fills it in.
    #[arg(skip)]
    pub(crate) store: PathBuf,

    /// Variables the command gets beside those of this process.
    #[arg(skip)]
    pub(crate) environment: Vec<(OsString, OsString)>,
}

#[derive(Debug, Args)]
pub(crate) struct ShellArgs {
    #[command(flatten)]
    pub(crate) options: RunOptions,
}

#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    /// One JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

/// What is meant, for every command that looks at or applies what a session did.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Filters")]
pub(crate) struct FilterArgs {
    /// Only the paths that match (repeatable)
    ///
    /// Patterns are anchored at the directory the command was run in, or absolute; `*` stays within a component, `**`
    /// crosses; a directory's pattern takes what is below it. A pattern that matches nothing is an error.
    #[arg(long, value_name = "GLOB")]
    pub(crate) only: Vec<OsString>,

    /// Not the paths that match (repeatable)
    #[arg(long, value_name = "GLOB")]
    pub(crate) exclude: Vec<OsString>,

    /// Only these operations
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = PossibleValuesParser::new(Op::NAMES), hide_possible_values = true)]
    pub(crate) op: Vec<String>,

    /// Only what this process did (repeatable)
    #[arg(long, value_name = "N")]
    pub(crate) pid: Vec<u32>,

    /// Only what a program of this name, or called by it, did, or a program that it started (repeatable)
    #[arg(long, value_name = "COMMAND")]
    pub(crate) by: Vec<OsString>,

    /// Only from event N on
    #[arg(long, value_name = "N")]
    pub(crate) from: Option<u64>,

    /// Only up to event N
    #[arg(long, value_name = "N")]
    pub(crate) until: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct SummaryArgs {
    /// Name, id or unique prefix of an id [default: the newest session]
    #[arg(value_name = "S")]
    pub(crate) session: Option<String>,

    #[command(flatten)]
    pub(crate) filters: FilterArgs,

    /// End every line with NUL and give names as they are
    #[arg(short = 'z', long, conflicts_with = "json")]
    pub(crate) null: bool,

    /// One JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// Name, id or unique prefix of an id [default: the newest session]
    #[arg(value_name = "S")]
    pub(crate) session: Option<String>,

    /// Only these paths and what is below them, relative to the current directory
    #[arg(value_name = "PATH", value_hint = clap::ValueHint::AnyPath)]
    pub(crate) paths: Vec<PathBuf>,

    #[command(flatten)]
    pub(crate) filters: FilterArgs,
}

#[derive(Debug, Args)]
pub(crate) struct LogArgs {
    /// Name, id or unique prefix of an id [default: the newest session]
    #[arg(value_name = "S")]
    pub(crate) session: Option<String>,

    #[command(flatten)]
    pub(crate) filters: FilterArgs,

    /// Also the calls that failed
    #[arg(long)]
    pub(crate) failed: bool,

    /// Go on while the session is recorded
    #[arg(short, long)]
    pub(crate) follow: bool,

    /// One JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// The event: S@N, or @N for one of the newest session; without @N, the session itself
    #[arg(value_name = "S@N")]
    pub(crate) event: String,

    /// One JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CatArgs {
    /// Name, id or unique prefix of an id; with @N, as of event N
    #[arg(value_name = "S[@N]")]
    pub(crate) session: String,

    /// The file, relative to the current directory
    #[arg(value_name = "PATH", value_hint = clap::ValueHint::AnyPath)]
    pub(crate) path: PathBuf,
}

/// What to do with a path whose real state is not what the session saw.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ConflictChoice {
    /// Change nothing at all
    #[default]
    Abort,
    /// Leave that path alone and apply the others
    Skip,
    /// Go on all the same; what was there is kept: for undo, and by an undo in the session
    Overwrite,
}

/// How to apply, for every command that changes the real files.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ApplyOptions {
    /// Print the steps and take none
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// With --dry-run: one JSON object a line
    #[arg(long, requires = "dry_run")]
    pub(crate) json: bool,

    /// Do not ask
    #[arg(short, long)]
    pub(crate) yes: bool,

    /// Print nothing but errors
    #[arg(short, long)]
    pub(crate) quiet: bool,

    /// What to do when a path has changed meanwhile
    #[arg(long, value_enum, value_name = "WHAT", default_value_t)]
    pub(crate) on_conflict: ConflictChoice,
}

#[derive(Debug, Args)]
pub(crate) struct ReviewArgs {
    /// Name, id or unique prefix of an id [default: the newest session]
    #[arg(value_name = "S")]
    pub(crate) session: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct CommitArgs {
    /// Name, id or unique prefix of an id [default: the newest session]
    #[arg(value_name = "S")]
    pub(crate) session: Option<String>,

    #[command(flatten)]
    pub(crate) filters: FilterArgs,

    #[command(flatten)]
    pub(crate) apply: ApplyOptions,

    /// Copy, and leave the session whole
    #[arg(long)]
    pub(crate) keep: bool,

    #[command(flatten)]
    pub(crate) devices: DevicesArg,
}

/// For the commands that can make something real.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct DevicesArg {
    /// Make device nodes too (only root can)
    #[arg(long)]
    pub(crate) devices: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// Name, id or unique prefix of an id [default: the newest session]
    #[arg(value_name = "S")]
    pub(crate) session: Option<String>,

    #[command(flatten)]
    pub(crate) filters: FilterArgs,

    #[command(flatten)]
    pub(crate) apply: ApplyOptions,

    /// Refuse a selection that lacks events it rests on, instead of adding them
    #[arg(long)]
    pub(crate) strict: bool,

    /// Replay onto the tree below DIR instead of the real one
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub(crate) root: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) devices: DevicesArg,
}

/// A form for other tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// The whole session in one file
    Archive,
    /// The events, one JSON object a line
    Json,
    /// Processes and effects on a time line
    Chrome,
}

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// Name, id or unique prefix of an id [default: the newest session]
    #[arg(value_name = "S")]
    pub(crate) session: Option<String>,

    /// The form
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub(crate) format: ExportFormat,

    /// Write to FILE instead of standard output
    #[arg(short, long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,

    /// Leave out arguments of commands that look like secrets
    #[arg(long)]
    pub(crate) redact: bool,

    #[command(flatten)]
    pub(crate) filters: FilterArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// Name, id or unique prefix of an id [default: the newest session]
    #[arg(value_name = "S")]
    pub(crate) session: Option<String>,

    /// Write to FILE instead of standard output
    #[arg(short, long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,

    /// Leave out of arguments and contents what looks like secrets (a guess)
    #[arg(long)]
    pub(crate) redact: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// The archive; `-` is standard input
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(crate) file: PathBuf,

    /// Name the session so, instead of as it was named
    #[arg(short, long, value_name = "NAME")]
    pub(crate) session: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct UndoArgs {
    /// Name, id or unique prefix of an id [default: the newest session]
    #[arg(value_name = "S")]
    pub(crate) session: Option<String>,

    #[command(flatten)]
    pub(crate) apply: ApplyOptions,
}

#[derive(Debug, Args)]
pub(crate) struct RecoverArgs {
    /// Name, id or unique prefix of an id [default: the newest session]
    #[arg(value_name = "S")]
    pub(crate) session: Option<String>,

    /// Ask nothing: recovering never asks, so scripts may give it as to the other apply commands
    #[arg(short, long)]
    pub(crate) yes: bool,

    /// Print nothing but errors
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DiscardArgs {
    /// Names, ids or unique prefixes of ids
    #[arg(
        value_name = "S",
        required_unless_present_any = ["all", "older_than"],
        conflicts_with_all = ["all", "older_than"]
    )]
    pub(crate) sessions: Vec<String>,

    /// Every session that is not in use
    #[arg(long, conflicts_with = "older_than")]
    pub(crate) all: bool,

    /// Every session older than AGE: 90s, 30m, 12h, 7d, 2w
    #[arg(long, value_name = "AGE", value_parser = parse_age)]
    pub(crate) older_than: Option<std::time::Duration>,

    /// Do not ask
    #[arg(short, long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("limit").required(true).multiple(true))]
pub(crate) struct GcArgs {
    /// Delete sessions older than AGE: 90s, 30m, 12h, 7d, 2w
    #[arg(long, value_name = "AGE", value_parser = parse_age, group = "limit", env = "EFFIGY_MAX_AGE")]
    pub(crate) max_age: Option<std::time::Duration>,

    /// Keep the N newest sessions
    #[arg(long, value_name = "N", group = "limit", env = "EFFIGY_MAX_COUNT")]
    pub(crate) max_count: Option<usize>,

    /// Keep the newest sessions that fit into SIZE: 500M, 2G
    #[arg(long, value_name = "SIZE", value_parser = parse_size, group = "limit", env = "EFFIGY_MAX_SIZE")]
    pub(crate) max_size: Option<u64>,
}

/// binpash/try's options. Of -n, -y, -N and -L the last one says what becomes of the effects.
#[derive(Debug, Default, Args)]
pub(crate) struct TryArgs {
    /// Do not commit and do not ask: print the sandbox's directory
    #[arg(short = 'n', overrides_with = "keep")]
    pub(crate) keep: bool,

    /// Commit without asking
    #[arg(short = 'y', overrides_with = "yes")]
    pub(crate) yes: bool,

    /// Give the command no network
    #[arg(short = 'x', overrides_with = "no_net")]
    pub(crate) no_net: bool,

    /// Leave out of summary and commit the paths that match PATTERN, as grep has it (repeatable)
    #[arg(short = 'E', value_name = "PATTERN", allow_hyphen_values = true)]
    pub(crate) exclude: Vec<OsString>,

    /// Take into summary and commit only the paths that match PATTERN, as grep has it (repeatable)
    #[arg(short = 'I', value_name = "PATTERN", allow_hyphen_values = true)]
    pub(crate) include: Vec<OsString>,

    /// Let PATH not exist inside (repeatable)
    #[arg(short = 'i', value_name = "PATH", allow_hyphen_values = true)]
    pub(crate) hide: Vec<PathBuf>,

    /// Write the ordered log of effects, what was read and what was written, to PATH
    #[arg(
        short = 't',
        value_name = "PATH",
        allow_hyphen_values = true,
        overrides_with = "trace"
    )]
    pub(crate) trace: Option<PathBuf>,

    /// Work in the sandbox directory DIR, which exists
    #[arg(
        short = 'N',
        short_alias = 'D',
        value_name = "DIR",
        allow_hyphen_values = true
    )]
    pub(crate) sandbox: Vec<PathBuf>,

    /// Lay the sandbox over those in these directories, the first on top
    #[arg(short = 'L', value_name = "DIR:DIR", allow_hyphen_values = true)]
    pub(crate) lower: Vec<OsString>,

    /// Accepted; no union helper is needed
    #[arg(short = 'U', value_name = "PATH", allow_hyphen_values = true)]
    pub(crate) union_helper: Vec<PathBuf>,

    /// Print the version
    #[arg(short = 'v', overrides_with = "version")]
    pub(crate) version: bool,

    /// Print the usage
    #[arg(short = 'h', long, overrides_with = "help")]
    pub(crate) help: bool,

    /// A script for the shell, or a command with its arguments
    #[arg(trailing_var_arg = true, value_name = "CMD", value_hint = clap::ValueHint::CommandWithArguments)]
    pub(crate) words: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// One JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    pub(crate) shell: Shell,
}

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    #[arg(value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub(crate) directory: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    fn parse(line: &[&str]) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(std::iter::once("effigy").chain(line.iter().copied()))
    }

    #[test]
    fn what_follows_the_command_belongs_to_it() {
        let cli = parse(&["run", "-n", "rm", "-y", "--store", "x"]).expect("a valid line");
        let Command::Run(args) = cli.command else {
            panic!("not run: {:?}", cli.command);
        };
        assert!(args.options.keep && !args.options.yes);
        assert_eq!(args.command, ["rm", "-y", "--store", "x"]);
        assert_eq!(cli.store, None);
    }

    #[test]
    fn a_misspelt_option_is_no_command() {
        assert!(parse(&["run", "--kep", "true"]).is_err());
    }

    #[test]
    fn a_separator_inside_the_command_stays() {
        let cli = parse(&["run", "--", "env", "--", "x"]).expect("a valid line");
        let Command::Run(args) = cli.command else {
            panic!("not run: {:?}", cli.command);
        };
        assert_eq!(args.command, ["env", "--", "x"]);
    }

    #[test]
    fn yes_and_keep_exclude_each_other() {
        assert!(parse(&["run", "-y", "-n", "--", "true"]).is_err());
    }

    #[test]
    fn discard_wants_something_to_discard() {
        assert!(parse(&["discard"]).is_err());
        assert!(parse(&["discard", "a", "--all"]).is_err());
        assert!(parse(&["discard", "a", "b"]).is_ok());
        assert!(parse(&["discard", "--older-than", "7d"]).is_ok());
    }

    #[test]
    fn gc_wants_a_limit() {
        assert!(parse(&["gc"]).is_err());
        assert!(parse(&["gc", "--max-age", "2w", "--max-size", "1G"]).is_ok());
    }
}
