//! What looks at pages, in a real Chromium (decision 0053). No more than two of these run at once.

mod events;
mod harness;
mod sample;
mod screenshots;

use crate::support::{
    browser::{Browser, key},
    gateway::Gateway,
};

/// Signs in with the gateway's token, as a person would.
async fn sign_in(browser: &Browser, gateway: &Gateway) {
    browser.goto(&gateway.url("/login")).await;
    browser.type_into("#token", gateway.token()).await;
    browser.keys(key::ENTER).await;
    browser
        .wait_until("location.pathname !== '/login' && document.readyState === 'complete'")
        .await;
}
