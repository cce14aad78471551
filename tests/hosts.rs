//! Odd hosts, simulated by root: what cannot be had is refused with its cause and the remedy, and never had by halves.

use crate::harness::{Done, NOBODY, Scene, as_everyone, has, is_root, skip};
use crate::trees::Times;

/// A scene in a container: its root directory is an overlay, and the scene's directory a volume in it.
fn container(scene: &Scene, more: &str) -> Option<Scene> {
    if !is_root() {
        skip("mounting needs root");
        return None;
    }
    Some(Scene::new(scene.who).with_mounts(&format!(
        "mkdir -p layers root; mount -t tmpfs t layers; mkdir layers/upper layers/work; \
         mount -t overlay o -o lowerdir=/,upperdir=layers/upper,workdir=layers/work root; here=$PWD; \
         mount --rbind /proc root/proc; mount --rbind /dev root/dev; mount --rbind /sys root/sys; \
         mkdir -p root/$here; mount --bind . root/$here; mkdir -m 1777 -p root/var/cache/all; cd root; pivot_root . .; umount -l .; cd /; {more}"
    )))
}

/// Refused, in effigy's words, before the command ran.
#[track_caller]
fn refused(done: Done, words: &[&str]) {
    let done = done.must_exit(125).must_say(words);
    assert_eq!(done.text(), "", "the command ran all the same");
}

/// A run that masks keep from a process directory, with this option: refused.
#[track_caller]
fn done_without(scene: &Scene, option: &str) -> Done {
    let done = scene
        .effigy(&["run", "-n", option, "--", "echo", "ran"])
        .run()
        .must_exit(125);
    assert_eq!(done.text(), "", "the command ran all the same");
    done
}

/// With `--weaker pid`: the command works, is recorded, and nothing leads to what is real.
#[track_caller]
fn without_processes(scene: &Scene) {
    // A process outside, of the same user, whose directories, files and memory must not be reached. Beside it the supervisor.
    let inside = "echo ran; cat /proc/self/comm; head -c 1 /proc/uptime >/dev/null; test ! -e /proc/$$; test ! -e /proc/$1; test -d /proc/.host/$1\n\
        for process in /proc/.host/[0-9]*; do\n\
        case $(tr '\\0' ' ' <$process/cmdline 2>/dev/null) in *'echo ran; cat'*) grep -q 'NSpid:.*[[:space:]].*[[:space:]]' $process/status && continue;; esac\n\
        for way in root/ cwd/ fd/ fd/0 fd/3 exe mem environ ns/mnt map_files/ task/${process##*/}/root/; do\n\
        if ls $process/$way >/dev/null 2>&1 && head -c 1 $process/$way >/dev/null 2>&1 || ls $process/$way/* >/dev/null 2>&1; then echo open: $process/$way; fi\n\
        done\n\
        (echo 1 >$process/oom_score_adj) 2>/dev/null && echo writable: $process\n\
        done\n\
        (echo 1 >/proc/.host/$1/root$PWD/f) 2>/dev/null && echo written through\n\
        kill -0 $1 2>/dev/null && echo signalled\n\
        echo v2 >/proc/self/cwd/f; mkdir /proc/thread-self/cwd/d; chmod 600 /proc/self/fd/7 7<f; sleep 100 & sleep 100 &";
    let outside =
        "sleep 100 7<f & other=$!; status=0; \"$@\" $other || status=$?; kill $other; exit $status";
    scene.sh("echo v1 >f").run().must_succeed();
    let mut argv = vec!["sh", "-euc", outside, "sh"];
    let program = scene.program().display().to_string();
    argv.extend([
        program.as_str(),
        "run",
        "-n",
        "-s",
        "weak",
        "--weaker",
        "pid",
        "--",
        "sh",
        "-uc",
        inside,
        "sh",
    ]);
    let done = scene.bare(&argv).run().must_succeed();
    assert_eq!(done.text(), "ran\ncat\n", "{done}");
    done.must_say(&["weaker", "(pid)", "killed 2 processes"]);
    assert_eq!(scene.sh("cat f").run().text(), "v1\n", "written through");
    assert_eq!(
        scene.summary("weak"),
        ["A @/area/work/d", "M @/area/work/f"]
    );
    let log = scene.effigy(&["log", "weak"]).run().must_succeed();
    for event in ["mkdir        d", "chmod        f"] {
        assert!(log.text().contains(event), "{event}: {log}");
    }
    scene
        .effigy(&["summary", "weak"])
        .run()
        .must_say(&["(pid)"]);
    assert!(
        scene
            .effigy(&["ls", "--json"])
            .run()
            .text()
            .contains("\"weaker\":[\"pid\"]")
    );
    scene.commit("weak");
    assert_eq!(scene.sh("cat f; ls; rm -r d").run().text(), "v2\nd\nf\n");
}

as_everyone! {
    fn a_container_with_a_volume_for_the_store(scene: &Scene) {
        let Some(scene) = container(scene, ":") else { return };
        let script = "stat -f -c %T /; cat f; echo v2 >f; mkdir d; mv f d/g; ls d";
        scene.sh("echo v1 >f").run().must_succeed();
        let done = scene.run_script("s", script).run().must_succeed();
        assert_eq!(done.text(), "overlayfs\nv1\ng\n");
        assert_eq!(scene.summary("s"), ["A @/area/work/d", "A @/area/work/d/g", "D @/area/work/f"]);
        if scene.is_root() {
            // What lies on the overlay itself.
            scene.sh("echo old >/var/cache/all/theirs").run().must_succeed();
            let script = "echo new >/var/cache/all/new; rm /var/cache/all/theirs; echo 0 >/etc/of-the-container";
            scene.run_script("t", script).run().must_succeed();
            assert_eq!(scene.summary("t"), ["A /etc/of-the-container", "A /var/cache/all/new", "D /var/cache/all/theirs"]);
            assert_eq!(scene.sh("ls /var/cache/all").run().text(), "theirs\n", "written through");
            scene.commit("t");
            assert_eq!(scene.sh("cat /var/cache/all/* /etc/of-the-container").run().text(), "new\n0\n");
            scene.undo("t");
            assert_eq!(scene.sh("ls /var/cache/all; test ! -e /etc/of-the-container").run().must_succeed().text(), "theirs\n");
        }
        assert_eq!(scene.sh("cat f").run().text(), "v1\n", "written through");
        scene.commit("s");
        assert_eq!(scene.sh("ls; cat d/g").run().text(), "d\nv2\n");
        scene.undo("s");
        assert_eq!(scene.sh("cat f").run().text(), "v1\n");
    }

    fn a_container_with_its_store_on_the_overlay(scene: &Scene) {
        let Some(scene) = container(scene, ":") else { return };
        let done = scene.effigy(&["run", "-n", "--store", "/var/cache/all/store", "--", "echo", "ran"]).run();
        refused(done, &["/var/cache/all/store", "overlay", "--store /", "can hold them"]);
        let doctor = scene.effigy(&["doctor", "--store", "/var/cache/all/store"]).run();
        assert!(doctor.status == 1 && doctor.text().contains("overlay"), "{doctor}");
    }

    fn a_container_that_masks_the_process_directory(scene: &Scene) {
        let mask = "mount --bind /dev/null /proc/timer_list; mount -t tmpfs -o ro t /proc/irq; mount --bind /proc/sys /proc/sys; mount -o remount,bind,ro /proc/sys";
        let Some(scene) = container(scene, mask) else { return };
        let done = scene.run_script("s", "echo ran; echo x >f; ls -d /proc/self;  (echo 1 >/proc/sys/kernel/panic) 2>/dev/null && exit 9 || :").run();
        if scene.is_root() {
            assert_eq!(done.must_succeed().text(), "ran\n/proc/self\n");
            return;
        }
        // The kernel gives no fuller view of /proc than the one there is.
        refused(done, &["/proc", "masks"]);
        let doctor = scene.effigy(&["doctor"]).run();
        assert!(doctor.status == 1 && doctor.text().contains("/proc"), "{doctor}");
        for done in [done_without(&scene, "--weaker=trace"), doctor] {
            assert!(format!("{done}").contains("--weaker pid"), "the way out is not named: {done}");
        }
        without_processes(&scene);
    }

    fn a_fresh_process_directory_is_taken_where_there_can_be_one(scene: &Scene) {
        let done = scene.effigy(&["run", "-n", "-s", "s", "--weaker", "pid,trace", "--", "sh", "-c", "ls -d /proc/$$; echo x >f"]).run().must_succeed();
        assert!(done.text().starts_with("/proc/"), "{done}");
        assert!(!done.stderr.contains("weaker"), "{done}");
        assert!(scene.effigy(&["ls", "--json"]).run().text().contains("\"weaker\":[]"));
        assert!(scene.effigy(&["log", "s"]).run().text().contains("open"));
    }

    fn a_supervisor_that_listens_already(scene: &Scene) {
        if !has(scene, "python3") {
            return;
        }
        // A filter that allows everything, and has a listener.
        let outer = "import ctypes, os, struct, sys\nc = ctypes.CDLL(None, use_errno=True)\ncode = struct.pack('HBBI', 6, 0, 0, 0x7fff0000)\nkept = ctypes.create_string_buffer(code)\n\
            program = struct.pack('HxxxxxxP', 1, ctypes.addressof(kept))\nassert c.prctl(38, 1, 0, 0, 0) == 0\nfd = c.syscall(317, 1, 8, program)\nassert fd >= 0, ctypes.get_errno()\nos.set_inheritable(fd, True)\nos.execv(sys.argv[1], sys.argv[1:])\n";
        let within = |arguments: &[&str]| scene.bare(&["python3", "-c", outer]).arg(scene.program()).args(arguments).run();
        refused(within(&["run", "-n", "--", "echo", "ran"]), &["another", "--no-trace"]);
        let doctor = within(&["doctor"]);
        assert!(doctor.text().lines().any(|line| line.starts_with("no") && line.contains("notification")), "{doctor}");
        let done = within(&["run", "-n", "-s", "s", "--no-trace", "--", "sh", "-c", "echo ran; echo x >f"]).must_succeed();
        assert_eq!(done.text(), "ran\n");
        assert_eq!(scene.summary("s"), ["A @/area/work/f"]);
        // By name, and told.
        let done = within(&["run", "-n", "-s", "t", "--weaker", "trace", "--", "sh", "-c", "echo ran; echo x >f"]).must_succeed();
        assert_eq!(done.text(), "ran\n");
        done.must_say(&["weaker", "trace"]);
        assert!(scene.effigy(&["ls", "--json"]).run().text().contains("\"weaker\":[\"trace\"]"));
        assert!(scene.effigy(&["show", "t"]).run().text().contains("weaker    trace"));
        assert_eq!(scene.summary("t"), ["A @/area/work/f"]);
        // Who wants the log cannot do without.
        refused(within(&["run", "-n", "--weaker", "trace", "-t", "log", "--", "echo", "ran"]), &["another"]);
    }

    fn a_user_namespace_without_any_right(scene: &Scene) {
        if !has(scene, "unshare") || !has(scene, "setpriv") {
            return;
        }
        let within = |options: &str, arguments: &str| {
            let script = format!("exec unshare {options} setpriv --bounding-set -all --inh-caps -all \"$EFFIGY\" {arguments}");
            scene.sh(&script).env("EFFIGY", scene.program()).run()
        };
        if scene.is_root() {
            // The kernel lets nobody stand for root without a right for it.
            refused(within("-U --map-current-user", "run -n -- echo ran"), &["user in the new namespace"]);
            // Root without the right to mount, as in a container: its number alone opens files of the kernel's.
            let write = "exec setpriv --bounding-set -sys_admin \"$EFFIGY\" run -n -- sh -c 'cat /proc/sys/kernel/panic >/proc/sys/kernel/panic'";
            scene.sh(write).env("EFFIGY", scene.program()).run().must_exit(2).must_say(&["Read-only"]);
        } else if scene.uid() != NOBODY {
            // Namespaces of its own are all that is needed. (The number of nobody stands for everyone else there.)
            let done = within("-U --map-current-user", "run -q -n -s s -- sh -c 'echo ran; echo x >f'").must_succeed();
            assert_eq!(done.text(), "ran\n");
            assert_eq!(scene.summary("s"), ["A @/area/work/f"]);
            assert_eq!(scene.sh("ls").run().text(), "");
        }
        // Nobody is mapped.
        refused(within("-U", "run -n --store \"$PWD/store\" -- echo ran"), &["user namespace"]);
    }

    fn a_target_without_room(scene: &Scene) {
        if !is_root() {
            return skip("mounting needs root");
        }
        for mounted in ["size=600k", "nr_inodes=40"] {
            let scene = Scene::new(scene.who).with_mounts(&format!("mkdir area/work/small; mount -t tmpfs -o {mounted},mode=777 t area/work/small; chown --reference=area/work area/work/small"));
            scene.sh("echo v1 >small/old; mkdir small/dir; echo stays >small/dir/f").run().must_succeed();
            let content = || scene.sh("find small | sort; cat small/old small/dir/f; ls small | wc -l").run().must_succeed().text();
            let before = content();
            let script = "echo v2 >small/old; for i in $(seq 100); do head -c 8000 /dev/zero >small/$i; done; rm small/dir/f; mv small/dir small/moved; : >elsewhere";
            scene.run_script("s", script).run().must_succeed();
            for command in ["commit", "replay"] {
                let done = scene.effigy(&[command, "s", "-y"]).run();
                assert!(done.status == 1 || done.status == 125, "{mounted}: {done}");
                done.must_say(&["small", "nothing was changed"]);
                assert_eq!(content(), before, "{mounted}: {command} has left something");
                assert!(!scene.work().join("elsewhere").exists(), "{mounted}: {command} was done by halves");
            }
            // What fits is applied, and so is everything when there is room.
            for command in ["commit", "replay"] {
                scene.effigy(&[command, "s", "-y", "--only", "small/1*"]).run().must_succeed();
                scene.undo("s");
                assert_eq!(content(), before, "{mounted}: {command} undone");
            }
        }
    }

    fn a_store_without_room_for_what_is_replaced(scene: &Scene) {
        if !is_root() {
            return skip("mounting needs root");
        }
        let scene = Scene::new(scene.who).with_mounts("mkdir small; mount -t tmpfs -o size=2m,mode=777 t small");
        let store = scene.dir().join("small/store");
        let with = |arguments: &[&str]| scene.effigy(arguments).env("EFFIGY_STORE", &store);
        // The earlier contents go to the store, which is on another filesystem and has room for the new ones only.
        scene.sh("for i in $(seq 8); do head -c 400000 /dev/urandom >f$i; done").run().must_succeed();
        let before = scene.tree();
        with(&["run", "-n", "-s", "s", "--", "sh", "-euc", "for i in $(seq 8); do echo new >f$i; done; echo made >g"]).run().must_succeed();
        for command in ["commit", "replay"] {
            let done = with(&[command, "s", "-y"]).run();
            if done.status != 0 {
                done.must_say(&["nothing was changed"]);
                scene.tree().must_equal(&before, Times::OfFiles, "after the refusal", "before");
                continue;
            }
            assert_eq!(scene.sh("cat f1 f8 g").run().text(), "new\nnew\nmade\n");
            with(&["undo", "s", "-y"]).run().must_succeed();
            scene.tree().must_equal(&before, Times::OfFiles, "undone", "before");
        }
    }
}
