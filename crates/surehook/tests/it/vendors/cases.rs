//! Webhooks of the vendors: the samples of their presets, and the secrets that sign them.

use bytes::Bytes;
use http::{HeaderMap, HeaderName};
use serde_json::{Value, json};
use surehook_types::{secret::Secret, time::Timestamp};
use surehook_webhooks::{
    provider::{self, ParsedRequest, SampleEvent},
    request::{IncomingRequest, OutgoingRequest},
};

use crate::support::{unix_now, vendor_libraries::Webhook};

/// The public origin of the gateway.
pub(super) const ORIGIN: &str = "https://hooks.example.com";
pub(super) const WHSEC: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
pub(super) const PLAIN: &str = "a-shared-secret-of-32-characters";
/// A key pair (RFC 8032, test 1).
pub(super) const PRIVATE: &str = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60";
pub(super) const PUBLIC: &str = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";

/// An HMAC key of Adyen: hexadecimal.
const HEX: &str = "44782540635438062910043932310071";
/// A key pair on the curve P-256, as `SendGrid` has them.
const EC_PRIVATE: &str = "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg575v8Z2si2hInNAVNYxorv8+gmjlptLWkpsh6+vp4muhRANCAAR9EnZrq59Dd02BtlAc61XGr7veDsLUemvePHkxnC7NFOJXEeafPrxLuuHmfzI8i+PUJ7ZVojEZapQLDxphNJ4n";
const EC_PUBLIC: &str = "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEfRJ2a6ufQ3dNgbZQHOtVxq+73g7C1Hpr3jx5MZwuzRTiVxHmnz68S7rh5n8yPIvj1Ce2VaIxGWqUCw8aYTSeJw==";

/// The name of a vendor in the drivers, and the preset for its webhooks.
pub(super) const VENDORS: &[(&str, &str)] = &[
    ("adyen", "adyen"),
    ("discord", "discord"),
    ("evolution-api", "evolution-api"),
    ("github", "github"),
    ("hubspot", "hubspot"),
    ("linear", "linear"),
    ("mercado-pago", "mercado-pago"),
    ("notion", "notion"),
    ("sendgrid", "sendgrid"),
    ("shopify", "shopify"),
    ("slack", "slack"),
    ("square", "square"),
    // Its signing tokens are those of Standard Webhooks.
    ("standard-webhooks", "gitlab"),
    ("standard-webhooks", "standard-webhooks"),
    ("stripe", "stripe"),
    ("svix", "standard-webhooks"),
    ("telegram", "telegram"),
    ("twilio", "twilio"),
    ("twitch", "twitch"),
    ("whatsapp-cloud", "whatsapp-cloud"),
    ("zoom", "zoom"),
];

/// The secret that the vendor signs with.
pub(super) fn vendor_secret(vendor: &str) -> Value {
    match vendor {
        "standard-webhooks" | "svix" => WHSEC.into(),
        "adyen" => HEX.into(),
        "discord" => json!({ "public_key": PUBLIC, "private_key": PRIVATE }),
        "sendgrid" => json!({ "public_key": EC_PUBLIC, "private_key": EC_PRIVATE }),
        _ => PLAIN.into(),
    }
}

/// The secret that the gateway is configured with.
pub(super) fn gateway_secret(preset: &str) -> &'static str {
    match preset {
        "gitlab" | "standard-webhooks" => WHSEC,
        "adyen" => HEX,
        "discord" => PUBLIC,
        "sendgrid" => EC_PUBLIC,
        _ => PLAIN,
    }
}

/// Whether the signature covers the body.
pub(super) fn covers_body(vendor: &str) -> bool {
    !matches!(vendor, "evolution-api" | "mercado-pago" | "telegram")
}

/// Whether the gateway can sign as this vendor: not with only a public key, and not where the
/// signature is part of the URL.
pub(super) fn can_resign(preset: &str) -> bool {
    !matches!(preset, "discord" | "paypal" | "sendgrid")
}

/// A sample of a preset with its placeholders filled; `number` makes the event unique.
pub(super) fn unsigned(preset: &str, sample: &SampleEvent, number: usize) -> Webhook {
    let now = unix_now();
    let fill = |text: &str| {
        let text = text.replace("{{id}}", &format!("test{number:012}"));
        let text = text.replace("{{number}}", &format!("{}", 1_000_000 + number));
        let text = text.replace("{{uuid}}", &format!("018f8e5a-0000-7000-8000-{number:012}"));
        let text = text.replace("{{phone}}", "5511987654321");
        let text = text.replace("{{now}}", &now.to_string());
        let text = text.replace("{{now_ms}}", &(now * 1000).to_string());
        text.replace("{{now_iso}}", &Timestamp::from_millis(now * 1000).to_string())
    };
    let headers = sample.headers.iter();
    Webhook {
        url: format!("{ORIGIN}/in/{preset}{}", fill(sample.target)),
        headers: headers.map(|(name, value)| ((*name).to_owned(), fill(value))).collect(),
        body: fill(sample.body).into(),
    }
}

/// The webhook with a signature made by the gateway's verifier.
pub(super) fn signed_by_us(preset: &str, webhook: &Webhook) -> Webhook {
    let secret = Secret::new(gateway_secret(preset));
    let verifier = provider::find(preset).unwrap().verifier(vec![secret]).unwrap();
    let headers = header_map(webhook);
    let outgoing = OutgoingRequest {
        id: "msg_of_ours",
        url: &webhook.url,
        headers: &headers,
        body: &webhook.body,
    };
    let signed = verifier.sign(&outgoing, Timestamp::from_millis(unix_now() * 1000)).unwrap();
    let headers = signed.headers.into_iter().map(|(name, value)| (name.to_string(), value));
    let mut webhook = webhook.clone();
    webhook.headers.extend(headers);
    webhook
}

pub(super) fn header_map(webhook: &Webhook) -> HeaderMap {
    let headers = webhook.headers.iter();
    headers
        .map(|(name, value)| (name.parse::<HeaderName>().unwrap(), value.parse().unwrap()))
        .collect()
}

pub(super) fn incoming<'r>(
    preset: &'r str,
    webhook: &'r Webhook,
    headers: &'r HeaderMap,
) -> IncomingRequest<'r> {
    IncomingRequest {
        source: preset,
        path: "",
        query: webhook.url.split_once('?').map(|(_, query)| query),
        headers,
        body: &webhook.body,
        origin: Some(ORIGIN),
    }
}

/// The bodies of the events that are delivered for a webhook.
pub(super) fn delivered_bodies(preset: &str, webhook: &Webhook) -> Vec<Bytes> {
    let headers = header_map(webhook);
    let secret = Secret::new(gateway_secret(preset));
    let provider = provider::find(preset).unwrap();
    match provider.parse_request(&incoming(preset, webhook, &headers), Some(&secret)) {
        ParsedRequest::Handshake(_) => Vec::new(),
        ParsedRequest::Events(parts) => {
            let delivered = parts.into_iter().filter(|part| !part.is_ping);
            delivered.map(|part| part.body.unwrap_or_else(|| webhook.body.clone().into())).collect()
        }
    }
}

/// Copies of the webhook with one changed bit each: in every header that was added by signing, and in
/// the body if the signature covers it.
pub(super) fn tampered_webhooks(
    vendor: &str,
    signed: &Webhook,
    unsigned: &Webhook,
) -> Vec<(String, Webhook)> {
    let mut all = Vec::new();
    for at in unsigned.headers.len()..signed.headers.len() {
        let mut webhook = signed.clone();
        let (name, value) = &mut webhook.headers[at];
        let middle = value.len() / 2;
        let flipped = char::from(value.as_bytes()[middle] ^ 1).to_string();
        value.replace_range(middle..=middle, &flipped);
        all.push((name.clone(), webhook));
    }
    if covers_body(vendor) {
        let mut webhook = signed.clone();
        // Replaces a digit by a digit, so that the body stays valid.
        let at = webhook.body.iter().rposition(u8::is_ascii_digit).unwrap();
        webhook.body[at] ^= 1;
        all.push(("body".to_owned(), webhook));
    }
    all
}
