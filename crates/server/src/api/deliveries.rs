//! `/api/v1/deliveries` and `/api/v1/dead-letters`: list, inspect, replay and cancel deliveries.

use std::{collections::HashMap, sync::Arc};

use axum::{
    Extension, Json,
    extract::State,
    response::{IntoResponse as _, Response},
};
use http::{HeaderMap, StatusCode};
use schemars::JsonSchema;
use serde::Deserialize;
use surehook_api::{
    ListResponse,
    deliveries::{AttemptResponse, DeliveryResponse, DeliveryWithAttempts, ReplayedAs},
};
use surehook_core::{
    delivery::state::DeliveryStatus,
    replay::StatusPattern,
    store::{
        AttemptRow, CancelResult, Configuration, DeliveryFilter, DeliveryRow, NextStep,
        PageRequest, ReplayResult,
    },
};
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
    event_query, events,
    export::{self, ExportPages, ListFormat, export},
    extract::{PathParam, QueryParams},
    idempotency::IdempotencyContext,
    page_request, parse_cursor, parse_limit, parse_time,
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
    /// Status of the delivery.
    #[schemars(with = "Option<DeliveryStatus>")]
    status: Option<String>,
    /// Name of the destination.
    #[schemars(with = "Option<Name>")]
    destination: Option<String>,
    /// Name of the event's source.
    #[schemars(with = "Option<Name>")]
    source: Option<String>,
    /// Kind of the event.
    #[schemars(with = "Option<EventKind>")]
    kind: Option<String>,
    /// Why the delivery is dead; only with `status=dead`.
    #[schemars(with = "Option<DeadReason>")]
    reason: Option<String>,
    /// Failure class of the last attempt.
    #[schemars(with = "Option<FailureClass>")]
    class: Option<String>,
    /// HTTP status of the last attempt, such as `503` or `5xx`.
    #[schemars(with = "Option<StatusPattern>")]
    code: Option<String>,
    /// Id of the event.
    #[schemars(with = "Option<EventId>")]
    event: Option<String>,
    /// Id of the dead letter group; only dead deliveries.
    #[schemars(with = "Option<GroupId>")]
    group: Option<String>,
    /// Created at this time or later.
    #[schemars(with = "Option<Timestamp>")]
    since: Option<String>,
    /// Created before this time.
    #[schemars(with = "Option<Timestamp>")]
    until: Option<String>,
    /// Maximum number of rows; by default 50 per page, all in an export.
    #[schemars(with = "Option<u16>", range(min = 1, max = LIMIT_MAX))]
    limit: Option<String>,
    /// `next_cursor` of the previous page.
    #[schemars(with = "Option<DeliveryId>")]
    cursor: Option<String>,
    /// `ndjson` or `csv` export the whole list. Can also be set with `Accept`.
    #[schemars(regex(pattern = "^(json|ndjson|csv)$"))]
    format: Option<String>,
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
        .problem(410, &["body_removed"]);
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
        order_key: row.order_key,
        reason: row.reason,
        attempts: row.attempts,
        created_at: row.created_at,
        due_at: row.due_at,
        ended_at: row.ended_at,
        replay_of: row.replay_of,
        replayed_by: row.replayed_by,
        sent_id: row.sent_id,
        group: row.group,
    }
}

pub(crate) async fn list_deliveries(
    State(server): State<Arc<ServerState>>,
    QueryParams(query): QueryParams<DeliveryQuery>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let status = event_query::parse_status(query.status.as_deref())?;
    list_or_export(&server, query, status, &headers).await
}

pub(crate) async fn list_dead_letters(
    State(server): State<Arc<ServerState>>,
    QueryParams(query): QueryParams<DeliveryQuery>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    if query.status.is_some() {
        return Err(Problem::invalid("Remove `status`: every dead letter has the status `dead`."));
    }
    list_or_export(&server, query, Some(DeliveryStatus::Dead), &headers).await
}

async fn list_or_export(
    server: &Arc<ServerState>,
    query: DeliveryQuery,
    status: Option<DeliveryStatus>,
    headers: &HeaderMap,
) -> Result<Response, Problem> {
    let format = ListFormat::from_request(query.format.as_deref(), headers)?;
    let limit = parse_limit(query.limit.as_deref())?;
    let after = parse_cursor(query.cursor.as_deref())?;
    let configuration = server.engine.store().load_configuration().await?;
    let filter = parse_filter(&query, status, &configuration)?;
    let names = destination_names(&configuration);
    if format != ListFormat::Json {
        let pages =
            DeliveryExport { server: Arc::clone(server), filter, names, after, ended: false };
        return export(server, format, pages, limit).await;
    }
    let page = server.engine.store().list_deliveries(filter, page_request(limit, after)).await?;
    let next_cursor = page.next.map(|id| id.to_string());
    let data = page.rows.into_iter().map(|row| delivery_response(row, &names)).collect();
    Ok(Json(ListResponse { data, next_cursor }).into_response())
}

fn parse_filter(
    query: &DeliveryQuery,
    status: Option<DeliveryStatus>,
    configuration: &Configuration,
) -> Result<DeliveryFilter, Problem> {
    let reason = event_query::parse_reason(query.reason.as_deref())?;
    if reason.is_some() && status != Some(DeliveryStatus::Dead) {
        return Err(Problem::invalid("`reason` requires status=dead."));
    }
    let group = |text: &str| {
        let id = text.parse();
        id.map_err(|_| Problem::invalid("`group` must be the id of a dead letter group, `grp_…`."))
    };
    let group = query.group.as_deref().map(group).transpose()?;
    if group.is_some() && status.is_some_and(|status| status != DeliveryStatus::Dead) {
        return Err(Problem::invalid("`group` requires status=dead."));
    }
    let event = |text: &str| {
        text.parse().map_err(|_| Problem::invalid("`event` must be the id of an event, `evt_…`."))
    };
    Ok(DeliveryFilter {
        status,
        destination: event_query::find_destination(configuration, query.destination.as_deref())?,
        reason,
        source: event_query::find_source(configuration, query.source.as_deref())?,
        kind: event_query::parse_kind(query.kind.as_deref())?,
        event: query.event.as_deref().map(event).transpose()?,
        group,
        class: event_query::parse_class(query.class.as_deref())?,
        code: event_query::parse_code(query.code.as_deref())?,
        since: parse_time("since", query.since.as_deref())?,
        until: parse_time("until", query.until.as_deref())?,
    })
}

struct DeliveryExport {
    server: Arc<ServerState>,
    filter: DeliveryFilter,
    names: HashMap<DestinationId, String>,
    after: Option<DeliveryId>,
    ended: bool,
}

impl ExportPages for DeliveryExport {
    type Row = DeliveryResponse;
    const NAME: &'static str = "deliveries";
    const COLUMNS: &'static [&'static str] = &[
        "id",
        "event",
        "destination",
        "status",
        "order_key",
        "reason",
        "attempts",
        "created_at",
        "due_at",
        "ended_at",
        "replay_of",
        "replayed_by",
        "sent_id",
        "group",
    ];

    async fn next(&mut self, limit: usize) -> Result<Option<Vec<DeliveryResponse>>, Problem> {
        if self.ended {
            return Ok(None);
        }
        let page = PageRequest { after: self.after, limit };
        let page = self.server.engine.store().list_deliveries(self.filter.clone(), page).await?;
        (self.after, self.ended) = (page.next, page.next.is_none());
        Ok(Some(page.rows.into_iter().map(|row| delivery_response(row, &self.names)).collect()))
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
        took_ms: timing.total_ms,
        timing,
        status: attempt.status,
        failure: attempt.failure,
        class: attempt.class,
        detail: attempt.detail.clone(),
        response: String::from_utf8_lossy(&response.body).into_owned(),
        masked: response.fields,
        next: next.map(|step| step.as_str().to_owned()),
        next_at: next.and_then(NextStep::due_at),
        next_why: *schedule_reason,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_delivery_field_has_an_export_column() {
        let schema = schemars::schema_for!(DeliveryResponse).to_value();
        let mut fields: Vec<&str> =
            schema["properties"].as_object().unwrap().keys().map(String::as_str).collect();
        let mut columns = DeliveryExport::COLUMNS.to_vec();
        fields.sort_unstable();
        columns.sort_unstable();
        assert_eq!(columns, fields);
    }
}
