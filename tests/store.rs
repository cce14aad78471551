//! Where sessions are kept, and what happens where they cannot be.

use std::os::unix::fs::PermissionsExt as _;

use crate::harness::{NOBODY, Scene, Who, as_everyone, is_root, skip};

as_everyone! {
    fn the_default_place(scene: &Scene) {
        scene.effigy(&["run", "-n", "-s", "s", "--", "true"]).without_env("EFFIGY_STORE").run().must_succeed();
        let place = scene.home().join(".local/state/effigy");
        assert!(place.is_dir(), "no store in {}", place.display());
        let mode = std::fs::metadata(&place).expect("the store").permissions().mode() & 0o777;
        assert_eq!(mode, 0o700, "a store is closed to others: {mode:o}");
        let state = scene.make_dir("state");
        scene.effigy(&["run", "-n", "-s", "t", "--", "true"]).without_env("EFFIGY_STORE").env("XDG_STATE_HOME", &state).run().must_succeed();
        assert!(state.join("effigy").is_dir());
    }

    fn the_option_beats_the_variable(scene: &Scene) {
        let other = scene.dir().join("area/work/other");
        scene.effigy(&["run", "-n", "-s", "s", "--store"]).arg(&other).args(&["--", "sh", "-c", ": >f"]).run().must_succeed();
        assert!(other.is_dir());
        assert_eq!(scene.effigy(&["summary", "s", "--store"]).arg(&other).run().must_succeed().text().lines().count(), 1);
        assert_ne!(scene.effigy(&["summary", "s"]).run().status, 0);
    }

    fn a_store_given_by_a_relative_path(scene: &Scene) {
        scene.effigy(&["--store", "rel/store", "run", "-n", "-s", "s", "--", "sh", "-c", "ls; : >f"]).run().must_succeed();
        let done = scene.effigy(&["--store", "rel/store", "commit", "s", "-y"]).run().must_succeed();
        assert!(scene.work().join("f").exists(), "{done}");
    }

    fn a_store_with_an_odd_name(scene: &Scene) {
        let odd = scene.work().join("a b,c:d\\e=f\n");
        scene.effigy(&["run", "-n", "-s", "s", "--store"]).arg(&odd).args(&["--", "sh", "-c", ": >f"]).run().must_succeed();
        scene.effigy(&["commit", "s", "-y", "--store"]).arg(&odd).run().must_succeed();
        assert!(scene.work().join("f").exists());
    }

    fn a_store_in_the_working_directory_is_not_seen_inside(scene: &Scene) {
        let within = scene.work().join("store");
        let done = scene.effigy(&["run", "-n", "-s", "s", "--store"]).arg(&within).args(&["--", "sh", "-c", "ls -A store; find . | sort; (echo x >store/x) 2>/dev/null; : >f"]).run().must_succeed();
        assert_eq!(done.text(), ".\n./store\n");
        let listed = scene.effigy(&["summary", "s", "--store"]).arg(&within).run().must_succeed().text();
        assert_eq!(listed, format!("A {}\n", scene.work().join("f").display()));
    }

    fn a_file_where_the_store_should_be(scene: &Scene) {
        scene.sh(": >plain").run().must_succeed();
        let file = scene.work().join("plain");
        for place in [file.clone(), file.join("below")] {
            scene.effigy(&["run", "-n", "--store"]).arg(&place).args(&["--", "echo", "ran"]).run().must_exit(125).must_say(&["plain", "--store"]);
        }
    }

    fn filesystems_that_cannot_hold_layers(scene: &Scene) {
        if !is_root() {
            return skip("mounting needs root");
        }
        let scene = Scene::new(scene.who).with_mounts(
            "mkdir ramfs over lower upper work; mount -t ramfs r ramfs; mount -t tmpfs t upper; mkdir upper/u upper/w; \
             mount -t overlay o -o lowerdir=lower,upperdir=upper/u,workdir=upper/w over; chown --reference=area/work ramfs over",
        );
        for place in ["ramfs", "over"] {
            let store = scene.dir().join(place).join("store");
            let done = scene.effigy(&["run", "-n", "--store"]).arg(&store).args(&["--", "echo", "ran"]).run().must_exit(125);
            assert_eq!(done.text(), "", "{place}: the command ran all the same");
            done.must_say(&[&store.display().to_string(), "--store"]);
        }
    }

    fn a_store_that_is_full(scene: &Scene) {
        if !is_root() {
            return skip("mounting needs root");
        }
        let scene = Scene::new(scene.who).with_mounts("mkdir full; mount -t tmpfs -o size=256k,mode=777 t full; dd if=/dev/zero of=full/fill bs=4k 2>/dev/null || :");
        let store = scene.dir().join("full/store");
        let done = scene.effigy(&["run", "-n", "--store"]).arg(&store).args(&["--", "echo", "ran"]).run().must_exit(125);
        assert_eq!(done.text(), "", "the command ran all the same");
        done.must_say(&["full", "--store"]);
    }

    fn a_store_that_fills_up_during_the_run(scene: &Scene) {
        if !is_root() {
            return skip("mounting needs root");
        }
        let scene = Scene::new(scene.who).with_mounts("mkdir small; mount -t tmpfs -o size=4m,mode=777 t small");
        let store = scene.dir().join("small/store");
        let script = "head -c 1000000 /dev/zero >one; head -c 9000000 /dev/zero >two || echo refused";
        let done = scene.effigy(&["run", "-n", "-s", "s", "--store"]).arg(&store).args(&["--", "sh", "-c", script]).run().must_succeed();
        assert_eq!(done.text(), "refused\n", "{done}");
        let listed = scene.effigy(&["summary", "s", "--store"]).arg(&store).run().must_succeed().text();
        assert_eq!(listed.lines().count(), 2, "{listed}");
        scene.effigy(&["discard", "s", "--store"]).arg(&store).run().must_succeed();
    }

    fn a_read_only_place(scene: &Scene) {
        if !is_root() {
            return skip("mounting needs root");
        }
        let scene = Scene::new(scene.who).with_mounts("mkdir fixed; mount -t tmpfs -o ro t fixed");
        let store = scene.dir().join("fixed/store");
        scene.effigy(&["run", "-n", "--store"]).arg(&store).args(&["--", "echo", "ran"]).run().must_exit(125).must_say(&["fixed", "Read-only", "--store"]);
    }
}

#[test]
fn a_place_where_the_user_may_not_write() {
    if !is_root() {
        return skip("root is needed to be two users");
    }
    let scene = Scene::new(Who::User(NOBODY));
    let place = scene.dir().join("closed/store");
    std::fs::create_dir(scene.dir().join("closed")).expect("a directory");
    scene
        .effigy(&["run", "-n", "--store"])
        .arg(&place)
        .args(&["--", "echo", "ran"])
        .run()
        .must_exit(125)
        .must_say(&["closed", "ermission denied", "--store"]);
}

#[test]
fn the_store_of_another_user() {
    if !is_root() {
        return skip("root is needed to be two users");
    }
    let owner = Scene::new(Who::User(4242));
    owner.run_script("s", ": >f").run().must_succeed();
    let other = Scene::new(Who::User(NOBODY));
    for command in ["ls", "summary", "commit"] {
        let done = other.effigy(&[command, "--store"]).arg(owner.store()).run();
        assert!(done.status != 0 && done.status != 101, "{done}");
        done.must_say(&[&owner.store().display().to_string()]);
    }
    other
        .effigy(&["run", "-n", "--store"])
        .arg(owner.store())
        .args(&["--", "echo", "ran"])
        .run()
        .must_exit(125);
}
