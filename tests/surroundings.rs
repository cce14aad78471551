//! What the command sees of its surroundings is what it would see outside.

use std::net::TcpListener;
use std::os::unix::ffi::OsStrExt as _;

use crate::harness::{Scene, as_everyone, has};

/// The output of a script run bare must be the same in effigy.
#[track_caller]
fn same_inside(scene: &Scene, script: &str) {
    let outside = scene.sh(script).run();
    let inside = scene
        .effigy(&["run", "-q", "-n", "--", "sh", "-euc", script])
        .run();
    assert_eq!(
        (inside.status, inside.text(), &inside.stderr),
        (outside.status, outside.text(), &outside.stderr),
        "{script}"
    );
}

as_everyone! {
    fn a_program_that_cannot_become_root_is_explained(scene: &Scene) {
        if !has(scene, "su") {
            return;
        }
        let done = scene.effigy(&["run", "-n", "--", "su", "-s", "/bin/sh", "-c", "exit 0", "nobody"]).run();
        if scene.is_root() {
            done.must_succeed();
            return;
        }
        assert!(done.status != 0, "{done}");
        done.must_say(&["/su failed: inside it gains no rights beyond yours", "sudo effigy run"]);
    }

    fn root_runs_a_command_as_another_user(scene: &Scene) {
        if !scene.is_root() {
            scene.effigy(&["run", "-n", "--as-user", "--", "true"]).run().must_exit(125).must_say(&["only root", "sudo effigy run --as-user"]);
            return;
        }
        scene.effigy(&["run", "-n", "--as-user", "--", "true"]).run().must_exit(125).must_say(&["--as-user=USER"]);
        scene.sh("chmod 777 .; echo mine >mine; chown 4242:7 mine; echo both >both; chown 0:7 both; chmod 666 both; echo roots >roots").run().must_succeed();
        let script = "id -u; id -g; grep CapEff /proc/self/status; echo more >>mine; echo more >>both; ln mine linked; mkdir d; echo no 2>/dev/null >>roots; exit 3";
        let done = scene.effigy(&["run", "-q", "-n", "-s", "s", "--as-user", "--", "sh", "-c", script]).env("SUDO_UID", "4242").run().must_exit(3);
        assert_eq!(done.text(), "4242\n4242\nCapEff:\t0000000000000000\n");
        let log = scene.effigy(&["log", "s", "--json", "--op", "mkdir"]).run().text();
        assert!(log.contains("\"by\":\"performed\""), "{log}");
        assert_eq!(scene.summary("s"), ["M @/area/work/both", "A @/area/work/d", "A @/area/work/linked", "M @/area/work/mine"]);
        scene.commit("s");
        let seen = scene.sh("stat -c '%n %u:%g %h' *; cat mine roots").run().text();
        assert_eq!(seen, "both 0:7 1\nd 4242:4242 2\nlinked 4242:7 2\nmine 4242:7 2\nroots 0:0 1\nmine\nmore\nroots\n");
    }


    fn who_and_where(scene: &Scene) {
        scene.sh("mkdir -p d/e; echo x >f; chmod 751 d").run().must_succeed();
        for script in [
            "pwd; pwd -P; readlink /proc/self/cwd",
            "id; id -u; id -g; whoami || :",
            "hostname; uname -a; uname -n",
            "umask; ulimit -a",
            "cat /proc/self/limits; nice; cat /proc/self/oom_score_adj",
            "stat -c '%n %a %u %g %F' . d f \"$HOME\"; stat -c '%n %a %F' .. / /tmp /var/tmp /etc/passwd; stat -c '%s %h' f",
            "ls -a; ls -l f; ls /; ls -d /dev/null /dev/tty /dev/fd",
            "date +%Z; cat /etc/hostname /etc/resolv.conf /etc/hosts 2>&1 || :",
            "grep -c . /proc/filesystems; nproc; getconf PAGESIZE; cat /proc/sys/kernel/random/boot_id",
            "test -t 0 || echo no terminal; test -r /dev/stdin && echo readable",
            "command -v sh; sh -c 'kill -l'; trap",
        ] {
            same_inside(scene, script);
        }
    }

    fn the_environment(scene: &Scene) {
        let inside = scene.effigy(&["run", "-q", "-n", "--", "env", "-0"]).env("ODD", "a\nb=c").env("EMPTY", "").env("EFFIGY_SESSION", "stale").run().must_succeed();
        let outside = scene.bare(&["env", "-0"]).env("ODD", "a\nb=c").env("EMPTY", "").run().must_succeed();
        let sorted = |text: String| {
            let mut lines: Vec<String> = text.split('\0').filter(|line| !line.starts_with("EFFIGY_SESSION=")).map(str::to_owned).collect();
            lines.sort();
            lines
        };
        assert_eq!(sorted(inside.text()), sorted(outside.text()));
        let done = scene.effigy(&["run", "-q", "-n", "-s", "named", "--", "sh", "-c", "echo $EFFIGY_SESSION"]).run().must_succeed();
        let listed = scene.effigy(&["ls", "--json"]).run().must_succeed().text();
        let named = listed.lines().find(|line| line.contains("\"named\"")).expect("the session");
        assert!(named.contains(&format!("\"{}\"", done.text().trim())), "{} is not the id in {named}", done.text());
    }

    fn arguments_are_passed_as_they_are(scene: &Scene) {
        let words = ["", " ", "a  b", "*", "$HOME", "'", "\"", "\\", "-n", "--", "new\nline", "é"];
        let mut job = scene.effigy(&["run", "-q", "-n", "--", "printf", "%s\\0"]);
        for word in words {
            job = job.arg(word);
        }
        let done = job.arg(std::ffi::OsStr::from_bytes(b"\xff\xfe")).run().must_succeed();
        let expected: Vec<u8> = words.iter().flat_map(|word| [word.as_bytes(), b"\0"].concat()).chain(*b"\xff\xfe\0").collect();
        assert_eq!(done.stdout, expected);
    }

    fn options_of_the_command_are_not_effigys(scene: &Scene) {
        let done = scene.effigy(&["run", "-q", "-n", "echo", "-s", "--hide", "-y"]).run().must_succeed();
        assert_eq!(done.text(), "-s --hide -y\n");
    }

    fn a_directory_reached_through_a_link(scene: &Scene) {
        scene.sh("mkdir -p real/sub other; ln -s real/sub link").run().must_succeed();
        let script = "pwd; pwd -L; pwd -P; echo \"$PWD $OLDPWD\"; cd -; cd ..; pwd";
        let go = |runner: &str| {
            scene.sh(&format!("cd other; cd ../link; exec {runner} sh -c '{script}'")).env("EFFIGY", scene.program()).run().must_succeed().text()
        };
        assert_eq!(go("\"$EFFIGY\" run -q -n --"), go("env"));
    }

    fn npm_names_a_package_after_its_directory(scene: &Scene) {
        if !has(scene, "npm") {
            return;
        }
        let project = scene.make_dir("area/work/demo-project");
        scene.effigy(&["run", "-n", "-s", "s", "--", "npm", "init", "-y"]).dir(&project).run().must_succeed();
        scene.commit("s");
        let package = std::fs::read_to_string(project.join("package.json")).expect("package.json");
        assert!(package.contains("\"name\": \"demo-project\""), "{package}");
    }

    fn standard_streams_pass_through(scene: &Scene) {
        let bytes: Vec<u8> = (0..=255).cycle().take(300_000).collect();
        let done = scene.effigy(&["run", "-q", "-n", "--", "sh", "-c", "cat; echo err >&2"]).input(&bytes).run().must_succeed();
        assert!(done.stdout == bytes, "{} bytes came through of {}", done.stdout.len(), bytes.len());
        assert_eq!(done.stderr, "err\n");
        let rest = scene.sh("\"$EFFIGY\" run -q -n -- head -c3 >/dev/null; cat").env("EFFIGY", scene.program()).input(b"abcdef").run().must_succeed();
        assert!("abcdef".ends_with(&rest.text()), "effigy read ahead of the command: {}", rest.text());
    }

    fn closed_standard_streams(scene: &Scene) {
        let run = |redirection: &str| {
            scene.sh(&format!("\"$EFFIGY\" run -n -s \"$0\" -- sh -c 'echo x >f' {redirection}")).env("EFFIGY", scene.program())
        };
        for (index, redirection) in ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"].iter().enumerate() {
            let name = format!("s{index}");
            run(redirection).arg(&name).run().must_succeed();
            assert_eq!(scene.summary(&name), ["A @/area/work/f"], "{redirection}");
        }
    }

    fn a_reader_that_goes_away(scene: &Scene) {
        let done = scene.sh("\"$EFFIGY\" run -q -n -- yes | head -n1").env("EFFIGY", scene.program()).run().must_succeed();
        assert_eq!(done.text(), "y\n");
    }

    fn limits_and_masks_are_inherited(scene: &Scene) {
        let done = scene
            .sh("ulimit -n 77; ulimit -c 0; umask 027; trap '' USR1; nice -n 3 \"$EFFIGY\" run -q -n -s s -- sh -c 'ulimit -n; ulimit -c; umask; nice; : >f; kill -USR1 $$; echo lives'")
            .env("EFFIGY", scene.program())
            .run()
            .must_succeed();
        assert_eq!(done.text(), "77\n0\n0027\n3\nlives\n");
        scene.commit("s");
        assert_eq!(scene.sh("stat -c %a f").run().text(), "640\n");
    }

    fn a_small_limit_on_descriptors_or_processes_is_enough(scene: &Scene) {
        scene.sh("ulimit -Sn 24; \"$EFFIGY\" run -q -n -s s -- sh -c ': >f'").env("EFFIGY", scene.program()).run().must_succeed();
        assert_eq!(scene.summary("s"), ["A @/area/work/f"]);
    }

    fn signals_to_effigy_reach_the_command(scene: &Scene) {
        for (signal, number) in [("TERM", 15), ("HUP", 1), ("USR2", 12)] {
            let script = format!("trap 'echo got {signal}; exit 7' {signal}; echo ready; while :; do sleep 0.05; done");
            let mut child = scene.effigy(&["run", "-q", "-n", "--", "sh", "-c", &script]).start();
            crate::harness::wait_for_line(&mut child, "ready");
            let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).expect("a pid"));
            nix::sys::signal::kill(pid, nix::sys::signal::Signal::try_from(number).expect("a signal")).expect("kill");
            let done = crate::harness::finish(child, signal.to_owned()).must_exit(7);
            assert_eq!(done.text(), format!("got {signal}\n"));
        }
    }

    fn other_processes_are_out_of_sight(scene: &Scene) {
        let done = scene.effigy(&["run", "-q", "-n", "--", "sh", "-c", "ls -d /proc/[0-9]* | wc -l; cat /proc/1/comm /proc/self/comm; test ! -d /proc/$0", &std::process::id().to_string()]);
        let text = done.run().must_succeed().text();
        let count: u32 = text.lines().next().and_then(|line| line.parse().ok()).expect("a number");
        assert!(count <= 8, "{text}");
    }

    fn the_network_is_the_real_one_unless_refused(scene: &Scene) {
        if !has(scene, "python3") {
            return;
        }
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port().to_string();
        let connect = "import socket, sys; socket.create_connection(('127.0.0.1', int(sys.argv[1])), 5)";
        scene.effigy(&["run", "-q", "-n", "--", "python3", "-c", connect, &port]).run().must_succeed();
        scene.effigy(&["run", "-q", "-n", "--no-net", "--", "python3", "-c", connect, &port]).run().must_exit(1).must_say(&["ConnectionRefused"]);
        let own = "import socket; s = socket.create_server(('127.0.0.1', 0)); socket.create_connection(s.getsockname(), 5); print('talks')";
        let done = scene.effigy(&["run", "-q", "-n", "--no-net", "--", "python3", "-c", own]).run().must_succeed();
        assert_eq!(done.text(), "talks\n", "the loopback works within");
        let names = "import socket; print([name for _, name in socket.if_nameindex()])";
        let done = scene.effigy(&["run", "-q", "-n", "--no-net", "--", "python3", "-c", names]).run().must_succeed();
        assert_eq!(done.text(), "['lo']\n");
    }

    fn a_working_directory_that_is_gone(scene: &Scene) {
        let done = scene.sh("mkdir gone; cd gone; rmdir ../gone; exec \"$EFFIGY\" run -n -- true").env("EFFIGY", scene.program()).run();
        done.must_exit(125).must_say(&["working directory"]);
    }

    fn shared_memory_and_semaphores_work(scene: &Scene) {
        if !has(scene, "python3") {
            return;
        }
        let script = "import multiprocessing as m, multiprocessing.shared_memory as s; m.Lock(); a = s.SharedMemory(create=True, size=9); print(a.size >= 9); a.close(); a.unlink()";
        let done = scene.effigy(&["run", "-q", "-n", "-s", "s", "--", "python3", "-c", script]).run().must_succeed();
        assert_eq!(done.text(), "True\n");
        assert_eq!(scene.summary("s"), [] as [&str; 0], "shared memory is no effect");
    }
}
