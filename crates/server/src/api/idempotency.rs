//! `Idempotency-Key` for every POST: a repeated request is executed once.
//!
//! A malformed key is answered with 400, a key used for another request with 422. A repeated request
//! waits for the running one (409 if that takes too long) and gets the same response.
//!
//! The key is claimed and completed by the rules of `surehook-dedup`, with the response as its result.
//!
//! After a crash: before the claim is stored, nothing happened. After it, a retry finds the claim
//! without a response and resumes its operation: it runs with the time and seed of the first run, so
//! that it finds what was already created instead of creating it again. A client error changed nothing
//! and releases its key, unless the request was resumed: its first run may have had effects. After a
//! store error the effects are unknown, so the claim stays.

use std::{
    collections::{HashMap, hash_map::Entry},
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::{
    body::Body,
    extract::{FromRequestParts, Request, State},
    middleware::Next,
    response::{IntoResponse, Response},
};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header, request::Parts,
    response::Builder,
};
use http_body_util::BodyExt as _;
use surehook_core::{
    access::TokenHash,
    idempotency::{
        ClaimStep, ClaimStepResult, IdempotentRequest, KEY_RETENTION, RESPONSE_BYTES_MAX,
        StoredResponse, api_key, parse_key,
    },
};
use surehook_dedup::{Claim, ClaimKey, ClaimRequest, CompletionRequest, Fingerprint};
use surehook_types::store_error::StoreError;
use tokio::sync::watch;

use super::extract::BODY_BYTES_MAX;
use crate::{ServerState, body::read_body, problem::Problem};

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// Marks a response that was given before.
const IDEMPOTENCY_REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");
/// Headers that are stored with the response.
const STORED_HEADERS: [HeaderName; 3] = [header::CONTENT_TYPE, header::ETAG, header::LOCATION];

/// Running requests are known in memory, so that a claim without a response never blocks a retry.
const NO_LEASE: Duration = Duration::ZERO;

/// The response to a running request, once there is one. The channel closes without a value if the
/// response cannot be repeated.
type KeyOutcome = Option<Arc<(Fingerprint, StoredResponse)>>;

/// Keys of running requests; repeated requests wait on the receivers. Only this process uses the store,
/// so no other process can run the same request.
#[derive(Debug, Default)]
pub(crate) struct InFlightKeys(Mutex<HashMap<ClaimKey, watch::Receiver<KeyOutcome>>>);

impl InFlightKeys {
    fn lock(&self) -> MutexGuard<'_, HashMap<ClaimKey, watch::Receiver<KeyOutcome>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The exclusive right to run the request with a key. Dropping it releases the key and wakes the
/// waiting requests.
struct IdempotencyGuard {
    server: Arc<ServerState>,
    key: ClaimKey,
    outcome: watch::Sender<KeyOutcome>,
}

impl IdempotencyGuard {
    /// Acquires the key, or returns the receiver of the request that runs with it.
    fn try_acquire(
        server: &Arc<ServerState>,
        key: &ClaimKey,
    ) -> Result<Self, watch::Receiver<KeyOutcome>> {
        match server.in_flight_keys.lock().entry(key.clone()) {
            Entry::Occupied(other) => Err(other.get().clone()),
            Entry::Vacant(free) => {
                let (outcome, waiting) = watch::channel(None);
                free.insert(waiting);
                Ok(Self { server: Arc::clone(server), key: key.clone(), outcome })
            }
        }
    }

    /// Acquires the key, or returns the response of the request that ran with it. If that request has
    /// no repeatable response, the next waiting one acquires the key.
    async fn acquire(
        server: &Arc<ServerState>,
        key: &ClaimKey,
    ) -> Result<Self, Arc<(Fingerprint, StoredResponse)>> {
        loop {
            let mut other = match Self::try_acquire(server, key) {
                Ok(guard) => return Ok(guard),
                Err(other) => other,
            };
            // An error means that it ended without a response.
            if let Ok(outcome) = other.wait_for(Option::is_some).await
                && let Some(answered) = &*outcome
            {
                return Err(Arc::clone(answered));
            }
        }
    }

    /// Passes the response to all waiting requests.
    fn publish(&self, fingerprint: Fingerprint, response: StoredResponse) {
        self.outcome.send_replace(Some(Arc::new((fingerprint, response))));
    }
}

impl Drop for IdempotencyGuard {
    fn drop(&mut self) {
        self.server.in_flight_keys.lock().remove(&self.key);
    }
}

/// Time and seed from which a handler derives ids. A resumed request gets those of its first run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IdempotencyContext(pub(crate) IdempotentRequest);

impl FromRequestParts<Arc<ServerState>> for IdempotencyContext {
    type Rejection = Infallible;

    async fn from_request_parts(
        parts: &mut Parts,
        server: &Arc<ServerState>,
    ) -> Result<Self, Infallible> {
        let claimed = parts.extensions.get::<IdempotentRequest>().copied();
        Ok(Self(claimed.unwrap_or_else(|| new_request(server))))
    }
}

fn new_request(server: &ServerState) -> IdempotentRequest {
    IdempotentRequest {
        at: server.engine.creation_time(),
        seed: server.engine.rng().next_u128().to_be_bytes(),
    }
}

/// Middleware: runs each POST with an `Idempotency-Key` once.
pub(crate) async fn enforce_idempotency(
    State(server): State<Arc<ServerState>>,
    request: Request,
    next: Next,
) -> Response {
    if request.method() != Method::POST || !request.headers().contains_key(&IDEMPOTENCY_KEY) {
        return next.run(request).await;
    }
    run_once(server, request, next).await.unwrap_or_else(IntoResponse::into_response)
}

async fn run_once(
    server: Arc<ServerState>,
    request: Request,
    next: Next,
) -> Result<Response, Problem> {
    let KeyedRequest { key, fingerprint, request } = read_request(&server, request).await?;
    let guard = IdempotencyGuard::acquire(&server, &key);
    let guard = match tokio::time::timeout(server.limits.idempotency_wait, guard).await {
        Ok(Ok(guard)) => guard,
        Ok(Err(answered)) if answered.0 == fingerprint => {
            return Ok(repeat_response(answered.1.clone()));
        }
        Ok(Err(_)) => return Err(key_reused()),
        Err(_) => return Err(in_flight()),
    };
    // Runs to the end even if the client disconnects, so that a retry finds the response.
    let work = execute(Arc::clone(&server), guard, fingerprint, request, next);
    server.engine.run_to_completion(work).await
}

fn in_flight() -> Problem {
    let detail = "A request with this Idempotency-Key is still running. Retry later.";
    Problem::new(StatusCode::CONFLICT, "idempotency_in_flight", detail).retry_after(1)
}

fn key_reused() -> Problem {
    let detail = "This Idempotency-Key was used for a different request. Use a new key.";
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "idempotency_key_reused", detail)
}

/// Takes no key: the response contains a token, which must not be stored in plain text.
const TOKENS_PATH: &str = "/api/v1/tokens";

/// Takes no key: the response contains secrets, and every reveal must be recorded.
fn is_reveal_path(path: &str) -> bool {
    path.starts_with("/api/v1/events/") && path.ends_with("/reveal")
}

/// Uploads are streamed and not read here: their fingerprint covers path, type and length, so two files
/// that agree in these are not distinguished.
const UPLOADS_PATH: &str = "/api/v1/media";

/// A request with its key and fingerprint.
struct KeyedRequest {
    key: ClaimKey,
    fingerprint: Fingerprint,
    request: Request,
}

/// Reads the key and the body.
async fn read_request(server: &ServerState, request: Request) -> Result<KeyedRequest, Problem> {
    let bad = |detail: &str| Problem::new(StatusCode::BAD_REQUEST, "bad_idempotency_key", detail);
    if request.uri().path().starts_with(TOKENS_PATH) || is_reveal_path(request.uri().path()) {
        return Err(bad(
            "This endpoint takes no Idempotency-Key, because its response contains a secret.",
        ));
    }
    let mut values = request.headers().get_all(&IDEMPOTENCY_KEY).iter();
    let key = match (values.next(), values.next()) {
        (Some(only), None) => parse_key(only.as_bytes()).map_err(|e| bad(&e.to_string()))?,
        (_, _) => return Err(bad("Send one Idempotency-Key header.")),
    };
    let scope = request.extensions().get::<TokenHash>().copied();
    let scope = scope.ok_or_else(|| bad("An Idempotency-Key requires a token."))?;
    let key = api_key(&scope, &key).map_err(|error| bad(&error.to_string()))?;
    let (parts, body) = request.into_parts();
    let path = parts.uri.path_and_query().map_or("", |path| path.as_str());
    let (method, path) = (parts.method.as_str().as_bytes(), path.as_bytes());
    let (fingerprint, body) = if parts.uri.path() == UPLOADS_PATH {
        let [kind, length] = [header::CONTENT_TYPE, header::CONTENT_LENGTH]
            .map(|name| parts.headers.get(name).map_or(&b""[..], HeaderValue::as_bytes));
        (Fingerprint::of(&[method, path, kind, length]), body)
    } else {
        let body = read_body(body, BODY_BYTES_MAX, server.limits.body_pace()).await?;
        (Fingerprint::of(&[method, path, &body]), Body::from(body))
    };
    Ok(KeyedRequest { key, fingerprint, request: Request::from_parts(parts, body) })
}

async fn execute(
    server: Arc<ServerState>,
    guard: IdempotencyGuard,
    fingerprint: Fingerprint,
    mut request: Request,
    next: Next,
) -> Result<Response, Problem> {
    let key = guard.key.clone();
    let claim = ClaimStep::Claim(ClaimRequest {
        key: key.clone(),
        fingerprint: Some(fingerprint),
        lease: NO_LEASE,
        ttl: KEY_RETENTION,
    });
    let grant = match server.engine.run_api_claim_step(claim).await? {
        ClaimStepResult::Claim(Claim::Claimed(grant)) => grant,
        ClaimStepResult::Claim(Claim::Completed(completed)) => {
            let response = StoredResponse::from_result(&completed.result).ok_or_else(|| {
                Problem::from(StoreError::Corrupt(format!("the response stored for {key}")))
            })?;
            guard.publish(fingerprint, response.clone());
            return Ok(repeat_response(response));
        }
        ClaimStepResult::Claim(Claim::OtherFingerprint) => return Err(key_reused()),
        ClaimStepResult::Claim(Claim::InProgress { .. }) | ClaimStepResult::Update(_) => {
            return Err(in_flight());
        }
        ClaimStepResult::Full(_) => {
            let detail = "Too many idempotency keys are stored. Retry later.";
            let status = StatusCode::TOO_MANY_REQUESTS;
            return Err(Problem::new(status, "too_many_idempotency_keys", detail).retry_after(3600));
        }
    };
    request.extensions_mut().insert(IdempotentRequest::from(grant.operation));
    let (parts, body) = next.run(request).await.into_parts();
    // Responses of the API are in memory, so reading them does not fail.
    let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let stored = if parts.status.is_success() {
        let response = StoredResponse {
            status: parts.status.as_u16(),
            headers: stored_headers(&parts.headers),
            body: body.clone(),
        };
        if response.body.len() <= RESPONSE_BYTES_MAX {
            let completion = ClaimStep::Complete(CompletionRequest {
                key,
                token: grant.token,
                result: response.to_result(),
                ttl: KEY_RETENTION,
            });
            let stored = server.engine.run_api_claim_step(completion).await;
            guard.publish(fingerprint, response);
            stored.map(drop)
        } else {
            Ok(())
        }
    } else if parts.status.is_client_error() && !grant.is_resumed {
        let release = ClaimStep::Release { key, token: Some(grant.token) };
        server.engine.run_api_claim_step(release).await.map(drop)
    } else {
        Ok(())
    };
    if let Err(error) = stored {
        // The key stays claimed; a repeated request resumes it.
        tracing::warn!(%error, "could not store the response of an idempotent request");
    }
    Ok(Response::from_parts(parts, Body::from(body)))
}

fn stored_headers(headers: &HeaderMap) -> Vec<(String, String)> {
    STORED_HEADERS
        .iter()
        .filter_map(|name| {
            let value = headers.get(name)?.to_str().ok()?;
            Some((name.as_str().to_owned(), value.to_owned()))
        })
        .collect()
}

fn repeat_response(stored: StoredResponse) -> Response {
    let mut response = Builder::new().status(stored.status);
    for (name, value) in stored.headers {
        response = response.header(name, value);
    }
    let response = response.header(IDEMPOTENCY_REPLAYED, HeaderValue::from_static("true"));
    let unreadable = |_| Problem::not_found("response").into_response();
    response.body(Body::from(stored.body)).unwrap_or_else(unreadable)
}
