//! Throttles guessing: counts the unknown tokens and login codes that an address presents.
//!
//! Only failures are throttled. A valid token from the same address, for example behind a shared
//! proxy, is looked up first and always works.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use surehook_core::access::ClientAddress;
use surehook_guard::address::address_bucket;
use surehook_types::time::Timestamp;

/// Failures of an address in a [`WINDOW`] that are answered with 401; further ones get 429.
pub(crate) const FAILURES_MAX: u32 = 20;

const WINDOW: Duration = Duration::from_secs(60);

/// Addresses that are remembered. Beyond that, all are forgotten: memory is bounded, and an attacker
/// with this many addresses is not stopped by counting them.
const ADDRESSES_MAX: usize = 10_000;

#[derive(Clone, Copy, Debug)]
struct FailureCount {
    started_at: Timestamp,
    failures: u32,
}

/// Failed attempts to authenticate, by address.
#[derive(Debug, Default)]
pub(crate) struct FailedLogins(Mutex<HashMap<IpAddr, FailureCount>>);

impl FailedLogins {
    /// Counts a failure. Returns the seconds until the address may try again, if it has to wait.
    pub(crate) fn record(&self, client: Option<&ClientAddress>, now: Timestamp) -> Option<u64> {
        let address = address_bucket(client?.0.parse().ok()?);
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if counts.len() >= ADDRESSES_MAX && !counts.contains_key(&address) {
            counts.retain(|_, count| count.started_at + WINDOW > now);
            if counts.len() >= ADDRESSES_MAX {
                counts.clear();
            }
        }
        let new = FailureCount { started_at: now, failures: 0 };
        let count = counts.entry(address).or_insert(new);
        // Also after a clock that went back: no wait is longer than a window.
        if count.started_at + WINDOW <= now || count.started_at > now {
            *count = new;
        }
        count.failures = count.failures.saturating_add(1);
        let ends_at = count.started_at + WINDOW;
        (count.failures > FAILURES_MAX).then(|| ends_at.since(now).as_secs().max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

    fn client(address: &str) -> ClientAddress {
        ClientAddress(address.into())
    }

    #[test]
    fn failures_of_an_address_are_throttled_until_the_window_ends() {
        let failed = FailedLogins::default();
        let record = |address: &str, at| failed.record(Some(&client(address)), at);
        for _ in 0..FAILURES_MAX {
            assert_eq!(record("192.0.2.1", NOW), None);
        }
        let later = NOW + Duration::from_secs(20);
        assert_eq!(record("192.0.2.1", later), Some(40));
        assert_eq!(record("192.0.2.2", later), None, "another address is not affected");
        assert_eq!(record("192.0.2.1", NOW + WINDOW), None, "the window has ended");
    }

    #[test]
    fn addresses_of_one_ipv6_network_count_together() {
        let failed = FailedLogins::default();
        let mut throttled = 0;
        for n in 0..=FAILURES_MAX {
            let address = client(&format!("2001:db8::{n:x}"));
            throttled += u32::from(failed.record(Some(&address), NOW).is_some());
        }
        assert_eq!(throttled, 1);
        assert_eq!(failed.record(Some(&client("2001:db8:0:1::1")), NOW), None);
        assert_eq!(address_bucket("::ffff:192.0.2.1".parse().unwrap()).to_string(), "192.0.2.1");
    }

    #[test]
    fn number_of_remembered_addresses_is_bounded() {
        let failed = FailedLogins::default();
        for n in 0..u32::try_from(ADDRESSES_MAX).unwrap() + 5 {
            let address = std::net::Ipv4Addr::from(n);
            failed.record(Some(&client(&address.to_string())), NOW);
        }
        assert!(failed.0.lock().unwrap().len() <= ADDRESSES_MAX);
    }
}
