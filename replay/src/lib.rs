//! What a session did to the filesystem, and how it is put in place and taken back.
//!
//! The net effects of a session are read from its layers; a selection of them is planned into steps, the plan is
//! validated as a whole, and one engine applies it, takes it back, and finishes or rolls back what was interrupted.
//!
//! The invariant this crate guards: the real tree is either as it was or as the plan says, also after a kill or a
//! power loss followed by [`recover`](recover::recover), and nothing that was there is lost: everything replaced or
//! removed is first moved or copied to the session.
//!
//! ```no_run
//! use effigy_journal::Store;
//! use effigy_replay::{Options, Selection, commit};
//!
//! let store = Store::open(std::path::Path::new("/home/me/.local/state/effigy"))?;
//! let mut session = store.find(None)?;
//! session.lock_exclusive()?;
//! let selection = Selection::all();
//! let plan = commit::plan(&session, &selection, &Options::default())?;
//! for line in plan.describe() {
//!     println!("{line}");
//! }
//! commit::apply(plan, &mut session, &mut |_| ())?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![warn(missing_docs)]
#![warn(clippy::exit, clippy::print_stdout, clippy::print_stderr)]

pub mod applied;
pub mod attribution;
pub mod commit;
mod conflict;
pub mod content;
mod copy;
pub mod diff;
mod engine;
mod execute;
pub mod in_use;
mod known;
mod layer;
pub mod layering;
mod ledger;
mod meta;
mod mounted;
pub mod net;
pub mod node;
mod options;
mod plan;
mod recollect;
pub mod recover;
pub mod replay;
pub mod root;
mod scan;
pub mod selection;
pub mod stack;
mod step;
mod sys;
pub mod undo;

pub use conflict::{Advice, Conflict, Reason};
pub use diff::{DiffOptions, Differ};
pub use engine::{ApplyError, Left};
pub use net::{Change, NetEffect, NetError, net_effects};
pub use node::{FileType, Node, Time};
pub use options::{Applied, Failure, OnConflict, Options, Phase, Progress};
pub use plan::{Description, Note, Plan, PlanError};
pub use replay::{Needed, ReplayError, ReplayOptions};
pub use selection::{Choice, EventFilter, EventSelection, Selection, SelectionError};
