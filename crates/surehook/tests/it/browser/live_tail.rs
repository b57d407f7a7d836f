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
};

const SENDERS: u64 = 50;
/// Each sends so many, one every fifty milliseconds: together 1,000 a second for five seconds, or as
/// fast as the machine can.
const EACH: u64 = 100;
const EVERY: Duration = Duration::from_millis(50);

/// No more rows than that are ever in the page.
const ROWS_MAX: u64 = 200;

fn send_all(gateway: &Gateway, sent: &Arc<AtomicU64>) -> JoinSet<()> {
    let mut senders = JoinSet::new();
    for sender in 0..SENDERS {
        let (address, sent) = (gateway.address(), Arc::clone(sent));
        senders.spawn(async move {
            let mut line = RawConnection::connect(address).await;
            let mut beat = interval(EVERY);
            for number in 0..EACH {
                beat.tick().await;
                let body = format!(r#"{{"id":"{sender}-{number}","type":"order.created"}}"#);
                let head =
                    "POST /in/in HTTP/1.1\r\nhost: gateway\r\ncontent-type: application/json";
                let length = body.len();
                line.write(format!("{head}\r\ncontent-length: {length}\r\n\r\n{body}")).await;
                assert_eq!(line.read_response().await.unwrap().status, 200);
                sent.fetch_add(1, Ordering::SeqCst);
            }
        });
    }
    senders
}

/// How many frames were drawn since the page was opened, the rows that are there, the first of
/// them, and all that was counted. Answered only once a frame could be drawn.
const LOOK: &str = "const done = arguments[0]; requestAnimationFrame(() => done([
    window.frames_drawn,
    document.querySelectorAll('live-tail tbody tr').length,
    document.querySelector('live-tail tbody tr')?.innerText ?? '',
    document.querySelector('live-tail').total,
]))";

const COUNT_FRAMES: &str = "window.frames_drawn = 0;
    const draw = () => { window.frames_drawn += 1; requestAnimationFrame(draw); }; draw()";

async fn look(browser: &Browser) -> Value {
    let seen = browser.run_async(LOOK, &[]).await;
    assert!(seen[1].as_u64().unwrap() <= ROWS_MAX, "{seen}");
    seen
}

/// Whether the button would do this now.
fn button_says(word: &str) -> String {
    let words = format!("document.querySelector('live-tail').dataset.{word}");
    format!("document.querySelector('.tail-pause').innerText.trim() === {words}")
}

#[tokio::test]
async fn heavy_live_tail_stays_responsive_at_a_thousand_events_per_second() {
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
    let mut looks = vec![look(&browser).await];
    while sent.load(Ordering::SeqCst) < SENDERS * EACH / 3 {
        looks.push(look(&browser).await);
    }

    // In the middle of it somebody stops the rows; what comes is still counted.
    browser.click(".tail-pause").await;
    browser.wait_until(&button_says("resume")).await;
    let held = look(&browser).await;
    while sent.load(Ordering::SeqCst) < 2 * SENDERS * EACH / 3 {
        let seen = look(&browser).await;
        assert_eq!((&seen[1], &seen[2]), (&held[1], &held[2]), "rows move though they are held");
        looks.push(seen);
    }
    assert!(looks.last().unwrap()[3].as_u64() > held[3].as_u64(), "{held} {looks:?}");
    browser.click(".tail-pause").await;
    browser.wait_until(&button_says("pause")).await;
    while let Some(sender) = senders.try_join_next() {
        sender.unwrap();
    }
    senders.join_all().await;

    // Everything was counted: each came in and was delivered.
    let all = 2 * SENDERS * EACH;
    browser.wait_until(&format!("document.querySelector('live-tail').total >= {all}")).await;
    looks.push(look(&browser).await);
    let numbers = |at: usize| looks.iter().map(move |look| look[at].as_u64().unwrap());
    assert!(numbers(0).is_sorted() && numbers(3).is_sorted(), "{looks:?}");
    assert!(looks.len() > 10, "the page answered {} times only", looks.len());
    assert_ne!(looks[0][2], looks.last().unwrap()[2], "rows moved");
    assert_eq!(looks.last().unwrap()[1], json!(ROWS_MAX));
    browser.assert_no_console_errors().await;
}
