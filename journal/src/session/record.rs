//! What `session.json` holds.

use crate::bytes::{self, ByteString};
use crate::sys;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// The format of `session.json` that this effigy writes.
///
/// Changelog: 1, the first.
pub const FORMAT: u32 = 1;

/// Layers a session may have.
const MAX_LAYERS: usize = 4096;

/// Sessions one may rest on: the kernel lays 500 directories over each other.
const MAX_LOWER: usize = 256;

/// A moment: nanoseconds since 1970-01-01 UTC.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// The real-time clock's moment.
    #[must_use]
    pub fn now() -> Self {
        Self::from(SystemTime::now())
    }

    /// The moment given as in timespec(3type); saturates outside the years 1677 to 2262.
    #[must_use]
    pub fn from_parts(seconds: i64, nanoseconds: u32) -> Self {
        Self(
            seconds
                .saturating_mul(1_000_000_000)
                .saturating_add(i64::from(nanoseconds)),
        )
    }

    /// Whole seconds, rounded towards the past.
    #[must_use]
    pub fn seconds(self) -> i64 {
        self.0.div_euclid(1_000_000_000)
    }

    /// Nanoseconds after [`seconds`](Self::seconds), below 1 000 000 000.
    #[must_use]
    pub fn nanoseconds(self) -> u32 {
        u32::try_from(self.0.rem_euclid(1_000_000_000)).expect("a remainder of 10^9 fits")
    }

    /// Nanoseconds from `earlier` to this moment, 0 when it is not earlier.
    #[must_use]
    pub fn since(self, earlier: Self) -> u64 {
        u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0)
    }
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        match time.duration_since(UNIX_EPOCH) {
            Ok(after) => Self(i64::try_from(after.as_nanos()).unwrap_or(i64::MAX)),
            Err(before) => {
                Self(i64::try_from(before.duration().as_nanos()).map_or(i64::MIN, |ns| -ns))
            }
        }
    }
}

/// A session's id, such as `k3f9-x2mq`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct SessionId(String);

impl SessionId {
    /// Letters and digits of ids: no vowels, so no words; no look-alikes.
    const ALPHABET: &'static [u8; 28] = b"23456789bcdfghjkmnpqrstvwxyz";

    /// Takes text that has the form of an id.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let form = |(i, byte): (usize, u8)| match i {
            4 => byte == b'-',
            _ => Self::ALPHABET.contains(&byte),
        };
        (text.len() == 9 && text.bytes().enumerate().all(form)).then(|| Self(text.to_owned()))
    }

    /// A fresh one out of 28^8.
    pub(crate) fn random() -> io::Result<Self> {
        let mut bytes = [0; 8];
        sys::random(&mut bytes)?;
        let mut text = String::with_capacity(9);
        for (i, byte) in bytes.into_iter().enumerate() {
            if i == 4 {
                text.push('-');
            }
            text.push(char::from(
                Self::ALPHABET[usize::from(byte) % Self::ALPHABET.len()],
            ));
        }
        Ok(Self(text))
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl<'de> Deserialize<'de> for SessionId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| serde::de::Error::custom("not a session id"))
    }
}

/// Whether `name` can name a session: 1 to 64 letters, digits, `.`, `_`, `-`, `+`, `:` of any script, not beginning with
/// `-` or `.`, and not of the form of an id.
#[must_use]
pub fn is_valid_name(name: &str) -> bool {
    let letter = |c: char| c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '+' | ':');
    (1..=64).contains(&name.chars().count())
        && name.chars().all(letter)
        && !name.starts_with(['-', '.'])
        && SessionId::parse(name).is_none()
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Exit {
    /// With this status.
    Code(i32),
    /// Killed by this signal.
    Signal(i32),
}

impl Exit {
    /// The status that a shell would report: 128+n for signal n.
    #[must_use]
    pub fn status(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => signal.saturating_add(128),
        }
    }
}

/// What the record says of the session. Whether a recording was interrupted is found out by [`Session::status`](super::Session::status).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// The command runs, or effigy was killed while it ran.
    Recording,
    /// The command has ended; nothing was applied.
    Recorded,
    /// Its effects are on the real filesystem.
    Applied,
    /// They were, and have been taken back.
    Undone,
}

/// The state as it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// The command runs.
    Recording,
    /// The command has ended; nothing was applied.
    Recorded,
    /// Effigy was killed during the recording.
    Interrupted,
    /// Its effects are on the real filesystem.
    Applied,
    /// They were, and have been taken back.
    Undone,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Recording => "recording",
            Self::Recorded => "recorded",
            Self::Interrupted => "interrupted",
            Self::Applied => "applied",
            Self::Undone => "undone",
        })
    }
}

/// The attributes that effigy gave the upper's root directory; while it still has them it is no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootState {
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// One overlay of the session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cover {
    /// Its number: the layer is `layers/<n>`.
    pub layer: u32,
    /// Where it is mounted: absolute, without symbolic links.
    #[serde(with = "bytes::path")]
    pub mount_point: PathBuf,
    /// The upper's root directory at the start.
    pub root: RootState,
    /// The lower is a staged directory that stands for one with mounts below it.
    #[serde(default)]
    pub staged: bool,
    /// The real directory was the root of a mount. `None` in records of the first effigy, which did not say.
    #[serde(default)]
    pub mounted: Option<bool>,
    /// Directories of sessions this one rests on, between the layer and the real directory; the topmost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub below: Vec<Below>,
    /// They hide the whole real directory.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hides: bool,
}

/// A directory of an earlier session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Below {
    /// The session.
    pub session: SessionId,
    /// The directory, relative to the session's.
    #[serde(with = "bytes::path")]
    pub path: PathBuf,
}

/// A mount that is read-only inside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Named {
    /// Its mount point.
    #[serde(with = "bytes::path")]
    pub path: PathBuf,
    /// Why, in words for the user.
    pub reason: String,
}

/// What an apply was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// Its number: `apply/<k>`.
    pub apply: u32,
    /// The command: `commit` or `replay`.
    pub verb: String,
    /// The filters as they would be typed, one word each; none: everything.
    pub filter: Vec<ByteString>,
}

/// What `session.json` holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// [`FORMAT`].
    pub format: u32,
    /// The session's id; its directory has this name.
    pub id: SessionId,
    /// The name the user gave it.
    #[serde(default)]
    pub name: Option<String>,
    /// The command as given.
    pub argv: Vec<ByteString>,
    /// Where it ran.
    #[serde(with = "bytes::path")]
    pub cwd: PathBuf,
    /// The user who ran it.
    pub uid: u32,
    /// The user's group.
    pub gid: u32,
    /// The command saw itself as root (`--root`, or effigy was run by root).
    #[serde(default)]
    pub as_root: bool,
    /// A digest of the environment, see [`environment_digest`].
    #[serde(default)]
    pub environment: String,
    /// The kernel's release.
    #[serde(default)]
    pub kernel: String,
    /// The version of effigy that recorded it.
    #[serde(default)]
    pub effigy: String,
    /// When the session began.
    pub start: Timestamp,
    /// The real-time clock just before the command was let go: what is real and has a later ctime was changed meanwhile.
    #[serde(default)]
    pub released: Timestamp,
    /// When the command and its descendants had ended.
    #[serde(default)]
    pub end: Option<Timestamp>,
    /// How the command ended.
    #[serde(default)]
    pub exit: Option<Exit>,
    /// What has become of the session.
    pub state: State,
    /// The overlays.
    #[serde(default)]
    pub covers: Vec<Cover>,
    /// Mounts that are read-only inside, and why.
    #[serde(default)]
    pub named: Vec<Named>,
    /// Whiteouts that effigy itself put there (`--hide`): no effects unless something else stands there.
    #[serde(default, with = "bytes::paths")]
    pub hidden: Vec<PathBuf>,
    /// Unix sockets of outside that the command was let reach by name: what was done through them is not recorded.
    #[serde(default, with = "bytes::paths")]
    pub passed: Vec<PathBuf>,
    /// There is a journal.
    #[serde(default)]
    pub traced: bool,
    /// Descendants that outlived the command and were killed.
    #[serde(default)]
    pub killed_survivors: u32,
    /// How often something was applied: `apply/<k>` is the k-th, from 1.
    #[serde(default)]
    pub applies: u32,
    /// How the command was confined, as it would be typed with the paths that were found, one word each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub confined: Vec<ByteString>,
    /// What the run went without because the machine refused it, as `run --weaker` names it: `pid`, `trace`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub weaker: Vec<String>,
    /// It came out of an archive: what it met was perhaps on another machine.
    #[serde(default)]
    pub imported: bool,
    /// What each apply was asked for, in order.
    #[serde(default)]
    pub asked: Vec<Asked>,
    /// Sessions this one is layered over, the topmost first.
    #[serde(default)]
    pub lower: Vec<SessionId>,
    /// Number of net effects, when counted at the end of the run.
    #[serde(default)]
    pub effects: Option<u64>,
    /// Bytes the session occupied, when measured at the end of the run.
    #[serde(default)]
    pub bytes: Option<u64>,
}

impl Record {
    /// A record that says nothing but id, name and the present moment, in state [`State::Recording`].
    #[must_use]
    pub fn new(id: SessionId, name: Option<String>) -> Self {
        let now = Timestamp::now();
        Self {
            format: FORMAT,
            id,
            name,
            argv: Vec::new(),
            cwd: PathBuf::from("/"),
            uid: 0,
            gid: 0,
            as_root: false,
            environment: String::new(),
            kernel: String::new(),
            effigy: String::new(),
            start: now,
            released: now,
            end: None,
            exit: None,
            state: State::Recording,
            covers: Vec::new(),
            named: Vec::new(),
            hidden: Vec::new(),
            passed: Vec::new(),
            traced: false,
            killed_survivors: 0,
            applies: 0,
            confined: Vec::new(),
            weaker: Vec::new(),
            imported: false,
            asked: Vec::new(),
            lower: Vec::new(),
            effects: None,
            bytes: None,
        }
    }

    /// The cover that holds `path`: the one with the longest mount point above it.
    #[must_use]
    pub fn cover_of(&self, path: &Path) -> Option<&Cover> {
        let above = self
            .covers
            .iter()
            .filter(|cover| path.starts_with(&cover.mount_point));
        above.max_by_key(|cover| cover.mount_point.as_os_str().len())
    }

    /// Says what is wrong with a record from disk, if anything.
    pub(super) fn check(&self, id: &SessionId) -> Result<(), &'static str> {
        if self.id != *id {
            return Err("its id is not its directory's name");
        }
        if self
            .name
            .as_deref()
            .is_some_and(|name| !is_valid_name(name))
        {
            return Err("its name is not one effigy gives");
        }
        if self.covers.len() > MAX_LAYERS {
            return Err("it has too many layers");
        }
        let mut layers: Vec<u32> = self.covers.iter().map(|cover| cover.layer).collect();
        layers.sort_unstable();
        layers.dedup();
        if layers.len() != self.covers.len() {
            return Err("two covers share a layer");
        }
        if !is_plain(&self.cwd) || !self.covers.iter().all(|cover| is_plain(&cover.mount_point)) {
            return Err("a path in it is not absolute or has `..` in it");
        }
        if self.lower.len() > MAX_LOWER || self.lower.contains(id) {
            return Err("it rests on itself, or on too many sessions");
        }
        let mut below = self.covers.iter().flat_map(|cover| &cover.below);
        if !below.all(|below| self.lower.contains(&below.session) && is_layer(&below.path)) {
            return Err("a directory it rests on is none of an earlier session's");
        }
        if !self
            .hidden
            .iter()
            .chain(&self.passed)
            .chain(self.named.iter().map(|n| &n.path))
            .all(|path| is_plain(path))
        {
            return Err("a path in it is not absolute or has `..` in it");
        }
        Ok(())
    }
}

/// A relative path into the layers, without `..` and NUL.
fn is_layer(path: &Path) -> bool {
    path.starts_with("layers") && is_plain(&Path::new("/").join(path))
}

/// An absolute path without `..` and NUL.
fn is_plain(path: &Path) -> bool {
    use std::os::unix::ffi::OsStrExt as _;
    path.is_absolute()
        && !path.components().any(|c| matches!(c, Component::ParentDir))
        && !path.as_os_str().as_bytes().contains(&0)
}

/// A digest of an environment: tells whether two runs had the same one, without keeping what may be secret.
///
/// The chained CRC-32C of the sorted `name=value` strings, which says little enough about any single value.
#[must_use]
pub fn environment_digest<K: AsRef<[u8]>, V: AsRef<[u8]>>(
    variables: impl IntoIterator<Item = (K, V)>,
) -> String {
    let mut list: Vec<Vec<u8>> = variables
        .into_iter()
        .map(|(name, value)| [name.as_ref(), b"=", value.as_ref(), b"\0"].concat())
        .collect();
    list.sort_unstable();
    let digest = list
        .iter()
        .fold(0, |crc, entry| crc32c::crc32c_append(crc, entry));
    format!("{digest:08x}")
}
