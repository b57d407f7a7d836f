//! What a load is to send; [`crate::load`] sends it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Result;

use crate::answer::EventVerdict;
use crate::request::{BodyShape, KeySeries, RequestTemplate};
use crate::sender::{KeySequence, LoadSender, SendSchedule};

/// What to send, where, and for how long.
#[derive(Clone, Debug)]
pub(crate) struct LoadPlan {
    pub(crate) addr: SocketAddr,
    pub(crate) sources: Vec<String>,
    /// For each source.
    pub(crate) connections: usize,
    pub(crate) body_bytes: usize,
    pub(crate) until: StopCondition,
    pub(crate) keys: KeyPlan,
    pub(crate) expected: EventVerdict,
    pub(crate) pace: SendRate,
    pub(crate) shape: BodyShape,
}

#[derive(Clone, Debug)]
pub(crate) enum StopCondition {
    Elapsed(Duration),
    /// Until somebody says so.
    Signaled(Arc<AtomicBool>),
    /// So many answers, over all connections.
    Answers(u64),
}

#[derive(Clone, Debug)]
pub(crate) enum KeyPlan {
    /// No key was ever sent before.
    New,
    /// The same `count` bodies again and again, byte for byte.
    Fixed { series: KeySeries, count: u64 },
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum SendRate {
    Closed,
    /// So many requests per second for each source.
    PerSecond(f64),
}

impl LoadPlan {
    /// A closed loop of new keys to one source. The caller says until when.
    pub(crate) fn closed(
        addr: SocketAddr,
        source: &str,
        connections: usize,
        body_bytes: usize,
    ) -> Self {
        Self {
            addr,
            sources: vec![source.to_owned()],
            connections,
            body_bytes,
            until: StopCondition::Elapsed(Duration::ZERO),
            keys: KeyPlan::New,
            expected: EventVerdict::Accepted,
            pace: SendRate::Closed,
            shape: BodyShape::default(),
        }
    }

    /// One sender for each connection.
    pub(crate) fn senders(&self) -> Result<Vec<LoadSender>> {
        let series = match &self.keys {
            KeyPlan::New => KeySeries::fresh(),
            KeyPlan::Fixed { series, .. } => series.clone(),
        };
        let total = self.sources.len() * self.connections;
        (0..total).map(|index| self.sender(index, total, &series)).collect()
    }

    fn sender(&self, index: usize, total: usize, series: &KeySeries) -> Result<LoadSender> {
        // Neighbours in time go to different sources.
        let source = &self.sources[index % self.sources.len()];
        let share = |whole: u64| {
            let (index, total) = (index as u64, total as u64);
            whole / total + u64::from(index < whole % total)
        };
        Ok(LoadSender {
            request: RequestTemplate::new(self.addr, source, series, self.shape, self.body_bytes)?,
            walk: KeySequence {
                first: index as u64,
                step: total as u64,
                keys: match &self.keys {
                    KeyPlan::New => u64::MAX,
                    KeyPlan::Fixed { count, .. } => share(*count),
                },
            },
            has_fixed_bodies: matches!(self.keys, KeyPlan::Fixed { .. }),
            quota: match &self.until {
                StopCondition::Elapsed(_) | StopCondition::Signaled(_) => u64::MAX,
                StopCondition::Answers(answers) => share(*answers),
            },
            expected: self.expected,
            beat: match self.pace {
                SendRate::Closed => None,
                SendRate::PerSecond(rate) => {
                    let every = self.connections as f64 / rate;
                    Some(SendSchedule { offset: every * index as f64 / total as f64, every })
                }
            },
        })
    }
}
