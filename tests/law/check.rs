//! The law checked on a batch of programs: each in a directory of its own, all recorded in one session.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::perform;
use super::step::{Program, Step};
use crate::harness::{Done, Scene};
use crate::trees::{Times, Tree};

/// A tree is made by the first, and changed by the second.
#[derive(Debug, Clone)]
pub(super) struct Case {
    pub(super) setup: Vec<Step>,
    pub(super) steps: Vec<Step>,
}

/// How the law is broken.
#[derive(Debug)]
pub(super) struct Broken {
    pub(super) what: String,
    /// The cases that break it, where that can be told.
    pub(super) cases: BTreeSet<usize>,
}

impl Broken {
    pub(super) fn by(done: &Done, what: &str) -> Self {
        Self {
            what: format!("{what}: {done}"),
            cases: BTreeSet::new(),
        }
    }
}

/// The place where a batch of programs is carried out.
pub(super) struct Bench<'s> {
    pub(super) scene: &'s Scene,
    /// The tests' own binary, where the user can run it.
    pub(super) performer: PathBuf,
}

/// What a run of programs answered, by program and step: zero or an error, and the content that a file then had.
pub(super) type Answers = Vec<Vec<(i32, Option<String>)>>;

impl Bench<'_> {
    /// Runs programs in `dir`; `argv` stands before the command.
    pub(super) fn perform(
        &self,
        dir: &Path,
        argv: &[&str],
        programs: &[Program],
        options: &[(&str, &Path)],
    ) -> Result<Answers, Broken> {
        let file = self.scene.dir().join("programs");
        fs::write(
            &file,
            serde_json::to_vec(programs).expect("programs are JSON"),
        )
        .expect("write the programs");
        let name = "law::perform::carries_out_the_programs_it_is_given";
        let mut job = if argv.is_empty() {
            self.scene.bare(&[&self.performer])
        } else {
            self.scene.effigy(argv).arg(&self.performer)
        };
        job = job
            .args(&["--exact", name, "--nocapture", "--test-threads=1"])
            .env(perform::PROGRAMS, &file)
            .dir(dir);
        for (name, value) in options {
            job = job.env(name, value);
        }
        let done = job.run();
        if done.status != 0 {
            return Err(Broken::by(&done, "the programs"));
        }
        let out =
            String::from_utf8(done.stdout.clone()).map_err(|_| Broken::by(&done, "not text"))?;
        let mut lines = out
            .lines()
            .filter_map(|line| line.split_once(perform::ANSWER))
            .map(|(_, answer)| {
                let (error, content) = answer
                    .split_once(' ')
                    .map_or((answer, None), |(error, content)| {
                        (error, Some(content.to_owned()))
                    });
                (error.parse().unwrap_or(-1), content)
            });
        let answers: Answers = programs
            .iter()
            .map(|program| lines.by_ref().take(program.steps.len()).collect())
            .collect();
        match answers.last().map(Vec::len) == programs.last().map(|program| program.steps.len()) {
            true => Ok(answers),
            false => Err(Broken::by(&done, "some answers are missing")),
        }
    }

    pub(super) fn programs(cases: &[Case], which: impl Fn(&Case) -> &Vec<Step>) -> Vec<Program> {
        let program = |(at, case)| Program {
            dir: at_dir(at),
            steps: which(case).clone(),
        };
        cases.iter().enumerate().map(program).collect()
    }

    /// Makes the start trees, and a copy of them.
    pub(super) fn set_up(&self, cases: &[Case]) -> Result<(), Broken> {
        let clear = "chmod -R u+rwx ../work ../bare 2>/dev/null; rm -rf ../bare; find . -mindepth 1 -delete; mkdir ../bare";
        self.scene.bare(&["sh", "-c", clear]).run().must_succeed();
        for at in 0..cases.len() {
            let dir = self.scene.work().join(at_dir(at));
            fs::create_dir(&dir).expect("a directory");
            self.scene.give(&dir);
        }
        self.perform(
            &self.scene.work(),
            &[],
            &Self::programs(cases, |case| &case.setup),
            &[],
        )?;
        self.copy(&self.scene.work(), &self.bare());
        Ok(())
    }

    pub(super) fn copy(&self, from: &Path, to: &Path) {
        // By the tests' own user, to whom nothing is closed when that is root.
        let copied = Command::new("cp")
            .arg("-a")
            .arg(from.join("."))
            .arg(to)
            .status();
        assert!(copied.expect("cp").success(), "copy {}", from.display());
    }

    pub(super) fn bare(&self) -> PathBuf {
        self.scene.area().join("bare")
    }

    /// Runs the batch in every way and compares what comes of it.
    pub(super) fn law(&self, cases: &[Case]) -> Result<(), Broken> {
        self.set_up(cases)?;
        let work = self.scene.work();
        let read = || Tree::read(&work);
        let start = read();
        let programs = Self::programs(cases, |case| &case.steps);
        let _forgotten = self.scene.effigy(&["discard", "law"]).run();
        let inside = self.perform(
            &work,
            &["run", "-n", "-q", "-s", "law", "--"],
            &programs,
            &[],
        )?;
        same(
            &read(),
            &start,
            Times::OfAll,
            "the tree after the run alone",
            "before",
        )?;
        let bare = self.perform(
            &self.bare(),
            &[],
            &programs,
            &[(perform::ANSWERS, &self.write_answers(&inside))],
        )?;
        answers_agree(cases, &inside, &bare)?;
        let bare = Tree::read(&self.bare());
        self.must(&["commit", "law", "-y"])?;
        let committed = read();
        same(
            &committed,
            &bare,
            Times::Ignored,
            "run and committed",
            "run bare",
        )?;
        if committed == start {
            return Ok(());
        }
        self.must(&["undo", "law", "-y"])?;
        same(
            &read(),
            &start,
            Times::OfFiles,
            "the commit undone",
            "before",
        )?;
        self.must(&["replay", "law", "-y"])?;
        same(&read(), &committed, Times::OfFiles, "replayed", "committed")?;
        let again = self.must(&["replay", "law", "-y"])?;
        if !again.stderr.contains("nothing to replay") {
            return Err(Broken::by(&again, "replayed twice"));
        }
        self.must(&["undo", "law", "-y"])?;
        same(
            &read(),
            &start,
            Times::OfFiles,
            "the replay undone",
            "before",
        )
    }

    pub(super) fn must(&self, arguments: &[&str]) -> Result<Done, Broken> {
        let done = self.scene.effigy(arguments).run();
        match done.status {
            0 => Ok(done),
            1 if done.stderr.contains("has nothing to")
                || done.stderr.contains("nothing was applied") =>
            {
                Ok(done)
            }
            _ => Err(Broken::by(&done, "refused")),
        }
    }

    /// Calls that were answered inside as they never are outside; such a call is then left out outside too.
    fn write_answers(&self, inside: &Answers) -> PathBuf {
        let file = self.scene.dir().join("answers");
        let errors: Vec<Vec<i32>> = inside
            .iter()
            .map(|answers| answers.iter().map(|answer| answer.0).collect())
            .collect();
        fs::write(
            &file,
            serde_json::to_vec(&errors).expect("numbers are JSON"),
        )
        .expect("write the answers");
        file
    }
}

pub(super) fn at_dir(at: usize) -> PathBuf {
    PathBuf::from(format!("{at:03}"))
}

fn answers_agree(cases: &[Case], inside: &Answers, bare: &Answers) -> Result<(), Broken> {
    let mut broken = Broken {
        what: String::new(),
        cases: BTreeSet::new(),
    };
    for (at, case) in cases.iter().enumerate() {
        for (number, step) in case.steps.iter().enumerate() {
            let (inside, bare) = (inside[at][number].0, bare[at][number].0);
            if inside != bare && broken.cases.insert(at) {
                let _infallible = writeln!(
                    broken.what,
                    "{at:03}: step {number}, {step}: {inside} inside, {bare} bare"
                );
            }
        }
    }
    if broken.cases.is_empty() {
        Ok(())
    } else {
        Err(broken)
    }
}

pub(super) fn same(
    left: &Tree,
    right: &Tree,
    times: Times,
    one: &str,
    other: &str,
) -> Result<(), Broken> {
    let difference = left.difference(right, times);
    if difference.is_empty() {
        return Ok(());
    }
    let number = |line: &str| line.get(..3).and_then(|number| number.parse().ok());
    Err(Broken {
        what: format!("{one} against {other}:\n{difference}"),
        cases: difference.lines().filter_map(number).collect(),
    })
}
