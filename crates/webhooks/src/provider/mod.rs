//! Provider presets: verification, splitting, keys and replies of each provider's webhooks.
//!
//! A [`Provider`] has no state; a new one is a module and a line in [`PROVIDERS`]. What must hold:
//! - The signature is verified over the raw bytes before anything is parsed.
//! - A body of unknown shape is still one event, unchanged and without a key, so that nothing that
//!   was signed is lost.
//! - A request with several events is split into envelopes of the same shape with one event each; a
//!   single event keeps the body byte for byte.

mod calendly;
mod chatwoot;
mod discord;
mod evolution_api;
mod evolution_go;
mod evonexus;
mod fields;
mod form;
mod generic;
mod github;
mod gitlab;
mod hubspot;
mod linear;
mod mercado_pago;
mod message_status;
mod n8n;
mod paypal;
mod preset;
mod raw_json;
mod secret_path;
mod shopify;
mod slack;
mod square;
mod standard_webhooks;
mod stripe;
mod telegram;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod twilio;
mod typeform;
mod whatsapp_cloud;
mod zoom;

use std::{fmt, time::Duration};

use bytes::Bytes;
use http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use surehook_types::{secret::Secret, time::HumanDuration};

pub use self::{
    fields::{BodyFields, FieldValues},
    message_status::MessageStatusUpdate,
};
use crate::{
    attribute::{Attributes, EventKind},
    key::DedupKey,
    request::IncomingRequest,
    verify::{Verifier, VerifyError, VerifySpecError},
};

/// Default dedup window: longer than any provider retries (Meta retries for seven days).
pub const DEDUP_WINDOW: HumanDuration = HumanDuration::from_secs(8 * 86_400);
/// Largest body that a source may accept.
pub const BODY_BYTES_CEILING: usize = 25 * 1024 * 1024;

/// Every preset, sorted by name.
pub static PROVIDERS: &[&dyn Provider] = &[
    &calendly::Calendly,
    &chatwoot::Chatwoot,
    &discord::Discord,
    &evolution_api::EvolutionApiPreset,
    &evolution_go::EvolutionGoPreset,
    &evonexus::EVONEXUS,
    &generic::Generic,
    &github::Github,
    &gitlab::Gitlab,
    &hubspot::Hubspot,
    &linear::Linear,
    &mercado_pago::MercadoPago,
    &n8n::N8N,
    &paypal::Paypal,
    &shopify::Shopify,
    &slack::Slack,
    &square::SQUARE,
    &standard_webhooks::StandardWebhooks,
    &stripe::STRIPE,
    &telegram::Telegram,
    &twilio::Twilio,
    &typeform::TYPEFORM,
    &whatsapp_cloud::WhatsAppCloudPreset,
    &zoom::Zoom,
];

/// The provider with this name.
pub fn find(name: &str) -> Option<&'static dyn Provider> {
    PROVIDERS.iter().copied().find(|provider| provider.name() == name)
}

pub fn preset_names() -> Vec<&'static str> {
    PROVIDERS.iter().map(|provider| provider.name()).collect()
}

/// Whether a header contains a provider's signature, which is invalid for any other body.
pub fn is_signature_header(name: &str) -> bool {
    let of = |provider: &&dyn Provider| {
        provider.signature_headers().iter().any(|header| header.eq_ignore_ascii_case(name))
    };
    PROVIDERS.iter().any(of)
}

/// What happens to a request that fails verification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RefusalPolicy {
    /// Answer 401; the provider retries.
    Unauthorized,
    /// Answer 401, and quarantine the request if it carries credentials: this provider does not
    /// retry.
    Keep,
    /// Answer 503 and quarantine the request: this provider never retries after 401.
    Quarantine,
}

/// The webhooks of one provider.
pub trait Provider: fmt::Debug + Send + Sync {
    /// The name in settings, such as `whatsapp-cloud`.
    fn name(&self) -> &'static str;

    /// The verifier of its requests, unless the source sets `verify`. `secrets` has the current one
    /// first and is never empty.
    fn verifier(&self, secrets: Vec<Secret>) -> Result<Verifier, VerifySpecError>;

    /// Parses a verified request; `secret` is the one that matched.
    fn parse_request(
        &self,
        request: &IncomingRequest<'_>,
        secret: Option<&Secret>,
    ) -> ParsedRequest;

    /// How long keys are remembered: longer than the provider retries.
    fn dedup_window(&self) -> HumanDuration {
        DEDUP_WINDOW
    }

    /// The largest body that it sends, if larger than the server's default limit.
    fn max_body_bytes(&self) -> Option<usize> {
        None
    }

    /// The signature headers. They are not forwarded with a changed body.
    fn signature_headers(&self) -> &'static [&'static str] {
        &[]
    }

    /// The header that may contain the secret itself. It is never forwarded.
    fn secret_header(&self) -> Option<&'static str> {
        None
    }

    /// Answers the GET request with which the provider verifies the URL, if it sends one.
    fn answer_handshake(
        &self,
        _query: Option<&str>,
        _verify_token: Option<&Secret>,
    ) -> Option<Result<ProviderReply, VerifyError>> {
        None
    }

    /// The reply after the events are stored, if the default reply would cause harm.
    fn success_reply(&self, _request: &IncomingRequest<'_>) -> Option<ProviderReply> {
        None
    }

    /// Whether its message statuses carry our delivery ids, so that they can confirm deliveries.
    fn echoes_delivery_ids(&self) -> bool {
        false
    }

    /// What happens to a request that fails verification.
    fn on_refusal(&self) -> RefusalPolicy {
        RefusalPolicy::Unauthorized
    }

    /// The status of a sent message that an event reports, if it reports one; `status` is the
    /// `provider_status` attribute.
    fn message_status(&self, _kind: &str, _status: Option<&str>) -> Option<MessageStatusUpdate> {
        None
    }

    /// Why a sent message failed, in the provider's words, if the event says so.
    fn failure_reason(&self, _body: &[u8]) -> Option<String> {
        None
    }

    /// Realistic events of each kind, for `surehook send-test`.
    fn samples(&self) -> &'static [SampleEvent] {
        &[]
    }
}

/// The content of a verified request.
#[derive(Debug, PartialEq, Eq)]
pub enum ParsedRequest {
    /// A handshake, which is answered immediately and not stored.
    Handshake(ProviderReply),
    /// The events in order; may be empty.
    Events(Vec<EventPart>),
}

impl ParsedRequest {
    pub fn single(part: EventPart) -> Self {
        Self::Events(vec![part])
    }
}

/// One event of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventPart {
    /// The body; `None` means the body of the request, byte for byte.
    pub body: Option<Bytes>,
    pub kind: Option<EventKind>,
    pub key: EventKey,
    /// Ordering key: events with the same one are delivered in order.
    pub order: Option<DedupKey>,
    /// Search attributes.
    pub attributes: Attributes,
    /// A ping is stored but not delivered.
    pub is_ping: bool,
}

/// How duplicates of an event are recognized.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum EventKey {
    /// By the key rules of the source, or the default rules.
    #[default]
    Rules,
    /// By this key; the text describes where it comes from.
    Known(DedupKey, &'static str),
    /// By the hash of the body within this window: equal bytes later are another event.
    ContentHash(Duration),
    /// Duplicates are not recognized.
    None,
}

impl EventKey {
    pub fn known(key: Option<DedupKey>, from: &'static str) -> Self {
        key.map_or(Self::None, |key| Self::Known(key, from))
    }
}

/// A reply in the form that the provider expects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderReply {
    pub status: StatusCode,
    /// `None` for an empty body.
    pub content_type: Option<&'static str>,
    pub body: Bytes,
}

impl ProviderReply {
    pub fn empty(status: StatusCode) -> Self {
        Self { status, content_type: None, body: Bytes::new() }
    }

    /// Status 200 with a text.
    pub fn text(body: impl Into<Bytes>) -> Self {
        let content_type = Some("text/plain; charset=utf-8");
        Self { status: StatusCode::OK, content_type, body: body.into() }
    }

    /// Status 200 with JSON.
    pub fn json(body: impl Into<Bytes>) -> Self {
        let content_type = Some("application/json");
        Self { status: StatusCode::OK, content_type, body: body.into() }
    }
}

/// A realistic event for `surehook send-test`.
///
/// Its texts may contain `{{id}}` (letters and digits, different in every event), `{{number}}` (digits
/// without a leading zero, different in every event), `{{uuid}}`, `{{phone}}` (a mobile number),
/// `{{now}}` (seconds since 1970), `{{now_ms}}` and `{{now_iso}}`.
#[derive(Clone, Copy, Debug)]
pub struct SampleEvent {
    /// The event kind.
    pub kind: &'static str,
    /// Headers besides the signature.
    pub headers: &'static [(&'static str, &'static str)],
    /// Path suffix and query.
    pub target: &'static str,
    pub body: &'static str,
}
