//! The contract of every store, as tests.
//!
//! Each sentence that `surehook_core::store` promises has a case here, written against the traits
//! alone. A backend provides a [`Harness`] and names it to [`crate::store_conformance!`]; every case
//! then shows up as a test of its own:
//!
//! ```ignore
//! surehook_store::store_conformance!(sqlite, SqliteHarness::new);
//! ```
//!
//! - A file is an area: [`admit`], [`revive`], [`recall`], [`claims`], [`settle`], [`replay`],
//!   [`configure`], [`deletion`], [`lists`], [`filters`], [`arrivals`], [`search`], [`retention`], [`bodies_kept`], [`counts`],
//!   [`rollups`], [`decisions`], [`join`], [`bodies`], [`refused`], [`quarantine`], [`copies`], [`jobs`], [`job_steps`], [`order`], [`lanes`],
//!   [`removal`], [`tokens`], [`idempotency`], [`wills`], [`statuses`], [`mended`], [`sends`], [`media`],
//!   [`groups`].
//! - [`changes`] plays random changes through the store and through `Configuration::apply`.
//! - [`history`] plays random histories through the store and through a model of plain maps.
//! - [`World`] is what the cases stand on: a store, a clock that is moved by hand, and builders.
//!
//! Time is an argument everywhere, so nothing here waits and nothing depends on the real clock.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, and says where")]

pub mod admit;
mod aging;
pub mod arrivals;
pub mod bodies;
pub mod bodies_kept;
pub mod changes;
pub mod claims;
mod compare;
pub mod configure;
pub mod copies;
pub mod counts;
pub mod decisions;
pub mod deletion;
pub mod filters;
pub mod groups;
pub mod history;
pub mod idempotency;
mod job_kit;
pub mod job_steps;
pub mod jobs;
pub mod join;
pub mod lanes;
pub mod lists;
pub mod media;
pub mod mended;
mod model;
mod model_line;
mod model_sends;
pub mod order;
pub mod quarantine;
pub mod recall;
pub mod refused;
pub mod removal;
pub mod replay;
pub mod retention;
pub mod revive;
pub mod rollups;
mod samples;
pub mod search;
pub mod sends;
pub mod settle;
pub mod statuses;
pub mod tokens;
pub mod wills;
mod world;

use std::{future::Future, sync::Arc};

use async_trait::async_trait;
use proptest::{
    strategy::Strategy,
    test_runner::{Config, TestCaseError, TestCaseResult, TestRunner},
};
use surehook_core::{store::Store, time::Timestamp};

pub use self::world::World;

/// A place that can hold one store, as a backend provides it. A new one is empty.
#[async_trait]
pub trait Harness: Send + Sync {
    /// Opens what is kept in this place, as a process does when it starts at `now`.
    ///
    /// The store that was opened before is closed by then.
    async fn open(&self, now: Timestamp) -> Arc<dyn Store>;

    /// Whether opening proves that no other process has the store. Then what an earlier one held
    /// is due again at once; otherwise when its lease has run out.
    fn is_sole_owner(&self) -> bool;
}

/// Cases of each property, unless `PROPTEST_CASES` asks for another number.
const CASES: u32 = 64;

/// Checks `law` for random inputs; each case has a runtime of its own.
fn check<S, L, F>(strategy: S, law: L)
where
    S: Strategy,
    L: Fn(S::Value) -> F,
    F: Future<Output = TestCaseResult>,
{
    let asked = std::env::var_os("PROPTEST_CASES").is_some();
    let usual = Config::default();
    let cases = if asked { usual.cases } else { CASES };
    let config = Config { cases, failure_persistence: None, ..usual };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let outcome = TestRunner::new(config).run(&strategy, |input| runtime.block_on(law(input)));
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
}

/// Fails a property with a text.
fn fail<T>(what: impl Into<String>) -> Result<T, TestCaseError> {
    Err(TestCaseError::fail(what.into()))
}

/// Makes the whole suite tests of a module named after the backend; the second argument makes a
/// new [`Harness`].
#[macro_export]
macro_rules! store_conformance {
    ($backend:ident, $harness:expr) => {
        mod $backend {
            use super::*;

            $crate::conformance_cases! { $harness;
                admit: accepted_event_is_stored_with_all_fields,
                    accepted_event_is_stored_with_its_deliveries,
                    body_is_stored_and_claimed_byte_for_byte,
                    delivery_claimed_at_creation_is_in_flight,
                    event_without_deliveries_is_accepted,
                    duplicate_reports_the_original_and_stores_only_a_sighting,
                    same_key_from_another_source_is_a_new_event,
                    keys_that_differ_in_one_byte_are_different_keys,
                    key_is_accepted_again_after_the_dedup_window,
                    duplicate_does_not_extend_the_dedup_window,
                    event_without_key_is_never_a_duplicate,
                    request_with_one_invalid_event_stores_nothing,
                    repeated_key_within_one_request_is_a_duplicate,
                    refused_request_does_not_affect_concurrent_requests,
                    concurrent_events_with_one_key_are_accepted_once,
                    duplicate_with_different_body_is_reported_and_its_body_stored,
                    event_detail_omits_duplicate_bodies_above_the_size_limit,
                    duplicate_count_is_unlimited_but_stored_sightings_are_bounded,
                    keys_survive_restart;
                filters: event_filter_matches_only_if_one_delivery_meets_all_conditions,
                    event_rows_count_deliveries_by_status,
                    events_are_filtered_by_body_values,
                    body_value_search_reads_a_bounded_number_of_bodies_per_page,
                    key_filter_without_source_finds_events_of_all_sources;
                arrivals: requests_of_every_outcome_are_listed_newest_first,
                    requests_are_filtered_by_outcome_time_reason_and_source,
                    request_with_several_events_is_one_row,
                    interleaved_requests_with_thousands_of_events_are_one_row_each;
                revive: duplicate_revives_an_event_whose_deliveries_are_all_dead,
                    duplicate_revives_nothing_while_one_delivery_is_not_dead,
                    duplicate_revives_nothing_if_the_source_disables_it,
                    ambiguous_dead_delivery_is_not_revived,
                    concurrent_duplicates_revive_once,
                    revived_delivery_that_dies_is_revived_again,
                    delivery_to_deleted_destination_is_not_revived;
                recall: find_committed_returns_only_committed_events,
                    find_committed_ignores_events_of_a_refused_request,
                    find_committed_ignores_events_with_a_dead_delivery,
                    find_committed_still_ignores_a_dead_event_after_a_duplicate,
                    duplicates_answered_from_memory_are_counted;
                claims: due_deliveries_are_claimed_oldest_due_first,
                    claim_returns_at_most_its_limit,
                    delivery_is_not_claimed_before_it_is_due,
                    claim_returns_deliveries_of_one_destination,
                    claim_returns_all_fields_needed_to_send,
                    claimed_delivery_is_not_claimed_again,
                    concurrent_claims_never_return_the_same_delivery,
                    released_delivery_is_due_now_without_an_attempt,
                    stale_lease_token_releases_nothing,
                    expired_lease_makes_the_delivery_due,
                    renewed_lease_expires_later,
                    lost_claim_cannot_be_renewed,
                    deliveries_in_flight_at_a_crash_are_due_after_restart,
                    next_due_is_the_earliest_waiting_delivery,
                    delivery_released_for_later_is_due_then_without_an_attempt,
                    oldest_due_reports_the_oldest_overdue_delivery_per_destination;
                settle: success_ends_the_delivery,
                    retry_schedules_the_delivery_at_the_given_time,
                    dead_delivery_stores_its_reason,
                    stale_lease_token_settles_nothing,
                    second_settlement_of_an_attempt_is_rejected,
                    concurrent_settlements_are_recorded_once,
                    expired_lease_that_was_not_released_still_settles,
                    settling_an_unknown_or_cancelled_delivery_is_a_lost_lease,
                    attempts_are_numbered_and_stored_with_all_fields,
                    throttled_attempts_are_counted_separately,
                    settlements_survive_restart;
                replay: ended_delivery_can_be_replayed,
                    unfinished_delivery_cannot_be_replayed,
                    cancelled_delivery_cannot_be_replayed,
                    only_the_newest_delivery_of_a_replay_chain_can_be_replayed,
                    replay_is_not_treated_as_a_duplicate,
                    second_replay_is_allowed_after_the_replay_interval,
                    concurrent_replays_of_a_delivery_succeed_once,
                    delivery_to_deleted_destination_cannot_be_replayed,
                    replay_of_unknown_delivery_is_not_found,
                    replay_survives_restart;
                jobs: replay_job_selects_deliveries_that_match_its_filter,
                    force_resend_job_selects_succeeded_deliveries_too,
                    send_missing_job_delivers_events_the_destination_never_got,
                    delivery_that_dies_after_job_creation_is_not_selected,
                    event_received_after_job_creation_is_not_selected,
                    job_selection_continues_after_restart,
                    job_that_selects_nothing_is_done,
                    overlapping_jobs_are_refused,
                    creating_the_same_job_again_has_no_effect,
                    concurrent_overlapping_jobs_are_created_once,
                    job_preview_reports_the_time_range_and_changes_nothing,
                    job_state_changes_only_as_replay_state_allows,
                    jobs_are_listed_newest_first_in_pages;
                job_steps: job_step_replays_dead_deliveries,
                    job_is_done_when_its_deliveries_have_ended,
                    job_continues_after_restart,
                    concurrent_selections_and_steps_dispatch_each_delivery_once,
                    undeliverable_items_are_skipped_with_a_reason,
                    item_whose_event_was_pruned_is_skipped,
                    destination_at_its_open_limit_does_not_delay_others,
                    step_limit_is_shared_among_destinations,
                    paused_job_selects_nothing,
                    paused_job_dispatches_nothing,
                    resumed_job_dispatches_the_rest_once,
                    cancelled_job_leaves_the_rest_and_counts_open_deliveries,
                    delivery_replayed_later_counts_with_its_first_outcome,
                    deleting_a_destination_cancels_its_part_of_the_job,
                    old_jobs_are_pruned_only_after_they_have_ended;
                order: only_the_first_delivery_of_an_ordering_key_is_due,
                    held_delivery_is_not_claimed_at_creation,
                    other_ordering_keys_and_destinations_are_not_held,
                    retry_of_the_first_keeps_the_others_held,
                    next_delivery_becomes_due_when_the_first_ends,
                    replay_joins_the_end_of_the_ordering_queue,
                    revived_delivery_joins_the_end_of_the_ordering_queue,
                    ordering_queue_survives_restart,
                    removing_the_ordering_setting_releases_held_deliveries,
                    deleting_a_destination_cancels_held_deliveries,
                    delay_is_kept_for_held_deliveries,
                    concurrent_events_of_one_ordering_key_have_one_first;
                lanes: delayed_delivery_is_due_after_the_delay,
                    saved_lane_state_is_read_back_after_restart,
                    lane_state_of_deleted_destination_is_removed,
                    waiting_deliveries_of_paused_destination_are_shown_as_held,
                    waiting_deliveries_with_open_circuit_are_shown_as_held,
                    thousands_of_held_deliveries_are_listed_page_by_page,
                    waiting_delivery_can_be_cancelled,
                    in_flight_or_ended_delivery_cannot_be_cancelled,
                    claim_next_returns_the_next_retry_before_it_is_due,
                    claim_next_skips_delayed_and_ambiguous_deliveries;
                configure: stored_configuration_is_read_back,
                    renamed_source_and_destination_keep_their_routes,
                    name_in_use_is_refused,
                    name_can_be_reused_after_deletion,
                    route_with_unknown_source_or_destination_is_refused,
                    changes_with_one_invalid_change_are_not_applied,
                    source_created_and_deleted_in_one_change_does_not_exist,
                    deleted_source_rejects_new_events_and_keeps_old_ones,
                    deleting_a_destination_cancels_unfinished_deliveries,
                    deleted_destination_has_no_due_deliveries,
                    delivery_to_deleted_or_unknown_destination_is_not_stored,
                    deleted_source_and_destination_can_be_created_again;
                media: media_metadata_survives_restart,
                    storing_a_media_id_again_keeps_the_first_row,
                    unused_media_is_pruned_after_the_retention_time,
                    media_is_kept_while_an_event_may_reference_it,
                    media_is_pruned_in_bounded_slices;
                tokens: tokens_are_stored_with_all_fields_and_once_per_hash,
                    adding_a_known_token_updates_role_and_expiry,
                    last_admin_token_cannot_be_removed,
                    removing_a_token_removes_its_sessions,
                    session_for_a_removed_token_is_rejected,
                    session_does_not_count_as_the_last_admin,
                    expired_sessions_are_removed_when_a_session_is_added;
                lists: events_are_listed_newest_first_in_pages,
                    events_are_filtered_by_source_and_key,
                    next_page_is_stable_while_events_are_received,
                    deliveries_are_listed_newest_first_in_pages,
                    deliveries_are_filtered_by_each_status,
                    deliveries_are_filtered_by_destination_and_reason,
                    events_and_deliveries_are_filtered_by_time,
                    events_are_filtered_by_delivery_status,
                    events_are_searched_by_key_and_body,
                    deliveries_are_filtered_by_source_and_event,
                    deliveries_are_filtered_by_last_attempt,
                    text_search_reads_a_bounded_number_of_rows_per_page,
                    unknown_ids_are_none;
                groups: dead_deliveries_with_one_cause_form_one_group,
                    delivery_that_is_no_longer_dead_leaves_its_group,
                    pruned_delivery_leaves_its_group,
                    status_update_moves_deliveries_between_groups,
                    failed_status_during_the_attempt_is_the_death_cause,
                    groups_are_listed_by_newest_death_first,
                    replay_job_can_select_one_group,
                    groups_of_deleted_destination_remain;
                retention: expired_ended_event_is_pruned_with_all_its_rows,
                    pruned_events_stay_in_totals_only,
                    event_with_unfinished_delivery_is_not_pruned,
                    event_is_pruned_only_after_the_exact_retention_time,
                    key_is_still_known_after_its_event_is_pruned,
                    event_stays_after_its_key_expires,
                    expired_key_is_pruned_without_its_event,
                    pruning_in_slices_ends_when_nothing_is_left,
                    event_with_an_open_replay_is_not_pruned;
                bodies_kept: body_is_pruned_before_its_event_and_metadata_stays,
                    attempts_are_pruned_and_their_counts_stay,
                    each_source_has_its_own_retention,
                    unfinished_event_keeps_body_and_attempts,
                    event_that_ends_late_loses_body_and_attempts,
                    dead_letter_keeps_body_and_attempts_for_replay,
                    dead_letter_retention_follows_the_source_setting,
                    duplicate_does_not_revive_an_event_without_body,
                    retention_setting_can_be_changed_at_any_time,
                    restored_retention_setting_prunes_events_skipped_before,
                    event_committed_late_is_still_pruned,
                    attempts_of_a_replay_after_pruning_are_pruned,
                    pruning_slice_is_bounded,
                    large_bodies_are_pruned_in_small_slices;
                removal: held_delivery_keeps_its_event_whole,
                    transformed_body_is_pruned_with_the_body,
                    large_transformed_bodies_are_pruned_in_small_slices,
                    attempts_of_a_replay_job_after_pruning_are_pruned,
                    replay_job_skips_events_without_body,
                    replay_job_counts_outcomes_after_attempts_are_pruned,
                    joining_sender_gets_the_result_after_attempts_are_pruned,
                    attempts_of_a_delivery_revived_by_join_are_pruned;
                decisions: intake_record_is_stored_with_the_event,
                    delivered_event_has_no_decision_rows,
                    event_detail_lists_attempts_without_responses,
                    replays_and_revivals_are_recorded_as_decisions,
                    cancellation_by_deleted_destination_is_recorded,
                    expired_lease_is_recorded_once,
                    recovery_after_crash_is_recorded,
                    stored_decisions_of_each_kind_are_bounded,
                    decision_about_unknown_event_is_not_stored,
                    decisions_are_pruned_with_their_event;
                deletion: large_backlog_of_deleted_destination_is_cancelled_in_slices,
                    delivery_not_yet_cancelled_behaves_as_cancelled,
                    recreated_destination_gets_no_old_deliveries,
                    replay_job_of_deleted_destination_finishes;
                join: join_without_a_delivery_is_not_owed,
                    join_waits_for_pending_or_in_flight_delivery,
                    join_makes_a_scheduled_retry_due_now,
                    join_does_not_shorten_a_throttled_retry,
                    join_does_not_shorten_a_wait_for_a_status,
                    join_returns_the_stored_result,
                    concurrent_joins_revive_a_dead_delivery_once,
                    join_revives_only_the_dead_delivery_of_its_destination,
                    join_revives_all_deliveries_if_all_are_dead,
                    join_does_not_revive_permanent_or_ambiguous_failures,
                    join_reports_a_cancelled_delivery,
                    join_does_not_revive_for_a_deleted_destination,
                    join_works_for_deliveries_in_flight_at_a_crash;
                bodies: claim_returns_the_transformed_body,
                    revived_and_replayed_deliveries_send_the_transformed_body,
                    failed_transform_is_repeated_at_send_time,
                    transformed_body_of_a_duplicate_is_not_stored,
                    transformed_body_for_deleted_destination_is_not_stored,
                    route_stores_its_transform;
                search: event_is_found_by_kind_and_by_each_attribute,
                    batch_search_returns_the_same_events_as_single_searches,
                    search_filters_must_all_match,
                    search_results_are_listed_newest_first_in_pages,
                    pruned_event_is_not_found,
                    attributes_of_a_duplicate_are_not_indexed,
                    attributes_of_a_refused_request_are_not_indexed,
                    deliveries_are_filtered_by_event_kind;
                refused: refused_request_is_stored_with_all_fields,
                    refused_samples_of_one_source_and_code_drop_the_oldest,
                    refused_samples_without_source_drop_the_oldest,
                    refused_requests_are_listed_in_pages,
                    old_refused_sample_is_pruned_with_events_of_its_age;
                quarantine: quarantined_request_is_stored_with_all_fields,
                    repeated_request_is_quarantined_once,
                    full_quarantine_drops_the_oldest_of_the_source,
                    full_quarantine_drops_unsigned_requests_first,
                    unsigned_repeat_keeps_the_signed_request,
                    repeated_request_with_longer_headers_takes_more_room,
                    quarantine_queue_is_oldest_first,
                    released_request_leaves_quarantine_in_the_same_commit,
                    released_duplicate_leaves_quarantine,
                    accepting_the_same_request_removes_it_from_quarantine,
                    release_for_deleted_source_stays_in_quarantine,
                    unreleased_request_is_pruned_after_the_quarantine_time;
                copies: duplicate_is_found_by_event_and_number,
                    duplicate_number_never_changes,
                    duplicate_is_delivered_anyway_once,
                    concurrent_deliver_anyway_requests_create_one_event,
                    deliver_anyway_of_unknown_duplicate_is_refused,
                    link_to_delivered_duplicate_survives_body_pruning;
                wills: crash_applies_the_crash_outcome,
                    crash_outcome_restarts_the_wait_for_a_status_after_downtime,
                    expired_lease_applies_the_crash_outcome,
                    settlement_removes_the_crash_outcome,
                    release_removes_the_crash_outcome,
                    crash_outcome_needs_the_current_lease_token,
                    last_recorded_crash_outcome_is_applied,
                    crash_outcome_with_a_response_is_rejected,
                    crash_outcome_that_ends_the_first_makes_the_next_due,
                    deleting_a_destination_removes_the_crash_outcome,
                    all_crash_outcomes_are_applied_after_a_crash,
                    ambiguous_delivery_waits_again_for_a_status_after_restart;
                statuses: sent_status_ends_an_ambiguous_delivery,
                    failed_status_makes_an_ambiguous_delivery_dead,
                    failed_status_can_bring_the_next_attempt_forward,
                    status_for_a_delivery_never_attempted_is_ignored,
                    status_for_an_ended_delivery_is_ignored,
                    duplicate_status_is_applied_once,
                    status_during_an_ambiguous_attempt_decides_its_outcome,
                    clear_response_overrules_a_status,
                    sent_status_during_a_failed_attempt_prevents_a_retry,
                    failed_status_after_a_sent_status_is_ignored,
                    crash_outcome_is_overruled_by_a_status,
                    status_received_in_flight_is_applied_on_release,
                    lost_claim_does_not_consume_a_status,
                    status_about_an_earlier_delivery_is_ignored,
                    status_that_ends_the_first_makes_the_next_due,
                    status_received_during_a_lost_first_attempt_is_applied,
                    next_delivery_is_not_due_before_its_creation;
                mended: sent_status_turns_an_ambiguous_dead_delivery_into_a_success,
                    failed_status_leaves_an_ambiguous_dead_delivery_dead,
                    late_success_of_an_earlier_delivery_does_not_advance_the_ordering_queue,
                    replay_job_skips_a_delivery_that_succeeded_meanwhile,
                    sent_status_of_the_replayed_delivery_ends_its_replay,
                    status_that_cannot_be_about_the_replayed_delivery_is_ignored,
                    late_success_after_a_lost_claim_is_recorded,
                    late_success_overrules_the_running_retry;
                sends: sent_message_stores_its_id_and_is_counted,
                    sent_messages_are_counted_per_day_and_destination,
                    rejected_settlement_is_not_counted_as_sent,
                    crash_outcome_counts_a_message_that_may_have_been_sent,
                    old_daily_send_counts_are_pruned;
                counts: every_step_is_counted_once,
                    rejected_steps_are_not_counted,
                    dead_deliveries_are_counted_by_reason,
                    counts_survive_restart,
                    counts_match_the_lists_after_concurrent_work;
                rollups: received_events_are_counted_per_source_and_time_bucket,
                    attempts_are_counted_per_destination_and_time_bucket,
                    totals_are_equal_at_every_bucket_width,
                    range_includes_its_start_and_excludes_its_end,
                    rejected_steps_are_not_counted_in_rollups,
                    rollups_outlive_pruned_events_and_deleted_configuration,
                    finest_buckets_are_pruned_first,
                    expired_buckets_are_pruned_in_slices,
                    duplicates_answered_from_memory_are_counted_in_rollups;
                idempotency: claimed_key_returns_the_stored_response,
                    unfinished_claim_is_resumed_with_the_same_seed,
                    same_key_in_another_scope_is_a_new_claim,
                    released_key_can_be_claimed_again_unless_it_has_a_response,
                    key_can_be_claimed_again_after_its_retention_time,
                    old_keys_are_pruned_in_slices,
                    repeated_replay_with_the_same_id_returns_the_same_result;
            }

            $crate::conformance_properties! { $harness;
                changes: random_changes_match_configuration_apply;
                history: random_history_agrees_with_the_model;
            }
        }
    };
}

/// One test for each case.
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_cases {
    ($harness:expr; $($area:ident: $($case:ident),* ;)*) => {$(
        mod $area {
            use super::*;
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    let world = $crate::conformance::World::new($harness()).await;
                    $crate::conformance::$area::$case(world).await;
                }
            )*
        }
    )*};
}

/// One test for each property; a property makes a harness for each of its cases.
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_properties {
    ($harness:expr; $($area:ident: $property:ident;)*) => {$(
        #[test]
        fn $property() {
            $crate::conformance::$area::$property($harness);
        }
    )*};
}
