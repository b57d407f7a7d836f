//! Senders that wait for the end of an attempt, by delivery.
//!
//! A sender that reads the store after it began to wait misses nothing: a result recorded before the
//! read is in the store, and one recorded after it arrives here.
//!
//! If another node makes the attempt, the result does not arrive. Then the sender reads the store again
//! and again, and at once when that node says that there is a result ([`AttemptWaiter::store_changed`]).

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use surehook_core::{store::NextStep, sync::SyncResult};
use surehook_retry::DeadReason;
use surehook_types::ids::DeliveryId;
use tokio::sync::{Notify, watch};

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

/// How long a sender on another node is assumed to wait. It repeats itself more often.
const REMOTE_WAIT_MAX: Duration = Duration::from_secs(10);

/// The senders that wait for one delivery.
#[derive(Debug, Default)]
struct AwaitedDelivery {
    result: watch::Sender<Option<WaiterResult>>,
    /// Another node has recorded something about the delivery.
    changed: Arc<Notify>,
}

#[derive(Debug, Default)]
struct WaitersState {
    here: HashMap<DeliveryId, AwaitedDelivery>,
    /// Deliveries that senders on other nodes wait for, with the time of the last one that said so.
    elsewhere: HashMap<DeliveryId, Instant>,
}

/// All senders that wait now.
#[derive(Debug, Default)]
pub(crate) struct Waiters(Mutex<WaitersState>);

/// Whether senders on other nodes wait for a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) struct AwaitedElsewhere(pub(crate) bool);

/// One sender that waits for one delivery; unregistered when dropped.
#[derive(Debug)]
pub(crate) struct AttemptWaiter {
    waiters: Arc<Waiters>,
    delivery: DeliveryId,
    result: watch::Receiver<Option<WaiterResult>>,
    changed: Arc<Notify>,
}

impl Waiters {
    /// Begins to wait for the next attempt of a delivery.
    pub(crate) fn watch(self: &Arc<Self>, delivery: DeliveryId) -> AttemptWaiter {
        let mut state = lock(&self.0);
        let awaited = state.here.entry(delivery).or_default();
        let (result, changed) = (awaited.result.subscribe(), Arc::clone(&awaited.changed));
        AttemptWaiter { waiters: Arc::clone(self), delivery, result, changed }
    }

    /// Whether a sender waits, on any node.
    pub(crate) fn is_awaited(&self, delivery: DeliveryId) -> bool {
        let state = lock(&self.0);
        state.here.contains_key(&delivery) || state.elsewhere.contains_key(&delivery)
    }

    /// All deliveries that a sender waits for now.
    pub(crate) fn awaited(&self) -> Vec<DeliveryId> {
        lock(&self.0).here.keys().copied().collect()
    }

    /// Gives everyone who waits for the delivery its recorded result. `result` is only evaluated if a
    /// sender waits.
    pub(crate) fn notify(
        &self,
        delivery: DeliveryId,
        result: impl FnOnce() -> WaiterResult,
    ) -> AwaitedElsewhere {
        let mut state = lock(&self.0);
        if let Some(awaited) = state.here.remove(&delivery) {
            // Under the lock: a waiter dropped now must see that the map entry is no longer its own.
            awaited.result.send_replace(Some(result()));
        }
        AwaitedElsewhere(!state.elsewhere.is_empty() && state.elsewhere.remove(&delivery).is_some())
    }

    /// A sender on another node waits for the delivery.
    pub(crate) fn note_remote_waiter(&self, delivery: DeliveryId) {
        let now = Instant::now();
        let mut state = lock(&self.0);
        state.elsewhere.retain(|_, noted_at| now.duration_since(*noted_at) < REMOTE_WAIT_MAX);
        state.elsewhere.insert(delivery, now);
    }

    /// Another node has recorded something about the delivery.
    pub(crate) fn note_remote_result(&self, delivery: DeliveryId) {
        if let Some(awaited) = lock(&self.0).here.get(&delivery) {
            awaited.changed.notify_waiters();
        }
    }
}

impl AttemptWaiter {
    pub(crate) fn delivery(&self) -> DeliveryId {
        self.delivery
    }

    /// Completes when another node has recorded something about the delivery.
    pub(crate) fn store_changed(&self) -> impl Future<Output = ()> + Send + 'static {
        Arc::clone(&self.changed).notified_owned()
    }

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
        let mut state = lock(&self.waiters.0);
        // After a result the entry was removed; one that exists now is for the next attempt.
        let has_result = self.result.borrow().is_some();
        // This waiter's own receiver is still counted.
        let is_last = |awaited: &AwaitedDelivery| awaited.result.receiver_count() <= 1;
        if !has_result && state.here.get(&self.delivery).is_some_and(is_last) {
            state.here.remove(&self.delivery);
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

        assert_eq!(waiters.notify(delivery(1), success), AwaitedElsewhere(false));

        assert_eq!((one.result().await, two.result().await), (success(), success()));
        assert!(!waiters.is_awaited(delivery(1)));
        assert!(other.result.borrow_and_update().is_none());
        // The next attempt of the same delivery has waiters of its own.
        let mut later = waiters.watch(delivery(1));
        drop((one, two));
        assert!(waiters.is_awaited(delivery(1)), "finished waiters removed the next one");
        let _here = waiters.notify(delivery(1), success);
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
        let _nowhere = waiters.notify(delivery(1), || unreachable!("no sender waits"));
    }

    #[tokio::test]
    async fn result_is_announced_to_senders_on_other_nodes() {
        let waiters = Arc::new(Waiters::default());
        waiters.note_remote_waiter(delivery(1));
        assert!(waiters.is_awaited(delivery(1)) && !waiters.is_awaited(delivery(2)));
        let result = || unreachable!("no sender waits here");
        assert_eq!(waiters.notify(delivery(2), result), AwaitedElsewhere(false));
        let result = || unreachable!("no sender waits here");
        assert_eq!(waiters.notify(delivery(1), result), AwaitedElsewhere(true));

        let waiter = waiters.watch(delivery(3));
        let changed = waiter.store_changed();
        waiters.note_remote_result(delivery(3));
        changed.await;
    }
}
