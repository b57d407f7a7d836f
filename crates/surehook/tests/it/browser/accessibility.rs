//! Accessibility of every page, checked by axe: both themes, laptop and phone.

use serde_json::json;

use super::{populated_gateway, sign_in};
use crate::support::{
    browser::{Browser, ColorScheme, assert_accessible},
    tools::Tool,
};

/// Opens the first dialog, if there is one, and returns whether there is.
const OPEN: &str = "const dialog = document.querySelector('dialog'); dialog?.showModal();
    return dialog !== null";

/// Finds elements wider than the screen. A phone would zoom out, so the width is an argument.
const WIDE: &str = "const [width] = arguments; return document.documentElement.scrollWidth <= width ? [] :
    [...document.querySelectorAll('body *')].filter(one => one.getBoundingClientRect().right > width + 1)
        .map(one => one.outerHTML.slice(0, 200)).slice(0, 5)";

/// A viewport in pixels.
#[derive(Clone, Copy)]
struct ScreenSize {
    width: u32,
    height: u32,
}

const LAPTOP: ScreenSize = ScreenSize { width: 1280, height: 800 };
const PHONE: ScreenSize = ScreenSize { width: 360, height: 760 };

/// Checks half of the pages, so that no test takes long: every second one from `offset` on.
async fn check_pages(size: ScreenSize, offset: usize) {
    let ScreenSize { width, height } = size;
    let populated = populated_gateway::start().await;
    let gateway = &populated.gateway;
    let browser = Browser::builder().size(width, height).start().await;
    browser.open(&gateway.url("/login")).await;
    check_page(&browser).await;
    sign_in(&browser, gateway).await;
    for path in populated.pages.iter().skip(offset).step_by(2) {
        browser.open(&gateway.url(path)).await;
        let title = browser.run("return document.querySelector('h1').textContent", &[]).await;
        assert_ne!(title, "Page not found", "{path}");
        let wide = browser.run(WIDE, &[json!(width)]).await;
        assert_eq!(wide, json!([]), "{path} is wider than the screen");
        check_page(&browser).await;
    }
    // The "not found" page.
    browser.open(&gateway.url("/events/evt_00000000000000000000000000")).await;
    check_page(&browser).await;
    browser.assert_no_console_errors_except(&["status of 404"]).await;
}

/// Checks the page in both themes and with its dialog open.
async fn check_page(browser: &Browser) {
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
    if !Tool::Browser.is_available() || !Tool::Vendors.is_available() {
        return;
    }
    check_pages(LAPTOP, 0).await;
}

#[tokio::test]
async fn every_page_passes_axe_at_laptop_width_second_half() {
    if !Tool::Browser.is_available() || !Tool::Vendors.is_available() {
        return;
    }
    check_pages(LAPTOP, 1).await;
}

#[tokio::test]
async fn every_page_passes_axe_at_phone_width_first_half() {
    if !Tool::Browser.is_available() || !Tool::Vendors.is_available() {
        return;
    }
    check_pages(PHONE, 0).await;
}

#[tokio::test]
async fn every_page_passes_axe_at_phone_width_second_half() {
    if !Tool::Browser.is_available() || !Tool::Vendors.is_available() {
        return;
    }
    check_pages(PHONE, 1).await;
}
