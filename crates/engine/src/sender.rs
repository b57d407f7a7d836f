//! Makes one HTTP request to a destination and reports the result. All outgoing HTTP passes through here.
//!
//! Each destination has its own [`HttpSender`] with connections of its own, opened and checked by the
//! [`GuardedConnector`]. Idle ones are dropped after [`POOL_IDLE_TIMEOUT`], so that a changed DNS record
//! takes effect. Everything a destination can cost us is bounded: time, headers, bytes read and stored.
//! Redirects are not followed; a 3xx is a response like any other.
//!
//! One call to [`HttpSender::send`] writes the request at most once (see the comment in `build_client`).
//! A status other than 2xx counts as soon as it is there; a 2xx counts when its body is complete or
//! exceeds [`RESPONSE_BYTES_MAX`]: a destination that breaks off before may have crashed before it was
//! done, and one delivery too many is better than one too few.

pub(crate) mod exchange_error;
#[cfg(test)]
mod tests;

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName};
use http::uri::Scheme;
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::ClientConfig;
use surehook_guard::{
    address::AddressPolicy,
    connect::{
        CONNECT_TIMEOUT, ConnectError, GuardedConnector, RESOLVE_TIMEOUT, Resolver,
        proxy::PROXY_AUTHENTICATION,
    },
    proxy::{Proxy, ProxyKind},
    stopwatch::{ResponseHeadTime, Stopwatch},
    timing::AttemptTiming,
};
use surehook_retry::{AttemptFailure, AttemptOutcome, RetryAfter};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};
use tower::Service;

use self::exchange_error::ExchangeError;
use crate::lock::lock;
use crate::sockets::{SocketBudget, SocketPermit};

/// How long a connection may stay unused, and so how long an old address of a name is called.
pub const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// Bytes of a response body that are stored for people to read.
pub const RESPONSE_BYTES_KEPT: usize = 16 * 1024;

/// Bytes of a response body that are read, so that the connection can be reused. Beyond that the
/// connection is closed, which costs less than reading an endless response.
pub const RESPONSE_BYTES_MAX: usize = 1024 * 1024;

/// The limit on the headers of a response. Their number is limited too, by hyper's default of 100.
const RESPONSE_HEADER_BYTES_MAX: u32 = 32 * 1024;

/// Interim (1xx) responses to one request. Nothing else would bound an endless sequence of them.
const INTERIM_RESPONSES_MAX: usize = 256;

/// The timeout of opening a connection: DNS, TCP, and as much again for a proxy and TLS. The pool may open
/// a connection in the background after its attempt has ended, so the timeout of the attempt is not
/// enough.
pub(crate) const OPEN_TIMEOUT: Duration =
    CONNECT_TIMEOUT.saturating_mul(2).saturating_add(RESOLVE_TIMEOUT);

/// Ping interval and timeout of a busy HTTP/2 connection. Without them a silent connection would fail one
/// attempt after another, since an HTTP/2 attempt that times out does not close the connection.
const HTTP2_PING_INTERVAL: Duration = Duration::from_secs(10);
const HTTP2_PING_TIMEOUT: Duration = Duration::from_secs(10);

/// Headers that frame the message. The client makes them; taken from settings they could contradict the
/// body and smuggle a second request.
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

/// The result of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SendReport {
    pub outcome: AttemptOutcome,
    /// From the call to the outcome.
    pub elapsed: Duration,
    pub timing: AttemptTiming,
    /// The first [`RESPONSE_BYTES_KEPT`] bytes of the response body; more only after
    /// [`HttpSender::send_for_full_response`].
    pub response_body: Vec<u8>,
    /// For a failure, a short text for people. Contains no secrets and no error texts of the operating
    /// system.
    pub detail: Option<String>,
    /// Whether the destination may have received the request. Only `false` is certain.
    pub may_have_arrived: bool,
    /// The message id that the channel assigned.
    pub sent_id: Option<String>,
}

impl SendReport {
    /// A report with nothing but the outcome, for an attempt without HTTP.
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

    /// The report of an attempt that failed before anything was sent.
    pub(crate) fn failed(failure: AttemptFailure, detail: String) -> Self {
        Self { detail: Some(detail), ..Self::of(AttemptOutcome::Failed(failure)) }
    }
}

/// Dependencies and settings of a sender.
#[derive(Debug, Clone)]
pub struct HttpSenderConfig {
    pub policy: Arc<AddressPolicy>,
    pub resolver: Arc<dyn Resolver>,
    /// Usually [`crate::tls::TrustStore::default_config`], shared by all senders.
    pub tls: Arc<ClientConfig>,
    pub proxy: Option<Proxy>,
    pub sockets: SocketBudget,
    /// Unused connections kept. More than the destination's concurrency is waste.
    pub pool_idle_max: usize,
}

/// Sends to one destination. `B` is the request body: in memory, unless it is a media file.
#[derive(Debug, Clone)]
pub struct HttpSender<B = Full<Bytes>> {
    client: Client<TimedConnector, B>,
    forward_proxy: Option<ForwardProxy>,
    last_tls_error: LastTlsError,
    sockets: SocketBudget,
}

/// An HTTP proxy, which forwards plain HTTP requests instead of opening a tunnel.
#[derive(Debug, Clone)]
struct ForwardProxy {
    authorization: Option<HeaderValue>,
}

impl HttpSender {
    /// Makes one attempt, which ends after `time_limit` at the latest. A failure is an outcome, not an error.
    pub async fn send(&self, request: HttpOutboundRequest, time_limit: Duration) -> SendReport {
        self.call(build_request(request), time_limit).await
    }

    /// The same, and keeps all of the response body that is read.
    pub(crate) async fn send_for_full_response(
        &self,
        request: HttpOutboundRequest,
        time_limit: Duration,
    ) -> SendReport {
        self.exchange_within(build_request(request), time_limit, RESPONSE_BYTES_MAX).await
    }

    /// Makes a GET request.
    pub async fn fetch(&self, url: Uri, time_limit: Duration) -> SendReport {
        let mut request = Request::new(Full::default());
        *request.uri_mut() = url;
        self.call(request, time_limit).await
    }
}

impl<B> HttpSender<B>
where
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + Unpin + 'static,
{
    pub fn new(config: HttpSenderConfig) -> Self {
        let forward_proxy = match &config.proxy {
            Some(proxy) if proxy.kind == ProxyKind::Http => {
                Some(ForwardProxy { authorization: proxy.authorization() })
            }
            Some(_) | None => None,
        };
        let last_tls_error = LastTlsError::default();
        let sockets = config.sockets.clone();
        let client = build_client(config, last_tls_error.clone());
        Self { client, forward_proxy, last_tls_error, sockets }
    }

    /// Makes the given request unchanged.
    pub(crate) async fn call(&self, request: Request<B>, time_limit: Duration) -> SendReport {
        self.exchange_within(request, time_limit, RESPONSE_BYTES_KEPT).await
    }

    async fn exchange_within(
        &self,
        request: Request<B>,
        time_limit: Duration,
        kept_max: usize,
    ) -> SendReport {
        let started = Instant::now();
        let stopwatch = Stopwatch::default();
        let mut response =
            PartialResponse { head: None, head_time: None, body: Vec::new(), kept_max };
        let end = match timeout(time_limit, self.exchange(request, &stopwatch, &mut response)).await
        {
            Ok(end) => end.map_err(|error| error.or_tls_error(self.last_tls_error.since(started))),
            Err(_) => Err(ExchangeError::new(
                AttemptFailure::Timeout,
                format!("no complete response within {time_limit:?}"),
            )),
        };
        response.into_report(end, &stopwatch, started, Instant::now())
    }

    async fn exchange(
        &self,
        mut request: Request<B>,
        stopwatch: &Stopwatch,
        partial: &mut PartialResponse,
    ) -> Result<ResponseHead, ExchangeError> {
        // Requests over HTTPS are tunnelled; the proxy does not see them.
        let is_plain = request.uri().scheme() == Some(&Scheme::HTTP);
        let forward_proxy = self.forward_proxy.as_ref().filter(|_| is_plain);
        if let Some(authorization) = forward_proxy.and_then(|proxy| proxy.authorization.clone()) {
            request.headers_mut().insert(header::PROXY_AUTHORIZATION, authorization);
        }
        if self.sockets.is_scarce() {
            // HTTP/2 ignores it: there all requests share a connection.
            request.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        let interim = InterimCounter::count_of(&mut request);
        let response = tokio::select! {
            response = stopwatch.watch(self.client.request(request)) => response?,
            // Dropping the request closes the connection.
            () = interim.exceeded.notified() => {
                let detail = format!(
                    "more than {INTERIM_RESPONSES_MAX} interim responses (1xx) and no final one"
                );
                return Err(ExchangeError::new(AttemptFailure::Protocol, detail));
            }
        };
        partial.head_time = Some(stopwatch.record_head(response.extensions().get()));
        if forward_proxy.is_some() && response.status() == StatusCode::PROXY_AUTHENTICATION_REQUIRED
        {
            // The proxy has not forwarded the request.
            let refused = ExchangeError::new(AttemptFailure::ProxyRefused, PROXY_AUTHENTICATION);
            return Err(ExchangeError { may_be_accepted: false, ..refused });
        }
        let head = ResponseHead::of(&response);
        partial.head = Some(head);
        partial.read_body(response.into_body()).await?;
        Ok(head)
    }
}

/// Counts the interim responses to one HTTP/1 request.
#[derive(Debug, Default)]
struct InterimCounter {
    seen: AtomicUsize,
    exceeded: Notify,
}

impl InterimCounter {
    fn count_of<B>(request: &mut Request<B>) -> Arc<Self> {
        let counter = Arc::new(Self::default());
        let counting = Arc::clone(&counter);
        hyper::ext::on_informational(request, move |_| {
            if counting.seen.fetch_add(1, Ordering::Relaxed) == INTERIM_RESPONSES_MAX {
                counting.exceeded.notify_one();
            }
        });
        counter
    }
}

/// The part of a response that has arrived. Filled in place, so that it survives a timeout.
#[derive(Debug)]
struct PartialResponse {
    head: Option<ResponseHead>,
    head_time: Option<ResponseHeadTime>,
    body: Vec<u8>,
    /// The limit on `body`.
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
            // Trailers are ignored.
            let Ok(data) = frame?.into_data() else { continue };
            let kept = data.len().min(self.kept_max.saturating_sub(self.body.len()));
            self.body.extend_from_slice(&data[..kept]);
            read += data.len();
            if read >= RESPONSE_BYTES_MAX {
                break;
            }
        }
        Ok(())
    }

    /// The report, given how the exchange ended.
    fn into_report(
        self,
        end: Result<ResponseHead, ExchangeError>,
        stopwatch: &Stopwatch,
        started: Instant,
        ended: Instant,
    ) -> SendReport {
        let may_have_arrived = match &end {
            Ok(_) => true,
            Err(error) => self.head.is_some() || error.may_be_accepted,
        };
        let (outcome, detail) = match (end, self.head) {
            (Ok(head), _) => (head.outcome(), None),
            (Err(error), Some(head)) if !head.is_success() => (head.outcome(), Some(error.detail)),
            (Err(error), _) => (AttemptOutcome::Failed(error.failure), Some(error.detail)),
        };
        SendReport {
            elapsed: ended.saturating_duration_since(started),
            timing: stopwatch.read(started, ended, self.head_time, may_have_arrived),
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

fn build_request(outbound: HttpOutboundRequest) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::new(outbound.body));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = outbound.url;
    *request.headers_mut() = outbound.headers;
    for name in FRAMING_HEADERS {
        request.headers_mut().remove(name);
    }
    request
}

fn build_client<B>(
    config: HttpSenderConfig,
    last_tls_error: LastTlsError,
) -> Client<TimedConnector, B>
where
    B: Body<Data: Send> + Send,
{
    let is_http_proxy = config.proxy.as_ref().is_some_and(|proxy| proxy.kind == ProxyKind::Http);
    let guarded = GuardedConnector::new(config.policy, config.resolver).with_proxy(config.proxy);
    let inner = HttpsConnector::from((guarded, config.tls));
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
        // Lets the pool take another connection if the chosen one turns out to be closed. It never
        // sends twice. Verified in hyper-util 0.1.21 and hyper 1.12.0: the client retries only if the
        // connection was used before and hyper returns the request, and hyper returns only a request
        // that is still in the connection's queue (`Envelope::drop`, and `try_recv` in
        // `proto/h1/dispatch.rs`). Taking it out of the queue is the step before writing its first
        // byte, for HTTP/1 (`poll_msg`) and HTTP/2 (`ClientTask::poll`); from then on every error is
        // final. Without this, destinations that close idle connections would fail an attempt now and
        // then although nothing was sent.
        .retry_canceled_requests(true)
        .build(TimedConnector { inner, is_http_proxy, last_tls_error, sockets: config.sockets })
}

/// Limits the number of connections, and the time of opening one, TLS included.
#[derive(Debug, Clone)]
struct TimedConnector {
    inner: HttpsConnector<GuardedConnector>,
    is_http_proxy: bool,
    last_tls_error: LastTlsError,
    sockets: SocketBudget,
}

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;
type ClientStream = MonitoredStream<MaybeHttpsStream<TokioIo<TcpStream>>>;

impl Service<Uri> for TimedConnector {
    type Response = ClientStream;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<ClientStream, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let socket = match self.sockets.take(1) {
            Ok(socket) => socket,
            Err(error) => return Box::pin(std::future::ready(Err(error.into()))),
        };
        let is_forwarded = self.is_http_proxy && uri.scheme() == Some(&Scheme::HTTP);
        let opening = timeout(OPEN_TIMEOUT, self.inner.call(uri));
        let last_tls_error = self.last_tls_error.clone();
        let opened_for = Stopwatch::of_attempt();
        Box::pin(async move {
            let opened = opening.await;
            let stream = opened
                .unwrap_or_else(|_| Err(ConnectError::Timeout { after: OPEN_TIMEOUT }.into()))?;
            opened_for.record_open();
            Ok(MonitoredStream {
                stream,
                is_forwarded,
                last_tls_error,
                opened_for,
                _socket: socket,
            })
        })
    }
}

/// The latest TLS error on any connection of one sender.
///
/// With TLS 1.3 a server refuses our certificate after the handshake, by an alert. By then the connection
/// belongs to a task of the HTTP library, which may read the alert before it gets the request; the
/// request then fails with "connection closed" and no reason.
#[derive(Debug, Clone, Default)]
struct LastTlsError(Arc<Mutex<Option<(Instant, rustls::Error)>>>);

impl LastTlsError {
    fn record(&self, error: &io::Error) {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        if let Some(error) = inner {
            *lock(&self.0) = Some((Instant::now(), error.clone()));
        }
    }

    /// The latest error, if it is not older than `started`.
    fn since(&self, started: Instant) -> Option<rustls::Error> {
        lock(&self.0).as_ref().filter(|(at, _)| *at >= started).map(|(_, error)| error.clone())
    }
}

/// A connection that records TLS errors, and knows which attempt it was opened for.
#[derive(Debug)]
struct MonitoredStream<S> {
    stream: S,
    /// Leads to a proxy that forwards requests and so needs absolute URLs.
    is_forwarded: bool,
    last_tls_error: LastTlsError,
    /// Every response on the connection carries it.
    opened_for: Stopwatch,
    _socket: SocketPermit,
}

impl<S> MonitoredStream<S> {
    fn record<T>(&self, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if let Poll::Ready(Err(error)) = &polled {
            self.last_tls_error.record(error);
        }
        polled
    }
}

impl<S: Connection> Connection for MonitoredStream<S> {
    fn connected(&self) -> Connected {
        self.stream.connected().proxy(self.is_forwarded).extra(self.opened_for.clone())
    }
}

impl<S: Read + Unpin> Read for MonitoredStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_read(cx, buf);
        self.record(polled)
    }
}

impl<S: Write + Unpin> Write for MonitoredStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.record(polled)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(cx);
        self.record(polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.record(polled)
    }
}
