//! Shared by the integration tests: gateways to start, destinations and channels to deliver to,
//! clients (also misbehaving ones), external tools, and a way to wait for a condition.

pub(crate) mod browser;
pub(crate) mod client;
pub(crate) mod dashboard;
pub(crate) mod fake_channels;
pub(crate) mod fake_clock;
pub(crate) mod gateway;
pub(crate) mod lossy_proxy;
pub(crate) mod otlp;
pub(crate) mod process;
pub(crate) mod proxy;
pub(crate) mod raw;
pub(crate) mod redis;
pub(crate) mod s3;
pub(crate) mod sink;
pub(crate) mod smtp;
pub(crate) mod tls;
pub(crate) mod tools;
pub(crate) mod vendor_libraries;
pub(crate) mod xss;

use std::{
    future::Future,
    panic::Location,
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use serde_json::Value;

/// Longest wait for a condition, generous enough for a busy machine. Only failing tests wait that
/// long.
pub(crate) const WAIT_LIMIT: Duration = Duration::from_secs(30);

/// Pause between two checks of a condition.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Calls `probe` until it returns a value. Fails the test if it has not after `deadline`.
#[track_caller]
pub(crate) fn eventually<T, F, P>(deadline: Duration, mut probe: F) -> impl Future<Output = T>
where
    F: FnMut() -> P,
    P: Future<Output = Option<T>>,
{
    let caller = Location::caller();
    async move {
        let started = Instant::now();
        loop {
            if let Some(value) = probe().await {
                return value;
            }
            assert!(started.elapsed() < deadline, "condition not met in time, waiting at {caller}");
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

/// The current Unix time in seconds, for signatures with a timestamp.
#[expect(clippy::disallowed_methods, reason = "the binary under test runs on the real clock")]
pub(crate) fn unix_now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    i64::try_from(since.as_secs()).unwrap()
}

/// Parses a time of the API into Unix milliseconds.
#[track_caller]
pub(crate) fn millis(time: &Value) -> i64 {
    let time: surehook_types::time::Timestamp = time.as_str().unwrap().parse().unwrap();
    time.as_millis()
}

/// Finds a free port below 32,768: the system does not hand those out, so the port stays free until
/// the server starts and while it is stopped. Each test begins its search at another port.
pub(crate) fn free_port() -> u16 {
    static SEARCHES: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id() + 100 * SEARCHES.fetch_add(1, Ordering::Relaxed);
    (0..22_000)
        .map(|next| 10_240 + u16::try_from((first + next) % 22_000).unwrap())
        .find(|port| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .expect("all ports are taken")
}
