//! Properties of every preset.

use std::collections::HashSet;

use http::{HeaderMap, HeaderName, HeaderValue};
use proptest::{prelude::*, test_runner::TestCaseResult};
use surehook_types::{secret::Secret, time::Timestamp};
use url::form_urlencoded;

use super::{
    EventPart, PROVIDERS, ParsedRequest, Provider, SampleEvent, find,
    testing::{headers, incoming},
};
use crate::{
    provider::MessageStatusUpdate,
    request::{IncomingRequest, OutgoingRequest},
    verify::{Verifier, VerifySpecError},
};

const NOW: Timestamp = Timestamp::from_millis(1_779_024_000_000);
const ORIGIN: &str = "https://gw.test";
const STANDARD: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// Secrets for presets that require a format or have several schemes.
const SECRETS: &[(&str, &[&str])] = &[
    // Digits only: hexadecimal letters have two spellings.
    ("adyen", &["44782540635438062910043932310071"]),
    ("discord", &["3f48c86836f8b4b5eea14c1900ba46d1a527fe19a98da5ba55934315f8a6e283"]),
    ("evolution-go", &["9f3c1a7e5b2d4f60"]),
    ("gitlab", &["gl-plain-token", STANDARD]),
    ("paypal", &["9XL90610J3647323C"]),
    (
        "sendgrid",
        &[
            "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE83T4O/n84iotIvIW4mdBgQ/7dAfSmpqIM8kF9mN1flpVKS3GRqe62gw+2fNNRaINXvVpiglSI8eNEc6wEA3F+g==",
        ],
    ),
    ("standard-webhooks", &[STANDARD]),
    ("telegram", &["tg_SECRET-1"]),
];
/// The secret for all others.
const SECRET: &str = "a secret of 24 letters..";

/// Presets whose signature does not cover the body, with the secret where that matters.
const BODY_NOT_SIGNED: &[(&str, Option<&str>)] = &[
    ("evolution-api", None),
    ("evolution-go", None),
    ("gitlab", Some("gl-plain-token")),
    ("mercado-pago", None),
    ("okta", None),
    ("telegram", None),
];

fn secrets(preset: &str) -> &'static [&'static str] {
    SECRETS.iter().find(|(name, _)| *name == preset).map_or(&[SECRET], |(_, secrets)| secrets)
}

fn is_body_signed(preset: &str, secret: &str) -> bool {
    !BODY_NOT_SIGNED
        .iter()
        .any(|(name, only)| *name == preset && only.is_none_or(|only| only == secret))
}

/// A sample with all its placeholders filled.
fn fill_placeholders(text: &str) -> String {
    text.replace("{{id}}", "4fQz81kD")
        .replace("{{number}}", "731550812")
        .replace("{{uuid}}", "0b8d5c6f-f8d0-4518-954d-4dd8b7b30f09")
        .replace("{{phone}}", "5511987654321")
        .replace("{{now}}", "1779024000")
        .replace("{{now_ms}}", "1779024000000")
        .replace("{{now_iso}}", "2026-05-17T13:20:00.000Z")
}

/// A sample signed by the preset's own verifier.
#[derive(Clone, Debug)]
struct SignedSample {
    path: String,
    query: Option<String>,
    headers: HeaderMap,
    body: Vec<u8>,
    /// The signature headers.
    signature: Vec<HeaderName>,
    /// The length of the secret in the path.
    signed_path: usize,
}

impl SignedSample {
    /// Signs a sample; `None` if only the provider can sign.
    fn new(verifier: &Verifier, sample: &SampleEvent) -> Option<Self> {
        let pairs: Vec<(&str, String)> =
            sample.headers.iter().map(|(name, value)| (*name, fill_placeholders(value))).collect();
        let pairs: Vec<(&str, &str)> =
            pairs.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let mut headers = headers(&pairs);
        let body = fill_placeholders(sample.body).into_bytes();
        let target = fill_placeholders(sample.target);
        let url = format!("{ORIGIN}/in/s{target}");
        let outgoing = OutgoingRequest { id: "msg_1", url: &url, headers: &headers, body: &body };
        let signed = verifier.sign(&outgoing, NOW).ok()?;
        let signature: Vec<_> = signed.headers.iter().map(|(name, _)| name.clone()).collect();
        let target = signed.signed_url(&target);
        let signed_path = signed.path.len();
        for (name, value) in signed.headers {
            headers.insert(name, HeaderValue::from_str(&value).unwrap());
        }
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path.to_owned(), Some(query.to_owned())),
            None => (target, None),
        };
        Some(Self { path, query, headers, body, signature, signed_path })
    }

    fn incoming(&self) -> IncomingRequest<'_> {
        IncomingRequest {
            source: "s",
            path: &self.path,
            query: self.query.as_deref(),
            headers: &self.headers,
            body: &self.body,
            origin: Some(ORIGIN),
        }
    }

    fn is_accepted(&self, verifier: &Verifier) -> bool {
        verifier.verify(&self.incoming(), NOW).is_ok()
    }
}

#[test]
fn secret_header_of_provider_matches_its_verifier() {
    for provider in PROVIDERS {
        let secret = "0123456789abcdef0123456789abcdef";
        let Ok(verifier) = verifier(provider, secret.as_bytes()) else { continue };
        let header = verifier.secret_header().map(HeaderName::as_str);
        assert_eq!(provider.secret_header, header, "{}", provider.name);
    }
}

fn verifier(provider: &Provider, secret: &[u8]) -> Result<Verifier, VerifySpecError> {
    provider.verifier(vec![Secret::new(secret)])
}

fn flip_bit(bytes: &[u8], bit: usize) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[bit / 8] ^= 1 << (bit % 8);
    bytes
}

/// Whether only the case of a hexadecimal signature differs.
fn is_same_hex(one: &[u8], other: &[u8]) -> bool {
    let tail = one.rsplit(|byte| !byte.is_ascii_hexdigit()).next().unwrap_or_default();
    tail.len() >= 40 && one.eq_ignore_ascii_case(other) && {
        let start = one.len() - tail.len();
        one[..start] == other[..start]
    }
}

/// Whether only the case of the authentication scheme differs (RFC 9110 section 11.1).
fn is_same_scheme(one: &[u8], other: &[u8]) -> bool {
    let rest = |value: &[u8]| value.strip_prefix(b"Bearer ").map(<[u8]>::len);
    let begin = rest(one).map_or(0, |rest| one.len() - rest);
    one[..begin].eq_ignore_ascii_case(&other[..begin]) && one[begin..] == other[begin..]
}

/// Twilio signs decoded form fields, so `%2b` and `%2B` are equal.
fn is_same_form(preset: &str, one: &[u8], other: &[u8]) -> bool {
    let read = |body| form_urlencoded::parse(body).eq(form_urlencoded::parse(one));
    preset == "twilio" && read(other)
}

/// Calls `check` with every signed sample of every preset.
fn for_each_signed(
    mut check: impl FnMut(&'static Provider, &'static str, &Verifier, SignedSample),
) {
    for provider in PROVIDERS.iter().copied() {
        for secret in secrets(provider.name) {
            let Ok(verifier) = verifier(provider, secret.as_bytes()) else { continue };
            for sample in provider.samples {
                let Some(sent) = SignedSample::new(&verifier, sample) else { continue };
                check(provider, secret, &verifier, sent);
            }
        }
    }
}

#[test]
fn provider_names_are_unique_and_valid() {
    let names: HashSet<_> = PROVIDERS.iter().map(|provider| provider.name).collect();
    assert_eq!(names.len(), PROVIDERS.len());
    for name in names {
        let is_usual =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        assert!(name.bytes().all(is_usual), "{name}");
        assert_eq!(find(name).map(|provider| provider.name), Some(name));
    }
}

#[test]
fn each_sample_verifies_and_parses_as_its_kind() {
    let mut seen = HashSet::new();
    for_each_signed(|provider, secret, verifier, sent| {
        assert!(sent.is_accepted(verifier), "{} refuses {sent:?}", provider.name);
        seen.insert((provider.name, secret));
    });
    for provider in PROVIDERS {
        let name = provider.name;
        assert!(!provider.samples.is_empty(), "{name} has no samples");
        for sample in provider.samples {
            check_sample(provider, sample);
        }
        for header in provider.signature_headers {
            assert_eq!(header.parse::<HeaderName>().unwrap().as_str(), *header, "{name}");
        }
    }
    assert!(seen.len() >= 13, "only {seen:?} can sign");
}

/// The declared kind of a sample must be the parsed kind, and every placeholder must be known.
fn check_sample(provider: &Provider, sample: &SampleEvent) {
    let name = provider.name;
    let body = fill_placeholders(sample.body);
    assert!(!body.contains("{{"), "{name} {}: an unknown placeholder", sample.kind);
    let pairs: Vec<_> =
        sample.headers.iter().map(|(name, value)| (*name, fill_placeholders(value))).collect();
    let pairs: Vec<_> = pairs.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let headers = headers(&pairs);
    let target = fill_placeholders(sample.target);
    let (path, query) = target.split_once('?').map_or((&*target, None), |(p, q)| (p, Some(q)));
    let request = IncomingRequest {
        source: "s",
        path,
        query,
        headers: &headers,
        body: body.as_bytes(),
        origin: Some(ORIGIN),
    };
    let ParsedRequest::Events(parts) = provider.parse_request(&request, Some(&Secret::new(SECRET)))
    else {
        return;
    };
    let is_batch = sample.kind == "batch" && parts.len() > 1;
    // The generic preset has no kinds.
    let kind = |part: &EventPart| part.kind.as_ref().map(|kind| kind.as_str().to_owned());
    let has_kind = name == "generic"
        || is_batch
        || parts.iter().any(|part| kind(part).as_deref() == Some(sample.kind));
    assert!(has_kind, "{name} {} is read as {parts:?}", sample.kind);
}

#[test]
fn garbage_is_at_most_one_event_and_never_panics() {
    let bodies: [&[u8]; 8] = [
        b"",
        b"\xff\xfe",
        b"null",
        b"[]",
        b"[[[[",
        b"{}",
        br#"{"id":{},"event":[1]}"#,
        b"payload=%",
    ];
    let kinds = ["application/json", "application/x-www-form-urlencoded", "text/plain"];
    for provider in PROVIDERS {
        for (body, kind) in bodies.iter().flat_map(|body| kinds.map(|kind| (body, kind))) {
            let headers = headers(&[("content-type", kind)]);
            let request = IncomingRequest { body, ..incoming(&headers, "") };
            match provider.parse_request(&request, None) {
                ParsedRequest::Events(parts) => assert!(parts.len() <= 1, "{provider:?} {body:?}"),
                ParsedRequest::Handshake(reply) => panic!("{provider:?} {body:?} {reply:?}"),
            }
        }
    }
}

/// Flips every bit of every signature and secret, one at a time.
#[test]
fn any_changed_bit_of_signature_or_secret_is_refused() {
    for_each_signed(|provider, secret, verifier, sent| {
        let name = provider.name;
        for header in &sent.signature {
            let value = sent.headers[header].as_bytes();
            for bit in 0..value.len() * 8 {
                let other = flip_bit(value, bit);
                let Ok(changed) = HeaderValue::from_bytes(&other) else { continue };
                // The server trims white space around header values.
                let is_same = is_same_hex(value, &other) || is_same_scheme(value, &other);
                if is_same || other.trim_ascii() != other {
                    continue;
                }
                let mut sent = sent.clone();
                sent.headers.insert(header.clone(), changed);
                assert!(!sent.is_accepted(verifier), "{name} {header}: bit {bit} {other:?}");
            }
        }
        for bit in 0..sent.signed_path * 8 {
            let Ok(path) = String::from_utf8(flip_bit(sent.path.as_bytes(), bit)) else { continue };
            let sent = SignedSample { path, ..sent.clone() };
            assert!(!sent.is_accepted(verifier), "{name} path: bit {bit} {}", sent.path);
        }
        for bit in 0..secret.len() * 8 {
            let other = flip_bit(secret.as_bytes(), bit);
            if let Ok(other_verifier) = self::verifier(provider, &other) {
                assert!(!sent.is_accepted(&other_verifier), "{name} secret: bit {bit}");
            }
        }
    });
}

/// Flips a random bit of every body, because there are too many to try them all.
#[test]
fn any_changed_bit_of_a_body_is_refused() {
    proptest!(|(at in any::<prop::sample::Index>())| {
        let mut result: TestCaseResult = Ok(());
        for_each_signed(|provider, secret, verifier, mut sent| {
            if !is_body_signed(provider.name, secret) || result.is_err() {
                return;
            }
            let other = flip_bit(&sent.body, at.index(sent.body.len() * 8));
            if is_same_form(provider.name, &sent.body, &other) {
                return;
            }
            sent.body = other;
            if sent.is_accepted(verifier) {
                let name = provider.name;
                result = Err(TestCaseError::fail(format!("{name} accepts {sent:?}")));
            }
        });
        result?;
    });
}

#[test]
fn unsigned_bodies_are_listed_correctly() {
    for_each_signed(|provider, secret, verifier, mut sent| {
        let name = provider.name;
        if !is_body_signed(name, secret) && name != "mercado-pago" {
            sent.body.push(b' ');
            assert!(sent.is_accepted(verifier), "{name} signs bodies after all");
        }
    });
}

#[test]
fn message_status_is_derived_from_kind_and_status() {
    let cases = [
        ("whatsapp-cloud", "status.sent", None, Some(MessageStatusUpdate::Sent)),
        (
            "whatsapp-cloud",
            "status.delivered",
            Some("delivered"),
            Some(MessageStatusUpdate::Delivered),
        ),
        ("whatsapp-cloud", "status.read", None, Some(MessageStatusUpdate::Read)),
        ("whatsapp-cloud", "status.played", None, Some(MessageStatusUpdate::Read)),
        ("whatsapp-cloud", "status.failed", None, Some(MessageStatusUpdate::Failed)),
        ("whatsapp-cloud", "status.deleted", None, None),
        ("whatsapp-cloud", "message", Some("read"), None),
        (
            "evolution-go",
            "Receipt.Delivered",
            Some("Delivered"),
            Some(MessageStatusUpdate::Delivered),
        ),
        ("evolution-go", "Receipt.Read", None, Some(MessageStatusUpdate::Read)),
        ("evolution-go", "Receipt.ReadSelf", None, None),
        ("evolution-go", "SendMessage", None, None),
        ("evolution-api", "messages.update", Some("SERVER_ACK"), Some(MessageStatusUpdate::Sent)),
        (
            "evolution-api",
            "messages.update",
            Some("DELIVERY_ACK"),
            Some(MessageStatusUpdate::Delivered),
        ),
        ("evolution-api", "messages.update", Some("READ"), Some(MessageStatusUpdate::Read)),
        ("evolution-api", "messages.update", Some("ERROR"), Some(MessageStatusUpdate::Failed)),
        ("evolution-api", "messages.update", Some("PENDING"), None),
        ("evolution-api", "messages.update", None, None),
        ("evolution-api", "messages.upsert", Some("DELIVERY_ACK"), None),
        ("twilio", "message.status.undelivered", None, Some(MessageStatusUpdate::Failed)),
        ("twilio", "message.status.queued", None, None),
        ("twilio", "message.received", None, None),
        ("generic", "status.sent", Some("sent"), None),
    ];
    for (provider, kind, status, expected) in cases {
        let reported = find(provider).unwrap().message_status(kind, status);
        assert_eq!(reported, expected, "case: {provider} {kind} {status:?}");
    }
    let failed = br#"{"entry":[{"changes":[{"value":{"statuses":[{"errors":[{"code":131026,"title":"Message undeliverable"}]}]}}]}]}"#;
    let reason = find("whatsapp-cloud").unwrap().failure_reason(failed);
    assert_eq!(reason.as_deref(), Some("Message undeliverable"));
}
