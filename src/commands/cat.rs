//! `effigy cat`: a file as the session left it, or as of one of its events.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::AsFd as _;
use std::path::Path;

use effigy_journal::versions::{Location, VersionTable, open as open_version};
use effigy_journal::{Entry, Session, State, Store, VersionId};
use effigy_replay::content::{ContentError, Found, at_end, without};

use crate::cli::CatArgs;
use crate::failure::{Cannot as _, Failure, status};
use crate::history::{Held, History};
use crate::place::absolute;
use crate::recording::{open, split_event};
use crate::render::name::escaped;
use crate::store::find_to_read;

pub(crate) fn cat(args: &CatArgs, store: &Store) -> anyhow::Result<()> {
    let (wanted, event) = match args.session.contains('@') {
        true => {
            let (session, event) = split_event(&args.session)?;
            (session, Some(event))
        }
        false => (Some(args.session.as_str()), None),
    };
    let session = find_to_read(store, wanted)?;
    let path = absolute(&args.path)?;
    let (file, len) = match event {
        None => (left(&session, &path)?, None),
        Some(event) => as_of(&session, event, &path)?,
    };
    io::copy(
        &mut file.take(len.unwrap_or(u64::MAX)),
        &mut io::stdout().lock(),
    )?;
    Ok(())
}

/// The file as the session left it.
fn left(session: &Session, path: &Path) -> anyhow::Result<File> {
    let content = at_end(session, path).map_err(no_content)?;
    if content.found == Found::AppliedAndChanged {
        let message = format!(
            "{} was changed since it was committed: what the session left is gone",
            escaped(path)
        );
        return Err(Failure::refused(message)
            .hint("the path holds what is there now")
            .into());
    }
    Ok(content.file)
}

fn no_content(error: ContentError) -> Failure {
    match error {
        ContentError::Absent { .. } | ContentError::NotAFile { .. } => {
            Failure::from_error(error).status(status::NO)
        }
        ContentError::Io { .. } | ContentError::Ledger(_) => Failure::from_error(error),
    }
}

/// The file as of an event, and how much of it.
fn as_of(session: &Session, number: u64, path: &Path) -> anyhow::Result<(File, Option<u64>)> {
    let mut reader = open(session)?;
    let mut history = History::default();
    let mut versions = VersionTable::default();
    let mut held = (number == 0).then(|| history.at(path));
    while let Some(entry) = reader.next_entry().cannot()? {
        match entry {
            Entry::Event(event) => {
                history.apply(&event, reader.paths());
                if event.seq.0 == number {
                    held = Some(history.at(path));
                }
            }
            Entry::Version(record) => versions.insert(record),
            _ => {}
        }
    }
    let shown = escaped(path);
    let no = |what: &str| anyhow::Error::from(Failure::refused(format!("{shown} {what}")));
    match held {
        None => {
            let last = reader.last().0;
            Err(
                Failure::refused(format!("session {} has no event {number}", session.label()))
                    .hint(format!("its last event is {last}"))
                    .into(),
            )
        }
        Some(Held::Absent) => Err(no(&format!("does not exist as of event {number}"))),
        Some(Held::Other) => Err(no("is no regular file")),
        Some(Held::Unknown) => Err(no("was made in a way that tells no content")),
        Some(Held::Original(original))
            if session.record.state == State::Applied && history.has_replaced(&original) =>
        {
            Err(no(
                "was replaced by the commit: what stood there before is kept for undo only",
            ))
        }
        Some(Held::Original(original)) if session.record.lower.is_empty() => {
            Ok((real(&original)?, None))
        }
        Some(Held::Original(original)) => {
            let content = without(session, &original).map_err(no_content)?;
            Ok((content.file, None))
        }
        Some(Held::Version(version)) => match versions.locate(version) {
            Location::Sealed { file, len } => Ok((sealed(session, file)?, Some(len))),
            Location::Live { of, len } => match history.find(of) {
                Some(name) => Ok((left(session, &name)?, len)),
                None => Err(no("had content then that was not kept")),
            },
            Location::Lost => Err(no(
                "had content then that was not kept: it was over the budget",
            )),
        },
    }
}

/// A file that the session had not changed by then; opening must not block on a FIFO.
fn real(path: &Path) -> anyhow::Result<File> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => Failure::refused(format!("{} does not exist", escaped(path))),
        _ => Failure::new(format!("cannot open {}: {error}", escaped(path))),
    };
    if !path.metadata().map_err(failed)?.is_file() {
        return Err(Failure::refused(format!("{} is no regular file", escaped(path))).into());
    }
    Ok(File::open(path).map_err(failed)?)
}

fn sealed(session: &Session, version: VersionId) -> anyhow::Result<File> {
    let directory = session.versions();
    let failed = |error: io::Error| {
        Failure::new(format!(
            "cannot open version {} in {}: {error}",
            version.0,
            directory.display()
        ))
    };
    let opened = File::open(&directory).map_err(failed)?;
    Ok(open_version(opened.as_fd(), version).map_err(failed)?)
}
