//! The live tail under load.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

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
/// Events per sender, one every 50 ms: together 1,000 per second for five seconds, or as fast as the
/// machine can.
const EACH: u64 = 100;
const EVERY: Duration = Duration::from_millis(50);

/// Maximum number of rows on the page.
const ROWS_MAX: u64 = 200;

fn send_all(gateway: &Gateway, sent: &Arc<AtomicU64>) -> JoinSet<()> {
    let mut senders = JoinSet::new();
    for sender in 0..SENDERS {
        let (address, sent) = (gateway.address(), Arc::clone(sent));
        senders.spawn(async move {
            let mut connection = RawConnection::connect(address).await;
            let mut beat = interval(EVERY);
            for number in 0..EACH {
                beat.tick().await;
                let body = format!(r#"{{"id":"{sender}-{number}","type":"order.created"}}"#);
                let head =
                    "POST /in/in HTTP/1.1\r\nhost: gateway\r\ncontent-type: application/json";
                let length = body.len();
                connection.write(format!("{head}\r\ncontent-length: {length}\r\n\r\n{body}")).await;
                assert_eq!(connection.read_response().await.unwrap().status, 200);
                sent.fetch_add(1, Ordering::SeqCst);
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

    let sent = Arc::new(AtomicU64::new(0));
    let mut senders = send_all(&gateway, &sent);
    browser.find("live-tail tbody tr").await;
    let mut samples = vec![sample_page(&browser).await];
    while sent.load(Ordering::SeqCst) < SENDERS * EACH / 3 {
        samples.push(sample_page(&browser).await);
    }

    // Paused halfway, the rows stand still and events are still counted.
    browser.click(".tail-pause").await;
    browser.wait_until(&has_button_label("resume")).await;
    let paused = sample_page(&browser).await;
    while sent.load(Ordering::SeqCst) < 2 * SENDERS * EACH / 3 {
        let seen = sample_page(&browser).await;
        assert_eq!((&seen[1], &seen[2]), (&paused[1], &paused[2]), "rows change while paused");
        samples.push(seen);
    }
    assert!(samples.last().unwrap()[3].as_u64() > paused[3].as_u64(), "{paused} {samples:?}");
    browser.click(".tail-pause").await;
    browser.wait_until(&has_button_label("pause")).await;
    while let Some(sender) = senders.try_join_next() {
        sender.unwrap();
    }
    senders.join_all().await;

    // Every event was counted twice: received and delivered.
    let all = 2 * SENDERS * EACH;
    browser.wait_until(&format!("document.querySelector('live-tail').total >= {all}")).await;
    samples.push(sample_page(&browser).await);
    let numbers = |at: usize| samples.iter().map(move |sample| sample[at].as_u64().unwrap());
    assert!(numbers(0).is_sorted() && numbers(3).is_sorted(), "{samples:?}");
    assert!(samples.len() > 10, "the page responded only {} times", samples.len());
    assert_ne!(samples[0][2], samples.last().unwrap()[2], "rows moved");
    assert_eq!(samples.last().unwrap()[1], json!(ROWS_MAX));
    browser.assert_no_console_errors().await;
}
