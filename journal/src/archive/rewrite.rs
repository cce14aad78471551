//! A journal without what is secret.

use crate::event::{Entry, NewEvent, Op, PathId};
use crate::reader::{Reader, Tail};
use crate::redact::{redact, redact_text};
use crate::writer::{WriteError, Writer};
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Writes a journal anew into the fresh file `path`, without arguments that look like secrets; says how many those were.
///
/// Everything else is as it was: the numbers of events, paths, processes and versions, and whether it has an end.
pub(super) fn without_secrets(journal: File, path: &Path) -> Result<(File, u64), WriteError> {
    let mut reader = Reader::open(journal)?;
    let mut options = OpenOptions::new();
    let file = options
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    let mut file = Some(file.try_clone()?);
    let mut writer = None;
    let mut count = 0;
    while let Some(entry) = reader.next_entry()? {
        let out = match &mut writer {
            Some(writer) => writer,
            // At the beginning, and where a session that was resumed goes on.
            None => writer.insert(match file.take() {
                Some(fresh) => Writer::create(fresh)?,
                None => {
                    Writer::resume(OpenOptions::new().read(true).write(true).open(path)?)?.writer
                }
            }),
        };
        while out.paths().len() < reader.paths().len() {
            let id = PathId(u32::try_from(out.paths().len()).unwrap_or(u32::MAX));
            let name = reader.paths().name(id).to_vec();
            let same = match reader.paths().parent(id) {
                Some(parent) => out.child(parent, &name)?,
                None => out.path(Path::new(OsStr::from_bytes(&name)))?,
            };
            if same != id {
                return Err(WriteError::Limit("a path stands twice in the journal"));
            }
        }
        match entry {
            Entry::Event(mut event) => {
                match &mut event.op {
                    Op::Exec { argv, .. } => count += redact(argv),
                    Op::Mark { text } => count += redact_text(text),
                    _ => {}
                }
                out.append(NewEvent {
                    time: event.time,
                    process: event.process,
                    tid: event.tid,
                    by: event.by,
                    op: event.op,
                    result: event.result,
                })?;
            }
            Entry::Precondition(precondition) => {
                out.precondition(precondition.path, precondition.before.as_ref())?;
            }
            Entry::Process(id) => {
                if let Some(process) = reader.processes().get(id) {
                    out.process(process.parent, process.pid, process.start)?;
                }
            }
            Entry::Version(version) => out.version(version)?,
            Entry::Note(note) => out.note(note)?,
            Entry::End(end) => {
                if let Some(writer) = writer.take() {
                    writer.finish(end.time, end.unexplained)?;
                }
            }
        }
    }
    if let Some(mut writer) = writer {
        writer.flush()?;
    } else if reader.tail() != Tail::Complete
        && let Some(fresh) = file.take()
    {
        // Nothing in it yet.
        Writer::create(fresh)?.flush()?;
    }
    Ok((File::open(path)?, count))
}
