//! Which paths are meant: `--only` and `--exclude`.

use effigy_journal::Record;
use globset::{GlobBuilder, GlobMatcher};
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

mod journal;

pub use journal::{Choice, EventFilter, EventSelection};

/// A choice of paths.
#[derive(Debug, Default)]
pub struct Selection {
    only: Vec<Pattern>,
    exclude: Vec<Pattern>,
    /// Only these paths, whatever the patterns say.
    among: Option<HashSet<PathBuf>>,
}

/// Why a pattern cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SelectionError {
    /// It is no glob.
    #[error("use the pattern {pattern}: {reason}")]
    Invalid {
        /// As given.
        pattern: String,
        /// What is wrong.
        reason: String,
    },
}

#[derive(Debug)]
struct Pattern {
    given: OsString,
    /// The directory that the glob is relative to. Not part of the glob, as its name may hold anything.
    base: PathBuf,
    glob: Glob,
    matched: AtomicBool,
}

#[derive(Debug)]
enum Glob {
    Matcher(GlobMatcher),
    /// A name without wildcards, which need not be UTF-8.
    Literal(PathBuf),
}

impl Pattern {
    fn new(cwd: &Path, given: &OsStr) -> Result<Self, SelectionError> {
        let invalid = |reason: String| SelectionError::Invalid {
            pattern: given.display().to_string(),
            reason,
        };
        let mut base = if given.as_bytes().starts_with(b"/") {
            PathBuf::from("/")
        } else {
            cwd.to_owned()
        };
        let mut rest = PathBuf::new();
        for component in Path::new(given).components() {
            match component {
                Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
                // The run's working directory has no symbolic links in it, so its parent is the one above.
                Component::ParentDir if rest.as_os_str().is_empty() => {
                    base.pop();
                }
                Component::ParentDir => {
                    return Err(invalid("`..` can only stand at its beginning".into()));
                }
                Component::Normal(name) => rest.push(name),
            }
        }
        if given.is_empty() {
            return Err(invalid("it is empty".into()));
        }
        // A directory's pattern takes what is below it, so it says the same without the end.
        while rest.file_name() == Some(OsStr::new("**")) && rest.components().count() > 1 {
            rest.pop();
        }
        let wild = rest
            .as_os_str()
            .as_bytes()
            .iter()
            .any(|b| b"*?[{\\".contains(b));
        let glob = if wild {
            let text = rest
                .to_str()
                .ok_or_else(|| invalid("a glob must be UTF-8".into()))?;
            let glob = GlobBuilder::new(text)
                .literal_separator(true)
                .backslash_escape(true)
                .build();
            Glob::Matcher(
                glob.map_err(|e| invalid(e.kind().to_string()))?
                    .compile_matcher(),
            )
        } else {
            Glob::Literal(rest)
        };
        Ok(Self {
            given: given.to_owned(),
            base,
            glob,
            matched: AtomicBool::new(false),
        })
    }

    /// Whether the path or a directory above it matches.
    fn matches(&self, path: &Path) -> bool {
        let Ok(below) = path.strip_prefix(&self.base) else {
            return false;
        };
        let found = match &self.glob {
            Glob::Literal(name) => below.starts_with(name),
            Glob::Matcher(glob) => below
                .ancestors()
                .any(|p| !p.as_os_str().is_empty() && glob.is_match(p)),
        };
        if found {
            self.matched.store(true, Ordering::Relaxed);
        }
        found
    }
}

impl Selection {
    /// Everything.
    #[must_use]
    pub fn all() -> Self {
        Self::default()
    }

    /// What matches one of `only` (all when there are none) and none of `exclude`. Relative patterns are anchored at
    /// the working directory of the run; `*` stays within a component, `**` crosses; a match takes all that is below.
    ///
    /// # Errors
    /// When a pattern is no glob.
    pub fn new(
        record: &Record,
        only: &[OsString],
        exclude: &[OsString],
    ) -> Result<Self, SelectionError> {
        let patterns = |given: &[OsString]| {
            given
                .iter()
                .map(|g| Pattern::new(&record.cwd, g))
                .collect::<Result<Vec<_>, _>>()
        };
        Ok(Self {
            only: patterns(only)?,
            exclude: patterns(exclude)?,
            among: None,
        })
    }

    /// Leaves out all but these absolute paths (exactly these: not what is below).
    #[must_use]
    pub fn among(mut self, paths: HashSet<PathBuf>) -> Self {
        self.among = Some(paths);
        self
    }

    /// Whether everything is meant.
    #[must_use]
    pub fn is_all(&self) -> bool {
        self.only.is_empty() && self.exclude.is_empty() && self.among.is_none()
    }

    /// Whether this absolute path is meant; notes which patterns matched.
    pub fn contains(&self, path: &Path) -> bool {
        // Every pattern is asked, so that each knows whether it is of any use.
        let only = self.only.iter().filter(|p| p.matches(path)).count() > 0;
        let excluded = self.exclude.iter().filter(|p| p.matches(path)).count() > 0;
        let among = self.among.as_ref().is_none_or(|paths| paths.contains(path));
        (self.only.is_empty() || only) && !excluded && among
    }

    /// The patterns, as given, that have matched nothing so far. To be asked after the effects have been read; the plan
    /// functions ask themselves and refuse.
    #[must_use]
    pub fn unmatched(&self) -> Vec<OsString> {
        let all = self.only.iter().chain(&self.exclude);
        all.filter(|p| !p.matched.load(Ordering::Relaxed))
            .map(|p| p.given.clone())
            .collect()
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use effigy_journal::SessionId;

    fn selection(cwd: &[u8], only: &[&str], exclude: &[&str]) -> Selection {
        let mut record = Record::new(SessionId::parse("2222-2222").unwrap(), None);
        record.cwd = PathBuf::from(OsStr::from_bytes(cwd));
        let os = |list: &[&str]| list.iter().map(OsString::from).collect::<Vec<_>>();
        Selection::new(&record, &os(only), &os(exclude)).unwrap()
    }

    #[test]
    fn a_star_stays_in_its_component_and_two_cross() {
        let s = selection(b"/w", &["a/*.c"], &[]);
        assert!(s.contains(Path::new("/w/a/x.c")) && !s.contains(Path::new("/w/a/b/x.c")));
        let s = selection(b"/w", &["**/x.c"], &[]);
        assert!(
            s.contains(Path::new("/w/x.c"))
                && s.contains(Path::new("/w/a/b/x.c"))
                && !s.contains(Path::new("/x.c"))
        );
    }

    #[test]
    fn a_directory_takes_what_is_below() {
        let s = selection(b"/w", &["p"], &["p/tmp", "p/[xy]"]);
        assert!(s.contains(Path::new("/w/p")) && s.contains(Path::new("/w/p/q/r")));
        assert!(
            !s.contains(Path::new("/w/p/tmp/f"))
                && !s.contains(Path::new("/w/p/x/f"))
                && !s.contains(Path::new("/w/pp"))
        );
    }

    #[test]
    fn dots_and_brackets_in_the_working_directory_are_literal() {
        let s = selection(b"/w[1]/\xff*", &["a.b", "../up"], &[]);
        let path = |p: &[u8]| PathBuf::from(OsStr::from_bytes(p));
        assert!(s.contains(&path(b"/w[1]/\xff*/a.b")) && s.contains(&path(b"/w[1]/up/x")));
        assert!(!s.contains(&path(b"/w[1]/\xff*/axb")) && !s.contains(&path(b"/w1/\xffx/a.b")));
    }

    #[test]
    fn what_matches_nothing_is_told() {
        let s = selection(b"/w", &["a", "nope/**"], &["/abs"]);
        s.contains(Path::new("/w/a"));
        assert_eq!(s.unmatched(), ["nope/**", "/abs"]);
        s.contains(Path::new("/abs/x"));
        assert_eq!(s.unmatched(), ["nope/**"]);
    }
}
