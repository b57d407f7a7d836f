//! `/api/v1/requests`: incoming requests and their outcome.

use std::sync::Arc;

use axum::{Extension, Json, extract::State, response::Response};
use http::HeaderMap;
use schemars::JsonSchema;
use serde::Deserialize;
use surehook_api::{
    Cursor, ListResponse,
    requests::{ReceivedRequestSummary, RefusedRequestDetail},
};
use surehook_core::{
    event::DuplicateReason,
    refused::{RefusedRequest, advice},
    requests::{ReceivedRequest, RequestCursor, RequestFilter, RequestOutcome},
    store::{Configuration, ListPage, PageRequest},
};
use surehook_types::{
    ids::{RequestId, SourceId},
    name::Name,
    redact,
    time::Timestamp,
};

use super::{
    LIMIT_MAX,
    export::{self, ExportableList, ListFormat, ListSelection, map_rows, page_or_export},
    extract::{PathParam, QueryParams},
    parse_cursor,
    redacted_body::{self, mask_headers, visible_path},
};
use crate::{
    ServerState,
    auth::SecretAccess,
    openapi::{ApiTable, Operation},
    problem::Problem,
    receive::mask_path,
};

/// Filter of a list of incoming requests.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RequestQuery {
    /// Outcome: `accepted`, `duplicate` or `refused`.
    #[schemars(regex(pattern = "^(accepted|duplicate|refused)$"))]
    outcome: Option<String>,
    /// Name of the source.
    source: Option<Name>,
    /// Problem code that a refused sender got.
    reason: Option<String>,
    /// Created or received at this time or later.
    since: Option<Timestamp>,
    /// Created or received before this time.
    until: Option<Timestamp>,
    /// Maximum number of rows per page; by default 50, of sources, destinations and routes 1000, of an
    /// export all.
    #[schemars(range(min = 1, max = LIMIT_MAX))]
    limit: Option<u16>,
    /// `next_cursor` of the previous page.
    #[schemars(with = "Option<Cursor>")]
    cursor: Option<String>,
    /// `ndjson` or `csv` export the whole list. Can also be set with `Accept`.
    format: Option<ListFormat>,
}

pub(crate) fn add_routes(api: ApiTable) -> ApiTable {
    let list = Operation::new("list_requests", "List incoming requests, newest first.")
        .description(
            "Accepted requests are listed as long as their events exist. Of duplicates, the first 100 of \
             each event and all that differ are listed, one entry per duplicate event; they may be \
             slightly out of order. Of refused requests, the newest 100 per source and reason are \
             listed. Messages sent through the API are not incoming requests.",
        )
        .query::<RequestQuery>()
        .returns::<ListResponse<ReceivedRequestSummary>>(200)
        .returns_media(200, export::MEDIA_TYPES)
        .problem(503, &["too_many_exports"]);
    let get = Operation::new("get_request", "Get a refused request with headers and body.")
        .path::<RequestId>("id")
        .returns::<RefusedRequestDetail>(200);
    api.get("/api/v1/requests", list_requests, list).get("/api/v1/requests/{id}", get_request, get)
}

pub(crate) async fn list_requests(
    State(server): State<Arc<ServerState>>,
    Extension(access): Extension<SecretAccess>,
    QueryParams(query): QueryParams<RequestQuery>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let after = parse_cursor(query.cursor.as_deref())?;
    let selection = ListSelection::new(query.format, &headers, query.limit, after)?;
    let configuration = server.engine.store().load_configuration().await?;
    let filter = parse_filter(query, &configuration)?;
    let list = RequestLister { server: Arc::clone(&server), configuration, filter, access };
    page_or_export(&server, list, selection).await
}

fn parse_filter(
    query: RequestQuery,
    configuration: &Configuration,
) -> Result<RequestFilter, Problem> {
    let unknown = || {
        let known = RequestOutcome::ALL.map(RequestOutcome::as_str);
        Problem::invalid(format!("`outcome` must be one of: {}", known.join(", ")))
    };
    let outcome = |text: &str| RequestOutcome::parse(text).ok_or_else(unknown);
    let outcome = query.outcome.as_deref().map(outcome).transpose()?;
    if query.reason.is_some() && outcome.is_some_and(|outcome| outcome != RequestOutcome::Refused) {
        return Err(Problem::invalid("`reason` requires outcome=refused."));
    }
    let sources = &configuration.sources;
    // A deleted source may still have requests.
    let source = query.source.map(|name| {
        let id = sources.iter().find(|stored| stored.spec.name == name).map(|stored| stored.id);
        (name.to_string(), id)
    });
    Ok(RequestFilter {
        outcome,
        source,
        reason: query.reason,
        // Messages sent through the API are not incoming requests.
        exclude_source: sources
            .iter()
            .find(|stored| stored.spec.is_outbox())
            .map(|stored| stored.id),
        since: query.since,
        until: query.until,
    })
}

pub(super) struct RequestLister {
    server: Arc<ServerState>,
    configuration: Configuration,
    filter: RequestFilter,
    access: SecretAccess,
}

impl ExportableList for RequestLister {
    type Row = ReceivedRequestSummary;
    type Cursor = RequestCursor;
    const NAME: &'static str = "requests";
    const COLUMNS: &'static str = "id,outcome,source,at,event,events,bytes_differ,reason,what_to_do,\
        http_status,method,path,query,remote,body_bytes";

    async fn read(
        &self,
        page: PageRequest<RequestCursor>,
    ) -> Result<ListPage<ReceivedRequestSummary, RequestCursor>, Problem> {
        let page = self.server.engine.store().list_requests(self.filter.clone(), page).await?;
        Ok(map_rows(page, |row| request_summary(&row, &self.configuration, self.access)))
    }
}

pub(crate) async fn get_request(
    State(server): State<Arc<ServerState>>,
    Extension(access): Extension<SecretAccess>,
    PathParam(id): PathParam,
) -> Result<Json<RefusedRequestDetail>, Problem> {
    let not_found = || Problem::not_found("refused request");
    let id = id.parse().map_err(|_| not_found())?;
    let row = server.engine.store().find_refused(id).await?.ok_or_else(not_found)?;
    // Secrets were masked before storing. The source may have been renamed since, so the secret names
    // of all sources are masked.
    let configuration = server.engine.store().load_configuration().await?;
    let names = configuration.all_secret_names();
    let body = row
        .body
        .as_deref()
        .map(|body| redacted_body::mask_body(&row.headers.to_map(), body, &names));
    let (body, masked) = body.map_or((None, 0), |(body, masked)| (Some(body), masked));
    let headers = mask_headers(row.headers.lines(), &names, access, &configuration);
    Ok(Json(RefusedRequestDetail { request: refused_summary(&row), headers, body, masked }))
}

fn request_summary(
    request: &ReceivedRequest,
    configuration: &Configuration,
    access: SecretAccess,
) -> ReceivedRequestSummary {
    let source_name = |id: SourceId| {
        let source = configuration.sources.iter().find(|stored| stored.id == id);
        source.map(|stored| stored.spec.name.to_string())
    };
    match request {
        ReceivedRequest::Refused(row) => refused_summary(row),
        ReceivedRequest::Accepted(row) => {
            let secrets = configuration.secret_names(row.source);
            ReceivedRequestSummary {
                id: Some(row.request),
                source: source_name(row.source),
                event: Some(row.event),
                events: Some(row.events),
                path: row.path.as_deref().map(|path| visible_path(path, access)),
                query: row.query.as_deref().map(|query| redact::mask_query(query, &secrets)),
                remote: row.remote.clone(),
                body_bytes: Some(row.body_bytes),
                ..empty_summary(RequestOutcome::Accepted, row.at)
            }
        }
        ReceivedRequest::Duplicate(row) => ReceivedRequestSummary {
            source: source_name(row.source),
            event: Some(row.event),
            events: Some(0),
            bytes_differ: Some(row.bytes_differ),
            reason: Some(row.reason)
                .filter(|reason| *reason != DuplicateReason::SameKey)
                .map(|reason| reason.as_str().to_owned()),
            body_bytes: row.body_bytes,
            ..empty_summary(RequestOutcome::Duplicate, row.at)
        },
    }
}

fn empty_summary(outcome: RequestOutcome, at: Timestamp) -> ReceivedRequestSummary {
    ReceivedRequestSummary {
        id: None,
        outcome: outcome.as_str().to_owned(),
        source: None,
        at,
        event: None,
        events: None,
        bytes_differ: None,
        reason: None,
        what_to_do: None,
        http_status: None,
        method: None,
        path: None,
        query: None,
        remote: None,
        body_bytes: None,
    }
}

fn refused_summary(row: &RefusedRequest) -> ReceivedRequestSummary {
    ReceivedRequestSummary {
        id: Some(row.id),
        source: row.source.clone(),
        reason: Some(row.code.clone()),
        what_to_do: Some(advice(&row.code).to_owned()),
        http_status: Some(row.status),
        method: Some(row.method.clone()),
        // Old versions stored the path unmasked.
        path: Some(mask_path(&row.path)),
        query: row.query.clone(),
        remote: Some(row.remote.clone()),
        body_bytes: row.body_bytes,
        ..empty_summary(RequestOutcome::Refused, row.at)
    }
}
