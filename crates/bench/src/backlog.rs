//! Backlog phase: many events for a destination that is down, then `kill -9`.
//!
//! If the cost per event grows with the backlog, the last tenth of the events is slower than the
//! first. Memory is reported before, at its peak and after.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde::Serialize;

use crate::bench_run::BenchRun;
use crate::gateway::GatewayConfig;
use crate::load::generate_load;
use crate::load::{LoadPlan, StopCondition};
use crate::usage::{self, UsageMeter};

const SOURCE: &str = "backlog";
/// Port 1 (tcpmux), on which nothing listens. A port of the ephemeral range would not work: a client
/// that retries such a port may be assigned it as its local port and connect to itself.
const CLOSED_PORT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 1);

/// Rates, memory and restart time of a gateway with a large backlog.
#[derive(Clone, Debug, Serialize)]
pub struct BacklogReport {
    pub events: u64,
    pub seconds: f64,
    /// Events per second over the first tenth of the events.
    pub first_tenth_per_second: f64,
    /// Events per second over the last tenth.
    pub last_tenth_per_second: f64,
    /// Memory before the first event.
    pub rss_before_bytes: Option<u64>,
    /// Memory after the last event.
    pub rss_after_bytes: Option<u64>,
    pub rss_peak_bytes: Option<u64>,
    /// Size of the data folder after the last event.
    pub data_bytes: u64,
    /// From the start of the process after `kill -9` until `/readyz` answered 200.
    pub ready_after_kill_ms: f64,
    pub rss_after_kill_bytes: Option<u64>,
}

pub(crate) async fn measure(run: &BenchRun) -> Result<BacklogReport> {
    let events = run.options.backlog_events;
    run.progress.set_total(2);
    run.progress.start_step(format!("{events} events for a destination that is down"));
    let mut gateway =
        run.start_gateway(&GatewayConfig::default().connected(SOURCE, "down", CLOSED_PORT)).await?;
    let pid = gateway.child.pid();
    let rss_before_bytes = usage::rss_bytes(pid);
    let mut curve = AnswerCurve::new();
    let meter = UsageMeter::start(pid);
    let plan = LoadPlan {
        until: StopCondition::Answers(events),
        ..run.default_plan(gateway.child.addr(), SOURCE)
    };
    let outcome = generate_load(plan, |elapsed, answered| curve.add(elapsed, answered))
        .await
        .with_context(|| format!("the load failed{}", gateway.child.log_tail()))?;
    curve.add(outcome.elapsed, outcome.answered);
    let rss_peak_bytes = meter.read().rss_peak_bytes;
    let rss_after_bytes = usage::rss_bytes(pid);
    let data_bytes = gateway.data_bytes()?;
    run.progress.finish_step();

    run.progress.start_step("restart after kill -9");
    let ready = gateway.kill_and_restart().await?;
    run.progress.finish_step();
    Ok(BacklogReport {
        events: outcome.answered,
        seconds: outcome.elapsed.as_secs_f64(),
        first_tenth_per_second: curve.per_second(0.0, 0.1),
        last_tenth_per_second: curve.per_second(0.9, 1.0),
        rss_before_bytes,
        rss_after_bytes,
        rss_peak_bytes,
        data_bytes,
        ready_after_kill_ms: ready.as_secs_f64() * 1e3,
        rss_after_kill_bytes: usage::rss_bytes(gateway.child.pid()),
    })
}

/// The number of answers over time.
struct AnswerCurve(Vec<CurvePoint>);

#[derive(Clone, Copy)]
struct CurvePoint {
    /// Since the start.
    seconds: f64,
    answered: f64,
}

impl AnswerCurve {
    fn new() -> Self {
        Self(vec![CurvePoint { seconds: 0.0, answered: 0.0 }])
    }

    fn add(&mut self, elapsed: Duration, answered: u64) {
        self.0.push(CurvePoint { seconds: elapsed.as_secs_f64(), answered: answered as f64 });
    }

    /// The rate between two shares (0 to 1) of all answers.
    fn per_second(&self, from: f64, to: f64) -> f64 {
        let total = self.0.last().map_or(0.0, |last| last.answered);
        let span = self.seconds_at(to * total) - self.seconds_at(from * total);
        if span > 0.0 { (to - from) * total / span } else { 0.0 }
    }

    /// When answer number `answered` was received, interpolated between two samples.
    fn seconds_at(&self, answered: f64) -> f64 {
        let next = self.0.partition_point(|point| point.answered < answered);
        let Some(after) = self.0.get(next) else {
            return self.0.last().map_or(0.0, |last| last.seconds);
        };
        let Some(before) = next.checked_sub(1).map(|index| self.0[index]) else {
            return after.seconds;
        };
        let fraction = (answered - before.answered) / (after.answered - before.answered);
        before.seconds + (after.seconds - before.seconds) * fraction
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slowing_gateway_shows_a_lower_rate_in_the_last_tenth() {
        let mut curve = AnswerCurve::new();
        // 1000 a second for one second, then 100 a second for ten.
        curve.add(Duration::from_secs(1), 1000);
        curve.add(Duration::from_secs(6), 1500);
        curve.add(Duration::from_secs(11), 2000);
        assert_eq!(curve.per_second(0.0, 0.1).round(), 1000.0);
        assert_eq!(curve.per_second(0.9, 1.0).round(), 100.0);
    }

    #[test]
    fn load_of_one_sample_has_the_same_rate_in_both_tenths() {
        let mut curve = AnswerCurve::new();
        curve.add(Duration::from_secs(2), 10);
        assert_eq!(curve.per_second(0.0, 0.1).round(), 5.0);
        assert_eq!(curve.per_second(0.9, 1.0).round(), 5.0);
    }
}
