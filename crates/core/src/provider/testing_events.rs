//! What the tests of the presets share.

use http::{HeaderMap, HeaderName, HeaderValue};

use super::{Part, PartKey, Provider, Reading};
use crate::{
    request::{Incoming, Outgoing},
    secret::Secret,
    time::Timestamp,
};

pub(super) const NOW: i64 = 1_779_024_000;

pub(super) fn now() -> Timestamp {
    Timestamp::from_millis(NOW * 1000)
}

pub(super) fn secrets(all: &[&str]) -> Vec<Secret> {
    all.iter().map(|secret| Secret::new(*secret)).collect()
}

pub(super) fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        headers.append(name.parse::<HeaderName>().unwrap(), HeaderValue::from_str(value).unwrap());
    }
    headers
}

pub(super) fn request<'r>(path: &'r str, headers: &'r HeaderMap, body: &'r [u8]) -> Incoming<'r> {
    Incoming { source: "s", path, query: None, headers, body, origin: None }
}

/// The events that a preset reads in a body.
pub(super) fn read(provider: &dyn Provider, pairs: &[(&str, &str)], body: &str) -> Vec<Part> {
    let headers = headers(pairs);
    match provider.read(&request("", &headers, body.as_bytes()), None) {
        Reading::Events(parts) => parts,
        Reading::Greeting(reply) => panic!("a greeting: {reply:?}"),
    }
}

/// The key for people: the key, how long the hash of the body counts, or `-` for none.
pub(super) fn key(part: &Part) -> String {
    match &part.key {
        PartKey::Known(key, _) => key.as_str().to_owned(),
        PartKey::Content(window) => format!("hash for {} s", window.as_secs()),
        PartKey::Rules => "rules".to_owned(),
        PartKey::None => "-".to_owned(),
    }
}

pub(super) fn kind(part: &Part) -> &str {
    part.kind.as_ref().map_or("-", crate::attribute::EventKind::as_str)
}

pub(super) fn order(part: &Part) -> &str {
    part.order.as_ref().map_or("-", crate::key::DedupKey::as_str)
}

/// Turns one bit. Whether the letter is the same but for its case.
pub(super) fn flip(bytes: &mut [u8], bit: usize) -> bool {
    let bit = bit % (bytes.len() * 8);
    let before = bytes[bit / 8];
    bytes[bit / 8] ^= 1 << (bit % 8);
    bytes[bit / 8].eq_ignore_ascii_case(&before)
}

/// Every sample, signed and sent: it is let in, and is of the kind that it says.
pub(super) fn check_samples(provider: &dyn Provider) {
    let verifier = provider.verifier(secrets(&["a-secret-of-tests"])).unwrap();
    assert!(!provider.samples().is_empty());
    for sample in provider.samples() {
        let body = fill(sample.body);
        let json: Result<serde::de::IgnoredAny, _> = serde_json::from_str(&body);
        assert!(json.is_ok(), "{}: {body}", sample.kind);
        let mut headers = headers(
            &sample
                .headers
                .iter()
                .map(|(name, text)| (*name, &*fill(text).leak()))
                .collect::<Vec<_>>(),
        );
        let outgoing = Outgoing { id: "i", url: "u", headers: &headers, body: body.as_bytes() };
        let signed = verifier.sign(&outgoing, now()).unwrap();
        for (name, value) in signed.headers {
            headers.insert(name, HeaderValue::from_str(&value).unwrap());
        }
        let path = format!("{}{}", signed.path, sample.target);
        let request = request(&path, &headers, body.as_bytes());
        assert!(verifier.verify(&request, now()).is_ok(), "{}", sample.kind);
        let Reading::Events(parts) = provider.read(&request, None) else { panic!("no events") };
        if sample.kind == "batch" {
            assert!(parts.len() > 1);
        } else {
            assert!(parts.iter().all(|part| kind(part) == sample.kind), "{}", sample.kind);
        }
        assert!(!body.contains("{{"), "{}: an unknown placeholder", sample.kind);
    }
}

fn fill(text: &str) -> String {
    let mut text = text.to_owned();
    for (name, value) in [
        ("id", "3EB0C5A277F7F9B6C599"),
        ("number", "594425479261596"),
        ("uuid", "5b0f2c7e-9a3d-4e1a-8f56-1c2d3e4f5a6b"),
        ("phone", "5511987654321"),
        ("now", "1779024000"),
        ("now_ms", "1779024000000"),
        ("now_iso", "2026-05-17T13:20:00.000Z"),
    ] {
        text = text.replace(&format!("{{{{{name}}}}}"), value);
    }
    text
}
