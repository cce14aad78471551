//! Sessions travel: exported, imported in another store, and used there as if recorded there.

use crate::harness::{Scene, as_everyone, as_user, is_root, skip};
use crate::trees::Times;

const SETUP: &str =
    "mkdir -p d/s; echo 1 >d/s/f; echo 2 >g; ln g h; echo 3 >gone; mkdir rw; echo 4 >rw/x";

const SCRIPT: &str = "mv d e; echo more >>e/s/f; echo in place >>g; rm gone; rm -r rw; echo file >rw; ln -s nowhere l; mkfifo p; \
     truncate -s 8M sparse; echo end >>sparse; chmod 700 e; mkdir -p new/deep; echo n >new/deep/n; ln new/deep/n new/m; \
     touch -d 2001-02-03T04:05:06.789 new/deep/n; printf x >\"$(printf 'odd\\377')\"; mv g a; sh -c 'exit 3' --token hunter2; true";

/// Makes the session `t`, exports it, and imports it into a store of its own; gives the options that choose that store.
fn travelled(scene: &Scene) -> [String; 2] {
    scene.sh(SETUP).run().must_succeed();
    scene.run_script("t", SCRIPT).run();
    let archive = scene.make_dir("travel").join("t.tgz");
    scene
        .effigy(&["export", "t", "--format", "archive", "-o"])
        .arg(&archive)
        .run()
        .must_succeed();
    let elsewhere = [
        "--store".to_owned(),
        scene.dir().join("travel/store").display().to_string(),
    ];
    scene
        .effigy(&["import"])
        .arg(&archive)
        .args(&words(&elsewhere))
        .run()
        .must_succeed();
    elsewhere
}

fn words(options: &[String; 2]) -> [&str; 2] {
    [&options[0], &options[1]]
}

#[test]
fn an_ordinary_user_imports_a_session_of_roots() {
    if !is_root() {
        return skip("only root makes such a session");
    }
    as_user(|scene| {
        let travel = scene.make_dir("travel");
        let theirs = scene.work().join("roots");
        std::fs::create_dir(&theirs).expect("a fresh directory");
        std::fs::write(theirs.join("old"), "old").expect("a fresh file");
        let root = |words: &[&str]| {
            let mut command = std::process::Command::new(scene.program());
            command.current_dir(scene.work()).args(words);
            command.arg("--store").arg(travel.join("store"));
            assert!(command.status().expect("start it").success(), "{words:?}");
        };
        let archive = travel.join("r.tgz");
        let file = archive.to_str().expect("UTF-8");
        root(&[
            "run",
            "--store",
            travel.join("store").to_str().expect("UTF-8"),
            "-q",
            "-n",
            "-s",
            "r",
            "--",
            "sh",
            "-ec",
            "echo n >roots/new; echo x >f; chown 12:34 f; chmod 4755 f; mknod null c 1 3",
        ]);
        root(&["export", "r", "--format", "archive", "-o", file]);
        scene.give(&archive);
        let done = scene.effigy(&["import", file]).run().must_succeed();
        done.must_say(&[
            "owners that only root can give",
            "1 device node that only root can make",
        ]);
        assert_eq!(
            scene.summary("r"),
            ["A @/area/work/f", "A @/area/work/roots/new"]
        );
        let again = scene.make_dir("again").join("r.tgz");
        scene
            .effigy(&["export", "r", "--format", "archive", "-o"])
            .arg(&again)
            .run()
            .must_succeed();
        let listed = scene.bare(&["tar", "tvzf"]).arg(&again).run().text();
        assert!(
            listed.contains("-rwsr-xr-x 12/34") && listed.contains("1,3"),
            "{listed}"
        );
    });
}

as_everyone! {
    fn an_imported_session_is_shown_as_it_was(scene: &Scene) {
        let there = travelled(scene);
        for command in [&["summary", "t"][..], &["log", "t"], &["diff", "t"], &["log", "t", "--json"], &["cat", "t", "new/deep/n"], &["show", "t@12"], &["summary", "t", "--by", "mv"]] {
            let here = scene.effigy(command).run().must_succeed().stdout;
            let imported = scene.effigy(command).args(&words(&there)).run().must_succeed().stdout;
            assert!(!here.is_empty() && imported == here, "{command:?}");
        }
    }

    fn an_imported_session_is_replayed(scene: &Scene) {
        let there = travelled(scene);
        scene.sh("cp -a . ../../travel/w").run().must_succeed();
        let start = scene.tree();
        scene.effigy(&["replay", "t", "-y"]).args(&words(&there)).run().must_succeed();
        let imported = scene.tree();
        scene.effigy(&["undo", "t", "-y"]).args(&words(&there)).run().must_succeed();
        scene.tree().must_equal(&start, Times::OfFiles, "after undo", "before");
        // The store here cannot know what another one has done and taken back.
        scene.effigy(&["replay", "t", "-y", "--on-conflict", "overwrite"]).run().must_succeed();
        scene.tree().must_equal(&imported, Times::OfFiles, "replayed here", "replayed from the import");
        // Onto another tree, where the parents of the first effects are.
        let root = scene.dir().join("travel/root");
        scene.sh(&format!("mkdir -p {0}{1}; cp -a ../../travel/w/. {0}{1}", root.display(), scene.work().display())).run().must_succeed();
        scene.effigy(&["replay", "t", "-y", "--root"]).arg(&root).args(&words(&there)).run().must_succeed();
        scene.sh(&format!("diff -r --no-dereference --exclude=p . {}{}", root.display(), scene.work().display())).run().must_succeed();
    }

    fn what_is_elsewhere_otherwise_is_a_conflict(scene: &Scene) {
        let there = travelled(scene);
        scene.sh("echo other >g").run().must_succeed();
        let refused = scene.effigy(&["replay", "t", "-y"]).args(&words(&there)).run().must_exit(1);
        refused.must_say(&["conflict", "/g"]);
    }

    fn secrets_stay_here(scene: &Scene) {
        scene.run_script("t", "true --password=hunter2; sh -c 'exit 0' x --token hunter2").run().must_succeed();
        let archive = scene.make_dir("travel").join("r.tgz");
        scene.effigy(&["export", "t", "--redact", "--format", "archive", "-o"]).arg(&archive).run().must_succeed();
        let there = ["--store".to_owned(), scene.dir().join("travel/redacted").display().to_string()];
        scene.effigy(&["import", "-s", "r"]).arg(&archive).args(&words(&there)).run().must_succeed();
        let log = scene.effigy(&["log", "r", "--json"]).args(&words(&there)).run().must_succeed().text();
        assert!(!log.contains("hunter2") && log.contains("[redacted]"), "{log}");
        let events = scene.effigy(&["log", "t", "--json"]).run().must_succeed().text();
        assert_eq!(log.lines().count(), events.lines().count());
        for format in ["json", "chrome"] {
            let out = scene.effigy(&["export", "t", "--redact", "--format", format]).run().must_succeed().text();
            assert!(!out.contains("hunter2") && out.contains("redacted"), "{format}: {out}");
        }
    }

    fn other_forms(scene: &Scene) {
        travelled(scene);
        let json = scene.effigy(&["export", "t", "--format", "json", "--op", "rename"]).run().must_succeed().text();
        assert_eq!(json, scene.effigy(&["log", "t", "--json", "--op", "rename"]).run().text());
        let chrome = scene.effigy(&["export", "t", "--format", "chrome"]).run().must_succeed().text();
        let parsed: serde_json::Value = serde_json::from_str(&chrome).expect("JSON");
        let events = parsed["traceEvents"].as_array().expect("a list");
        let named = |name: &str, ph: &str| events.iter().any(|event| event["name"] == name && event["ph"] == ph);
        assert!(named("mv", "X") && named("rename", "i") && named("unlink", "i"), "{chrome}");
        scene.effigy(&["export", "t", "--format", "json", "--op", "mknod", "--only", "nothing"]).run().must_exit(1);
        scene.effigy(&["export", "t", "--format", "archive", "--only", "a"]).run().must_exit(2).must_say(&["whole session"]);
    }

    fn what_was_moved_away_is_not_exported(scene: &Scene) {
        scene.run_script("t", "echo x >f").run().must_succeed();
        scene.effigy(&["commit", "t", "-y", "--keep"]).run().must_succeed();
        scene.effigy(&["export", "t", "--format", "archive"]).run().must_succeed();
        scene.undo("t");
        scene.commit("t");
        scene.effigy(&["export", "t", "--format", "archive"]).run().must_exit(1).must_say(&["moved", "undo"]);
        scene.undo("t");
        scene.effigy(&["export", "t", "--format", "archive"]).run().must_succeed();
    }
}
