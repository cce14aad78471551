//! Exit statuses, and errors that name the path and the remedy.

use crate::harness::{Scene, as_everyone};

as_everyone! {
    fn the_commands_own_status_is_passed_on(scene: &Scene) {
        for status in [0, 1, 2, 37, 125, 126, 127, 130, 255] {
            scene.effigy(&["run", "-n", "--", "sh", "-c", "exit $0", &status.to_string()]).run().must_exit(status);
        }
    }

    fn a_signal_that_kills_the_command_is_128_and_its_number(scene: &Scene) {
        for (signal, number) in [("TERM", 15), ("KILL", 9), ("SEGV", 11), ("INT", 2), ("HUP", 1), ("ABRT", 6), ("PIPE", 13), ("USR1", 10)] {
            scene.effigy(&["run", "-n", "--", "sh", "-c", "ulimit -c 0; kill -$0 $$; sleep 9", signal]).run().must_exit(128 + number);
        }
    }

    fn a_command_that_is_not_there(scene: &Scene) {
        for command in ["/nonexistent/program", "no-such-program", "./no-such-file"] {
            let done = scene.effigy(&["run", "-n", "--", command]).run().must_exit(127);
            assert!(done.stderr.contains(command), "{done}");
        }
        assert_eq!(scene.effigy(&["ls", "--json"]).run().must_succeed().text(), "", "a session without a run is not kept");
    }

    fn a_command_that_cannot_be_executed(scene: &Scene) {
        scene.sh(": >plain; echo 'echo hi' >script; chmod 755 script; mkdir dir; printf '#!/nonexistent/interpreter\\n' >lost; chmod 755 lost").run().must_succeed();
        for command in ["./plain", "./dir", "./script"] {
            scene.effigy(&["run", "-n", "--", command]).run().must_exit(126).must_say(&[command]);
        }
        scene.effigy(&["run", "-n", "--", "./lost"]).run().must_exit(127).must_say(&["./lost"]);
    }

    fn yes_commits_only_after_success(scene: &Scene) {
        scene.effigy(&["run", "-y", "-s", "good", "--", "sh", "-c", "echo x >good"]).run().must_succeed();
        assert!(scene.work().join("good").exists());
        scene.effigy(&["run", "-y", "-s", "bad", "--", "sh", "-c", "echo x >bad; exit 3"]).run().must_exit(3);
        assert!(!scene.work().join("bad").exists());
        scene.commit("bad");
        assert!(scene.work().join("bad").exists());
    }

    fn a_failed_commit_under_yes_is_effigys_failure(scene: &Scene) {
        scene.sh("echo v1 >f").run().must_succeed();
        // The real file changes while the command runs: the command waits for that.
        let job = scene.effigy(&["run", "-y", "-s", "s", "--", "sh", "-c", "echo mine >>f; echo changed; read answer || :"]).piped();
        let mut child = job.start();
        crate::harness::wait_for_line(&mut child, "changed");
        scene.sh("echo theirs >f").run().must_succeed();
        drop(child.stdin.take());
        crate::harness::finish(child, "run -y".to_owned()).must_exit(125).must_say(&["/area/work/f"]);
        assert_eq!(scene.sh("cat f").run().text(), "theirs\n");
        assert_eq!(scene.summary("s"), ["M @/area/work/f"], "the session is kept");
    }

    fn usage_errors(scene: &Scene) {
        scene.effigy(&["run"]).run().must_exit(125);
        scene.effigy(&["run", "--no-such-option", "--", "true"]).run().must_exit(125);
        scene.effigy(&["run", "-y", "-n", "--", "true"]).run().must_exit(125);
        scene.effigy(&["summary", "--no-such-option"]).run().must_exit(2);
        scene.effigy(&["commit", "--on-conflict", "whatever"]).run().must_exit(2);
        scene.effigy(&["no-such-command"]).run().must_exit(2);
        scene.effigy(&["--help"]).run().must_succeed();
        scene.effigy(&["run", "--help"]).run().must_succeed();
        scene.effigy(&["--version"]).run().must_succeed();
    }

    fn a_session_that_is_not_there(scene: &Scene) {
        let name = "nothing-of-that-name";
        for arguments in [&["summary", name][..], &["diff", name], &["cat", name, "f"], &["commit", name, "-y"], &["undo", name, "-y"], &["discard", name]] {
            let done = scene.effigy(arguments).run();
            assert!(done.status != 0 && done.status != 101, "{done}");
            done.must_say(&["nothing-of-that-name"]);
        }
        let none = scene.effigy(&["summary"]).run();
        assert!(none.status != 0 && none.stderr.contains("session"), "{none}");
        scene.run_script("alpha", ": >f").run().must_succeed();
        scene.effigy(&["summary", "alpah"]).run().must_say(&["alpah", "alpha"]);
    }

    fn a_name_that_is_taken(scene: &Scene) {
        scene.run_script("twice", ": >f").run().must_succeed();
        let done = scene.run_script("twice", "echo ran; : >g").run().must_exit(125).must_say(&["twice"]);
        assert_eq!(done.text(), "", "the command ran all the same");
        assert_eq!(scene.summary("twice"), ["A @/area/work/f"]);
    }

    fn nothing_found_is_status_one(scene: &Scene) {
        scene.run_script("s", ":").run().must_succeed();
        scene.effigy(&["summary", "s"]).run().must_exit(1);
        scene.run_script("t", ": >f").run().must_succeed();
        scene.effigy(&["summary", "t"]).run().must_succeed();
        scene.effigy(&["summary", "t", "--only", "nothing/**"]).run().must_exit(1).must_say(&["nothing/**"]);
    }

    fn apply_commands_refuse_without_an_answer(scene: &Scene) {
        scene.run_script("s", ": >f").run().must_succeed();
        scene.effigy(&["commit", "s"]).run().must_exit(1).must_say(&["-y"]);
        assert!(!scene.work().join("f").exists());
        scene.commit("s");
        scene.effigy(&["undo", "s"]).run().must_exit(1).must_say(&["-y"]);
        assert!(scene.work().join("f").exists());
    }

    fn quiet_is_quiet(scene: &Scene) {
        let done = scene.effigy(&["run", "-q", "-n", "--", "sh", "-c", ": >f; sleep 77 & echo out; echo err >&2; exit 4"]).run().must_exit(4);
        assert_eq!((done.text().as_str(), done.stderr.as_str()), ("out\n", "err\n"));
    }
}
