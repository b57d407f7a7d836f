//! The life of a delivery.
//!
//! A *delivery* is the debt of one event to one destination. It is created `pending`, is
//! `in_flight` while a lane holds its lease, waits as `scheduled` between attempts, and ends as
//! `succeeded`, `dead` or `cancelled`. A replay does not move it back: it makes a new delivery that
//! names the old one, and the old one becomes `replayed`. History is never rewritten.
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
