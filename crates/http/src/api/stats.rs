//! `/api/v1/stats` and `/api/v1/dead-letters/stats`.

use std::{collections::BTreeMap, sync::Arc};

use axum::{Json, extract::State};
use schemars::JsonSchema;
use serde::Serialize;
use surehook_core::{
    delivery::{DeadReason, state::Status},
    name::Name,
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
    let destinations = configuration
        .destinations
        .iter()
        .map(|destination| DestinationStats {
            name: destination.spec.name.clone(),
            oldest_pending_age_seconds: oldest
                .get(&destination.id)
                .map(|at| now.since(*at).as_secs()),
            cooling_until: app.engine.cooling(destination.id),
            state: lanes::state(&app, destination.id),
        })
        .collect();
    let count = |status: Status| counts.by_status.get(&status).copied().unwrap_or(0);
    Ok(Json(Stats {
        total: counts.events,
        no_key: counts.no_key,
        duplicates: counts.duplicates,
        attempts: counts.attempts,
        retries: counts.retries,
        by_status: Status::ALL.iter().map(|status| (status.as_str(), count(*status))).collect(),
        dlq_size: count(Status::Dead),
        oldest_pending_age_seconds: oldest.values().map(|at| now.since(*at).as_secs()).max(),
        destinations,
    }))
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
