//! A gateway with an hour of traffic for the screenshots; its clock is moved through that hour.

use std::time::Duration;

use data_encoding::HEXLOWER;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::Method;
use serde_json::{Value, json};
use sha2::Sha256;

use crate::support::{
    eventually,
    fake_clock::FakeClockGateway,
    sink::{Reply, Sink},
    unix_now,
};

const SECRET: &str = "an app secret of Meta";
const MINUTES: i64 = 60;

/// The gateway and its destinations; they stop when dropped.
pub(super) struct ScreenshotData {
    pub(super) gateway: FakeClockGateway,
    /// An event with a dead delivery.
    pub(super) dead: String,
    /// An event with a duplicate that has a different body.
    pub(super) duplicated: String,
    _sinks: Vec<Sink>,
}

pub(super) async fn start() -> ScreenshotData {
    let sinks = sinks().await;
    let now = unix_now();
    let gateway = FakeClockGateway::start(now - MINUTES * 60).await;
    configure(&gateway, &sinks).await;
    let (mut dead, mut duplicated) = (String::new(), String::new());
    for minute in 0..MINUTES {
        gateway.run_clock_from(now - (MINUTES - minute) * 60);
        // Busier in the middle of the hour.
        let count = 3 + (minute - 12).clamp(0, 10) * (48 - minute).clamp(0, 10) / 10;
        for number in 0..count {
            let event = order(minute * 100 + number);
            let id = receive(&gateway, "shop", &[], &event).await;
            if event["type"] == "invoice.paid" {
                dead.clone_from(&id);
            }
            if number == 1 && minute % 7 == 0 {
                let mut again = event.clone();
                again["data"]["order"]["total"] = json!("139.90");
                again["data"]["note"] = json!("corrected");
                gateway.send(Method::POST, "/in/shop", &[], again.to_string()).await.expect(200);
                duplicated = id;
            }
        }
        if minute % 4 == 0 {
            receive_message(&gateway, minute).await;
        }
        wait_until_settled(&gateway).await;
    }
    gateway.run_clock_from(now);
    gateway
        .api(
            Method::POST,
            "/destinations/warehouse/pause",
            Some(&json!({ "reason": "stock-taking" })),
        )
        .await
        .expect(200);
    for number in 0..4 {
        receive(&gateway, "shop", &[], &order(9_000 + number)).await;
    }
    ScreenshotData { gateway, dead, duplicated, _sinks: sinks }
}

async fn sinks() -> Vec<Sink> {
    // As fast as real services: most responses at once, a few later.
    let accepting = |millis: u64| {
        Sink::with_script(move |at, _| {
            let slow = if at % 9 == 0 { 7 } else { 1 };
            Reply::status(200).after(Duration::from_millis(millis * slow))
        })
    };
    let billing = Sink::with_script(|at, _| match at % 3 {
        0 => Reply::status(503).body("upstream connect error or disconnect/reset before headers"),
        _ => Reply::status(422).header("content-type", "application/json").body(format!(
            r#"{{"error":{{"code":"unknown_customer","message":"There is no customer {}"}}}}"#,
            4711 + at
        )),
    });
    vec![accepting(6).await, accepting(11).await, billing.await]
}

async fn configure(gateway: &FakeClockGateway, sinks: &[Sink]) {
    let destination = |name: &str, sink: &Sink| {
        let retry = json!({ "max_attempts": 1, "initial_delay": "1s" });
        json!({ "name": name, "url": format!("{}/{name}", sink.origin()), "retry": retry })
    };
    let route =
        |from: &str, to: &str, filter: Value| json!({ "from": from, "to": to, "filter": filter });
    let configuration = json!({
        "sources": [
            { "name": "shop", "verify": "none", "keys": ["pointer:/id"], "kinds": ["pointer:/type"] },
            { "name": "whatsapp", "provider": "whatsapp-cloud", "secrets": [SECRET], "verify_token": "v" },
        ],
        "destinations": [
            destination("crm", &sinks[0]),
            destination("warehouse", &sinks[1]),
            destination("billing", &sinks[2]),
        ],
        "routes": [
            route("shop", "crm", Value::Null),
            route("shop", "warehouse", json!(".type == \"order.shipped\"")),
            route("shop", "billing", json!(".type == \"invoice.paid\"")),
            route("whatsapp", "crm", Value::Null),
        ],
    });
    gateway.api(Method::PUT, "/configuration", Some(&configuration)).await.expect(200);
}

fn order(number: i64) -> Value {
    let kinds =
        ["order.created", "order.shipped", "order.created", "invoice.paid", "order.created"];
    let at = usize::try_from(number).unwrap_or_default() % kinds.len();
    json!({
        "id": format!("evt_{}", 90_210 + number),
        "type": kinds[at],
        "data": {
            "order": { "number": 4_711 + number, "total": "129.90", "currency": "BRL" },
            "customer": { "name": "Ana Souza", "vip": number % 5 == 0 },
        },
    })
}

async fn receive(
    gateway: &FakeClockGateway,
    source: &str,
    headers: &[(&str, &[u8])],
    event: &Value,
) -> String {
    let path = format!("/in/{source}");
    let answer = gateway.send(Method::POST, &path, headers, event.to_string()).await.expect(200);
    answer.event_id()
}

/// Receives a WhatsApp message.
async fn receive_message(gateway: &FakeClockGateway, minute: i64) {
    let texts = [
        "Oi! Meu pedido já saiu?",
        "Obrigada!",
        "Pode trocar o endereço?",
        "Chegou, tudo certo 🙂",
    ];
    let at = usize::try_from(minute / 4).unwrap_or_default();
    let phones = ["5511987654321", "5521998877665", "5531991234567"];
    let event = json!({ "object": "whatsapp_business_account", "entry": [{ "id": "1", "changes": [{
        "field": "messages", "value": {
            "messaging_product": "whatsapp",
            "metadata": { "display_phone_number": "551130000000", "phone_number_id": "77" },
            "messages": [{
                "from": phones[at % phones.len()], "id": format!("wamid.{minute}"), "timestamp": "1763240000",
                "type": "text", "text": { "body": texts[at % texts.len()] },
            }],
        },
    }] }] });
    let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).unwrap();
    mac.update(event.to_string().as_bytes());
    let header = format!("sha256={}", HEXLOWER.encode(&mac.finalize().into_bytes()));
    gateway
        .send(
            Method::POST,
            "/in/whatsapp",
            &[("x-hub-signature-256", header.as_bytes())],
            event.to_string(),
        )
        .await
        .expect(200);
}

/// Waits until no delivery is pending or in flight.
async fn wait_until_settled(gateway: &FakeClockGateway) {
    eventually(Duration::from_secs(30), || async {
        let stats = gateway.api(Method::GET, "/stats", None).await.expect(200).json();
        let is_settled = ["pending", "in_flight"].iter().all(|word| stats["by_status"][word] == 0);
        is_settled.then_some(())
    })
    .await;
}
