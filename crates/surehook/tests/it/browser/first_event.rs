//! What a newcomer sees: an empty gateway that leads to the first event and moves when it comes.

use std::process::Stdio;

use super::{wait_for_page, wait_for_path};
use crate::support::{browser::Browser, gateway::Gateway};

#[tokio::test]
async fn start_page_command_sends_the_first_event_and_the_page_updates() {
    let gateway = Gateway::start_unconfigured().await;
    let browser = Browser::start().await;
    super::sign_in(&browser, &gateway).await;
    wait_for_path(&browser, "/").await;
    let line = browser.text("#start-line").await;
    assert!(line.contains(&gateway.url("/in/demo")), "{line}");
    // Whether the page is still the same one is seen by what is left on it.
    browser.run("window.isTheSamePage = true", &[]).await;

    // The line works as it stands there.
    let ran = tokio::process::Command::new("sh")
        .args(["-c", &line])
        .stdin(Stdio::null())
        .output()
        .await
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(ran.status.success() && said.contains("accepted"), "{ran:?}");

    browser.wait_until("document.querySelector('.start-done a[href^=\"/events/evt_\"]')").await;
    assert_eq!(browser.run("return window.isTheSamePage", &[]).await, true);
    browser.click(".start-done a[href^='/events/evt_']").await;
    wait_for_page(&browser, "location.pathname.startsWith('/events/evt_')").await;
    assert!(browser.text("#body").await.contains("hello-1"));
    browser.assert_no_console_errors().await;
}
