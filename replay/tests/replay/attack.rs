//! Somebody swaps a directory for a symbolic link while a replay or its undo is at work: nothing ever lands outside.

use crate::recording::{Recording, dump};
use effigy_replay::{EventSelection, Options, ReplayOptions, recover, replay, undo};
use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn a_swapped_parent_never_leads_outside() {
    let mut r = Recording::of(
        "mkdir -p d/s out/s; for i in 1 2 3 4 5 6 7 8; do echo old >d/o$i; echo keep >out/o$i; done; \
         echo 1 >d/l1; ln d/l1 d/l2; echo keep >out/l1; echo keep >out/l2; ln -s out evil",
    );
    for name in ["o1", "o2"] {
        r.write(&format!("d/{name}"), false, "written");
    }
    r.write("d/l1", false, "in place");
    r.mkdir("d/n");
    r.write("d/n/f", true, "new");
    r.write("d/s/f", true, "new");
    r.rename("d/o3", "d/o4", true);
    r.rename("d/n", "d/s/n", false);
    r.exchange("d/o5", "d/o6");
    r.unlink("d/o7");
    r.symlink("d/o7", "../out/trap");
    r.link("d/o8", "d/o9");
    r.chmod("d/o8", 0o600);
    r.end();
    r.session.lock_exclusive().unwrap();
    let outside = dump(&r.tree.join("out"));
    let modes = |r: &Recording| {
        let mode = |name: &str| {
            use std::os::unix::fs::MetadataExt as _;
            std::fs::metadata(r.tree.join("out").join(name))
                .unwrap()
                .mode()
        };
        [mode("o8"), mode("s"), mode("")]
    };
    let outside_modes = modes(&r);
    let (real, link) = (r.tree.join("d"), r.tree.join("evil"));
    let stop = AtomicBool::new(false);
    let (mut applied, mut undone) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let swap = || {
                let exchange = RenameFlags::RENAME_EXCHANGE;
                renameat2(AT_FDCWD, &real, AT_FDCWD, &link, exchange)
            };
            while !stop.load(Ordering::Relaxed) {
                swap().unwrap();
                swap().unwrap();
                // Else hardly any plan is ever made.
                std::thread::sleep(std::time::Duration::from_micros(200));
            }
        });
        for _ in 0..150 {
            let mut all = EventSelection::all();
            if let Ok(plan) = replay::plan(&r.session, &mut all, &ReplayOptions::default()) {
                let result = replay::apply(plan, &mut r.session, &mut |_| ());
                applied += u32::from(result.is_ok());
                recovered_or_left(&mut r);
            }
            if let Ok(plan) = undo::plan(&r.session, &Options::default()) {
                undone += u32::from(undo::apply(plan, &mut r.session, &mut |_| ()).is_ok());
                recovered_or_left(&mut r);
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(outside, dump(&r.tree.join("out")));
    assert_eq!(outside_modes, modes(&r));
    eprintln!("{applied} of 150 were applied and {undone} undone under attack");
}

/// Under attack a recovery may have to leave things; it must not fail otherwise.
fn recovered_or_left(r: &mut Recording) {
    let _ = recover::recover(&mut r.session, &Options::default(), &mut |_| ());
}
