//! `--hide`, `--read-only`, `doctor`, and machines that refuse.

use crate::harness::{Scene, as_everyone, has, is_root, skip};

as_everyone! {
    fn hidden_paths_do_not_exist_inside(scene: &Scene) {
        scene.sh("mkdir -p ~/.ssh d/in; echo secret >~/.ssh/id; echo s >d/secret; echo t >d/seen; echo u >d/in/u").run().must_succeed();
        let ssh = scene.home().join(".ssh");
        let script = "ls -A ~ d; test ! -e ~/.ssh; test ! -e d/secret; cat d/secret ~/.ssh/id 2>/dev/null || echo absent; : >d/new";
        let done = scene.effigy(&["run", "-q", "-n", "-s", "s", "--hide"]).arg(&ssh).args(&["--hide", "d/secret", "--hide", "d/in", "--", "sh", "-euc", script]).run().must_succeed();
        let home = scene.home().display().to_string();
        assert_eq!(done.text(), format!("{home}:\n\nd:\nseen\nabsent\n"));
        assert_eq!(scene.summary("s"), ["A @/area/work/d/new"], "hiding is no deletion");
        scene.commit("s");
        assert_eq!(scene.sh("ls -A ~/.ssh d; cat d/secret ~/.ssh/id d/in/u").run().text(), format!("{home}/.ssh:\nid\n\nd:\nin\nnew\nsecret\nseen\ns\nsecret\nu\n"));
    }

    fn something_else_in_a_hidden_place(scene: &Scene) {
        scene.sh("echo real >f; echo stays >g").run().must_succeed();
        scene.effigy(&["run", "-q", "-n", "-s", "s", "--hide", "f", "--", "sh", "-euc", "echo own >f; cat f; rm f; echo again >h"]).run().must_succeed();
        assert_eq!(scene.summary("s"), ["A @/area/work/h"]);
        scene.commit("s");
        assert_eq!(scene.sh("cat f g h").run().text(), "real\nstays\nagain\n");
    }

    fn a_hidden_path_that_is_not_there(scene: &Scene) {
        scene.effigy(&["run", "-n", "--hide", "no-such-thing", "--", "true"]).run().must_exit(125).must_say(&["no-such-thing"]);
        scene.effigy(&["run", "-n", "--read-only", "no-such-thing", "--", "true"]).run().must_exit(125).must_say(&["no-such-thing"]);
        scene.effigy(&["run", "-n", "--hide", ".", "--", "true"]).run().must_exit(125).must_say(&["/area/work"]);
    }

    fn read_only_paths_cannot_be_written(scene: &Scene) {
        scene.sh("mkdir -p fixed/in free; echo v1 >fixed/f; echo v1 >one; echo v1 >free/f").run().must_succeed();
        let script = "for f in fixed/f fixed/new fixed/in/new one; do (echo v2 >$f) 2>>errors && echo wrote $f; done; rm fixed/f 2>>errors; mkdir fixed/d 2>>errors; \
            chmod 700 one 2>>errors; mv fixed moved 2>>errors; echo v2 >free/f; cat fixed/f one; grep -c Read-only errors; rm errors";
        let done = scene.effigy(&["run", "-q", "-n", "-s", "s", "--read-only", "fixed", "--read-only", "one", "--", "sh", "-c", script]).run().must_succeed();
        assert!(done.text().starts_with("v1\nv1\n"), "{done}");
        assert_eq!(scene.summary("s"), ["M @/area/work/free/f"]);
    }

    fn a_read_only_tree_with_everything_below_it(scene: &Scene) {
        if !is_root() {
            return skip("mounting needs root");
        }
        let scene = Scene::new(scene.who).with_mounts("mkdir -p area/work/top/m area/work/top/d; mount -t tmpfs t area/work/top/m; echo x >area/work/top/m/f; chown -R --reference=area/work area/work/top");
        let script = "for f in top/new top/m/f top/m/new top/d/new; do (echo v2 >$f) 2>/dev/null && echo wrote $f; done; cat top/m/f; echo free >free";
        let done = scene.effigy(&["run", "-q", "-n", "-s", "s", "--read-only", "top", "--", "sh", "-c", script]).run().must_succeed();
        assert_eq!(done.text(), "x\n");
        assert_eq!(scene.summary("s"), ["A @/area/work/free"]);
    }

    fn the_whole_view_read_only(scene: &Scene) {
        let done = scene.effigy(&["run", "-q", "-n", "-s", "s", "--read-only", "/", "--", "sh", "-c", "(: >f) 2>/dev/null && echo wrote; (: >/var/tmp/effigy-test-x) 2>/dev/null && echo wrote there; echo x >/dev/null && cat /proc/self/comm"]).run().must_succeed();
        assert_eq!(done.text(), "cat\n");
        assert_eq!(scene.summary("s"), [] as [&str; 0]);
    }

    fn doctor_says_what_this_machine_allows(scene: &Scene) {
        let done = scene.effigy(&["doctor"]).run().must_succeed();
        assert!(done.text().lines().count() >= 4, "{done}");
        assert!(done.text().contains("namespaces"), "{done}");
        let json = scene.effigy(&["doctor", "--json"]).run().must_succeed().text();
        assert!(json.lines().all(|line| line.starts_with('{') && line.ends_with('}')), "{json}");
        assert_eq!(scene.sh("ls -A . ~").run().text().lines().filter(|line| !line.ends_with(':') && !line.is_empty()).count(), 0, "doctor left something");
    }

    fn a_machine_without_user_namespaces(scene: &Scene) {
        if !has(scene, "unshare") {
            return;
        }
        // A limit of a user namespace's own holds for those made in it.
        let within = |arguments: &str| {
            let script = format!("exec unshare -Ur sh -c 'echo 0 >/proc/sys/user/max_user_namespaces && exec \"$EFFIGY\" {arguments}'");
            scene.sh(&script).env("EFFIGY", scene.program()).run()
        };
        if within("--version").status != 0 {
            return skip("user namespaces cannot be limited here");
        }
        let done = within("run -n -- echo ran").must_exit(125);
        assert_eq!(done.text(), "");
        done.must_say(&["user namespace", "max_user_namespaces"]);
        let doctor = within("doctor");
        assert!(doctor.status != 0 && doctor.text().contains("max_user_namespaces"), "{doctor}");
    }
}

#[test]
fn root_in_a_container_without_the_right_to_mount() {
    crate::harness::as_root(|scene| {
        if !has(scene, "setpriv") {
            return;
        }
        // As in Docker: root without CAP_SYS_ADMIN, with a writable root directory, so that the root itself is staged.
        scene.sh("echo v1 >f").run().must_succeed();
        let run = "exec setpriv --bounding-set -sys_admin --inh-caps -all \"$EFFIGY\" run -q -n -s s -- sh -euc 'id -u; cat f; echo v2 >f; echo x >/dev/null; ls -d /usr /dev/null /proc/self; test -w /tmp; tty || :'";
        let done = scene
            .sh(run)
            .env("EFFIGY", scene.program())
            .run()
            .must_succeed();
        assert_eq!(
            done.text(),
            "0\nv1\n/dev/null\n/proc/self\n/usr\nnot a tty\n"
        );
        assert_eq!(scene.sh("cat f").run().text(), "v1\n", "written through");
        assert_eq!(scene.summary("s"), ["M @/area/work/f"]);
        scene.commit("s");
        assert_eq!(scene.sh("cat f").run().text(), "v2\n");
    });
}
