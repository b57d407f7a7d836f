//! Event pages: the list with its filter, event details, duplicates.

use http::Method;
use serde_json::json;

use crate::support::{
    WAIT_LIMIT,
    dashboard::DashboardClient,
    eventually,
    gateway::{Gateway, keyed_route_settings, route_settings},
    sink::{Reply, Sink},
};

/// Must never appear unescaped in a page.
const HOSTILE: &str = "<script>alert(1)</script>";
const ESCAPED: &str = "&#60;script&#62;alert(1)&#60;/script&#62;";
const BODY: &str = r#"{"id":"<script>alert(1)</script>","password":"canary-body","note":"</pre><script>alert(1)</script>"}"#;

/// Starts a gateway with one delivered event and returns both.
async fn start_with_delivered_event() -> (Gateway, String) {
    let response = Reply::status(200).body(format!("{HOSTILE} of the answer"));
    let sink = Sink::with_replies([response]).await;
    let gateway = Gateway::start_with(&route_settings(&sink.url(), "")).await;
    let headers: [(&str, &[u8]); 4] = [
        ("content-type", b"application/json"),
        ("authorization", b"Bearer canary-header"),
        ("x-hostile", HOSTILE.as_bytes()),
        ("x-odd", b"\xff<b>"),
    ];
    let path = "/in/in/more?token=canary-query&a='%3B";
    let event = gateway.request(Method::POST, path, &headers, BODY).await.expect(200).event_id();
    gateway.wait_for_delivery(&event, "succeeded").await;
    (gateway, event)
}

async fn sign_in_with_role<'g>(gateway: &'g Gateway, role: &str) -> DashboardClient<'g> {
    let token = gateway.post("/tokens", &json!({ "role": role, "name": "<i>eyes</i>" })).await;
    let token = token.expect(201).json();
    DashboardClient::with_token(gateway, token["token"].as_str().unwrap()).await
}

/// The idempotency key in the form that is sent to `action`.
fn idempotency_key(html: &str, action: &str) -> String {
    let form = html.split(&format!("action=\"{action}\"")).nth(1).expect("the form is there");
    let value = form.split("name=\"idempotency_key\" value=\"").nth(1).unwrap();
    value.split('"').next().unwrap().to_owned()
}

async fn delivery_of(gateway: &Gateway, event: &str, status: &str) -> String {
    gateway.wait_for_delivery(event, status).await["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn event_page_explains_the_event_and_escapes_payloads() {
    let (gateway, event) = start_with_delivered_event().await;
    let session = DashboardClient::new(&gateway).await;
    for path in ["/events".to_owned(), format!("/events/{event}")] {
        let page = session.page(&path).await;
        assert_eq!(page.status, 200);
        assert!(page.html.contains(ESCAPED) && !page.html.contains("<script>alert"), "{path}");
        assert!(!page.html.contains("canary"), "{path} shows a secret");
        assert!(!page.html.contains(" style="), "{path} has a style that the policy forbids");
    }
    let page = session.page(&format!("/events/{event}")).await.html;
    for text in [
        "Not verified: this source has no signature check",
        "from body field /id",
        "Delivery to out queued",
        "Attempt 1 to out succeeded",
        "<rect class=\"w-first\"",
        "<json-view json",
        "/in/in/more?token=•••",
        "curl --globoff",
        "${MASKED_AUTHORIZATION}",
        "${MASKED_TOKEN}",
        "${MASKED_1}",
        "of the answer",
    ] {
        assert!(page.contains(text), "{text} is missing");
    }
}

#[tokio::test]
async fn short_url_redirects_to_the_event_and_unknown_event_is_not_found() {
    let gateway = Gateway::start().await;
    let session = DashboardClient::new(&gateway).await;
    assert_eq!(session.page("/e/evt_1").await.location.as_deref(), Some("/events/evt_1"));
    assert_eq!(session.page("/e/%2F%2Fevil").await.location.as_deref(), Some("/events/%2F%2Fevil"));
    for path in ["/events/evt_1", "/events/%3Cscript%3E", "/events/evt_1/duplicates/1"] {
        let page = session.page(path).await;
        assert_eq!(page.status, 404, "{path}");
        assert!(page.html.contains("Page not found"), "{path}");
    }
}

#[tokio::test]
async fn event_page_is_translated() {
    let (gateway, event) = start_with_delivered_event().await;
    let session = DashboardClient::new(&gateway).await;
    for (lang, texts) in [
        (
            "pt-BR",
            ["Entregas", "Não verificado: esta origem não verifica assinaturas", "bem-sucedida"],
        ),
        ("es", ["Entregas", "Sin verificar: este origen no comprueba firmas", "exitoso"]),
    ] {
        let cookie = format!("{}; surehook_lang={lang}", session.cookie());
        let page =
            DashboardClient::with_cookie(&gateway, &cookie).page(&format!("/events/{event}")).await;
        assert!(texts.iter().all(|text| page.html.contains(text)), "{lang}");
        assert!(page.html.contains(&format!("<html lang=\"{lang}\"")));
    }
}

#[tokio::test]
async fn event_list_is_filtered_and_exported_by_query() {
    let (gateway, event) = start_with_delivered_event().await;
    let session = DashboardClient::new(&gateway).await;
    for (query, is_listed) in [
        ("status:succeeded+dest:out+source:in+since:1h", true),
        ("status:dead", false),
        ("code:200", true),
        ("code:5xx", false),
        ("body.password:canary-body", true),
        ("body.note:no", false),
        ("of+nothing", false),
    ] {
        let page = session.page(&format!("/events?q={query}")).await;
        assert_eq!(page.html.contains(&event), is_listed, "case: {query}");
        let file = session.page(&format!("/events/export?format=ndjson&q={query}")).await;
        assert_eq!((file.status, file.html.contains(&event)), (200, is_listed), "case: {query}");
    }
    for (query, message) in
        [("colour:red", "colour:red"), ("class:odd", "class"), ("dest:nowhere", "nowhere")]
    {
        let page = session.page(&format!("/events?q={query}")).await;
        assert_eq!(page.status, 200);
        assert!(
            page.html.contains("role=\"alert\"") && page.html.contains(message),
            "case: {query}"
        );
    }
    let csv = session.page("/events/export?format=csv&q=").await;
    assert!(csv.html.starts_with("id,"), "{}", csv.html);

    // The export contains unmasked keys and phone numbers.
    let viewer = sign_in_with_role(&gateway, "viewer").await;
    assert_eq!(viewer.page("/events/export?format=csv&q=").await.status, 303);
    assert!(!viewer.page("/events").await.html.contains("/events/export"));
}

#[tokio::test]
async fn downloaded_body_is_an_attachment_with_masked_secrets() {
    let (gateway, event) = start_with_delivered_event().await;
    let session = DashboardClient::new(&gateway).await;
    let cookie: [(&str, &[u8]); 1] = [("cookie", session.cookie().as_bytes())];
    let path = format!("/events/{event}/body");
    let file = gateway.request(Method::GET, &path, &cookie, "").await.expect(200);
    assert_eq!(file.header("content-type"), "application/octet-stream");
    assert!(file.header("content-disposition").starts_with("attachment"));
    assert_eq!(file.header("x-content-type-options"), "nosniff");
    assert!(!file.text().contains("canary") && file.text().contains("•••"));
}

#[tokio::test]
async fn reveal_shows_masked_values_once_and_is_recorded_in_the_timeline() {
    let (gateway, event) = start_with_delivered_event().await;
    let viewer = sign_in_with_role(&gateway, "viewer").await;
    let path = format!("/events/{event}");
    let page = viewer.page(&path).await.html;
    for hidden in ["/reveal", "/replay", "/cancel", "type=\"checkbox\""] {
        assert!(!page.contains(&format!("{path}{hidden}")), "a viewer sees {hidden}");
    }
    assert_eq!(
        viewer.submit_form(&format!("{path}/reveal"), "").await.location,
        Some(path.clone())
    );

    let operator = sign_in_with_role(&gateway, "operator").await;
    let shown = operator.submit_form(&format!("{path}/reveal"), "").await;

    assert_eq!(shown.status, 200);
    for canary in ["canary-body", "canary-header", "canary-query"] {
        assert!(shown.html.contains(canary), "{canary} is not revealed");
    }
    assert!(!shown.html.contains("<script>alert") && !shown.html.contains("<i>eyes"));
    assert!(!shown.html.contains("curl --globoff"), "secrets are not part of a command");
    assert!(shown.html.contains("&#60;i&#62;eyes&#60;/i&#62; viewed masked values"));
    let after = operator.page(&path).await.html;
    assert!(!after.contains("canary") && after.contains("viewed masked values"));
}

#[tokio::test]
async fn replay_form_sent_twice_replays_once() {
    let (gateway, event) = start_with_delivered_event().await;
    let operator = sign_in_with_role(&gateway, "operator").await;
    let delivery = delivery_of(&gateway, &event, "succeeded").await;
    let path = format!("/events/{event}");
    let action = format!("{path}/deliveries/{delivery}/replay");
    let form =
        format!("idempotency_key={}", idempotency_key(&operator.page(&path).await.html, &action));

    for _ in 0..2 {
        assert_eq!(
            operator.submit_form(&action, &form).await.location.as_deref(),
            Some(path.as_str())
        );
    }

    assert_eq!(gateway.event(&event).await["deliveries"].as_array().unwrap().len(), 2);
    let viewer = sign_in_with_role(&gateway, "viewer").await;
    viewer.submit_form(&action, "idempotency_key=other").await;
    assert_eq!(gateway.event(&event).await["deliveries"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn scheduled_delivery_is_cancelled_from_the_event_page() {
    let sink = Sink::with_replies([Reply::status(503)]).await;
    let gateway = Gateway::start_with(&route_settings(&sink.url(), "")).await;
    let event = gateway.post_accepted("in", r#"{"id":"a"}"#).await;
    let delivery = delivery_of(&gateway, &event, "scheduled").await;
    let session = DashboardClient::new(&gateway).await;
    let page = session.page(&format!("/events/{event}")).await.html;
    for text in ["Attempt 1 to out failed", "HTTP 503", "Temporary failure", "Retry policy backoff"]
    {
        assert!(page.contains(text), "{text} is missing");
    }
    session.submit_form(&format!("/events/{event}/deliveries/{delivery}/cancel"), "").await;
    gateway.wait_for_delivery(&event, "cancelled").await;
    let page = session.page(&format!("/events/{event}")).await.html;
    assert!(page.contains("Delivery to out cancelled"));
}

#[tokio::test]
async fn duplicate_is_compared_and_delivered_anyway_from_its_page() {
    let sink = Sink::ok().await;
    let gateway = Gateway::start_with(&keyed_route_settings(&sink.url())).await;
    let event = gateway.post_accepted("in", r#"{"id":"a","total":1.0}"#).await;
    let other = format!(r#"{{"id":"a","total":1.00,"note":"{HOSTILE}"}}"#);
    gateway.send_webhook("in", &[("content-type", "application/json")], other).await.expect(200);
    eventually(WAIT_LIMIT, || async {
        (gateway.event(&event).await["duplicate_count"] == 1).then_some(())
    })
    .await;
    let operator = sign_in_with_role(&gateway, "operator").await;
    let path = format!("/events/{event}/duplicates/1");
    assert!(operator.page(&format!("/events/{event}")).await.html.contains(&path));

    let page = operator.page(&path).await.html;

    for text in ["/total", "1.00", "/note", "Changed", "Added", ESCAPED] {
        assert!(page.contains(text), "{text} is missing");
    }
    assert!(!page.contains("<script>alert"));
    assert!(
        !sign_in_with_role(&gateway, "viewer").await.page(&path).await.html.contains("/deliver\"")
    );
    let action = format!("{path}/deliver");
    let done = operator
        .submit_form(&action, &format!("idempotency_key={}", idempotency_key(&page, &action)))
        .await;
    let new = done.location.unwrap();
    assert!(new.starts_with("/events/evt_") && !new.contains(&event));
    let page = operator.page(&new).await.html;
    assert!(page.contains("was duplicate 1 of") && page.contains(&event));
    assert!(operator.page(&path).await.html.contains(&new));
}

#[tokio::test]
async fn masked_secret_count_uses_singular_and_plural() {
    let sink = Sink::ok().await;
    let gateway = Gateway::start_with(&keyed_route_settings(&sink.url())).await;
    let event = gateway.post_accepted("in", r#"{"id":"a"}"#).await;
    for (n, secrets, expected) in [
        (1, r#""token":"x""#, "1 secret value is masked and not compared."),
        (2, r#""token":"x","password":"y""#, "2 secret values are masked and not compared."),
    ] {
        gateway.send_webhook("in", &[], format!(r#"{{"id":"a",{secrets}}}"#)).await.expect(200);
        eventually(WAIT_LIMIT, || async {
            (gateway.event(&event).await["duplicate_count"] == n).then_some(())
        })
        .await;
        let admin = DashboardClient::new(&gateway).await;
        let page = admin.page(&format!("/events/{event}/duplicates/{n}")).await.html;
        assert!(page.contains(expected), "{expected}: {page}");
    }
}

#[tokio::test]
async fn binary_body_is_shown_as_hex_and_large_body_is_truncated() {
    let sink = Sink::ok().await;
    let gateway = Gateway::start_with(&route_settings(&sink.url(), "")).await;
    let session = DashboardClient::new(&gateway).await;
    let binary = gateway.post_accepted("in", b"\x00\xff<b>".to_vec()).await;
    let page = session.page(&format!("/events/{binary}")).await.html;
    assert!(page.contains("00 ff 3c 62 3e") && page.contains("--data-binary @body.bin"));
    let large = format!(r#"{{"id":"b","text":"{}"}}"#, "é".repeat(200_000));
    let large = gateway.post_accepted("in", large).await;
    let page = session.page(&format!("/events/{large}")).await.html;
    assert!(page.contains("Only the first 256.0 KiB are shown.") && page.len() < 400_000);
    let deep = gateway.post_accepted("in", "[".repeat(100_000)).await;
    assert_eq!(session.page(&format!("/events/{deep}")).await.status, 200);
}

#[tokio::test]
async fn delivery_is_shown_as_a_curl_command() {
    let (gateway, event) = start_with_delivered_event().await;
    let session = DashboardClient::new(&gateway).await;
    let delivery = delivery_of(&gateway, &event, "succeeded").await;
    let page = session.page(&format!("/events/{event}/deliveries/{delivery}/curl")).await;
    assert_eq!(page.status, 200);
    assert!(page.html.contains("curl --globoff &#39;http://127.0.0.1:"), "{}", page.html);
    assert!(!page.html.contains("canary"));
}

#[tokio::test]
async fn replay_of_selected_events_replays_only_their_dead_deliveries() {
    let sink = Sink::with_replies([Reply::status(400)]).await;
    let gateway = Gateway::start_with(&route_settings(&sink.url(), "")).await;
    let (chosen, other) = (
        gateway.post_accepted("in", r#"{"id":"a"}"#).await,
        gateway.post_accepted("in", r#"{"id":"b"}"#).await,
    );
    for event in [&chosen, &other] {
        gateway.wait_for_delivery(event, "dead").await;
    }
    let operator = sign_in_with_role(&gateway, "operator").await;
    let path = format!("/events/{chosen}");
    let selection = format!("event={chosen}&next={path}");
    for from_list in [false, true] {
        let page = if from_list {
            // A selection in the list is confirmed first, and nothing is sent before.
            let list = operator.page("/events").await;
            assert!(list.html.contains("action=\"/replays/selected/confirm\""));
            assert!(!list.html.contains("action=\"/replays/selected\""));
            let before = sink.count();
            let page = operator.submit_form("/replays/selected/confirm", &selection).await;
            assert!(page.html.contains("Replay 1 delivery?"), "{}", page.html);
            assert_eq!(sink.count(), before);
            page
        } else {
            operator.page(&path).await
        };
        assert!(!page.html.contains("/replays/new"), "it would replay every dead delivery");
        let key = idempotency_key(&page.html, "/replays/selected");
        let form = format!("{selection}&idempotency_key={key}");
        let done = operator.submit_form("/replays/selected", &form).await;
        assert_eq!(done.location.as_deref(), Some(path.as_str()));
        let repeated = operator.submit_form("/replays/selected", &form).await;
        assert_eq!(repeated.status, 303, "sent twice, done once");
        let newest = gateway.find_delivery_to(&chosen, "out").await.unwrap();
        gateway.wait_for_delivery_status(&newest, "dead").await;
    }
    assert_eq!(gateway.event(&other).await["deliveries"].as_array().unwrap().len(), 1);

    for (path, has_rows, replays) in [
        ("/dead-letters?destination=out", true, true),
        ("/dead-letters/all?q=dest:out", true, true),
        ("/dead-letters/all?q=dest:out+since:1h", true, false),
    ] {
        let html = operator.page(path).await.html;
        assert_eq!(html.contains("data-row=\""), has_rows, "case: {path}");
        // Times of deliveries differ from those of events.
        assert_eq!(html.contains("/replays/new?q="), replays, "case: {path}");
    }
    let elsewhere = operator.page("/dead-letters?destination=nowhere").await;
    assert!(!elsewhere.html.contains("data-row=\""), "{}", elsewhere.html);
    for path in ["/destinations", "/destinations/out"] {
        let page = operator.page(path).await.html;
        assert!(page.contains("href=\"/dead-letters?destination=out\""), "case: {path}");
    }

    let refused = operator.page(&format!("/replays/new?event={chosen}")).await;
    assert_eq!(refused.status, 400, "an unknown parameter is rejected");
    let everything = operator.page("/replays/new").await.html;
    assert!(everything.contains("id=\"everything\"") && everything.contains("name=\"typed\""));
    let narrowed = operator.page("/replays/new?q=dest:out").await.html;
    assert!(!narrowed.contains("id=\"everything\"") && !narrowed.contains("name=\"typed\""));
}
