//! The life of a delivery.
//!
//! A *delivery* is the debt of one event to one destination. It is created `pending`, is
//! `in_flight` while a lane holds its lease, waits as `scheduled` between attempts, and ends as
//! `succeeded`, `dead` or `cancelled`. A replay does not move it back: it makes a new delivery that
//! names the old one, and the old one becomes `replayed`. History is never rewritten.
//!
//! - [`state`] is the law of these moves.
//! - [`mod@judge`] decides what follows from the outcome of an attempt.
//! - [`retry`] says when to try again.
//! - [`timing`] says where the time of an attempt went.
//!
//! All are pure: the time and the dice are arguments.

pub mod judge;
pub mod retry;
pub mod state;
pub mod timing;

pub use judge::{Class, DeadReason, Failure, Outcome, Progress, Terms, Verdict, WhyThen, judge};
pub use retry::{RetryAfter, RetryPolicy, RetrySpec};
pub use state::{DeliveryState, Input, Lease, LeaseToken};
pub use timing::Timing;
