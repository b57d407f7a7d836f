//! `/api/v1/destinations/{id}/what-if`: what other settings would have done with recorded deliveries.

use std::{sync::Arc, time::Duration};

use axum::{Json, extract::State};
use http::StatusCode;
use serde_json::json;
use surehook_api::what_if::{WhatIfReport, WhatIfRequest};
use surehook_core::{
    destination::DestinationSpec,
    store::{AdminStore, HistoryFilter, PageRequest, RecordedDelivery},
};
use surehook_simulator::what_if::{WhatIfError, WhatIfInput, policy_settings, predict};
use surehook_types::store_error::StoreError;
use tokio::sync::Semaphore;

use super::{
    extract::{JsonBody, PathParam},
    resources::{self, ResourceRef},
};
use crate::{
    ServerState,
    openapi::{ApiTable, Operation},
    problem::Problem,
};

/// A prediction occupies a core for seconds and some memory for each delivery.
static PERMIT: Semaphore = Semaphore::const_new(1);
/// Deliveries of one prediction, the newest ones. Two predictions of this many take some seconds.
const DELIVERIES_MAX: usize = 200_000;
/// Deliveries read at a time: other readers get their turn in between.
const SLICE: usize = 1000;
const SPAN_DEFAULT: Duration = Duration::from_secs(7 * 86_400);
const RETRY_SECS: u64 = 5;

pub(crate) fn add_routes(api: ApiTable) -> ApiTable {
    let example = json!({ "since": "2026-11-11T00:00:00Z", "retry": "standard", "rate": "50/s" });
    let operation = Operation::new(
        "predict_what_if",
        "Predict what other settings would have done with recorded deliveries. Changes nothing.",
    )
    .path::<ResourceRef<DestinationSpec>>("id")
    .body::<WhatIfRequest>(example)
    .returns::<WhatIfReport>(200)
    .problem(409, &["no_history"])
    .problem(429, &["what_if_running"]);
    api.post("/api/v1/destinations/{id}/what-if", predict_what_if, operation)
}

async fn predict_what_if(
    State(server): State<Arc<ServerState>>,
    PathParam(id): PathParam,
    JsonBody(request): JsonBody<WhatIfRequest>,
) -> Result<Json<WhatIfReport>, Problem> {
    let store = server.engine.store();
    let configuration = store.load_configuration().await?;
    let destination = resources::find_resource::<DestinationSpec>(&configuration, &id)?;
    let now = server.engine.clock().now();
    let until = request.until.unwrap_or(now).min(now);
    let since = request.since.unwrap_or(until - SPAN_DEFAULT);
    if since >= until {
        return Err(Problem::invalid("`since` must be before `until` and before now."));
    }
    let permit = PERMIT.try_acquire().map_err(|_| {
        let detail = "Another what-if is being computed. Retry in a few seconds.";
        Problem::new(StatusCode::TOO_MANY_REQUESTS, "what_if_running", detail)
            .retry_after(RETRY_SECS)
    })?;
    let filter = HistoryFilter { destination: destination.id, since, until };
    let deliveries = read_history(store, filter).await?;
    let input = WhatIfInput {
        is_cut: deliveries.len() >= DELIVERIES_MAX,
        deliveries,
        since,
        until,
        settings: policy_settings(&json!(destination.spec)),
        changed_at: destination.updated_at,
        family: destination.spec.kind.family(),
        now,
    };
    let work = move || {
        // A client that disconnects does not end the work, so the permit is part of it.
        let _permit = permit;
        predict(input, &request.change)
    };
    let predicted = tokio::task::spawn_blocking(work).await.map_err(|_| StoreError::Overloaded)?;
    predicted.map(Json).map_err(|error| match error {
        WhatIfError::NoHistory => {
            let name = &destination.spec.name;
            let detail = format!(
                "No attempts to `{name}` are recorded for deliveries created from {since} to {until}. Choose another time span."
            );
            Problem::new(StatusCode::CONFLICT, "no_history", detail)
        }
        WhatIfError::Policy(error) => Problem::invalid(error.to_string()),
    })
}

/// The newest deliveries of a time span, at most [`DELIVERIES_MAX`].
async fn read_history(
    store: &dyn AdminStore,
    filter: HistoryFilter,
) -> Result<Vec<RecordedDelivery>, StoreError> {
    let mut deliveries = Vec::new();
    let mut after = None;
    while deliveries.len() < DELIVERIES_MAX {
        let page = store.list_history(filter, PageRequest { after, limit: SLICE }).await?;
        after = page.last().map(|last| last.id);
        let is_last = page.len() < SLICE;
        deliveries.extend(page);
        if is_last {
            break;
        }
    }
    Ok(deliveries)
}
