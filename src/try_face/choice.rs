//! Which effects are meant, and how they are listed.

use std::collections::HashSet;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Read as _, Write};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use effigy_journal::Session;
use effigy_replay::{Change, FileType, NetEffect, Selection, net_effects};

use super::{sandbox, stop};
use crate::commands::commit::commit_selection;
use crate::failure::Cannot as _;
use crate::render::name::escaped;

/// The patterns of `-I` and `-E`.
#[derive(Clone, Copy)]
pub(super) struct Choice<'a> {
    pub(super) include: &'a [OsString],
    pub(super) exclude: &'a [OsString],
}

/// Effects, one a line.
pub(super) struct Lines {
    lines: Vec<Line>,
    /// Nothing was left out.
    whole: bool,
}

struct Line {
    path: PathBuf,
    what: &'static str,
}

impl Line {
    fn text(&self) -> String {
        format!("{} ({})", escaped(self.path.as_os_str()), self.what)
    }
}

impl Choice<'_> {
    /// The same without patterns.
    pub(super) fn everything(self) -> Choice<'static> {
        Choice {
            include: &[],
            exclude: &[],
        }
    }

    /// The effects of a session that the patterns leave.
    pub(super) fn of(self, session: &Session) -> anyhow::Result<Lines> {
        let effects = net_effects(session, &Selection::all()).cannot()?;
        let mut lines: Vec<Line> = effects.iter().flat_map(lines_of).collect();
        lines.sort_by(|a, b| a.path.cmp(&b.path));
        let all = lines.len();
        for (patterns, leave) in [(self.include, true), (self.exclude, false)] {
            if !patterns.is_empty() && !lines.is_empty() {
                let matching = grep(&lines, patterns)?;
                lines.retain(|line| matching.contains(&line.path) == leave);
            }
        }
        let whole = lines.len() == all;
        Ok(Lines { lines, whole })
    }
}

/// What grep selects: the patterns are its own, so it is asked itself.
fn grep(lines: &[Line], patterns: &[OsString]) -> anyhow::Result<HashSet<PathBuf>> {
    let mut command = Command::new("grep");
    command.args(["-a", "-z"]).env("LC_ALL", "C");
    for pattern in patterns {
        command.arg("-e").arg(pattern);
    }
    let failed = |error: io::Error| stop(2, format!("could not run grep: {error}"));
    let mut grep = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let input: Vec<u8> = lines
        .iter()
        .flat_map(|line| [line.path.as_os_str().as_bytes(), b"\0"])
        .flatten()
        .copied()
        .collect();
    // Both pipes are of limited size.
    let stdin = grep.stdin.take();
    let writer = thread::spawn(move || stdin.map(|mut stdin| stdin.write_all(&input)));
    let mut output = Vec::new();
    if let Some(stdout) = &mut grep.stdout {
        stdout.read_to_end(&mut output).map_err(failed)?;
    }
    let status = grep.wait().map_err(failed)?;
    let _read_or_not = writer.join();
    match status.code() {
        Some(0 | 1) => Ok(output
            .split(|&byte| byte == 0)
            .map(|path| PathBuf::from(OsString::from_vec(path.to_vec())))
            .collect()),
        // It has said why.
        _ => Err(stop(2, "the pattern of -E or -I cannot be used")),
    }
}

/// An effect in try's words. A file that got another name is two effects there.
fn lines_of(effect: &NetEffect) -> Vec<Line> {
    let line = |path: &Path, what| Line {
        path: path.to_owned(),
        what,
    };
    let Some(after) = &effect.after else {
        return vec![line(&effect.path, "deleted")];
    };
    let existed = effect.before.is_some() && effect.former_path().is_none();
    let what = match (after.kind, existed) {
        (FileType::Symlink, _) => "symlink",
        (FileType::Directory, false) => "created dir",
        (FileType::Directory, true) if effect.change == Change::TypeChanged => "replaced with dir",
        (_, false) => "added",
        (_, true) => "modified",
    };
    let mut lines = vec![line(&effect.path, what)];
    lines.extend(effect.former_path().map(|from| line(from, "deleted")));
    lines
}

impl Lines {
    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    pub(super) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "\nChanges detected in the following files:\n")?;
        for line in &self.lines {
            writeln!(out, "{}", line.text())?;
        }
        Ok(())
    }

    /// What is left of the lines when the user has edited them; `None` when nothing is, or the editor failed.
    pub(super) fn edited(self) -> anyhow::Result<Option<Self>> {
        let dir = sandbox::make_temporary()?;
        let edited = self.edit_in(&dir);
        // It holds nothing that is still needed.
        let _left = fs::remove_dir_all(&dir);
        let Some(edited) = edited? else {
            return Ok(None);
        };
        let left: HashSet<&[u8]> = edited.split(|&byte| byte == b'\n').collect();
        let before = self.lines.len();
        let mut lines = self.lines;
        lines.retain(|line| left.contains(line.text().as_bytes()));
        let whole = self.whole && lines.len() == before;
        Ok((!lines.is_empty()).then_some(Self { lines, whole }))
    }

    fn edit_in(&self, dir: &Path) -> anyhow::Result<Option<Vec<u8>>> {
        let file = dir.join("effects");
        self.write(&mut io::BufWriter::new(fs::File::create(&file)?))?;
        let editor = env::var_os("EDITOR").filter(|editor| !editor.is_empty());
        // As git has it: the variable is shell text, perhaps with arguments.
        let mut script = editor.unwrap_or_else(|| "vi".into());
        script.push(" \"$@\"");
        let status = Command::new("/bin/sh")
            .arg("-c")
            .arg(script)
            .arg("try")
            .arg(&file)
            .status()?;
        match status.success() {
            true => Ok(Some(fs::read(&file)?)),
            false => Ok(None),
        }
    }
}

/// Commits the effects of these lines, all or none.
pub(super) fn commit(session: &mut Session, lines: &Lines) -> anyhow::Result<()> {
    if lines.is_empty() {
        return Ok(());
    }
    let selection = match lines.whole {
        true => Selection::all(),
        false => Selection::all().among(lines.lines.iter().map(|line| line.path.clone()).collect()),
    };
    commit_selection(session, &selection, true).inspect_err(|_| {
        eprintln!("try: couldn't commit; nothing was changed");
    })
}
