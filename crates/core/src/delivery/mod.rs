//! The life cycle of a delivery: one event to be sent to one destination.
//!
//! A delivery is created `pending`, is `in_flight` while a lane holds its lease, waits as `scheduled`
//! between attempts, and ends as `succeeded`, `dead` or `cancelled`. A replay does not move it back:
//! it creates a new delivery that refers to the old one, which becomes `replayed`. History is never
//! rewritten.
//!
//! - [`state`] defines the legal transitions.
//! - [`timing`] says where the time of an attempt went.
//! - [`retry`] decides what follows from the outcome of an attempt.
//!
//! All are pure: the time and random numbers are arguments.

pub mod state;
pub mod timing;

pub use crate::retry::{
    self, AttemptFailure, AttemptOutcome, AttemptProgress, DeadReason, FailureClass, RetryAfter,
    RetryDecision, RetryPolicy, RetrySpec, RetryTerms, ScheduleReason, decide_retry,
};
pub use state::{DeliveryState, DeliveryStatus, DeliveryTransition, Lease, LeaseToken};
pub use timing::AttemptTiming;
