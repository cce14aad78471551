//! The steps of a plan.

use serde::{Deserialize, Serialize};

/// A place: in the real tree below a cover's mount point, or in the session's directory.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Loc {
    /// Relative to the target root of this number.
    Target(u32, Vec<u8>),
    /// Relative to the session's directory.
    Session(Vec<u8>),
}
