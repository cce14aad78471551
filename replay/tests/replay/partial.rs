//! Parts of a journal: what they rest on is added, and the result is that of executing exactly the chosen effects.

use crate::recording::Recording;
use effigy_replay::{
    EventFilter, EventSelection, Options, Plan, PlanError, Reason, ReplayError, ReplayOptions,
    Selection, replay,
};
use std::ffi::OsString;

fn select(r: &Recording, only: &[&str], exclude: &[&str], filter: EventFilter) -> EventSelection {
    let os = |list: &[&str]| list.iter().map(OsString::from).collect::<Vec<_>>();
    let paths = Selection::new(&r.session.record, &os(only), &os(exclude)).unwrap();
    EventSelection::new(paths, filter)
}

fn until(n: u64) -> EventFilter {
    EventFilter {
        until: Some(n),
        ..EventFilter::default()
    }
}

fn plan(r: &Recording, mut selection: EventSelection) -> Result<Plan, ReplayError> {
    replay::plan(&r.session, &mut selection, &ReplayOptions::default())
}

fn apply(r: &mut Recording, selection: EventSelection) {
    r.session.lock_exclusive().unwrap();
    let plan = plan(r, selection).unwrap();
    replay::apply(plan, &mut r.session, &mut |_| ()).unwrap();
}

fn names(r: &Recording) -> String {
    let dump = r.dump();
    let names = dump.keys().filter(|name| !name.as_os_str().is_empty());
    names
        .map(|name| name.display().to_string())
        .collect::<Vec<_>>()
        .join(" ")
}

fn read(r: &Recording, name: &str) -> String {
    std::fs::read_to_string(r.tree.join(name)).unwrap()
}

/// mkdir d, write d/t, rename d/t d/f, link d/f d/g, write z
fn made() -> Recording {
    let mut r = Recording::of("true");
    r.mkdir("d");
    r.write("d/t", true, "one");
    r.rename("d/t", "d/f", false);
    r.link("d/f", "d/g");
    r.write("z", true, "z");
    r.end();
    r
}

#[test]
fn what_an_effect_rests_on_is_added_and_told() {
    let mut r = made();
    let chosen = select(&r, &["d/g"], &[], EventFilter::default());
    let told: Vec<String> = plan(&r, chosen)
        .unwrap()
        .notes()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(told.len(), 3, "{told:?}");
    assert!(
        told[2].starts_with("link #4 needs rename #3 of "),
        "{told:?}"
    );
    let chosen = select(&r, &["d/g"], &[], EventFilter::default());
    apply(&mut r, chosen);
    assert_eq!(names(&r), "d d/f d/g");
}

#[test]
fn strictly_nothing_is_added() {
    let r = made();
    let mut chosen = select(&r, &["d/g"], &[], EventFilter::default());
    let options = ReplayOptions {
        strict: true,
        ..ReplayOptions::default()
    };
    match replay::plan(&r.session, &mut chosen, &options) {
        Err(ReplayError::Incomplete(needed)) => {
            assert_eq!(needed.iter().map(|n| n.seq).collect::<Vec<_>>(), [1, 2, 3]);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_state_after_any_event_can_be_replayed_and_gone_on_from() {
    let mut r = Recording::of("echo old >f; mkdir d; echo x >d/x");
    r.write("f", false, "first");
    r.rename("f", "g", false);
    r.write("f", true, "another");
    r.rename("d", "e", false);
    r.write("g", false, "second");
    r.rename("g", "e/g", false);
    r.unlink("e/x");
    r.end();
    let want = [
        "d d/x f",
        "d d/x g",
        "d d/x f g",
        "e e/x f g",
        "e e/x f g",
        "e e/g e/x f",
        "e e/g f",
    ];
    for (n, want) in want.iter().enumerate() {
        let chosen = select(&r, &[], &[], until(n as u64 + 1));
        apply(&mut r, chosen);
        assert_eq!(names(&r), *want, "until {}", n + 1);
    }
    assert_eq!(read(&r, "e/g"), "second");
    assert_eq!(read(&r, "f"), "another");
    let rest = plan(&r, EventSelection::all()).unwrap();
    assert!(rest.is_empty(), "{:?}", rest.describe().collect::<Vec<_>>());
}

#[test]
fn an_unlink_can_be_left_out() {
    let mut r = Recording::of("echo precious >p");
    r.write("m", true, "made");
    r.unlink("m");
    r.unlink("p");
    r.end();
    let chosen = select(&r, &["m"], &[], until(1));
    apply(&mut r, chosen);
    assert_eq!(
        (names(&r).as_str(), read(&r, "m").as_str()),
        ("m p", "made")
    );
    let chosen = select(&r, &[], &["p"], EventFilter::default());
    apply(&mut r, chosen);
    assert_eq!(
        names(&r),
        "p",
        "what was replayed in part goes when its removal is replayed"
    );
}

#[test]
fn excluding_never_deletes() {
    let mut r = Recording::of("mkdir d; echo 1 >d/keep; echo 2 >d/x");
    r.unlink("d/keep");
    r.unlink("d/x");
    r.rmdir("d");
    r.end();
    let chosen = select(&r, &[], &["d/keep"], EventFilter::default());
    apply(&mut r, chosen);
    assert_eq!(names(&r), "d d/keep");
}

#[test]
fn room_that_may_not_be_made_is_a_conflict() {
    let mut r = Recording::of("mkdir d; echo 1 >d/keep");
    r.unlink("d/keep");
    r.rmdir("d");
    r.write("d", true, "a file");
    r.end();
    let chosen = select(&r, &[], &["d/keep"], EventFilter::default());
    match plan(&r, chosen) {
        Err(ReplayError::Plan(PlanError::Conflicts(conflicts))) => {
            assert!(matches!(conflicts[0].reason, Reason::ExcludedBelow { .. }));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn another_tree_needs_the_parents_of_the_first_effects() {
    let mut r = Recording::of("mkdir d");
    r.write("d/f", true, "f");
    r.end();
    let other = tempfile::tempdir_in("/var/tmp").unwrap();
    let root = other.path().canonicalize().unwrap();
    let options = ReplayOptions {
        root: Some(&root),
        options: Options::default(),
        strict: false,
    };
    match replay::plan(&r.session, &mut EventSelection::all(), &options) {
        Err(ReplayError::Plan(PlanError::Conflicts(conflicts))) => {
            assert!(matches!(conflicts[0].reason, Reason::ParentGone { .. }));
        }
        other => panic!("{other:?}"),
    }
    let below = root.join(r.tree.strip_prefix("/").unwrap()).join("d");
    std::fs::create_dir_all(&below).unwrap();
    r.session.lock_exclusive().unwrap();
    let plan = replay::plan(&r.session, &mut EventSelection::all(), &options).unwrap();
    replay::apply(plan, &mut r.session, &mut |_| ()).unwrap();
    assert_eq!(std::fs::read_to_string(below.join("f")).unwrap(), "f");
    assert_eq!(names(&r), "d", "only the other tree was changed");
}

#[test]
fn content_that_was_not_kept_is_named() {
    let mut r = Recording::of("true");
    r.write("f", true, "lost");
    r.end();
    std::fs::remove_file(r.session.versions().join("0")).unwrap();
    match plan(&r, EventSelection::all()) {
        Err(ReplayError::NoContent { seq: 1, path }) => assert_eq!(path, r.tree.join("f")),
        other => panic!("{other:?}"),
    }
}
