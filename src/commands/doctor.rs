//! `effigy doctor`: what this machine allows, and the remedy for what it refuses.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::{self, ExitCode};

use anyhow::Context as _;
use effigy_journal::{GcLimits, Store};
use effigy_semisolate::features::capabilities;
use serde::Serialize;

use crate::cli::DoctorArgs;
use crate::failure::{Cannot as _, Failure, status};
use crate::render::colour::{Ink, Palette};
use crate::render::json;
use crate::render::name::escaped;
use crate::render::quantity::size;
use crate::run::refusal::remedy;
use crate::store;

/// One thing that a run needs or can use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Line {
    name: String,
    ok: bool,
    needed: bool,
    detail: String,
    remedy: Option<String>,
}

pub(crate) fn doctor(args: &DoctorArgs, directory: &Path) -> anyhow::Result<ExitCode> {
    let (store, line) = sessions(directory);
    let mut lines = match &store {
        Some(store) => machine(store)?,
        None => Vec::new(),
    };
    lines.push(line);
    let stdout = io::stdout().lock();
    let palette = Palette::of(&stdout);
    let mut out = io::BufWriter::new(stdout);
    if args.json {
        for line in &lines {
            json::write_line(&mut out, line)?;
        }
    } else {
        write_lines(&mut out, &lines, palette)?;
    }
    out.flush()?;
    Ok(match lines.iter().any(|line| line.needed && !line.ok) {
        true => ExitCode::from(status::NO),
        false => ExitCode::SUCCESS,
    })
}

/// What the machine allows, tried with layers in the store.
fn machine(store: &Store) -> anyhow::Result<Vec<Line>> {
    // What is in the trash is nobody's, and swept up by the next gc if this process is killed.
    let scratch = store
        .dir()
        .join("trash")
        .join(format!("doctor.{}", process::id()));
    fs::create_dir(&scratch).with_context(|| format!("cannot make {}", scratch.display()))?;
    let lines = capabilities(&scratch).into_iter().map(|capability| Line {
        name: capability.name.to_owned(),
        ok: capability.ok,
        needed: capability.needed,
        detail: capability.detail,
        remedy: capability.remedy,
    });
    let lines = lines.collect();
    // An overlay leaves a directory of mode 0, which only the store's own sweep can remove.
    store.gc(&GcLimits::default(), &mut |_| true).cannot()?;
    Ok(lines)
}

/// Whether sessions can be kept: the store is tried as a run would.
fn sessions(directory: &Path) -> (Option<Store>, Line) {
    let line = |ok, detail, remedy| Line {
        name: "a place for sessions".to_owned(),
        ok,
        needed: true,
        detail,
        remedy,
    };
    let store = match store::open(directory) {
        Ok(store) => store,
        Err(error) => {
            let hint = error.downcast_ref::<Failure>().and_then(Failure::advice);
            return (
                None,
                line(false, error.to_string(), hint.map(str::to_owned)),
            );
        }
    };
    let line = match store.probe() {
        Ok(capacity) => {
            let free = size(capacity.free_bytes);
            line(
                true,
                match capacity.in_memory {
                    true => format!("{}, {free} free, in memory", store.dir().display()),
                    false => format!("{}, {free} free", store.dir().display()),
                },
                None,
            )
        }
        Err(error) => line(false, format!("cannot {error}"), Some(remedy(&error))),
    };
    (Some(store), line)
}

fn write_lines(out: &mut dyn Write, lines: &[Line], palette: Palette) -> io::Result<()> {
    let width = lines
        .iter()
        .map(|line| line.name.chars().count())
        .max()
        .unwrap_or(0);
    for line in lines {
        let answer = match (line.ok, line.needed) {
            (true, _) => palette.paint(Ink::Added, "yes"),
            (false, true) => palette.paint(Ink::Risky, "no "),
            (false, false) => palette.paint(Ink::Changed, "no "),
        };
        let text = format!("{:width$}  {}", line.name, escaped(&line.detail));
        writeln!(out, "{answer}  {}", text.trim_end())?;
        if let Some(remedy) = line.remedy.as_deref().filter(|_| !line.ok) {
            for part in remedy.lines() {
                writeln!(out, "     {:width$}  {}", "", escaped(part))?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remedy_stands_below_what_is_missing() {
        let line = |name: &str, ok, remedy: Option<&str>| Line {
            name: name.to_owned(),
            ok,
            needed: true,
            detail: "found".to_owned(),
            remedy: remedy.map(str::to_owned),
        };
        let lines = [
            line("a", true, Some("never shown")),
            line("longer", false, Some("do this\nand that")),
        ];
        let mut out = Vec::new();
        write_lines(&mut out, &lines, Palette::plain()).expect("a vector takes everything");
        assert_eq!(
            String::from_utf8(out).expect("text"),
            "yes  a       found\nno   longer  found\n             do this\n             and that\n"
        );
    }
}
