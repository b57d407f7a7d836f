//! Receive webhooks of Stripe, WhatsApp, GitHub, Slack and 19 other providers: verify the signature over the
//! raw bytes, answer handshakes, split batches into events, and find the key by which retries of the
//! provider are recognized. And sign webhooks of your own.
//!
//! Without I/O, without a clock and without a runtime: you give it the request, it gives you the events. The
//! gateway Surehook receives with this crate.
//!
//! ```
//! use std::time::SystemTime;
//!
//! use bytes::Bytes;
//! use surehook_webhooks::{WebhookRequest, Receiver};
//!
//! // Once, when the program starts.
//! let receiver = Receiver::for_provider("stripe").secret("whsec_5f2e1d0c9b8a79685746352413021100").build()?;
//!
//! // A request as it comes from the HTTP server: method, URI, headers, and the raw body.
//! let body = Bytes::from(r#"{"id":"evt_1","type":"charge.succeeded","data":{"object":{"id":"ch_1"}}}"#);
//! let mut request = http::Request::post("/webhooks/stripe").body(body)?;
//! // Stripe does this.
//! receiver.sign(&mut request, "evt_1", SystemTime::now())?;
//!
//! match receiver.accept(&request, SystemTime::now()) {
//!     Ok(WebhookRequest::Webhook(webhook)) => {
//!         for event in &webhook.events {
//!             assert_eq!(event.kind(), "charge.succeeded");
//!             // The same at every retry: process each key once.
//!             assert_eq!(event.key.as_ref().unwrap().as_str(), "stripe:evt_1");
//!         }
//!         let _response = webhook.reply.to_response();
//!     }
//!     Ok(WebhookRequest::Handshake(reply)) => drop(reply.to_response()),
//!     Err(rejection) => drop(rejection.to_response()),
//! }
//!
//! // One changed byte is refused, with the status that this provider understands.
//! *request.body_mut() = Bytes::from(r#"{"id":"evt_2"}"#);
//! let rejection = receiver.accept(&request, SystemTime::now()).unwrap_err();
//! assert_eq!((rejection.status().as_u16(), rejection.code()), (401, "mismatch"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! With [axum](https://docs.rs/axum), enable the feature `axum` and write `Webhook<WhatsAppCloud>` as the
//! argument of a handler; see the module `axum`.
//!
//! # Process each event once
//!
//! Providers deliver at least once: they retry after a timeout, and some send the same event twice without
//! a reason. [`WebhookEvent::key`] is the same for all of these. Claim it in a store before you process the
//! event, and remember it for [`Receiver::dedup_window`]; the crate `surehook-dedup` does this.
//!
//! # The parts
//!
//! [`Receiver`] is made of parts that can be used alone: [`verify`] checks signatures, [`provider`] has the
//! presets, [`key`] extracts dedup keys, [`sign`] signs as Standard Webhooks specifies, [`jq`] runs filters and
//! transforms within a step budget, [`attribute`] normalizes ids and phone numbers.
//!
//! # Versions
//!
//! The crate follows semantic versioning; a new preset is a minor version. It needs Rust 1.95, and raises
//! that with minor versions only.

#![deny(missing_docs)]

pub mod attribute;
#[cfg(feature = "axum")]
pub mod axum;
pub mod body_value;
pub mod jq;
pub mod key;
mod mac;
pub mod provider;
mod receiver;
pub mod request;
pub mod sign;
pub mod verify;

pub use surehook_types::{secret::Secret, time::Timestamp};

pub use self::{
    provider::preset,
    receiver::{
        AcceptedWebhook, AnyProvider, Receiver, ReceiverBuildError, ReceiverBuilder, Rejection,
        RejectionReason, WebhookEvent, WebhookRequest,
    },
};
