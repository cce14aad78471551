//! The system refuses a change somewhere on the way of an apply, an undo or a recovery (a full disk, a failing one): the
//! tree is as before, or is wholly old or wholly new once recovered.

use crate::crash::{SCRIPT, SET_UP, Trees, whole};
use crate::law::assert_same;
use crate::world::{World, commit_all, undo_last};
use effigy_replay::{Applied, ApplyError, Failure, Left, Options, Selection, commit, undo};

/// Errors at this place of the way: a passing one (space was made) and one that lasts until the command has ended.
fn failures(after: u64, options: Options) -> [Options; 2] {
    let errno = [libc::ENOSPC, libc::EIO][usize::from(after.is_multiple_of(2))];
    [false, true].map(|lasting| Options {
        failure: Some(Failure {
            after,
            errno,
            lasting,
        }),
        ..options
    })
}

fn every_failure(world: &World, options: Options) {
    let old = world.dump();
    let mut session = world.run(SCRIPT);
    commit_all(&mut session, &options);
    let new = world.dump();
    let trees = Trees { old, new };
    undo_last(&mut session);
    let mut refused = 0;
    for after in 1.. {
        let mut done = false;
        for failing in failures(after, options) {
            session.lock_exclusive().unwrap();
            let plan = commit::plan(&session, &Selection::all(), &failing).unwrap();
            let result = commit::apply(plan, &mut session, &mut |_| ());
            let what = format!("apply, {:?}", failing.failure);
            refused += u32::from(result.is_err());
            done = result.is_ok();
            let is_new = checked(&what, world, &mut session, &trees, &failing, result, false);
            if is_new {
                undo_last(&mut session);
            }
            assert_same(&what, &trees.old, &world.dump());
        }
        if done {
            break;
        }
    }
    assert!(refused > 30, "only {refused} errors");
    commit_all(&mut session, &options);
    for after in 1.. {
        let mut done = false;
        for failing in failures(after, options) {
            session.lock_exclusive().unwrap();
            let plan = undo::plan(&session, &failing).unwrap();
            let result = undo::apply(plan, &mut session, &mut |_| ());
            let what = format!("undo, {:?}", failing.failure);
            done = result.is_ok();
            let is_new = checked(&what, world, &mut session, &trees, &failing, result, true);
            if !is_new {
                commit_all(&mut session, &options);
            }
            assert_same(&what, &trees.new, &world.dump());
        }
        if done {
            return;
        }
    }
}

/// What an error has left is what it says, and can be recovered, also by a recovery that fails at first. Whether the tree is
/// the new one then.
fn checked(
    what: &str,
    world: &World,
    session: &mut effigy_journal::Session,
    trees: &Trees,
    failing: &Options,
    result: Result<Applied, ApplyError>,
    undo: bool,
) -> bool {
    match result {
        Ok(_) => {
            let (is, wanted) = if undo {
                (false, &trees.old)
            } else {
                (true, &trees.new)
            };
            assert_same(what, wanted, &world.dump());
            is
        }
        Err(ApplyError::Io {
            left: Left::Unchanged,
            ..
        }) => {
            let before = if undo { &trees.new } else { &trees.old };
            assert_same(what, before, &world.dump());
            whole(what, world, session, trees, &Options::default())
        }
        Err(ApplyError::Io {
            left: Left::Interrupted,
            ..
        }) => whole(what, world, session, trees, failing),
        Err(e) => panic!("{what}: {e}"),
    }
}

#[test]
fn moving_survives_every_error() {
    every_failure(&World::in_memory(SET_UP), Options::default());
}

#[test]
fn copying_survives_every_error() {
    let keep = Options {
        keep: true,
        ..Options::default()
    };
    every_failure(&World::in_memory(SET_UP), keep);
}

#[test]
fn copies_beside_the_target_survive_every_error() {
    let copy = Options {
        copy: true,
        ..Options::default()
    };
    every_failure(&World::in_memory(SET_UP), copy);
}
