//! Timing of an attempt as consecutive bars.

use std::time::Duration;

use surehook_guard::timing::AttemptTimingView;

use crate::{format::format_duration, lang::Lang, translations::EventTexts};

/// Width of the SVG view box.
pub(super) const WIDTH: u64 = 1000;

/// Position and width in SVG units.
pub(super) struct WaterfallBar {
    pub(super) class: &'static str,
    pub(super) x: u64,
    pub(super) width: u64,
}

pub(super) struct Waterfall {
    pub(super) bars: Vec<WaterfallBar>,
    /// CSS class, name and duration of each stage.
    pub(super) parts: Vec<(&'static str, &'static str, String)>,
    pub(super) total: String,
    pub(super) reused: bool,
}

impl Waterfall {
    /// Scales the bars so that `longest` milliseconds fill the width.
    pub(super) fn build(
        timing: &AttemptTimingView,
        longest: u64,
        lang: Lang,
        t: &'static EventTexts,
    ) -> Self {
        let total = timing.total_ms;
        let stages = [
            ("w-dns", t.dns, timing.dns_ms),
            ("w-connect", t.connect, timing.connect_ms),
            ("w-tls", t.tls, timing.tls_ms),
            ("w-first", t.first_byte, timing.first_byte_ms),
        ];
        let measured: u64 = stages.iter().filter_map(|stage| stage.2).sum();
        let rest = Some(total.saturating_sub(measured)).filter(|rest| *rest > 0);
        let scale = longest.max(total).max(measured).max(1);
        let (mut bars, mut parts, mut at) = (Vec::new(), Vec::new(), 0);
        for (class, name, ms) in stages.into_iter().chain([("w-rest", t.rest, rest)]) {
            let Some(ms) = ms else { continue };
            let (x, end) = (at * WIDTH / scale, (at + ms) * WIDTH / scale);
            // Very short stages stay visible.
            bars.push(WaterfallBar { class, x: x.min(WIDTH - 4), width: (end - x).max(4) });
            parts.push((class, name, format_duration(lang, Duration::from_millis(ms))));
            at += ms;
        }
        Self {
            bars,
            parts,
            total: format_duration(lang, Duration::from_millis(total)),
            reused: timing.reused_connection == Some(true),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNMEASURED: AttemptTimingView = AttemptTimingView {
        dns_ms: None,
        connect_ms: None,
        tls_ms: None,
        first_byte_ms: None,
        total_ms: 0,
        reused_connection: None,
    };

    fn drawn(timing: &AttemptTimingView, longest: u64) -> Vec<(&'static str, u64, u64)> {
        let drawn = Waterfall::build(timing, longest, Lang::En, EventTexts::of(Lang::En));
        drawn.bars.iter().map(|bar| (bar.class, bar.x, bar.width)).collect()
    }

    #[test]
    fn waterfall_stages_add_up_to_the_total() {
        let timing = AttemptTimingView {
            dns_ms: Some(10),
            connect_ms: Some(20),
            first_byte_ms: Some(50),
            total_ms: 100,
            ..UNMEASURED
        };
        let expected = [
            ("w-dns", 0, 100),
            ("w-connect", 100, 200),
            ("w-first", 300, 500),
            ("w-rest", 800, 200),
        ];
        assert_eq!(drawn(&timing, 0), expected);
        let half =
            [("w-dns", 0, 50), ("w-connect", 50, 100), ("w-first", 150, 250), ("w-rest", 400, 100)];
        assert_eq!(drawn(&timing, 200), half);
    }

    #[test]
    fn inconsistent_timings_stay_within_the_waterfall() {
        let none = AttemptTimingView { dns_ms: Some(0), ..UNMEASURED };
        assert_eq!(drawn(&none, 0), [("w-dns", 0, 4)]);
        let more_than_all = AttemptTimingView {
            total_ms: 1,
            tls_ms: Some(9),
            first_byte_ms: Some(0),
            ..UNMEASURED
        };
        assert_eq!(drawn(&more_than_all, 0), [("w-tls", 0, 1000), ("w-first", 996, 4)]);
    }
}
