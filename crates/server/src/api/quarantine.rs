//! `/api/v1/quarantine`: requests that failed verification and that their sender will not send again.

use std::sync::Arc;

use axum::{Extension, Json, extract::State};
use http::StatusCode;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use surehook_api::{
    BodyContent, Cursor, ListResponse,
    quarantine::{
        QuarantinedRequestDetail, QuarantinedRequestSummary, ReleaseRequest, ReleaseResponse,
        ReleaseSourceRequest, ReleaseSourceResponse, ReleasedEvent,
    },
};
use surehook_core::{
    quarantine::QuarantinedRequest, refused::advice, source::SourceSpec, store::Configuration,
};
use surehook_engine::{
    ingest::{ReadySource, ReceivedEvent},
    quarantine::{BulkReleaseReport, ReleaseError},
};
use surehook_types::{
    ids::RequestId,
    redact::{self, SecretNames},
};

use super::{
    LIMIT_MAX,
    extract::{JsonBody, OptionalJson, PathParam, QueryParams},
    page_request,
    redacted_body::{self, BodyQuery, mask_headers},
    resources, unfiltered_page,
};
use crate::{
    ServerState,
    auth::SecretAccess,
    openapi::{ApiTable, Operation},
    problem::Problem,
    receive::ReceiveResponse,
};

/// Filter of a list of quarantined requests.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct QuarantineQuery {
    /// Name or id of the source.
    source: Option<String>,
    /// Maximum number of rows per page; by default 50, of sources, destinations and routes 1000, of an
    /// export all.
    #[schemars(range(min = 1, max = LIMIT_MAX))]
    limit: Option<u16>,
    /// `next_cursor` of the previous page.
    #[schemars(with = "Option<Cursor>")]
    cursor: Option<RequestId>,
}

pub(crate) fn add_routes(api: ApiTable) -> ApiTable {
    let list = Operation::new("list_quarantine", "List quarantined requests, newest first.")
        .query::<QuarantineQuery>()
        .returns::<ListResponse<QuarantinedRequestSummary>>(200);
    let get = Operation::new(
        "get_quarantined_request",
        "Get a quarantined request with headers and body.",
    )
    .description(
        "Secret values of the body are replaced by `•••`, unless `exact=true`; those of headers always.",
    )
    .path::<RequestId>("id")
    .query::<BodyQuery>()
    .returns::<QuarantinedRequestDetail>(200);
    let release = Operation::new(
        "release_quarantined_request",
        "Release a quarantined request if it now verifies.",
    )
    .path::<RequestId>("id")
    .optional_body::<ReleaseRequest>(json!({ "force": false }))
    .returns::<ReceiveResponse<'_>>(200)
    .problem(409, &["still_wrong", "source_gone"]);
    let release_all = Operation::new(
        "release_quarantine",
        "Release all requests of a source that now verify, oldest first.",
    )
    .description("Releases at most 500 requests per call. To continue, pass `next` as `after`.")
    .body::<ReleaseSourceRequest>(json!({ "source": "whatsapp" }))
    .returns::<ReleaseSourceResponse>(200)
    .problem(409, &["source_gone"]);
    let discard = Operation::new("discard_quarantined_request", "Delete a quarantined request.")
        .path::<RequestId>("id")
        .returns_nothing(204);
    let item = "/api/v1/quarantine/{id}";
    api.get("/api/v1/quarantine", list_quarantine, list)
        .get(item, get_quarantined_request, get)
        .post("/api/v1/quarantine/{id}/release", release_quarantined_request, release)
        .post("/api/v1/quarantine/release", release_quarantine, release_all)
        .delete(item, discard_quarantined_request, discard)
}

pub(crate) async fn list_quarantine(
    State(server): State<Arc<ServerState>>,
    QueryParams(query): QueryParams<QuarantineQuery>,
) -> Result<Json<ListResponse<QuarantinedRequestSummary>>, Problem> {
    let page = page_request(query.limit, query.cursor)?;
    let configuration = server.engine.store().load_configuration().await?;
    let source = match &query.source {
        Some(source) => Some(resources::find_resource::<SourceSpec>(&configuration, source)?.id),
        None => None,
    };
    let rows = server.engine.quarantine_store().list_quarantined(source, page).await?;
    let summaries = rows.iter().map(|row| (row.id, summary(&server, &configuration, row)));
    Ok(unfiltered_page(page, summaries.collect()))
}

pub(crate) async fn get_quarantined_request(
    State(server): State<Arc<ServerState>>,
    Extension(access): Extension<SecretAccess>,
    PathParam(id): PathParam,
    QueryParams(query): QueryParams<BodyQuery>,
) -> Result<Json<QuarantinedRequestDetail>, Problem> {
    let (id, exact) = (id.parse().map_err(|_| not_found())?, query.is_exact(access)?);
    let row = server.engine.quarantine_store().find_quarantined(id).await?.ok_or_else(not_found)?;
    let configuration = server.engine.store().load_configuration().await?;
    let names = secret_names(&server, &configuration, &row);
    let headers = mask_headers(row.headers.lines(), &names, access, &configuration);
    let body = row.body.as_deref().unwrap_or_default();
    let (body, masked) = match exact {
        true => (BodyContent::from(body), 0),
        false => redacted_body::mask_body(&row.headers.to_map(), body, &names),
    };
    let request = summary(&server, &configuration, &row);
    Ok(Json(QuarantinedRequestDetail { request, headers, body, masked }))
}

pub(crate) async fn release_quarantined_request(
    State(server): State<Arc<ServerState>>,
    PathParam(id): PathParam,
    OptionalJson(request): OptionalJson<ReleaseRequest>,
) -> Result<Json<ReleaseResponse>, Problem> {
    let id = id.parse().map_err(|_| not_found())?;
    let outcome = server.engine.release_quarantined(id, request.force).await?;
    let status = |duplicate| if duplicate { "duplicate" } else { "accepted" }.to_owned();
    let received = outcome.received;
    let all_duplicate = !received.is_empty() && received.iter().all(|event| event.duplicate);
    let event = |event: &ReceivedEvent| ReleasedEvent {
        id: event.event.to_string(),
        key: event.key.as_ref().map(|key| key.as_str().to_owned()),
        status: status(event.duplicate),
    };
    let events = received.iter().map(event).collect();
    Ok(Json(ReleaseResponse { status: status(all_duplicate), events }))
}

pub(crate) async fn release_quarantine(
    State(server): State<Arc<ServerState>>,
    JsonBody(request): JsonBody<ReleaseSourceRequest>,
) -> Result<Json<ReleaseSourceResponse>, Problem> {
    let configuration = server.engine.store().load_configuration().await?;
    let source = resources::find_resource::<SourceSpec>(&configuration, &request.source)?.id;
    let BulkReleaseReport { released, events, duplicates, left, next } =
        server.engine.release_verified(source, request.after).await?;
    Ok(Json(ReleaseSourceResponse { released, events, duplicates, left, next }))
}

pub(crate) async fn discard_quarantined_request(
    State(server): State<Arc<ServerState>>,
    PathParam(id): PathParam,
) -> Result<StatusCode, Problem> {
    let id = id.parse().map_err(|_| not_found())?;
    match server.engine.quarantine_store().discard_quarantined(id).await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(not_found()),
    }
}

fn not_found() -> Problem {
    Problem::not_found("quarantined request")
}

fn find_source<'c>(
    configuration: &'c Configuration,
    row: &QuarantinedRequest,
) -> Option<&'c SourceSpec> {
    let stored = configuration.sources.iter().find(|source| source.id == row.source);
    stored.map(|stored| &stored.spec)
}

/// The secret names of all sources, and the header with the secret of this source's preset.
fn secret_names(
    server: &ServerState,
    configuration: &Configuration,
    row: &QuarantinedRequest,
) -> SecretNames {
    let mut names = configuration.all_secret_names();
    let source = server.engine.source_by_id(row.source);
    if let Some(header) = source.as_ref().and_then(ReadySource::secret_header) {
        names.add_header(header.as_str());
    }
    names
}

fn summary(
    server: &ServerState,
    configuration: &Configuration,
    row: &QuarantinedRequest,
) -> QuarantinedRequestSummary {
    let source = find_source(configuration, row);
    let names = secret_names(server, configuration, row);
    QuarantinedRequestSummary {
        id: row.id,
        status: "quarantined".to_owned(),
        source: source.map(|source| source.name.clone()),
        received_at: row.received_at,
        seen_at: row.seen_at,
        times: row.times,
        reason: row.code.clone(),
        what_to_do: advice(&row.code).to_owned(),
        method: row.method.clone(),
        path: redact::mask_path(&row.path),
        query: row.query.as_deref().map(|query| redact::mask_query(query, &names)),
        remote: row.remote.clone(),
        body_bytes: row.body_bytes,
    }
}

impl From<ReleaseError> for Problem {
    fn from(error: ReleaseError) -> Self {
        let conflict = |code, detail| Self::new(StatusCode::CONFLICT, code, detail);
        match error {
            ReleaseError::NotFound => not_found(),
            ReleaseError::SourceGone => conflict("source_gone", error.to_string()),
            ReleaseError::NotVerified(error) => {
                let detail = format!(
                    "{error}. The request stays in quarantine. Fix `secrets` or `verify` of the source, or \
                     release it with force = true."
                );
                conflict("still_wrong", detail)
            }
            ReleaseError::Store(error) => Self::from(error),
        }
    }
}
