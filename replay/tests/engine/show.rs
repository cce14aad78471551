//! What is shown of a session: net effects, diffs and contents, before and after a commit.

use crate::world::{World, commit_all, sh, undo_last};
use effigy_journal::Session;
use effigy_replay::{
    DiffOptions, Differ, NetEffect, Options, Selection, applied, content, net_effects,
};
use std::io::Read as _;

const SET_UP: &str = "mkdir -p d/sub e; echo one >d/f; echo two >d/sub/g; echo 1 >a; printf '1\\n2\\n3\\n' >t; ln -s b l; echo 2 >b; : >x; mkdir z; : >z/i";
const SCRIPT: &str = "echo changed >a; printf '1\\n2b\\n3\\n' >t; rm -r d; mkdir d; echo n >d/n; mkdir -p new/sub; echo y >new/sub/y; chmod 600 b; \
    rm l; mkfifo p; ln -s nowhere dl; rm x; mkdir x; : >x/y; rm -r z; echo file >z; printf '\\0\\1' >bin; : >empty; touch e";
const SUMMARY: &str = "M a|A bin|m b|M d... ";

fn summary(world: &World, effects: &[NetEffect]) -> Vec<String> {
    let name = |e: &NetEffect| {
        e.path
            .strip_prefix(&world.tree)
            .unwrap()
            .display()
            .to_string()
    };
    effects
        .iter()
        .map(|e| format!("{} {}", e.change.code(), name(e)))
        .collect()
}

fn all(session: &Session) -> Vec<NetEffect> {
    applied::all_effects(session, &Selection::all()).unwrap()
}

#[test]
fn the_summary_is_the_same_before_and_after_the_commit() {
    let _ = SUMMARY;
    let world = World::new(SET_UP);
    let mut session = world.run(SCRIPT);
    let expected = [
        "M a",
        "m b",
        "A bin",
        "D d/f",
        "A d/n",
        "D d/sub",
        "D d/sub/g",
        "A dl",
        "A empty",
        "D l",
        "A new",
        "A new/sub",
        "A new/sub/y",
        "A p",
        "M t",
        "T x",
        "A x/y",
        "T z",
        "D z/i",
    ];
    let before = net_effects(&session, &Selection::all()).unwrap();
    assert_eq!(summary(&world, &before), expected);
    commit_all(&mut session, &Options::default());
    assert_eq!(net_effects(&session, &Selection::all()).unwrap().len(), 0);
    let after = all(&session);
    assert_eq!(summary(&world, &after), expected);
    assert!(
        after
            .iter()
            .all(|e| e.applied == Some(1) && !e.changed_since)
    );
    sh(&world.tree, "echo theirs >a; echo theirs >new/sub/other");
    let changed: Vec<NetEffect> = all(&session)
        .into_iter()
        .filter(|e| e.changed_since)
        .collect();
    assert_eq!(summary(&world, &changed), ["M a", "A new/sub"]);
    sh(&world.tree, "rm new/sub/other");
}

#[test]
fn a_copied_up_but_unchanged_file_is_no_effect_and_a_lying_time_hides_nothing() {
    let world = World::new("echo aaaa >a; echo bbbb >b; touch -d 2001-01-01 a b");
    let session = world.run("exec 3>>a; exec 3>&-; printf 'cccc\\n' >b; touch -d 2001-01-01 b");
    assert_eq!(
        summary(&world, &net_effects(&session, &Selection::all()).unwrap()),
        ["M b"]
    );
}

#[test]
fn a_renamed_file_is_shown_with_both_names() {
    let world = World::new("echo aaaa >a; echo b >b");
    let session = world.run("mv a c; mv b d; echo more >>d");
    let effects = net_effects(&session, &Selection::all()).unwrap();
    assert_eq!(summary(&world, &effects), ["D b", "R c", "A d"]);
}

fn diff(session: &Session, options: DiffOptions) -> String {
    let differ = Differ::new(session, options);
    let mut out = Vec::new();
    for effect in all(session) {
        differ.write(&effect, &mut out).unwrap();
    }
    String::from_utf8(out).unwrap()
}

#[test]
fn the_diff_is_the_same_before_and_after_the_commit() {
    let world = World::new(SET_UP);
    let mut session = world.run(SCRIPT);
    let before = diff(&session, DiffOptions::default());
    let tree = world.tree.display();
    assert!(
        before.contains(&format!(
            "--- {tree}/t\n+++ {tree}/t\n@@ -1,3 +1,3 @@\n 1\n-2\n+2b\n 3\n"
        )),
        "{before}"
    );
    assert!(
        before.contains(&format!(
            "--- /dev/null\n+++ {tree}/d/n\n@@ -0,0 +1,1 @@\n+n\n"
        )),
        "{before}"
    );
    assert!(
        before.contains(&format!(
            "--- {tree}/d/f\n+++ /dev/null\n@@ -1,1 +0,0 @@\n-one\n"
        )),
        "{before}"
    );
    assert!(
        before.contains(&format!("attributes of {tree}/b\n-mode 0644\n+mode 0600\n")),
        "{before}"
    );
    assert!(
        before.contains(&format!("added {tree}/bin\n+binary file of 2 bytes\n")),
        "{before}"
    );
    assert!(
        before.contains(&format!("added {tree}/dl\n+symbolic link to nowhere\n")),
        "{before}"
    );
    commit_all(&mut session, &Options::default());
    assert_eq!(diff(&session, DiffOptions::default()), before);
    undo_last(&mut session);
    assert_eq!(diff(&session, DiffOptions::default()), before);
}

#[test]
fn control_characters_reach_no_terminal() {
    let world = World::new(":");
    let session = world.run("printf 'a\\033[31mb\\r\\n' >\"$(printf 'n\\033x\\ny')\"");
    let shown = diff(
        &session,
        DiffOptions {
            escape: true,
            ..DiffOptions::default()
        },
    );
    assert!(
        !shown.contains('\u{1b}') && !shown.contains('\r') && shown.contains("n\\u{1b}x\\ny"),
        "{shown}"
    );
}

#[test]
fn content_is_read_where_it_is() {
    let world = World::new(SET_UP);
    let mut session = world.run(SCRIPT);
    let read = |session: &Session, name: &str| {
        content::at_end(session, &world.tree.join(name)).map(|mut found| {
            let mut text = String::new();
            found.file.read_to_string(&mut text).unwrap();
            (text, found.found)
        })
    };
    use content::{ContentError, Found};
    assert_eq!(
        read(&session, "a").unwrap(),
        ("changed\n".into(), Found::Layer)
    );
    assert_eq!(read(&session, "b").unwrap(), ("2\n".into(), Found::Layer));
    assert!(matches!(
        read(&session, "d/f"),
        Err(ContentError::Absent { .. })
    ));
    assert!(matches!(
        read(&session, "d/sub/g"),
        Err(ContentError::Absent { .. })
    ));
    assert!(matches!(
        read(&session, "x"),
        Err(ContentError::NotAFile { .. })
    ));
    commit_all(&mut session, &Options::default());
    assert_eq!(
        read(&session, "a").unwrap(),
        ("changed\n".into(), Found::Applied)
    );
    assert_eq!(
        read(&session, "new/sub/y").unwrap(),
        ("y\n".into(), Found::Applied)
    );
    assert!(matches!(
        read(&session, "d/f"),
        Err(ContentError::Absent { .. })
    ));
    sh(&world.tree, "echo theirs >a");
    assert_eq!(
        read(&session, "a").unwrap(),
        ("theirs\n".into(), Found::AppliedAndChanged)
    );
}
