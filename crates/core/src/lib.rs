//! The domain of Surehook, pure: no I/O, no clock, no dice, no runtime.
//!
//! The words, each with one meaning: a **request** hits the door and carries **events**; an event
//! owes a **delivery** to each destination; a delivery takes one or more **attempts**. A **source**
//! receives, a **destination** gets, a **route** joins them with a filter. A **dead letter** is a
//! delivery that is dead; a **replay** makes a new one.
//!
//! - [`source`], [`destination`], [`route`]: what people configure, as written and as meant.
//! - [`verify`], [`key`]: how a request proves where it comes from, and how two are known to be one.
//! - [`event`], [`delivery`]: what is stored, the states, and the decisions.
//! - [`dead_letters`]: which dead letters died of the same thing.
//! - [`attribute`]: what an event is about, so that it can be found.
//! - [`decision`], [`timeline`], [`refused`]: what was decided, told in order; what was not let in.
//! - [`requests`], [`body_value`]: every request that came, whatever became of it; what is looked for in bodies.
//! - [`sync`]: what a sender is told that waits for the result.
//! - [`replay`]: delivering again in bulk, as a job.
//! - [`lane`]: how much a destination gets, when, and in which order.
//! - [`retention`], [`rollup`], [`histogram`]: what goes when, and what stays of it in numbers.
//! - [`address`], [`sign`]: what keeps the way out safe.
//! - [`redact`]: hides secrets in what is shown or sent.
//! - [`access`]: tokens, and what each role may do.
//! - [`provider`], [`request`]: what the webhooks of each provider are like.
//! - [`outbox`]: the source that messages come from.
//! - [`channel`]: how messages are sent through each service, and what its answers mean.
//! - [`media`]: files that are sent with messages, and where they lie.
//! - [`store`]: what the rest needs of a database, as promises.

pub mod access;
pub mod address;
pub mod attribute;
pub mod body_value;
pub mod channel;
pub mod dead_letters;
pub mod decision;
pub mod delivery;
pub mod destination;
pub mod diff;
pub mod event;
pub mod histogram;
pub mod idempotency;
pub mod ids;
pub mod inflate;
pub mod jq;
pub mod key;
pub mod lane;
pub mod media;
pub mod name;
pub mod object;
pub mod outbox;
pub mod provider;
pub mod quarantine;
pub mod redact;
pub mod refused;
pub mod replay;
pub mod request;
pub mod requests;
pub mod retention;
pub mod retry;
pub mod rng;
pub mod rollup;
pub mod route;
mod schema;
pub mod secret;
pub mod sign;
pub mod source;
pub mod store;
pub mod sync;
pub mod time;
pub mod timeline;
pub mod verify;
