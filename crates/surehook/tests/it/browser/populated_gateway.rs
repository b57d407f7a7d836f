//! A gateway with data for every page of the dashboard.

use http::Method;
use serde_json::{Value, json};

use crate::{
    channels::evolution_go_settings,
    support::{
        WAIT_LIMIT, eventually,
        fake_channels::EvolutionGo,
        gateway::Gateway,
        sink::{Reply, Sink},
    },
};

/// The path of the Evolution source, which ends with its secret.
pub(super) const EVOLUTION_PATH: &str = "/in/phone/9f3c1a7e5b2d4f60";
/// The customer of the test messages.
pub(super) const PHONE: &str = "5511987654321";

/// Sources, destinations and routes; `works` accepts everything, `refuses` nothing.
pub(super) fn settings(works: &Sink, refuses: &Sink, evolution: &EvolutionGo) -> String {
    let (works, refuses) = (works.url(), refuses.url());
    format!(
        r#"
        [[sources]]
        name = "shop"
        verify = "none"
        keys = ["pointer:/id"]
        kinds = ["pointer:/type"]

        [[sources]]
        name = "phone"
        provider = "evolution-api"
        secrets = ["9f3c1a7e5b2d4f60"]

        [[sources]]
        name = "bank"
        provider = "stripe"
        secrets = ["the wrong secret of sixteen bytes"]
        on_refusal = "quarantine"

        [[destinations]]
        name = "crm"
        url = "{works}"

        [[destinations]]
        name = "billing"
        url = "{refuses}"
        rate = "100/s"
        retry = {{ max_attempts = 1 }}
        {}
        [[routes]]
        from = "shop"
        to = "crm"
        transform = "{{ id, total }}"

        [[routes]]
        from = "shop"
        to = "billing"
        filter = '.type == "invoice.paid"'

        [[routes]]
        from = "phone"
        to = "crm"
        "#,
        evolution_go_settings("wa", &evolution.url(), "sending = { warn_at = 1 }")
    )
}

/// Starts a destination that rejects everything with a reason.
async fn start_refusing_destination() -> Sink {
    let rejection =
        r#"{"error":{"code":"unknown_customer","message":"There is no customer 4711"}}"#;
    Sink::with_script(move |_, _| {
        Reply::status(422).header("content-type", "application/json").body(rejection)
    })
    .await
}

/// An incoming message as an Evolution API webhook.
pub(super) fn message_webhook(phone: &str, id: &str, name: &str, text: &str) -> Value {
    json!({
        "event": "messages.upsert",
        "instance": "vendas-sp",
        "data": {
            "key": { "remoteJid": format!("{phone}@s.whatsapp.net"), "fromMe": false, "id": id },
            "pushName": name,
            "message": { "conversation": text },
            "messageType": "conversation",
            "messageTimestamp": 1_779_023_995,
        },
        "sender": "551140028922@s.whatsapp.net",
    })
}

/// Sends an incoming message and returns the event id.
pub(super) async fn send_message_webhook(gateway: &Gateway, message: &Value) -> String {
    let answer = gateway.request(Method::POST, EVOLUTION_PATH, &[], message.to_string()).await;
    answer.expect(200).event_id()
}

pub(super) struct PopulatedGateway {
    pub(super) gateway: Gateway,
    /// The paths of all pages.
    pub(super) pages: Vec<String>,
    _servers: (Sink, Sink, EvolutionGo),
}

/// The gateway without data, and its destinations: one that works, one that refuses, and a channel.
pub(super) async fn start_empty() -> (Gateway, Sink, Sink, EvolutionGo) {
    let (works, refuses, evolution) =
        (Sink::ok().await, start_refusing_destination().await, EvolutionGo::start().await);
    let gateway = Gateway::start_with(&settings(&works, &refuses, &evolution)).await;
    (gateway, works, refuses, evolution)
}

pub(super) async fn start() -> PopulatedGateway {
    let (gateway, works, refuses, evolution) = start_empty().await;
    let invoice = |number: u64, total: u64| {
        json!({ "id": format!("inv-{number}"), "type": "invoice.paid", "total": total }).to_string()
    };
    let mut last = String::new();
    for number in 0..3 {
        last = gateway.post_accepted("shop", invoice(number, 10)).await;
    }
    // A duplicate with a different body.
    gateway.send_webhook("shop", &[], invoice(2, 11)).await.expect(200);
    let delivery = gateway.find_delivery_to(&last, "billing").await.unwrap();
    gateway.wait_for_delivery_status(&delivery, "dead").await;
    let conversation = send_message_webhook(
        &gateway,
        &message_webhook(PHONE, "3A5B", "João", "Olá, tem entrega hoje?"),
    )
    .await;
    let message = json!({ "destination": "wa", "to": PHONE, "text": "Tem, sim!" });
    let message = text(&gateway.post("/messages", &message).await.expect(202).json(), "id");
    gateway.send_webhook("bank", &[("stripe-signature", "t=1,v1=00")], "{}").await;
    gateway.send_webhook("unknown", &[], "{}").await.expect(404);
    let request = json!({ "verb": "retry_failed", "filter": { "key": "inv-0" }, "note": "a try" });
    let job = text(&gateway.post("/replays", &request).await.json(), "id");
    gateway.post("/destinations/crm/pause", &json!({ "reason": "at night" })).await.expect(200);
    let refused = wait_for_first_id(&gateway, "/requests?outcome=refused").await;
    let route = wait_for_first_id(&gateway, "/routes").await;
    eventually(WAIT_LIMIT, || async {
        (gateway.event(&last).await["duplicate_count"] == 1).then_some(())
    })
    .await;

    let mut pages: Vec<String> = PAGES.iter().map(|&path| path.to_owned()).collect();
    pages.extend([
        format!("/events/{last}"),
        format!("/events/{last}/duplicates/1"),
        format!("/events/{last}/deliveries/{delivery}/curl"),
        format!("/events/{conversation}"),
        format!("/conversations?event={conversation}"),
        format!("/messages/{message}"),
        format!("/replays/{job}"),
        format!("/requests/{refused}"),
        format!("/routes/{route}/edit"),
    ]);
    PopulatedGateway { gateway, pages, _servers: (works, refuses, evolution) }
}

/// Pages without an id in their path.
pub(super) const PAGES: [&str; 32] = [
    "/",
    "/live",
    "/events",
    "/events?q=status:dead",
    "/events?q=never:heard",
    "/requests",
    "/dead-letters",
    "/dead-letters/all",
    "/replays",
    "/alerts",
    "/idempotency",
    "/replays/new?q=dest:billing",
    "/messages",
    "/conversations",
    "/sources",
    "/sources/new",
    "/sources/new?choice=generic",
    "/sources/shop",
    "/sources/shop/edit",
    "/sources/bank",
    "/destinations",
    "/destinations/new",
    "/destinations/billing",
    "/destinations/billing/edit",
    "/destinations/billing/what-if",
    "/destinations/billing/what-if?span=7d&retry=standard",
    "/destinations/billing/what-if/preview?span=7d&retry=standard",
    "/destinations/wa",
    "/routes",
    "/routes/new",
    "/routes/try",
    "/settings",
];

fn text(answer: &Value, name: &str) -> String {
    let found = answer[name].as_str();
    found.unwrap_or_else(|| panic!("no {name} in {answer}")).to_owned()
}

/// Waits until a list of the API has an item and returns the id of the first one.
async fn wait_for_first_id(gateway: &Gateway, path: &str) -> String {
    eventually(WAIT_LIMIT, || async {
        let list = gateway.get(path).await.expect(200).json();
        let first = list["data"].get(0)?;
        Some(first["id"].as_str().unwrap_or_default().to_owned())
    })
    .await
}
