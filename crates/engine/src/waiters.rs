//! Senders that wait for the end of an attempt, by delivery.
//!
//! Whoever looks at the store after he began to wait misses nothing: what is recorded before the look
//! is seen there, and what is recorded after it is told here.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use surehook_core::{delivery::DeadReason, ids::DeliveryId, store::NextStep, sync::SyncResult};
use tokio::sync::watch;

/// What those who wait are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WaiterResult {
    /// An attempt has ended, or the delivery was given up without one.
    Ended(SyncResult),
    /// There will be no attempt: somebody cancelled the delivery, or deleted its destination.
    Cancelled,
}

impl WaiterResult {
    /// The delivery was given up without an attempt.
    pub(crate) fn given_up(reason: DeadReason) -> Self {
        Self::Ended(SyncResult { next: NextStep::Dead(reason), class: None, response: Vec::new() })
    }
}

type Awaited = HashMap<DeliveryId, watch::Sender<Option<WaiterResult>>>;

/// Who waits for what.
#[derive(Debug, Default)]
pub(crate) struct Waiters(Mutex<Awaited>);

/// A place in the queue of one delivery; given up when dropped.
#[derive(Debug)]
pub(crate) struct AttemptWaiter {
    waiters: Arc<Waiters>,
    delivery: DeliveryId,
    told: watch::Receiver<Option<WaiterResult>>,
}

impl Waiters {
    fn lock(&self) -> MutexGuard<'_, Awaited> {
        // A panic elsewhere cannot leave the map half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to wait for the next attempt of a delivery.
    pub(crate) fn watch(self: &Arc<Self>, delivery: DeliveryId) -> AttemptWaiter {
        let mut awaited = self.lock();
        let sender = awaited.entry(delivery).or_insert_with(|| watch::Sender::new(None));
        AttemptWaiter { waiters: Arc::clone(self), delivery, told: sender.subscribe() }
    }

    /// Whether anybody waits for it now.
    pub(crate) fn is_awaited(&self, delivery: DeliveryId) -> bool {
        self.lock().contains_key(&delivery)
    }

    /// All that somebody waits for now.
    pub(crate) fn awaited(&self) -> Vec<DeliveryId> {
        self.lock().keys().copied().collect()
    }

    /// Tells everybody who waits what was recorded.
    pub(crate) fn tell(&self, delivery: DeliveryId, told: impl FnOnce() -> WaiterResult) {
        let mut awaited = self.lock();
        if let Some(sender) = awaited.remove(&delivery) {
            // Under the lock: who goes away now must know that this entry is not his any more.
            sender.send_replace(Some(told()));
        }
    }
}

impl AttemptWaiter {
    /// What came of it. Waits for ever if nothing does.
    pub(crate) async fn told(&mut self) -> WaiterResult {
        if let Ok(told) = self.told.wait_for(Option::is_some).await
            && let Some(told) = &*told
        {
            return told.clone();
        }
        std::future::pending().await
    }
}

impl Drop for AttemptWaiter {
    fn drop(&mut self) {
        let mut awaited = self.waiters.lock();
        // Who was told has no entry any more; one that is there is for the next attempt.
        let is_told = self.told.borrow().is_some();
        // The last one to go; the receiver of this one is still counted.
        let is_last = |sender: &watch::Sender<_>| sender.receiver_count() <= 1;
        if !is_told && awaited.get(&self.delivery).is_some_and(is_last) {
            awaited.remove(&self.delivery);
        }
    }
}

#[cfg(test)]
mod tests {
    use surehook_core::time::Timestamp;

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
    async fn everybody_who_waits_is_told_and_nobody_else() {
        let waiters = Arc::new(Waiters::default());
        let (mut one, mut two) = (waiters.watch(delivery(1)), waiters.watch(delivery(1)));
        let mut other = waiters.watch(delivery(2));

        waiters.tell(delivery(1), success);

        assert_eq!((one.told().await, two.told().await), (success(), success()));
        assert!(!waiters.is_awaited(delivery(1)));
        assert!(other.told.borrow_and_update().is_none());
        // The next attempt of the same delivery is another matter.
        let mut later = waiters.watch(delivery(1));
        drop((one, two));
        assert!(waiters.is_awaited(delivery(1)), "those who were told took the next one along");
        waiters.tell(delivery(1), success);
        assert_eq!(later.told().await, success());
    }

    #[test]
    fn nothing_is_left_of_those_who_went_away() {
        let waiters = Arc::new(Waiters::default());
        let (one, two) = (waiters.watch(delivery(1)), waiters.watch(delivery(1)));
        drop(one);
        assert!(waiters.is_awaited(delivery(1)));
        drop(two);
        assert!(!waiters.is_awaited(delivery(1)));
        waiters.tell(delivery(1), || unreachable!("nobody waits"));
    }
}
