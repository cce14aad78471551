//! `effigy import`: makes a session of an archive.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use effigy_journal::archive::ImportError;
use effigy_journal::{CreateError, Store};

use crate::cli::ImportArgs;
use crate::failure::{Failure, status};
use crate::render::name::escaped;
use crate::render::quantity::count;

pub(crate) fn import(args: &ImportArgs, store: &Store) -> anyhow::Result<()> {
    let archive: Box<dyn Read> = match args.file == Path::new("-") {
        true => Box::new(io::stdin().lock()),
        false => Box::new(File::open(&args.file).map_err(|error| {
            Failure::new(format!("cannot open {}: {error}", escaped(&args.file)))
        })?),
    };
    let imported = store
        .import(archive, args.session.as_deref())
        .map_err(refused)?;
    let session = &imported.session;
    if let Some(former) = &imported.former {
        eprintln!("effigy: the id {former} is taken here: it got another one");
    }
    let some = |n: u64, what: &str| {
        let n = usize::try_from(n).unwrap_or(usize::MAX);
        (n > 0).then(|| count(n, what))
    };
    if let Some(owners) = some(imported.owners, "owner") {
        eprintln!(
            "effigy: {owners} that only root can give: kept as data, the files are yours here"
        );
    }
    if let Some(devices) = some(imported.devices, "device node") {
        eprintln!(
            "effigy: {devices} that only root can make: kept as data, not among the net effects here"
        );
    }
    if let Some(attributes) = some(imported.attributes, "extended attribute") {
        eprintln!("effigy: {attributes} could not be set here and left out");
    }
    eprintln!("imported session {}", session.label());
    println!("{}", session.record.id);
    Ok(())
}

fn refused(error: ImportError) -> anyhow::Error {
    let hint = match &error {
        ImportError::Create(CreateError::NameTaken { .. }) => {
            Some("import it under another name: --session NAME")
        }
        ImportError::Damaged { .. } | ImportError::Read(_) | ImportError::Journal(_) => {
            Some("nothing of it was kept; effigy export --format archive makes such files")
        }
        ImportError::TooNew { .. } => Some("use the effigy that made it, or a later one"),
        ImportError::NoLower { .. } => Some("import that one first"),
        _ => None,
    };
    let refused = matches!(
        error,
        ImportError::Create(CreateError::NameTaken { .. } | CreateError::BadName { .. })
            | ImportError::NoLower { .. }
    );
    let failure = Failure::from_error(error).maybe_hint(hint);
    match refused {
        true => failure.status(status::NO).into(),
        false => failure.into(),
    }
}
