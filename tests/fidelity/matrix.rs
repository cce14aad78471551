//! Every traced call answers inside what it answers outside, whatever name it is given and in whatever situation the process is, and the
//! process sees the same come of it; and so does whoever commits it. The calls and the names are in `matrix.py`.

use super::scripts::Scripts;
use crate::harness::{Done, Scene, Who, as_everyone, as_root, as_user, has, is_root, skip};
use crate::trees::{Times, Tree};

/// The user to whom some of a tree belongs, in the situations with a second one.
const OTHER: &str = "4321";

/// What is made before the run: so many trees. When they are used up, the run makes more.
const TREES: &str = "60";

struct Situation {
    name: &'static str,
    other: bool,
    options: &'static [&'static str],
}

impl Situation {
    fn check(&self, scene: &Scene) {
        if !cfg!(target_arch = "x86_64") {
            return skip("the calls have the numbers of x86-64");
        }
        if !has(scene, "python3") {
            return;
        }
        let scripts = Scripts::new();
        let other: &[&str] = if self.other { &[OTHER] } else { &[] };
        let prepare = || {
            scene
                .sh("chmod -R u+rwx fix 2>/dev/null || :; rm -rf fix")
                .run()
                .must_succeed();
            scene
                .bare(&["python3"])
                .arg(scripts.path("matrix.py"))
                .args(&["build", TREES])
                .args(other)
                .run()
                .must_succeed();
            scene.sh("chmod 777 fix").run().must_succeed();
        };
        let program = |done: crate::harness::Job<'_>| {
            done.arg(scripts.path("matrix.py"))
                .arg(self.name)
                .args(other)
                .run()
        };
        prepare();
        let bare = program(scene.bare(&["python3"]));
        if bare.status == 77 {
            return skip(bare.text().trim());
        }
        let wanted = scene.tree();
        prepare();
        let before = scene.tree();
        let mut arguments = vec!["run", "-q", "-n", "-s", "matrix"];
        arguments.extend(self.options);
        arguments.extend(["--", "python3"]);
        let inside = program(scene.effigy(&arguments));
        scene.tree().must_equal(
            &before,
            Times::OfAll,
            "the tree after the run alone",
            "before it",
        );
        same(&bare, &inside);
        let commit = scene.effigy(&["commit", "matrix", "-y"]).run();
        if commit.status == 1 && self.name == "mapped_namespace" {
            // What its capabilities there opened to the process is shut to whoever commits: docs/LIMITS.md.
            assert!(commit.stderr.contains("shut/"), "{commit}");
            scene.tree().must_equal(
                &before,
                Times::OfAll,
                "the tree after a commit that was refused",
                "before it",
            );
            return;
        }
        commit.must_succeed();
        // Those attributes are the overlay's own: docs/LIMITS.md.
        let plain = |tree: Tree| tree.without_attributes("user.overlay.");
        plain(scene.tree()).must_equal(
            &plain(wanted),
            Times::Ignored,
            "the tree that was committed",
            "what the calls make of it outside",
        );
    }
}

/// Line by line what the calls answered.
fn same(bare: &Done, inside: &Done) {
    let (bare_lines, inside_lines) = (bare.text(), inside.text());
    let differences: Vec<String> = bare_lines
        .lines()
        .zip(inside_lines.lines())
        .filter(|(bare, inside)| bare != inside)
        .map(|(bare, inside)| format!("bare:   {bare}\ninside: {inside}"))
        .collect();
    assert!(
        differences.is_empty(),
        "{} answers differ:\n{}",
        differences.len(),
        differences.join("\n")
    );
    assert_eq!(bare.status, inside.status, "bare: {bare}\ninside: {inside}");
    assert_eq!(bare_lines.lines().count(), inside_lines.lines().count());
    assert!(bare_lines.lines().count() >= 3, "{bare}");
}

/// Defines a test for each situation.
macro_rules! situations {
    ($who:ident: $($name:ident $(with $option:literal)? $(and $other:ident)?),* $(,)?) => { $(
        #[test]
        fn $name() {
            $who(|scene| {
                Situation {
                    name: stringify!($name),
                    options: &[$($option)?],
                    other: false $(|| stringify!($other) == "another")?,
                }
                .check(scene);
            });
        }
    )* };
}

mod of_root {
    use super::*;

    situations! {
        as_root:
        plain, other_abi, reads with "--reads", umask, thread, child, no_capabilities, some_capabilities and another, another_user and another,
        fsuid and another, chroot, chroot_above, user_namespace, mapped_namespace, landlock, gone, file_size, few_files,
    }
}

mod of_a_user {
    use super::*;

    situations! {
        as_one_user:
        plain, other_abi, reads with "--reads", umask, thread, child, user_namespace, mapped_namespace, landlock, gone, file_size, few_files,
    }
}

/// One is enough: this takes its time.
fn as_one_user(check: fn(&Scene)) {
    if is_root() {
        check(&Scene::new(Who::User(4242)));
    } else {
        as_user(check);
    }
}

as_everyone! {
    fn on_a_read_only_mount(scene: &Scene) {
        if !is_root() {
            return skip("only root can mount");
        }
        if !has(scene, "python3") {
            return;
        }
        let scripts = Scripts::new();
        let user = match scene.who {
            Who::User(id) => format!("setpriv --reuid={id} --regid={id} --clear-groups"),
            Who::Self_ => String::new(),
        };
        let scene = Scene::new(scene.who).with_mounts(&format!(
            "PATH=/usr/sbin:/usr/bin:/sbin:/bin; mount -t tmpfs none area/work; chmod 777 area/work; cd area/work; {user} python3 '{}' build 1; mount -o remount,ro .",
            scripts.path("matrix.py").display()
        ));
        let program = |job: crate::harness::Job<'_>| job.arg(scripts.path("matrix.py")).arg("read_only").run();
        let bare = program(scene.bare(&["python3"]));
        same(&bare, &program(scene.effigy(&["run", "-q", "-n", "-s", "s", "--", "python3"])));
        assert!(bare.text().contains("= EROFS"), "{bare}");
    }

    fn what_differs_by_nature_is_what_is_documented(scene: &Scene) {
        if !cfg!(target_arch = "x86_64") {
            return skip("the calls have the numbers of x86-64");
        }
        if !has(scene, "python3") {
            return;
        }
        let scripts = Scripts::new();
        scene.bare(&["python3"]).arg(scripts.path("matrix.py")).args(&["build", "8"]).run().must_succeed();
        let done = scene.effigy(&["run", "-q", "-n", "-s", "s", "--", "python3"]).arg(scripts.path("matrix.py")).arg("by_nature").run().must_succeed();
        let [device, block, link] = if scene.is_root() {
            ["mknod device 0", "mknod block 0", "link 0"]
        } else {
            ["mknod device EPERM", "mknod block EPERM", "link EXDEV"]
        };
        let expected = [
            device, block, "mknod whiteout EPERM", "rename leaving a whiteout EINVAL", "setxattr trusted EPERM",
            "setxattr security EPERM", "removexattr no acl ENODATA", link,
        ];
        assert_eq!(done.text().lines().collect::<Vec<_>>(), expected);
    }
}
