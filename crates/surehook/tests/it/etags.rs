//! `ETag`, `If-None-Match` and `If-Match`: no repeated bodies and no lost updates.

use http::Method;
use serde_json::json;

use crate::support::{
    gateway::{Gateway, keyed_route_settings, route_settings},
    sink::{Reply, Sink},
};

#[tokio::test]
async fn matching_etag_is_answered_304() {
    let sink = Sink::with_replies([Reply::status(200)]).await;
    let gateway = Gateway::start_with(&keyed_route_settings(&sink.url())).await;
    let event = gateway.post_accepted("in", r#"{"id":"a"}"#).await;
    let delivery = gateway.wait_for_delivery(&event, "succeeded").await;
    let delivery = delivery["id"].as_str().unwrap();
    let routes = gateway.get("/routes").await.expect(200).json();
    let route = routes["data"][0]["id"].as_str().unwrap();
    for path in [
        "/sources/in".to_owned(),
        format!("/routes/{route}"),
        "/configuration".to_owned(),
        format!("/events/{event}"),
        format!("/deliveries/{delivery}"),
    ] {
        let first = gateway.get(&path).await.expect(200);
        let tag = first.header("etag");
        assert!(tag.starts_with('"') && tag.ends_with('"') && tag.len() == 34, "case: {path}");
        let weak = format!("W/{tag}, \"x\"");
        for known in [tag, &weak, "*"] {
            let headers = [("if-none-match", known)];
            let same = gateway.request_as_admin(Method::GET, &path, &headers, "").await.expect(304);
            assert_eq!((same.body.len(), same.header("etag")), (0, tag), "case: {path} {known}");
        }
        let headers = [("if-none-match", "\"other\"")];
        let other = gateway.request_as_admin(Method::GET, &path, &headers, "").await.expect(200);
        assert_eq!(other.body, first.body, "case: {path}");
    }
    // A duplicate changes the event, and so its tag.
    let path = format!("/events/{event}");
    let tag = gateway.get(&path).await.header("etag").to_owned();
    gateway.send_webhook("in", &[], r#"{"id":"a","other":true}"#).await.expect(200);
    gateway.request_as_admin(Method::GET, &path, &[("if-none-match", &tag)], "").await.expect(200);
}

/// The masked representation stays the same, but the version must change with the secret.
#[tokio::test]
async fn changed_masked_secret_changes_configuration_etag() {
    let gateway = Gateway::start().await;
    let spec = |key: &str| {
        let headers = json!({ "x-key": key });
        json!({ "name": "crm", "url": "builtin:inbox", "headers": headers })
    };
    gateway.post("/destinations", &spec("first")).await.expect(201);
    let seen = gateway.get("/configuration").await.expect(200);
    gateway.put("/destinations/crm", &spec("second")).await.expect(200);

    let if_match = [("if-match", seen.header("etag"))];
    let configuration = json!({ "destinations": [spec("first")] }).to_string();
    let rejected = gateway
        .request_as_admin(Method::PUT, "/configuration", &if_match, &configuration)
        .await
        .expect(412);

    assert_eq!(rejected.code(), "changed_meanwhile");
    assert_eq!(gateway.get("/configuration").await.expect(200).body, seen.body);
}

#[tokio::test]
async fn stale_if_match_is_rejected() {
    let gateway = Gateway::start().await;
    let body = |enabled| json!({ "name": "demo", "verify": "none", "enabled": enabled });
    let seen = gateway.get("/sources/demo").await.expect(200).header("etag").to_owned();
    let if_match = [("if-match", seen.as_str())];

    let first = gateway
        .request_as_admin(Method::PUT, "/sources/demo", &if_match, &body(false).to_string())
        .await
        .expect(200);
    let rejected = gateway
        .request_as_admin(Method::PUT, "/sources/demo", &if_match, &body(true).to_string())
        .await;

    assert_eq!(rejected.expect(412).code(), "changed_meanwhile");
    assert_eq!(gateway.get("/sources/demo").await.json()["enabled"], false);
    let rejected = gateway.request_as_admin(Method::DELETE, "/sources/demo", &if_match, "").await;
    assert_eq!(rejected.expect(412).code(), "changed_meanwhile");
    let current = first.header("etag").to_owned();
    assert_eq!(gateway.get("/sources/demo").await.header("etag"), current);
    // A write without changes still creates a new version.
    let same = gateway
        .request_as_admin(
            Method::PUT,
            "/sources/demo",
            &[("if-match", "*")],
            &body(false).to_string(),
        )
        .await
        .expect(200);
    assert_ne!(same.header("etag"), current);
    let headers = [("if-match", same.header("etag"))];
    gateway.request_as_admin(Method::DELETE, "/sources/demo", &headers, "").await.expect(204);
    gateway
        .request_as_admin(Method::PUT, "/sources/demo", &if_match, &body(true).to_string())
        .await
        .expect(404);
}

#[tokio::test]
async fn destination_state_is_not_part_of_its_etag() {
    let gateway = Gateway::start_with(&route_settings("https://example.com/hook", "")).await;
    let seen = gateway.get("/destinations/out").await.expect(200).header("etag").to_owned();

    let paused = gateway.post("/destinations/out/pause", &json!({})).await.expect(200);

    assert_eq!(paused.header("etag"), seen);
    // The ETag does not cover the state, so the response is 200 with the current state.
    let known = [("if-none-match", seen.as_str())];
    let now =
        gateway.request_as_admin(Method::GET, "/destinations/out", &known, "").await.expect(200);
    assert_eq!((now.header("etag"), &now.json()["state"]["paused"]), (&*seen, &json!(true)));
    // A change based on the same settings succeeds.
    let body = json!({ "name": "out", "url": "https://example.com/other" }).to_string();
    let if_match = [("if-match", seen.as_str())];
    let put = gateway
        .request_as_admin(Method::PUT, "/destinations/out", &if_match, &body)
        .await
        .expect(200);
    assert_ne!(put.header("etag"), seen);
    assert_eq!(put.json()["state"]["paused"], true);
}

#[tokio::test]
async fn one_of_concurrent_changes_with_same_etag_succeeds() {
    let gateway = std::sync::Arc::new(Gateway::start().await);
    let seen = gateway.get("/configuration").await.expect(200).header("etag").to_owned();
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..12 {
        let (gateway, seen) = (gateway.clone(), seen.clone());
        tasks.spawn(async move {
            let name = format!("s{number}");
            let body = json!({ "sources": [{ "name": name, "verify": "none" }] }).to_string();
            let headers = [("if-match", seen.as_str())];
            gateway
                .request_as_admin(Method::PUT, "/configuration", &headers, &body)
                .await
                .status
                .as_u16()
        });
    }
    let statuses = tasks.join_all().await;
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 1, "{statuses:?}");
    assert_eq!(statuses.iter().filter(|status| **status == 412).count(), 11, "{statuses:?}");
    assert_eq!(gateway.list("/sources").await.len(), 2);
}
