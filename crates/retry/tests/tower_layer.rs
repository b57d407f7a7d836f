//! The tower layer around an HTTP client, against a real server.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use axum::{Router, extract::State, http::StatusCode, routing::post};
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use surehook_retry::{
    AttemptClass, EveryErrorClassifier, HttpClassifier, Jitter, Retrier, RetryBudget,
    RetryBudgetConfig, RetryEvent, RetryLayer, RetryPolicy, RetrySummary, StopReason,
};
use tokio::{net::TcpListener, sync::oneshot};
use tower::{Layer, Service, ServiceExt, service_fn};

/// Milliseconds instead of seconds, so that the real server need not be waited for.
fn fast(attempts: u32) -> RetryPolicy {
    RetryPolicy::builder()
        .max_attempts(attempts)
        .initial_delay(Duration::from_millis(1))
        .max_delay(Duration::from_millis(4))
        .jitter(Jitter::Full)
        .build()
        .unwrap()
}

#[derive(Clone, Default)]
struct ServerState {
    requests: Arc<AtomicU32>,
    bodies: Arc<Mutex<Vec<Bytes>>>,
    /// How many requests are answered with 503.
    failures: u32,
}

async fn answer(State(state): State<ServerState>, body: Bytes) -> (StatusCode, &'static str) {
    state.bodies.lock().unwrap().push(body);
    if state.requests.fetch_add(1, Ordering::SeqCst) < state.failures {
        (StatusCode::SERVICE_UNAVAILABLE, "busy")
    } else {
        (StatusCode::OK, "done")
    }
}

/// A server that is busy for its first requests; it ends when the sender is dropped.
async fn start_server(failures: u32) -> (SocketAddr, ServerState, oneshot::Sender<()>) {
    let state = ServerState { failures, ..ServerState::default() };
    let router = Router::new().route("/", post(answer)).with_state(state.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel();
    let shutdown = async {
        let _dropped = stopped.await;
    };
    tokio::spawn(async move {
        axum::serve(listener, router).with_graceful_shutdown(shutdown).await.unwrap();
    });
    (address, state, stop)
}

fn post_to(address: SocketAddr, body: &'static str) -> Request<Full<Bytes>> {
    let body = Full::new(Bytes::from_static(body.as_bytes()));
    Request::post(format!("http://{address}/")).body(body).unwrap()
}

/// Records how each request ended.
fn observed<C>(retrier: Retrier<C>) -> (Retrier<C>, Arc<Mutex<Vec<RetrySummary>>>) {
    let ends = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&ends);
    let retrier = retrier.observer(move |event| {
        if let RetryEvent::Stopped(summary) = event {
            log.lock().unwrap().push(*summary);
        }
    });
    (retrier, ends)
}

#[tokio::test]
async fn request_is_sent_again_with_its_body_until_the_server_accepts_it() {
    let (address, state, _stop) = start_server(2).await;
    let (retrier, ends) = observed(Retrier::new(fast(5), HttpClassifier::default()));
    let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    let mut service = RetryLayer::new(retrier).layer(client);

    let response = service.ready().await.unwrap().call(post_to(address, "order 1")).await.unwrap();

    assert_eq!(response.status(), StatusCode::OK);
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, "done");
    assert_eq!(*state.bodies.lock().unwrap(), ["order 1"; 3]);
    let ends = ends.lock().unwrap();
    assert_eq!((ends[0].attempts, ends[0].stop), (3, StopReason::Succeeded));
}

#[tokio::test]
async fn last_response_is_returned_when_the_server_stays_busy() {
    let (address, state, _stop) = start_server(u32::MAX).await;
    let (retrier, ends) = observed(Retrier::new(fast(3), HttpClassifier::default()));
    let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    let service = RetryLayer::new(retrier).layer(client);

    let response = service.oneshot(post_to(address, "order 2")).await.unwrap();

    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(state.requests.load(Ordering::SeqCst), 3);
    let ends = ends.lock().unwrap();
    assert_eq!((ends[0].attempts, ends[0].stop), (3, StopReason::MaxAttempts));
}

#[tokio::test]
async fn refused_connection_is_an_error_with_its_attempts() {
    let (address, _, stop) = start_server(0).await;
    drop(stop);
    let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    // The server has ended when it no longer takes connections.
    while tokio::net::TcpStream::connect(address).await.is_ok() {}
    let service = RetryLayer::new(Retrier::new(fast(3), HttpClassifier::default())).layer(client);

    let error = service.oneshot(post_to(address, "order 3")).await.unwrap_err();

    assert_eq!((error.summary.attempts, error.summary.stop), (3, StopReason::MaxAttempts));
    assert!(error.last.as_ref().unwrap().is_connect());
    assert!(error.to_string().starts_with("gave up after 3 attempts"), "{error}");
}

#[tokio::test]
async fn concurrent_requests_to_a_dead_server_stay_within_the_budget() {
    let (address, state, _stop) = start_server(u32::MAX).await;
    let window = Duration::from_secs(3600);
    let config = RetryBudgetConfig { ratio: 0.1, min_per_second: 0, window };
    let retrier = Retrier::new(fast(10), HttpClassifier::default())
        .budget(Arc::new(RetryBudget::new(config).unwrap()));
    let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    let service = RetryLayer::new(retrier).layer(client);

    let calls = (0..100).map(|_| tokio::spawn(service.clone().oneshot(post_to(address, "x"))));
    for call in calls.collect::<Vec<_>>() {
        assert_eq!(call.await.unwrap().unwrap().status(), StatusCode::SERVICE_UNAVAILABLE);
    }

    let requests = state.requests.load(Ordering::SeqCst);
    assert!((100..=110).contains(&requests), "{requests} requests for 100 calls");
}

/// A service that must be polled before each call, as a concurrency limit is; its clones are not ready.
struct StrictService {
    is_ready: bool,
    calls: Arc<AtomicU32>,
}

impl Clone for StrictService {
    fn clone(&self) -> Self {
        Self { is_ready: false, calls: Arc::clone(&self.calls) }
    }
}

impl Service<u32> for StrictService {
    type Response = u32;
    type Error = &'static str;
    type Future = std::future::Ready<Result<u32, &'static str>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
        self.is_ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: u32) -> Self::Future {
        assert!(self.is_ready, "called without being ready");
        self.is_ready = false;
        let calls = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        std::future::ready(if calls < 4 { Err("busy") } else { Ok(request) })
    }
}

#[tokio::test(start_paused = true)]
async fn service_is_ready_before_every_attempt() {
    let strict = StrictService { is_ready: false, calls: Arc::default() };
    let calls = Arc::clone(&strict.calls);
    let service =
        RetryLayer::new(Retrier::new(RetryPolicy::short(), EveryErrorClassifier)).layer(strict);
    assert_eq!(service.oneshot(7).await, Ok(7));
    assert_eq!(calls.load(Ordering::SeqCst), 4);
}

#[tokio::test(start_paused = true)]
async fn deadline_ends_a_hanging_request_with_an_error() {
    let hang = service_fn(|()| std::future::pending::<Result<(), Infallible>>());
    let retrier =
        Retrier::new(RetryPolicy::short(), EveryErrorClassifier).deadline(Duration::from_secs(9));
    let error = RetryLayer::new(retrier).layer(hang).oneshot(()).await.unwrap_err();
    assert_eq!(error.summary.stop, StopReason::DeadlineReached);
    assert_eq!(error.summary.elapsed, Duration::from_secs(9));
}

#[tokio::test(start_paused = true)]
async fn closure_classifies_the_responses_of_a_service() {
    let count = Arc::new(AtomicU32::new(0));
    let counter = service_fn(move |()| {
        let number = count.fetch_add(1, Ordering::SeqCst);
        async move { Ok::<_, Infallible>(number) }
    });
    let enough = |result: &Result<u32, Infallible>| match result {
        Ok(0..=2) => AttemptClass::TRANSIENT,
        Ok(_) => AttemptClass::SUCCESS,
        Err(error) => match *error {},
    };
    let service = RetryLayer::new(Retrier::new(RetryPolicy::short(), enough)).layer(counter);
    assert_eq!(service.oneshot(()).await.unwrap(), 3);
}
