//! A duplicate that is none: looked at, and delivered anyway.

use super::{sign_in, wait_for_page, wait_for_text};
use crate::support::{
    WAIT_LIMIT,
    browser::Browser,
    eventually,
    gateway::{Gateway, route_settings},
    sink::Sink,
};

const FIRST: &str = r#"{"id":"a","total":12345678901234567890123,"items":[1,2]}"#;
const OTHER: &str = r#"{"id":"a","items":[1,2],"total":12345678901234567890124}"#;

#[tokio::test]
async fn duplicate_with_different_body_is_delivered_anyway_once() {
    let sink = Sink::ok().await;
    let gateway = Gateway::start_with(&route_settings(&sink.url(), "")).await;
    let event = gateway.post_accepted("in", FIRST).await;
    gateway.wait_for_delivery(&event, "succeeded").await;
    let answer = gateway.send_webhook("in", &[], OTHER).await.expect(200).json();
    assert_eq!(answer["status"], "duplicate");
    eventually(WAIT_LIMIT, || async {
        (gateway.event(&event).await["duplicate_count"] == 1).then_some(())
    })
    .await;

    let page = gateway.url(&format!("/events/{event}/duplicates/1"));
    let (one, other) = (Browser::start().await, Browser::start().await);
    sign_in(&one, &gateway).await;
    sign_in(&other, &gateway).await;
    other.open(&page).await;

    // Found from the list, and what differs is shown to the last digit.
    one.open(&gateway.url("/events")).await;
    one.click(&format!("tr[data-row='{event}'] a")).await;
    one.click("#duplicates a").await;
    wait_for_page(&one, "location.pathname.endsWith('/duplicates/1')").await;
    let rows =
        "return [...document.querySelectorAll('table.diff tbody tr')].map(row => row.innerText)";
    let rows = one.run(rows, &[]).await;
    let rows = rows.as_array().unwrap();
    assert_eq!(rows.len(), 1, "the order of names is no difference: {rows:?}");
    for part in ["/total", "12345678901234567890123", "12345678901234567890124"] {
        assert!(rows[0].as_str().unwrap().contains(part), "{part} is not in {rows:?}");
    }
    assert_eq!(sink.count(), 1);
    one.click("[data-open='#anyway']").await;
    one.click("#anyway form button:not([data-close])").await;
    wait_for_page(&one, "!document.querySelector('#anyway')").await;
    let arrivals = sink.wait_for_requests(2).await;
    assert_eq!(
        (&arrivals[0].body[..], &arrivals[1].body[..]),
        (FIRST.as_bytes(), OTHER.as_bytes())
    );
    one.open(&page).await;
    let delivered_as = one.text(".flash a[href^='/events/']").await;
    assert_eq!(delivered_as, arrivals[1].id());

    // Somebody else had the page open all the while, and is told.
    other.click("[data-open='#anyway']").await;
    other.click("#anyway form button:not([data-close])").await;
    wait_for_text(&other, &delivered_as).await;
    assert_eq!(sink.count(), 2);
    let story = gateway.event(&event).await;
    assert_eq!(story["deliveries"].as_array().unwrap().len(), 1, "{story}");
    one.assert_no_console_errors().await;
    other.assert_no_console_errors().await;
}
