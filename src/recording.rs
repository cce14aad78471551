//! A session's journal, opened for reading.

use std::fs::File;
use std::io;

use effigy_journal::{Reader, Session, Tail};

use crate::failure::{Cannot as _, Failure};

/// Opens the journal of a session, which may still be recorded.
pub(crate) fn open(session: &Session) -> anyhow::Result<Reader> {
    let path = session.journal();
    let file = File::open(&path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            let message = format!(
                "session {} has no journal: it was run with --no-trace",
                session.label()
            );
            anyhow::Error::from(
                Failure::new(message).hint("effigy summary and effigy diff show what it changes"),
            )
        }
        _ => Failure::new(format!("cannot open {}: {error}", path.display())).into(),
    })?;
    Reader::open(file).cannot()
}

/// How a journal ends, in words; `unexplained` is what its end says of the net effects.
pub(crate) fn ending(tail: Tail, unexplained: u64) -> String {
    match tail {
        Tail::Complete if unexplained == 0 => "complete".to_owned(),
        Tail::Complete => format!("{unexplained} unexplained"),
        Tail::Torn { bytes, .. } => {
            format!(
                "incomplete: effigy was killed while recording, {bytes} bytes at the end are no whole frame"
            )
        }
        Tail::Damaged { offset, reason } => {
            format!("damaged: {reason}, at byte {offset}; what comes after cannot be read")
        }
        _ => "incomplete: the recording has not come to its end".to_owned(),
    }
}

/// Splits `S@N` into the session and the event; `@N` is an event of the newest session.
pub(crate) fn split_event(text: &str) -> anyhow::Result<(Option<&str>, u64)> {
    let wrong =
        || Failure::new(format!("{text} names no event")).status(crate::failure::status::USAGE);
    let (session, number) = text
        .rsplit_once('@')
        .ok_or_else(|| wrong().hint("an event is SESSION@NUMBER, or @NUMBER"))?;
    let number = number
        .parse()
        .map_err(|_| wrong().hint("what follows @ is the number of an event"))?;
    Ok(((!session.is_empty()).then_some(session), number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_named_by_session_and_number() {
        assert_eq!(
            split_event("demo@12").expect("an event"),
            (Some("demo"), 12)
        );
        assert_eq!(split_event("@3").expect("an event"), (None, 3));
        for wrong in ["demo", "demo@", "demo@x", "demo@-1", "@"] {
            assert!(split_event(wrong).is_err(), "{wrong}");
        }
    }
}
