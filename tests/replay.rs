//! Replay of recorded sessions: the same as a commit when everything is replayed, and exactly what was chosen otherwise.

use crate::harness::{Scene, as_everyone, has};
use crate::trees::Times;

/// A session recorded of `script`, committed, undone and replayed: the trees are equal, and undo gives the start again.
#[track_caller]
fn law(scene: &Scene, setup: &str, script: &str) {
    scene.sh(setup).run().must_succeed();
    let start = scene.tree();
    scene.run_script("law", script).run();
    scene.commit("law");
    let committed = scene.tree();
    scene.undo("law");
    let (after, before) = ("the tree after undo", "before the run");
    scene
        .tree()
        .must_equal(&start, Times::OfFiles, after, before);
    replay(scene, &["law"]);
    let (replayed, once) = ("replayed", "committed");
    scene
        .tree()
        .must_equal(&committed, Times::OfFiles, replayed, once);
    let again = scene.effigy(&["replay", "law", "-y"]).run().must_succeed();
    again.must_say(&["nothing to replay"]);
    scene.undo("law");
    scene
        .tree()
        .must_equal(&start, Times::OfFiles, after, before);
    scene.commit("law");
    scene
        .tree()
        .must_equal(&committed, Times::OfFiles, "committed again", once);
}

#[track_caller]
fn replay(scene: &Scene, arguments: &[&str]) {
    let words = [&["replay"], arguments, &["-y"]].concat();
    scene.effigy(&words).run().must_succeed();
}

as_everyone! {
    fn names_and_directories_change_places(scene: &Scene) {
        law(
            scene,
            "mkdir -p a/s b; echo 1 >a/s/f; echo 2 >b/g; echo 3 >c; chmod 640 c; ln -s c l",
            "mv a x; mv b a; mv x/s a/t; echo more >>a/t/f; mv c x/c; chmod 600 x/c; mkdir b; mv l b; rm a/g; echo n >b/n; mv b/n c",
        );
    }

    fn what_has_a_path_later_is_not_what_was_met_there(scene: &Scene) {
        law(scene, "mkdir -p c/a a; echo old >a/a", "mv c e; echo new >a/a; mkdir x; mv a x/a; mv e a; rmdir a/a");
    }

    fn contents_attributes_and_types_change(scene: &Scene) {
        law(
            scene,
            "mkdir d e; echo 1 >d/f; echo 2 >g; ln g h; mkfifo p",
            "rm -r d; echo file >d; rm p; mkdir p; echo in place >>g; truncate -s 1M sparse; chmod 711 e; \
             touch -d 2001-02-03T04:05:06.789 d; ln -s nowhere l; mkfifo q; echo x >t; mv t h; mkdir -m 1777 w; ln d e/again",
        );
    }

    fn what_programs_write_beside_and_move_into_place(scene: &Scene) {
        law(
            scene,
            "seq 1000 >list; mkdir -p src/deep; for i in 1 2 3 4 5; do echo $i >src/deep/$i; done",
            "sed -i s/7/seven/ list; tar cf all.tar src; rm -r src; tar xf all.tar; mv src/deep src/deeper; sort -r list -o list; \
             cp -a src copy; gzip all.tar",
        );
    }

    fn a_repository_of_git(scene: &Scene) {
        if !has(scene, "git") {
            return;
        }
        law(
            scene,
            "mkdir repo; cd repo; git init -q; git config user.email a@b; git config user.name n; echo 1 >f; git add f; git commit -qm one",
            "cd repo; echo 2 >>f; mkdir d; echo 3 >d/g; git add -A; git commit -qm two; git mv d e; git commit -qm three; \
             git checkout -qb side HEAD~1; git gc -q; git worktree add -q ../tree",
        );
    }

    fn a_part_is_completed_with_what_it_rests_on(scene: &Scene) {
        scene.run_script("s", "mkdir d; echo 1 >t; mv t d/f; ln d/f d/g; echo z >z").run().must_succeed();
        let refused = scene.effigy(&["replay", "s", "-y", "--strict", "--only", "d/g"]).run().must_exit(1);
        refused.must_say(&["needs mkdir", "needs rename"]);
        assert_eq!(scene.sh("ls").run().text(), "");
        let done = scene.effigy(&["replay", "s", "-y", "--only", "d/g"]).run().must_succeed();
        done.must_say(&["needs rename", "added"]);
        assert_eq!(scene.sh("cat d/g; ls . d").run().text(), "1\n.:\nd\n\nd:\nf\ng\n");
        replay(scene, &["s"]);
        assert_eq!(scene.sh("cat z; ls").run().text(), "z\nd\nz\n");
    }

    fn the_plan_is_shown_and_not_carried_out(scene: &Scene) {
        scene.sh("echo 1 >f").run().must_succeed();
        scene.run_script("s", "mv f g; echo n >n").run().must_succeed();
        let shown = scene.effigy(&["replay", "s", "--dry-run"]).run().must_succeed();
        let lines: Vec<_> = shown.text().lines().map(str::to_owned).collect();
        assert!(lines.len() == 2 && lines[0].ends_with("/g") && lines[1].ends_with("/n"), "{lines:?}");
        assert_eq!(scene.sh("ls").run().text(), "f\n");
    }

    fn a_process_and_what_it_started_can_be_chosen(scene: &Scene) {
        let script = "printf 'echo 2 >by-a; touch by-child' >a.sh; echo 1 >mine; sh a.sh";
        scene.run_script("s", script).run().must_succeed();
        replay(scene, &["s", "--by", "touch"]);
        assert_eq!(scene.sh("ls").run().text(), "by-child\n");
        replay(scene, &["s", "--op", "open", "--exclude", "by-*"]);
        assert_eq!(scene.sh("ls").run().text(), "a.sh\nby-child\nmine\n");
    }

    fn another_tree_is_replayed_onto(scene: &Scene) {
        scene.run_script("s", "mkdir d; echo 1 >d/f; mv d e").run().must_succeed();
        let missing = scene.effigy(&["replay", "s", "-y", "--root", "other"]).run().must_exit(1);
        missing.must_say(&["other"]);
        scene.sh("mkdir -p \"other$PWD\"").run().must_succeed();
        replay(scene, &["s", "--root", "other"]);
        assert_eq!(scene.sh("ls; cat \"other$PWD/e/f\"").run().text(), "other\n1\n");
        scene.undo("s");
        assert_eq!(scene.sh("ls \"other$PWD\"").run().text(), "");
    }

    fn what_was_changed_meanwhile_is_a_conflict(scene: &Scene) {
        scene.sh("echo 1 >f; mkdir d; echo 2 >m").run().must_succeed();
        scene.run_script("s", "echo 2 >f; rmdir d; mv m n; echo new >new").run().must_succeed();
        scene.sh("sleep 0.05; echo theirs >f; : >d/theirs; echo theirs >new; echo theirs >n").run().must_succeed();
        let before = scene.tree();
        let refused = scene.effigy(&["replay", "s", "-y"]).run().must_exit(1);
        refused.must_say(&["work/f", "work/d/theirs", "work/new", "work/n"]);
        scene.tree().must_equal(&before, Times::OfAll, "after a refused replay", "before");
        replay(scene, &["s", "--on-conflict", "skip"]);
        assert_eq!(scene.sh("cat f m n new; ls d").run().text(), "theirs\n2\ntheirs\ntheirs\ntheirs\n");
        replay(scene, &["s", "--on-conflict", "overwrite"]);
        assert_eq!(scene.sh("cat f n new; ls").run().text(), "2\n2\nnew\nf\nn\nnew\n");
        scene.undo("s");
        assert_eq!(scene.sh("cat f m n new; ls d").run().text(), "theirs\n2\ntheirs\ntheirs\ntheirs\n");
    }

    fn a_directory_that_a_commit_has_filled_is_not_moved_again(scene: &Scene) {
        for (number, (script, selection)) in [
            ("mv d e; mkdir d; echo y >d/a", ["--only", "e"]),
            ("mv d e; mkdir d; echo y >d/a", ["--only", "d/a"]),
            ("mv d e; mkdir d; echo y >d/a; mv e d/in", ["--op", "rename"]),
            ("mv d x; mkdir d; mv x d/x; echo k >d/x/k", ["--only", "d"]),
        ].into_iter().enumerate() {
            let session = format!("s{number}");
            scene.sh("rm -rf d e; mkdir -p d/s; echo 1 >d/a; echo 2 >d/s/b").run().must_succeed();
            scene.run_script(&session, script).run().must_succeed();
            scene.commit(&session);
            let committed = scene.tree();
            let refused = scene.effigy(&["replay", &session, "-y", selection[0], selection[1]]).run().must_exit(1);
            refused.must_say(&["commit", "work/d", "effigy undo"]);
            scene.tree().must_equal(&committed, Times::OfAll, "after a refused replay", "before");
            scene.undo(&session);
            replay(scene, &[&session, selection[0], selection[1]]);
            scene.undo(&session);
            assert_eq!(scene.sh("find . | sort; cat d/a d/s/b").run().text(), ".\n./d\n./d/a\n./d/s\n./d/s/b\n1\n2\n");
        }
    }

    fn what_a_damaged_journal_lacks_is_told(scene: &Scene) {
        scene.run_script("s", "mkdir d; echo 1 >d/f; mv d e").run().must_succeed();
        // The whole of a short recording is one frame.
        scene.sh("cd \"$EFFIGY_STORE\"/sessions/*/; truncate -s $(($(stat -c %s journal) * 2 / 3)) journal").run().must_succeed();
        for arguments in [&["replay", "s", "-y"][..], &["replay", "s", "--dry-run"]] {
            scene.effigy(arguments).run().must_exit(if arguments.contains(&"-y") { 1 } else { 0 }).must_say(&["journal"]);
        }
        scene.effigy(&["log", "s", "--json"]).run().must_succeed().must_say(&["the journal is incomplete"]);
        scene.effigy(&["export", "s", "--format", "json"]).run().must_succeed().must_say(&["the journal is incomplete"]);
        scene.commit("s");
        assert_eq!(scene.sh("cat e/f").run().text(), "1\n");
    }
}
