//! The contract of [`DedupLock`] as tests, for every backend and for your own.
//!
//! A backend implements [`DedupHarness`] and calls [`dedup_conformance!`](crate::dedup_conformance);
//! every case then becomes a test in a module of the given name. No case sleeps: the harness moves the
//! time, by an injected clock or by making what is stored older.
//!
//! ```text
//! surehook_dedup::dedup_conformance!(memory, memory_harness);
//!
//! async fn memory_harness() -> Option<MemoryHarness> { … }
//! ```
//!
//! `history_agrees_with_the_model` plays random histories. A failure prints a seed, and
//! `SUREHOOK_TEST_SEED=<seed>` plays that one again. `PROPTEST_CASES` sets their number.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[doc(hidden)]
pub mod batches;
#[doc(hidden)]
pub mod claims;
#[doc(hidden)]
pub mod durability;
#[doc(hidden)]
pub mod fingerprints;
mod fixture;
#[doc(hidden)]
pub mod history;
#[doc(hidden)]
pub mod races;
mod testing_sources;
#[doc(hidden)]
pub mod tokens;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use tokio::runtime::{Builder, Runtime};

use crate::DedupLock;

pub use self::{
    fixture::ClaimFixture,
    testing_sources::{CountingRng, SteppedClock},
};

/// A backend under test. Cases use keys of their own, so several may share one server.
#[async_trait]
pub trait DedupHarness: Send + Sync {
    /// The lock to test.
    fn lock(&self) -> Arc<dyn DedupLock>;

    /// Moves the time of the backend forward, or makes everything in it so much older.
    async fn advance(&self, by: Duration);

    /// The same claims as a process sees them that has just started; `None` if they do not survive
    /// their process.
    async fn reopen(&self) -> Option<Arc<dyn DedupLock>>;
}

#[async_trait]
impl<H: DedupHarness + ?Sized> DedupHarness for Arc<H> {
    fn lock(&self) -> Arc<dyn DedupLock> {
        (**self).lock()
    }

    async fn advance(&self, by: Duration) {
        (**self).advance(by).await;
    }

    async fn reopen(&self) -> Option<Arc<dyn DedupLock>> {
        (**self).reopen().await
    }
}

/// Generates a module with one test per case.
///
/// The second argument is an async function that returns an `Option` of a
/// [`DedupHarness`]; `None` skips the test.
#[macro_export]
macro_rules! dedup_conformance {
    ($backend:ident, $harness:expr) => {
        mod $backend {
            use super::*;

            $crate::dedup_conformance_cases! { [$crate::dedup_conformance_tests] $harness }

            #[test]
            fn history_agrees_with_the_model() {
                let runtime = $crate::conformance::new_runtime();
                if let Some(harness) = runtime.block_on($harness()) {
                    $crate::conformance::history::history_agrees_with_the_model(&runtime, &harness);
                }
            }
        }
    };
}

/// Runs all cases and random histories one after the other on one backend: for a server that takes long
/// to start. `open` returns `None` to skip them.
pub fn run_suite<H, F>(open: impl FnOnce() -> F)
where
    H: DedupHarness + 'static,
    F: Future<Output = Option<H>>,
{
    let runtime = new_runtime();
    if let Some(harness) = runtime.block_on(open()) {
        let harness = Arc::new(harness);
        crate::dedup_conformance_cases! { [crate::dedup_conformance_calls] (runtime, harness) }
        history::history_agrees_with_the_model(&runtime, &harness);
    }
}

#[doc(hidden)]
pub fn new_runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Hands the list of all cases to another macro.
#[doc(hidden)]
#[macro_export]
macro_rules! dedup_conformance_cases {
    ([$($callback:tt)*] $argument:tt) => {
        $($callback)* ! { $argument;
            claims: first_claim_is_granted_and_the_next_is_in_progress,
                names_and_namespaces_are_independent,
                unusual_names_are_distinct_keys,
                retry_after_is_the_rest_of_the_lease,
                completed_claim_returns_its_result,
                results_are_stored_byte_for_byte_up_to_the_limit,
                completed_claim_expires_with_its_ttl,
                crash_after_claim_does_not_swallow_the_retry,
                expired_lease_is_granted_again_with_the_same_operation,
                abandoned_claim_is_forgotten_after_its_ttl,
                renewed_claim_is_remembered_for_its_own_ttl,
                released_claim_is_granted_again_as_a_new_operation,
                fence_grows_through_expiry_release_and_completion,
                values_out_of_range_are_refused;
            tokens: holder_extends_its_lease,
                extended_lease_outlives_the_ttl_of_the_claim,
                stale_token_changes_nothing,
                holder_with_expired_lease_may_complete_until_another_claims,
                holder_with_expired_lease_may_extend_until_another_claims,
                completing_twice_keeps_the_first_result,
                token_is_stale_after_release,
                token_is_stale_after_completion_except_to_complete,
                token_is_stale_when_the_claim_is_forgotten,
                unknown_key_has_no_current_token;
            fingerprints: other_fingerprint_is_reported_in_every_state,
                missing_fingerprint_matches_any,
                first_fingerprint_is_kept,
                release_and_expiry_forget_the_fingerprint;
            batches: batch_is_answered_in_order,
                key_twice_in_a_batch_is_claimed_once,
                batch_reports_each_failure_by_itself,
                completions_of_a_batch_are_checked_one_by_one,
                oversized_batch_is_refused,
                empty_batch_has_no_answers;
            races: fifty_threads_have_one_winner_in_each_of_200_rounds,
                threads_with_different_keys_all_win,
                expired_lease_is_taken_over_by_one_of_twenty,
                takeover_and_late_completion_never_both_succeed,
                concurrent_completions_with_one_token_all_succeed,
                concurrent_batches_claim_each_key_once;
            durability: claims_results_and_fences_survive_a_restart;
        }
    };
}

/// One test per case.
#[doc(hidden)]
#[macro_export]
macro_rules! dedup_conformance_tests {
    ($harness:expr; $($area:ident: $($case:ident),* ;)*) => {$(
        mod $area {
            use super::*;
            $(
                #[test]
                fn $case() {
                    let runtime = $crate::conformance::new_runtime();
                    if let Some(harness) = runtime.block_on($harness()) {
                        let fixture = $crate::conformance::ClaimFixture::new(harness);
                        $crate::conformance::run_case(
                            &runtime,
                            $crate::conformance::$area::$case(fixture),
                        );
                    }
                }
            )*
        }
    )*};
}

/// One call per case.
#[doc(hidden)]
#[macro_export]
macro_rules! dedup_conformance_calls {
    (($runtime:ident, $harness:ident); $($area:ident: $($case:ident),* ;)*) => {$($(
        run_case(&$runtime, $area::$case(ClaimFixture::new($harness.clone())));
    )*)*};
}

#[doc(hidden)]
pub fn run_case(runtime: &Runtime, case: impl Future<Output = ()> + Send + 'static) {
    // In a worker of the runtime, where a case may block.
    runtime.block_on(async { tokio::spawn(case).await }).unwrap();
}
