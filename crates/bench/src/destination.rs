//! A destination as the generator sees it: a sink in its own process, to be asked what arrived.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use crate::child::ServerProcess;
use crate::control;
use crate::sink::ArrivalReport;

/// A sink that got nothing new for so long will get no more.
const DRAIN_PATIENCE: Duration = Duration::from_secs(60);
const ASK_EVERY: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(crate) struct SinkProcess {
    child: ServerProcess,
}

impl SinkProcess {
    /// `child` is a sink that is ready.
    pub(crate) fn new(child: ServerProcess) -> Self {
        Self { child }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.child.addr()
    }

    /// Begins to count anew.
    pub(crate) async fn clear(&self) -> Result<()> {
        let said = control::call(self.addr(), "DELETE", "/arrivals").await?;
        ensure!(said.status == 200, "the sink answered {}", said.status);
        Ok(())
    }

    async fn count(&self) -> Result<u64> {
        let said = control::call(self.addr(), "GET", "/count").await?;
        str::from_utf8(&said.body)?.parse().context("cannot read the sink's count")
    }

    async fn arrivals(&self) -> Result<ArrivalReport> {
        let said = control::call(self.addr(), "GET", "/arrivals").await?;
        serde_json::from_slice(&said.body).context("cannot read the sink's arrivals")
    }
}

/// Waits until `expected` events have arrived, over all of `destinations`, since they began to
/// count, and joins what they saw.
///
/// More may have arrived: a gateway delivers at least once. Fails if some arrived changed.
pub(crate) async fn drained(destinations: &[SinkProcess], expected: u64) -> Result<ArrivalReport> {
    arrived(destinations, expected).await?;
    let mut joined = ArrivalReport::default();
    for destination in destinations {
        joined.join(destination.arrivals().await?);
    }
    let ArrivalReport { count, unreadable, .. } = joined;
    ensure!(unreadable == 0, "{unreadable} of {count} bodies arrived changed");
    Ok(joined)
}

/// Waits until `expected` events have arrived, whatever their bodies look like.
pub(crate) async fn arrived(destinations: &[SinkProcess], expected: u64) -> Result<()> {
    let mut seen = 0;
    let mut moved_at = Instant::now();
    loop {
        let mut count = 0;
        for destination in destinations {
            count += destination.count().await?;
        }
        if count >= expected {
            return Ok(());
        }
        if count != seen {
            seen = count;
            moved_at = Instant::now();
        }
        ensure!(
            moved_at.elapsed() < DRAIN_PATIENCE,
            "of {expected} accepted events {count} arrived, and none in the last {DRAIN_PATIENCE:?}"
        );
        tokio::time::sleep(ASK_EVERY).await;
    }
}
