//! A failing destination is found, diagnosed and fixed, and its dead letters are replayed.

use serde_json::json;

use super::{populated_gateway, sign_in, wait_for_page, wait_for_path, wait_for_text};
use crate::support::{browser::Browser, tools::Tool};

const DEAD_LETTERS: usize = 5;

#[tokio::test]
async fn failing_destination_is_fixed_and_its_dead_letter_group_replayed() {
    if !Tool::Browser.is_available() {
        return;
    }
    let (gateway, works, _refuses, _evolution) = populated_gateway::start_empty().await;
    for number in 0..DEAD_LETTERS {
        let body = json!({ "id": format!("inv-{number}"), "type": "invoice.paid", "total": 1 });
        let event = gateway.post_accepted("shop", body.to_string()).await;
        let delivery = gateway.find_delivery_to(&event, "billing").await.unwrap();
        gateway.wait_for_delivery_status(&delivery, "dead").await;
    }
    let to_crm = works.wait_for_requests(DEAD_LETTERS).await.len();

    // Find the failing destination.
    let browser = Browser::start().await;
    sign_in(&browser, &gateway).await;
    browser.find("#destinations tr[data-row=billing] [data-health=failing]").await;
    let group = browser.text("#groups tr[data-row]").await;
    assert!(group.contains("422") && group.contains("There is no customer 4711"), "{group}");
    browser.click("nav a[href='/dead-letters']").await;
    wait_for_path(&browser, "/dead-letters").await;

    // Diagnose it: the response, and the timeline of one event.
    let group = browser.text(".group").await;
    for text in ["billing", "422", "5 dead letters", "There is no customer 4711"] {
        assert!(group.contains(text), "{text} is not in {group}");
    }
    browser.click(".group a[href^='/events/']").await;
    wait_for_page(&browser, "location.pathname.startsWith('/events/')").await;
    let timeline = browser.text("#timeline").await;
    assert!(timeline.contains("billing") && timeline.contains("422"), "{timeline}");
    let deliveries = browser.text("#deliveries").await;
    assert!(deliveries.contains("There is no customer 4711"), "{deliveries}");

    // Fix it: the URL was wrong.
    browser.click("#deliveries a[href='/destinations/billing']").await;
    wait_for_path(&browser, "/destinations/billing").await;
    browser.click("a[href='/destinations/billing/edit']").await;
    browser.clear("#f-url").await;
    browser.type_into("#f-url", &works.url()).await;
    browser.click("form.sheet .actions button").await;
    wait_for_path(&browser, "/destinations/billing").await;
    wait_for_text(&browser, &works.url()).await;

    // Replay the dead letters.
    browser.click("nav a[href='/dead-letters']").await;
    browser.click(".group a[href^='/replays/new']").await;
    assert_eq!(browser.text("#count").await, DEAD_LETTERS.to_string());
    browser.click("#start").await;
    wait_for_page(&browser, "document.querySelector('#job h1')").await;
    browser
        .wait_until("document.querySelector('#job h1 .pill').textContent.includes('Completed')")
        .await;
    browser
        .wait_until(&format!(
            "document.querySelector('#succeeded').textContent === '{DEAD_LETTERS}'"
        ))
        .await;
    assert_eq!(works.count() - to_crm, DEAD_LETTERS);
    browser.click("nav a[href='/dead-letters']").await;
    wait_for_text(&browser, "No dead letters").await;
    browser.click("nav a[href='/']").await;
    browser
        .wait_until("document.querySelector('#groups') && !document.querySelector('#groups tr')")
        .await;
    browser.assert_no_console_errors().await;
}
