//! `POST /api/v1/events/{id}/reveal`: all that is masked of an event, to somebody who is named for it.
//!
//! It is a wish and no question, because it leaves a trace: the story of the event says who looked,
//! and that is written down before anything is shown. The log says it too, with ids and no content.

use std::sync::Arc;

use axum::{Extension, Json, extract::State};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;
use surehook_core::{
    access::TokenHash,
    attribute::Attributes,
    decision::{EventDecision, EventDecisionKind},
    event::RequestHead,
    ids::{AttemptId, DeliveryId, EventId},
    store::{DeliveryRow, DuplicateRow},
    time::Timestamp,
};

use super::{Bytes, HeaderLine, events, input::Segment};
use crate::{
    App,
    openapi::{Api, Op},
    problem::Problem,
};

/// Answers that are shown, and their bytes in all; each delivery has its own list of all of them.
const ANSWERS_MAX: usize = 100;
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// An event with nothing masked.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Revealed {
    id: EventId,
    key: Option<String>,
    attributes: Attributes,
    /// The request it came with; null when its body was removed.
    request: Option<RevealedRequest>,
    /// Every byte as it came; null when retention has removed it.
    body: Option<Bytes>,
    body_removed: bool,
    /// The bodies of duplicates that differed and are kept, oldest first.
    duplicates: Vec<RevealedDuplicate>,
    /// There are more such bodies: up to 256 KiB of them are shown here.
    duplicates_left_out: bool,
    /// What was answered to attempts, newest first, as much as is kept of each.
    answers: Vec<RevealedAnswer>,
    /// There are more answers than are shown here.
    answers_left_out: bool,
}

/// The head of a request.
#[derive(Debug, Serialize, JsonSchema)]
struct RevealedRequest {
    path: String,
    query: Option<String>,
    remote: String,
    headers: Vec<HeaderLine>,
}

/// A body that came again and was another.
#[derive(Debug, Serialize, JsonSchema)]
struct RevealedDuplicate {
    seen_at: Timestamp,
    body: Bytes,
}

/// What was answered to an attempt.
#[derive(Debug, Serialize, JsonSchema)]
struct RevealedAnswer {
    delivery: DeliveryId,
    attempt: AttemptId,
    number: u32,
    response: Bytes,
}

pub(crate) fn routes(api: Api) -> Api {
    let reveal = Op::new("reveal_event", "All that is masked of an event.")
        .text(
            "The story of the event says `revealed` from then on, with the id and the name of the \
             token and the token that a session was begun with, and the log has the ids. Takes no `Idempotency-Key`: the answer is not kept.",
        )
        .path::<EventId>("id")
        .answers::<Revealed>(200);
    api.post("/api/v1/events/{id}/reveal", reveal_event, reveal)
}

/// Shows an event with nothing masked, once it is written down who looks.
pub(crate) async fn reveal_event(
    State(app): State<Arc<App>>,
    hash: Option<Extension<TokenHash>>,
    Segment(id): Segment,
) -> Result<Json<Revealed>, Problem> {
    let id = events::parse(&id)?;
    let store = app.engine.store();
    let detail = store.event(id).await?.ok_or_else(|| Problem::not_found("event"))?;
    let body = store.body(id).await?.map(|payload| Bytes::from(&*payload.body));
    let (answers, answers_left_out) = answers(&app, &detail.deliveries).await?;
    write_down(&app, id, hash.map(|Extension(hash)| hash)).await?;
    Ok(Json(Revealed {
        id,
        key: detail.event.key,
        attributes: detail.event.attributes,
        request: detail.head.as_ref().map(request),
        body,
        body_removed: detail.event.body_removed,
        duplicates: detail.duplicates.iter().filter_map(duplicate).collect(),
        duplicates_left_out: detail.duplicates.iter().any(|row| row.body_left_out),
        answers,
        answers_left_out,
    }))
}

async fn write_down(app: &App, event: EventId, hash: Option<TokenHash>) -> Result<(), Problem> {
    let holder = hash.and_then(|hash| app.tokens.holder(&hash));
    let token = holder.as_ref().map(|holder| holder.id);
    let session = holder.as_ref().and_then(|holder| holder.session);
    // A session is gone after a while; the token behind it says who it was.
    let begun_with = session.and_then(|session| session.begun_with);
    let name = holder.and_then(|holder| holder.name);
    let decision = EventDecision {
        event,
        delivery: None,
        at: app.engine.clock().now(),
        kind: EventDecisionKind::Revealed,
        detail: json!({ "token": token, "name": name, "begun_with": begun_with }),
    };
    app.engine.store().decide(decision).await?;
    let token = token.map(|token| token.to_string()).unwrap_or_default();
    let begun_with = begun_with.map(|token| token.to_string()).unwrap_or_default();
    tracing::info!(%event, token, begun_with, "what is masked of an event was revealed");
    Ok(())
}

fn request(head: &RequestHead) -> RevealedRequest {
    let line = |(name, value): (&str, &[u8])| HeaderLine {
        name: name.to_owned(),
        value: Bytes::from(value),
    };
    RevealedRequest {
        path: head.path.clone(),
        query: head.query.clone(),
        remote: head.remote.to_string(),
        headers: head.headers.lines().map(line).collect(),
    }
}

fn duplicate(row: &DuplicateRow) -> Option<RevealedDuplicate> {
    let body = Bytes::from(&**row.body.as_ref()?);
    Some(RevealedDuplicate { seen_at: row.seen_at, body })
}

/// The newest answers, and whether there are more.
async fn answers(
    app: &App,
    deliveries: &[DeliveryRow],
) -> Result<(Vec<RevealedAnswer>, bool), Problem> {
    let (mut shown, mut bytes) = (Vec::new(), 0);
    for tried in deliveries.iter().rev().filter(|delivery| delivery.attempts > 0) {
        let Some(detail) = app.engine.store().delivery(tried.id).await? else { continue };
        for row in detail.attempts.iter().rev() {
            let response = &*row.attempt.response;
            bytes += response.len();
            if shown.len() == ANSWERS_MAX || bytes > ANSWER_BYTES_MAX {
                return Ok((shown, true));
            }
            let (attempt, number) = (row.attempt.id, row.attempt.number);
            let response = Bytes::from(response);
            shown.push(RevealedAnswer { delivery: row.delivery, attempt, number, response });
        }
    }
    Ok((shown, false))
}
