//! Undo in spite of what somebody else has changed since: the tree is as before the apply, and nothing of theirs is lost.

use crate::law::assert_same;
use crate::world::{World, commit_all, sh};
use effigy_replay::{ApplyError, OnConflict, Options, PlanError, recover, undo};
use std::path::Path;

const SET_UP: &str = "mkdir e; echo 1 >a; echo 2 >b; echo 3 >c; echo 4 >gone; echo 5 >h1; ln h1 h2; echo 6 >m; echo 7 >e/x; \
    touch -d 2001-01-01 a b c gone h1 m";
const SCRIPT: &str = "echo mine >a; echo mine >b; echo mine >c; rm gone; echo mine >>h1; chmod 600 m; echo new >n; mkdir -p t/u; \
    echo new >t/u/f; rm e/x; rmdir e; echo file >e";
/// Every kind of change: within a file of the apply, another file for it, none, one where it had removed one, one among what it
/// had made, content in place, attributes.
const THEIRS: &str = "echo theirs >>a; rm b; echo theirs >b; rm c; echo theirs >gone; echo theirs >>h2; chmod 640 m; echo theirs >>n; \
    echo theirs >t/u/theirs; echo theirs >>e";

fn forcing(stop_after: Option<u64>, like: Options) -> Options {
    Options {
        on_conflict: OnConflict::Overwrite,
        stop_after,
        ..like
    }
}

/// All contents below a directory.
fn contents(dir: &Path) -> String {
    let script = "find . -type f ! -name plan -size -2k -exec cat {} + 2>/dev/null; true";
    let output = std::process::Command::new("sh")
        .args(["-c", script])
        .current_dir(dir)
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn all_is_taken_back(world: impl Fn() -> World, options: Options) {
    for stop in 1.. {
        let world = world();
        let before = world.dump();
        let mut session = world.run(SCRIPT);
        commit_all(&mut session, &options);
        std::thread::sleep(std::time::Duration::from_millis(12));
        sh(&world.tree, THEIRS);
        let theirs = world.dump();
        let refused = undo::plan(&session, &options);
        assert!(matches!(refused, Err(PlanError::Conflicts(_))));
        session.lock_exclusive().unwrap();
        let plan = undo::plan(&session, &forcing(Some(stop), options)).unwrap();
        let told = plan.notes().len();
        assert!(told >= 8, "{:?}", plan.notes());
        let what = format!("stopped after {stop}");
        let result = undo::apply(plan, &mut session, &mut |_| ());
        let done = match result {
            Ok(_) => true,
            Err(ApplyError::Stopped) => false,
            Err(e) => panic!("{what}: {e}"),
        };
        if !done {
            session.reload().unwrap();
            let recovered = recover::recover(&mut session, &options, &mut |_| ()).unwrap();
            assert!(recovered.left.is_empty(), "{what}: {recovered:?}");
            // Before the undo is noted as begun there is nothing to finish.
            match undo::plan(&session, &forcing(None, options)) {
                Ok(plan) => {
                    assert_eq!(recovered.outcome, recover::Outcome::Nothing, "{what}");
                    assert_same(&what, &theirs, &world.dump());
                    undo::apply(plan, &mut session, &mut |_| ()).unwrap();
                }
                Err(e) => assert!(matches!(e, PlanError::NothingApplied), "{what}: {e}"),
            }
        }
        let mut after = world.dump();
        let mut wanted = before.clone();
        // A time that only the attributes step had to do with.
        for tree in [&mut after, &mut wanted] {
            tree.remove(Path::new(""));
        }
        assert_same(&what, &wanted, &after);
        let kept = contents(session.dir());
        let count = kept.matches("theirs").count();
        assert!(count >= 7, "{what}: {count} of theirs are left:\n{kept}");
        if done {
            return;
        }
    }
}

#[test]
fn what_was_moved_is_taken_back() {
    all_is_taken_back(|| World::in_memory(SET_UP), Options::default());
}

#[test]
fn what_was_copied_is_taken_back() {
    let keep = Options {
        keep: true,
        ..Options::default()
    };
    all_is_taken_back(|| World::in_memory(SET_UP), keep);
}

#[test]
fn what_was_copied_beside_is_taken_back() {
    let copy = Options {
        copy: true,
        ..Options::default()
    };
    all_is_taken_back(|| World::in_memory(SET_UP), copy);
}

#[test]
fn another_file_is_not_given_the_attributes_of_the_old_one() {
    let world = World::in_memory("echo 6 >m");
    let mut session = world.run("chmod 600 m");
    commit_all(&mut session, &Options::default());
    std::thread::sleep(std::time::Duration::from_millis(12));
    sh(&world.tree, "rm m; echo theirs >m");
    let plan = undo::plan(&session, &forcing(None, Options::default()));
    assert!(matches!(plan, Err(PlanError::Conflicts(_))), "{plan:?}");
    let skipping = Options {
        on_conflict: OnConflict::Skip,
        ..Options::default()
    };
    let plan = undo::plan(&session, &skipping).unwrap();
    undo::apply(plan, &mut session, &mut |_| ()).unwrap();
    assert_eq!(std::fs::read(world.tree.join("m")).unwrap(), b"theirs\n");
}
