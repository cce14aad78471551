//! An event as docs/JSON.md has it.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use effigy_journal::{ByteString, Event, Exit, Op, ReadCall, Stat, TimeChange, Timestamp};
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use super::{Names, address, by, result, why};
use crate::render::json::Name;

/// Serializes an event with the names behind its numbers.
pub(crate) struct Object<'a> {
    pub(crate) event: &'a Event,
    pub(crate) names: Names<'a>,
}

impl Serialize for Object<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { event, names } = *self;
        let mut map = serializer.serialize_map(None)?;
        self.head(&mut map)?;
        let (path, to) = event.op.paths();
        if let Some(path) = path {
            map.serialize_entry("path", &Name::new(&names.path(path)))?;
        }
        if let Some(to) = to {
            map.serialize_entry("to", &Name::new(&names.path(to)))?;
        }
        self.details(&mut map)?;
        map.serialize_entry("result", &result(event.result))?;
        map.serialize_entry("by", by(event.by))?;
        if let Some(why) = why(event.by) {
            map.serialize_entry("why", why)?;
        }
        map.end()
    }
}

impl Object<'_> {
    fn head<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        let (pid, comm) = self.names.process(self.event);
        map.serialize_entry("seq", &self.event.seq.0)?;
        map.serialize_entry("t", &seconds(self.event.time))?;
        map.serialize_entry("pid", &pid)?;
        map.serialize_entry("comm", &Name::new(comm))?;
        map.serialize_entry("op", self.event.op.name())
    }

    fn details<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        match &self.event.op {
            Op::Open {
                mode,
                created,
                truncated,
                ..
            } => {
                if *created {
                    map.serialize_entry("created", &true)?;
                    map.serialize_entry("mode", &octal(*mode))?;
                }
                if *truncated {
                    map.serialize_entry("truncated", &true)?;
                }
            }
            Op::Mkdir { mode, .. } | Op::Chmod { mode, .. } | Op::Bind { mode, .. } => {
                map.serialize_entry("mode", &octal(*mode))?;
            }
            Op::Mknod { mode, dev, .. } => {
                map.serialize_entry("mode", &octal(*mode))?;
                if *dev != 0 {
                    map.serialize_entry("dev", &device(*dev))?;
                }
            }
            Op::Rename { replaced: true, .. } => map.serialize_entry("replaced", &true)?,
            Op::Symlink { target, .. } => map.serialize_entry("target", &Name::new(target))?,
            Op::Truncate { len, .. } => map.serialize_entry("size", len)?,
            Op::Chown { uid, gid, .. } => {
                map.serialize_entry("uid", uid)?;
                map.serialize_entry("gid", gid)?;
            }
            Op::Utimens { atime, mtime, .. } => {
                map.serialize_entry("atime", &time_set(*atime))?;
                map.serialize_entry("mtime", &time_set(*mtime))?;
            }
            Op::Setxattr { name, value, .. } => {
                map.serialize_entry("name", &Name::new(name))?;
                map.serialize_entry("value", &Name::new(value))?;
            }
            Op::Removexattr { name, .. } => map.serialize_entry("name", &Name::new(name))?,
            Op::Settle { state, .. } => {
                map.serialize_entry("state", &state.as_deref().map(State::of))?;
            }
            Op::Exec { argv, .. } => {
                let argv: Vec<Name<'_>> = argv.iter().map(Name::new::<ByteString>).collect();
                map.serialize_entry("argv", &argv)?;
            }
            Op::Exit {
                status: Exit::Code(code),
            } => map.serialize_entry("exit", code)?,
            Op::Exit {
                status: Exit::Signal(signal),
            } => map.serialize_entry("signal", signal)?,
            Op::Read { call, .. } => map.serialize_entry("call", read_call(*call))?,
            Op::Connect { address: to } => {
                map.serialize_entry("address", &Name::new(&address(to, self.names)))?;
            }
            Op::Mark { text } => map.serialize_entry("text", &Name::new(text))?,
            _ => {}
        }
        if let Some(version) = self.event.op.version() {
            map.serialize_entry("version", &version.0)?;
        }
        Ok(())
    }
}

/// What stood at a path.
#[derive(Serialize)]
pub(crate) struct State {
    r#type: &'static str,
    mode: String,
    uid: u32,
    gid: u32,
    size: u64,
    mtime: String,
}

impl State {
    pub(crate) fn of(stat: &Stat) -> Self {
        Self {
            r#type: super::text::kind(stat.kind),
            mode: octal(stat.mode),
            uid: stat.uid,
            gid: stat.gid,
            size: stat.size,
            mtime: exact(stat.mtime),
        }
    }
}

/// A step of a process's ancestry.
#[derive(Serialize)]
pub(crate) struct Ancestor {
    pub(crate) pid: u32,
    #[serde(serialize_with = "as_name")]
    pub(crate) exe: Option<PathBuf>,
    #[serde(serialize_with = "as_names")]
    pub(crate) argv: Vec<OsString>,
}

fn as_name<S: Serializer>(path: &Option<PathBuf>, serializer: S) -> Result<S::Ok, S::Error> {
    path.as_ref().map(Name::new).serialize(serializer)
}

fn as_names<S: Serializer>(words: &[OsString], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(
        words
            .iter()
            .map(|word| Name::new(OsStr::from_bytes(word.as_bytes()))),
    )
}

/// Seconds since the start. A float holds the nanoseconds of 100 days exactly enough to print them.
#[expect(clippy::cast_precision_loss, reason = "2^53 ns are 104 days")]
fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

pub(super) fn octal(mode: u32) -> String {
    format!("{mode:04o}")
}

pub(super) fn device(dev: u64) -> String {
    format!("{}:{}", libc::major(dev), libc::minor(dev))
}

/// A timestamp as `seconds.nanoseconds`, exact.
pub(super) fn exact(time: Timestamp) -> String {
    format!("{}.{:09}", time.seconds(), time.nanoseconds())
}

/// `null` when the time was left alone.
fn time_set(change: TimeChange) -> Option<String> {
    match change {
        TimeChange::Omit => None,
        TimeChange::Now(time) | TimeChange::Set(time) => Some(exact(time)),
    }
}

pub(super) const fn read_call(call: ReadCall) -> &'static str {
    match call {
        ReadCall::Open => "open",
        ReadCall::Stat => "stat",
        ReadCall::Access => "access",
        ReadCall::Readlink => "readlink",
        ReadCall::Getxattr => "getxattr",
        ReadCall::Chdir => "chdir",
        _ => "other",
    }
}
