//! Tests in a real Chromium (decision 0053). At most two of them run at once.

mod accessibility;
mod browser_support;
mod bulk_replay;
mod duplicates;
mod event_page;
mod failed_message;
mod first_event;
mod fix_and_replay;
mod health;
mod idempotency;
mod language_and_theme;
mod live_tail;
mod login;
mod populated_gateway;
mod sample_gateway;
mod screenshot_data;
mod screenshots;
mod search;
mod selected_replay;
mod what_if;
mod xss;

use crate::support::{
    browser::{Browser, key},
    gateway::Gateway,
};

/// Signs in through the login page with the gateway's token.
async fn sign_in(browser: &Browser, gateway: &Gateway) {
    sign_in_at(browser, &gateway.url("/login"), gateway.token()).await;
}

/// Like [`sign_in`], at any login page.
async fn sign_in_at(browser: &Browser, login: &str, token: &str) {
    browser.open(login).await;
    browser.type_into("#token", token).await;
    browser.keys(key::ENTER).await;
    wait_for_page(browser, "location.pathname !== '/login'").await;
}

/// Waits until a page is loaded for which a JavaScript expression is true.
#[track_caller]
fn wait_for_page<'b>(browser: &'b Browser, expression: &str) -> impl Future<Output = ()> + use<'b> {
    browser.wait_until(&format!("document.readyState === 'complete' && ({expression})"))
}

/// Waits until the page with this path is loaded.
#[track_caller]
fn wait_for_path<'b>(browser: &'b Browser, path: &str) -> impl Future<Output = ()> + use<'b> {
    wait_for_page(browser, &format!("location.pathname === '{path}'"))
}

/// Waits until the page contains this text.
#[track_caller]
fn wait_for_text<'b>(browser: &'b Browser, text: &str) -> impl Future<Output = ()> + use<'b> {
    let text = serde_json::Value::from(text);
    wait_for_page(browser, &format!("document.body.innerText.includes({text})"))
}
