//! Standard Webhooks: senders that sign by the specification, also with the header names of Svix.

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use surehook_types::time::HumanDuration;

use super::{
    EventKey, EventPart, ParsedRequest, Provider, SampleEvent,
    fields::{EventReader, EventTemplate},
};
use crate::{
    attribute::{
        AttributeName::{Object, ProviderStatus},
        EventKind,
    },
    key::DedupKey,
    request::IncomingRequest,
    verify::{
        Verifier,
        standard::{SIGNATURE_HEADERS, StandardWebhooksScheme, message_id},
    },
};

pub(super) static STANDARD_WEBHOOKS: Provider = Provider {
    name: "standard-webhooks",
    verifier: |secrets| {
        let (scheme, warnings) = StandardWebhooksScheme::new(&secrets)?;
        Ok(Verifier::from_scheme(secrets.len(), scheme).with_warnings(warnings))
    },
    signature_headers: &SIGNATURE_HEADERS,
    // The retry schedule of the specification ends after three days.
    dedup_window: HumanDuration::from_secs(5 * 86_400),
    parse_request: |request, _| ParsedRequest::single(parse_event(request)),
    samples: &[
        SampleEvent::json(
            "contact.created",
            r#"{"type":"contact.created","timestamp":"{{now_iso}}","data":{"id":"contact_{{id}}","first_name":"Ana","last_name":"Souza","email":"ana.souza@example.com"}}"#,
        ),
        SampleEvent::json(
            "invoice.paid",
            r#"{"type":"invoice.paid","timestamp":"{{now_iso}}","data":{"id":"inv_{{id}}","status":"paid","amount":4200,"currency":"BRL"}}"#,
        ),
    ],
    ..Provider::DEFAULT
};

/// Fields that the specification recommends, and common alternatives.
static EVENT: EventReader = EventReader::new(&EventTemplate {
    kind: &["{/type|/event_type|/event}"],
    attributes: &[(Object, &["/data/id"]), (ProviderStatus, &["/data/status"])],
    ..EventTemplate::EMPTY
});

/// The message id is the same for all attempts, and it is signed.
fn parse_event(request: &IncomingRequest<'_>) -> EventPart {
    let found = EVENT.read(request);
    let mut event = found.event();
    if found.get("/type|/event_type|/event").is_none() {
        event.kind = only_member(request.body).as_deref().and_then(EventKind::new);
    }
    let key = message_id(request).and_then(|id| DedupKey::new(&format!("standardwebhooks:{id}")));
    event.key = EventKey::known_or_none(key, "webhook-id");
    event
}

/// The name of a single member, as in `{"ping":…}`, which has no `type`.
fn only_member(body: &[u8]) -> Option<String> {
    // Larger bodies are not worth a second parse.
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

#[cfg(test)]
mod tests {
    use super::super::testing::{Headers, TestCall, attribute_pairs, summary};

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const PAIR: &str = "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg==";

    #[test]
    fn signed_message_id_is_the_key() {
        let signed = [("webhook-id", "m1"), ("webhook-signature", "v1,")];
        let svix = [("svix-id", "m1"), ("svix-signature", "v1,")];
        let both = [("svix-id", "m2"), ("webhook-id", "m1"), ("webhook-signature", "v1,")];
        let blank = [("webhook-id", " "), ("webhook-signature", "v1,")];
        let cases: [(&str, Headers<'_>, &str, [&str; 3]); 10] = [
            ("typical", &signed, r#"{"type":"a.b"}"#, ["a.b", "standardwebhooks:m1", "-"]),
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
            assert_eq!(summary("standard-webhooks", pairs, body), expected, "case: {name}");
        }
        let body = r#"{"data":{"id":"inv_1","status":"paid"}}"#;
        assert_eq!(
            attribute_pairs("standard-webhooks", &[], body),
            ["object=inv_1", "provider_status=paid"]
        );
    }

    #[test]
    fn any_flipped_bit_is_refused() {
        let parts = ["webhook-id", "webhook-timestamp", "webhook-signature"];
        let call =
            TestCall::new("standard-webhooks", SECRET).at(1_614_265_330_000).body("{\"a\":1}");
        call.signed().assert_every_bit_counts(&parts);
        let call = TestCall::new("standard-webhooks", PAIR).at(1_614_265_330_000).body("{\"a\":1}");
        call.signed().assert_every_bit_counts(&parts);
    }
}
