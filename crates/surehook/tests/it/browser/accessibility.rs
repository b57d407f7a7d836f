//! Every page, looked at by axe: both themes, a laptop and a telephone.

use serde_json::json;

use super::{populated_gateway, sign_in};
use crate::support::browser::{Browser, ColorScheme, assert_accessible};

/// Opens the first dialog that there is; says whether there is one.
const OPEN: &str = "const dialog = document.querySelector('dialog'); dialog?.showModal();
    return dialog !== null";

/// What is wider than the screen. A telephone would zoom out to show it, so the width is given.
const WIDE: &str = "const [width] = arguments; return document.documentElement.scrollWidth <= width ? [] :
    [...document.querySelectorAll('body *')].filter(one => one.getBoundingClientRect().right > width + 1)
        .map(one => one.outerHTML.slice(0, 200)).slice(0, 5)";

const LAPTOP: (u32, u32) = (1280, 800);
const TELEPHONE: (u32, u32) = (360, 760);

/// Half of the pages, so that no test takes long: every second one from `half` on.
async fn look_at_all((width, height): (u32, u32), half: usize) {
    let populated = populated_gateway::start().await;
    let gateway = &populated.gateway;
    let browser = Browser::builder().size(width, height).start().await;
    browser.open(&gateway.url("/login")).await;
    look(&browser).await;
    sign_in(&browser, gateway).await;
    for path in populated.pages.iter().skip(half).step_by(2) {
        browser.open(&gateway.url(path)).await;
        let title = browser.run("return document.querySelector('h1').textContent", &[]).await;
        assert_ne!(title, "Page not found", "{path}");
        let wide = browser.run(WIDE, &[json!(width)]).await;
        assert_eq!(wide, json!([]), "{path} is wider than the screen");
        look(&browser).await;
    }
    // What is not there is a page too.
    browser.open(&gateway.url("/events/evt_00000000000000000000000000")).await;
    look(&browser).await;
    browser.assert_no_console_errors_except(&["status of 404"]).await;
}

/// Both themes, and what a dialog looks like.
async fn look(browser: &Browser) {
    assert_accessible(browser).await;
    browser.set_color_scheme(ColorScheme::Dark).await;
    assert_accessible(browser).await;
    if browser.run(OPEN, &[]).await == true {
        assert_accessible(browser).await;
    }
    browser.set_color_scheme(ColorScheme::Light).await;
}

#[tokio::test]
async fn every_page_passes_axe_at_laptop_width_first_half() {
    look_at_all(LAPTOP, 0).await;
}

#[tokio::test]
async fn every_page_passes_axe_at_laptop_width_second_half() {
    look_at_all(LAPTOP, 1).await;
}

#[tokio::test]
async fn every_page_passes_axe_at_phone_width_first_half() {
    look_at_all(TELEPHONE, 0).await;
}

#[tokio::test]
async fn every_page_passes_axe_at_phone_width_second_half() {
    look_at_all(TELEPHONE, 1).await;
}
