//! A path as typed, made into the absolute path that a session knows it by.

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use crate::failure::Failure;

/// Resolves `path` against the current directory: symbolic links in its parents are followed, the last component is
/// not, and what does not exist (yet) stays as typed.
///
/// `..` is never removed by its letters alone: after a symbolic link it means something else. It can therefore not
/// follow a name that does not exist.
pub(crate) fn absolute(path: &Path) -> anyhow::Result<PathBuf> {
    let no = |message: &str| Failure::new(format!("cannot find {}: {message}", path.display()));
    if path.as_os_str().is_empty() {
        return Err(no("the path is empty").into());
    }
    let mut parts: Vec<Component<'_>> = path.components().collect();
    // The name itself is not followed; `..` and `.` at the end are directories and are.
    let mut tail: Vec<Component<'_>> = Vec::new();
    if matches!(parts.last(), Some(Component::Normal(_))) {
        tail.extend(parts.pop());
    }
    loop {
        let head: PathBuf = match parts.is_empty() {
            true => PathBuf::from("."),
            false => parts.iter().collect(),
        };
        match fs::canonicalize(&head) {
            Ok(mut found) => {
                found.extend(tail.iter().rev());
                return Ok(found);
            }
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                match parts.pop() {
                    Some(part @ Component::Normal(_)) => tail.push(part),
                    _ => return Err(no("`..` follows a name that does not exist").into()),
                }
            }
            Err(e) => return Err(no(&e.to_string()).into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn parents_are_followed_and_the_name_is_not() {
        let scratch = tempfile::tempdir().expect("a temporary directory");
        let root = scratch.path().canonicalize().expect("it exists");
        fs::create_dir_all(root.join("real/sub")).expect("a fresh directory");
        symlink("real/sub", root.join("link")).expect("a fresh name");
        let find = |p: &str| absolute(&root.join(p)).expect("a path that can be resolved");
        assert_eq!(find("link/new/er"), root.join("real/sub/new/er"));
        assert_eq!(find("link"), root.join("link"));
        assert_eq!(find("link/../x"), root.join("real/x"));
        assert_eq!(find("missing"), root.join("missing"));
        assert_eq!(find("link/."), root.join("link"));
        assert!(absolute(&root.join("missing/../x")).is_err());
        assert!(absolute(Path::new("")).is_err());
    }
}
