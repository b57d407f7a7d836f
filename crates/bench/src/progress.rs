//! Says on stderr which phase runs, to a person at a terminal and to nobody else.

use std::io::IsTerminal as _;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Drawing costs the measured cores a little, so it is rare.
const DRAW_EVERY: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(crate) struct ProgressDisplay(ProgressBar);

impl ProgressDisplay {
    pub(crate) fn begin() -> Self {
        if !std::io::stderr().is_terminal() {
            return Self(ProgressBar::hidden());
        }
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr_with_hz(4));
        let style = ProgressStyle::with_template("{bar:24} {pos}/{len}  {msg}  {elapsed}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Self(bar)
    }

    /// How many steps there will be. Nothing is drawn before this is known.
    pub(crate) fn expect(&self, steps: u64) {
        self.0.set_length(steps);
        self.0.enable_steady_tick(DRAW_EVERY);
    }

    /// Names the step that begins.
    pub(crate) fn step(&self, name: String) {
        self.0.set_message(name);
    }

    /// The step that was named is done.
    pub(crate) fn done(&self) {
        self.0.inc(1);
    }
}

impl Drop for ProgressDisplay {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
