//! Contents that are lost on the way, and how much of them is kept.

use serde_json::Value;

use crate::harness::{Done, Scene, as_everyone};

const SCRIPT: &str = "head -c 100000 /dev/zero | tr '\\0' a >large; echo small >small; : >large; echo b >small; echo c >>small; echo d >>small; echo e >small";

as_everyone! {
    fn contents_are_kept_as_asked_for(scene: &Scene) {
        for (asked, large, small) in [(None, true, true), (Some("all"), true, true), (Some("6"), false, true), (Some("none"), false, false)] {
            let session = asked.unwrap_or("default");
            let mut arguments = vec!["run", "-q", "-n", "-s", session];
            arguments.extend(asked.iter().flat_map(|asked| ["--keep-versions", asked]));
            scene.effigy(&arguments).args(&["--", "sh", "-c", SCRIPT]).run().must_succeed();
            let kept = as_of(scene, session, "large", 0);
            match large {
                true => assert_eq!(kept.must_succeed().stdout, vec![b'a'; 100_000]),
                // Blocks can be shared on some filesystems, which takes no copy.
                false if kept.status == 0 && asked != Some("none") => assert_eq!(kept.stdout.len(), 100_000),
                false => assert_eq!(kept.status, 1, "{kept}"),
            }
            // The third is the beginning of the fourth, which is kept when it is lost itself.
            for (nth, content) in [(0, "small\n"), (2, "b\nc\n"), (3, "b\nc\nd\n")] {
                let kept = as_of(scene, session, "small", nth);
                if small {
                    assert_eq!(kept.must_succeed().text(), content, "{session}");
                } else {
                    assert_eq!(kept.status, 1, "{kept}");
                }
            }
        }
    }
}

/// The content of a file as of the so-many-th event about it.
fn as_of(scene: &Scene, session: &str, name: &str, nth: usize) -> Done {
    let log = scene
        .effigy(&["log", session, "--json", "--op", "open"])
        .run()
        .must_succeed();
    let text = log.text();
    let events: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .filter(|event: &Value| {
            event["path"]
                .as_str()
                .is_some_and(|path| path.ends_with(&format!("/{name}")))
        })
        .collect();
    let number = &events[nth]["seq"];
    scene
        .effigy(&["cat", &format!("{session}@{number}"), name])
        .run()
}
