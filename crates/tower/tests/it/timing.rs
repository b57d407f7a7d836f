//! Leases at exact times: the clock of the store and that of the runtime are one that only sleeping
//! tasks advance.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::body::Body;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use surehook_dedup::{
    Claim, ClaimRequest, Clock, DedupLock as _, MemoryDedupLock, MemoryLimits, ThreadRandom,
    Timestamp,
};
use surehook_tower::{IdempotencyLayer, IdempotencyService, RequestClaim};
use tokio::time::Instant;
use tower::{Layer as _, Service, ServiceExt as _, service_fn};

use super::support::HandlerProbe;

const LEASE: Duration = Duration::from_secs(10);

/// The time of the runtime.
#[derive(Debug)]
struct RuntimeClock(Instant);

impl Clock for RuntimeClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(1_800_000_000_000) + self.0.elapsed()
    }

    fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

fn store() -> Arc<MemoryDedupLock> {
    let clock = Arc::new(RuntimeClock(Instant::now()));
    let store =
        MemoryDedupLock::with_clock_and_rng(MemoryLimits::default(), clock, Arc::new(ThreadRandom));
    Arc::new(store)
}

/// A service whose handler takes `duration` and answers with its number and whether it is resumed.
fn slow_service(
    layer: &IdempotencyLayer,
    probe: &Arc<HandlerProbe>,
    duration: Duration,
) -> IdempotencyService<
    impl Service<
        Request<Body>,
        Response = Response<Body>,
        Error = Infallible,
        Future = impl Future<Output = Result<Response<Body>, Infallible>> + Send + 'static,
    > + Clone
    + Send
    + 'static,
> {
    let probe = Arc::clone(probe);
    layer.layer(service_fn(move |request: Request<Body>| {
        let probe = Arc::clone(&probe);
        async move {
            let number = probe.run().await;
            tokio::time::sleep(duration).await;
            let is_resumed = request.extensions().get::<RequestClaim>().unwrap().is_resumed;
            Ok(Response::new(Body::from(format!("{number} {is_resumed}"))))
        }
    }))
}

async fn send<S>(service: S) -> (StatusCode, Bytes)
where
    S: Service<
            Request<Body>,
            Response = Response<surehook_tower::IdempotentBody<Body>>,
            Error = Infallible,
        >,
{
    let request = Request::post("/").header("idempotency-key", "k").body(Body::empty()).unwrap();
    let (parts, body) = service.oneshot(request).await.unwrap().into_parts();
    (parts.status, body.collect().await.unwrap().to_bytes())
}

#[tokio::test(start_paused = true)]
async fn lease_is_extended_while_the_handler_runs() {
    let probe = HandlerProbe::with_open_gate();
    let layer = IdempotencyLayer::new(store()).lease(LEASE).wait(LEASE * 100);
    let service = slow_service(&layer, &probe, LEASE * 20);
    let first = tokio::spawn(send(service.clone()));
    probe.wait_for_start().await;
    let copy = send(service).await;
    assert_eq!(copy, first.await.unwrap());
    assert_eq!((copy.1, probe.count()), (Bytes::from("1 false"), 1));
}

#[tokio::test(start_paused = true)]
async fn copy_gives_up_at_the_end_of_its_wait() {
    let probe = HandlerProbe::with_open_gate();
    let wait = Duration::from_secs(3);
    let layer = IdempotencyLayer::new(store()).lease(LEASE).wait(wait);
    let service = slow_service(&layer, &probe, LEASE);
    let first = tokio::spawn(send(service.clone()));
    probe.wait_for_start().await;
    let began = Instant::now();
    assert_eq!(send(service).await.0, StatusCode::CONFLICT);
    assert_eq!(began.elapsed(), wait);
    assert_eq!(first.await.unwrap().0, StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn copy_runs_when_the_lease_of_a_dead_process_ends() {
    let store = store();
    let layer = IdempotencyLayer::new(Arc::clone(&store)).lease(LEASE).wait(LEASE * 2);
    // Finds out the key, and frees it.
    let (keys, mut found) = tokio::sync::mpsc::unbounded_channel();
    let refusing = layer.layer(service_fn(move |request: Request<Body>| {
        keys.send(request.extensions().get::<RequestClaim>().unwrap().key.clone()).unwrap();
        async { Ok(Response::builder().status(400).body(Body::empty()).unwrap()) }
    }));
    assert_eq!(send(refusing).await.0, StatusCode::BAD_REQUEST);
    let key = found.recv().await.unwrap();
    // A process that claims it and never comes back.
    let claim = ClaimRequest { key, fingerprint: None, lease: LEASE, ttl: LEASE * 10 };
    assert!(matches!(store.claim(claim).await.unwrap(), Claim::Claimed(_)));
    let probe = HandlerProbe::with_open_gate();
    let began = Instant::now();
    let answer = send(slow_service(&layer, &probe, Duration::ZERO)).await;
    assert_eq!(answer, (StatusCode::OK, Bytes::from("1 true")));
    assert!(began.elapsed() >= LEASE, "ran after {:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn response_is_forgotten_after_its_ttl() {
    let probe = HandlerProbe::with_open_gate();
    let ttl = Duration::from_secs(3600);
    let layer = IdempotencyLayer::new(store()).ttl(ttl);
    let service = slow_service(&layer, &probe, Duration::ZERO);
    assert_eq!(send(service.clone()).await.1, "1 false");
    tokio::time::sleep(ttl - Duration::from_secs(1)).await;
    assert_eq!(send(service.clone()).await.1, "1 false");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(send(service).await.1, "2 false");
}
