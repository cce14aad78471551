//! Stopped after every single change of the disk, an apply or undo is recovered to the wholly old or the wholly new tree.

use crate::law::assert_same;
use crate::world::{Dump, World, commit_all, recovered, undo_last};
use effigy_journal::Session;
use effigy_replay::{ApplyError, Options, Selection, commit, recover, undo};

pub(crate) const SET_UP: &str = "mkdir -p d/sub e k full/x; echo one >d/f; echo two >d/sub/g; echo h >e/h; echo old >k/old; echo 1 >a; echo 2 >b; \
    ln -s b link; echo linked >h1; ln h1 h2; echo deep >full/x/y; touch -d '2001-02-03 04:05:06.789' a b";

/// Every kind of step: a new tree, a new file with attributes to strip, replacing, removing, type changes both ways, an
/// opaque directory, a rewrite, attributes.
pub(crate) const SCRIPT: &str = "mkdir -p n/m; echo 1 >n/m/o; mv b n/b; echo changed >a; rm -r full; rm -r d; mkdir d; echo new >d/new; \
    rm link; mkdir link; echo i >link/i; rm -r k; echo file >k; echo more >>h1; chmod 700 e; chmod 600 e/h";

pub(crate) struct Trees {
    pub(crate) old: Dump,
    pub(crate) new: Dump,
}

/// Recovers to one of the two trees; a second recovery changes nothing. Whether it is the new one.
pub(crate) fn whole(
    what: &str,
    world: &World,
    session: &mut Session,
    trees: &Trees,
    options: &Options,
) -> bool {
    session.lock_exclusive().unwrap();
    match recover::recover(session, options, &mut |_| ()) {
        Ok(recovered) => assert!(
            recovered.left.is_empty(),
            "{what}: left {:?}",
            recovered.left
        ),
        // The recovery was interrupted too: the next one is not.
        Err(ApplyError::Stopped) if options.stop_after.is_some() => {
            return whole(what, world, session, trees, &Options::default());
        }
        Err(ApplyError::Io { left, .. }) if options.failure.is_some() => {
            assert_eq!(left, effigy_replay::Left::Interrupted, "{what}");
            return whole(what, world, session, trees, &Options::default());
        }
        Err(e) => panic!("{what}: {e}"),
    }
    let after = world.dump();
    assert_eq!(
        recovered(session),
        recover::Outcome::Nothing,
        "{what}: a second recovery found work"
    );
    assert_same(&format!("{what}: a second recovery"), &after, &world.dump());
    assert!(!recover::is_needed(session));
    let is_new = after.get(std::path::Path::new("a")) == trees.new.get(std::path::Path::new("a"));
    assert_same(what, if is_new { &trees.new } else { &trees.old }, &after);
    is_new
}

fn every_stop(world: &World, options: Options) {
    let old = world.dump();
    let mut session = world.run(SCRIPT);
    commit_all(&mut session, &options);
    let trees = Trees {
        new: world.dump(),
        old,
    };
    undo_last(&mut session);
    assert_same("undone", &trees.old, &world.dump());
    let mut stops = 0;
    for stop in 1.. {
        session.lock_exclusive().unwrap();
        let stopping = Options {
            stop_after: Some(stop),
            ..options
        };
        let plan = commit::plan(&session, &Selection::all(), &stopping).unwrap();
        let what = format!("apply stopped after {stop}");
        match commit::apply(plan, &mut session, &mut |_| ()) {
            Ok(_) => {
                assert_same(&what, &trees.new, &world.dump());
                undo_last(&mut session);
                break;
            }
            Err(ApplyError::Stopped) => {
                stops += 1;
                // The recovery of every other one is itself interrupted, ever later.
                let recovery = Options {
                    stop_after: (stop % 2 == 0).then_some(stop / 2),
                    ..options
                };
                if whole(&what, world, &mut session, &trees, &recovery) {
                    undo_last(&mut session);
                    assert_same(&what, &trees.old, &world.dump());
                }
            }
            Err(e) => panic!("{what}: {e}"),
        }
    }
    assert!(stops > 15, "only {stops} stops");
    for stop in 1.. {
        commit_all(&mut session, &options);
        assert_same("committed again", &trees.new, &world.dump());
        let plan = undo::plan(
            &session,
            &Options {
                stop_after: Some(stop),
                ..options
            },
        )
        .unwrap();
        let what = format!("undo stopped after {stop}");
        match undo::apply(plan, &mut session, &mut |_| ()) {
            Ok(_) => {
                assert_same(&what, &trees.old, &world.dump());
                return;
            }
            Err(ApplyError::Stopped) => {
                let recovery = Options {
                    stop_after: (stop % 2 == 0).then_some(stop / 2),
                    ..options
                };
                if whole(&what, world, &mut session, &trees, &recovery) {
                    undo_last(&mut session);
                }
            }
            Err(e) => panic!("{what}: {e}"),
        }
    }
}

#[test]
fn moving_survives_a_stop_after_every_change() {
    every_stop(&World::new(SET_UP), Options::default());
}

#[test]
fn copying_survives_a_stop_after_every_change() {
    every_stop(
        &World::new(SET_UP),
        Options {
            keep: true,
            ..Options::default()
        },
    );
}

#[test]
fn another_filesystem_survives_a_stop_after_every_change() {
    every_stop(&World::across(SET_UP), Options::default());
}

/// The limit holds for a whole process, so the test runs in one of its own.
#[test]
fn a_write_that_fails_changes_nothing() {
    let me = std::env::current_exe().unwrap();
    let child = std::process::Command::new(me)
        .args(["--ignored", "--exact", "crash::a_write_that_fails"])
        .output()
        .unwrap();
    assert!(
        child.status.success(),
        "{}",
        String::from_utf8_lossy(&child.stdout)
    );
}

#[test]
#[ignore = "started by a_write_that_fails_changes_nothing"]
fn a_write_that_fails() {
    let world = World::across(SET_UP);
    let mut session =
        world.run("head -c 3000000 /dev/urandom >big; echo changed >a; rm b; echo more >>h1");
    let old = world.dump();
    session.lock_exclusive().unwrap();
    let plan = commit::plan(&session, &Selection::all(), &Options::default()).unwrap();
    let limit = libc::rlimit {
        rlim_cur: 1_000_000,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: setrlimit(2) and signal(2) read their arguments only.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit);
    }
    let failed = commit::apply(plan, &mut session, &mut |_| ());
    assert!(
        matches!(
            failed,
            Err(ApplyError::Io {
                left: effigy_replay::Left::Unchanged,
                ..
            })
        ),
        "{failed:?}"
    );
    assert_same("a full filesystem", &old, &world.dump());
}
