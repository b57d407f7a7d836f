//! Health of a destination: status badge, active limits and messages sent today.

use std::{num::NonZeroU64, time::Duration};

use surehook_api::{resources::DestinationState, stats::DestinationStatsResponse};
use surehook_retry::rate::Rate;
use surehook_types::time::Timestamp;

use super::NO_VALUE;
use crate::{
    format::{Badge, format_duration},
    lang::{Lang, fill},
    translations::DestinationTexts,
};

/// Age of the oldest delivery that is due.
pub(super) fn oldest_age(numbers: Option<&DestinationStatsResponse>, lang: Lang) -> String {
    let seconds = numbers.and_then(|numbers| numbers.oldest_pending_age_seconds);
    let age_text = seconds.map(|age| format_duration(lang, Duration::from_secs(age)));
    age_text.unwrap_or_else(|| NO_VALUE.to_owned())
}

/// What the lane does besides its health, as a badge.
pub(super) fn lane_badge(state: &DestinationState, t: &DestinationTexts) -> Option<Badge> {
    match state.circuit.as_str() {
        "half_open" => return Some(Badge::new("warn", "pulse", t.circuit_half_open)),
        "ramp" => return Some(Badge::new("warn", "pulse", t.circuit_ramp)),
        _ => {}
    }
    if state.pause.is_some() {
        return None;
    }
    if state.cooling_until.is_some() {
        return Some(Badge::new("warn", "clock", t.cooling));
    }
    state.hold.as_ref().map(|_| Badge::new("warn", "clock", t.holding))
}

/// A limit, and when it ends.
pub(super) struct ActiveLimit {
    pub(super) text: String,
    pub(super) until: Option<Timestamp>,
}

/// All limits that slow deliveries down.
pub(super) fn active_limits(
    state: Option<&DestinationState>,
    rate: Option<Rate>,
    t: &DestinationTexts,
) -> Vec<ActiveLimit> {
    let limit = |text: &str, until| ActiveLimit { text: text.to_owned(), until };
    let mut limits = Vec::new();
    if let Some(state) = state {
        let circuit = state.open_until.map(|until| limit(t.limited_circuit, Some(until)));
        let cooling = state.cooling_until.map(|until| limit(t.limited_cooling, Some(until)));
        limits.extend(circuit.into_iter().chain(cooling));
        if let Some(hold) = &state.hold {
            let text = match hold.reason.as_str() {
                "quiet_hours" => t.limited_quiet,
                "daily_limit" => t.limited_daily,
                other => other,
            };
            limits.push(limit(text, Some(hold.until)));
        }
        if let Some(drain) = &state.drain {
            limits.push(limit(&fill(t.limited_drain, &[&drain.rate]), None));
        }
    }
    if let Some(rate) = rate {
        limits.push(limit(&fill(t.limited_rate, &[&rate]), None));
    }
    limits
}

/// Messages sent today; unofficial numbers are banned if they send too many.
pub(super) struct DailyMeter {
    pub(super) badge: Badge,
    /// Values of the `<meter>`.
    pub(super) sent: u64,
    pub(super) high: u64,
    pub(super) max: u64,
}

pub(super) fn daily_meter(
    numbers: &DestinationStatsResponse,
    lang: Lang,
    t: &DestinationTexts,
) -> Option<DailyMeter> {
    let sent = numbers.sent_today?;
    let (warn, stop) = (numbers.warn_at, numbers.stop_at);
    let (warn, stop) = (warn.map(NonZeroU64::get), stop.map(NonZeroU64::get));
    let text = match stop.or(warn) {
        Some(max) => fill(t.sent_of, &[&lang.number(sent), &lang.number(max)]),
        None => lang.count(sent, t.sent_one, t.sent),
    };
    let is_full = stop.is_some_and(|stop| sent >= stop);
    let badge = match (is_full, numbers.warning_reached) {
        (true, _) => Badge::new("bad", "warn", text),
        (false, true) => Badge::new("warn", "warn", text),
        (false, false) => Badge::new("", "send", text),
    };
    let max = stop.or(warn.map(|warn| warn * 2)).unwrap_or(sent).max(sent).max(1);
    Some(DailyMeter { badge, sent, high: warn.unwrap_or(max), max })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lane_badge_shows_what_slows_deliveries_down() {
        let t = DestinationTexts::of(Lang::En);
        const AT: &str = "2026-11-15T10:00:00.000Z";
        for (mut state, expected) in [
            (json!({ "circuit": "closed" }), None),
            (json!({ "circuit": "open", "open_until": AT }), None),
            (json!({ "circuit": "half_open" }), Some(t.circuit_half_open)),
            (json!({ "circuit": "closed", "cooling_until": AT }), Some(t.cooling)),
            (
                json!({ "circuit": "closed", "hold": { "until": AT, "reason": "quiet_hours" } }),
                Some(t.holding),
            ),
            (
                json!({
                    "circuit": "closed", "cooling_until": AT, "pause": { "at": AT, "automatic": true },
                }),
                None,
            ),
        ] {
            (state["paused"], state["holds"]) = (false.into(), false.into());
            let read: DestinationState = serde_json::from_value(state.clone()).unwrap();
            let badge = lane_badge(&read, t).map(|badge| badge.text);
            assert_eq!(badge.as_deref(), expected, "case: {state}");
        }
    }

    #[test]
    fn daily_meter_warns_before_the_limit() {
        let t = DestinationTexts::of(Lang::En);
        for (sent, warn, stop, over, expected) in [
            (Some(3_u64), Some(50_u64), Some(200_u64), false, Some(("", 200))),
            (Some(60), Some(50), Some(200), true, Some(("warn", 200))),
            (Some(200), Some(50), Some(200), true, Some(("bad", 200))),
            (Some(60), Some(50), None, true, Some(("warn", 100))),
            (Some(0), None, None, false, Some(("", 1))),
            (None, None, None, false, None),
        ] {
            let numbers = json!({
                "name": "wa", "sent_today": sent, "warn_at": warn, "stop_at": stop, "warning_reached": over,
                "health": {
                    "status": "healthy", "window": "5m", "attempts": 1, "failed": 0, "dead": 0,
                    "backlog": { "waiting": 0, "due": 0, "more": false },
                },
            });
            let meter = daily_meter(&serde_json::from_value(numbers).unwrap(), Lang::En, t);
            assert_eq!(meter.map(|meter| (meter.badge.tone, meter.max)), expected);
        }
    }
}
