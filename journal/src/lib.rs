//! The model of a recording and its form on disk: the session record, the store that holds sessions, the ordered
//! journal of events, and the versions of file contents that would otherwise have been lost.
//!
//! The invariant this crate guards: whatever stands on disk, reading it never panics, never allocates without bound,
//! and yields exactly the longest valid prefix of what was written. Nothing here knows how a recording is made or
//! applied.
//!
//! ```
//! use effigy_journal::{Store, State};
//!
//! # let scratch = std::env::temp_dir().join(format!("effigy-doc-{}", std::process::id()));
//! let store = Store::open(&scratch)?;
//! let mut session = store.create(Some("demo"))?;
//! session.record.argv = vec!["true".into()];
//! session.record.state = State::Recorded;
//! session.save()?;
//! assert_eq!(store.find(Some("demo"))?.record.argv, session.record.argv);
//! store.discard(session)?;
//! # std::fs::remove_dir_all(&scratch)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![warn(missing_docs)]
#![warn(clippy::exit, clippy::print_stdout, clippy::print_stderr)]

pub mod archive;
pub mod bytes;
pub mod codec;
pub mod event;
mod paths;
mod processes;
pub mod reader;
pub mod redact;
pub mod session;
pub mod store;
mod sys;
pub mod versions;
pub mod writer;

pub use bytes::ByteString;
pub use event::{
    Address, By, Entry, Event, Kind, NewEvent, Note, Op, Outcome, PathId, Precondition, ProcessId,
    ReadCall, Seq, Stat, Tid, TimeChange, VersionContent, VersionId, VersionRecord, Why,
};
pub use paths::Paths;
pub use processes::{Process, Processes};
pub use reader::{ReadError, Reader, Tail};
pub use session::{
    Asked, Below, Cover, Exit, LockError, Named, Record, RecordError, RootState, Session,
    SessionId, State, Status, Timestamp,
};
pub use store::{
    Capacity, CreateError, Damaged, DiscardError, FindError, GcLimits, GcReport, ListError,
    Listing, OpenError, ProbeError, Store,
};
pub use versions::{Budget, Location, SealError, Sealed, VersionTable, Versions};
pub use writer::{End, Resumed, WriteError, Writer};
