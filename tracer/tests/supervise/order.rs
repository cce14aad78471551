//! The journal's order is the order in which things happened.

use crate::harness::{Recording, Scratch};
use effigy_journal::{Entry, Op, Outcome};
use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

const RACE: &str = r#"
import os, random, sys, threading
names = ["a", "b", "c", "d", "a/x", "b/x", "c/y", "d/y"]
def work(seed):
    r = random.Random(seed)
    for i in range(int(sys.argv[1])):
        p, q = r.choice(names), r.choice(names)
        try:
            match r.randrange(9):
                case 0: os.close(os.open(p, os.O_CREAT | os.O_WRONLY, 0o600))
                case 1: os.close(os.open(p, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
                case 2: os.rename(p, q)
                case 3: renameat2(p, q, 2)
                case 4: os.unlink(p)
                case 5: os.mkdir(p)
                case 6: os.rmdir(p)
                case 7: os.link(p, q)
                case 8: os.symlink("t", p)
        except OSError: pass
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
def renameat2(p, q, flags): libc.syscall(316, -100, p.encode(), -100, q.encode(), flags)
for p in range(8):
    if os.fork() == 0:
        ts = [threading.Thread(target=work, args=(p * 100 + t,)) for t in range(4)]
        [t.start() for t in ts]; [t.join() for t in ts]
        os._exit(0)
for p in range(8): os.wait()
"#;

fn tree(top: &Path) -> BTreeSet<(PathBuf, char, u64)> {
    use std::os::unix::fs::MetadataExt as _;
    let mut found = BTreeSet::new();
    let mut todo = vec![top.to_owned()];
    while let Some(dir) = todo.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let meta = path.symlink_metadata().unwrap();
            let kind = if meta.is_dir() {
                'd'
            } else if meta.is_symlink() {
                'l'
            } else {
                'f'
            };
            let links = if meta.is_dir() { 0 } else { meta.nlink() };
            found.insert((path.strip_prefix(top).unwrap().to_owned(), kind, links));
            if meta.is_dir() {
                todo.push(path);
            }
        }
    }
    found
}

/// Does again what the journal says was done.
fn redo(run: &Recording, from: &Path, to: &Path) -> Vec<String> {
    let mut failures = Vec::new();
    for (event, paths) in run.events.iter().zip(&run.paths) {
        if event.result != Outcome::Ok || !event.op.is_effect() {
            continue;
        }
        let place = |path: &Path| to.join(path.strip_prefix(from).unwrap());
        let (a, b) = (place(&paths.0), paths.1.as_deref().map(place));
        let b = b.unwrap_or_default();
        let result = match &event.op {
            Op::Open { created: true, .. } => std::fs::File::create_new(&a).map(drop),
            Op::Open { .. } => std::fs::OpenOptions::new().write(true).open(&a).map(drop),
            Op::Mkdir { .. } => std::fs::create_dir(&a),
            Op::Rmdir { .. } => std::fs::remove_dir(&a),
            Op::Unlink { .. } => std::fs::remove_file(&a),
            Op::Rename { .. } => std::fs::rename(&a, &b),
            Op::Exchange { .. } => {
                use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
                renameat2(AT_FDCWD, &a, AT_FDCWD, &b, RenameFlags::RENAME_EXCHANGE)
                    .map_err(Into::into)
            }
            Op::Link { .. } => std::fs::hard_link(&a, &b),
            Op::Symlink { target, .. } => {
                std::os::unix::fs::symlink(std::ffi::OsStr::from_bytes(target.as_bytes()), &a)
            }
            other => panic!("{other:?}"),
        };
        if let Err(error) = result {
            if failures.is_empty() {
                let near = |other: &(PathBuf, Option<PathBuf>)| {
                    [&paths.0]
                        .into_iter()
                        .chain(&paths.1)
                        .any(|p| *p == other.0 || Some(p) == other.1.as_ref())
                };
                for (e, p) in run.events.iter().zip(&run.paths).filter(|(e, p)| {
                    near(p)
                        && e.seq <= event.seq
                        && e.seq.0 + 300 > event.seq.0
                        && (e.result == Outcome::Ok || e.op.name() == "open")
                }) {
                    println!(
                        "{} tid {} {:?} {:?} {:?} {:?} {}us",
                        e.seq.0,
                        e.tid.0,
                        e.by,
                        e.op,
                        p.0.file_name(),
                        e.result,
                        e.time / 1000
                    );
                }
            }
            failures.push(format!(
                "{} {:?} {:?} {}: {error}",
                event.seq.0,
                event.by,
                paths,
                event.op.name()
            ));
        }
    }
    failures
}

#[test]
fn events_of_a_race_can_be_done_again_in_order() {
    let scratch = Scratch::new();
    let run = scratch.run(crate::harness::python(), &["-c", RACE, "150"]);
    run.ok();
    let copy = scratch.dir.path().join("copy");
    std::fs::create_dir(&copy).unwrap();
    let failures = redo(&run, &scratch.work(), &copy);
    let changed = run
        .events
        .iter()
        .filter(|event| event.result == Outcome::Ok && event.op.is_effect())
        .count();
    println!("{changed} effects, {} failures", failures.len());
    assert!(
        failures.is_empty(),
        "{} of {changed}: {:#?}",
        failures.len(),
        &failures[..failures.len().min(12)]
    );
    assert_eq!(tree(&scratch.work()), tree(&copy));
    assert!(changed > 100);
}

#[test]
fn a_precondition_comes_before_the_first_event_about_a_path() {
    let scratch = Scratch::new();
    std::fs::write(scratch.work().join("old"), "there").unwrap();
    let run = scratch.run(
        "/bin/sh",
        &["-c", "rm old; mkdir new; echo x >new/f; mv new/f old"],
    );
    let mut touched = std::collections::HashMap::new();
    for entry in &run.ok().entries {
        match entry {
            Entry::Precondition(precondition) => {
                assert!(
                    touched
                        .insert(precondition.path, precondition.before)
                        .is_none(),
                    "recorded twice"
                );
            }
            Entry::Event(event) if event.op.is_effect() && event.result == Outcome::Ok => {
                for path in [event.op.path(), event.op.to()].into_iter().flatten() {
                    assert!(
                        touched.contains_key(&path),
                        "{:?} without a precondition",
                        event.op
                    );
                }
            }
            _ => {}
        }
    }
    let there: Vec<_> = touched.values().flatten().collect();
    assert_eq!(
        there.len(),
        1,
        "only the old file was there before: {touched:?}"
    );
    assert_eq!(there[0].size, 5);
}

/// Names lead where they lead now, and are called so, whatever the same bytes led to before.
#[test]
fn the_same_name_leads_elsewhere() {
    let scratch = Scratch::new();
    let program = r#"
import os
def make(name):
    try: os.mkdir(name)
    except OSError as error: print(name, error.errno)
for d in ('a', 'a/s', 'b', 'b/s'): os.mkdir(d)
make('a/s/1')
os.rename('a', 'c'); os.mkdir('a'); os.mkdir('a/s'); make('a/s/2'); make('c/s/3')
os.rename('c/s', 'c/t'); make('c/s/no'); make('c/t/4')
os.symlink('a/s', 'l'); make('l/5'); os.unlink('l'); os.symlink('b/s', 'l'); make('l/6')
os.symlink('c/t', 'm'); os.rename('m', 'l'); make('l/7')
os.chdir('b'); make('s/8'); os.chdir('../a'); make('s/9'); os.chdir('..')
held = os.open('b', os.O_RDONLY); make('b/s/10'); os.fchmod(held, 0); make('b/s/11'); os.fchmod(held, 0o755)
os.rmdir('a/s/2'); os.rmdir('a/s/5'); os.rmdir('a/s/9'); os.rmdir('a/s'); make('a/s/no'); os.mkdir('a/s'); make('a/s/12')
os.open('a/s/f', os.O_CREAT | os.O_WRONLY); os.chmod('a/s/f', 0o600); os.rename('a/s', 'a/u'); os.chmod('a/u/f', 0o640)
os.rename('a/u/f', 'a/u/g'); os.rename('a/u/g', 'b/s/g'); os.unlink('b/s/g')
"#;
    let run = scratch.python(program);
    run.ok();
    let below_shut = if nix::unistd::geteuid().is_root() {
        ""
    } else {
        "b/s/11 13\n"
    };
    assert_eq!(
        String::from_utf8_lossy(&run.stdout),
        format!("c/s/no 2\n{below_shut}a/s/no 2\n")
    );
    let made: Vec<&str> = run
        .lines
        .iter()
        .filter_map(|line| line.strip_prefix("mkdir ")?.strip_suffix(" ok p"))
        .filter(|path| path.ends_with(|last: char| last.is_ascii_digit()))
        .filter(|path| *path != "b/s/11")
        .collect();
    assert_eq!(
        made,
        [
            "a/s/1", "a/s/2", "c/s/3", "c/t/4", "a/s/5", "b/s/6", "c/t/7", "b/s/8", "a/s/9",
            "b/s/10", "a/s/12"
        ]
    );
    for line in [
        "chmod a/s/f ok",
        "chmod a/u/f ok",
        "rename a/u/f a/u/g ok",
        "rename a/u/g b/s/g ok",
        "unlink b/s/g ok",
    ] {
        run.has(line);
    }
}
