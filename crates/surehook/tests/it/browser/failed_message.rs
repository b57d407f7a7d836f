//! A failed message shows its reason in words, its text, and what the service said.

use serde_json::json;

use super::sign_in;
use crate::{
    channels::cloud_api_settings,
    support::{
        browser::Browser,
        fake_channels::{ChannelBehavior, CloudApi},
        gateway::Gateway,
        tools::Tool,
    },
};

#[tokio::test]
async fn failed_message_shows_reason_text_and_response() {
    if !Tool::Browser.is_available() {
        return;
    }
    let meta = CloudApi::start().await;
    // The recipient is not on WhatsApp.
    meta.set_default(ChannelBehavior::code(131_026));
    let gateway = Gateway::start_with(&cloud_api_settings("wa", &meta.url(), "")).await;
    let message =
        json!({ "destination": "wa", "to": "5511987654321", "text": "Your table is ready" });
    let sent = gateway.post("/messages", &message).await.expect(202).json();
    let delivery = sent["delivery_id"].as_str().unwrap();
    let dead = gateway.wait_for_delivery_status(delivery, "dead").await;
    let said = dead["attempt_list"][0]["response"].as_str().unwrap();
    assert!(said.contains("131026"), "{dead}");

    let browser = Browser::start().await;
    sign_in(&browser, &gateway).await;
    browser.open(&gateway.url("/messages")).await;
    let list = browser.text("#list").await;
    assert!(list.contains("Failed") && !list.contains("unrecoverable"), "{list}");
    browser.click("tr[data-row] a").await;
    let reason = browser.text("#reason").await;
    assert_eq!(reason, "Rejected, will not be retried", "{dead}");
    assert_eq!(browser.text("#text").await, "Your table is ready");
    let service = browser.text("#service-response").await;
    assert!(service.contains("131026") && service.contains("Permanent failure"), "{service}");
    assert!(!browser.text("main").await.contains("5511987654321"), "the phone number is masked");
    browser.assert_no_console_errors().await;
}
