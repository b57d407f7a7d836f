//! The extractor [`Webhook`] for axum (feature `axum`).
//!
//! It verifies a request before the handler runs. Handshakes and rejected requests are answered without
//! calling the handler.
//!
//! ```
//! use axum::Router;
//! use surehook_webhooks::{
//!     Receiver,
//!     axum::{Webhook, webhook},
//!     preset::WhatsAppCloud,
//!     provider::ProviderReply,
//! };
//!
//! async fn receive(webhook: Webhook<WhatsAppCloud>) -> ProviderReply {
//!     for event in &webhook.events {
//!         println!("{} {:?}", event.kind(), event.key);
//!     }
//!     webhook.reply.clone()
//! }
//!
//! let receiver = Receiver::of(WhatsAppCloud)
//!     .secret("5f2e1d0c9b8a79685746352413021100")
//!     .verify_token("the token entered at Meta")
//!     .build()?;
//! let app: Router = Router::new().route("/whatsapp", webhook(receive)).with_state(receiver);
//! # Ok::<(), surehook_webhooks::ReceiverBuildError>(())
//! ```
//!
//! To log what is rejected, take a `Result`:
//!
//! ```
//! use axum::response::{IntoResponse, Response};
//! use surehook_webhooks::{
//!     axum::{Webhook, WebhookRejection},
//!     preset::GitHub,
//! };
//!
//! async fn receive(webhook: Result<Webhook<GitHub>, WebhookRejection>) -> Response {
//!     match webhook {
//!         Ok(webhook) => webhook.reply.clone().into_response(),
//!         Err(rejection) => {
//!             if let WebhookRejection::Rejected(rejection) = &rejection {
//!                 eprintln!("rejected a webhook: {rejection}");
//!             }
//!             rejection.into_response()
//!         }
//!     }
//! }
//! # let _: axum::routing::MethodRouter<surehook_webhooks::Receiver<GitHub>> =
//! #     surehook_webhooks::axum::webhook(receive);
//! ```
//!
//! With several providers, the state of the router is a struct that derives `FromRef`, as for any other part
//! of an axum state; see `examples/axum_providers.rs`.

use std::{marker::PhantomData, ops::Deref};

use ::axum::{
    body::Body,
    extract::{FromRef, FromRequest, OriginalUri, Request},
    handler::Handler,
    response::{IntoResponse, Response},
    routing::{MethodFilter, MethodRouter, on},
};
use bytes::Bytes;
use http::{HeaderValue, Method, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};

use crate::{
    provider::ProviderReply,
    receiver::{
        AcceptedWebhook, AnyProvider, Receiver, Rejection, RejectionReason, WebhookRequest,
    },
};

/// A verified webhook of the preset `P`, as an argument of a handler.
///
/// The router's state is a [`Receiver<P>`], or contains one and implements `FromRef` for it.
#[derive(Debug)]
pub struct Webhook<P = AnyProvider> {
    accepted: AcceptedWebhook,
    preset: PhantomData<fn() -> P>,
}

impl<P> Webhook<P> {
    /// The webhook itself.
    pub fn into_inner(self) -> AcceptedWebhook {
        self.accepted
    }
}

impl<P> Deref for Webhook<P> {
    type Target = AcceptedWebhook;

    fn deref(&self) -> &AcceptedWebhook {
        &self.accepted
    }
}

/// Why the handler is not called, and what is answered instead.
#[derive(Debug)]
pub enum WebhookRejection {
    /// The provider checks the URL.
    Handshake(ProviderReply),
    /// The request is not accepted.
    Rejected(Rejection),
}

/// Routes the POST of webhooks and the GET or HEAD of handshakes to a handler with a [`Webhook`] argument.
pub fn webhook<H, T, S>(handler: H) -> MethodRouter<S>
where
    H: Handler<T, S>,
    T: 'static,
    S: Clone + Send + Sync + 'static,
{
    on(MethodFilter::GET.or(MethodFilter::POST), handler)
}

impl<P: 'static, S> FromRequest<S> for Webhook<P>
where
    Receiver<P>: FromRef<S>,
    S: Send + Sync,
{
    type Rejection = WebhookRejection;

    async fn from_request(request: Request, state: &S) -> Result<Self, WebhookRejection> {
        let receiver = Receiver::<P>::from_ref(state);
        let request = read_request(&receiver, request).await.map_err(WebhookRejection::Rejected)?;
        match receiver.receive(&request).await {
            Ok(WebhookRequest::Webhook(accepted)) => Ok(Self { accepted, preset: PhantomData }),
            Ok(WebhookRequest::Handshake(reply)) => Err(WebhookRejection::Handshake(reply)),
            Err(rejection) => Err(WebhookRejection::Rejected(rejection)),
        }
    }
}

/// Reads the body within the limit; one that is declared as larger is not read at all.
async fn read_request<P>(
    receiver: &Receiver<P>,
    request: Request,
) -> Result<http::Request<Bytes>, Rejection> {
    let limit = receiver.max_body_bytes();
    let too_large = || receiver.reject(RejectionReason::BodyTooLarge { limit });
    let (mut parts, body) = request.into_parts();
    // A nested router removes the prefix of the path.
    if let Some(OriginalUri(uri)) = parts.extensions.remove::<OriginalUri>() {
        parts.uri = uri;
    }
    if matches!(parts.method, Method::GET | Method::HEAD) {
        return Ok(http::Request::from_parts(parts, Bytes::new()));
    }
    let declared = parts.headers.get(header::CONTENT_LENGTH).map(HeaderValue::to_str);
    let declared = declared.and_then(|text| text.ok()?.parse::<u64>().ok());
    if declared.is_some_and(|bytes| bytes > limit as u64) {
        return Err(too_large());
    }
    match Limited::new(body, limit).collect().await {
        Ok(body) => Ok(http::Request::from_parts(parts, body.to_bytes())),
        Err(error) if error.is::<LengthLimitError>() => Err(too_large()),
        Err(error) => Err(receiver.reject(RejectionReason::BodyUnreadable(error.to_string()))),
    }
}

impl IntoResponse for ProviderReply {
    fn into_response(self) -> Response {
        self.to_response().map(Body::from)
    }
}

impl IntoResponse for Rejection {
    fn into_response(self) -> Response {
        self.to_response().map(Body::from)
    }
}

impl IntoResponse for WebhookRejection {
    fn into_response(self) -> Response {
        match self {
            Self::Handshake(reply) => reply.into_response(),
            Self::Rejected(rejection) => rejection.into_response(),
        }
    }
}
