//! `/api/v1/events`: search and inspect events.

use std::{collections::HashMap, sync::Arc};

use axum::{
    Extension, Json,
    extract::State,
    response::{IntoResponse, Response},
};
use data_encoding::HEXLOWER;
use http::{HeaderMap, StatusCode};
use surehook_api::events::{
    EventDetailResponse, EventList, EventResponse, ListedEvent, RequestHeadResponse,
    SearchProgress, TimelineEntryResponse,
};
use surehook_core::{
    event::RequestHead,
    store::{Configuration, EventDetail, EventFilter, EventRow, ListPage, PageRequest},
    timeline::{self, TimelineEntry},
};
use surehook_types::{
    ids::{EventId, SourceId},
    redact::{self, SecretNames},
};

use super::{
    deliveries, duplicates,
    etag::JsonWithETag,
    event_query::{EventQuery, parse_filter},
    export::{self, ExportableList, ListFormat, ListSelection, export, map_rows},
    extract::{PathParam, QueryParams, QueryParamsWithBodyValues},
    list_response,
    redacted_body::{self, BODY_DESCRIPTION, BodyQuery, mask_headers, visible_path},
};
use crate::{
    ServerState,
    auth::SecretAccess,
    openapi::{ApiTable, Operation},
    problem::Problem,
};

/// Description of the `body.PATH` filter.
const BODY_FILTER_DESCRIPTION: &str = "`body.PATH=value` finds events by a value in a JSON body of up to 128 KiB, for \
    example `body.data.object.id=42`. Separate names with dots and use indexes for arrays: \
    `body.items.0.sku=A1`; a path that starts with `/` is a JSON pointer. Strings are compared by \
    content, numbers by their spelling. Up to ten filters may be given; all must match. Bodies are \
    searched one by one, so a page may be short: `searched` reports the progress. For viewers, \
    `body.PATH` and `search` see masked bodies.";

pub(crate) fn add_routes(api: ApiTable) -> ApiTable {
    let list = Operation::new("list_events", "List events, newest first.")
        .query::<EventQuery>()
        .description(BODY_FILTER_DESCRIPTION)
        .returns::<EventList>(200)
        .returns_media(200, export::MEDIA_TYPES)
        .problem(503, &["too_many_exports"]);
    let get =
        Operation::new("get_event", "Get an event with its deliveries, duplicates and timeline.")
            .path::<EventId>("id")
            .returns::<EventDetailResponse>(200)
            .with_conditional_get();
    let body = Operation::new("get_event_body", "Get the body of an event, secrets masked.")
        .description(BODY_DESCRIPTION)
        .path::<EventId>("id")
        .query::<BodyQuery>()
        .returns_media(200, &["application/octet-stream"])
        .problem(409, &["body_opaque"])
        .problem(410, &["body_removed"])
        .problem(500, &["body_damaged"]);
    api.get("/api/v1/events", list_events, list).get("/api/v1/events/{id}", get_event, get).get(
        "/api/v1/events/{id}/body",
        get_event_body,
        body,
    )
}

fn source_names(configuration: &Configuration) -> HashMap<SourceId, String> {
    configuration.sources.iter().map(|s| (s.id, s.spec.name.to_string())).collect()
}

fn event_response(row: EventRow, sources: &HashMap<SourceId, String>) -> EventResponse {
    EventResponse {
        id: row.id,
        request_id: row.request_id,
        source: sources.get(&row.source).cloned(),
        no_key: row.key.is_none(),
        key_origin: row.key_origin,
        key_conflict: row.key_conflict,
        key: row.key,
        kind: row.kind,
        attributes: row.attributes,
        received_at: row.received_at,
        body_bytes: row.body_bytes,
        duplicate_count: row.duplicates,
        last_duplicate_at: row.last_duplicate_at,
        body_removed: row.body_removed,
    }
}

fn listed_event(row: EventRow, sources: &HashMap<SourceId, String>) -> ListedEvent {
    let counts = row.deliveries.iter().map(|(status, count)| (status.as_str().to_owned(), *count));
    ListedEvent { deliveries: counts.collect(), event: event_response(row, sources) }
}

pub(crate) async fn list_events(
    State(server): State<Arc<ServerState>>,
    Extension(access): Extension<SecretAccess>,
    QueryParamsWithBodyValues(query, body): QueryParamsWithBodyValues<EventQuery>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let selection = ListSelection::new(query.format, &headers, query.limit, query.cursor)?;
    let configuration = server.engine.store().load_configuration().await?;
    let mut filter = parse_filter(query, &body, &configuration)?;
    let names = source_names(&configuration);
    filter.masked_by = (!access.is_granted()).then(|| Arc::new(configuration));
    let list = EventLister { server: Arc::clone(&server), filter, names };
    if selection.format != ListFormat::Json {
        return export(&server, list, selection).await;
    }
    let page = list.read(selection.page()).await?;
    let searched =
        SearchProgress { events: page.rows_scanned, until: page.last.map(|id| id.created_at()) };
    Ok(Json(EventList { page: list_response(page), searched }).into_response())
}

pub(super) struct EventLister {
    server: Arc<ServerState>,
    filter: EventFilter,
    names: HashMap<SourceId, String>,
}

impl ExportableList for EventLister {
    type Row = ListedEvent;
    type Cursor = EventId;
    const NAME: &'static str = "events";
    const COLUMNS: &'static str = "id,request_id,source,key,no_key,key_origin,key_conflict,kind,\
        attributes,received_at,body_bytes,duplicate_count,last_duplicate_at,body_removed,deliveries";

    async fn read(
        &self,
        page: PageRequest<EventId>,
    ) -> Result<ListPage<ListedEvent, EventId>, Problem> {
        let page = self.server.engine.store().list_events(self.filter.clone(), page).await?;
        Ok(map_rows(page, |row| listed_event(row, &self.names)))
    }
}

pub(super) fn parse_id(id: &str) -> Result<EventId, Problem> {
    id.parse().map_err(|_| Problem::not_found("event"))
}

pub(crate) async fn get_event(
    State(server): State<Arc<ServerState>>,
    Extension(access): Extension<SecretAccess>,
    PathParam(id): PathParam,
) -> Result<JsonWithETag<EventDetailResponse>, Problem> {
    let id = parse_id(&id)?;
    let detail =
        server.engine.store().find_event(id).await?.ok_or_else(|| Problem::not_found("event"))?;
    let configuration = server.engine.store().load_configuration().await?;
    Ok(JsonWithETag(StatusCode::OK, event_detail(detail, access, &configuration)))
}

fn event_detail(
    detail: EventDetail,
    access: SecretAccess,
    configuration: &Configuration,
) -> EventDetailResponse {
    let names = deliveries::destination_names(configuration);
    let timeline =
        timeline::build_timeline(&detail, &|destination| names.get(&destination).cloned());
    let entry = |TimelineEntry { at, kind, text, delivery, detail }| {
        let kind = kind.to_owned();
        TimelineEntryResponse { at, kind, text, delivery, detail }
    };
    let EventDetail { event: row, head, fingerprint, deliveries, duplicates, .. } = detail;
    let secrets = configuration.secret_names(row.source);
    let headers = head.as_ref().map(|head| head.headers.to_map()).unwrap_or_default();
    EventDetailResponse {
        event: event_response(row, &source_names(configuration)),
        sha256: HEXLOWER.encode(&fingerprint),
        request: head.map(|head| request_head(&head, &secrets, access, configuration)),
        deliveries: deliveries
            .into_iter()
            .map(|row| deliveries::delivery_response(row, &names))
            .collect(),
        duplicates: duplicates
            .iter()
            .map(|row| duplicates::duplicate_response(row, &headers, &secrets))
            .collect(),
        decisions: timeline.into_iter().map(entry).collect(),
    }
}

fn request_head(
    head: &RequestHead,
    secrets: &SecretNames,
    access: SecretAccess,
    configuration: &Configuration,
) -> RequestHeadResponse {
    RequestHeadResponse {
        path: visible_path(&head.path, access),
        query: head.query.as_deref().map(|query| redact::mask_query(query, secrets)),
        remote: head.remote.to_string(),
        headers: mask_headers(head.headers.lines(), secrets, access, configuration),
    }
}

pub(crate) async fn get_event_body(
    State(server): State<Arc<ServerState>>,
    Extension(access): Extension<SecretAccess>,
    PathParam(id): PathParam,
    QueryParams(query): QueryParams<BodyQuery>,
) -> Result<Response, Problem> {
    let (id, exact) = (parse_id(&id)?, query.is_exact(access)?);
    match server.engine.store().find_body(id).await? {
        Some(payload) => {
            let names = secret_names(&server, id).await?;
            redacted_body::download_response(&id.to_string(), payload, &names, exact)
        }
        None => {
            let removed = missing_body_problem(&server, id).await?;
            Err(removed.unwrap_or_else(|| Problem::not_found("event with a body")))
        }
    }
}

/// The secret names that apply to an event's body.
pub(super) async fn secret_names(
    server: &ServerState,
    id: EventId,
) -> Result<SecretNames, Problem> {
    let store = server.engine.store();
    let detail = store.find_event(id).await?.ok_or_else(|| Problem::not_found("event"))?;
    Ok(store.load_configuration().await?.secret_names(detail.event.source))
}

/// Why an event has no body: it does not exist, or retention removed the body. `None` if neither.
pub(super) async fn missing_body_problem(
    server: &ServerState,
    id: EventId,
) -> Result<Option<Problem>, Problem> {
    let store = server.engine.store();
    let Some(event) = store.find_event_row(id).await? else {
        return Ok(Some(Problem::not_found("event")));
    };
    if !event.body_removed {
        return Ok(None);
    }
    let sources = store.load_configuration().await?.sources;
    let source = sources.iter().find(|source| source.id == event.source);
    Ok(Some(Problem::body_removed(
        source.map(|source| (&source.spec.name, server.engine.retention_policy(&source.spec))),
    )))
}
