//! WhatsApp Cloud API of Meta: signed over the body, up to a thousand events in a request, and asked
//! with a GET before it begins.
//!
//! Meta groups events anew when it sends them again, and sends them again to every app of an account
//! when one of them fails. So each event has a key of its own, whatever it came with.

mod envelope;
mod keys;
mod samples;
mod split;
#[cfg(test)]
mod tests;

use url::form_urlencoded;

use super::{ParsedRequest, Provider, ProviderReply, SampleEvent};
use crate::{
    channel::MessageStatusUpdate,
    request::IncomingRequest,
    secret::Secret,
    time::HumanDuration,
    verify::{HmacSpec, Verifier, VerifyError, VerifySpec, VerifySpecError},
};

/// Meta's challenge is a number. What we are told to say stays short.
const CHALLENGE_BYTES_MAX: usize = 512;

#[derive(Debug)]
pub(super) struct WhatsAppCloud;

impl Provider for WhatsAppCloud {
    fn name(&self) -> &'static str {
        "whatsapp-cloud"
    }

    /// The key is the app secret. The bytes count as they came, escapes and all: written anew they
    /// would pass until the first `é`.
    fn verifier(&self, secrets: Vec<Secret>) -> Result<Verifier, VerifySpecError> {
        let spec =
            HmacSpec { prefix: "sha256=".to_owned(), ..HmacSpec::new("x-hub-signature-256") };
        Verifier::new(&VerifySpec::Hmac(Box::new(spec)), secrets)
    }

    fn parse_request(&self, request: &IncomingRequest<'_>, _: Option<&Secret>) -> ParsedRequest {
        ParsedRequest::Events(split::parts(request.body))
    }

    /// It goes on for seven days.
    fn dedup_window(&self) -> HumanDuration {
        HumanDuration::from_secs(8 * 86_400)
    }

    /// They say up to three megabytes.
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
        let asked = Asked::read(query?)?;
        Some(asked.answer(verify_token))
    }

    fn echoes_delivery_ids(&self) -> bool {
        true
    }

    fn message_status(&self, kind: &str, _: Option<&str>) -> Option<MessageStatusUpdate> {
        MessageStatusUpdate::from_word(kind.strip_prefix("status.")?)
    }

    fn failure_reason(&self, body: &[u8]) -> Option<String> {
        let body: serde_json::Value = serde_json::from_slice(body).ok()?;
        let error = body.pointer("/entry/0/changes/0/value/statuses/0/errors/0")?;
        let text = ["title", "message"].into_iter().find_map(|name| error.get(name)?.as_str());
        text.map(str::to_owned)
    }

    fn samples(&self) -> &'static [SampleEvent] {
        samples::SAMPLES
    }
}

/// What Meta asks when an address is entered or changed there.
#[derive(Default)]
struct Asked {
    mode: Option<String>,
    token: Option<String>,
    challenge: Option<String>,
    is_doubtful: bool,
}

impl Asked {
    /// Nothing if it is no question of Meta's at all.
    fn read(query: &str) -> Option<Self> {
        let mut asked = Self::default();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let place = match &*name {
                "hub.mode" => &mut asked.mode,
                "hub.verify_token" => &mut asked.token,
                "hub.challenge" => &mut asked.challenge,
                _ => continue,
            };
            asked.is_doubtful |= place.replace(value.into_owned()).is_some();
        }
        let is_asked = asked.mode.is_some() || asked.token.is_some() || asked.challenge.is_some();
        is_asked.then_some(asked)
    }

    fn answer(self, verify_token: Option<&Secret>) -> Result<ProviderReply, VerifyError> {
        let malformed = VerifyError::Malformed { part: "handshake" };
        let (Some("subscribe"), false) = (self.mode.as_deref(), self.is_doubtful) else {
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
