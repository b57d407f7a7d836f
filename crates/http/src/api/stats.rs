//! `/api/v1/stats` and `/api/v1/dead-letters/stats`.

use std::{
    collections::{BTreeMap, HashMap},
    num::NonZeroU64,
    sync::Arc,
};

use axum::{Json, extract::State};
use schemars::JsonSchema;
use serde::Serialize;
use surehook_core::{
    delivery::{DeadReason, state::DeliveryStatus},
    destination::send_limits::SendLimits,
    ids::DestinationId,
    name::Name,
    store::{AdminStore, StoreError},
    time::Timestamp,
};

use super::lanes::{self, LaneState};
use crate::{
    App,
    openapi::{Api, Op},
    problem::Problem,
};

/// The gateway in numbers.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Stats {
    /// Events ever taken in.
    total: u64,
    /// Of those, without a key.
    no_key: u64,
    /// Duplicates seen.
    duplicates: u64,
    attempts: u64,
    /// Attempts that were not the first of their delivery.
    retries: u64,
    /// Deliveries that are in each status now.
    by_status: BTreeMap<&'static str, u64>,
    /// Deliveries that are dead now.
    dlq_size: u64,
    oldest_pending_age_seconds: Option<u64>,
    destinations: Vec<DestinationStats>,
}

/// A destination in numbers.
#[derive(Debug, Serialize, JsonSchema)]
struct DestinationStats {
    name: Name,
    oldest_pending_age_seconds: Option<u64>,
    /// Until when it asked us to wait.
    cooling_until: Option<Timestamp>,
    /// Messages sent on the current day of its calendar; null when it sends no messages.
    sent_today: Option<u64>,
    /// So many in a day are worth a warning; null when that is never so.
    warn_at: Option<NonZeroU64>,
    /// No more are sent in a day; null when there is no such limit.
    stop_at: Option<NonZeroU64>,
    /// Whether what was sent today is worth a warning.
    over: bool,
    /// Null when its settings cannot be used.
    state: Option<LaneState>,
}

/// How many deliveries died for a reason.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct DeadCount {
    /// Ever.
    total: u64,
    /// Now.
    pending: u64,
}

pub(crate) fn routes(api: Api) -> Api {
    let stats_op = Op::new("stats", "The gateway in numbers.").answers::<Stats>(200);
    let dead = Op::new("dead_letter_stats", "For each reason, how many died.")
        .answers::<BTreeMap<String, DeadCount>>(200);
    api.get("/api/v1/stats", stats, stats_op).get(
        "/api/v1/dead-letters/stats",
        dead_letter_stats,
        dead,
    )
}

/// The gateway in numbers.
pub(crate) async fn stats(State(app): State<Arc<App>>) -> Result<Json<Stats>, Problem> {
    let store = app.engine.store();
    let counts = app.engine.counts().await?;
    let now = app.engine.clock().now();
    let oldest = store.oldest_due(now).await?;
    let configuration = store.configuration().await?;
    let sent = SentByDay::read(store, now).await?;
    let destinations = configuration
        .destinations
        .iter()
        .map(|destination| {
            let limits = destination.spec.limits();
            let sent_today = limits.map(|limits| sent.on(destination.id, limits.day(now)));
            (destination, limits.unwrap_or_default(), sent_today)
        })
        .map(|(destination, limits, sent_today)| DestinationStats {
            name: destination.spec.name.clone(),
            oldest_pending_age_seconds: oldest
                .get(&destination.id)
                .map(|at| now.since(*at).as_secs()),
            cooling_until: app.engine.cooling_until(destination.id),
            sent_today,
            warn_at: limits.warn_at,
            stop_at: limits.stop_at,
            over: sent_today.is_some_and(|sent| limits.is_over(sent)),
            state: lanes::state(&app, destination.id),
        })
        .collect();
    let count = |status: DeliveryStatus| counts.by_status.get(&status).copied().unwrap_or(0);
    Ok(Json(Stats {
        total: counts.events,
        no_key: counts.no_key,
        duplicates: counts.duplicates,
        attempts: counts.attempts,
        retries: counts.retries,
        by_status: DeliveryStatus::ALL
            .iter()
            .map(|status| (status.as_str(), count(*status)))
            .collect(),
        dlq_size: count(DeliveryStatus::Dead),
        oldest_pending_age_seconds: oldest.values().map(|at| now.since(*at).as_secs()).max(),
        destinations,
    }))
}

/// What was sent on the days that are today somewhere.
struct SentByDay(HashMap<(DestinationId, i32), u64>);

impl SentByDay {
    async fn read(store: &dyn AdminStore, now: Timestamp) -> Result<Self, StoreError> {
        let in_utc = SendLimits::default().day(now);
        let rows = store.sent_by_day(in_utc - 1..=in_utc + 1).await?;
        Ok(Self(rows.into_iter().map(|row| ((row.destination, row.day), row.sent)).collect()))
    }

    fn on(&self, destination: DestinationId, day: i32) -> u64 {
        self.0.get(&(destination, day)).copied().unwrap_or_default()
    }
}

/// For each reason, how many ever died and how many are dead now.
pub(crate) async fn dead_letter_stats(
    State(app): State<Arc<App>>,
) -> Json<BTreeMap<&'static str, DeadCount>> {
    let counts = app.engine.store().counts();
    let entry = |reason: &DeadReason| {
        let count = counts.dead.get(reason).copied().unwrap_or_default();
        (reason.as_str(), DeadCount { total: count.total, pending: count.pending })
    };
    Json(DeadReason::ALL.iter().map(entry).collect())
}
