//! The fuzz cases: every preset, and every verification scheme of a generic source.

use std::collections::BTreeSet;

use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};
use url::form_urlencoded;
use surehook_types::{ids::SourceId, time::Timestamp};
use surehook_webhooks::{provider::{PROVIDERS, SampleEvent}, request::{IncomingRequest, OutgoingRequest}};
use surehook_core::source::{Source, SourceSpec};

use crate::wire::Wire;

/// A fixed clock, so that signatures stay within the tolerance.
pub(crate) const NOW: Timestamp = Timestamp::from_millis(1_779_024_000_000);
pub(crate) const ORIGIN: &str = "https://hooks.example.com";
pub(crate) const VERIFY_TOKEN: &str = "fuzz-verify-token-0123456789";
const SECRET: &str = "fuzz-secret-0123456789abcdef";
/// 24 bytes in base64.
const WHSEC: &str = "whsec_ZnV6ei1zZWNyZXQtMDEyMzQ1Njc4OWFi";
const PAYLOADS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../testdata/payloads");
const ID: &str = "fuzz0000000000000001";

/// Schemes of a generic source.
fn generic() -> Vec<(&'static str, Value)> {
    vec![
        ("generic-hmac-hex", json!({ "hmac": { "header": "x-signature", "prefix": "sha256=" } })),
        (
            "generic-hmac-base64",
            json!({ "hmac": { "header": "x-signature", "encoding": "base64", "algorithm": "sha512" } }),
        ),
        (
            "generic-hmac-params",
            json!({ "hmac": {
                "header": "x-signature",
                "template": "{timestamp}.{body}",
                "signature_param": "v1",
                "timestamp_param": "t",
            } }),
        ),
        (
            "generic-hmac-headers",
            json!({ "hmac": {
                "header": "x-signature",
                "template": "{id}:{timestamp}:{body}",
                "timestamp_header": "x-time",
                "id_header": "x-id",
            } }),
        ),
        ("generic-token", json!({ "token": { "header": "x-token" } })),
        ("generic-bearer", json!({ "token": { "header": "authorization" } })),
        ("generic-basic", json!({ "basic": { "user": "fuzz" } })),
    ]
}

/// Presets with another kind of secret: name, preset, secret.
const VARIANTS: [(&str, &str, &str); 2] = [
    ("gitlab-signed", "gitlab", WHSEC),
    // A pair of keys (RFC 8032, test 1).
    (
        "standard-webhooks-keys",
        "standard-webhooks",
        "whsk_nWGxne/9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A=",
    ),
];

/// Accepts every request: a run that finds nothing here would find nothing anywhere.
pub(crate) const BROKEN: &str = "broken";

/// The names of all cases.
pub(crate) fn names() -> Vec<&'static str> {
    let presets = PROVIDERS.iter().map(|provider| provider.name);
    let presets = presets.filter(|name| *name != "generic");
    let variants = VARIANTS.iter().map(|(name, ..)| *name);
    generic().into_iter().map(|(name, _)| name).chain(presets).chain(variants).collect()
}

/// A verifier with valid requests.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) source: Source,
    pub(crate) seeds: Vec<Seed>,
    /// Whether the signature covers the body.
    pub(crate) covers_body: bool,
}

/// A request that was made with the secret.
#[derive(Debug)]
pub(crate) struct Seed {
    pub(crate) wire: Wire,
    /// The parts that cannot be made without the secret.
    pub(crate) proofs: Vec<Vec<u8>>,
    /// Whether we signed it, so that it must verify.
    pub(crate) is_ours: bool,
}

impl Case {
    pub(crate) fn named(name: &str) -> Self {
        let variant = VARIANTS.iter().find(|(variant, ..)| *variant == name);
        let preset = variant.map_or(name, |(_, preset, _)| preset);
        let payloads = payloads(preset);
        // Where we cannot sign, only the signatures of the payloads are valid.
        let secrets: Vec<&str> = match name {
            "discord" | "paypal" => payloads.iter().flat_map(Payload::secrets).collect(),
            "standard-webhooks" => vec![WHSEC],
            _ => vec![variant.map_or(SECRET, |(.., secret)| secret)],
        };
        let mut spec = json!({ "name": "in", "verify_token": VERIFY_TOKEN, "secrets": secrets });
        let own = generic().into_iter().find(|(other, _)| *other == name);
        match own {
            Some((_, verify)) => spec["verify"] = verify,
            None if name == BROKEN => spec = json!({ "name": "in", "verify": "none" }),
            None => spec["provider"] = preset.into(),
        }
        let spec: SourceSpec = serde_json::from_value(spec).expect("a source");
        let source = spec.build(SourceId::new(NOW, 1), &|_| None).expect("a source that works");
        let samples = source.provider.samples.iter().map(unsigned);
        let requests = samples.chain(payloads.iter().map(Payload::request));
        let seeds = requests.map(|wire| seed(&source, wire)).collect();
        Self { name: name.to_owned(), source, seeds, covers_body: covers_body(name) }
    }
}

/// A payload of `testdata/payloads`.
struct Payload(Value);

fn payloads(name: &str) -> Vec<Payload> {
    let index = std::fs::read(format!("{PAYLOADS}/INDEX.json")).expect("an index");
    let index: Value = serde_json::from_slice(&index).expect("JSON");
    let items = index["items"].as_array().expect("items").iter();
    let of_preset = |item: &&Value| {
        let provider = item["provider"].as_str().unwrap_or_default();
        let preset = match provider {
            "whatsapp" => "whatsapp-cloud",
            "generic_hmac" => "n8n",
            "mercadopago" => "mercado-pago",
            "standardwebhooks" => "standard-webhooks",
            other => &other.replace('_', "-"),
        };
        preset == name
    };
    items.filter(of_preset).cloned().map(Payload).collect()
}

impl Payload {
    fn secrets(&self) -> Vec<&str> {
        let secrets = self.0["secret"].as_object().into_iter();
        secrets.flat_map(|secrets| secrets.values().filter_map(Value::as_str)).collect()
    }

    fn request(&self) -> Wire {
        let mut headers = HeaderMap::new();
        for (name, value) in self.0["headers"].as_object().into_iter().flatten() {
            // There is no published PayPal signature.
            let value = value.as_str().filter(|value| *value != "(RSA; no vector)");
            insert(&mut headers, name.parse().expect("a name"), value.unwrap_or("AAAA"));
        }
        let query = self.0["query"].as_str().map(|query| format!("?{query}")).unwrap_or_default();
        let file = self.0["file"].as_str().unwrap_or_default();
        let body = std::fs::read(format!("{PAYLOADS}/{file}")).expect("a payload");
        Wire { target: query, headers, body }
    }
}

/// Whether the signature of a case covers the body.
fn covers_body(name: &str) -> bool {
    !matches!(
        name,
        "generic-token"
            | "generic-bearer"
            | "generic-basic"
            | "evolution-api"
            | "evolution-go"
            | "gitlab"
            | "mercado-pago"
            | "n8n"
            | "telegram"
    )
}

/// A sample of a preset with its placeholders filled.
fn unsigned(sample: &SampleEvent) -> Wire {
    let mut headers = HeaderMap::new();
    for (name, value) in sample.headers {
        insert(&mut headers, name.parse().expect("a name"), &filled(value));
    }
    Wire { target: filled(sample.target), headers, body: filled(sample.body).into_bytes() }
}

/// The signed part of a body. Twilio signs the sorted form fields without separators, so different
/// bodies can be equal.
pub(crate) fn signed_body(name: &str, wire: &Wire) -> Vec<u8> {
    let kind = wire.headers.get("content-type").map(HeaderValue::as_bytes).unwrap_or_default();
    if name != "twilio" || !kind.to_ascii_lowercase().starts_with(b"application/x-www-form") {
        return wire.body.clone();
    }
    let fields: BTreeSet<_> = form_urlencoded::parse(&wire.body).collect();
    fields
        .iter()
        .flat_map(|(name, value)| [name.as_bytes(), value.as_bytes()])
        .flatten()
        .copied()
        .collect()
}

/// The request with a signature, if we can make one.
fn seed(source: &Source, mut wire: Wire) -> Seed {
    let url = format!("{ORIGIN}/in/in{}", wire.target);
    let outgoing = OutgoingRequest { id: ID, url: &url, headers: &wire.headers, body: &wire.body };
    let Ok(signed) = source.verifier.sign(&outgoing, NOW) else {
        let values = wire.headers.values().filter_map(|value| value.to_str().ok());
        let proofs = values.flat_map(proofs).collect();
        return Seed { wire, proofs, is_ours: false };
    };
    let mut proofs: Vec<Vec<u8>> = proofs(&signed.path).collect();
    for (name, value) in signed.headers {
        proofs.extend(self::proofs(&value));
        insert(&mut wire.headers, name, &value);
    }
    // A secret goes to the start of the path, a query parameter to the end.
    let at = if signed.path.starts_with('/') { 0 } else { wire.target.len() };
    wire.target.insert_str(at, &signed.path);
    Seed { wire, proofs, is_ours: true }
}

fn insert(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    headers.insert(name, HeaderValue::from_str(value).expect("a value"));
}

/// The long words of a signature header; a timestamp is a short one.
fn proofs(text: &str) -> impl Iterator<Item = Vec<u8>> {
    let words = text.split(|sign: char| !(sign.is_ascii_alphanumeric() || "+/=_-".contains(sign)));
    let words = words.flat_map(|word| word.rsplit('=').find(|part| part.len() >= 16));
    words.map(|word| word.to_ascii_lowercase().into_bytes()).filter(|word| word != ID.as_bytes())
}

/// Fills the placeholders of a sample.
fn filled(text: &str) -> String {
    let places = [
        ("{{id}}", ID),
        ("{{number}}", "1234567890"),
        ("{{uuid}}", "018f8e5a-0000-7000-8000-000000000001"),
        ("{{phone}}", "5511987654321"),
        ("{{now}}", "1779024000"),
        ("{{now_ms}}", "1779024000000"),
        ("{{now_iso}}", "2026-05-17T13:20:00Z"),
    ];
    places.iter().fold(text.to_owned(), |text, (place, value)| text.replace(place, value))
}

pub(crate) fn incoming(wire: &Wire) -> IncomingRequest<'_> {
    let (path, query) = match wire.target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (wire.target.as_str(), None),
    };
    IncomingRequest {
        source: "in",
        path,
        query,
        headers: &wire.headers,
        body: &wire.body,
        origin: Some(ORIGIN),
    }
}
