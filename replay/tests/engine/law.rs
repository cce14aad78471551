//! Run bare and run-and-committed give the same tree; undo gives the tree before; every kind of change.

use crate::world::{Dump, World, commit_all, is_root, undo_last};
use effigy_replay::Options;

const SET_UP: &str = "mkdir -p d/sub e k; echo one >d/f; echo two >d/sub/g; echo three >e/h; echo secret >k/old; echo 1 >a; \
    echo 2 >b; chmod 640 b; ln -s b link; mkfifo pipe; echo linked >h1; ln h1 h2; echo both >p1; ln p1 p2; echo ro >ro; chmod 444 ro; \
    touch -d '2001-02-03 04:05:06.789' a b d/f ro; mkdir locked; echo x >locked/x; chmod 555 locked; setfattr -n user.k -v v b";

/// Scripts that each exercise one kind of change, and one with all.
const SCRIPTS: &[&str] = &[
    "echo new >n; mkdir -p t/u/v; echo deep >t/u/v/w; ln -s nowhere dl; mkfifo q",
    "echo changed >a; echo more >>d/f",
    "rm a; rm -r d; rm link pipe",
    "rm -r d k; mkdir d k; echo n >d/new",
    "rm -r d; mkdir -m 711 d; mkdir d/sub; echo z >d/sub/z",
    "chmod 755 a; chmod 700 d; touch -d '1999-01-01 00:00:00.123456789' b; setfattr -x user.k b; setfattr -n user.x -v y d",
    "rm link; mkdir link; echo i >link/i; rm a; ln -s target a; rm -r e; echo file >e; rm -r d/sub; mkfifo d/sub",
    "echo b >>h1; echo n >n1; ln n1 n2; mkdir nd; ln n1 nd/n3",
    "echo more >>p1; chmod 600 h2",
    "mv a a2; mv d/f e/f; mkdir m; mv b m/b; mv ro m/ro",
    "chmod 644 ro; echo w >>ro; chmod 444 ro; echo new >ro2; chmod 0 ro2; mkdir -p no/way; echo f >no/way/f; chmod 0 no/way; chmod 500 no",
    "chmod 755 locked; echo y >locked/y; rm locked/x; chmod 555 locked",
    "chmod 755 locked; rm -r locked; mkdir locked; chmod 555 locked",
    "truncate -s 8M sparse; printf tail | dd of=sparse bs=1 seek=5000000 conv=notrunc 2>/dev/null",
    "printf '' >\"$(printf 'a\\nb')\"; printf x >\"$(printf '\\377\\376x')\"; printf y >'-rf'; echo q >'it'\\''s'",
    "mkdir s; chmod 1777 s; cp /bin/true s/t; chmod 4755 s/t; chmod 2755 d",
    "touch a; : >b; cp -p b bb; cat a >c; mv c a",
    "echo n >n; rm -r d; mkdir -p d/x/y; echo 1 >d/x/y/z; echo changed >a; rm b; mkdir b; ln -s x b/l; echo w >>h1; chmod 600 e/h; mv e/h e/i; rm -r k; echo k >k; chmod 711 e",
];

/// What only root can do.
const ROOT_SCRIPTS: &[&str] = &[
    "chown 12:34 a d; chown -h 5 link; chown 7:8 h1; cp /bin/true c; setcap cap_net_raw+ep c 2>/dev/null || true",
    "ln a a.bak; ln h1 h3; mkdir x; ln b x/b",
    "ln a a.bak; echo more >>a; ln -f b d/f",
    "ln h1 h3; echo more >>h3",
    "mknod null c 1 3; mknod blk b 7 200; chmod 600 a; rm b; mknod b c 1 5",
];

fn differences(left: &Dump, right: &Dump) -> String {
    let mut lines = String::new();
    for path in left
        .keys()
        .chain(right.keys())
        .collect::<std::collections::BTreeSet<_>>()
    {
        if left.get(path) != right.get(path) {
            lines.push_str(&format!(
                "{}:\n   {:?}\n   {:?}\n",
                path.display(),
                left.get(path),
                right.get(path)
            ));
        }
    }
    lines
}

#[track_caller]
pub(crate) fn assert_same(what: &str, left: &Dump, right: &Dump) {
    let lines = differences(left, right);
    assert!(lines.is_empty(), "{what}:\n{lines}");
}

fn scripts() -> impl Iterator<Item = &'static str> {
    SCRIPTS
        .iter()
        .copied()
        .chain(ROOT_SCRIPTS.iter().copied().filter(|_| is_root()))
        // In a user namespace only a journal, which there is none of here, tells a file with several names that was written to from
        // another that took its name.
        .filter(|script| is_root() || !script.contains(">>h"))
}

fn holds(script: &str, world: &World, options: &Options) {
    let before = world.dump();
    let bare = world.bare(script);
    let mut session = world.run(script);
    assert_same(
        &format!("{script}: the run changed the tree"),
        &before,
        &world.dump(),
    );
    commit_all(&mut session, options);
    assert_same(
        &format!("{script}: bare | committed"),
        &bare,
        &world.timeless(),
    );
    let committed = world.dump();
    undo_last(&mut session);
    assert_same(
        &format!("{script}: before | undone"),
        &before,
        &world.dump(),
    );
    commit_all(&mut session, options);
    assert_same(
        &format!("{script}: committed | committed again"),
        &committed,
        &world.dump(),
    );
    undo_last(&mut session);
    assert_same(
        &format!("{script}: before | undone again"),
        &before,
        &world.dump(),
    );
}

#[test]
fn commit_by_moving_equals_the_bare_run() {
    for script in scripts() {
        holds(script, &World::new(SET_UP), &Options::default());
    }
}

#[test]
fn commit_that_keeps_the_session_equals_the_bare_run() {
    for script in scripts() {
        holds(
            script,
            &World::new(SET_UP),
            &Options {
                keep: true,
                ..Options::default()
            },
        );
    }
}

#[test]
fn an_unlinked_name_comes_back_as_a_link() {
    holds("rm h1", &World::new(SET_UP), &Options::default());
    holds(
        "rm h1; echo n >n",
        &World::new(SET_UP),
        &Options {
            keep: true,
            ..Options::default()
        },
    );
}

#[test]
fn commit_across_filesystems_equals_the_bare_run() {
    for script in scripts() {
        holds(script, &World::across(SET_UP), &Options::default());
    }
}
