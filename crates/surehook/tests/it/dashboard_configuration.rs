//! Sources, destinations and routes in the dashboard: created, updated, tried and deleted by forms.

use serde_json::{Value, json};

use crate::support::{
    dashboard::{DashboardClient, DashboardPage},
    gateway::Gateway,
};

/// URL-encodes the fields of a form.
fn form(fields: &[(&str, &str)]) -> String {
    let encode =
        |text: &str| -> String { text.bytes().map(|byte| format!("%{byte:02X}")).collect() };
    let fields = fields.iter().map(|(name, value)| format!("{}={}", encode(name), encode(value)));
    fields.collect::<Vec<_>>().join("&")
}

/// The value of a hidden field.
fn hidden_field(page: &DashboardPage, name: &str) -> String {
    let start = format!("name=\"{name}\" value=\"");
    let (_, rest) = page.html.split_once(&start).unwrap();
    rest.split('"').next().unwrap().replace("&#34;", "\"").replace("&quot;", "\"")
}

fn assert_redirect(page: &DashboardPage, path: &str) {
    assert_eq!(page.location.as_deref(), Some(path), "{} {}", page.status, page.html);
}

async fn api(gateway: &Gateway, path: &str) -> Value {
    gateway.get(path).await.expect(200).json()
}

/// Creates a source without verification.
async fn create_open_source(gateway: &Gateway) {
    gateway.post("/sources", &json!({ "name": "open", "verify": "none" })).await.expect(201);
}

#[tokio::test]
async fn source_form_creates_updates_and_deletes_once() {
    let gateway = Gateway::start().await;
    let admin = DashboardClient::new(&gateway).await;
    let choices = admin.page("/sources/new").await.html;
    assert!(choices.contains("whatsapp-cloud") && choices.contains("mercado-pago"));

    let new = admin.page("/sources/new?choice=generic").await;
    let idempotency_key = hidden_field(&new, "idempotency_key");
    let shop = |rest: &[(&str, &str)]| {
        let shop = [("name", "shop"), ("provider", "generic"), ("verify", "hmac")];
        form(&[&shop, rest].concat())
    };
    let fields = shop(&[
        ("idempotency_key", &idempotency_key),
        ("verify_with", "x-sig"),
        ("secrets", "hunter2hunter2hunter2"),
        ("enabled", "true"),
    ]);
    for _ in 0..2 {
        // Sent twice, created once.
        let created = admin.submit_form("/sources/new?choice=generic", &fields).await;
        assert_redirect(&created, "/sources/shop");
    }
    let page = admin.page("/sources/shop").await.html;
    assert!(page.contains("/in/shop") && page.contains("Waiting for the first event"));
    assert!(!page.contains("hunter2"), "a secret is never shown");

    let edit = admin.page("/sources/shop/edit").await;
    let tag = hidden_field(&edit, "tag");
    let fields = shop(&[
        ("tag", &tag),
        ("verify_with", "x-signature"),
        ("dedup_window", "2d"),
        ("redact", "cpf\r\nrg"),
    ]);
    assert_redirect(&admin.submit_form("/sources/shop/edit", &fields).await, "/sources/shop");
    let spec = api(&gateway, "/sources/shop").await;
    assert_eq!(spec["verify"]["hmac"]["header"], "x-signature");
    assert_eq!((&spec["redact"], &spec["enabled"]), (&json!(["cpf", "rg"]), &json!(false)));
    assert_eq!(spec["secrets"], json!(["•••"]), "a field that is left empty keeps the secret");

    // The tag of the form is outdated now.
    let stale = admin.submit_form("/sources/shop/edit", &fields).await;
    assert_eq!(stale.status, 200);
    assert!(stale.html.contains("Another user changed this"), "{}", stale.html);
    assert!(stale.html.contains("x-signature") && hidden_field(&stale, "tag") != tag);

    let wrong = form(&[("tag", &hidden_field(&stale, "tag")), ("name", "other")]);
    assert_redirect(&admin.submit_form("/sources/shop/delete", &wrong).await, "/sources/shop");
    assert_eq!(api(&gateway, "/sources/shop").await["name"], "shop", "another name was typed");
    let right = form(&[("tag", &hidden_field(&stale, "tag")), ("name", "shop")]);
    assert_redirect(&admin.submit_form("/sources/shop/delete", &right).await, "/sources");
    assert_eq!(admin.page("/sources/shop").await.status, 404);
}

#[tokio::test]
async fn source_page_shows_a_test_command_until_the_first_event() {
    let gateway = Gateway::start().await;
    create_open_source(&gateway).await;
    let admin = DashboardClient::new(&gateway).await;
    let before = admin.page("/sources/open").await.html;
    assert!(before.contains("Anyone who knows the URL can send events"));
    assert!(before.contains("curl -X POST"));
    gateway.post_accepted("open", r#"{"id":"test-1","type":"<b>test</b>"}"#).await;
    let after = admin.page("/sources/open").await.html;
    assert!(!after.contains("Waiting for the first event"));
    assert!(!after.contains("<b>test"), "a payload is text");
}

#[tokio::test]
async fn invalid_form_shows_the_error_and_keeps_the_input() {
    let gateway = Gateway::start().await;
    let admin = DashboardClient::new(&gateway).await;
    let hostile = "ftp://a.example/\"><script>alert(1)</script>";
    type Fields<'f> = &'f [(&'f str, &'f str)];
    let cases: [(&str, Fields<'_>, &str); 5] = [
        ("/destinations/new?choice=http", &[("name", "crm"), ("url", hostile)], "alert(1)"),
        (
            "/destinations/new?choice=http",
            &[("name", "No Name"), ("url", "https://a.example")],
            "No Name",
        ),
        (
            "/sources/new?choice=stripe",
            &[
                ("name", "shop"),
                ("provider", "stripe"),
                ("dedup_window", "soon"),
                ("secrets", "hunter2"),
            ],
            "soon",
        ),
        ("/sources/new?choice=generic&as=json", &[("json", "{\"name\": <i>")], "&#60;i&#62;"),
        (
            "/destinations/new?choice=exec",
            &[("name", "act"), ("exec.command", "act now")],
            "act now",
        ),
    ];
    for (path, fields, expected) in cases {
        let page = admin.submit_form(path, &form(fields)).await;
        assert_eq!(page.status, 200, "case: {path} {fields:?}");
        assert!(page.html.contains("Not saved"), "case: {path} {fields:?}");
        assert!(page.html.contains(expected), "case: {path}: {}", page.html);
        assert!(!page.html.contains("<script>alert") && !page.html.contains("<i>"));
        assert!(!page.html.contains("hunter2"), "secrets are not sent back");
    }
    // Values that the gateway accepts may still be hostile.
    let fields = [("name", "crm"), ("url", "http://a.example/\"><script>alert(1)</script>")];
    let created = admin.submit_form("/destinations/new?choice=http", &form(&fields)).await;
    assert_redirect(&created, "/destinations/crm");
    for path in ["/destinations", "/destinations/crm", "/destinations/crm/edit"] {
        let html = admin.page(path).await.html;
        assert!(html.contains("alert(1)") && !html.contains("<script>alert"), "case: {path}");
    }
}

#[tokio::test]
async fn destination_is_created_paused_resumed_and_tested() {
    let gateway = Gateway::start().await;
    let admin = DashboardClient::new(&gateway).await;
    let fields = [("name", "box"), ("url", "builtin:inbox"), ("retry", "quick")];
    let created = admin.submit_form("/destinations/new?choice=http", &form(&fields)).await;
    assert_redirect(&created, "/destinations/box");
    assert!(admin.page("/destinations/box").await.html.contains("No traffic"));

    let pause = form(&[("reason", "it is \"<b>moving</b>\"")]);
    assert_redirect(
        &admin.submit_form("/destinations/box/pause", &pause).await,
        "/destinations/box",
    );
    let page = admin.page("/destinations/box").await.html;
    assert!(page.contains("Paused") && page.contains("moving") && !page.contains("<b>moving"));
    assert!(admin.page("/destinations").await.html.contains("Paused"));

    let idempotency_key = hidden_field(&admin.page("/destinations/box").await, "idempotency_key");
    let test = form(&[("idempotency_key", &idempotency_key), ("body", "{\"type\":\"test\"}")]);
    let sent = admin.submit_form("/destinations/box/test", &test).await.location.unwrap();
    let again = admin.submit_form("/destinations/box/test", &test).await.location.unwrap();
    assert!(sent.starts_with("/events/evt_") && sent == again, "{sent} {again}");
    assert_redirect(&admin.submit_form("/destinations/box/probe", "").await, "/destinations/box");
    assert_redirect(
        &admin.submit_form("/destinations/box/resume", "rate=10%2Fs").await,
        "/destinations/box",
    );
    let state = &api(&gateway, "/destinations/box").await["state"];
    assert_eq!(state["paused"], false, "{state}");
    let wrong = admin.submit_form("/destinations/box/resume", "rate=fast").await;
    assert!(wrong.status == 200 && wrong.html.contains("role=\"alert\" lang=\"en\">"));

    // Invalid input is kept in the form.
    for (path, fields, expected) in [
        (
            "/destinations/box/test",
            [("idempotency_key", "o-1"), ("body", "{\"a\": <i>")],
            "{&#34;a&#34;: &#60;i&#62;",
        ),
        (
            "/destinations/box/pause",
            [("idempotency_key", ""), ("reason", &"moved ".repeat(400))],
            "moved moved",
        ),
    ] {
        let page = admin.submit_form(path, &form(&fields)).await;
        assert_eq!(page.status, 200, "case: {path} {}", page.html);
        assert!(page.html.contains("role=\"alert\""), "case: {path}");
        assert!(page.html.contains(expected), "case: {path}: {}", page.html);
    }
}

#[tokio::test]
async fn json_editor_keeps_masked_secrets_only_for_the_same_url() {
    let gateway = Gateway::start().await;
    let spec = json!({
        "name": "crm", "url": "https://crm.example/in?key=hush", "headers": { "X-Key": "hunter2" },
    });
    gateway.post("/destinations", &spec).await.expect(201);
    let admin = DashboardClient::new(&gateway).await;
    let path = "/destinations/crm/edit?as=json";
    for path in ["/destinations", "/destinations/crm", "/destinations/crm/edit", path] {
        assert!(!admin.page(path).await.html.contains("hush"), "case: {path}");
    }
    let save = async |change: fn(&mut Value)| {
        let tag = hidden_field(&admin.page(path).await, "tag");
        let mut spec = api(&gateway, "/destinations/crm").await;
        let read_only = ["id", "created_at", "updated_at", "state", "health"];
        spec.as_object_mut().unwrap().retain(|name, _| !read_only.contains(&name.as_str()));
        change(&mut spec);
        admin.submit_form(path, &form(&[("tag", &tag), ("json", &spec.to_string())])).await
    };
    assert_redirect(&save(|spec| spec["concurrency"] = json!(3)).await, "/destinations/crm");
    assert_eq!(api(&gateway, "/destinations/crm").await["headers"], json!({ "X-Key": "•••" }));
    let moved = save(|spec| spec["url"] = json!("https://evil.example/in")).await;
    assert!(moved.html.contains("masked secrets are not kept"), "{}", moved.html);
    let replaced = save(|spec| {
        spec["url"] = json!("https://new.example/in");
        spec["headers"]["X-Key"] = json!("another");
    });
    assert_redirect(&replaced.await, "/destinations/crm");
}

#[tokio::test]
async fn route_form_creates_updates_and_deletes() {
    let gateway = Gateway::start().await;
    create_open_source(&gateway).await;
    let inbox = json!({ "name": "box", "url": "builtin:inbox" });
    gateway.post("/destinations", &inbox).await.expect(201);
    let admin = DashboardClient::new(&gateway).await;
    let filter = ".type == \"<i>paid</i>\"";
    let new = admin.page("/routes/new?from=open").await;
    let idempotency_key = hidden_field(&new, "idempotency_key");
    let fields = [
        ("idempotency_key", idempotency_key.as_str()),
        ("from", "open"),
        ("to", "box"),
        ("filter", filter),
    ];
    assert_redirect(&admin.submit_form("/routes/save", &form(&fields)).await, "/routes");
    let list = admin.page("/routes").await.html;
    assert!(list.contains("paid") && !list.contains("<i>paid"));

    let wrong =
        form(&[("from", "open"), ("to", "box"), ("filter", ".type =="), ("idempotency_key", "x")]);
    let wrong = admin.submit_form("/routes/save", &wrong).await;
    assert!(wrong.html.contains("Not saved") && wrong.html.contains(".type =="));

    let routes = api(&gateway, "/routes").await;
    let all = routes["data"].as_array().unwrap();
    let id = all.iter().find(|route| route["from"] == "open").unwrap()["id"].as_str().unwrap();
    let path = format!("/routes/{id}/edit");
    let tag = hidden_field(&admin.page(&path).await, "tag");
    let fields = [
        ("id", id),
        ("tag", tag.as_str()),
        ("from", "open"),
        ("to", "box"),
        ("transform", "{a: 1}"),
    ];
    assert_redirect(&admin.submit_form("/routes/save", &form(&fields)).await, "/routes");
    let stale = admin.submit_form("/routes/save", &form(&fields)).await;
    assert!(stale.html.contains("Another user changed this"), "{}", stale.html);
    let deletion = form(&[("tag", &hidden_field(&stale, "tag"))]);
    assert_redirect(
        &admin.submit_form(&format!("/routes/{id}/delete"), &deletion).await,
        "/routes",
    );
    assert_eq!(admin.page(&path).await.status, 404);
}

#[tokio::test]
async fn playground_runs_filters_and_transforms_on_stored_events() {
    let gateway = Gateway::start().await;
    create_open_source(&gateway).await;
    let body = r#"{"id":"e1","type":"paid","total":820982911946154508,"password":"hunter2"}"#;
    let event = gateway.post_accepted("open", body).await;
    let viewer = DashboardClient::with_token(&gateway, &gateway.create_token("viewer").await).await;
    let first = viewer.page("/routes/try").await.html;
    assert!(first.contains(&event), "the newest event of the busiest source is offered");
    assert!(!first.contains("/routes/save"), "a viewer cannot save");

    let own = r#"{"type": "<b>own</b>"}"#;
    for (filter, transform, event, body, expected) in [
        (".type == \"paid\"", "", event.as_str(), "", "the event would be delivered"),
        (".type == \"other\"", "", &event, "", "would not be delivered"),
        (".type == \"other\"", "", &event, "", "matches none of the last 1 events of open"),
        (".type ==", "", &event, "", "Filter failed"),
        ("", "{total}", &event, "", "820982911946154508"),
        ("", "empty", &event, "", "Nothing would be sent"),
        ("", ".type | .x", &event, "", "Transform failed"),
        ("", "{secret: .password}", &event, "", "masked"),
        (".type == \"<b>own</b>\"", ".type", "", own, "the event would be delivered"),
        (".", "", "", "no json", "Result"),
        ("", "", "evt_none", "", "every event is delivered"),
    ] {
        let fields = [
            ("from", "open"),
            ("filter", filter),
            ("transform", transform),
            ("event", event),
            ("body", body),
        ];
        let page = viewer.submit_form("/routes/try", &form(&fields)).await;
        assert_eq!(page.status, 200, "case: {filter} {transform}");
        let html = page.html;
        assert!(html.contains(expected), "case: {filter} {transform}: {html}");
        assert!(
            !html.contains("hunter2") && !html.contains("<b>own"),
            "case: {filter} {transform}"
        );
    }
}

#[tokio::test]
async fn viewer_sees_no_forms_and_cannot_change_anything() {
    let gateway = Gateway::start().await;
    create_open_source(&gateway).await;
    let inbox = json!({ "name": "box", "url": "builtin:inbox" });
    gateway.post("/destinations", &inbox).await.expect(201);
    let viewer = DashboardClient::with_token(&gateway, &gateway.create_token("viewer").await).await;
    for path in ["/sources", "/sources/open", "/destinations", "/destinations/box", "/routes"] {
        let page = viewer.page(path).await;
        assert_eq!(page.status, 200, "case: {path}");
        for form in ["/pause", "/probe", "/test\"", "/delete", "/edit", "/new"] {
            assert!(!page.html.contains(form), "case: {path} shows {form}");
        }
    }
    for path in ["/sources/new", "/sources/open/edit", "/destinations/box/edit", "/routes/new"] {
        assert_eq!(viewer.page(path).await.status, 403, "case: {path}");
    }
    for path in [
        "/sources/new?choice=generic",
        "/sources/open/edit",
        "/sources/open/delete",
        "/destinations/box/pause",
        "/destinations/box/probe",
        "/destinations/box/test",
        "/routes/save",
    ] {
        let fields = form(&[
            ("name", "open"),
            ("verify", "none"),
            ("body", "{}"),
            ("from", "open"),
            ("to", "box"),
            ("idempotency_key", "x"),
            ("tag", "\"x\""),
        ]);
        assert_eq!(viewer.submit_form(path, &fields).await.status, 403, "case: {path}");
    }
}
