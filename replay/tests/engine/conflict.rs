//! What somebody else has changed meanwhile is never lost, and nothing else is applied by halves.

use crate::law::assert_same;
use crate::world::{World, commit_all, sh, undo_last};
use effigy_journal::Session;
use effigy_replay::{Conflict, OnConflict, Options, PlanError, Reason, Selection, commit, undo};
use std::ffi::OsString;
use std::path::Path;

fn conflicts(result: Result<effigy_replay::Plan, PlanError>) -> Vec<Conflict> {
    match result {
        Err(PlanError::Conflicts(conflicts)) => conflicts,
        other => panic!("no conflict but {other:?}"),
    }
}

/// The conflicting names, relative to the tree, with their reasons.
fn names(world: &World, conflicts: &[Conflict]) -> Vec<String> {
    let word = |reason: &Reason| {
        format!("{reason:?}")
            .split([' ', '{'])
            .next()
            .unwrap()
            .to_owned()
    };
    let name = |path: &Path| {
        path.strip_prefix(&world.tree)
            .unwrap()
            .display()
            .to_string()
    };
    conflicts
        .iter()
        .map(|c| format!("{} {}", name(&c.path), word(&c.reason)))
        .collect()
}

fn plan(session: &Session, on_conflict: OnConflict) -> Result<effigy_replay::Plan, PlanError> {
    commit::plan(
        session,
        &Selection::all(),
        &Options {
            on_conflict,
            ..Options::default()
        },
    )
}

/// Set-up, session, what somebody else does meanwhile, the conflicts.
const CASES: &[(&str, &str, &str, &[&str])] = &[
    (
        "echo v1 >f; echo a >g",
        "echo mine >>f; echo b >g",
        "echo v2 >f",
        &["f ChangedMeanwhile"],
    ),
    (
        "echo v1 >f",
        "chmod 600 f",
        "chmod 604 f",
        &["f ChangedMeanwhile"],
    ),
    (
        "mkdir d",
        "rmdir d",
        ": >d/theirs",
        &["d ChangedMeanwhile", "d/theirs UnseenBelow"],
    ),
    (
        "mkdir e; : >e/a",
        "rm -r e",
        ": >e/b",
        &["e ChangedMeanwhile", "e/b UnseenBelow"],
    ),
    (
        "mkdir e; : >e/a",
        "rm -r e; mkdir e; echo n >e/n",
        ": >e/b",
        &["e/b ChangedMeanwhile"],
    ),
    (
        ":",
        "echo mine >n",
        "echo theirs >n",
        &["n ChangedMeanwhile"],
    ),
    (
        ":",
        "mkdir -p q/r; echo 1 >q/r/a; echo 2 >zz",
        ": >q",
        &["q ChangedMeanwhile"],
    ),
    ("echo 1 >f", "echo 2 >>f", "rm f", &["f GoneMeanwhile"]),
    (
        "mkdir d; : >d/x",
        "echo pwn >d/f",
        "rm -r d; mkdir out; ln -s out d",
        &["d ParentReplaced"],
    ),
    (
        "mkdir d; : >d/x",
        "echo n >d/f",
        "rm -r d",
        &["d ParentGone"],
    ),
    (
        "mkdir d; : >d/x",
        "rm -r d; echo file >d",
        "mv d/x d/y",
        &["d ChangedMeanwhile", "d/y UnseenBelow"],
    ),
    (
        "mkdir -p d/old; : >d/old/x; mkdir aside; : >aside/x",
        "rm -r d",
        "mv aside d/moved",
        &["d ChangedMeanwhile", "d/moved UnseenBelow"],
    ),
];

#[test]
fn every_change_meanwhile_is_a_conflict_and_nothing_is_changed() {
    for (set_up, script, meanwhile, expected) in CASES {
        let world = World::new(set_up);
        let session = world.run(script);
        std::thread::sleep(std::time::Duration::from_millis(12));
        sh(&world.tree, meanwhile);
        let before = world.dump();
        let found = conflicts(plan(&session, OnConflict::Abort));
        let expected: Vec<String> = expected.iter().map(|&name| name.to_owned()).collect();
        assert_eq!(names(&world, &found), expected, "{script} / {meanwhile}");
        assert!(found.iter().all(|conflict| {
            conflict
                .to_string()
                .contains(conflict.path.to_str().unwrap())
        }));
        assert_same(script, &before, &world.dump());
    }
}

#[test]
fn skipping_leaves_what_conflicts_and_applies_the_rest() {
    for (set_up, script, meanwhile, expected) in CASES {
        let world = World::new(set_up);
        let mut session = world.run(&format!("{script}; echo other >other"));
        std::thread::sleep(std::time::Duration::from_millis(12));
        sh(&world.tree, meanwhile);
        let before = world.dump();
        commit_all(
            &mut session,
            &Options {
                on_conflict: OnConflict::Skip,
                ..Options::default()
            },
        );
        assert!(world.tree.join("other").exists(), "{script}");
        let after = world.dump();
        for name in *expected {
            let path = Path::new(name.split(' ').next().unwrap());
            assert_eq!(
                before.get(path),
                after.get(path),
                "{script} / {meanwhile}: {}",
                path.display()
            );
        }
        undo_last(&mut session);
        assert_same(script, &before, &world.dump());
    }
}

#[test]
fn what_is_overwritten_comes_back_with_undo_and_conflicts_again() {
    let choose = [
        "ChangedMeanwhile",
        "AppearedMeanwhile",
        "GoneMeanwhile",
        "UnseenBelow",
    ];
    for (set_up, script, meanwhile, expected) in CASES {
        if !expected
            .iter()
            .all(|name| choose.contains(&name.split(' ').nth(1).unwrap()))
        {
            continue;
        }
        let world = World::new(set_up);
        let mut session = world.run(script);
        std::thread::sleep(std::time::Duration::from_millis(12));
        sh(&world.tree, meanwhile);
        let before = world.dump();
        commit_all(
            &mut session,
            &Options {
                on_conflict: OnConflict::Overwrite,
                ..Options::default()
            },
        );
        assert_ne!(before, world.dump(), "{script}");
        undo_last(&mut session);
        assert_same(script, &before, &world.dump());
        conflicts(plan(&session, OnConflict::Abort));
    }
}

#[test]
fn what_is_already_so_is_no_conflict() {
    let world = World::new("echo 1 >a; echo 2 >b");
    let mut session = world.run("echo new >a; rm b; mkdir -p d/e; echo x >d/e/f");
    // Somebody has done the same by hand, with the same times.
    let upper = session.upper(0);
    sh(
        &world.tree,
        &format!(
            "cp -p {0}/a a; rm b; mkdir -p d; cp -rp {0}/d/e d/",
            upper.display()
        ),
    );
    let before = world.dump();
    let plan = plan(&session, OnConflict::Abort).unwrap();
    assert!(
        plan.is_empty(),
        "{:?}",
        plan.describe().map(|d| d.to_string()).collect::<Vec<_>>()
    );
    commit_all(&mut session, &Options::default());
    assert_same("nothing to do", &before, &world.dump());
}

#[test]
fn undo_refuses_to_take_back_what_was_changed_since() {
    let set_up = "echo 1 >a; mkdir d; echo x >d/x; echo l >h1; ln h1 h2; echo m >m";
    let script =
        "echo 2 >a; mkdir -p n/s; echo n >n/s/f; rm -r d; echo more >>h1; chmod 600 m; echo t >t";
    let cases: &[(&str, &[&str])] = &[
        ("echo theirs >a", &["a ChangedMeanwhile"]),
        ("echo theirs >n/s/f", &["n/s/f UnseenBelow"]),
        ("echo theirs >n/s/g", &["n/s/g UnseenBelow"]),
        ("mkdir d", &["d AppearedMeanwhile"]),
        ("echo theirs >>h2", &["h1 ChangedMeanwhile"]),
        ("chmod 640 m", &["m ChangedMeanwhile"]),
        ("rm a; echo theirs >a", &["a ChangedMeanwhile"]),
        ("rm a", &["a GoneMeanwhile"]),
        ("rm t; mkdir t; : >t/u", &["t ChangedMeanwhile"]),
    ];
    for (meanwhile, expected) in cases {
        let world = World::new(set_up);
        let mut session = world.run(script);
        commit_all(&mut session, &Options::default());
        sh(&world.tree, meanwhile);
        let before = world.dump();
        let found = names(
            &world,
            &conflicts(undo::plan(&session, &Options::default())),
        );
        let expected: Vec<String> = expected.iter().map(|&name| name.to_owned()).collect();
        assert_eq!(found, expected, "{meanwhile}");
        assert_same(meanwhile, &before, &world.dump());
        // What was not changed can be taken back all the same.
        let plan = undo::plan(
            &session,
            &Options {
                on_conflict: OnConflict::Skip,
                ..Options::default()
            },
        )
        .unwrap();
        undo::apply(plan, &mut session, &mut |_| ()).unwrap();
        let after = world.dump();
        for name in &expected {
            let path = Path::new(name.split(' ').next().unwrap());
            assert_eq!(before.get(path), after.get(path), "{meanwhile}");
        }
    }
}

#[test]
fn a_removed_new_file_does_not_stand_in_the_way_of_undo() {
    let world = World::new("echo 1 >a");
    let before = world.dump();
    let mut session = world.run("echo 2 >a; echo n >n");
    commit_all(&mut session, &Options::default());
    sh(&world.tree, "rm n");
    undo_last(&mut session);
    assert_same("undone", &before, &world.dump());
}

#[test]
fn a_part_can_be_committed_and_then_the_rest() {
    let set_up = "mkdir -p c d/sub; echo mine >c/mine; echo 1 >d/1; echo 2 >d/sub/2; echo a >a";
    let script = "echo new >c/new; mkdir -p p/tmp/x; echo f >p/tmp/f; echo g >p/g; echo h >p/tmp/x/h; rm -r d; mkdir d; echo n >d/n; \
        mkdir d/sub; echo m >d/sub/m; echo changed >a; chmod 700 p";
    let parts: &[(&[&str], &[&str])] = &[
        (&["p/g"], &[]),
        (&["p/tmp/x/*", "a"], &[]),
        (&[], &["p/**", "c"]),
        (&["d/n"], &[]),
        (&["d/1", "d/sub/2"], &[]),
        (&["d/sub"], &[]),
        (&["**/[fgh]"], &["p/tmp/f"]),
    ];
    for (only, exclude) in parts {
        for keep in [false, true] {
            let world = World::new(set_up);
            let before = world.dump();
            let bare = world.bare(script);
            let mut session = world.run(script);
            let os = |list: &[&str]| list.iter().map(OsString::from).collect::<Vec<_>>();
            let selection = Selection::new(&session.record, &os(only), &os(exclude)).unwrap();
            session.lock_exclusive().unwrap();
            let options = Options {
                keep,
                ..Options::default()
            };
            commit::commit(&mut session, &selection, &options, &mut |_| ()).unwrap();
            let what = format!("only {only:?} exclude {exclude:?} keep {keep}");
            let part = world.dump();
            assert_ne!(part, before, "{what}");
            // What is not meant is as before; what is meant is as the bare run left it.
            for (path, line) in &bare {
                let meant = selection.contains(&world.tree.join(path));
                let now = world.timeless();
                if meant {
                    assert_eq!(now.get(path), Some(line), "{what}: {}", path.display());
                }
            }
            for (path, line) in &before {
                if !selection.contains(&world.tree.join(path)) && !world.tree.join(path).is_dir() {
                    assert_eq!(part.get(path), Some(line), "{what}: {}", path.display());
                }
            }
            commit_all(&mut session, &options);
            assert_same(&format!("{what}, then the rest"), &bare, &world.timeless());
            undo_last(&mut session);
            assert_same(&format!("{what}, the rest undone"), &part, &world.dump());
            undo_last(&mut session);
            assert_same(&format!("{what}, all undone"), &before, &world.dump());
            commit_all(&mut session, &options);
            assert_same(&format!("{what}, all at once"), &bare, &world.timeless());
        }
    }
}

#[test]
fn an_excluded_file_keeps_the_directory_that_was_removed() {
    let world = World::new("mkdir c; echo mine >c/mine; echo x >c/x");
    let mut session = world.run("rm -r c");
    let selection = Selection::new(&session.record, &[], &["c/mine".into()]).unwrap();
    session.lock_exclusive().unwrap();
    let plan = commit::plan(&session, &selection, &Options::default()).unwrap();
    assert_eq!(
        plan.notes(),
        [effigy_replay::Note::Kept {
            path: world.tree.join("c")
        }]
    );
    commit::apply(plan, &mut session, &mut |_| ()).unwrap();
    assert!(world.tree.join("c/mine").exists() && !world.tree.join("c/x").exists());
    let nothing = Selection::new(&session.record, &["nope/**".into()], &[]).unwrap();
    assert!(matches!(
        commit::plan(&session, &nothing, &Options::default()),
        Err(PlanError::NoMatch(_))
    ));
}

#[test]
fn sessions_one_after_the_other_can_be_taken_back_in_reverse() {
    let world = World::new("mkdir d; echo 1 >d/f; echo 1 >g");
    let first = world.dump();
    let mut one = world.run("echo 2 >d/f; mkdir -p n/m; echo a >n/m/x; echo y >n/y; chmod 600 g");
    commit_all(&mut one, &Options::default());
    let second = world.dump();
    let mut two = world.run("echo 3 >d/f; echo b >>n/m/x; rm n/y; echo z >n/m/z; chmod 640 g");
    commit_all(&mut two, &Options::default());
    conflicts(undo::plan(&one, &Options::default()));
    undo_last(&mut two);
    assert_same("the second taken back", &second, &world.dump());
    undo_last(&mut one);
    assert_same("both taken back", &first, &world.dump());
    // What somebody else changed before the second met it is no more hidden by its undo than without it.
    let mut one = world.run("echo 2 >d/f");
    std::thread::sleep(std::time::Duration::from_millis(12));
    sh(&world.tree, "echo theirs >d/f");
    let mut two = world.run("echo 3 >d/f");
    commit_all(&mut two, &Options::default());
    undo_last(&mut two);
    one.lock_exclusive().unwrap();
    assert_eq!(
        names(&world, &conflicts(plan(&one, OnConflict::Abort))),
        ["d/f ChangedMeanwhile"]
    );
}
