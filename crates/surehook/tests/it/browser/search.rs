//! Search by phone number in any format, which stays masked until it is revealed; and by whatever is
//! pasted into the search box.

use super::{
    populated_gateway::{self, PHONE, message_webhook, send_message_webhook},
    sign_in, wait_for_page, wait_for_path, wait_for_text,
};
use crate::support::{
    browser::{Browser, key},
    tools::Tool,
};

/// Formats of the same phone number. Brazilian mobile numbers got a ninth digit over the years.
const PHONE_FORMATS: [&str; 4] =
    ["+55 (11) 98765-4321", "+55 (11) 8765-4321", "551187654321", "5511987654321"];

#[tokio::test]
async fn phone_is_found_in_any_format_masked_and_revealed_with_an_audit_entry() {
    if !Tool::Browser.is_available() {
        return;
    }
    let (gateway, _works, _refuses, _evolution) = populated_gateway::start_empty().await;
    let event = send_message_webhook(
        &gateway,
        &message_webhook(PHONE, "A1", "João", "Olá, tem entrega hoje?"),
    )
    .await;
    send_message_webhook(&gateway, &message_webhook("5521912345678", "B1", "Maria", "outra coisa"))
        .await;

    let browser = Browser::start().await;
    sign_in(&browser, &gateway).await;
    for format in PHONE_FORMATS {
        browser.open(&gateway.url("/events")).await;
        browser.type_into("#q", &format!("phone:\"{format}\"")).await;
        browser.keys(key::ENTER).await;
        wait_for_page(&browser, "location.search.includes('phone')").await;
        let rows =
            "return [...document.querySelectorAll('tr[data-row]')].map(row => row.dataset.row)";
        assert_eq!(browser.run(rows, &[]).await, serde_json::json!([event]), "{format}");
        let list = browser.text("#list").await;
        assert!(list.contains("5511•") && !list.contains("987654"), "{list}");

        browser.click("nav a[href='/conversations']").await;
        wait_for_path(&browser, "/conversations").await;
        browser.type_into("#q", format).await;
        browser.keys(key::ENTER).await;
        wait_for_page(&browser, "document.querySelector('#conversation')").await;
        let conversation = browser.text("#conversation").await;
        assert!(
            conversation.contains("Olá, tem entrega hoje?") && !conversation.contains("outra"),
            "{conversation}"
        );
        assert!(!browser.text("h1").await.contains("87654321"));
    }

    // The event page masks it too, until it is revealed.
    browser.open(&gateway.url(&format!("/events/{event}"))).await;
    let facts = "return document.querySelector('section[aria-labelledby=h-facts]').innerText";
    let hidden = browser.run(facts, &[]).await;
    assert!(!hidden.as_str().unwrap().contains(PHONE), "{hidden}");
    browser.click("[data-open='#reveal']").await;
    browser.click("#reveal form button:not([data-close])").await;
    wait_for_page(&browser, "location.pathname.endsWith('/reveal')").await;
    let shown = browser.run(facts, &[]).await;
    assert!(shown.as_str().unwrap().contains(PHONE), "{shown}");
    browser.open(&gateway.url(&format!("/events/{event}"))).await;
    let details = gateway.event(&event).await;
    let decisions = details["decisions"].as_array().unwrap();
    assert!(decisions.iter().any(|decision| decision["kind"] == "revealed"), "{details}");
    let hidden = browser.run(facts, &[]).await;
    assert!(!hidden.as_str().unwrap().contains(PHONE), "{hidden}");
    let timeline = browser.text("#timeline").await;
    assert!(timeline.contains("viewed masked values"), "{timeline}");

    // The conversation page has its own reveal button.
    browser.open(&gateway.url("/conversations")).await;
    browser.click(&format!("tr[data-row='{event}'] a")).await;
    browser.click("form[action='/conversations'][method=post] button").await;
    wait_for_text(&browser, PHONE).await;
    browser.assert_no_console_errors().await;
}

#[tokio::test]
async fn pasted_id_phone_number_or_address_finds_its_events() {
    if !Tool::Browser.is_available() {
        return;
    }
    let (gateway, _works, _refuses, _evolution) = populated_gateway::start_empty().await;
    let message = message_webhook(PHONE, "3EB0A1", "João", "Olá, tem entrega hoje?");
    let event = send_message_webhook(&gateway, &message).await;
    let other = message_webhook("5521912345678", "3EB0B1", "Maria", "outra coisa");
    send_message_webhook(&gateway, &other).await;
    let order = r#"{"id":"ord-17","type":"order.created","email":"ana@example.com"}"#;
    let order = gateway.post_accepted("shop", order).await;
    let delivery = gateway.find_delivery_to(&event, "crm").await.unwrap();
    let request = gateway.event(&event).await["request_id"].as_str().unwrap().to_owned();

    let browser = Browser::start().await;
    sign_in(&browser, &gateway).await;
    let search = async |pasted: &str| {
        browser.open(&gateway.url("/events")).await;
        browser.type_into("#q", pasted).await;
        browser.keys(key::ENTER).await;
        wait_for_page(&browser, "location.pathname !== '/events' || location.search !== ''").await;
    };
    for id in [&event, &delivery, &request] {
        search(id).await;
        wait_for_path(&browser, &format!("/events/{event}")).await;
    }
    let link = gateway.url(&format!("/events/{event}"));
    search(&link).await;
    wait_for_path(&browser, &format!("/events/{event}")).await;
    let national = ["(11) 98765-4321", "11 98765-4321", "98765-4321"];
    let forms = PHONE_FORMATS.into_iter().chain(national).chain(["https://wa.me/5511987654321"]);
    for (pasted, found) in forms
        .chain(["3EB0A1", "5511987654321@s.whatsapp.net"])
        .map(|pasted| (pasted, &event))
        .chain(["ord-17", "ana@example.com"].map(|pasted| (pasted, &order)))
    {
        search(pasted).await;
        let rows =
            "return [...document.querySelectorAll('tr[data-row]')].map(row => row.dataset.row)";
        assert_eq!(browser.run(rows, &[]).await, serde_json::json!([found]), "case: {pasted}");
    }
    browser.assert_no_console_errors().await;
}
