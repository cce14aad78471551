//! Commits the newest session of a store: `cargo run -p effigy-replay --example commit -- STORE`.

use effigy_journal::Store;
use effigy_replay::{Options, Selection, commit, net_effects};
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store = PathBuf::from(std::env::args_os().nth(1).ok_or("usage: commit STORE")?);
    let mut session = Store::open(&store)?.find(None)?;
    session.lock_exclusive()?;
    let selection = Selection::all();
    for effect in net_effects(&session, &selection)? {
        println!("{:?} {}", effect.change, effect.path.display());
    }
    // Every step is validated before the first is taken; a conflict is an error here and nothing is changed.
    let plan = commit::plan(&session, &selection, &Options::default())?;
    let applied = commit::apply(plan, &mut session, &mut |_progress| {})?;
    println!("{applied:?}");
    Ok(())
}
