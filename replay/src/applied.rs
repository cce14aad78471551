//! What of a session is in place.

use crate::net::{NetEffect, NetError};
use crate::selection::Selection;
use effigy_journal::Session;

/// The effects that the applies in place (not those undone) have put there, sorted by path.
///
/// # Errors
/// When a ledger or a real directory cannot be read.
pub fn effects(session: &Session, selection: &Selection) -> Result<Vec<NetEffect>, NetError> {
    let _ = (session, selection);
    todo!()
}

/// All effects of the session, in place or still in its layers, sorted by path: what `summary` and `diff` show.
///
/// # Errors
/// As [`effects`] and [`net_effects`](crate::net_effects).
pub fn all_effects(session: &Session, selection: &Selection) -> Result<Vec<NetEffect>, NetError> {
    let _ = (session, selection);
    todo!()
}
