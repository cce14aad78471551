//! The law that holds everything together, on random programs: run bare, run and committed, and run and replayed, they give the
//! same tree; run alone they change nothing; and undone they leave what was there. A part that is replayed gives what its effects
//! alone give.
//!
//! `EFFIGY_LAW_CASES` sets how many programs are tried, `EFFIGY_LAW_SEED` where to begin. A failure is printed as the shortest program
//! found that still fails; saved to a file, `EFFIGY_LAW_REPLAY=FILE` tries it again. `law/open/` has the programs at which the law is
//! known not to hold yet, as both users or as the one named: whoever cures one moves it to `law/closed/`, and takes back what `strategy.rs`
//! leaves out for it.

mod check;
mod partial;
mod perform;
mod step;
mod strategy;
mod sys;

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use proptest::prelude::Strategy as _;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::harness::{self, Program, Scene};
use check::{Bench, Broken, Case};
use strategy::Powers;

/// So many programs share a session.
const BATCH: usize = 25;
/// So many parts are chosen of a session.
const PARTS: usize = 3;

fn number(variable: &str, usual: usize) -> usize {
    std::env::var(variable).map_or(usual, |text| {
        text.parse()
            .unwrap_or_else(|_| panic!("{variable}={text} is no number"))
    })
}

fn runner(seed: usize) -> TestRunner {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    TestRunner::new_with_rng(Config::default(), rng)
}

/// Random cases, the same for the same seed.
fn cases(powers: Powers, seed: usize) -> impl Iterator<Item = Case> {
    let mut runner = runner(seed);
    let strategy = strategy::case(powers);
    std::iter::from_fn(move || {
        let (setup, steps) = strategy
            .new_tree(&mut runner)
            .expect("a random program")
            .current();
        Some(Case { setup, steps })
    })
}

/// The case without the steps that it fails without.
fn shortest(case: &Case, fails: &dyn Fn(&Case) -> bool) -> Case {
    let mut case = case.clone();
    for setup in [false, true] {
        let mut size = if setup {
            case.setup.len()
        } else {
            case.steps.len()
        }
        .div_ceil(2);
        while size > 0 {
            let mut at = 0;
            loop {
                let mut shorter = case.clone();
                let steps = if setup {
                    &mut shorter.setup
                } else {
                    &mut shorter.steps
                };
                if at >= steps.len() {
                    break;
                }
                steps.drain(at..(at + size).min(steps.len()));
                if fails(&shorter) {
                    case = shorter;
                } else {
                    at += size;
                }
            }
            size /= 2;
        }
    }
    case
}

fn written(case: &Case) -> String {
    let mut text = String::new();
    for step in &case.setup {
        let _infallible = writeln!(text, "{step}");
    }
    text.push_str("--\n");
    for step in &case.steps {
        let _infallible = writeln!(text, "{step}");
    }
    text
}

fn read(text: &str) -> Case {
    let (setup, steps) = text
        .split_once("--\n")
        .expect("two parts with a line -- in between");
    let read = |text: &str| {
        text.lines()
            .map(|line| serde_json::from_str(line).expect("a step"))
            .collect()
    };
    Case {
        setup: read(setup),
        steps: read(steps),
    }
}

/// A place in memory if that can hold attributes, so that the disk is not what is tested.
fn place() -> PathBuf {
    let memory = PathBuf::from("/dev/shm");
    let can = tempfile::NamedTempFile::new_in(&memory).is_ok_and(|file| {
        let set = std::process::Command::new("setfattr")
            .args(["-n", "user.law", "-v", "x"])
            .arg(file.path())
            .status();
        set.is_ok_and(|status| status.success())
    });
    if can { memory } else { harness::place() }
}

fn hold(scene: &Scene, count: usize, seed: usize) {
    let scene = Scene::within(scene.who, &place());
    let performer = Program::at(std::env::current_exe().expect("the tests' own binary"));
    let bench = Bench {
        scene: &scene,
        performer: performer.path().to_owned(),
    };
    if let Some(file) = std::env::var_os("EFFIGY_LAW_REPLAY") {
        let case = read(&fs::read_to_string(file).expect("the case"));
        if let Err(broken) = bench.law(&[case]) {
            panic!("{}", broken.what);
        }
        return;
    }
    let powers = Powers {
        root: scene.is_root(),
        held: true,
    };
    let mut cases = cases(powers, seed);
    let mut left = count;
    while left > 0 {
        let batch: Vec<Case> = cases.by_ref().take(left.min(BATCH)).collect();
        left -= batch.len();
        if let Err(broken) = bench.law(&batch) {
            explain(&bench, &batch, &broken, &|bench, cases| bench.law(cases));
        }
    }
}

type Law<'l> = dyn Fn(&Bench<'_>, &[Case]) -> Result<(), Broken> + 'l;

/// Fails with the shortest program that breaks the law alone, or with the batch if none does.
fn explain(bench: &Bench<'_>, batch: &[Case], broken: &Broken, law: &Law<'_>) -> ! {
    let suspects = batch
        .iter()
        .enumerate()
        .filter(|(at, _)| broken.cases.is_empty() || broken.cases.contains(at));
    for (_, case) in suspects {
        let last = std::cell::RefCell::new(String::new());
        let fails = |case: &Case| match law(bench, std::slice::from_ref(case)) {
            Ok(()) => false,
            Err(broken) => {
                last.replace(broken.what);
                true
            }
        };
        if fails(case) {
            let short = shortest(case, &fails);
            panic!("the law is broken by\n{}{}", written(&short), last.borrow());
        }
    }
    let together: String = batch.iter().map(written).collect();
    panic!(
        "the law is broken, by no program alone, by\n{together}{}",
        broken.what
    );
}

/// Replays parts of programs' effects.
fn hold_for_parts(scene: &Scene, count: usize, seed: usize) {
    let scene = Scene::within(scene.who, &place());
    let performer = Program::at(std::env::current_exe().expect("the tests' own binary"));
    let bench = Bench {
        scene: &scene,
        performer: performer.path().to_owned(),
    };
    let powers = Powers {
        root: scene.is_root(),
        held: false,
    };
    let mut cases = cases(powers, seed);
    let mut runner = runner(seed);
    let mut replayed = 0;
    for _ in 0..count {
        let batch: Vec<Case> = cases.by_ref().take(1).collect();
        let choices = proptest::collection::vec(partial::choice(), PARTS);
        let choices = choices
            .new_tree(&mut runner)
            .expect("random choices")
            .current();
        match bench.parts(&batch, &choices) {
            Ok(more) => replayed += more,
            Err(broken) => explain(&bench, &batch, &broken, &|bench, cases| {
                bench.parts(cases, &choices).map(drop)
            }),
        }
    }
    let chosen = count * PARTS;
    assert!(
        replayed * 3 > chosen,
        "only {replayed} of {chosen} selections could be replayed"
    );
}

/// How many programs are tried of each kind of user.
fn count() -> usize {
    number("EFFIGY_LAW_CASES", 2000)
}

/// Where to begin; the usual one is such that known faults, which are rarer than one in a thousand, do not stop the others.
fn seed(usual: usize) -> usize {
    number("EFFIGY_LAW_SEED", usual)
}

/// Holds for the programs at which it once did not.
fn holds_again(scene: &Scene) {
    let scene = Scene::within(scene.who, &place());
    let performer = Program::at(std::env::current_exe().expect("the tests' own binary"));
    let bench = Bench {
        scene: &scene,
        performer: performer.path().to_owned(),
    };
    let closed = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/law/closed");
    for program in fs::read_dir(closed).expect("the programs") {
        let path = program.expect("a program").path();
        let case = read(&fs::read_to_string(&path).expect("the case"));
        if let Err(broken) = bench.law(&[case]) {
            panic!("{}: {}", path.display(), broken.what);
        }
    }
}

#[test]
fn holds_again_for_root() {
    harness::as_root(holds_again);
}

#[test]
fn holds_again_for_an_ordinary_user() {
    harness::as_user(holds_again);
}

#[test]
fn holds_for_root() {
    harness::as_root(|scene| hold(scene, count(), seed(1)));
}

#[test]
fn holds_for_an_ordinary_user() {
    harness::as_user(|scene| hold(scene, count().div_ceil(2), seed(301) + scene.uid() as usize));
}

#[test]
fn holds_for_parts_for_root() {
    harness::as_root(|scene| hold_for_parts(scene, count() / 8, seed(22)));
}

#[test]
fn holds_for_parts_for_an_ordinary_user() {
    harness::as_user(|scene| hold_for_parts(scene, count() / 16, seed(21) + scene.uid() as usize));
}
