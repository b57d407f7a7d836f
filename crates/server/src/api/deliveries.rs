//! `/api/v1/deliveries` and `/api/v1/dead-letters`: list, inspect, replay and cancel deliveries.

use std::{collections::HashMap, sync::Arc};

use axum::{Extension, Json, extract::State, response::Response};
use http::{HeaderMap, StatusCode};
use schemars::JsonSchema;
use serde::Deserialize;
use surehook_api::{
    Cursor, ListResponse,
    deliveries::{AttemptResponse, DeliveryResponse, DeliveryWithAttempts, ReplayedAs},
};
use surehook_core::{
    delivery::state::DeliveryStatus,
    replay::StatusPattern,
    store::{
        AttemptRow, CancelResult, Configuration, DeliveryFilter, DeliveryRow, ListPage, NextStep,
        PageRequest, ReplayResult,
    },
};
use surehook_core::{destination::DestinationSpec, source::SourceSpec};
use surehook_retry::{DeadReason, FailureClass};
use surehook_types::{
    ids::{DeliveryId, DestinationId, EventId, GroupId},
    name::Name,
    redact::{self, SecretNames},
    time::Timestamp,
};
use surehook_webhooks::attribute::EventKind;

use super::{
    LIMIT_MAX,
    etag::JsonWithETag,
    events,
    export::{self, ExportableList, ListFormat, ListSelection, map_rows, page_or_export},
    extract::{PathParam, QueryParams},
    find_by_name,
    idempotency::IdempotencyContext,
    redacted_body::{self, BODY_DESCRIPTION, BodyQuery},
};
use crate::{
    ServerState,
    auth::SecretAccess,
    openapi::{ApiTable, Operation},
    problem::Problem,
};

/// Filter of a list of deliveries.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeliveryQuery {
    status: Option<DeliveryStatus>,
    /// Name of the destination.
    destination: Option<Name>,
    /// Name of the source.
    source: Option<Name>,
    /// Event type.
    kind: Option<EventKind>,
    /// Why the delivery is dead. For deliveries only with `status=dead`.
    reason: Option<DeadReason>,
    /// Failure class of the last attempt.
    class: Option<FailureClass>,
    /// HTTP status of the last attempt, such as `503` or `5xx`.
    code: Option<StatusPattern>,
    event: Option<EventId>,
    /// Id of the dead letter group; only dead deliveries.
    group: Option<GroupId>,
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
    cursor: Option<DeliveryId>,
    /// `ndjson` or `csv` export the whole list. Can also be set with `Accept`.
    format: Option<ListFormat>,
}

pub(crate) fn add_routes(api: ApiTable) -> ApiTable {
    let list = |id: &str, summary: &str| {
        Operation::new(id, summary)
            .query::<DeliveryQuery>()
            .returns::<ListResponse<DeliveryResponse>>(200)
            .returns_media(200, export::MEDIA_TYPES)
            .problem(503, &["too_many_exports"])
    };
    let list_dead =
        list("list_dead_letters", "List dead letters, newest first.").exclude_query(&["status"]);
    let get = Operation::new("get_delivery", "Get a delivery with its attempts.")
        .path::<DeliveryId>("id")
        .returns::<DeliveryWithAttempts>(200)
        .with_conditional_get();
    let replay = Operation::new("replay_delivery", "Replay a delivery as a new delivery.")
        .path::<DeliveryId>("id")
        .returns::<ReplayedAs>(202)
        .problem(409, &["not_replayable", "body_removed"])
        .problem(429, &["replayed_too_soon"]);
    let cancel = Operation::new("cancel_delivery", "Cancel a pending delivery.")
        .path::<DeliveryId>("id")
        .returns::<DeliveryWithAttempts>(200)
        .with_etag()
        .problem(409, &["not_cancellable"]);
    let body = Operation::new("get_delivery_body", "Get the body that is sent to the destination.")
        .description(BODY_DESCRIPTION)
        .path::<DeliveryId>("id")
        .query::<BodyQuery>()
        .returns_media(200, &["application/octet-stream"])
        .problem(409, &["body_opaque"])
        .problem(410, &["body_removed"])
        .problem(500, &["body_damaged"]);
    api.get(
        "/api/v1/deliveries",
        list_deliveries,
        list("list_deliveries", "List deliveries, newest first."),
    )
    .get("/api/v1/deliveries/{id}", get_delivery, get)
    .get("/api/v1/deliveries/{id}/body", get_delivery_body, body)
    .post("/api/v1/deliveries/{id}/replay", replay_delivery, replay)
    .post("/api/v1/deliveries/{id}/cancel", cancel_delivery, cancel)
    .get("/api/v1/dead-letters", list_dead_letters, list_dead)
}

pub(super) fn destination_names(configuration: &Configuration) -> HashMap<DestinationId, String> {
    configuration.destinations.iter().map(|d| (d.id, d.spec.name.to_string())).collect()
}

pub(super) fn delivery_response(
    row: DeliveryRow,
    names: &HashMap<DestinationId, String>,
) -> DeliveryResponse {
    DeliveryResponse {
        id: row.id,
        event: row.event,
        destination: names.get(&row.destination).cloned(),
        status: row.status,
        ordering_key: row.order_key,
        reason: row.reason,
        attempts: row.attempts,
        created_at: row.created_at,
        due_at: row.due_at,
        ended_at: row.ended_at,
        replay_of: row.replay_of,
        replayed_as: row.replayed_by,
        message_id: row.sent_id,
        group: row.group,
    }
}

pub(crate) async fn list_deliveries(
    State(server): State<Arc<ServerState>>,
    QueryParams(query): QueryParams<DeliveryQuery>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    list_or_export(&server, query, &headers).await
}

pub(crate) async fn list_dead_letters(
    State(server): State<Arc<ServerState>>,
    QueryParams(mut query): QueryParams<DeliveryQuery>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    if query.status.replace(DeliveryStatus::Dead).is_some() {
        return Err(Problem::invalid("Remove `status`: every dead letter has the status `dead`."));
    }
    list_or_export(&server, query, &headers).await
}

async fn list_or_export(
    server: &Arc<ServerState>,
    query: DeliveryQuery,
    headers: &HeaderMap,
) -> Result<Response, Problem> {
    let selection = ListSelection::new(query.format, headers, query.limit, query.cursor)?;
    let configuration = server.engine.store().load_configuration().await?;
    let filter = build_filter(query, &configuration)?;
    let names = destination_names(&configuration);
    let list = DeliveryLister { server: Arc::clone(server), filter, names };
    page_or_export(server, list, selection).await
}

fn build_filter(
    query: DeliveryQuery,
    configuration: &Configuration,
) -> Result<DeliveryFilter, Problem> {
    let DeliveryQuery { status, reason, group, kind, class, code, event, since, until, .. } = query;
    if reason.is_some() && status != Some(DeliveryStatus::Dead) {
        return Err(Problem::invalid("`reason` requires status=dead."));
    }
    if group.is_some() && status.is_some_and(|status| status != DeliveryStatus::Dead) {
        return Err(Problem::invalid("`group` requires status=dead."));
    }
    let destination = find_by_name::<DestinationSpec>(configuration, query.destination.as_ref())?;
    let source = find_by_name::<SourceSpec>(configuration, query.source.as_ref())?;
    Ok(DeliveryFilter {
        status,
        destination,
        reason,
        source,
        kind,
        event,
        group,
        class,
        code,
        since,
        until,
    })
}

pub(super) struct DeliveryLister {
    server: Arc<ServerState>,
    filter: DeliveryFilter,
    names: HashMap<DestinationId, String>,
}

impl ExportableList for DeliveryLister {
    type Row = DeliveryResponse;
    type Cursor = DeliveryId;
    const NAME: &'static str = "deliveries";
    const COLUMNS: &'static str = "id,event,destination,status,ordering_key,reason,attempts,created_at,\
        due_at,ended_at,replay_of,replayed_as,message_id,group";

    async fn read(
        &self,
        page: PageRequest<DeliveryId>,
    ) -> Result<ListPage<DeliveryResponse, DeliveryId>, Problem> {
        let page = self.server.engine.store().list_deliveries(self.filter.clone(), page).await?;
        Ok(map_rows(page, |row| delivery_response(row, &self.names)))
    }
}

fn parse_id(id: &str) -> Result<DeliveryId, Problem> {
    id.parse().map_err(|_| Problem::not_found("delivery"))
}

pub(crate) async fn get_delivery(
    State(server): State<Arc<ServerState>>,
    PathParam(id): PathParam,
) -> Result<JsonWithETag<DeliveryWithAttempts>, Problem> {
    let detail = server.engine.store().find_delivery(parse_id(&id)?).await?;
    let detail = detail.ok_or_else(|| Problem::not_found("delivery"))?;
    let configuration = server.engine.store().load_configuration().await?;
    let delivery = delivery_response(detail.delivery, &destination_names(&configuration));
    let attempts_removed = detail.attempts.is_empty() && delivery.attempts > 0;
    let names = configuration.all_secret_names();
    let attempt_list = detail.attempts.iter().map(|row| attempt_response(row, &names)).collect();
    let response = DeliveryWithAttempts { delivery, attempts_removed, attempt_list };
    Ok(JsonWithETag(StatusCode::OK, response))
}

/// Masks the response body, which may quote secrets of the request.
pub(super) fn attempt_response(row: &AttemptRow, names: &SecretNames) -> AttemptResponse {
    let AttemptRow { attempt, next, schedule_reason, .. } = row;
    let response = redact::mask_text(&attempt.response, names);
    let timing = attempt.timing.to_view(attempt.took);
    AttemptResponse {
        id: attempt.id,
        number: attempt.number,
        started_at: attempt.started_at,
        duration_ms: timing.total_ms,
        timing,
        status: attempt.status,
        failure: attempt.failure,
        class: attempt.class,
        detail: attempt.detail.clone(),
        response: String::from_utf8_lossy(&response.body).into_owned(),
        masked: response.fields,
        next: next.map(|step| step.as_str().to_owned()),
        next_at: next.and_then(NextStep::due_at),
        next_reason: *schedule_reason,
    }
}

pub(crate) async fn get_delivery_body(
    State(server): State<Arc<ServerState>>,
    Extension(access): Extension<SecretAccess>,
    PathParam(id): PathParam,
    QueryParams(query): QueryParams<BodyQuery>,
) -> Result<Response, Problem> {
    let (id, exact) = (parse_id(&id)?, query.is_exact(access)?);
    match server.engine.store().find_delivery_body(id).await? {
        Some(payload) => {
            let detail = server.engine.store().find_delivery(id).await?;
            let detail = detail.ok_or_else(|| Problem::not_found("delivery"))?;
            let names = events::secret_names(&server, detail.delivery.event).await?;
            redacted_body::download_response(&id.to_string(), payload, &names, exact)
        }
        None => Err(missing_body_problem(&server, id).await?),
    }
}

/// Why a delivery has no body: it does not exist, retention removed the event's body, or the body is
/// built when it is sent.
async fn missing_body_problem(server: &ServerState, id: DeliveryId) -> Result<Problem, Problem> {
    let Some(found) = server.engine.store().find_delivery(id).await? else {
        return Ok(Problem::not_found("delivery"));
    };
    let removed = events::missing_body_problem(server, found.delivery.event).await?;
    Ok(removed.unwrap_or_else(|| Problem::not_found("delivery with a body")))
}

pub(crate) async fn replay_delivery(
    State(server): State<Arc<ServerState>>,
    PathParam(id): PathParam,
    IdempotencyContext(request): IdempotencyContext,
) -> Result<(StatusCode, Json<ReplayedAs>), Problem> {
    let (old, new) = (parse_id(&id)?, request.id(&id));
    let now = server.engine.clock().now();
    match server.engine.store().replay(old, new, now).await? {
        ReplayResult::Created { delivery, destination } => {
            server.engine.wake_lane(destination);
            server.engine.publish_delivery_change(old).await;
            server.engine.publish_delivery_change(delivery).await;
            Ok((StatusCode::ACCEPTED, Json(ReplayedAs { delivery_id: delivery })))
        }
        ReplayResult::NotFound => Err(Problem::not_found("delivery")),
        ReplayResult::NotReplayable(status) => {
            let detail = format!(
                "A delivery that is {} or whose destination was deleted cannot be replayed.",
                status.as_str()
            );
            Err(Problem::new(StatusCode::CONFLICT, "not_replayable", detail))
        }
        ReplayResult::BodyRemoved => {
            let detail = "The body of this event was removed by retention, so there is nothing to \
                          send. Increase `retention` of the source to keep bodies longer.";
            Err(Problem::new(StatusCode::CONFLICT, "body_removed", detail))
        }
        ReplayResult::TooSoon { again_at } => Err(Problem::replayed_too_soon(again_at, now)),
    }
}

/// Cancels a delivery. Cancelling it again succeeds, so that the request is idempotent.
pub(crate) async fn cancel_delivery(
    State(server): State<Arc<ServerState>>,
    PathParam(id): PathParam,
) -> Result<JsonWithETag<DeliveryWithAttempts>, Problem> {
    match server.engine.cancel_delivery(parse_id(&id)?).await? {
        CancelResult::Done { .. } | CancelResult::NotCancellable(DeliveryStatus::Cancelled) => {
            get_delivery(State(server), PathParam(id)).await
        }
        CancelResult::NotFound => Err(Problem::not_found("delivery")),
        CancelResult::NotCancellable(status) => {
            let detail = format!(
                "A delivery that is {} cannot be cancelled. Only pending deliveries can.",
                status.as_str()
            );
            Err(Problem::new(StatusCode::CONFLICT, "not_cancellable", detail))
        }
    }
}
