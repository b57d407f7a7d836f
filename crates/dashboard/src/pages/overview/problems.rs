//! Health of destinations, dead letter groups and daily message limits. All come from short lists, so
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
use surehook_core::health::HealthStatus;
use surehook_retry::{AttemptFailure, FailureClass};

use super::{charts, range::TimeRange};
use crate::{
    client::ApiError,
    current_user::CurrentUser,
    format::Badge,
    health::HealthSummary,
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

/// A destination with its health.
pub(super) struct DestinationLine {
    pub(super) name: String,
    pub(super) path: String,
    pub(super) health: HealthSummary,
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
    /// The destinations in the worst health.
    pub(super) destinations: Vec<DestinationLine>,
    /// Whether there are more than these.
    pub(super) has_more_destinations: bool,
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
        let mut destinations = destination_lines(stats, &groups.data, &retrying.data, user.lang());
        let has_more_destinations = destinations.len() > ROWS_MAX;
        destinations.truncate(ROWS_MAX);
        let classes = destinations.iter().map(|one| most_common_class(user, range, &one.name));
        for (class, one) in future::join_all(classes).await.into_iter().zip(&mut destinations) {
            one.class = class.or(one.class.take());
        }
        groups.data.truncate(GROUPS_SHOWN);
        let sent = daily_usage(stats, t, user.lang());
        let has_dead_letters = stats.dlq_size > 0;
        let groups = groups.data;
        Ok(Self { destinations, has_more_destinations, groups, sent, has_dead_letters })
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

/// All destinations, those in the worst health first.
fn destination_lines(
    stats: &Stats,
    groups: &[DeadLetterGroupResponse],
    retrying: &[DeliveryResponse],
    lang: Lang,
) -> Vec<DestinationLine> {
    let mut dead: BTreeMap<&str, (u64, Option<FailureClass>)> = BTreeMap::new();
    for group in groups {
        let Some(name) = group.destination.as_deref() else { continue };
        // Groups are sorted newest first, so the first class is the one of the latest failure.
        let entry = dead.entry(name).or_insert((0, group.class));
        entry.0 += group.count;
    }
    let retried: HashSet<&str> =
        retrying.iter().filter_map(|it| it.destination.as_deref()).collect();
    let line = |destination: &DestinationStatsResponse| {
        let name = destination.name.as_str();
        let (count, class) = dead.get(name).copied().unwrap_or_default();
        DestinationLine {
            name: name.to_owned(),
            path: format!("/destinations/{name}"),
            health: HealthSummary::new(&destination.health, lang),
            class: class.map(|class| class.as_str().to_owned()),
            dead: count,
            is_retrying: retried.contains(name),
        }
    };
    let mut lines: Vec<_> = stats.destinations.iter().map(line).collect();
    lines.sort_by_key(|one| (rank(one.health.status), std::cmp::Reverse(one.dead)));
    lines
}

/// Failures come before what a person chose, and traffic before silence.
fn rank(status: HealthStatus) -> u8 {
    match status {
        HealthStatus::CircuitOpen | HealthStatus::Failing => 0,
        HealthStatus::Misconfigured => 1,
        HealthStatus::Degraded => 2,
        HealthStatus::Paused => 3,
        HealthStatus::Healthy => 4,
        HealthStatus::NoTraffic => 5,
    }
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

    fn destination(name: &str, health: &str) -> serde_json::Value {
        serde_json::json!({
            "name": name, "sent_today": null, "warn_at": null, "stop_at": null, "warning_reached": false,
            "health": {
                "status": health, "window": "5m", "attempts": 9, "failed": 0, "dead": 0,
                "backlog": { "waiting": 0, "due": 0, "more": false },
            },
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
    fn destinations_in_the_worst_health_come_first() {
        let stats = stats(&[
            destination("silent", "no_traffic"),
            destination("fine", "healthy"),
            destination("paused", "paused"),
            destination("open", "circuit_open"),
            destination("dying", "degraded"),
            destination("broken", "misconfigured"),
            destination("down", "failing"),
            destination("retried", "degraded"),
        ]);
        let groups = [
            group("dying", "permanent", 3),
            group("dying", "transient", 4),
            group("down", "transient", 1),
        ];
        let retrying = [serde_json::from_value(serde_json::json!({
            "id": DELIVERY, "event": EVENT, "destination": "retried", "status": "scheduled",
            "attempts": 1, "created_at": "2026-11-15T10:00:00.000Z",
        }))
        .unwrap()];
        let lines = destination_lines(&stats, &groups, &retrying, Lang::En);
        let names: Vec<_> = lines.iter().map(|one| one.name.as_str()).collect();
        let expected = ["down", "open", "broken", "dying", "retried", "paused", "fine", "silent"];
        assert_eq!(names, expected);
        assert_eq!((lines[3].dead, lines[3].class.as_deref()), (7, Some("permanent")));
        assert!(lines[4].is_retrying && !lines[3].is_retrying);
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
            let mut json = destination("wa", "healthy");
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
