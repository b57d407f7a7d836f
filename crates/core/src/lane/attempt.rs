//! The decision after an attempt: what its outcome means for the delivery and for the destination.
//!
//! All rules about answers are in `surehook-retry`; this adds only the ordering policy of the lane.

use surehook_retry::{
    AttemptOutcome, AttemptProgress, FailureClass, RetryDecision, ScheduleReason, classify,
    cool_until, decide_retry,
};
use surehook_types::time::Timestamp;

use crate::{destination::Destination, store::NextStep};

/// A delivery before an attempt.
#[derive(Clone, Copy, Debug)]
pub struct DeliveryProgress {
    /// Attempts so far, throttled ones included.
    pub attempts: u32,
    /// How many of them were throttled.
    pub throttled: u32,
    /// Start of the delivery's age.
    pub created_at: Timestamp,
    /// Whether others of its ordering queue may wait for it.
    pub ordered: bool,
}

/// The decision after an attempt. The response is classified once, when this is built.
#[derive(Clone, Copy, Debug)]
pub struct AttemptDecision {
    pub at: Timestamp,
    /// `None` for a success.
    pub class: Option<FailureClass>,
    pub progress: AttemptProgress,
    /// A random number in `0.0..1.0`, for jitter.
    pub roll: f64,
    pub next: NextStep,
    pub schedule_reason: Option<ScheduleReason>,
    /// Whatever happens to this delivery, the destination asked for a break until then.
    pub cool_until: Option<Timestamp>,
}

/// Classifies the outcome of an attempt that ended at `at` and turns it into the next step of the
/// delivery. The number for the jitter, in `0.0..1.0`, is only drawn if it is needed.
pub fn decide_attempt(
    destination: &Destination,
    outcome: &AttemptOutcome,
    before: DeliveryProgress,
    at: Timestamp,
    draw_roll: impl FnOnce() -> f64,
) -> AttemptDecision {
    let terms = destination.terms();
    let class = classify(outcome, &destination.rules);
    let roll = if class.is_some() { draw_roll() } else { 0.0 };
    let progress = AttemptProgress {
        attempts: before.attempts + 1,
        throttled: before.throttled + u32::from(class == Some(FailureClass::Throttled)),
        created_at: before.created_at,
    };
    let decision = decide_retry(outcome, class, progress, terms, at, roll);
    let decision = match &destination.lane.order {
        Some(order) if before.ordered => order.on_failure.adjust(decision, &destination.retry, at),
        Some(_) | None => decision,
    };
    let (next, schedule_reason) = match decision {
        RetryDecision::Succeeded => (NextStep::Succeeded, None),
        RetryDecision::RetryAt { due_at, reason, .. } => (NextStep::RetryAt(due_at), Some(reason)),
        RetryDecision::Pause { due_at } => {
            (NextStep::RetryAt(due_at), Some(ScheduleReason::Paused))
        }
        RetryDecision::Dead { reason, .. } => (NextStep::Dead(reason), None),
    };
    let cool_until = cool_until(outcome, class, progress, terms, at, roll);
    AttemptDecision { at, class, progress, roll, next, schedule_reason, cool_until }
}
