//! A stored body that does not match its SHA-256 is never returned.

use rusqlite::Connection;
use serde_json::json;

use crate::support::{
    WAIT_LIMIT, eventually,
    gateway::{Gateway, Route},
    sink::Sink,
};

/// Flips one bit of every stored body in `table`.
fn flip_bit(gateway: &Gateway, table: &str) {
    let database = Connection::open(gateway.folder().join("data/surehook.db")).unwrap();
    let bodies: Vec<Vec<u8>> = database
        .prepare(&format!("SELECT body FROM {table}"))
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    assert!(!bodies.is_empty());
    for body in bodies {
        let mut damaged = body.clone();
        damaged[2] ^= 1;
        let sql = format!("UPDATE {table} SET body = ?2 WHERE body = ?1");
        database.execute(&sql, (body, damaged)).unwrap();
    }
}

#[tokio::test]
async fn damaged_body_is_not_returned() {
    let sink = Sink::ok().await;
    let destination = format!("url = \"{}\"", sink.url());
    let settings = Route {
        route: "transform = '{words: .text}'",
        destination: &destination,
        ..Route::default()
    };
    for (table, paths) in [
        ("payloads", &["events/{event}/body", "events/{event}/body?exact=true"][..]),
        ("delivery_bodies", &["deliveries/{delivery}/body?exact=true"][..]),
    ] {
        let mut gateway = Gateway::start_with(&settings.settings()).await;
        let event = gateway.post_accepted("in", r#"{"id":"a","text":"hidden words"}"#).await;
        let delivery = gateway.wait_for_delivery(&event, "succeeded").await;
        let delivery = delivery["id"].as_str().unwrap();
        gateway.terminate().await;
        flip_bit(&gateway, table);
        gateway.restart().await;

        for path in paths {
            let path = path.replace("{event}", &event).replace("{delivery}", delivery);
            let response = gateway.get(&format!("/{path}")).await.expect(500);
            assert_eq!(response.code(), "body_damaged", "{path}");
            assert!(response.detail().contains(&event), "{path}: {}", response.detail());
        }
        if table == "payloads" {
            let reveal = gateway.post(&format!("/events/{event}/reveal"), &json!({})).await;
            assert_eq!(reveal.expect(500).code(), "body_damaged");
        }
        let log = eventually(WAIT_LIMIT, || async {
            let log = gateway.log();
            (log.contains("the stored body is damaged") && log.contains(&event)).then_some(log)
        })
        .await;
        assert!(!log.contains("hidden words"), "{log}");
    }
}

#[tokio::test]
async fn damaged_body_of_a_duplicate_is_neither_compared_nor_delivered() {
    let sink = Sink::ok().await;
    let destination = format!("url = \"{}\"", sink.url());
    let settings = Route {
        source: "verify = \"none\"\nkeys = [\"pointer:/id\"]",
        destination: &destination,
        ..Route::default()
    };
    let mut gateway = Gateway::start_with(&settings.settings()).await;
    let event = gateway.post_accepted("in", r#"{"id":"a","text":"first"}"#).await;
    let again = gateway.send_webhook("in", &[], r#"{"id":"a","text":"second"}"#).await.expect(200);
    assert_eq!(again.json()["status"], "duplicate", "{}", again.text());
    gateway.wait_for_delivery(&event, "succeeded").await;
    gateway.terminate().await;
    flip_bit(&gateway, "duplicates");
    gateway.restart().await;

    let path = format!("/events/{event}/duplicates/1");
    assert_eq!(gateway.get(&path).await.expect(500).code(), "body_damaged");
    let delivered = gateway.post(&format!("{path}/deliver"), &json!({})).await;
    assert_eq!(delivered.expect(500).code(), "body_damaged");
    let shown = gateway.get(&format!("/events/{event}")).await.expect(200).json();
    assert_eq!(shown["duplicates"][0]["body_omitted"], true, "{shown}");
    assert_eq!(sink.count(), 1);
}
