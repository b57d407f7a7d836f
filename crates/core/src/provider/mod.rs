//! What the webhooks of each provider are like: how they are verified, split and told apart, and how
//! the provider wants to be answered.
//!
//! A [`Provider`] is a small value without state, one for each preset that `provider = "…"` can name.
//! A new one is a module of its own and a line in [`PROVIDERS`].
//!
//! What holds for all:
//! - The signature is checked over the raw bytes before anything is read ([`Provider::verifier`]).
//! - Whatever cannot be read as the provider writes it is still one event, whole and without a key.
//!   Nothing that was signed is lost because its shape is new.
//! - The body of an event that came with others is an envelope of the same shape with that event
//!   alone; the body of one that came alone is what came, byte for byte.

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
mod list;
mod mercado_pago;
mod n8n;
mod part;
mod paypal;
mod pieces;
mod rules;
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
mod testing_calls;
#[cfg(test)]
mod tests;
mod twilio;
mod typeform;
mod whatsapp_cloud;
mod zoom;

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::{
    fields::{BodyFields, FieldValues},
    part::{EventKey, EventPart, ParsedRequest, ProviderReply, SampleEvent},
};
use crate::{
    channel::MessageStatusUpdate,
    request::IncomingRequest,
    secret::Secret,
    source::DEDUP_WINDOW,
    time::HumanDuration,
    verify::{Verifier, VerifyError, VerifySpecError},
};

/// Every preset, by the names that people see. A new provider is one line here.
pub static PROVIDERS: &[&dyn Provider] = &[
    &calendly::Calendly,
    &chatwoot::Chatwoot,
    &discord::Discord,
    &evolution_api::EvolutionApi,
    &evolution_go::EvolutionGo,
    &evonexus::EvoNexus,
    &generic::Generic,
    &github::Github,
    &gitlab::Gitlab,
    &hubspot::Hubspot,
    &linear::Linear,
    &mercado_pago::MercadoPago,
    &n8n::N8n,
    &paypal::Paypal,
    &shopify::Shopify,
    &slack::Slack,
    &square::Square,
    &standard_webhooks::StandardWebhooks,
    &stripe::Stripe,
    &telegram::Telegram,
    &twilio::Twilio,
    &typeform::Typeform,
    &whatsapp_cloud::WhatsAppCloud,
    &zoom::Zoom,
];

/// The provider of that name.
pub fn find(name: &str) -> Option<&'static dyn Provider> {
    PROVIDERS.iter().copied().find(|provider| provider.name() == name)
}

/// The names of all, for people.
pub fn preset_names() -> Vec<&'static str> {
    PROVIDERS.iter().map(|provider| provider.name()).collect()
}

/// Whether a header holds a provider's signature over a body: it says nothing about another one.
pub fn is_signature_header(name: &str) -> bool {
    let of = |provider: &&dyn Provider| {
        provider.signature_headers().iter().any(|header| header.eq_ignore_ascii_case(name))
    };
    PROVIDERS.iter().any(of)
}

/// What happens to a request whose signature is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RefusalPolicy {
    /// It is answered with 401; the provider sends it again.
    Unauthorized,
    /// It is answered with 401 too, and kept aside if it shows a credential: this provider does not
    /// go on sending, whatever it is answered.
    Keep,
    /// It is answered with 503 and kept aside, because this provider never sends again what was
    /// answered with 401.
    Quarantine,
}

/// What one provider's webhooks are like.
pub trait Provider: fmt::Debug + Send + Sync {
    /// How it is called in settings, such as `whatsapp-cloud`.
    fn name(&self) -> &'static str;

    /// What checks its requests, unless the source has a `verify` of its own. `secrets` has the
    /// current one first and is never empty.
    fn verifier(&self, secrets: Vec<Secret>) -> Result<Verifier, VerifySpecError>;

    /// Reads a request that was verified; `secret` is the one that fitted.
    fn parse_request(
        &self,
        request: &IncomingRequest<'_>,
        secret: Option<&Secret>,
    ) -> ParsedRequest;

    /// How long its keys are remembered: longer than it goes on sending.
    fn dedup_window(&self) -> HumanDuration {
        DEDUP_WINDOW
    }

    /// The largest body that it sends, if that is more than the server's limit.
    fn max_body_bytes(&self) -> Option<usize> {
        None
    }

    /// The headers that hold its signature. They do not travel with a body that they do not fit.
    fn signature_headers(&self) -> &'static [&'static str] {
        &[]
    }

    /// The header in which its requests may carry the secret itself. It ends here: destinations do
    /// not get it.
    fn secret_header(&self) -> Option<&'static str> {
        None
    }

    /// Answers its GET, if it sends one to see who is there.
    fn answer_handshake(
        &self,
        _query: Option<&str>,
        _verify_token: Option<&Secret>,
    ) -> Option<Result<ProviderReply, VerifyError>> {
        None
    }

    /// What it is told when everything is on the disk, if our usual answer would do harm there.
    fn success_reply(&self, _request: &IncomingRequest<'_>) -> Option<ProviderReply> {
        None
    }

    /// Whether its statuses name the sends of ours that they are about: then they are believed.
    fn echoes_delivery_ids(&self) -> bool {
        false
    }

    /// What happens to a request whose signature is wrong.
    fn on_refusal(&self) -> RefusalPolicy {
        RefusalPolicy::Unauthorized
    }

    /// What an event of this kind tells about a message that we sent, if it is about one: `status` is
    /// what the provider says of the thing.
    fn message_status(&self, _kind: &str, _status: Option<&str>) -> Option<MessageStatusUpdate> {
        None
    }

    /// Why a message that we sent failed, in the words of the provider, if the event says so.
    fn failure_reason(&self, _body: &[u8]) -> Option<String> {
        None
    }

    /// Realistic events of each kind, for `surehook send-test`.
    fn samples(&self) -> &'static [SampleEvent] {
        &[]
    }
}
