//! Killed at any moment: the real tree is untouched, or can be recovered.

use std::process::Child;
use std::time::Duration;

use crate::harness::{Scene, as_everyone, wait_for_line};
use crate::sessions::lives;
use crate::trees::{Times, Tree};

pub(crate) fn kill(child: &mut Child) {
    child.kill().expect("kill -9");
    child.wait().expect("wait");
}

/// Waits until a thing is so: what is killed is gone only when the kernel comes to it.
pub(crate) fn soon(mut so: impl FnMut() -> bool) -> bool {
    (0..400).any(|_| {
        let now = so();
        if !now {
            std::thread::sleep(Duration::from_millis(10));
        }
        now
    })
}

as_everyone! {
    fn a_killed_run_leaves_an_interrupted_session(scene: &Scene) {
        scene.sh("echo v1 >f; mkdir d; : >d/x").run().must_succeed();
        let before = scene.tree();
        let mut child = scene.run_script("s", "echo v2 >f; rm -r d; echo n >n; echo ready; sleep 2001").start();
        wait_for_line(&mut child, "ready");
        kill(&mut child);
        assert!(soon(|| !lives(scene, &["sleep", "2001"])), "the command outlives effigy");
        scene.tree().must_equal(&before, Times::OfAll, "the tree after kill -9", "before the run");
        let listed = || scene.effigy(&["ls", "--json"]).run().must_succeed().text();
        assert!(soon(|| listed().contains("\"interrupted\"")), "{}", listed());
        assert_eq!(scene.summary("s"), ["D @/area/work/d", "D @/area/work/d/x", "M @/area/work/f", "A @/area/work/n"]);
        scene.commit("s");
        assert_eq!(scene.sh("cat f n; ls").run().text(), "v2\nn\nf\nn\n");
    }

    fn a_killed_run_leaves_no_mounts_behind(scene: &Scene) {
        let mounts = || std::fs::read_to_string("/proc/self/mountinfo").expect("mountinfo").lines().filter(|line| line.contains("effigy")).count();
        let before = mounts();
        let mut child = scene.run_script("s", "echo ready; sleep 2002").start();
        wait_for_line(&mut child, "ready");
        assert_eq!(mounts(), before, "the view shows outside");
        kill(&mut child);
        assert!(soon(|| !lives(scene, &["sleep", "2002"])));
        // The supervisor, which has the session locked too, ends a moment after the command.
        assert!(soon(|| scene.effigy(&["discard", "s"]).run().status == 0));
    }

    fn an_interrupted_session_can_be_discarded(scene: &Scene) {
        let mut child = scene.run_script("s", "mkdir -p q/x; chmod 0 q; echo ready; sleep 2003").start();
        wait_for_line(&mut child, "ready");
        kill(&mut child);
        assert!(soon(|| scene.effigy(&["discard", "s"]).run().status == 0));
        assert_eq!(scene.effigy(&["ls", "--json"]).run().must_succeed().text(), "");
    }

    fn a_run_killed_while_it_begins_leaves_nothing_real(scene: &Scene) {
        let before = scene.tree();
        for delay in [0, 1, 2, 4, 8, 16] {
            let mut child = scene.effigy(&["run", "-n", "--", "sh", "-c", ": >f; sleep 2004"]).start();
            std::thread::sleep(Duration::from_millis(delay));
            kill(&mut child);
        }
        assert!(soon(|| !lives(scene, &["sleep", "2004"])));
        scene.tree().must_equal(&before, Times::OfAll, "the tree after kill -9", "before");
        let all = || scene.effigy(&["discard", "--all", "-y"]).run();
        assert!(soon(|| all().status == 0), "{}", all());
        assert!(soon(|| {
            all();
            scene.effigy(&["ls", "--json"]).run().must_succeed().text().is_empty()
        }));
    }

    fn a_killed_commit_is_recovered_to_before_or_after(scene: &Scene) {
        let setup = "for d in 1 2 3 4; do mkdir -p old/$d; for n in $(seq 60); do echo $n >old/$d/$n; done; done; echo v1 >f; ln f hard";
        let change = "for d in 1 2 3 4; do for n in $(seq 1 2 60); do echo new >old/$d/$n; rm old/$d/$((n + 1)); done; done; \
            for n in $(seq 100); do mkdir n$n; echo $n >n$n/f; done; echo v2 >>f; rm -r old/4; echo file >old/4";
        scene.sh(setup).run().must_succeed();
        scene.run_script("s", change).run().must_succeed();
        let before = scene.tree();
        scene.commit("s");
        let after = scene.tree();
        scene.undo("s");
        scene.tree().must_equal(&before, Times::OfFiles, "after undo", "before");
        let is = |tree: &Tree, other: &Tree| tree.difference(other, Times::OfFiles).is_empty();
        for delay in [0, 3, 6, 10, 15, 20, 30, 50] {
            let mut child = scene.effigy(&["commit", "s", "-y"]).start();
            std::thread::sleep(Duration::from_millis(delay));
            kill(&mut child);
            scene.effigy(&["recover", "s"]).run().must_succeed();
            let found = scene.tree();
            if is(&found, &after) {
                scene.undo("s");
                scene.tree().must_equal(&before, Times::OfFiles, "after recover and undo", "before");
            } else {
                found.must_equal(&before, Times::OfFiles, "after recover", "before (and it is not after either)");
            }
        }
        scene.commit("s");
        scene.tree().must_equal(&after, Times::OfFiles, "committed at last", "committed at first");
    }

    fn a_killed_command_is_no_failure_of_effigys(scene: &Scene) {
        scene.run_script("s", ": >f; kill -9 $$").run().must_exit(137);
        assert_eq!(scene.summary("s"), ["A @/area/work/f"]);
    }
}
