//! Ten thousand messages with timeouts and a kill: Evolution Go gets one id per message, and the Cloud API no
//! message again before its status or its deadline.

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
    channels::{cloud_api_settings, evolution_go_settings},
    support::{
        client::Client,
        eventually,
        fake_channels::{
            ChannelBehavior, CloudApi, CloudApiStatus, EvolutionGo, FakeChannel, RecordedMessage,
            fake_channel::is_chosen_recipient,
        },
        gateway::{Gateway, TOKEN},
    },
};

const MESSAGES: usize = 10_000;
/// Percentage of recipients whose first message gets no response.
const SILENT_PERCENT: u64 = 10;
const WAIT_LIMIT: Duration = Duration::from_secs(240);
/// High concurrency and rate, short timeout.
const FAST_SETTINGS: &str = r#"concurrency = 512
    rate = "100000/s"
    timeout = "3s"
    circuit = "off"
    retry = { max_attempts = 20, initial_delay = "200ms", max_delay = "1s" }"#;

fn phone(number: usize) -> String {
    format!("55119{number:08}")
}

/// Requests every message until it is answered with 202, also across a kill of the gateway. Repeated
/// requests use the same idempotency key.
async fn request_all(url: Arc<Mutex<String>>, requested: Arc<AtomicUsize>) {
    let next = Arc::new(AtomicUsize::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..32 {
        let (next, requested, url) = (Arc::clone(&next), Arc::clone(&requested), Arc::clone(&url));
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
                eventually(WAIT_LIMIT, || async {
                    let url = url.lock().unwrap().clone();
                    let response = client.send(Method::POST, &url, &headers, body.clone()).await;
                    response.ok().filter(|response| response.status == 202).map(drop)
                })
                .await;
                requested.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    while let Some(result) = tasks.join_next().await {
        result.unwrap();
    }
}

/// Sends all messages and kills and restarts the gateway on the way.
async fn send_all_through_kill(gateway: &mut Gateway, fake_channel: &FakeChannel) {
    let requested = Arc::new(AtomicUsize::new(0));
    let url = Arc::new(Mutex::new(gateway.url("/api/v1/messages")));
    let requests = tokio::spawn(request_all(Arc::clone(&url), Arc::clone(&requested)));
    eventually(WAIT_LIMIT, || async { (fake_channel.count() > MESSAGES / 3).then_some(()) }).await;
    gateway.kill9();
    gateway.restart().await;
    *url.lock().unwrap() = gateway.url("/api/v1/messages");
    requests.await.unwrap();
    assert_eq!(requested.load(Ordering::Relaxed), MESSAGES);
}

async fn wait_until_all_succeed(gateway: &Gateway) {
    gateway
        .wait_for_stats(WAIT_LIMIT, |stats| stats["by_status"]["succeeded"] == json!(MESSAGES))
        .await;
}

fn by_recipient(messages: &[RecordedMessage]) -> BTreeMap<&str, Vec<&RecordedMessage>> {
    let mut messages_by_recipient: BTreeMap<&str, Vec<&RecordedMessage>> = BTreeMap::new();
    for message in messages {
        messages_by_recipient.entry(&message.to).or_default().push(message);
    }
    messages_by_recipient
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heavy_evolution_go_messages_keep_one_id_across_timeouts_and_kill() {
    let evolution = EvolutionGo::start().await;
    evolution.set_for_percent_of_recipients(SILENT_PERCENT, ChannelBehavior::HangAfterBody);
    let mut gateway =
        Gateway::start_with(&evolution_go_settings("wa", &evolution.url(), FAST_SETTINGS)).await;

    send_all_through_kill(&mut gateway, &evolution).await;
    wait_until_all_succeed(&gateway).await;

    let sent = evolution.sent();
    assert_eq!(sent.len(), MESSAGES);
    let repeated = sent.values().filter(|ids| ids.len() > 1).count();
    assert!(repeated > 0, "timeouts caused some resends");
    for (to, ids) in &sent {
        assert!(ids.iter().all(|id| *id == ids[0]), "{to} got {ids:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heavy_cloud_api_messages_are_not_resent_before_status_or_deadline() {
    const STATUS_DEADLINE: Duration = Duration::from_secs(15);
    let meta = CloudApi::start().await;
    meta.set_for_percent_of_recipients(SILENT_PERCENT, ChannelBehavior::HangAfterBody);
    let secret = CloudApi::APP_SECRET;
    let source = format!(
        "[[sources]]\nname = \"statuses\"\nprovider = \"whatsapp-cloud\"\nsecrets = [\"{secret}\"]\nverify_token = \"t\"\n"
    );
    let sending = format!(
        "{FAST_SETTINGS}\nsending = {{ status_within = \"{}s\" }}",
        STATUS_DEADLINE.as_secs()
    );
    let settings = source + &cloud_api_settings("wa", &meta.url(), &sending);
    let mut gateway = Gateway::start_with(&settings).await;

    send_all_through_kill(&mut gateway, &meta).await;
    // Every second silent message gets a `sent` status update; the others never get one.
    let silent: Vec<_> = {
        let mut seen = std::collections::HashSet::new();
        let first = |message: &RecordedMessage| seen.insert(message.to.clone());
        let messages = meta.messages();
        let firsts: Vec<_> = messages.into_iter().filter(first).collect();
        firsts
            .into_iter()
            .filter(|message| is_chosen_recipient(&message.to, SILENT_PERCENT))
            .collect()
    };
    let confirmed: Vec<_> = silent.iter().step_by(2).collect();
    let status_url = gateway.url("/in/statuses");
    for chunk in confirmed.chunks(50) {
        let updates: Vec<_> =
            chunk.iter().map(|message| (*message, CloudApiStatus::Sent)).collect();
        meta.send_statuses(&status_url, &updates).await.expect(200);
    }
    let confirmed_at = Instant::now();
    wait_until_all_succeed(&gateway).await;

    let messages = meta.messages();
    let messages_by_recipient = by_recipient(&messages);
    assert_eq!(messages_by_recipient.len(), MESSAGES);
    for (to, sent) in &messages_by_recipient {
        for pair in sent.windows(2) {
            let gap = pair[1].at - pair[0].at;
            assert!(gap >= STATUS_DEADLINE, "{to} was resent after {gap:?}");
            assert_eq!(pair[0].our_id, pair[1].our_id, "{to}");
        }
    }
    for message in confirmed {
        let later = messages_by_recipient[&*message.to]
            .iter()
            .filter(|message| message.at > confirmed_at)
            .count();
        assert_eq!(later, 0, "{} was resent after its status update", message.to);
    }
    let resent = messages.len() - messages_by_recipient.len();
    assert!(resent > 0, "messages without a status update are resent after their deadline");
}
