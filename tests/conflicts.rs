//! Commit against a real tree that has changed meanwhile, selections, and undo.

use crate::harness::{NOBODY, Scene, Who, as_everyone, is_root, skip};
use crate::trees::Times;

as_everyone! {
    fn a_file_changed_meanwhile_is_a_conflict_and_nothing_is_applied(scene: &Scene) {
        scene.sh("echo v1 >f; echo a >g; echo d >gone; mkdir dir; echo x >m").run().must_succeed();
        scene.run_script("s", "echo mine >>f; echo b >g; rm gone; : >new; rmdir dir; chmod 600 m").run().must_succeed();
        scene.sh("echo v2 >f; echo d2 >gone; echo theirs >new; : >dir/theirs").run().must_succeed();
        let before = scene.tree();
        let done = scene.effigy(&["commit", "s", "-y"]).run().must_exit(1);
        scene.tree().must_equal(&before, Times::OfAll, "after a refused commit", "before");
        done.must_say(&["work/f", "work/gone", "work/new", "work/dir", "--on-conflict"]);
        scene.effigy(&["commit", "s", "-y", "--on-conflict", "skip"]).run().must_succeed();
        assert_eq!(scene.sh("cat f g gone new; ls dir; stat -c %a m").run().text(), "v2\nb\nd2\ntheirs\ntheirs\n600\n");
    }

    fn overwrite_keeps_what_was_there_for_undo(scene: &Scene) {
        scene.sh("echo v1 >f").run().must_succeed();
        scene.run_script("s", "echo mine >f; echo mine >new").run().must_succeed();
        scene.sh("echo theirs >f; echo theirs >new").run().must_succeed();
        scene.effigy(&["commit", "s", "-y", "--on-conflict", "overwrite"]).run().must_succeed();
        assert_eq!(scene.sh("cat f new").run().text(), "mine\nmine\n");
        scene.undo("s");
        assert_eq!(scene.sh("cat f new").run().text(), "theirs\ntheirs\n");
    }

    fn an_undo_that_overwrites_keeps_what_was_there(scene: &Scene) {
        scene.sh("echo v1 >f; echo v1 >gone; echo v1 >h; ln h h2").run().must_succeed();
        scene.run_script("s", "echo mine >f; rm gone; echo mine >>h; mkdir d; echo mine >d/n").run().must_succeed();
        scene.commit("s");
        scene.sh("sleep 0.05; echo theirs >>f; echo theirs >gone; echo theirs >>h2; echo theirs >d/more").run().must_succeed();
        let changed = scene.tree();
        let refused = scene.effigy(&["undo", "s", "-y"]).run().must_exit(1);
        refused.must_say(&["work/f", "work/gone", "work/h", "d/more", "--on-conflict overwrite"]);
        scene.tree().must_equal(&changed, Times::OfAll, "after a refused undo", "before");
        scene.effigy(&["undo", "s", "-y", "--on-conflict", "overwrite"]).run().must_succeed().must_say(&["overwritten"]);
        assert_eq!(scene.sh("cat f gone h h2; ls").run().text(), "v1\nv1\nv1\nv1\nf\ngone\nh\nh2\n");
        let kept = "grep -rl theirs \"$EFFIGY_STORE\" | wc -l";
        assert_eq!(scene.sh(kept).run().text().trim(), "4");
        scene.commit("s");
        assert_eq!(scene.sh("cat f d/n d/more").run().text(), "mine\ntheirs\nmine\ntheirs\n");
    }

    fn what_is_there_already_is_no_conflict(scene: &Scene) {
        scene.sh("echo v1 >f; : >gone").run().must_succeed();
        scene.run_script("s", "echo v2 >f; echo n >new; mkdir d; rm gone; : >other").run().must_succeed();
        scene.sh("rm gone; mkdir d").run().must_succeed();
        scene.commit("s");
        assert_eq!(scene.sh("cat f new; ls").run().text(), "v2\nn\nd\nf\nnew\nother\n");
    }

    fn a_failed_commit_loses_nothing(scene: &Scene) {
        scene.run_script("s", "mkdir -p q/r; echo 1 >q/r/a; echo 2 >z").run().must_succeed();
        scene.sh(": >q").run().must_succeed();
        scene.effigy(&["commit", "s", "-y"]).run().must_exit(1).must_say(&["work/q"]);
        assert_eq!(scene.sh("ls").run().text(), "q\n", "half applied");
        scene.sh("rm q").run().must_succeed();
        scene.commit("s");
        assert_eq!(scene.sh("cat q/r/a z").run().text(), "1\n2\n");
    }

    fn a_directory_with_something_new_in_it_is_not_deleted(scene: &Scene) {
        scene.sh("mkdir -p e/in; : >e/a; : >e/in/b").run().must_succeed();
        scene.run_script("s", "rm -r e").run().must_succeed();
        scene.sh(": >e/in/theirs").run().must_succeed();
        scene.effigy(&["commit", "s", "-y"]).run().must_exit(1).must_say(&["e/in"]);
        assert_eq!(scene.sh("ls e e/in").run().text(), "e:\na\nin\n\ne/in:\nb\ntheirs\n");
    }

    fn a_link_planted_in_the_way_is_not_followed(scene: &Scene) {
        scene.sh("mkdir d out sub; mkdir sub/d; echo o >sub/d/f").run().must_succeed();
        scene.run_script("s", "echo pwn >d/f; echo pwn >>sub/d/f; mkdir d/new").run().must_succeed();
        scene.sh("rm -r d sub/d; ln -s out d; ln -s ../out sub/d; echo o >out/f").run().must_succeed();
        scene.effigy(&["commit", "s", "-y"]).run().must_exit(1).must_say(&["work/d"]);
        assert_eq!(scene.sh("ls out; cat out/f").run().text(), "f\no\n");
        for choice in ["skip", "overwrite"] {
            scene.effigy(&["commit", "s", "-y", "--on-conflict", choice]).run();
            assert_eq!(scene.sh("ls out; cat out/f").run().text(), "f\no\n", "{choice} went through the link");
        }
    }

    fn a_link_is_removed_not_what_it_names(scene: &Scene) {
        scene.sh("mkdir t; : >t/keep; ln -s t l; ln -s t/keep m").run().must_succeed();
        scene.run_script("s", "rm l m").run().must_succeed();
        scene.commit("s");
        assert_eq!(scene.sh("ls; ls t").run().text(), "t\nkeep\n");
    }

    fn a_dry_run_changes_nothing(scene: &Scene) {
        scene.sh("echo v1 >f; mkdir d; : >d/x").run().must_succeed();
        scene.run_script("s", "echo v2 >f; rm -r d; : >new").run().must_succeed();
        let before = scene.tree();
        let done = scene.effigy(&["commit", "s", "--dry-run"]).run().must_succeed();
        scene.tree().must_equal(&before, Times::OfAll, "after a dry run", "before");
        for name in ["/f", "/d", "/new"] {
            assert!(done.text().contains(name), "nothing about {name}: {done}");
        }
        scene.commit("s");
        assert_eq!(scene.sh("cat f; ls").run().text(), "v2\nf\nnew\n");
    }

    fn selections(scene: &Scene) {
        scene.sh("mkdir .cfg; : >.cfg/mine").run().must_succeed();
        scene.run_script("s", ": >.cfg/new; : >a; : >a.b; : >axb; mkdir -p p/tmp/deep; : >p/tmp/f; : >p/tmp/deep/g; echo h >$HOME/h").run().must_succeed();
        let before = scene.tree();
        for pattern in ["nope/**", "b", "P/**"] {
            scene.effigy(&["commit", "s", "-y", "--only", pattern]).run().must_exit(1).must_say(&[pattern]);
            scene.effigy(&["commit", "s", "-y", "--exclude", pattern]).run().must_exit(1).must_say(&[pattern]);
        }
        scene.tree().must_equal(&before, Times::OfAll, "after patterns that match nothing", "before");
        let chosen = |arguments: &[&str]| {
            let done = scene.effigy(&["summary", "s"]).args(arguments).run().must_succeed().text();
            let area = format!("A {}/", scene.area().display());
            done.lines().map(|line| line.replace(&area, "")).collect::<Vec<_>>()
        };
        assert_eq!(chosen(&["--only", "a.b"]), ["work/a.b"]);
        assert_eq!(chosen(&["--only", "a*"]), ["work/a", "work/a.b", "work/axb"]);
        assert_eq!(chosen(&["--only", "*"]).len(), 9, "a directory's pattern takes what is below it");
        assert_eq!(chosen(&["--only", "p"]), ["work/p", "work/p/tmp", "work/p/tmp/deep", "work/p/tmp/deep/g", "work/p/tmp/f"]);
        assert_eq!(chosen(&["--only", "**/g"]), ["work/p/tmp/deep/g"]);
        assert_eq!(chosen(&["--only", &format!("{}/*", scene.home().display())]), ["home/h"]);
        assert_eq!(chosen(&["--only", "a*", "--exclude", "a.b", "--exclude", "axb"]), ["work/a"]);
        scene.effigy(&["commit", "s", "-y", "--exclude", ".cfg/**", "--exclude", "p/**", "--exclude", "p"]).run().must_succeed();
        assert_eq!(scene.sh("ls -A . .cfg; cat ~/h").run().text(), ".:\n.cfg\na\na.b\naxb\n\n.cfg:\nmine\nh\n");
    }

    fn a_selection_brings_the_directories_it_needs(scene: &Scene) {
        scene.run_script("s", "mkdir -p p/q/r; : >p/q/r/f; : >p/q/g; : >h").run().must_succeed();
        scene.effigy(&["commit", "s", "-y", "--only", "p/q/r/f"]).run().must_succeed();
        assert_eq!(scene.sh("find . | sort").run().text(), ".\n./p\n./p/q\n./p/q/r\n./p/q/r/f\n");
        scene.effigy(&["commit", "s", "-y", "--only", "h"]).run().must_succeed();
        scene.commit("s");
        assert_eq!(scene.sh("find . | sort").run().text(), ".\n./h\n./p\n./p/q\n./p/q/g\n./p/q/r\n./p/q/r/f\n");
    }

    fn excluding_never_deletes(scene: &Scene) {
        scene.sh("mkdir -p d/sub; : >d/mine; : >d/sub/x; : >d/other").run().must_succeed();
        scene.run_script("s", "rm -r d; mkdir d; : >d/new").run().must_succeed();
        scene.effigy(&["commit", "s", "-y", "--exclude", "d/mine"]).run().must_succeed();
        assert_eq!(scene.sh("ls d").run().text(), "mine\nnew\n");
        scene.sh("mkdir e; : >e/keep; : >e/x").run().must_succeed();
        scene.run_script("t", "rm -r e").run().must_succeed();
        scene.effigy(&["commit", "t", "-y", "--exclude", "e/keep"]).run();
        assert!(scene.work().join("e/keep").exists(), "an excluded file was deleted");
    }

    fn undo_reports_what_changed_since(scene: &Scene) {
        scene.sh("echo v1 >f; echo w1 >g").run().must_succeed();
        scene.run_script("s", "echo v2 >f; echo w2 >g; : >new").run().must_succeed();
        scene.commit("s");
        scene.sh("echo v3 >f").run().must_succeed();
        let before = scene.tree();
        scene.effigy(&["undo", "s", "-y"]).run().must_exit(1).must_say(&["work/f"]);
        scene.tree().must_equal(&before, Times::OfAll, "after a refused undo", "before");
        scene.effigy(&["undo", "s", "-y", "--on-conflict", "skip"]).run().must_succeed();
        assert_eq!(scene.sh("cat f g; ls").run().text(), "v3\nw1\nf\ng\n");
    }

    fn undo_needs_something_to_take_back(scene: &Scene) {
        scene.run_script("s", ": >f").run().must_succeed();
        let done = scene.effigy(&["undo", "s", "-y"]).run();
        assert!(done.status == 1 && !done.stderr.is_empty(), "{done}");
        scene.commit("s");
        scene.undo("s");
        let again = scene.effigy(&["undo", "s", "-y"]).run();
        assert!(again.status == 1 && !again.stderr.is_empty(), "{again}");
        scene.effigy(&["recover", "s"]).run().must_succeed();
    }

    fn commit_twice_changes_nothing_more(scene: &Scene) {
        scene.sh("echo v1 >f").run().must_succeed();
        scene.run_script("s", "echo v2 >>f; : >new").run().must_succeed();
        scene.commit("s");
        let once = scene.tree();
        let done = scene.effigy(&["commit", "s", "-y"]).run();
        assert!(matches!(done.status, 0 | 1), "{done}");
        scene.tree().must_equal(&once, Times::OfAll, "committed twice", "committed once");
    }

    fn a_commit_that_keeps_the_session_copies(scene: &Scene) {
        scene.sh("echo v1 >f; ln f g; mkdir d; : >d/x").run().must_succeed();
        scene.run_script("s", "echo v2 >>f; rm -r d; mkdir -p n/m; truncate -s 2M n/m/holes; ln -s x n/link; echo h >h1; ln h1 h2").run().must_succeed();
        let layers = |scene: &Scene| crate::trees::Tree::read(&scene.store()).without(&["**/apply", "**/session.json", "**/lock", "**/work"]);
        let kept = layers(scene);
        scene.effigy(&["commit", "s", "-y", "--keep"]).run().must_succeed();
        assert_eq!(scene.sh("cat f g; ls; stat -c '%h %s' h1 n/m/holes").run().text(), "v1\nv2\nv1\nv2\nf\ng\nh1\nh2\nn\n2 1\n2097152\n".replace("2 1\n", "2 2\n1 "));
        layers(scene).must_equal(&kept, Times::Ignored, "the store after commit --keep", "before");
    }
}

#[test]
fn a_directory_that_has_become_closed_is_named() {
    if !is_root() {
        return skip("root is needed to close a directory to the user");
    }
    let scene = Scene::new(Who::User(NOBODY));
    scene.sh("mkdir d; echo v1 >d/f").run().must_succeed();
    scene
        .run_script("s", "echo v2 >d/f; : >d/new; : >other")
        .run()
        .must_succeed();
    let close = std::process::Command::new("sh")
        .args(["-c", "chown 0:0 d; chmod 755 d"])
        .current_dir(scene.work())
        .status()
        .expect("sh");
    assert!(close.success());
    let done = scene.effigy(&["commit", "s", "-y"]).run();
    assert!(matches!(done.status, 1 | 125), "{done}");
    assert_eq!(
        scene.sh("cat d/f; ls . d").run().text(),
        "v1\n.:\nd\n\nd:\nf\n",
        "half applied: {done}"
    );
    done.must_say(&["work/d"]);
}

/// What was done on a filesystem does not land in the directory below it.
#[test]
fn what_was_done_on_a_mount_that_is_gone_is_refused() {
    if !is_root() {
        return skip("only root can mount");
    }
    let scene =
        Scene::new(Who::Self_).with_mounts("mkdir area/work/m; mount -t tmpfs t area/work/m");
    let script = "echo m >m/only; echo e >elsewhere";
    scene.run_script("s", script).run().must_succeed();
    scene.sh("umount m").run().must_succeed();
    for command in ["commit", "replay"] {
        let refused = scene.effigy(&[command, "s", "-y"]).run().must_exit(1);
        refused.must_say(&["work/m", "mounted", "nothing was changed"]);
        assert_eq!(scene.sh("ls . m").run().text(), ".:\nm\n\nm:\n");
        scene
            .effigy(&[command, "s", "-y", "--exclude", "m"])
            .run()
            .must_succeed();
        assert_eq!(scene.sh("ls . m").run().text(), ".:\nelsewhere\nm\n\nm:\n");
        scene.undo("s");
    }
}
