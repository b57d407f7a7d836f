//! Senders that wait for the end of an attempt, by delivery.
//!
//! A sender that reads the store after it began to wait misses nothing: a result recorded before the
//! read is in the store, and one recorded after it arrives here.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use surehook_core::{store::NextStep, sync::SyncResult};
use surehook_retry::DeadReason;
use surehook_types::ids::DeliveryId;
use tokio::sync::watch;

use crate::lock::lock;

/// The result that waiting senders get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WaiterResult {
    /// An attempt has ended, or the delivery is dead without one.
    Ended(SyncResult),
    /// No attempt follows: the delivery was cancelled, or its destination deleted.
    Cancelled,
}

impl WaiterResult {
    /// The delivery is dead without an attempt.
    pub(crate) fn dead(reason: DeadReason) -> Self {
        Self::Ended(SyncResult { next: NextStep::Dead(reason), class: None, response: Vec::new() })
    }
}

type ResultSenders = HashMap<DeliveryId, watch::Sender<Option<WaiterResult>>>;

/// All senders that wait now.
#[derive(Debug, Default)]
pub(crate) struct Waiters(Mutex<ResultSenders>);

/// One sender that waits for one delivery; unregistered when dropped.
#[derive(Debug)]
pub(crate) struct AttemptWaiter {
    waiters: Arc<Waiters>,
    delivery: DeliveryId,
    result: watch::Receiver<Option<WaiterResult>>,
}

impl Waiters {
    /// Begins to wait for the next attempt of a delivery.
    pub(crate) fn watch(self: &Arc<Self>, delivery: DeliveryId) -> AttemptWaiter {
        let mut senders = lock(&self.0);
        let sender = senders.entry(delivery).or_insert_with(|| watch::Sender::new(None));
        AttemptWaiter { waiters: Arc::clone(self), delivery, result: sender.subscribe() }
    }

    pub(crate) fn is_awaited(&self, delivery: DeliveryId) -> bool {
        lock(&self.0).contains_key(&delivery)
    }

    /// All deliveries that a sender waits for now.
    pub(crate) fn awaited(&self) -> Vec<DeliveryId> {
        lock(&self.0).keys().copied().collect()
    }

    /// Gives everyone who waits for the delivery its recorded result. `result` is only evaluated if a
    /// sender waits.
    pub(crate) fn notify(&self, delivery: DeliveryId, result: impl FnOnce() -> WaiterResult) {
        let mut senders = lock(&self.0);
        if let Some(sender) = senders.remove(&delivery) {
            // Under the lock: a waiter dropped now must see that the map entry is no longer its own.
            sender.send_replace(Some(result()));
        }
    }
}

impl AttemptWaiter {
    /// The result. Waits forever if there is none.
    pub(crate) async fn result(&mut self) -> WaiterResult {
        if let Ok(result) = self.result.wait_for(Option::is_some).await
            && let Some(result) = &*result
        {
            return result.clone();
        }
        std::future::pending().await
    }
}

impl Drop for AttemptWaiter {
    fn drop(&mut self) {
        let mut senders = lock(&self.waiters.0);
        // After a result the entry was removed; one that exists now is for the next attempt.
        let has_result = self.result.borrow().is_some();
        // This waiter's own receiver is still counted.
        let is_last = |sender: &watch::Sender<_>| sender.receiver_count() <= 1;
        if !has_result && senders.get(&self.delivery).is_some_and(is_last) {
            senders.remove(&self.delivery);
        }
    }
}

#[cfg(test)]
mod tests {
    use surehook_types::time::Timestamp;

    use super::*;

    fn delivery(number: u128) -> DeliveryId {
        DeliveryId::new(Timestamp::from_millis(1), number << 100)
    }

    fn success() -> WaiterResult {
        WaiterResult::Ended(SyncResult {
            next: NextStep::Succeeded,
            class: None,
            response: b"{}".to_vec(),
        })
    }

    #[tokio::test]
    async fn result_reaches_all_waiters_of_the_delivery_and_no_others() {
        let waiters = Arc::new(Waiters::default());
        let (mut one, mut two) = (waiters.watch(delivery(1)), waiters.watch(delivery(1)));
        let mut other = waiters.watch(delivery(2));

        waiters.notify(delivery(1), success);

        assert_eq!((one.result().await, two.result().await), (success(), success()));
        assert!(!waiters.is_awaited(delivery(1)));
        assert!(other.result.borrow_and_update().is_none());
        // The next attempt of the same delivery has waiters of its own.
        let mut later = waiters.watch(delivery(1));
        drop((one, two));
        assert!(waiters.is_awaited(delivery(1)), "finished waiters removed the next one");
        waiters.notify(delivery(1), success);
        assert_eq!(later.result().await, success());
    }

    #[test]
    fn dropped_waiters_leave_no_entry() {
        let waiters = Arc::new(Waiters::default());
        let (one, two) = (waiters.watch(delivery(1)), waiters.watch(delivery(1)));
        drop(one);
        assert!(waiters.is_awaited(delivery(1)));
        drop(two);
        assert!(!waiters.is_awaited(delivery(1)));
        waiters.notify(delivery(1), || unreachable!("no sender waits"));
    }
}
