//! `POST /in/{source}[/…]`: where webhooks come in. The hot path, so it has no framework around it.
//!
//! What will be refused is refused before its body is read, in this order: a request that is not
//! well formed, a source that does not exist, a method, a size, a lack of room. Only then is the
//! body read, whole and within its time, and given to the engine. A redirect is never an answer:
//! some senders turn it into a GET and lose the body.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header, request::Parts};
use http_body_util::Full;
use hyper::body::{Body, Incoming};
use schemars::JsonSchema;
use serde::Serialize;
use surehook_core::{ids::EventId, name::Name, provider::ProviderReply};
use surehook_engine::ingest::{
    InboundRequest, QUARANTINED, ReadySource, ReceiveOutcome, ReceivedEvent,
};
use tokio::sync::SemaphorePermit;

use crate::{
    App, body,
    openapi::{Api, Either, Op},
    problem::Problem,
    refusal, sync_answer,
};

/// The granularity in which room for bodies is counted.
pub const BODY_UNIT: usize = 1024;

/// The prefix of all addresses that take webhooks.
pub(crate) const PREFIX: &str = "/in/";
/// What the answer to one event usually needs.
const ANSWER_BYTES: usize = 192;
/// Why a request may not be verified.
const NOT_VERIFIED: [&str; 10] = [
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
/// The events of a request that are told one by one.
const EVENTS_TOLD: usize = 16;
/// The longest address taken.
const URI_BYTES_MAX: usize = 2048;

/// What a sender is told.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Received")]
struct Answer<'a> {
    /// `accepted`, or `duplicate` when every event was known already.
    status: &'a str,
    /// Set when nothing was new.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    skipped: bool,
    events: Vec<AnsweredEvent<'a>>,
}

/// What became of one event.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ReceivedEvent")]
pub(crate) struct AnsweredEvent<'a> {
    #[schemars(with = "String")]
    id: EventId,
    key: Option<&'a str>,
    status: &'a str,
}

impl<'a> AnsweredEvent<'a> {
    pub(crate) fn new(event: &'a ReceivedEvent, status: &'a str) -> Self {
        let key = event.key.as_ref().map(surehook_core::key::DedupKey::as_str);
        Self { id: event.event, key, status }
    }
}

/// Describes the door; the table has no handler for it.
pub(crate) fn described(api: Api) -> Api {
    let op = Op::open("receive", "Takes a webhook in. 200 means that it is on the disk.")
        .text(
            "Any further path and query are kept with the event. The sender of a synchronous source \
             waits for one destination and is told what came of it; 429 and 500 mean that it is to \
             send the event again, and that it is kept all the same.",
        )
        .path::<Name>("source")
        .takes_bytes()
        .answers::<Either<Answer<'_>, sync_answer::Answer<'_>>>(200)
        .answers::<sync_answer::Answer<'_>>(429)
        .answers::<sync_answer::Answer<'_>>(500)
        .refuses(404, &["unknown_source"])
        .refuses(400, &["bad_host", "bad_body", "repeated_key"])
        .refuses(401, &NOT_VERIFIED)
        .refuses(408, &["body_timeout"])
        .refuses(413, &["body_too_large"])
        .refuses(414, &["uri_too_long"])
        .refuses(501, &["bad_transfer_coding"])
        .refuses(503, &["overloaded", "disk_full", "store_failed", "source_misconfigured"])
        .refuses(503, &["source_disabled", QUARANTINED, "certificate_unavailable"]);
    api.elsewhere("post", "/in/{source}", op)
}

/// Takes one webhook in. Answers 200 only once it would survive a power cut.
///
/// Not an `async fn`: that would hold the request twice, as it is given and as it is taken apart.
pub(crate) fn receive(
    app: Arc<App>,
    request: hyper::Request<Incoming>,
    remote: Arc<str>,
) -> impl Future<Output = Response<Full<Bytes>>> {
    let (parts, body) = request.into_parts();
    let mut arrival = Arrival { parts, remote, read: None };
    async move {
        match take_in(&app, &mut arrival, body).await {
            Ok(outcome) => answer(&outcome),
            Err(problem) => {
                let source = source_name(arrival.parts.uri.path()).0.to_owned();
                let gives_up =
                    app.engine.source(&source).is_ok_and(|source| source.quarantines_refused());
                let problem = if gives_up { problem.send_again() } else { problem };
                refusal::note(&app, &source, arrival, &problem);
                refusal(&problem)
            }
        }
    }
}

/// A request while it is looked at.
pub(crate) struct Arrival {
    pub(crate) parts: Parts,
    pub(crate) remote: Arc<str>,
    /// The whole of it, with the headers of `parts`, once its body was read.
    pub(crate) read: Option<InboundRequest>,
}

async fn take_in(
    app: &App,
    arrival: &mut Arrival,
    body: Incoming,
) -> Result<ReceiveOutcome, Problem> {
    let parts = &mut arrival.parts;
    check_form(parts)?;
    let (name, _) = source_name(parts.uri.path());
    let source = app.engine.source(name).map_err(|error| Problem::from(error).close())?;
    if parts.method != Method::POST {
        return answer_handshake(app, &source, parts);
    }
    let limit = source.max_body_bytes().unwrap_or(app.limits.body_bytes_max);
    let _room = make_room(app, &body, limit)?;
    let body = body::whole(body, limit, app.limits.body_timeout).await?;
    let inbound = arrival.read.insert(inbound(parts, body, Arc::clone(&arrival.remote)));
    app.engine.receive(&source, inbound).await.map_err(Problem::from)
}

/// What the HTTP parser lets through and we do not (RFC 9112 §3.2, §6.1).
fn check_form(request: &Parts) -> Result<(), Problem> {
    let bad = |code, detail| Problem::new(StatusCode::BAD_REQUEST, code, detail).close();
    let uri = &request.uri;
    let uri_bytes = uri.path_and_query().map_or(0, |path| path.as_str().len());
    if uri_bytes > URI_BYTES_MAX {
        let detail = format!("the address is longer than {URI_BYTES_MAX} bytes");
        return Err(Problem::new(StatusCode::URI_TOO_LONG, "uri_too_long", detail).close());
    }
    let hosts = request.headers.get_all(header::HOST).iter().count();
    let needs_host = request.version >= http::Version::HTTP_11 && uri.authority().is_none();
    if hosts > 1 || (needs_host && hosts == 0) {
        return Err(bad("bad_host", "a request has exactly one Host header"));
    }
    let mut codings = request.headers.get_all(header::TRANSFER_ENCODING).iter();
    let is_chunked = |coding: &HeaderValue| coding.as_bytes().eq_ignore_ascii_case(b"chunked");
    match (codings.next(), codings.next()) {
        (None, _) => Ok(()),
        (Some(only), None) if is_chunked(only) => Ok(()),
        // A second line is a second coding, also when it says `chunked` again.
        (Some(_), _) => {
            let detail = "the only transfer coding taken is `chunked`, once";
            Err(Problem::new(StatusCode::NOT_IMPLEMENTED, "bad_transfer_coding", detail).close())
        }
    }
}

/// Sets aside as much memory as the body may need, or says to come back.
fn make_room<'a>(
    app: &'a App,
    body: &Incoming,
    limit: usize,
) -> Result<SemaphorePermit<'a>, Problem> {
    let declared = body.size_hint().exact();
    let bytes = match declared {
        Some(bytes) if bytes > limit as u64 => return Err(body::too_large(limit)),
        Some(bytes) => usize::try_from(bytes).unwrap_or(limit),
        None => limit,
    };
    // A source may allow more than all bodies together may have: such a body comes in alone.
    let bytes = bytes.min(app.limits.bodies_in_memory_max);
    let units = u32::try_from(bytes.div_ceil(BODY_UNIT)).unwrap_or(u32::MAX);
    app.room.try_acquire_many(units).map_err(|_| {
        let detail = "the gateway holds as many bodies in memory as it may; try again in a moment";
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "overloaded", detail).retry_after(1).close()
    })
}

fn inbound(parts: &mut Parts, body: Bytes, remote: Arc<str>) -> InboundRequest {
    let (_, path) = source_name(parts.uri.path());
    InboundRequest {
        path: path.to_owned(),
        query: parts.uri.query().map(str::to_owned),
        headers: std::mem::take(&mut parts.headers),
        body,
        remote,
    }
}

/// The name of the source, and what follows it.
pub(crate) fn source_name(path: &str) -> (&str, &str) {
    let rest = path.strip_prefix(PREFIX).unwrap_or_default();
    rest.find('/').map_or((rest, ""), |slash| rest.split_at(slash))
}

/// Some providers ask with a GET whether we are there.
fn answer_handshake(
    app: &App,
    source: &ReadySource,
    parts: &Parts,
) -> Result<ReceiveOutcome, Problem> {
    let asked = (parts.method == Method::GET)
        .then(|| app.engine.answer_handshake(source, parts.uri.query()));
    match asked.flatten() {
        Some(Ok(reply)) => Ok(ReceiveOutcome { reply: Some(reply), ..ReceiveOutcome::default() }),
        Some(Err(refused)) => {
            Err(Problem::new(StatusCode::FORBIDDEN, refused.code(), refused.to_string()).close())
        }
        None => Err(Problem::method_not_allowed("POST").close()),
    }
}

fn reply(reply: &ProviderReply) -> Response<Full<Bytes>> {
    let mut headers = HeaderMap::with_capacity(2);
    if let Some(content_type) = reply.content_type {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    }
    respond(reply.status, headers, reply.body.to_vec())
}

fn answer(outcome: &ReceiveOutcome) -> Response<Full<Bytes>> {
    let received = outcome.received.as_slice();
    if let Some(result) = &outcome.sync {
        return sync_answer::respond(result, received);
    }
    if let Some(own) = &outcome.reply {
        return reply(own);
    }
    let word = |duplicate| if duplicate { "duplicate" } else { "accepted" };
    let duplicate = !received.is_empty() && received.iter().all(|event| event.duplicate);
    // A provider reads nothing of this, and some dislike long answers.
    let told = if received.len() > EVENTS_TOLD { &[] } else { received };
    let events =
        told.iter().map(|event| AnsweredEvent::new(event, word(event.duplicate))).collect();
    let answer = Answer { status: word(duplicate), skipped: duplicate, events };
    let mut body = Vec::with_capacity(ANSWER_BYTES * told.len().max(1));
    // Texts and lists of them always become JSON.
    let _always = serde_json::to_writer(&mut body, &answer);
    let mut headers = HeaderMap::with_capacity(2);
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    respond(StatusCode::OK, headers, body)
}

pub(crate) fn refusal(problem: &Problem) -> Response<Full<Bytes>> {
    respond(problem.status(), problem.headers(), problem.json())
}

pub(crate) fn respond(
    status: StatusCode,
    mut headers: HeaderMap,
    body: Vec<u8>,
) -> Response<Full<Bytes>> {
    // Some of it is what somebody told us to say: it is what its type says and nothing else.
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

/// Whether a path belongs to the door.
pub(crate) fn is_door(path: &str) -> bool {
    path.starts_with(PREFIX)
}
