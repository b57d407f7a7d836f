//! Token buckets, one for each of many keys: a burst at once, then one per interval. Unauthenticated
//! requests choose the keys, so the number of keys is bounded too.

use std::{collections::HashMap, hash::Hash, sync::Mutex, time::Duration};

use surehook_types::time::Timestamp;

use crate::lock::lock;

/// How much is allowed for one key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AllowanceRate {
    /// Number allowed at once.
    pub(crate) burst: u32,
    /// Time after which one more is allowed.
    pub(crate) one_every: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Allowance {
    left: u32,
    since: Timestamp,
}

impl Allowance {
    /// Adds what has become available since the last refill.
    fn refill(&mut self, rate: AllowanceRate, now: Timestamp) {
        // The clock may have gone back.
        self.since = self.since.min(now);
        let gained = now.since(self.since).as_millis() / rate.one_every.as_millis().max(1);
        if gained > 0 {
            let gained = u32::try_from(gained).unwrap_or(rate.burst);
            self.left = self.left.saturating_add(gained).min(rate.burst);
            self.since = now;
        }
    }
}

/// The allowances of many keys.
#[derive(Debug)]
pub(crate) struct AllowanceTable<K> {
    keys_max: usize,
    keys: Mutex<HashMap<K, Allowance>>,
}

impl<K: Eq + Hash> AllowanceTable<K> {
    pub(crate) fn new(keys_max: usize) -> Self {
        Self { keys_max, keys: Mutex::default() }
    }

    /// Uses up `cost` of the allowance of a key; `false` if there is not enough left. A key beyond the
    /// bound of the table has none.
    pub(crate) fn take(&self, key: K, rate: AllowanceRate, cost: u32, now: Timestamp) -> bool {
        let mut keys = lock(&self.keys);
        if keys.len() >= self.keys_max && !keys.contains_key(&key) {
            // A key whose allowance is complete again is as good as a new one.
            keys.retain(|_, allowance| {
                allowance.refill(rate, now);
                allowance.left < rate.burst
            });
            if keys.len() >= self.keys_max {
                return false;
            }
        }
        let allowance = keys.entry(key).or_insert(Allowance { left: rate.burst, since: now });
        allowance.refill(rate, now);
        let rest = allowance.left.checked_sub(cost);
        allowance.left = rest.unwrap_or(allowance.left);
        rest.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_000_000);
    const RATE: AllowanceRate = AllowanceRate { burst: 10, one_every: Duration::from_secs(1) };

    #[test]
    fn burst_passes_and_then_one_per_interval() {
        let table = AllowanceTable::new(4);
        let allowed = |now| (0..100).filter(|_| table.take("a", RATE, 1, now)).count();
        assert_eq!(allowed(NOW), 10);
        assert_eq!(allowed(NOW + 3 * RATE.one_every), 3);
        assert_eq!(allowed(NOW + 100 * RATE.one_every), 10);
        assert!(table.take("b", RATE, 10, NOW), "another key has its own allowance");
        assert!(!table.take("b", RATE, 1, NOW));
    }

    #[test]
    fn too_high_cost_takes_nothing() {
        let table = AllowanceTable::new(4);
        assert!(!table.take("a", RATE, 11, NOW));
        assert!(table.take("a", RATE, 10, NOW));
    }

    #[test]
    fn full_table_gives_nothing_until_a_key_is_idle() {
        let table = AllowanceTable::new(2);
        assert!(table.take(1, RATE, 1, NOW) && table.take(2, RATE, 5, NOW));
        assert!(!table.take(3, RATE, 1, NOW));
        assert!(table.take(1, RATE, 1, NOW), "known keys are not affected");
        assert!(table.take(3, RATE, 1, NOW + 2 * RATE.one_every));
    }
}
