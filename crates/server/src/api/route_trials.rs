//! `/api/v1/routes/try`: tests a filter and a transform on a sample.

use std::{borrow::Cow, sync::Arc};

use axum::{Extension, Json, extract::State};
use http::HeaderMap;
use serde_json::{json, value::RawValue};
use surehook_api::resources::{TryRouteRequest, TryRouteResponse};
use surehook_engine::trial::{RouteTrialResult, try_route};
use surehook_types::{ids::EventId, inflate, redact, store_error::StoreError};
use surehook_webhooks::{attribute::EventKind, jq::OUTPUT_BYTES_MAX};
use tokio::sync::Semaphore;

use super::{events, extract::JsonBody, redacted_body};
use crate::{
    ServerState,
    auth::SecretAccess,
    openapi::{ApiTable, Operation},
    problem::Problem,
};

/// Trials running at the same time: each may occupy a core for a moment.
const TRIALS_MAX: usize = 2;
static TRIAL_PERMITS: Semaphore = Semaphore::const_new(TRIALS_MAX);

pub(crate) fn add_routes(api: ApiTable) -> ApiTable {
    let example = json!({ "filter": ".type == \"paid\"", "body": { "type": "paid" } });
    let operation = Operation::new(
        "try_route",
        "Test a filter and a transform. Changes nothing.",
    )
    .description(
        "Uses the same engine and limits as routes. Secret values of an event are masked before the \
             filter sees them, unless `exact` is true.",
    )
    .body::<TryRouteRequest>(example)
    .returns::<TryRouteResponse>(200)
    .problem(409, &["body_opaque"])
    .problem(410, &["body_removed"])
        .problem(500, &["body_damaged"]);
    api.post("/api/v1/routes/try", try_route_on_sample, operation)
}

struct TrialInput {
    /// Decompressed.
    body: Vec<u8>,
    kind: Option<EventKind>,
    masked: usize,
}

async fn try_route_on_sample(
    State(server): State<Arc<ServerState>>,
    Extension(access): Extension<SecretAccess>,
    JsonBody(request): JsonBody<TryRouteRequest>,
) -> Result<Json<TryRouteResponse>, Problem> {
    // Acquired before the sample is loaded, so that no body is held while waiting.
    let permit = TRIAL_PERMITS.acquire().await.map_err(|_| StoreError::Overloaded)?;
    let sample = match (request.event, &request.body) {
        (Some(event), None) => load_event_sample(&server, event, request.exact, access).await?,
        (None, Some(body)) => parse_sample(body),
        (Some(_), Some(_)) | (None, None) => {
            return Err(Problem::invalid("Set either `event` or `body`."));
        }
    };
    let work = move || {
        let _permit = permit;
        let (filter, transform) = (request.filter.as_deref(), request.transform.as_deref());
        let kind = sample.kind.as_ref().map(EventKind::as_str);
        let trial = try_route(filter, transform, &HeaderMap::new(), &sample.body, kind);
        (trial, sample)
    };
    let (trial, sample) =
        tokio::task::spawn_blocking(work).await.map_err(|_| StoreError::Overloaded)?;
    let RouteTrialResult { matches, filter_error, output, dropped, transform_error } = trial;
    let masked = sample.masked;
    let input = String::from_utf8(sample.body).ok().filter(|text| text.len() <= OUTPUT_BYTES_MAX);
    Ok(Json(TryRouteResponse {
        matches,
        filter_error,
        output,
        dropped,
        transform_error,
        input,
        masked,
    }))
}

/// The sample in the request. As a string it may be text that is not JSON.
fn parse_sample(body: &RawValue) -> TrialInput {
    let text = serde_json::from_str::<String>(body.get());
    let body = text.unwrap_or_else(|_| body.get().to_owned()).into_bytes();
    TrialInput { body, kind: None, masked: 0 }
}

async fn load_event_sample(
    server: &ServerState,
    event: EventId,
    exact: bool,
    access: SecretAccess,
) -> Result<TrialInput, Problem> {
    if exact {
        redacted_body::require_secret_access(access)?;
    }
    let store = server.engine.store();
    let not_found = || Problem::not_found("event");
    let row = store.find_event_row(event).await?.ok_or_else(not_found)?;
    let Some(payload) = store.find_body(event).await? else {
        return Err(events::missing_body_problem(server, event).await?.unwrap_or_else(not_found));
    };
    let headers = payload.head.headers.to_map();
    let kind = row.kind;
    let (body, masked) = if exact {
        (Cow::Borrowed(&*payload.body), 0)
    } else {
        // Masked before the trial: a transform could rename a secret, and an error could quote it.
        let names = store.load_configuration().await?.secret_names(row.source);
        let redacted = redact::mask_body(&headers, &payload.body, &names)
            .map_err(redacted_body::body_opaque)?;
        (redacted.body, redacted.fields)
    };
    // A masked body is already decompressed.
    let plain = inflate::decode_body(&headers, &body).map(Cow::into_owned);
    Ok(TrialInput { body: plain.unwrap_or_else(|| body.into_owned()), kind, masked })
}
