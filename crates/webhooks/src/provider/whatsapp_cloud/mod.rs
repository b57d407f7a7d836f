//! Meta's WhatsApp Cloud API: signed over the body, up to a thousand events per request, with a GET
//! handshake.
//!
//! Meta regroups events when it retries, and retries for every app of an account when one app fails.
//! So each event has its own key, independent of the request.

mod envelope;
mod keys;
mod split;
#[cfg(test)]
mod tests;

use surehook_types::{secret::Secret, time::HumanDuration};
use url::form_urlencoded;

use super::{ParsedRequest, Provider, ProviderReply, SampleEvent};
use crate::{
    provider::MessageStatusUpdate,
    request::IncomingRequest,
    verify::{HmacSpec, Verifier, VerifyError, VerifySpec, VerifySpecError},
};

/// Meta's challenge is a short number; longer texts are not echoed.
const CHALLENGE_BYTES_MAX: usize = 512;

#[derive(Debug)]
pub(super) struct WhatsAppCloudPreset;

impl Provider for WhatsAppCloudPreset {
    fn name(&self) -> &'static str {
        "whatsapp-cloud"
    }

    /// The key is the app secret. The raw bytes are signed, including escapes.
    fn verifier(&self, secrets: Vec<Secret>) -> Result<Verifier, VerifySpecError> {
        let spec =
            HmacSpec { prefix: "sha256=".to_owned(), ..HmacSpec::new("x-hub-signature-256") };
        Verifier::new(&VerifySpec::Hmac(Box::new(spec)), secrets)
    }

    fn parse_request(&self, request: &IncomingRequest<'_>, _: Option<&Secret>) -> ParsedRequest {
        ParsedRequest::Events(split::parts(request.body))
    }

    /// Meta retries for seven days.
    fn dedup_window(&self) -> HumanDuration {
        HumanDuration::from_secs(8 * 86_400)
    }

    /// Meta documents up to three megabytes.
    fn max_body_bytes(&self) -> Option<usize> {
        Some(4 << 20)
    }

    fn signature_headers(&self) -> &'static [&'static str] {
        &["x-hub-signature-256", "x-hub-signature"]
    }

    fn answer_handshake(
        &self,
        query: Option<&str>,
        verify_token: Option<&Secret>,
    ) -> Option<Result<ProviderReply, VerifyError>> {
        let handshake = HandshakeQuery::parse(query?)?;
        Some(handshake.answer(verify_token))
    }

    fn echoes_delivery_ids(&self) -> bool {
        true
    }

    fn message_status(&self, kind: &str, _: Option<&str>) -> Option<MessageStatusUpdate> {
        MessageStatusUpdate::parse(kind.strip_prefix("status.")?)
    }

    fn failure_reason(&self, body: &[u8]) -> Option<String> {
        let body: serde_json::Value = serde_json::from_slice(body).ok()?;
        let error = body.pointer("/entry/0/changes/0/value/statuses/0/errors/0")?;
        let text = ["title", "message"].into_iter().find_map(|name| error.get(name)?.as_str());
        text.map(str::to_owned)
    }

    fn samples(&self) -> &'static [SampleEvent] {
        SAMPLES
    }
}

/// The query of the handshake that Meta sends when a URL is configured.
#[derive(Default)]
struct HandshakeQuery {
    mode: Option<String>,
    token: Option<String>,
    challenge: Option<String>,
    has_repeated_param: bool,
}

impl HandshakeQuery {
    /// `None` if the query has no handshake parameter.
    fn parse(query: &str) -> Option<Self> {
        let mut handshake = Self::default();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let param = match &*name {
                "hub.mode" => &mut handshake.mode,
                "hub.verify_token" => &mut handshake.token,
                "hub.challenge" => &mut handshake.challenge,
                _ => continue,
            };
            handshake.has_repeated_param |= param.replace(value.into_owned()).is_some();
        }
        let is_handshake =
            handshake.mode.is_some() || handshake.token.is_some() || handshake.challenge.is_some();
        is_handshake.then_some(handshake)
    }

    fn answer(self, verify_token: Option<&Secret>) -> Result<ProviderReply, VerifyError> {
        let malformed = VerifyError::Malformed { part: "handshake" };
        let (Some("subscribe"), false) = (self.mode.as_deref(), self.has_repeated_param) else {
            return Err(malformed);
        };
        let expected = verify_token.ok_or(VerifyError::NoVerifyToken)?;
        let token = self.token.unwrap_or_default();
        if !expected.matches(token.as_bytes()) {
            return Err(VerifyError::Mismatch);
        }
        let challenge =
            self.challenge.filter(|text| (1..=CHALLENGE_BYTES_MAX).contains(&text.len()));
        challenge.map(ProviderReply::text).ok_or(malformed)
    }
}

macro_rules! sample {
    ($kind:literal, $file:literal) => {
        SampleEvent {
            kind: $kind,
            headers: &[("content-type", "application/json"), ("user-agent", "facebookexternalua")],
            target: "",
            body: include_str!(concat!("../samples/whatsapp_cloud/", $file, ".json")),
        }
    };
}

static SAMPLES: &[SampleEvent] = &[
    sample!("message", "text"),
    sample!("message", "image"),
    sample!("message", "audio"),
    sample!("message", "button_reply"),
    sample!("message.reaction", "reaction"),
    sample!("message.system", "system"),
    sample!("message.unsupported", "unsupported"),
    sample!("status.sent", "sent"),
    sample!("status.delivered", "delivered"),
    sample!("status.read", "read"),
    sample!("status.failed", "failed"),
    sample!("message_template_status_update", "template"),
    // Six events: two messages, three statuses, and a message of another account.
    sample!("batch", "batch"),
];
