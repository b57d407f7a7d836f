//! Tests that start PostgreSQL or Redis; `scripts/test --quick` leaves them out.

mod message_lock;
mod postgres;
mod processes;
mod redis_backend;
mod support;
mod two_tier;
mod two_tier_faults;
