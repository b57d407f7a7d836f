//! The life cycle of a delivery: one event to be sent to one destination.
//!
//! A delivery is created `pending`, is `in_flight` while a lane holds its lease, waits as `scheduled`
//! between attempts, and ends as `succeeded`, `dead` or `cancelled`. A replay does not move it back:
//! it creates a new delivery that refers to the old one, which becomes `replayed`. History is never
//! rewritten.
//!
//! [`state`] defines the legal transitions.
//! `surehook-retry` decides what follows from the outcome of an attempt.

pub mod state;

pub use state::{ClaimProof, DeliveryState, DeliveryStatus, DeliveryTransition, LaneEpoch};
