//! The HTTP server: receives webhooks and serves the API, the dashboard, health checks and metrics.
//!
//! - [`server`]: the accept loop with its limits and timeouts.
//! - `receive`: `POST /in/{source}`, the hot path, without a framework.
//! - [`api`]: all endpoints under `/api/v1`.
//! - `openapi`: the table of endpoints and the OpenAPI document generated from it.
//! - `in_process_gateway`, `session`: the dashboard on top of the API, and its sessions.
//! - [`tls`]: the certificate of the listener.
//! - `problem`: all error responses with their status and code.

pub mod api;
mod auth;
mod body;
mod failed_logins;
mod health;
mod in_process_gateway;
mod openapi;
mod problem;
mod receive;
mod router;
pub mod server;
mod session;
mod timeouts;
pub mod tls;

use std::{
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

pub use api::reload::{SettingsReloadError, SettingsReloader};
pub use auth::{hash_token, new_token};
pub use openapi::document as openapi_document;
use surehook_core::access::ApiToken;
use surehook_engine::{Engine, body_memory::BodyMemory};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::body::BodyPace;

/// Limits on connections and requests. Requests beyond a limit are refused before they are read.
#[derive(Clone, Debug)]
pub struct ServerLimits {
    /// Largest body of a request, in bytes. A source may override it.
    pub body_bytes_max: usize,
    /// Memory for all request bodies together, in bytes.
    pub bodies_in_memory_max: usize,
    /// Open connections.
    pub connections_max: usize,
    /// Open connections from one IP address.
    pub connections_per_address_max: usize,
    /// Time to receive the head of a request; also how long a connection may stay idle.
    pub head_timeout: Duration,
    /// Time to receive the body of a request.
    pub body_timeout: Duration,
    /// Time to answer a request, from its head to the head of the response.
    pub request_timeout: Duration,
    /// How long a client may read nothing of a response.
    pub write_timeout: Duration,
    /// Bytes per second at which the body of a request must arrive at least; 0 for no minimum.
    pub body_rate_min: u64,
    /// How long a request waits for a running request with the same `Idempotency-Key`.
    pub idempotency_wait: Duration,
}

/// One part in this many of the memory for bodies is left to the allocator, which rounds sizes up and
/// keeps freed memory in pieces: the memory of all bodies then stays within the limit.
const ALLOCATOR_PART: usize = 16;

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            body_bytes_max: 1024 * 1024,
            bodies_in_memory_max: 256 * 1024 * 1024,
            connections_max: 10_000,
            connections_per_address_max: 1_000,
            head_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            request_timeout: Duration::from_secs(180),
            write_timeout: Duration::from_secs(30),
            body_rate_min: 1024,
            idempotency_wait: Duration::from_secs(10),
        }
    }
}

impl ServerLimits {
    fn body_pace(&self) -> BodyPace {
        BodyPace { timeout: self.body_timeout, bytes_per_second_min: self.body_rate_min }
    }
}

/// State shared by all requests.
#[derive(Debug)]
pub struct ServerState {
    engine: Arc<Engine>,
    limits: ServerLimits,
    body_memory: Arc<BodyMemory>,
    tokens: auth::TokenRegistry,
    /// When the tokens were last read because another node may have changed them.
    tokens_read_at: tokio::sync::Mutex<Option<Instant>>,
    failed_logins: failed_logins::FailedLogins,
    in_flight_keys: api::idempotency::InFlightKeys,
    /// Limits open live update streams.
    stream_permits: Arc<Semaphore>,
    /// Limits running exports.
    export_permits: Arc<Semaphore>,
    /// Applies the settings file again, once the gateway has started.
    reloader: OnceLock<Arc<dyn SettingsReloader>>,
    /// Cancelled when shutdown begins, so that readiness fails before connections are closed.
    draining: CancellationToken,
    /// Cancelled by `POST /api/v1/freeze`: the process ends its work, and answers 503 until it is stopped.
    frozen: CancellationToken,
}

impl ServerState {
    pub fn new(
        engine: Arc<Engine>,
        limits: ServerLimits,
        tokens: Vec<ApiToken>,
        draining: CancellationToken,
    ) -> Arc<Self> {
        let tokens = auth::TokenRegistry::new(tokens, engine.clock().now());
        let bodies_max = limits.bodies_in_memory_max;
        let body_memory =
            BodyMemory::new(bodies_max - bodies_max / ALLOCATOR_PART, limits.body_bytes_max);
        engine.telemetry().observe_body_memory(&body_memory);
        Arc::new(Self {
            engine,
            limits,
            body_memory,
            tokens,
            tokens_read_at: tokio::sync::Mutex::default(),
            failed_logins: failed_logins::FailedLogins::default(),
            in_flight_keys: api::idempotency::InFlightKeys::default(),
            stream_permits: Arc::new(Semaphore::new(api::stream::STREAMS_MAX)),
            export_permits: Arc::new(Semaphore::new(api::export::EXPORTS_MAX)),
            reloader: OnceLock::new(),
            draining,
            frozen: CancellationToken::new(),
        })
    }

    /// Lets admins apply the settings file again. Only the first call counts.
    pub fn set_reloader(&self, reloader: Arc<dyn SettingsReloader>) {
        let _first_one_stays = self.reloader.set(reloader);
    }

    /// Is cancelled when a client asks to freeze this process.
    pub fn frozen(&self) -> CancellationToken {
        self.frozen.clone()
    }
}
