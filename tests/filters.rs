//! Filters mean the same for every command, and never half a change.

use crate::harness::{Scene, as_everyone};

/// A session with a path that one program changed, one that two did, a moved directory and a removed file.
fn recorded(scene: &Scene) {
    let setup = "echo b >b; echo c >c; mkdir d; echo 1 >d/1; echo 2 >d/2; echo s >s";
    scene.sh(setup).run().must_succeed();
    let script = "sed -i s/b/B/ b; echo y >>b; rm c; mv d e; cp b n; echo z >>s";
    scene.run_script("f", script).run().must_succeed();
}

#[track_caller]
fn summary(scene: &Scene, filters: &[&str]) -> String {
    let words = [&["summary", "f"], filters].concat();
    let base = format!("{}/", scene.work().display());
    scene
        .effigy(&words)
        .run()
        .must_succeed()
        .text()
        .replace(&base, "")
}

as_everyone! {
    fn events_choose_the_net_effects_they_are_part_of(scene: &Scene) {
        recorded(scene);
        assert_eq!(summary(scene, &["--by", "cp"]), "A n\n");
        assert_eq!(summary(scene, &["--op", "unlink"]), "D c\n");
        assert_eq!(summary(scene, &["--by", "sed"]), "M b\n");
        // What was below the directory when it moved moved with it, although no event names it.
        let moved = summary(scene, &["--by", "mv"]);
        assert!(moved.contains("d/1 -> e/1\n") || moved.contains("A e/1\n"), "{moved}");
        assert_eq!(summary(scene, &["--by", "cp", "--by", "rm", "--only", "c"]), "D c\n");
        let json = scene.effigy(&["summary", "f", "--json", "--by", "sed"]).run();
        assert!(json.text().contains(r#""partly":true"#), "{json}");
        let json = scene.effigy(&["summary", "f", "--json", "--by", "cp"]).run();
        assert!(!json.text().contains("partly"), "{json}");
        let diff = scene.effigy(&["diff", "f", "--by", "cp"]).run().must_succeed().text();
        assert!(diff.contains("+++ ") && diff.contains("/n\n") && diff.matches("--- ").count() == 1, "{diff}");
    }

    fn a_commit_takes_whole_changes_only(scene: &Scene) {
        recorded(scene);
        let before = scene.tree();
        let refused = scene.effigy(&["commit", "f", "-y", "--by", "sed"]).run().must_exit(1);
        refused.must_say(&["/b was also changed by open #", "effigy replay f --by sed"]);
        scene.tree().must_equal(&before, crate::trees::Times::OfAll, "after a refusal", "before");
        scene.effigy(&["replay", "f", "-y", "--by", "sed"]).run().must_succeed();
        assert_eq!(scene.sh("cat b; ls").run().text(), "B\nb\nc\nd\ns\n");
        scene.undo("f");
        scene.effigy(&["commit", "f", "-y", "--by", "cp", "--by", "rm"]).run().must_succeed();
        assert_eq!(scene.sh("cat b n; ls").run().text(), "b\nB\ny\nb\nd\nn\ns\n");
        scene.undo("f");
        scene.effigy(&["commit", "f", "-y", "--by", "mv"]).run().must_succeed();
        assert_eq!(scene.sh("cat e/1 e/2; ls").run().text(), "1\n2\nb\nc\ne\ns\n");
    }

    fn a_filter_that_chooses_nothing_is_refused_everywhere(scene: &Scene) {
        recorded(scene);
        let before = scene.tree();
        for filter in [&["--by", "nobody"][..], &["--pid", "4000000"], &["--only", "nothing"], &["--exclude", "nothing/**"], &["--op", "symlink"], &["--until", "0"]] {
            for command in [&["log", "f"][..], &["summary", "f"], &["diff", "f"], &["commit", "f", "-y"], &["replay", "f", "-y"]] {
                let words = [command, filter].concat();
                scene.effigy(&words).run().must_exit(1).must_say(&["matches", filter[1]]);
            }
        }
        scene.tree().must_equal(&before, crate::trees::Times::OfAll, "after refusals", "before");
    }

    fn what_was_asked_for_is_kept_with_the_apply(scene: &Scene) {
        recorded(scene);
        scene.effigy(&["commit", "f", "-y", "--by", "cp", "--exclude", "b"]).run().must_succeed();
        let listed = scene.effigy(&["ls"]).run().must_succeed().text();
        assert!(listed.contains("applied --exclude b --by cp"), "{listed}");
        scene.undo("f");
        scene.effigy(&["replay", "f", "-y", "--op", "unlink"]).run().must_succeed();
        let shown = scene.effigy(&["show", "f"]).run().must_succeed().text();
        assert!(shown.contains("commit --exclude b --by cp: not in place\n") && shown.contains("replay --op unlink: in place\n"), "{shown}");
        let json = scene.effigy(&["ls", "--json"]).run().must_succeed().text();
        assert!(json.contains(r#"{"apply":2,"verb":"replay","filter":["--op","unlink"],"in_place":true}"#), "{json}");
    }

    fn without_a_journal_only_paths_can_be_chosen(scene: &Scene) {
        scene.effigy(&["run", "-n", "-s", "f", "--no-trace", "--", "touch", "a", "b"]).run().must_succeed();
        assert_eq!(summary(scene, &["--only", "a"]), "A a\n");
        scene.effigy(&["summary", "f", "--op", "open"]).run().must_exit(1).must_say(&["has no journal", "--only"]);
    }
}
