//! A sink in its own process: the destination of a benchmark, which reports the events that arrived.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use crate::control;
use crate::server_process::ServerProcess;
use crate::sink::ArrivalReport;

/// If no event arrives for this long, the rest is considered lost.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(crate) struct SinkProcess {
    child: ServerProcess,
}

impl SinkProcess {
    /// `child` must be a sink that is ready.
    pub(crate) fn new(child: ServerProcess) -> Self {
        Self { child }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.child.addr()
    }

    /// Resets the counters of the sink.
    pub(crate) async fn reset(&self) -> Result<()> {
        let response = control::call(self.addr(), "DELETE", "/arrivals").await?;
        ensure!(response.status() == 200, "the sink answered {}", response.status());
        Ok(())
    }

    async fn count(&self) -> Result<u64> {
        let response = control::call(self.addr(), "GET", "/count").await?;
        str::from_utf8(response.body())?.parse().context("cannot parse the sink's count")
    }

    async fn arrivals(&self) -> Result<ArrivalReport> {
        let response = control::call(self.addr(), "GET", "/arrivals").await?;
        serde_json::from_slice(response.body()).context("cannot parse the sink's arrivals")
    }
}

/// Waits until `expected` events have arrived at `destinations` since they were reset, and
/// returns the merged report.
///
/// More may have arrived: a gateway delivers at least once. Fails if a body arrived changed.
pub(crate) async fn wait_until_drained(
    destinations: &[SinkProcess],
    expected: u64,
) -> Result<ArrivalReport> {
    wait_for_arrivals(destinations, expected).await?;
    let mut merged = ArrivalReport::default();
    for destination in destinations {
        merged.merge(destination.arrivals().await?);
    }
    let ArrivalReport { count, unreadable, .. } = merged;
    ensure!(unreadable == 0, "{unreadable} of {count} bodies arrived changed");
    Ok(merged)
}

/// Waits until `expected` events have arrived, without checking their bodies.
pub(crate) async fn wait_for_arrivals(destinations: &[SinkProcess], expected: u64) -> Result<()> {
    let mut last_count = 0;
    let mut changed_at = Instant::now();
    loop {
        let mut count = 0;
        for destination in destinations {
            count += destination.count().await?;
        }
        if count >= expected {
            return Ok(());
        }
        if count != last_count {
            last_count = count;
            changed_at = Instant::now();
        }
        ensure!(
            changed_at.elapsed() < DRAIN_TIMEOUT,
            "only {count} of {expected} accepted events arrived, and none in the last {DRAIN_TIMEOUT:?}"
        );
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
