//! A duplicate with a different body: compared, and delivered anyway.

use super::{sign_in, wait_for_page, wait_for_text};
use crate::support::{
    WAIT_LIMIT,
    browser::Browser,
    eventually,
    gateway::{Gateway, route_settings},
    sink::Sink,
    tools::Tool,
};

const FIRST: &str = r#"{"id":"a","total":12345678901234567890123,"items":[1,2]}"#;
const OTHER: &str = r#"{"id":"a","items":[1,2],"total":12345678901234567890124}"#;

#[tokio::test]
async fn duplicate_with_different_body_is_delivered_anyway_once() {
    if !Tool::Browser.is_available() {
        return;
    }
    let sink = Sink::ok().await;
    let gateway = Gateway::start_with(&route_settings(&sink.url(), "")).await;
    let key = [("idempotency-key", "a")];
    let event = gateway.send_webhook("in", &key, FIRST).await.expect(200).event_id();
    gateway.wait_for_delivery(&event, "succeeded").await;
    let answer = gateway.send_webhook("in", &key, OTHER).await.expect(200).json();
    assert_eq!(answer["status"], "duplicate");
    eventually(WAIT_LIMIT, || async {
        (gateway.event(&event).await["duplicate_count"] == 1).then_some(())
    })
    .await;

    let page = gateway.url(&format!("/events/{event}/duplicates/1"));
    let (browser, other) = (Browser::start().await, Browser::start().await);
    sign_in(&browser, &gateway).await;
    sign_in(&other, &gateway).await;
    other.open(&page).await;

    // Reached from the list; the difference is shown to the last digit.
    browser.open(&gateway.url("/events")).await;
    browser.click(&format!("tr[data-row='{event}'] a")).await;
    browser.click("#duplicates a").await;
    wait_for_page(&browser, "location.pathname.endsWith('/duplicates/1')").await;
    let rows =
        "return [...document.querySelectorAll('table.diff tbody tr')].map(row => row.innerText)";
    let rows = browser.run(rows, &[]).await;
    let rows = rows.as_array().unwrap();
    assert_eq!(rows.len(), 1, "the order of fields is not a difference: {rows:?}");
    for part in ["/total", "12345678901234567890123", "12345678901234567890124"] {
        assert!(rows[0].as_str().unwrap().contains(part), "{part} is not in {rows:?}");
    }
    assert_eq!(sink.count(), 1);
    browser.click("[data-open='#anyway']").await;
    browser.click("#anyway form button:not([data-close])").await;
    wait_for_page(&browser, "!document.querySelector('#anyway')").await;
    let arrivals = sink.wait_for_requests(2).await;
    assert_eq!(
        (&arrivals[0].body[..], &arrivals[1].body[..]),
        (FIRST.as_bytes(), OTHER.as_bytes())
    );
    browser.open(&page).await;
    let delivered_as = browser.text(".flash a[href^='/events/']").await;
    assert_eq!(delivered_as, arrivals[1].id());

    // Another user, who still has the old page open, sees the result.
    other.click("[data-open='#anyway']").await;
    other.click("#anyway form button:not([data-close])").await;
    wait_for_text(&other, &delivered_as).await;
    assert_eq!(sink.count(), 2);
    let details = gateway.event(&event).await;
    assert_eq!(details["deliveries"].as_array().unwrap().len(), 1, "{details}");
    browser.assert_no_console_errors().await;
    other.assert_no_console_errors().await;
}
