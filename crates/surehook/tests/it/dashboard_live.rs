//! Live parts of the dashboard: the event stream of a tab, the live tail, the overview.

use http::Method;
use serde_json::{Value, json};

use crate::support::{
    WAIT_LIMIT,
    dashboard::DashboardClient,
    eventually,
    gateway::{Gateway, route_settings},
    raw::RawConnection,
    sink::{Reply, Sink},
};

/// The open event stream of a browser tab.
struct TabStream(RawConnection);

impl TabStream {
    async fn open(gateway: &Gateway, session: &DashboardClient<'_>, query: &str) -> Self {
        let mut raw = gateway.connect_raw().await;
        let cookie = session.cookie();
        // HTTP/1.0, so that the response is not chunked.
        raw.write(format!("GET /stream{query} HTTP/1.0\r\nHost: x\r\nCookie: {cookie}\r\n\r\n"))
            .await;
        let head = raw.read_until("\r\n\r\n").await;
        assert!(head.starts_with("HTTP/1.0 200"), "{head}");
        assert!(head.contains("text/event-stream"), "{head}");
        // After the first comment, no event is missed.
        assert!(raw.read_until("\n\n").await.starts_with(": heartbeat"));
        Self(raw)
    }

    /// Reads the next batch and skips keep-alive comments.
    async fn next_batch(&mut self) -> Value {
        loop {
            let piece = self.0.read_until("\n\n").await;
            if let Some(data) = piece.lines().find_map(|line| line.strip_prefix("data: ")) {
                assert!(piece.starts_with("event: batch\nid: "), "{piece}");
                return serde_json::from_str(data).unwrap();
            }
        }
    }
}

#[tokio::test]
async fn stream_sends_events_and_delivery_results() {
    let sink = Sink::ok().await;
    let gateway = Gateway::start_with(&route_settings(&sink.url(), "")).await;
    let session = DashboardClient::new(&gateway).await;
    let mut tab = TabStream::open(&gateway, &session, "").await;
    let event = gateway.post_accepted("in", r#"{"id":"5511987654321"}"#).await;
    let (mut rows, mut last_id) = (Vec::new(), String::new());
    while rows.len() < 2 {
        let batch = tab.next_batch().await;
        rows.extend(batch["rows"].as_array().unwrap().clone());
        last_id = batch["last_id"].as_str().unwrap().to_owned();
        assert_eq!(batch["skipped"], 0);
    }
    assert_eq!((&rows[0]["event"], &rows[0]["status"]), (&json!(event), &json!("received")));
    assert_eq!((&rows[1]["status"], &rows[1]["destination"]), (&json!("succeeded"), &json!("out")));
    assert_eq!(rows[1]["source"], "in", "a delivery is shown with what its event said");
    assert_eq!(rows[0]["key"], "5511•••••••21", "what may be a phone is hidden");

    // A tab that reconnects resumes after its last event.
    drop(tab);
    let missed = gateway.post_accepted("in", r#"{"id":"b"}"#).await;
    let mut tab = TabStream::open(&gateway, &session, &format!("?since={last_id}")).await;
    let batch = tab.next_batch().await;
    assert_eq!(batch["rows"][0]["event"], json!(missed), "{batch}");
}

#[tokio::test]
async fn script_request_without_session_is_unauthorized_and_keeps_the_flash_message() {
    let gateway = Gateway::start().await;
    let script: (&str, &[u8]) = ("x-surehook-refresh", b"1");
    gateway.request(Method::GET, "/stream", &[], "").await.expect(401);
    gateway.request(Method::GET, "/live", &[script], "").await.expect(401);
    gateway.request(Method::GET, "/live", &[], "").await.expect(303);
    let session = DashboardClient::new(&gateway).await;
    // {"good":true,"text":"said once"}
    let cookie =
        format!("{}; surehook_flash=eyJnb29kIjp0cnVlLCJ0ZXh0Ijoic2FpZCBvbmNlIn0", session.cookie());
    let cookie = ("cookie", cookie.as_bytes());
    let part = gateway.request(Method::GET, "/live", &[cookie, script], "").await.expect(200);
    assert!(part.headers.get("set-cookie").is_none(), "it stays for the page that is seen");
    let page = gateway.request(Method::GET, "/live", &[cookie], "").await.expect(200);
    assert!(page.text().contains("said once"));
    assert!(page.header("set-cookie").starts_with("surehook_flash=;"));
}

#[tokio::test]
async fn stream_applies_its_filters() {
    let sink = Sink::ok().await;
    let gateway = Gateway::start_with(&route_settings(&sink.url(), "")).await;
    let session = DashboardClient::new(&gateway).await;
    let mut tab = TabStream::open(&gateway, &session, "?status=succeeded&source=in").await;
    let mut quiet = TabStream::open(&gateway, &session, "?rows=0&status=received").await;
    gateway.post_accepted("in", r#"{"id":"a"}"#).await;
    let batch = tab.next_batch().await;
    assert_eq!(batch["counts"], json!({ "succeeded": 1 }));
    let batch = quiet.next_batch().await;
    assert_eq!((&batch["counts"], &batch["rows"]), (&json!({ "received": 1 }), &json!([])));
}

#[tokio::test]
async fn stream_closes_when_the_session_ends() {
    let gateway = Gateway::start().await;
    let session = DashboardClient::new(&gateway).await;
    let mut tab = TabStream::open(&gateway, &session, "").await;
    session.submit_form("/logout", "").await;
    tab.0.read_until_closed().await;
    gateway.request(Method::GET, "/stream", &[], "").await.expect(401);
}

#[tokio::test]
async fn start_page_shows_the_first_event_when_it_is_received() {
    let gateway = Gateway::start_unconfigured().await;
    let session = DashboardClient::with_token(&gateway, gateway.token()).await;
    let page = session.page("/").await.html;
    assert!(page.contains("/in/demo") && page.contains("Waiting for your first event"), "{page}");
    let event = gateway.post_accepted("demo", r#"{"id":"hello-1","text":"hello"}"#).await;
    let page = session.page("/").await.html;
    assert!(page.contains(&format!("href=\"/events/{event}\"")), "{page}");
    assert!(!page.contains("Waiting for your first event"));
}

#[tokio::test]
async fn overview_shows_counts_charts_and_failing_destinations() {
    let sink = Sink::with_replies([Reply::status(500)]).await;
    let gateway = Gateway::start_with(&route_settings(&sink.url(), "")).await;
    let session = DashboardClient::new(&gateway).await;
    for n in 0..5 {
        gateway.post_accepted("in", format!(r#"{{"id":"{n}"}}"#)).await;
    }
    let tried = async || (gateway.stats().await["attempts"].as_u64() >= Some(5)).then_some(());
    eventually(WAIT_LIMIT, tried).await;
    let page = session.page("/?range=15m").await.html;
    assert_eq!(page.matches("<time-series").count(), 3);
    assert!(page.contains("href=\"/?range=15m\" aria-current=\"true\""));
    assert!(page.contains("href=\"/destinations/out\""), "what fails is named: {page}");
    assert!(page.contains("Temporary failure"), "{page}");
    assert!(!page.contains("style=") && !page.contains("onclick"));
    let cells = page.split("data-value=\"").skip(1).filter_map(|rest| rest.split('"').next());
    assert!(cells.filter_map(|cell| cell.parse::<u64>().ok()).sum::<u64>() >= 10);
    for odd in [
        "/?range=1y",
        "/?since=x&until=y",
        "/?since=2026-01-01T00:00:00Z&until=2020-01-01T00:00:00Z",
    ] {
        assert_eq!(session.page(odd).await.status, 200, "case: {odd}");
    }
}

#[tokio::test]
async fn live_tail_reads_filters_from_the_url_and_escapes_them() {
    let gateway = Gateway::start().await;
    let session = DashboardClient::new(&gateway).await;
    let page = session.page("/live?status=dead&kind=%22%3E%3Cscript%3Ealert(1)%3C/script%3E").await;
    assert!(page.html.contains("<option value=\"dead\" selected>"), "{}", page.html);
    assert!(!page.html.contains("<script>alert(1)"));
    assert!(page.html.contains("data-badges=\"{&#34;"), "words come with the page");
    assert!(page.html.contains("id=\"keys-help\""));
}
