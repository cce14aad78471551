//! Programs of many processes and threads, other runtimes, and debuggers run unharmed, and nothing of what they do is lost.

use super::scripts::Scripts;
use crate::harness::{Scene, as_everyone, has, skip};
use crate::trees::Times;

/// How many events of an operation a session has.
fn count(scene: &Scene, session: &str, op: &str) -> usize {
    let log = scene
        .effigy(&["log", session, "--json", "--op", op])
        .run()
        .must_succeed();
    log.text().lines().count()
}

as_everyone! {
    fn three_hundred_pipelines(scene: &Scene) {
        if !has(scene, "dash") {
            return;
        }
        let script = "i=0; while [ $i -lt 300 ]; do echo line $i | tr a-z A-Z | { cat >>out; }; i=$((i+1)); done; wc -l <out";
        let done = scene.effigy(&["run", "-q", "-n", "-s", "s", "--", "dash", "-euc", script]).run().must_succeed();
        assert_eq!(done.text().trim(), "300");
        scene.commit("s");
        let expected: String = (0..300).map(|n| format!("LINE {n}\n")).collect();
        assert_eq!(std::fs::read_to_string(scene.work().join("out")).expect("out"), expected);
    }

    fn two_thousand_spawns_at_once(scene: &Scene) {
        let script = "mkdir d; i=0; while [ $i -lt 2000 ]; do sh -c \": >d/f$i\" & i=$((i+1)); done; wait; ls d | wc -l";
        let done = scene.run_script("s", script).run().must_succeed();
        assert_eq!(done.text().trim(), "2000");
        scene.commit("s");
        assert_eq!(scene.sh("ls d | wc -l").run().text().trim(), "2000");
        assert!(count(scene, "s", "open") >= 2000);
    }

    fn threads_that_write_and_rename(scene: &Scene) {
        if !has(scene, "python3") {
            return;
        }
        let scripts = Scripts::new();
        scene.effigy(&["run", "-q", "-n", "-s", "s", "--", "python3"]).arg(scripts.path("threads.py")).run().must_succeed();
        six_thousand_four_hundred(scene);
    }

    fn goroutines_that_write_and_rename(scene: &Scene) {
        if !has(scene, "go") {
            return;
        }
        let scripts = Scripts::new();
        let program = scene.home().join("threads");
        scene.bare(&["go", "build", "-o"]).arg(&program).arg(scripts.path("threads.go")).env("GOFLAGS", "-mod=mod").run().must_succeed();
        scene.effigy(&["run", "-q", "-n", "-s", "s", "--"]).arg(&program).run().must_succeed();
        six_thousand_four_hundred(scene);
    }

    fn multiprocessing_of_python(scene: &Scene) {
        if !has(scene, "python3") {
            return;
        }
        let scripts = Scripts::new();
        let done = scene.effigy(&["run", "-q", "-n", "-s", "s", "--", "python3"]).arg(scripts.path("pool.py")).run().must_succeed();
        assert_eq!(done.text().trim(), "400");
        assert_eq!(count(scene, "s", "rename"), 1200);
    }

    fn node(scene: &Scene) {
        if !has(scene, "node") {
            return;
        }
        let scripts = Scripts::new();
        let script = format!("node '{}'", scripts.path("files.mjs").display());
        let bare = scene.sh(&script).run().must_succeed().text();
        scene.differential(":", &script, Times::Ignored, &[]);
        let done = scene.run_script("s", &format!("rm -rf ../work/*; {script}")).run().must_succeed();
        assert_eq!(done.text(), bare);
    }

    fn java(scene: &Scene) {
        if !has(scene, "java") {
            return;
        }
        scene.effigy(&["run", "-q", "-n", "--", "java", "-version"]).run().must_succeed();
        if scene.bare(&["java", "--list-modules"]).run().stdout.windows(12).all(|words| words != b"jdk.compiler") {
            return skip("this Java has no compiler");
        }
        let scripts = Scripts::new();
        let done = scene.effigy(&["run", "-q", "-n", "-s", "s", "--", "java"]).arg(scripts.path("Files.java")).run().must_succeed();
        assert_eq!(done.text().trim(), "400");
        scene.commit("s");
        assert_eq!(scene.sh("cat j399; ls | wc -l").run().text(), "399400\n");
    }

    fn gdb_inside(scene: &Scene) {
        if !has(scene, "gdb") {
            return;
        }
        let done = scene
            .effigy(&["run", "-n", "-s", "s", "--", "gdb", "-q", "-nx", "-batch", "-ex", "set startup-with-shell off", "-ex", "catch syscall mkdir", "-ex", "run"])
            .args(&["-ex", "continue", "-ex", "delete", "-ex", "continue", "--args", "mkdir", "made", "too"])
            .run();
        let text = done.text();
        assert!(text.contains("call to syscall mkdir") && text.contains("returned from syscall mkdir"), "{done}");
        assert!(text.contains("exited normally"), "{done}");
        // Of root's session gdb's own compiled modules may be part.
        let made: Vec<String> = scene.summary("s").into_iter().filter(|line| line.contains('@')).collect();
        assert_eq!(made, ["A @/area/work/made", "A @/area/work/too"]);
    }

    fn strace_inside(scene: &Scene) {
        if !has(scene, "strace") {
            return;
        }
        let script = "strace -f -qq -o trace -e trace=mkdir,rmdir,rename,openat sh -c 'mkdir d; rmdir d; rmdir d 2>/dev/null; : >f; mv f g'; cat trace";
        let done = scene.run_script("s", script).run().must_succeed();
        let text = done.text();
        let squeezed: Vec<String> = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        for line in ["mkdir(\"d\", 0777) = 0", "rmdir(\"d\") = 0", "rmdir(\"d\") = -1 ENOENT (No such file or directory)", "openat(AT_FDCWD, \"f\", O_WRONLY|O_CREAT|O_TRUNC, 0666) = 3"] {
            assert!(squeezed.iter().any(|seen| seen.contains(line)), "no {line:?} in {text}");
        }
        assert_eq!(scene.summary("s"), ["A @/area/work/g", "A @/area/work/trace"]);
    }
}

fn six_thousand_four_hundred(scene: &Scene) {
    assert_eq!(count(scene, "s", "rename"), 6400);
    scene.commit("s");
    let listed = scene.sh("ls | wc -l; cat f31.199").run().text();
    assert_eq!(listed, "6400\nf31.199");
}
