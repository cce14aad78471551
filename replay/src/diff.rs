//! Net effects as a unified diff.

use crate::meta::xattrs;
use crate::net::{Change, NetEffect};
use crate::node::{FileType, Node};
use crate::root::Root;
use crate::step::Loc;
use crate::sys;
use effigy_journal::Session;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::Duration;

mod text;

/// How to write a diff.
#[derive(Clone, Copy, Debug)]
pub struct DiffOptions {
    /// Unchanged lines around a change.
    pub context: usize,
    /// With ANSI colours.
    pub colour: bool,
    /// Escape control characters in contents too, for a terminal. In names they always are.
    pub escape: bool,
    /// Files larger than this many bytes are shown by size and type only.
    pub max_size: u64,
}

impl Default for DiffOptions {
    fn default() -> Self {
        Self {
            context: 3,
            colour: false,
            escape: false,
            max_size: 16 << 20,
        }
    }
}

/// The time one comparison may take before it settles for a coarser result.
const PATIENCE: Duration = Duration::from_secs(2);

/// Writes differences of one session.
#[derive(Debug)]
pub struct Differ {
    session: Option<Root>,
    targets: Vec<Option<Root>>,
    options: DiffOptions,
}

/// One side of a difference.
enum Side {
    Absent,
    Text(Vec<u8>),
    /// Not to be shown line by line: what it is.
    Opaque(String),
}

impl Differ {
    /// A differ for this session.
    #[must_use]
    pub fn new(session: &Session, options: DiffOptions) -> Self {
        let targets = session
            .record
            .covers
            .iter()
            .map(|cover| Root::open(&cover.mount_point).ok())
            .collect();
        Self {
            session: Root::open(session.dir()).ok(),
            targets,
            options,
        }
    }

    /// Writes the difference that one effect makes. Binary and special files by size and type.
    ///
    /// # Errors
    /// When `out` fails. What cannot be read of the session is said in the output.
    pub fn write(&self, effect: &NetEffect, out: &mut dyn Write) -> io::Result<()> {
        let mut page = text::Page {
            out,
            options: self.options,
        };
        if effect.changed_since {
            page.heading("changed since it was applied:", &effect.path)?;
        }
        if let Change::Renamed { from } = &effect.change {
            page.heading("renamed from", from)?;
            return page.heading("renamed to", &effect.path);
        }
        let earlier = earlier(effect);
        let before = self.side(
            effect.before.as_ref(),
            effect.before_at.as_ref(),
            earlier.as_ref(),
        );
        let after = self.side(effect.after.as_ref(), effect.after_at.as_ref(), None);
        if effect.change == Change::Metadata {
            return self.attributes(effect, &mut page);
        }
        let described = matches!(
            (&before, &after),
            (Side::Opaque(_), _) | (_, Side::Opaque(_))
        );
        if described {
            return page.described(
                &effect.path,
                side_text(&before).as_deref(),
                side_text(&after).as_deref(),
            );
        }
        let empty: &[u8] = b"";
        let bytes = |side: &Side| match side {
            Side::Text(bytes) => bytes.clone(),
            Side::Absent | Side::Opaque(_) => empty.to_vec(),
        };
        let (old, new) = (bytes(&before), bytes(&after));
        if old.is_empty() && new.is_empty() {
            let words = |node: Option<&Node>| node.map(|node| format!("empty {}", kind_text(node)));
            return page.described(
                &effect.path,
                words(effect.before.as_ref()).as_deref(),
                words(effect.after.as_ref()).as_deref(),
            );
        }
        let null = Path::new("/dev/null");
        let from = if matches!(before, Side::Absent) {
            null
        } else {
            &effect.path
        };
        let to = if matches!(after, Side::Absent) {
            null
        } else {
            &effect.path
        };
        page.unified(from, to, &old, &new)?;
        self.mode_change(effect, &mut page)
    }

    fn root(&self, loc: &Loc) -> Option<&Root> {
        match loc {
            Loc::Session(_) => self.session.as_ref(),
            Loc::Target(n, _) => self.targets.get(*n as usize)?.as_ref(),
        }
    }

    /// `earlier`: the root that `at` is relative to instead of its own.
    fn side(&self, node: Option<&Node>, at: Option<&Loc>, earlier: Option<&Root>) -> Side {
        let Some(node) = node else {
            return Side::Absent;
        };
        let place = at.and_then(|at| Some((earlier.or_else(|| self.root(at))?, at.rel())));
        match (node.kind, place) {
            (FileType::Symlink, Some((root, rel))) => match root
                .spot(rel)
                .and_then(|spot| sys::readlink(spot.dir(), &spot.leaf))
            {
                Ok(target) => Side::Opaque(format!("symbolic link to {}", self.shown(&target))),
                Err(e) => Side::Opaque(format!("symbolic link (cannot be read: {e})")),
            },
            (FileType::Regular, _) if node.size > self.options.max_size => Side::Opaque(format!(
                "file of {} bytes, too large to be shown",
                node.size
            )),
            (FileType::Regular, Some((root, rel))) => {
                match read(root, rel, self.options.max_size) {
                    Ok(bytes) if is_text(&bytes) => Side::Text(bytes),
                    Ok(bytes) => Side::Opaque(format!("binary file of {} bytes", bytes.len())),
                    Err(e) => {
                        Side::Opaque(format!("file of {} bytes (cannot be read: {e})", node.size))
                    }
                }
            }
            _ => Side::Opaque(kind_text(node)),
        }
    }

    /// A name or a link's target: always escaped, since one with a line end could pass for lines of the diff.
    fn shown(&self, bytes: &[u8]) -> String {
        text::escaped(&OsStr::from_bytes(bytes).display().to_string())
    }

    fn mode_change(&self, effect: &NetEffect, page: &mut text::Page<'_>) -> io::Result<()> {
        match (&effect.before, &effect.after) {
            (Some(before), Some(after))
                if (before.mode, before.uid, before.gid) != (after.mode, after.uid, after.gid) =>
            {
                self.attributes(effect, page)
            }
            _ => Ok(()),
        }
    }

    /// Which attributes changed.
    fn attributes(&self, effect: &NetEffect, page: &mut text::Page<'_>) -> io::Result<()> {
        page.heading("attributes of", &effect.path)?;
        let (Some(before), Some(after)) = (&effect.before, &effect.after) else {
            return Ok(());
        };
        if before.mode != after.mode {
            page.changed(
                "mode",
                &format!("{:04o}", before.mode),
                &format!("{:04o}", after.mode),
            )?;
        }
        if (before.uid, before.gid) != (after.uid, after.gid) {
            let owner = |node: &Node| format!("{}:{}", node.uid, node.gid);
            page.changed("owner", &owner(before), &owner(after))?;
        }
        if before.mtime != after.mtime && !after.is_dir() {
            let time = |node: &Node| format!("{}.{:09}", node.mtime.sec, node.mtime.nsec);
            page.changed("modified", &time(before), &time(after))?;
        }
        let (Some(old), Some(new)) = (
            self.xattrs(effect.before_at.as_ref(), earlier(effect).as_ref()),
            self.xattrs(effect.after_at.as_ref(), None),
        ) else {
            return Ok(());
        };
        for name in old
            .keys()
            .chain(new.keys())
            .collect::<std::collections::BTreeSet<_>>()
        {
            if old.get(name) != new.get(name) {
                let value = |found: Option<&Vec<u8>>| {
                    found.map_or_else(|| "none".to_owned(), |value| self.shown(value))
                };
                page.changed(
                    &self.shown(name),
                    &value(old.get(name)),
                    &value(new.get(name)),
                )?;
            }
        }
        Ok(())
    }

    fn xattrs(&self, at: Option<&Loc>, earlier: Option<&Root>) -> Option<crate::meta::Xattrs> {
        let at = at?;
        let root = earlier.or_else(|| self.root(at))?;
        let spot = root.spot(at.rel()).ok()?;
        xattrs(spot.dir(), Some(&spot.leaf)).ok()
    }
}

/// Where an earlier session left what was before.
fn earlier(effect: &NetEffect) -> Option<Root> {
    Root::open(effect.before_in.as_deref()?).ok()
}

fn side_text(side: &Side) -> Option<String> {
    match side {
        Side::Absent => None,
        Side::Opaque(text) => Some(text.clone()),
        Side::Text(bytes) => Some(format!("text file of {} bytes", bytes.len())),
    }
}

fn kind_text(node: &Node) -> String {
    match node.kind {
        FileType::Character | FileType::Block => {
            format!("{} {}:{}", node.kind, node.rdev.0, node.rdev.1)
        }
        kind => format!("{kind}, mode {:04o}", node.mode),
    }
}

fn read(root: &Root, rel: &[u8], limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::from(root.open_file(rel, libc::O_RDONLY)?)
        .take(limit)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// As git and grep decide: no NUL in its beginning.
fn is_text(bytes: &[u8]) -> bool {
    !bytes.iter().take(8000).any(|&b| b == 0)
}

/// Writes the difference that one effect makes; for many, keep a [`Differ`].
///
/// # Errors
/// When `out` fails. What cannot be read of the session is said in the output.
pub fn write(
    session: &Session,
    effect: &NetEffect,
    options: &DiffOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    Differ::new(session, *options).write(effect, out)
}
