//! What a load is to send; [`crate::load`] sends it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Result;

use crate::answer::Verdict;
use crate::request::{Request, Series, Shape};
use crate::sender::{Beat, Sender, Walk};

/// What to send, where, and for how long.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) addr: SocketAddr,
    pub(crate) sources: Vec<String>,
    /// For each source.
    pub(crate) connections: usize,
    pub(crate) body_bytes: usize,
    pub(crate) until: Until,
    pub(crate) keys: Keys,
    pub(crate) expected: Verdict,
    pub(crate) pace: Pace,
    pub(crate) shape: Shape,
}

#[derive(Clone, Debug)]
pub(crate) enum Until {
    Elapsed(Duration),
    /// Until somebody says so.
    Told(Arc<AtomicBool>),
    /// So many answers, over all connections.
    Answers(u64),
}

#[derive(Clone, Debug)]
pub(crate) enum Keys {
    /// No key was ever sent before.
    Fresh,
    /// The same `count` bodies again and again, byte for byte.
    Fixed { series: Series, count: u64 },
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Pace {
    Closed,
    /// So many requests per second for each source.
    PerSecond(f64),
}

impl Plan {
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
            until: Until::Elapsed(Duration::ZERO),
            keys: Keys::Fresh,
            expected: Verdict::Accepted,
            pace: Pace::Closed,
            shape: Shape::default(),
        }
    }

    /// One sender for each connection.
    pub(crate) fn senders(&self) -> Result<Vec<Sender>> {
        let series = match &self.keys {
            Keys::Fresh => Series::fresh(),
            Keys::Fixed { series, .. } => series.clone(),
        };
        let total = self.sources.len() * self.connections;
        (0..total).map(|index| self.sender(index, total, &series)).collect()
    }

    fn sender(&self, index: usize, total: usize, series: &Series) -> Result<Sender> {
        // Neighbours in time go to different sources.
        let source = &self.sources[index % self.sources.len()];
        let share = |whole: u64| {
            let (index, total) = (index as u64, total as u64);
            whole / total + u64::from(index < whole % total)
        };
        Ok(Sender {
            request: Request::new(self.addr, source, series, self.shape, self.body_bytes)?,
            walk: Walk {
                first: index as u64,
                step: total as u64,
                keys: match &self.keys {
                    Keys::Fresh => u64::MAX,
                    Keys::Fixed { count, .. } => share(*count),
                },
            },
            has_fixed_bodies: matches!(self.keys, Keys::Fixed { .. }),
            quota: match &self.until {
                Until::Elapsed(_) | Until::Told(_) => u64::MAX,
                Until::Answers(answers) => share(*answers),
            },
            expected: self.expected,
            beat: match self.pace {
                Pace::Closed => None,
                Pace::PerSecond(rate) => {
                    let every = self.connections as f64 / rate;
                    Some(Beat { offset: every * index as f64 / total as f64, every })
                }
            },
        })
    }
}
