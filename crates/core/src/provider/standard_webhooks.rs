//! Standard Webhooks: whoever signs by that specification, also under the names of Svix.

use std::{collections::BTreeMap, sync::LazyLock};

use serde_json::value::RawValue;

use super::{BodyFields, EventKey, EventPart, ParsedRequest, Provider, SampleEvent};
use crate::{
    attribute::{AttributeName, EventKind},
    key::DedupKey,
    request::IncomingRequest,
    secret::Secret,
    time::HumanDuration,
    verify::{
        Verifier, VerifySpecError,
        standard::{SIGNATURE_HEADERS, StandardWebhooks as VerificationScheme, message_id},
    },
};

/// What the specification recommends a body to have, and what others call the same.
static FIELDS: LazyLock<BodyFields> = LazyLock::new(|| {
    BodyFields::new(&["/type", "/event_type", "/event", "/data/id", "/data/status"])
});

const ABOUT: [(AttributeName, usize); 2] =
    [(AttributeName::Object, 3), (AttributeName::ProviderStatus, 4)];

#[derive(Debug)]
pub(super) struct StandardWebhooks;

impl Provider for StandardWebhooks {
    fn name(&self) -> &'static str {
        "standard-webhooks"
    }

    fn verifier(&self, secrets: Vec<Secret>) -> Result<Verifier, VerifySpecError> {
        let scheme = VerificationScheme::new(&secrets)?;
        let warnings = scheme.warnings();
        Ok(Verifier::own(Box::new(scheme), secrets.len()).warning(warnings))
    }

    /// The id is the same over all attempts, and it is signed.
    fn parse_request(&self, request: &IncomingRequest<'_>, _: Option<&Secret>) -> ParsedRequest {
        let found = FIELDS.read(request.body);
        let kind = match found.first(&[0, 1, 2]) {
            Some(kind) => EventKind::new(kind),
            None => only_member(request.body).as_deref().and_then(EventKind::new),
        };
        let key =
            message_id(request).and_then(|id| DedupKey::new(&format!("standardwebhooks:{id}")));
        ParsedRequest::one(EventPart {
            kind,
            key: EventKey::known(key, "webhook-id"),
            attributes: found.attributes(&ABOUT),
            ..EventPart::default()
        })
    }

    /// The schedule of the specification ends after three days.
    fn dedup_window(&self) -> HumanDuration {
        HumanDuration::from_secs(5 * 86_400)
    }

    fn signature_headers(&self) -> &'static [&'static str] {
        &SIGNATURE_HEADERS
    }

    fn samples(&self) -> &'static [SampleEvent] {
        SAMPLES
    }
}

/// The name of the only member of an object: `{"ping":…}` says what it is without a `type`.
fn only_member(body: &[u8]) -> Option<String> {
    // Longer ones are not worth a second look.
    if body.len() > 64 * 1024 {
        return None;
    }
    let members: BTreeMap<String, &RawValue> = serde_json::from_slice(body).ok()?;
    let mut names = members.into_keys();
    match (names.next(), names.next()) {
        (Some(only), None) => Some(only),
        (Some(_) | None, _) => None,
    }
}

static SAMPLES: &[SampleEvent] = &[
    SampleEvent {
        kind: "contact.created",
        headers: &[("content-type", "application/json")],
        target: "",
        body: r#"{"type":"contact.created","timestamp":"{{now_iso}}","data":{"id":"contact_{{id}}","first_name":"Ana","last_name":"Souza","email":"ana.souza@example.com"}}"#,
    },
    SampleEvent {
        kind: "invoice.paid",
        headers: &[("content-type", "application/json")],
        target: "",
        body: r#"{"type":"invoice.paid","timestamp":"{{now_iso}}","data":{"id":"inv_{{id}}","status":"paid","amount":4200,"currency":"BRL"}}"#,
    },
];

#[cfg(test)]
mod tests {
    use super::super::{
        testing::{Headers, about, told},
        testing_calls::Call,
    };

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const PAIR: &str = "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg==";

    #[test]
    fn the_signed_id_is_the_key() {
        let signed = [("webhook-id", "m1"), ("webhook-signature", "v1,")];
        let svix = [("svix-id", "m1"), ("svix-signature", "v1,")];
        let both = [("svix-id", "m2"), ("webhook-id", "m1"), ("webhook-signature", "v1,")];
        let blank = [("webhook-id", " "), ("webhook-signature", "v1,")];
        let cases: [(&str, Headers<'_>, &str, [&str; 3]); 10] = [
            ("usual", &signed, r#"{"type":"a.b"}"#, ["a.b", "standardwebhooks:m1", "-"]),
            ("Svix", &svix, r#"{"type":"a.b"}"#, ["a.b", "standardwebhooks:m1", "-"]),
            ("not the id that was not signed", &both, "{}", ["-", "standardwebhooks:m1", "-"]),
            ("no id", &blank, "{}", ["-", "-", "-"]),
            ("not signed", &[("webhook-id", "m1")], "{}", ["-", "-", "-"]),
            ("other names", &signed, r#"{"event_type":"a"}"#, ["a", "standardwebhooks:m1", "-"]),
            ("only member", &signed, r#"{"test": 1}"#, ["test", "standardwebhooks:m1", "-"]),
            ("two members", &signed, r#"{"a":1,"b":2}"#, ["-", "standardwebhooks:m1", "-"]),
            ("a list", &signed, r#"[{"type":"a"}]"#, ["-", "standardwebhooks:m1", "-"]),
            ("not JSON", &signed, "test", ["-", "standardwebhooks:m1", "-"]),
        ];
        for (name, pairs, body, expected) in cases {
            assert_eq!(told("standard-webhooks", pairs, body), expected, "case: {name}");
        }
        let body = r#"{"data":{"id":"inv_1","status":"paid"}}"#;
        assert_eq!(about("standard-webhooks", &[], body), ["object=inv_1", "provider_status=paid"]);
    }

    #[test]
    fn every_bit_counts() {
        let parts = ["webhook-id", "webhook-timestamp", "webhook-signature"];
        let call = Call::new("standard-webhooks", SECRET).at(1_614_265_330_000).body("{\"a\":1}");
        call.signed().assert_every_bit_counts(&parts);
        let call = Call::new("standard-webhooks", PAIR).at(1_614_265_330_000).body("{\"a\":1}");
        call.signed().assert_every_bit_counts(&parts);
    }
}
