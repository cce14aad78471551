//! No way around the semisolate, and no way for the command to harm effigy.

use crate::harness::{Scene, as_everyone, has, is_root, skip};

const ATTACK: &str = include_str!("confinement/attack.sh");

as_everyone! {
    fn a_directory_as_a_stream_is_refused(scene: &Scene) {
        let run = |redirection: &str| {
            scene.sh(&format!("exec \"$EFFIGY\" run -n -- sh -c 'echo ran; echo x >/proc/self/fd/0/f' {redirection}")).env("EFFIGY", scene.program()).run()
        };
        let done = run("<.").must_exit(125);
        assert_eq!(done.text(), "", "the command ran all the same");
        done.must_say(&["directory"]);
        assert_eq!(scene.sh("ls").run().text(), "");
    }

    fn an_inherited_descriptor_is_not_passed_on(scene: &Scene) {
        scene.sh("exec 9>>outer 8<. 7</; \"$EFFIGY\" run -n -- sh -c 'echo leak >&9; echo leak >/proc/self/fd/8/leaked; ls /proc/self/fd/7' || :")
            .env("EFFIGY", scene.program())
            .run()
            .must_succeed();
        assert_eq!(scene.sh("ls; cat outer").run().text(), "outer\n");
        let done = scene.sh("exec 9>/dev/null 8<.; \"$EFFIGY\" run -q -n -- ls /proc/self/fd").env("EFFIGY", scene.program()).run().must_succeed();
        assert_eq!(done.text(), "0\n1\n2\n3\n", "descriptors of effigy's own are open inside");
    }

    fn signals_to_everyone_do_not_reach_effigy(scene: &Scene) {
        for (name, script, status) in [
            ("group", "trap '' TERM; kill -TERM 0; echo alive", 0),
            ("all", "trap '' TERM; kill -TERM -1; echo alive", 0),
            ("init", "kill -9 1 2>/dev/null; kill -TERM 1 2>/dev/null; kill -INT 1 2>/dev/null; echo alive", 0),
            ("parent", "kill -9 $PPID 2>/dev/null; echo alive", 0),
        ] {
            let done = scene.run_script(name, &format!(": >f; set +e; {script}")).run().must_exit(status);
            assert_eq!(done.text(), "alive\n", "{name}");
            assert_eq!(scene.summary(name), ["A @/area/work/f"], "{name}");
        }
    }

    fn the_store_is_masked(scene: &Scene) {
        let store = scene.store().display().to_string();
        let script = format!("ls -A {store}; (echo evil >{store}/x) 2>/dev/null || :; (rm -rf {store}/sessions) 2>/dev/null || :; find {store} .. -name session.json 2>/dev/null || :");
        let done = scene.run_script("s", &script).run().must_succeed();
        assert_eq!(done.text(), "");
        assert!(scene.store().join("sessions").is_dir() && !scene.store().join("x").exists());
    }

    fn a_root_of_its_own_is_no_way_out(scene: &Scene) {
        if !has(scene, "perl") {
            return;
        }
        let name = scene.dir().file_name().expect("a name").to_str().expect("UTF-8").to_owned();
        let target = format!("/var/tmp/escaped.{name}");
        let climb = format!("mkdir 'j'; chroot 'j' or exit 0; chdir '..' for 1..300; chroot '.'; open F, '>{target}'; print F 'x'");
        scene.effigy(&["run", "-n", "--root", "--", "perl", "-e", &climb]).run();
        for pid in ["1", "self", "2"] {
            scene.effigy(&["run", "-n", "--root", "--", "sh", "-c", &format!("echo x >/proc/{pid}/root{target}")]).run();
            scene.effigy(&["run", "-n", "--root", "--", "sh", "-c", &format!("echo x >/proc/{pid}/cwd/../../../..{target}")]).run();
        }
        assert!(!std::path::Path::new(&target).exists(), "escaped to {target}");
        scene.effigy(&["run", "-n", "--root", "--", "sh", "-c", "mount --bind / /mnt; umount -l /; mount -o remount,rw /; :"]).run();
        assert!(!std::path::Path::new(&target).exists());
    }

    fn the_root_of_the_view_can_be_had(scene: &Scene) {
        let done = scene.effigy(&["run", "-q", "-n", "-s", "s", "--root", "--", "sh", "-euc", "id -u; id -g; : >f; stat -c '%u %g' f; touch /usr/touched-by-effigy-test 2>/dev/null || :"]).run().must_succeed();
        assert_eq!(done.text(), "0\n0\n0 0\n");
        scene.commit_only("s", "f");
        let uid = scene.uid();
        assert_eq!(scene.sh("stat -c '%u %g' f").run().text(), format!("{uid} {uid}\n"));
    }

    fn mounts_made_inside_stay_inside(scene: &Scene) {
        let before = std::fs::read_to_string("/proc/self/mountinfo").expect("mountinfo");
        scene.effigy(&["run", "-n", "-s", "s", "--root", "--", "sh", "-c", "mkdir m && mount -t tmpfs t m && echo x >m/f && cat m/f"]).run().must_succeed();
        assert_eq!(std::fs::read_to_string("/proc/self/mountinfo").expect("mountinfo"), before);
        assert_eq!(scene.summary("s"), ["A @/area/work/m"], "what lies on a mount made inside goes with it");
    }

    fn the_kernels_switches_are_out_of_reach(scene: &Scene) {
        // The same value is written back, so that a hole would do no harm.
        let script = "for f in /proc/sys/vm/swappiness /proc/sys/kernel/core_pattern /sys/kernel/mm/transparent_hugepage/enabled /proc/sysrq-trigger; do \
            test -e $f || continue; v=$(cat $f 2>/dev/null | sed 's/.*\\[\\(.*\\)\\].*/\\1/') || :; if (echo \"$v\" >$f) 2>/dev/null; then echo \"wrote $f\"; fi; done; \
            hostname effigy-test-name 2>/dev/null && echo renamed; :";
        for options in [&["run", "-q", "-n"][..], &["run", "-q", "-n", "--root"]] {
            let done = scene.effigy(options).args(&["--", "sh", "-c", script]).run().must_succeed();
            assert_eq!(done.text(), "", "{options:?}");
        }
    }

    fn devices_that_programs_need(scene: &Scene) {
        let script = "echo x >/dev/null; head -c4 /dev/urandom | wc -c; head -c2 /dev/zero | wc -c; (echo x >/dev/full) 2>/dev/null || echo full; \
            ls -d /dev/fd /dev/stdin /dev/stdout /dev/stderr /dev/pts /dev/shm /dev/ptmx /dev/random; ls /dev/fd/0";
        let done = scene.run_script("s", script).run().must_succeed();
        assert_eq!(
            done.text().replace(' ', ""),
            "4\n2\nfull\n/dev/fd\n/dev/ptmx\n/dev/pts\n/dev/random\n/dev/shm\n/dev/stderr\n/dev/stdin\n/dev/stdout\n/dev/fd/0\n"
        );
        assert_eq!(scene.summary("s"), [] as [&str; 0], "what is written to a device is no effect");
    }

    fn block_devices_are_out_of_reach(scene: &Scene) {
        let found = scene.sh("find /dev -type b 2>/dev/null || :").run().text();
        let script = "set +e; for d; do if head -c1 \"$d\" >/dev/null 2>&1; then echo \"read $d\"; fi; done; exit 0";
        for options in [&["run", "-q", "-n"][..], &["run", "-q", "-n", "--root"]] {
            let mut job = scene.effigy(options).args(&["--", "sh", "-c", script, "sh"]);
            for device in found.lines() {
                job = job.arg(device);
            }
            assert_eq!(job.run().must_succeed().text(), "", "{options:?} of {found}");
        }
        let make = "mknod b b $(stat -c '0x%t 0x%T' \"$0\") 2>/dev/null && head -c1 b >/dev/null 2>&1 && echo opened; exit 0";
        for options in [&["run", "-q", "-n"][..], &["run", "-q", "-n", "--root"]] {
            let device = found.lines().next().unwrap_or("/dev/null");
            assert_eq!(scene.effigy(options).args(&["--", "sh", "-c", make, device]).run().must_succeed().text(), "");
        }
    }

    fn devices_of_another_device_directory(scene: &Scene) {
        if !is_root() {
            return skip("mounting needs root");
        }
        let scene = Scene::new(scene.who).with_mounts("mkdir dev2 proc2; mount -t devtmpfs d dev2; mount -t proc p proc2");
        let dir = scene.dir().display().to_string();
        let script = "set +e; for d in $(find \"$0\"/dev2 -type b); do if head -c1 \"$d\" >/dev/null 2>&1; then echo \"read $d\"; fi; done; \
            ls -A \"$0\"/proc2 | grep -c '^[0-9]'; exit 0";
        let done = scene.effigy(&["run", "-q", "-n", "--", "sh", "-c", script, &dir]).run().must_succeed();
        assert_eq!(done.text(), "0\n");
    }

    fn sockets_and_pipes_of_the_tree_do_not_block(scene: &Scene) {
        scene.sh("mkfifo p").run().must_succeed();
        let done = scene.run_script("s", "chmod 600 p; mkfifo q; (echo hi >q) & cat q; wait; rm p").run().must_succeed();
        assert_eq!(done.text(), "hi\n");
        scene.commit("s");
        assert_eq!(scene.sh("ls; stat -c %F q").run().text(), "q\nfifo\n");
    }

    fn no_other_program_is_started(scene: &Scene) {
        if !has(scene, "strace") {
            return;
        }
        let trace = scene.home().join("trace");
        let done = scene.bare(&["strace", "-f", "-qq", "-e", "trace=execve,execveat", "-o"]).arg(&trace).arg(scene.program()).args(&["run", "-q", "-n", "--", "/bin/true"]).run();
        if done.stderr.contains("ptrace") {
            return skip("strace may not trace here");
        }
        done.must_succeed();
        let calls = std::fs::read_to_string(&trace).expect("the trace");
        let started: Vec<&str> = calls.lines().filter(|line| line.contains("exec") && line.ends_with("= 0")).collect();
        assert!(started.len() == 2 && started[1].contains("/bin/true"), "{started:#?}");
    }

    fn known_ways_out_are_closed(scene: &Scene) {
        let attack = scene.work().join("attack.sh");
        std::fs::write(&attack, ATTACK).expect("write the script");
        let before = scene.tree();
        for options in [&[][..], &["--root"]] {
            for wrapper in [&[][..], &["unshare", "-Urm"]] {
                let job = scene.effigy(&["run", "-q", "-n"]).args(options).arg("--").args(wrapper).arg("sh").arg(&attack).arg(scene.work());
                let done = job.run();
                assert!(!done.text().contains("got"), "{done}");
                scene.tree().must_equal(&before, crate::trees::Times::OfAll, "after an attack", "before");
            }
        }
    }

    fn nested_runs(scene: &Scene) {
        let inner_store = scene.work().join("inner");
        let done = scene.effigy(&["run", "-n", "-s", "outer", "--"]).arg(scene.program()).args(&["run", "-n", "-s", "inner", "--store"]).arg(&inner_store)
            .args(&["--", "sh", "-c", "echo x >f; cat f"]).run();
        assert!(!scene.work().join("f").exists() && !inner_store.exists(), "written through");
        if done.status == 0 {
            assert_eq!(done.text(), "x\n");
        } else {
            let plain = ["another", "already", "listener", "nested", "overlay"].iter().any(|word| done.stderr.contains(word));
            assert!(done.status == 125 && plain, "no plain cause: {done}");
        }
    }
}
