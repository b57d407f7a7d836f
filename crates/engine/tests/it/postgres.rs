//! Several engines on one PostgreSQL, each with a store of its own, as if each were a process.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use surehook_core::store::{ConfigChange, CoordinationStore as _, NodeLease};
use surehook_engine::{ConfigChangeError, Engine, system::SystemClock};
use surehook_store::{
    PostgresOptions, PostgresStore,
    conformance::{FaultyStore, GrantedOwnership, StoreFault::Refused},
    sqlite::SecretKey,
};
use surehook_test_servers::shared_url;
use surehook_types::{ids::NodeId, time::Clock as _};
use tokio_postgres::NoTls;

use crate::support::{start_engine, wait_for};

static PROJECTS: AtomicU32 = AtomicU32::new(0);

/// How long a node keeps its lanes without a renewal. In the database the lease is longer.
const LEASE: Duration = Duration::from_secs(3);

/// A process, as far as others can tell.
pub(crate) struct TestNode {
    pub(crate) engine: Arc<Engine>,
    faults: Arc<FaultyStore>,
    store: Arc<PostgresStore>,
}

pub(crate) struct PostgresNodes {
    options: PostgresOptions,
    pub(crate) nodes: Vec<TestNode>,
}

impl PostgresNodes {
    /// Starts nodes with this configuration; `None` if there is no server and tests may be skipped.
    pub(crate) async fn start(nodes: usize, changes: Vec<ConfigChange>) -> Option<Self> {
        let number = PROJECTS.fetch_add(1, Ordering::Relaxed);
        let key = SecretKey::parse(&"0a".repeat(32)).unwrap();
        let mut options = PostgresOptions::new(format!("{}postgres", shared_url()?), key);
        options.project = format!("engine_{}_{number}", std::process::id());
        options.statement_timeout = Duration::from_secs(30);
        options.accept_unsafe_server = true;
        let mut test = Self { options, nodes: Vec::new() };
        test.join().await;
        let change = |_: &_| Ok((changes.clone(), ()));
        test.nodes[0].engine.change::<_, ConfigChangeError>(change).await.unwrap();
        for _ in 1..nodes {
            test.join().await;
        }
        Some(test)
    }

    /// Starts a node, and waits until it knows the configuration.
    pub(crate) async fn join(&mut self) {
        let store = Arc::new(PostgresStore::open(&self.options, SystemClock.now()).await.unwrap());
        let faults = Arc::new(FaultyStore::new(Arc::<PostgresStore>::clone(&store)));
        let lease = NodeLease::For(LEASE);
        faults.grant(GrantedOwnership { lease, ..GrantedOwnership::default() });
        let engine = start_engine(Arc::clone(&faults), Arc::default()).await;
        self.nodes.push(TestNode { engine, faults, store });
    }

    /// The owners of the lanes of destinations with this many shards.
    pub(crate) async fn owners(&self, shards: u16) -> Vec<NodeId> {
        let report = self.nodes[0].store.load_nodes().await.unwrap();
        let lanes = report.lanes.iter().filter(|row| row.lane.shard.count == shards);
        lanes.filter_map(|row| row.owner).collect()
    }

    /// Takes a node that owns a lane out of the list.
    pub(crate) async fn take_owner(&mut self) -> TestNode {
        let position =
            wait_for(async || self.nodes.iter().position(|node| node.engine.owned_lanes() > 0));
        let position = position.await;
        self.nodes.remove(position)
    }

    /// Lets the lease of a node end: it cannot renew it, and then others find it ended as well.
    pub(crate) async fn lose(&self, node: &TestNode) {
        let id = node.engine.node_id();
        node.faults.fail_next("renew_node", [Refused; 1000]);
        wait_for(async || (!node.engine.has_lease()).then_some(())).await;
        let (client, connection) = tokio_postgres::connect(&self.options.url, NoTls).await.unwrap();
        tokio::spawn(connection);
        let schema = format!("SET search_path = surehook_{}", self.options.project);
        client.batch_execute(&schema).await.unwrap();
        let id = id.uuid();
        let end = format!("UPDATE nodes SET lease_until = 0 WHERE id = '\\x{}'", id.simple());
        client.batch_execute(&end).await.unwrap();
    }

    pub(crate) async fn stop(self) {
        for node in self.nodes {
            node.stop().await;
        }
    }
}

impl TestNode {
    /// Stops as on SIGTERM: gives its lanes to others first.
    pub(crate) async fn leave(self) {
        self.engine.leave(Duration::from_secs(10)).await;
        self.stop().await;
    }

    pub(crate) async fn stop(self) {
        self.engine.stop(Duration::from_secs(5)).await;
        self.store.close().await;
    }
}
