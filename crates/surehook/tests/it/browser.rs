//! What looks at pages, in a real Chromium (decision 0053). No more than two of these run at once.

mod accessible;
mod bulk;
mod day;
mod duplicate;
mod events;
mod first_event;
mod furnished;
mod harness;
mod hostile;
mod languages;
mod live;
mod login;
mod mend;
mod sample;
mod screenshots;
mod search;

use crate::support::{
    browser::{Browser, key},
    gateway::Gateway,
};

/// Signs in with the gateway's token, as a person would.
async fn sign_in(browser: &Browser, gateway: &Gateway) {
    sign_in_at(browser, &gateway.url("/login"), gateway.token()).await;
}

/// The same at any address.
async fn sign_in_at(browser: &Browser, login: &str, token: &str) {
    browser.goto(login).await;
    browser.type_into("#token", token).await;
    browser.keys(key::ENTER).await;
    is_at(browser, "location.pathname !== '/login'").await;
}

/// Waits until a whole page is there for which an expression of JavaScript is true.
#[track_caller]
fn is_at<'b>(browser: &'b Browser, expression: &str) -> impl Future<Output = ()> + use<'b> {
    browser.wait_until(&format!("document.readyState === 'complete' && ({expression})"))
}

/// Waits until a page with this path is there.
#[track_caller]
fn is_on<'b>(browser: &'b Browser, path: &str) -> impl Future<Output = ()> + use<'b> {
    is_at(browser, &format!("location.pathname === '{path}'"))
}

/// Waits until the page says this somewhere.
#[track_caller]
fn says<'b>(browser: &'b Browser, text: &str) -> impl Future<Output = ()> + use<'b> {
    let text = serde_json::Value::from(text);
    is_at(browser, &format!("document.body.innerText.includes({text})"))
}
