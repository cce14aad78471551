//! Sessions that go on: `run --resume`.

use std::fs;
use std::path::PathBuf;

use crate::harness::{Job, Scene, Who, as_everyone, is_root, skip, wait_for_line};
use crate::killed::{kill, soon};
use crate::sessions::lives;
use crate::trees::Times;

/// `effigy run -n --resume -s SESSION -- sh -euc SCRIPT`.
fn resume<'s>(scene: &'s Scene, session: &str, script: &str) -> Job<'s> {
    scene.effigy(&[
        "run", "-n", "--resume", "-s", session, "--", "sh", "-euc", script,
    ])
}

/// The journal of the scene's only session.
fn journal(scene: &Scene) -> PathBuf {
    let mut sessions = fs::read_dir(scene.store().join("sessions")).expect("a store");
    sessions
        .next()
        .expect("a session")
        .expect("an entry")
        .path()
        .join("journal")
}

/// The numbers of the events that a log shows.
fn numbers(scene: &Scene, session: &str) -> Vec<u64> {
    let log = scene
        .effigy(&["log", session, "--failed", "--json"])
        .run()
        .must_succeed()
        .text();
    let number = |line: &str| {
        line.strip_prefix("{\"seq\":")?
            .split(',')
            .next()?
            .parse()
            .ok()
    };
    log.lines()
        .map(|line| number(line).expect("an event"))
        .collect()
}

const SETUP: &str = "mkdir -p d/sub old; echo one >d/one; echo two >d/two; echo s >d/sub/s; echo o >old/o; echo gone >gone";
const FIRST: &str = "echo new >new; rm gone d/two; echo more >>d/one; rm -r d/sub; mkdir d/sub; echo n >d/sub/n; mv old moved; chmod 700 d";
const SECOND: &str = "echo x >>new; echo y >>d/one; rm d/sub/n; mv moved again; echo back >gone; ln new link; chmod 755 d";

as_everyone! {
    fn a_session_goes_on_where_it_ended(scene: &Scene) {
        scene.sh(SETUP).run().must_succeed();
        let before = scene.tree();
        scene.run_script("s", FIRST).run().must_succeed();
        let first = numbers(scene, "s");
        let seen = resume(scene, "s", "cat new d/one d/sub/n moved/o; test ! -e gone; test ! -e old; stat -c %a d; exit 3");
        assert_eq!(seen.run().must_exit(3).text(), "new\none\nmore\nn\no\n700\n");
        resume(scene, "s", SECOND).run().must_succeed();
        scene.tree().must_equal(&before, Times::OfAll, "the tree after three runs", "before them");
        assert_eq!(
            scene.summary("s"),
            [
                "A @/area/work/again",
                "R @/area/work/old/o -> @/area/work/again/o",
                "M @/area/work/d/one",
                "D @/area/work/d/sub/s",
                "D @/area/work/d/two",
                "M @/area/work/gone",
                "A @/area/work/link",
                "A @/area/work/new",
                "D @/area/work/old",
            ]
        );
        let all = numbers(scene, "s");
        assert!(all.len() > first.len() && all.windows(2).all(|pair| pair[1] == pair[0] + 1), "{all:?}");
        let log = scene.effigy(&["log", "s"]).run().must_succeed();
        assert!(log.text().contains("; complete"), "{log}");
        assert!(scene.effigy(&["ls"]).run().text().contains("echo x >>new"), "the command of the last run");
    }

    fn a_resumed_session_applies_like_the_commands_run_bare(scene: &Scene) {
        for verb in ["commit", "replay"] {
            scene.sh("cd ..; rm -rf work; mkdir work").run().must_succeed();
            scene.sh(SETUP).run().must_succeed();
            let before = scene.tree();
            scene.run_script(verb, FIRST).run().must_succeed();
            resume(scene, verb, SECOND).run().must_succeed();
            scene.effigy(&[verb, verb, "-y"]).run().must_succeed();
            let applied = scene.tree();
            scene.undo(verb);
            scene.tree().must_equal(&before, Times::OfFiles, "the tree after undo", "before the runs");
            scene.sh(FIRST).run().must_succeed();
            scene.sh(SECOND).run().must_succeed();
            applied.must_equal(&scene.tree(), Times::Ignored, verb, "run bare");
        }
    }

    fn contents_of_both_runs_can_be_seen(scene: &Scene) {
        scene.run_script("s", "echo 1 >f").run().must_succeed();
        let first = *numbers(scene, "s").last().expect("an event");
        resume(scene, "s", "echo 2 >f; echo 3 >g; rm g").run().must_succeed();
        assert_eq!(scene.effigy(&["cat", "s", "f"]).run().text(), "2\n");
        assert_eq!(scene.effigy(&["cat", &format!("s@{first}"), "f"]).run().text(), "1\n");
    }

    fn what_was_changed_between_two_runs_is_a_conflict(scene: &Scene) {
        scene.sh("echo v1 >f; echo v1 >g").run().must_succeed();
        scene.run_script("s", "echo mine >f").run().must_succeed();
        scene.sh("echo theirs >f; echo theirs >g").run().must_succeed();
        resume(scene, "s", "cat g; echo mine >>g").run().must_succeed();
        scene.effigy(&["commit", "s", "-y"]).run().must_exit(1).must_say(&["work/f"]);
        scene.effigy(&["commit", "s", "-y", "--only", "g"]).run().must_succeed();
        assert_eq!(scene.sh("cat f g").run().text(), "theirs\ntheirs\nmine\n");
    }

    fn a_killed_run_goes_on(scene: &Scene) {
        scene.sh("echo v1 >f; mkdir d; : >d/x").run().must_succeed();
        let mut child = scene.run_script("s", "echo v2 >f; rm -r d; echo n >n; sleep 0.3; echo ready; sleep 2005").start();
        wait_for_line(&mut child, "ready");
        kill(&mut child);
        assert!(soon(|| !lives(scene, &["sleep", "2005"])), "the command outlives effigy");
        let mut again = None;
        assert!(soon(|| {
            let done = resume(scene, "s", "cat f n; test ! -e d; echo m >m; echo v3 >f").run();
            let over = !done.stderr.contains("in use");
            again = Some(done);
            over
        }));
        let again = again.expect("a run").must_succeed();
        assert_eq!(again.text(), "v2\nn\n");
        again.must_say(&["incomplete", "goes on after event"]);
        assert_eq!(scene.summary("s"), ["D @/area/work/d", "D @/area/work/d/x", "M @/area/work/f", "A @/area/work/m", "A @/area/work/n"]);
        let log = scene.effigy(&["log", "s"]).run().must_succeed();
        assert!(log.text().contains("; complete"), "{log}");
        scene.commit("s");
        assert_eq!(scene.sh("cat f m n").run().text(), "v3\nm\nn\n");
    }

    fn a_torn_journal_goes_on_and_a_damaged_one_does_not(scene: &Scene) {
        scene.run_script("s", "echo 1 >f").run().must_succeed();
        let path = journal(scene);
        let whole = fs::read(&path).expect("the journal");
        fs::write(&path, &whole[..whole.len() - 3]).expect("tear it");
        resume(scene, "s", "echo 2 >g").run().must_succeed().must_say(&["journal of session s is incomplete", "goes on after event"]);
        let log = scene.effigy(&["log", "s"]).run().must_succeed();
        assert!(log.text().contains("; complete"), "{log}");
        let mut damaged = fs::read(&path).expect("the journal");
        damaged[40] ^= 1;
        fs::write(&path, &damaged).expect("damage it");
        let refused = resume(scene, "s", "echo 3 >g").run().must_exit(125);
        refused.must_say(&["journal is damaged", "effigy run --on s"]);
        assert_eq!(fs::read(&path).expect("the journal"), damaged, "a refusal changes nothing");
        assert_eq!(scene.summary("s"), ["A @/area/work/f", "A @/area/work/g"]);
    }

    fn what_cannot_go_on_is_refused_and_stays_as_it_was(scene: &Scene) {
        scene.run_script("s", "echo 1 >f; echo 1 >g").run().must_succeed();
        let taken = scene.run_script("s", "true").run().must_exit(125);
        taken.must_say(&["the name is taken", "--resume -s s"]);
        resume(scene, "other", "true").run().must_exit(125).must_say(&["other"]);
        scene.effigy(&["run", "--resume", "--", "true"]).run().must_exit(125).must_say(&["--session"]);
        scene.effigy(&["run", "-n", "--resume", "-s", "s", "--no-trace", "--", "true"]).run().must_exit(125).must_say(&["--no-trace"]);
        scene.effigy(&["run", "-n", "--resume", "-s", "s", "--", "./none"]).run().must_exit(127);
        assert_eq!(scene.summary("s"), ["A @/area/work/f", "A @/area/work/g"]);
        assert!(scene.effigy(&["ls"]).run().text().contains("echo 1 >f"), "the command that ran");
        let above = ["run", "-n", "-s", "above", "--on", "s", "--", "true"];
        scene.effigy(&above).run().must_succeed();
        resume(scene, "s", "true").run().must_exit(125).must_say(&["above rests on", "effigy run --on above"]);
        scene.effigy(&["discard", "above"]).run().must_succeed();
        scene.commit_only("s", "g");
        resume(scene, "s", "true").run().must_exit(125).must_say(&["it is applied", "effigy undo s"]);
        scene.undo("s");
        resume(scene, "s", "cat f g; echo 2 >>f").run().must_succeed();
        scene.commit("s");
        assert_eq!(scene.sh("cat f g").run().text(), "1\n2\n1\n");
    }

    fn a_session_without_journal_goes_on_without_one(scene: &Scene) {
        let run = |more: &[&str], script: &str| {
            scene.effigy(&["run", "-n", "-s", "s"]).args(more).args(&["--", "sh", "-euc", script]).run()
        };
        run(&["--no-trace"], "echo 1 >f; mkdir d").must_succeed();
        run(&["--resume"], "true").must_exit(125).must_say(&["--no-trace again"]);
        run(&["--resume", "--no-trace"], "echo 2 >>f; rmdir d").must_succeed();
        assert_eq!(scene.summary("s"), ["A @/area/work/f"]);
    }

    fn a_session_over_another_goes_on_over_it(scene: &Scene) {
        scene.run_script("base", "echo base >f; echo base >g").run().must_succeed();
        let on = ["run", "-n", "-s", "top", "--on", "base", "--", "sh", "-euc", "echo top >>f"];
        scene.effigy(&on).run().must_succeed();
        assert_eq!(resume(scene, "top", "cat f g; echo again >>f; rm g").run().must_succeed().text(), "base\ntop\nbase\n");
        assert_eq!(scene.summary("top"), ["M @/area/work/f", "D @/area/work/g"]);
        scene.commit("base");
        resume(scene, "top", "true").run().must_exit(125).must_say(&["base"]);
        scene.commit("top");
        assert_eq!(scene.sh("cat f; test ! -e g").run().must_succeed().text(), "base\ntop\nagain\n");
    }

    fn hidden_paths_stay_hidden(scene: &Scene) {
        scene.sh("echo secret >secret").run().must_succeed();
        scene.effigy(&["run", "-n", "-s", "s", "--hide", "secret", "--", "true"]).run().must_succeed();
        resume(scene, "s", "test ! -e secret; echo f >f").run().must_succeed();
        assert_eq!(scene.summary("s"), ["A @/area/work/f"]);
    }

    fn another_working_directory_is_no_hindrance(scene: &Scene) {
        scene.sh("mkdir -p ../home/sub").run().must_succeed();
        scene.run_script("s", "echo work >f; echo home >../home/sub/f").run().must_succeed();
        let seen = resume(scene, "s", "cat f ../../work/f; echo x >>f; echo x >>../../work/f").dir(scene.home().join("sub"));
        assert_eq!(seen.run().must_succeed().text(), "home\nwork\n");
        scene.commit("s");
        assert_eq!(scene.sh("cat f ../home/sub/f").run().text(), "work\nx\nhome\nx\n");
    }
}

/// A mount that came or went between two runs of a session.
#[test]
fn mounts_that_have_changed_are_refused_with_the_reason() {
    if !is_root() {
        return skip("only root can mount");
    }
    let scene =
        Scene::new(Who::Self_).with_mounts("mkdir area/work/m; mount -t tmpfs t area/work/m");
    scene
        .run_script("s", "echo m >m/f; echo w >w")
        .run()
        .must_succeed();
    assert_eq!(
        resume(&scene, "s", "cat m/f").run().must_succeed().text(),
        "m\n"
    );
    scene.sh("umount m").run().must_succeed();
    let refused = resume(&scene, "s", "true").run().must_exit(125);
    refused.must_say(&["session s", "work/m", "not mounted now"]);
    scene.sh("mount -t tmpfs t m").run().must_succeed();
    let refused = resume(&scene, "s", "true").run().must_exit(125);
    refused.must_say(&["work/m", "not the one that was there"]);
}
