//! How a destination does, for people.

use std::time::Duration;

use serde::Deserialize;

use super::NOTHING;
use crate::{
    lang::{Lang, fill},
    show::{Badge, span},
    words::Destinations,
};

/// What the API says of a destination's lane.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct State {
    pub(super) pause: Option<Pause>,
    pub(super) circuit: String,
    pub(super) open_until: Option<String>,
    pub(super) cooling_until: Option<String>,
    pub(super) hold: Option<Hold>,
    pub(super) drain: Option<Drain>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Pause {
    pub(super) at: String,
    pub(super) reason: Option<String>,
    pub(super) automatic: bool,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Hold {
    pub(super) until: String,
    pub(super) why: String,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Drain {
    pub(super) rate: String,
}

/// What `/stats` says of a destination.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Numbers {
    pub(super) name: String,
    pub(super) oldest_pending_age_seconds: Option<u64>,
    pub(super) sent_today: Option<u64>,
    pub(super) warn_at: Option<u64>,
    pub(super) stop_at: Option<u64>,
    pub(super) over: bool,
}

impl Numbers {
    /// How long the oldest has waited that could have been sent by now.
    pub(super) fn age(&self, lang: Lang) -> String {
        let seconds = self.oldest_pending_age_seconds;
        let shown = seconds.map(|age| span(lang, Duration::from_secs(age)));
        shown.unwrap_or_else(|| NOTHING.to_owned())
    }
}

/// A state in one pill: what matters most. None of settings that cannot be used.
pub(super) fn badge(state: Option<&State>, t: &Destinations) -> Badge {
    let Some(state) = state else { return Badge::new("bad", "warn", t.unusable) };
    if state.pause.is_some() {
        return Badge::new("held", "pause", t.paused);
    }
    match state.circuit.as_str() {
        "open" => return Badge::new("bad", "cross", t.circuit_open),
        "half_open" => return Badge::new("warn", "pulse", t.circuit_half_open),
        "ramp" => return Badge::new("warn", "pulse", t.circuit_ramp),
        _ => {}
    }
    if state.cooling_until.is_some() {
        return Badge::new("warn", "clock", t.cooling);
    }
    if state.hold.is_some() {
        return Badge::new("warn", "clock", t.holding);
    }
    Badge::new("ok", "check", t.healthy)
}

/// A line of what limits it: what, and until when.
pub(super) struct Limit {
    pub(super) text: String,
    pub(super) until: Option<String>,
}

/// Everything that keeps it from getting more, now or in general.
pub(super) fn limits(state: Option<&State>, rate: Option<&str>, t: &Destinations) -> Vec<Limit> {
    let limit =
        |text: &str, until: Option<&String>| Limit { text: text.to_owned(), until: until.cloned() };
    let mut limits = Vec::new();
    if let Some(state) = state {
        if let Some(until) = &state.open_until {
            limits.push(limit(t.limited_circuit, Some(until)));
        }
        if let Some(until) = &state.cooling_until {
            limits.push(limit(t.limited_cooling, Some(until)));
        }
        if let Some(hold) = &state.hold {
            let text = match hold.why.as_str() {
                "quiet_hours" => t.limited_quiet,
                "daily_limit" => t.limited_daily,
                other => other,
            };
            limits.push(limit(text, Some(&hold.until)));
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

/// What was sent today by a number that may be banned for it.
pub(super) struct Watermark {
    pub(super) badge: Badge,
    /// For a meter: sent, where it warns and what it is measured by.
    pub(super) sent: u64,
    pub(super) high: u64,
    pub(super) most: u64,
}

pub(super) fn watermark(numbers: &Numbers, lang: Lang, t: &Destinations) -> Option<Watermark> {
    let sent = numbers.sent_today?;
    let (warn, stop) = (numbers.warn_at, numbers.stop_at);
    let text = match stop.or(warn) {
        Some(most) => fill(t.sent_of, &[&lang.number(sent), &lang.number(most)]),
        None => lang.count(sent, t.sent_one, t.sent),
    };
    let is_full = stop.is_some_and(|stop| sent >= stop);
    let badge = match (is_full, numbers.over) {
        (true, _) => Badge::new("bad", "warn", text),
        (false, true) => Badge::new("warn", "warn", text),
        (false, false) => Badge::new("", "send", text),
    };
    let most = stop.or(warn.map(|warn| warn * 2)).unwrap_or(sent).max(sent).max(1);
    Some(Watermark { badge, sent, high: warn.unwrap_or(most), most })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_pill_says_what_matters_most() {
        let t = Destinations::of(Lang::En);
        for (state, tone) in [
            (json!({ "circuit": "closed" }), "ok"),
            (json!({ "circuit": "open", "open_until": "x" }), "bad"),
            (json!({ "circuit": "half_open" }), "warn"),
            (json!({ "circuit": "closed", "cooling_until": "x" }), "warn"),
            (
                json!({ "circuit": "closed", "hold": { "until": "x", "why": "quiet_hours" } }),
                "warn",
            ),
            (
                json!({ "circuit": "open", "pause": { "at": "x", "reason": null, "automatic": true } }),
                "held",
            ),
        ] {
            let read: State = serde_json::from_value(state.clone()).unwrap();
            assert_eq!(badge(Some(&read), t).tone, tone, "case: {state}");
        }
        assert_eq!(badge(None, t).tone, "bad");
    }

    #[test]
    fn what_was_sent_today_warns_before_it_stops() {
        let t = Destinations::of(Lang::En);
        for (sent, warn, stop, over, expected) in [
            (Some(3), Some(50), Some(200), false, Some(("", 200))),
            (Some(60), Some(50), Some(200), true, Some(("warn", 200))),
            (Some(200), Some(50), Some(200), true, Some(("bad", 200))),
            (Some(60), Some(50), None, true, Some(("warn", 100))),
            (Some(0), None, None, false, Some(("", 1))),
            (None, None, None, false, None),
        ] {
            let numbers = Numbers {
                sent_today: sent,
                warn_at: warn,
                stop_at: stop,
                over,
                ..Numbers::default()
            };
            let mark = watermark(&numbers, Lang::En, t);
            assert_eq!(mark.map(|mark| (mark.badge.tone, mark.most)), expected);
        }
    }
}
