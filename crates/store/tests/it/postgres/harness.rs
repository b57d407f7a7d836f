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
use tokio_postgres::{Client, NoTls};

static PROJECTS: AtomicU32 = AtomicU32::new(0);

/// A project that is removed with the test.
pub(crate) struct PostgresHarness {
    pub(crate) options: PostgresOptions,
}

impl PostgresHarness {
    pub(crate) fn new() -> Self {
        let number = PROJECTS.fetch_add(1, Ordering::Relaxed);
        let url = shared_url().expect("a test without its server is skipped before");
        let mut options = PostgresOptions::new(
            format!("{url}postgres"),
            SecretKey::parse(&"0a".repeat(32)).unwrap(),
        );
        options.project = format!("test_{}_{number}", std::process::id());
        // Many tests share two processors.
        options.statement_timeout = Duration::from_secs(30);
        options.accept_unsafe_server = true;
        Self { options }
    }

    /// A connection of its own, in the schema of the project.
    pub(crate) async fn client(&self) -> Client {
        let (client, connection) = tokio_postgres::connect(&self.options.url, NoTls).await.unwrap();
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
        self.client().await.batch_execute(&clock).await.unwrap();
        store
    }

    /// A history makes thousands of round trips.
    fn random_cases(&self) -> u32 {
        8
    }
}
