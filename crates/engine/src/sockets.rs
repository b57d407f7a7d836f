//! A limit on the sockets that deliveries may have open.
//!
//! The limit leaves file descriptors for incoming connections and the store. Without it, slow destinations
//! would use up all descriptors of the process, and not even `/livez` could be answered.

use std::sync::Arc;

use surehook_guard::connect::ConnectError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The sockets that all destinations share. Clones share the same limit.
#[derive(Clone, Debug)]
pub struct SocketBudget {
    permits: Arc<Semaphore>,
    max: usize,
}

/// One or more sockets of the budget, returned when dropped.
pub(crate) type SocketPermit = OwnedSemaphorePermit;

impl SocketBudget {
    pub fn new(max: usize) -> Self {
        let max = max.clamp(1, Semaphore::MAX_PERMITS);
        Self { permits: Arc::new(Semaphore::new(max)), max }
    }

    /// Takes `count` sockets; fails at once if fewer are left.
    pub(crate) fn take(&self, count: u32) -> Result<SocketPermit, ConnectError> {
        let permits = Arc::clone(&self.permits);
        permits.try_acquire_many_owned(count).map_err(|_| ConnectError::NoResources)
    }

    /// Whether so few are left that connections should not be kept open unused.
    pub(crate) fn is_scarce(&self) -> bool {
        self.permits.available_permits() < self.max / 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn used_up_budget_refuses_until_a_socket_is_returned() {
        let budget = SocketBudget::new(4);
        let first = budget.take(1).unwrap();
        assert!(!budget.is_scarce());
        let rest = budget.take(3).unwrap();

        assert!(budget.is_scarce());
        assert!(matches!(budget.take(1), Err(ConnectError::NoResources)));

        drop(first);
        let again = budget.take(1).unwrap();
        drop((rest, again));
        assert!(!budget.is_scarce());
    }
}
