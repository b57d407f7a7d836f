//! A gateway inside the test process, on a real socket and a real store, with a clock that the test
//! controls.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::Method;
use serde_json::Value;
use surehook_core::{
    access::{ApiToken, Role},
    health::HealthPolicy,
    idempotency::KeyLimits,
};
use surehook_engine::{
    Engine, EngineParts, NodeIdentity, programs::AllowedPrograms, system::SystemRng,
};
use surehook_guard::{address::AddressPolicy, connect::SystemResolver};
use surehook_messaging::media::Bucket;
use surehook_server::{ServerLimits, ServerState, hash_token, server};
use surehook_store::{OpenError, SqliteOptions, SqliteStore};
use surehook_types::{
    rng::new_id,
    time::{Clock, MachineTime, Timestamp},
};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::{
    WAIT_LIMIT,
    client::{Client, HttpResponse},
    eventually,
    gateway::TOKEN,
};

/// A clock that stands still until it is started.
#[derive(Debug)]
struct FakeClock {
    /// The right time in Unix milliseconds, before the time since `running_since` is added.
    base_ms: AtomicI64,
    /// How much the wall clock is off, in milliseconds. The other clocks of the machine are right.
    wall_clock_error_ms: AtomicI64,
    /// Start of the time that is added to `base_ms`; `None` while the clock stands still.
    running_since: Mutex<Option<Instant>>,
}

impl FakeClock {
    fn right_time(&self) -> Timestamp {
        let base = Timestamp::from_millis(self.base_ms.load(Ordering::Relaxed));
        base + self.running_since.lock().unwrap().map_or(Duration::ZERO, |since| since.elapsed())
    }
}

impl Clock for FakeClock {
    fn now(&self) -> Timestamp {
        let right = self.right_time().as_millis();
        Timestamp::from_millis(right + self.wall_clock_error_ms.load(Ordering::Relaxed))
    }

    fn elapsed(&self) -> Duration {
        self.right_time().since(Timestamp::default())
    }

    fn machine(&self) -> Option<MachineTime> {
        Some(MachineTime { boot: "test".to_owned(), uptime: self.elapsed() })
    }
}

pub(crate) struct FakeClockGateway {
    clock: Arc<FakeClock>,
    address: SocketAddr,
    client: Client,
    stop: CancellationToken,
    engine: Arc<Engine>,
    folder: TempDir,
}

impl Drop for FakeClockGateway {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl FakeClockGateway {
    /// Starts a gateway with the clock at this Unix time in seconds.
    pub(crate) async fn start(seconds: i64) -> Self {
        Self::with_bucket(seconds, None).await
    }

    /// Like [`Self::start`], with a media bucket.
    pub(crate) async fn with_bucket(seconds: i64, bucket: Option<Bucket>) -> Self {
        let clock = Arc::new(FakeClock {
            base_ms: AtomicI64::new(seconds * 1000),
            wall_clock_error_ms: AtomicI64::new(0),
            running_since: Mutex::default(),
        });
        Self::start_in(tempfile::tempdir().unwrap(), clock, bucket).await
    }

    async fn start_in(folder: TempDir, clock: Arc<FakeClock>, bucket: Option<Bucket>) -> Self {
        let options = SqliteOptions::new(folder.path().join("data"));
        // The previous gateway may not have released the folder yet.
        let store = eventually(WAIT_LIMIT, || async {
            match SqliteStore::open(&options, clock.now()) {
                Err(OpenError::Locked(_)) => None,
                opened => Some(opened.unwrap()),
            }
        });
        let store = Arc::new(store.await);
        let engine = Engine::start(EngineParts {
            store,
            clock: Arc::<FakeClock>::clone(&clock),
            rng: Arc::new(SystemRng),
            addresses: AddressPolicy::new(vec!["127.0.0.0/8".parse().unwrap()]),
            programs: AllowedPrograms::default(),
            resolver: Arc::new(SystemResolver),
            env: Arc::new(|_| None),
            allow_env: surehook_engine::variables::AllowedVariables::default(),
            bucket,
            public_url: None,
            event_retention: Duration::from_secs(30 * 86_400),
            lane_bytes_max: 1 << 26,
            quarantine_bytes_max: 1 << 26,
            idempotency_limits: KeyLimits::default(),
            sockets_max: 1000,
            stuck_after: Duration::from_secs(300),
            node: NodeIdentity { name: "test".to_owned(), address: None },
            health: HealthPolicy::default(),
            alerts: surehook_core::alert::AlertRules::default(),
            otlp: None,
        });
        let engine = engine.await.unwrap();
        let token = ApiToken {
            id: new_id(&SystemRng, clock.now()),
            hash: hash_token(TOKEN),
            name: None,
            role: Role::Admin,
            created_at: clock.now(),
            expires_at: None,
            namespaces: None,
            urls: None,
            session: None,
        };
        engine.store().add_token(token.clone()).await.unwrap();
        let listener = server::listen((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let limits = ServerLimits::default();
        let app = ServerState::new(Arc::clone(&engine), limits, vec![token], stop.clone());
        tokio::spawn(server::serve(listener, None, app, stop.clone(), Duration::from_secs(1)));
        Self { clock, address, client: Client::new(), stop, engine, folder }
    }

    /// Stops the gateway and starts another one on its data, `seconds` later, with a wall clock that is
    /// off by `error_seconds`.
    pub(crate) async fn restart(self, seconds: i64, error_seconds: i64) -> Self {
        self.stop.cancel();
        self.engine.stop(Duration::from_secs(1)).await;
        let mut stopped = self;
        let folder = std::mem::replace(&mut stopped.folder, tempfile::tempdir().unwrap());
        let clock = Arc::clone(&stopped.clock);
        drop(stopped);
        clock.base_ms.fetch_add(seconds * 1000, Ordering::Relaxed);
        clock.wall_clock_error_ms.store(error_seconds * 1000, Ordering::Relaxed);
        Self::start_in(folder, clock, None).await
    }

    /// Sets the wall clock wrong by this much, or right again.
    pub(crate) fn set_clock_error(&self, seconds: i64) {
        self.clock.wall_clock_error_ms.store(seconds * 1000, Ordering::Relaxed);
    }

    /// Lets the clock run from where it is.
    pub(crate) fn run_clock(&self) {
        *self.clock.running_since.lock().unwrap() = Some(Instant::now());
    }

    pub(crate) fn set_clock(&self, seconds: i64) {
        self.clock.base_ms.store(seconds * 1000, Ordering::Relaxed);
    }

    /// Sets the clock and lets it run from there.
    pub(crate) fn run_clock_from(&self, seconds: i64) {
        *self.clock.running_since.lock().unwrap() = Some(Instant::now());
        self.set_clock(seconds);
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Sends a request without a token.
    pub(crate) async fn send(
        &self,
        method: Method,
        target: &str,
        headers: &[(&str, &[u8])],
        body: impl Into<Bytes>,
    ) -> HttpResponse {
        let url = format!("http://{}{target}", self.address);
        self.client.send(method, &url, headers, body).await.unwrap()
    }

    /// Calls the API as admin; `path` follows `/api/v1`.
    pub(crate) async fn api(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> HttpResponse {
        let bearer = format!("Bearer {TOKEN}");
        let headers: [(&str, &[u8]); 2] =
            [("authorization", bearer.as_bytes()), ("content-type", b"application/json")];
        let body = body.map(Value::to_string).unwrap_or_default();
        self.send(method, &format!("/api/v1{path}"), &headers, body).await
    }
}
