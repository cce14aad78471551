//! Which paths are part of the recording, and where a path's upper file is.

use crate::Layer;
use crate::sys::{self, Seen};
use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;

/// The mounts of the view, as far as they matter.
#[derive(Debug)]
pub(crate) struct Covers {
    layers: Vec<Layer>,
    /// Mount points with the index of their layer; the longest first.
    mounts: Vec<(Vec<u8>, Option<usize>)>,
    /// All mount points.
    points: Vec<Vec<u8>>,
    /// Stand-ins for whatever lies above every mount point.
    everything: bool,
}

/// Mount points where nothing is an effect, also when no layer is given (tests on a plain directory).
const KERNEL: [&[u8]; 3] = [b"/proc", b"/sys", b"/dev"];

impl Covers {
    pub(crate) fn new(layers: Vec<Layer>, proc: BorrowedFd<'_>) -> Self {
        let everything = layers.is_empty();
        let mut covers = Self {
            layers,
            mounts: Vec::new(),
            points: Vec::new(),
            everything,
        };
        covers.reload(proc);
        covers
    }

    /// Reads the mounts of the view again, after a task with the power to mount has used it.
    pub(crate) fn reload(&mut self, proc: BorrowedFd<'_>) {
        let text = sys::openat(proc, c"thread-self/mountinfo", libc::O_RDONLY, 0)
            .ok()
            .and_then(|fd| {
                let mut text = Vec::new();
                std::io::Read::read_to_end(&mut std::fs::File::from(fd), &mut text).ok()?;
                Some(text)
            })
            .unwrap_or_default();
        self.mounts.clear();
        if self.everything {
            self.mounts.extend(KERNEL.map(|path| (path.to_vec(), None)));
            self.mounts.push((b"/".to_vec(), Some(usize::MAX)));
            return;
        }
        self.points.clear();
        // The covers, by device.
        let mut covers: Vec<(&[u8], Vec<u8>)> = Vec::new();
        for line in text.split(|byte| *byte == b'\n') {
            // 36 35 98:0 /root /mount/point options...
            let mut fields = line.split(|byte| *byte == b' ').skip(2);
            let (Some(device), Some(root), Some(point)) =
                (fields.next(), fields.next(), fields.next())
            else {
                continue;
            };
            let (root, point) = (unescape(root), unescape(point));
            self.points.push(point.clone());
            // A part of a cover bound to its own place (`--write`, `--read-only`) is that part of the cover.
            let part =
                |(other, top): &(&[u8], Vec<u8>)| *other == device && joined(top, &root) == point;
            if root != b"/" && covers.iter().any(part) {
                continue;
            }
            let layer = self
                .layers
                .iter()
                .position(|layer| layer.mount_point.as_os_str().as_bytes() == point);
            if layer.is_some() {
                covers.push((device, point.clone()));
            }
            // Of mounts on one point the last is seen.
            self.mounts.retain(|(other, _)| *other != point);
            self.mounts.push((point, layer));
        }
        for (index, layer) in self.layers.iter().enumerate() {
            let point = layer.mount_point.as_os_str().as_bytes();
            if !self.mounts.iter().any(|(other, _)| other == point) {
                self.mounts.push((point.to_vec(), Some(index)));
            }
        }
        self.mounts
            .sort_by_key(|(point, _)| std::cmp::Reverse(point.len()));
    }

    /// Whether something is mounted below this path.
    pub(crate) fn has_mount_below(&self, path: &[u8]) -> bool {
        let inside = |point: &Vec<u8>| point.len() > path.len() && below(point, path);
        self.points.iter().any(inside)
    }

    fn find(&self, path: &[u8]) -> Option<(usize, &[u8])> {
        let (point, layer) = self.mounts.iter().find(|(point, _)| below(path, point))?;
        Some(((*layer)?, point))
    }

    /// Whether what happens to this path is an effect.
    pub(crate) fn holds(&self, path: &[u8]) -> bool {
        path.first() == Some(&b'/') && self.find(path).is_some()
    }

    /// Whether what is behind a descriptor lies outside every cover although its name does not say so: a task in a mount
    /// namespace of its own may have mounted something there.
    pub(crate) fn is_elsewhere(&self, fd: BorrowedFd<'_>) -> bool {
        !self.everything && sys::fs_magic(fd) != Ok(libc::OVERLAYFS_SUPER_MAGIC)
    }

    pub(crate) fn layer(&self, path: &[u8]) -> Option<&Layer> {
        self.layers.get(self.find(path)?.0)
    }

    pub(crate) fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// The upper directory of a path's layer, and the path below it.
    pub(crate) fn upper(&self, path: &[u8]) -> Option<(BorrowedFd<'_>, CString)> {
        let (index, point) = self.find(path)?;
        let layer = self.layers.get(index)?;
        let rest = if point == b"/" {
            &path[1..]
        } else {
            path.get(point.len() + 1..).unwrap_or_default()
        };
        let rest = if rest.is_empty() { &b"."[..] } else { rest };
        Some((layer.upper.as_fd(), CString::new(rest).ok()?))
    }

    /// What the upper directory holds for a path: `None` means that the path is the lower's own or is not there.
    pub(crate) fn in_upper(&self, path: &[u8]) -> Option<Seen> {
        let (upper, rest) = self.upper(path)?;
        sys::statx(upper, &rest, libc::AT_SYMLINK_NOFOLLOW).ok()
    }
}

/// The path of `below`, which begins with a slash, in the directory `top`.
fn joined(top: &[u8], below: &[u8]) -> Vec<u8> {
    match top {
        b"/" => below.to_vec(),
        _ => [top, below].concat(),
    }
}

/// Whether `path` is `point` or below it.
pub(crate) fn below(path: &[u8], point: &[u8]) -> bool {
    point == b"/" || (path.starts_with(point) && matches!(path.get(point.len()), None | Some(b'/')))
}

/// Undoes the octal escapes of /proc/self/mountinfo.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, tail @ ..] = rest {
        match (first, tail) {
            (
                b'\\',
                [
                    a @ b'0'..=b'3',
                    b @ b'0'..=b'7',
                    c @ b'0'..=b'7',
                    after @ ..,
                ],
            ) => {
                out.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = after;
            }
            _ => {
                out.push(*first);
                rest = tail;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_point_holds_whole_components() {
        assert!(below(b"/a/b", b"/a") && below(b"/a", b"/a") && below(b"/x", b"/"));
        assert!(!below(b"/ab", b"/a"));
    }

    #[test]
    fn escapes_are_octal() {
        assert_eq!(unescape(b"/a\\040b\\134\\x"), b"/a b\\\\x");
    }
}
