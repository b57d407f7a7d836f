//! `/api/v1/deliveries` and `/api/v1/dead-letters`.

use std::{collections::HashMap, sync::Arc};

use axum::{Json, extract::State, response::Response};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use surehook_core::{
    chance::new_id,
    delivery::{DeadReason, state::Status},
    ids::{DeliveryId, DestinationId},
    store::{AttemptRow, Cancelled, Configuration, DeliveryFilter, DeliveryRow, Next, Replayed},
    time::Timestamp,
};

use super::{
    List, events,
    input::{Asked, Segment},
    list, page,
};
use crate::{App, problem::Problem};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeliveryQuery {
    status: Option<String>,
    destination: Option<String>,
    reason: Option<String>,
    limit: Option<String>,
    cursor: Option<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Delivery {
    id: String,
    event: String,
    destination: Option<String>,
    status: Status,
    order_key: Option<String>,
    reason: Option<DeadReason>,
    attempts: u32,
    created_at: Timestamp,
    due_at: Option<Timestamp>,
    ended_at: Option<Timestamp>,
    replay_of: Option<String>,
    replayed_by: Option<String>,
}

pub(super) fn destination_names(configuration: &Configuration) -> HashMap<DestinationId, String> {
    configuration.destinations.iter().map(|d| (d.id, d.spec.name.to_string())).collect()
}

pub(super) fn delivery(row: DeliveryRow, names: &HashMap<DestinationId, String>) -> Delivery {
    Delivery {
        id: row.id.to_string(),
        event: row.event.to_string(),
        destination: names.get(&row.destination).cloned(),
        status: row.status,
        order_key: row.order_key,
        reason: row.reason,
        attempts: row.attempts,
        created_at: row.created_at,
        due_at: row.due_at,
        ended_at: row.ended_at,
        replay_of: row.replay_of.map(|id| id.to_string()),
        replayed_by: row.replayed_by.map(|id| id.to_string()),
    }
}

/// Deliveries, newest first.
pub(crate) async fn list_deliveries(
    State(app): State<Arc<App>>,
    Asked(query): Asked<DeliveryQuery>,
) -> Result<Json<List<Delivery>>, Problem> {
    let status = query
        .status
        .as_deref()
        .map(|word| {
            Status::from_word(word).ok_or_else(|| {
                let known: Vec<_> = Status::ALL.iter().map(|status| status.as_str()).collect();
                Problem::invalid(format!("status is one of {}", known.join(", ")))
            })
        })
        .transpose()?;
    listed(&app, query, status).await
}

/// Deliveries that were given up, newest first.
pub(crate) async fn list_dead_letters(
    State(app): State<Arc<App>>,
    Asked(query): Asked<DeliveryQuery>,
) -> Result<Json<List<Delivery>>, Problem> {
    if query.status.is_some() {
        return Err(Problem::invalid("every dead letter has the status `dead`"));
    }
    listed(&app, query, Some(Status::Dead)).await
}

async fn listed(
    app: &App,
    query: DeliveryQuery,
    status: Option<Status>,
) -> Result<Json<List<Delivery>>, Problem> {
    let page = page(query.limit.as_deref(), query.cursor.as_deref())?;
    let configuration = app.engine.store().configuration().await?;
    let destination = query
        .destination
        .map(|name| {
            let found = configuration.destinations.iter().find(|d| d.spec.name.as_str() == name);
            let unknown = || Problem::invalid(format!("there is no destination `{name}`"));
            found.map(|d| d.id).ok_or_else(unknown)
        })
        .transpose()?;
    let reason = query.reason.as_deref().map(parse_reason).transpose()?;
    if reason.is_some() && status != Some(Status::Dead) {
        return Err(Problem::invalid("a reason goes with status=dead"));
    }
    let filter = DeliveryFilter { status, destination, reason };
    let rows = app.engine.store().deliveries(filter, page).await?;
    let names = destination_names(&configuration);
    Ok(list(page, rows.into_iter().map(|row| (row.id, delivery(row, &names))).collect()))
}

fn parse_reason(word: &str) -> Result<DeadReason, Problem> {
    DeadReason::from_word(word).ok_or_else(|| {
        let known: Vec<_> = DeadReason::ALL.iter().map(|reason| reason.as_str()).collect();
        Problem::invalid(format!("reason is one of {}", known.join(", ")))
    })
}

fn parse(id: &str) -> Result<DeliveryId, Problem> {
    id.parse().map_err(|_| Problem::not_found("delivery"))
}

/// One delivery with all its attempts.
pub(crate) async fn find_delivery(
    State(app): State<Arc<App>>,
    Segment(id): Segment,
) -> Result<Json<Value>, Problem> {
    let detail = app.engine.store().delivery(parse(&id)?).await?;
    let detail = detail.ok_or_else(|| Problem::not_found("delivery"))?;
    let configuration = app.engine.store().configuration().await?;
    let shown = delivery(detail.delivery, &destination_names(&configuration));
    // A struct of texts and numbers always becomes JSON.
    let removed = detail.attempts.is_empty() && shown.attempts > 0;
    let mut json = serde_json::to_value(shown).unwrap_or_default();
    json["attempts_removed"] = json!(removed);
    json["attempt_list"] = detail.attempts.iter().map(attempt).collect();
    Ok(Json(json))
}

pub(super) fn attempt(row: &AttemptRow) -> Value {
    let AttemptRow { attempt, next, .. } = row;
    json!({
        "id": attempt.id,
        "number": attempt.number,
        "started_at": attempt.started_at,
        "took_ms": u64::try_from(attempt.took.as_millis()).unwrap_or(u64::MAX),
        "status": attempt.status,
        "failure": attempt.failure,
        "class": attempt.class,
        "detail": attempt.detail,
        "response": String::from_utf8_lossy(&attempt.response),
        "next": next.map(Next::word),
        "next_at": next.and_then(Next::due_at),
    })
}

/// What is sent for this delivery: what came, or what its route made of it.
pub(crate) async fn read_body(
    State(app): State<Arc<App>>,
    Segment(id): Segment,
) -> Result<Response, Problem> {
    let id = parse(&id)?;
    match app.engine.store().delivery_body(id).await? {
        Some(payload) => Ok(events::download(&id.to_string(), payload.body)),
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
) -> Result<(StatusCode, Json<Value>), Problem> {
    let now = app.engine.clock().now();
    let new: DeliveryId = new_id(app.engine.chance(), now);
    match app.engine.store().replay(parse(&id)?, new, now).await? {
        Replayed::Created { delivery, destination } => {
            app.engine.nudge(destination);
            Ok((StatusCode::ACCEPTED, Json(json!({ "delivery_id": delivery }))))
        }
        Replayed::NotFound => Err(Problem::not_found("delivery")),
        Replayed::NotReplayable(status) => {
            let detail = format!(
                "a delivery that is {} cannot be replayed, nor one whose destination is gone",
                status.as_str()
            );
            Err(Problem::new(StatusCode::CONFLICT, "not_replayable", detail))
        }
        Replayed::BodyRemoved => {
            let detail = "retention has removed the body of this event, so there is nothing to send; \
                          `retention` of its source says how long bodies are kept";
            Err(Problem::new(StatusCode::CONFLICT, "body_removed", detail))
        }
        Replayed::TooSoon { again_at } => Err(Problem::too_soon(again_at, now)),
    }
}

/// Stops a delivery that waits.
pub(crate) async fn cancel_delivery(
    State(app): State<Arc<App>>,
    Segment(id): Segment,
) -> Result<Json<Value>, Problem> {
    match app.engine.cancel(parse(&id)?).await? {
        Cancelled::Done { .. } => find_delivery(State(app), Segment(id)).await,
        Cancelled::NotFound => Err(Problem::not_found("delivery")),
        Cancelled::NotCancellable(status) => {
            let detail = format!(
                "a delivery that is {} cannot be cancelled; only one that waits can",
                status.as_str()
            );
            Err(Problem::new(StatusCode::CONFLICT, "not_cancellable", detail))
        }
    }
}
