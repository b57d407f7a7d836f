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

use http::Method;
use surehook_types::{secret::Secret, time::HumanDuration};
use url::form_urlencoded;

use super::{
    HandshakeKind, MessageStatusUpdate, ParsedRequest, Provider, ProviderReply, SampleHeaders,
};
use crate::verify::{HmacSpec, Verifier, VerifyError};

/// Meta's challenge is a short number; longer texts are not echoed.
const CHALLENGE_BYTES_MAX: usize = 512;

const HEADERS: SampleHeaders =
    &[("content-type", "application/json"), ("user-agent", "facebookexternalua")];

pub(super) static WHATSAPP_CLOUD: Provider = Provider {
    name: "whatsapp-cloud",
    // The key is the app secret. The raw bytes are signed, including escapes.
    verifier: |secrets| {
        let prefix = "sha256=".to_owned();
        Verifier::hmac(HmacSpec { prefix, ..HmacSpec::new("x-hub-signature-256") }, secrets)
    },
    signature_headers: &["x-hub-signature-256", "x-hub-signature"],
    // Meta retries for seven days.
    dedup_window: HumanDuration::from_secs(8 * 86_400),
    // Meta documents up to three megabytes.
    max_body_bytes: Some(4 << 20),
    parse_request: |request, _| ParsedRequest::Events(split::parts(request.body)),
    handshake: HandshakeKind::VerifyToken,
    answer_handshake: |request| {
        let query = request.query.filter(|_| request.method == Method::GET);
        Some(HandshakeQuery::parse(query?)?.answer(request.verify_token))
    },
    echoes_delivery_ids: true,
    message_status: |kind, _| MessageStatusUpdate::parse(kind.strip_prefix("status.")?),
    failure_reason,
    samples: &[
        sample!(HEADERS, "message", "whatsapp_cloud/text.json"),
        sample!(HEADERS, "message", "whatsapp_cloud/image.json"),
        sample!(HEADERS, "message", "whatsapp_cloud/audio.json"),
        sample!(HEADERS, "message", "whatsapp_cloud/button_reply.json"),
        sample!(HEADERS, "message.reaction", "whatsapp_cloud/reaction.json"),
        sample!(HEADERS, "message.system", "whatsapp_cloud/system.json"),
        sample!(HEADERS, "message.unsupported", "whatsapp_cloud/unsupported.json"),
        sample!(HEADERS, "status.sent", "whatsapp_cloud/sent.json"),
        sample!(HEADERS, "status.delivered", "whatsapp_cloud/delivered.json"),
        sample!(HEADERS, "status.read", "whatsapp_cloud/read.json"),
        sample!(HEADERS, "status.failed", "whatsapp_cloud/failed.json"),
        sample!(HEADERS, "message_template_status_update", "whatsapp_cloud/template.json"),
        // Six events: two messages, three statuses, and a message of another account.
        sample!(HEADERS, "batch", "whatsapp_cloud/batch.json"),
    ],
    ..Provider::DEFAULT
};

fn failure_reason(body: &[u8]) -> Option<String> {
    let body: serde_json::Value = serde_json::from_slice(body).ok()?;
    let error = body.pointer("/entry/0/changes/0/value/statuses/0/errors/0")?;
    let text = ["title", "message"].into_iter().find_map(|name| error.get(name)?.as_str());
    text.map(str::to_owned)
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
            return Err(VerifyError::WrongVerifyToken);
        }
        let challenge =
            self.challenge.filter(|text| (1..=CHALLENGE_BYTES_MAX).contains(&text.len()));
        challenge.map(ProviderReply::text).ok_or(malformed)
    }
}
