//! `/api/v1/stats` and `/api/v1/dead-letters/stats`.

use std::sync::Arc;

use axum::{Json, extract::State};
use serde_json::{Map, Value, json};
use surehook_core::{
    delivery::{DeadReason, state::Status},
    store::Counts,
};

use super::lanes;
use crate::{App, problem::Problem};

/// The gateway in numbers.
pub(crate) async fn stats(State(app): State<Arc<App>>) -> Result<Json<Value>, Problem> {
    let store = app.engine.store();
    let counts = app.engine.counts().await?;
    let now = app.engine.clock().now();
    let oldest = store.oldest_due(now).await?;
    let configuration = store.configuration().await?;
    let destinations: Vec<Value> = configuration
        .destinations
        .iter()
        .map(|destination| {
            let age = oldest.get(&destination.id).map(|at| now.since(*at).as_secs());
            json!({
                "name": destination.spec.name,
                "oldest_pending_age_seconds": age,
                "cooling_until": app.engine.cooling(destination.id),
                "state": lanes::state(&app, destination.id),
            })
        })
        .collect();
    let by_status: Map<String, Value> = Status::ALL
        .iter()
        .map(|status| {
            let count = counts.by_status.get(status).copied().unwrap_or(0);
            (status.as_str().to_owned(), json!(count))
        })
        .collect();
    Ok(Json(json!({
        "total": counts.events,
        "no_key": counts.no_key,
        "duplicates": counts.duplicates,
        "attempts": counts.attempts,
        "retries": counts.retries,
        "by_status": by_status,
        "dlq_size": counts.by_status.get(&Status::Dead).copied().unwrap_or(0),
        "oldest_pending_age_seconds":
            oldest.values().map(|at| now.since(*at).as_secs()).max(),
        "destinations": destinations,
    })))
}

/// For each reason, how many ever died and how many are dead now.
pub(crate) async fn dead_letter_stats(State(app): State<Arc<App>>) -> Json<Value> {
    Json(by_reason(&app.engine.store().counts()))
}

fn by_reason(counts: &Counts) -> Value {
    let entry = |reason: &DeadReason| {
        let count = counts.dead.get(reason).copied().unwrap_or_default();
        let count = json!({ "total": count.total, "pending": count.pending });
        (reason.as_str().to_owned(), count)
    };
    Value::Object(DeadReason::ALL.iter().map(entry).collect())
}
