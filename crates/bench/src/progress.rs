//! Shows the running phase on stderr, only if stderr is a terminal.

use std::io::IsTerminal as _;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Drawing costs CPU time that is measured, so it is rare.
const DRAW_INTERVAL: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(crate) struct ProgressDisplay(ProgressBar);

impl ProgressDisplay {
    pub(crate) fn start() -> Self {
        if !std::io::stderr().is_terminal() {
            return Self(ProgressBar::hidden());
        }
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr_with_hz(4));
        let style = ProgressStyle::with_template("{bar:24} {pos}/{len}  {msg}  {elapsed}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Self(bar)
    }

    /// Sets the number of steps. Nothing is drawn before.
    pub(crate) fn set_total(&self, steps: u64) {
        self.0.set_length(steps);
        self.0.enable_steady_tick(DRAW_INTERVAL);
    }

    pub(crate) fn start_step(&self, name: String) {
        self.0.set_message(name);
    }

    pub(crate) fn finish_step(&self) {
        self.0.inc(1);
    }
}

impl Drop for ProgressDisplay {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
