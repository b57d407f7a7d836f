//! API tokens: permissions of each role, expiry and revocation.

use http::Method;
use serde_json::{Value, json};

use crate::support::{
    client::HttpResponse,
    gateway::{Gateway, route_settings},
};

/// Creates a token with this role.
async fn create_token(gateway: &Gateway, role: &str) -> Value {
    gateway.post("/tokens", &json!({ "role": role, "name": role })).await.expect(201).json()
}

/// Calls the gateway with this token.
async fn call_with_token(
    gateway: &Gateway,
    token: &str,
    method: Method,
    path: &str,
) -> HttpResponse {
    let authorization = format!("Bearer {token}");
    let headers: [(&str, &[u8]); 2] =
        [("authorization", authorization.as_bytes()), ("content-type", b"application/json")];
    gateway.request(method, path, &headers, "{}").await
}

#[tokio::test]
async fn every_route_enforces_the_role_of_the_token() {
    let gateway = Gateway::start_with(&route_settings("https://example.com", "")).await;
    let mut secrets = Vec::new();
    for role in ["viewer", "operator", "admin"] {
        secrets.push(create_token(&gateway, role).await["token"].as_str().unwrap().to_owned());
    }
    let delivery = "/api/v1/deliveries/dlv_01h455vb4pex5vsknk084sn02q/replay";
    // The last column is the status for viewer, operator and admin: 403, or the result of the call.
    let cases = [
        (Method::GET, "/api/v1/events", [200, 200, 200]),
        (Method::GET, "/api/v1/events/evt_01h455vb4pex5vsknk084sn02q", [404, 404, 404]),
        (Method::GET, "/api/v1/events/evt_01h455vb4pex5vsknk084sn02q/body", [404, 404, 404]),
        (Method::GET, "/api/v1/deliveries", [200, 200, 200]),
        (Method::GET, "/api/v1/deliveries/dlv_01h455vb4pex5vsknk084sn02q", [404, 404, 404]),
        (Method::POST, delivery, [403, 404, 404]),
        (Method::GET, "/api/v1/dead-letters", [200, 200, 200]),
        (Method::GET, "/api/v1/dead-letters/stats", [200, 200, 200]),
        (Method::GET, "/api/v1/stats", [200, 200, 200]),
        (Method::GET, "/api/v1/inbox", [200, 200, 200]),
        (Method::GET, "/metrics", [200, 200, 200]),
        (Method::GET, "/api/v1/configuration", [200, 200, 200]),
        (Method::PUT, "/api/v1/configuration", [403, 403, 200]),
        (Method::PUT, "/api/v1/configuration?dry_run=true", [403, 403, 200]),
        (Method::GET, "/api/v1/sources", [200, 200, 200]),
        (Method::POST, "/api/v1/sources", [403, 403, 422]),
        (Method::GET, "/api/v1/sources/in", [200, 200, 200]),
        (Method::PUT, "/api/v1/sources/in", [403, 403, 422]),
        (Method::DELETE, "/api/v1/sources/none", [403, 403, 404]),
        (Method::POST, "/api/v1/destinations", [403, 403, 422]),
        (Method::DELETE, "/api/v1/destinations/none", [403, 403, 404]),
        (Method::POST, "/api/v1/destinations/none/what-if", [404, 404, 404]),
        (Method::POST, "/api/v1/routes", [403, 403, 422]),
        (Method::POST, "/api/v1/routes/try", [422, 422, 422]),
        (Method::DELETE, "/api/v1/routes/none", [403, 403, 404]),
        (Method::GET, "/api/v1/tokens", [403, 403, 200]),
        (Method::POST, "/api/v1/tokens", [403, 403, 422]),
        (Method::DELETE, "/api/v1/tokens/none", [403, 403, 404]),
    ];
    for (method, path, expected) in cases {
        for (secret, status) in secrets.iter().zip(expected) {
            let response = call_with_token(&gateway, secret, method.clone(), path).await;
            assert_eq!(response.status, status, "case: {method} {path}: {}", response.text());
            if status == 403 {
                assert_eq!(response.code(), "forbidden", "case: {method} {path}");
            }
        }
        let anonymous = gateway.request(method.clone(), path, &[], "{}").await;
        assert_eq!(anonymous.status, 401, "case: {method} {path} without a token");
    }
}

#[tokio::test]
async fn revoked_token_is_rejected_at_once_and_after_restart() {
    let mut gateway = Gateway::start().await;
    let made = create_token(&gateway, "viewer").await;
    let secret = made["token"].as_str().unwrap().to_owned();
    call_with_token(&gateway, &secret, Method::GET, "/api/v1/stats").await.expect(200);

    gateway.delete(&format!("/tokens/{}", made["id"].as_str().unwrap())).await.expect(204);

    call_with_token(&gateway, &secret, Method::GET, "/api/v1/stats").await.expect(401);
    gateway.restart().await;
    call_with_token(&gateway, &secret, Method::GET, "/api/v1/stats").await.expect(401);
    gateway.get("/stats").await.expect(200);
}

#[tokio::test]
async fn token_secret_is_shown_once_and_expires() {
    let gateway = Gateway::start().await;
    let brief = json!({ "role": "admin", "expires_in": "1ms" });
    let ended = gateway.post("/tokens", &brief).await.expect(201).json();
    let secret = ended["token"].as_str().unwrap();
    assert!(secret.starts_with("shk_") && secret.len() == 68, "{secret}");

    let refused = call_with_token(&gateway, secret, Method::GET, "/api/v1/stats").await.expect(401);

    assert!(refused.detail().contains("expired"), "{}", refused.detail());
    let listed = gateway.get("/tokens").await.expect(200);
    assert!(!listed.text().contains(secret) && !listed.text().contains("hash"));
    assert_eq!(listed.json()["data"][1]["expired"], true);
    for (name, request) in [
        ("no role", json!({ "name": "x" })),
        ("unknown role", json!({ "role": "root" })),
        ("unknown field", json!({ "role": "viewer", "nam": "x" })),
        ("zero lifetime", json!({ "role": "viewer", "expires_in": "0s" })),
        ("a long name", json!({ "role": "viewer", "name": "x".repeat(101) })),
    ] {
        let response = gateway.post("/tokens", &request).await;
        assert_eq!(response.status, 422, "case: {name}: {}", response.text());
    }
    // The last admin token cannot be revoked.
    let own = listed.json()["data"][0]["id"].as_str().unwrap().to_owned();
    let last = gateway.delete(&format!("/tokens/{own}")).await.expect(409);
    assert_eq!(last.code(), "last_admin");
}

#[tokio::test]
async fn cli_creates_lists_and_revokes_tokens() {
    let gateway = Gateway::start().await;

    let made = gateway.cli(&["token", "create", "--role", "viewer", "--expires", "30d"]).await;

    assert_eq!(made.code, Some(0), "{made:?}");
    // Nothing else is on standard output, so that a script can store it.
    let secret = made.stdout.trim_end().to_owned();
    assert!(secret.starts_with("shk_") && !secret.contains(char::is_whitespace), "{made:?}");
    assert!(made.stderr.contains("viewer") && made.stderr.contains("only once"), "{made:?}");
    let looks = gateway.cli_as(&secret, &["events", "list"]).await;
    assert_eq!(looks.code, Some(0), "{looks:?}");
    let makes = gateway.cli_as(&secret, &["token", "create", "--role", "admin"]).await;
    assert_eq!(makes.code, Some(3), "{makes:?}");
    assert!(makes.stderr.contains("viewer") && makes.stderr.contains("hint:"), "{makes:?}");

    let listed = gateway.cli(&["token", "list", "--json"]).await;
    let rows: Vec<Value> =
        listed.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((rows.len(), &rows[1]["role"]), (2, &json!("viewer")), "{listed:?}");
    assert!(rows[1]["expires_at"].is_string(), "{listed:?}");
    let (own, id) = (rows[0]["id"].as_str().unwrap(), rows[1]["id"].as_str().unwrap());
    let both = gateway.cli(&["token", "revoke", id, own]).await;
    assert_eq!(both.code, Some(7), "{both:?}");
    assert!(both.stdout.contains(id) && both.stderr.contains("last admin"), "{both:?}");
    let refused = gateway.cli_as(&secret, &["events", "list"]).await;
    assert_eq!(refused.code, Some(3), "{refused:?}");
    let unknown = gateway.cli(&["token", "revoke", id]).await;
    assert_eq!(unknown.code, Some(4), "{unknown:?}");
    let no_role = gateway.cli(&["token", "create", "--role", "root"]).await;
    assert_eq!(no_role.code, Some(2), "{no_role:?}");
    assert!(no_role.stderr.contains("viewer, operator or admin"), "{no_role:?}");
}

/// Guessing is slowed down, and valid tokens from the same address keep working.
#[tokio::test]
async fn failed_tokens_are_throttled_per_address_and_valid_ones_still_work() {
    let gateway = Gateway::start().await;
    let mut statuses = Vec::new();
    for n in 0..40 {
        let wrong = format!("shk_{n:064x}");
        let response = call_with_token(&gateway, &wrong, Method::GET, "/api/v1/stats").await;
        if response.status == 429 {
            assert_eq!(response.code(), "too_many_failed_tokens");
            let secs: u64 = response.header("retry-after").parse().unwrap();
            assert!((1..=60).contains(&secs), "{secs}");
        }
        statuses.push(response.status.as_u16());
        gateway.get("/stats").await.expect(200);
    }
    assert_eq!(statuses.first(), Some(&401));
    assert_eq!(statuses.last(), Some(&429), "{statuses:?}");
    let form: [(&str, &[u8]); 2] = [
        ("content-type", b"application/x-www-form-urlencoded"),
        ("sec-fetch-site", b"same-origin"),
    ];
    let wrong = gateway.request(Method::POST, "/login", &form, "token=wrong").await.expect(429);
    assert!(!wrong.header("retry-after").is_empty());
    let right = format!("token={}", gateway.token());
    gateway.request(Method::POST, "/login", &form, right).await.expect(303);
    // A request without a token does not count as a guess.
    gateway.request(Method::GET, "/api/v1/stats", &[], "").await.expect(401);
}

#[tokio::test]
async fn admin_token_of_the_environment_replaces_the_earlier_one() {
    let mut gateway = Gateway::start().await;
    let other = create_token(&gateway, "admin").await;
    let earlier = gateway.token().to_owned();
    let reserved = json!({ "role": "admin", "name": "SUREHOOK_ADMIN_TOKEN" });
    gateway.post("/tokens", &reserved).await.expect(422);

    gateway.set_env("SUREHOOK_ADMIN_TOKEN", "the-next-admin-token-0123456789");
    gateway.restart().await;

    let call = async |token: &str| {
        call_with_token(&gateway, token, Method::GET, "/api/v1/tokens").await.status.as_u16()
    };
    assert_eq!(call(&earlier).await, 401);
    assert_eq!(call("the-next-admin-token-0123456789").await, 200);
    assert_eq!(call(other["token"].as_str().unwrap()).await, 200, "other tokens stay");
}
