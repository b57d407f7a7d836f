//! Retry budget: limits retries to a share of the first tries.
//!
//! When a service is down, every caller retries, and the retries alone can keep it down. With a budget
//! that all callers of the service share, retries add at most a fixed share to its load, whatever the
//! retry policy says. A minimum per second keeps callers with little traffic able to retry.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// The window is counted in this many parts; each is forgotten as a whole.
const SLOTS: usize = 10;
/// Tolerance of the comparison with a product of floating point numbers.
const ROUNDING: f64 = 1e-9;

/// How many retries a [`RetryBudget`] allows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetryBudgetConfig {
    /// Retries per first try: 0.2 allows one retry for five first tries. 0 to 1000.
    pub ratio: f64,
    /// Retries per second that are allowed in any case.
    pub min_per_second: u32,
    /// The time over which tries are counted, 100 ms to one day.
    pub window: Duration,
}

impl Default for RetryBudgetConfig {
    /// One retry for five first tries, and ten per second in any case, over ten seconds.
    fn default() -> Self {
        Self { ratio: 0.2, min_per_second: 10, window: Duration::from_secs(10) }
    }
}

/// Why a [`RetryBudgetConfig`] is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("retry budget: {0}")]
pub struct RetryBudgetError(&'static str);

/// A budget of retries that many operations share, across tasks and threads.
///
/// Over its window it allows `ratio × first tries + min_per_second × window` retries. Times are
/// durations since a fixed moment of a monotonic clock.
///
/// ```
/// use std::time::Duration;
/// use surehook_retry::{RetryBudget, RetryBudgetConfig};
///
/// let config = RetryBudgetConfig { ratio: 0.5, min_per_second: 0, ..Default::default() };
/// let budget = RetryBudget::new(config)?;
/// let now = Duration::ZERO;
/// budget.record_first_try(now);
/// budget.record_first_try(now);
/// budget.take_retry(now).expect("one retry for two first tries").spend();
/// assert!(budget.take_retry(now).is_none());
/// # Ok::<(), surehook_retry::RetryBudgetError>(())
/// ```
#[derive(Debug)]
pub struct RetryBudget {
    ratio: f64,
    reserve: f64,
    slot: Duration,
    counts: Mutex<SlotCounts>,
}

#[derive(Debug, Default)]
struct SlotCounts {
    /// Number of the newest slot since the start of the clock.
    newest: u64,
    first_tries: [u32; SLOTS],
    retries: [u32; SLOTS],
}

impl Default for RetryBudget {
    fn default() -> Self {
        Self::with_valid(RetryBudgetConfig::default())
    }
}

impl RetryBudget {
    /// An empty budget: at first only the minimum is available.
    pub fn new(config: RetryBudgetConfig) -> Result<Self, RetryBudgetError> {
        if !(0.0..=1000.0).contains(&config.ratio) {
            return Err(RetryBudgetError("ratio must be between 0 and 1000"));
        }
        if !(Duration::from_millis(100)..=Duration::from_secs(86_400)).contains(&config.window) {
            return Err(RetryBudgetError("window must be between 100 ms and one day"));
        }
        Ok(Self::with_valid(config))
    }

    fn with_valid(config: RetryBudgetConfig) -> Self {
        Self {
            ratio: config.ratio,
            reserve: f64::from(config.min_per_second) * config.window.as_secs_f64(),
            slot: config.window / SLOTS as u32,
            counts: Mutex::default(),
        }
    }

    /// Counts the first try of an operation.
    pub fn record_first_try(&self, now: Duration) {
        let mut counts = self.counts_at(now);
        let at = counts.newest_index();
        counts.first_tries[at] = counts.first_tries[at].saturating_add(1);
    }

    /// Takes a retry, or returns `None` if none is left. It is given back when the permit is dropped
    /// without [`RetryPermit::spend`].
    pub fn take_retry(&self, now: Duration) -> Option<RetryPermit<'_>> {
        let mut counts = self.counts_at(now);
        let sum = |slots: &[u32; SLOTS]| slots.iter().copied().map(f64::from).sum::<f64>();
        let allowed = self.ratio * sum(&counts.first_tries) + self.reserve;
        if sum(&counts.retries) + 1.0 > allowed + ROUNDING {
            return None;
        }
        let at = counts.newest_index();
        counts.retries[at] = counts.retries[at].saturating_add(1);
        Some(RetryPermit { budget: self, slot: counts.newest, is_spent: false })
    }

    /// The counts with everything forgotten that is older than the window.
    fn counts_at(&self, now: Duration) -> MutexGuard<'_, SlotCounts> {
        let slot = u64::try_from(now.as_nanos() / self.slot.as_nanos().max(1)).unwrap_or(u64::MAX);
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.advance(slot);
        counts
    }

    fn give_back(&self, slot: u64) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if counts.newest - slot < SLOTS as u64 {
            let at = slot_index(slot);
            counts.retries[at] = counts.retries[at].saturating_sub(1);
        }
    }
}

impl SlotCounts {
    /// Clears the slots between the newest one and `slot`. An earlier `slot`, which another thread has
    /// overtaken, changes nothing.
    fn advance(&mut self, slot: u64) {
        let passed = slot.saturating_sub(self.newest).min(SLOTS as u64);
        for old in 0..passed {
            let at = slot_index(slot - old);
            self.first_tries[at] = 0;
            self.retries[at] = 0;
        }
        self.newest = self.newest.max(slot);
    }

    fn newest_index(&self) -> usize {
        slot_index(self.newest)
    }
}

fn slot_index(slot: u64) -> usize {
    usize::try_from(slot % SLOTS as u64).unwrap_or(0)
}

/// A retry taken from a [`RetryBudget`]; given back if it is dropped without being spent, as when the
/// operation is cancelled while it waits.
#[derive(Debug)]
#[must_use = "a permit that is dropped gives its retry back"]
pub struct RetryPermit<'b> {
    budget: &'b RetryBudget,
    slot: u64,
    is_spent: bool,
}

impl RetryPermit<'_> {
    /// The retry begins.
    pub fn spend(mut self) {
        self.is_spent = true;
    }
}

impl Drop for RetryPermit<'_> {
    fn drop(&mut self) {
        if !self.is_spent {
            self.budget.give_back(self.slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn budget(ratio: f64, min_per_second: u32) -> RetryBudget {
        let window = Duration::from_secs(10);
        RetryBudget::new(RetryBudgetConfig { ratio, min_per_second, window }).unwrap()
    }

    fn take(budget: &RetryBudget, now: Duration) -> bool {
        budget.take_retry(now).map(RetryPermit::spend).is_some()
    }

    #[test]
    fn retries_are_limited_to_the_ratio_of_first_tries() {
        let (budget, now) = (budget(0.2, 0), Duration::from_secs(1));
        assert!(!take(&budget, now), "nothing was tried yet");
        for _ in 0..50 {
            budget.record_first_try(now);
        }
        let taken = (0..50).filter(|_| take(&budget, now)).count();
        assert_eq!(taken, 10);
    }

    #[test]
    fn minimum_per_second_is_available_without_first_tries() {
        let budget = budget(0.0, 2);
        let taken = (0..100).filter(|_| take(&budget, Duration::ZERO)).count();
        assert_eq!(taken, 20, "two per second over ten seconds");
        assert!(!take(&budget, Duration::from_secs(9)));
        assert!(take(&budget, Duration::from_secs(10)), "the window has passed");
    }

    #[test]
    fn unspent_permit_gives_its_retry_back() {
        let (budget, now) = (budget(1.0, 0), Duration::ZERO);
        budget.record_first_try(now);
        let permit = budget.take_retry(now).unwrap();
        assert!(budget.take_retry(now).is_none());
        drop(permit);
        assert!(take(&budget, now));
        assert!(!take(&budget, now));
    }

    #[test]
    fn permit_of_a_forgotten_slot_changes_nothing() {
        let budget = budget(0.0, 1);
        let old = budget.take_retry(Duration::ZERO).unwrap();
        let later = Duration::from_secs(60);
        assert!((0..10).all(|_| take(&budget, later)));
        drop(old);
        assert!(!take(&budget, later));
    }

    #[test]
    fn invalid_budgets_are_refused() {
        let config = RetryBudgetConfig::default();
        let cases = [
            RetryBudgetConfig { ratio: -0.1, ..config },
            RetryBudgetConfig { ratio: f64::NAN, ..config },
            RetryBudgetConfig { ratio: 1001.0, ..config },
            RetryBudgetConfig { window: Duration::ZERO, ..config },
            RetryBudgetConfig { window: Duration::MAX, ..config },
        ];
        for case in cases {
            assert!(RetryBudget::new(case).is_err(), "case: {case:?}");
        }
        assert!(RetryBudget::new(config).is_ok());
    }

    #[test]
    fn threads_together_never_exceed_the_budget() {
        let budget = budget(0.5, 0);
        for _ in 0..1000 {
            budget.record_first_try(Duration::ZERO);
        }
        let taken: usize = std::thread::scope(|scope| {
            let count = || (0..1000).filter(|_| take(&budget, Duration::ZERO)).count();
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(count)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(taken, 500);
    }

    proptest! {
        /// Compared with a list of everything that happened.
        #[test]
        fn budget_allows_what_a_list_of_all_tries_allows(
            ratio in 0.0f64..2.0,
            min_per_second in 0u32..4,
            steps in prop::collection::vec((0u64..1_500, any::<bool>()), 1..200),
        ) {
            let budget = budget(ratio, min_per_second);
            let (mut now, mut tries, mut retries) = (0u64, Vec::new(), Vec::new());
            for (pause, is_first) in steps {
                now += pause;
                let slot = now / 1000;
                if is_first {
                    budget.record_first_try(Duration::from_millis(now));
                    tries.push(slot);
                    continue;
                }
                let within = |slots: &Vec<u64>| -> f64 {
                    slots.iter().filter(|at| slot - **at < 10).map(|_| 1.0).sum()
                };
                let allowed = ratio * within(&tries) + f64::from(min_per_second) * 10.0;
                let expected = within(&retries) + 1.0 <= allowed + ROUNDING;
                prop_assert_eq!(take(&budget, Duration::from_millis(now)), expected);
                if expected {
                    retries.push(slot);
                }
            }
        }
    }
}
