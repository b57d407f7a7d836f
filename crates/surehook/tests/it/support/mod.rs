//! What the stories need and are not about: a gateway to start, a destination to deliver to, a
//! client that may misbehave, and a way to wait for a fact.

pub(crate) mod browser;
pub(crate) mod client;
pub(crate) mod dashboard;
pub(crate) mod fake_channels;
pub(crate) mod fake_clock;
pub(crate) mod gateway;
pub(crate) mod process;
pub(crate) mod proxy;
pub(crate) mod raw;
pub(crate) mod redis;
pub(crate) mod s3;
pub(crate) mod sink;
pub(crate) mod tls;
pub(crate) mod vendor_libraries;
pub(crate) mod xss;

use std::{
    future::Future,
    panic::Location,
    time::{Duration, Instant},
};

use serde_json::Value;

/// Within this time everything that is going to happen has happened, also on a busy machine. It
/// bounds how long a failing test takes; one that passes waits no longer than it must.
pub(crate) const WAIT_LIMIT: Duration = Duration::from_secs(30);

/// How often a fact is looked for.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Looks until `probe` finds something. Fails the test when it has not after `deadline`.
#[track_caller]
pub(crate) fn eventually<T, F, P>(deadline: Duration, mut probe: F) -> impl Future<Output = T>
where
    F: FnMut() -> P,
    P: Future<Output = Option<T>>,
{
    let asked_at = Location::caller();
    async move {
        let begun = Instant::now();
        loop {
            if let Some(found) = probe().await {
                return found;
            }
            assert!(begun.elapsed() < deadline, "waited in vain, asked at {asked_at}");
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

/// Seconds since 1970, for signatures with a timestamp.
#[expect(clippy::disallowed_methods, reason = "the binary under test runs on the real clock")]
pub(crate) fn unix_now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    i64::try_from(since.as_secs()).unwrap()
}

/// A time of the API in milliseconds since 1970.
#[track_caller]
pub(crate) fn millis(time: &Value) -> i64 {
    let time: surehook_core::time::Timestamp = time.as_str().unwrap().parse().unwrap();
    time.as_millis()
}
