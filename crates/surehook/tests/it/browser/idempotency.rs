//! Idempotency keys: found by namespace and key, and released after a confirmation.

use serde_json::json;

use super::{sign_in, wait_for_page, wait_for_text};
use crate::support::{browser::Browser, gateway::Gateway, tools::Tool};

#[tokio::test]
async fn key_is_found_and_released_after_confirmation() {
    if !Tool::Browser.is_available() {
        return;
    }
    let gateway = Gateway::start().await;
    for path in ["/idempotency/orders/4711", "/idempotency/orders/%3Cb%3E", "/idempotency/mail/a"] {
        gateway.post(path, &json!({ "lease": "1h" })).await.expect(200);
    }
    let browser = Browser::start().await;
    sign_in(&browser, &gateway).await;
    browser.click("nav a[href='/idempotency']").await;
    wait_for_page(&browser, "location.pathname === '/idempotency'").await;
    wait_for_page(&browser, "document.querySelectorAll('tr[data-row]').length === 3").await;
    browser.click("#namespaces-h + .table a[href*='orders']").await;
    wait_for_page(&browser, "document.querySelectorAll('tr[data-row]').length === 2").await;
    wait_for_text(&browser, "<b>").await;

    browser.open(&gateway.url("/idempotency?q=namespace:orders+key:47")).await;
    wait_for_page(&browser, "document.querySelectorAll('tr[data-row]').length === 1").await;
    browser.click("tr[data-row='orders/4711'] [data-open]").await;
    browser.click("tr[data-row='orders/4711'] dialog [data-close]").await;
    let status = gateway.get("/idempotency/orders/4711").await.expect(200).json();
    assert_eq!(status["status"], "in_progress", "nothing happens without a confirmation");
    browser.click("tr[data-row='orders/4711'] [data-open]").await;
    browser.click("tr[data-row='orders/4711'] dialog form button:not([data-close])").await;
    wait_for_text(&browser, "Key released").await;
    let status = gateway.get("/idempotency/orders/4711").await.expect(200).json();
    assert_eq!(status["status"], "released");
    let row = "!document.querySelector(\"tr[data-row='orders/4711'] [data-open]\")";
    wait_for_page(&browser, row).await;
    browser.assert_no_console_errors().await;
}
