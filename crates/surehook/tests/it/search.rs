//! Search for events by kind and attributes, over the API and the CLI.

use std::{path::Path, sync::Arc};

use bytes::Bytes;
use serde_json::{Value, json};
use surehook_core::{
    decision::IntakeRecord,
    event::{NewEvent, Payload, RequestHead},
    store::{AdminStore as _, ConfigChange, IngestStore as _},
};
use surehook_store::{SqliteOptions, SqliteStore};
use surehook_types::{
    ids::{EventId, RequestId, SourceId},
    time::Timestamp,
};
use surehook_webhooks::{
    attribute::{
        AttributeName::{self, Chat, MessageId, Phone, ProviderStatus},
        Attributes, EventKind,
    },
    key::fingerprint,
};

use crate::support::{gateway::Gateway, unix_now};

fn event(
    now: Timestamp,
    number: u128,
    source: SourceId,
    kind: &str,
    attributes: Attributes,
) -> NewEvent {
    let body = Bytes::from_static(b"{}");
    let head = Arc::new(RequestHead::default());
    NewEvent {
        id: EventId::new(now, number << 48),
        request_id: RequestId::new(now, number << 48),
        source,
        received_at: now,
        key: None,
        signed_bytes: None,
        earlier_key: None,
        compared_fingerprint: None,
        kind: EventKind::new(kind),
        attributes,
        payload: Payload { head, fingerprint: fingerprint(&body), body },
        deliveries: Vec::new(),
        revive_dead: false,
        refuses_other_body: false,
        from_duplicate: None,
        releases: None,
        status_update: None,
        intake: IntakeRecord::default(),
        bodies: Vec::new(),
    }
}

/// Fills a data folder with a direct message, its status update and a group message; returns their ids.
async fn fill_folder(folder: &Path) -> [String; 3] {
    let now = Timestamp::from_millis(unix_now() * 1000);
    let store = SqliteStore::open(&SqliteOptions::new(folder.join("data")), now).unwrap();
    let source = SourceId::new(now, 1);
    let spec = serde_json::from_value(json!({ "name": "wa", "verify": "none" })).unwrap();
    let version = store.load_configuration_version().await.unwrap();
    store.change(vec![ConfigChange::PutSource(source, spec)], version, now).await.unwrap();
    let with = |pairs: &[(AttributeName, &str)]| {
        let mut attributes = Attributes::default();
        pairs.iter().for_each(|(name, value)| attributes.push(*name, value));
        attributes
    };
    let message = with(&[(MessageId, "wamid.A"), (Phone, "551187654321:7@s.whatsapp.net")]);
    let status =
        with(&[(MessageId, "wamid.A"), (Phone, "5511987654321"), (ProviderStatus, "read")]);
    let group = with(&[(MessageId, "wamid.B"), (Chat, "120363041234567890@g.us")]);
    let events = [("message", message), ("status", status), ("message", group)];
    let numbered = (1..).zip(events);
    let events: Vec<NewEvent> = numbered
        .map(|(number, (kind, attributes))| event(now, number, source, kind, attributes))
        .collect();
    let ids = [events[0].id, events[1].id, events[2].id].map(|id| id.to_string());
    store.admit(events.into()).await.unwrap();
    ids
}

fn ids(rows: &[Value]) -> Vec<&str> {
    rows.iter().map(|row| row["id"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn events_are_filtered_by_kind_and_attributes() {
    let folder = tempfile::tempdir().unwrap();
    let [message, status, group] = fill_folder(folder.path()).await;
    let gateway = Gateway::builder().start_in(folder).await;

    for (query, expected) in [
        ("kind=message", vec![&group, &message]),
        ("phone=%2B55+(11)+98765-4321", vec![&status, &message]),
        ("phone=551187654321", vec![&status, &message]),
        ("chat=5511987654321@s.whatsapp.net", vec![&status, &message]),
        ("phone=120363041234567890@g.us", vec![&group]),
        ("message_id=wamid.A&provider_status=READ", vec![&status]),
        ("message_id=wamid.A&kind=message&source=wa", vec![&message]),
        ("message_id=wamid.C", vec![]),
        ("kind=messages", vec![]),
    ] {
        let rows = gateway.list(&format!("/events?{query}")).await;
        assert_eq!(ids(&rows), expected, "case: {query}");
    }
    let page = gateway.get("/events?phone=551187654321&limit=1").await.expect(200).json();
    let next = page["next_cursor"].as_str().unwrap();
    let rest = format!("/events?phone=551187654321&limit=1&cursor={next}");
    let rest = gateway.get(&rest).await.expect(200).json();
    assert_eq!(rest["data"][0]["id"], message);

    let shown = gateway.event(&status).await;
    assert_eq!(shown["kind"], "status");
    let expected = json!({
        "message_id": ["wamid.A"], "phone": ["5511987654321"], "provider_status": ["read"],
    });
    assert_eq!(shown["attributes"], expected);

    for bad in ["phone=", "kind=", "message_id=%00", "attribute=x", "phone=+"] {
        let problem = gateway.get(&format!("/events?{bad}")).await.expect(422).json();
        assert!(!problem["detail"].as_str().unwrap().is_empty(), "case: {bad}");
    }
}

#[tokio::test]
async fn cli_filters_and_api_exports_by_kind_and_attributes() {
    let folder = tempfile::tempdir().unwrap();
    let [message, status, group] = fill_folder(folder.path()).await;
    let gateway = Gateway::builder().start_in(folder).await;

    for (args, expected) in [
        (vec!["--kind", "message"], vec![&group, &message]),
        (vec!["--phone", "+55 11 8765-4321"], vec![&status, &message]),
        (vec!["--attribute", "message_id=wamid.A", "--kind", "status"], vec![&status]),
        (
            vec!["--attribute", "message_id=wamid.A", "--attribute", "provider_status=read"],
            vec![&status],
        ),
    ] {
        let output = gateway.cli(&[&["events", "list", "--json"][..], &args].concat()).await;
        assert_eq!(output.code, Some(0), "{output:?}");
        let rows: Vec<Value> =
            output.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(ids(&rows), expected, "case: {args:?}");
    }
    let shown = gateway.cli(&["events", "show", &status]).await;
    for text in ["status", "message_id", "wamid.A", "phone", "5511987654321", "read"] {
        assert!(shown.stdout.contains(text), "{text}: {}", shown.stdout);
    }
    let wrong = gateway.cli(&["events", "list", "--attribute", "color=red"]).await;
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
    assert!(wrong.stderr.contains("message_id"), "{}", wrong.stderr);
    let csv = gateway.get("/events?format=csv&kind=status").await.expect(200);
    let csv = String::from_utf8(csv.body.to_vec()).unwrap();
    let mut lines = csv.lines();
    assert!(lines.next().unwrap().contains(",kind,attributes,"), "{csv}");
    assert!(lines.next().unwrap().contains(",status,"), "{csv}");
    assert_eq!(lines.next(), None);
}

#[tokio::test]
async fn provider_attributes_make_events_searchable() {
    let settings = "[[sources]]\nname = \"pay\"\nprovider = \"stripe\"\nverify = \"none\"\n";
    let gateway = Gateway::start_with(settings).await;
    let paid = |id: &str| {
        let object = json!({ "id": format!("pi_{id}"), "object": "payment_intent" });
        let kind = "payment_intent.succeeded";
        json!({ "id": format!("evt_{id}"), "type": kind, "data": { "object": object } })
    };
    let first = gateway.post_accepted("pay", paid("1").to_string()).await;
    let second = gateway.post_accepted("pay", paid("2").to_string()).await;

    for (query, expected) in [
        ("object=pi_1", vec![&first]),
        ("kind=payment_intent.succeeded", vec![&second, &first]),
        ("object=pi_2&kind=payment_intent.succeeded", vec![&second]),
        ("object=pi_2&kind=payment_intent.created", vec![]),
    ] {
        let list = gateway.get(&format!("/events?{query}")).await.expect(200).json();
        assert_eq!(ids(list["data"].as_array().unwrap()), expected, "case: {query}");
    }
}
