//! A progress bar for what takes longer than a moment.

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Work shorter than this shows nothing: a bar that flashes by says nothing.
const SHOW_AFTER: Duration = Duration::from_millis(200);

/// Work longer than this gets an estimate of what is left; before, it would be a guess.
const ESTIMATE_AFTER: Duration = Duration::from_secs(3);

/// Shows how far a piece of work is, on stderr and only on a terminal.
pub(crate) struct Meter {
    label: &'static str,
    started: Instant,
    shown: bool,
    estimated: bool,
    bar: Option<ProgressBar>,
}

impl Meter {
    pub(crate) fn new(label: &'static str, quiet: bool) -> Self {
        let bar = (!quiet && std::io::stderr().is_terminal())
            .then(|| ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden()));
        Self {
            label,
            started: Instant::now(),
            shown: false,
            estimated: false,
            bar,
        }
    }

    pub(crate) fn update(&mut self, done: u64, total: u64) {
        let Some(bar) = &self.bar else { return };
        let elapsed = self.started.elapsed();
        if elapsed < SHOW_AFTER {
            return;
        }
        if !self.shown {
            self.shown = true;
            bar.set_message(self.label);
            bar.set_style(style("{msg} [{bar:32}] {human_pos}/{human_len}"));
            bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        if !self.estimated && elapsed >= ESTIMATE_AFTER {
            self.estimated = true;
            bar.set_style(style(
                "{msg} [{bar:32}] {human_pos}/{human_len}, {eta} left",
            ));
        }
        bar.set_length(total);
        bar.set_position(done);
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar
            && self.shown
        {
            bar.finish_and_clear();
        }
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("=> ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_valid() {
        for template in [
            "{msg} [{bar:32}] {human_pos}/{human_len}",
            "{msg} [{bar:32}] {human_pos}/{human_len}, {eta} left",
        ] {
            assert!(ProgressStyle::with_template(template).is_ok());
        }
    }
}
