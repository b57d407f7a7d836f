//! Login and logout of the dashboard.

use super::{sign_in, wait_for_page, wait_for_path, wait_for_text};
use crate::support::{
    browser::{Browser, key},
    gateway::Gateway,
    tools::Tool,
};

/// The login link that `serve` printed.
fn login_link(gateway: &Gateway) -> String {
    let printed = gateway.stdout();
    let link = printed.lines().find_map(|line| line.trim_start().strip_prefix("dashboard"));
    let link = link.unwrap_or_else(|| panic!("no link in {printed}"));
    let link = link.split_whitespace().next().unwrap();
    assert!(link.starts_with(&gateway.url("/login?code=")), "{link}");
    link.to_owned()
}

#[tokio::test]
async fn login_with_token_opens_the_requested_page_and_logout_ends_the_session() {
    if !Tool::Browser.is_available() {
        return;
    }
    let gateway = Gateway::start().await;
    let browser = Browser::start().await;
    browser.open(&gateway.url("/dead-letters/all?q=reason:expired")).await;
    wait_for_path(&browser, "/login").await;

    browser.type_into("#token", "not-a-token-of-this-gateway").await;
    browser.keys(key::ENTER).await;
    wait_for_text(&browser, "This token or link is invalid").await;
    assert!(browser.cookies().await.is_empty());

    browser.type_into("#token", gateway.token()).await;
    browser.click("form button").await;
    wait_for_page(
        &browser,
        "location.pathname + location.search === '/dead-letters/all?q=reason:expired'",
    )
    .await;
    let cookies = browser.cookies().await;
    let session = cookies.iter().find(|cookie| cookie["name"] == "surehook_session").unwrap();
    assert_eq!((&session["httpOnly"], &session["sameSite"]), (&true.into(), &"Lax".into()));

    browser.click("form[action='/logout'] button").await;
    wait_for_path(&browser, "/login").await;
    browser.open(&gateway.url("/events")).await;
    wait_for_path(&browser, "/login").await;
    // The login with the wrong token.
    browser.assert_no_console_errors_except(&["status of 401"]).await;
}

#[tokio::test]
async fn printed_login_link_works_once_and_viewing_does_not_use_it() {
    if !Tool::Browser.is_available() {
        return;
    }
    let gateway = Gateway::start_unconfigured().await;
    let link = login_link(&gateway);
    let browser = Browser::start().await;
    // Chat apps and mail scanners open links too.
    for _ in 0..2 {
        browser.open(&link).await;
        wait_for_text(&browser, "signs you in as admin").await;
        assert!(browser.cookies().await.is_empty());
    }
    browser.click("form button").await;
    wait_for_path(&browser, "/").await;
    browser.find("nav a[href='/settings']").await;

    let other = Browser::start().await;
    other.open(&link).await;
    other.click("form button").await;
    wait_for_text(&other, "was already used").await;
    assert!(other.cookies().await.is_empty());
    // The token still works.
    sign_in(&other, &gateway).await;
    other.find("nav a[href='/settings']").await;
    browser.assert_no_console_errors().await;
    other.assert_no_console_errors_except(&["status of 401"]).await;
}
