//! Every sample of `testdata/payloads` through a running gateway: what its provider is answered, and
//! which events, kinds and keys come of it. The clock stands at the time when the samples were signed,
//! and then a day later.

use std::{collections::BTreeMap, fs, path::PathBuf};

use bytes::Bytes;
use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use surehook_core::provider::{self, RefusalPolicy};

use super::support::{client::HttpResponse, fake_clock::FakeClockGateway};

const DAY: i64 = 86_400;

#[derive(Deserialize)]
struct Item {
    file: String,
    provider: String,
    now: i64,
    headers: BTreeMap<String, String>,
    events: Vec<Expected>,
    secret: BTreeMap<String, String>,
    query: Option<String>,
    url: Option<String>,
    expect_response: Option<Value>,
}

#[derive(Deserialize)]
struct Expected {
    kind: String,
    dedup_key: Option<String>,
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/payloads")
}

fn items() -> Vec<Item> {
    let index = fs::read_to_string(folder().join("INDEX.json")).unwrap();
    let mut index: Value = serde_json::from_str(&index).unwrap();
    serde_json::from_value(index["items"].take()).unwrap()
}

impl Item {
    /// The preset for the name in the index.
    fn preset(&self) -> &str {
        match self.provider.as_str() {
            "whatsapp" => "whatsapp-cloud",
            "evolution_api" => "evolution-api",
            "evolution_go" => "evolution-go",
            "generic_hmac" => "n8n",
            "mercadopago" => "mercado-pago",
            "standardwebhooks" => "standard-webhooks",
            other => other,
        }
    }

    /// The name of its source: the one in its address, if a signature covers that.
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

    /// How a wrong signature is answered: some would never send again what is answered with 401.
    fn refused(&self) -> u16 {
        match provider::find(self.preset()).unwrap().on_refusal() {
            RefusalPolicy::Unauthorized | RefusalPolicy::Keep => 401,
            RefusalPolicy::Quarantine => 503,
        }
    }

    fn when(&self) -> i64 {
        // The published vector was signed years before the others.
        if self.provider == "standardwebhooks" { 1_614_265_330 } else { self.now }
    }

    fn body(&self) -> Bytes {
        fs::read(folder().join(&self.file)).unwrap().into()
    }

    async fn sent_to(&self, gateway: &FakeClockGateway) -> HttpResponse {
        let pairs = self.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        let headers: Vec<(&str, &[u8])> = pairs.collect();
        gateway.send(Method::POST, &self.target(), &headers, self.body()).await
    }

    /// What the index expects of the events, in the form in which they are told here.
    fn expected(&self) -> Vec<(String, Option<String>)> {
        let told = |event: &Expected| {
            let key = event.dedup_key.as_deref().map(|key| match key {
                "hash:body within 180 s" => {
                    let hash = surehook_core::key::content_hash_key(&self.body());
                    hash.as_str().to_owned()
                }
                key => key.strip_prefix("generic:").unwrap_or(key).to_owned(),
            });
            (event.kind.clone(), key)
        };
        self.events.iter().map(told).collect()
    }
}

/// A gateway with a source for each preset, and the secrets of all its samples.
async fn gateway(items: &[Item]) -> FakeClockGateway {
    let gateway = FakeClockGateway::start(items[0].now).await;
    let mut sources: BTreeMap<String, Value> = BTreeMap::new();
    for item in items {
        let source = sources.entry(item.source()).or_insert_with(|| {
            let mut source =
                json!({ "name": item.source(), "provider": item.preset(), "secrets": [] });
            if let Some(url) = &item.url {
                source["public_url"] = json!(url.split("/in/").next().unwrap());
            }
            source
        });
        for (name, secret) in &item.secret {
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

/// An event as its id, kind and key.
type Told = (String, (String, Option<String>));

/// The events of one source, oldest first. The clock stands still, so only those of one request are in
/// their order.
async fn events(gateway: &FakeClockGateway, source: &str) -> Vec<Told> {
    let path = format!("/events?source={source}&limit=100");
    let list = gateway.api(Method::GET, &path, None).await.expect(200).json();
    let told = |event: &Value| {
        let text = |name: &str| event[name].as_str().map(ToOwned::to_owned);
        (text("id").unwrap(), (text("kind").unwrap_or_default(), text("key")))
    };
    list["data"].as_array().unwrap().iter().rev().map(told).collect()
}

fn is_handshake(item: &Item) -> bool {
    item.events.first().is_some_and(|event| event.kind == "challenge")
}

#[tokio::test]
async fn every_sample_becomes_the_events_that_it_should() {
    let items = items();
    let gateway = gateway(&items).await;
    for item in &items {
        // The GET that Meta sends has a test of its own; PayPal's sample has no real signature.
        if item.file == "whatsapp.verify.get.json" || item.provider == "paypal" {
            continue;
        }
        let name = item.file.as_str();
        gateway.set_clock(item.when());
        let before = events(&gateway, &item.source()).await;
        let answer = item.sent_to(&gateway).await;
        let after = events(&gateway, &item.source()).await;
        let new: Vec<_> = after.into_iter().filter(|event| !before.contains(event)).collect();
        let new: Vec<_> = new.into_iter().map(|(_, told)| told).collect();
        if name.starts_with("negative") {
            assert_eq!((answer.status.as_u16(), new.len()), (401, 0), "{name}: {}", answer.text());
        } else if is_handshake(item) {
            let wanted = item.expect_response.as_ref().unwrap();
            assert_eq!(
                json!(answer.status.as_u16()),
                wanted["status"],
                "{name}: {}",
                answer.text()
            );
            assert_eq!(answer.text(), wanted["body"].as_str().unwrap(), "{name}");
            let kind = wanted["content_type"].as_str().unwrap_or_default();
            assert!(answer.header("content-type").starts_with(kind), "{name}");
            assert_eq!(new, [], "{name}");
        } else if name.contains("duplicate_redelivery") || name.contains("nested_key") {
            // Both repeat the event of an earlier sample.
            assert_eq!(answer.expect(200).json()["status"], "duplicate", "{name}");
            assert_eq!(new, [], "{name}");
        } else {
            assert_eq!(answer.status.as_u16(), 200, "{name}: {}", answer.text());
            assert_eq!(new, item.expected(), "{name}");
        }
    }
}

#[tokio::test]
async fn a_day_later_the_timestamped_are_stale_and_the_others_duplicates() {
    let items = items();
    let gateway = gateway(&items).await;
    let stale = [
        "chatwoot",
        "evolution_api",
        "gitlab",
        "hubspot",
        "slack",
        "standardwebhooks",
        "stripe",
        "zoom",
    ];
    for item in &items {
        let skipped = ["whatsapp.verify.get.json", "discord.webhook_event.ping.json"];
        if item.file.starts_with("negative")
            || skipped.contains(&item.file.as_str())
            || item.provider == "paypal"
        {
            continue;
        }
        gateway.set_clock(item.when());
        let first = item.sent_to(&gateway).await;
        gateway.set_clock(item.when() + DAY);
        let answer = item.sent_to(&gateway).await;
        let name = item.file.as_str();
        if stale.contains(&item.provider.as_str()) {
            assert_eq!(answer.status.as_u16(), item.refused(), "{name}: {}", answer.text());
        } else {
            assert_eq!(answer.status, first.status, "{name}: {}", answer.text());
        }
    }
}

#[tokio::test]
async fn what_a_stranger_signs_is_refused_and_nothing_is_kept() {
    let items = items();
    let gateway = gateway(&items).await;
    for item in items.iter().filter(|item| !item.file.contains("verify.get")) {
        let name = item.file.as_str();
        gateway.set_clock(item.when());
        let answer = gateway.send(Method::POST, &item.target(), &[], item.body()).await;
        // Its secret is in the body.
        if item.provider == "evolution_go" {
            continue;
        }
        assert_eq!(answer.status.as_u16(), item.refused(), "{name}: {}", answer.text());
        assert_eq!(events(&gateway, &item.source()).await, [], "{name}");
    }
}

#[tokio::test]
async fn meta_is_greeted_if_it_knows_the_token() {
    let items = items();
    let gateway = gateway(&items).await;
    let ask = async |query: &str| {
        gateway.send(Method::GET, &format!("/in/whatsapp-cloud?{query}"), &[], "").await
    };
    let asked = "hub.mode=subscribe&hub.challenge=1158201444&hub.verify_token=";
    let answer = ask(&format!("{asked}tok-%C3%A7-123")).await.expect(200);
    assert_eq!(answer.text(), "1158201444");
    assert!(answer.header("content-type").starts_with("text/plain"));
    for wrong in ["tok-c-123", "", "tok-%C3%A7-1234", "%FF"] {
        ask(&format!("{asked}{wrong}")).await.expect(403);
    }
    ask("hub.mode=unsubscribe&hub.challenge=1&hub.verify_token=tok-%C3%A7-123").await.expect(403);
    gateway.send(Method::GET, "/in/stripe", &[], "").await.expect(405);
}
