//! Many clients send the same events to several nodes at the same time.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use async_trait::async_trait;
use surehook_core::{
    event::{NewEvent, Payload},
    store::{AdmitResult, Store},
};
use surehook_store::conformance::{StoreFixture, StoreHarness};
use surehook_types::time::Timestamp;
use tokio::task::JoinSet;

use super::harness::PostgresHarness;

const NODES: usize = 3;
const CLIENTS: usize = 50;
const KEYS: usize = 200;

pub(super) async fn run(harness: impl StoreHarness + 'static) {
    let harness = Arc::new(harness);
    let fixture = Arc::new(StoreFixture::new(SharedHarness(Arc::clone(&harness))).await);
    let mut nodes: Vec<Arc<dyn Store>> = vec![fixture.store()];
    while nodes.len() < NODES {
        nodes.push(harness.open(fixture.now).await);
    }
    let payloads: Arc<[Payload]> = (0..KEYS).map(|_| fixture.new_event().payload).collect();
    let accepted = Arc::new(AtomicUsize::new(0));
    let mut clients = JoinSet::new();
    for client in 0..CLIENTS {
        let (fixture, accepted) = (Arc::clone(&fixture), Arc::clone(&accepted));
        let payloads = Arc::clone(&payloads);
        let node = Arc::clone(&nodes[client % NODES]);
        clients.spawn(async move {
            for number in 0..KEYS {
                // Each client begins elsewhere, so that batches have the keys in different orders.
                let key = (number + client * 7) % KEYS;
                let event = fixture.event_with_key(&format!("k{key}"));
                let event = NewEvent { payload: payloads[key].clone(), ..event };
                match &node.admit(Arc::new([event])).await.unwrap()[..] {
                    [AdmitResult::Accepted { .. }] => {
                        accepted.fetch_add(1, Ordering::Relaxed);
                    }
                    [AdmitResult::Duplicate(_)] => {}
                    other => panic!("{other:?}"),
                }
            }
        });
    }
    clients.join_all().await;
    assert_eq!(accepted.load(Ordering::Relaxed), KEYS);
    let counts = fixture.counts().await;
    assert_eq!(counts.events, u64::try_from(KEYS).unwrap());
    assert_eq!(counts.duplicates, u64::try_from((CLIENTS - 1) * KEYS).unwrap());
}

/// A harness that several stores are opened by.
struct SharedHarness<H>(Arc<H>);

#[async_trait]
impl<H: StoreHarness> StoreHarness for SharedHarness<H> {
    async fn open(&self, now: Timestamp) -> Arc<dyn Store> {
        self.0.open(now).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn racing_clients_of_three_nodes_have_each_key_accepted_once() {
    run(PostgresHarness::new()).await;
}
