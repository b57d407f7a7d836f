//! Handlers that fail, panic or lose their client, and stores that fail.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{Extension, Router, body::Body, routing::post};
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use surehook_dedup::{
    Claim, ClaimKey, ClaimRequest, ClaimToken, ClaimUpdate, CompletionRequest, DedupError,
    DedupLock, MemoryDedupLock,
};
use surehook_tower::{IdempotencyLayer, RequestClaim};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    sync::Semaphore,
};
use tower::{Layer as _, ServiceExt as _, service_fn};

use super::support::{HandlerProbe, TestRequest, TestServer, stores};

/// A server whose handler answers with these statuses in turn (0 is a panic), and with its operation and
/// whether it is resumed.
async fn failing_server(layer: IdempotencyLayer, statuses: &'static [u16]) -> TestServer {
    let tries = Arc::new(AtomicUsize::new(0));
    let handler = move |Extension(claim): Extension<RequestClaim>| async move {
        let status = statuses[tries.fetch_add(1, Ordering::SeqCst)];
        assert!(status != 0, "the handler panics");
        let operation = u128::from_be_bytes(claim.operation.id);
        (StatusCode::from_u16(status).unwrap(), format!("{operation:x} {}", claim.is_resumed))
    };
    TestServer::start(Router::new().route("/orders", post(handler)).layer(layer)).await
}

fn operation(body: &str) -> &str {
    body.split(' ').next().unwrap()
}

#[tokio::test]
async fn request_runs_again_after_a_server_error_as_the_same_operation() {
    for store in stores() {
        let layer = IdempotencyLayer::new(Arc::clone(&store.lock));
        let server = failing_server(layer, &[500, 503, 200]).await;
        let request = TestRequest::keyed("unlucky");
        let mut answers = Vec::new();
        for expected in [500, 503, 200, 200] {
            let answer = server.send(&request).await;
            assert_eq!(answer.status, expected, "{}: {answer:?}", store.name);
            answers.push(answer);
        }
        let first = operation(&answers[0].body);
        assert!(answers.iter().all(|answer| operation(&answer.body) == first), "{answers:?}");
        assert!(answers[0].body.ends_with("false") && answers[1].body.ends_with("true"));
        assert!(answers[3].is_replayed(), "{}", store.name);
        // The key still belongs to this request.
        assert_eq!(server.send(&request.body("other")).await.status, 422);
    }
}

#[tokio::test]
async fn client_error_frees_the_key_unless_it_is_stored() {
    for store in stores() {
        let layer = IdempotencyLayer::new(Arc::clone(&store.lock));
        let server = failing_server(layer.clone(), &[400, 200]).await;
        let refused = server.send(&TestRequest::keyed("frees")).await;
        let corrected = server.send(&TestRequest::keyed("frees").body("corrected")).await;
        assert_eq!((refused.status, corrected.status), (400, 200), "{}", store.name);
        assert_ne!(operation(&refused.body), operation(&corrected.body));

        let server = failing_server(layer.store_client_errors(), &[400, 200]).await;
        let refused = server.send(&TestRequest::keyed("stores")).await;
        let copy = server.send(&TestRequest::keyed("stores")).await;
        assert_eq!((refused.status, copy.status, copy.is_replayed()), (400, 400, true));
    }
}

#[tokio::test]
async fn client_error_after_a_server_error_keeps_the_operation() {
    let [store, _] = stores();
    let layer = IdempotencyLayer::new(Arc::clone(&store.lock));
    let server = failing_server(layer, &[500, 400, 200]).await;
    let request = TestRequest::keyed("resumed");
    let mut operations = Vec::new();
    for _ in 0..3 {
        operations.push(operation(&server.send(&request).await.body).to_owned());
    }
    assert!(operations.iter().all(|other| *other == operations[0]), "{operations:?}");
}

#[tokio::test]
async fn request_runs_again_after_a_panic() {
    for store in stores() {
        let layer = IdempotencyLayer::new(Arc::clone(&store.lock));
        let server = failing_server(layer, &[0, 200]).await;
        let request = TestRequest::keyed("panics");
        assert!(server.try_send(&request).await.is_err(), "the connection is closed");
        let answer = server.send(&request).await;
        assert_eq!((answer.status, answer.body.ends_with("true")), (200, true), "{}", store.name);
    }
}

const RAW_REQUEST: &str =
    "POST /orders HTTP/1.1\r\nhost: x\r\nidempotency-key: gone\r\ncontent-length: 2\r\n\r\n{}";

#[tokio::test]
async fn handler_continues_after_its_client_disconnected() {
    for store in stores() {
        let probe = HandlerProbe::with_closed_gate();
        let layer = IdempotencyLayer::new(Arc::clone(&store.lock));
        let server = TestServer::counting(layer, &probe).await;
        let mut client = tokio::net::TcpStream::connect(server.address).await.unwrap();
        client.write_all(RAW_REQUEST.as_bytes()).await.unwrap();
        probe.wait_for_start().await;
        // The server notices the end of the connection and drops its future.
        client.shutdown().await.unwrap();
        assert_eq!(client.read(&mut [0]).await.unwrap(), 0, "closed by the server too");
        probe.open_gate();
        let copy = server.send(&TestRequest::keyed("gone")).await;
        assert!(copy.is_replayed(), "{}: {copy:?}", store.name);
        assert_eq!(probe.count(), 1, "{}", store.name);
    }
}

#[tokio::test]
async fn response_body_that_fails_is_not_stored() {
    let tries = Arc::new(AtomicUsize::new(0));
    let handler = move |_: Request<Body>| {
        let number = tries.fetch_add(1, Ordering::SeqCst);
        async move {
            let mut frames = vec![Ok(Frame::data(Bytes::from_static(b"half ")))];
            frames.push(match number {
                0 => Err(std::io::Error::other("the database went away")),
                _ => Ok(Frame::data(Bytes::from_static(b"whole"))),
            });
            let body = StreamBody::new(futures_util::stream::iter(frames));
            Ok::<_, Infallible>(Response::new(body))
        }
    };
    let layer = IdempotencyLayer::new(MemoryDedupLock::default());
    let service = layer.layer(service_fn(handler));
    let send = || async {
        let request = Request::post("/").header("idempotency-key", "k").body(Body::empty());
        let response = service.clone().oneshot(request.unwrap()).await.unwrap();
        response.into_body().collect().await.map(|body| body.to_bytes())
    };
    assert_eq!(send().await.unwrap_err().to_string(), "the database went away");
    assert_eq!(send().await.unwrap(), "half whole");
    assert_eq!(send().await.unwrap(), "half whole");
}

#[tokio::test]
async fn response_with_trailers_is_sent_whole_and_not_executed_again() {
    let tries = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&tries);
    let handler = move |_: Request<Body>| {
        counter.fetch_add(1, Ordering::SeqCst);
        async move {
            let trailers = http::HeaderMap::from_iter([(
                http::HeaderName::from_static("grpc-status"),
                http::HeaderValue::from_static("0"),
            )]);
            let frames = [
                Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"data"))),
                Ok(Frame::trailers(trailers)),
            ];
            let body = StreamBody::new(futures_util::stream::iter(frames));
            Ok::<_, Infallible>(Response::new(body))
        }
    };
    let service = IdempotencyLayer::new(MemoryDedupLock::default()).layer(service_fn(handler));
    let send = || async {
        let request = Request::post("/").header("idempotency-key", "k").body(Body::empty());
        let (parts, body) = service.clone().oneshot(request.unwrap()).await.unwrap().into_parts();
        (parts.status, body.collect().await.unwrap())
    };
    let (status, body) = send().await;
    assert_eq!(
        (status, &body.trailers().unwrap()["grpc-status"]),
        (StatusCode::OK, &"0".parse().unwrap())
    );
    assert_eq!(send().await.0, StatusCode::CONFLICT);
    assert_eq!(tries.load(Ordering::SeqCst), 1);
}

/// A store whose answers to claims are held back.
struct SlowStore {
    inner: Arc<MemoryDedupLock>,
    /// One permit for each claim that is granted and not yet answered.
    granted: Arc<Semaphore>,
    /// One permit for each answer that may be given.
    answers: Arc<Semaphore>,
}

#[async_trait::async_trait]
impl DedupLock for SlowStore {
    async fn claim(&self, request: ClaimRequest) -> Result<Claim, DedupError> {
        let claim = self.inner.claim(request).await;
        self.granted.add_permits(1);
        self.answers.acquire().await.unwrap().forget();
        claim
    }

    async fn extend(
        &self,
        key: &ClaimKey,
        token: ClaimToken,
        lease: Duration,
    ) -> Result<ClaimUpdate, DedupError> {
        self.inner.extend(key, token, lease).await
    }

    async fn complete(&self, request: CompletionRequest) -> Result<ClaimUpdate, DedupError> {
        self.inner.complete(request).await
    }

    async fn release(&self, key: &ClaimKey, token: ClaimToken) -> Result<ClaimUpdate, DedupError> {
        self.inner.release(key, token).await
    }
}

#[tokio::test]
async fn claim_granted_to_a_client_that_is_gone_is_released() {
    let granted = Arc::new(Semaphore::new(0));
    let answers = Arc::new(Semaphore::new(0));
    let store = SlowStore {
        inner: Arc::new(MemoryDedupLock::default()),
        granted: Arc::clone(&granted),
        answers: Arc::clone(&answers),
    };
    let probe = HandlerProbe::with_open_gate();
    // A duplicate waits less long than the lease lasts.
    let layer = IdempotencyLayer::new(store).lease(Duration::from_secs(3600));
    let server = TestServer::counting(layer, &probe).await;
    let mut client = tokio::net::TcpStream::connect(server.address).await.unwrap();
    client.write_all(RAW_REQUEST.as_bytes()).await.unwrap();
    granted.acquire().await.unwrap().forget();
    client.shutdown().await.unwrap();
    assert_eq!(client.read(&mut [0]).await.unwrap(), 0, "closed by the server too");
    answers.add_permits(100);
    let retry = server.send(&TestRequest::keyed("gone")).await;
    assert_eq!((retry.status, retry.is_replayed(), probe.count()), (201, false, 1), "{retry:?}");
}

/// A store that cannot be reached for a number of calls.
struct FailingStore {
    inner: MemoryDedupLock,
    failing_claims: AtomicUsize,
    failing_completions: AtomicUsize,
}

fn fail_first(calls: &AtomicUsize) -> Result<(), DedupError> {
    let left = calls.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
    left.map_or(Ok(()), |_| Err(DedupError::Unavailable("connection refused".to_owned())))
}

#[async_trait::async_trait]
impl DedupLock for FailingStore {
    async fn claim(&self, request: ClaimRequest) -> Result<Claim, DedupError> {
        fail_first(&self.failing_claims)?;
        self.inner.claim(request).await
    }

    async fn extend(
        &self,
        key: &ClaimKey,
        token: ClaimToken,
        lease: Duration,
    ) -> Result<ClaimUpdate, DedupError> {
        self.inner.extend(key, token, lease).await
    }

    async fn complete(&self, request: CompletionRequest) -> Result<ClaimUpdate, DedupError> {
        fail_first(&self.failing_completions)?;
        self.inner.complete(request).await
    }

    async fn release(&self, key: &ClaimKey, token: ClaimToken) -> Result<ClaimUpdate, DedupError> {
        self.inner.release(key, token).await
    }
}

#[tokio::test]
async fn nothing_runs_while_the_store_cannot_be_reached() {
    let store = FailingStore {
        inner: MemoryDedupLock::default(),
        failing_claims: AtomicUsize::new(1),
        failing_completions: AtomicUsize::new(2),
    };
    let probe = HandlerProbe::with_open_gate();
    let server = TestServer::counting(IdempotencyLayer::new(store), &probe).await;
    let request = TestRequest::keyed("k");
    let refused = server.send(&request).await;
    assert_eq!(refused.problem(), (503, "idempotency_store_unavailable".to_owned()));
    assert!(!refused.body.contains("connection refused"), "{refused:?}");
    assert_eq!((refused.headers["retry-after"].as_bytes(), probe.count()), (&b"5"[..], 0));
    // The response is stored although the store failed twice.
    assert_eq!(server.send(&request).await.status, 201);
    assert!(server.send(&request).await.is_replayed());
    assert_eq!(probe.count(), 1);
}
