//! The start page of an empty gateway, up to the first event.

use std::process::Stdio;

use super::{wait_for_page, wait_for_path};
use crate::support::{browser::Browser, gateway::Gateway, tools::Tool};

#[tokio::test]
async fn start_page_command_sends_the_first_event_and_the_page_updates() {
    if !Tool::Browser.is_available() {
        return;
    }
    let gateway = Gateway::start_unconfigured().await;
    let browser = Browser::start().await;
    super::sign_in(&browser, &gateway).await;
    wait_for_path(&browser, "/").await;
    let line = browser.text("#start-line").await;
    assert!(line.contains(&gateway.url("/in/demo")), "{line}");
    // Set on the window, to notice if the page is reloaded.
    browser.run("window.isTheSamePage = true", &[]).await;

    // The printed command works unchanged.
    let output = tokio::process::Command::new("sh")
        .args(["-c", &line])
        .stdin(Stdio::null())
        .output()
        .await
        .unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && stdout.contains("accepted"), "{output:?}");

    browser.wait_until("document.querySelector('.start-done a[href^=\"/events/evt_\"]')").await;
    assert_eq!(browser.run("return window.isTheSamePage", &[]).await, true);
    browser.click(".start-done a[href^='/events/evt_']").await;
    wait_for_page(&browser, "location.pathname.startsWith('/events/evt_')").await;
    assert!(browser.text("#body").await.contains("hello-1"));
    browser.assert_no_console_errors().await;
}
