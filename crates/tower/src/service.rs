//! The service: claim the key, run the handler once, store its response.
//!
//! What must hold: the claim is in the store before the handler runs, and the response is in the store
//! before it is sent. However the handler ends without a response to store, the key becomes free for a
//! retry, at the latest with the end of the lease.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, resume_unwind},
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures_util::FutureExt as _;
use http::{HeaderValue, Request, Response, StatusCode, header, request::Parts, response};
use http_body::Body;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use surehook_dedup::{
    Claim, ClaimGrant, ClaimKey, ClaimOperation, ClaimRequest, ClaimUpdate, CompletionRequest,
    DedupError, claim::LEASE_MIN,
};
use tokio::{
    sync::oneshot,
    time::{Instant, MissedTickBehavior},
};
use tower_service::Service;
use tracing::Instrument as _;

use crate::{
    body::{BufferedBody, IdempotentBody},
    key::{IDEMPOTENCY_REPLAYED, request_fingerprint, request_key},
    layer::IdempotencyConfig,
    problem::ProblemKind,
    stored_response::{self, NOT_STORED},
};

/// First interval at which a duplicate asks whether the request that runs has ended; it doubles each time.
const POLL_MIN: Duration = Duration::from_millis(5);
const POLL_MAX: Duration = Duration::from_millis(200);
/// How many times ending a claim is attempted while the store cannot be reached.
const STORE_ATTEMPTS_MAX: u32 = 5;
const STORE_PAUSE: Duration = Duration::from_millis(100);

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The claim under which a handler runs, in the extensions of its request.
///
/// ```
/// use axum::Extension;
/// use surehook_tower::RequestClaim;
///
/// async fn create_order(Extension(claim): Extension<RequestClaim>) -> String {
///     // The same at every attempt of this request: insert the order unless it exists.
///     let id = claim.operation.derive_id("order");
///     format!("order {:032x}", u128::from_be_bytes(id))
/// }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RequestClaim {
    /// The key in the store: namespace, a hash of the scope, and the `Idempotency-Key`.
    pub key: ClaimKey,
    /// Grows with each attempt. Storage that remembers the largest one can refuse an attempt that was too
    /// slow.
    pub fence: u64,
    /// The same at every attempt of one request.
    pub operation: ClaimOperation,
    /// Whether an earlier attempt did not end: what it created may exist already.
    pub is_resumed: bool,
}

/// An idempotent service. Made by [`IdempotencyLayer`](crate::IdempotencyLayer).
#[derive(Clone, Debug)]
pub struct IdempotencyService<S> {
    inner: S,
    config: Arc<IdempotencyConfig>,
}

impl<S> IdempotencyService<S> {
    pub(crate) fn new(inner: S, config: Arc<IdempotencyConfig>) -> Self {
        Self { inner, config }
    }
}

type ResponseFuture<R, E> =
    Pin<Box<dyn Future<Output = Result<Response<IdempotentBody<R>>, E>> + Send>>;

impl<S, B, R> Service<Request<B>> for IdempotencyService<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    B: Body<Data = Bytes> + From<Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Send + Unpin,
{
    type Response = Response<IdempotentBody<R>>;
    type Error = S::Error;
    type Future = ResponseFuture<R, S::Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The service that was polled ready is the one to call.
        let next = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, next);
        let config = Arc::clone(&self.config);
        let (parts, body) = request.into_parts();
        match request_key(&config, &parts) {
            Ok(Some(key)) => Box::pin(run_once(inner, config, key, parts, body)),
            Ok(None) => {
                let mut inner = inner;
                let response = inner.call(Request::from_parts(parts, body));
                Box::pin(async move { Ok(response.await?.map(IdempotentBody::stream)) })
            }
            Err(problem) => Box::pin(async move { Ok(problem.to_response()) }),
        }
    }
}

async fn run_once<S, B, R>(
    mut inner: S,
    config: Arc<IdempotencyConfig>,
    key: ClaimKey,
    mut parts: Parts,
    body: B,
) -> Result<Response<IdempotentBody<R>>, S::Error>
where
    S: Service<Request<B>, Response = Response<R>> + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    B: Body<Data = Bytes> + From<Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Send + Unpin,
{
    let body = match read_body(&parts, body, config.max_request_bytes).await {
        Ok(body) => body,
        Err(problem) => return Ok(problem.to_response()),
    };
    let request = ClaimRequest {
        fingerprint: Some(request_fingerprint(&parts, &body)),
        key,
        lease: config.lease,
        ttl: config.ttl,
    };
    let claim = match acquire(&config, request).await {
        Ok(AcquiredKey::Claim(claim)) => claim,
        Ok(AcquiredKey::Response(stored)) => return Ok(repeat_response(stored)),
        Err(problem) => return Ok(problem.to_response()),
    };
    parts.extensions.insert(claim.describe());
    let request = Request::from_parts(parts, B::from(body));
    // Runs to its end even if the client disconnects, so that a retry finds the response.
    let work = run_claimed(claim, async move { inner.call(request).await });
    match tokio::spawn(work.in_current_span()).await {
        Ok(Ok(response)) => response,
        Ok(Err(panic)) => resume_unwind(panic),
        // The runtime is shutting down, and the lease will end.
        Err(_) => std::future::pending().await,
    }
}

async fn read_body<B>(parts: &Parts, body: B, limit: usize) -> Result<Bytes, ProblemKind>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let declared = parts.headers.get(header::CONTENT_LENGTH).map(HeaderValue::to_str);
    let declared = declared.and_then(|text| text.ok()?.parse::<u64>().ok());
    if declared.is_some_and(|bytes| bytes > limit as u64) {
        return Err(ProblemKind::BodyTooLarge(limit));
    }
    match Limited::new(body, limit).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(ProblemKind::BodyTooLarge(limit)),
        Err(error) => Err(ProblemKind::BodyUnreadable(error.to_string())),
    }
}

/// The decision about a request with a key.
enum AcquiredKey {
    /// The right to run.
    Claim(HeldClaim),
    /// The stored response of the request that ran.
    Response(Bytes),
}

/// Claims the key, or waits for the request that has it.
async fn acquire(
    config: &Arc<IdempotencyConfig>,
    request: ClaimRequest,
) -> Result<AcquiredKey, ProblemKind> {
    let deadline = Instant::now() + config.wait;
    let mut pause = POLL_MIN;
    loop {
        let retry_after = match claim_or_release(config, request.clone()).await? {
            Claim::Claimed(grant) => {
                let (config, key) = (Arc::clone(config), request.key);
                return Ok(AcquiredKey::Claim(HeldClaim { config, key, grant }));
            }
            Claim::Completed(done) => return Ok(AcquiredKey::Response(done.result)),
            Claim::OtherFingerprint => return Err(ProblemKind::KeyReused),
            Claim::InProgress { retry_after } => retry_after,
        };
        let now = Instant::now();
        if now >= deadline {
            return Err(ProblemKind::InFlight);
        }
        tokio::time::sleep_until((now + pause.min(retry_after)).min(deadline)).await;
        pause = (pause * 2).min(POLL_MAX);
    }
}

/// Claims the key. If the client disconnects meanwhile, a claim that is granted all the same is released, so
/// that the retry does not wait for the end of its lease.
async fn claim_or_release(
    config: &Arc<IdempotencyConfig>,
    request: ClaimRequest,
) -> Result<Claim, ProblemKind> {
    let (sender, receiver) = oneshot::channel();
    let config = Arc::clone(config);
    let work = async move {
        let key = request.key.clone();
        let claim = config.lock.claim(request).await;
        if let Err(Ok(Claim::Claimed(grant))) = sender.send(claim) {
            let claim = HeldClaim { config, key, grant };
            let ending = if grant.is_resumed { ClaimEnding::Retry } else { ClaimEnding::Release };
            claim.end(&ending).await;
        }
    };
    tokio::spawn(work.in_current_span());
    match receiver.await {
        Ok(Ok(claim)) => Ok(claim),
        Ok(Err(error)) => {
            tracing::warn!(%error, "could not claim an idempotency key");
            Err(ProblemKind::StoreUnavailable)
        }
        // The backend panicked, or the runtime is shutting down.
        Err(_) => Err(ProblemKind::StoreUnavailable),
    }
}

fn repeat_response<R: Body<Data = Bytes>>(stored: Bytes) -> Response<IdempotentBody<R>> {
    match stored_response::decode(stored) {
        Some(mut response) => {
            let replayed = HeaderValue::from_static("true");
            response.headers_mut().insert(IDEMPOTENCY_REPLAYED, replayed);
            response
        }
        None => ProblemKind::ResponseNotStored.to_response(),
    }
}

/// The exclusive right to run the request with a key.
struct HeldClaim {
    config: Arc<IdempotencyConfig>,
    key: ClaimKey,
    grant: ClaimGrant,
}

/// What happens to a claim when its handler has ended.
#[derive(Clone, Debug)]
enum ClaimEnding {
    /// Duplicates get this response.
    Complete(Bytes),
    /// Nothing happened: a retry starts as a new operation.
    Release,
    /// Something may have happened: a retry runs at once, as a further attempt of the same operation.
    Retry,
}

/// A panic of a handler.
type PanicPayload = Box<dyn Any + Send>;

/// Runs the handler, keeps the claim meanwhile, and ends it.
async fn run_claimed<R, E>(
    claim: HeldClaim,
    response: impl Future<Output = Result<Response<R>, E>>,
) -> Result<Result<Response<IdempotentBody<R>>, E>, PanicPayload>
where
    R: Body<Data = Bytes>,
{
    let limit = claim.config.max_response_bytes;
    let buffered = async {
        let (parts, body) = response.await?.into_parts();
        Ok((parts, IdempotentBody::buffer(body, limit).await))
    };
    let outcome = claim.keep_while(AssertUnwindSafe(buffered).catch_unwind()).await;
    let (ending, result) = match outcome {
        Ok(Ok((parts, body))) => {
            let (ending, response) = claim.decide_ending(parts, body);
            (ending, Ok(Ok(response)))
        }
        Ok(Err(error)) => (ClaimEnding::Retry, Ok(Err(error))),
        Err(panic) => (ClaimEnding::Retry, Err(panic)),
    };
    claim.end(&ending).await;
    result
}

impl HeldClaim {
    fn describe(&self) -> RequestClaim {
        let ClaimGrant { fence, operation, is_resumed, .. } = self.grant;
        RequestClaim { key: self.key.clone(), fence, operation, is_resumed }
    }

    /// Extends the lease until `work` is done.
    async fn keep_while<T>(&self, work: impl Future<Output = T>) -> T {
        let lease = self.config.lease;
        let mut work = pin!(work);
        let period = (lease / 3).max(Duration::from_millis(1));
        let mut ticks = tokio::time::interval_at(Instant::now() + period, period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            // A slow store must not hold back the handler.
            let extension = async {
                ticks.tick().await;
                self.config.lock.extend(&self.key, self.grant.token, lease).await
            };
            let extended = tokio::select! {
                biased;
                done = &mut work => return done,
                extended = extension => extended,
            };
            match extended {
                Ok(ClaimUpdate::Applied) => {}
                Ok(ClaimUpdate::StaleToken) => {
                    tracing::warn!(
                        key = %self.key,
                        "an idempotent request ran longer than its lease and was taken over; increase the lease"
                    );
                    return work.await;
                }
                Err(error) => {
                    tracing::warn!(key = %self.key, %error, "could not extend the lease of an idempotent request");
                }
            }
        }
    }

    /// Decides how the claim ends, and returns the response to send.
    fn decide_ending<R: Body<Data = Bytes>>(
        &self,
        parts: response::Parts,
        body: BufferedBody<R>,
    ) -> (ClaimEnding, Response<IdempotentBody<R>>) {
        let ending = self.ending_by_status(parts.status);
        let (ending, body) = match body {
            BufferedBody::Complete(bytes) => {
                let ending = match ending {
                    ClaimEnding::Complete(_) => {
                        ClaimEnding::Complete(self.encode_response(&parts, &bytes))
                    }
                    other @ (ClaimEnding::Release | ClaimEnding::Retry) => other,
                };
                (ending, IdempotentBody::from(bytes))
            }
            BufferedBody::Oversized(body) => (ending, body),
            BufferedBody::Failed(body) => (ClaimEnding::Retry, body),
        };
        (ending, Response::from_parts(parts, body))
    }

    /// How the claim ends by the status alone. The response of `Complete` is still missing: it stays
    /// [`NOT_STORED`] if the body turns out too large.
    fn ending_by_status(&self, status: StatusCode) -> ClaimEnding {
        if status.is_success() || status.is_redirection() {
            return ClaimEnding::Complete(NOT_STORED);
        }
        match status.is_client_error() {
            true if self.config.stores_client_errors => ClaimEnding::Complete(NOT_STORED),
            // The attempt before this one may have had effects.
            true if !self.grant.is_resumed => ClaimEnding::Release,
            true | false => ClaimEnding::Retry,
        }
    }

    fn encode_response(&self, parts: &response::Parts, body: &[u8]) -> Bytes {
        let encoded = stored_response::encode(parts.status, &parts.headers, body);
        let limit = self.config.max_response_bytes;
        encoded.filter(|encoded| encoded.len() <= limit).unwrap_or(NOT_STORED)
    }

    /// Ends the claim; if the store cannot be reached, the end of the lease does it.
    async fn end(&self, ending: &ClaimEnding) {
        for attempt in 1..=STORE_ATTEMPTS_MAX {
            match self.try_end(ending).await {
                Ok(ClaimUpdate::Applied) => return,
                Ok(ClaimUpdate::StaleToken) => {
                    tracing::warn!(
                        key = %self.key,
                        "an idempotent request was taken over before it ended; its response is not stored"
                    );
                    return;
                }
                Err(error @ DedupError::Unavailable(_)) if attempt < STORE_ATTEMPTS_MAX => {
                    tracing::debug!(key = %self.key, %error, "could not end a claim yet");
                    tokio::time::sleep(STORE_PAUSE * attempt).await;
                }
                Err(error) => {
                    tracing::warn!(
                        key = %self.key, %error,
                        "could not store the response of an idempotent request; a duplicate will run again"
                    );
                    return;
                }
            }
        }
    }

    async fn try_end(&self, ending: &ClaimEnding) -> Result<ClaimUpdate, DedupError> {
        let Self { config, key, grant } = self;
        let token = grant.token;
        match ending {
            ClaimEnding::Complete(result) => {
                let (key, result) = (key.clone(), result.clone());
                let request = CompletionRequest { key, token, result, ttl: config.ttl };
                config.lock.complete(request).await
            }
            ClaimEnding::Release => config.lock.release(key, token).await,
            // Shortens the lease: the key is free almost at once, and keeps its operation.
            ClaimEnding::Retry => config.lock.extend(key, token, LEASE_MIN).await,
        }
    }
}
