//! A node whose database another node has migrated to the next version: nodes are replaced one by one.

use std::sync::Arc;

use async_trait::async_trait;
use surehook_core::store::Store;
use surehook_store::{PostgresOpenError, PostgresStore, conformance::StoreHarness};
use surehook_types::time::Timestamp;

use crate::{harness::NOW, postgres::harness::PostgresHarness};

/// What a later version adds to each table: migrations only add (docs/operations/upgrade.md).
const NEXT_VERSION: &str = "
    DO $$
    DECLARE added record;
    BEGIN
        FOR added IN SELECT c.relname AS name FROM pg_class c
                      WHERE c.relkind = 'r' AND c.relname <> 'schema_version'
                        AND c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = current_schema())
        LOOP
            EXECUTE format('ALTER TABLE %I ADD COLUMN of_the_next_version bigint NOT NULL DEFAULT 7', added.name);
        END LOOP;
    END $$;
    CREATE TABLE table_of_the_next_version (id bigint PRIMARY KEY);
    UPDATE schema_version SET version = version + 1";

/// A store whose schema becomes one version newer once it is open.
struct NewerSchema(PostgresHarness);

impl NewerSchema {
    fn new() -> Self {
        Self(PostgresHarness::new())
    }
}

#[async_trait]
impl StoreHarness for NewerSchema {
    async fn open(&self, now: Timestamp) -> Arc<dyn Store> {
        let store = self.0.open(now).await;
        let client = self.0.client().await;
        let is_newer = client
            .query_one("SELECT to_regclass('table_of_the_next_version') IS NOT NULL", &[])
            .await
            .unwrap();
        if !is_newer.get::<_, bool>(0) {
            client.batch_execute(NEXT_VERSION).await.unwrap();
        }
        store
    }

    fn random_cases(&self) -> u32 {
        2
    }
}

mod next_version {
    use super::*;

    surehook_store::conformance_cases! { NewerSchema::new;
        admit: accepted_event_is_stored_with_its_deliveries, keys_survive_restart;
        claims: deliveries_in_flight_at_a_crash_are_due_after_restart;
        configuration: of_changes_planned_for_one_version_one_is_applied;
        counts: every_step_is_counted_once;
        idempotency: completed_key_returns_its_result_across_a_restart;
        replay_jobs: job_continues_after_restart;
        settle: settlements_survive_restart;
    }
    surehook_store::conformance_properties! { NewerSchema::new;
        history: random_history_agrees_with_the_model;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn schema_that_is_two_versions_newer_is_refused() {
    let database = PostgresHarness::new();
    database.open(NOW).await;
    let later = "UPDATE schema_version SET version = version + 2";
    database.client().await.batch_execute(later).await.unwrap();

    let opened = PostgresStore::open(&database.options, NOW).await;

    assert!(matches!(opened, Err(PostgresOpenError::Newer { .. })), "{opened:?}");
}
