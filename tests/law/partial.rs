//! Parts of a recording: what a selection replays is what its effects, and those that were added to them, do to a copy.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::Value;

use super::check::{Answers, Bench, Broken, Case, at_dir, same};
use super::step::{Call, Mode, Name, Program, Step, Text};
use crate::harness::Done;
use crate::trees::{Times, Tree};

/// What is chosen, as places among the events.
#[derive(Debug, Clone)]
pub(super) struct Choice {
    only: Vec<(Index, Width)>,
    exclude: Vec<(Index, Width)>,
    from: Option<Index>,
    until: Option<Index>,
}

/// The pattern made of a path.
#[derive(Debug, Clone, Copy)]
enum Width {
    Itself,
    ItsDirectory,
    ItsNameAnywhere,
}

pub(super) fn choice() -> BoxedStrategy<Choice> {
    let width = prop_oneof![
        Just(Width::Itself),
        Just(Width::ItsDirectory),
        Just(Width::ItsNameAnywhere)
    ];
    let pattern = (any::<Index>(), width).boxed();
    let patterns = |most| proptest::collection::vec(pattern.clone(), 0..most);
    let end = || proptest::option::weighted(0.2, any::<Index>());
    (patterns(4), patterns(3), end(), end())
        .prop_map(|(only, exclude, from, until)| Choice {
            only,
            exclude,
            from,
            until,
        })
        .boxed()
}

/// A successful call as the journal has it.
struct Event {
    seq: u64,
    case: usize,
    path: PathBuf,
    to: Option<PathBuf>,
    created: bool,
    mode: Option<u32>,
    /// The call, and the content of the file that it left.
    call: Call,
    content: Option<Vec<u8>>,
}

impl Bench<'_> {
    /// Runs the batch once, and replays parts of it. Returns how many selections could be replayed.
    pub(super) fn parts(&self, cases: &[Case], choices: &[Choice]) -> Result<usize, Broken> {
        self.set_up(cases)?;
        let work = self.scene.work();
        let start = Tree::read(&work);
        let programs = Self::programs(cases, |case| &case.steps);
        let _forgotten = self.scene.effigy(&["discard", "law"]).run();
        let contents = [(super::perform::CONTENTS, Path::new("1"))];
        let answers = self.perform(
            &work,
            &["run", "-n", "-q", "-s", "law", "--"],
            &programs,
            &contents,
        )?;
        let events = self.events(cases, &answers)?;
        let mut replayed = 0;
        for choice in choices {
            let Some(filters) = choice.filters(&events) else {
                continue;
            };
            if !self.part(cases.len(), &events, &filters)? {
                continue;
            }
            replayed += 1;
            self.must(&["undo", "law", "-y"])?;
            let shown = format!("the replay of {filters:?} undone");
            same(&Tree::read(&work), &start, Times::OfFiles, &shown, "before")?;
        }
        Ok(replayed)
    }

    /// Replays a part; `false` when it is refused or comes to nothing.
    fn part(&self, cases: usize, events: &[Event], filters: &[OsString]) -> Result<bool, Broken> {
        let with = |words: &[&str]| {
            filters
                .iter()
                .fold(self.scene.effigy(words), |job, word| job.arg(word))
        };
        let done = with(&["replay", "law", "-y"]).run();
        let says = |words: &str| done.stderr.contains(words);
        let refused = done.status == 1
            && (says("no effect matches")
                || says("is to stay")
                || says("is not kept any more") && events.iter().any(Event::is_large));
        if refused || done.stderr.contains("nothing to replay") {
            return Ok(false);
        }
        if done.status != 0 {
            return Err(Broken::by(&done, "a part is not replayed"));
        }
        // Listing stops at the last event asked for, so a pattern may match none of those that it has seen.
        let listed = with(&["log", "law", "--json"]).run();
        let mut chosen: BTreeSet<u64> = parse(&listed)
            .iter()
            .filter_map(|event| event["seq"].as_u64())
            .collect();
        chosen.extend(added(&done.stderr));
        let stay: Vec<&str> = done
            .stderr
            .lines()
            .filter(|line| line.contains(": stays, because"))
            .collect();
        let programs: Vec<Program> = (0..cases)
            .map(|case| of_events(case, events, &chosen))
            .collect();
        let copy = self.scene.area().join("part");
        let clear = "chmod -R u+rwx ../part 2>/dev/null; rm -rf ../part; mkdir ../part";
        self.scene.bare(&["sh", "-c", clear]).run().must_succeed();
        self.copy(&self.bare(), &copy);
        let answers = self.perform(&copy, &[], &programs, &[])?;
        for (program, answers) in programs.iter().zip(&answers) {
            for (step, answer) in program.steps.iter().zip(answers) {
                let lacks =
                    matches!(step.1, Call::Attribute(_, _, None)) && answer.0 == libc::ENODATA;
                let stays = answer.0 == libc::ENOTEMPTY && !stay.is_empty();
                if answer.0 != 0 && !lacks && !stays {
                    let what = format!(
                        "{filters:?}: {step} of the chosen effects answers {}\n{done}",
                        answer.0
                    );
                    return Err(Broken {
                        what,
                        cases: BTreeSet::new(),
                    });
                }
            }
        }
        let (replayed, executed) = (Tree::read(&self.scene.work()), Tree::read(&copy));
        let shown = format!("{done}\n{filters:?} replayed");
        same(
            &replayed,
            &executed,
            Times::Ignored,
            &shown,
            "its effects executed",
        )
        .map(|()| true)
    }

    /// The events of the session beside the calls that they are of: one for each call that succeeded.
    fn events(&self, cases: &[Case], answers: &Answers) -> Result<Vec<Event>, Broken> {
        let done = self
            .scene
            .effigy(&["log", "law", "--json"])
            .run()
            .must_succeed();
        let effect = |event: &Value| {
            !matches!(
                event["op"].as_str(),
                Some("exec" | "exit" | "connect" | "read" | "mark" | "settle")
            )
        };
        let mut listed = parse(&done).into_iter().filter(effect);
        let work = self.scene.work();
        let mut events = Vec::new();
        for (case, answers) in answers.iter().enumerate() {
            for (step, (error, content)) in cases[case].steps.iter().zip(answers) {
                let Some(op) = step.1.op().filter(|_| *error == 0) else {
                    continue;
                };
                let listed = listed.next().filter(|event| event["op"] == op);
                let Some(event) =
                    listed.and_then(|event| Event::of(&event, case, step, content.as_ref(), &work))
                else {
                    let cases = BTreeSet::from([case]);
                    return Err(Broken {
                        what: format!(
                            "no event for {step} after {} others in\n{done}",
                            events.len()
                        ),
                        cases,
                    });
                };
                events.push(event);
            }
        }
        match listed.next() {
            None => Ok(events),
            Some(event) => Err(Broken {
                what: format!("an event without a call: {event}"),
                cases: BTreeSet::new(),
            }),
        }
    }
}

impl Event {
    fn of(
        event: &Value,
        case: usize,
        step: &Step,
        content: Option<&String>,
        work: &Path,
    ) -> Option<Self> {
        let below = |value: &Value| {
            path(value)?
                .strip_prefix(work.join(at_dir(case)))
                .ok()
                .map(Path::to_owned)
        };
        Some(Self {
            seq: event["seq"].as_u64()?,
            case,
            path: below(&event["path"])?,
            to: match &event["to"] {
                Value::Null => None,
                to => Some(below(to)?),
            },
            created: event["created"] == true,
            mode: event["mode"]
                .as_str()
                .and_then(|mode| u32::from_str_radix(mode, 8).ok()),
            call: step.1.clone(),
            content: content.map(|content| {
                Text::try_from(content.clone())
                    .expect("escaped as it should be")
                    .0
            }),
        })
    }

    /// Of such a file nothing is kept before it is written over (docs/LIMITS.md).
    fn is_large(&self) -> bool {
        self.content
            .as_ref()
            .is_some_and(|content| content.len() > 64 << 10)
    }

    /// The same effect by the paths of the journal, which no symbolic link is in.
    fn call(&self) -> Call {
        let name = |path: &Path| Name {
            base: None,
            path: path.as_os_str().as_bytes().to_vec(),
        };
        let here = name(&self.path);
        let there = || name(self.to.as_ref().expect("such an event has two paths"));
        let mode = Mode(self.mode.unwrap_or(0o644) & 0o7777);
        match &self.call {
            Call::Mkdir(..) => Call::Mkdir(here, mode),
            Call::Rmdir(_) => Call::Rmdir(here),
            Call::Unlink(_) => Call::Unlink(here),
            Call::Rename(..) | Call::RenameNoreplace(..) => Call::Rename(here, there()),
            Call::Exchange(..) => Call::Exchange(here, there()),
            Call::Link(..) | Call::LinkFollow(..) => Call::Link(here, there()),
            Call::Symlink(target, _) => Call::Symlink(target.clone(), here),
            Call::Fifo(..) => Call::Fifo(here, mode),
            Call::Node(..) => Call::Node(here, mode),
            Call::Chmod(_, mode) => Call::Chmod(here, *mode),
            Call::Chown(_, uid, gid) | Call::Lchown(_, uid, gid) => Call::Lchown(here, *uid, *gid),
            Call::Utimens(_, time) | Call::Lutimens(_, time) => Call::Lutimens(here, *time),
            Call::Setxattr(_, key, value) => Call::Attribute(here, *key, Some(*value)),
            Call::Removexattr(_, key) => Call::Attribute(here, *key, None),
            Call::Put(..) | Call::Truncate(..) => {
                let made = self.created.then_some(mode);
                Call::Become(here, made, Text(self.content.clone().unwrap_or_default()))
            }
            other => panic!("{other:?} is no event here"),
        }
    }
}

fn of_events(case: usize, events: &[Event], chosen: &BTreeSet<u64>) -> Program {
    // A rename onto itself does nothing, so nothing has to be there for it.
    let nothing = |event: &&Event| event.to.as_ref() == Some(&event.path);
    let chosen = events
        .iter()
        .filter(|event| event.case == case && chosen.contains(&event.seq) && !nothing(event));
    let unmasked = std::iter::once(Call::Umask(Mode(0)));
    let steps = unmasked
        .chain(chosen.map(Event::call))
        .map(|call| Step(0, call))
        .collect();
    Program {
        dir: at_dir(case),
        steps,
    }
}

impl Choice {
    /// The words of the command line; `None` where there is nothing to choose from.
    fn filters(&self, events: &[Event]) -> Option<Vec<OsString>> {
        if events.is_empty() {
            return None;
        }
        let mut words: Vec<OsString> = Vec::new();
        for (option, patterns) in [("--only", &self.only), ("--exclude", &self.exclude)] {
            for (index, width) in patterns {
                let event = index.get(events);
                let path = at_dir(event.case).join(&event.path);
                let name = event.path.file_name().unwrap_or_default();
                let pattern = match width {
                    Width::Itself => path.into_os_string(),
                    Width::ItsDirectory => path.parent()?.as_os_str().to_owned(),
                    // A glob is text; what is none is given exactly.
                    Width::ItsNameAnywhere if name.to_str().is_none() => path.into_os_string(),
                    Width::ItsNameAnywhere => [OsStr::new("**/"), name].into_iter().collect(),
                };
                words.extend([option.into(), pattern]);
            }
        }
        for (option, index) in [("--from", self.from), ("--until", self.until)] {
            if let Some(index) = index {
                words.extend([option.into(), index.get(events).seq.to_string().into()]);
            }
        }
        Some(words)
    }
}

fn parse(done: &Done) -> Vec<Value> {
    let text = done.text();
    text.lines()
        .map(|line| serde_json::from_str(line).expect("a line of JSON"))
        .collect()
}

fn path(value: &Value) -> Option<PathBuf> {
    match value {
        Value::String(path) => Some(path.into()),
        other => {
            let bytes = base64::engine::general_purpose::STANDARD
                .decode(other["bytes"].as_str()?)
                .ok()?;
            Some(OsString::from_vec(bytes).into())
        }
    }
}

/// Events that were added: `link #18 needs rename #15 of PATH: added`.
fn added(said: &str) -> BTreeSet<u64> {
    let needed = said
        .lines()
        .filter(|line| line.ends_with(": added"))
        .filter_map(|line| line.split_once(" needs "));
    let number =
        |(_, needed): (&str, &str)| needed.split_once('#')?.1.split_once(' ')?.0.parse().ok();
    needed.filter_map(number).collect()
}
