//! The way in and out of the dashboard.

use super::{is_at, is_on, says, sign_in};
use crate::support::{
    browser::{Browser, key},
    gateway::Gateway,
};

/// The link that `serve` printed.
fn link(gateway: &Gateway) -> String {
    let printed = gateway.stdout();
    let link = printed.lines().find_map(|line| line.trim_start().strip_prefix("dashboard"));
    let link = link.unwrap_or_else(|| panic!("no link in {printed}"));
    let link = link.split_whitespace().next().unwrap();
    assert!(link.starts_with(&gateway.url("/login?code=")), "{link}");
    link.to_owned()
}

#[tokio::test]
async fn a_token_leads_to_the_page_that_was_asked_for_and_out_again() {
    let gateway = Gateway::start().await;
    let browser = Browser::start().await;
    browser.goto(&gateway.url("/dead-letters/all?q=reason:expired")).await;
    is_on(&browser, "/login").await;

    browser.type_into("#token", "not-a-token-of-this-gateway").await;
    browser.keys(key::ENTER).await;
    says(&browser, "This token or link is invalid").await;
    assert!(browser.cookies().await.is_empty());

    browser.type_into("#token", gateway.token()).await;
    browser.click("form button").await;
    is_at(&browser, "location.pathname + location.search === '/dead-letters/all?q=reason:expired'")
        .await;
    let cookies = browser.cookies().await;
    let session = cookies.iter().find(|cookie| cookie["name"] == "surehook_session").unwrap();
    assert_eq!((&session["httpOnly"], &session["sameSite"]), (&true.into(), &"Lax".into()));

    browser.click("form[action='/logout'] button").await;
    is_on(&browser, "/login").await;
    browser.goto(&gateway.url("/events")).await;
    is_on(&browser, "/login").await;
    // The refusal of the wrong token.
    browser.assert_quiet_but(&["status of 401"]).await;
}

#[tokio::test]
async fn the_link_that_serve_prints_opens_once_and_looking_at_it_does_not_use_it_up() {
    let gateway = Gateway::newcomer().await;
    let link = link(&gateway);
    let browser = Browser::start().await;
    // What a chat or a scanner of mail would do.
    for _ in 0..2 {
        browser.goto(&link).await;
        says(&browser, "signs you in as admin").await;
        assert!(browser.cookies().await.is_empty());
    }
    browser.click("form button").await;
    is_on(&browser, "/").await;
    browser.find("nav a[href='/settings']").await;

    let other = Browser::start().await;
    other.goto(&link).await;
    other.click("form button").await;
    says(&other, "was already used").await;
    assert!(other.cookies().await.is_empty());
    // The token still opens.
    sign_in(&other, &gateway).await;
    other.find("nav a[href='/settings']").await;
    browser.assert_quiet().await;
    other.assert_quiet_but(&["status of 401"]).await;
}
