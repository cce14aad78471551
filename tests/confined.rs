//! `--write`, `--protect`, `--deny-read`: what is refused is refused by every path, also when effigy performs the call.

use crate::harness::{Done, Scene, as_everyone, has};
use crate::trees::Times;

const SETUP: &str = "mkdir -p in/sub out secret in/keep; echo s >secret/f; echo k >key; echo o >out/f; echo p >in/protected; echo q >in/keep/q; chmod 644 key";

/// Runs a script whose every line must fail; what succeeds says so.
fn refused(scene: &Scene, options: &[&str], lines: &[&str]) -> Done {
    let script: Vec<String> = lines
        .iter()
        .map(|line| {
            format!(
                "( {line} ) >&2 && echo \"done: {}\"",
                line.replace('"', "'")
            )
        })
        .collect();
    let script = format!("{}; exit 0", script.join("\n"));
    let words = [
        &["run", "-q", "-n", "-s", "c"],
        options,
        &["--", "sh", "-c", &script],
    ]
    .concat();
    let done = scene.effigy(&words).run().must_succeed();
    assert_eq!(done.text(), "", "{done}");
    done
}

const CONFINED: [&str; 10] = [
    "--write",
    "in",
    "--protect",
    "in/protected",
    "--protect",
    "in/keep",
    "--deny-read",
    "secret",
    "--deny-read",
    "key",
];

as_everyone! {
    fn writes_succeed_where_they_are_allowed_and_nowhere_else(scene: &Scene) {
        scene.sh(SETUP).run().must_succeed();
        let done = refused(scene, &CONFINED, &[
            "echo x >out/g", "echo x >>out/f", "rm out/f", "mkdir new", "chmod 700 out", "touch ..", "touch out/f", "mv out in/", "mv out/f in/",
            "ln out/f in/l", "ln -s x l", "mkfifo p", "mv in in2", "rmdir out", "truncate -s 0 out/f", "echo x >/proc/self/root$PWD/out/f",
            "ln -s ../out in/link && echo x >in/link/f", "echo x >/tmp/effigy-confined", "exec 3>>out/f", "perl -e 'rename(\"in/sub\", \"sub\") or exit 1'",
        ]);
        done.must_say(&["Read-only file system"]);
        // mv copies what it cannot move, and then cannot remove it.
        assert_eq!(scene.summary("c"), ["A @/area/work/in/f", "A @/area/work/in/link"]);
        scene.run_script("free", "echo y >in/new").run().must_succeed();
        let script = "echo x >in/new; mkdir in/d; mv in/new in/d/moved; echo y >>in/sub/f; chmod 700 in/sub; : >/dev/shm/t; : >/dev/null";
        scene.effigy(&["run", "-q", "-n", "-s", "ok"]).args(&CONFINED).args(&["--", "sh", "-ec", script]).run().must_succeed();
        let events = scene.effigy(&["log", "ok", "--op", "mkdir,rename,chmod", "--json"]).run().must_succeed().text();
        assert_eq!(events.matches(r#""by":"performed""#).count(), 3, "{events}");
        let changed = scene.summary("ok");
        assert!(changed.contains(&"A @/area/work/in/d/moved".to_owned()) && changed.contains(&"A @/area/work/in/sub/f".to_owned()), "{changed:?}");
        scene.commit("ok");
        assert_eq!(scene.sh("cat in/d/moved").run().text(), "x\n");
    }

    fn what_is_protected_stays_inside_an_allowed_tree(scene: &Scene) {
        scene.sh(SETUP).run().must_succeed();
        let before = scene.tree();
        for options in [&CONFINED[..], &["--protect", "in/protected", "--protect", "in/keep"]] {
            refused(scene, options, &[
                "echo x >>in/protected", "rm in/protected", "mv in/protected in/p", "ln in/protected in/p", "ln -f in/sub in/protected",
                "echo x >in/keep/new", "rm in/keep/q", "rm -rf in/keep", "mv in/keep in/k", "mv in in2", "mv -T in/sub in/keep", "chmod 600 in/protected",
                "truncate -s 0 in/keep/q", "echo x >/proc/self/root$PWD/in/keep/q", "cd in/keep && echo x >q", "touch in/keep/q",
                "perl -e 'rename(\"in\", \"elsewhere\") or exit 1'",
                "perl -e 'exit(syscall(316, -100, \"in\", -100, \"out\", 2) == 0 ? 0 : 1)'",
            ]);
            assert_eq!(scene.sh("cat in/protected in/keep/q").run().text(), "p\nq\n");
            scene.effigy(&["discard", "c"]).run().must_succeed();
        }
        scene.tree().must_equal(&before, Times::OfAll, "after the attempts", "before");
    }

    fn what_may_not_be_read_is_read_under_no_name(scene: &Scene) {
        scene.sh(SETUP).run().must_succeed();
        let done = refused(scene, &["--deny-read", "secret", "--deny-read", "key"], &[
            "cat key", "cat secret/f", "cat /proc/self/root$PWD/key", "ln -s ../key in/k && cat in/k", "cp key in/copy", "ln key in/k2", "mv secret in/s && cat in/s/f",
            "cd secret && cat f", "dd if=key", "exec 3<key", "chmod 644 key", "rm key", "mv ../work ../w && cat ../w/key", "echo x >key", "test -s key",
        ]);
        assert!(!done.stderr.contains("\nk\n") && !done.stderr.contains("\ns\n"), "{done}");
    }

    fn namespaces_of_its_own_open_nothing(scene: &Scene) {
        if !has(scene, "unshare") {
            return;
        }
        scene.sh(SETUP).run().must_succeed();
        for options in [&[][..], &["--root"], &["--no-trace"]] {
            let options = [&CONFINED[..], options].concat();
            refused(scene, &options, &[
                "umount key", "umount -l in/keep", "mount -o remount,rw,bind $PWD/in/keep", "mount --bind / in && cat in$PWD/key",
                "unshare -Urm sh -c 'umount $PWD/key'", "unshare -Urm sh -c 'umount -l $PWD/secret'", "unshare -Urm sh -c 'mount -o remount,rw,bind $PWD/in/keep && echo x >in/keep/x'",
                "unshare -Urm sh -c 'mount --bind $PWD in && cat in/key'", "unshare -Urm sh -c 'mount --rbind / in && cat in$PWD/key'",
                "unshare -Urm sh -c 'mount -o remount,rw,bind / && echo x >out/f'", "unshare -Urm sh -c 'cat key'", "unshare -Urm sh -c 'echo x >out/f'",
                "cat /proc/1/root$PWD/key", "echo x >/proc/1/root$PWD/out/f",
            ]);
            scene.effigy(&["discard", "c"]).run().must_succeed();
        }
    }

    fn what_git_executes_is_protected(scene: &Scene) {
        if !has(scene, "git") {
            return;
        }
        scene.sh("git init -q repo; cd repo; git config user.email a@b; git config user.name n; mkdir sub; echo 1 >f").run().must_succeed();
        let script = "cd ..; echo x >.git/hooks/post-commit; git config core.hooksPath /tmp; echo x >>.git/config; mv .git g; mv .git/hooks .git/h; rm -rf .git/hooks; git add f && git commit -qm one && git log --oneline | wc -l";
        let job = scene.effigy(&["run", "-q", "-n", "-s", "g", "--protect-git", "--", "sh", "-c", script]).dir(scene.work().join("repo/sub"));
        assert_eq!(job.run().must_succeed().text().trim(), "1");
        assert!(!scene.summary("g").iter().any(|line| line.contains("/.git/hooks") || line.contains("/.git/config")));
        scene.effigy(&["run", "-n", "--protect-git", "--", "true"]).run().must_exit(125).must_say(&["--protect-git", "--optional"]);
        scene.effigy(&["run", "-n", "--protect-git", "--optional", "--", "true"]).run().must_succeed();
        // A worktree's hooks are the repository's.
        scene.sh("cd repo; git add f; git commit -qm one; git worktree add -q ../tree").run().must_succeed();
        let script = "echo x >../repo/.git/hooks/post-commit; echo x >>../repo/.git/config; echo x >.git; exit 0";
        let job = scene.effigy(&["run", "-q", "-n", "-s", "w", "--protect-git", "--", "sh", "-c", script]).dir(scene.work().join("tree"));
        job.run().must_succeed();
        assert_eq!(scene.summary("w"), Vec::<String>::new());
    }

    fn the_confinement_is_kept_with_the_session_and_explained(scene: &Scene) {
        scene.sh(SETUP).run().must_succeed();
        let job = scene.effigy(&["run", "-n", "-s", "c"]).args(&CONFINED).args(&["--", "sh", "-c", "echo x >out/f; echo y >in/y"]);
        job.run().must_succeed().must_say(&["out/f could not be changed: the confinement"]);
        let shown = scene.effigy(&["show", "c"]).run().must_succeed().text();
        let work = scene.work().display().to_string();
        assert!(shown.contains(&format!("confined  --write {work}/in --deny-read {work}/key")), "{shown}");
        let json = scene.effigy(&["show", "c", "--json"]).run().must_succeed().text();
        assert!(json.contains(&format!(r#""confined":["--write","{work}/in""#)), "{json}");
    }

    fn paths_must_exist_and_globs_are_said(scene: &Scene) {
        scene.sh("mkdir k; echo 1 >k/a.pem; echo 2 >k/b.pem; echo 3 >k/c").run().must_succeed();
        for option in ["--write", "--protect", "--deny-read"] {
            scene.effigy(&["run", "-n", option, "nothing", "--", "true"]).run().must_exit(125).must_say(&["nothing", option, "--optional"]);
            scene.effigy(&["run", "-n", option, "*.none", "--", "true"]).run().must_exit(125).must_say(&["*.none"]);
        }
        scene.effigy(&["run", "-n", "--optional", "--protect", "nothing", "--deny-read", "*.none", "--", "true"]).run().must_succeed();
        let said = scene.effigy(&["run", "-n", "--deny-read", "**/*.pem", "--", "sh", "-c", "cat k/* 2>/dev/null"]).run();
        assert_eq!(said.text(), "3\n");
        said.must_say(&["--deny-read **/*.pem: 2 paths now"]);
        scene.effigy(&["run", "-n", "--deny-read", ".", "--", "true"]).run().must_exit(125);
    }
}
