//! Signals to and from other nodes.
//!
//! Anything may call [`SignalOutbox::publish`], which only puts the signal into a set; a task publishes
//! what has gathered. Another task polls for what other nodes have published and passes it on. Signals
//! only make things faster, so an error is logged and nothing else: whatever follows from a signal also
//! follows from what this process reads anyway, within a few seconds.
//!
//! A process that is the only node sends and polls nothing.

use std::{
    collections::HashSet,
    mem,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use serde_json::{Value, json};
use surehook_core::store::{Duty, Signal, SignalBatch, SignalPosition};
use surehook_types::ids::DestinationId;
use tokio::sync::Notify;

use crate::{Engine, feed::LiveUpdate, lock::lock};

/// The time between two calls that publish: what gathers in it is published together.
const GATHER_TIME: Duration = Duration::from_millis(10);
/// Signals published in one call; the rest follows in further calls.
const SIGNALS_MAX: usize = 500;
/// Live updates that may wait to be published; if there are more, followers elsewhere notice a gap.
const UPDATES_MAX: usize = 1000;
/// Bytes of live updates in one signal.
const UPDATES_BYTES_MAX: usize = 60_000;
/// How long a poll waits for something new.
const POLL_WAIT: Duration = Duration::from_secs(1);
/// The pause after a poll failed.
const ERROR_PAUSE: Duration = Duration::from_millis(500);
/// How often the store is searched for due deliveries of lanes that this process owns.
const DUE_SEARCH_INTERVAL: Duration = Duration::from_secs(1);

/// Signals that wait to be published.
#[derive(Debug, Default)]
pub(crate) struct SignalOutbox {
    /// Whether there may be other nodes.
    is_open: AtomicBool,
    waiting: Mutex<WaitingSignals>,
    added: Notify,
}

#[derive(Debug, Default)]
struct WaitingSignals {
    signals: HashSet<Signal>,
    updates: Vec<Value>,
}

impl SignalOutbox {
    /// Begins to collect signals: from now on there may be other nodes.
    pub(crate) fn open(&self) {
        self.is_open.store(true, Ordering::Release);
    }

    pub(crate) fn publish(&self, signal: Signal) {
        if self.is_open.load(Ordering::Acquire) {
            lock(&self.waiting).signals.insert(signal);
            self.added.notify_one();
        }
    }

    pub(crate) fn publish_update(&self, update: &LiveUpdate) {
        self.push_update(json!({ "kind": update.kind(), "data": update }));
    }

    /// Tells the followers on other nodes that live updates are missing.
    pub(crate) fn publish_gap(&self) {
        self.push_update(gap());
    }

    fn push_update(&self, update: Value) {
        if !self.is_open.load(Ordering::Acquire) {
            return;
        }
        let mut waiting = lock(&self.waiting);
        if waiting.updates.len() >= UPDATES_MAX {
            // Followers load everything again, so nothing before the gap is needed.
            waiting.updates.clear();
            waiting.updates.push(gap());
        } else {
            waiting.updates.push(update);
        }
        drop(waiting);
        self.added.notify_one();
    }

    /// Everything in the outbox, in calls of a limited size.
    pub(crate) fn take(&self) -> Vec<Vec<Signal>> {
        let WaitingSignals { signals, updates } = mem::take(&mut *lock(&self.waiting));
        let mut all: Vec<Signal> = signals.into_iter().collect();
        all.extend(encode_updates(updates));
        all.chunks(SIGNALS_MAX).map(<[Signal]>::to_vec).collect()
    }
}

fn gap() -> Value {
    json!({ "kind": "gap" })
}

/// Puts updates into as few signals as their size permits.
fn encode_updates(updates: Vec<Value>) -> Vec<Signal> {
    let mut signals = Vec::new();
    let mut list = String::new();
    for update in updates {
        let text = update.to_string();
        if !list.is_empty() && list.len() + text.len() > UPDATES_BYTES_MAX {
            signals.push(Signal::LiveUpdates(format!("[{list}]")));
            list.clear();
        }
        if !list.is_empty() {
            list.push(',');
        }
        list.push_str(&text);
    }
    if !list.is_empty() {
        signals.push(Signal::LiveUpdates(format!("[{list}]")));
    }
    signals
}

/// The updates of a signal; `None` stands for a gap.
fn decode_updates(text: &str) -> Vec<Option<LiveUpdate>> {
    let Ok(updates) = serde_json::from_str::<Vec<Value>>(text) else { return vec![None] };
    let decode = |mut update: Value| {
        let data = update.get_mut("data").map(Value::take)?;
        LiveUpdate::parse(update.get("kind")?.as_str()?, data)
    };
    updates.into_iter().map(decode).collect()
}

/// Publishes everything in the outbox, until the engine stops.
pub(crate) async fn publish_waiting(engine: Arc<Engine>) {
    let (shared, outbox) = (&engine.shared, &engine.shared.signals);
    loop {
        tokio::select! {
            () = shared.stop.cancelled() => return,
            () = outbox.added.notified() => {}
        }
        for signals in outbox.take() {
            if let Err(error) = engine.store.publish_signals(shared.node.id(), signals).await {
                tracing::debug!(%error, "could not publish signals; other nodes notice later");
            }
        }
        tokio::time::sleep(GATHER_TIME).await;
    }
}

/// Polls for signals of other nodes, until the engine stops.
pub(crate) async fn follow_others(engine: Arc<Engine>) {
    let shared = &engine.shared;
    let mut position: Option<SignalPosition> = None;
    loop {
        let polled = tokio::select! {
            () = shared.stop.cancelled() => return,
            polled = engine.store.poll_signals(shared.node.id(), position, POLL_WAIT) => polled,
        };
        match polled {
            Ok(batch) => {
                position = Some(batch.position);
                engine.apply_signals(batch);
            }
            Err(error) => {
                tracing::debug!(%error, "could not read the signals of other nodes");
                tokio::time::sleep(ERROR_PAUSE).await;
            }
        }
    }
}

/// Finds due deliveries that other nodes have stored for lanes of this one, until the engine stops.
pub(crate) async fn watch_due_deliveries(engine: Arc<Engine>) {
    loop {
        tokio::select! {
            () = engine.shared.stop.cancelled() => return,
            () = tokio::time::sleep(DUE_SEARCH_INTERVAL) => {}
        }
        let now = engine.shared.clock.now();
        match engine.store.find_oldest_due(now).await {
            Ok(oldest) => {
                let registry = engine.registry.load();
                for (destination, due_at) in oldest {
                    let lanes = registry.lanes_of(destination).iter();
                    lanes.for_each(|lane| lane.expect_due(due_at));
                }
            }
            Err(error) => tracing::debug!(%error, "could not search for due deliveries"),
        }
        if engine.shared.feed.has_subscribers() {
            engine.shared.signals.publish(Signal::LiveUpdatesWatched);
        }
    }
}

impl Engine {
    /// Passes on what other nodes have published. Starts tasks for what takes time, because the next
    /// signals must not wait for it.
    fn apply_signals(self: &Arc<Self>, batch: SignalBatch) {
        let node = &self.shared.node;
        if batch.configuration != self.registry.load().version {
            node.lanes_changed.notify_one();
        }
        self.tokens.send_if_modified(|known| {
            let is_new = *known != batch.tokens;
            *known = batch.tokens;
            is_new
        });
        if batch.has_gap {
            node.lanes_changed.notify_one();
            self.shared.feed.skip_here();
        }
        let mut have_replays_changed = batch.has_gap;
        for signal in batch.signals {
            match signal {
                // The versions, compared above, show it.
                Signal::ConfigurationChanged | Signal::TokensChanged => {}
                Signal::NodesChanged => node.lanes_changed.notify_one(),
                Signal::LaneDue(destination) => self.expect_due_here(destination),
                Signal::LaneRequested(_) => {
                    node.requests_changed.notify_one();
                    node.answers_changed.notify_waiters();
                }
                Signal::DestinationCooling(destination, until) => {
                    self.cool_down_lanes(destination, until);
                }
                Signal::DeliveryAwaited(delivery) => {
                    self.shared.waiters.note_remote_waiter(delivery);
                }
                Signal::DeliverySettled(delivery) => {
                    self.shared.waiters.note_remote_result(delivery);
                }
                Signal::ReplayChanged(job) => {
                    self.wake_replay_task(job);
                    have_replays_changed = true;
                }
                Signal::LiveUpdatesWatched => self.shared.feed.note_remote_followers(),
                Signal::LiveUpdates(updates) => {
                    for update in decode_updates(&updates) {
                        self.shared.feed.publish_remote(update);
                    }
                }
            }
        }
        if have_replays_changed && node.leads(Duty::ReplayJobs) {
            let engine = Arc::clone(self);
            self.shared.tasks.spawn(async move {
                if let Err(error) = engine.resume_replays().await {
                    tracing::debug!(%error, "could not read replay jobs; they are read again soon");
                }
            });
        }
    }

    fn expect_due_here(&self, destination: DestinationId) {
        let now = self.shared.clock.now();
        let registry = self.registry.load();
        registry.lanes_of(destination).iter().for_each(|lane| lane.expect_due(now));
    }
}

#[cfg(test)]
mod tests {
    use surehook_types::{ids::DestinationId, time::Timestamp};

    use super::*;
    use crate::feed::{DestinationChange, DestinationChanged};

    fn update(n: u128) -> LiveUpdate {
        LiveUpdate::DestinationChanged(DestinationChanged {
            id: DestinationId::new(Timestamp::from_millis(1), n << 100),
            name: Some("crm".repeat(40)),
            change: DestinationChange::State,
            at: Timestamp::from_millis(5),
        })
    }

    #[test]
    fn nothing_waits_in_a_process_that_is_the_only_node() {
        let outbox = SignalOutbox::default();
        outbox.publish(Signal::TokensChanged);
        outbox.publish_update(&update(1));
        assert!(outbox.take().is_empty());
    }

    #[test]
    fn equal_signals_are_published_once_and_updates_together() {
        let outbox = SignalOutbox::default();
        outbox.open();
        for _ in 0..3 {
            outbox.publish(Signal::TokensChanged);
        }
        outbox.publish_update(&update(1));
        outbox.publish_gap();
        outbox.publish_update(&update(2));

        let [signals] = &outbox.take()[..] else { panic!("it is one call") };

        let [Signal::TokensChanged, Signal::LiveUpdates(updates)] = &signals[..] else {
            panic!("{signals:?}")
        };
        assert_eq!(decode_updates(updates), [Some(update(1)), None, Some(update(2))]);
        assert!(outbox.take().is_empty());
    }

    #[test]
    fn many_updates_are_split_and_too_many_become_a_gap() {
        let outbox = SignalOutbox::default();
        outbox.open();
        for n in 0..UPDATES_MAX as u128 {
            outbox.publish_update(&update(n));
        }
        let signals = outbox.take().concat();
        assert!(signals.len() > 1);
        assert!(signals.iter().all(|signal| signal.reference().len() <= UPDATES_BYTES_MAX + 2));

        for n in 0..=UPDATES_MAX as u128 {
            outbox.publish_update(&update(n));
        }
        let signals = outbox.take().concat();
        let decoded: Vec<_> =
            signals.iter().flat_map(|signal| decode_updates(&signal.reference())).collect();
        assert_eq!(decoded, [None]);
        assert_eq!(decode_updates("of a newer version"), [None]);
    }
}
