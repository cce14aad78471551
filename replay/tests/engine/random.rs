//! Random sequences of operations: run bare and run-and-committed give the same tree, undo gives the tree before.
//!
//! `REPLAY_SEQUENCES` and `REPLAY_SEED` ask for more, or for one again. Left out is what the layers alone cannot tell
//! (a journal can): whether a file with several real names was written to or replaced.

use crate::law::assert_same;
use crate::world::{World, commit_all, is_root, undo_last};
use effigy_replay::{Options, Selection, applied, net_effects};

/// splitmix64: the same sequence for the same seed, everywhere.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % sides as u64).unwrap()
    }

    fn pick<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.roll(of.len())]
    }
}

const NAMES: &[&str] = &["a", "b", "c", "d", "e", "\"$(printf 'x\\377\\ny')\"", "-o"];

fn path(dice: &mut Dice) -> String {
    let depth = dice.roll(3);
    let mut path = String::from(".");
    for _ in 0..=depth {
        path.push('/');
        path.push_str(dice.pick(NAMES));
    }
    path
}

/// One operation; it may fail, in both runs alike.
fn operation(dice: &mut Dice, number: usize, initial: bool) -> String {
    let (p, q) = (path(dice), path(dice));
    match dice.roll(if initial { 9 } else { 20 }) {
        // Whoever writes to a fifo waits for a reader.
        0 | 1 => format!("[ -p {p} ] || echo {number} >{p}"),
        2 | 3 => format!("mkdir -p {p}"),
        4 => format!("ln -s {number} {p}"),
        // A directory that its owner has locked could not be copied for the bare run, and would stop only that: the view
        // of an ordinary user is made here by the root of a user namespace.
        5 if initial || !is_root() => {
            format!("chmod {} {p}", dice.pick(&["700", "755", "4711", "1777"]))
        }
        5 => format!(
            "chmod {} {p}",
            dice.pick(&["600", "755", "4711", "640", "1777"])
        ),
        6 => format!("mkfifo {p}"),
        7 => format!("setfattr -h -n user.n{} -v {number} {p}", dice.roll(2)),
        8 => format!("touch -h -d 2001-01-01T00:00:0{} {p}", dice.roll(9)),
        9 => format!("[ -p {p} ] || echo {number} >>{p}"),
        10 => format!("rm -f {p}"),
        11 => format!("rm -rf {p}"),
        12 => format!("rmdir {p}"),
        13 => format!("[ -d {p} ] || mv -T {p} {q}"),
        14 => format!(
            "[ -d {p} ] || {{ echo {number} >{q}.new; ln {q}.new {q}2; mv -T {q}.new {q}3; }}"
        ),
        15 => format!("rm -rf {p}; mkdir {p}; echo {number} >{p}/n"),
        16 => format!(
            "[ -p {p} ] || truncate -s {} {p}",
            dice.pick(&["0", "1", "70000", "3"])
        ),
        // What is copied into itself depends on the order of entries.
        17 if format!("{q}/").starts_with(&format!("{p}/")) => "true".into(),
        17 => format!("cp -aT --remove-destination {p} {q}"),
        18 => format!("rm -rf {p}; echo {number} >{p}"),
        _ => format!("[ -f {p} ] && {{ cat {p} >{q}.t; mv -T {q}.t {p}; }}"),
    }
}

fn script(dice: &mut Dice, count: usize, initial: bool) -> String {
    let lines: Vec<String> = (0..count)
        .map(|n| format!("({}) 2>/dev/null || true", operation(dice, n, initial)))
        .collect();
    lines.join("; ")
}

#[test]
fn random_sequences_hold_the_law() {
    let number = |name: &str| {
        std::env::var(name)
            .ok()
            .and_then(|text| text.parse::<u64>().ok())
    };
    let count = number("REPLAY_SEQUENCES").unwrap_or(40);
    let first = number("REPLAY_SEED").unwrap_or(1);
    for seed in first..first + count {
        let mut dice = Dice(seed);
        let set_up = script(&mut dice, 25, true);
        let steps = script(&mut dice, 20, false);
        let world = if seed % 4 == 3 {
            World::across(&set_up)
        } else {
            World::new(&set_up)
        };
        let options = Options {
            keep: seed % 4 == 2,
            ..Options::default()
        };
        let what = format!(
            "seed {seed}, root {}\n{}\n--\n{}",
            is_root(),
            set_up.replace("; (", "\n("),
            steps.replace("; (", "\n(")
        );
        let before = world.dump();
        let bare = world.bare(&steps);
        let mut session = world.run(&steps);
        assert_same(&format!("{what}: the run"), &before, &world.dump());
        let mut listed: Vec<_> = net_effects(&session, &Selection::all())
            .unwrap()
            .into_iter()
            .map(|e| (e.path, e.change.code()))
            .collect();
        if listed.is_empty() {
            assert_same(
                &format!("{what}: nothing was done"),
                &bare,
                &world.timeless(),
            );
            continue;
        }
        commit_all(&mut session, &options);
        assert_same(
            &format!("{what}: bare | committed"),
            &bare,
            &world.timeless(),
        );
        let committed = world.dump();
        let rest = net_effects(&session, &Selection::all()).unwrap();
        assert!(
            rest.is_empty(),
            "{what}: effects after the commit: {rest:?}"
        );
        let mut shown: Vec<_> = applied::effects(&session, &Selection::all())
            .unwrap()
            .into_iter()
            .map(|e| (e.path, e.change.code()))
            .collect();
        // A rename is put in place as an addition and a removal.
        if !listed.iter().any(|(_, code)| *code == 'R') {
            listed.sort();
            shown.sort();
            // An ordinary user can look into no directory that was locked.
            let seen = |found: &(std::path::PathBuf, char)| is_root() || shown.contains(found);
            listed.retain(seen);
            assert_eq!(listed, shown, "{what}: effects listed before | after");
        }
        undo_last(&mut session);
        assert_same(&format!("{what}: before | undone"), &before, &world.dump());
        commit_all(&mut session, &options);
        assert_same(
            &format!("{what}: committed | again"),
            &committed,
            &world.dump(),
        );
    }
}
