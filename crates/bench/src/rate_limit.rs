//! Rate limit phase: does a backlog reach its destination at the destination's rate limit?
//!
//! All events are sent as fast as the gateway accepts them, so that the limit is the only reason for a
//! delivery to wait. The rate is measured at the sink, from the first to the last arrival.

use std::slice;

use anyhow::{Result, ensure};
use serde::Serialize;

use crate::bench_run::{BenchRun, run_load};
use crate::gateway::GatewayConfig;
use crate::latency::median;
use crate::load::{LoadPlan, StopCondition};
use crate::sink::SinkMode;
use crate::sink_process::wait_until_drained;

const SOURCE: &str = "limited";
const LIMIT_PER_SECOND: u64 = 100;
const TOLERANCE: f64 = 0.05;

/// Rate of deliveries to a destination with a rate limit.
#[derive(Clone, Debug, Serialize)]
pub struct RateLimitReport {
    pub limit_per_second: f64,
    pub deliveries_per_second: f64,
    pub deliveries_per_second_rounds: Vec<f64>,
    /// The rate as a share of the limit.
    pub share_of_rate_limit: f64,
    /// How far the share may be from 1.
    pub tolerance: f64,
}

pub(crate) async fn measure(run: &BenchRun) -> Result<RateLimitReport> {
    let rounds = run.options.rounds;
    run.progress.set_total(rounds as u64);
    let mut deliveries_per_second_rounds = Vec::new();
    for round in 1..=rounds {
        run.progress.start_step(format!("round {round} of {rounds}"));
        deliveries_per_second_rounds.push(measure_round(run).await?);
        run.progress.finish_step();
    }
    let deliveries_per_second = median(deliveries_per_second_rounds.iter().copied());
    let limit_per_second = LIMIT_PER_SECOND as f64;
    Ok(RateLimitReport {
        limit_per_second,
        deliveries_per_second,
        deliveries_per_second_rounds,
        share_of_rate_limit: deliveries_per_second / limit_per_second,
        tolerance: TOLERANCE,
    })
}

async fn measure_round(run: &BenchRun) -> Result<f64> {
    let sink = run.start_sink(SinkMode::Answer).await?;
    let destination_toml = format!(
        "url = \"http://{}/\"\nconcurrency = 64\nrate = \"{LIMIT_PER_SECOND}/s\"",
        sink.addr()
    );
    let config = GatewayConfig::default()
        .source(SOURCE)
        .destination_with("sink", &destination_toml)
        .route(SOURCE, "sink");
    let gateway = run.start_gateway(&config).await?;
    let plan = LoadPlan {
        until: StopCondition::Answers(LIMIT_PER_SECOND * run.options.seconds),
        ..run.default_plan(gateway.child.addr(), SOURCE)
    };
    let sent = run_load(&gateway.child, plan).await?;
    let arrivals = wait_until_drained(slice::from_ref(&sink), sent.answered).await?;
    let nanoseconds = arrivals.last_ns.saturating_sub(arrivals.first_ns);
    ensure!(nanoseconds > 0, "all events arrived at once");
    Ok((arrivals.count - 1) as f64 * 1e9 / nanoseconds as f64)
}
