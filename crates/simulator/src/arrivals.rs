//! When events arrive.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use surehook_types::{rng::Rng as _, time::HumanDuration};

use crate::rng::SeededRng;

/// A delivery that is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Time since the start of the simulation.
    pub at: Duration,
    /// Index of its destination.
    pub lane: usize,
    /// The customer that the event belongs to; also its ordering key.
    pub customer: u32,
}

/// When events arrive.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArrivalSpec {
    /// All deliveries, bursts included.
    pub deliveries: u64,
    /// The time in which they arrive.
    pub over: HumanDuration,
    #[serde(default)]
    pub pattern: ArrivalPattern,
    /// Events belong to one of this many customers.
    #[serde(default = "default_customers")]
    pub customers: u32,
    /// Many at once, in order of time.
    #[serde(default)]
    pub bursts: Vec<BurstSpec>,
}

fn default_customers() -> u32 {
    1000
}

/// How the times between arrivals are distributed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ArrivalPattern {
    /// Random, independent of each other.
    #[default]
    Poisson,
    /// All equal.
    Constant,
}

/// Many events at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BurstSpec {
    pub at: HumanDuration,
    pub deliveries: u64,
}

/// A simulation keeps every open delivery in memory.
pub const DELIVERIES_MAX: u64 = 20_000_000;
const CUSTOMERS_MAX: u32 = 10_000_000;

impl ArrivalSpec {
    /// Checks the numbers; the error says which rule is broken.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        let in_bursts =
            self.bursts.iter().map(|burst| burst.deliveries).fold(0, u64::saturating_add);
        let is_sorted = self.bursts.is_sorted_by_key(|burst| burst.at);
        let rules = [
            (
                (1..=DELIVERIES_MAX).contains(&self.deliveries),
                "deliveries must be between 1 and 20000000",
            ),
            (!self.over.0.is_zero(), "the time in which they arrive must not be 0"),
            (
                (1..=CUSTOMERS_MAX).contains(&self.customers),
                "customers must be between 1 and 10000000",
            ),
            (in_bursts <= self.deliveries, "bursts have more deliveries than there are"),
            (is_sorted, "bursts must be in order of time"),
        ];
        rules.into_iter().find(|(is_met, _)| !is_met).map_or(Ok(()), |(_, rule)| Err(rule))
    }

    /// Generates the arrivals. `weights` says how the deliveries are shared between destinations.
    pub fn generate<'a>(
        &'a self,
        seed: u64,
        weights: &'a [f64],
    ) -> impl Iterator<Item = Arrival> + 'a {
        let in_bursts: u64 = self.bursts.iter().map(|burst| burst.deliveries).sum();
        #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^53")]
        let interval = self.over.0.as_secs_f64() / (self.deliveries - in_bursts).max(1) as f64;
        let rng = SeededRng::new(seed ^ 0x0061_7272_6976_616c);
        let draw = {
            let pattern = self.pattern;
            move |rng: &SeededRng| match pattern {
                ArrivalPattern::Poisson => -(1.0 - rng.next_f64()).ln() * interval,
                ArrivalPattern::Constant => interval,
            }
        };
        let mut bursts = self
            .bursts
            .iter()
            .flat_map(|burst| (0..burst.deliveries).map(move |_| burst.at.0))
            .peekable();
        let total: f64 = weights.iter().sum();
        let mut next = 0.0;
        let mut regular_left = self.deliveries - in_bursts;
        (0..self.deliveries).map(move |_| {
            let regular = Duration::from_secs_f64(next);
            let at = match bursts.next_if(|burst| *burst <= regular || regular_left == 0) {
                Some(burst) => burst,
                None => {
                    next += draw(&rng);
                    regular_left -= 1;
                    regular
                }
            };
            let customer = pick_customer(&rng, self.customers);
            Arrival { at, lane: pick_lane(&rng, weights, total), customer }
        })
    }
}

fn pick_customer(rng: &SeededRng, customers: u32) -> u32 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the roll is below 1, so the number is below the count"
    )]
    let customer = (rng.next_f64() * f64::from(customers)) as u32;
    customer
}

fn pick_lane(rng: &SeededRng, weights: &[f64], total: f64) -> usize {
    if weights.len() == 1 {
        return 0;
    }
    let mut roll = rng.next_f64() * total;
    let found = weights.iter().position(|weight| {
        roll -= weight;
        roll < 0.0
    });
    found.unwrap_or(weights.len() - 1)
}
