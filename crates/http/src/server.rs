//! The accept loop, with the limits and time-outs that a ready-made one does not have.

use std::{
    collections::HashMap,
    convert::Infallible,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{Router, body::Body};
use futures_util::FutureExt as _;
use http::{Method, Response};
use http_body_util::{Either, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    sync::Semaphore,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::ServiceExt as _;

use crate::{App, door, front, problem::Problem};

/// The head of a request must fit into this.
const HEAD_BYTES_MAX: usize = 32 * 1024;
/// The pause after `accept` failed, as it does when the process has no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Connections that may wait to be accepted. The usual 128 overflow when a provider sends a burst,
/// and each sender that finds no place waits a second before it tries again.
const BACKLOG: u32 = 4096;

type Answer = Response<Either<Full<bytes::Bytes>, Body>>;

/// Begins to listen.
pub fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A restart must not wait for connections of the run before to be forgotten.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Serves until `stop`, then lets the requests that are being answered finish within `grace`.
pub async fn serve(listener: TcpListener, app: Arc<App>, stop: CancellationToken, grace: Duration) {
    let router = front::everything(Arc::clone(&app));
    let house = Arc::new(House { app: Arc::clone(&app), router });
    let places = Arc::new(Semaphore::new(app.limits.connections_max));
    let addresses = Arc::new(Addresses::default());
    let connections = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => break,
        };
        let (stream, remote) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "could not accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        // Beyond the limit a connection is closed at once: cheaper than to let it wait.
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else { continue };
        let Some(guest) = addresses.admit(remote.ip(), app.limits.connections_per_address_max)
        else {
            continue;
        };
        let connection =
            serve_connection(stream, remote.ip(), Arc::clone(&house), stop.child_token());
        connections.spawn(async move {
            connection.await;
            drop((place, guest));
        });
    }
    drop(listener);
    connections.close();
    if tokio::time::timeout(grace, connections.wait()).await.is_err() {
        tracing::warn!(open = connections.len(), "closing connections that did not finish in time");
    }
}

/// All that answers.
struct House {
    app: Arc<App>,
    /// For what is not the door.
    router: Router,
}

/// Serves one connection. `stop` is its own: asking one that all share takes the processors turns.
async fn serve_connection(
    stream: TcpStream,
    remote: IpAddr,
    house: Arc<House>,
    stop: CancellationToken,
) {
    // Small answers should not wait for more of them.
    let _best_effort = stream.set_nodelay(true);
    let head_timeout = house.app.limits.head_timeout;
    let remote: Arc<str> = remote.to_string().into();
    let service =
        service_fn(move |request| respond(&house, request, &remote).map(Ok::<_, Infallible>));
    // The bound on the number of headers is hyper's own, 100: setting it, even to the same, makes
    // hyper take memory from the heap for every request.
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(head_timeout)
        // A sender that has nothing more to send may close its half and still wait for the answer.
        .half_close(true)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        biased;
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended badly");
    }
}

/// Answers a request. hyper copies what this gives into its place for every request, so what the door
/// does not need of it lies elsewhere.
fn respond(
    house: &Arc<House>,
    request: hyper::Request<Incoming>,
    remote: &Arc<str>,
) -> impl Future<Output = Answer> + use<> {
    if door::is_door(request.uri().path()) && !is_odd(request.method()) {
        let received = door::receive(Arc::clone(&house.app), request, Arc::clone(remote));
        return received.map(|answer| answer.map(Either::Left)).left_future();
    }
    respond_elsewhere(Arc::clone(house), request).boxed().right_future()
}

async fn respond_elsewhere(house: Arc<House>, request: hyper::Request<Incoming>) -> Answer {
    if is_odd(request.method()) {
        let problem = Problem::method_not_allowed("GET, POST, PUT, DELETE").close();
        return door::refusal(&problem).map(Either::Left);
    }
    match house.router.clone().oneshot(request.map(Body::new)).await {
        Ok(response) => response.map(Either::Right),
        Err(never) => match never {},
    }
}

/// Methods that nothing here knows; CONNECT and TRACE must not even reach a router.
fn is_odd(method: &Method) -> bool {
    !matches!(
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

/// How many connections each address has open.
#[derive(Debug, Default)]
struct Addresses(Mutex<HashMap<IpAddr, usize>>);

/// One connection of an address; gives its place back when dropped.
struct Guest {
    addresses: Arc<Addresses>,
    ip: IpAddr,
}

impl Addresses {
    fn admit(self: &Arc<Self>, ip: IpAddr, max: usize) -> Option<Guest> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = open.entry(ip).or_default();
        if *count >= max {
            return None;
        }
        *count += 1;
        Some(Guest { addresses: Arc::clone(self), ip })
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let mut open = self.addresses.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = open.get_mut(&self.ip) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.ip);
            }
        }
    }
}
