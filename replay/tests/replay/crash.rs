//! A process that stops dead after any change of the disk leaves what recovery makes wholly old or wholly new.

use crate::recording::Recording;
use effigy_replay::{ApplyError, EventSelection, Options, ReplayOptions, recover, replay, undo};

/// Moves, exchanges, replacements, removals, new trees, links, writes in place and attributes, one within the other.
fn everything() -> Recording {
    let mut r = Recording::of(
        "mkdir -p d/s e f; echo 1 >d/s/a; echo 2 >b; ln b b2; echo 3 >c; echo 4 >e/x; echo 5 >g; ln -s c l",
    );
    r.rename("d", "moved", false);
    r.write("moved/s/a", false, "changed");
    r.write("moved/new", true, "new");
    r.exchange("b", "c");
    r.write("c", false, "in place");
    r.mkdir("n");
    r.mkdir("n/m");
    r.write("n/m/f", true, "deep");
    r.link("n/m/f", "n/l");
    r.rename("g", "n/g", false);
    r.unlink("e/x");
    r.rmdir("e");
    r.write("e", true, "a file now");
    r.unlink("l");
    r.symlink("l", "n");
    r.chmod("f", 0o700);
    r.end();
    r
}

fn plan(r: &Recording, stop_after: Option<u64>) -> effigy_replay::Plan {
    let options = Options {
        stop_after,
        ..Options::default()
    };
    let replay_options = ReplayOptions {
        options,
        ..ReplayOptions::default()
    };
    replay::plan(&r.session, &mut EventSelection::all(), &replay_options).unwrap()
}

#[test]
fn replayed_undone_and_replayed_again() {
    let mut r = everything();
    r.session.lock_exclusive().unwrap();
    let start = r.dump();
    let first = plan(&r, None);
    replay::apply(first, &mut r.session, &mut |_| ()).unwrap();
    let end = r.dump();
    for (path, what) in [
        ("moved/s/a", "changed"),
        ("moved/new", "new"),
        ("b", "3"),
        ("c", "in place"),
        ("b2", "in place as b2"),
        ("n/m/f", "deep as n/l"),
        ("n/g", "5"),
        ("e", "a file now"),
        ("l", "-> n"),
    ] {
        let found = end
            .get(std::path::Path::new(path))
            .map_or("nothing", String::as_str);
        assert!(found.contains(what), "{path}: {found}");
    }
    assert!(
        plan(&r, None).is_empty(),
        "what is already so is left alone"
    );
    let back = undo::plan(&r.session, &Options::default()).unwrap();
    undo::apply(back, &mut r.session, &mut |_| ()).unwrap();
    assert_eq!(r.dump(), start);
    let again = plan(&r, None);
    replay::apply(again, &mut r.session, &mut |_| ()).unwrap();
    assert_eq!(r.dump(), end);
}

#[test]
fn stopped_after_every_change_of_a_replay() {
    let mut stops = 0;
    let mut end = None;
    for stop in 1..500 {
        let mut r = everything();
        r.session.lock_exclusive().unwrap();
        let start = r.dump();
        let stopped = plan(&r, Some(stop));
        let result = replay::apply(stopped, &mut r.session, &mut |_| ());
        if result.is_ok() {
            end = Some(r.dump());
            break;
        }
        assert!(
            matches!(result, Err(ApplyError::Stopped)),
            "{stop}: {result:?}"
        );
        stops += 1;
        put_right(&mut r, stop);
        let found = r.dump();
        if found != start {
            let rest = plan(&r, None);
            assert!(
                rest.is_empty(),
                "stopped after {stop}: neither old nor new: {found:#?}"
            );
        }
    }
    assert!(end.is_some() && stops > 20, "{stops}");
}

#[test]
fn stopped_after_every_change_of_an_undo() {
    for stop in 1..500 {
        let mut r = everything();
        r.session.lock_exclusive().unwrap();
        let start = r.dump();
        let first = plan(&r, None);
        replay::apply(first, &mut r.session, &mut |_| ()).unwrap();
        let end = r.dump();
        let options = Options {
            stop_after: Some(stop),
            ..Options::default()
        };
        let back = undo::plan(&r.session, &options).unwrap();
        let result = undo::apply(back, &mut r.session, &mut |_| ());
        if result.is_ok() {
            assert_eq!(r.dump(), start);
            return;
        }
        put_right(&mut r, stop);
        let found = r.dump();
        assert!(
            found == start || found == end,
            "stopped after {stop}: {found:#?}"
        );
    }
    panic!("the undo never ended");
}

fn put_right(r: &mut Recording, stop: u64) {
    // As the next process finds it.
    r.session.reload().unwrap();
    let first = recover::recover(&mut r.session, &Options::default(), &mut |_| ()).unwrap();
    assert!(
        first.left.is_empty(),
        "stopped after {stop}: left {:?}",
        first.left
    );
    let once = r.dump();
    let second = recover::recover(&mut r.session, &Options::default(), &mut |_| ()).unwrap();
    assert_eq!(
        second.outcome,
        recover::Outcome::Nothing,
        "stopped after {stop}"
    );
    assert_eq!(r.dump(), once);
}
