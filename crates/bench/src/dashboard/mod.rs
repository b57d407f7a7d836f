//! Dashboard phase: response time of every page with a large store, while events are received.
//!
//! The store is filled by HTTP requests ([`fill`]): messages of a thousand people, orders, dead
//! letters with a few causes, duplicates, refused requests, replay jobs and sent messages. Then
//! events are received and delivered at a fixed rate, while one user opens every page ([`pages`]) in
//! turn without a pause. The result is the time to the first byte.

mod fill;
mod pages;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;
use hdrhistogram::Histogram;
use serde::Serialize;

use self::fill::{ORDERS_SOURCE, PEOPLE, WHATSAPP_SOURCE};
use self::pages::{DashboardBrowser, PAGES};
use crate::bench_run::{BenchRun, run_load};
use crate::gateway::Gateway;
use crate::latency::{self, LatencySummary};
use crate::load::{LoadPlan, SendRate, StopCondition};
use crate::request::BodyShape;
use crate::whatsapp::KEY_PREFIX;

/// With fewer events a page would be empty.
pub(crate) const DASHBOARD_EVENTS_MIN: u64 = 1_000;
const P95_TARGET_US: u64 = 100_000;
/// Per source; there are two.
const LIVE_PER_SECOND_EACH: f64 = 1_000.0;
/// At 1,000 events a second each connection has 32 ms to answer before the next is due.
const LIVE_CONNECTIONS_EACH: usize = 32;
/// The last requests of a paced load may be missing from the rate.
const LIVE_SHARE_TARGET: f64 = 0.99;

/// Response times of the dashboard pages.
#[derive(Clone, Debug, Serialize)]
pub struct DashboardReport {
    /// Stored events before the first page was opened.
    pub events: u64,
    /// Size of the data folder at that time.
    pub data_bytes: u64,
    pub samples: u64,
    pub p95_target_us: u64,
    pub pages: Vec<DashboardPageReport>,
    /// Rate at which events were sent meanwhile.
    pub live_per_second_target: f64,
    /// Rate at which they were accepted.
    pub live_per_second: f64,
    /// From sending an event to receiving its response.
    pub live_latency: LatencySummary,
}

impl DashboardReport {
    /// Whether every page was found and met the target.
    pub fn pages_met(&self) -> bool {
        self.pages.iter().all(|page| page.status == 200 && page.p95_us <= self.p95_target_us)
    }

    /// Whether live events were accepted at the rate at which they were sent.
    pub fn live_met(&self) -> bool {
        self.live_per_second >= LIVE_SHARE_TARGET * self.live_per_second_target
    }
}

/// Time to the first byte of one page.
#[derive(Clone, Debug, Serialize)]
pub struct DashboardPageReport {
    /// The path, with placeholders for values that differ between runs.
    pub page: String,
    /// The last HTTP status.
    pub status: u16,
    pub p50_us: u64,
    pub p95_us: u64,
    pub max_us: u64,
}

pub(crate) async fn measure(run: &BenchRun) -> Result<DashboardReport> {
    let samples = run.options.page_samples;
    run.progress.set_total(fill::STEPS + samples);
    let filled = fill::fill_store(run).await?;
    let data_bytes = filled.gateway.data_bytes()?;
    let mut browser = DashboardBrowser::sign_in(&filled.gateway, &filled.placeholders).await?;
    // The first round is not counted, because nothing is cached yet.
    browser.open_all_pages().await?;
    browser.reset_times();

    let stop = Arc::new(AtomicBool::new(false));
    let browsing = async {
        // The load ends with the browsing, also if that fails.
        let _stop = StopOnDrop(Arc::clone(&stop));
        for sample in 0..samples {
            run.progress.start_step(format!(
                "all {} pages, {} of {samples}",
                PAGES.len(),
                sample + 1
            ));
            browser.open_all_pages().await?;
            run.progress.finish_step();
        }
        anyhow::Ok(())
    };
    let (live, ()) = tokio::try_join!(send_live_traffic(run, &filled.gateway, &stop), browsing)?;
    Ok(DashboardReport {
        events: run.options.dashboard_events,
        data_bytes,
        samples,
        p95_target_us: P95_TARGET_US,
        pages: browser.report(),
        live_per_second_target: 2.0 * LIVE_PER_SECOND_EACH,
        live_per_second: live.per_second,
        live_latency: live.latency,
    })
}

struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

struct LiveTraffic {
    per_second: f64,
    latency: LatencySummary,
}

/// Sends messages and orders at a fixed rate until `stop` is set.
async fn send_live_traffic(
    run: &BenchRun,
    gateway: &Gateway,
    stop: &Arc<AtomicBool>,
) -> Result<LiveTraffic> {
    let orders = LoadPlan {
        until: StopCondition::Signaled(Arc::clone(stop)),
        pace: SendRate::PerSecond(LIVE_PER_SECOND_EACH),
        connections: LIVE_CONNECTIONS_EACH,
        ..run.default_plan(gateway.child.addr(), ORDERS_SOURCE)
    };
    let shape = BodyShape::WhatsApp { key_prefix: KEY_PREFIX, people: PEOPLE };
    let chats = LoadPlan { sources: vec![WHATSAPP_SOURCE.to_owned()], shape, ..orders.clone() };
    let (orders, chats) =
        tokio::try_join!(run_load(&gateway.child, orders), run_load(&gateway.child, chats))?;
    let mut both: Histogram<u64> = latency::histogram();
    both.add(&orders.latency)?;
    both.add(&chats.latency)?;
    Ok(LiveTraffic {
        per_second: orders.per_second() + chats.per_second(),
        latency: LatencySummary::from_histogram(&both),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_or_missing_page_misses_the_target() {
        let page = |status, p95_us| DashboardPageReport {
            page: "/".to_owned(),
            status,
            p50_us: 1,
            p95_us,
            max_us: 999_999,
        };
        let report = |page| DashboardReport {
            events: 1,
            data_bytes: 1,
            samples: 1,
            p95_target_us: P95_TARGET_US,
            pages: vec![page],
            live_per_second_target: 2_000.0,
            live_per_second: 1_980.0,
            live_latency: LatencySummary { p50_us: 1, p99_us: 1, max_us: 1 },
        };
        let cases = [(200, 100_000, true), (200, 100_001, false), (404, 1, false)];
        for (status, p95_us, met) in cases {
            let report = report(page(status, p95_us));
            assert_eq!(report.pages_met(), met, "{status} in {p95_us}");
            assert!(report.live_met());
        }
    }
}
