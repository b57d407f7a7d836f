//! An engine with one source, the built-in destination and a route between them.

use std::{
    io,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use http::HeaderMap;
use surehook_core::{
    health::HealthPolicy,
    idempotency::KeyLimits,
    store::{
        AdminStore as _, ConfigChange, DeliveryFilter, DeliveryRow, DeliveryStore as _, PageRequest,
    },
};
use surehook_engine::{
    ConfigChangeError, Engine, EngineParts, NodeIdentity,
    body_memory::BodyReservation,
    ingest::{InboundRequest, IngestError, ReceiveOutcome},
    programs::AllowedPrograms,
    system::{SystemClock, SystemRng},
    variables::AllowedVariables,
};
use surehook_guard::{address::AddressPolicy, connect::Resolver};
use surehook_store::{
    SqliteOptions, SqliteStore,
    conformance::{FaultyStore, GrantedOwnership},
};
use surehook_types::{
    ids::{DestinationId, RouteId, SourceId},
    rng::{Rng, new_id},
    time::{Clock as _, Timestamp},
};
use tempfile::TempDir;

/// How long a test waits for what must happen.
const WAIT_LIMIT: Duration = Duration::from_secs(30);

pub(crate) struct TestEngine {
    pub(crate) engine: Arc<Engine>,
    pub(crate) store: Arc<FaultyStore>,
    pub(crate) destination: DestinationId,
    _folder: TempDir,
}

impl TestEngine {
    pub(crate) async fn start() -> Self {
        Self::start_with(GrantedOwnership::default()).await
    }

    /// Starts an engine in a process that gets only this.
    pub(crate) async fn start_with(ownership: GrantedOwnership) -> Self {
        Self::start_to("builtin:inbox", ownership, Arc::default()).await
    }

    /// Starts an engine that delivers to this URL; every name is unknown.
    pub(crate) async fn start_to(
        url: &str,
        ownership: GrantedOwnership,
        rng: Arc<PanickingRng>,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = SqliteOptions::new(folder.path());
        let store = SqliteStore::open(&options, SystemClock.now()).unwrap();
        let store = Arc::new(FaultyStore::new(Arc::new(store)));
        store.grant(ownership);
        let engine = start_engine(Arc::clone(&store), rng).await;
        let destination = new_id(&SystemRng, SystemClock.now());
        engine
            .change::<_, ConfigChangeError>(|_| Ok((changes(destination, url), ())))
            .await
            .unwrap();
        Self { engine, store, destination, _folder: folder }
    }

    /// Receives a request with this idempotency key.
    pub(crate) async fn receive(&self, key: &str) -> Result<ReceiveOutcome, IngestError> {
        receive(&self.engine, key).await
    }

    /// Makes the engine load the configuration.
    pub(crate) async fn reload(&self) {
        self.engine.change::<_, ConfigChangeError>(|_| Ok((Vec::new(), ()))).await.unwrap();
    }

    /// All deliveries, newest first.
    pub(crate) async fn deliveries(&self) -> Vec<DeliveryRow> {
        let page = PageRequest { after: None, limit: 100 };
        self.store.list_deliveries(DeliveryFilter::default(), page).await.unwrap().rows
    }

    /// Waits until every delivery has ended.
    pub(crate) async fn wait_until_all_ended(&self) -> Vec<DeliveryRow> {
        wait_for(async || {
            let deliveries = self.deliveries().await;
            let have_ended = deliveries.iter().all(|delivery| delivery.status.is_final());
            (have_ended && !deliveries.is_empty()).then_some(deliveries)
        })
        .await
    }

    pub(crate) async fn is_paused_in_the_store(&self) -> bool {
        let saved = self.store.load_lanes().await.unwrap();
        saved.get(&self.destination).is_some_and(|lane| lane.paused.is_some())
    }
}

/// Makes an engine receive a request with this idempotency key.
pub(crate) async fn receive(
    engine: &Arc<Engine>,
    key: &str,
) -> Result<ReceiveOutcome, IngestError> {
    receive_body(engine, key, format!(r#"{{"order":"{key}"}}"#)).await
}

/// Makes an engine receive an event with this ordering key and a number of its own.
pub(crate) async fn receive_ordered(
    engine: &Arc<Engine>,
    key: &str,
    number: usize,
) -> Result<ReceiveOutcome, IngestError> {
    let body = format!(r#"{{"key":"{key}","number":{number}}}"#);
    receive_body(engine, &number.to_string(), body).await
}

async fn receive_body(
    engine: &Arc<Engine>,
    key: &str,
    body: String,
) -> Result<ReceiveOutcome, IngestError> {
    let mut headers = HeaderMap::new();
    headers.insert("idempotency-key", key.parse().unwrap());
    let mut request = InboundRequest {
        path: String::new(),
        query: None,
        headers,
        body: Bytes::from(body),
        remote: "192.0.2.1".into(),
        memory: BodyReservation::default(),
    };
    engine.receive(&engine.source("shop").unwrap(), &mut request).await
}

/// Random numbers that panic once when they are armed: at the jitter of the next retry.
#[derive(Debug, Default)]
pub(crate) struct PanickingRng {
    is_armed: AtomicBool,
}

impl PanickingRng {
    pub(crate) fn arm(&self) {
        self.is_armed.store(true, Ordering::SeqCst);
    }
}

impl Rng for PanickingRng {
    fn next_u128(&self) -> u128 {
        SystemRng.next_u128()
    }

    fn next_f64(&self) -> f64 {
        assert!(!self.is_armed.swap(false, Ordering::SeqCst), "a test asked for this panic");
        SystemRng.next_f64()
    }
}

#[derive(Debug)]
struct UnknownNames;

#[async_trait]
impl Resolver for UnknownNames {
    async fn resolve(&self, _host: &str) -> io::Result<Vec<IpAddr>> {
        Err(io::Error::other("a test knows no names"))
    }
}

pub(crate) async fn start_engine(store: Arc<FaultyStore>, rng: Arc<PanickingRng>) -> Arc<Engine> {
    let parts = EngineParts {
        store,
        clock: Arc::new(SystemClock),
        rng,
        addresses: AddressPolicy::new(vec!["127.0.0.0/8".parse().unwrap()]),
        programs: AllowedPrograms::default(),
        resolver: Arc::new(UnknownNames),
        env: Arc::new(|_| None),
        allow_env: AllowedVariables::default(),
        bucket: None,
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
    };
    Engine::start(parts).await.unwrap()
}

fn changes(destination: DestinationId, url: &str) -> Vec<ConfigChange> {
    let now: Timestamp = SystemClock.now();
    let route: RouteId = new_id(&SystemRng, now);
    let destination_spec = serde_json::json!({ "name": "inbox", "url": url });
    let route_spec = serde_json::json!({ "from": "shop", "to": "inbox" });
    vec![
        put_source("shop"),
        ConfigChange::PutDestination(
            destination,
            serde_json::from_value(destination_spec).unwrap(),
        ),
        ConfigChange::PutRoute(route, serde_json::from_value(route_spec).unwrap()),
    ]
}

/// The change that creates a source.
pub(crate) fn put_source(name: &str) -> ConfigChange {
    let spec = serde_json::json!({ "name": name, "verify": "none" });
    let id: SourceId = new_id(&SystemRng, SystemClock.now());
    ConfigChange::PutSource(id, serde_json::from_value(spec).unwrap())
}

/// Waits until `find` finds something.
pub(crate) async fn wait_for<T>(find: impl AsyncFn() -> Option<T>) -> T {
    let found = async {
        loop {
            if let Some(found) = find().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(WAIT_LIMIT, found).await.expect("it did not happen in time")
}
