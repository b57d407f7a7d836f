//! `POST /in/{source}[/…]`: receives webhooks. The hot path, so no framework is involved.
//!
//! `RequestHandler::respond` in `server` calls [`receive`] for every path under `/in/`. Requests that must be
//! refused are refused before their body is read, in this order: malformed request, unknown source,
//! method, size, memory. Only then is the body read, within its limits of size, time and memory, and
//! passed to `Engine::receive`. 200 is answered only once the event is on disk. A redirect is never
//! answered: some senders turn it into a GET and lose the body.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header, request::Parts};
use http_body_util::Full;
use hyper::body::Incoming;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;
use surehook_core::{
    event::{DuplicateReason, HeaderBlock},
    refused::RefusedRequest,
    sync::SyncResponse,
};
use surehook_engine::{
    body_memory::{BodyOwners, BodyReservation},
    ingest::{
        InboundRequest, IngestError, QUARANTINED, ReadySource, ReceiveOutcome, ReceivedEvent,
    },
};
use surehook_types::{
    ids::{EventId, RequestId},
    name::Name,
    redact::{self, MASK, SecretNames},
    rng::new_id,
};
use surehook_webhooks::provider::ProviderReply;

use crate::{
    ServerState,
    body::read_reserved_body,
    openapi::{ApiTable, OneOf, Operation},
    problem::Problem,
    server::Peer,
};

const PATH_PREFIX: &str = "/in/";
/// Typical size of the response to one event.
const RESPONSE_BYTES: usize = 192;
const URI_BYTES_MAX: usize = 2048;
/// Path, query and header values of a refused request are cut to this length.
const REFUSED_TEXT_CHARS_MAX: usize = 512;
/// A larger body is not stored with a refused request.
const REFUSED_BODY_BYTES_MAX: usize = 64 * 1024;
/// Problem codes of requests that fail verification.
const VERIFY_ERROR_CODES: [&str; 10] = [
    "missing_signature",
    "missing_timestamp",
    "missing_id",
    "missing_credentials",
    "malformed",
    "too_many_signatures",
    "stale",
    "unknown_address",
    "untrusted_certificate",
    "mismatch",
];

const ACCEPTED: &str = "accepted";
const DUPLICATE: &str = "duplicate";
const REVIVED: &str = "revived";

#[derive(Serialize, JsonSchema)]
pub(crate) struct ReceiveResponse<'a> {
    /// `accepted`; if all events were already known `duplicate`, or `revived` if a failed one is
    /// delivered again.
    status: &'a str,
    /// True if the request changed nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    skipped: bool,
    events: Vec<ReceivedEventResponse<'a>>,
}

/// Response to the sender of a synchronous source, after its event was processed.
// Built only from the stored result: every response to the same key must be identical, whether it
// is the first or a later one.
#[derive(Default, Serialize, JsonSchema)]
struct SyncReceiveResponse<'a> {
    status: &'a str,
    events: Vec<ReceivedEventResponse<'a>>,
    /// Whether the sender should send the event again.
    retry: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    skipped: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
    /// Response body of the destination, unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "serde_json::Value")]
    result: Option<Box<RawValue>>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ReceivedEvent")]
struct ReceivedEventResponse<'a> {
    #[schemars(with = "String")]
    id: EventId,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    status: &'a str,
    /// `same_signed_bytes` if it is a duplicate although its key is another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    /// The event that had its key with another body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    key_conflict: Option<EventId>,
}

impl<'a> ReceivedEventResponse<'a> {
    fn new(event: &'a ReceivedEvent, status: &'a str) -> Self {
        let key = event.key.as_ref().map(surehook_webhooks::key::DedupKey::as_str);
        let reason = Some(event.reason)
            .filter(|reason| event.duplicate && *reason != DuplicateReason::SameKey)
            .map(DuplicateReason::as_str);
        Self { id: event.event, key, status, reason, key_conflict: event.key_conflict }
    }
}

/// Adds the endpoint to the OpenAPI document. The accept loop dispatches to [`receive`] itself, so
/// there is no handler to register.
pub(crate) fn describe_endpoint(api: ApiTable) -> ApiTable {
    let operation = Operation::public("receive_webhook", "Receive a webhook.")
        .description(
            "200 means that the event is stored on disk. Any further path and query are stored with \
             the event. For a synchronous source, the response carries the result of one destination; \
             429 and 500 then ask the sender to send the event again, although it is stored.",
        )
        .path::<Name>("source")
        .accepts_bytes()
        .returns::<OneOf<ReceiveResponse<'_>, SyncReceiveResponse<'_>>>(200)
        .returns::<SyncReceiveResponse<'_>>(429)
        .returns::<SyncReceiveResponse<'_>>(500)
        .problem(404, &["unknown_source"])
        .problem(400, &["bad_host", "bad_body", "repeated_key"])
        .problem(401, &VERIFY_ERROR_CODES)
        .problem(408, &["body_timeout"])
        .problem(413, &["body_too_large"])
        .problem(422, &["other_body"])
        .problem(414, &["uri_too_long"])
        .problem(501, &["bad_transfer_coding"])
        .problem(503, &["overloaded", "disk_full", "store_failed", "source_misconfigured"])
        .problem(503, &["source_disabled", QUARANTINED, "certificate_unavailable"])
        .problem(503, &["outcome_unknown", "database_unavailable", "request_timeout"]);
    api.describe("post", "/in/{source}", operation)
}

pub(crate) fn is_receive_path(path: &str) -> bool {
    path.starts_with(PATH_PREFIX)
}

/// A request being received.
struct IncomingWebhook {
    parts: Parts,
    peer: Peer,
    /// Set once the body was read; the headers have then moved here from `parts`.
    inbound: Option<InboundRequest>,
}

/// Receives one webhook. Answers 200 only once its events would survive a power cut.
///
/// Not an `async fn`: that would store the request twice in the future, whole and taken apart.
pub(crate) fn receive(
    server: Arc<ServerState>,
    request: hyper::Request<Incoming>,
    peer: Peer,
) -> impl Future<Output = Response<Full<Bytes>>> {
    let (parts, body) = request.into_parts();
    let mut webhook = IncomingWebhook { parts, peer, inbound: None };
    async move {
        match try_receive(&server, &mut webhook, body).await {
            Ok(outcome) => outcome_response(&outcome),
            Err(problem) => {
                let source = split_path(webhook.parts.uri.path()).0.to_owned();
                // Senders give up after 401 or 404. While a source quarantines, they are asked to retry, also
                // when a request cannot be quarantined.
                let quarantines =
                    server.engine.source(&source).is_ok_and(|source| source.quarantines_refused());
                let problem = if quarantines { problem.into_retryable() } else { problem };
                record_refusal(&server, &source, webhook, &problem);
                problem_response(&problem)
            }
        }
    }
}

async fn try_receive(
    server: &ServerState,
    webhook: &mut IncomingWebhook,
    body: Incoming,
) -> Result<ReceiveOutcome, Problem> {
    let parts = &mut webhook.parts;
    check_head(parts)?;
    let (name, path) = split_path(parts.uri.path());
    let source = server.engine.source(name).map_err(|error| Problem::from(error).close())?;
    if parts.method != Method::POST {
        return answer_handshake(server, &source, parts);
    }
    let limit = source.max_body_bytes().unwrap_or(server.limits.body_bytes_max);
    let address = webhook.peer.bucket;
    let owners = source.id().map(|source| BodyOwners { address, source });
    let mut memory = BodyReservation::new(&server.body_memory);
    let pace = server.limits.body_pace();
    let body = read_reserved_body(body, limit, pace, &mut memory, owners).await?;
    let inbound = webhook.inbound.insert(InboundRequest {
        path: path.to_owned(),
        query: parts.uri.query().map(str::to_owned),
        headers: std::mem::take(&mut parts.headers),
        body,
        remote: Arc::clone(&webhook.peer.address),
        memory,
    });
    server.engine.receive(&source, inbound).await.map_err(Problem::from)
}

/// Rejects requests that the HTTP parser accepts although RFC 9112 (§3.2, §6.1) does not.
fn check_head(request: &Parts) -> Result<(), Problem> {
    let uri = &request.uri;
    let uri_bytes = uri.path_and_query().map_or(0, |path| path.as_str().len());
    if uri_bytes > URI_BYTES_MAX {
        let detail = format!("The URL is longer than {URI_BYTES_MAX} bytes.");
        return Err(Problem::new(StatusCode::URI_TOO_LONG, "uri_too_long", detail).close());
    }
    let hosts = request.headers.get_all(header::HOST).iter().count();
    let needs_host = request.version >= http::Version::HTTP_11 && uri.authority().is_none();
    if hosts > 1 || (needs_host && hosts == 0) {
        let detail = "A request must have exactly one Host header.";
        return Err(Problem::new(StatusCode::BAD_REQUEST, "bad_host", detail).close());
    }
    let mut codings = request.headers.get_all(header::TRANSFER_ENCODING).iter();
    let is_chunked = |coding: &HeaderValue| coding.as_bytes().eq_ignore_ascii_case(b"chunked");
    match (codings.next(), codings.next()) {
        (None, _) => Ok(()),
        (Some(only), None) if is_chunked(only) => Ok(()),
        // A second header line is a second coding, even if it is `chunked` again.
        (Some(_), _) => {
            let detail = "Unsupported Transfer-Encoding. Use `chunked`, once.";
            Err(Problem::new(StatusCode::NOT_IMPLEMENTED, "bad_transfer_coding", detail).close())
        }
    }
}

/// Splits a path under `/in/` into the name of the source and the rest.
fn split_path(path: &str) -> (&str, &str) {
    let rest = path.strip_prefix(PATH_PREFIX).unwrap_or_default();
    rest.find('/').map_or((rest, ""), |slash| rest.split_at(slash))
}

/// Answers the GET or HEAD with which some providers check the URL.
fn answer_handshake(
    server: &ServerState,
    source: &ReadySource,
    parts: &Parts,
) -> Result<ReceiveOutcome, Problem> {
    let Parts { method, uri, headers, .. } = parts;
    match server.engine.answer_handshake(source, method, uri.query(), headers) {
        Some(Ok(reply)) => Ok(ReceiveOutcome { reply: Some(reply), ..ReceiveOutcome::default() }),
        Some(Err(refused)) => {
            Err(Problem::new(StatusCode::FORBIDDEN, refused.code(), refused.to_string()).close())
        }
        None => Err(Problem::method_not_allowed("POST").close()),
    }
}

fn outcome_response(outcome: &ReceiveOutcome) -> Response<Full<Bytes>> {
    let received = outcome.received.as_slice();
    if let Some(result) = &outcome.sync {
        return sync_response(result, received);
    }
    if let Some(reply) = &outcome.reply {
        return provider_response(reply);
    }
    let status = |event: &ReceivedEvent| match (event.duplicate, event.revived) {
        (false, _) => ACCEPTED,
        (true, true) => REVIVED,
        (true, false) => DUPLICATE,
    };
    let statuses = || received.iter().map(status);
    // The first of these that occurs.
    let summary = [ACCEPTED, REVIVED, DUPLICATE]
        .into_iter()
        .find(|candidate| statuses().any(|status| status == *candidate));
    let summary = summary.unwrap_or(ACCEPTED);
    let events =
        received.iter().map(|event| ReceivedEventResponse::new(event, status(event))).collect();
    let response = ReceiveResponse { status: summary, skipped: summary == DUPLICATE, events };
    let mut body = Vec::with_capacity(RESPONSE_BYTES * received.len().max(1));
    // Strings and lists always serialize.
    let _always = serde_json::to_writer(&mut body, &response);
    respond(StatusCode::OK, json_headers(), body)
}

fn provider_response(reply: &ProviderReply) -> Response<Full<Bytes>> {
    let (parts, body) = reply.to_response().into_parts();
    respond(parts.status, parts.headers, body.to_vec())
}

fn sync_response(result: &SyncResponse, received: &[ReceivedEvent]) -> Response<Full<Bytes>> {
    let status = result.as_str();
    let events = received.iter().map(|event| ReceivedEventResponse::new(event, status)).collect();
    let base = SyncReceiveResponse { status, events, ..SyncReceiveResponse::default() };
    let raw = |result: &Option<String>| RawValue::from_string(result.clone()?).ok();
    let (code, response) = match result {
        SyncResponse::Success { result } => {
            (StatusCode::OK, SyncReceiveResponse { result: raw(result), ..base })
        }
        SyncResponse::Skipped { reason, result } => {
            let (reason, result) = (Some(reason.as_str()), raw(result));
            (StatusCode::OK, SyncReceiveResponse { skipped: true, reason, result, ..base })
        }
        SyncResponse::Throttled { retry_after } => {
            let retry_after = Some(*retry_after);
            let response = SyncReceiveResponse { retry: true, retry_after, ..base };
            (StatusCode::TOO_MANY_REQUESTS, response)
        }
        SyncResponse::Retry { reason } => {
            let message = Some("The event is stored, but there is no result yet. Send it again.");
            let reason = Some(*reason);
            let response = SyncReceiveResponse { retry: true, reason, message, ..base };
            (StatusCode::INTERNAL_SERVER_ERROR, response)
        }
        SyncResponse::Accepted => (StatusCode::OK, base),
    };
    let mut headers = json_headers();
    if let Some(secs) = response.retry_after {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(secs));
    }
    respond(code, headers, serde_json::to_vec(&response).unwrap_or_default())
}

fn json_headers() -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(2);
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers
}

pub(crate) fn problem_response(problem: &Problem) -> Response<Full<Bytes>> {
    respond(problem.status(), problem.headers(), problem.json())
}

fn respond(status: StatusCode, mut headers: HeaderMap, body: Vec<u8>) -> Response<Full<Bytes>> {
    // The body may contain text that a sender or destination chose: a browser must not guess its type.
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

/// Counts a refused request and offers it to the sample of refused requests, without its secrets.
fn record_refusal(server: &ServerState, name: &str, webhook: IncomingWebhook, problem: &Problem) {
    let IncomingWebhook { parts, peer, inbound } = webhook;
    let (headers, body) = match inbound {
        Some(inbound) => (inbound.headers, Some(inbound.body)),
        None => (parts.headers, None),
    };
    // The name of an unknown source is chosen by the sender: it must not become a metric label or
    // reach the log.
    let found = server.engine.source(name);
    let source = (!matches!(found, Err(IngestError::UnknownSource))).then_some(name);
    server.engine.telemetry().count_refused(source, problem.code());
    tracing::debug!(source, code = problem.code(), "request refused");
    // Quarantined requests are already stored whole.
    if problem.code() == QUARANTINED {
        return;
    }
    server.engine.sample_refused(source, problem.code(), peer.bucket, || {
        let source_entry = found.as_ref().ok();
        let mut secrets = SecretNames::builtin();
        // A request with the wrong URL carries the secret of another source.
        let headers_of_all = server.engine.all_secret_headers();
        headers_of_all.iter().for_each(|header| secrets.add_header(header));
        let at = server.engine.clock().now();
        let id: RequestId = new_id(server.engine.rng(), at);
        let keeps_body = source_entry.is_some_and(|entry| entry.keeps_refused_bodies());
        RefusedRequest {
            id,
            source: source.map(str::to_owned),
            at,
            code: problem.code().to_owned(),
            status: problem.status().as_u16(),
            method: parts.method.to_string(),
            path: truncate(&mask_path(parts.uri.path())),
            query: parts.uri.query().map(|query| truncate(&redact::mask_query(query, &secrets))),
            remote: peer.address.to_string(),
            headers: HeaderBlock::from_map(&mask_headers(&headers, &secrets)),
            body_bytes: body.as_ref().map(|body| body.len() as u64),
            body: body.filter(|body| keeps_body && body.len() <= REFUSED_BODY_BYTES_MAX),
        }
    });
}

/// Masks the part of a path after the source's name, which may contain a secret.
pub(crate) fn mask_path(path: &str) -> String {
    let (name, rest) = split_path(path);
    format!("{PATH_PREFIX}{name}{}", redact::mask_path(rest))
}

fn truncate(text: &str) -> String {
    text.chars().take(REFUSED_TEXT_CHARS_MAX).collect()
}

/// Masks secret headers and truncates the values of all others.
fn mask_headers(headers: &HeaderMap, secrets: &SecretNames) -> HeaderMap {
    let mut masked = headers.clone();
    for (name, value) in &mut masked {
        let stored = match secrets.is_secret_parameter(name.as_str()) {
            true => MASK.as_bytes(),
            false => &value.as_bytes()[..value.len().min(REFUSED_TEXT_CHARS_MAX)],
        };
        // The mask and any prefix of a valid value are valid.
        if let Ok(stored) = HeaderValue::from_bytes(stored) {
            *value = stored;
        }
    }
    masked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masked_path_shows_source_but_no_secret() {
        let cases = [
            ("/in/shop", "/in/shop"),
            ("/in/evo/secret", "/in/evo/•••"),
            ("/in/evo/secret/call", "/in/evo/•••/call"),
            ("/in/", "/in/"),
        ];
        for (path, expected) in cases {
            assert_eq!(mask_path(path), expected, "case: {path}");
            assert_eq!(mask_path(expected), expected, "masking twice changes nothing");
        }
    }
}
