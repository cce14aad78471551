//! A progress bar for what takes longer than a moment.

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use effigy_replay::{Phase, Progress};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Work shorter than this shows nothing: a bar that flashes by says nothing.
const SHOW_AFTER: Duration = Duration::from_millis(200);

/// Work longer than this gets an estimate of what is left; before, it would be a guess.
const ESTIMATE_AFTER: Duration = Duration::from_secs(3);

const TEMPLATE: &str = "{msg:9} [{bar:32}] {human_pos}/{human_len}";
const TEMPLATE_WITH_ESTIMATE: &str = "{msg:9} [{bar:32}] {human_pos}/{human_len}, {eta} left";

/// Shows how far a piece of work is, on stderr and only on a terminal.
pub(crate) struct Meter {
    started: Instant,
    shown: bool,
    estimated: bool,
    phase: Option<Phase>,
    bar: Option<ProgressBar>,
}

impl Meter {
    pub(crate) fn new(quiet: bool) -> Self {
        let bar = (!quiet && std::io::stderr().is_terminal())
            .then(|| ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden()));
        Self {
            started: Instant::now(),
            shown: false,
            estimated: false,
            phase: None,
            bar,
        }
    }

    pub(crate) fn update(&mut self, progress: Progress) {
        let Some(bar) = &self.bar else { return };
        let elapsed = self.started.elapsed();
        if elapsed < SHOW_AFTER {
            return;
        }
        if !self.shown {
            self.shown = true;
            bar.set_style(style(TEMPLATE));
            bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        if !self.estimated && elapsed >= ESTIMATE_AFTER {
            self.estimated = true;
            bar.set_style(style(TEMPLATE_WITH_ESTIMATE));
        }
        if self.phase != Some(progress.phase) {
            self.phase = Some(progress.phase);
            bar.set_message(label(progress.phase));
            bar.reset_eta();
        }
        let (done, total) = share(progress);
        bar.set_length(total);
        bar.set_position(done);
    }
}

/// While bytes are copied they say more than steps, of which one may be most of the work.
fn share(progress: Progress) -> (u64, u64) {
    if progress.phase == Phase::Preparing && progress.to_copy > 0 {
        (progress.copied >> 20, progress.to_copy.div_ceil(1 << 20))
    } else {
        (progress.done, progress.total)
    }
}

const fn label(phase: Phase) -> &'static str {
    match phase {
        Phase::Preparing => "preparing",
        Phase::Syncing => "syncing",
        Phase::Switching => "applying",
        Phase::Finishing => "tidying",
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
        for template in [TEMPLATE, TEMPLATE_WITH_ESTIMATE] {
            assert!(ProgressStyle::with_template(template).is_ok());
        }
    }

    #[test]
    fn bytes_count_while_there_are_some() {
        let mut progress = Progress {
            phase: Phase::Preparing,
            done: 1,
            total: 2,
            copied: 5 << 20,
            to_copy: (9 << 20) + 1,
        };
        assert_eq!(share(progress), (5, 10));
        progress.phase = Phase::Switching;
        assert_eq!(share(progress), (1, 2));
    }
}
