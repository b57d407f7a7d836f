//! `SendGrid`'s Event Webhook: signed with a key pair, and with any number of events per request.

use std::time::Duration;

use data_encoding::BASE64;
use http::HeaderName;
use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use surehook_types::{
    secret::Secret,
    time::{HumanDuration, Timestamp},
};

use super::{
    ParsedRequest, Provider, SampleEvent,
    fields::{EventReader, EventTemplate},
    raw_json,
};
use crate::{
    attribute::AttributeName::{Email, Error, MessageId, ProviderStatus},
    request::{IncomingRequest, OutgoingRequest},
    verify::{
        RequestSignature, SignError, VerificationScheme, Verifier, VerifyError, VerifySpecError,
        check_max_age, decode_signature, parse_epoch, signature_header, timestamp_header,
    },
};

static SIGNATURE: HeaderName = HeaderName::from_static("x-twilio-email-event-webhook-signature");
static TIMESTAMP: HeaderName = HeaderName::from_static("x-twilio-email-event-webhook-timestamp");

/// Digits of a Unix timestamp from 2001 until 2286.
const TIMESTAMP_BYTES: usize = 10;
/// What precedes the point of a P-256 key in its DER encoding (RFC 5480).
const KEY_PREFIX: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a,
    0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];
/// An uncompressed point.
const POINT_BYTES: usize = 65;
/// `SendGrid` retries for a day, and it is undocumented whether it signs again.
const MAX_AGE: Duration = Duration::from_secs(26 * 3600);

// https://www.twilio.com/docs/sendgrid/for-developers/tracking-events/getting-started-event-webhook-security-features
pub(super) static SENDGRID: Provider = Provider {
    name: "sendgrid",
    verifier,
    signature_headers: &["x-twilio-email-event-webhook-signature"],
    dedup_window: HumanDuration::from_secs(3 * 86_400),
    parse_request: |request, _| {
        let read = |item: &[u8]| EVENT.read_json(item).event();
        ParsedRequest::list(raw_json::split_array(request.body, read))
    },
    samples: &[
        SampleEvent::json(
            "delivered",
            r#"[{"email":"ana.souza@example.com","timestamp":{{now}},"smtp-id":"<{{id}}@ismtpd0039p1iad1.sendgrid.net>","event":"delivered","category":["receipts"],"sg_event_id":"ZGVsaXZlcmVk{{id}}","sg_message_id":"{{id}}.recvd-5f54b5d587-pczjm-1-605AB7B8-3.0","response":"250 OK"}]"#,
        ),
        SampleEvent::json(
            "bounce",
            r#"[{"email":"bia@example.com","timestamp":{{now}},"smtp-id":"<{{id}}@ismtpd0039p1iad1.sendgrid.net>","event":"bounce","reason":"550 5.1.1 The email account does not exist","status":"5.1.1","type":"bounce","sg_event_id":"Ym91bmNl{{id}}","sg_message_id":"{{id}}.recvd-5f54b5d587-pczjm-1-605AB7B8-4.0"}]"#,
        ),
        SampleEvent::json(
            "batch",
            r#"[{"email":"ana.souza@example.com","timestamp":{{now}},"event":"open","useragent":"Mozilla/5.0","ip":"203.0.113.7","sg_event_id":"b3Blbg{{id}}","sg_message_id":"{{id}}.recvd-5f54b5d587-pczjm-1-605AB7B8-5.0"},{"email":"ana.souza@example.com","timestamp":{{now}},"event":"click","url":"https://loja.example.com/","sg_event_id":"Y2xpY2s{{id}}","sg_message_id":"{{id}}.recvd-5f54b5d587-pczjm-1-605AB7B8-5.0"}]"#,
        ),
    ],
    ..Provider::DEFAULT
};

static EVENT: EventReader = EventReader::new(&EventTemplate {
    kind: &["{/event}"],
    key: &["sendgrid:{/sg_event_id}"],
    key_label: "sendgrid:sg_event_id",
    ordering_key: &["{/sg_message_id}"],
    attributes: &[
        (MessageId, &["/sg_message_id", "/smtp-id"]),
        (Email, &["/email"]),
        (ProviderStatus, &["/event"]),
        (Error, &["/status"]),
    ],
    ..EventTemplate::EMPTY
});

/// The secrets are public keys in base64, as `SendGrid` shows them.
fn verifier(secrets: Vec<Secret>) -> Result<Verifier, VerifySpecError> {
    let reason = "it must be the verification key as shown by SendGrid: it begins with MFkw";
    let parse = |(number, secret): (usize, &Secret)| {
        let der = BASE64.decode(secret.expose().trim_ascii()).ok();
        let point = der.as_deref().and_then(|der| der.strip_prefix(&KEY_PREFIX));
        let point = point.and_then(|point| <[u8; POINT_BYTES]>::try_from(point).ok());
        point.ok_or(VerifySpecError::Secret { number, reason })
    };
    let points = (1..).zip(&secrets).map(parse).collect::<Result<_, _>>()?;
    Ok(Verifier::from_scheme(secrets.len(), SendgridScheme { points }))
}

/// Verifies with the verification keys, the current one first.
#[derive(Debug)]
struct SendgridScheme {
    points: Vec<[u8; POINT_BYTES]>,
}

impl VerificationScheme for SendgridScheme {
    fn name(&self) -> &'static str {
        "ecdsa-p256"
    }

    fn max_age(&self) -> Option<Duration> {
        Some(MAX_AGE)
    }

    fn verify(&self, request: &IncomingRequest<'_>, now: Timestamp) -> Result<usize, VerifyError> {
        let signature = signature_header(request.headers, &SIGNATURE)?;
        let signature = decode_signature(&BASE64, signature)?;
        let timestamp = timestamp_header(request.headers, &TIMESTAMP)?;
        // Timestamp and body are joined without a separator, so the length must be fixed.
        if timestamp.len() != TIMESTAMP_BYTES {
            return Err(VerifyError::Malformed { part: "timestamp" });
        }
        check_max_age(parse_epoch(timestamp)?, now, MAX_AGE)?;
        let signed_text = [timestamp, request.body].concat();
        let is_match = |point: &[u8; POINT_BYTES]| {
            let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, point);
            key.verify(&signed_text, &signature).is_ok()
        };
        self.points.iter().position(is_match).ok_or(VerifyError::Mismatch)
    }

    fn sign(&self, _: &OutgoingRequest<'_>, _: Timestamp) -> Result<RequestSignature, SignError> {
        Err(SignError("SendGrid signs with a private key that only SendGrid has"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{TestCall, attribute_pairs, event_summary, parts};

    /// From the tests of @sendgrid/eventwebhook 8.0.0.
    const KEY: &str = "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE83T4O/n84iotIvIW4mdBgQ/7dAfSmpqIM8kF9mN1flpVKS3GRqe62gw+2fNNRaINXvVpiglSI8eNEc6wEA3F+g==";
    const OTHER_KEY: &str = "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEEDr2LjtURuePQzplybdC+u4CwrqDqBaWjcMMsTbhdbcwHBcepxo7yAQGhHPTnlvFYPAZFceEu/1FwCM/QmGUhA==";
    const BODY: &str = "[{\"email\":\"hello@world.com\",\"event\":\"dropped\",\"reason\":\"Bounced Address\",\"sg_event_id\":\"ZHJvcC0xMDk5NDkxOS1MUnpYbF9OSFN0T0doUTRrb2ZTbV9BLTA\",\"sg_message_id\":\"LRzXl_NHStOGhQ4kofSm_A.filterdrecv-p3mdw1-756b745b58-kmzbl-18-5F5FC76C-9.0\",\"smtp-id\":\"<LRzXl_NHStOGhQ4kofSm_A@ismtpd0039p1iad1.sendgrid.net>\",\"timestamp\":1600112492}]\r\n";
    const SIGNATURE: &str = "x-twilio-email-event-webhook-signature";
    const TIME: &str = "x-twilio-email-event-webhook-timestamp";
    const NOW: i64 = 1_600_112_502_000;

    fn call() -> TestCall {
        let signature = "MEUCIGHQVtGj+Y3LkG9fLcxf3qfI10QysgDWmMOVmxG0u6ZUAiEAyBiXDWzM+uOe5W0JuG+luQAbPIqHh89M15TluLtEZtM=";
        TestCall::new("sendgrid", KEY)
            .at(NOW)
            .header(SIGNATURE, signature)
            .header(TIME, "1600112502")
            .body(BODY)
    }

    #[test]
    fn published_example_is_accepted_and_no_other() {
        let day = 24 * 3_600_000;
        let cases = [
            ("good", call(), Ok(0)),
            ("after all retries", call().at(NOW + day), Ok(0)),
            ("after two days", call().at(NOW + 2 * day), Err("stale")),
            ("an hour ahead", call().at(NOW - 3_600_000), Err("stale")),
            ("the second key", call().secrets(&[OTHER_KEY, KEY]), Ok(1)),
            ("another key", call().secrets(&[OTHER_KEY]), Err("mismatch")),
            ("another time", call().header(TIME, "1600112503"), Err("mismatch")),
            ("without the end of the line", call().body(BODY.trim_end()), Err("mismatch")),
            ("a shorter time", call().header(TIME, "160011250"), Err("malformed")),
            ("a time in milliseconds", call().header(TIME, "1600112502000"), Err("malformed")),
            ("no time", call().without(TIME), Err("missing_timestamp")),
            ("no signature", call().without(SIGNATURE), Err("missing_signature")),
            ("not base64", call().header(SIGNATURE, "%%"), Err("malformed")),
            ("not DER", call().header(SIGNATURE, "AAAA"), Err("mismatch")),
            ("two signatures", call().add_header(SIGNATURE, "AAAA"), Err("malformed")),
        ];
        for (name, call, expected) in cases {
            assert_eq!(call.verify(), expected, "case: {name}");
        }
        assert!(call().signature().is_err());
    }

    #[test]
    fn every_bit_of_signature_and_time_counts() {
        call().assert_every_bit_counts(&[SIGNATURE, TIME]);
    }

    #[test]
    fn invalid_key_is_refused_at_configuration() {
        let compressed = KEY.replace("DQgAE", "DQgAA");
        for key in ["", "MFkw", "a secret of 24 letters..", compressed.get(..120).unwrap()] {
            assert!(TestCall::new("sendgrid", key).verifier().is_none(), "{key}");
        }
        assert!(TestCall::new("sendgrid", &format!("{KEY}\n")).verifier().is_some());
    }

    #[test]
    fn each_item_is_an_event() {
        let (one, two) = (
            r#"{"event":"open","sg_event_id":"a","sg_message_id":"m","email":"ana@example.com"}"#,
            r#"{"event":"bounce","sg_event_id":"b","sg_message_id":"n","status":"5.1.1"}"#,
        );
        let found = |body: &str| {
            let parts = parts("sendgrid", &[], body);
            parts.iter().map(|part| (event_summary(part), part.body.is_some())).collect::<Vec<_>>()
        };
        let first = ["open", "sendgrid:a", "m"].map(str::to_owned);
        let second = ["bounce", "sendgrid:b", "n"].map(str::to_owned);
        assert_eq!(found(&format!("[{one}]\r\n")), [(first.clone(), false)]);
        assert_eq!(found(&format!("[{one},{two}]")), [(first, true), (second, true)]);
        assert_eq!(found("{}"), [(["-", "-", "-"].map(str::to_owned), false)]);
        let expected = ["message_id=m", "email=ana@example.com", "provider_status=open"];
        assert_eq!(attribute_pairs("sendgrid", &[], &format!("[{one}]")), expected);
    }
}
