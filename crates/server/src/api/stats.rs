//! `/api/v1/stats` and `/api/v1/dead-letters/stats`: current totals.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use axum::{Json, extract::State};
use surehook_api::{
    dead_letters::DeadReasonStats,
    stats::{DestinationStatsResponse, Stats},
};
use surehook_core::delivery::state::DeliveryStatus;
use surehook_messaging::{send_limits::SendLimits, store::MessageStore};
use surehook_retry::DeadReason;
use surehook_types::{ids::DestinationId, store_error::StoreError, time::Timestamp};

use super::lanes::{destination_health, destination_state};
use crate::{
    ServerState,
    openapi::{ApiTable, Operation},
    problem::Problem,
};

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
    let lanes = server.engine.load_lane_states(&configuration).await?;
    let sent = DailySends::load(server.engine.message_store(), now).await?;
    let destinations = configuration
        .destinations
        .iter()
        .map(|destination| {
            let limits = destination.spec.limits();
            let sent_today =
                limits.as_ref().map(|limits| sent.count_on(destination.id, limits.day(now)));
            let limits = limits.unwrap_or_default();
            DestinationStatsResponse {
                name: destination.spec.name.clone(),
                oldest_pending_age_seconds: oldest
                    .get(&destination.id)
                    .map(|at| now.since(*at).as_secs()),
                cooling_until: lanes.cooling_until(destination.id),
                sent_today,
                warn_at: limits.warn_at,
                stop_at: limits.stop_at,
                warning_reached: sent_today.is_some_and(|sent| limits.should_warn(sent)),
                health: destination_health(&server, destination.id),
                state: destination_state(&lanes, destination.id),
            }
        })
        .collect();
    let count = |status: DeliveryStatus| counts.by_status.get(&status).copied().unwrap_or(0);
    Ok(Json(Stats {
        total: counts.events,
        no_key: counts.no_key,
        key_conflicts: counts.key_conflicts,
        duplicates: counts.duplicates,
        attempts: counts.attempts,
        retries: counts.retries,
        by_status: DeliveryStatus::ALL
            .iter()
            .map(|status| (status.as_str().to_owned(), count(*status)))
            .collect(),
        dlq_size: count(DeliveryStatus::Dead),
        oldest_pending_age_seconds: oldest.values().map(|at| now.since(*at).as_secs()).max(),
        destinations,
        clock: server.engine.clock_status(),
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
) -> Result<Json<BTreeMap<String, DeadReasonStats>>, Problem> {
    let counts = server.engine.store().counts().await?;
    let entry = |reason: &DeadReason| {
        let count = counts.dead.get(reason).copied().unwrap_or_default();
        (reason.as_str().to_owned(), DeadReasonStats { total: count.total, pending: count.pending })
    };
    Ok(Json(DeadReason::ALL.iter().map(entry).collect()))
}
