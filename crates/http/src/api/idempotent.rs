//! `Idempotency-Key` on every POST, in one place: a wish that is sent twice is granted once.
//!
//! | the key | answer |
//! | --- | --- |
//! | is not one | 400 `bad_idempotency_key` |
//! | is being worked on | 409 `idempotency_in_flight` |
//! | was used for another request | 422 `idempotency_key_reused` |
//! | was answered with success | the same status, headers and body again |
//!
//! What is killed in between: before the claim is stored, nothing happened. After it, the retry finds
//! a claim without an answer and carries the wish out with the time and dice of the first try, so
//! that what was created already is found, not created again (`Wish`). A refusal changed nothing, so
//! its key is given back. After an error of the store nobody knows, so the claim stays.

use std::{
    collections::HashSet,
    convert::Infallible,
    sync::{Arc, Mutex, PoisonError},
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
    idempotency::{ANSWER_BYTES_MAX, Claim, IdempotencyKey, KeptAnswer, Wish, parse_key},
};

use super::input::BODY_BYTES_MAX;
use crate::{App, body, problem::Problem};

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// Says that an answer was given before.
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");
/// Headers that are part of an answer; all others are of the moment.
const KEPT_HEADERS: [HeaderName; 3] = [header::CONTENT_TYPE, header::ETAG, header::LOCATION];

/// Keys whose wishes are being carried out in this process. The store is this process's alone, so
/// no other can be at the same one.
#[derive(Debug, Default)]
pub(crate) struct InFlight(Mutex<HashSet<IdempotencyKey>>);

/// One of them; freed when dropped.
struct Place {
    app: Arc<App>,
    key: IdempotencyKey,
}

impl Place {
    fn take(app: &Arc<App>, key: &IdempotencyKey) -> Option<Self> {
        let mut keys = app.in_flight.0.lock().unwrap_or_else(PoisonError::into_inner);
        keys.insert(key.clone()).then(|| Self { app: Arc::clone(app), key: key.clone() })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut keys = self.app.in_flight.0.lock().unwrap_or_else(PoisonError::into_inner);
        keys.remove(&self.key);
    }
}

/// The time and dice of the wish that a request is: the first try's, if it is tried again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wished(pub(crate) Wish);

impl FromRequestParts<Arc<App>> for Wished {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Infallible> {
        let known = parts.extensions.get::<Wish>().copied();
        Ok(Self(known.unwrap_or_else(|| new_wish(app))))
    }
}

fn new_wish(app: &App) -> Wish {
    Wish { at: app.engine.clock().now(), seed: app.engine.chance().bits().to_be_bytes() }
}

/// Lets each POST with a key through once.
pub(crate) async fn once(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    if request.method() != Method::POST || !request.headers().contains_key(&IDEMPOTENCY_KEY) {
        return next.run(request).await;
    }
    match prepare(&app, request).await {
        Ok((place, fingerprint, request)) => {
            // A client that hangs up must still find its answer later.
            let work = carry_out(Arc::clone(&app), place, fingerprint, request, next);
            app.engine.to_the_end(work).await.unwrap_or_else(IntoResponse::into_response)
        }
        Err(problem) => problem.into_response(),
    }
}

/// What is not kept: a token that was made would lie in the store as it is sent.
const TOKENS: &str = "/api/v1/tokens";

/// Reads the key and the whole request.
async fn prepare(app: &Arc<App>, request: Request) -> Result<(Place, [u8; 32], Request), Problem> {
    let bad = |detail: &str| Problem::new(StatusCode::BAD_REQUEST, "bad_idempotency_key", detail);
    if request.uri().path() == TOKENS {
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
    let body = body::whole(body, BODY_BYTES_MAX, app.limits.body_timeout).await?;
    let address = parts.uri.path_and_query().map_or("", |address| address.as_str());
    let mut hash = Sha256::new();
    for piece in [parts.method.as_str().as_bytes(), address.as_bytes(), &body[..]] {
        hash.update((piece.len() as u64).to_be_bytes());
        hash.update(piece);
    }
    let place = Place::take(app, &key).ok_or_else(|| {
        let detail = "a request with this Idempotency-Key is being carried out";
        Problem::new(StatusCode::CONFLICT, "idempotency_in_flight", detail).retry_after(1)
    })?;
    Ok((place, hash.finalize().into(), Request::from_parts(parts, Body::from(body))))
}

async fn carry_out(
    app: Arc<App>,
    place: Place,
    fingerprint: [u8; 32],
    mut request: Request,
    next: Next,
) -> Result<Response, Problem> {
    let key = place.key.clone();
    let answers = app.engine.answers();
    match answers.claim_key(key.clone(), fingerprint, new_wish(&app)).await? {
        Claim::Answered(answer) => return Ok(again(answer)),
        Claim::OtherRequest => {
            let detail = "this Idempotency-Key was used for another request; take a new one";
            let status = StatusCode::UNPROCESSABLE_ENTITY;
            return Err(Problem::new(status, "idempotency_key_reused", detail));
        }
        Claim::Full => {
            let detail = "as many Idempotency-Keys are kept as may be; come back later";
            let status = StatusCode::TOO_MANY_REQUESTS;
            return Err(Problem::new(status, "too_many_idempotency_keys", detail).retry_after(3600));
        }
        Claim::Pending(wish) => request.extensions_mut().insert(wish),
    };
    let (parts, body) = next.run(request).await.into_parts();
    // Our own answers are in memory already and do not fail.
    let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let kept = if parts.status.is_success() {
        let answer = KeptAnswer {
            status: parts.status.as_u16(),
            headers: kept_headers(&parts.headers),
            body: body.to_vec(),
        };
        match answer.body.len() <= ANSWER_BYTES_MAX {
            true => answers.keep_answer(key, answer).await,
            false => Ok(()),
        }
    } else if parts.status.is_client_error() {
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

fn again(answer: KeptAnswer) -> Response {
    let mut response = Builder::new().status(answer.status);
    for (name, value) in answer.headers {
        response = response.header(name, value);
    }
    let response = response.header(REPLAYED, HeaderValue::from_static("true"));
    let unreadable = |_| Problem::not_found("answer").into_response();
    response.body(Body::from(answer.body)).unwrap_or_else(unreadable)
}
