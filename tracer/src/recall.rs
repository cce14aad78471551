//! A session that goes on: what its earlier runs have done, from the journal.

use crate::model::Model;
use effigy_journal::{Entry, Op, Outcome, PathId, Paths, ReadError, Reader};
use std::fs::File;
use std::os::unix::ffi::OsStrExt as _;

/// Reads what the events of a journal have done to which path.
pub(crate) fn recall(journal: File) -> Result<Model, ReadError> {
    let mut model = Model::default();
    let mut reader = Reader::open(journal)?;
    while let Some(entry) = reader.next_entry()? {
        if let Entry::Event(event) = entry
            && event.op.is_effect()
            && !matches!(event.result, Outcome::Errno(_))
        {
            take(&mut model, &event.op, reader.paths());
        }
    }
    Ok(model)
}

/// Attributes are left out: the runs that gave them have settled them.
fn take(model: &mut Model, op: &Op, paths: &Paths) {
    let path = |id: PathId| paths.path(id).as_os_str().as_bytes().to_vec();
    match op {
        Op::Open {
            path: file,
            created: true,
            version,
            ..
        } => model.created(&path(*file), None, *version),
        Op::Open {
            path: file,
            version: Some(version),
            ..
        }
        | Op::Truncate {
            path: file,
            version: Some(version),
            ..
        } => model.written(&path(*file), *version),
        Op::Mkdir { path: made, .. }
        | Op::Symlink { path: made, .. }
        | Op::Mknod { path: made, .. }
        | Op::Bind { path: made, .. } => model.created(&path(*made), None, None),
        Op::Rmdir { path: gone } | Op::Unlink { path: gone } => model.removed(&path(*gone)),
        Op::Rename { from, to, .. } => model.renamed(&path(*from), &path(*to), true),
        Op::Exchange { path: one, to } => model.exchanged(&path(*one), &path(*to)),
        Op::Link { from, to } => model.linked(&path(*from), &path(*to), None),
        Op::Settle {
            path: settled,
            state,
            version,
        } => match (state, version) {
            (None, _) => model.removed(&path(*settled)),
            (Some(_), Some(version)) => model.written(&path(*settled), *version),
            (Some(_), None) => model.created(&path(*settled), None, None),
        },
        other => {
            if let Some(changed) = other.path() {
                model.changed(&path(changed), None);
            }
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test")]
mod tests {
    use super::*;
    use effigy_journal::{By, NewEvent, Tid, VersionId, Writer};
    use std::path::Path;

    #[test]
    fn what_was_done_is_known_again() {
        let scratch = tempfile::tempfile().unwrap();
        let mut writer = Writer::create(scratch).unwrap();
        let process = writer.process(None, 2, 0).unwrap();
        let mut path = |text: &str| writer.path(Path::new(text)).unwrap();
        let [a, b, d, x] = ["/a", "/b", "/d", "/d/x"].map(&mut path);
        let opened = |file, number| Op::Open {
            path: file,
            flags: 0,
            mode: 0,
            created: true,
            truncated: false,
            version: Some(VersionId(number)),
        };
        let ops = [
            (opened(a, 1), Outcome::Ok),
            (
                Op::Mkdir {
                    path: d,
                    mode: 0o755,
                },
                Outcome::Ok,
            ),
            (opened(x, 2), Outcome::Ok),
            (
                Op::Rename {
                    from: d,
                    to: b,
                    flags: 0,
                    replaced: false,
                },
                Outcome::Ok,
            ),
            (Op::Unlink { path: a }, Outcome::Errno(libc::EACCES)),
        ];
        for (op, result) in ops {
            let (tid, by) = (Tid(2), By::Performed);
            let event = NewEvent {
                time: 0,
                process,
                tid,
                by,
                op,
                result,
            };
            writer.append(event).unwrap();
        }
        let model = recall(writer.finish(0, 0).unwrap()).unwrap();
        assert_eq!(model.version(b"/a"), Some(VersionId(1)));
        assert_eq!(model.version(b"/b/x"), Some(VersionId(2)));
        assert!(model.get(b"/d").unwrap().gone && model.get(b"/d/x").is_none());
    }
}
