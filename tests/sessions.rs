//! Sessions as things: listed, found, in use, thrown away.

use crate::harness::{Scene, as_everyone, finish, wait_for_line};

as_everyone! {
    fn sessions_are_listed_and_found(scene: &Scene) {
        for name in ["alpha", "beta"] {
            scene.run_script(name, &format!(": >{name}")).run().must_succeed();
        }
        scene.effigy(&["run", "-n", "--", "sh", "-c", ": >third; exit 3"]).run().must_exit(3);
        let listed = scene.effigy(&["ls", "--json"]).run().must_succeed().text();
        assert_eq!(listed.lines().count(), 3, "{listed}");
        let shown = scene.effigy(&["ls"]).run().must_succeed().text();
        for word in ["alpha", "beta", "recorded", "third"] {
            assert!(shown.contains(word), "{word} is not in {shown}");
        }
        let id = listed.lines().find(|line| line.contains("\"alpha\"")).and_then(|line| line.split("\"id\":\"").nth(1)).and_then(|rest| rest.split('"').next());
        let id = id.expect("an id in the listing").to_owned();
        assert_eq!(scene.summary(&id), ["A @/area/work/alpha"], "found by its id");
        assert_eq!(scene.summary("beta"), ["A @/area/work/beta"], "found by its name");
        let newest = scene.effigy(&["summary"]).run().must_succeed().text();
        assert!(newest.contains("/third"), "{newest}");
    }

    fn a_session_in_use_is_left_alone(scene: &Scene) {
        let mut child = scene.effigy(&["run", "-n", "-s", "busy", "--", "sh", "-c", ": >f; echo ready; read end || :"]).piped().start();
        wait_for_line(&mut child, "ready");
        for command in [&["commit", "busy", "-y"][..], &["discard", "busy"], &["undo", "busy", "-y"], &["recover", "busy"]] {
            let done = scene.effigy(command).run();
            assert!(done.status != 0 && done.status != 101, "{done}");
            done.must_say(&["busy"]);
        }
        scene.effigy(&["run", "-n", "-s", "busy", "--", "true"]).run().must_exit(125).must_say(&["busy"]);
        scene.effigy(&["discard", "--all", "-y"]).run();
        let listed = scene.effigy(&["ls", "--json"]).run().must_succeed().text();
        assert!(listed.contains("\"recording\""), "{listed}");
        assert!(!scene.work().join("f").exists());
        drop(child.stdin.take());
        finish(child, "run".to_owned()).must_succeed();
        assert_eq!(scene.summary("busy"), ["A @/area/work/f"], "the run was disturbed");
        scene.commit("busy");
    }

    fn a_session_is_free_once_its_command_has_ended(scene: &Scene) {
        for round in 0..8 {
            let name = format!("s{round}");
            scene.effigy(&["run", "-q", "-n", "-s", &name, "--", "sh", "-c", "sleep 5 & echo x >f"]).run().must_succeed();
            scene.effigy(&["discard", &name]).run().must_succeed();
        }
    }

    fn two_runs_at_once_do_not_see_each_other(scene: &Scene) {
        scene.sh("echo v1 >f").run().must_succeed();
        let script = |name: &str| format!("echo {name} >f; echo {name} >{name}; echo ready; read end || :; cat f; ls");
        let mut children: Vec<_> = ["one", "two"]
            .iter()
            .map(|name| scene.effigy(&["run", "-n", "-s", name, "--", "sh", "-c", &script(name)]).piped().start())
            .collect();
        for child in &mut children {
            wait_for_line(child, "ready");
        }
        for (mut child, name) in children.into_iter().zip(["one", "two"]) {
            drop(child.stdin.take());
            assert_eq!(finish(child, name.to_owned()).must_succeed().text(), format!("{name}\nf\n{name}\n"));
        }
        scene.commit("one");
        scene.effigy(&["commit", "two", "-y"]).run().must_exit(1).must_say(&["/area/work/f"]);
        scene.effigy(&["commit", "two", "-y", "--on-conflict", "skip"]).run().must_succeed();
        assert_eq!(scene.sh("cat f one two").run().text(), "one\none\ntwo\n");
    }

    fn discard_takes_closed_directories_too(scene: &Scene) {
        scene.run_script("s", "mkdir -p q/x/y r; : >q/x/y/f; chmod 0 q/x/y; chmod 0 q/x; chmod 0 q; chmod 500 r; umask 777; mkdir w").run().must_succeed();
        scene.effigy(&["discard", "s"]).run().must_succeed();
        assert_eq!(scene.effigy(&["ls", "--json"]).run().must_succeed().text(), "");
        let left = scene.bare(&["find"]).arg(scene.store()).args(&["-mindepth", "2", "-not", "-name", "lock"]).run().must_succeed().text();
        assert_eq!(left, "", "something is left in the store");
    }

    fn discard_all_and_several(scene: &Scene) {
        for name in ["a", "b", "c"] {
            scene.run_script(name, ": >f").run().must_succeed();
        }
        scene.effigy(&["discard", "a", "b"]).run().must_succeed();
        assert_eq!(scene.effigy(&["ls", "--json"]).run().text().lines().count(), 1);
        scene.effigy(&["discard", "--older-than", "1d", "-y"]).run();
        assert_eq!(scene.effigy(&["ls", "--json"]).run().text().lines().count(), 1, "it is younger than a day");
        scene.effigy(&["discard", "--all", "-y"]).run().must_succeed();
        assert_eq!(scene.effigy(&["ls", "--json"]).run().must_succeed().text(), "");
    }

    fn limits_of_the_store(scene: &Scene) {
        for name in ["a", "b", "c"] {
            scene.run_script(name, "head -c 100000 /dev/zero >f").run().must_succeed();
        }
        let left = || {
            let listed = scene.effigy(&["ls", "--json"]).run().must_succeed().text();
            ["a", "b", "c"].into_iter().filter(|name| listed.contains(&format!("\"name\":\"{name}\""))).collect::<String>()
        };
        assert_eq!(left(), "abc");
        scene.effigy(&["gc", "--max-age", "1h"]).run().must_succeed();
        assert_eq!(left(), "abc", "they are younger");
        scene.effigy(&["gc", "--max-count", "2"]).run().must_succeed();
        assert_eq!(left(), "bc", "the oldest goes first");
        scene.effigy(&["gc", "--max-size", "250K"]).run().must_succeed();
        assert_eq!(left(), "c");
    }

    fn what_was_discarded_is_gone_for_good_and_the_real_tree_stays(scene: &Scene) {
        scene.sh("echo v1 >f").run().must_succeed();
        scene.run_script("s", "echo v2 >f; : >g").run().must_succeed();
        scene.commit("s");
        scene.effigy(&["discard", "s"]).run().must_succeed();
        assert_eq!(scene.sh("cat f; ls").run().text(), "v2\nf\ng\n");
    }

    fn survivors_are_killed_and_counted(scene: &Scene) {
        let script = "sleep 1000 & setsid sh -c 'sleep 1001; echo late >late' & (setsid sleep 1002 </dev/null >/dev/null 2>&1 &); trap '' TERM HUP; echo now >now";
        let done = scene.run_script("s", script).run().must_succeed();
        assert!(done.stderr.contains("killed") && done.stderr.contains('4') || done.stderr.contains('3'), "{done}");
        assert_eq!(scene.summary("s"), ["A @/area/work/now"]);
        for sleeper in ["1000", "1001", "1002"] {
            assert!(!lives(scene, &["sleep", sleeper]), "sleep {sleeper} lives on");
        }
    }

    fn files_of_a_session_can_be_read(scene: &Scene) {
        scene.sh("echo v1 >f; echo same >g").run().must_succeed();
        scene.run_script("s", "echo v2 >f; echo new >n").run().must_succeed();
        assert_eq!(scene.effigy(&["cat", "s", "f"]).run().must_succeed().text(), "v2\n");
        assert_eq!(scene.effigy(&["cat", "s", "n"]).run().must_succeed().text(), "new\n");
        let diff = scene.effigy(&["diff", "s"]).run().must_succeed().text();
        for line in ["-v1", "+v2", "+new"] {
            assert!(diff.lines().any(|have| have == line), "{line} is not in {diff}");
        }
        let one = scene.effigy(&["diff", "s", "n"]).run().must_succeed().text();
        assert!(one.contains("+new") && !one.contains("+v2"), "{one}");
    }

    fn binary_files_are_told_by_size(scene: &Scene) {
        scene.sh("printf 'a\\0b' >bin").run().must_succeed();
        scene.run_script("s", "printf 'a\\0bcd\\0' >bin").run().must_succeed();
        let diff = scene.effigy(&["diff", "s"]).run().must_succeed();
        assert!(diff.stdout.iter().all(|&byte| byte != 0), "{diff}");
        assert!(diff.text().contains("inary") && diff.text().contains("bin"), "{diff}");
    }

    fn names_come_out_exact_with_nul_and_escaped_without(scene: &Scene) {
        scene.run_script("s", ": >\"$(printf 'a\\nb')\"; : >\"$(printf '\\377')\"; : >\"$(printf '\\033[31m')\"").run().must_succeed();
        let exact = scene.effigy(&["summary", "s", "-z"]).run().must_succeed().stdout;
        let dir = scene.work().display().to_string();
        let mut expected = Vec::new();
        for name in [&b"\x1b[31m"[..], b"a\nb", b"\xff"] {
            expected.extend([b"A ", dir.as_bytes(), b"/", name, b"\0"].concat());
        }
        assert_eq!(exact.escape_ascii().to_string(), expected.escape_ascii().to_string());
        let shown = scene.effigy(&["summary", "s"]).run().must_succeed();
        assert_eq!(shown.stdout.iter().filter(|&&byte| byte == b'\n').count(), 3, "{shown}");
        assert!(!shown.stdout.contains(&0x1b), "{shown}");
    }
}

/// Whether a process with this command line runs.
pub(crate) fn lives(scene: &Scene, argv: &[&str]) -> bool {
    let wanted: Vec<u8> = argv
        .iter()
        .flat_map(|word| [word.as_bytes(), b"\0"].concat())
        .collect();
    let processes = std::fs::read_dir("/proc").expect("/proc").flatten();
    let mut same = processes.filter(|entry| {
        std::fs::read(entry.path().join("cmdline")).is_ok_and(|line| line == wanted)
    });
    // Other tests may run the same command: ours has the scene's home.
    same.any(|entry| {
        let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        let home = format!("HOME={}", scene.home().display());
        environment
            .split(|&byte| byte == 0)
            .any(|variable| variable == home.as_bytes())
    })
}
