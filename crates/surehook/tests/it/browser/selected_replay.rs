//! Replaying selected rows asks first and says what will happen.

use serde_json::json;

use super::{sign_in, wait_for_path, wait_for_text};
use crate::support::{
    browser::Browser,
    gateway::{Gateway, route_settings},
    sink::{Reply, Sink},
    tools::Tool,
};

#[tokio::test]
async fn selected_rows_are_replayed_only_after_a_confirmation() {
    if !Tool::Browser.is_available() {
        return;
    }
    let sink =
        Sink::with_script(|number, _| Reply::status(if number < 2 { 400 } else { 200 })).await;
    let gateway = Gateway::start_with(&route_settings(&sink.url(), "")).await;
    let mut events = Vec::new();
    for number in 0..3 {
        let event = gateway.post_accepted("in", format!(r#"{{"id":"{number}"}}"#)).await;
        let status = if number < 2 { "dead" } else { "succeeded" };
        gateway.wait_for_delivery(&event, status).await;
        events.push(event);
    }
    gateway.post("/destinations/out/pause", &json!({ "reason": "repair" })).await.expect(200);
    let browser = Browser::start().await;
    sign_in(&browser, &gateway).await;

    for list in ["/events", "/dead-letters/all"] {
        browser.open(&gateway.url(list)).await;
        let select_all = "document.querySelectorAll('tr[data-row] input[type=checkbox]').forEach(box => box.click())";
        browser.run(select_all, &[]).await;
        browser.click("[data-key-replay]").await;
        wait_for_path(&browser, "/replays/selected/confirm").await;
        let question = browser.text("main").await;
        for text in ["Replay 2 deliveries?", "Nothing has been sent yet", "out\n2", "Paused"] {
            assert!(question.contains(text), "{text} is not in {question}");
        }
        assert!(question.contains("wait until the destination accepts deliveries again"));
        let has_rest = question.contains("1 selected item has no failed deliveries");
        assert_eq!(has_rest, list == "/events", "{question}");
        assert_eq!(browser.text("#replay").await, "Replay 2 deliveries");
        // Leaving the page changes nothing.
        browser.click("#confirm .actions a").await;
        wait_for_path(&browser, list).await;
        assert_eq!(gateway.stats().await["by_status"]["dead"], 2);
    }
    assert_eq!(sink.count(), 3);

    browser.click("tr[data-row] input[type=checkbox]").await;
    browser.click("[data-key-replay]").await;
    wait_for_path(&browser, "/replays/selected/confirm").await;
    assert_eq!(browser.text("h1").await, "Replay 1 delivery?");
    browser.click("#replay").await;
    wait_for_path(&browser, "/dead-letters/all").await;
    wait_for_text(&browser, "1 queued, 0 refused").await;
    gateway.post("/destinations/out/resume", &json!({})).await.expect(200);
    sink.wait_for_requests(4).await;
    gateway.wait_for_count("dead", 1).await;
    browser.assert_no_console_errors().await;
}
