//! Options of one benchmark run.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Result, ensure};
use serde::Serialize;

use crate::dashboard::DASHBOARD_EVENTS_MIN;
use crate::request::BODY_BYTES_MIN;

/// What to measure and with how much load. Start with [`BenchOptions::new`] and change fields.
#[derive(Clone, Debug)]
pub struct BenchOptions {
    /// The `surehook` binary, started as gateway, limit server and sink.
    pub exe: PathBuf,
    /// Duration of each phase in each round.
    pub seconds: u64,
    /// Connections of the generator; each has one request in flight.
    pub connections: usize,
    /// Size of each body, including the envelope.
    pub body_bytes: usize,
    /// Whether the report's `Display` is JSON instead of a table.
    pub json: bool,
    /// How often the phases are repeated; the report gives medians.
    pub rounds: usize,
    /// Measure only this phase. The limit is still measured with a rate, because a rate means little
    /// without it. [`BenchPhase::Backlog`] and the phases after it run only if selected here.
    pub only: Option<BenchPhase>,
    /// Number of events of [`BenchPhase::Backlog`].
    pub backlog_events: u64,
    /// Number of stored events before [`BenchPhase::Dashboard`] opens pages.
    pub dashboard_events: u64,
    /// How often [`BenchPhase::Dashboard`] opens each page.
    pub page_samples: u64,
    /// Parent of the temporary folder; the system's temporary folder if absent. Choose a real disk if
    /// that one is in memory, or the fsync of a commit costs nothing.
    pub folder: Option<PathBuf>,
}

impl BenchOptions {
    /// The defaults: 3 rounds of 10 seconds, 256 connections, bodies of 1 KiB, all rates.
    pub fn new(exe: impl Into<PathBuf>) -> Self {
        Self {
            exe: exe.into(),
            seconds: 10,
            connections: 256,
            body_bytes: 1024,
            json: false,
            rounds: 3,
            only: None,
            backlog_events: 1_000_000,
            dashboard_events: 1_000_000,
            page_samples: 100,
            folder: None,
        }
    }

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
        ensure!(self.page_samples > 0, "`page_samples` is 0; a page needs at least 1");
        ensure!(
            self.body_bytes >= BODY_BYTES_MIN,
            "`body_bytes` is {}; the key and the send time need at least {BODY_BYTES_MIN}",
            self.body_bytes,
        );
        ensure!(self.exe.is_file(), "`exe` is {}, which is not a file", self.exe.display());
        Ok(())
    }

    /// Whether the rate of `phase` is part of this run.
    pub(crate) fn measures(&self, phase: BenchPhase) -> bool {
        phase == BenchPhase::Limit || self.only.is_none_or(|only| only == phase)
    }
}

/// One part of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum BenchPhase {
    /// A bare hyper server that reads the body, answers and stores nothing.
    Limit,
    /// Events with new keys to a source without a route.
    In,
    /// Events whose keys are all known already.
    Duplicates,
    /// Events received and delivered to one destination.
    Delivered,
    /// Many events for a destination that is down, then `kill -9`.
    Backlog,
    /// Healthy destinations without and with one that never answers.
    Isolation,
    /// Live traffic without and with a replay job.
    Replay,
    /// The WhatsApp preset compared with a generic source, with the same requests.
    WhatsApp,
    /// The dashboard's pages with a large store, while events are received.
    Dashboard,
}

impl BenchPhase {
    /// All phases, in report order.
    pub const ALL: [Self; 9] = [
        Self::Limit,
        Self::In,
        Self::Duplicates,
        Self::Delivered,
        Self::Backlog,
        Self::Isolation,
        Self::Replay,
        Self::WhatsApp,
        Self::Dashboard,
    ];

    /// The phase's name on the command line and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Limit => "limit",
            Self::In => "in",
            Self::Duplicates => "duplicates",
            Self::Delivered => "delivered",
            Self::Backlog => "backlog",
            Self::Isolation => "isolation",
            Self::Replay => "replay",
            Self::WhatsApp => "whatsapp",
            Self::Dashboard => "dashboard",
        }
    }

    /// The share of the limit this phase should reach, if it has a target.
    pub fn target(self) -> Option<f64> {
        match self {
            Self::In => Some(0.5),
            Self::Duplicates => Some(0.7),
            Self::Delivered => Some(0.2),
            Self::Limit
            | Self::Backlog
            | Self::Isolation
            | Self::Replay
            | Self::WhatsApp
            | Self::Dashboard => None,
        }
    }
}

impl fmt::Display for BenchPhase {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(self.name())
    }
}

impl FromStr for BenchPhase {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|phase| phase.name() == text);
        found.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            anyhow::anyhow!("unknown phase `{text}`; available phases: {names}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_phase_is_parsed_from_its_name() {
        for phase in BenchPhase::ALL {
            assert_eq!(phase.name().parse::<BenchPhase>().unwrap(), phase);
            assert_eq!(serde_json::to_value(phase).unwrap(), phase.name());
        }
        let refused = "out".parse::<BenchPhase>().unwrap_err().to_string();
        assert!(refused.contains("delivered"), "{refused}");
    }

    #[test]
    fn limit_is_measured_with_every_single_rate() {
        let options = BenchOptions { only: Some(BenchPhase::In), ..BenchOptions::new("surehook") };
        let measured = BenchPhase::ALL.map(|phase| options.measures(phase));
        assert_eq!(measured, [true, true, false, false, false, false, false, false, false]);
    }

    #[test]
    fn body_too_small_for_its_envelope_is_refused() {
        let exe = std::env::current_exe().unwrap();
        let options = BenchOptions { body_bytes: 10, ..BenchOptions::new(exe) };
        assert!(options.check().unwrap_err().to_string().contains("body_bytes"));
    }
}
