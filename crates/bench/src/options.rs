//! Options of one benchmark run.

use std::fmt;
use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::{Parser, ValueEnum};
use serde::Serialize;

use crate::dashboard::DASHBOARD_EVENTS_MIN;
use crate::database::DATABASE_PHASES;
use crate::request::BODY_BYTES_MIN;

/// What to measure and with how much load: the options of `surehook bench`.
#[derive(Clone, Debug, Parser)]
pub struct BenchOptions {
    /// Duration of each phase of each round, in seconds
    #[arg(long, default_value_t = 10)]
    pub seconds: u64,
    /// Number of rounds; the median is reported
    #[arg(long, default_value_t = 3)]
    pub rounds: usize,
    /// Sending connections; each has one request in flight
    #[arg(long, default_value_t = 256)]
    pub connections: usize,
    /// Size of each body, in bytes
    #[arg(long, default_value_t = 1024)]
    pub body_bytes: usize,
    /// Run only this phase; rates are always measured with the limit [default: all rates]
    #[arg(long, value_name = "PHASE")]
    pub only: Option<BenchPhase>,
    /// Events in the backlog phase
    #[arg(long, default_value_t = 1_000_000)]
    pub backlog_events: u64,
    /// Events stored for the dashboard phase
    #[arg(long, default_value_t = 1_000_000)]
    pub dashboard_events: u64,
    /// How often the dashboard phase opens each page
    #[arg(long, default_value_t = 100)]
    pub page_samples: u64,
    /// Events stored for the growth phase
    #[arg(long, default_value_t = 10_000_000)]
    pub stored_events: u64,
    /// Keep the filled store of the growth phase in this folder, and use the one of an earlier run
    /// [default: filled anew and removed at the end]
    #[arg(long, value_name = "FOLDER")]
    pub filled_store: Option<PathBuf>,
    /// Compare gateways on this PostgreSQL database with one on the embedded store, with 64 and 256
    /// connections; the URL can be in a variable: `env:NAME`
    #[arg(long, value_name = "URL")]
    pub database: Option<String>,
    /// Nodes on the database that are measured besides a single one
    #[arg(long, default_value_t = 1, requires = "database")]
    pub nodes: usize,
    /// Parent of the data folder; if the default is in memory, choose a real disk [default: the
    /// system's temporary folder]
    #[arg(long)]
    pub folder: Option<PathBuf>,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
    /// The binary, started as gateway, limit server and sink; the running one if absent.
    #[arg(skip)]
    pub exe: Option<PathBuf>,
}

impl Default for BenchOptions {
    /// The options of `surehook bench` without arguments.
    fn default() -> Self {
        Self::parse_from(["bench"])
    }
}

impl BenchOptions {
    /// Rejects options that cannot be measured; the error names the option.
    pub(crate) fn check(&self) -> Result<()> {
        ensure!(self.seconds > 0, "`seconds` is 0; a phase needs at least 1");
        ensure!(self.connections > 0, "`connections` is 0; the generator needs at least 1");
        ensure!(self.rounds > 0, "`rounds` is 0; a median needs at least 1");
        ensure!(self.backlog_events > 0, "`backlog_events` is 0; a backlog needs at least 1");
        ensure!(
            self.dashboard_events >= DASHBOARD_EVENTS_MIN,
            "`dashboard_events` is {}; the pages need at least {DASHBOARD_EVENTS_MIN}",
            self.dashboard_events,
        );
        ensure!((1..=16).contains(&self.nodes), "`nodes` must be between 1 and 16");
        if self.database.is_some() {
            let only = self.only.is_none_or(|only| DATABASE_PHASES.contains(&only));
            ensure!(only, "with `database`, `only` is one of receive, duplicates and delivered");
        }
        ensure!(self.stored_events > 0, "`stored_events` is 0; a filled store needs at least 1");
        ensure!(self.page_samples > 0, "`page_samples` is 0; a page needs at least 1");
        ensure!(
            self.body_bytes >= BODY_BYTES_MIN,
            "`body_bytes` is {}; the key and the send time need at least {BODY_BYTES_MIN}",
            self.body_bytes,
        );
        Ok(())
    }

    /// Whether the rate of `phase` is part of this run.
    pub(crate) fn measures(&self, phase: BenchPhase) -> bool {
        phase == BenchPhase::Limit || self.only.is_none_or(|only| only == phase)
    }
}

/// One part of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum BenchPhase {
    /// A bare hyper server that reads the body, answers and stores nothing
    Limit,
    /// Events with new keys to a source without a route
    #[value(alias = "in")]
    Receive,
    /// Events whose keys are all known already
    Duplicates,
    /// Events received and delivered to one destination
    Delivered,
    /// Many events for a destination that is down, then `kill -9`
    Backlog,
    /// Healthy destinations without and with one that never answers
    Isolation,
    /// Live traffic without and with a replay job
    Replay,
    /// A backlog for a destination with a rate limit
    RateLimit,
    /// The WhatsApp preset compared with a generic source, with the same requests
    #[serde(rename = "whatsapp")]
    #[value(name = "whatsapp")]
    WhatsApp,
    /// The dashboard's pages with a large store, while events are received
    Dashboard,
    /// Genuine senders without and with attackers that try to exhaust memory and connections
    Attack,
    /// Keys claimed and completed over HTTP, compared with `SET NX EX` of a Redis server
    Idempotency,
    /// Rates and memory of a gateway with millions of stored events, compared with an empty one
    Growth,
}

impl BenchPhase {
    /// The share of the limit this phase should reach, if it has a target.
    pub fn target(self) -> Option<f64> {
        match self {
            Self::Receive => Some(0.5),
            Self::Duplicates => Some(0.7),
            Self::Delivered => Some(0.2),
            Self::Limit
            | Self::Backlog
            | Self::Isolation
            | Self::Replay
            | Self::RateLimit
            | Self::WhatsApp
            | Self::Dashboard
            | Self::Attack
            | Self::Idempotency
            | Self::Growth => None,
        }
    }
}

impl fmt::Display for BenchPhase {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(&value_name(self))
    }
}

/// The name of an option's value on the command line.
pub(crate) fn value_name(value: &impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_phase_is_parsed_from_its_name() {
        for phase in BenchPhase::value_variants() {
            assert_eq!(BenchPhase::from_str(&phase.to_string(), false).unwrap(), *phase);
            assert_eq!(serde_json::to_value(phase).unwrap(), phase.to_string());
        }
        assert_eq!(BenchPhase::from_str("in", false).unwrap(), BenchPhase::Receive);
        let refused = BenchOptions::try_parse_from(["bench", "--only", "out"]).unwrap_err();
        assert!(refused.to_string().contains("delivered"), "{refused}");
    }

    #[test]
    fn limit_is_measured_with_every_single_rate() {
        let options = BenchOptions { only: Some(BenchPhase::Receive), ..BenchOptions::default() };
        let all = BenchPhase::value_variants().iter().copied();
        let measured: Vec<BenchPhase> = all.filter(|phase| options.measures(*phase)).collect();
        assert_eq!(measured, [BenchPhase::Limit, BenchPhase::Receive]);
    }

    #[test]
    fn body_too_small_for_its_envelope_is_refused() {
        let options = BenchOptions { body_bytes: 10, ..BenchOptions::default() };
        assert!(options.check().unwrap_err().to_string().contains("body_bytes"));
    }
}
