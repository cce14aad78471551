//! `effigy review`: the net effects of a session on a full screen, walked, compared, accepted and rejected; then the accepted ones are
//! committed as `effigy commit` would.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use effigy_journal::{Session, Store};
use effigy_replay::diff::{DiffOptions, Differ};
use effigy_replay::{NetEffect, Selection, net_effects};
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode,
    enable_raw_mode, size,
};
use ratatui::layout::Rect;
use ratatui::{Terminal, TerminalOptions, Viewport};

use crate::cli::ReviewArgs;
use crate::commands::commit::commit_reviewed;
use crate::commands::summary::row;
use crate::failure::{Cannot as _, Failure, status};
use crate::listing::Row;
use crate::render::name::needs_escape;
use crate::risk::Places;
use crate::store::find_to_change;

mod screen;
mod tree;

use tree::{Mark, Tree};

/// How often the size of the terminal is looked at while nothing else happens.
const LOOK_AT_SIZE: Duration = Duration::from_millis(500);

/// Longer differences are cut: `effigy diff` shows them whole.
const MAX_DIFFERENCE: usize = 1 << 20;

pub(crate) fn review(args: &ReviewArgs, store: &Store) -> anyhow::Result<ExitCode> {
    let tty = terminal()?;
    let mut session = find_to_change(store, args.session.as_deref())?;
    let effects = net_effects(&session, &Selection::all()).cannot()?;
    if effects.is_empty() {
        eprintln!("session {} has nothing to review", session.label());
        return Ok(ExitCode::from(status::NO));
    }
    if !walk(&mut session, &effects, tty)? {
        eprintln!(
            "effigy: nothing was changed; session {} is kept",
            session.label()
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// Lets the user walk the effects. True when some were committed.
pub(crate) fn walk(
    session: &mut Session,
    effects: &[NetEffect],
    tty: File,
) -> anyhow::Result<bool> {
    let accepted = {
        let mut review = Review::new(session, effects);
        let mut screen = Screen::enter(tty)?;
        let accepted = review.run(&mut screen)?;
        drop(screen);
        accepted
    };
    let Some(accepted) = accepted.filter(|accepted| !accepted.is_empty()) else {
        return Ok(false);
    };
    let everything = accepted.len() == effects.len();
    let paths = accepted.into_iter().map(|effect| &effects[effect]);
    let paths = paths.flat_map(|effect| {
        let both = [Some(effect.path.as_path()), effect.former_path()];
        both.into_iter().flatten().map(Path::to_owned)
    });
    let paths: HashSet<PathBuf> = paths.collect();
    commit_reviewed(session, &Selection::all().among(paths), everything)?;
    Ok(true)
}

/// The terminal, or why there is none.
pub(crate) fn terminal() -> anyhow::Result<File> {
    let tty = OpenOptions::new().read(true).write(true).open("/dev/tty");
    match tty {
        Ok(tty)
            if tty.is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb") =>
        {
            Ok(tty)
        }
        _ => Err(
            Failure::refused("a review takes a terminal that can show a whole screen")
                .hint("effigy summary, effigy diff and effigy commit --only do without")
                .into(),
        ),
    }
}

/// The screen while it is the review's, and the user's again afterwards, whatever happens.
struct Screen(Terminal<CrosstermBackend<File>>, File);

impl Screen {
    fn enter(tty: File) -> io::Result<Self> {
        enable_raw_mode()?;
        let mut screen = Self(Self::terminal(tty.try_clone()?)?, tty);
        execute!(screen.0.backend_mut(), EnterAlternateScreen)?;
        screen.fit()?;
        Ok(screen)
    }

    /// Begins anew in the terminal's size. Clearing through the library asks the terminal where its cursor is, which not all answer.
    fn fit(&mut self) -> io::Result<()> {
        execute!(self.0.backend_mut(), Clear(ClearType::All))?;
        self.0 = Self::terminal(self.1.try_clone()?)?;
        Ok(())
    }

    fn fits(&mut self) -> io::Result<bool> {
        let area = self.0.get_frame().area();
        Ok(size()? == (area.width, area.height))
    }

    fn terminal(tty: File) -> io::Result<Terminal<CrosstermBackend<File>>> {
        let (width, height) = size()?;
        let viewport = Viewport::Fixed(Rect::new(0, 0, width, height));
        Terminal::with_options(CrosstermBackend::new(tty), TerminalOptions { viewport })
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing.
        let _gone = execute!(self.0.backend_mut(), LeaveAlternateScreen, Show);
        let _gone = disable_raw_mode();
        let _gone = self.0.backend_mut().flush();
    }
}

/// What has the keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Focus {
    List,
    Difference,
    Help,
}

struct Review<'r> {
    rows: Vec<Row<'r>>,
    effects: &'r [NetEffect],
    differ: Differ,
    label: String,
    tree: Tree,
    /// Among the visible lines.
    at: usize,
    focus: Focus,
    /// The line whose difference is read, with it.
    difference: Option<(usize, Vec<String>)>,
    scroll: usize,
}

/// What comes of a key.
enum Then {
    GoOn,
    Leave,
    Commit,
}

impl<'r> Review<'r> {
    fn new(session: &Session, effects: &'r [NetEffect]) -> Self {
        let places = Places::from_environment();
        let mut order: Vec<usize> = (0..effects.len()).collect();
        order.sort_by(|&a, &b| effects[a].path.cmp(&effects[b].path));
        let rows: Vec<Row<'r>> = effects.iter().map(|effect| row(effect, &places)).collect();
        let paths: Vec<&Path> = order
            .iter()
            .map(|&effect| effects[effect].path.as_path())
            .collect();
        let risky: Vec<usize> = (0..order.len())
            .filter(|&at| rows[order[at]].risk.is_some())
            .collect();
        let mut tree = Tree::new(&paths, &risky);
        for line in &mut tree.lines {
            line.effect = line.effect.map(|at| order[at]);
        }
        Self {
            rows,
            effects,
            differ: Differ::new(
                session,
                DiffOptions {
                    escape: true,
                    max_size: MAX_DIFFERENCE as u64,
                    ..DiffOptions::default()
                },
            ),
            label: session.label().to_owned(),
            tree,
            at: 0,
            focus: Focus::List,
            difference: None,
            scroll: 0,
        }
    }

    /// Until the user has decided: the accepted effects, or `None` when nothing is to be done.
    fn run(&mut self, screen: &mut Screen) -> anyhow::Result<Option<Vec<usize>>> {
        loop {
            let visible = self.tree.visible();
            self.at = self.at.min(visible.len().saturating_sub(1));
            let line = visible.get(self.at).copied().unwrap_or(0);
            self.read_difference(line);
            if !screen.fits()? {
                screen.fit()?;
            }
            screen.0.draw(|frame| screen::draw(self, &visible, frame))?;
            // The event of a new size can be lost beside that of a key.
            if !event::poll(LOOK_AT_SIZE)? {
                continue;
            }
            let Event::Key(key) = event::read()? else {
                continue;
            };
            if key.kind == KeyEventKind::Release {
                continue;
            }
            let interrupted = key.modifiers.contains(KeyModifiers::CONTROL)
                && matches!(key.code, KeyCode::Char('c' | 'd'));
            if interrupted {
                return Ok(None);
            }
            if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('l') {
                screen.fit()?;
                continue;
            }
            match self.press(key.code, line, visible.len()) {
                Then::GoOn => {}
                Then::Leave => return Ok(None),
                Then::Commit => return Ok(Some(self.tree.accepted().collect())),
            }
        }
    }

    fn press(&mut self, key: KeyCode, line: usize, visible: usize) -> Then {
        if self.focus == Focus::Help {
            self.focus = Focus::List;
            return Then::GoOn;
        }
        let length = self.difference.as_ref().map_or(0, |(_, lines)| lines.len());
        if self.focus == Focus::Difference {
            let last = length.saturating_sub(1);
            match key {
                KeyCode::Char('j') | KeyCode::Down => self.scroll = (self.scroll + 1).min(last),
                KeyCode::Char('k') | KeyCode::Up => self.scroll = self.scroll.saturating_sub(1),
                KeyCode::Char(' ') | KeyCode::PageDown => {
                    self.scroll = (self.scroll + 10).min(last)
                }
                KeyCode::Char('b') | KeyCode::PageUp => {
                    self.scroll = self.scroll.saturating_sub(10)
                }
                KeyCode::Char('g') | KeyCode::Home => self.scroll = 0,
                KeyCode::Char('G') | KeyCode::End => self.scroll = last,
                KeyCode::Char('a') => self.tree.decide(line, Mark::Accepted),
                KeyCode::Char('r') => self.tree.decide(line, Mark::Rejected),
                KeyCode::Char('d' | 'q') | KeyCode::Enter | KeyCode::Esc => {
                    self.focus = Focus::List
                }
                KeyCode::Char('?') => self.focus = Focus::Help,
                _ => {}
            }
            return Then::GoOn;
        }
        let last = visible.saturating_sub(1);
        match key {
            KeyCode::Char('j') | KeyCode::Down => self.at = (self.at + 1).min(last),
            KeyCode::Char('k') | KeyCode::Up => self.at = self.at.saturating_sub(1),
            KeyCode::PageDown => self.at = (self.at + 10).min(last),
            KeyCode::PageUp => self.at = self.at.saturating_sub(10),
            KeyCode::Char('g') | KeyCode::Home => self.at = 0,
            KeyCode::Char('G') | KeyCode::End => self.at = last,
            KeyCode::Char(' ') => {
                let mark = match self.tree.mark(line) {
                    Some(Mark::Accepted) => Mark::Rejected,
                    Some(Mark::Rejected) => Mark::Open,
                    _ => Mark::Accepted,
                };
                self.tree.decide(line, mark);
            }
            KeyCode::Char('a') => self.decide_and_go_on(line, Mark::Accepted, last),
            KeyCode::Char('r') => self.decide_and_go_on(line, Mark::Rejected, last),
            KeyCode::Char('A') => {
                for mark in &mut self.tree.marks {
                    *mark = Mark::Accepted;
                }
            }
            KeyCode::Char('d') => self.focus = Focus::Difference,
            KeyCode::Enter => match self.tree.lines[line].below.is_empty() {
                true => self.focus = Focus::Difference,
                false => self.tree.lines[line].folded = !self.tree.lines[line].folded,
            },
            KeyCode::Char('?') => self.focus = Focus::Help,
            KeyCode::Char('c') if self.tree.accepted().next().is_some() => return Then::Commit,
            KeyCode::Char('q') | KeyCode::Esc => return Then::Leave,
            _ => {}
        }
        Then::GoOn
    }

    fn decide_and_go_on(&mut self, line: usize, mark: Mark, last: usize) {
        self.tree.decide(line, mark);
        self.at = (self.at + 1).min(last);
    }

    /// The difference of a line, unless it is read already.
    fn read_difference(&mut self, line: usize) {
        if self
            .difference
            .as_ref()
            .is_some_and(|(read, _)| *read == line)
        {
            return;
        }
        let mut text = Vec::new();
        if let Some(effect) = self.tree.lines.get(line).and_then(|line| line.effect) {
            // Into memory nothing fails; what cannot be read is said in the text.
            let _infallible = self.differ.write(&self.effects[effect], &mut text);
        }
        text.truncate(MAX_DIFFERENCE);
        let lines = text.split(|&byte| byte == b'\n').map(plain).collect();
        self.difference = Some((line, lines));
        self.scroll = 0;
    }
}

/// A line that the terminal shows and does not act on.
#[expect(
    clippy::disallowed_methods,
    reason = "contents are shown here, no names"
)]
fn plain(line: &[u8]) -> String {
    let mut shown = String::with_capacity(line.len());
    for c in String::from_utf8_lossy(line).chars() {
        match c {
            '\t' => shown.push_str("    "),
            '\\' => shown.push(c),
            c if needs_escape(c) => shown.extend(c.escape_default()),
            c => shown.push(c),
        }
    }
    shown
}
