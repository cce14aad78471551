//! The list of a review: effects as a tree, the risky ones first, and what was decided of each.

use std::ops::Range;
use std::path::{Path, PathBuf};

/// What was decided of an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Mark {
    #[default]
    Open,
    Accepted,
    Rejected,
}

/// One line of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) depth: usize,
    /// The path as far as the line above it does not say it.
    pub(super) name: PathBuf,
    /// The effect, unless it is a directory that only holds some.
    pub(super) effect: Option<usize>,
    /// The lines below this one in the tree.
    pub(super) below: Range<usize>,
    pub(super) folded: bool,
}

/// The list.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) lines: Vec<Line>,
    /// One for each effect.
    pub(super) marks: Vec<Mark>,
}

impl Tree {
    /// A tree of paths sorted by their components. Those of `first` stand before it, in full.
    pub(super) fn new(paths: &[&Path], first: &[usize]) -> Self {
        let mut lines: Vec<Line> = Vec::new();
        for &effect in first {
            let at = lines.len();
            lines.push(Line {
                depth: 0,
                name: paths[effect].to_owned(),
                effect: Some(effect),
                below: at + 1..at + 1,
                folded: false,
            });
        }
        let mut stands_first = vec![false; paths.len()];
        for &effect in first {
            stands_first[effect] = true;
        }
        let rest: Vec<(usize, &Path)> = paths
            .iter()
            .enumerate()
            .filter(|(effect, _)| !stands_first[*effect])
            .map(|(effect, path)| (effect, *path))
            .collect();
        grow(&mut lines, &rest, Path::new("/"), 0);
        Self {
            marks: vec![Mark::default(); paths.len()],
            lines,
        }
    }

    /// The lines that are not inside of a folded one.
    pub(super) fn visible(&self) -> Vec<usize> {
        let mut visible = Vec::new();
        let mut at = 0;
        while let Some(line) = self.lines.get(at) {
            visible.push(at);
            at = if line.folded { line.below.end } else { at + 1 };
        }
        visible
    }

    /// The effects of a line and of those below it.
    pub(super) fn effects(&self, line: usize) -> impl Iterator<Item = usize> {
        let below = self.lines[line].below.clone();
        std::iter::once(line)
            .chain(below)
            .filter_map(|line| self.lines[line].effect)
    }

    /// Decides of a line and of all below it.
    pub(super) fn decide(&mut self, line: usize, mark: Mark) {
        let effects: Vec<usize> = self.effects(line).collect();
        for effect in effects {
            self.marks[effect] = mark;
        }
    }

    /// What was decided of all of a line, if it is one thing.
    pub(super) fn mark(&self, line: usize) -> Option<Mark> {
        let mut marks = self.effects(line).map(|effect| self.marks[effect]);
        let first = marks.next()?;
        marks.all(|mark| mark == first).then_some(first)
    }

    pub(super) fn accepted(&self) -> impl Iterator<Item = usize> {
        let all = self.marks.iter().enumerate();
        all.filter(|(_, mark)| **mark == Mark::Accepted)
            .map(|(effect, _)| effect)
    }
}

/// Adds the lines of paths below `parent`. A directory in which several meet has a line, also when it is no effect itself.
fn grow(lines: &mut Vec<Line>, paths: &[(usize, &Path)], parent: &Path, depth: usize) {
    let mut rest = paths;
    while let Some(&(effect, first)) = rest.first() {
        let step = |path: &Path| {
            let below = path.strip_prefix(parent).unwrap_or(path);
            below
                .components()
                .next()
                .map(|step| step.as_os_str().to_owned())
        };
        let beside = step(first);
        let alike = rest.iter().take_while(|(_, path)| step(path) == beside);
        let (group, others) = rest.split_at(alike.count().max(1));
        rest = others;
        let common = group
            .last()
            .map_or_else(|| first.to_owned(), |(_, last)| meet(first, last));
        let is_effect = common == first;
        let name = match depth {
            0 => common.as_path(),
            _ => common.strip_prefix(parent).unwrap_or(&common),
        };
        let at = lines.len();
        lines.push(Line {
            depth,
            name: name.to_owned(),
            effect: is_effect.then_some(effect),
            below: at + 1..at + 1,
            folded: false,
        });
        grow(lines, &group[usize::from(is_effect)..], &common, depth + 1);
        lines[at].below.end = lines.len();
    }
}

/// The deepest directory that holds both, or is one of them.
fn meet(a: &Path, b: &Path) -> PathBuf {
    let common = a
        .components()
        .zip(b.components())
        .take_while(|(a, b)| a == b);
    common.map(|(component, _)| component).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(paths: &[&str], first: &[usize]) -> Tree {
        let paths: Vec<&Path> = paths.iter().map(Path::new).collect();
        Tree::new(&paths, first)
    }

    fn shown(tree: &Tree) -> Vec<String> {
        let lines = tree.visible().into_iter().map(|at| &tree.lines[at]);
        lines
            .map(|line| format!("{}{}", " ".repeat(line.depth), line.name.display()))
            .collect()
    }

    #[test]
    fn paths_stand_below_where_they_meet_and_each_once() {
        let tree = tree(
            &[
                "/a/.bashrc",
                "/a/b/new",
                "/a/b/new/x",
                "/a/b/new/y",
                "/a/b/z",
                "/c",
            ],
            &[0],
        );
        assert_eq!(
            shown(&tree),
            ["/a/.bashrc", "/a/b", " new", "  x", "  y", " z", "/c"]
        );
        let mut effects: Vec<_> = tree.lines.iter().filter_map(|line| line.effect).collect();
        effects.sort_unstable();
        assert_eq!(effects, [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn a_decision_takes_what_is_below() {
        let mut tree = tree(&["/a/b", "/a/b/x", "/a/b/y", "/a/c"], &[]);
        assert_eq!(shown(&tree), ["/a", " b", "  x", "  y", " c"]);
        tree.decide(1, Mark::Accepted);
        assert_eq!(tree.accepted().collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!((tree.mark(1), tree.mark(0)), (Some(Mark::Accepted), None));
        tree.decide(2, Mark::Rejected);
        assert_eq!(tree.accepted().collect::<Vec<_>>(), [0, 2]);
        tree.decide(0, Mark::Accepted);
        assert_eq!(tree.accepted().count(), 4);
    }

    #[test]
    fn folding_hides_what_is_below() {
        let mut tree = tree(&["/a/b", "/a/b/x", "/a/b/x/y", "/a/c"], &[]);
        tree.lines[1].folded = true;
        assert_eq!(shown(&tree), ["/a", " b", " c"]);
    }
}
