//! `EvoNexus` triggers: signed over the body; keys are read from the same fields as its own receiver.

use std::sync::LazyLock;

use super::{
    SampleEvent,
    fields::body_fields,
    n8n::{SIGNATURE_HEADERS, default_signature},
    preset::{HmacPreset, PresetKey, PresetKeyRules},
};
use crate::{attribute::AttributeName, provider::DEDUP_WINDOW};

body_fields! {
    static FIELDS {
        EVENT_TYPE = "/event_type",
        EVENT = "/event",
        MESSAGE_ID = "/messageId",
        DATA_MESSAGE_ID = "/data/messageId",
        NUMBER = "/number",
        DATA_NUMBER = "/data/number",
        DATA_FROM = "/data/from",
    }
}

const ATTRIBUTES: [(AttributeName, usize); 5] = [
    (AttributeName::MessageId, MESSAGE_ID),
    (AttributeName::MessageId, DATA_MESSAGE_ID),
    (AttributeName::Phone, NUMBER),
    (AttributeName::Phone, DATA_NUMBER),
    (AttributeName::Phone, DATA_FROM),
];

/// The explicit header first, then the order of its own receiver.
static KEYS: LazyLock<PresetKeyRules> = LazyLock::new(|| {
    PresetKeyRules::new(&[
        "header:idempotency-key",
        "pointer:/idempotency_key",
        "pointer:/messageId",
        "pointer:/data/messageId",
        "pointer:/data/idempotency_key",
    ])
});

pub(super) static EVONEXUS: HmacPreset = HmacPreset {
    name: "evonexus",
    signature: default_signature,
    signature_headers: SIGNATURE_HEADERS,
    dedup_window: DEDUP_WINDOW,
    fields: &FIELDS,
    kind: &[EVENT_TYPE, EVENT],
    key: PresetKey::Rules(&KEYS),
    order: &[],
    attributes: &ATTRIBUTES,
    samples: &[
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
    ],
};

#[cfg(test)]
mod tests {
    use super::super::testing::{attribute_pairs, summary};

    #[test]
    fn keys_and_kinds_follow_the_evonexus_receiver() {
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
            assert_eq!(summary("evonexus", &[], body), expected, "case: {name}");
        }
    }

    #[test]
    fn attributes_include_message_id_and_sender() {
        let body = r#"{"data":{"messageId":"3EB0","from":"5511987654321@s.whatsapp.net"}}"#;
        assert_eq!(
            attribute_pairs("evonexus", &[], body),
            ["message_id=3EB0", "phone=5511987654321"]
        );
    }
}
