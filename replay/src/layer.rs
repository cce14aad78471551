//! How overlayfs writes in an upper layer (mounted with `userxattr`).

use crate::node::{FileType, Node};
use crate::sys;
use std::ffi::CStr;
use std::io;
use std::os::fd::BorrowedFd;

/// The attributes that are overlayfs's own and never reach the real tree.
pub(crate) fn is_overlay_attribute(name: &[u8]) -> bool {
    name.starts_with(b"user.overlay.") || name.starts_with(b"trusted.overlay.")
}

/// Overlay attributes of one file, with their values.
pub(crate) type Attributes = Vec<(Vec<u8>, Vec<u8>)>;

/// What the attributes of a directory or file say.
#[derive(Clone, Debug, Default)]
pub(crate) struct Marks {
    /// All of them.
    pub(crate) attributes: Attributes,
    /// Nothing of the lower directory shows through.
    pub(crate) opaque: bool,
    /// Empty files in it may be whiteouts.
    pub(crate) xwhiteouts: bool,
    /// Files in it may carry an origin.
    pub(crate) impure: bool,
    /// It was copied up.
    pub(crate) origin: Option<Origin>,
}

/// What something was copied up from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Origin {
    /// The lower filesystem has no file handles.
    Unknown,
    /// The lower file of this handle (type, bytes).
    Handle(u8, Vec<u8>),
}

impl Origin {
    /// Parses struct ovl_fb: version, magic 0xfb, length, flags, type, 16 bytes uuid, the handle.
    fn parse(value: &[u8]) -> Self {
        match value {
            [_, 0xfb, _, _, kind, rest @ ..] if rest.len() > 16 => {
                Self::Handle(*kind, rest[16..].to_vec())
            }
            _ => Self::Unknown,
        }
    }
}

/// Reads the marks of `leaf` below `dir`, or of `dir` itself.
pub(crate) fn marks(dir: BorrowedFd<'_>, leaf: Option<&CStr>) -> io::Result<Marks> {
    let mut marks = Marks::default();
    for name in sys::list_xattrs(dir, leaf)? {
        if !is_overlay_attribute(name.to_bytes()) {
            continue;
        }
        let Some(value) = sys::get_xattr(dir, leaf, &name)? else {
            continue;
        };
        match name.to_bytes() {
            b"user.overlay.opaque" => {
                marks.opaque = value == b"y";
                marks.xwhiteouts = value == b"x";
            }
            b"user.overlay.impure" => marks.impure = true,
            b"user.overlay.origin" => marks.origin = Some(Origin::parse(&value)),
            _ => {}
        }
        marks.attributes.push((name.into_bytes(), value));
    }
    Ok(marks)
}

/// Whether this is a whiteout in its older form.
pub(crate) fn is_whiteout_device(node: &Node) -> bool {
    node.kind == FileType::Character && node.rdev == (0, 0)
}

/// Whether `leaf`, an entry of a directory with `marks`, is a whiteout in either form.
pub(crate) fn is_whiteout(
    dir: BorrowedFd<'_>,
    leaf: &CStr,
    node: &Node,
    parent: &Marks,
) -> io::Result<bool> {
    if is_whiteout_device(node) {
        return Ok(true);
    }
    if !(parent.xwhiteouts && node.is_file() && node.size == 0) {
        return Ok(false);
    }
    Ok(sys::get_xattr(dir, Some(leaf), c"user.overlay.whiteout")?.is_some())
}
