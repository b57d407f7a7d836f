//! Ten thousand messages with time-outs and a kill in between: none is sent twice by our fault.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use http::Method;
use serde_json::json;

use crate::{
    sending::{cloud, go},
    support::{
        client::Client,
        eventually,
        fake_channels::{
            ChannelBehavior, CloudApi, CloudApiStatus, EvolutionGo, FakeChannel, RecordedMessage,
            fake_channel::is_in_share,
        },
        gateway::{Gateway, TOKEN},
    },
};

const MESSAGES: usize = 10_000;
/// So many of a hundred recipients get their first message without an answer.
const SILENT: u64 = 10;
const LONG: Duration = Duration::from_secs(240);
/// The lane is as wide and as fast as it can be, and gives up soon.
const FAST: &str = r#"concurrency = 512
    rate = "100000/s"
    timeout = "3s"
    circuit = "off"
    retry = { max_attempts = 20, initial_delay = "200ms", max_delay = "1s" }"#;

fn phone(number: usize) -> String {
    format!("55119{number:08}")
}

/// Asks for every message until each was answered with 202, whatever happens to the gateway. The key is
/// the same each time, as a careful program would have it.
async fn ask_for_all(url: Arc<Mutex<String>>, asked: Arc<AtomicUsize>) {
    let next = Arc::new(AtomicUsize::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..32 {
        let (next, asked, url) = (Arc::clone(&next), Arc::clone(&asked), Arc::clone(&url));
        tasks.spawn(async move {
            let client = Client::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= MESSAGES {
                    return;
                }
                let body = json!({ "destination": "wa", "to": phone(number), "text": "Olá" });
                let (body, key) = (body.to_string(), format!("message-{number}"));
                let token = format!("Bearer {TOKEN}");
                let headers: [(&str, &[u8]); 3] = [
                    ("authorization", token.as_bytes()),
                    ("content-type", b"application/json"),
                    ("idempotency-key", key.as_bytes()),
                ];
                eventually(LONG, || async {
                    let url = url.lock().unwrap().clone();
                    let sent = client.send(Method::POST, &url, &headers, body.clone()).await;
                    sent.ok().filter(|answer| answer.status == 202).map(drop)
                })
                .await;
                asked.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
}

/// Lets the gateway work, kills it in the middle and starts it again.
async fn through_a_kill(gateway: &mut Gateway, fake_channel: &FakeChannel) {
    let asked = Arc::new(AtomicUsize::new(0));
    let url = Arc::new(Mutex::new(gateway.url("/api/v1/messages")));
    let asking = tokio::spawn(ask_for_all(Arc::clone(&url), Arc::clone(&asked)));
    eventually(LONG, || async { (fake_channel.count() > MESSAGES / 3).then_some(()) }).await;
    gateway.kill9();
    gateway.restart().await;
    *url.lock().unwrap() = gateway.url("/api/v1/messages");
    asking.await.unwrap();
    assert_eq!(asked.load(Ordering::Relaxed), MESSAGES);
}

async fn all_succeed(gateway: &Gateway) {
    eventually(LONG, || async {
        let stats = gateway.stats().await;
        (stats["by_status"]["succeeded"] == json!(MESSAGES)).then_some(())
    })
    .await;
}

fn by_recipient(messages: &[RecordedMessage]) -> BTreeMap<&str, Vec<&RecordedMessage>> {
    let mut found: BTreeMap<&str, Vec<&RecordedMessage>> = BTreeMap::new();
    for message in messages {
        found.entry(&message.to).or_default().push(message);
    }
    found
}

// On Evolution Go no number gets a second message id for one request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heavy_ten_thousand_messages_by_evolution_go_have_one_id_each() {
    let evolution = EvolutionGo::start().await;
    evolution.set_for_share(SILENT, ChannelBehavior::HangAfterBody);
    let mut gateway = Gateway::start_with(&go("wa", &evolution.url(), FAST)).await;

    through_a_kill(&mut gateway, &evolution).await;
    all_succeed(&gateway).await;

    let sent = evolution.sent();
    assert_eq!(sent.len(), MESSAGES);
    let repeated = sent.values().filter(|ids| ids.len() > 1).count();
    assert!(repeated > 0, "the time-outs made some go out again");
    for (to, ids) in &sent {
        assert!(ids.iter().all(|id| *id == ids[0]), "{to} got {ids:?}");
    }
}

// On the Cloud API nothing ambiguous is resent before its status or its deadline.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heavy_ten_thousand_messages_by_the_cloud_api_wait_for_their_statuses() {
    const WITHIN: Duration = Duration::from_secs(15);
    let meta = CloudApi::start().await;
    meta.set_for_share(SILENT, ChannelBehavior::HangAfterBody);
    let secret = CloudApi::APP_SECRET;
    let source = format!(
        "[[sources]]\nname = \"statuses\"\nprovider = \"whatsapp-cloud\"\nsecrets = [\"{secret}\"]\nverify_token = \"t\"\n"
    );
    let sending = format!("{FAST}\nsending = {{ status_within = \"{}s\" }}", WITHIN.as_secs());
    let settings = source + &cloud("wa", &meta.url(), &sending);
    let mut gateway = Gateway::start_with(&settings).await;

    through_a_kill(&mut gateway, &meta).await;
    // Of every second silent one it is told that it was sent; the others say nothing for ever.
    let silent: Vec<_> = {
        let mut seen = std::collections::HashSet::new();
        let first = |message: &RecordedMessage| seen.insert(message.to.clone());
        let messages = meta.messages();
        let firsts: Vec<_> = messages.into_iter().filter(first).collect();
        firsts.into_iter().filter(|message| is_in_share(&message.to, SILENT)).collect()
    };
    let told: Vec<_> = silent.iter().step_by(2).collect();
    let door = gateway.url("/in/statuses");
    for some in told.chunks(50) {
        let news: Vec<_> = some.iter().map(|message| (*message, CloudApiStatus::Sent)).collect();
        meta.send_statuses(&door, &news).await.expect(200);
    }
    let told_at = Instant::now();
    all_succeed(&gateway).await;

    let messages = meta.messages();
    let found = by_recipient(&messages);
    assert_eq!(found.len(), MESSAGES);
    for (to, all) in &found {
        for pair in all.windows(2) {
            let apart = pair[1].at - pair[0].at;
            assert!(apart >= WITHIN, "{to} was sent again after {apart:?}");
            assert_eq!(pair[0].our_id, pair[1].our_id, "{to}");
        }
    }
    for message in told {
        let later = found[&*message.to].iter().filter(|one| one.at > told_at).count();
        assert_eq!(later, 0, "{} was sent again after its status", message.to);
    }
    let again = messages.len() - found.len();
    assert!(again > 0, "those without a status went out again after their deadline");
}
