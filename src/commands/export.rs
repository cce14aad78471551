//! `effigy export`: a session for other tools, or whole in one file.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use effigy_journal::{Session, Store, archive};
use effigy_replay::applied::has_moved;

use crate::cli::{ExportArgs, ExportFormat};
use crate::commands::log::write_json;
use crate::failure::{Cannot as _, Failure, status};
use crate::filters::words;
use crate::render::name::escaped;
use crate::render::quantity::{count, size};
use crate::store::find_to_read;

mod chrome;

pub(crate) fn export(args: &ExportArgs, store: &Store) -> anyhow::Result<()> {
    let is_archive = args.format == ExportFormat::Archive;
    if is_archive && !words(&args.filters).is_empty() {
        return Err(Failure::refused(
            "an archive holds a whole session: filters are for the other formats",
        )
        .status(status::USAGE)
        .hint("what is imported can be filtered by every command")
        .into());
    }
    if is_archive && args.output.is_none() && io::stdout().is_terminal() {
        return Err(Failure::refused("an archive is nothing for a terminal")
            .status(status::USAGE)
            .hint("give -o FILE, or redirect standard output")
            .into());
    }
    let session = find_to_read(store, args.session.as_deref())?;
    match &args.output {
        Some(path) => {
            let mut file = Whole::create(path)?;
            write(args, &session, &mut file.out)?;
            file.keep()?;
            if is_archive {
                let bytes = fs::metadata(path).map_or(0, |file| file.len());
                eprintln!(
                    "exported session {} to {}: {}",
                    session.label(),
                    escaped(path),
                    size(bytes)
                );
            }
            Ok(())
        }
        None => {
            let mut out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
            write(args, &session, &mut out)?;
            Ok(out.flush()?)
        }
    }
}

fn write(args: &ExportArgs, session: &Session, out: &mut dyn Write) -> anyhow::Result<()> {
    match args.format {
        ExportFormat::Archive => write_archive(session, args.redact, out),
        ExportFormat::Json => write_json(session, &args.filters, args.redact, out),
        ExportFormat::Chrome => chrome::write(session, &args.filters, args.redact, out),
    }
}

fn write_archive(session: &Session, redact: bool, out: &mut dyn Write) -> anyhow::Result<()> {
    if has_moved(session).cannot()? {
        let message = format!(
            "cannot export session {}: what it made has been moved to the real files",
            session.label()
        );
        return Err(Failure::refused(message)
            .hint("effigy undo moves it back; effigy commit --keep copies instead")
            .into());
    }
    let exported = archive::export(session, redact, out).cannot()?;
    if redact {
        let arguments = usize::try_from(exported.redacted).unwrap_or(usize::MAX);
        let arguments = count(arguments, "argument");
        eprintln!(
            "effigy: {arguments} that may hold secrets left out; contents of files are as they are"
        );
    }
    Ok(())
}

/// A file that appears under its name when it is whole.
pub(crate) struct Whole {
    out: BufWriter<File>,
    temporary: PathBuf,
    path: PathBuf,
}

impl Whole {
    pub(crate) fn create(path: &Path) -> anyhow::Result<Self> {
        let cannot =
            |error: io::Error| Failure::new(format!("cannot write {}: {error}", escaped(path)));
        let name = path
            .file_name()
            .ok_or_else(|| cannot(io::ErrorKind::InvalidInput.into()))?;
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{}", std::process::id()));
        let temporary = path.with_file_name(hidden);
        let mut options = OpenOptions::new();
        // A recording can hold what others may not read.
        options.write(true).create_new(true).mode(0o600);
        let file = options.open(&temporary).map_err(cannot)?;
        Ok(Self {
            out: BufWriter::with_capacity(1 << 16, file),
            temporary,
            path: path.to_owned(),
        })
    }

    pub(crate) fn out(&mut self) -> &mut dyn Write {
        &mut self.out
    }

    pub(crate) fn keep(mut self) -> anyhow::Result<()> {
        let done = self
            .out
            .flush()
            .and_then(|()| fs::rename(&self.temporary, &self.path));
        done.map_err(|error| {
            Failure::new(format!("cannot write {}: {error}", escaped(&self.path))).into()
        })
    }
}

impl Drop for Whole {
    fn drop(&mut self) {
        // After a rename it is not there any more.
        let _gone = fs::remove_file(&self.temporary);
    }
}
