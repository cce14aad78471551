//! `effigy cat`: a file as the session left it.

use std::io;

use effigy_journal::Store;
use effigy_replay::content::{ContentError, Found, at_end};

use crate::cli::CatArgs;
use crate::failure::{Failure, status};
use crate::place::absolute;
use crate::store::find_to_read;

pub(crate) fn cat(args: &CatArgs, store: &Store) -> anyhow::Result<()> {
    let session = find_to_read(store, Some(&args.session))?;
    let path = absolute(&args.path)?;
    let mut content = at_end(&session, &path).map_err(|error| match error {
        ContentError::Absent { .. } | ContentError::NotAFile { .. } => {
            Failure::from_error(error).status(status::NO)
        }
        ContentError::Io { .. } => Failure::from_error(error),
    })?;
    if content.found == Found::AppliedAndChanged {
        return Err(Failure::refused(format!(
            "{} was changed since it was committed: what the session left is gone",
            path.display()
        ))
        .hint("the path holds what is there now")
        .into());
    }
    io::copy(&mut content.file, &mut io::stdout().lock())?;
    Ok(())
}
