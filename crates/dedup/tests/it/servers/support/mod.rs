//! Real servers for the tests, found where `scripts/setup` put them.

pub(crate) mod proxy;
pub(crate) mod redis_server;

use std::{
    net::TcpListener,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// Set to `1` in the environment, tests whose server is missing are skipped instead of failing.
const ALLOW_SKIPPED: &str = "SUREHOOK_ALLOW_SKIPPED";
/// More than anything here takes on a busy machine.
pub(crate) const WAIT_LIMIT: Duration = Duration::from_secs(30);

/// The program that `scripts/setup` linked below `target/`. Fails the test if it is missing, unless
/// skipping is allowed.
#[track_caller]
#[expect(clippy::print_stderr, reason = "the output of a test run shows what was skipped")]
pub(crate) fn find_program(part: &str, name: &str) -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let path = target.join(part).join(name);
    if path.exists() {
        return Some(path);
    }
    let is_skip_allowed = std::env::var_os(ALLOW_SKIPPED).is_some_and(|value| value == "1");
    assert!(
        is_skip_allowed,
        "{part} is not installed; run scripts/setup {part}, or set {ALLOW_SKIPPED}=1 to skip"
    );
    eprintln!("skipped: {part} is not installed; run scripts/setup {part}");
    None
}

/// A port that nothing listens on.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Asks again until there is an answer.
pub(crate) async fn eventually<T, F: Future<Output = Option<T>>>(
    what: &str,
    mut ask: impl FnMut() -> F,
) -> T {
    let started = Instant::now();
    loop {
        if let Some(value) = ask().await {
            return value;
        }
        assert!(started.elapsed() < WAIT_LIMIT, "waited too long until {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
