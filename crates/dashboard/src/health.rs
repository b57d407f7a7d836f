//! The health of a destination as pages show it: the same words on overview, list and page.

use std::time::Duration;

use surehook_api::resources::{DestinationHealthResponse, LastErrorResponse};
use surehook_core::health::HealthStatus;
use surehook_retry::{AttemptFailure, FailureClass};
use surehook_types::time::Timestamp;

use crate::{
    format::{Badge, format_duration},
    lang::{Lang, fill},
    translations::{FailureTexts, HealthTexts},
};

/// What pages show about the health of a destination.
pub(crate) struct HealthSummary {
    pub(crate) status: HealthStatus,
    pub(crate) badge: Badge,
    pub(crate) since: Option<Timestamp>,
    /// What the status is based on.
    pub(crate) reason: String,
    pub(crate) last_error: Option<ErrorSummary>,
    /// Number of waiting deliveries.
    pub(crate) waiting: String,
    /// How many are due, and how long it takes to send them; empty if none are.
    pub(crate) drain: String,
}

/// The most recent error, with a link to its event.
pub(crate) struct ErrorSummary {
    pub(crate) at: Timestamp,
    pub(crate) text: String,
    /// From the API, in English.
    pub(crate) detail: Option<String>,
    pub(crate) path: String,
}

impl HealthSummary {
    pub(crate) fn new(health: &DestinationHealthResponse, lang: Lang) -> Self {
        let t = HealthTexts::of(lang);
        Self {
            status: health.status,
            badge: health_badge(health.status, lang),
            since: health.since,
            reason: reason(health, lang, t),
            last_error: health.last_error.as_ref().map(|error| ErrorSummary::new(error, lang)),
            waiting: waiting(health, lang, t),
            drain: drain(health, lang, t),
        }
    }

    /// Whether deliveries wait until someone or the circuit lets them through.
    pub(crate) fn is_holding(&self) -> bool {
        matches!(self.status, HealthStatus::Paused | HealthStatus::CircuitOpen)
    }

    /// Whether it needs attention.
    pub(crate) fn is_problem(&self) -> bool {
        !matches!(self.status, HealthStatus::Healthy | HealthStatus::NoTraffic)
    }
}

impl ErrorSummary {
    fn new(error: &LastErrorResponse, lang: Lang) -> Self {
        let f = FailureTexts::of(lang);
        let status = error.status.map(|status| format!("HTTP {status}"));
        let failure = error.failure.map(|failure| f.failure(AttemptFailure::as_str(failure)));
        let class = error.class.map(|class| f.class(FailureClass::as_str(class)).to_owned());
        let outcome = status.or_else(|| failure.map(str::to_owned));
        let parts: Vec<String> = [outcome, class].into_iter().flatten().collect();
        Self {
            at: error.at,
            text: parts.join(" · "),
            detail: error.detail.clone(),
            path: format!("/events/{}#{}", error.event, error.delivery),
        }
    }
}

pub(crate) fn health_badge(status: HealthStatus, lang: Lang) -> Badge {
    let (tone, icon) = match status {
        HealthStatus::Misconfigured => ("bad", "warn"),
        HealthStatus::Paused => ("held", "pause"),
        HealthStatus::CircuitOpen | HealthStatus::Failing => ("bad", "cross"),
        HealthStatus::Degraded => ("warn", "warn"),
        HealthStatus::NoTraffic => ("", "clock"),
        HealthStatus::Healthy => ("ok", "check"),
    };
    Badge::new(tone, icon, HealthTexts::of(lang).status(status.as_str()))
}

fn reason(health: &DestinationHealthResponse, lang: Lang, t: &HealthTexts) -> String {
    let window = format_duration(lang, health.window.0);
    let attempts = match health.attempts {
        0 => fill(t.no_attempts, &[&window]),
        attempts => {
            let (failed, attempts) = (lang.number(health.failed), lang.number(attempts));
            fill(t.attempts, &[&failed, &attempts, &window])
        }
    };
    match health.dead {
        0 => attempts,
        dead => format!("{attempts} · {}", lang.count(dead, t.dead_one, t.dead)),
    }
}

fn waiting(health: &DestinationHealthResponse, lang: Lang, t: &HealthTexts) -> String {
    let backlog = &health.backlog;
    let number = lang.number(backlog.waiting);
    match (backlog.waiting, backlog.more) {
        (0, _) => t.no_backlog.to_owned(),
        (_, false) => number,
        (_, true) => fill(t.at_least, &[&number]),
    }
}

fn drain(health: &DestinationHealthResponse, lang: Lang, t: &HealthTexts) -> String {
    let backlog = &health.backlog;
    if backlog.due == 0 {
        return String::new();
    }
    let due = fill(t.due_now, &[&lang.number(backlog.due)]);
    let time = match backlog.drain_seconds {
        Some(seconds) => {
            fill(t.drains_in, &[&format_duration(lang, Duration::from_secs(seconds.max(1)))])
        }
        None => t.not_draining.to_owned(),
    };
    format!("{due}, {time}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn summary(mut health: serde_json::Value, lang: Lang) -> HealthSummary {
        for (name, value) in [
            ("window", json!("5m")),
            ("attempts", json!(0)),
            ("failed", json!(0)),
            ("dead", json!(0)),
            ("backlog", json!({ "waiting": 0, "due": 0, "more": false })),
        ] {
            if health[name].is_null() {
                health[name] = value;
            }
        }
        HealthSummary::new(&serde_json::from_value(health).unwrap(), lang)
    }

    #[test]
    fn tone_follows_the_status() {
        for (status, tone, is_problem) in [
            ("misconfigured", "bad", true),
            ("paused", "held", true),
            ("circuit_open", "bad", true),
            ("failing", "bad", true),
            ("degraded", "warn", true),
            ("no_traffic", "", false),
            ("healthy", "ok", false),
        ] {
            let summary = summary(json!({ "status": status }), Lang::En);
            assert_eq!((summary.badge.tone, summary.is_problem()), (tone, is_problem), "{status}");
        }
    }

    #[test]
    fn reason_and_backlog_are_sentences() {
        let failing = json!({
            "status": "failing", "attempts": 1200, "failed": 700, "dead": 1,
            "backlog": { "waiting": 12_000, "due": 300, "more": true, "drain_seconds": 90 },
        });
        let seen = summary(failing, Lang::En);
        let reason = "700 of 1,200 attempts failed in the last 5 min · 1 new dead letter";
        assert_eq!(seen.reason, reason);
        assert_eq!(
            (&*seen.waiting, &*seen.drain),
            ("at least 12,000", "300 due now, sent in about 90 s")
        );
        let held = json!({
            "status": "paused", "backlog": { "waiting": 3, "due": 3, "more": false },
        });
        let seen = summary(held, Lang::En);
        assert_eq!((&*seen.waiting, &*seen.drain), ("3", "3 due now, not being sent"));
        let idle = summary(json!({ "status": "no_traffic" }), Lang::En);
        let expected = ("No attempts in the last 5 min", "None", "");
        assert_eq!((&*idle.reason, &*idle.waiting, &*idle.drain), expected);
    }
}
