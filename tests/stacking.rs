//! Sessions laid over others (`run --on`), and sessions that go on (`run --resume`).

use std::fs;

use crate::harness::{NOBODY, Scene, Who, as_everyone, finish, is_root, skip, wait_for_line};
use crate::trees::Times;

/// `effigy run -n -s SESSION --on LOWER -- sh -euc SCRIPT`.
fn run_on<'s>(
    scene: &'s Scene,
    session: &str,
    lower: &str,
    script: &str,
) -> crate::harness::Job<'s> {
    scene.effigy(&[
        "run", "-n", "-s", session, "--on", lower, "--", "sh", "-euc", script,
    ])
}

const SETUP: &str = "mkdir -p d/sub old; echo one >d/one; echo two >d/two; echo s >d/sub/s; echo o >old/o; echo keep >keep; echo gone >gone; ln -s keep link";
const BASE: &str = "echo new >new; rm gone d/two; echo more >>d/one; rm -r d/sub; mkdir d/sub; echo n >d/sub/n; mv old moved; \
                    chmod 700 d; ln -sf new link; mkdir e; echo e >e/e";

as_everyone! {
    fn the_upper_session_sees_what_the_lower_one_left(scene: &Scene) {
        scene.sh(SETUP).run().must_succeed();
        let before = scene.tree();
        scene.run_script("base", BASE).run().must_succeed();
        let seen = run_on(
            scene, "top", "base",
            "cat new d/one d/sub/n moved/o link; ls; ls d d/sub; stat -c %a d; test ! -e gone; test ! -e old; readlink link",
        );
        assert_eq!(
            seen.run().must_succeed().text(),
            "new\none\nmore\nn\no\nnew\nd\ne\nkeep\nlink\nmoved\nnew\nd:\none\nsub\n\nd/sub:\nn\n700\nnew\n"
        );
        scene.tree().must_equal(&before, Times::OfAll, "the tree after two runs", "before them");
        assert!(scene.summary("top").is_empty(), "looking is no effect: {:?}", scene.summary("top"));
    }

    fn the_upper_session_changes_nothing_of_the_lower_one(scene: &Scene) {
        scene.sh(SETUP).run().must_succeed();
        scene.run_script("base", BASE).run().must_succeed();
        let effects = scene.summary("base");
        run_on(scene, "top", "base", "echo x >>new; echo x >>d/one; rm -r d/sub moved; mv e f; echo again >gone; chmod 755 d").run().must_succeed();
        assert_eq!(scene.summary("base"), effects);
        assert_eq!(
            scene.summary("top"),
            [
                "m @/area/work/d",
                "M @/area/work/d/one",
                "D @/area/work/d/sub",
                "D @/area/work/d/sub/n",
                "D @/area/work/e",
                "A @/area/work/f",
                "R @/area/work/e/e -> @/area/work/f/e",
                "A @/area/work/gone",
                "D @/area/work/moved",
                "D @/area/work/moved/o",
                "M @/area/work/new",
            ]
        );
        let diff = scene.effigy(&["diff", "top", "new"]).run().must_succeed();
        assert!(diff.text().ends_with("@@ -1 +1,2 @@\n new\n+x\n"), "{diff}");
        assert_eq!(scene.effigy(&["cat", "top", "new"]).run().text(), "new\nx\n");
        assert_eq!(scene.effigy(&["cat", "top", "link"]).run().status, 1);
        assert_eq!(scene.effigy(&["cat", "top", "f/e"]).run().text(), "e\n");
        assert_eq!(scene.effigy(&["cat", "base", "new"]).run().text(), "new\n");
    }

    fn lower_sessions_are_committed_first_and_taken_back_last(scene: &Scene) {
        const MIDDLE: &str = "echo x >>new; rm -r d/sub; mv e f; echo again >gone; echo y >>f/e";
        const TOP: &str = "rm gone; echo z >>f/e; mkdir d/sub; echo 2 >d/sub/n; mv new newer";
        scene.sh(SETUP).run().must_succeed();
        let before = scene.tree();
        scene.run_script("base", BASE).run().must_succeed();
        run_on(scene, "middle", "base", MIDDLE).run().must_succeed();
        run_on(scene, "top", "middle", TOP).run().must_succeed();
        for command in ["commit", "replay"] {
            let refused = scene.effigy(&[command, "top", "-y"]).run().must_exit(1);
            refused.must_say(&["sessions base and middle", "first effigy commit base, then effigy commit middle"]);
            scene.tree().must_equal(&before, Times::OfFiles, "after a refused apply", "before");
            for session in ["base", "middle", "top"] {
                scene.effigy(&[command, session, "-y"]).run().must_succeed();
            }
            let found = scene.sh("cat d/one d/sub/n f/e keep newer moved/o; test ! -e gone; test ! -e e; test ! -e new").run();
            assert_eq!(found.must_succeed().text(), "one\nmore\n2\ne\ny\nz\nkeep\nnew\nx\no\n");
            let refused = scene.effigy(&["undo", "base", "-y"]).run().must_exit(1);
            refused.must_say(&["sessions top and middle", "first effigy undo top, then effigy undo middle"]);
            for session in ["top", "middle", "base"] {
                scene.undo(session);
            }
            scene.tree().must_equal(&before, Times::OfFiles, "the tree after undo", "before the run");
        }
    }

    fn a_stack_applied_is_the_same_commands_run_bare(scene: &Scene) {
        const TOP: &str = "echo x >>new; echo x >>d/one; rm -r d/sub moved; mv e f; echo again >gone; ln new new2; ln -sf d link";
        scene.sh(SETUP).run().must_succeed();
        scene.run_script("base", BASE).run().must_succeed();
        run_on(scene, "top", "base", TOP).run().must_succeed();
        scene.commit("base");
        scene.commit("top");
        let committed = scene.tree();
        scene.sh("cd ..; rm -r work; mkdir work").run().must_succeed();
        scene.sh(SETUP).run().must_succeed();
        scene.sh(BASE).run().must_succeed();
        scene.sh(TOP).run().must_succeed();
        committed.must_equal(&scene.tree(), Times::Ignored, "committed", "run bare");
    }

    fn what_others_have_changed_is_a_conflict_of_the_upper_session_too(scene: &Scene) {
        scene.sh("echo v1 >f; echo v1 >g").run().must_succeed();
        scene.run_script("base", "echo v2 >f").run().must_succeed();
        run_on(scene, "top", "base", "echo v3 >f; echo v3 >g").run().must_succeed();
        scene.commit("base");
        scene.sh("echo theirs >f; echo theirs >g").run().must_succeed();
        scene.effigy(&["commit", "top", "-y"]).run().must_exit(1).must_say(&["work/f", "work/g"]);
        assert_eq!(scene.sh("cat f g").run().text(), "theirs\ntheirs\n");
    }

    fn a_lower_session_that_is_only_partly_applied_is_not_enough(scene: &Scene) {
        scene.run_script("base", "echo a >a; echo b >b").run().must_succeed();
        run_on(scene, "top", "base", "echo a2 >>a; echo b2 >>b").run().must_succeed();
        scene.commit_only("base", "a");
        scene.effigy(&["commit", "top", "-y"]).run().must_exit(1).must_say(&["effigy commit base"]);
        assert_eq!(scene.summary("top"), ["M @/area/work/a", "M @/area/work/b"]);
        scene.commit("base");
        scene.commit("top");
        assert_eq!(scene.sh("cat a b").run().text(), "a\na2\nb\nb2\n");
    }

    fn a_lower_session_without_effects_needs_no_commit(scene: &Scene) {
        scene.sh("mkdir -p d/e; echo f >d/e/f").run().must_succeed();
        scene.run_script("none", "chmod 700 d; chmod 755 d").run().must_succeed();
        run_on(scene, "middle", "none", "rm -r d; echo d >d").run().must_succeed();
        run_on(scene, "top", "middle", "echo e >>d").run().must_succeed();
        scene.commit("middle");
        scene.commit("top");
        assert_eq!(scene.sh("cat d").run().text(), "d\ne\n");
    }

    fn a_session_that_others_rest_on_is_not_discarded(scene: &Scene) {
        scene.run_script("base", "echo a >a").run().must_succeed();
        run_on(scene, "top", "base", "echo b >>a").run().must_succeed();
        let refused = scene.effigy(&["discard", "base"]).run().must_exit(1);
        refused.must_say(&["session top rests on it", "effigy discard top"]);
        assert_eq!(scene.summary("top"), ["M @/area/work/a"]);
        scene.effigy(&["discard", "base", "top"]).run().must_succeed();
        scene.run_script("base", "echo a >a").run().must_succeed();
        run_on(scene, "top", "base", "echo b >>a").run().must_succeed();
        scene.effigy(&["discard", "--all", "-y"]).run().must_succeed();
        assert_eq!(scene.effigy(&["ls", "--json"]).run().text(), "");
    }

    fn what_cannot_be_run_on_is_refused_by_name(scene: &Scene) {
        scene.run_script("base", "echo a >a").run().must_succeed();
        run_on(scene, "top", "base", "echo b >>a").run().must_succeed();
        run_on(scene, "x", "nothing", "true").run().must_exit(125).must_say(&["nothing"]);
        run_on(scene, "x", "base,top", "true").run().must_exit(125).must_say(&["session top was itself run on session base", "before it"]);
        scene.commit("base");
        run_on(scene, "x", "base", "true").run().must_exit(125).must_say(&["base", "is applied", "effigy undo base"]);
        assert_eq!(run_on(scene, "y", "top", "cat a").run().must_succeed().text(), "a\nb\n");
        scene.effigy(&["run", "-y", "--on", "top", "--", "true"]).run().must_exit(125);
    }

    fn several_sessions_lie_in_the_order_of_their_names(scene: &Scene) {
        scene.sh("echo real >f; echo real >g; mkdir d; echo real >d/r").run().must_succeed();
        scene.run_script("one", "echo one >f; echo one >d/one; rm g").run().must_succeed();
        scene.run_script("two", "echo two >f; echo two >d/two; echo two >g; rm d/r").run().must_succeed();
        let look = "cat f; ls d; test ! -e g || cat g";
        assert_eq!(run_on(scene, "a", "one,two", look).run().must_succeed().text(), "one\none\ntwo\n");
        assert_eq!(run_on(scene, "b", "two,one", look).run().must_succeed().text(), "two\none\ntwo\ntwo\n");
    }

    fn files_as_of_an_event_of_the_upper_session(scene: &Scene) {
        scene.sh("echo real >f; echo real >g").run().must_succeed();
        scene.run_script("base", "echo base >f; echo base >new").run().must_succeed();
        run_on(scene, "top", "base", "true; echo top >f; rm new").run().must_succeed();
        let cat = |event: &str, name: &str| scene.effigy(&["cat", event, name]).run().must_succeed().text();
        assert_eq!((cat("top@1", "f"), cat("top@1", "new"), cat("top@1", "g")), ("base\n".into(), "base\n".into(), "real\n".into()));
        assert_eq!((cat("top", "f"), cat("base@1", "f")), ("top\n".into(), "real\n".into()));
    }

    fn what_was_taken_back_can_be_applied_again(scene: &Scene) {
        // Names of one file: what is done to one changes the times of all.
        scene.sh("mkdir -p b c; echo 3 >b/c; ln b/c c/e").run().must_succeed();
        let before = scene.tree();
        scene.run_script("base", "rm -r c").run().must_succeed();
        run_on(scene, "top", "base", "rm b/c").run().must_succeed();
        for verb in ["commit", "replay", "commit"] {
            for session in ["base", "top"] {
                scene.effigy(&[verb, session, "-y"]).run().must_succeed();
            }
            assert_eq!(scene.sh("ls . b").run().text(), ".:\nb\n\nb:\n");
            for session in ["top", "base"] {
                scene.undo(session);
            }
            scene.tree().must_equal(&before, Times::OfFiles, "the tree after undo", "before");
        }
    }

    fn a_hidden_path_stays_hidden_above(scene: &Scene) {
        scene.sh("echo secret >secret; echo other >other").run().must_succeed();
        let run = ["run", "-n", "-s", "base", "--hide", "secret", "--hide", "other", "--", "sh", "-euc", "echo made >other"];
        scene.effigy(&run).run().must_succeed();
        assert_eq!(run_on(scene, "top", "base", "cat other; ls").run().must_succeed().text(), "made\nother\n");
        assert!(scene.summary("top").is_empty(), "{:?}", scene.summary("top"));
    }

    fn files_with_several_names_of_the_lower_session(scene: &Scene) {
        scene.run_script("base", "echo a >a; ln a b; mkdir d; ln a d/c").run().must_succeed();
        run_on(scene, "top", "base", "test $(stat -c %h a) = 3; rm b; echo x >>d/c").run().must_succeed();
        scene.commit("base");
        scene.commit("top");
        assert_eq!(scene.sh("cat a d/c; test ! -e b; test a -ef d/c").run().must_succeed().text(), "a\nx\na\nx\n");
    }

    fn covers_need_not_be_the_same(scene: &Scene) {
        // Where a command works decides, for an ordinary user, which directories of others get covers of their own.
        let home = scene.home();
        scene.sh("mkdir -p ../home/sub").run().must_succeed();
        scene.run_script("base", "echo work >f; echo home >../home/sub/f").run().must_succeed();
        let seen = scene.effigy(&["run", "-n", "-s", "top", "--on", "base", "--", "sh", "-euc", "cat f ../../work/f; echo x >>f; echo x >>../../work/f"]);
        assert_eq!(seen.dir(home.join("sub")).run().must_succeed().text(), "home\nwork\n");
        scene.commit("base");
        scene.commit("top");
        assert_eq!(scene.sh("cat f ../home/sub/f").run().text(), "work\nx\nhome\nx\n");
    }

    fn a_lower_session_is_not_changed_while_the_upper_one_runs(scene: &Scene) {
        scene.run_script("base", "echo a >a").run().must_succeed();
        let mut child = run_on(scene, "top", "base", "echo b >>a; echo ready; read x; cat a").piped().start();
        wait_for_line(&mut child, "ready");
        for command in [&["commit", "base", "-y"][..], &["run", "-n", "--resume", "-s", "base", "--", "true"]] {
            scene.effigy(command).run().must_say(&["session base", "in use"]);
        }
        assert_eq!(run_on(scene, "beside", "base", "cat a").run().must_succeed().text(), "a\n");
        drop(child.stdin.take());
        finish(child, String::new());
        assert_eq!(scene.summary("top"), ["M @/area/work/a"]);
        scene.commit("base");
    }

    fn ls_shows_what_a_session_rests_on(scene: &Scene) {
        scene.run_script("base", "echo a >a").run().must_succeed();
        run_on(scene, "top", "base", "true").run().must_succeed();
        let listed = scene.effigy(&["ls"]).run().must_succeed();
        assert!(listed.text().lines().any(|line| line.contains("top") && line.contains("recorded on base")), "{listed}");
        let json = scene.effigy(&["ls", "--json"]).run().must_succeed().text();
        let line = |name: &str| json.lines().find(|line| line.contains(&format!("\"name\":\"{name}\""))).expect("the session");
        let id = line("base").get(7..16).expect("an id");
        assert!(line("top").contains(&format!("\"on\":[\"{id}\"]")), "{json}");
    }
}

/// Runs a script as the tests' own user among the scene's mounts.
fn as_root(scene: &mut Scene, script: &str) {
    let who = std::mem::replace(&mut scene.who, Who::Self_);
    scene.sh(script).run().must_succeed();
    scene.who = who;
}

/// A mount that came or went between two sessions of a stack.
#[test]
fn mounts_that_have_changed_are_refused_with_the_reason() {
    if !is_root() {
        return skip("only root can mount");
    }
    let scene =
        Scene::new(Who::Self_).with_mounts("mkdir area/work/m; mount -t tmpfs t area/work/m");
    scene
        .run_script("base", "echo m >m/f; echo w >w")
        .run()
        .must_succeed();
    assert_eq!(
        run_on(&scene, "same", "base", "cat m/f")
            .run()
            .must_succeed()
            .text(),
        "m\n"
    );
    scene.sh("umount m").run().must_succeed();
    run_on(&scene, "gone", "base", "true")
        .run()
        .must_exit(125)
        .must_say(&["session base", "work/m", "not mounted now"]);
    let scene = Scene::new(Who::Self_).with_mounts("mkdir area/work/m");
    scene
        .run_script("base", "echo m >m/f; echo w >w")
        .run()
        .must_succeed();
    scene.run_script("other", "echo w >w").run().must_succeed();
    scene
        .sh("mount -t tmpfs t m; echo t >m/t")
        .run()
        .must_succeed();
    run_on(&scene, "new", "base", "true")
        .run()
        .must_exit(125)
        .must_say(&["session base", "work/m", "mounted there since"]);
    assert_eq!(
        run_on(&scene, "fine", "other", "cat w; ls m; echo x >m/x")
            .run()
            .must_succeed()
            .text(),
        "w\nt\n"
    );
    assert!(
        fs::read_dir(scene.work().join("m")).is_ok_and(|mut entries| entries.next().is_none()),
        "the mount is not ours"
    );
}

/// For an ordinary user a mount decides which directories have covers, and which of them are staged.
#[test]
fn a_mount_beside_what_was_written_is_no_hindrance_to_an_ordinary_user() {
    if !is_root() {
        return skip("only root can mount");
    }
    let (mount, umount) = ("mount -t tmpfs -o mode=1777 t m", "umount m");
    for (first, second) in [(mount, "true"), (mount, umount), ("true", mount)] {
        let mut scene = Scene::new(Who::User(NOBODY))
            .with_mounts("mkdir -m 777 area/work/m area/work/e; chown 65534:65534 area/work/e");
        scene
            .sh("mkdir d; echo d >d/f; echo real >r; echo gone >gone; echo gone >e/gone")
            .run()
            .must_succeed();
        as_root(&mut scene, first);
        let base = "echo w >w; echo x >>d/f; echo x >>r; rm gone; mkdir new; echo n >new/n; rm e/gone; echo e >e/e";
        scene.run_script("base", base).run().must_succeed();
        as_root(&mut scene, second);
        let top = run_on(
            &scene,
            "top",
            "base",
            "cat w d/f r new/n e/e; test ! -e gone; test ! -e e/gone; ls; echo y >>w; echo y >>d/f; echo y >>r; rm new/n; echo y >>e/e",
        );
        assert_eq!(
            top.run().must_succeed().text(),
            "w\nd\nx\nreal\nx\nn\ne\nd\ne\nm\nnew\nr\nw\n",
            "{first}, {second}"
        );
        assert_eq!(
            scene.summary("top"),
            [
                "M @/area/work/d/f",
                "M @/area/work/e/e",
                "D @/area/work/new/n",
                "M @/area/work/r",
                "M @/area/work/w"
            ],
            "{first}, {second}"
        );
        scene.commit("base");
        scene.commit("top");
        let found = scene.sh("cat w d/f r e/e; ls new").run().must_succeed();
        assert_eq!(
            found.text(),
            "w\ny\nd\nx\ny\nreal\nx\ny\ne\ny\n",
            "{first}, {second}"
        );
    }
}
