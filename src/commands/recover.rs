//! `effigy recover`: finishes or rolls back an apply that was interrupted.

use effigy_journal::Store;
use effigy_replay::Options;
use effigy_replay::recover::{Outcome, recover as put_right};

use crate::cli::RecoverArgs;
use crate::commands::apply::failed;
use crate::failure::Failure;
use crate::progress::Meter;
use crate::render::name::escaped;
use crate::store::find_to_change;

pub(crate) fn recover(args: &RecoverArgs, store: &Store) -> anyhow::Result<()> {
    let mut session = find_to_change(store, args.session.as_deref())?;
    let mut meter = Meter::new(args.quiet);
    let recovered =
        put_right(&mut session, &Options::default(), &mut |p| meter.update(p)).map_err(failed)?;
    drop(meter);
    if !args.quiet {
        let label = session.label();
        match recovered.outcome {
            Outcome::Nothing => eprintln!("session {label}: nothing was interrupted"),
            Outcome::Finished => eprintln!("session {label}: the interrupted apply is finished"),
            Outcome::RolledBack => {
                eprintln!("session {label}: the interrupted apply is rolled back")
            }
            Outcome::Undone => eprintln!("session {label}: the interrupted undo is finished"),
        }
    }
    if recovered.left.is_empty() {
        return Ok(());
    }
    for path in &recovered.left {
        eprintln!(
            "effigy: conflict: {}: changed by someone else since the interruption",
            escaped(path)
        );
    }
    Err(Failure::refused("these paths were left as they are")
        .hint("what stood there before is kept in the session's directory until it is discarded")
        .into())
}
