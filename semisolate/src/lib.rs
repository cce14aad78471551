//! The semisolate: a view of the machine in which a command runs for real while its writes stay aside.
//!
//! A [`Plan`] says what is placed where, as data. A [`Request`] carries it out and runs a command in it:
//!
//! ```no_run
//! use effigy_semisolate::{Identity, Plan, Progress, RealTree, Request, Wishes, current_mounts};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let identity = Identity::of_this_process(false);
//! let wishes = Wishes { working_directory: "/tmp".into(), store: "/var/tmp/sessions".into(), ..Wishes::default() };
//! let plan = Plan::new(&current_mounts()?, !identity.is_privileged(), &wishes, &RealTree)?;
//! let request = Request::new(vec!["ls".into()], plan, identity, "/tmp".into(), "/var/tmp/sessions/1/layers".into());
//! let mut running = request.build()?.go()?;
//! while !matches!(running.wait(), Progress::Ended(_) | Progress::Lost(_)) {}
//! # Ok(())
//! # }
//! ```
//!
//! The invariant this crate guards: **no path in the view leads through a writable mount to a real file**, and nothing that runs
//! inside can change that. Whatever cannot be overlaid is read-only and named.

#![warn(missing_docs)]
#![warn(clippy::exit, clippy::print_stdout, clippy::print_stderr)]

mod channel;
mod devices;
mod error;
pub mod features;
mod ids;
mod init;
pub mod mountinfo;
mod mounts;
mod nodes;
pub mod plan;
mod record;
mod run;
mod stage;
mod supervisor;
mod sys;
mod tree;
mod view;

pub use channel::{Ended, Exit};
pub use error::{ExecError, StartError};
pub use ids::{Identity, User};
pub use nodes::NodeMaker;
pub use plan::{Lower, LowerCover, Plan, PlanError, Tree, Wishes};
pub use record::{Recorder, World};
pub use run::{Group, Progress, Ready, Request, Running};
pub use supervisor::{Pump, Turn};
pub use tree::RealTree;
pub use view::{Built, BuiltCover};

/// The mounts of this process's mount namespace.
///
/// # Errors
/// `/proc/self/mountinfo` cannot be read or understood.
pub fn current_mounts() -> Result<Vec<mountinfo::Mount>, StartError> {
    use error::Context as _;
    let text =
        std::fs::read("/proc/self/mountinfo").doing(|| "read /proc/self/mountinfo".to_owned())?;
    Ok(mountinfo::parse(&text)?)
}
