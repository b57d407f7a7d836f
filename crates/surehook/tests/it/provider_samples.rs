//! Every sample of `testdata/payloads` sent to a running gateway: its response and the resulting events,
//! kinds and keys. The clock is set to the time when the samples were signed, and then a day later.

#[path = "../../../core/tests/payload_index/mod.rs"]
mod payload_index;

use std::collections::BTreeMap;

use http::Method;
use serde_json::{Value, json};
use surehook_webhooks::provider::{self, RefusalPolicy};

use self::payload_index::{ExpectedEvent, IndexedPayload};
use super::support::{client::HttpResponse, fake_clock::FakeClockGateway};

const DAY: i64 = 86_400;

impl IndexedPayload {
    /// The name of its source: the one in its URL, if the signature covers the URL.
    fn source(&self) -> String {
        match self.url.as_deref().and_then(|url| url.split("/in/").nth(1)) {
            Some(rest) => rest.split(['/', '?']).next().unwrap().to_owned(),
            None => self.preset().to_owned(),
        }
    }

    fn target(&self) -> String {
        match (&self.url, &self.query) {
            (Some(url), _) => format!("/in/{}", url.split("/in/").nth(1).unwrap()),
            (None, Some(query)) => format!("/in/{}?{query}", self.source()),
            (None, None) => format!("/in/{}", self.source()),
        }
    }

    /// The status for a wrong signature. Some providers never retry after a 401.
    fn refusal_status(&self) -> u16 {
        match provider::find(self.preset()).unwrap().on_refusal {
            RefusalPolicy::Unauthorized | RefusalPolicy::Keep => 401,
            RefusalPolicy::Quarantine => 503,
        }
    }

    async fn send_to(&self, gateway: &FakeClockGateway) -> HttpResponse {
        let pairs = self.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        let headers: Vec<(&str, &[u8])> = pairs.collect();
        gateway.send(Method::POST, &self.target(), &headers, self.body()).await
    }

    /// Kind and key of every event that the index expects.
    fn kinds_and_keys(&self) -> Vec<KindAndKey> {
        let kind_and_key = |event: ExpectedEvent| {
            let key = event.dedup_key.map(|key| match key.starts_with("hash:body within") {
                true => surehook_webhooks::key::content_hash_key(&self.body()).as_str().to_owned(),
                false => key,
            });
            (event.kind, key)
        };
        self.expected_events().into_iter().map(kind_and_key).collect()
    }
}

/// A gateway with a source for each preset that has the secrets of all its samples.
async fn gateway(samples: &[IndexedPayload]) -> FakeClockGateway {
    let gateway = FakeClockGateway::start(samples[0].now).await;
    let mut sources: BTreeMap<String, Value> = BTreeMap::new();
    for sample in samples {
        let source = sources.entry(sample.source()).or_insert_with(|| {
            let mut source =
                json!({ "name": sample.source(), "provider": sample.preset(), "secrets": [], "allow_short_secrets": true });
            if let Some(url) = &sample.url {
                source["public_url"] = json!(url.split("/in/").next().unwrap());
            }
            source
        });
        for (name, secret) in &sample.secret {
            if name == "verify_token" {
                source["verify_token"] = json!(secret);
                continue;
            }
            let secrets = source["secrets"].as_array_mut().unwrap();
            if !secrets.contains(&json!(secret)) {
                secrets.push(json!(secret));
            }
        }
    }
    for source in sources.values() {
        gateway.api(Method::POST, "/sources", Some(source)).await.expect(201);
    }
    gateway
}

type KindAndKey = (String, Option<String>);

/// Id, kind and key of the events of one source, oldest first. The clock does not move, so only events of
/// the same request are in a defined order.
async fn events(gateway: &FakeClockGateway, source: &str) -> Vec<(String, KindAndKey)> {
    let path = format!("/events?source={source}&limit=100");
    let list = gateway.api(Method::GET, &path, None).await.expect(200).json();
    let identify = |event: &Value| {
        let text = |name: &str| event[name].as_str().map(ToOwned::to_owned);
        (text("id").unwrap(), (text("kind").unwrap_or_default(), text("key")))
    };
    list["data"].as_array().unwrap().iter().rev().map(identify).collect()
}

fn is_handshake(sample: &IndexedPayload) -> bool {
    sample.events.first().is_some_and(|event| event.kind == "challenge")
}

#[tokio::test]
async fn every_sample_payload_becomes_its_expected_events() {
    let samples = payload_index::payloads();
    let gateway = gateway(&samples).await;
    for sample in &samples {
        // Meta's GET has its own test; PayPal's sample has no real signature.
        if sample.file == "whatsapp.verify.get.json" || sample.provider == "paypal" {
            continue;
        }
        let name = sample.file.as_str();
        gateway.set_clock(sample.signed_at());
        let before = events(&gateway, &sample.source()).await;
        let response = sample.send_to(&gateway).await;
        let after = events(&gateway, &sample.source()).await;
        let new: Vec<_> = after.into_iter().filter(|event| !before.contains(event)).collect();
        let new: Vec<_> = new.into_iter().map(|(_, kind_and_key)| kind_and_key).collect();
        if name.starts_with("negative") {
            assert_eq!(
                (response.status.as_u16(), new.len()),
                (401, 0),
                "{name}: {}",
                response.text()
            );
        } else if is_handshake(sample) {
            let expected = sample.expect_response.as_ref().unwrap();
            assert_eq!(
                json!(response.status.as_u16()),
                expected["status"],
                "{name}: {}",
                response.text()
            );
            assert_eq!(response.text(), expected["body"].as_str().unwrap(), "{name}");
            let content_type = expected["content_type"].as_str().unwrap_or_default();
            assert!(response.header("content-type").starts_with(content_type), "{name}");
            assert_eq!(new, [], "{name}");
        } else if name.contains("duplicate_redelivery") || name.contains("nested_key") {
            // Both repeat the event of an earlier sample.
            assert_eq!(response.expect(200).json()["status"], "duplicate", "{name}");
            assert_eq!(new, [], "{name}");
        } else {
            assert_eq!(response.status.as_u16(), 200, "{name}: {}", response.text());
            assert_eq!(new, sample.kinds_and_keys(), "{name}");
        }
    }
}

#[tokio::test]
async fn samples_sent_again_after_a_day_are_stale_or_duplicates() {
    let samples = payload_index::payloads();
    let gateway = gateway(&samples).await;
    let stale = [
        "chatwoot",
        "discord",
        "evolution_api",
        "gitlab",
        "hubspot",
        "linear",
        "slack",
        "standardwebhooks",
        "stripe",
        "twitch",
        "zoom",
    ];
    for sample in &samples {
        if sample.file.starts_with("negative")
            || sample.file == "whatsapp.verify.get.json"
            || sample.provider == "paypal"
        {
            continue;
        }
        gateway.set_clock(sample.signed_at());
        let first = sample.send_to(&gateway).await;
        gateway.set_clock(sample.signed_at() + DAY);
        let response = sample.send_to(&gateway).await;
        let name = sample.file.as_str();
        if stale.contains(&sample.provider.as_str()) {
            assert_eq!(
                response.status.as_u16(),
                sample.refusal_status(),
                "{name}: {}",
                response.text()
            );
        } else {
            assert_eq!(response.status, first.status, "{name}: {}", response.text());
        }
    }
}

#[tokio::test]
async fn unsigned_samples_are_refused_and_not_stored() {
    let samples = payload_index::payloads();
    let gateway = gateway(&samples).await;
    for sample in samples.iter().filter(|sample| !sample.file.contains("verify.get")) {
        let name = sample.file.as_str();
        gateway.set_clock(sample.signed_at());
        let response = gateway.send(Method::POST, &sample.target(), &[], sample.body()).await;
        // The secret of Evolution Go and some of Adyen's signatures are in the body.
        if matches!(sample.provider.as_str(), "evolution_go" | "adyen") {
            continue;
        }
        assert_eq!(
            response.status.as_u16(),
            sample.refusal_status(),
            "{name}: {}",
            response.text()
        );
        assert_eq!(events(&gateway, &sample.source()).await, [], "{name}");
    }
}

#[tokio::test]
async fn meta_verification_requires_matching_token() {
    let samples = payload_index::payloads();
    let gateway = gateway(&samples).await;
    let verify = async |query: &str| {
        gateway.send(Method::GET, &format!("/in/whatsapp-cloud?{query}"), &[], "").await
    };
    let query = "hub.mode=subscribe&hub.challenge=1158201444&hub.verify_token=";
    let response = verify(&format!("{query}tok-%C3%A7-123")).await.expect(200);
    assert_eq!(response.text(), "1158201444");
    assert!(response.header("content-type").starts_with("text/plain"));
    for wrong in ["tok-c-123", "", "tok-%C3%A7-1234", "%FF"] {
        verify(&format!("{query}{wrong}")).await.expect(403);
    }
    verify("hub.mode=unsubscribe&hub.challenge=1&hub.verify_token=tok-%C3%A7-123")
        .await
        .expect(403);
    gateway.send(Method::GET, "/in/stripe", &[], "").await.expect(405);
}
