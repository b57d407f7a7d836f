//! Verifies and parses every payload of `testdata/payloads` with its preset and compares kinds, keys and
//! ordering keys with `INDEX.json`. Negative payloads and other secrets must be refused.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may panic")]

mod payload_index;

use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::json;
use surehook_core::source::{Source, SourceSpec};
use surehook_types::{ids::SourceId, time::Timestamp};
use surehook_webhooks::{
    provider::{EventKey, EventPart, PROVIDERS, ParsedRequest},
    request::IncomingRequest,
};

use self::payload_index::{ExpectedEvent, IndexedPayload, payloads};

fn items(provider: &str) -> Vec<IndexedPayload> {
    let items = payloads().into_iter().filter(|item| item.preset() == provider);
    // Meta's GET handshake has no body; the tests of the server cover it.
    items.filter(|item| item.file != "whatsapp.verify.get.json").collect()
}

fn source(item: &IndexedPayload, secrets: &[&str]) -> Source {
    let origin = item.url.as_ref().map(|url| url.split("/in/").next().unwrap());
    let mut spec = json!({ "name": "s", "provider": item.preset(), "secrets": secrets });
    if let Some(origin) = origin {
        spec["public_url"] = json!(origin);
    }
    let spec: SourceSpec = serde_json::from_value(spec).unwrap();
    spec.build(SourceId::new(Timestamp::from_millis(1), 1), &|_| None).unwrap()
}

/// A request of the index.
struct IndexedRequest {
    name: String,
    path: String,
    query: Option<String>,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl IndexedRequest {
    fn from_item(item: &IndexedPayload) -> Self {
        let mut headers = HeaderMap::new();
        for (name, value) in &item.headers {
            headers
                .append(name.parse::<HeaderName>().unwrap(), HeaderValue::from_str(value).unwrap());
        }
        let body = item.body();
        let target = item.url.as_deref().and_then(|url| url.split("/in/").nth(1)).unwrap_or("s");
        let (target, query) = match target.split_once('?') {
            Some((target, query)) => (target, Some(query.to_owned())),
            None => (target, item.query.clone()),
        };
        let (name, path) = target.split_at(target.find('/').unwrap_or(target.len()));
        Self { name: name.to_owned(), path: path.to_owned(), query, headers, body }
    }

    fn incoming<'r>(&'r self, source: &'r Source) -> IncomingRequest<'r> {
        IncomingRequest {
            source: &self.name,
            path: &self.path,
            query: self.query.as_deref(),
            headers: &self.headers,
            body: &self.body,
            origin: source.public_url.as_ref().map(surehook_core::source::PublicUrl::as_str),
        }
    }
}

fn describe(source: &Source, sent: &IndexedRequest, part: &EventPart) -> ExpectedEvent {
    let body = part.body.as_deref().unwrap_or(&sent.body);
    let dedup_key = match &part.key {
        EventKey::Known(key, _) | EventKey::Unsigned(Some(key), _) => Some(key.as_str().to_owned()),
        EventKey::ContentHash(window) => Some(format!("hash:body within {} s", window.as_secs())),
        EventKey::Rules => {
            let found = source.keys.extract(&sent.headers, body).unwrap();
            found.map(|found| found.key.as_str().to_owned())
        }
        EventKey::None | EventKey::Unsigned(None, _) => None,
    };
    let kind = part.kind.as_ref().map(|kind| kind.as_str().to_owned()).unwrap_or_default();
    ExpectedEvent {
        kind,
        dedup_key,
        ordering_key: part.ordering_key.as_ref().map(|key| key.as_str().to_owned()),
    }
}

/// Checks all samples of one preset.
fn check_payloads(provider: &str) {
    assert!(PROVIDERS.iter().any(|known| known.name == provider), "no preset {provider}");
    let items = items(provider);
    assert!(!items.is_empty(), "no samples of {provider}");
    for item in items {
        let name = item.file.as_str();
        let secrets: Vec<&str> = item.secret.values().map(String::as_str).collect();
        let source = source(&item, &secrets);
        let sent = IndexedRequest::from_item(&item);
        let now = item.signed_at();
        let verified =
            source.verifier.verify(&sent.incoming(&source), Timestamp::from_millis(now * 1000));
        if name.starts_with("negative") {
            assert!(verified.is_err(), "{name} must be refused");
            continue;
        }
        let verified = match verified {
            // There is no published key for this signature.
            Err(_) if provider == "paypal" => {
                surehook_webhooks::verify::VerifiedRequest { by: "", secret_index: 0 }
            }
            other => other.unwrap_or_else(|refused| panic!("{name}: {refused}")),
        };
        match source.parse_request(&sent.incoming(&source), verified) {
            ParsedRequest::Handshake(reply) => {
                assert_eq!(item.events[0].kind, "challenge", "{name}");
                let expected_reply = item.expect_response.as_ref().unwrap();
                assert_eq!(json!(reply.status.as_u16()), expected_reply["status"], "{name}");
                assert_eq!(
                    String::from_utf8_lossy(&reply.body),
                    expected_reply["body"].as_str().unwrap(),
                    "{name}"
                );
                if let Some(kind) = expected_reply["content_type"].as_str() {
                    assert!(reply.content_type.unwrap().starts_with(kind), "{name}");
                }
            }
            ParsedRequest::Events(parts) => {
                let parts: Vec<_> =
                    parts.iter().map(|part| describe(&source, &sent, part)).collect();
                assert_eq!(parts, item.expected_events(), "{name}");
            }
        }
        // Any other secret is refused.
        let others: Vec<String> = secrets.iter().map(|secret| change_secret(secret)).collect();
        let others: Vec<&str> = others.iter().map(String::as_str).collect();
        let other_source = self::source(&item, &others);
        let verified = other_source
            .verifier
            .verify(&sent.incoming(&other_source), Timestamp::from_millis(now * 1000));
        assert!(verified.is_err(), "{name} must be refused with another secret");
    }
}

/// Another secret of the same format.
fn change_secret(secret: &str) -> String {
    let last = secret.chars().rev().find(char::is_ascii_alphanumeric).unwrap();
    let (at, _) = secret.char_indices().rev().find(|(_, c)| *c == last).unwrap();
    let other = if last == '0' { '1' } else { '0' };
    format!("{}{other}{}", &secret[..at], &secret[at + last.len_utf8()..])
}

macro_rules! presets {
    ($($test:ident: $name:literal),* $(,)?) => {
        $(#[test]
        fn $test() {
            check_payloads($name);
        })*

        #[test]
        fn every_payload_has_a_test() {
            for item in payloads() {
                assert!([$($name),*].contains(&item.preset()), "{}", item.file);
            }
        }
    };
}

presets! {
    adyen_payloads_match_the_index: "adyen",
    asana_payloads_match_the_index: "asana",
    calendly_payloads_match_the_index: "calendly",
    chatwoot_payloads_match_the_index: "chatwoot",
    discord_payloads_match_the_index: "discord",
    docusign_payloads_match_the_index: "docusign",
    evolution_api_payloads_match_the_index: "evolution-api",
    evolution_go_payloads_match_the_index: "evolution-go",
    github_payloads_match_the_index: "github",
    gitlab_payloads_match_the_index: "gitlab",
    hubspot_payloads_match_the_index: "hubspot",
    intercom_payloads_match_the_index: "intercom",
    linear_payloads_match_the_index: "linear",
    mercado_pago_payloads_match_the_index: "mercado-pago",
    n8n_payloads_match_the_index: "n8n",
    notion_payloads_match_the_index: "notion",
    okta_payloads_match_the_index: "okta",
    paypal_payloads_match_the_index: "paypal",
    sentry_payloads_match_the_index: "sentry",
    shopify_payloads_match_the_index: "shopify",
    slack_payloads_match_the_index: "slack",
    square_payloads_match_the_index: "square",
    standard_webhooks_payloads_match_the_index: "standard-webhooks",
    stripe_payloads_match_the_index: "stripe",
    telegram_payloads_match_the_index: "telegram",
    trello_payloads_match_the_index: "trello",
    twilio_payloads_match_the_index: "twilio",
    twitch_payloads_match_the_index: "twitch",
    typeform_payloads_match_the_index: "typeform",
    whatsapp_cloud_payloads_match_the_index: "whatsapp-cloud",
    zoom_payloads_match_the_index: "zoom",
}
