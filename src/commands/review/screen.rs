//! How a review looks.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Clear, List, ListItem, ListState, Paragraph};

use super::tree::Mark;
use super::{Focus, Review};
use crate::listing::Code;
use crate::render::colour::Palette;
use crate::render::name::escaped;

/// Narrower screens show list and difference in turn.
const WIDE: u16 = 100;

const HELP: &str = "\
j k ↑ ↓       up and down; g G PgUp PgDn further
enter         fold or unfold a directory; a file's difference
a  r          accept or reject the line and all below it
space         accepted, rejected, undecided in turn
A             accept everything
d             read the difference; d again: back
c             commit what is accepted, after a question
q             leave; nothing is changed

any key       back";

pub(super) fn draw(review: &Review<'_>, visible: &[usize], frame: &mut Frame<'_>) {
    let [title, body, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Min(1),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    let accepted = review.tree.accepted().count();
    let rejected = review
        .tree
        .marks
        .iter()
        .filter(|mark| **mark == Mark::Rejected)
        .count();
    let open = review.tree.marks.len() - accepted - rejected;
    let words = format!(
        "session {}: {accepted} accepted, {rejected} rejected, {open} undecided",
        review.label
    );
    frame.render_widget(Paragraph::new(words).style(bold()), title);
    let help = "a accept  r reject  d diff  c commit  q leave  ? help";
    frame.render_widget(Paragraph::new(help).style(faint()), keys);
    if review.focus == Focus::Help {
        frame.render_widget(Clear, body);
        frame.render_widget(Paragraph::new(HELP), body);
        return;
    }
    let reads = review.focus == Focus::Difference;
    if body.width < WIDE {
        match reads {
            true => draw_difference(review, frame, body),
            false => draw_list(review, visible, frame, body),
        }
        return;
    }
    let [left, gap, right] = Layout::horizontal([
        Constraint::Percentage(45),
        Constraint::Length(1),
        Constraint::Min(1),
    ])
    .areas(body);
    draw_list(review, visible, frame, left);
    let bar: Vec<Line<'_>> = (0..gap.height).map(|_| Line::from("│")).collect();
    frame.render_widget(Paragraph::new(bar).style(faint()), gap);
    draw_difference(review, frame, right);
}

fn draw_list(review: &Review<'_>, visible: &[usize], frame: &mut Frame<'_>, area: Rect) {
    // Only what fits is made: a session may have a million effects.
    let height = usize::from(area.height).max(1);
    let first = review
        .at
        .saturating_sub(height / 2)
        .min(visible.len().saturating_sub(height));
    let items: Vec<ListItem<'_>> = visible
        .iter()
        .skip(first)
        .take(height)
        .map(|&at| ListItem::new(item(review, at)))
        .collect();
    let mut state = ListState::default().with_selected(Some(review.at - first));
    let list = List::new(items).highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    frame.render_stateful_widget(list, area, &mut state);
}

fn item<'i>(review: &'i Review<'_>, at: usize) -> Line<'i> {
    let line = &review.tree.lines[at];
    let mark = match review.tree.mark(at) {
        Some(Mark::Accepted) => "[+] ",
        Some(Mark::Rejected) => "[-] ",
        Some(Mark::Open) => "[ ] ",
        None => "[~] ",
    };
    let row = line.effect.map(|effect| &review.rows[effect]);
    let mut spans = vec![Span::raw(mark), Span::raw("  ".repeat(line.depth.min(12)))];
    match row {
        Some(row) => spans.push(Span::styled(
            format!("{} ", row.code.letter()),
            ink(row.code),
        )),
        None => spans.push(Span::raw("  ")),
    }
    if let Some(from) = row.and_then(|row| row.from) {
        spans.push(Span::raw(format!("{} -> ", escaped(from))));
    }
    spans.push(Span::raw(escaped(&line.name).to_string()));
    if line.folded {
        let hidden = line.below.len();
        spans.push(Span::styled(format!("  and {hidden} below"), faint()));
    }
    if let Some(risk) = row.and_then(|row| row.risk) {
        spans.push(Span::styled(
            format!("  ! {risk}"),
            coloured(Color::Red).add_modifier(Modifier::BOLD),
        ));
    }
    Line::from(spans)
}

fn draw_difference(review: &Review<'_>, frame: &mut Frame<'_>, area: Rect) {
    let lines = review
        .difference
        .as_ref()
        .map_or(&[][..], |(_, lines)| lines);
    let shown = lines
        .iter()
        .skip(review.scroll)
        .take(usize::from(area.height));
    let shown: Vec<Line<'_>> = shown
        .map(|line| {
            let style = match line.as_bytes().first() {
                _ if line.starts_with("+++")
                    || line.starts_with("---")
                    || line.starts_with("@@") =>
                {
                    faint()
                }
                Some(b'+') => coloured(Color::Green),
                Some(b'-') => coloured(Color::Red),
                _ => Style::new(),
            };
            Line::styled(line.as_str(), style)
        })
        .collect();
    frame.render_widget(Paragraph::new(shown), area);
}

fn ink(code: Code) -> Style {
    coloured(match code {
        Code::Added => Color::Green,
        Code::Deleted => Color::Red,
        Code::Renamed => Color::Cyan,
        Code::Content | Code::Metadata | Code::Type => Color::Yellow,
    })
}

fn coloured(colour: Color) -> Style {
    match Palette::is_wanted() {
        true => Style::new().fg(colour),
        false => Style::new(),
    }
}

fn faint() -> Style {
    Style::new().add_modifier(Modifier::DIM)
}

fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}
