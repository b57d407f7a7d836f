//! The store behind `PgBouncer` in transaction mode, which gives each transaction another connection: without
//! prepared statements, and with the settings of a session in each transaction.

use std::sync::Arc;

use async_trait::async_trait;
use surehook_core::store::Store;
use surehook_store::conformance::StoreHarness;
use surehook_test_servers::{PgBouncer, shared_url};
use surehook_types::time::Timestamp;
use tokio_postgres::Config;

use super::harness::PostgresHarness;

/// A project whose store reaches the server through `PgBouncer`.
pub(super) struct PgBouncerHarness {
    project: PostgresHarness,
    _pgbouncer: PgBouncer,
}

impl PgBouncerHarness {
    pub(super) fn new() -> Self {
        let mut project = PostgresHarness::new();
        let server: Config = shared_url().expect("skipped before").parse().unwrap();
        let pgbouncer = PgBouncer::start(server.get_ports()[0]);
        project.options.url = format!("{}postgres", pgbouncer.url());
        project.options.prepared_statements = false;
        Self { project, _pgbouncer: pgbouncer }
    }
}

#[async_trait]
impl StoreHarness for PgBouncerHarness {
    async fn open(&self, now: Timestamp) -> Arc<dyn Store> {
        self.project.open(now).await
    }
}

// Of each kind of work that the store does in its own way on PostgreSQL, and of each kind of statement.
surehook_store::conformance_cases! { PgBouncerHarness::new;
    admit: accepted_event_is_stored_with_all_fields,
        body_is_stored_and_claimed_byte_for_byte,
        concurrent_events_with_one_key_are_accepted_once,
        refused_request_does_not_affect_concurrent_requests;
    duplicates: concurrent_duplicates_revive_once;
    key_conflicts: each_accepted_body_is_a_duplicate_of_its_own_event;
    claims: due_deliveries_are_claimed_oldest_due_first,
        concurrent_claims_never_return_the_same_delivery,
        claims_of_unknown_outcome_are_abandoned_by_their_proof;
    settle: retry_schedules_the_delivery_at_the_given_time,
        attempts_are_numbered_and_stored_with_all_fields,
        concurrent_settlements_are_recorded_once;
    ordering: next_delivery_becomes_due_when_the_first_ends;
    coordination: claims_of_an_earlier_owner_change_nothing;
    lists: deliveries_are_listed_newest_first_in_pages,
        events_are_filtered_by_source_and_key;
    search: event_is_found_by_kind_and_by_each_attribute;
    replay_jobs: replay_job_selects_deliveries_that_match_its_filter;
    configuration: stored_configuration_is_read_back,
        of_changes_planned_for_one_version_one_is_applied;
    quarantine: quarantined_request_is_stored_with_all_fields;
    retention: expired_ended_event_is_pruned_with_all_its_rows;
    rollups: totals_are_equal_at_every_bucket_width;
    idempotency: completed_key_returns_its_result_across_a_restart;
    tokens: last_admin_token_cannot_be_removed;
    statuses: sent_status_ends_an_ambiguous_delivery;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn racing_clients_of_three_nodes_have_each_key_accepted_once() {
    super::race::run(PgBouncerHarness::new()).await;
}
