//! The idempotency service: keys of other programs, over HTTP and across restarts.

use std::{collections::HashSet, sync::Arc};

use http::Method;
use serde_json::{Value, json};

use crate::support::{WAIT_LIMIT, client::HttpResponse, eventually, gateway::Gateway};

const KEY: &str = "/idempotency/orders/4711";

async fn claim(gateway: &Gateway, path: &str, body: Value) -> Value {
    gateway.post(path, &body).await.expect(200).json()
}

/// Claims a key that is free; returns the token.
async fn claim_token(gateway: &Gateway, path: &str, body: Value) -> String {
    let claimed = claim(gateway, path, body).await;
    assert_eq!(claimed["status"], "claimed", "{claimed}");
    claimed["token"].as_str().unwrap().to_owned()
}

async fn complete(gateway: &Gateway, path: &str, token: &str, result: Value) -> HttpResponse {
    gateway.post(&format!("{path}/complete"), &json!({ "token": token, "result": result })).await
}

#[tokio::test]
async fn completed_key_returns_its_result_across_a_restart() {
    let mut gateway = Gateway::start().await;
    let first = claim(&gateway, KEY, json!({ "fingerprint": "a" })).await;
    assert_eq!(first["status"], "claimed");
    assert_eq!(first["resumed"], false);
    assert_eq!(first["operation"]["id"].as_str().unwrap().len(), 32);
    let result = json!({ "order": 17, "text": "é\n", "big": 12_345_678_901_234_567_890_u64 });
    let token = first["token"].as_str().unwrap();
    assert_eq!(
        complete(&gateway, KEY, token, result.clone()).await.expect(200).json(),
        json!({ "status": "completed" })
    );
    // The answer may have been lost: doing it again succeeds and keeps the first result.
    complete(&gateway, KEY, token, json!("other")).await.expect(200);

    for _restarted in [false, true] {
        // The second one is answered from memory.
        for _again in 0..2 {
            let done = claim(&gateway, KEY, json!({ "fingerprint": "a" })).await;
            assert_eq!(done["status"], "completed");
            assert_eq!(done["result"], result);
            assert!(done["completed_at"].is_string());
            let other = gateway.post(KEY, &json!({ "fingerprint": "b" })).await.expect(422);
            assert_eq!(other.code(), "fingerprint_mismatch");
        }
        gateway.restart().await;
    }
    let shown = gateway.get(KEY).await.expect(200).json();
    assert_eq!((&shown["status"], &shown["result"]), (&json!("completed"), &result));
}

#[tokio::test]
async fn fifty_concurrent_claims_have_one_winner() {
    let gateway = Arc::new(Gateway::start().await);
    for round in 0..4 {
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..50 {
            let gateway = Arc::clone(&gateway);
            tasks.spawn(async move {
                claim(&gateway, &format!("/idempotency/race/{round}"), json!({})).await
            });
        }
        let answers = tasks.join_all().await;
        let count = |status: &str| answers.iter().filter(|a| a["status"] == status).count();
        assert_eq!((count("claimed"), count("in_progress")), (1, 49));
    }
    let stats = gateway.get("/stats/idempotency").await.expect(200).json();
    assert_eq!(stats["data"][0]["in_progress"], 4, "{stats}");
}

#[tokio::test]
async fn heavy_kill_between_claim_and_complete_keeps_the_claim() {
    let mut gateway = Gateway::start().await;
    let token = claim_token(&gateway, KEY, json!({ "lease": "1h" })).await;
    gateway.kill9();
    gateway.restart().await;
    let again = gateway.post(KEY, &json!({})).await.expect(200);
    assert_eq!(again.json()["status"], "in_progress");
    assert_eq!(again.header("retry-after"), again.json()["retry_after"].to_string());
    complete(&gateway, KEY, &token, json!(1)).await.expect(200);
    gateway.kill9();
    gateway.restart().await;
    assert_eq!(claim(&gateway, KEY, json!({})).await["result"], 1);
}

#[tokio::test]
async fn expired_lease_lets_the_retry_in_and_makes_the_first_token_stale() {
    let gateway = Gateway::start().await;
    let first = claim(&gateway, KEY, json!({ "lease": "1s" })).await;
    // Waits in the gateway until the lease has ended.
    let second = claim(&gateway, KEY, json!({ "wait": "30s" })).await;
    assert_eq!((&second["status"], &second["resumed"]), (&json!("claimed"), &json!(true)));
    assert_eq!(second["operation"], first["operation"]);
    assert!(second["fence"].as_u64() > first["fence"].as_u64());

    let stale = first["token"].as_str().unwrap();
    for (action, body) in [
        ("complete", json!({ "token": stale, "result": 1 })),
        ("extend", json!({ "token": stale })),
        ("release", json!({ "token": stale })),
    ] {
        let refused = gateway.post(&format!("{KEY}/{action}"), &body).await.expect(409);
        assert_eq!(refused.code(), "stale_token", "case: {action}");
    }
    let token = second["token"].as_str().unwrap();
    let extended = json!({ "token": token, "lease": "1h" });
    let extended = gateway.post(&format!("{KEY}/extend"), &extended).await.expect(200).json();
    assert_eq!(extended["status"], "extended");
    complete(&gateway, KEY, token, json!(2)).await.expect(200);
}

#[tokio::test]
async fn waiting_claim_gets_the_result_when_it_is_completed_and_the_key_when_it_is_released() {
    let gateway = Arc::new(Gateway::start().await);
    claim_token(&gateway, "/idempotency/orders/other", json!({ "lease": "1h" })).await;
    for (action, status) in [("release", "claimed"), ("complete", "completed")] {
        let path = format!("/idempotency/orders/{action}");
        let token = claim_token(&gateway, &path, json!({ "lease": "1h" })).await;
        let waiting = tokio::spawn({
            let (gateway, path) = (Arc::clone(&gateway), path.clone());
            async move { claim(&gateway, &path, json!({ "wait": "30s" })).await }
        });
        let update = json!({ "token": token });
        gateway.post(&format!("{path}/{action}"), &update).await.expect(200);
        // The holder of another key does not end: what only ends with its time loses against it.
        let other = claim(&gateway, "/idempotency/orders/other", json!({ "wait": "20s" }));
        tokio::select! {
            answer = waiting => assert_eq!(answer.unwrap()["status"], status, "case: {action}"),
            other = other => panic!("the claim was not woken before {other}"),
        }
    }
}

#[tokio::test]
async fn batch_answers_each_item_by_itself() {
    let gateway = Gateway::start().await;
    let held = claim_token(&gateway, "/idempotency/orders/held", json!({})).await;
    let batch = json!({
        "claims": [
            { "namespace": "orders", "key": "a" },
            { "namespace": "orders", "key": "a" },
            { "namespace": "Orders", "key": "a" },
            { "namespace": "orders", "key": "b/c", "lease": "2h" },
        ],
        "completions": [
            { "namespace": "orders", "key": "held", "token": held, "result": [1] },
            { "namespace": "orders", "key": "held", "token": "0".repeat(32) },
            { "namespace": "orders", "key": "held", "token": "short" },
        ],
    });
    let answer = claim(&gateway, "/idempotency", batch).await;
    let statuses = |field: &str| -> Vec<String> {
        let items = answer[field].as_array().unwrap().iter();
        items.map(|item| item["status"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(statuses("claims"), ["claimed", "in_progress", "error", "error"], "{answer}");
    assert_eq!(statuses("completions"), ["completed", "stale_token", "error"], "{answer}");
    assert_eq!(answer["claims"][2]["code"], "invalid");
    assert_eq!(claim(&gateway, "/idempotency/orders/held", json!({})).await["result"], json!([1]));

    let claims: Vec<Value> =
        (0..101).map(|n| json!({ "namespace": "many", "key": n.to_string() })).collect();
    gateway.post("/idempotency", &json!({ "claims": claims })).await.expect(422);
    let whole = claim(&gateway, "/idempotency", json!({ "claims": claims[..100] })).await;
    let tokens: HashSet<&str> = whole["claims"]
        .as_array()
        .unwrap()
        .iter()
        .map(|claimed| claimed["token"].as_str().unwrap())
        .collect();
    assert_eq!(tokens.len(), 100);
}

#[tokio::test]
async fn values_out_of_range_are_refused() {
    let gateway = Gateway::start().await;
    for body in [
        json!({ "ttl": "31d" }),
        json!({ "ttl": "0s" }),
        json!({ "lease": "61m" }),
        json!({ "lease": "10s", "ttl": "5s" }),
        json!({ "wait": "31s" }),
        json!({ "fingerprint": "f".repeat(257) }),
        json!({ "unknown": 1 }),
    ] {
        let refused = gateway.post(KEY, &body).await.expect(422);
        assert_eq!(refused.code(), "invalid", "case: {body}");
    }
    let long = format!("/idempotency/orders/{}", "k".repeat(256));
    for path in ["/idempotency/Orders/a", "/idempotency/api:00/a", "/idempotency/o/a%0Ab", &long] {
        assert_eq!(gateway.post(path, &json!({})).await.expect(422).code(), "invalid");
    }
    // Slashes and other characters are part of the key; a ttl below the default lease shortens it.
    let path = "/idempotency/orders/a%2Fb%20%C3%A9";
    let token = claim_token(&gateway, path, json!({ "ttl": "5s" })).await;
    assert_eq!(gateway.get(path).await.expect(200).json()["key"], "a/b é");
    let large = complete(&gateway, path, &token, json!("x".repeat(64 * 1024))).await.expect(413);
    assert_eq!(large.code(), "result_too_large");
    complete(&gateway, path, &token, json!("x".repeat(64 * 1024 - 2))).await.expect(200);
    gateway.get("/idempotency/orders/unknown").await.expect(404);
}

#[tokio::test]
async fn token_limited_to_namespaces_reaches_nothing_else() {
    let mut gateway = Gateway::start().await;
    let limited = json!({ "role": "operator", "namespaces": ["orders"] });
    let created = gateway.post("/tokens", &limited).await.expect(201).json();
    assert_eq!(created["namespaces"], json!(["orders"]));
    let token = created["token"].as_str().unwrap().to_owned();
    claim(&gateway, "/idempotency/mail/a", json!({})).await;
    for _restarted in [false, true] {
        let call = async |method: Method, path: &str, body: &str| {
            let body = (!body.is_empty()).then(|| serde_json::from_str(body).unwrap());
            gateway.api_as(&token, method, path, body.as_ref()).await
        };
        call(Method::POST, KEY, "{}").await.expect(200);
        call(Method::GET, KEY, "").await.expect(200);
        call(Method::GET, "/idempotency?namespace=orders", "").await.expect(200);
        let stats = call(Method::GET, "/stats/idempotency", "").await.expect(200).json();
        assert_eq!(stats["data"].as_array().unwrap().len(), 1);
        for (method, path, body) in [
            (Method::POST, "/idempotency/mail/a", "{}"),
            (Method::GET, "/idempotency/mail/a", ""),
            (Method::GET, "/idempotency", ""),
            (Method::GET, "/idempotency?namespace=mail", ""),
            (Method::GET, "/events", ""),
            (Method::GET, "/stats", ""),
            (Method::POST, "/messages", "{}"),
        ] {
            let refused = call(method, path, body).await.expect(403);
            assert_eq!(refused.code(), "namespace_not_allowed", "case: {path}");
        }
        let batch = r#"{"claims":[{"namespace":"mail","key":"b"}]}"#;
        let answer = call(Method::POST, "/idempotency", batch).await.expect(200).json();
        assert_eq!(answer["claims"][0]["code"], "namespace_not_allowed");
        gateway.restart().await;
    }
    let viewer = json!({ "role": "viewer", "namespaces": ["orders"] });
    let viewer = gateway.post("/tokens", &viewer).await.expect(201).json();
    let viewer = viewer["token"].as_str().unwrap();
    let refused = gateway.api_as(viewer, Method::POST, KEY, Some(&json!({}))).await.expect(403);
    assert_eq!(refused.code(), "forbidden");
    for namespaces in [json!([]), json!(["Orders"]), json!([""])] {
        let wrong = json!({ "role": "operator", "namespaces": namespaces });
        gateway.post("/tokens", &wrong).await.expect(422);
    }
}

#[tokio::test]
async fn keys_beyond_a_limit_are_refused_with_429() {
    let settings = "[limits]\nidempotency_keys_max = 3\nidempotency_namespace_keys_max = 2";
    let gateway = Gateway::start_with(settings).await;
    for key in ["a", "b"] {
        claim_token(&gateway, &format!("/idempotency/orders/{key}"), json!({})).await;
    }
    let full = gateway.post("/idempotency/orders/c", &json!({})).await.expect(429);
    assert_eq!(full.code(), "too_many_idempotency_keys");
    assert!(full.detail().contains("idempotency_namespace_keys_max"), "{}", full.detail());
    claim_token(&gateway, "/idempotency/mail/a", json!({})).await;
    let full = gateway.post("/idempotency/third/a", &json!({})).await.expect(429);
    assert!(full.detail().contains("idempotency_keys_max"), "{}", full.detail());
    assert_eq!(claim(&gateway, "/idempotency/orders/a", json!({})).await["status"], "in_progress");
}

#[tokio::test]
async fn expired_keys_are_forgotten() {
    let gateway = Gateway::start_with("[limits]\nidempotency_keys_max = 1").await;
    claim_token(&gateway, KEY, json!({ "ttl": "1s" })).await;
    // A claim removes what has expired, so there is room again.
    eventually(WAIT_LIMIT, || async {
        let response = gateway.post("/idempotency/orders/other", &json!({})).await;
        (response.status == 200).then_some(())
    })
    .await;
    gateway.get(KEY).await.expect(404);
}

#[tokio::test]
async fn operator_lists_shows_and_releases_keys_by_command() {
    let gateway = Gateway::start().await;
    let held = claim_token(&gateway, KEY, json!({ "lease": "1h" })).await;
    let done = claim_token(&gateway, "/idempotency/orders/done", json!({})).await;
    let result = json!({ "access_token": "hush", "order": 17 });
    complete(&gateway, "/idempotency/orders/done", &done, result).await.expect(200);
    // The keys of API requests are not those of the service.
    let key = [("idempotency-key", "own")];
    let body = json!({ "name": "shop", "verify": "none" }).to_string();
    gateway.request_as_admin(Method::POST, "/sources", &key, &body).await.expect(201);

    let listed = gateway.cli(&["idempotency", "list", "--json"]).await;
    let rows: Vec<Value> =
        listed.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let shown: Vec<_> = rows.iter().map(|row| (&row["key"], &row["status"])).collect();
    let expected = [(json!("4711"), json!("in_progress")), (json!("done"), json!("completed"))];
    assert_eq!(shown, expected.each_ref().map(|(key, status)| (key, status)));
    let page = gateway.get("/idempotency?limit=1").await.expect(200).json();
    let next = format!("/idempotency?limit=1&cursor={}", page["next_cursor"].as_str().unwrap());
    assert_eq!(gateway.get(&next).await.expect(200).json()["data"][0]["key"], "done");

    let shown = gateway.cli(&["idempotency", "show", "orders", "done"]).await;
    assert!(shown.stdout.contains("hush"), "{}", shown.stdout);
    let viewer = gateway.create_token("viewer").await;
    let masked = gateway.cli_as(&viewer, &["idempotency", "show", "orders", "done"]).await;
    let masked = masked.stdout;
    assert!(masked.contains("17") && !masked.contains("hush"), "{masked}");
    let stats = gateway.cli(&["idempotency", "stats"]).await;
    assert!(stats.stdout.contains("orders"), "{}", stats.stdout);

    let refused = gateway.cli_as(&viewer, &["idempotency", "release", "orders", "4711"]).await;
    assert_ne!(refused.code, Some(0));
    let released = gateway.cli(&["idempotency", "release", "orders", "4711"]).await;
    assert_eq!(released.code, Some(0), "{released:?}");
    assert_eq!(complete(&gateway, KEY, &held, json!(1)).await.expect(409).code(), "stale_token");
    claim_token(&gateway, KEY, json!({})).await;
    let force = json!({ "force": true });
    let done = gateway.post("/idempotency/orders/done/release", &force).await.expect(409);
    assert_eq!(done.code(), "not_in_progress");
    gateway.post("/idempotency/orders/unknown/release", &force).await.expect(404);
}

#[tokio::test]
async fn claims_are_counted_in_metrics() {
    let gateway = Gateway::start().await;
    let token = claim_token(&gateway, KEY, json!({})).await;
    claim(&gateway, KEY, json!({})).await;
    gateway.post(&format!("{KEY}/extend"), &json!({ "token": token })).await.expect(200);
    let metrics = eventually(WAIT_LIMIT, || async {
        let metrics = gateway.metrics().await;
        metrics.contains("surehook_idempotency_in_progress 1").then_some(metrics)
    })
    .await;
    for line in [
        r#"surehook_idempotency_claims_total{result="claimed"} 1"#,
        r#"surehook_idempotency_claims_total{result="in_progress"} 1"#,
        r#"surehook_idempotency_updates_total{action="extend",result="applied"} 1"#,
        r#"surehook_idempotency_keys{user="service"} 1"#,
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
}
