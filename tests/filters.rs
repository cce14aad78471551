//! Filters mean the same for every command, and never half a change.

use crate::harness::{Scene, as_everyone};
use crate::trees::Times;

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
        // Whatever program `sh` is.
        assert_eq!(summary(scene, &["--by", "sh"]), summary(scene, &[]));
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

/// The law for parts: what a commit with a filter for events takes is what a replay with it comes to.
fn commit_and_replay_agree(scene: &Scene, setup: &str, script: &str) {
    scene.sh(setup).run().must_succeed();
    scene.run_script("law", script).run().must_succeed();
    let start = scene.tree();
    let log = scene
        .effigy(&["log", "law", "--json"])
        .run()
        .must_succeed()
        .text();
    let mut filters: Vec<[String; 2]> = ["mv", "rm", "cp", "mkdir", "ln", "chmod", "sh", "sed"]
        .map(|name| ["--by".to_owned(), name.to_owned()])
        .into();
    for op in [
        "open", "mkdir", "rename", "unlink", "link", "chmod", "rmdir",
    ] {
        filters.push(["--op".to_owned(), op.to_owned()]);
    }
    for line in log.lines() {
        let event: serde_json::Value = serde_json::from_str(line).expect("JSON");
        let is_observation = ["exec", "exit", "settle"]
            .iter()
            .any(|op| event["op"] == *op);
        if !is_observation {
            filters.push(["--until".to_owned(), event["seq"].to_string()]);
            filters.push(["--from".to_owned(), event["seq"].to_string()]);
        }
    }
    let mut agreed = 0;
    for [option, value] in &filters {
        let filter = [option.as_str(), value.as_str()];
        let committed = scene.effigy(&["commit", "law", "-y"]).args(&filter).run();
        if committed.status == 1 {
            scene
                .tree()
                .must_equal(&start, Times::OfFiles, "after a refusal", "before");
            continue;
        }
        let committed = committed.must_succeed();
        let tree = scene.tree();
        if !committed.stderr.contains("nothing to commit") {
            scene.undo("law");
        }
        scene
            .tree()
            .must_equal(&start, Times::OfFiles, "after undo", "before");
        let replayed = scene
            .effigy(&["replay", "law", "-y"])
            .args(&filter)
            .run()
            .must_succeed();
        scene.tree().must_equal(
            &tree,
            Times::Ignored,
            &format!("replayed {filter:?}"),
            "committed",
        );
        if !replayed.stderr.contains("nothing to replay") {
            scene.undo("law");
        }
        agreed += 1;
    }
    assert!(agreed > 8, "only {agreed} of {} were whole", filters.len());
}

as_everyone! {
    fn commit_and_replay_of_a_part_agree(scene: &Scene) {
        commit_and_replay_agree(
            scene,
            "mkdir d k; echo 1 >d/a; echo 2 >d/b; echo 3 >g; echo 4 >h; echo 5 >k/x; ln k/x k/y",
            "echo more >>g; mkdir new; cp d/a new/a; mv d/b new/b; rm h; chmod 600 g; mv k l; echo n >n; ln n m; mv n o; rm d/a; rmdir d; echo d >d; \
             mkdir p; mkdir p/q; echo r >p/q/r; mv p/q q; rmdir p; sed -i s/1/one/ new/a",
        );
    }
}
