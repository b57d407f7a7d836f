//! A gateway with sample traffic for the theme tests.

use serde_json::json;

use crate::support::{
    gateway::Gateway,
    sink::{Reply, Sink},
};

/// The gateway and its destinations; they stop when dropped.
pub(super) struct SampleGateway {
    pub(super) gateway: Gateway,
    _sinks: [Sink; 2],
}

/// Two sources and three destinations: one that works, one that refuses, one that is paused.
fn settings(works: &str, refuses: &str) -> String {
    let source = |name: &str| {
        format!(
            r#"
            [[sources]]
            name = "{name}"
            verify = "none"
            keys = ["pointer:/id"]
            kinds = ["pointer:/type"]
            "#
        )
    };
    let destination = |name: &str, url: &str| {
        format!(
            r#"
            [[destinations]]
            name = "{name}"
            url = "{url}/{name}"
            retry = {{ max_attempts = 1, initial_delay = "1s", max_delay = "1s" }}
            "#
        )
    };
    let route = |from: &str, to: &str, more: &str| {
        format!("[[routes]]\nfrom = \"{from}\"\nto = \"{to}\"\n{more}\n")
    };
    [
        source("shop"),
        source("support-desk"),
        destination("crm", works),
        destination("billing", refuses),
        destination("warehouse", works),
        route("shop", "crm", ""),
        route("shop", "billing", "filter = '.type == \"invoice.paid\"'"),
        route("support-desk", "crm", ""),
        route("support-desk", "warehouse", ""),
    ]
    .concat()
}

pub(super) async fn start() -> SampleGateway {
    let works = Sink::ok().await;
    let refused = r#"{"error":{"code":"unknown_customer","message":"There is no customer 4711"}}"#;
    let refuses = Sink::with_script(move |_, _| {
        Reply::status(422).header("content-type", "application/json").body(refused)
    })
    .await;
    let gateway = Gateway::start_with(&settings(&works.origin(), &refuses.origin())).await;
    gateway.post("/destinations/warehouse/pause", &json!({})).await.expect(200);
    let mut refused = Vec::new();
    for number in 0..24 {
        let kind = ["order.created", "invoice.paid", "order.shipped"][number % 3];
        let event = json!({
            "id": format!("evt_{}", 90_210 + number),
            "type": kind,
            "data": {
                "order": { "number": 4_711 + number, "total": "129.90", "currency": "BRL" },
                "customer": { "name": "Ana Souza", "vip": number % 5 == 0 },
            },
        });
        let id = gateway.post_accepted("shop", event.to_string()).await;
        if kind == "invoice.paid" {
            refused.push(id);
        }
        // Some senders send duplicates.
        if number % 6 == 0 {
            gateway.send_webhook("shop", &[], event.to_string()).await.expect(200);
        }
    }
    for number in 0..6 {
        let event = json!({ "id": number, "type": "ticket.opened", "subject": "Where is it?" });
        gateway.post_accepted("support-desk", event.to_string()).await;
    }
    for event in refused {
        let delivery = gateway.find_delivery_to(&event, "billing").await.unwrap();
        gateway.wait_for_delivery_status(&delivery, "dead").await;
    }
    SampleGateway { gateway, _sinks: [works, refuses] }
}
