//! `POST /api/v1/destinations/{id}/listen`: the calls of `surehook listen`.

use std::{sync::Arc, time::Duration};

use axum::{Json, extract::State};
use data_encoding::BASE64;
use serde_json::json;
use surehook_api::listen::{
    ListenAnswer, ListenDelivery, ListenHeader, ListenRequest, ListenResponse,
};
use surehook_core::destination::DestinationSpec;
use surehook_engine::listen::{ListenCall, ListenResult, ListenerAnswer, ListenerDelivery};
use surehook_retry::{AttemptFailure, AttemptOutcome, RetryAfter};
use surehook_webhooks::attribute::EventKind;

use super::{
    extract::{JsonBody, PathParam},
    lanes::find_destination,
    resources::ResourceRef,
};
use crate::{
    ServerState,
    openapi::{ApiTable, Operation},
    problem::Problem,
};

/// Characters of a detail that are stored.
const DETAIL_CHARS_MAX: usize = 200;

pub(crate) fn add_routes(api: ApiTable) -> ApiTable {
    let operation = Operation::new(
        "listen",
        "Report answers of a listener, and wait for deliveries to hand to it.",
    )
    .description(
        "For destinations of kind `listen`. A listener calls this again and again, one call after the \
         other, and says in each what it still works on. It may report answers in further calls with \
         `max` 0 at the same time. A listener that does not call for 10 seconds counts as gone: what it \
         has and did not answer is due again, under the same `webhook-id`, and the attempt is not \
         counted. With several nodes, call the one that owns the destination's lane; the others answer \
         409 and name it.",
    )
    .path::<ResourceRef<DestinationSpec>>("id")
    .body::<ListenRequest>(json!({
        "listener": "laptop-1f0c", "max": 16, "wait_seconds": 20, "holding": [], "answers": []
    }))
    .returns::<ListenResponse>(200)
    .without_idempotency_key()
    .problem(
        409,
        &[
            "destination_misconfigured",
            "not_a_listen_destination",
            "owned_by_other_node",
            "too_many_listeners",
        ],
    );
    api.post("/api/v1/destinations/{id}/listen", listen, operation)
}

pub(crate) async fn listen(
    State(server): State<Arc<ServerState>>,
    PathParam(id): PathParam,
    JsonBody(request): JsonBody<ListenRequest>,
) -> Result<Json<ListenResponse>, Problem> {
    check(&request)?;
    let destination = find_destination(&server, &id).await?;
    let ListenRequest { listener, max, wait_seconds, holding, answers, leave } = request;
    let answers = answers.into_iter().map(parse_answer).collect::<Result<Vec<_>, _>>()?;
    let call = ListenCall {
        listener,
        max,
        wait: Duration::from_secs(wait_seconds),
        holding,
        answers,
        is_leaving: leave,
    };
    let draining = server.draining.clone();
    let result = tokio::select! {
        result = server.engine.listen(destination, call) => result?,
        // Nothing was handed out, and the listener calls again when the gateway runs again.
        () = draining.cancelled() => ListenResult::default(),
    };
    let ListenResult { deliveries, accepted, unknown } = result;
    let mut response = ListenResponse { deliveries: Vec::new(), accepted, unknown };
    for delivery in deliveries {
        // Only shown to people: without it the delivery is complete.
        let event = server.engine.store().find_event_row(delivery.event).await.ok().flatten();
        let kind = event.and_then(|event| event.kind);
        response.deliveries.push(delivery_response(delivery, kind));
    }
    Ok(Json(response))
}

fn check(request: &ListenRequest) -> Result<(), Problem> {
    let ListenRequest { listener, max, wait_seconds, holding, answers, leave: _ } = request;
    let problem = |detail: String| Err(Problem::invalid(detail));
    const LISTENER_MAX: usize = ListenRequest::LISTENER_BYTES_MAX;
    const MAX: usize = ListenRequest::DELIVERIES_MAX;
    const WAIT: u64 = ListenRequest::WAIT_SECONDS_MAX;
    const HOLDING: usize = ListenRequest::HOLDING_MAX;
    match () {
        () if listener.is_empty() || listener.len() > LISTENER_MAX => {
            problem(format!("`listener` must have 1 to {LISTENER_MAX} bytes."))
        }
        () if *max > MAX => problem(format!("`max` must be at most {MAX}.")),
        () if *wait_seconds > WAIT => problem(format!("`wait_seconds` must be at most {WAIT}.")),
        () if holding.len() > HOLDING || answers.len() > HOLDING => {
            problem(format!("`holding` and `answers` may have at most {HOLDING} entries."))
        }
        () => Ok(()),
    }
}

fn parse_answer(answer: ListenAnswer) -> Result<ListenerAnswer, Problem> {
    let retry_after = answer.retry_after_seconds.map(Duration::from_secs).map(RetryAfter::Delay);
    let outcome = match (answer.status, answer.failure) {
        (Some(status @ 100..=599), None) => AttemptOutcome::Answered { status, retry_after },
        (None, Some(failure)) if is_network_failure(failure) => AttemptOutcome::Failed(failure),
        _ => {
            let detail = "An answer has either a `status` from 100 to 599 or a `failure`: dns, refused, \
                          unreachable, reset, timeout, tls or protocol.";
            return Err(Problem::invalid(detail));
        }
    };
    Ok(ListenerAnswer {
        delivery: answer.delivery,
        outcome,
        elapsed: Duration::from_millis(answer.duration_ms),
        detail: answer.detail.map(|text| text.chars().take(DETAIL_CHARS_MAX).collect()),
        response_body: answer.response.into_bytes(),
    })
}

fn is_network_failure(failure: AttemptFailure) -> bool {
    matches!(
        failure,
        AttemptFailure::Dns
            | AttemptFailure::Refused
            | AttemptFailure::Unreachable
            | AttemptFailure::Reset
            | AttemptFailure::Timeout
            | AttemptFailure::Tls
            | AttemptFailure::Protocol
    )
}

fn delivery_response(delivery: ListenerDelivery, kind: Option<EventKind>) -> ListenDelivery {
    let header = |(name, value): (&http::HeaderName, &http::HeaderValue)| ListenHeader {
        name: name.as_str().to_owned(),
        value: value.as_bytes().iter().map(|byte| char::from(*byte)).collect(),
    };
    ListenDelivery {
        id: delivery.id,
        event: delivery.event,
        source: delivery.source,
        kind,
        attempt: delivery.attempt,
        received_at: delivery.received_at,
        headers: delivery.headers.iter().map(header).collect(),
        body_base64: BASE64.encode(&delivery.body),
        timeout_ms: u64::try_from(delivery.timeout.as_millis()).unwrap_or(u64::MAX),
    }
}
