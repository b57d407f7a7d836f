//! PostgreSQL stores, each in a schema of its own on the server of the test run.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use surehook_core::store::Store;
use surehook_store::{
    PostgresOptions, PostgresStore, conformance::StoreHarness, sqlite::SecretKey,
};
use surehook_test_servers::shared_url;
use surehook_types::time::Timestamp;
use tokio_postgres::{Client, Config, NoTls};

static PROJECTS: AtomicU32 = AtomicU32::new(0);

/// Deliveries that are in a list and should not be, or the reverse. The order of the columns is that of the
/// keys.
const WRONGLY_LISTED: &str = "
    WITH listed AS (
        SELECT 'due' AS list, delivery_id AS id, destination, due_at AS place, NULL AS key FROM due
        UNION ALL SELECT 'in_flight', delivery_id, destination, lane_epoch, NULL FROM in_flight
        UNION ALL SELECT 'ordered', delivery_id, destination, order_seq, order_key FROM ordering_queue
        UNION ALL SELECT 'dead', id, destination, NULL, NULL FROM deliveries WHERE dead_group IS NOT NULL
    ), expected AS (
        SELECT 'due' AS list, id, destination, due_at AS place, NULL AS key FROM deliveries
         WHERE due_at IS NOT NULL
        UNION ALL SELECT 'in_flight', id, destination, lane_epoch, NULL FROM deliveries
         WHERE lane_epoch IS NOT NULL
        UNION ALL SELECT 'ordered', id, destination, order_seq, order_key FROM deliveries
         WHERE order_key IS NOT NULL AND ended_at IS NULL
        UNION ALL SELECT 'dead', id, destination, NULL, NULL FROM deliveries WHERE state = 'dead'
    )
    SELECT list FROM (TABLE listed EXCEPT ALL TABLE expected) AS too_many
    UNION ALL SELECT list FROM (TABLE expected EXCEPT ALL TABLE listed) AS missing";

/// A project that is removed with the test.
pub(crate) struct PostgresHarness {
    pub(crate) options: PostgresOptions,
    /// The server itself; a store may reach it through a pooler.
    url: String,
}

impl PostgresHarness {
    pub(crate) fn new() -> Self {
        let number = PROJECTS.fetch_add(1, Ordering::Relaxed);
        let url = shared_url().expect("a test without its server is skipped before");
        let url = format!("{url}postgres");
        let mut options =
            PostgresOptions::new(url.clone(), SecretKey::parse(&"0a".repeat(32)).unwrap());
        options.project = format!("test_{}_{number}", std::process::id());
        // Many tests share two processors.
        options.statement_timeout = Duration::from_secs(30);
        options.accept_unsafe_server = true;
        Self { options, url }
    }

    /// A connection of its own, in the schema of the project.
    pub(crate) async fn client(&self) -> Client {
        self.client_named("test").await
    }

    /// The same under a name by which the server shows it.
    pub(crate) async fn client_named(&self, name: &str) -> Client {
        let mut config: Config = self.url.parse().unwrap();
        config.application_name(name);
        let (client, connection) = config.connect(NoTls).await.unwrap();
        tokio::spawn(connection);
        let schema = format!("SET search_path = surehook_{}", self.options.project);
        client.batch_execute(&schema).await.unwrap();
        client
    }
}

#[async_trait]
impl StoreHarness for PostgresHarness {
    async fn open(&self, now: Timestamp) -> Arc<dyn Store> {
        let store = Arc::new(PostgresStore::open(&self.options, now).await.unwrap());
        // The clock of the database is that of the test, and the lease of the earlier node has ended.
        let clock = format!(
            "CREATE OR REPLACE FUNCTION surehook_now() RETURNS bigint LANGUAGE sql VOLATILE AS 'SELECT {}::bigint';
             UPDATE nodes SET lease_until = 0",
            now.as_millis()
        );
        let client = self.client().await;
        client.batch_execute(&clock).await.unwrap();
        let wrong = client.query(WRONGLY_LISTED, &[]).await.unwrap();
        let lists: Vec<&str> = wrong.iter().map(|row| row.get(0)).collect();
        assert!(lists.is_empty(), "lists that differ from the deliveries: {lists:?}");
        store
    }

    /// A history makes thousands of round trips.
    fn random_cases(&self) -> u32 {
        8
    }
}
