//! The live tail under load.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::{task::JoinSet, time::interval};

use super::{sign_in, wait_for_path};
use crate::support::{
    browser::Browser,
    gateway::{Gateway, route_settings},
    raw::RawConnection,
    sink::Sink,
    tools::Tool,
};

const SENDERS: u64 = 50;
/// Events per sender and part, one every 50 ms: together 1,000 per second, or as fast as the machine
/// can.
const EACH: u64 = 34;
const EVERY: Duration = Duration::from_millis(50);
/// Before, during and after the pause.
const PARTS: u64 = 3;

/// Maximum number of rows on the page.
const ROWS_MAX: u64 = 200;

/// Sends one part of the events in the background.
fn spawn_senders(gateway: &Gateway, part: u64) -> JoinSet<()> {
    let mut senders = JoinSet::new();
    for sender in 0..SENDERS {
        let address = gateway.address();
        senders.spawn(async move {
            let mut connection = RawConnection::connect(address).await;
            let mut beat = interval(EVERY);
            for number in 0..EACH {
                beat.tick().await;
                let body = format!(r#"{{"id":"{part}-{sender}-{number}","type":"order.created"}}"#);
                let head =
                    "POST /in/in HTTP/1.1\r\nhost: gateway\r\ncontent-type: application/json";
                let length = body.len();
                connection.write(format!("{head}\r\ncontent-length: {length}\r\n\r\n{body}")).await;
                assert_eq!(connection.read_response().await.unwrap().status, 200);
            }
        });
    }
    senders
}

/// Frames drawn since the page was opened, number of rows, first row, and total count. Returns only
/// after a frame was drawn.
const SAMPLE_PAGE: &str = "const done = arguments[0]; requestAnimationFrame(() => done([
    window.frames_drawn,
    document.querySelectorAll('live-tail tbody tr').length,
    document.querySelector('live-tail tbody tr')?.innerText ?? '',
    document.querySelector('live-tail').total,
]))";

const COUNT_FRAMES: &str = "window.frames_drawn = 0;
    const draw = () => { window.frames_drawn += 1; requestAnimationFrame(draw); }; draw()";

async fn sample_page(browser: &Browser) -> Value {
    let seen = browser.run_async(SAMPLE_PAGE, &[]).await;
    assert!(seen[1].as_u64().unwrap() <= ROWS_MAX, "{seen}");
    seen
}

/// Samples the page until all of these events are sent, at least once.
async fn sample_until_sent(browser: &Browser, mut senders: JoinSet<()>) -> Vec<Value> {
    let mut samples = Vec::new();
    loop {
        samples.push(sample_page(browser).await);
        while let Some(ended) = senders.try_join_next() {
            ended.unwrap();
        }
        if senders.is_empty() {
            return samples;
        }
    }
}

/// Waits until the page has counted this many updates.
async fn wait_for_total(browser: &Browser, total: u64) {
    browser.wait_until(&format!("document.querySelector('live-tail').total >= {total}")).await;
}

/// An expression: whether the button has this label.
fn has_button_label(word: &str) -> String {
    let words = format!("document.querySelector('live-tail').dataset.{word}");
    format!("document.querySelector('.tail-pause').innerText.trim() === {words}")
}

#[tokio::test]
async fn heavy_live_tail_stays_responsive_at_a_thousand_events_per_second() {
    if !Tool::Browser.is_available() {
        return;
    }
    let sink = Sink::ok().await;
    let gateway = Gateway::start_with(&route_settings(&sink.url(), "")).await;
    let browser = Browser::start().await;
    sign_in(&browser, &gateway).await;
    browser.click("nav a[href='/live']").await;
    wait_for_path(&browser, "/live").await;
    browser.run(COUNT_FRAMES, &[]).await;

    let senders = spawn_senders(&gateway, 1);
    browser.find("live-tail tbody tr").await;
    let mut samples = sample_until_sent(&browser, senders).await;

    // Paused, the rows stand still and events are still counted.
    browser.click(".tail-pause").await;
    browser.wait_until(&has_button_label("resume")).await;
    let paused = sample_page(&browser).await;
    let mut while_paused = sample_until_sent(&browser, spawn_senders(&gateway, 2)).await;
    wait_for_total(&browser, paused[3].as_u64().unwrap() + 1).await;
    while_paused.push(sample_page(&browser).await);
    for seen in &while_paused {
        assert_eq!((&seen[1], &seen[2]), (&paused[1], &paused[2]), "rows change while paused");
    }
    samples.extend(while_paused);
    browser.click(".tail-pause").await;
    browser.wait_until(&has_button_label("pause")).await;
    samples.extend(sample_until_sent(&browser, spawn_senders(&gateway, 3)).await);

    // Every event was counted twice: received and delivered.
    wait_for_total(&browser, 2 * PARTS * SENDERS * EACH).await;
    samples.push(sample_page(&browser).await);
    let numbers = |at: usize| samples.iter().map(move |sample| sample[at].as_u64().unwrap());
    assert!(numbers(0).is_sorted() && numbers(3).is_sorted(), "{samples:?}");
    assert_ne!(samples[0][2], samples.last().unwrap()[2], "rows moved");
    assert_eq!(samples.last().unwrap()[1], json!(ROWS_MAX));
    browser.assert_no_console_errors().await;
}
