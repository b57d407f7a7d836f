//! n8n: signs nothing by itself. A workflow that signs with a Crypto node is checked here; for a
//! static header `verify` must be written out.

use std::sync::LazyLock;

use super::{BodyFields, EventPart, ParsedRequest, Provider, SampleEvent, rules::Rules};
use crate::{
    attribute::{AttributeName, EventKind},
    request::IncomingRequest,
    secret::Secret,
    verify::{HeaderNames, HmacSpec, Verifier, VerifySpecError},
};

/// Where a workflow says what happened, and to whom.
static FIELDS: LazyLock<BodyFields> = LazyLock::new(|| {
    BodyFields::new(&[
        "/event",
        "/event_type",
        "/type",
        "/messageId",
        "/data/messageId",
        "/number",
        "/data/number",
    ])
});

const ABOUT: [(AttributeName, usize); 4] = [
    (AttributeName::MessageId, 3),
    (AttributeName::MessageId, 4),
    (AttributeName::Phone, 5),
    (AttributeName::Phone, 6),
];

/// What a workflow sets on purpose. `/id` is not there: it is often that of a customer or a row,
/// and every change of it would look like a duplicate.
static KEYS: LazyLock<Rules> = LazyLock::new(|| {
    Rules::new(&[
        "header:idempotency-key",
        "header:webhook-id",
        "header:x-event-id",
        "pointer:/idempotency_key",
        "pointer:/data/idempotency_key",
        "pointer:/event_id",
        "pointer:/messageId",
        "pointer:/data/messageId",
    ])
});

#[derive(Debug)]
pub(super) struct N8n;

impl Provider for N8n {
    fn name(&self) -> &'static str {
        "n8n"
    }

    fn verifier(&self, secrets: Vec<Secret>) -> Result<Verifier, VerifySpecError> {
        Verifier::hmac(usual_signature(), secrets)
    }

    fn parse_request(&self, request: &IncomingRequest<'_>, _: Option<&Secret>) -> ParsedRequest {
        let found = FIELDS.read(request.body);
        ParsedRequest::one(EventPart {
            kind: found.first(&[0, 1, 2]).and_then(EventKind::new),
            key: KEYS.key(request),
            attributes: found.attributes(&ABOUT),
            ..EventPart::default()
        })
    }

    fn signature_headers(&self) -> &'static [&'static str] {
        SIGNATURE_HEADERS
    }

    fn samples(&self) -> &'static [SampleEvent] {
        &[SampleEvent {
            kind: "order.shipped",
            headers: &[("content-type", "application/json"), ("user-agent", "n8n")],
            target: "",
            body: r#"{"idempotency_key":"wf-{{id}}","event":"order.shipped","data":{"number":"{{phone}}","text":"Your order {{number}} is on its way"}}"#,
        }]
    }
}

pub(super) const SIGNATURE_HEADERS: &[&str] = &["x-webhook-signature", "x-signature"];

/// Hex of SHA-256 over the body, in either header, with `sha256=` or without.
pub(super) fn usual_signature() -> HmacSpec {
    let names = SIGNATURE_HEADERS.iter().map(|name| (*name).to_owned()).collect();
    HmacSpec {
        header: HeaderNames::Several(names),
        prefix: "sha256=".to_owned(),
        prefix_optional: true,
        ..HmacSpec::new("x-webhook-signature")
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{told, verify};

    #[test]
    fn a_key_is_what_the_workflow_set_on_purpose() {
        let header = ("idempotency-key", "h-1");
        let quoted = ("idempotency-key", "\"h-1\"");
        let cases: [(_, &[_], _, _); 9] = [
            ("a header", &[header], r#"{"idempotency_key":"b-1"}"#, ["-", "h-1", "-"]),
            ("a quoted header", &[quoted], "{}", ["-", "h-1", "-"]),
            ("a field", &[], r#"{"event":"a","idempotency_key":"b-1","id":5}"#, ["a", "b-1", "-"]),
            (
                "a field inside",
                &[],
                r#"{"event_type":"b","data":{"idempotency_key":"d-1","messageId":"m-1"}}"#,
                ["b", "d-1", "-"],
            ),
            ("a message", &[], r#"{"type":"c","data":{"messageId":"m-1"}}"#, ["c", "m-1", "-"]),
            (
                "the id of a row is no key",
                &[],
                r#"{"event":"row.changed","id":5}"#,
                ["row.changed", "-", "-"],
            ),
            ("two headers", &[header, header], "{}", ["-", "rules", "-"]),
            ("a kind that is no text", &[], r#"{"event":{"a":1},"type":"c"}"#, ["c", "-", "-"]),
            ("not JSON", &[], "x", ["-", "-", "-"]),
        ];
        for (name, headers, body, expected) in cases {
            assert_eq!(told("n8n", headers, body), expected, "case: {name}");
        }
    }

    #[test]
    fn only_a_signature_will_do() {
        // HMAC-SHA256 of `{}` with the key `secret`.
        let hex = "77325902caca812dc259733aacd046b73817372c777b8d95b402647474516e13";
        let prefixed = format!("sha256={hex}");
        for preset in ["n8n", "evonexus"] {
            let check =
                |name, value: &str| verify(preset, &["secret"], &[(name, value)], "{}", 0).is_ok();
            assert!(check("x-webhook-signature", hex) && check("x-webhook-signature", &prefixed));
            assert!(check("x-signature", hex) && check("x-signature", &prefixed));
            assert!(!check("x-webhook-signature", "secret") && !check("authorization", "secret"));
            assert!(!check("x-webhook-signature", &format!("sha1={hex}")));
            // The first header counts, even if the second one is right.
            let both = [("x-signature", hex), ("x-webhook-signature", &hex.replace('1', "2"))];
            assert!(verify(preset, &["secret"], &both, "{}", 0).is_err());
        }
    }
}
