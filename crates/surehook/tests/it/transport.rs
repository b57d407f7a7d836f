//! HTTP settings of a destination: authentication, headers, proxy, TLS and status rules.

use serde_json::{Value, json};

use crate::support::{
    gateway::{Gateway, route_settings},
    proxy::{CREDENTIALS, Proxy},
    sink::{Reply, Sink},
    tls::{CertificateAuthority, TlsSink},
};

/// Three attempts without noticeable delay.
const THREE_QUICK_ATTEMPTS: &str = r#"retry = { max_attempts = 3, schedule = ["1ms"] }"#;

/// A token endpoint that returns `token-1`, `token-2` and so on.
async fn token_endpoint() -> Sink {
    Sink::with_script(|number, _| {
        let token = format!("token-{}", number + 1);
        let body = json!({ "access_token": token, "token_type": "Bearer", "expires_in": 3600 });
        Reply::status(200).body(body.to_string())
    })
    .await
}

fn oauth2(token_url: &str) -> Value {
    json!({ "oauth2": {
        "token_url": token_url, "client_id": "me", "client_secret": "canary-secret",
    } })
}

/// A gateway with a source `in` routed to a destination `out` at `url` with the settings of `more`.
async fn gateway_to(url: &str, more: Value) -> Gateway {
    let gateway = Gateway::start_with("[[sources]]\nname = \"in\"\nverify = \"none\"").await;
    gateway.post("/destinations", &destination(url, more)).await.expect(201);
    gateway.post("/routes", &json!({ "from": "in", "to": "out" })).await.expect(201);
    gateway
}

fn destination(url: &str, more: Value) -> Value {
    let retry = json!({ "max_attempts": 3, "schedule": ["1ms"] });
    let mut spec = json!({ "name": "out", "url": url, "retry": retry });
    for (name, value) in more.as_object().unwrap() {
        spec[name] = value.clone();
    }
    spec
}

/// Sends one event and waits until its delivery has this status.
async fn deliver(gateway: &Gateway, status: &str) -> Value {
    let event = gateway.post_accepted("in", "{}").await;
    gateway.wait_for_delivery(&event, status).await
}

#[tokio::test]
async fn bearer_and_basic_auth_are_sent() {
    let sink = Sink::ok().await;
    let gateway = Gateway::builder()
        .env("OUT_TOKEN", "t0ken")
        .settings(&route_settings(&sink.url(), "auth = { bearer = \"env:OUT_TOKEN\" }"))
        .start()
        .await;

    deliver(&gateway, "succeeded").await;
    let basic = json!({ "auth": { "basic": { "user": "Aladdin", "password": "open sesame" } } });
    gateway.put("/destinations/out", &destination(&sink.url(), basic)).await.expect(200);
    deliver(&gateway, "succeeded").await;

    let arrived: Vec<String> =
        sink.requests().iter().map(|arrival| arrival.header("authorization").to_owned()).collect();
    assert_eq!(arrived, ["Bearer t0ken", "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="]);
}

#[tokio::test]
async fn oauth_token_is_fetched_once_for_concurrent_deliveries() {
    let (sink, tokens) = (Sink::ok().await, token_endpoint().await);
    let gateway = gateway_to(&sink.url(), json!({ "auth": oauth2(&tokens.url()) })).await;

    for _ in 0..20 {
        gateway.post_accepted("in", "{}").await;
    }

    let arrivals = sink.wait_for_requests(20).await;
    assert!(arrivals.iter().all(|arrival| arrival.header("authorization") == "Bearer token-1"));
    let token_requests = tokens.requests();
    assert_eq!(token_requests.len(), 1, "one fetch for all deliveries");
    assert_eq!(token_requests[0].header("content-type"), "application/x-www-form-urlencoded");
    assert_eq!(token_requests[0].header("authorization"), "Basic bWU6Y2FuYXJ5LXNlY3JldA==");
    assert_eq!(token_requests[0].body, "grant_type=client_credentials");
}

#[tokio::test]
async fn rejected_oauth_token_is_refreshed_within_the_attempt() {
    let tokens = token_endpoint().await;
    let sink = Sink::with_script(|number, arrival| {
        // The first token is revoked after the first event.
        let is_revoked = number > 0 && arrival.header("authorization") == "Bearer token-1";
        Reply::status(if is_revoked { 401 } else { 200 })
    })
    .await;
    let gateway = gateway_to(&sink.url(), json!({ "auth": oauth2(&tokens.url()) })).await;
    deliver(&gateway, "succeeded").await;

    let delivery = deliver(&gateway, "succeeded").await;

    assert_eq!(delivery["attempts"], 1);
    assert_eq!((sink.requests().len(), tokens.requests().len()), (3, 2));
    assert_eq!(sink.requests()[2].header("authorization"), "Bearer token-2");
}

#[tokio::test]
async fn rejected_new_oauth_token_is_not_retried() {
    let (sink, tokens) = (Sink::with_replies([Reply::status(401)]).await, token_endpoint().await);
    let gateway = gateway_to(&sink.url(), json!({ "auth": oauth2(&tokens.url()) })).await;

    let delivery = deliver(&gateway, "dead").await;

    assert_eq!(delivery["reason"], "invalid_endpoint");
    assert_eq!(delivery["attempt_list"][0]["class"], "config");
    assert_eq!((sink.requests().len(), tokens.requests().len()), (1, 1));
    // The next delivery does not use a token that is known to be rejected.
    deliver(&gateway, "dead").await;
    assert_eq!((sink.requests().len(), tokens.requests().len()), (2, 2));
}

#[tokio::test]
async fn token_endpoint_failure_and_rejection_are_distinguished() {
    let sink = Sink::ok().await;
    let error = |status: u16, error: &str| {
        Reply::status(status)
            .body(json!({ "error": error, "description": "canary-secret" }).to_string())
    };
    let cases = [
        (
            error(401, "invalid_client"),
            "token_refused",
            "config",
            "invalid_endpoint",
            "401 invalid_client",
        ),
        (
            error(400, "invalid_scope"),
            "token_refused",
            "config",
            "invalid_endpoint",
            "400 invalid_scope",
        ),
        (error(500, "canary-secret"), "token", "transient", "max_retries", "token: 500"),
        (Reply::Close, "reset", "transient", "max_retries", "the token endpoint: the connection"),
    ];
    for (reply, failure, class, reason, words) in cases {
        let tokens = Sink::with_replies([reply]).await;
        let gateway = gateway_to(&sink.url(), json!({ "auth": oauth2(&tokens.url()) })).await;

        let delivery = deliver(&gateway, "dead").await;

        assert_eq!(delivery["reason"], reason, "case: {failure}");
        let attempt = &delivery["attempt_list"][0];
        assert_eq!((&attempt["failure"], &attempt["class"]), (&json!(failure), &json!(class)));
        let detail = attempt["detail"].as_str().unwrap();
        assert!(detail.contains(words), "case: {failure}: {detail}");
        assert!(!delivery.to_string().contains("canary"), "{delivery}");
        assert!(!gateway.log().contains("canary"), "{}", gateway.log());
        // A failure is cached for a moment: three quick attempts cause one request.
        assert_eq!(tokens.requests().len(), 1, "case: {failure}");
    }
    assert!(sink.requests().is_empty());
}

#[tokio::test]
async fn token_endpoint_at_private_address_is_not_called() {
    let tokens = token_endpoint().await;
    let gateway = Gateway::builder()
        .public_networks_only()
        .settings("[[sources]]\nname = \"in\"\nverify = \"none\"")
        .start()
        .await;
    let with = |fields| destination("https://example.com/", fields);

    for fields in [
        json!({ "auth": oauth2(&tokens.url()) }),
        json!({ "proxy": "socks5://127.0.0.1:1080" }),
        json!({ "proxy": "http://[::ffff:169.254.169.254]" }),
    ] {
        let refused = gateway.post("/destinations", &with(fields)).await.expect(422);
        assert!(refused.detail().contains("is not allowed"), "{}", refused.detail());
    }
    // A host name is accepted; its address is checked when it is called.
    let by_name = tokens.url().replace("127.0.0.1", "localhost");
    let spec = with(json!({ "auth": oauth2(&by_name) }));
    gateway.post("/destinations", &spec).await.expect(201);
    gateway.post("/routes", &json!({ "from": "in", "to": "out" })).await.expect(201);

    let delivery = deliver(&gateway, "dead").await;

    assert_eq!(delivery["attempt_list"][0]["failure"], "blocked");
    assert!(tokens.requests().is_empty(), "a private address was called");
}

#[tokio::test]
async fn header_templates_are_rendered_for_every_attempt() {
    let sink = Sink::with_replies([Reply::status(500), Reply::status(200)]).await;
    let headers = json!({
        "X-Event": "{{event.id}}/{{event.key}}",
        "X-Delivery": "{{delivery.id}} #{{attempt}} of {{event.source}}",
        "X-Request": "{{request.path}}?{{request.query}}",
        "X-Tenant": "t={{request.header.x-tenant}}",
        "X-Spoofed": "{{request.header.x-missing}}",
    });
    let gateway = gateway_to(&sink.url(), json!({ "headers": headers })).await;

    let sent: [(&str, &[u8]); 3] =
        [("x-event-id", b"key-1"), ("x-tenant", b"acme"), ("x-spoofed", b"evil")];
    let path = "/in/in/orders/7?a=b%0d%0ax-evil:1";
    let event = gateway.request(http::Method::POST, path, &sent, "{}").await.expect(200).event_id();
    let delivery = gateway.wait_for_delivery(&event, "succeeded").await;

    let arrivals = sink.wait_for_requests(2).await;
    for (number, arrival) in (1..).zip(&arrivals) {
        assert_eq!(arrival.header("x-event"), format!("{event}/key-1"));
        let id = delivery["id"].as_str().unwrap();
        assert_eq!(arrival.header("x-delivery"), format!("{id} #{number} of in"));
        assert_eq!(arrival.header("x-request"), "/orders/7?a=b%0d%0ax-evil:1");
        assert_eq!(arrival.header("x-tenant"), "t=acme");
        assert!(
            !arrival.headers.contains_key("x-spoofed"),
            "the header of the sender was forwarded"
        );
        assert!(!arrival.headers.contains_key("x-evil"));
    }
    let bad = destination(&sink.url(), json!({ "headers": { "X-A": "{{event.body}}" } }));
    let refused = gateway.put("/destinations/out", &bad).await.expect(422);
    assert!(refused.detail().contains("available: event.id"), "{}", refused.detail());
}

#[tokio::test]
async fn deliveries_use_configured_proxy() {
    let authority = CertificateAuthority::new();
    let (plain, secure) = (Sink::ok().await, TlsSink::start(&authority, None).await);
    let proxy = Proxy::start().await;
    let host =
        |url: String| url.replace("https://", "").replace("http://", "").replace("/hook", "");
    let (to_plain, to_secure) = (host(plain.url()), host(secure.url()));
    let gateway = gateway_to(&plain.url(), json!({ "proxy": proxy.url("http") })).await;
    deliver(&gateway, "succeeded").await;

    let tls = json!({ "ca": authority.pem() });
    for (url, scheme) in [
        (secure.url(), "http"),
        (plain.url(), "socks5"),
        (secure.url(), "socks5"),
        (secure.url(), "socks5h"),
        (plain.url().replace("127.0.0.1", "localhost"), "socks5"),
    ] {
        let more = json!({ "proxy": proxy.url(scheme), "tls": tls });
        gateway.put("/destinations/out", &destination(&url, more)).await.expect(200);
        let delivery = deliver(&gateway, "succeeded").await;
        assert_eq!(delivery["attempts"], 1, "case: {scheme} to {url}");
    }

    let expected = [
        format!("POST {}", plain.url()),
        format!("CONNECT {to_secure}"),
        format!("SOCKS address {to_plain}"),
        format!("SOCKS address {to_secure}"),
        format!("SOCKS address {to_secure}"),
        // The name is resolved before the request to the proxy.
        format!("SOCKS address {to_plain}"),
    ];
    assert_eq!(proxy.received_requests(), expected);
    assert_eq!((plain.requests().len(), secure.request_count()), (3, 3));
    assert!(
        plain.requests().iter().all(|request| !request.headers.contains_key("proxy-authorization"))
    );
    assert!(!gateway.log().contains("canary"), "{}", gateway.log());
}

#[tokio::test]
async fn rejected_proxy_login_is_config_failure() {
    let authority = CertificateAuthority::new();
    let (plain, secure) = (Sink::ok().await, TlsSink::start(&authority, None).await);
    let proxy = Proxy::start().await;
    let gateway = gateway_to(&plain.url(), json!({})).await;

    for (url, scheme) in [
        (plain.url(), "http"),
        (secure.url(), "http"),
        (plain.url(), "socks5"),
        (secure.url(), "socks5h"),
    ] {
        let wrong = proxy.url_with(scheme, "proxy%20user:wrong");
        gateway
            .put("/destinations/out", &destination(&url, json!({ "proxy": wrong })))
            .await
            .expect(200);
        let delivery = deliver(&gateway, "dead").await;
        assert_eq!(delivery["reason"], "invalid_endpoint", "case: {scheme} to {url}");
        let attempt = &delivery["attempt_list"][0];
        assert_eq!(attempt["failure"], "proxy_refused", "case: {scheme} to {url}");
        assert_eq!(attempt["detail"], "the proxy does not accept the user and password");
    }
    assert!(plain.requests().is_empty());
}

#[tokio::test]
async fn proxy_without_route_to_destination_is_retried() {
    let proxy = Proxy::start().await;
    let gone = Sink::ok().await.url();
    let gateway = gateway_to(&gone, json!({ "proxy": proxy.url("socks5") })).await;

    for (url, scheme) in [(gone.clone(), "socks5"), (gone.replace("http:", "https:"), "http")] {
        let spec = destination(&url, json!({ "proxy": proxy.url(scheme) }));
        gateway.put("/destinations/out", &spec).await.expect(200);
        let delivery = deliver(&gateway, "dead").await;
        assert_eq!(
            (&delivery["reason"], &delivery["attempts"]),
            (&json!("max_retries"), &json!(3))
        );
        assert_eq!(delivery["attempt_list"][0]["failure"], "proxy", "case: {scheme}");
    }
    // An unreachable proxy is reported as such.
    let unreachable = gone.replace("http://", "").replace("/hook", "");
    let unreachable = json!({ "proxy": format!("http://{CREDENTIALS}@{unreachable}") });
    gateway.put("/destinations/out", &destination(&gone, unreachable)).await.expect(200);
    let delivery = deliver(&gateway, "dead").await;
    assert_eq!(delivery["attempt_list"][0]["failure"], "refused");
    assert_eq!(delivery["attempt_list"][0]["detail"], "the proxy: the connection was refused");
}

#[tokio::test]
async fn custom_ca_and_client_certificate_are_used() {
    let (authority, clients) = (CertificateAuthority::new(), CertificateAuthority::new());
    let sinks = [
        TlsSink::start_with_protocols(&["h2"], &authority, Some(&clients)).await,
        TlsSink::start_with_protocols(&["http/1.1"], &authority, Some(&clients)).await,
    ];
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        format!("file:{}", path.display())
    };
    let (certificate, key) = clients.issue_client_certificate();
    let ca = file("ca.pem", &authority.pem());
    let certificate = file("client.pem", &certificate);
    let key = file("key.pem", &key);
    let gateway = gateway_to(&sinks[0].url(), json!({})).await;

    let own_identity = json!({ "client_certificate": certificate, "client_key": key });
    let foreign_client = CertificateAuthority::new().issue_client_certificate();
    let cases = [
        ("an unknown authority", json!({}), "dead"),
        ("without a certificate", json!({ "ca": ca }), "dead"),
        ("with an identity, but without the authority", own_identity, "dead"),
        (
            "with both",
            json!({ "ca": ca, "client_certificate": certificate, "client_key": key }),
            "succeeded",
        ),
        (
            "with a client certificate of another authority",
            json!({ "ca": ca, "client_certificate": foreign_client.0, "client_key": foreign_client.1 }),
            "dead",
        ),
        (
            "with no other authority",
            json!({ "ca": ca, "ca_only": true, "client_certificate": certificate, "client_key": key }),
            "succeeded",
        ),
    ];
    for (sink, (name, tls, status)) in
        sinks.iter().flat_map(|sink| cases.iter().map(move |case| (sink, case)))
    {
        let spec = destination(&sink.url(), json!({ "tls": tls }));
        gateway.put("/destinations/out", &spec).await.expect(200);
        let delivery = deliver(&gateway, status).await;
        let attempt = &delivery["attempt_list"][0];
        let failure = if *status == "dead" { json!("tls") } else { json!(null) };
        assert_eq!(attempt["failure"], failure, "case: {name}: {attempt}");
    }
    assert_eq!(sinks.map(|sink| sink.request_count()), [2, 2]);
}

#[tokio::test]
async fn destination_keeps_working_when_ca_file_becomes_unreadable() {
    let authority = CertificateAuthority::new();
    let sink = TlsSink::start_with_protocols(&["http/1.1"], &authority, None).await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ca.pem");
    std::fs::write(&path, authority.pem()).unwrap();
    let tls = json!({ "tls": { "ca": format!("file:{}", path.display()) } });
    let gateway = gateway_to(&sink.url(), tls).await;
    deliver(&gateway, "succeeded").await;

    std::fs::remove_file(&path).unwrap();
    // Any configuration change reads all files again.
    gateway.post("/sources", &json!({ "name": "other", "verify": "none" })).await.expect(201);

    deliver(&gateway, "succeeded").await;
    assert_eq!(sink.request_count(), 2);
    assert!(gateway.log().contains("ca.pem"), "the unreadable file is logged");
}

#[tokio::test]
async fn unusable_certificates_are_rejected_with_file_name() {
    let authority = CertificateAuthority::new();
    let (certificate, key) = authority.issue_client_certificate();
    let folder = tempfile::tempdir().unwrap();
    let garbage = folder.path().join("garbage.pem");
    std::fs::write(&garbage, "canary").unwrap();
    let garbage = format!("file:{}", garbage.display());
    let gateway = Gateway::start().await;
    let cases = [
        (
            json!({ "ca": "file:/nowhere/ca.pem" }),
            "tls.ca: `/nowhere/ca.pem` cannot be read: there is no such file",
        ),
        (
            json!({ "ca": "file:/dev/zero" }),
            "tls.ca: `/dev/zero` cannot be read: it is not a regular file",
        ),
        (json!({ "ca": "file:ca.pem" }), "use an absolute path"),
        (json!({ "ca": garbage }), "garbage.pem` contains no PEM certificate"),
        (
            json!({ "client_certificate": certificate, "client_key": garbage }),
            "garbage.pem` contains no PEM private key",
        ),
        (
            json!({ "client_certificate": certificate, "client_key": authority.issue_client_certificate().1 }),
            "client_key do not match",
        ),
        (json!({ "client_key": key }), "both or neither"),
        (json!({ "ca_only": true }), "ca_only needs a ca"),
        (json!({ "insecure": true }), "insecure"),
    ];
    for (tls, words) in cases {
        let spec = destination("https://example.com/", json!({ "tls": tls }));
        let refused = gateway.post("/destinations", &spec).await.expect(422);
        assert!(refused.detail().contains(words), "{tls}: {}", refused.detail());
        assert!(!refused.text().contains("canary"), "{}", refused.text());
        assert!(!refused.text().contains("BEGIN"), "{}", refused.text());
    }
}

#[tokio::test]
async fn status_rules_override_default_classification() {
    let sink = Sink::with_script(|_, arrival| {
        Reply::status(std::str::from_utf8(&arrival.body).unwrap().parse().unwrap())
    })
    .await;
    let rules = json!([
        { "status": 409, "then": "succeeded" },
        { "status": "404", "then": "retry" },
        { "status": "5xx", "then": "dead", "reason": "payload_error" },
        { "status": "410", "then": "pause" },
        { "status": "201-299", "then": "dead" },
    ]);
    let gateway = gateway_to(&sink.url(), json!({ "rules": rules })).await;

    let cases = [
        ("409", "succeeded", json!(null), 1, json!(null)),
        ("404", "dead", json!("max_retries"), 3, json!("transient")),
        ("500", "dead", json!("payload_error"), 1, json!("permanent")),
        ("202", "dead", json!("unrecoverable"), 1, json!("permanent")),
        ("200", "succeeded", json!(null), 1, json!(null)),
        ("403", "dead", json!("invalid_endpoint"), 1, json!("config")),
        // Must be the last case: it pauses the destination.
        ("410", "held", json!(null), 1, json!("config")),
    ];
    for (status, expected, reason, attempts, class) in cases {
        let event = gateway.post_accepted("in", status).await;
        let delivery = gateway.wait_for_delivery(&event, expected).await;
        assert_eq!(delivery["reason"], reason, "case: {status}");
        assert_eq!(delivery["attempts"], attempts, "case: {status}");
        assert_eq!(delivery["attempt_list"][0]["class"], class, "case: {status}");
    }
    let shown = gateway.get("/destinations/out").await.expect(200).json();
    assert_eq!(shown["rules"][2]["status"], "5xx");
    assert_eq!(shown["state"]["pause"]["automatic"], true);
    let bad = destination(&sink.url(), json!({ "rules": [{ "status": 99, "then": "retry" }] }));
    gateway.put("/destinations/out", &bad).await.expect(422);
}

#[tokio::test]
async fn changed_destination_applies_to_next_attempt() {
    let (sink, proxy) =
        (Sink::with_replies([Reply::status(503), Reply::status(200)]).await, Proxy::start().await);
    let more = "retry = { max_attempts = 5, schedule = [\"1h\"] }";
    let gateway = Gateway::start_with(&route_settings(&sink.url(), more)).await;
    let event = gateway.post_accepted("in", "{}").await;
    let delivery = gateway.wait_for_delivery(&event, "scheduled").await;

    let changed = json!({ "proxy": proxy.url("socks5"), "auth": { "bearer": "new" } });
    gateway.put("/destinations/out", &destination(&sink.url(), changed)).await.expect(200);
    // The scheduled delivery keeps its due time; another event shows that the change is in force.
    deliver(&gateway, "succeeded").await;
    assert_eq!(sink.requests().len(), 2);
    assert_eq!(sink.requests()[1].header("authorization"), "Bearer new");
    assert_eq!(proxy.received_requests().len(), 1);
    let waiting = gateway.get(&format!("/deliveries/{}", delivery["id"].as_str().unwrap())).await;
    assert_eq!(waiting.expect(200).json()["status"], "scheduled");
}

#[tokio::test]
async fn destination_changes_under_load_deliver_each_event_once() {
    let (sink, proxy) = (Sink::ok().await, Proxy::start().await);
    let gateway = Gateway::start_with(&route_settings(&sink.url(), THREE_QUICK_ATTEMPTS)).await;

    let mut events = Vec::new();
    for round in 0..40 {
        for _ in 0..5 {
            events.push(gateway.post_accepted("in", "{}").await);
        }
        let more = match round % 4 {
            0 => json!({ "proxy": proxy.url("socks5") }),
            1 => json!({ "proxy": proxy.url("socks5"), "auth": { "bearer": "a" } }),
            2 => json!({ "proxy": proxy.url("http"), "timeout": "20s" }),
            _ => json!({}),
        };
        gateway.put("/destinations/out", &destination(&sink.url(), more)).await.expect(200);
    }

    gateway.wait_for_count("succeeded", events.len()).await;
    let mut arrived: Vec<String> =
        sink.requests().iter().map(|request| request.id().to_owned()).collect();
    arrived.sort_unstable();
    events.sort_unstable();
    assert_eq!(arrived, events);
}
