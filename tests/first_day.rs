//! What people try on the first day: it says and answers inside what it does outside, or effigy explains in one plain line why not.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;

use crate::harness::{Done, Scene, as_everyone, has, skip};
use crate::programs::{DATES, SOURCE, reach, toolchain};

/// Runs the script inside and, as that has changed nothing, outside. Both must succeed and say the same.
#[track_caller]
fn alike(scene: &Scene, setup: &str, script: &str) {
    ends_alike(scene, setup, script).must_succeed();
}

/// Like `alike`, where it may also fail, in the same way.
#[track_caller]
fn ends_alike(scene: &Scene, setup: &str, script: &str) -> Done {
    scene.sh(setup).run().must_succeed();
    let inside = inside(scene, script, true);
    let outside = scene.sh(script).run();
    assert_eq!(
        (inside.status, shown(&inside)),
        (outside.status, shown(&outside)),
        "inside against outside: {script}"
    );
    inside
}

fn inside(scene: &Scene, script: &str, quiet: bool) -> Done {
    let options: &[&str] = if quiet { &["-q"] } else { &[] };
    let job = scene.effigy(&["run", "-n"]).args(options);
    job.args(&["--", "sh", "-euc", script]).run()
}

fn shown(done: &Done) -> String {
    format!(
        "{}\n--\n{}",
        done.stdout.escape_ascii().to_string().replace("\\n", "\n"),
        done.stderr
    )
}

/// The script fails inside, and effigy says why in one line that has these words in it.
#[track_caller]
fn explained(scene: &Scene, setup: &str, script: &str, words: &[&str]) {
    scene.sh(setup).run().must_succeed();
    let done = inside(scene, script, false);
    assert_ne!(done.status, 0, "{done}");
    let said =
        |line: &&str| line.starts_with("effigy: ") && words.iter().all(|word| line.contains(word));
    assert_eq!(
        done.stderr.lines().filter(said).count(),
        1,
        "no line about {words:?}: {done}"
    );
}

/// A build backend of its own, so that nothing is fetched.
const PROJECT: &str =
    "[build-system]\nrequires = []\nbuild-backend = 'backend'\nbackend-path = ['.']\n";
const BACKEND: &str = r#"
import os, zipfile
def build_editable(directory, *_, **__):
    name, info = "tiny-1-py3-none-any.whl", "tiny-1.dist-info/"
    with zipfile.ZipFile(os.path.join(directory, name), "w") as wheel:
        wheel.writestr("tiny.pth", os.getcwd())
        wheel.writestr(info + "METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1\n")
        wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(info + "RECORD", f"tiny.pth,,\n{info}METADATA,,\n{info}WHEEL,,\n{info}RECORD,,\n")
    return name
build_wheel = build_editable
"#;

as_everyone! {
    fn ssh_reads_its_configuration_and_keys(scene: &Scene) {
        if !has(scene, "ssh") || !has(scene, "ssh-keygen") {
            return;
        }
        ends_alike(
            scene,
            "mkdir -m 700 ../home/.ssh; printf 'Host e\\n  Port 2222\\n' >../home/.ssh/config; ssh-keygen -q -t ed25519 -N '' -f ../home/.ssh/k || :; cp /etc/passwd ../home/.ssh/open; chmod 644 ../home/.ssh/open",
            "ssh -G -F ../home/.ssh/config e; ssh-keygen -y -f ../home/.ssh/k; ssh-keygen -y -f ../home/.ssh/open",
        );
    }

    fn git_clones_rebases_and_makes_worktrees(scene: &Scene) {
        if !has(scene, "git") {
            return;
        }
        alike(
            scene,
            &format!("{DATES}{SOURCE}"),
            &format!(
                "{DATES} exec 2>&1; git clone ../home/source copy; cd copy; git config user.email a@b; git config user.name n; \
                 git checkout -b side HEAD~1; echo more >>d3/e/f; git commit -qam side; git rebase main; git worktree add -q ../tree main~1; \
                 echo 1 >../tree/new; git -C ../tree add new; git -C ../tree stash; git worktree list | sed 's/ .*//'; git log --format=%H --all; git status; git fsck"
            ),
        );
    }

    fn files_that_are_there_get_further_names(scene: &Scene) {
        let (setup, script) = ("mkdir d; echo 1 >f; echo 2 >d/g", "ln f h; cp -al d e; ls -R; cat h e/g; stat -c %h f");
        if scene.is_root() {
            alike(scene, setup, script);
        } else {
            explained(scene, setup, script, &["work/f", "hard links"]);
        }
    }

    fn npm_installs_what_is_locked(scene: &Scene) {
        if !has(scene, "npm") {
            return;
        }
        alike(
            scene,
            "mkdir dep; echo '{\"name\":\"dep\",\"version\":\"1.0.0\"}' >dep/package.json; echo '{\"name\":\"app\",\"version\":\"1.0.0\",\"dependencies\":{\"dep\":\"file:dep\"}}' >package.json; \
             npm install --offline --no-audit --no-fund --no-update-notifier >/dev/null; rm -r node_modules",
            "npm ci --offline --no-audit --no-fund --no-update-notifier | sed 's/ in .*//'; ls node_modules; node -e 'console.log(require.resolve(\"dep/package.json\"))'",
        );
    }

    fn pip_installs_what_is_being_worked_on(scene: &Scene) {
        if !has(scene, "python3") {
            return;
        }
        if scene.bare(&["python3", "-c", "import venv, ensurepip"]).run().status != 0 {
            return skip("this Python has no venv with ensurepip");
        }
        alike(
            scene,
            &format!(
                "mkdir -p pkg/tiny; echo 'def main(): print(6 * 7)' >pkg/tiny/__init__.py; cat >pkg/pyproject.toml <<'E'\n{PROJECT}E\ncat >pkg/backend.py <<'E'\n{BACKEND}E\n\
                 python3 -m venv env"
            ),
            "export PIP_DISABLE_PIP_VERSION_CHECK=1; env/bin/pip install -q --no-index -e pkg; here=$PWD; cd /; \"$here/env/bin/python\" -c 'import tiny; tiny.main()'; \"$here/env/bin/pip\" list --format=freeze | grep tiny==",
        );
    }

    fn cargo_tests_a_crate(scene: &Scene) {
        let Some(toolchain) = toolchain() else {
            return skip("there is no Rust toolchain");
        };
        if !has(scene, "cc") {
            return;
        }
        let Some(within) = reach(scene, &toolchain) else {
            return skip("the toolchain lies where this user cannot reach it, and it cannot be mounted elsewhere");
        };
        alike(
            &within,
            "mkdir src; printf '[package]\\nname = \"tiny\"\\nversion = \"0.1.0\"\\nedition = \"2021\"\\n' >Cargo.toml; echo '#[test] fn holds() { assert_eq!(6 * 7, 42) }' >src/lib.rs",
            &format!("PATH={}/bin:$PATH CARGO_HOME=$HOME/.cargo RUSTUP_TOOLCHAIN=; export PATH CARGO_HOME RUSTUP_TOOLCHAIN; cargo test -q --offline --lib 2>&1 | sed 's/finished in .*//'", within.toolchain_dir().display()),
        );
    }

    fn make_runs_jobs_at_once(scene: &Scene) {
        if !has(scene, "make") {
            return;
        }
        alike(
            scene,
            "printf 'all: a b c d e f g h\\n%%:\\n\\t@sleep 0.01; echo $@ >$@; mkdir -p dir; mv $@ dir/$@\\n' >Makefile",
            "make -j8 -s; ls dir; cat dir/a",
        );
    }

    fn docker_is_refused_with_the_reason(scene: &Scene) {
        if !has(scene, "docker") {
            return;
        }
        let socket = scene.area().join("docker.sock");
        let listener = UnixListener::bind(&socket).expect("a socket");
        fs::set_permissions(&socket, fs::Permissions::from_mode(0o777)).expect("open to the user");
        explained(scene, ":", &format!("DOCKER_HOST=unix://{} docker ps", socket.display()), &["docker.sock", "not reachable"]);
        drop(listener);
    }

    fn python_works_in_several_processes(scene: &Scene) {
        if !has(scene, "python3") {
            return;
        }
        alike(
            scene,
            "printf 'import multiprocessing, tempfile\\ndef f(n):\\n    with tempfile.NamedTemporaryFile(dir=\".\") as t: t.write(b\"x\" * n); t.flush(); return n * n\\nif __name__ == \"__main__\":\\n    with multiprocessing.Pool(4) as p: print(sum(p.map(f, range(200))))\\n    q = multiprocessing.Queue(); p = multiprocessing.Process(target=q.put, args=(5,)); p.start(); print(q.get()); p.join()\\n' >p.py",
            "python3 -B p.py; ls",
        );
    }

    fn node_watches_files(scene: &Scene) {
        if !has(scene, "node") {
            return;
        }
        let watch = "const fs = require('fs'); const seen = new Set(); fs.mkdirSync('d'); const w = fs.watch('d', (what, name) => { seen.add(name); if (seen.size == 2) { w.close(); console.log([...seen].sort()); } }); \
            const v = fs.watch('old', () => { v.close(); console.log('changed'); fs.writeFileSync('d/a', '1'); fs.renameSync('d/a', 'd/b'); }); fs.appendFileSync('old', 'more')";
        alike(scene, "echo 1 >old", &format!("node -e \"{watch}\""));
    }

    fn vim_saves_a_file(scene: &Scene) {
        if !has(scene, "vim") {
            return;
        }
        for options in ["", "set backup backupcopy=yes | ", "set backupcopy=no writebackup | ", "set undofile undodir=. | "] {
            alike(scene, "rm -rf f *~ .f* %*; echo one >f; chmod 640 f; ln -sf f link", &format!("TERM=dumb vim -Nu NONE -es +'{options}s/one/two/' +x f </dev/null; cat f; stat -c '%a %U' f; ls -A; TERM=dumb vim -Nu NONE -es +'s/two/three/' +x link; cat f link"));
        }
    }

    fn sqlite_keeps_a_write_ahead_log(scene: &Scene) {
        if !has(scene, "sqlite3") {
            return;
        }
        alike(
            scene,
            "sqlite3 old.db 'pragma journal_mode=wal; create table t(x); insert into t values(1)'",
            "sqlite3 old.db 'insert into t values(2); select sum(x) from t'; sqlite3 new.db 'pragma journal_mode=wal; create table t(x)'; \
             for i in 1 2 3 4; do (for j in 1 2 3 4 5; do sqlite3 -cmd '.timeout 20000' new.db \"insert into t values($i)\"; done) & done; wait; sqlite3 new.db 'select count(*), sum(x) from t; pragma integrity_check'; ls",
        );
    }

    fn a_database_server_is_started_and_asked(scene: &Scene) {
        let bin = "PATH=$PATH:$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | head -n1)";
        if scene.sh(&format!("{bin}; command -v initdb && command -v psql")).run().status != 0 {
            return skip("PostgreSQL is not installed");
        }
        // For a user without a name, and for root, it says that it will not: inside as outside.
        let done = ends_alike(
            scene,
            ":",
            &format!(
                "{bin}; initdb -N -A trust -D data >init.log || exit 9; pg_ctl -s -w -D data -o \"-k $PWD -c listen_addresses= -c fsync=off\" -l log start; \
                 psql -h \"$PWD\" -d postgres -At -c 'create table t as select generate_series(1,1000) x' -c 'select sum(x) from t'; pg_ctl -s -w -D data -m fast stop; ls data | wc -l"
            ),
        );
        assert!(scene.uid() != crate::harness::NOBODY || done.text().starts_with("SELECT 1000\n500500\n"), "{done}");
    }

    fn tar_keeps_owners_as_far_as_it_may(scene: &Scene) {
        alike(
            scene,
            "mkdir src; echo 1 >src/f; tar --owner=1234 --group=4321 --numeric-owner -cf t.tar src; tar --owner=root --group=root -cf r.tar src; rm -r src",
            "tar xf t.tar; stat -c '%u %g %a' src/f; tar xpf r.tar; stat -c '%u %g %a' src/f; tar tvf t.tar --numeric-owner | cut -c1-20",
        );
    }

    fn crontab_lists(scene: &Scene) {
        if !has(scene, "crontab") {
            return;
        }
        let outside = scene.sh("crontab -l").run();
        let inside = inside(scene, "crontab -l", false);
        if (inside.status, &inside.stdout) != (outside.status, &outside.stdout) || !inside.stderr.starts_with(&outside.stderr) {
            let explained = inside.stderr.lines().any(|line| line.starts_with("effigy: ") && line.contains("crontab"));
            assert!(explained, "inside {inside}\noutside {outside}");
        }
    }

    fn gpg_lists_keys(scene: &Scene) {
        if !has(scene, "gpg") {
            return;
        }
        // A home of its own with a short name: sockets have short paths.
        alike(scene, "mkdir -m 700 ../home/g", "cd ../home; GNUPGHOME=$PWD/g gpg --batch --no-autostart --list-keys; ls g; GNUPGHOME=$PWD/g gpg --batch --no-autostart --list-keys");
    }

    fn systemctl_asks_in_vain_as_outside(scene: &Scene) {
        if !has(scene, "systemctl") {
            return;
        }
        let outside = scene.sh("systemctl status --no-pager").run();
        let inside = inside(scene, "systemctl status --no-pager", false);
        if outside.status == 0 {
            assert!(inside.stderr.lines().any(|line| line.starts_with("effigy: ") && line.contains("socket")), "{inside}");
        } else {
            assert_eq!((inside.status, &inside.stdout), (outside.status, &outside.stdout), "{inside}");
        }
    }

    fn a_server_and_its_client_inside(scene: &Scene) {
        if !has(scene, "python3") {
            return;
        }
        let talk = "import http.server, threading, urllib.request as u; h = http.server.ThreadingHTTPServer((\"127.0.0.1\", 0), http.server.SimpleHTTPRequestHandler); \
            h.RequestHandlerClass.log_message = lambda *a: None; threading.Thread(target=h.serve_forever).start(); print(u.urlopen(f\"http://127.0.0.1:{h.server_port}/f\").read()); h.shutdown()";
        alike(scene, "echo served >f", &format!("python3 -c '{talk}'"));
    }

    fn a_pipeline_of_tools(scene: &Scene) {
        alike(
            scene,
            "for i in $(seq 200); do echo $i $((i * 7 % 13)); done >data; mkdir -p d/e; touch -d 2001-01-01 d/e/old",
            "sort -k2n data | uniq -f1 -c | awk '{ s += $1 } END { print s }'; find . -newer d/e/old -type f | sort; sed -i s/1/one/ data; head -n3 data; \
             split -l 50 data part.; cat part.* | cmp - data && echo same; gzip -k data; zcat data.gz | sha256sum; install -m 750 data d/installed; stat -c %a d/installed; \
             rsync -a d/ copy/ 2>&1; find copy | sort; xargs -n1 -P4 touch <<-E\n\tx1\n\tx2\n\tx3\n\tE\n ls",
        );
    }
}

/// Programs that take their rights from a set-user-id bit do not get them in an ordinary user's session.
#[test]
fn programs_that_become_root_are_told_why_they_do_not() {
    crate::harness::as_user(|scene| {
        for (program, script) in [
            ("sudo", "sudo -n true"),
            ("su", "su -c true root </dev/null"),
            ("passwd", "passwd -S root"),
        ] {
            if has(scene, program) {
                explained(scene, ":", script, &[program]);
            }
        }
        if has(scene, "ping") {
            let outside = scene.sh("ping -c1 -W1 127.0.0.1").run();
            let inside = inside(scene, "ping -c1 -W1 127.0.0.1", false);
            assert!(
                inside.status == outside.status || inside.stderr.contains("cap_net_raw"),
                "{inside}"
            );
        }
    });
}

#[test]
fn apt_installs_a_package_as_root() {
    crate::harness::as_root(|scene| {
        if !has(scene, "apt-get") || !has(scene, "dpkg-deb") {
            return;
        }
        let name = "effigy-test-apt-package";
        scene
            .sh(&format!(
                "mkdir -p p/DEBIAN p/usr/share/{name}; printf 'Package: {name}\\nVersion: 1\\nArchitecture: all\\nMaintainer: n <a@b>\\nDescription: d\\n' >p/DEBIAN/control; \
                 echo data >p/usr/share/{name}/data; dpkg-deb -b p p.deb"
            ))
            .run()
            .must_succeed();
        let script = format!(
            "export DEBIAN_FRONTEND=noninteractive; apt-get -qq install -y ./p.deb >&2; cat /usr/share/{name}/data; apt-get -qq purge -y {name} >&2; test ! -e /usr/share/{name}/data"
        );
        let done = scene.run_script("s", &script).run().must_succeed();
        assert_eq!(done.text(), "data\n");
        assert!(!done.stderr.contains("Permission denied"), "{done}");
        assert!(!std::path::Path::new("/usr/share").join(name).exists());
    });
}
