//! The steps of the store that run in short transactions, and its lists and lookups, for every
//! database.
//!
//! They are generic over the connection ([`crate::sql::SqlConnection`]), and over the transaction where
//! they need what it collects until the commit ([`StepTransaction`]). Accepting, claiming and settling
//! are written here too; a database that does them in batches has its own statements for the common case.

pub(crate) mod alerts;
pub(crate) mod attempt_timing;
pub(crate) mod awaited_statuses;
pub(crate) mod callbacks;
pub(crate) mod claims;
pub(crate) mod clock;
pub(crate) mod configure;
pub(crate) mod counts;
pub(crate) mod crash_outcomes;
pub(crate) mod dead_letter_groups;
pub(crate) mod decisions;
pub(crate) mod deleted_destinations;
pub(crate) mod delivery_bodies;
pub(crate) mod displayed_status;
pub(crate) mod duplicates;
pub(crate) mod event_terms;
pub(crate) mod history;
pub(crate) mod idempotency;
pub(crate) mod ingest;
pub(crate) mod join_sender;
pub(crate) mod keys;
pub(crate) mod lanes;
pub(crate) mod list;
pub(crate) mod list_events;
pub(crate) mod list_requests;
pub(crate) mod login_links;
pub(crate) mod lookups;
pub(crate) mod media;
pub(crate) mod ordering_queue;
pub(crate) mod prune;
pub(crate) mod quarantine;
pub(crate) mod refused;
pub(crate) mod replay;
pub(crate) mod replay_jobs;
pub(crate) mod replay_selection;
pub(crate) mod rollups;
pub(crate) mod row;
pub(crate) mod sent_messages;
pub(crate) mod statuses;
pub(crate) mod tokens;
mod transaction;

pub(crate) use transaction::{PresenceHints, StepTransaction};
