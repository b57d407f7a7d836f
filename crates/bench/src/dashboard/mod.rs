//! The dashboard: how soon each page answers over a large store, while events come in.
//!
//! The store is filled over the door ([`fill`]): messages of a thousand people, orders, events
//! that are dead of a few causes, duplicates, refused requests, replay jobs and sent messages. Then
//! events keep coming at a fixed rate and are delivered, while one visitor opens every page
//! ([`pages`]) in turn, without a pause. What counts is the time until the answer begins.

mod fill;
mod pages;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;
use hdrhistogram::Histogram;
use serde::Serialize;

use self::fill::{CHATS, ORDERS, PEOPLE};
use self::pages::{DashboardBrowser, PAGES};
use crate::gateway::Gateway;
use crate::lab::{BenchRun, load};
use crate::latency::{self, LatencySummary};
use crate::plan::{LoadPlan, SendRate, StopCondition};
use crate::request::BodyShape;
use crate::whatsapp::KEY_PREFIX;

/// With fewer a page would be empty.
pub(crate) const DASHBOARD_EVENTS_MIN: u64 = 1_000;
const P95_TARGET_US: u64 = 100_000;
/// For each of the two sources.
const LIVE_PER_SECOND_EACH: f64 = 1_000.0;
/// At 1,000 events a second each connection has 32 ms to answer before the next is due.
const LIVE_CONNECTIONS_EACH: usize = 32;
/// What the last moments of an open loop may lack.
const LIVE_SHARE_TARGET: f64 = 0.99;

/// How soon pages answered.
#[derive(Clone, Debug, Serialize)]
pub struct DashboardReport {
    /// In the store before the first page was looked at.
    pub events: u64,
    /// All files of the data folder at that time.
    pub data_bytes: u64,
    pub samples: u64,
    pub p95_target_us: u64,
    pub pages: Vec<DashboardPageReport>,
    /// What was sent meanwhile, and of it what was accepted.
    pub live_per_second_wanted: f64,
    pub live_per_second: f64,
    /// From sending an event to having its answer.
    pub live_latency: LatencySummary,
}

impl DashboardReport {
    /// Whether every page was there and in time.
    pub fn pages_met(&self) -> bool {
        self.pages.iter().all(|page| page.status == 200 && page.p95_us <= self.p95_target_us)
    }

    /// Whether what came in was accepted as fast as it came.
    pub fn live_met(&self) -> bool {
        self.live_per_second >= LIVE_SHARE_TARGET * self.live_per_second_wanted
    }
}

/// One page: the time from asking to the first byte of the answer.
#[derive(Clone, Debug, Serialize)]
pub struct DashboardPageReport {
    /// The address, with names for what differs between runs.
    pub page: String,
    /// What it answered last.
    pub status: u16,
    pub p50_us: u64,
    pub p95_us: u64,
    pub max_us: u64,
}

pub(crate) async fn measure(lab: &BenchRun) -> Result<DashboardReport> {
    let samples = lab.options.page_samples;
    lab.progress.expect(fill::STEPS + samples);
    let filled = fill::fill(lab).await?;
    let data_bytes = filled.gateway.data_bytes()?;
    let mut browser = DashboardBrowser::sign_in(&filled.gateway, &filled.found).await?;
    // Nothing is cached yet, and that is not what a person meets all day.
    browser.look_at_all().await?;
    browser.forget_times();

    let stop = Arc::new(AtomicBool::new(false));
    let looking = async {
        // The load ends with the looks, also with those that failed.
        let _stop = StopOnDrop(Arc::clone(&stop));
        for sample in 0..samples {
            lab.progress.step(format!("all {} pages, {} of {samples}", PAGES.len(), sample + 1));
            browser.look_at_all().await?;
            lab.progress.done();
        }
        anyhow::Ok(())
    };
    let (live, ()) = tokio::try_join!(live(lab, &filled.gateway, &stop), looking)?;
    Ok(DashboardReport {
        events: filled.events,
        data_bytes,
        samples,
        p95_target_us: P95_TARGET_US,
        pages: browser.report(),
        live_per_second_wanted: 2.0 * LIVE_PER_SECOND_EACH,
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

/// Messages and orders at a fixed rate, until `stop` says so.
async fn live(lab: &BenchRun, gateway: &Gateway, stop: &Arc<AtomicBool>) -> Result<LiveTraffic> {
    let orders = LoadPlan {
        until: StopCondition::Signaled(Arc::clone(stop)),
        pace: SendRate::PerSecond(LIVE_PER_SECOND_EACH),
        connections: LIVE_CONNECTIONS_EACH,
        ..lab.plan(gateway.child.addr(), ORDERS)
    };
    let shape = BodyShape::WhatsApp { key_prefix: KEY_PREFIX, people: PEOPLE };
    let chats = LoadPlan { sources: vec![CHATS.to_owned()], shape, ..orders.clone() };
    let (orders, chats) =
        tokio::try_join!(load(&gateway.child, orders), load(&gateway.child, chats))?;
    let mut both: Histogram<u64> = latency::histogram();
    both.add(&orders.latency)?;
    both.add(&chats.latency)?;
    Ok(LiveTraffic {
        per_second: orders.per_second() + chats.per_second(),
        latency: LatencySummary::of(&both),
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
            live_per_second_wanted: 2_000.0,
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
