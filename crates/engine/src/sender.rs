//! The only way out: makes one HTTP request to a destination and reports what came of it.
//!
//! There is one [`HttpSender`] for each destination, with connections of its own, so that none is
//! ever shared between destinations. Each connection was judged by the [`GuardedConnector`] when
//! it was opened. Idle ones are dropped after [`POOL_IDLE_TIMEOUT`], so that a destination whose
//! name moved is found again; one in steady use keeps leading to where it was allowed to lead.
//!
//! What a destination can do to us is bounded: the time from the first lookup to the last byte of
//! the answer, the headers, the bytes that are read and those that are kept. Redirects are not
//! followed; a 3xx is an answer like any other.
//!
//! One call to [`HttpSender::send`] puts the request on the wire at most once. The pool may find
//! that an idle connection was closed by its other end and take another one, but only as long as
//! no byte of the request was written: see the comment in `client`.
//!
//! When is it an answer? A status other than 2xx counts as soon as it is there, since what follows
//! is only read to be shown. A 2xx counts when its body came to the end, or went on beyond
//! [`RESPONSE_BYTES_MAX`]: a destination that breaks off before that may have broken down before
//! its work was done, and one delivery too many is better than one too few.

pub(crate) mod failure;
#[cfg(test)]
mod tests;
mod witness;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName};
use http::uri::Scheme;
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::ClientConfig;
use surehook_core::address::AddressPolicy;
use surehook_core::delivery::{AttemptFailure, AttemptOutcome, AttemptTiming, RetryAfter};
use surehook_core::destination::proxy::{Proxy, ProxyKind};
use tokio::time::{Instant, timeout};
use tower::Service;

use self::failure::ExchangeError;
use self::witness::{LastTlsError, MonitoredStream};
use crate::connect::proxy::PROXY_AUTHENTICATION;
use crate::connect::{
    CONNECT_TIMEOUT, ConnectError, GuardedConnector, GuardedStream, RESOLVE_TIMEOUT, Resolver,
};
use crate::stopwatch::{ResponseHeadTime, Stopwatch};

/// How long a connection may stay unused. Bounds for how long a name's old address is called.
pub const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// How much of an answer is kept for people to read.
pub const RESPONSE_BYTES_KEPT: usize = 16 * 1024;

/// How much of an answer is read, so that the connection can be used again. After that the
/// connection is given up, which costs less than the rest of an answer without end.
pub const RESPONSE_BYTES_MAX: usize = 1024 * 1024;

/// The most that the headers of an answer may take. Their number is bounded too, by hyper's
/// default of 100.
const RESPONSE_HEADER_BYTES_MAX: u32 = 32 * 1024;

/// The most that opening a connection may take: the name, TCP, and as much again for a proxy and TLS. The
/// pool may go on opening one in the background after the attempt that asked for it is over, so
/// the deadline of the attempt is not bound enough.
pub(crate) const OPEN_TIMEOUT: Duration =
    CONNECT_TIMEOUT.saturating_mul(2).saturating_add(RESOLVE_TIMEOUT);

/// How often a busy HTTP/2 connection is asked whether it is alive, and how long it may take to
/// say so. Without this a connection that went silent would take down one attempt after another,
/// since with HTTP/2 an attempt that timed out does not close the connection.
const HTTP2_PING_INTERVAL: Duration = Duration::from_secs(10);
const HTTP2_PING_TIMEOUT: Duration = Duration::from_secs(10);

/// The headers that say how a message is framed and how it goes. The client makes them; taken
/// from settings they could contradict the body and so smuggle a second request.
const FRAMING_HEADERS: [HeaderName; 10] = [
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::EXPECT,
    header::HOST,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("keep-alive"),
];

/// A request to a destination, signed and ready. The method is always POST.
#[derive(Debug, Clone)]
pub struct HttpOutboundRequest {
    pub url: Uri,
    /// Headers that frame the message are ignored.
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// What came of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SendReport {
    pub outcome: AttemptOutcome,
    /// From the call until the outcome was known.
    pub elapsed: Duration,
    /// Where that time went.
    pub timing: AttemptTiming,
    /// The first [`RESPONSE_BYTES_KEPT`] bytes of the answer's body, or as much as came. More only if
    /// it was [asked](HttpSender::ask) for.
    pub response_body: Vec<u8>,
    /// For a failure, a short text for the operator. Holds no secrets and none of the system's
    /// own error texts.
    pub detail: Option<String>,
    /// Whether the destination may have got the request. Only `false` is certain.
    pub may_have_arrived: bool,
    /// What a service that sends messages calls the message it took.
    pub sent_id: Option<String>,
}

impl SendReport {
    /// A report that says nothing but the outcome, of something that was not sent over the network.
    pub fn of(outcome: AttemptOutcome) -> Self {
        Self {
            outcome,
            elapsed: Duration::ZERO,
            timing: AttemptTiming::default(),
            response_body: Vec::new(),
            detail: None,
            may_have_arrived: false,
            sent_id: None,
        }
    }
}

/// What a sender is made of.
#[derive(Debug, Clone)]
pub struct HttpSenderConfig {
    pub policy: Arc<AddressPolicy>,
    pub resolver: Arc<dyn Resolver>,
    /// Usually [`crate::tls::TrustStore::usual`], shared by all senders.
    pub tls: Arc<ClientConfig>,
    /// A proxy on the way.
    pub proxy: Option<Proxy>,
    /// How many unused connections are kept. More than the destination's concurrency is waste.
    pub pool_idle_max: usize,
}

/// Sends to one destination. `B` is what its requests hold: all of it at hand, unless it is a file.
#[derive(Debug, Clone)]
pub struct HttpSender<B = Full<Bytes>> {
    client: Client<TimedConnector, B>,
    passing: Option<ForwardProxy>,
    last_words: LastTlsError,
}

/// A proxy that passes each request on instead of a connection: what is sent to it, it reads.
#[derive(Debug, Clone)]
struct ForwardProxy {
    authorization: Option<HeaderValue>,
}

impl HttpSender {
    /// Makes one attempt, which ends after `deadline` at the latest. A failure is an outcome.
    pub async fn send(&self, request: HttpOutboundRequest, deadline: Duration) -> SendReport {
        self.call(as_http(request), deadline).await
    }

    /// The same, for an answer that has to be understood: all of it is kept that is read.
    pub(crate) async fn ask(&self, request: HttpOutboundRequest, deadline: Duration) -> SendReport {
        self.exchange_within(as_http(request), deadline, RESPONSE_BYTES_MAX).await
    }

    /// Asks for what is at an address, with GET.
    pub async fn fetch(&self, url: Uri, deadline: Duration) -> SendReport {
        let mut request = Request::new(Full::default());
        *request.uri_mut() = url;
        self.call(request, deadline).await
    }
}

impl<B> HttpSender<B>
where
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + Unpin + 'static,
{
    /// Makes a sender without any connections yet.
    pub fn new(config: HttpSenderConfig) -> Self {
        let passing = match &config.proxy {
            Some(proxy) if proxy.kind == ProxyKind::Http => {
                Some(ForwardProxy { authorization: proxy.authorization() })
            }
            Some(_) | None => None,
        };
        let last_words = LastTlsError::default();
        Self { client: client(config, last_words.clone()), passing, last_words }
    }

    /// Makes one request as it is given.
    pub(crate) async fn call(&self, request: Request<B>, deadline: Duration) -> SendReport {
        self.exchange_within(request, deadline, RESPONSE_BYTES_KEPT).await
    }

    /// Makes one request, and keeps so much of the answer.
    async fn exchange_within(
        &self,
        request: Request<B>,
        deadline: Duration,
        kept_max: usize,
    ) -> SendReport {
        let started = Instant::now();
        let watch = Stopwatch::default();
        let mut answer =
            PartialResponse { head: None, head_seen: None, body: Vec::new(), kept_max };
        let end = match timeout(deadline, self.exchange(request, &watch, &mut answer)).await {
            Ok(end) => end.map_err(|broken| broken.unless_tls_said(self.last_words.since(started))),
            Err(_) => Err(ExchangeError::new(
                AttemptFailure::Timeout,
                format!("no whole answer within {deadline:?}"),
            )),
        };
        answer.into_report(end, &watch, (started, Instant::now()))
    }

    async fn exchange(
        &self,
        mut request: Request<B>,
        watch: &Stopwatch,
        answer: &mut PartialResponse,
    ) -> Result<ResponseHead, ExchangeError> {
        // A destination with https is reached through a tunnel, and the proxy sees none of this.
        let is_plain = request.uri().scheme() == Some(&Scheme::HTTP);
        let passing = self.passing.as_ref().filter(|_| is_plain);
        if let Some(authorization) = passing.and_then(|proxy| proxy.authorization.clone()) {
            request.headers_mut().insert(header::PROXY_AUTHORIZATION, authorization);
        }
        let response = watch.watch(self.client.request(request)).await?;
        answer.head_seen = Some(watch.head_seen(response.extensions().get()));
        if passing.is_some() && response.status() == StatusCode::PROXY_AUTHENTICATION_REQUIRED {
            // It has not passed the request on.
            let refused = ExchangeError::new(AttemptFailure::ProxyRefused, PROXY_AUTHENTICATION);
            return Err(ExchangeError { before_sending: true, ..refused });
        }
        let head = ResponseHead::of(&response);
        answer.head = Some(head);
        answer.read_body(response.into_body()).await?;
        Ok(head)
    }
}

/// As much of an answer as has arrived. Filled in place, so that it outlives a timeout.
#[derive(Debug)]
struct PartialResponse {
    head: Option<ResponseHead>,
    head_seen: Option<ResponseHeadTime>,
    body: Vec<u8>,
    /// How much of the body is kept.
    kept_max: usize,
}

#[derive(Debug, Clone, Copy)]
struct ResponseHead {
    status: u16,
    retry_after: Option<RetryAfter>,
}

impl PartialResponse {
    async fn read_body(&mut self, mut body: Incoming) -> Result<(), hyper::Error> {
        let mut read: usize = 0;
        while let Some(frame) = body.frame().await {
            // Trailers have nothing to tell us.
            let Ok(data) = frame?.into_data() else { continue };
            let room = self.kept_max.saturating_sub(self.body.len());
            self.body.extend_from_slice(&data[..data.len().min(room)]);
            read += data.len();
            if read >= RESPONSE_BYTES_MAX {
                break;
            }
        }
        Ok(())
    }

    /// Says what the attempt came to, given how the exchange ended.
    fn into_report(
        self,
        end: Result<ResponseHead, ExchangeError>,
        watch: &Stopwatch,
        (started, ended): (Instant, Instant),
    ) -> SendReport {
        let may_have_arrived = match &end {
            Ok(_) => true,
            Err(broken) => self.head.is_some() || !broken.before_sending,
        };
        let (outcome, detail) = match (end, self.head) {
            (Ok(head), _) => (head.outcome(), None),
            (Err(broken), Some(head)) if !head.is_success() => {
                (head.outcome(), Some(broken.detail))
            }
            (Err(broken), _) => (AttemptOutcome::Failed(broken.failure), Some(broken.detail)),
        };
        SendReport {
            elapsed: ended.saturating_duration_since(started),
            timing: watch.read((started, ended), self.head_seen, may_have_arrived),
            response_body: self.body,
            detail,
            may_have_arrived,
            ..SendReport::of(outcome)
        }
    }
}

impl ResponseHead {
    fn of(response: &Response<Incoming>) -> Self {
        let retry_after = response.headers().get(header::RETRY_AFTER);
        let retry_after = retry_after.and_then(|value| RetryAfter::parse(value.to_str().ok()?));
        Self { status: response.status().as_u16(), retry_after }
    }

    fn is_success(self) -> bool {
        (200..300).contains(&self.status)
    }

    fn outcome(self) -> AttemptOutcome {
        AttemptOutcome::Answered { status: self.status, retry_after: self.retry_after }
    }
}

fn as_http(outbound: HttpOutboundRequest) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::new(outbound.body));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = outbound.url;
    *request.headers_mut() = outbound.headers;
    for name in FRAMING_HEADERS {
        request.headers_mut().remove(name);
    }
    request
}

/// Builds the client of one destination.
fn client<B>(config: HttpSenderConfig, last_words: LastTlsError) -> Client<TimedConnector, B>
where
    B: Body<Data: Send> + Send,
{
    let guarded = GuardedConnector::new(config.policy, config.resolver).with_proxy(config.proxy);
    let header_bytes_max = RESPONSE_HEADER_BYTES_MAX as usize;
    Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .timer(TokioTimer::new())
        .pool_idle_timeout(POOL_IDLE_TIMEOUT)
        .pool_max_idle_per_host(config.pool_idle_max)
        .http1_max_buf_size(header_bytes_max)
        .http2_max_header_list_size(RESPONSE_HEADER_BYTES_MAX)
        .http2_keep_alive_interval(HTTP2_PING_INTERVAL)
        .http2_keep_alive_timeout(HTTP2_PING_TIMEOUT)
        .set_host(true)
        // Lets the pool take another connection if the one it chose turns out to be closed.
        // It never sends twice. Read in hyper-util 0.1.21 and hyper 1.12.0: the client tries again
        // only if the connection was used before and hyper hands the request back, and hyper hands
        // back only a request that still lies in the connection's queue (`Envelope::drop`, and
        // `try_recv` in `proto/h1/dispatch.rs`). Taking it out of the queue is the step before
        // writing its first byte, for HTTP/1 (`poll_msg`) as for HTTP/2 (`ClientTask::poll`); from
        // then on every error is final. Without this, each destination that closes idle
        // connections would fail an attempt now and then though nothing was sent.
        .retry_canceled_requests(true)
        .build(TimedConnector { inner: HttpsConnector::from((guarded, config.tls)), last_words })
}

/// Bounds the time in which a connection is opened, TLS included.
#[derive(Debug, Clone)]
struct TimedConnector {
    inner: HttpsConnector<GuardedConnector>,
    last_words: LastTlsError,
}

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Stream = MonitoredStream<MaybeHttpsStream<GuardedStream>>;

impl Service<Uri> for TimedConnector {
    type Response = Stream;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Stream, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let opening = timeout(OPEN_TIMEOUT, self.inner.call(uri));
        let last_words = self.last_words.clone();
        let opened_for = Stopwatch::of_attempt();
        Box::pin(async move {
            let opened = opening.await;
            let stream = opened
                .unwrap_or_else(|_| Err(ConnectError::Timeout { after: OPEN_TIMEOUT }.into()))?;
            opened_for.opened();
            Ok(MonitoredStream { stream, last_words, opened_for })
        })
    }
}
