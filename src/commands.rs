//! The commands, one module each.

pub(crate) mod apply;
pub(crate) mod cat;
pub(crate) mod commit;
pub(crate) mod diff;
pub(crate) mod discard;
pub(crate) mod doctor;
pub(crate) mod export;
pub(crate) mod generate;
pub(crate) mod import;
pub(crate) mod log;
pub(crate) mod ls;
pub(crate) mod recover;
pub(crate) mod replay;
pub(crate) mod report;
pub(crate) mod review;
pub(crate) mod show;
pub(crate) mod summary;
pub(crate) mod undo;
