//! The accept loop, with limits per address and timeouts for every stage of a connection.

use std::{
    collections::HashMap,
    convert::Infallible,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, PoisonError, atomic::Ordering},
    time::{Duration, Instant},
};

use axum::{Router, body::Body};
use futures_util::FutureExt as _;
use http::{HeaderValue, Method, Response, StatusCode};
use http_body_util::{Either as EitherBody, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use surehook_core::access::ClientAddress;
use surehook_guard::address::address_bucket;
use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    sync::Semaphore,
};
use tokio_util::{either::Either, sync::CancellationToken, task::TaskTracker};
use tower::ServiceExt as _;

use crate::{
    ServerState,
    body::body_timeout,
    problem::Problem,
    receive, router,
    timeouts::{TimedBody, TimedStream},
    tls::ListenerTls,
};

const HEAD_BYTES_MAX: usize = 32 * 1024;
/// Pause after `accept` failed, for example because no file descriptors are left.
const ACCEPT_ERROR_PAUSE: Duration = Duration::from_millis(50);

/// While `accept` fails, the reason is logged this often.
const ACCEPT_ERROR_LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Connections waiting to be accepted. The usual 128 overflow when a provider sends a burst, and a
/// sender whose SYN is dropped waits a second before it retries.
const LISTEN_BACKLOG: u32 = 4096;

/// The timeout of requests that wait for an attempt or for an upload, which take up to ten minutes and
/// have timeouts of their own.
const LONG_REQUEST_TIMEOUT: Duration = Duration::from_secs(11 * 60);

type ServerResponse = Response<EitherBody<Full<bytes::Bytes>, Body>>;

pub fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // Without this, a restart would fail while old connections are in TIME_WAIT.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(LISTEN_BACKLOG)
}

/// Serves until `stop`, then gives running requests `grace` to finish. With `tls`, connections must use
/// it.
pub async fn serve(
    listener: TcpListener,
    tls: Option<Arc<ListenerTls>>,
    server: Arc<ServerState>,
    stop: CancellationToken,
    grace: Duration,
) {
    if !server.engine.is_only_node() {
        tokio::spawn(Arc::clone(&server).follow_token_changes(stop.clone()));
    }
    let router = router::build_router(Arc::clone(&server));
    let handler = Arc::new(RequestHandler { server: Arc::clone(&server), router, tls });
    let permits = Arc::new(Semaphore::new(server.limits.connections_max));
    let counts = Arc::new(ConnectionCounts::default());
    let connections = TaskTracker::new();
    let mut logged_at = None::<Instant>;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => break,
        };
        let (stream, remote) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                if logged_at.is_none_or(|at| at.elapsed() >= ACCEPT_ERROR_LOG_INTERVAL) {
                    tracing::warn!(%error, "could not accept a connection");
                    logged_at = Some(Instant::now());
                }
                tokio::time::sleep(ACCEPT_ERROR_PAUSE).await;
                continue;
            }
        };
        // Beyond a limit the connection is closed at once: cheaper than keeping it waiting.
        let Ok(permit) = Arc::clone(&permits).try_acquire_owned() else { continue };
        let Some(guard) =
            counts.acquire(address_bucket(remote.ip()), server.limits.connections_per_address_max)
        else {
            continue;
        };
        let connection =
            serve_connection(stream, remote.ip(), Arc::clone(&handler), stop.child_token());
        connections.spawn(async move {
            connection.await;
            drop((permit, guard));
        });
    }
    match server.frozen.is_cancelled() {
        true => drop(tokio::spawn(answer_frozen(listener))),
        false => drop(listener),
    }
    connections.close();
    if tokio::time::timeout(grace, connections.wait()).await.is_err() {
        tracing::warn!(
            open = connections.len(),
            "closing connections that did not finish within the grace period"
        );
    }
}

/// Connections that are answered at a time while the process is frozen.
const FROZEN_CONNECTIONS_MAX: usize = 1024;
/// How long such a connection may take.
const FROZEN_TIMEOUT: Duration = Duration::from_secs(10);
/// When senders should try again: a migration needs some seconds to be completed.
const FROZEN_RETRY_SECS: u64 = 5;

/// Answers everything but the check of liveness with 503, until the process ends.
async fn answer_frozen(listener: TcpListener) {
    let permits = Arc::new(Semaphore::new(FROZEN_CONNECTIONS_MAX));
    loop {
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_ERROR_PAUSE).await;
            continue;
        };
        tokio::spawn(async move {
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .max_buf_size(HEAD_BYTES_MAX)
                .serve_connection(TokioIo::new(stream), service_fn(refuse_frozen));
            let _ended_or_late = tokio::time::timeout(FROZEN_TIMEOUT, connection).await;
            drop(permit);
        });
    }
}

async fn refuse_frozen(
    request: hyper::Request<Incoming>,
) -> Result<Response<Full<bytes::Bytes>>, Infallible> {
    if request.uri().path() == "/livez" {
        return Ok(Response::new(Full::from("ok\n")));
    }
    let detail = "The data of this gateway is being moved. Try again in a few seconds.";
    let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, "frozen", detail);
    Ok(receive::problem_response(&problem.retry_after(FROZEN_RETRY_SECS).close()))
}

/// Routes each request to [`receive`] or to the axum router.
struct RequestHandler {
    server: Arc<ServerState>,
    /// Handles every path outside `/in/`.
    router: Router,
    tls: Option<Arc<ListenerTls>>,
}

/// The sender at the other end of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) address: Arc<str>,
    /// The address under which limits per address count it.
    pub(crate) bucket: IpAddr,
}

/// Serves one connection. `stop` is a child token of its own: polling one shared token would make the
/// cores contend for it.
async fn serve_connection(
    stream: TcpStream,
    remote: IpAddr,
    handler: Arc<RequestHandler>,
    stop: CancellationToken,
) {
    // Small responses must not be delayed by Nagle's algorithm.
    let _best_effort = stream.set_nodelay(true);
    let head_timeout = handler.server.limits.head_timeout;
    let stream = match &handler.tls {
        None => Either::Left(stream),
        Some(tls) => match tls.accept(stream, head_timeout).await {
            Ok(stream) => Either::Right(Box::new(stream)),
            Err(error) => {
                tracing::debug!(%error, "connection without a TLS handshake");
                return;
            }
        },
    };
    let stream = TimedStream::new(stream, handler.server.limits.write_timeout);
    let peer = Peer { address: remote.to_string().into(), bucket: address_bucket(remote) };
    let service =
        service_fn(move |request| handler.respond(request, &peer).map(Ok::<_, Infallible>));
    // `max_headers` is not set: even setting hyper's default of 100 makes it allocate per request.
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(head_timeout)
        // A sender may close its half of the connection and still wait for the response.
        .half_close(true)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let result = tokio::select! {
        biased;
        result = connection.as_mut() => result,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, "connection ended with an error");
    }
}

impl RequestHandler {
    /// Answers a request. hyper moves the returned future for every request, so the state that the
    /// receive path does not need is boxed.
    fn respond(
        self: &Arc<Self>,
        mut request: hyper::Request<Incoming>,
        peer: &Peer,
    ) -> impl Future<Output = ServerResponse> + use<> {
        if receive::is_receive_path(request.uri().path()) && is_supported(request.method()) {
            let timeout = self.server.limits.request_timeout;
            let received = receive::receive(Arc::clone(&self.server), request, peer.clone());
            return tokio::time::timeout(timeout, received)
                .map(move |received| received.unwrap_or_else(|_| timed_out_response(timeout)))
                .map(|response| response.map(EitherBody::Left))
                .left_future();
        }
        request.extensions_mut().insert(ClientAddress(Arc::clone(&peer.address)));
        if self.tls.is_some() {
            // As a proxy would say it: cookies are marked `Secure`, and links begin with `https`.
            request.headers_mut().insert("x-forwarded-proto", HeaderValue::from_static("https"));
        }
        Arc::clone(self).route(request).boxed().right_future()
    }

    async fn route(self: Arc<Self>, request: hyper::Request<Incoming>) -> ServerResponse {
        if !is_supported(request.method()) {
            let problem = Problem::method_not_allowed("GET, POST, PUT, DELETE").close();
            return receive::problem_response(&problem).map(EitherBody::Left);
        }
        let limits = &self.server.limits;
        let is_long = is_long_request(request.uri().path());
        let timeout = if is_long { LONG_REQUEST_TIMEOUT } else { limits.request_timeout };
        // The API reads its bodies within the same time, and answers before it reads them.
        let is_api = request.uri().path().starts_with("/api/");
        let (parts, body) = request.into_parts();
        let (body, is_late) = match is_api {
            true => (Body::new(body), None),
            false => {
                let (body, is_late) = TimedBody::new(body, limits.body_timeout);
                (Body::new(body), Some(is_late))
            }
        };
        let request = http::Request::from_parts(parts, body);
        let result = tokio::time::timeout(timeout, self.router.clone().oneshot(request)).await;
        if is_late.is_some_and(|is_late| is_late.load(Ordering::Relaxed)) {
            let problem = body_timeout(limits.body_timeout);
            return receive::problem_response(&problem).map(EitherBody::Left);
        }
        match result {
            Ok(Ok(response)) => response.map(EitherBody::Right),
            Ok(Err(never)) => match never {},
            Err(_) => timed_out_response(timeout).map(EitherBody::Left),
        }
    }
}

/// Whether the request waits for an attempt (`probe`) or an upload.
fn is_long_request(path: &str) -> bool {
    path == "/api/v1/media" || path.ends_with("/probe")
}

fn timed_out_response(timeout: Duration) -> Response<Full<bytes::Bytes>> {
    let detail = format!(
        "The request was not finished within {} s. It may have taken effect: repeat it with the same id.",
        timeout.as_secs()
    );
    let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, "request_timeout", detail);
    receive::problem_response(&problem.retry_after(1).close())
}

/// Whether the method may reach a handler. CONNECT and TRACE must not even reach the router.
fn is_supported(method: &Method) -> bool {
    matches!(
        *method,
        Method::GET
            | Method::HEAD
            | Method::POST
            | Method::PUT
            | Method::DELETE
            | Method::PATCH
            | Method::OPTIONS
    )
}

/// Number of open connections per IPv4 address and IPv6 /64 network.
#[derive(Debug, Default)]
struct ConnectionCounts(Mutex<HashMap<IpAddr, usize>>);

/// Counts one open connection of an address bucket until dropped.
struct ConnectionGuard {
    counts: Arc<ConnectionCounts>,
    bucket: IpAddr,
}

impl ConnectionCounts {
    fn acquire(self: &Arc<Self>, bucket: IpAddr, max: usize) -> Option<ConnectionGuard> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = open.entry(bucket).or_default();
        if *count >= max {
            return None;
        }
        *count += 1;
        Some(ConnectionGuard { counts: Arc::clone(self), bucket })
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        let mut open = self.counts.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = open.get_mut(&self.bucket) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.bucket);
            }
        }
    }
}
