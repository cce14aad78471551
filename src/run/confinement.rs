//! What the command may not do at all: `--write`, `--deny-read`, `--protect`, `--protect-git`.
//!
//! Here options become paths that exist. Mounts enforce them, so that a path holds whatever name leads to it.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use effigy_journal::ByteString;
use effigy_semisolate::Wishes;
use globset::{GlobBuilder, GlobMatcher};

use crate::cli::RunOptions;
use crate::failure::{Failure, status};
use crate::render::name::escaped;
use crate::render::quantity::count;

/// Directories that the expansion of one glob looks into.
const MAX_DIRECTORIES: usize = 100_000;

/// The paths, absolute and without symbolic links.
#[derive(Debug, Default)]
pub(super) struct Confinement {
    pub(super) write: Vec<PathBuf>,
    pub(super) deny_read: Vec<PathBuf>,
    pub(super) protect: Vec<PathBuf>,
}

impl Confinement {
    pub(super) fn of(options: &RunOptions, cwd: &Path) -> anyhow::Result<Self> {
        let find = |option, paths: &[PathBuf]| found(option, paths, options, cwd);
        let mut confinement = Self {
            write: find("--write", &options.write)?,
            deny_read: find("--deny-read", &options.deny_read)?,
            protect: find("--protect", &options.protect)?,
        };
        if let Some(path) = confinement
            .deny_read
            .iter()
            .find(|path| cwd.starts_with(path))
        {
            return Err(refused(
                &format!("cannot deny reading {}", escaped(path)),
                "the command is to run in it",
            ));
        }
        if !options.write.is_empty() && confinement.write.is_empty() {
            return Err(refused(
                "cannot confine writes",
                "none of the paths that may be written exists",
            ));
        }
        if options.protect_git {
            confinement.protect.extend(of_git(cwd, options.optional)?);
        }
        for paths in [
            &mut confinement.write,
            &mut confinement.deny_read,
            &mut confinement.protect,
        ] {
            paths.sort();
            paths.dedup();
        }
        Ok(confinement)
    }
}

/// The wishes as they would be typed, for the session's record.
pub(super) fn words(wishes: &Wishes) -> Vec<ByteString> {
    let options = [
        ("--write", &wishes.write),
        ("--deny-read", &wishes.deny_read),
        ("--read-only", &wishes.read_only),
    ];
    let both = options.into_iter().flat_map(|(option, paths)| {
        let word = move |path: &PathBuf| [option.into(), path.as_os_str().into()];
        paths.iter().flat_map(word)
    });
    both.collect()
}

fn refused(what: &str, why: &str) -> anyhow::Error {
    Failure::new(format!("{what}: {why}"))
        .status(status::USAGE)
        .into()
}

/// The paths that an option means, globs expanded and said.
fn found(
    option: &str,
    given: &[PathBuf],
    options: &RunOptions,
    cwd: &Path,
) -> anyhow::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for path in given {
        match path.canonicalize() {
            Ok(path) => paths.push(path),
            Err(_) if is_glob(path) => {
                let matching = expand(path, cwd)?;
                if matching.is_empty() && !options.optional {
                    return Err(missing(option, path, "nothing matches it"));
                }
                if !options.quiet {
                    let number = count(matching.len(), "path");
                    eprintln!("effigy: {option} {}: {number} now", escaped(path));
                }
                paths.extend(matching);
            }
            Err(error) if options.optional && error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(missing(option, path, &error.to_string())),
        }
    }
    Ok(paths)
}

fn missing(option: &str, path: &Path, why: &str) -> anyhow::Error {
    Failure::new(format!("cannot find {} of {option}: {why}", escaped(path)))
        .hint("--optional lets paths be missing")
        .into()
}

fn is_glob(path: &Path) -> bool {
    path.as_os_str()
        .as_bytes()
        .iter()
        .any(|byte| b"*?[".contains(byte))
}

/// What exists of a glob. Symbolic links on the way are not followed; what is found at the end is.
fn expand(glob: &Path, cwd: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut base = match glob.is_absolute() {
        true => PathBuf::from("/"),
        false => cwd.to_owned(),
    };
    let mut rest: Vec<&OsStr> = Vec::new();
    for component in glob.components() {
        match component {
            Component::Normal(name) => rest.push(name),
            Component::ParentDir if rest.is_empty() => base = base.join("..").canonicalize()?,
            Component::ParentDir => {
                return Err(refused(
                    &format!("cannot use the pattern {}", escaped(glob)),
                    "`..` can only stand at its beginning",
                ));
            }
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    let parts = rest
        .iter()
        .map(|part| Part::of(part, glob))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let mut found = Vec::new();
    let mut pending = VecDeque::from([(base, 0)]);
    let mut looked_into = 0;
    while let Some((dir, at)) = pending.pop_front() {
        let Some(part) = parts.get(at) else {
            found.extend(dir.canonicalize().ok());
            continue;
        };
        if let Part::Name(name) = part {
            let path = dir.join(name);
            if path.symlink_metadata().is_ok() {
                pending.push_back((path, at + 1));
            }
            continue;
        }
        looked_into += 1;
        if looked_into > MAX_DIRECTORIES {
            return Err(refused(
                &format!("cannot use the pattern {}", escaped(glob)),
                "it crosses too many directories",
            ));
        }
        if matches!(part, Part::Any) {
            pending.push_back((dir.clone(), at + 1));
        }
        // What cannot be listed holds nothing that the command could list.
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
            match part {
                Part::Any if is_dir => pending.push_back((entry.path(), at)),
                // At the end `**` takes files too, but a directory takes what is below it.
                Part::Matching(glob)
                    if glob.is_match(entry.file_name()) && (is_dir || at + 1 == parts.len()) =>
                {
                    pending.push_back((entry.path(), at + 1));
                }
                _ => {}
            }
        }
    }
    found.sort();
    found.dedup();
    Ok(found)
}

/// One component of a glob.
enum Part<'a> {
    Name(&'a OsStr),
    Matching(GlobMatcher),
    /// `**`
    Any,
}

impl<'a> Part<'a> {
    fn of(name: &'a OsStr, glob: &Path) -> anyhow::Result<Self> {
        if name == "**" {
            return Ok(Self::Any);
        }
        if !is_glob(Path::new(name)) {
            return Ok(Self::Name(name));
        }
        let wrong = |why: &str| refused(&format!("cannot use the pattern {}", escaped(glob)), why);
        let text = name.to_str().ok_or_else(|| wrong("a glob must be UTF-8"))?;
        let built = GlobBuilder::new(text).literal_separator(true).build();
        Ok(Self::Matching(
            built
                .map_err(|error| wrong(&error.kind().to_string()))?
                .compile_matcher(),
        ))
    }
}

/// Hooks and configuration of the repository that holds a directory.
fn of_git(cwd: &Path, optional: bool) -> anyhow::Result<Vec<PathBuf>> {
    let dot_git = cwd
        .ancestors()
        .map(|dir| dir.join(".git"))
        .find(|path| path.symlink_metadata().is_ok());
    let Some(dot_git) = dot_git else {
        return match optional {
            true => Ok(Vec::new()),
            false => Err(missing(
                "--protect-git",
                &cwd.join(".git"),
                "no directory above is a repository either",
            )),
        };
    };
    let mut paths = Vec::new();
    let mut dirs = vec![dot_git.clone()];
    if dot_git.is_file() {
        // A worktree or submodule: the file says where its directory is, and that one where the common one is.
        paths.push(dot_git.clone());
        let own = pointed_at(&dot_git, "gitdir:");
        dirs = own.into_iter().collect();
    }
    if let Some(common) = dirs
        .first()
        .and_then(|dir| pointed_at(&dir.join("commondir"), ""))
    {
        dirs.push(common);
    }
    let mut whole = false;
    for dir in &dirs {
        for name in ["hooks", "config", "config.worktree", "commondir", "gitdir"] {
            if let Ok(path) = dir.join(name).canonicalize() {
                paths.push(path);
            }
        }
        whole |= dir.join("hooks").exists() && dir.join("config").exists();
    }
    if !whole && !optional {
        return Err(missing(
            "--protect-git",
            &dot_git,
            "it has no hooks or no config, which the command could make",
        ));
    }
    Ok(paths)
}

/// The path in a small file of git's, relative to that file's directory.
fn pointed_at(file: &Path, before: &str) -> Option<PathBuf> {
    let text = fs::read(file).ok().filter(|text| text.len() < 1 << 16)?;
    let path = text.strip_prefix(before.as_bytes())?.trim_ascii();
    file.parent()?
        .join(OsStr::from_bytes(path))
        .canonicalize()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_are_expanded_against_what_exists() {
        let scratch = tempfile::tempdir().expect("a temporary directory");
        let root = scratch.path().canonicalize().expect("it exists");
        fs::create_dir_all(root.join("a/b/c")).expect("fresh directories");
        for file in ["k.pem", "a/x.pem", "a/b/c/y.pem", "a/b/n.txt"] {
            fs::write(root.join(file), "").expect("a fresh file");
        }
        std::os::unix::fs::symlink("/etc", root.join("a/etc")).expect("a fresh link");
        let expanded = |glob: &str| {
            let found = expand(Path::new(glob), &root).expect("a pattern");
            let names = found.iter().map(|path| {
                path.strip_prefix(&root)
                    .expect("below")
                    .display()
                    .to_string()
            });
            names.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(expanded("*.pem"), "k.pem");
        assert_eq!(expanded("**/*.pem"), "a/b/c/y.pem a/x.pem k.pem");
        assert_eq!(expanded("a/*/c"), "a/b/c");
        assert_eq!(expanded("a/**"), "a a/b a/b/c");
        assert_eq!(expanded("nothing*"), "");
        assert!(expand(Path::new("a/../*"), &root).is_err());
        assert!(expand(Path::new("[x"), &root).is_err());
    }
}
