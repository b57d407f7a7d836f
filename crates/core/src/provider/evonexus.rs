//! `EvoNexus` triggers: signed over the body; the key is looked for where its own receiver looks.

use std::sync::LazyLock;

use super::{
    BodyFields, EventPart, ParsedRequest, Provider, SampleEvent,
    n8n::{SIGNATURE_HEADERS, usual_signature},
    rules::Rules,
};
use crate::{
    attribute::{AttributeName, EventKind},
    request::IncomingRequest,
    secret::Secret,
    verify::{Verifier, VerifySpecError},
};

static FIELDS: LazyLock<BodyFields> = LazyLock::new(|| {
    BodyFields::new(&[
        "/event_type",
        "/event",
        "/messageId",
        "/data/messageId",
        "/number",
        "/data/number",
        "/data/from",
    ])
});

const ABOUT: [(AttributeName, usize); 5] = [
    (AttributeName::MessageId, 2),
    (AttributeName::MessageId, 3),
    (AttributeName::Phone, 4),
    (AttributeName::Phone, 5),
    (AttributeName::Phone, 6),
];

/// The order of its receiver, after the header that says it plainly.
static KEYS: LazyLock<Rules> = LazyLock::new(|| {
    Rules::new(&[
        "header:idempotency-key",
        "pointer:/idempotency_key",
        "pointer:/messageId",
        "pointer:/data/messageId",
        "pointer:/data/idempotency_key",
    ])
});

#[derive(Debug)]
pub(super) struct EvoNexus;

impl Provider for EvoNexus {
    fn name(&self) -> &'static str {
        "evonexus"
    }

    fn verifier(&self, secrets: Vec<Secret>) -> Result<Verifier, VerifySpecError> {
        Verifier::hmac(usual_signature(), secrets)
    }

    fn parse_request(&self, request: &IncomingRequest<'_>, _: Option<&Secret>) -> ParsedRequest {
        let found = FIELDS.read(request.body);
        ParsedRequest::one(EventPart {
            kind: found.first(&[0, 1]).and_then(EventKind::new),
            key: KEYS.key(request),
            attributes: found.attributes(&ABOUT),
            ..EventPart::default()
        })
    }

    fn signature_headers(&self) -> &'static [&'static str] {
        SIGNATURE_HEADERS
    }

    fn samples(&self) -> &'static [SampleEvent] {
        &[
            SampleEvent {
                kind: "whatsapp.message",
                headers: &[("content-type", "application/json")],
                target: "",
                body: r#"{"event_type":"whatsapp.message","data":{"messageId":"3EB0{{id}}","from":"{{phone}}","text":"/status","timestamp":{{now}}}}"#,
            },
            SampleEvent {
                kind: "trigger.test",
                headers: &[("content-type", "application/json")],
                target: "",
                body: r#"{"event":"trigger.test","idempotency_key":"test-{{id}}","data":{"action":"status"}}"#,
            },
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{about, told};

    #[test]
    fn keys_and_kinds_are_found_where_its_receiver_finds_them() {
        let cases = [
            (
                "all of them",
                r#"{"idempotency_key":"a","messageId":"b","data":{"messageId":"c","idempotency_key":"d"},"event_type":"k","event":"l"}"#,
                ["k", "a", "-"],
            ),
            (
                "a message",
                r#"{"messageId":"b","data":{"messageId":"c"},"event":"l"}"#,
                ["l", "b", "-"],
            ),
            (
                "a message inside",
                r#"{"data":{"messageId":"c","idempotency_key":"d"}}"#,
                ["-", "c", "-"],
            ),
            ("a key inside", r#"{"data":{"idempotency_key":"d"}}"#, ["-", "d", "-"]),
            ("none", r#"{"id":1,"data":[]}"#, ["-", "-", "-"]),
            ("a list", r#"[{"idempotency_key":"a"}]"#, ["-", "-", "-"]),
        ];
        for (name, body, expected) in cases {
            assert_eq!(told("evonexus", &[], body), expected, "case: {name}");
        }
    }

    #[test]
    fn a_message_is_found_by_its_id_and_sender() {
        let body = r#"{"data":{"messageId":"3EB0","from":"5511987654321@s.whatsapp.net"}}"#;
        assert_eq!(about("evonexus", &[], body), ["message_id=3EB0", "phone=5511987654321"]);
    }
}
