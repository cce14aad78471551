//! Real programs.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::{Scene, as_everyone, has, is_root, skip};
use crate::trees::Times;

pub(crate) const DATES: &str = "export GIT_AUTHOR_DATE='2020-01-01T00:00:00Z' GIT_COMMITTER_DATE='2020-01-01T00:00:00Z' GIT_CONFIG_NOSYSTEM=1; ";
pub(crate) const SOURCE: &str = "cd ../home; git init -q -b main source; cd source; git config user.email a@b; git config user.name n; \
    for n in 1 2 3 4 5 6 7 8; do mkdir -p d$n/e; seq $n 500 >d$n/e/f; done; git add -A; git commit -qm one; git mv d1 d9; git rm -qr d2; \
    git commit -qm two; git tag v1; ln -s d3 link; chmod +x d4/e/f; git add -A; git commit -qm three";

as_everyone! {
    fn git_clone_and_work_in_it(scene: &Scene) {
        if !has(scene, "git") {
            return;
        }
        scene.differential(
            &format!("{DATES}{SOURCE}"),
            &format!(
                "{DATES} git clone -q --no-hardlinks \"file://$HOME/source\" copy; cd copy; git config user.email a@b; git config user.name n; \
                 git checkout -q -b side; echo more >>d3/e/f; git rm -q d4/e/f; git commit -qam four; git gc -q; git status --porcelain"
            ),
            Times::Ignored,
            // The index holds times and inode numbers.
            &["work/copy/.git/index", "home/source/.git/index"],
        );
        scene.sh("cd copy && git fsck --strict && git status --porcelain").run().must_succeed();
    }

    fn git_clone_of_a_local_repository(scene: &Scene) {
        if !has(scene, "git") {
            return;
        }
        scene.sh(&format!("{DATES}{SOURCE}")).run().must_succeed();
        scene.effigy(&["run", "-n", "-s", "s", "--", "git", "clone", "-q"]).arg(scene.home().join("source")).arg("copy").run().must_succeed();
        assert!(!scene.work().join("copy").exists(), "written through");
        scene.commit("s");
        let done = scene.sh("cd copy && git fsck --strict && git status --porcelain && git log --format=%s").run().must_succeed();
        assert_eq!(done.text(), "three\ntwo\none\n");
        scene.sh("cd ../home/source && git fsck --strict && git status --porcelain").run().must_succeed();
    }

    fn git_begins_rebases_and_makes_worktrees(scene: &Scene) {
        if !has(scene, "git") {
            return;
        }
        scene.differential(
            &format!("{DATES}{SOURCE}"),
            &format!(
                "{DATES} git init -q -b main new; cd new; git config user.email a@b; git config user.name n; seq 100 >f; git add f; git commit -qm one; \
                 git checkout -qb side; sed -i s/1/one/ f; git commit -qam side; git checkout -q main; mkdir d; git mv f d/f; git commit -qm moved; git rebase -q main side; \
                 git worktree add -q ../tree main; echo x >../tree/x; git -C ../tree add x; git -C ../tree commit -qm tree; git gc -q --prune=now; git tag -a -m m v1; \
                 cd ../../home/source; git stash -q; git rebase -q --root; git worktree add -q ../other HEAD~1; git repack -qad; git pack-refs --all; git worktree remove ../other"
            ),
            Times::Ignored,
            // Indexes hold times and inode numbers.
            &["**/index"],
        );
    }

    fn rsync_makes_trees_alike(scene: &Scene) {
        if !has(scene, "rsync") {
            return;
        }
        scene.differential(
            "mkdir -p src/d/e there/d/gone; seq 100 >src/f; ln src/f src/g; ln -s f src/s; mkfifo src/p; truncate -s 1M src/holes; seq 9 >src/d/e/h; touch -h -d 2001-02-03 src/f src/s src/p src/d/e/h; \
             echo old >there/f; seq 50 >there/d/gone/x; cp -a src/d/e/h there/d/h; cp -dpR --no-preserve=links src again; echo differs >>again/f",
            "rsync -aHS --delete src/ there; rsync -a --inplace src/ again; test $(id -u) != 0 || rsync -aS --link-dest=../src --no-links --no-specials src/ linked; rsync -aH --remove-source-files src/d/ moved",
            Times::OfFiles,
            &[],
        );
    }

    fn a_python_test_suite_leaves_caches(scene: &Scene) {
        if !has(scene, "python3") {
            return;
        }
        scene.differential(
            "mkdir -p pkg/sub tests; for m in pkg/__init__ pkg/a pkg/b pkg/sub/__init__ pkg/sub/c; do printf 'import json, tempfile, logging\\nX = 6\\n' >$m.py; done; : >tests/__init__.py; \
             printf 'import unittest, pkg.a, pkg.b, pkg.sub.c, tempfile, pathlib, sqlite3\\nclass T(unittest.TestCase):\\n    def test_x(self): self.assertEqual(pkg.a.X * 7, 42)\\n    def test_t(self):\\n        with tempfile.TemporaryDirectory(dir=\".\") as d: pathlib.Path(d, \"f\").write_text(\"x\")\\n    def test_d(self):\\n        with sqlite3.connect(\"cache.db\") as c: c.execute(\"create table if not exists t(x)\"); c.execute(\"insert into t values (1)\")\\n' >tests/test_all.py; \
             find . -name '*.py' -exec touch -d 2020-01-01 {} +",
            "python3 -m unittest -q; python3 -m compileall -q pkg; python3 -m unittest -q; test -d pkg/sub/__pycache__",
            Times::Ignored,
            &[],
        );
    }

    fn tar_unpacks(scene: &Scene) {
        scene.differential(
            "mkdir -p src/d/e; seq 1000 >src/f; ln src/f src/hard; ln -s f src/soft; mkfifo src/pipe; truncate -s 2M src/holes; \
             for n in $(seq 200); do echo $n >src/d/e/$n; done; chmod 4750 src/f; chmod 500 src/d; touch -d '2001-02-03 04:05:06.7' src/d/e/1; \
             tar cSf t.tar src; chmod 700 src/d; rm -r src; mkdir -p src/d; echo old >src/f; echo stays >src/d/stays",
            "tar xpSf t.tar; mkdir again; tar xf t.tar -C again --strip-components=1",
            Times::OfFiles,
            &[],
        );
    }

    fn cp_copies_whole_trees(scene: &Scene) {
        scene.differential(
            "mkdir -p src/d; seq 100 >src/f; ln src/f src/g; ln -s f src/s; mkfifo src/p; chmod 4711 src/f; chmod 1777 src/d; \
             setfattr -n user.a -v b src/f 2>/dev/null || :; mkdir -p there/d; echo old >there/s",
            "cp -a src copy; cp -a src/. there",
            Times::OfFiles,
            &[],
        );
    }

    fn copies_with_hard_links_over_what_is_there(scene: &Scene) {
        scene.differential(
            "mkdir -p src there; echo 1 >src/f; ln src/f src/g; echo old >there/f; echo h >src/h; ln src/h src/i; echo old >there/h; echo old >there/i; \
             tar cf t.tar src; echo changed >src/f",
            "cp -a src/. there; tar xf t.tar",
            Times::Ignored,
            &[],
        );
    }

    fn pip_installs_into_a_virtual_environment(scene: &Scene) {
        if !has(scene, "python3") {
            return;
        }
        if scene.bare(&["python3", "-c", "import venv, ensurepip"]).run().status != 0 {
            return skip("this Python has no venv with ensurepip");
        }
        let wheel = "import zipfile; z = zipfile.ZipFile('tiny-1.0-py3-none-any.whl', 'w'); \
            z.writestr('tiny/__init__.py', 'def main():\\n    print(\\'tiny\\')\\n'); \
            z.writestr('tiny-1.0.dist-info/METADATA', 'Metadata-Version: 2.1\\nName: tiny\\nVersion: 1.0\\n'); \
            z.writestr('tiny-1.0.dist-info/WHEEL', 'Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n'); \
            z.writestr('tiny-1.0.dist-info/entry_points.txt', '[console_scripts]\\ntiny = tiny:main\\n'); \
            z.writestr('tiny-1.0.dist-info/RECORD', 'tiny/__init__.py,,\\ntiny-1.0.dist-info/METADATA,,\\ntiny-1.0.dist-info/WHEEL,,\\ntiny-1.0.dist-info/entry_points.txt,,\\ntiny-1.0.dist-info/RECORD,,\\n')";
        scene.differential(
            &format!("cd ../home; python3 -c \"{wheel}\""),
            "export PYTHONDONTWRITEBYTECODE=1 PIP_DISABLE_PIP_VERSION_CHECK=1; python3 -m venv env; \
             env/bin/pip install -q --no-index --no-compile ../home/tiny-1.0-py3-none-any.whl; test \"$(env/bin/tiny)\" = tiny",
            Times::Ignored,
            // Compiled modules hold times.
            &["**/__pycache__", "home/.cache"],
        );
        assert_eq!(scene.bare(&["env/bin/tiny"]).run().must_succeed().text(), "tiny\n");
    }

    fn npm_installs_a_package(scene: &Scene) {
        if !has(scene, "npm") {
            return;
        }
        scene.differential(
            "mkdir ../home/tiny; cd ../home/tiny; echo '{\"name\":\"tiny\",\"version\":\"1.0.0\",\"bin\":{\"tiny\":\"cli.js\"}}' >package.json; \
             printf '#!/usr/bin/env node\\nconsole.log(\"tiny\")\\n' >cli.js; chmod 755 cli.js; cd ..; tar czf tiny.tgz --transform s,^tiny,package, tiny; \
             cd ../work; echo '{\"name\":\"app\",\"version\":\"1.0.0\"}' >package.json",
            "npm install --offline --no-audit --no-fund --no-update-notifier --loglevel=error ../home/tiny.tgz; test \"$(node_modules/.bin/tiny)\" = tiny",
            Times::Ignored,
            // Its cache and logs are named and filled by the time of day.
            &["home/.npm"],
        );
        assert_eq!(scene.bare(&["node_modules/.bin/tiny"]).run().must_succeed().text(), "tiny\n");
    }

    fn cargo_builds_a_crate(scene: &Scene) {
        let Some(toolchain) = toolchain() else {
            return skip("there is no Rust toolchain");
        };
        if scene.bare(&["sh", "-c", "command -v cc"]).run().status != 0 {
            return skip("there is no cc to link with");
        }
        let Some(within) = reach(scene, &toolchain) else {
            return skip("the toolchain lies where this user cannot reach it, and it cannot be mounted elsewhere");
        };
        let setup = "mkdir src; printf '[package]\\nname = \"tiny\"\\nversion = \"0.1.0\"\\nedition = \"2021\"\\n' >Cargo.toml; \
            echo 'fn main() { println!(\"{}\", tiny::word()) }' >src/main.rs; echo 'pub fn word() -> &str { \"tiny\" }' >src/lib.rs; \
            sed -i 's/-> &str/-> \\&'\"'\"'static str/' src/lib.rs";
        let build = "export CARGO_HOME=$HOME/.cargo CARGO_INCREMENTAL=0 RUSTUP_TOOLCHAIN=; cargo build -q --offline; test \"$(target/debug/tiny)\" = tiny";
        within.differential(setup, &format!("PATH={}/bin:$PATH; {build}", within.toolchain_dir().display()), Times::Ignored, &["home/.cargo", "work/target/.rustc_info.json"]);
    }
}

/// The toolchain with which these tests are built.
pub(crate) fn toolchain() -> Option<PathBuf> {
    let found = Command::new("rustc")
        .args(["--print", "sysroot"])
        .output()
        .ok()?;
    let path = PathBuf::from(String::from_utf8(found.stdout).ok()?.trim_end());
    path.join("bin/cargo").exists().then_some(path)
}

/// A scene in which the toolchain can be reached: the same, or one where it is mounted at another place.
pub(crate) fn reach(scene: &Scene, toolchain: &Path) -> Option<Scene> {
    let reached = scene
        .bare(&["test", "-x"])
        .arg(toolchain.join("bin/cargo"))
        .run()
        .status
        == 0;
    if reached || !is_root() {
        return reached.then(|| Scene::new(scene.who).with_toolchain(toolchain, false));
    }
    let mounted = Scene::new(scene.who).with_toolchain(toolchain, true);
    let can = mounted
        .bare(&["test", "-x"])
        .arg(mounted.toolchain_dir().join("bin/cargo"))
        .run()
        .status
        == 0;
    can.then_some(mounted)
}

/// A package of a distribution is installed, listed and thrown away: nothing of the machine's own may change in a test.
#[test]
fn dpkg_installs_a_package_as_root() {
    crate::harness::as_root(|scene| {
        if !has(scene, "dpkg-deb") {
            return;
        }
        let name = "effigy-test-package";
        scene.sh(&format!(
            "mkdir -p p/DEBIAN p/usr/share/{name}; printf 'Package: {name}\\nVersion: 1\\nArchitecture: all\\nMaintainer: n <a@b>\\nDescription: d\\n' >p/DEBIAN/control; \
             printf '#!/bin/sh\\necho configured >/var/lib/{name}\\n' >p/DEBIAN/postinst; chmod 755 p/DEBIAN/postinst; echo data >p/usr/share/{name}/data; dpkg-deb -b p p.deb"
        ))
        .run()
        .must_succeed();
        let status = |scene: &Scene| {
            scene
                .bare(&["sha256sum", "/var/lib/dpkg/status"])
                .run()
                .must_succeed()
                .text()
        };
        let before = status(scene);
        scene
            .run_script(
                "s",
                &format!("dpkg -i p.deb >&2; dpkg -s {name} >&2; cat /var/lib/{name}"),
            )
            .run()
            .must_succeed();
        assert_eq!(status(scene), before, "the real package list has changed");
        let listed = scene.summary("s");
        for expected in [
            format!("A /usr/share/{name}/data"),
            format!("A /var/lib/{name}"),
            "M /var/lib/dpkg/status".to_owned(),
        ] {
            assert!(
                listed.contains(&expected),
                "{expected} is not among {listed:?}"
            );
        }
        scene.effigy(&["discard", "s"]).run().must_succeed();
        assert!(!Path::new("/usr/share").join(name).exists());
    });
}

#[test]
fn su_to_another_user_as_root() {
    crate::harness::as_root(|scene| {
        if !has(scene, "su") {
            return;
        }
        let place = scene.make_dir("area/work/open");
        scene
            .bare(&["chmod", "777"])
            .arg(&place)
            .run()
            .must_succeed();
        let done = scene
            .effigy(&[
                "run",
                "-n",
                "-s",
                "s",
                "--",
                "su",
                "-s",
                "/bin/sh",
                "nobody",
                "-c",
                "id -un; echo mine >open/f; stat -c %U open/f",
            ])
            .run()
            .must_succeed();
        assert_eq!(done.text(), "nobody\nnobody\n");
        assert!(!place.join("f").exists(), "written through");
        scene.commit("s");
        assert_eq!(
            scene
                .bare(&["stat", "-c", "%U"])
                .arg(place.join("f"))
                .run()
                .text(),
            "nobody\n"
        );
    });
}
