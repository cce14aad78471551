//! What planning costs.

use crate::recording::Recording;
use effigy_replay::{EventSelection, ReplayOptions, replay};
use std::time::{Duration, Instant};

#[test]
#[ignore = "measures; to be run alone, with --release"]
fn a_million_events_are_planned_in_three_seconds() {
    let mut r = Recording::of("mkdir -p a/b/c");
    for n in 0..250_000 {
        let (one, other) = (format!("a/b/c/{n}"), format!("a/b/{n}"));
        r.symlink(&one, "target");
        r.rename(&one, &other, false);
        r.chmod(&other, 0o777);
        if n % 10 == 0 {
            r.symlink(&one, "again");
        } else {
            r.unlink(&other);
        }
    }
    r.end();
    assert_eq!(r.len(), 1_000_000);
    let start = Instant::now();
    let plan = replay::plan(
        &r.session,
        &mut EventSelection::all(),
        &ReplayOptions::default(),
    );
    let took = start.elapsed();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find(|line| line.starts_with("VmHWM"));
    eprintln!("{} steps in {took:?}; {peak:?}", plan.unwrap().len());
    assert!(took < Duration::from_secs(3), "{took:?}");
}
