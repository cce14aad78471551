//! Figures, beside those of the plain tools: `cargo test --release -p effigy-replay --test engine -- --ignored --nocapture speed`.

use crate::world::{World, commit_all, sh, undo_last};
use effigy_replay::{DiffOptions, Differ, Options, Selection, commit, net_effects};

const NEW: &str = "mkdir big; cd big; for d in $(seq 100); do mkdir d$d; for f in $(seq 75); do echo $f >d$d/f$f; done; done";

/// Processor time of this process and its children: other work on the machine does not count.
#[derive(Clone, Copy)]
struct Instant(f64);

impl Instant {
    fn now() -> Self {
        let used = |who| {
            let usage = nix::sys::resource::getrusage(who).unwrap();
            let ms = |t: nix::sys::time::TimeVal| {
                t.tv_sec() as f64 * 1000.0 + t.tv_usec() as f64 / 1000.0
            };
            ms(usage.user_time()) + ms(usage.system_time())
        };
        Self(
            used(nix::sys::resource::UsageWho::RUSAGE_SELF)
                + used(nix::sys::resource::UsageWho::RUSAGE_CHILDREN),
        )
    }
}

fn milliseconds(start: Instant) -> f64 {
    Instant::now().0 - start.0
}

#[test]
#[ignore = "a measurement"]
fn speed_of_a_new_tree() {
    for _ in 0..5 {
        let world = World::in_memory(":");
        let mut session = world.run(NEW);
        session.lock_exclusive().unwrap();
        let start = Instant::now();
        let plan = commit::plan(&session, &Selection::all(), &Options::default()).unwrap();
        let planned = milliseconds(start);
        commit::apply(plan, &mut session, &mut |_| ()).unwrap();
        let committed = milliseconds(start);
        let start = Instant::now();
        undo_last(&mut session);
        let undone = milliseconds(start);
        sh(&world.tree, NEW);
        let start = Instant::now();
        sh(&world.tree, "mv big ../big");
        let moved = milliseconds(start);
        sh(&world.tree, "mv ../big big");
        let start = Instant::now();
        sh(&world.tree, "cp -a big ../copy");
        let copied = milliseconds(start);
        sh(&world.tree, "rm -r big");
        let start = Instant::now();
        commit_all(
            &mut session,
            &Options {
                keep: true,
                ..Options::default()
            },
        );
        let kept = milliseconds(start);
        eprintln!(
            "7500 new files: plan {planned:.1} commit {committed:.1} undo {undone:.1} | mv {moved:.1} | keep {kept:.1} cp -a {copied:.1} ms"
        );
    }
}

#[test]
#[ignore = "a measurement"]
fn speed_over_existing_files() {
    for _ in 0..5 {
        let tree = "for d in $(seq 107); do mkdir d$d; for f in $(seq 50); do echo old$f >d$d/f$f; done; done";
        let world = World::in_memory(tree);
        let mut session = world.run("for f in */*; do echo new >>$f; done");
        session.lock_exclusive().unwrap();
        let start = Instant::now();
        let effects = net_effects(&session, &Selection::all()).unwrap();
        let listed = milliseconds(start);
        let start = Instant::now();
        let plan = commit::plan(&session, &Selection::all(), &Options::default()).unwrap();
        let planned = milliseconds(start);
        commit::apply(plan, &mut session, &mut |_| ()).unwrap();
        let committed = milliseconds(start);
        let start = Instant::now();
        undo_last(&mut session);
        let undone = milliseconds(start);
        eprintln!(
            "{} existing files: net effects {listed:.1} plan {planned:.1} commit {committed:.1} undo {undone:.1} ms",
            effects.len()
        );
    }
}

#[test]
#[ignore = "a measurement"]
fn speed_of_net_effects() {
    let world = World::in_memory(
        "for d in $(seq 200); do mkdir -p old/d$d; for f in $(seq 100); do echo $f >old/d$d/f$f; done; done",
    );
    let session = world.run(
        "rm -r old/d1??; for f in old/*/*; do echo x >>$f; done; mkdir new; cd new; for d in $(seq 200); do mkdir d$d; for f in $(seq 200); do echo $f >d$d/f$f; done; done",
    );
    for _ in 0..3 {
        let start = Instant::now();
        let effects = net_effects(&session, &Selection::all()).unwrap();
        let listed = milliseconds(start);
        let start = Instant::now();
        let differ = Differ::new(&session, DiffOptions::default());
        let mut out = std::io::sink();
        effects
            .iter()
            .for_each(|effect| differ.write(effect, &mut out).unwrap());
        let shown = milliseconds(start);
        let rate = |ms: f64| effects.len() as f64 / ms * 1000.0;
        eprintln!(
            "{} effects: listed {:.0} a second, diffed {:.0} a second",
            effects.len(),
            rate(listed),
            rate(shown)
        );
    }
}
