//! `/api/v1/routes/try`: tests a filter and a transform on a sample.

use std::sync::Arc;

use axum::{Extension, Json, extract::State};
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{json, value::RawValue};
use surehook_api::resources::{RecentTrialResponse, TryRouteRequest, TryRouteResponse};
use surehook_core::{
    source::SourceSpec,
    store::{Configuration, StoredObject},
};
use surehook_engine::trial::{
    RecentTrialResult, RouteSample, RouteTrialResult, try_filter_on_recent_events, try_route,
};
use surehook_types::{
    ids::{EventId, SourceId},
    store_error::StoreError,
};
use surehook_webhooks::{
    attribute::EventKind,
    jq::{JqFilter, OUTPUT_BYTES_MAX},
};
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

const TRY_ROUTE_DESCRIPTION: &str = "Uses the same engine and limits as routes. Secret values of an \
    event are masked before the filter sees them, unless `exact` is true. The filter is also tested on \
    the newest events of the source: `recent` warns if it matches none of them.";

pub(crate) fn add_routes(api: ApiTable) -> ApiTable {
    let example = json!({ "filter": ".type == \"paid\"", "body": { "type": "paid" } });
    let operation = Operation::new("try_route", "Test a filter and a transform. Changes nothing.")
        .description(TRY_ROUTE_DESCRIPTION)
        .body::<TryRouteRequest>(example)
        .returns::<TryRouteResponse>(200)
        .problem(409, &["body_opaque"])
        .problem(410, &["body_removed"])
        .problem(500, &["body_damaged"]);
    api.post("/api/v1/routes/try", try_route_on_sample, operation)
}

async fn try_route_on_sample(
    State(server): State<Arc<ServerState>>,
    Extension(access): Extension<SecretAccess>,
    JsonBody(request): JsonBody<TryRouteRequest>,
) -> Result<Json<TryRouteResponse>, Problem> {
    // Also for a sample in the request: the filter runs on recent events, too.
    if request.exact {
        redacted_body::require_secret_access(access)?;
    }
    // Acquired before the sample is loaded, so that no body is held while waiting.
    let _permit = TRIAL_PERMITS.acquire().await.map_err(|_| StoreError::Overloaded)?;
    let configuration = server.engine.store().load_configuration().await?;
    let sample = match (request.event, &request.body) {
        (Some(event), None) => {
            load_event_sample(&server, &configuration, event, request.exact).await?
        }
        (None, Some(body)) => parse_sample(body, &request)?,
        (Some(_), Some(_)) | (None, None) => {
            return Err(Problem::invalid("Set either `event` or `body`."));
        }
    };
    let name = request.source.as_ref().map(ToString::to_string).or_else(|| sample.source.clone());
    let source = name.and_then(|name| {
        configuration.sources.iter().find(|source| source.spec.name.as_str() == name)
    });
    if request.source.is_some() && source.is_none() {
        return Err(Problem::not_found("source"));
    }
    let (filter, transform) = (request.filter.clone(), request.transform);
    let work = move || {
        let trial = try_route(filter.as_deref(), transform.as_deref(), &sample);
        (trial, sample)
    };
    let (trial, sample) =
        tokio::task::spawn_blocking(work).await.map_err(|_| StoreError::Overloaded)?;
    let recent = match (source, &request.filter) {
        (Some(source), Some(filter)) => {
            try_on_recent_events(&server, &configuration, source, filter, request.exact).await?
        }
        _ => None,
    };
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
        recent,
    }))
}

/// Tries a filter on the newest events of a source; `None` if it is invalid.
async fn try_on_recent_events(
    server: &ServerState,
    configuration: &Configuration,
    source: &StoredObject<SourceId, SourceSpec>,
    filter: &str,
    exact: bool,
) -> Result<Option<RecentTrialResponse>, Problem> {
    if JqFilter::for_route(filter).check().is_err() {
        return Ok(None);
    }
    let store = server.engine.store();
    let result = try_filter_on_recent_events(store, configuration, source, filter, exact).await?;
    let RecentTrialResult { events, failed, matches } = result;
    let warning = result.warning(source.spec.name.as_str());
    Ok(Some(RecentTrialResponse { events, failed, matches, warning }))
}

/// The sample in the request. As a string it may be text that is not JSON.
fn parse_sample(body: &RawValue, request: &TryRouteRequest) -> Result<RouteSample, Problem> {
    let text = serde_json::from_str::<String>(body.get());
    let body = text.unwrap_or_else(|_| body.get().to_owned()).into_bytes();
    let mut headers = HeaderMap::new();
    for (name, value) in &request.headers {
        let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), value.parse::<HeaderValue>())
        else {
            return Err(Problem::invalid(format!("`headers`: `{name}` is not a valid header.")));
        };
        headers.append(name, value);
    }
    let kind = request.kind.as_deref().map(|kind| {
        EventKind::new(kind).ok_or_else(|| Problem::invalid("`kind` is not a valid event kind."))
    });
    Ok(RouteSample {
        headers,
        body,
        kind: kind.transpose()?,
        source: request.source.as_ref().map(ToString::to_string),
        ..RouteSample::default()
    })
}

async fn load_event_sample(
    server: &ServerState,
    configuration: &Configuration,
    event: EventId,
    exact: bool,
) -> Result<RouteSample, Problem> {
    let store = server.engine.store();
    let not_found = || Problem::not_found("event");
    let row = store.find_event_row(event).await?.ok_or_else(not_found)?;
    let Some(payload) = store.find_body(event).await? else {
        return Err(events::missing_body_problem(server, event).await?.unwrap_or_else(not_found));
    };
    RouteSample::of_event(&row, &payload, configuration, exact)
        .map_err(redacted_body::opaque_body_problem)
}
