//! An engine with one source, the built-in destination and a route between them.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::HeaderMap;
use surehook_core::{
    idempotency::KeyLimits,
    store::{
        AdminStore as _, ConfigChange, DeliveryFilter, DeliveryRow, DeliveryStore as _, PageRequest,
    },
};
use surehook_engine::{
    ConfigChangeError, Engine, EngineParts,
    body_memory::BodyReservation,
    ingest::{InboundRequest, IngestError, ReceiveOutcome},
    programs::AllowedPrograms,
    system::{SystemClock, SystemRng},
    variables::AllowedVariables,
};
use surehook_guard::{address::AddressPolicy, connect::SystemResolver};
use surehook_store::{SqliteOptions, SqliteStore, conformance::FaultyStore};
use surehook_types::{
    ids::{DestinationId, RouteId, SourceId},
    rng::new_id,
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
        let folder = tempfile::tempdir().unwrap();
        let options = SqliteOptions::new(folder.path());
        let store = SqliteStore::open(&options, SystemClock.now()).unwrap();
        let store = Arc::new(FaultyStore::new(Arc::new(store)));
        let engine = start_engine(Arc::clone(&store)).await;
        let destination = new_id(&SystemRng, SystemClock.now());
        engine.change::<_, ConfigChangeError>(|_| Ok((changes(destination), ()))).await.unwrap();
        Self { engine, store, destination, _folder: folder }
    }

    /// Receives a request with this idempotency key.
    pub(crate) async fn receive(&self, key: &str) -> Result<ReceiveOutcome, IngestError> {
        let mut headers = HeaderMap::new();
        headers.insert("idempotency-key", key.parse().unwrap());
        let mut request = InboundRequest {
            path: String::new(),
            query: None,
            headers,
            body: Bytes::from(format!(r#"{{"order":"{key}"}}"#)),
            remote: "192.0.2.1".into(),
            memory: BodyReservation::default(),
        };
        self.engine.receive(&self.engine.source("shop").unwrap(), &mut request).await
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

async fn start_engine(store: Arc<FaultyStore>) -> Arc<Engine> {
    let parts = EngineParts {
        store,
        clock: Arc::new(SystemClock),
        rng: Arc::new(SystemRng),
        addresses: AddressPolicy::new(Vec::new()),
        programs: AllowedPrograms::default(),
        resolver: Arc::new(SystemResolver),
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
    };
    Engine::start(parts).await.unwrap()
}

fn changes(destination: DestinationId) -> Vec<ConfigChange> {
    let now: Timestamp = SystemClock.now();
    let route: RouteId = new_id(&SystemRng, now);
    let destination_spec = serde_json::json!({ "name": "inbox", "url": "builtin:inbox" });
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
