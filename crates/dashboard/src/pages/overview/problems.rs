//! Failing destinations, dead letter groups and daily message limits. All come from short lists, so
//! the cost does not depend on the number of events.

use std::{
    collections::{BTreeMap, HashSet},
    num::NonZeroU64,
};

use futures_util::future;
use surehook_api::{
    ApiTransport as _, calls,
    dead_letters::DeadLetterGroupResponse,
    deliveries::DeliveryResponse,
    stats::{DestinationStatsResponse, Stats},
};
use surehook_retry::{AttemptFailure, FailureClass};

use super::{charts, range::TimeRange};
use crate::{
    client::ApiError,
    current_user::CurrentUser,
    format::Badge,
    lang::{Lang, fill},
    translations::{FailureTexts, OverviewTexts},
};

const ROWS_MAX: usize = 8;
const GROUPS_SHOWN: usize = 5;

/// Short description of the cause.
pub(super) fn cause_text(
    group: &DeadLetterGroupResponse,
    t: &OverviewTexts,
    f: &FailureTexts,
) -> String {
    let code = group.code.map(|code| code.to_string());
    let code = code.as_deref().or(group.failure.map(AttemptFailure::as_str));
    let class = group.class.map(|class| f.class(class.as_str()));
    let parts: Vec<_> = [code, class].into_iter().flatten().collect();
    if parts.is_empty() { t.class_unknown.to_owned() } else { parts.join(" · ") }
}

/// The current problem, if the destination has one.
fn problem_badge(destination: &DestinationStatsResponse, t: &OverviewTexts) -> Option<Badge> {
    let Some(state) = &destination.state else {
        return Some(Badge::new("bad", "warn", t.misconfigured));
    };
    match (state.paused, state.circuit.as_str()) {
        (true, _) => Some(Badge::new("held", "pause", t.paused)),
        (false, "open") => Some(Badge::new("bad", "cross", t.circuit_open)),
        (false, "half_open" | "ramp") => Some(Badge::new("warn", "clock", t.circuit_half_open)),
        _ if state.cooling_until.is_some() => Some(Badge::new("warn", "clock", t.rate_limited)),
        _ => None,
    }
}

pub(super) struct FailingDestination {
    pub(super) name: String,
    pub(super) path: String,
    pub(super) state: Badge,
    pub(super) class: Option<String>,
    pub(super) dead: u64,
    pub(super) is_retrying: bool,
}

/// Messages sent today by a destination, relative to its daily limits.
pub(super) struct DailyUsage {
    pub(super) name: String,
    pub(super) path: String,
    pub(super) text: String,
    pub(super) value: u64,
    pub(super) warn_at: Option<u64>,
    pub(super) max: Option<u64>,
    pub(super) badge: Option<Badge>,
}

pub(super) struct OverviewProblems {
    pub(super) failing: Vec<FailingDestination>,
    pub(super) groups: Vec<DeadLetterGroupResponse>,
    pub(super) sent: Vec<DailyUsage>,
    /// Whether there are dead letters at all, grouped or not.
    pub(super) has_dead_letters: bool,
}

impl OverviewProblems {
    pub(super) async fn load(
        user: &CurrentUser,
        stats: &Stats,
        range: TimeRange,
        t: &'static OverviewTexts,
    ) -> Result<Self, ApiError> {
        let retrying = calls::list_deliveries().query("status", "scheduled").query("limit", "50");
        let (mut groups, retrying) = tokio::try_join!(
            user.call(calls::list_dead_letter_groups().query("limit", "50")),
            user.call(retrying),
        )?;
        let mut failing = failing_destinations(stats, &groups.data, &retrying.data, t);
        let classes = failing.iter().map(|row| most_common_class(user, range, &row.name));
        for (class, row) in future::join_all(classes).await.into_iter().zip(&mut failing) {
            row.class = class.or(row.class.take());
        }
        groups.data.truncate(GROUPS_SHOWN);
        let sent = daily_usage(stats, t, user.lang());
        Ok(Self { failing, groups: groups.data, sent, has_dead_letters: stats.dlq_size > 0 })
    }
}

/// The most common failure class of a destination in the selected time range.
async fn most_common_class(user: &CurrentUser, range: TimeRange, name: &str) -> Option<String> {
    let call = charts::series_call("failed", range).query("destination", name);
    // The destination may have been deleted meanwhile.
    let failed = user.call(call).await.ok()?;
    let most = failed.total.by.into_iter().flatten().max_by_key(|(_, count)| *count);
    most.filter(|(_, count)| *count > 0).map(|(class, _)| class)
}

/// Destinations with a problem, dead letters or retries, worst first.
fn failing_destinations(
    stats: &Stats,
    groups: &[DeadLetterGroupResponse],
    retrying: &[DeliveryResponse],
    t: &'static OverviewTexts,
) -> Vec<FailingDestination> {
    let mut dead: BTreeMap<&str, (u64, Option<FailureClass>)> = BTreeMap::new();
    for group in groups {
        let Some(name) = group.destination.as_deref() else { continue };
        // Groups are sorted newest first, so the first class is the one of the latest failure.
        let entry = dead.entry(name).or_insert((0, group.class));
        entry.0 += group.count;
    }
    let retried: HashSet<&str> =
        retrying.iter().filter_map(|delivery| delivery.destination.as_deref()).collect();
    let mut failing: Vec<_> = stats
        .destinations
        .iter()
        .filter_map(|destination| {
            let name = destination.name.as_str();
            let problem = problem_badge(destination, t);
            let (count, class) = dead.get(name).copied().unwrap_or_default();
            let is_retrying = retried.contains(name);
            (problem.is_some() || count > 0 || is_retrying).then(|| FailingDestination {
                name: name.to_owned(),
                path: format!("/destinations/{name}"),
                state: problem.unwrap_or_else(|| Badge::new("ok", "check", t.circuit_closed)),
                class: class.map(|class| class.as_str().to_owned()),
                dead: count,
                is_retrying,
            })
        })
        .collect();
    let rank = |row: &FailingDestination| {
        ["bad", "held", "warn"].iter().position(|tone| *tone == row.state.tone).unwrap_or(3)
    };
    failing.sort_by_key(|row| (rank(row), std::cmp::Reverse(row.dead)));
    failing.truncate(ROWS_MAX);
    failing
}

fn daily_usage(stats: &Stats, t: &OverviewTexts, lang: Lang) -> Vec<DailyUsage> {
    let row = |destination: &DestinationStatsResponse| {
        let value = destination.sent_today?;
        let stop_at = destination.stop_at.map(NonZeroU64::get);
        let warn_at = destination.warn_at.map(NonZeroU64::get);
        let limit = stop_at.or(warn_at);
        let number = lang.number(value);
        let text = match limit {
            Some(limit) => fill(t.sent_of, &[&number, &lang.number(limit)]),
            None => number,
        };
        let is_full = stop_at.is_some_and(|stop_at| value >= stop_at);
        let badge = if is_full {
            Some(Badge::new("bad", "cross", t.day_full))
        } else {
            destination.warning_reached.then(|| Badge::new("warn", "warn", t.day_warns))
        };
        Some(DailyUsage {
            name: destination.name.to_string(),
            path: format!("/destinations/{}", destination.name),
            text,
            value,
            warn_at,
            max: limit,
            badge,
        })
    };
    stats.destinations.iter().filter_map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn destination(name: &str, paused: bool, circuit: &str) -> serde_json::Value {
        serde_json::json!({
            "name": name, "sent_today": null, "warn_at": null, "stop_at": null, "warning_reached": false,
            "state": { "paused": paused, "circuit": circuit, "holds": paused },
        })
    }

    fn stats(destinations: &[serde_json::Value]) -> Stats {
        serde_json::from_value(serde_json::json!({
            "total": 1, "no_key": 0, "duplicates": 0, "attempts": 0, "retries": 0, "by_status": {},
            "dlq_size": 0, "destinations": destinations,
            "clock": {
                "in_doubt": false,
                "now": "2026-11-15T10:00:00.000Z", "expected": "2026-11-15T10:00:00.000Z",
            },
        }))
        .unwrap()
    }

    fn group(destination: &str, class: &str, count: u64) -> DeadLetterGroupResponse {
        serde_json::from_value(serde_json::json!({
            "id": "grp_00000000000000000000000000", "destination": destination, "class": class,
            "code": 503, "reason": "max_retries", "shape": "", "count": count,
            "first_seen": "2026-11-15T10:00:00.000Z", "last_seen": "2026-11-15T10:00:00.000Z",
            "newest_delivery": DELIVERY, "newest_event": EVENT,
        }))
        .unwrap()
    }

    const EVENT: &str = "evt_01k00000000000000000000000";
    const DELIVERY: &str = "dlv_01k00000000000000000000000";

    #[test]
    fn failing_destinations_are_sorted_worst_first() {
        let stats = stats(&[
            destination("healthy", false, "closed"),
            destination("retried", false, "closed"),
            destination("paused", true, "open"),
            destination("open", false, "open"),
            destination("dying", false, "closed"),
        ]);
        let groups = [group("dying", "permanent", 3), group("dying", "transient", 4)];
        let retrying = [serde_json::from_value(serde_json::json!({
            "id": DELIVERY, "event": EVENT, "destination": "retried", "status": "scheduled",
            "attempts": 1, "created_at": "2026-11-15T10:00:00.000Z",
        }))
        .unwrap()];
        let found = failing_destinations(&stats, &groups, &retrying, OverviewTexts::of(Lang::En));
        let names: Vec<_> = found.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names, ["open", "paused", "dying", "retried"]);
        assert_eq!((found[2].dead, found[2].class.as_deref()), (7, Some("permanent")));
        assert_eq!(
            cause_text(&groups[0], OverviewTexts::of(Lang::En), FailureTexts::of(Lang::En)),
            "503 · Permanent failure"
        );
    }

    #[test]
    fn daily_usage_warns_before_the_limit_is_reached() {
        for (value, over, expected) in
            [(10, false, None), (80, true, Some("warn")), (100, true, Some("bad"))]
        {
            let mut json = destination("wa", false, "closed");
            json["sent_today"] = value.into();
            json["warn_at"] = 80.into();
            json["stop_at"] = 100.into();
            json["warning_reached"] = over.into();
            let row = daily_usage(&stats(&[json]), OverviewTexts::of(Lang::En), Lang::En).remove(0);
            assert_eq!(row.badge.map(|badge| badge.tone), expected, "case: {value}");
            assert_eq!(row.text, format!("{value} of 100"));
        }
    }
}
