//! The outside's view: the door for webhooks, the API for people and programs, probes, metrics.
//!
//! - [`server`]: the accept loop with its limits and time-outs.
//! - [`door`]: `POST /in/{source}`, the hot path, without a framework.
//! - [`api`]: everything under `/api/v1`.
//! - `openapi`: the table of all calls, and the document that is made of it.
//! - `pages`, `session`: the dashboard on top of the API, and who has signed in to it.
//! - [`problem`]: every status code and error code.

pub mod api;
mod auth;
mod body;
pub mod door;
mod front;
mod health;
mod inside;
mod openapi;
mod pages;
mod problem;
mod refusal;
pub mod server;
mod session;
mod sync_answer;

use std::{sync::Arc, time::Duration};

use surehook_core::access::ApiToken;
use surehook_engine::Engine;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

pub use auth::{hash_token, new_token};
pub use openapi::document as openapi_document;

/// Bounds on what comes in. Each has a name, and what is beyond it is refused before it is read.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The largest body, in bytes; a source may set its own.
    pub body_bytes_max: usize,
    /// Bytes of all bodies in memory together.
    pub bodies_in_memory_max: usize,
    /// Connections at the same time.
    pub connections_max: usize,
    /// Connections of one address at the same time.
    pub connections_per_address_max: usize,
    /// The time for the head of a request, and the time for which a connection may stay idle.
    pub head_timeout: Duration,
    /// The time for the body of a request.
    pub body_timeout: Duration,
    /// How long a copy of a wish waits for the one that is being carried out.
    pub idempotency_wait: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes_max: 1024 * 1024,
            bodies_in_memory_max: 256 * 1024 * 1024,
            connections_max: 10_000,
            connections_per_address_max: 1_000,
            head_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            idempotency_wait: Duration::from_secs(10),
        }
    }
}

/// What all requests share.
#[derive(Debug)]
pub struct App {
    engine: Arc<Engine>,
    limits: Limits,
    /// Bytes of bodies that may still be read, in [`door::BODY_UNIT`]s.
    room: Arc<Semaphore>,
    tokens: auth::Tokens,
    links: session::Links,
    /// Keys of wishes that are being carried out.
    in_flight: api::idempotent::InFlight,
    /// Places for streams of news.
    streams: Arc<Semaphore>,
    /// Places for exports.
    exports: Arc<Semaphore>,
    /// Set when the process is about to end: readiness fails first.
    draining: CancellationToken,
}

impl App {
    /// Puts the HTTP face on an engine.
    pub fn new(
        engine: Arc<Engine>,
        limits: Limits,
        tokens: Vec<ApiToken>,
        draining: CancellationToken,
    ) -> Arc<Self> {
        let units =
            limits.bodies_in_memory_max.div_ceil(door::BODY_UNIT).min(Semaphore::MAX_PERMITS);
        let room = Arc::new(Semaphore::new(units));
        Arc::new(Self {
            engine,
            limits,
            room,
            tokens: auth::Tokens::new(tokens),
            links: session::Links::default(),
            in_flight: api::idempotent::InFlight::default(),
            streams: Arc::new(Semaphore::new(api::stream::STREAMS_MAX)),
            exports: Arc::new(Semaphore::new(api::export::EXPORTS_MAX)),
            draining,
        })
    }

    /// Bytes that are set aside for bodies of requests, in whole units.
    fn body_bytes_held(&self) -> usize {
        let units = self.limits.bodies_in_memory_max.div_ceil(door::BODY_UNIT);
        units.saturating_sub(self.room.available_permits()) * door::BODY_UNIT
    }
}
