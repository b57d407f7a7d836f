//! `Idempotency-Key` on every POST, in one place: a wish that is sent twice is granted once.
//!
//! | the key | answer |
//! | --- | --- |
//! | is not one | 400 `bad_idempotency_key` |
//! | is being worked on | it waits, and gets that answer; 409 `idempotency_in_flight` if that takes too long |
//! | was used for another request | 422 `idempotency_key_reused` |
//! | was answered with success | the same status, headers and body again |
//!
//! What is killed in between: before the claim is stored, nothing happened. After it, the retry finds
//! a claim without an answer and carries the wish out with the time and dice of the first try, so
//! that what was created already is found, not created again (`IdempotentRequest`). A refusal changed nothing, so
//! its key is given back, but not if it was tried before: that may have been carried out. After an
//! error of the store nobody knows, so the claim stays.
//!
//! A file is not read here, because it is not held anywhere: for an upload the key stands for its
//! address, type and length, and two files that have the same of these are not told apart.

use std::{
    collections::{HashMap, hash_map::Entry},
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
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
use sha2::{Digest, Sha256};
use surehook_core::{
    access::TokenHash,
    idempotency::{
        IdempotencyClaim, IdempotencyKey, IdempotentRequest, RESPONSE_BYTES_MAX, StoredResponse,
        parse_key,
    },
};
use tokio::sync::watch;

use super::input::BODY_BYTES_MAX;
use crate::{App, body, problem::Problem};

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// Says that an answer was given before.
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");
/// Headers that are part of an answer; all others are of the moment.
const KEPT_HEADERS: [HeaderName; 3] = [header::CONTENT_TYPE, header::ETAG, header::LOCATION];

/// The SHA-256 of what a request asks for.
type Fingerprint = [u8; 32];

/// What became of a wish: nothing yet, or the answer to the request with this fingerprint. Ends
/// without an answer if there is none to be told again.
type Outcome = Option<Arc<(Fingerprint, StoredResponse)>>;

/// Keys whose wishes are being carried out in this process, and where copies of them wait. The store
/// is this process's alone, so no other can be at the same one.
#[derive(Debug, Default)]
pub(crate) struct InFlight(Mutex<HashMap<IdempotencyKey, watch::Receiver<Outcome>>>);

impl InFlight {
    fn keys(&self) -> MutexGuard<'_, HashMap<IdempotencyKey, watch::Receiver<Outcome>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One of them; freed when dropped, and whoever waits for it goes on.
struct Place {
    app: Arc<App>,
    key: IdempotencyKey,
    outcome: watch::Sender<Outcome>,
}

impl Place {
    /// The place of a key, or what came of the wish that has it.
    fn take(app: &Arc<App>, key: &IdempotencyKey) -> Result<Self, watch::Receiver<Outcome>> {
        match app.in_flight.keys().entry(key.clone()) {
            Entry::Occupied(other) => Err(other.get().clone()),
            Entry::Vacant(free) => {
                let (outcome, waiting) = watch::channel(None);
                free.insert(waiting);
                Ok(Self { app: Arc::clone(app), key: key.clone(), outcome })
            }
        }
    }

    /// The place of a key, or the answer to the copy that had it. One that was refused, or whose
    /// answer was too large to keep, leaves the place to the next.
    async fn wait(
        app: &Arc<App>,
        key: &IdempotencyKey,
    ) -> Result<Self, Arc<(Fingerprint, StoredResponse)>> {
        loop {
            let mut other = match Self::take(app, key) {
                Ok(place) => return Ok(place),
                Err(other) => other,
            };
            // An error means that it ended without an answer.
            if let Ok(outcome) = other.wait_for(Option::is_some).await
                && let Some(answered) = &*outcome
            {
                return Err(Arc::clone(answered));
            }
        }
    }

    /// Tells all copies that wait.
    fn tell(&self, fingerprint: Fingerprint, answer: StoredResponse) {
        self.outcome.send_replace(Some(Arc::new((fingerprint, answer))));
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.app.in_flight.keys().remove(&self.key);
    }
}

/// The time and dice of the wish that a request is: the first try's, if it is tried again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wished(pub(crate) IdempotentRequest);

impl FromRequestParts<Arc<App>> for Wished {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Infallible> {
        let known = parts.extensions.get::<IdempotentRequest>().copied();
        Ok(Self(known.unwrap_or_else(|| new_wish(app))))
    }
}

fn new_wish(app: &App) -> IdempotentRequest {
    IdempotentRequest {
        at: app.engine.clock().now(),
        seed: app.engine.chance().bits().to_be_bytes(),
    }
}

/// Lets each POST with a key through once.
pub(crate) async fn once(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    if request.method() != Method::POST || !request.headers().contains_key(&IDEMPOTENCY_KEY) {
        return next.run(request).await;
    }
    grant(app, request, next).await.unwrap_or_else(IntoResponse::into_response)
}

async fn grant(app: Arc<App>, request: Request, next: Next) -> Result<Response, Problem> {
    let (key, fingerprint, request) = prepare(&app, request).await?;
    let place = tokio::time::timeout(app.limits.idempotency_wait, Place::wait(&app, &key));
    let place = match place.await {
        Ok(Ok(place)) => place,
        Ok(Err(answered)) if answered.0 == fingerprint => return Ok(again(answered.1.clone())),
        Ok(Err(_)) => return Err(key_reused()),
        Err(_) => {
            let detail = "a request with this Idempotency-Key is being carried out";
            let status = StatusCode::CONFLICT;
            return Err(Problem::new(status, "idempotency_in_flight", detail).retry_after(1));
        }
    };
    // A client that hangs up must still find its answer later.
    let work = carry_out(Arc::clone(&app), place, fingerprint, request, next);
    app.engine.run_to_completion(work).await
}

fn key_reused() -> Problem {
    let detail = "this Idempotency-Key was used for another request; take a new one";
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "idempotency_key_reused", detail)
}

/// What is not kept: a token that was made would lie in the store as it is sent.
const TOKENS: &str = "/api/v1/tokens";

/// The same of what is masked everywhere else; and who looks twice is written down twice.
fn is_reveal(path: &str) -> bool {
    path.starts_with("/api/v1/events/") && path.ends_with("/reveal")
}

/// What is not read.
const UPLOADS: &str = "/api/v1/media";

/// Reads the key and the whole request.
async fn prepare(
    app: &App,
    request: Request,
) -> Result<(IdempotencyKey, Fingerprint, Request), Problem> {
    let bad = |detail: &str| Problem::new(StatusCode::BAD_REQUEST, "bad_idempotency_key", detail);
    if request.uri().path().starts_with(TOKENS) || is_reveal(request.uri().path()) {
        return Err(bad("no key is taken here: the answer holds a secret and is not kept"));
    }
    let mut values = request.headers().get_all(&IDEMPOTENCY_KEY).iter();
    let key = match (values.next(), values.next()) {
        (Some(only), None) => parse_key(only.as_bytes()).map_err(|e| bad(&e.to_string()))?,
        (_, _) => return Err(bad("a request has one Idempotency-Key")),
    };
    let scope = request.extensions().get::<TokenHash>().copied();
    let scope = scope.ok_or_else(|| bad("a key belongs to a token, and there is none"))?;
    let key = IdempotencyKey { scope, key };
    let (parts, body) = request.into_parts();
    let address = parts.uri.path_and_query().map_or("", |address| address.as_str());
    let mut hash = Sha256::new();
    let mut add = |piece: &[u8]| {
        hash.update((piece.len() as u64).to_be_bytes());
        hash.update(piece);
    };
    add(parts.method.as_str().as_bytes());
    add(address.as_bytes());
    let body = if parts.uri.path() == UPLOADS {
        for name in [header::CONTENT_TYPE, header::CONTENT_LENGTH] {
            add(parts.headers.get(name).map_or(b"", HeaderValue::as_bytes));
        }
        body
    } else {
        let body = body::whole(body, BODY_BYTES_MAX, app.limits.body_timeout).await?;
        add(&body);
        Body::from(body)
    };
    Ok((key, hash.finalize().into(), Request::from_parts(parts, body)))
}

async fn carry_out(
    app: Arc<App>,
    place: Place,
    fingerprint: Fingerprint,
    mut request: Request,
    next: Next,
) -> Result<Response, Problem> {
    let key = place.key.clone();
    let answers = app.engine.idempotency_store();
    let fresh = new_wish(&app);
    let is_resumed = match answers.claim_key(key.clone(), fingerprint, fresh).await? {
        IdempotencyClaim::Answered(answer) => {
            place.tell(fingerprint, answer.clone());
            return Ok(again(answer));
        }
        IdempotencyClaim::OtherRequest => return Err(key_reused()),
        IdempotencyClaim::Full => {
            let detail = "as many Idempotency-Keys are kept as may be; come back later";
            let status = StatusCode::TOO_MANY_REQUESTS;
            return Err(Problem::new(status, "too_many_idempotency_keys", detail).retry_after(3600));
        }
        IdempotencyClaim::Pending(wish) => {
            request.extensions_mut().insert(wish);
            wish != fresh
        }
    };
    let (parts, body) = next.run(request).await.into_parts();
    // Our own answers are in memory already and do not fail.
    let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let kept = if parts.status.is_success() {
        let answer = StoredResponse {
            status: parts.status.as_u16(),
            headers: kept_headers(&parts.headers),
            body: body.to_vec(),
        };
        if answer.body.len() <= RESPONSE_BYTES_MAX {
            let kept = answers.keep_answer(key, answer.clone()).await;
            place.tell(fingerprint, answer);
            kept
        } else {
            Ok(())
        }
    } else if parts.status.is_client_error() && !is_resumed {
        answers.give_key_back(key).await
    } else {
        Ok(())
    };
    if let Err(error) = kept {
        // The wish stays claimed, and is resumed when it comes again.
        tracing::warn!(%error, "an answer could not be kept with its key");
    }
    Ok(Response::from_parts(parts, Body::from(body)))
}

fn kept_headers(headers: &HeaderMap) -> Vec<(String, String)> {
    KEPT_HEADERS
        .iter()
        .filter_map(|name| {
            let value = headers.get(name)?.to_str().ok()?;
            Some((name.as_str().to_owned(), value.to_owned()))
        })
        .collect()
}

fn again(answer: StoredResponse) -> Response {
    let mut response = Builder::new().status(answer.status);
    for (name, value) in answer.headers {
        response = response.header(name, value);
    }
    let response = response.header(REPLAYED, HeaderValue::from_static("true"));
    let unreadable = |_| Problem::not_found("answer").into_response();
    response.body(Body::from(answer.body)).unwrap_or_else(unreadable)
}
