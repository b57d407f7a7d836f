//! Makes an HTTP service idempotent by the `Idempotency-Key` header.
//!
//! A client that gets no answer cannot know whether its request was executed. With this layer it sends the
//! request again under the same key: it is executed once, and every duplicate gets the response of the first.
//!
//! ```
//! use std::time::Duration;
//!
//! use axum::{Router, routing::post};
//! use surehook_dedup::MemoryDedupLock;
//! use surehook_tower::IdempotencyLayer;
//!
//! async fn create_order() -> &'static str {
//!     "order 1 created"
//! }
//!
//! let idempotency = IdempotencyLayer::new(MemoryDedupLock::default())
//!     .require_key()
//!     .ttl(Duration::from_secs(24 * 3600));
//! let app: Router = Router::new().route("/orders", post(create_order)).layer(idempotency);
//! ```
//!
//! # Responses
//!
//! They follow the IETF draft `draft-ietf-httpapi-idempotency-key-header`; every error is a problem document
//! (RFC 9457) with a `code`.
//!
//! | situation | response |
//! | --- | --- |
//! | first request with a key | runs; the response is stored before it is sent |
//! | duplicate of an executed request | the stored response, with `Idempotency-Replayed: true` |
//! | duplicate of a request that still runs | waits up to [`wait`](IdempotencyLayer::wait), then 409 `idempotency_in_flight` with `Retry-After` |
//! | another request with the same key | 422 `idempotency_key_reused` |
//! | no key, with [`require_key`](IdempotencyLayer::require_key) | 400 `idempotency_key_missing` |
//! | malformed key, or several | 400 `bad_idempotency_key` |
//! | executed, but the response was too large to store | 409 `idempotency_response_not_stored`, without `Retry-After` |
//! | request body over [`max_request_bytes`](IdempotencyLayer::max_request_bytes) | 413 `body_too_large` |
//! | the store cannot be reached, or is full | 503 `idempotency_store_unavailable` with `Retry-After`; nothing ran |
//!
//! The same request means: the same method, path, query and body. Requests of other methods than POST and
//! PATCH, and requests without a key, pass through untouched.
//!
//! # Which responses are stored
//!
//! Status 2xx and 3xx; 4xx too with [`store_client_errors`](IdempotencyLayer::store_client_errors), otherwise
//! they free the key. After 5xx, a panic or an error of the service, a retry runs again at once. After a crash
//! of the process, a retry runs again when the [`lease`](IdempotencyLayer::lease) has ended, which is extended
//! while the handler runs.
//!
//! A client that disconnects does not stop the handler: it runs to its end in the background, so that the
//! retry finds the response.
//!
//! # A handler that survives a crash in the middle
//!
//! The layer cannot know what a handler did before the process died. It gives each handler a
//! [`RequestClaim`] in the extensions of the request: its `operation` is the same at every attempt of one
//! request, so ids derived from it let the second attempt find what the first created. See
//! `examples/orders.rs`.
//!
//! # Keys of different users
//!
//! A key counts within the `Authorization` header of its request, so that no user gets the response of
//! another. If you authenticate otherwise, or tokens change between retries, set
//! [`scope`](IdempotencyLayer::scope).
//!
//! # Order of layers
//!
//! Authentication belongs outside (in axum, a later call of `layer`), so that the scope is known and refused
//! requests claim nothing. Compression belongs outside too: the stored response is what the inner service
//! answered. The path that is compared is the one that the layer sees: in a nested router, without the
//! prefix.
//!
//! # Versions
//!
//! The crate follows semantic versioning. It needs Rust 1.95, and raises that with minor versions only.

#![deny(missing_docs)]

mod body;
mod key;
mod layer;
mod problem;
mod service;
mod stored_response;

pub use self::{
    body::IdempotentBody,
    layer::IdempotencyLayer,
    service::{IdempotencyService, RequestClaim},
};

/// Compiles the code of the guide.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guides/idempotent-handlers.md")]
struct GuideExamples;
