//! n8n: does not sign by itself. This verifies workflows that sign with a Crypto node; for a static
//! header the source must set `verify`.

use std::sync::LazyLock;

use super::{
    SampleEvent,
    fields::body_fields,
    preset::{HmacPreset, PresetKey, PresetKeyRules},
};
use crate::{
    attribute::AttributeName,
    provider::DEDUP_WINDOW,
    verify::{HeaderNames, HmacSpec},
};

body_fields! {
    static FIELDS {
        EVENT = "/event",
        EVENT_TYPE = "/event_type",
        TYPE = "/type",
        MESSAGE_ID = "/messageId",
        DATA_MESSAGE_ID = "/data/messageId",
        NUMBER = "/number",
        DATA_NUMBER = "/data/number",
    }
}

const ATTRIBUTES: [(AttributeName, usize); 4] = [
    (AttributeName::MessageId, MESSAGE_ID),
    (AttributeName::MessageId, DATA_MESSAGE_ID),
    (AttributeName::Phone, NUMBER),
    (AttributeName::Phone, DATA_NUMBER),
];

/// Explicit keys only. `/id` is often that of a customer or row, whose changes would look like
/// duplicates.
static KEYS: LazyLock<PresetKeyRules> = LazyLock::new(|| {
    PresetKeyRules::new(&[
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

pub(super) static N8N: HmacPreset = HmacPreset {
    name: "n8n",
    signature: default_signature,
    signature_headers: SIGNATURE_HEADERS,
    dedup_window: DEDUP_WINDOW,
    fields: &FIELDS,
    kind: &[EVENT, EVENT_TYPE, TYPE],
    key: PresetKey::Rules(&KEYS),
    order: &[],
    attributes: &ATTRIBUTES,
    samples: &[SampleEvent {
        kind: "order.shipped",
        headers: &[("content-type", "application/json"), ("user-agent", "n8n")],
        target: "",
        body: r#"{"idempotency_key":"wf-{{id}}","event":"order.shipped","data":{"number":"{{phone}}","text":"Your order {{number}} is on its way"}}"#,
    }],
};

pub(super) const SIGNATURE_HEADERS: &[&str] = &["x-webhook-signature", "x-signature"];

/// SHA-256 over the body in hex, in either header, with or without `sha256=`.
pub(super) fn default_signature() -> HmacSpec {
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
    use super::super::testing::{summary, verify};

    #[test]
    fn key_is_only_taken_from_explicit_fields() {
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
            assert_eq!(summary("n8n", headers, body), expected, "case: {name}");
        }
    }

    #[test]
    fn only_a_valid_signature_is_accepted() {
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
