//! `POST /api/v1/events/{id}/reveal`: an event with its secrets.
//!
//! A POST, because it is audited: the event's timeline records who revealed it, before anything is
//! shown. The log records the ids, without content.

use std::sync::Arc;

use axum::{Extension, Json, extract::State};
use serde_json::json;
use surehook_api::{
    BodyContent, HeaderField,
    events::{
        RequestHeadResponse, RevealEventResponse, RevealedAttemptResponse, RevealedDuplicate,
    },
};
use surehook_core::{
    access::TokenHash,
    decision::{EventDecision, EventDecisionKind},
    event::RequestHead,
    store::{DeliveryRow, DuplicateRow},
};
use surehook_types::ids::EventId;

use super::{events, extract::PathParam};
use crate::{
    ServerState,
    openapi::{ApiTable, Operation},
    problem::Problem,
};

/// Responses shown, and their bytes in total. Each delivery lists all of its responses.
const RESPONSES_MAX: usize = 100;
const RESPONSE_BYTES_MAX: usize = 1 << 20;

pub(crate) fn add_routes(api: ApiTable) -> ApiTable {
    let reveal = Operation::new("reveal_event", "Show an event with its secrets.")
        .description(
            "Adds a `revealed` entry to the event's timeline, with id and name of the token and the token \
             that the session was started with; the log records the ids. Takes no `Idempotency-Key`.",
        )
        .path::<EventId>("id")
        .returns::<RevealEventResponse>(200)
        .problem(500, &["body_damaged"])
        .without_idempotency_key();
    api.post("/api/v1/events/{id}/reveal", reveal_event, reveal)
}

pub(crate) async fn reveal_event(
    State(server): State<Arc<ServerState>>,
    hash: Option<Extension<TokenHash>>,
    PathParam(id): PathParam,
) -> Result<Json<RevealEventResponse>, Problem> {
    let id = events::parse_id(&id)?;
    let store = server.engine.store();
    let detail = store.find_event(id).await?.ok_or_else(|| Problem::not_found("event"))?;
    let body = store.find_body(id).await?.map(|payload| BodyContent::from(&*payload.body));
    let (responses, responses_omitted) = load_responses(&server, &detail.deliveries).await?;
    record_reveal(&server, id, hash.map(|Extension(hash)| hash)).await?;
    Ok(Json(RevealEventResponse {
        id,
        key: detail.event.key,
        attributes: detail.event.attributes,
        request: detail.head.as_ref().map(revealed_request),
        body,
        body_removed: detail.event.body_removed,
        duplicates: detail.duplicates.iter().filter_map(revealed_duplicate).collect(),
        duplicates_omitted: detail.duplicates.iter().any(|row| row.body_left_out),
        responses,
        responses_omitted,
    }))
}

async fn record_reveal(
    server: &ServerState,
    event: EventId,
    hash: Option<TokenHash>,
) -> Result<(), Problem> {
    let owner = hash.and_then(|hash| server.tokens.find_by_hash(&hash));
    let token = owner.as_ref().map(|owner| owner.id);
    let session = owner.as_ref().and_then(|owner| owner.session);
    // A session is temporary; the token behind it still identifies the user later.
    let sign_in_token = session.and_then(|session| session.sign_in_token);
    let name = owner.and_then(|owner| owner.name);
    let decision = EventDecision {
        event,
        delivery: None,
        at: server.engine.clock().now(),
        kind: EventDecisionKind::Revealed,
        detail: json!({ "token": token, "name": name, "begun_with": sign_in_token }),
    };
    server.engine.store().record_decision(decision).await?;
    let token = token.map(|token| token.to_string()).unwrap_or_default();
    let sign_in_token = sign_in_token.map(|token| token.to_string()).unwrap_or_default();
    tracing::info!(%event, token, begun_with = sign_in_token, "event revealed with its secrets");
    Ok(())
}

fn revealed_request(head: &RequestHead) -> RequestHeadResponse {
    let line = |(name, value): (&str, &[u8])| HeaderField {
        name: name.to_owned(),
        value: BodyContent::from(value),
    };
    RequestHeadResponse {
        path: head.path.clone(),
        query: head.query.clone(),
        remote: head.remote.to_string(),
        headers: head.headers.lines().map(line).collect(),
    }
}

fn revealed_duplicate(row: &DuplicateRow) -> Option<RevealedDuplicate> {
    let body = BodyContent::from(&**row.body.as_ref()?);
    Some(RevealedDuplicate { seen_at: row.seen_at, body })
}

/// The newest responses, and whether there are more.
async fn load_responses(
    server: &ServerState,
    deliveries: &[DeliveryRow],
) -> Result<(Vec<RevealedAttemptResponse>, bool), Problem> {
    let (mut responses, mut bytes) = (Vec::new(), 0);
    for delivery in deliveries.iter().rev().filter(|delivery| delivery.attempts > 0) {
        let Some(detail) = server.engine.store().find_delivery(delivery.id).await? else {
            continue;
        };
        for row in detail.attempts.iter().rev() {
            let response = &*row.attempt.response;
            bytes += response.len();
            if responses.len() == RESPONSES_MAX || bytes > RESPONSE_BYTES_MAX {
                return Ok((responses, true));
            }
            let (attempt, number) = (row.attempt.id, row.attempt.number);
            let response = BodyContent::from(response);
            responses.push(RevealedAttemptResponse {
                delivery: row.delivery,
                attempt,
                number,
                response,
            });
        }
    }
    Ok((responses, false))
}
