//! Somebody swaps directories for symbolic links while an apply is at work: nothing ever lands outside.

use crate::world::{World, recovered};
use effigy_replay::{Options, Selection, commit, undo};
use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn a_swapped_parent_never_leads_outside() {
    let world = World::new(
        "mkdir -p d out; for i in $(seq 100); do echo old >d/o$i; done; ln -s ../out/trap trap; ln -s out evil; echo keep >out/o5; echo keep >out/keep",
    );
    let outside = crate::world::dump(&world.tree.join("out"), true);
    let stop = AtomicBool::new(false);
    let (real, link) = (world.tree.join("d"), world.tree.join("evil"));
    let mut applied = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let swap = || {
                    renameat2(
                        AT_FDCWD,
                        &real,
                        AT_FDCWD,
                        &link,
                        RenameFlags::RENAME_EXCHANGE,
                    )
                };
                swap().unwrap();
                swap().unwrap();
            }
        });
        for round in 0..60 {
            let mut session = world.run(&format!(
                "cd d 2>/dev/null || exit 0; i={round}; echo new$i >o5; echo n >n$i; mkdir -p s$i/t; echo f >s$i/t/f; rm -f o$((i+6))"
            ));
            session.lock_exclusive().unwrap();
            let Ok(plan) = commit::plan(&session, &Selection::all(), &Options::default()) else {
                continue;
            };
            let result = commit::apply(plan, &mut session, &mut |_| ());
            applied += u32::from(result.is_ok());
            recovered_or_left(&mut session);
            if let Ok(plan) = undo::plan(&session, &Options::default()) {
                let _ = undo::apply(plan, &mut session, &mut |_| ());
                recovered_or_left(&mut session);
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    let after = crate::world::dump(&world.tree.join("out"), true);
    crate::law::assert_same("the place outside", &outside, &after);
    // Swapped back, all that effigy could not reach is recovered.
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    eprintln!("{applied} of 60 were applied under attack");
}

/// Under attack a recovery may have to leave things; it must not fail otherwise.
fn recovered_or_left(session: &mut effigy_journal::Session) {
    let _ = effigy_replay::recover::recover(session, &Options::default(), &mut |_| ());
}

#[test]
fn nothing_to_recover_is_nothing() {
    let world = World::new("echo 1 >a");
    let mut session = world.run("echo 2 >a");
    assert_eq!(
        recovered(&mut session),
        effigy_replay::recover::Outcome::Nothing
    );
    assert!(!effigy_replay::recover::is_needed(&session));
}
