//! The steps of a random program, and the form in which they are written down: one JSON value a line.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// One call (some are an open, a write and a close) by one of the program's processes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Step(pub(crate) u8, pub(crate) Call);

/// A path as its process uses it: relative to the working directory, or to a directory that it holds open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub(crate) struct Name {
    pub(crate) base: Option<u8>,
    pub(crate) path: Vec<u8>,
}

/// Permissions, written in octal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub(crate) struct Mode(pub(crate) u32);

/// A content, written with escapes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub(crate) struct Text(pub(crate) Vec<u8>);

/// So many times this byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Data(pub(crate) u8, pub(crate) u32);

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum How {
    /// Made or emptied.
    Creat,
    /// Made if it is not there, and written at its end.
    Append,
    /// Made, and not to be there.
    Exclusive,
    /// Made if it is not there, a link not followed.
    NoFollow,
    /// There already, and written over.
    Update,
    /// There already, and emptied.
    Empty,
}

/// Slots are numbers of descriptors that the process holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Call {
    Mkdir(Name, Mode),
    Rmdir(Name),
    Unlink(Name),
    Rename(Name, Name),
    RenameNoreplace(Name, Name),
    Exchange(Name, Name),
    Link(Name, Name),
    /// Of what a symbolic link points to, not of the link.
    LinkFollow(Name, Name),
    Symlink(Name, Name),
    Fifo(Name, Mode),
    /// A regular file, made by mknod.
    Node(Name, Mode),
    Truncate(Name, u32),
    Chmod(Name, Mode),
    Chown(Name, Option<u32>, Option<u32>),
    Lchown(Name, Option<u32>, Option<u32>),
    Utimens(Name, i64),
    Lutimens(Name, i64),
    Setxattr(Name, u8, Data),
    Removexattr(Name, u8),
    /// Opened, written to and closed.
    Put(Name, How, Mode, Data),
    /// Made with these permissions if any are given, and given this content.
    Become(Name, Option<Mode>, Text),
    /// An attribute set or removed, where that takes making the file writable too.
    Attribute(Name, u8, Option<Data>),
    Open(u8, Name, How, Mode),
    Write(u8, Data),
    WriteAt(u8, u32, Data),
    Ftruncate(u8, u32),
    Fallocate(u8, u32, u32),
    PunchHole(u8, u32, u32),
    Fchmod(u8, Mode),
    Fsetxattr(u8, u8, Data),
    /// A byte written through a shared mapping.
    Map(u8, u32, u8),
    Close(u8),
    /// A nameless file in a directory, and a name for it.
    Tmpfile(u8, Name, Mode, Data),
    NameTmpfile(u8, Name),
    /// A directory held open, for names relative to it.
    Hold(u8, Name),
    /// Into a directory of the program's own, or back to its first.
    Chdir(Option<Name>),
    Umask(Mode),
}

/// The steps, and where they are carried out.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Program {
    pub(crate) dir: PathBuf,
    pub(crate) steps: Vec<Step>,
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        let path = name.path.escape_ascii();
        match name.base {
            Some(slot) => format!("{slot}:{path}"),
            None => path.to_string(),
        }
    }
}

impl TryFrom<String> for Name {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let (base, path) = match text.split_once(':') {
            Some((slot, path)) => (Some(slot.parse::<u8>().map_err(|e| e.to_string())?), path),
            None => (None, text.as_str()),
        };
        let path = unescaped(path)?;
        Ok(Self { base, path })
    }
}

impl From<Text> for String {
    fn from(text: Text) -> Self {
        text.0.escape_ascii().to_string()
    }
}

impl TryFrom<String> for Text {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        unescaped(&text).map(Self)
    }
}

fn unescaped(text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = text.bytes();
    let mut out = Vec::new();
    while let Some(byte) = bytes.next() {
        out.push(match (byte, byte == b'\\') {
            (_, true) => match bytes.next() {
                Some(b'n') => b'\n',
                Some(b'x') => {
                    let digits: String = bytes.by_ref().take(2).map(char::from).collect();
                    u8::from_str_radix(&digits, 16).map_err(|e| e.to_string())?
                }
                other => return Err(format!("what does \\{other:?} stand for?")),
            },
            (byte, false) => byte,
        });
    }
    Ok(out)
}

impl From<Mode> for String {
    fn from(mode: Mode) -> Self {
        format!("{:04o}", mode.0)
    }
}

impl TryFrom<String> for Mode {
    type Error = std::num::ParseIntError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        u32::from_str_radix(&text, 8).map(Self)
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).expect("a step is JSON"))
    }
}

impl Call {
    /// What the recording calls a call that succeeds, if it is an event.
    pub(crate) fn op(&self) -> Option<&'static str> {
        Some(match self {
            Self::Mkdir(..) => "mkdir",
            Self::Rmdir(..) => "rmdir",
            Self::Unlink(..) => "unlink",
            Self::Rename(..) | Self::RenameNoreplace(..) => "rename",
            Self::Exchange(..) => "exchange",
            Self::Link(..) | Self::LinkFollow(..) | Self::NameTmpfile(..) => "link",
            Self::Symlink(..) => "symlink",
            Self::Fifo(..) | Self::Node(..) => "mknod",
            Self::Truncate(..) => "truncate",
            Self::Chmod(..) => "chmod",
            Self::Chown(..) | Self::Lchown(..) => "chown",
            Self::Utimens(..) | Self::Lutimens(..) => "utimens",
            Self::Setxattr(..) => "setxattr",
            Self::Removexattr(..) => "removexattr",
            Self::Put(..) | Self::Open(..) | Self::Tmpfile(..) => "open",
            _ => return None,
        })
    }
}
