//! `effigy undo`: takes back the last apply of a session.

use effigy_journal::{Session, Store};
use effigy_replay::{Options, undo};

use crate::cli::UndoArgs;
use crate::commands::apply::{carry_out, show_plan, tell_done, tell_notes, unplanned, warn_in_use};
use crate::prompt::agree;
use crate::render::quantity::count;
use crate::store::find_to_change;

pub(crate) fn undo(args: &UndoArgs, store: &Store) -> anyhow::Result<()> {
    let mut session = find_to_change(store, args.session.as_deref())?;
    let options = Options {
        on_conflict: args.apply.on_conflict.into(),
        ..Options::default()
    };
    let plan = undo::plan(&session, &options).map_err(unplanned)?;
    if args.apply.dry_run {
        return show_plan(&plan, &args.apply);
    }
    if !args.apply.quiet {
        warn_in_use(&plan);
    }
    if !args.apply.yes {
        let steps = count(plan.len(), "step");
        let question = format!(
            "Undo the last commit of session {} ({steps})?",
            session.label()
        );
        agree(&question, || Ok(()))?;
    }
    if !args.apply.quiet {
        tell_notes(&plan);
    }
    let copying = Options {
        copy: true,
        ..options
    };
    let again = |session: &Session| undo::plan(session, &copying);
    let applied = carry_out(plan, &mut session, undo::apply, again, args.apply.quiet)?;
    if !args.apply.quiet {
        tell_done("undid", &session, applied);
    }
    Ok(())
}
