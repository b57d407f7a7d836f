//! `/api/v1/stats` and `/api/v1/dead-letters/stats`: current totals.

use std::{
    collections::{BTreeMap, HashMap},
    num::NonZeroU64,
    sync::Arc,
};

use axum::{Json, extract::State};
use schemars::JsonSchema;
use serde::Serialize;
use surehook_core::delivery::state::DeliveryStatus;
use surehook_messaging::{send_limits::SendLimits, store::MessageStore};
use surehook_retry::DeadReason;
use surehook_types::{ids::DestinationId, name::Name, store_error::StoreError, time::Timestamp};

use super::lanes::{self, DestinationState};
use crate::{
    ServerState,
    openapi::{ApiTable, Operation},
    problem::Problem,
};

/// Totals of the gateway.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Stats {
    /// Events received since the beginning.
    total: u64,
    /// Events without a deduplication key.
    no_key: u64,
    /// Duplicates received.
    duplicates: u64,
    attempts: u64,
    /// Attempts after the first of their delivery.
    retries: u64,
    /// Current deliveries per status.
    by_status: BTreeMap<&'static str, u64>,
    /// Current dead letters.
    dlq_size: u64,
    oldest_pending_age_seconds: Option<u64>,
    destinations: Vec<DestinationStats>,
}

/// Totals of one destination.
#[derive(Debug, Serialize, JsonSchema)]
struct DestinationStats {
    name: Name,
    oldest_pending_age_seconds: Option<u64>,
    /// End of a rate limit that the destination requested (Retry-After).
    cooling_until: Option<Timestamp>,
    /// Messages sent today in the destination's time zone; null if it sends no messages.
    sent_today: Option<u64>,
    /// Daily warning threshold; null if none.
    warn_at: Option<NonZeroU64>,
    /// Daily limit; null if none.
    stop_at: Option<NonZeroU64>,
    /// Whether the warning threshold is reached today.
    over: bool,
    /// Null if the settings are unusable.
    state: Option<DestinationState>,
}

/// Dead letters of one reason.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct DeadReasonStats {
    /// Since the beginning.
    total: u64,
    /// Currently dead.
    pending: u64,
}

pub(crate) fn add_routes(api: ApiTable) -> ApiTable {
    let stats = Operation::new("get_stats", "Get current totals.").returns::<Stats>(200);
    let dead =
        Operation::new("get_dead_letter_stats", "Get the number of dead letters per reason.")
            .returns::<BTreeMap<String, DeadReasonStats>>(200);
    api.get("/api/v1/stats", get_stats, stats).get(
        "/api/v1/dead-letters/stats",
        get_dead_letter_stats,
        dead,
    )
}

pub(crate) async fn get_stats(
    State(server): State<Arc<ServerState>>,
) -> Result<Json<Stats>, Problem> {
    let store = server.engine.store();
    let counts = server.engine.counts().await?;
    let now = server.engine.clock().now();
    let oldest = store.find_oldest_due(now).await?;
    let configuration = store.load_configuration().await?;
    let sent = DailySends::load(server.engine.message_store(), now).await?;
    let destinations = configuration
        .destinations
        .iter()
        .map(|destination| {
            let limits = destination.spec.limits();
            let sent_today =
                limits.as_ref().map(|limits| sent.count_on(destination.id, limits.day(now)));
            (destination, limits.unwrap_or_default(), sent_today)
        })
        .map(|(destination, limits, sent_today)| DestinationStats {
            name: destination.spec.name.clone(),
            oldest_pending_age_seconds: oldest
                .get(&destination.id)
                .map(|at| now.since(*at).as_secs()),
            cooling_until: server.engine.cooling_until(destination.id),
            sent_today,
            warn_at: limits.warn_at,
            stop_at: limits.stop_at,
            over: sent_today.is_some_and(|sent| limits.should_warn(sent)),
            state: lanes::destination_state(&server, destination.id),
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

/// Messages sent per destination on the days that are today in some time zone.
struct DailySends(HashMap<(DestinationId, i32), u64>);

impl DailySends {
    async fn load(store: &dyn MessageStore, now: Timestamp) -> Result<Self, StoreError> {
        let in_utc = SendLimits::default().day(now);
        let rows = store.count_sent_by_day(in_utc - 1..=in_utc + 1).await?;
        Ok(Self(rows.into_iter().map(|row| ((row.destination, row.day), row.sent)).collect()))
    }

    fn count_on(&self, destination: DestinationId, day: i32) -> u64 {
        self.0.get(&(destination, day)).copied().unwrap_or_default()
    }
}

pub(crate) async fn get_dead_letter_stats(
    State(server): State<Arc<ServerState>>,
) -> Json<BTreeMap<&'static str, DeadReasonStats>> {
    let counts = server.engine.store().counts();
    let entry = |reason: &DeadReason| {
        let count = counts.dead.get(reason).copied().unwrap_or_default();
        (reason.as_str(), DeadReasonStats { total: count.total, pending: count.pending })
    };
    Json(DeadReason::ALL.iter().map(entry).collect())
}
