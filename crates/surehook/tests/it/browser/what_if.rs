//! The what-if page: predicts another policy, previews the change and applies it.

use serde_json::json;

use super::{sign_in, sign_in_at, wait_for_page, wait_for_path, wait_for_text};
use crate::support::{
    browser::{Browser, ColorScheme, assert_accessible},
    gateway::{Gateway, Route},
    sink::{Reply, Sink},
    tools::Tool,
};

/// A gateway whose destination was down for a while: 8 of 40 deliveries died.
async fn gateway_with_outage() -> Gateway {
    let sink = Sink::with_script(|_, request| {
        let number: u32 = std::str::from_utf8(&request.body).unwrap().parse().unwrap();
        Reply::status(if (16..24).contains(&number) { 503 } else { 200 })
    })
    .await;
    let retry = r#"{ max_attempts = 3, initial_delay = "10ms" }"#;
    let destination = format!("url = \"{}\"\nretry = {retry}\ncircuit = \"off\"", sink.url());
    let gateway =
        Gateway::start_with(&Route { destination: &destination, ..Route::default() }.settings())
            .await;
    for number in 0..40 {
        let event = gateway.post_accepted("in", number.to_string()).await;
        let is_down = (16..24).contains(&number);
        gateway.wait_for_delivery(&event, if is_down { "dead" } else { "succeeded" }).await;
    }
    gateway
}

#[tokio::test]
async fn better_policy_is_predicted_previewed_and_applied() {
    if !Tool::Browser.is_available() {
        return;
    }
    let gateway = gateway_with_outage().await;
    let browser = Browser::start().await;
    sign_in(&browser, &gateway).await;
    browser.open(&gateway.url("/destinations/out")).await;
    browser.click("#what-if").await;
    wait_for_path(&browser, "/destinations/out/what-if").await;
    assert!(
        browser.find_all("#result").await.is_empty(),
        "nothing is predicted before it is asked"
    );
    browser.run("document.querySelector('#w-retry').value = 'standard'", &[]).await;
    browser.clear("#w-rate").await;
    browser.type_into("#w-rate", "20/s").await;
    browser.click("#predict").await;
    wait_for_page(&browser, "document.querySelector('#result') !== null").await;
    let cells = "[...document.querySelectorAll('#result tbody tr')].map(row => row.innerText)";
    let rows = browser.run(&format!("return {cells}"), &[]).await.to_string();
    assert!(rows.contains("Deliveries\\t40\\t40\\t40"), "{rows}");
    assert!(rows.contains("Dead letters\\t8\\t"), "{rows}");
    wait_for_text(&browser, "What the record cannot know").await;
    let folder = std::env::var_os("SUREHOOK_SCREENSHOTS").map(std::path::PathBuf::from);
    let folder = folder.unwrap_or_else(|| browser.folder().to_owned());
    for scheme in [ColorScheme::Light, ColorScheme::Dark] {
        browser.set_color_scheme(scheme).await;
        assert_accessible(&browser).await;
        browser.run("document.querySelector('#result').scrollIntoView()", &[]).await;
        browser.screenshot(&folder.join(format!("what-if-{}.png", scheme.name()))).await;
    }

    browser.click("#use").await;
    wait_for_path(&browser, "/destinations/out/what-if/preview").await;
    let preview = browser.text("#preview").await;
    for expected in ["retry", "max_attempts 3", "standard", "rate", "none", "20/s"] {
        assert!(preview.contains(expected), "{expected}: {preview}");
    }
    assert_accessible(&browser).await;
    let unchanged = gateway.get("/destinations/out").await.expect(200).json();
    assert_eq!(unchanged["rate"], json!(null), "a preview changes nothing");
    browser.click("#apply").await;
    wait_for_path(&browser, "/destinations/out").await;
    wait_for_text(&browser, "out saved").await;
    let changed = gateway.get("/destinations/out").await.expect(200).json();
    assert_eq!((&changed["retry"], &changed["rate"]), (&json!("standard"), &json!("20/s")));
    assert_eq!(changed["url"], unchanged["url"]);
    browser.assert_no_console_errors().await;
}

#[tokio::test]
async fn viewer_may_predict_and_not_change() {
    if !Tool::Browser.is_available() {
        return;
    }
    let gateway = gateway_with_outage().await;
    let viewer = gateway.create_token("viewer").await;
    let browser = Browser::builder().languages("pt-BR").start().await;
    sign_in_at(&browser, &gateway.url("/login"), &viewer).await;
    browser.open(&gateway.url("/destinations/out/what-if?span=24h&retry=short")).await;
    wait_for_page(&browser, "document.querySelector('#result') !== null").await;
    wait_for_text(&browser, "O que o registro não permite saber").await;
    assert!(browser.find_all("#use").await.is_empty());
    browser.open(&gateway.url("/destinations/out/what-if/preview?span=24h&retry=short")).await;
    wait_for_page(&browser, "document.querySelector('h1') !== null").await;
    assert!(browser.find_all("#apply").await.is_empty());
}
