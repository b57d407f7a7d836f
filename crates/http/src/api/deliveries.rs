//! `/api/v1/deliveries` and `/api/v1/dead-letters`.

use std::{collections::HashMap, sync::Arc};

use axum::{
    Extension, Json,
    extract::State,
    response::{IntoResponse as _, Response},
};
use http::{HeaderMap, StatusCode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use surehook_core::{
    attribute::EventKind,
    delivery::{
        AttemptFailure, DeadReason, FailureClass, ScheduleReason, state::DeliveryStatus,
        timing::AttemptTimingView,
    },
    ids::{AttemptId, DeliveryId, DestinationId, EventId, GroupId},
    name::Name,
    redact::{self, SecretNames},
    replay::StatusPattern,
    store::{
        AttemptRow, CancelResult, Configuration, DeliveryFilter, DeliveryRow, NextStep,
        PageRequest, ReplayResult,
    },
    time::Timestamp,
};

use super::{
    LIMIT_MAX, List, cursor, event_query, events,
    export::{self, Format, Pages, export},
    hidden::{self, ABOUT_BODIES, BodyQuery},
    idempotent::Wished,
    input::{Asked, Segment},
    limit, page,
    tagged::Tagged,
    time,
};
use crate::{
    App,
    auth::Insight,
    openapi::{Api, Op},
    problem::Problem,
};

/// Which deliveries are wanted.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeliveryQuery {
    /// Only with this status.
    #[schemars(with = "Option<DeliveryStatus>")]
    status: Option<String>,
    /// Only to this destination.
    #[schemars(with = "Option<Name>")]
    destination: Option<String>,
    /// Only of events of this source.
    #[schemars(with = "Option<Name>")]
    source: Option<String>,
    /// Only of events of this kind.
    #[schemars(with = "Option<EventKind>")]
    kind: Option<String>,
    /// Only dead for this reason; goes with `status=dead`.
    #[schemars(with = "Option<DeadReason>")]
    reason: Option<String>,
    /// Only with a last attempt that failed like this.
    #[schemars(with = "Option<FailureClass>")]
    class: Option<String>,
    /// Only with a last attempt that was answered with this HTTP status, such as `503`, or `5xx` for all
    /// that begin with a 5.
    #[schemars(with = "Option<StatusPattern>")]
    code: Option<String>,
    /// Only of this event.
    #[schemars(with = "Option<EventId>")]
    event: Option<String>,
    /// Only dead, and in this group of dead letters.
    #[schemars(with = "Option<GroupId>")]
    group: Option<String>,
    /// Only created at this time or later.
    #[schemars(with = "Option<Timestamp>")]
    since: Option<String>,
    /// Only created before this time.
    #[schemars(with = "Option<Timestamp>")]
    until: Option<String>,
    /// At most this many; of a page 50 when left out, of an export all.
    #[schemars(with = "Option<u16>", range(min = 1, max = LIMIT_MAX))]
    limit: Option<String>,
    /// Goes on after the page that gave this.
    #[schemars(with = "Option<DeliveryId>")]
    cursor: Option<String>,
    /// `ndjson` and `csv` export the whole list; `Accept` says the same.
    #[schemars(regex(pattern = "^(json|ndjson|csv)$"))]
    format: Option<String>,
}

/// What one event owes to one destination.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Delivery {
    id: DeliveryId,
    event: EventId,
    /// The name of its destination; null when that was deleted.
    destination: Option<String>,
    status: DeliveryStatus,
    /// What it is in line by, where its destination keeps an order.
    order_key: Option<String>,
    /// Why it is dead, or was when it was replayed.
    reason: Option<DeadReason>,
    attempts: u32,
    created_at: Timestamp,
    due_at: Option<Timestamp>,
    ended_at: Option<Timestamp>,
    replay_of: Option<DeliveryId>,
    replayed_by: Option<DeliveryId>,
    /// What the service calls the message that was sent; statuses about it have this name as `message_id`.
    sent_id: Option<String>,
    /// Its group of dead letters, as long as it is dead.
    group: Option<GroupId>,
}

/// A delivery with all its attempts.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct DeliveryWithAttempts {
    #[serde(flatten)]
    delivery: Delivery,
    /// Retention has removed its attempts.
    attempts_removed: bool,
    /// Oldest first.
    attempt_list: Vec<ShownAttempt>,
}

/// One try.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ShownAttempt {
    id: AttemptId,
    number: u32,
    started_at: Timestamp,
    took_ms: u64,
    /// Where that time went.
    timing: AttemptTimingView,
    /// The status of the answer.
    status: Option<u16>,
    /// Why there was none.
    failure: Option<AttemptFailure>,
    /// What kind of failure it was; null for a success.
    class: Option<FailureClass>,
    detail: Option<String>,
    /// The first part of the answer's body; secrets are masked.
    response: String,
    /// How many values of the answer are masked.
    masked: usize,
    /// What followed: `succeeded`, `retry` or `dead`; null for attempts of older versions.
    #[schemars(with = "Option<String>", regex(pattern = "^(succeeded|retry|dead)$"))]
    next: Option<&'static str>,
    /// When it is tried again.
    next_at: Option<Timestamp>,
    /// Why then; null if it is not tried again, and for attempts of older versions.
    next_why: Option<ScheduleReason>,
}

/// The delivery that takes over.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Heir {
    delivery_id: DeliveryId,
}

pub(crate) fn routes(api: Api) -> Api {
    let lists = |id: &str, summary: &str| {
        Op::new(id, summary)
            .query::<DeliveryQuery>()
            .answers::<List<Delivery>>(200)
            .answers_as(200, export::KINDS)
            .refuses(503, &["too_many_exports"])
    };
    let dead = lists("list_dead_letters", "Deliveries that were given up, newest first.")
        .without(&["status"]);
    let find = Op::new("find_delivery", "One delivery with all its attempts.")
        .path::<DeliveryId>("id")
        .answers::<DeliveryWithAttempts>(200)
        .cached();
    let replay = Op::new("replay_delivery", "Delivers once more: a new delivery takes over.")
        .path::<DeliveryId>("id")
        .answers::<Heir>(202)
        .refuses(409, &["not_replayable", "body_removed"])
        .refuses(429, &["replayed_too_soon"]);
    let cancel = Op::new("cancel_delivery", "Stops a delivery that waits.")
        .path::<DeliveryId>("id")
        .answers::<DeliveryWithAttempts>(200)
        .tagged()
        .refuses(409, &["not_cancellable"]);
    let body =
        Op::new("read_delivery_body", "What is sent: what came, or what a route made of it.")
            .text(ABOUT_BODIES)
            .path::<DeliveryId>("id")
            .query::<BodyQuery>()
            .answers_as(200, &["application/octet-stream"])
            .refuses(409, &["body_opaque"])
            .refuses(410, &["body_removed"]);
    api.get(
        "/api/v1/deliveries",
        list_deliveries,
        lists("list_deliveries", "Deliveries, newest first."),
    )
    .get("/api/v1/deliveries/{id}", find_delivery, find)
    .get("/api/v1/deliveries/{id}/body", read_body, body)
    .post("/api/v1/deliveries/{id}/replay", replay_delivery, replay)
    .post("/api/v1/deliveries/{id}/cancel", cancel_delivery, cancel)
    .get("/api/v1/dead-letters", list_dead_letters, dead)
}

pub(super) fn destination_names(configuration: &Configuration) -> HashMap<DestinationId, String> {
    configuration.destinations.iter().map(|d| (d.id, d.spec.name.to_string())).collect()
}

pub(super) fn delivery(row: DeliveryRow, names: &HashMap<DestinationId, String>) -> Delivery {
    Delivery {
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

/// Deliveries, newest first.
pub(crate) async fn list_deliveries(
    State(app): State<Arc<App>>,
    Asked(query): Asked<DeliveryQuery>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let status = event_query::status(query.status.as_deref())?;
    listed(&app, query, status, &headers).await
}

/// Deliveries that were given up, newest first.
pub(crate) async fn list_dead_letters(
    State(app): State<Arc<App>>,
    Asked(query): Asked<DeliveryQuery>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    if query.status.is_some() {
        return Err(Problem::invalid("every dead letter has the status `dead`"));
    }
    listed(&app, query, Some(DeliveryStatus::Dead), &headers).await
}

async fn listed(
    app: &Arc<App>,
    query: DeliveryQuery,
    status: Option<DeliveryStatus>,
    headers: &HeaderMap,
) -> Result<Response, Problem> {
    let format = Format::wanted(query.format.as_deref(), headers)?;
    let limit = limit(query.limit.as_deref())?;
    let after = cursor(query.cursor.as_deref())?;
    let configuration = app.engine.store().configuration().await?;
    let filter = filter(&query, status, &configuration)?;
    let names = destination_names(&configuration);
    if format != Format::Page {
        let pages = DeliveryPages { app: Arc::clone(app), filter, names, after, ended: false };
        return export(app, format, pages, limit).await;
    }
    let page = app.engine.store().deliveries(filter, page(limit, after)).await?;
    let next_cursor = page.next.map(|id| id.to_string());
    let data = page.rows.into_iter().map(|row| delivery(row, &names)).collect();
    Ok(Json(List { data, next_cursor }).into_response())
}

fn filter(
    query: &DeliveryQuery,
    status: Option<DeliveryStatus>,
    configuration: &Configuration,
) -> Result<DeliveryFilter, Problem> {
    let reason = event_query::reason(query.reason.as_deref())?;
    if reason.is_some() && status != Some(DeliveryStatus::Dead) {
        return Err(Problem::invalid("a reason goes with status=dead"));
    }
    let group = |text: &str| {
        let id = text.parse();
        id.map_err(|_| Problem::invalid("group is the id of a group of dead letters, `grp_…`"))
    };
    let group = query.group.as_deref().map(group).transpose()?;
    if group.is_some() && status.is_some_and(|status| status != DeliveryStatus::Dead) {
        return Err(Problem::invalid("a group goes with status=dead"));
    }
    let event = |text: &str| {
        text.parse().map_err(|_| Problem::invalid("event is the id of an event, `evt_…`"))
    };
    Ok(DeliveryFilter {
        status,
        destination: event_query::find_destination(configuration, query.destination.as_deref())?,
        reason,
        source: event_query::find_source(configuration, query.source.as_deref())?,
        kind: event_query::kind(query.kind.as_deref())?,
        event: query.event.as_deref().map(event).transpose()?,
        group,
        class: event_query::class(query.class.as_deref())?,
        code: event_query::code(query.code.as_deref())?,
        since: time("since", query.since.as_deref())?,
        until: time("until", query.until.as_deref())?,
    })
}

/// A list of deliveries, to its end.
struct DeliveryPages {
    app: Arc<App>,
    filter: DeliveryFilter,
    names: HashMap<DestinationId, String>,
    after: Option<DeliveryId>,
    ended: bool,
}

impl Pages for DeliveryPages {
    type Row = Delivery;
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

    async fn next(&mut self, limit: usize) -> Result<Option<Vec<Delivery>>, Problem> {
        if self.ended {
            return Ok(None);
        }
        let page = PageRequest { after: self.after, limit };
        let page = self.app.engine.store().deliveries(self.filter.clone(), page).await?;
        (self.after, self.ended) = (page.next, page.next.is_none());
        Ok(Some(page.rows.into_iter().map(|row| delivery(row, &self.names)).collect()))
    }
}

fn parse(id: &str) -> Result<DeliveryId, Problem> {
    id.parse().map_err(|_| Problem::not_found("delivery"))
}

/// One delivery with all its attempts.
pub(crate) async fn find_delivery(
    State(app): State<Arc<App>>,
    Segment(id): Segment,
) -> Result<Tagged<DeliveryWithAttempts>, Problem> {
    let detail = app.engine.store().delivery(parse(&id)?).await?;
    let detail = detail.ok_or_else(|| Problem::not_found("delivery"))?;
    let configuration = app.engine.store().configuration().await?;
    let delivery = delivery(detail.delivery, &destination_names(&configuration));
    let attempts_removed = detail.attempts.is_empty() && delivery.attempts > 0;
    let names = configuration.all_secret_names();
    let attempt_list = detail.attempts.iter().map(|row| attempt(row, &names)).collect();
    let shown = DeliveryWithAttempts { delivery, attempts_removed, attempt_list };
    Ok(Tagged(StatusCode::OK, shown))
}

/// An attempt. Destinations like to quote what they were sent.
pub(super) fn attempt(row: &AttemptRow, names: &SecretNames) -> ShownAttempt {
    let AttemptRow { attempt, next, why_then, .. } = row;
    let response = redact::mask_text(&attempt.response, names);
    let timing = attempt.timing.shown(attempt.took);
    ShownAttempt {
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
        next: next.map(NextStep::word),
        next_at: next.and_then(NextStep::due_at),
        next_why: *why_then,
    }
}

/// What is sent for this delivery: what came, or what its route made of it.
pub(crate) async fn read_body(
    State(app): State<Arc<App>>,
    Extension(insight): Extension<Insight>,
    Segment(id): Segment,
    Asked(query): Asked<BodyQuery>,
) -> Result<Response, Problem> {
    let (id, exact) = (parse(&id)?, query.is_exact(insight)?);
    match app.engine.store().delivery_body(id).await? {
        Some(payload) => {
            let detail = app.engine.store().delivery(id).await?;
            let detail = detail.ok_or_else(|| Problem::not_found("delivery"))?;
            let names = events::secret_names(&app, detail.delivery.event).await?;
            hidden::download(&id.to_string(), payload, &names, exact)
        }
        None => Err(without_body(&app, id).await?),
    }
}

/// Why there is no body: there is no such delivery, retention removed what it was to be made of, or
/// it is made when it is sent.
async fn without_body(app: &App, id: DeliveryId) -> Result<Problem, Problem> {
    let Some(found) = app.engine.store().delivery(id).await? else {
        return Ok(Problem::not_found("delivery"));
    };
    let gone = events::without_body(app, found.delivery.event).await?;
    Ok(gone.unwrap_or_else(|| Problem::not_found("delivery with a body")))
}

/// Delivers once more: a new delivery takes over.
pub(crate) async fn replay_delivery(
    State(app): State<Arc<App>>,
    Segment(id): Segment,
    Wished(wish): Wished,
) -> Result<(StatusCode, Json<Heir>), Problem> {
    let (old, new) = (parse(&id)?, wish.id(&id));
    let now = app.engine.clock().now();
    match app.engine.store().replay(old, new, now).await? {
        ReplayResult::Created { delivery, destination } => {
            app.engine.wake_lane(destination);
            app.engine.publish_delivery_change(old).await;
            app.engine.publish_delivery_change(delivery).await;
            Ok((StatusCode::ACCEPTED, Json(Heir { delivery_id: delivery })))
        }
        ReplayResult::NotFound => Err(Problem::not_found("delivery")),
        ReplayResult::NotReplayable(status) => {
            let detail = format!(
                "a delivery that is {} cannot be replayed, nor one whose destination is gone",
                status.as_str()
            );
            Err(Problem::new(StatusCode::CONFLICT, "not_replayable", detail))
        }
        ReplayResult::BodyRemoved => {
            let detail = "retention has removed the body of this event, so there is nothing to send; \
                          `retention` of its source says how long bodies are kept";
            Err(Problem::new(StatusCode::CONFLICT, "body_removed", detail))
        }
        ReplayResult::TooSoon { again_at } => Err(Problem::too_soon(again_at, now)),
    }
}

/// Stops a delivery that waits. One that was stopped before is stopped: the same wish again gets the
/// same answer.
pub(crate) async fn cancel_delivery(
    State(app): State<Arc<App>>,
    Segment(id): Segment,
) -> Result<Tagged<DeliveryWithAttempts>, Problem> {
    match app.engine.cancel_delivery(parse(&id)?).await? {
        CancelResult::Done { .. } | CancelResult::NotCancellable(DeliveryStatus::Cancelled) => {
            find_delivery(State(app), Segment(id)).await
        }
        CancelResult::NotFound => Err(Problem::not_found("delivery")),
        CancelResult::NotCancellable(status) => {
            let detail = format!(
                "a delivery that is {} cannot be cancelled; only one that waits can",
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
    fn every_field_has_a_column() {
        let schema = schemars::schema_for!(Delivery).to_value();
        let mut fields: Vec<&str> =
            schema["properties"].as_object().unwrap().keys().map(String::as_str).collect();
        let mut columns = DeliveryPages::COLUMNS.to_vec();
        fields.sort_unstable();
        columns.sort_unstable();
        assert_eq!(columns, fields);
    }
}
