//! Events of a journal, with the names that stand behind their numbers.

use std::ffi::{OsStr, OsString};
use std::net::SocketAddr;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;

use effigy_journal::{Address, By, Event, Outcome, PathId, Paths, Processes, Why};
use nix::errno::Errno;

pub(crate) mod filter;
pub(crate) mod object;
pub(crate) mod text;

/// The tables that give an event's numbers a meaning, as of that event.
#[derive(Clone, Copy)]
pub(crate) struct Names<'a> {
    pub(crate) paths: &'a Paths,
    pub(crate) processes: &'a Processes,
}

impl<'a> Names<'a> {
    pub(crate) fn path(self, id: PathId) -> PathBuf {
        self.paths.path(id)
    }

    /// Id and name of the process that did it; a process the journal does not know is 0.
    pub(crate) fn process(self, event: &Event) -> (u32, &'a OsStr) {
        self.processes
            .get(event.process)
            .map_or((0, OsStr::new("")), |p| {
                (p.pid, OsStr::from_bytes(p.name(self.paths)))
            })
    }
}

/// `ok`, the name of an errno, or `unknown`.
pub(crate) fn result(outcome: Outcome) -> String {
    match outcome {
        Outcome::Ok => "ok".to_owned(),
        Outcome::Unknown => "unknown".to_owned(),
        Outcome::Errno(number) => match Errno::from_raw(number) {
            Errno::UnknownErrno => format!("errno {number}"),
            errno => format!("{errno:?}"),
        },
    }
}

pub(crate) const fn by(by: By) -> &'static str {
    match by {
        By::Performed => "performed",
        By::Observed(_) => "observed",
    }
}

/// Why a call was observed although calls of its kind are performed.
pub(crate) fn why(by: By) -> Option<&'static str> {
    let By::Observed(why) = by else { return None };
    Some(match why {
        Why::Class => return None,
        Why::Foreign => "other credentials, root or namespaces",
        Why::CopyUp => "copies up a large file",
        Why::Blocking => "may block",
        Why::Unreadable => "path unreadable",
        Why::Nameless => "file without a name",
        Why::Unable => "not possible for the supervisor",
        Why::Reconciled => "found in the layers",
        Why::Repeatable => "could be repeated by this kernel",
        _ => "other",
    })
}

fn address(address: &Address, names: Names<'_>) -> OsString {
    match address {
        Address::Unix(path) => names.path(*path).into(),
        Address::Abstract(name) => OsString::from_vec([b"@", name.as_bytes()].concat()),
        Address::V4(ip, port) => SocketAddr::from((*ip, *port)).to_string().into(),
        Address::V6(ip, port) => SocketAddr::from((*ip, *port)).to_string().into(),
        Address::Other(family) => format!("address family {family}").into(),
        _ => OsString::from("unknown address"),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::path::Path;

    use effigy_journal::{ByteString, Entry, Exit, NewEvent, Op, Reader, Tid, Writer};

    use super::*;
    use crate::event::object::Object;
    use crate::event::text::{Style, write_line};
    use crate::render::colour::Palette;

    /// What `each` makes of the events of a small journal.
    fn each_of_sample(mut each: impl FnMut(&Event, Names<'_>) -> String) -> Vec<String> {
        let scratch = tempfile::tempdir().expect("a temporary directory");
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(scratch.path().join("journal"))
            .expect("a fresh file");
        let mut writer = Writer::create(file).expect("a fresh journal");
        let process = writer.process(None, 7, 0).expect("the first process");
        let mut path = |name: &[u8]| {
            let path = Path::new(OsStr::from_bytes(name));
            writer.path(path).expect("a path")
        };
        let (sh, notes) = (path(b"/bin/sh"), path(b"/w/no\ntes"));
        let (odd, moved) = (path(b"/x/\xff"), path(b"/w/moved"));
        let class = By::Observed(Why::Class);
        let exec = Op::Exec {
            exe: sh,
            argv: ["sh", "-c", "echo 'x'"].map(ByteString::from).into(),
        };
        let open = Op::Open {
            path: notes,
            flags: 0,
            mode: 0o644,
            created: true,
            truncated: false,
            version: None,
        };
        let rename = Op::Rename {
            from: notes,
            to: moved,
            flags: 0,
            replaced: true,
        };
        let chmod = Op::Chmod {
            path: odd,
            mode: 0o4755,
        };
        let exit = Op::Exit {
            status: Exit::Signal(9),
        };
        let events = [
            (exec, class, Outcome::Ok),
            (open, class, Outcome::Ok),
            (rename, By::Performed, Outcome::Ok),
            (chmod, By::Observed(Why::Foreign), Outcome::Errno(2)),
            (exit, class, Outcome::Ok),
        ];
        for (time, (op, by, result)) in (13_200_000..).zip(events) {
            let event = NewEvent {
                time,
                process,
                tid: Tid(7),
                by,
                op,
                result,
            };
            writer.append(event).expect("an event");
        }
        let file = writer.finish(20_000_000, 0).expect("the end");
        let mut reader = Reader::open(file).expect("a journal");
        let mut made = Vec::new();
        while let Some(entry) = reader.next_entry().expect("a readable journal") {
            if let Entry::Event(event) = entry {
                let names = Names {
                    paths: reader.paths(),
                    processes: reader.processes(),
                };
                made.push(each(&event, names));
            }
        }
        made
    }

    #[test]
    fn lines_are_for_people() {
        let lines = each_of_sample(|event, names| {
            let mut out = Vec::new();
            let style = Style {
                palette: Palette::plain(),
                cwd: Path::new("/w"),
            };
            write_line(&mut out, event, names, style).expect("a vector takes everything");
            String::from_utf8(out).expect("text")
        });
        assert_eq!(
            lines,
            [
                "     1     0.013200  sh[7]             exec         /bin/sh: sh -c 'echo '\\''x'\\'''  ok\n",
                "     2     0.013200  sh[7]             open         no\\ntes (created)  ok\n",
                "     3     0.013200  sh[7]             rename       no\\ntes -> moved (replaced)  ok\n",
                "     4     0.013200  sh[7]             chmod        /x/\\xff 4755  ENOENT\n",
                "     5     0.013200  sh[7]             exit         signal 9  ok\n",
            ]
        );
    }

    #[test]
    fn objects_are_exact() {
        let objects = each_of_sample(|event, names| {
            serde_json::to_string(&Object { event, names }).expect("events have a JSON form")
        });
        assert_eq!(
            objects[2],
            concat!(
                r#"{"seq":3,"t":0.013200002,"pid":7,"comm":"sh","op":"rename","path":"/w/no\ntes","to":"/w/moved","#,
                r#""replaced":true,"result":"ok","by":"performed"}"#
            )
        );
        assert_eq!(
            objects[3],
            concat!(
                r#"{"seq":4,"t":0.013200003,"pid":7,"comm":"sh","op":"chmod","path":{"bytes":"L3gv/w=="},"#,
                r#""mode":"4755","result":"ENOENT","by":"observed","why":"other credentials, root or namespaces"}"#
            )
        );
    }
}
