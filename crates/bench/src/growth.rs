//! Growth phase: does a gateway with millions of stored events receive and deliver as fast as an empty
//! one?
//!
//! A store is filled over HTTP, half of the events without a route and half delivered. Then a gateway
//! with that store and one with an empty store are measured in turns, each in a new process. The
//! filled store is not filled again: it keeps what each round adds.

use std::fs;
use std::path::{Path, PathBuf};
use std::slice;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde::Serialize;

use crate::bench_run::{BenchRun, run_load};
use crate::gateway::{Gateway, GatewayConfig};
use crate::latency::median;
use crate::load::{LoadPlan, StopCondition, generate_load};
use crate::rounds::FullLoad;
use crate::sink::SinkMode;
use crate::sink_process::{SinkProcess, wait_for_arrivals};
use crate::usage::{AnonymousMemoryMeter, UsageMeter};

const RECEIVED: &str = "received";
const DELIVERED: &str = "delivered";
/// Not counted: after a start, a gateway reads the index of its keys once.
const WARM_UP: Duration = Duration::from_secs(5);
/// A closed loop receives faster than it delivers, so the store is filled in parts of this many events
/// and each is delivered before the next.
const FILL_PART: u64 = 500_000;
/// In the folder of a filled store: the number of events it was filled with. Written last, so that a
/// store whose filling was interrupted is not used.
const FILLED_MARK: &str = "filled";
const RATIO_TARGET: f64 = 0.9;
const ANONYMOUS_PEAK_MAX: u64 = 150_000_000;

/// Rates and memory with an empty and with a filled store.
#[derive(Clone, Debug, Serialize)]
pub struct GrowthReport {
    /// Events in the filled store before the first round.
    pub stored_events: u64,
    /// Size of the filled store before the first round.
    pub data_bytes: u64,
    /// Events with new keys to a source without a route.
    pub receive: GrowthRates,
    /// Events received and delivered to one destination.
    pub delivered: GrowthRates,
    pub ratio_target: f64,
    /// Peak memory with the filled store in its worst round: what the gateway allocated itself, without
    /// the pages of its program and files, which the kernel can drop.
    pub anonymous_peak_bytes: Option<u64>,
    pub anonymous_peak_bytes_max: u64,
    /// The same with the empty store.
    pub empty_anonymous_peak_bytes: Option<u64>,
    /// Peak resident memory with the filled store in its worst round, with such pages.
    pub rss_peak_bytes: Option<u64>,
}

impl GrowthReport {
    /// Whether the gateway with the filled store stayed within its memory.
    pub fn memory_met(&self) -> bool {
        self.anonymous_peak_bytes.is_none_or(|peak| peak <= self.anonymous_peak_bytes_max)
    }
}

/// One rate with an empty and with a filled store: medians over the rounds.
#[derive(Clone, Debug, Serialize)]
pub struct GrowthRates {
    pub empty_per_second: f64,
    pub empty_per_second_rounds: Vec<f64>,
    pub filled_per_second: f64,
    pub filled_per_second_rounds: Vec<f64>,
    /// The median of the rates with the filled store, each divided by that with the empty store of the
    /// same round.
    pub ratio: f64,
    /// CPU time of the gateway per event.
    pub empty_cpu_us_per_event: Option<f64>,
    pub filled_cpu_us_per_event: Option<f64>,
}

/// The rate and cost of one load.
#[derive(Clone, Copy, Debug)]
struct RateSample {
    per_second: f64,
    cpu_us_per_event: Option<f64>,
    rss_peak_bytes: Option<u64>,
}

/// One gateway in one round.
#[derive(Clone, Copy, Debug)]
struct GrowthSample {
    receive: RateSample,
    delivered: RateSample,
    anonymous_peak_bytes: Option<u64>,
}

pub(crate) async fn measure(run: &BenchRun) -> Result<GrowthReport> {
    let bench = GrowthBench {
        run,
        store: run.options.filled_store.clone().unwrap_or_else(|| run.new_path("filled")),
        sink: run.start_sink(SinkMode::Answer).await?,
    };
    let stored_events = bench.fill_store().await.context("filling the store failed")?;
    let data_bytes = bench.start_filled().await?.data_bytes()?;
    let rounds = run.options.rounds;
    run.progress.start_count("measuring", 2 * rounds as u64);
    let mut samples = [Vec::new(), Vec::new()];
    for round in 0..rounds {
        for turn in 0..2 {
            // 0 is the empty store, 1 the filled one. The order alternates, so that a machine that gets
            // slower favors none.
            let variant = (round + turn) % 2;
            let name = ["empty store", "filled store"][variant];
            run.progress.start_step(format!("round {} of {rounds}: {name}", round + 1));
            let gateway = match variant {
                0 => run.start_gateway(&bench.config()).await?,
                _ => bench.start_filled().await?,
            };
            let sample = bench.measure_gateway(&gateway).await;
            samples[variant].push(sample.with_context(|| format!("measuring the {name} failed"))?);
            run.progress.finish_step();
        }
    }
    let [empty, filled] = samples;
    Ok(build_report(FilledStore { stored_events, data_bytes }, &empty, &filled))
}

/// The filled store before the first round.
struct FilledStore {
    stored_events: u64,
    data_bytes: u64,
}

fn build_report(
    store: FilledStore,
    empty: &[GrowthSample],
    filled: &[GrowthSample],
) -> GrowthReport {
    let anonymous_peak = |samples: &[GrowthSample]| {
        samples.iter().filter_map(|sample| sample.anonymous_peak_bytes).max()
    };
    let resident = filled.iter().flat_map(|sample| [sample.receive, sample.delivered]);
    GrowthReport {
        stored_events: store.stored_events,
        data_bytes: store.data_bytes,
        receive: GrowthRates::from_samples(empty, filled, |sample| sample.receive),
        delivered: GrowthRates::from_samples(empty, filled, |sample| sample.delivered),
        ratio_target: RATIO_TARGET,
        anonymous_peak_bytes: anonymous_peak(filled),
        anonymous_peak_bytes_max: ANONYMOUS_PEAK_MAX,
        empty_anonymous_peak_bytes: anonymous_peak(empty),
        rss_peak_bytes: resident.filter_map(|rate| rate.rss_peak_bytes).max(),
    }
}

impl GrowthRates {
    fn from_samples(
        empty: &[GrowthSample],
        filled: &[GrowthSample],
        rate: fn(&GrowthSample) -> RateSample,
    ) -> Self {
        let per_second = |samples: &[GrowthSample]| -> Vec<f64> {
            samples.iter().map(|sample| rate(sample).per_second).collect()
        };
        let cpu = |samples: &[GrowthSample]| {
            let known: Option<Vec<f64>> =
                samples.iter().map(|sample| rate(sample).cpu_us_per_event).collect();
            known.map(median)
        };
        let [empty_rounds, filled_rounds] = [empty, filled].map(per_second);
        let ratios = filled_rounds.iter().zip(&empty_rounds);
        Self {
            empty_per_second: median(empty_rounds.iter().copied()),
            filled_per_second: median(filled_rounds.iter().copied()),
            ratio: median(ratios.map(|(filled, empty)| filled / empty.max(f64::MIN_POSITIVE))),
            empty_per_second_rounds: empty_rounds,
            filled_per_second_rounds: filled_rounds,
            empty_cpu_us_per_event: cpu(empty),
            filled_cpu_us_per_event: cpu(filled),
        }
    }
}

struct GrowthBench<'a> {
    run: &'a BenchRun,
    /// Folder of the filled store.
    store: PathBuf,
    sink: SinkProcess,
}

impl GrowthBench<'_> {
    fn config(&self) -> GatewayConfig {
        GatewayConfig::default().source(RECEIVED).connected(DELIVERED, "sink", self.sink.addr())
    }

    async fn start_filled(&self) -> Result<Gateway> {
        self.run.reopen_gateway(self.store.clone(), &self.config()).await
    }

    /// Fills the store unless an earlier run did; returns its number of events.
    async fn fill_store(&self) -> Result<u64> {
        let wanted = self.run.options.stored_events;
        if let Some(stored) = read_filled_mark(&self.store).filter(|stored| *stored >= wanted) {
            return Ok(stored);
        }
        self.run.progress.start_count("filling the store", wanted);
        let gateway = self.start_filled().await?;
        let mut stored = 0;
        while stored < wanted {
            stored += self.store_events(&gateway, stored, FILL_PART.min(wanted - stored)).await?;
        }
        fs::write(self.store.join(FILLED_MARK), stored.to_string())?;
        Ok(stored)
    }

    /// Stores `count` more events after `stored`, half of them delivered; returns how many.
    async fn store_events(&self, gateway: &Gateway, stored: u64, count: u64) -> Result<u64> {
        self.sink.reset().await?;
        let delivered = count / 2;
        let plan = |source: &str, events: u64| LoadPlan {
            until: StopCondition::Answers(events),
            connections: self.run.options.connections.div_ceil(2),
            ..self.run.default_plan(gateway.child.addr(), source)
        };
        // Received at the same time, so that events of both kinds are neighbors in the store.
        let routed = run_load(&gateway.child, plan(DELIVERED, delivered));
        let unrouted = generate_load(plan(RECEIVED, count - delivered), |_, answered| {
            self.run.progress.set_count(stored + 2 * answered.min(delivered));
        });
        let (routed, unrouted) = tokio::try_join!(routed, unrouted)?;
        wait_for_arrivals(slice::from_ref(&self.sink), routed.answered).await?;
        Ok(routed.answered + unrouted.answered)
    }

    async fn measure_gateway(&self, gateway: &Gateway) -> Result<GrowthSample> {
        // From the start on: reading the index of the keys takes memory too.
        let memory = AnonymousMemoryMeter::start(gateway.child.pid());
        let plan = |source| self.run.default_plan(gateway.child.addr(), source);
        let warm_up = LoadPlan { until: StopCondition::Elapsed(WARM_UP), ..plan(RECEIVED) };
        run_load(&gateway.child, warm_up).await?;

        let meter = UsageMeter::start(gateway.child.pid());
        let received = run_load(&gateway.child, plan(RECEIVED)).await?;
        let used = meter.read();
        let receive = RateSample {
            per_second: received.per_second(),
            cpu_us_per_event: used.cpu_us_per(received.answered),
            rss_peak_bytes: used.rss_peak_bytes,
        };
        let full = FullLoad::measure(&gateway.child, &self.sink, plan(DELIVERED)).await?;
        let delivered = RateSample {
            per_second: full.per_second,
            cpu_us_per_event: full.used.cpu_us_per(full.outcome.answered),
            rss_peak_bytes: full.used.rss_peak_bytes,
        };
        Ok(GrowthSample { receive, delivered, anonymous_peak_bytes: memory.peak_bytes() })
    }
}

/// The number of events that the store in `folder` was filled with.
fn read_filled_mark(folder: &Path) -> Option<u64> {
    fs::read_to_string(folder.join(FILLED_MARK)).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(receive: f64, delivered: f64, peak_bytes: u64) -> GrowthSample {
        let rate = |per_second| RateSample {
            per_second,
            cpu_us_per_event: Some(1e6 / per_second),
            rss_peak_bytes: Some(2 * peak_bytes),
        };
        GrowthSample {
            receive: rate(receive),
            delivered: rate(delivered),
            anonymous_peak_bytes: Some(peak_bytes),
        }
    }

    const STORE: FilledStore = FilledStore { stored_events: 5, data_bytes: 500 };

    #[test]
    fn ratio_is_the_median_of_the_ratios_of_each_round() {
        // The machine was half as fast in the second round.
        let empty = [sample(100.0, 50.0, 9), sample(50.0, 25.0, 9), sample(100.0, 50.0, 9)];
        let filled = [sample(90.0, 40.0, 9), sample(45.0, 20.0, 9), sample(80.0, 50.0, 9)];

        let report = build_report(STORE, &empty, &filled);

        assert_eq!((report.receive.ratio, report.delivered.ratio), (0.9, 0.8));
        assert_eq!(
            (report.receive.empty_per_second, report.receive.filled_per_second),
            (100.0, 80.0)
        );
        assert_eq!(report.receive.filled_per_second_rounds, [90.0, 45.0, 80.0]);
        assert_eq!(report.receive.filled_cpu_us_per_event, Some(12_500.0));
    }

    #[test]
    fn memory_of_the_worst_round_decides() {
        let rounds = |peaks: [u64; 2]| peaks.map(|peak| sample(1.0, 1.0, peak));
        let report = build_report(STORE, &rounds([7, 5]), &rounds([ANONYMOUS_PEAK_MAX, 1]));
        let peaks = [report.empty_anonymous_peak_bytes, report.anonymous_peak_bytes];
        assert_eq!(peaks, [Some(7), Some(ANONYMOUS_PEAK_MAX)]);
        assert_eq!(report.rss_peak_bytes, Some(2 * ANONYMOUS_PEAK_MAX));
        assert!(report.memory_met());
        assert!(
            !build_report(STORE, &rounds([1, 1]), &rounds([1, ANONYMOUS_PEAK_MAX + 1]))
                .memory_met()
        );
    }

    #[test]
    fn store_without_a_mark_is_filled_again() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(read_filled_mark(folder.path()), None);
        fs::write(folder.path().join(FILLED_MARK), "12").unwrap();
        assert_eq!(read_filled_mark(folder.path()), Some(12));
    }
}
