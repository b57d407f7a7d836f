//! A bulk replay that is cancelled halfway.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use super::{sign_in, wait_for_page, wait_for_path, wait_for_text};
use crate::support::{
    WAIT_LIMIT,
    browser::Browser,
    eventually,
    gateway::{Gateway, route_settings},
    sink::{Reply, Sink},
    tools::Tool,
};

const DEAD_LETTERS: u64 = 300;

/// Selected, queued, in flight, succeeded, failed again, skipped, cancelled, remaining.
async fn shown_counts(browser: &Browser) -> [u64; 8] {
    let counts =
        "return [...document.querySelectorAll('#counts dd[id]')].map(dd => Number(dd.textContent))";
    serde_json::from_value(browser.run(counts, &[]).await).unwrap()
}

async fn count_dead(gateway: &Gateway) -> u64 {
    gateway.stats().await["by_status"]["dead"].as_u64().unwrap_or_default()
}

#[tokio::test]
async fn bulk_replay_needs_a_typed_count_and_stops_when_cancelled() {
    if !Tool::Browser.is_available() {
        return;
    }
    let is_working = Arc::new(AtomicBool::new(false));
    let works = Arc::clone(&is_working);
    let sink = Sink::with_script(move |_, _| {
        Reply::status(if works.load(Ordering::SeqCst) { 200 } else { 400 })
    })
    .await;
    let gateway = Gateway::start_with(&route_settings(&sink.url(), "")).await;
    for number in 0..DEAD_LETTERS {
        gateway.post_accepted("in", format!(r#"{{"id":"bulk-{number}"}}"#)).await;
    }
    eventually(WAIT_LIMIT, || async { (count_dead(&gateway).await == DEAD_LETTERS).then_some(()) })
        .await;
    is_working.store(true, Ordering::SeqCst);
    let before = sink.count();

    let browser = Browser::start().await;
    sign_in(&browser, &gateway).await;
    browser.open(&gateway.url("/dead-letters/all?q=dest:out")).await;
    browser.click(".head .actions a[href^='/replays/new']").await;
    wait_for_path(&browser, "/replays/new").await;
    browser.type_into("#r-rate", "20/s").await;
    browser.type_into("#r-note", "after the outage").await;
    browser.click("form[action='/replays/new'] button").await;
    wait_for_page(&browser, "location.search.includes('rate=20')").await;
    assert_eq!(browser.text("#count").await, DEAD_LETTERS.to_string());
    assert!(browser.text("#preview").await.contains("15 s"), "estimated duration");

    browser.type_into("#typed", "299").await;
    browser.click("#start").await;
    wait_for_text(&browser, "The number you typed is not 300. No replay was started.").await;
    let jobs = gateway.get("/replays").await.expect(200).json();
    assert_eq!(jobs["data"].as_array().unwrap().len(), 0);
    browser.clear("#typed").await;
    browser.type_into("#typed", "300").await;
    browser.click("#start").await;
    wait_for_page(
        &browser,
        "/^\\/replays\\/[^/]+$/.test(location.pathname) && document.querySelector('#job')",
    )
    .await;
    wait_for_text(&browser, "after the outage").await;

    // The page updates by itself; then the job is cancelled.
    browser.wait_until("Number(document.querySelector('#succeeded').textContent) >= 20").await;
    let shown = shown_counts(&browser).await;
    let [selected, queued, in_flight, succeeded, failed, skipped, cancelled, remaining] = shown;
    assert_eq!(selected, DEAD_LETTERS);
    assert_eq!(remaining, queued + in_flight, "{shown:?}");
    assert_eq!(selected, succeeded + failed + skipped + cancelled + remaining, "{shown:?}");
    assert!(succeeded >= 20 && queued > 0, "{shown:?}");
    browser.click("[data-open='#cancel']").await;
    browser.click("#cancel form button.danger").await;
    wait_for_text(&browser, "Replay cancelled").await;
    let id = browser.url().await.rsplit('/').next().unwrap().to_owned();
    let job = eventually(WAIT_LIMIT, || async {
        let job = gateway.get(&format!("/replays/{id}")).await.expect(200).json();
        (job["waiting"] == 0).then_some(job)
    })
    .await;
    assert_eq!(job["state"], "cancelled", "{job}");
    let number = |name: &str| job[name].as_u64().unwrap();
    let sent = number("succeeded");
    assert!((20..DEAD_LETTERS).contains(&sent), "{job}");
    assert_eq!((number("selected"), number("dispatched")), (DEAD_LETTERS, sent), "{job}");
    assert_eq!(
        (number("dead"), number("skipped"), number("left")),
        (0, 0, DEAD_LETTERS - sent),
        "{job}"
    );

    // The page shows the same counts, and the rest is still dead.
    browser.open(&gateway.url(&format!("/replays/{id}"))).await;
    let shown = shown_counts(&browser).await;
    let left = DEAD_LETTERS - sent;
    let expected = [DEAD_LETTERS, 0, 0, sent, 0, 0, 0, left];
    assert_eq!(shown, expected);
    assert!(browser.text("#counts").await.contains(&format!("{left} not sent")));
    assert!(browser.find_all("[data-open='#cancel']").await.is_empty());
    assert_eq!(count_dead(&gateway).await, left);
    assert_eq!(sink.count() - before, usize::try_from(sent).unwrap());
    browser.open(&gateway.url("/dead-letters")).await;
    assert!(browser.text("#groups .count").await.starts_with(&left.to_string()));
    browser.assert_no_console_errors().await;
}
