//! What is written outside the working directory is held back and listed like any other.

use std::path::{Path, PathBuf};

use crate::harness::{NOBODY, Scene, Who, as_everyone, is_root, skip};

/// A name in a directory of the machine's own that goes when the test ends.
struct Borrowed(PathBuf);

impl Borrowed {
    fn in_dir(scene: &Scene, dir: &str) -> Self {
        let name = scene
            .dir()
            .file_name()
            .expect("a name")
            .to_str()
            .expect("UTF-8")
            .to_owned();
        Self(Path::new(dir).join(format!("held-back.{name}")))
    }

    fn show(&self) -> String {
        self.0.display().to_string()
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        let _absent = std::fs::remove_dir_all(&self.0);
        let _absent = std::fs::remove_file(&self.0);
    }
}

as_everyone! {
    fn writes_to_home_and_cache(scene: &Scene) {
        scene.run_script("s", "mkdir -p $HOME/.cache/app ~/.config; echo c >$HOME/.cache/app/c; echo p >>~/.profile").run().must_succeed();
        assert_eq!(scene.sh("ls -A ~").run().text(), "", "written through");
        assert_eq!(
            scene.summary("s"),
            ["A @/area/home/.cache", "A @/area/home/.cache/app", "A @/area/home/.cache/app/c", "A @/area/home/.config", "A @/area/home/.profile"]
        );
        scene.commit("s");
        assert_eq!(scene.sh("cat ~/.cache/app/c ~/.profile").run().text(), "c\np\n");
    }

    fn writes_to_directories_for_everyone(scene: &Scene) {
        for (name, dir) in [("vartmp", "/var/tmp"), ("tmp", "/tmp"), ("lock", "/run/lock")] {
            let open = scene.bare(&["test", "-w", dir, "-a", "-d", dir]).run().status == 0;
            if !open {
                skip(&format!("{dir} is not there or not open to this user"));
                continue;
            }
            let borrowed = Borrowed::in_dir(scene, dir);
            let path = borrowed.show();
            scene.run_script(name, &format!("mkdir {path}; echo x >{path}/f; cat {path}/f")).run().must_succeed();
            assert!(!borrowed.0.exists(), "{path} was written through");
            let listed = scene.effigy(&["summary", name]).run().must_succeed().text();
            let real = std::fs::canonicalize(dir).expect("a path").join(borrowed.0.file_name().expect("a name"));
            assert_eq!(listed, format!("A {0}\nA {0}/f\n", real.display()));
            scene.commit(name);
            assert_eq!(std::fs::read_to_string(borrowed.0.join("f")).expect("the file"), "x\n");
            scene.undo(name);
            assert!(!borrowed.0.exists(), "{path} is there after undo");
        }
    }

    fn another_filesystem_with_a_session_store_elsewhere(scene: &Scene) {
        if !is_root() {
            return skip("mounting needs root");
        }
        let scene = Scene::new(scene.who).with_mounts("mkdir area/work/m; mount -t tmpfs t area/work/m; mkdir area/work/m/d; echo old >area/work/m/d/f; echo g >area/work/m/g; chmod 777 area/work/m; chown -R --reference=area/work area/work/m");
        scene.run_script("s", "echo new >m/d/f; echo flat >flat; mkdir m/e; echo x >m/e/x; rm m/g; mv flat m/moved; echo stays >stays").run().must_succeed();
        assert_eq!(scene.sh("cat m/d/f m/g; ls; ls m").run().text(), "old\ng\nm\nd\ng\n", "written through");
        assert_eq!(
            scene.summary("s"),
            ["M @/area/work/m/d/f", "A @/area/work/m/e", "A @/area/work/m/e/x", "D @/area/work/m/g", "A @/area/work/m/moved", "A @/area/work/stays"]
        );
        scene.commit("s");
        assert_eq!(scene.sh("cat m/d/f m/e/x m/moved stays; ls m").run().text(), "new\nx\nflat\nstays\nd\ne\nmoved\n");
        scene.undo("s");
        assert_eq!(scene.sh("cat m/d/f m/g; ls; ls m").run().text(), "old\ng\nm\nd\ng\n", "after undo");
    }

    fn a_file_beside_a_mount(scene: &Scene) {
        if !is_root() {
            return skip("mounting needs root");
        }
        // The directory belongs to the user, and a mount lies in it: its own files are staged for an ordinary user.
        let scene = Scene::new(scene.who).with_mounts(
            "cd area/work; mkdir -p m d/in; mount -t tmpfs t m; echo deep >m/deep; echo flat >flat; echo gone >gone; mkfifo pipe; ln -s flat link; echo in >d/in/f; \
             touch -d 2020-01-01 flat; chmod 640 flat; chown -hR --reference=. .; mkdir foreign; echo r >foreign/r; chmod 700 foreign",
        );
        let done = scene.run_script("s", "cat m/deep flat link d/in/f; stat -c '%a %Y' flat; echo more >>flat; rm gone; echo x >>m/deep; echo new >new; rm d/in/f; rmdir d/in").run().must_succeed();
        assert_eq!(done.text(), "deep\nflat\nflat\nin\n640 1577836800\n");
        assert_eq!(scene.sh("cat m/deep flat gone d/in/f; ls").run().text(), "deep\nflat\ngone\nin\nd\nflat\nforeign\ngone\nlink\nm\npipe\n", "written through");
        assert_eq!(
            scene.summary("s"),
            ["D @/area/work/d/in", "D @/area/work/d/in/f", "M @/area/work/flat", "D @/area/work/gone", "M @/area/work/m/deep", "A @/area/work/new"]
        );
        scene.commit("s");
        assert_eq!(scene.sh("cat m/deep flat new; ls; ls d").run().text(), "deep\nx\nflat\nmore\nnew\nd\nflat\nforeign\nlink\nm\nnew\npipe\n");
    }

    fn a_foreign_directory_beside_a_mount_is_as_closed_as_outside(scene: &Scene) {
        if !is_root() || scene.is_root() {
            return skip("this is about an ordinary user, and mounting needs root");
        }
        let scene = Scene::new(scene.who).with_mounts(
            "cd area/work; mkdir -p m shut empty readable half/own; echo h >half/h; chown --reference=. half/own; mount -t tmpfs t m; echo s >shut/s; echo r >readable/r; chmod 700 shut; chmod 755 empty readable; chmod 711 half",
        );
        for script in ["ls shut", ": >shut/f", ": >empty/f", ": >readable/f"] {
            assert_ne!(scene.sh(script).run().status, 0, "{script} outside");
            assert_ne!(scene.run_script(script.split(' ').next_back().expect("a word").trim_start_matches('>'), script).run().status, 0, "{script} inside");
            scene.effigy(&["discard", "--all", "-y"]).run().must_succeed();
        }
        let done = scene.run_script("s", "cat readable/r half/h; stat -c '%a' shut; ls half 2>/dev/null || echo closed").run().must_succeed();
        assert_eq!(done.text(), scene.sh("cat readable/r half/h; stat -c '%a' shut; ls half 2>/dev/null || echo closed").run().text());
    }

    fn a_working_directory_in_shared_memory(scene: &Scene) {
        let open = scene.bare(&["test", "-w", "/dev/shm"]).run().status == 0;
        if !open {
            return skip("/dev/shm is not open to this user");
        }
        let borrowed = Borrowed::in_dir(scene, "/dev/shm");
        let path = borrowed.show();
        scene.sh(&format!("mkdir {path}; echo old >{path}/f")).run().must_succeed();
        scene.effigy(&["run", "-n", "-s", "s", "--", "sh", "-euc", "cat f; echo new >f; : >g"]).dir(&borrowed.0).run().must_succeed();
        assert_eq!(scene.sh(&format!("cd {path}; cat f; ls")).run().text(), "old\nf\n", "written through");
        assert_eq!(scene.effigy(&["summary", "s"]).run().text(), format!("M {path}/f\nA {path}/g\n"));
        scene.commit("s");
        assert_eq!(scene.sh(&format!("cd {path}; cat f; ls")).run().text(), "new\nf\ng\n");
    }
}

#[test]
fn a_directory_with_a_group_for_several_users() {
    if !is_root() {
        return skip("giving directories away needs root");
    }
    let scene = Scene::new(Who::User(NOBODY));
    let team = scene.dir().join("area/work/team/site/pages");
    std::fs::create_dir_all(&team).expect("directories");
    scene.sh("mkdir own").run().must_succeed();
    let open = std::process::Command::new("sh")
        .args(["-euc", "echo index >team/site/pages/index; chown -R 0:4242 team; chmod -R 777 team; chmod 666 team/site/pages/index"])
        .current_dir(scene.work())
        .status()
        .expect("sh");
    assert!(open.success());
    let site = scene.work().join("team/site");
    scene
        .effigy(&[
            "run",
            "-n",
            "-s",
            "s",
            "--",
            "sh",
            "-euc",
            ": >new; : >pages/new; mkdir pages/dir",
        ])
        .dir(&site)
        .run()
        .must_succeed();
    assert_eq!(
        scene.summary("s"),
        [
            "A @/area/work/team/site/new",
            "A @/area/work/team/site/pages/dir",
            "A @/area/work/team/site/pages/new"
        ]
    );
    scene.commit("s");
    assert!(site.join("pages/dir").is_dir());
}
