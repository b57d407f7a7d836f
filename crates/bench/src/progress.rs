//! Shows the running phase on stderr, only if stderr is a terminal.

use std::borrow::Cow;
use std::io::IsTerminal as _;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Drawing costs CPU time that is measured, so it is rare.
const DRAWS_PER_SECOND: u8 = 2;

#[derive(Debug)]
pub(crate) struct ProgressDisplay(ProgressBar);

impl ProgressDisplay {
    pub(crate) fn start() -> Self {
        if !std::io::stderr().is_terminal() {
            return Self(ProgressBar::hidden());
        }
        let bar = ProgressBar::with_draw_target(
            Some(0),
            ProgressDrawTarget::stderr_with_hz(DRAWS_PER_SECOND),
        );
        let style = ProgressStyle::with_template("{bar:24} {pos}/{len}  {msg}  {elapsed}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Self(bar)
    }

    /// Sets the number of steps and starts drawing.
    pub(crate) fn set_total(&self, steps: u64) {
        self.0.set_length(steps);
        self.0.enable_steady_tick(Duration::from_secs(1) / u32::from(DRAWS_PER_SECOND));
    }

    pub(crate) fn start_step(&self, name: impl Into<Cow<'static, str>>) {
        self.0.set_message(name);
    }

    pub(crate) fn finish_step(&self) {
        self.0.inc(1);
    }

    /// Starts a new bar that counts `total` items instead of steps.
    pub(crate) fn start_count(&self, name: impl Into<Cow<'static, str>>, total: u64) {
        self.0.reset();
        self.set_total(total);
        self.start_step(name);
    }

    pub(crate) fn set_count(&self, done: u64) {
        self.0.set_position(done);
    }
}

impl Drop for ProgressDisplay {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
