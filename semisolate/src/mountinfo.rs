//! What is mounted: `/proc/self/mountinfo` as data.
//!
//! See proc_pid_mountinfo(5). The text comes from the kernel, but names in it come from whoever mounted: they are bytes, and a
//! line that cannot be read is an error, never skipped, because a mount that is not known would be a hole in the semisolate.

use std::collections::HashMap;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// The mount's number, unique while it exists.
    pub id: u32,
    /// The number of the mount it hangs on.
    pub parent: u32,
    /// Where it is mounted: absolute, without symbolic links.
    pub mount_point: PathBuf,
    /// The filesystem's type, such as `ext4` or `fuse.sshfs`.
    pub kind: String,
    /// What is mounted: a device, a server, or any word.
    pub source: OsString,
    /// The mount's own options, such as `rw`, `nosuid`.
    pub options: Vec<String>,
    /// The options of the filesystem itself.
    pub super_options: Vec<String>,
}

/// A line of mountinfo that does not have the documented form.
#[derive(Debug, thiserror::Error)]
#[error("read the list of mounts: line {line} does not have the form of mountinfo: {text:?}")]
pub struct ParseError {
    line: usize,
    text: String,
}

impl Mount {
    /// True when nothing can be written through this mount.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.has("ro") || self.super_options.iter().any(|option| option == "ro")
    }

    /// True when the mount itself has `option`.
    #[must_use]
    pub fn has(&self, option: &str) -> bool {
        self.options.iter().any(|have| have == option)
    }
}

/// Reads the text of a mountinfo file.
///
/// # Errors
/// A line that does not have the documented form.
pub fn parse(text: &[u8]) -> Result<Vec<Mount>, ParseError> {
    text.split(|&byte| byte == b'\n')
        .enumerate()
        .filter(|(_, line)| !line.is_empty())
        .map(|(index, line)| {
            parse_line(line).ok_or_else(|| ParseError {
                line: index + 1,
                text: line.escape_ascii().to_string(),
            })
        })
        .collect()
}

fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|&byte| byte == b' ');
    let number = |field: &[u8]| std::str::from_utf8(field).ok()?.parse().ok();
    let id = number(fields.next()?)?;
    let parent = number(fields.next()?)?;
    let (_device, _root) = (fields.next()?, fields.next()?);
    let mount_point = PathBuf::from(unescape(fields.next()?));
    let options = words(fields.next()?);
    // Optional fields (shared:1 master:2 …) end with a lone dash.
    fields.find(|field| *field == b"-")?;
    let kind = String::from_utf8(fields.next()?.to_vec()).ok()?;
    let source = unescape(fields.next()?);
    let super_options = words(fields.next().unwrap_or_default());
    mount_point.is_absolute().then_some(Mount {
        id,
        parent,
        mount_point,
        kind,
        source,
        options,
        super_options,
    })
}

fn words(field: &[u8]) -> Vec<String> {
    // Only words such as ro and nosuid are looked at: what is not ASCII among a filesystem's own options may be shown escaped.
    field
        .split(|&byte| byte == b',')
        .map(|word| word.escape_ascii().to_string())
        .collect()
}

/// Undoes the kernel's `\ooo` for space, tab, newline, backslash and `#`.
fn unescape(field: &[u8]) -> OsString {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte == b'\\'
            && let [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', tail @ ..] = rest
        {
            plain.push((a - b'0') * 64 + (b - b'0') * 8 + (c - b'0'));
            rest = tail;
        } else {
            plain.push(byte);
        }
    }
    OsString::from_vec(plain)
}

/// The mounts that a path can reach: those that no other mount hides, parents before children.
///
/// A mount is hidden when another is mounted over its mount point later, or over one of the directories that lead to it.
#[must_use]
pub fn reachable(mounts: &[Mount]) -> Vec<&Mount> {
    let mut children: HashMap<u32, Vec<&Mount>> = HashMap::new();
    for mount in mounts {
        children.entry(mount.parent).or_default().push(mount);
    }
    let by_id: HashMap<u32, &Mount> = mounts.iter().map(|mount| (mount.id, mount)).collect();
    // The root of the tree is the mount whose parent is not listed; a later one over it at `/` hides it.
    let Some(mut root) = mounts
        .iter()
        .find(|mount| mount.mount_point == Path::new("/") && !by_id.contains_key(&mount.parent))
        .or_else(|| {
            mounts
                .iter()
                .find(|mount| mount.mount_point == Path::new("/"))
        })
    else {
        return Vec::new();
    };
    while let Some(over) = top_at(&children, root, Path::new("/")) {
        root = over;
    }
    let mut seen = Vec::new();
    let mut pending = vec![root];
    while let Some(mount) = pending.pop() {
        seen.push(mount);
        let below: Vec<&Mount> = children
            .get(&mount.id)
            .into_iter()
            .flatten()
            .copied()
            .collect();
        for child in &below {
            let hidden = below.iter().any(|other| {
                other.id != child.id
                    && child.mount_point != other.mount_point
                    && child.mount_point.starts_with(&other.mount_point)
            });
            if hidden || child.mount_point == mount.mount_point {
                continue;
            }
            let mut top = *child;
            while let Some(over) = top_at(&children, top, &top.mount_point) {
                top = over;
            }
            pending.push(top);
        }
    }
    seen.sort_by(|a, b| a.mount_point.cmp(&b.mount_point));
    seen.dedup_by(|a, b| a.mount_point == b.mount_point);
    seen
}

/// The mount that lies directly over `mount`'s own root, if there is one.
fn top_at<'m>(
    children: &HashMap<u32, Vec<&'m Mount>>,
    mount: &Mount,
    at: &Path,
) -> Option<&'m Mount> {
    children
        .get(&mount.id)?
        .iter()
        .copied()
        .find(|child| child.id != mount.id && child.mount_point == at)
}

/// The mount points, hidden ones too, that hang on `mount`: the kernel refuses to clone a directory that has one of them below it
/// when the mounts were inherited by a user namespace.
pub(crate) fn attached<'m>(mounts: &'m [Mount], mount: &Mount) -> Vec<&'m Path> {
    mounts
        .iter()
        .filter(|child| child.parent == mount.id && child.id != mount.id)
        .map(|child| child.mount_point.as_path())
        .collect()
}

/// Joins a directory and a name without reading either as text.
pub(crate) fn join(dir: &Path, name: &std::ffi::OsStr) -> PathBuf {
    debug_assert!(
        !name.as_bytes().contains(&b'/'),
        "a directory entry is one component"
    );
    dir.join(name)
}

#[cfg(test)]
#[expect(
    clippy::unwrap_used,
    reason = "a test may stop at what it did not expect"
)]
mod tests {
    use super::*;

    #[test]
    fn escapes_become_bytes() {
        let mounts =
            parse(b"5 1 0:1 / /mnt/a\\040b\\134c rw,nosuid shared:3 - fuse.x me\\011too rw\n")
                .unwrap();
        assert_eq!(mounts[0].mount_point, Path::new("/mnt/a b\\c"));
        assert_eq!(mounts[0].source, OsString::from("me\ttoo"));
        assert!(mounts[0].has("nosuid") && !mounts[0].is_read_only());
    }

    #[test]
    fn a_line_of_another_form_is_an_error_that_names_it() {
        let error = parse(b"1 0 0:1 / / rw - ext4 /dev/vda rw\n2 1 nonsense\n").unwrap_err();
        assert!(error.to_string().contains("line 2"), "{error}");
    }

    #[test]
    fn what_lies_under_another_mount_is_not_reachable() {
        let text = b"1 0 0:1 / / rw - ext4 d rw\n\
            2 1 0:2 / /a rw - tmpfs t rw\n\
            3 2 0:3 / /a/b rw - tmpfs under rw\n\
            4 2 0:4 / /a rw - tmpfs over rw\n\
            5 4 0:5 / /a/c rw - tmpfs c rw\n";
        let mounts = parse(text).unwrap();
        let ids: Vec<u32> = reachable(&mounts).iter().map(|mount| mount.id).collect();
        assert_eq!(ids, [1, 4, 5]);
    }

    #[test]
    fn a_mount_over_a_leading_directory_hides_its_sibling_below() {
        let text = b"1 0 0:1 / / rw - ext4 d rw\n\
            2 1 0:2 / /a/b rw - tmpfs t rw\n\
            3 1 0:3 / /a rw - tmpfs t rw\n";
        let mounts = parse(text).unwrap();
        let ids: Vec<u32> = reachable(&mounts).iter().map(|mount| mount.id).collect();
        assert_eq!(ids, [1, 3]);
    }
}
