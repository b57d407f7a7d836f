//! Provider presets: verification, splitting, keys and replies of each provider's webhooks.
//!
//! A [`Provider`] is a row of data and a line in `presets!`. One that needs no code of its own is in
//! `presets.rs`, each other one is a module. What must hold:
//! - The signature is verified over the raw bytes before anything is parsed.
//! - A body of unknown shape is still one event, unchanged and without a key, so that nothing that
//!   was signed is lost.
//! - A request with several events is split into envelopes of the same shape with one event each; a
//!   single event keeps the body byte for byte.

/// A sample in a file of `samples/`.
macro_rules! sample {
    ($headers:expr, $kind:literal, $file:literal) => {
        $crate::provider::SampleEvent::new(
            $kind,
            $headers,
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/provider/samples/", $file)),
        )
    };
}

mod adyen;
mod asana;
mod calendly;
mod chatwoot;
mod discord;
mod evolution_api;
mod evolution_go;
mod fields;
mod form;
mod github;
mod gitlab;
mod hubspot;
mod mercado_pago;
mod message_status;
mod notion;
mod okta;
mod paypal;
mod presets;
mod raw_json;
mod secret_path;
mod sendgrid;
mod slack;
mod standard_webhooks;
mod telegram;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod twilio;
mod twitch;
mod whatsapp_cloud;
mod zoom;

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use surehook_types::{secret::Secret, time::HumanDuration};

pub(crate) use self::form::is_form;
pub use self::{
    form::{DecodedField, form_fields, is_form_type},
    message_status::MessageStatusUpdate,
};
use crate::{
    attribute::{Attributes, EventKind},
    key::DedupKey,
    request::IncomingRequest,
    verify::{Verifier, VerifyError, VerifySpecError},
};

/// Default dedup window: longer than any provider retries (Meta retries for seven days).
pub const DEFAULT_DEDUP_WINDOW: HumanDuration = HumanDuration::from_secs(8 * 86_400);
/// Largest body that a source may accept.
pub const BODY_BYTES_CEILING: usize = 25 * 1024 * 1024;

/// Makes the list of all presets, and a marker type for each.
macro_rules! presets {
    ($($marker:ident = $provider:path,)*) => {
        /// Every preset, sorted by name.
        pub static PROVIDERS: &[&Provider] = &[$(&$provider),*];

        /// A type for each preset, for [`Receiver::of`](crate::Receiver::of).
        pub mod preset {
            use super::*;

            $(
                #[doc = concat!("The preset for webhooks of ", stringify!($marker), ".")]
                #[derive(Clone, Copy, Debug, Default)]
                pub struct $marker;

                impl Preset for $marker {
                    fn provider() -> &'static Provider {
                        &$provider
                    }
                }
            )*
        }
    };
}

presets! {
    Adyen = adyen::ADYEN,
    Asana = asana::ASANA,
    Calendly = calendly::CALENDLY,
    Chatwoot = chatwoot::CHATWOOT,
    Discord = discord::DISCORD,
    Docusign = presets::DOCUSIGN,
    EvolutionApi = evolution_api::EVOLUTION_API,
    EvolutionGo = evolution_go::EVOLUTION_GO,
    EvoNexus = presets::EVONEXUS,
    Generic = presets::GENERIC,
    GitHub = github::GITHUB,
    GitLab = gitlab::GITLAB,
    HubSpot = hubspot::HUBSPOT,
    Intercom = presets::INTERCOM,
    Linear = presets::LINEAR,
    MercadoPago = mercado_pago::MERCADO_PAGO,
    N8n = presets::N8N,
    Notion = notion::NOTION,
    Okta = okta::OKTA,
    PayPal = paypal::PAYPAL,
    SendGrid = sendgrid::SENDGRID,
    Sentry = presets::SENTRY,
    Shopify = presets::SHOPIFY,
    Slack = slack::SLACK,
    Square = presets::SQUARE,
    StandardWebhooks = standard_webhooks::STANDARD_WEBHOOKS,
    Stripe = presets::STRIPE,
    Telegram = telegram::TELEGRAM,
    Trello = presets::TRELLO,
    Twilio = twilio::TWILIO,
    Twitch = twitch::TWITCH,
    Typeform = presets::TYPEFORM,
    WhatsAppCloud = whatsapp_cloud::WHATSAPP_CLOUD,
    Zoom = zoom::ZOOM,
}

/// A provider's preset as a type, such as [`Stripe`](crate::preset::Stripe).
pub trait Preset: Copy + Send + Sync + 'static {
    /// The data of the preset.
    fn provider() -> &'static Provider;
}

/// The provider with this name.
pub fn find(name: &str) -> Option<&'static Provider> {
    PROVIDERS.iter().copied().find(|provider| provider.name == name)
}

/// The names of all presets, sorted.
pub fn preset_names() -> Vec<&'static str> {
    PROVIDERS.iter().map(|provider| provider.name).collect()
}

/// Whether a header contains a provider's signature, which is invalid for any other body.
pub fn is_signature_header(name: &str) -> bool {
    let mut headers = PROVIDERS.iter().flat_map(|provider| provider.signature_headers);
    headers.any(|header| header.eq_ignore_ascii_case(name))
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

/// The webhooks of one provider, as data. Functions do only what is special about it.
#[derive(Debug)]
pub struct Provider {
    /// The name in settings, such as `whatsapp-cloud`.
    pub name: &'static str,
    /// The verifier of its requests, unless the source sets `verify`. The secrets have the current one
    /// first and are never empty.
    pub verifier: fn(Vec<Secret>) -> Result<Verifier, VerifySpecError>,
    /// Parses a verified request; the secret is the one that matched.
    pub parse_request: fn(&IncomingRequest<'_>, Option<&Secret>) -> ParsedRequest,
    /// The key rules of events with [`EventKey::Rules`], instead of the default rules.
    pub key_rules: &'static [&'static str],
    /// Whether its event id is in a header that the signature does not cover. Key rules may read such
    /// headers then.
    pub has_unsigned_id: bool,
    /// Top-level members of its JSON bodies that may differ between attempts.
    pub retry_members: &'static [&'static str],
    /// Whether signed bytes that are received again under another unsigned id are a duplicate.
    pub replay_guard: bool,
    /// How long keys are remembered: longer than the provider retries.
    pub dedup_window: HumanDuration,
    /// The largest body that it sends, if larger than the server's default limit.
    pub max_body_bytes: Option<usize>,
    /// The signature headers. They are not forwarded with a changed body.
    pub signature_headers: &'static [&'static str],
    /// The header that may contain the secret itself. It is never forwarded.
    pub secret_header: Option<&'static str>,
    /// How the provider checks a URL before it sends events.
    pub handshake: HandshakeKind,
    /// Answers the request with which the provider checks the URL, if it is not a POST that verifies.
    pub answer_handshake: fn(&HandshakeRequest<'_>) -> HandshakeAnswer,
    /// The reply after the events are stored, if the default reply would cause harm.
    pub success_reply: fn(&IncomingRequest<'_>) -> Option<ProviderReply>,
    /// Whether its message statuses carry our delivery ids, so that they can confirm deliveries.
    pub echoes_delivery_ids: bool,
    /// What happens to a request that fails verification.
    pub on_refusal: RefusalPolicy,
    /// The status of a sent message that an event reports, if it reports one, from the event kind and
    /// the `provider_status` attribute.
    pub message_status: fn(&str, Option<&str>) -> Option<MessageStatusUpdate>,
    /// Why a sent message failed, in the provider's words, if the body of the event says so.
    pub failure_reason: fn(&[u8]) -> Option<String>,
    /// Realistic events of each kind, for `surehook send-test`.
    pub samples: &'static [SampleEvent],
}

impl Provider {
    /// A provider without verification, whose requests are one event each.
    pub const DEFAULT: Self = Self {
        name: "",
        verifier: |_| Err(VerifySpecError::NoDefaultScheme),
        parse_request: |_, _| ParsedRequest::single(EventPart::default()),
        key_rules: &[],
        has_unsigned_id: false,
        retry_members: &[],
        replay_guard: true,
        dedup_window: DEFAULT_DEDUP_WINDOW,
        max_body_bytes: None,
        signature_headers: &[],
        secret_header: None,
        handshake: HandshakeKind::None,
        answer_handshake: |_| None,
        success_reply: |_| None,
        echoes_delivery_ids: false,
        on_refusal: RefusalPolicy::Unauthorized,
        message_status: |_, _| None,
        failure_reason: |_| None,
        samples: &[],
    };

    /// The verifier of its requests. The secrets have the current one first.
    pub fn verifier(&self, secrets: Vec<Secret>) -> Result<Verifier, VerifySpecError> {
        (self.verifier)(secrets)
    }

    /// Splits a verified request into its events; the secret is the one that matched.
    pub fn parse_request(
        &self,
        request: &IncomingRequest<'_>,
        secret: Option<&Secret>,
    ) -> ParsedRequest {
        (self.parse_request)(request, secret)
    }

    /// Answers a request with which the provider checks the URL: one that is not a POST, or a POST that
    /// does not verify.
    pub fn answer_handshake(&self, request: &HandshakeRequest<'_>) -> HandshakeAnswer {
        (self.answer_handshake)(request)
    }

    /// The reply after success, if it is not simply status 200.
    pub fn success_reply(&self, request: &IncomingRequest<'_>) -> Option<ProviderReply> {
        (self.success_reply)(request)
    }

    /// The status of a sent message that an event of this kind reports.
    pub fn message_status(&self, kind: &str, status: Option<&str>) -> Option<MessageStatusUpdate> {
        (self.message_status)(kind, status)
    }

    /// Why a sent message failed, if the body of the event says so.
    pub fn failure_reason(&self, body: &[u8]) -> Option<String> {
        (self.failure_reason)(body)
    }
}

/// How a provider checks a URL before it sends events to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeKind {
    /// Not at all.
    None,
    /// By a request whose answer needs nothing but the settings of the source.
    Automatic,
    /// By a GET with the `verify_token` of the source.
    VerifyToken,
    /// By a POST with the secret of later signatures, which is to be echoed. The provider also shows the
    /// secret to the person who registers the URL.
    EchoedSecret,
    /// By a POST with the secret of later signatures, which a person has to read from it.
    SentSecret,
}

/// A request with which a provider may check a URL. Nothing of it is verified.
#[derive(Clone, Copy, Debug)]
pub struct HandshakeRequest<'r> {
    /// The method.
    pub method: &'r Method,
    /// The query string without `?`.
    pub query: Option<&'r str>,
    /// The headers.
    pub headers: &'r HeaderMap,
    /// The body of a POST; empty for other methods.
    pub body: &'r [u8],
    /// The verify token of the source.
    pub verify_token: Option<&'r Secret>,
}

/// `None` if a request is not a handshake of the provider.
pub type HandshakeAnswer = Option<Result<ProviderReply, VerifyError>>;

/// The content of a verified request.
#[derive(Debug, PartialEq, Eq)]
pub enum ParsedRequest {
    /// A handshake, which is answered immediately and not stored.
    Handshake(ProviderReply),
    /// The events in order; may be empty.
    Events(Vec<EventPart>),
}

impl ParsedRequest {
    /// A request with one event.
    pub fn single(part: EventPart) -> Self {
        Self::Events(vec![part])
    }

    /// The events of a list. A body without such a list is one event without a key.
    fn list(parts: Option<Vec<EventPart>>) -> Self {
        let whole_body = || vec![EventPart { key: EventKey::None, ..EventPart::default() }];
        Self::Events(parts.unwrap_or_else(whole_body))
    }
}

/// One event of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventPart {
    /// The body; `None` means the body of the request, byte for byte.
    pub body: Option<Bytes>,
    /// The event type, as the provider names it.
    pub kind: Option<EventKind>,
    /// How duplicates are recognized.
    pub key: EventKey,
    /// Events with the same ordering key are delivered in order.
    pub ordering_key: Option<DedupKey>,
    /// Search attributes.
    pub attributes: Attributes,
    /// The key that earlier versions gave the event, if it is another one.
    pub earlier_key: Option<DedupKey>,
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
    /// By this key, if there is one, which the provider's signature does not cover.
    Unsigned(Option<DedupKey>, &'static str),
    /// By the hash of the body within this window: equal bytes later are another event.
    ContentHash(Duration),
    /// Duplicates are not recognized.
    None,
}

impl EventKey {
    /// This key; without one, duplicates are not recognized.
    pub fn known_or_none(key: Option<DedupKey>, origin: &'static str) -> Self {
        key.map_or(Self::None, |key| Self::Known(key, origin))
    }
}

/// A reply in the form that the provider expects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderReply {
    /// The status.
    pub status: StatusCode,
    /// `None` for an empty body.
    pub content_type: Option<&'static str>,
    /// A further header.
    pub header: Option<(HeaderName, HeaderValue)>,
    /// The body.
    pub body: Bytes,
}

impl ProviderReply {
    /// A reply without a body.
    pub fn empty(status: StatusCode) -> Self {
        Self { status, content_type: None, header: None, body: Bytes::new() }
    }

    /// Status 200 with a text.
    pub fn text(body: impl Into<Bytes>) -> Self {
        let content_type = Some("text/plain; charset=utf-8");
        Self { content_type, body: body.into(), ..Self::empty(StatusCode::OK) }
    }

    /// Status 200 with JSON.
    pub fn json(body: impl Into<Bytes>) -> Self {
        let content_type = Some("application/json");
        Self { content_type, body: body.into(), ..Self::empty(StatusCode::OK) }
    }

    /// The HTTP response.
    pub fn to_response(&self) -> Response<Bytes> {
        let mut response = Response::new(self.body.clone());
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        if let Some(content_type) = self.content_type {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        }
        headers.extend(self.header.clone());
        response
    }
}

/// Answers the HEAD request with which some providers check that a URL exists.
fn answer_head(request: &HandshakeRequest<'_>) -> HandshakeAnswer {
    (request.method == Method::HEAD).then(|| Ok(ProviderReply::empty(StatusCode::OK)))
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
    pub headers: SampleHeaders,
    /// Path suffix and query.
    pub target: &'static str,
    /// The body.
    pub body: &'static str,
}

type SampleHeaders = &'static [(&'static str, &'static str)];

const JSON: SampleHeaders = &[("content-type", "application/json")];
const JSON_UTF8: SampleHeaders = &[("content-type", "application/json; charset=utf-8")];

impl SampleEvent {
    const fn new(kind: &'static str, headers: SampleHeaders, body: &'static str) -> Self {
        Self { kind, headers, target: "", body }
    }

    const fn json(kind: &'static str, body: &'static str) -> Self {
        Self::new(kind, JSON, body)
    }
}
