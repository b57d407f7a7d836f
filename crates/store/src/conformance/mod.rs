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
                admit: an_accepted_event_is_kept_whole,
                    what_an_event_owes_is_kept_with_it,
                    a_body_is_kept_byte_for_byte,
                    a_delivery_claimed_at_birth_is_in_flight,
                    an_event_may_owe_nothing,
                    a_duplicate_names_the_original_and_leaves_only_a_sighting,
                    the_same_key_of_another_source_is_another_event,
                    keys_are_compared_byte_for_byte,
                    a_key_is_new_again_when_its_window_ends,
                    a_sighting_does_not_move_the_window,
                    without_a_key_nothing_is_a_duplicate,
                    a_request_is_stored_whole_or_not_at_all,
                    copies_within_one_request_are_duplicates,
                    a_refused_request_does_not_harm_its_neighbors,
                    of_concurrent_copies_one_is_accepted,
                    differing_bytes_are_told_and_kept,
                    large_differing_bodies_are_left_out,
                    sightings_are_counted_without_end,
                    keys_survive_a_restart;
                filters: events_are_filtered_by_one_delivery_that_is_all_of_it,
                    what_an_event_owes_is_counted_in_lists,
                    events_are_found_by_values_in_their_bodies,
                    a_search_for_a_value_looks_at_a_bounded_number_of_bodies,
                    a_key_is_found_in_every_source;
                arrivals: all_that_came_is_listed_newest_first,
                    arrivals_are_filtered,
                    a_request_with_several_events_is_one_arrival,
                    requests_with_thousands_of_events_are_one_arrival_each;
                revive: a_duplicate_revives_what_is_all_dead,
                    nothing_is_revived_while_one_delivery_is_not_dead,
                    nothing_is_revived_against_the_wish_of_the_source,
                    what_may_have_arrived_is_not_revived,
                    concurrent_duplicates_revive_once,
                    a_revived_delivery_can_die_and_be_revived_again,
                    nothing_is_revived_for_a_deleted_destination;
                recall: only_what_is_committed_is_recalled,
                    a_refused_event_is_not_recalled,
                    an_event_with_a_dead_delivery_is_not_recalled,
                    a_duplicate_does_not_bring_a_dead_event_back_to_mind,
                    what_is_recalled_is_counted;
                claims: what_is_due_comes_oldest_first,
                    a_claim_takes_no_more_than_its_limit,
                    nothing_is_claimed_before_it_is_due,
                    a_claim_is_of_one_destination,
                    a_claim_brings_all_that_is_needed_to_send,
                    what_is_claimed_is_not_claimed_again,
                    concurrent_claimers_never_share,
                    what_is_released_is_due_at_once_and_untried,
                    a_stale_token_releases_nothing,
                    an_expired_lease_makes_its_delivery_due,
                    a_renewed_lease_lasts_longer,
                    a_lost_claim_cannot_be_renewed,
                    what_a_dead_process_held_is_due_again,
                    next_due_is_the_earliest_that_waits,
                    what_is_put_off_is_due_then_and_untried,
                    oldest_due_tells_what_is_late;
                settle: a_success_ends_a_delivery,
                    a_retry_is_due_when_it_says,
                    death_has_a_reason,
                    a_stale_token_settles_nothing,
                    an_attempt_is_settled_once,
                    of_concurrent_settlements_one_is_recorded,
                    a_lease_that_ran_out_unnoticed_still_settles,
                    settling_what_does_not_exist_is_a_lost_lease,
                    attempts_are_numbered_and_kept,
                    throttled_attempts_are_counted_apart,
                    settlements_survive_a_restart;
                replay: what_has_ended_can_be_replayed,
                    what_has_not_ended_cannot_be_replayed,
                    what_was_cancelled_cannot_be_replayed,
                    what_was_replayed_hands_its_turn_on,
                    a_replay_is_not_a_duplicate,
                    a_replay_may_follow_after_the_interval,
                    of_concurrent_wishes_one_is_granted,
                    a_deleted_destination_gets_no_replay,
                    an_unknown_delivery_is_not_found,
                    a_replay_survives_a_restart;
                jobs: a_job_takes_what_its_filter_says,
                    a_forced_job_takes_what_succeeded_too,
                    missing_events_are_sent_to_a_destination_that_never_got_them,
                    what_dies_after_the_creation_is_not_taken,
                    what_comes_after_the_creation_is_not_missing,
                    a_selection_goes_on_after_a_restart,
                    a_job_that_selects_nothing_is_done,
                    jobs_that_could_overlap_are_refused,
                    the_same_job_again_makes_nothing,
                    of_concurrent_jobs_that_overlap_one_is_made,
                    a_preview_spans_the_time_of_its_events_and_changes_nothing,
                    a_job_moves_only_as_the_law_says,
                    jobs_come_newest_first_in_whole_pages;
                job_steps: a_job_delivers_again_what_is_dead,
                    a_job_is_done_when_its_deliveries_have_ended,
                    a_job_goes_on_after_a_restart,
                    concurrent_looks_and_steps_take_each_once,
                    what_cannot_be_delivered_any_more_is_skipped_with_its_reason,
                    what_retention_removed_before_its_turn_is_skipped,
                    a_destination_that_is_full_holds_up_only_itself,
                    a_step_shares_its_limit_among_destinations,
                    a_job_that_is_paused_selects_nothing,
                    a_job_that_is_paused_hands_out_nothing,
                    a_job_that_is_resumed_hands_out_the_rest_once,
                    a_cancelled_job_leaves_the_rest_and_counts_what_goes_on,
                    a_delivery_that_is_replayed_later_counts_as_what_it_was,
                    a_destination_that_is_deleted_cancels_its_part_of_a_job,
                    old_jobs_are_removed_when_they_have_ended;
                order: of_one_key_only_the_first_is_due,
                    a_held_delivery_is_not_claimed_at_birth,
                    other_keys_and_destinations_do_not_wait,
                    a_retry_of_the_first_keeps_the_others_held,
                    whatever_ends_the_first_calls_the_next,
                    a_replay_joins_the_end_of_the_line,
                    a_revival_joins_the_end_of_the_line,
                    the_line_survives_a_restart,
                    without_an_order_nobody_waits,
                    a_deleted_destination_holds_nothing,
                    a_delay_is_kept_in_the_line,
                    of_concurrent_arrivals_one_is_first;
                lanes: a_delayed_delivery_is_due_later,
                    what_is_said_of_a_lane_is_kept,
                    nothing_is_kept_of_a_deleted_destination,
                    what_waits_for_a_paused_destination_is_shown_as_held,
                    what_waits_for_an_open_circuit_is_shown_as_held,
                    many_that_are_held_are_listed_page_by_page,
                    what_waits_can_be_cancelled,
                    what_does_not_wait_cannot_be_cancelled,
                    the_next_is_claimed_before_its_time,
                    what_waits_for_a_word_or_is_planned_is_not_claimed_before_its_time;
                configure: what_is_put_is_read_back,
                    a_rename_takes_its_routes_along,
                    a_name_belongs_to_one,
                    a_name_is_free_again_after_a_delete,
                    a_route_needs_both_its_ends,
                    changes_are_made_all_or_none,
                    a_source_created_and_deleted_at_once_is_gone,
                    a_deleted_source_takes_no_events_but_keeps_them,
                    a_deleted_destination_is_owed_nothing,
                    a_deleted_destination_is_asked_for_no_more,
                    a_delivery_to_nowhere_is_left_out,
                    a_deleted_thing_can_be_put_again;
                media: what_is_known_of_a_file_survives_a_restart,
                    a_file_that_is_kept_again_stays_as_it_was,
                    what_nobody_uses_any_more_is_forgotten,
                    a_file_is_known_as_long_as_an_event_may_name_it,
                    forgetting_files_takes_many_slices;
                tokens: tokens_are_kept_whole_and_once,
                    a_token_given_again_takes_on_its_role,
                    a_token_is_removed_unless_it_is_the_last_admin,
                    a_session_ends_with_its_token,
                    no_session_begins_with_a_token_that_is_gone,
                    a_session_is_no_admin_to_stay_for,
                    sessions_that_have_ended_are_swept_out;
                lists: events_come_newest_first_in_whole_pages,
                    events_are_filtered_by_source_and_key,
                    a_page_is_steady_while_events_come_in,
                    deliveries_come_newest_first_in_whole_pages,
                    deliveries_are_filtered_by_each_status,
                    deliveries_are_filtered_by_destination_and_reason,
                    events_are_filtered_by_time,
                    events_are_filtered_by_the_status_of_a_delivery,
                    events_are_searched_by_key_and_body,
                    deliveries_are_filtered_by_source_and_event,
                    deliveries_are_filtered_by_their_last_attempt,
                    a_page_looks_at_a_bounded_number_of_rows,
                    what_does_not_exist_is_none;
                groups: those_of_one_cause_are_one_group,
                    what_stops_being_dead_leaves_its_group,
                    what_retention_removes_leaves_its_group,
                    what_a_status_says_moves_groups,
                    what_was_told_during_the_attempt_is_what_it_died_of,
                    groups_are_listed_by_when_they_grew_last,
                    a_job_takes_one_group,
                    groups_of_a_deleted_destination_stay;
                retention: what_is_old_and_final_goes_with_all_it_has,
                    what_is_gone_is_counted_only_for_ever,
                    what_is_still_owed_stays,
                    the_border_is_exact,
                    a_key_outlives_its_event,
                    an_event_outlives_its_key,
                    an_expired_key_goes_by_itself,
                    slices_end_when_nothing_is_left,
                    a_replay_keeps_its_event;
                bodies_kept: a_body_goes_before_its_event_and_the_facts_stay,
                    attempts_go_and_their_counts_stay,
                    each_source_has_its_own_spans,
                    what_is_not_final_keeps_body_and_attempts,
                    what_ends_at_last_loses_body_and_attempts,
                    a_dead_letter_keeps_what_a_replay_needs,
                    dead_letters_keep_for_as_long_as_the_source_says,
                    a_duplicate_does_not_revive_what_has_no_body,
                    spans_can_be_changed_at_any_time,
                    a_span_that_comes_back_finds_what_it_had_passed,
                    an_event_that_comes_in_late_is_not_forgotten,
                    attempts_of_a_late_replay_go_too,
                    a_slice_is_bounded_whatever_it_removes,
                    large_bodies_go_in_small_slices;
                removal: what_waits_for_its_turn_is_kept_whole,
                    what_a_transform_made_goes_with_the_body,
                    large_transformed_bodies_go_in_small_slices,
                    attempts_of_a_late_job_go_too,
                    a_job_skips_what_has_lost_its_body,
                    a_job_counts_the_ends_whose_attempts_are_gone,
                    a_sender_that_waits_is_told_an_end_without_its_attempts,
                    what_a_waiting_sender_revives_late_goes_too;
                decisions: what_was_decided_on_the_way_in_is_kept,
                    an_ordinary_life_needs_no_rows_of_its_own,
                    the_attempts_of_an_event_are_told_with_it,
                    replays_and_revivals_are_told,
                    what_goes_down_with_its_destination_is_told,
                    a_lost_claim_is_told,
                    what_a_dead_process_held_is_told,
                    of_each_kind_a_bounded_number_is_kept,
                    a_decision_about_nothing_is_not_kept,
                    decisions_go_with_their_event;
                deletion: much_that_was_owed_is_cancelled_bit_by_bit,
                    what_is_not_cancelled_yet_is_as_good_as_cancelled,
                    a_destination_that_comes_back_gets_nothing_of_it,
                    a_job_whose_destination_is_deleted_comes_to_its_end;
                join: nothing_is_owed_where_no_route_led,
                    what_is_under_way_is_waited_for,
                    what_waits_for_its_next_attempt_is_due_now,
                    a_wait_that_the_destination_asked_for_is_passed_on,
                    a_wait_for_a_status_is_not_cut_short,
                    the_result_is_told_for_as_long_as_it_is_kept,
                    what_can_be_mended_is_revived_once,
                    one_that_is_not_alone_is_revived_alone,
                    all_that_is_dead_is_revived_together,
                    what_was_refused_for_good_stays_refused,
                    what_somebody_stopped_is_told,
                    a_deleted_destination_revives_nothing,
                    what_a_dead_process_held_can_be_joined;
                bodies: a_claim_brings_what_the_route_made,
                    what_takes_over_sends_what_was_sent,
                    what_could_not_be_made_is_to_be_made_when_it_is_sent,
                    a_duplicate_brings_no_body,
                    a_body_for_nowhere_is_left_out,
                    a_route_keeps_its_transform;
                search: an_event_is_found_by_its_kind_and_by_each_attribute,
                    what_has_each_of_many_is_found_at_once_as_it_is_one_by_one,
                    all_that_is_wanted_must_be_there,
                    what_is_found_comes_newest_first_in_whole_pages,
                    an_event_that_is_removed_is_not_found,
                    a_duplicate_is_not_found_by_what_it_brought,
                    a_refused_request_leaves_nothing_to_be_found,
                    deliveries_are_filtered_by_the_kind_of_their_event;
                refused: a_refused_request_is_kept_as_it_is_given,
                    the_oldest_of_a_kind_makes_room,
                    strangers_make_room_among_themselves,
                    refused_requests_come_in_whole_pages,
                    an_old_sample_goes_with_the_events_of_its_time;
                quarantine: a_request_in_quarantine_is_kept_whole,
                    the_same_request_again_is_one,
                    the_oldest_in_quarantine_make_room,
                    strangers_make_room_first,
                    a_stranger_takes_no_signature_away,
                    longer_headers_of_the_same_request_take_more_room,
                    the_line_is_oldest_first,
                    what_is_admitted_leaves_the_quarantine_in_the_same_step,
                    a_duplicate_leaves_the_quarantine_too,
                    the_same_request_that_is_let_in_leaves_the_quarantine,
                    what_a_deleted_source_does_not_take_stays_in_quarantine,
                    what_nobody_released_goes_after_its_time;
                copies: a_duplicate_is_found_by_its_number,
                    the_number_of_a_duplicate_never_changes,
                    a_duplicate_becomes_an_event_once,
                    of_many_who_deliver_a_duplicate_one_does,
                    a_duplicate_that_is_not_there_becomes_nothing,
                    what_a_duplicate_became_outlives_its_body;
                wills: a_crash_carries_the_will_out,
                    what_a_will_waits_for_is_waited_for_anew,
                    a_lease_that_runs_out_carries_the_will_out,
                    what_was_settled_leaves_no_will,
                    what_was_given_back_leaves_no_will,
                    only_the_holder_leaves_a_will,
                    the_last_will_counts,
                    a_will_is_without_an_answer,
                    who_comes_next_has_his_turn_when_a_will_ends_the_first,
                    a_deleted_destination_has_no_will,
                    many_wills_are_carried_out_at_once,
                    what_waits_for_a_word_waits_anew_after_a_restart;
                statuses: a_status_ends_what_waits,
                    a_failed_status_buries_what_waits,
                    a_failed_status_may_bring_the_next_attempt_forward,
                    what_was_never_tried_hears_nothing,
                    what_has_ended_hears_nothing,
                    a_status_is_heard_once,
                    a_status_decides_how_an_attempt_ended_if_nobody_knows,
                    an_answer_holds_against_a_status,
                    what_has_arrived_is_not_tried_again,
                    that_it_arrived_is_not_unsaid,
                    a_will_hears_what_was_said,
                    what_is_given_back_hears_what_was_said,
                    a_lost_claim_hears_nothing,
                    a_status_about_an_earlier_delivery_moves_nothing,
                    who_comes_next_has_his_turn_when_a_status_ends_the_first,
                    a_first_attempt_that_was_lost_hears_what_was_said,
                    nobody_is_due_before_he_came;
                mended: a_status_mends_what_was_parked,
                    a_failure_leaves_what_was_parked_to_a_person,
                    a_line_goes_on_as_it_was_when_its_past_is_mended,
                    a_job_leaves_alone_what_was_mended_meanwhile,
                    a_replay_hears_of_what_it_takes_over_from,
                    a_replay_hears_nothing_of_what_is_known_to_be_another,
                    an_answer_that_comes_after_its_claim_is_heard,
                    who_tries_again_hears_of_an_answer_that_comes_late;
                sends: what_was_sent_is_named_and_counted,
                    each_day_and_destination_counts_for_itself,
                    what_was_not_recorded_is_not_counted,
                    a_will_counts_what_may_have_been_sent,
                    days_that_are_long_past_go;
                counts: every_step_is_counted_once,
                    refused_steps_count_nothing,
                    the_dead_are_counted_by_reason,
                    counts_survive_a_restart,
                    counts_agree_with_the_lists_after_concurrent_work;
                rollups: what_comes_in_is_counted_where_and_when,
                    what_goes_out_is_counted_where_and_when,
                    every_width_says_the_same,
                    a_range_has_its_first_and_not_its_end,
                    what_was_not_done_is_not_counted,
                    counts_by_time_outlive_what_they_count,
                    the_finest_go_first,
                    many_that_have_expired_go_in_slices,
                    what_memory_answered_is_counted_by_time_too;
                idempotency: a_key_is_claimed_and_its_answer_kept,
                    a_claim_without_an_answer_is_resumed_as_it_began,
                    keys_of_two_scopes_never_meet,
                    a_key_given_back_is_new_and_an_answer_stays,
                    a_key_is_new_again_after_a_day,
                    old_keys_are_forgotten_in_slices,
                    the_same_replay_again_is_granted_again_and_changes_nothing;
            }

            $crate::conformance_properties! { $harness;
                changes: the_store_agrees_with_the_pure_configuration;
                history: the_store_agrees_with_the_model;
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
