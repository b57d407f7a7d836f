//! Live updates: a numbered list of changes that subscribers follow.
//!
//! - **No silent gap.** Every update has a number, even one without subscribers. A subscriber reads the
//!   ring buffer from its own position; if a number is no longer there it gets [`MissedUpdates`] and must
//!   load everything again.
//! - **A slow subscriber slows nothing down.** It has no queue of its own: it falls out of the ring.
//! - **Nearly free without subscribers**: two loads and an increment. The ring keeps filling for a while
//!   after the last one left, so that a reconnect misses nothing.
//!
//! While a client of another node follows the updates of all nodes, they are also passed on to that node
//! ([`Feed::note_remote_followers`]).
//!
//! Updates are published after the commit. After a restart the numbers belong to another run, and a
//! subscriber with an old position must load everything again.

use std::{
    collections::VecDeque,
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use surehook_core::{
    delivery::state::DeliveryStatus,
    store::{NextStep, Signal},
};
use surehook_retry::DeadReason;
use surehook_types::{
    ids::{DeliveryId, DestinationId, EventId},
    rng::Rng,
    time::{Clock, Timestamp},
};
use surehook_webhooks::attribute::EventKind;
use tokio::sync::Notify;

use crate::{lock::lock, signals::SignalOutbox};

/// Updates kept for subscribers that lag or reconnect.
const RING_MAX: usize = 8192;
/// Updates that a subscriber takes at once.
const TAKE_MAX: usize = 256;
/// How long the ring keeps filling after the last subscriber left.
const LINGER: Duration = Duration::from_secs(60);
/// How long updates are passed on to a node whose client follows them. It repeats its announcement more
/// often.
const FOLLOWED_FOR: Duration = Duration::from_secs(15);

/// A change that is published to subscribers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum LiveUpdate {
    EventReceived(EventReceived),
    DeliveryChanged(DeliveryChanged),
    DestinationChanged(DestinationChanged),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EventReceived {
    pub id: EventId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<EventKind>,
    pub received_at: Timestamp,
    pub body_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeliveryChanged {
    pub id: DeliveryId,
    pub event: EventId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination: Option<String>,
    pub status: DeliveryStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<DeadReason>,
    pub attempts: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub due_at: Option<Timestamp>,
    pub at: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DestinationChanged {
    pub id: DestinationId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub change: DestinationChange,
    pub at: Timestamp,
}

/// What changed about a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DestinationChange {
    /// Created, or its settings were replaced.
    Put,
    /// Deleted; its pending deliveries are cancelled.
    Deleted,
    /// Paused or resumed, or its circuit changed.
    State,
    /// Its health has another status.
    Health,
}

impl LiveUpdate {
    /// The names of all kinds.
    pub const KINDS: [&'static str; 3] =
        ["event.received", "delivery.changed", "destination.changed"];

    /// The update for a settled attempt.
    pub(crate) fn settled(
        id: DeliveryId,
        event: EventId,
        destination: Option<String>,
        next: NextStep,
        attempts: u32,
        at: Timestamp,
    ) -> Self {
        let (status, reason, due_at) = match next {
            NextStep::Succeeded => (DeliveryStatus::Succeeded, None, None),
            NextStep::RetryAt(due_at) => (DeliveryStatus::Scheduled, None, Some(due_at)),
            NextStep::Dead(reason) => (DeliveryStatus::Dead, Some(reason), None),
        };
        let changed =
            DeliveryChanged { id, event, destination, status, reason, attempts, due_at, at };
        Self::DeliveryChanged(changed)
    }

    /// The update of this kind with these fields; `None` if a newer version has written it.
    pub(crate) fn parse(kind: &str, data: Value) -> Option<Self> {
        let [received, delivery, destination] = Self::KINDS;
        match kind {
            kind if kind == received => serde_json::from_value(data).ok().map(Self::EventReceived),
            kind if kind == delivery => {
                serde_json::from_value(data).ok().map(Self::DeliveryChanged)
            }
            kind if kind == destination => {
                serde_json::from_value(data).ok().map(Self::DestinationChanged)
            }
            _ => None,
        }
    }

    /// The name of its kind.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::EventReceived(_) => Self::KINDS[0],
            Self::DeliveryChanged(_) => Self::KINDS[1],
            Self::DestinationChanged(_) => Self::KINDS[2],
        }
    }
}

/// An update with its number.
pub type NumberedUpdate = (u64, Arc<LiveUpdate>);

/// Some updates are no longer available; the subscriber continues from now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissedUpdates;

/// Updates without a gap: the first has the number `first`, and each next one the next number.
#[derive(Debug, Default)]
struct UpdateRing {
    first: u64,
    updates: VecDeque<Arc<LiveUpdate>>,
}

impl UpdateRing {
    fn push(&mut self, number: u64, update: Arc<LiveUpdate>) {
        if self.first + self.updates.len() as u64 != number {
            // A number was skipped: the updates before it would have a gap after them.
            self.updates.clear();
        }
        if self.updates.len() == RING_MAX {
            self.updates.pop_front();
            self.first += 1;
        }
        if self.updates.is_empty() {
            self.first = number;
        }
        self.updates.push_back(update);
    }

    /// Up to [`TAKE_MAX`] updates after the number `after`, if none is missing. `latest` is the last number
    /// that was assigned.
    fn read_after(&self, after: u64, latest: u64) -> Result<Vec<NumberedUpdate>, MissedUpdates> {
        if after == latest {
            return Ok(Vec::new());
        }
        let end = self.first + self.updates.len() as u64;
        if after + 1 < self.first || after + 1 >= end {
            return Err(MissedUpdates);
        }
        let skip = usize::try_from(after + 1 - self.first).map_err(|_| MissedUpdates)?;
        let numbers = after + 1..;
        Ok(numbers.zip(self.updates.iter().skip(skip).take(TAKE_MAX).cloned()).collect())
    }
}

/// All updates of this run.
pub struct Feed {
    /// Random id of this run of the process, a part of every update id.
    run: String,
    clock: Arc<dyn Clock>,
    /// Where updates for followers on other nodes go.
    outbox: Arc<SignalOutbox>,
    subscribers: AtomicUsize,
    linger_until: AtomicI64,
    /// Until when there are followers on other nodes; zero before the first one.
    followed_elsewhere_until: AtomicI64,
    /// Last number that was assigned.
    latest: AtomicU64,
    ring: Mutex<UpdateRing>,
    published: Notify,
}

impl fmt::Debug for Feed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Feed").field("run", &self.run).finish_non_exhaustive()
    }
}

impl Feed {
    pub(crate) fn new(
        clock: Arc<dyn Clock>,
        rng: &dyn Rng,
        outbox: Arc<SignalOutbox>,
    ) -> Arc<Self> {
        Arc::new(Self {
            run: format!("{:012x}", rng.next_u128() >> 80),
            clock,
            outbox,
            subscribers: AtomicUsize::new(0),
            linger_until: AtomicI64::new(0),
            followed_elsewhere_until: AtomicI64::new(0),
            latest: AtomicU64::new(0),
            ring: Mutex::default(),
            published: Notify::new(),
        })
    }

    /// Whether there is a subscriber on any node, or was one here shortly before `at`.
    pub(crate) fn is_active(&self, at: Timestamp) -> bool {
        self.is_active_here(at) || self.is_followed_elsewhere(at)
    }

    fn is_active_here(&self, at: Timestamp) -> bool {
        self.has_subscribers() || at.as_millis() < self.linger_until.load(Ordering::Relaxed)
    }

    fn is_followed_elsewhere(&self, at: Timestamp) -> bool {
        at.as_millis() < self.followed_elsewhere_until.load(Ordering::Relaxed)
    }

    pub(crate) fn has_subscribers(&self) -> bool {
        self.subscribers.load(Ordering::SeqCst) > 0
    }

    /// A client of another node follows the updates of all nodes.
    pub(crate) fn note_remote_followers(&self) {
        let until = self.clock.now() + FOLLOWED_FOR;
        self.followed_elsewhere_until.fetch_max(until.as_millis(), Ordering::Relaxed);
    }

    /// Publishes a change of the time `at`, after its commit. `build` is only called if there is a
    /// subscriber on any node, or was one here shortly before.
    pub(crate) fn publish(&self, at: Timestamp, build: impl FnOnce() -> LiveUpdate) {
        if !self.is_active(at) {
            return self.skip();
        }
        let update = build();
        if self.is_followed_elsewhere(at) {
            self.outbox.publish_update(&update);
        }
        self.push(update);
    }

    /// Publishes an update of another node to subscribers of this one; `None` if one is missing.
    pub(crate) fn publish_remote(&self, update: Option<LiveUpdate>) {
        match update {
            Some(update) if self.is_active_here(self.clock.now()) => self.push(update),
            Some(_) | None => self.skip_here(),
        }
    }

    fn push(&self, update: LiveUpdate) {
        let update = Arc::new(update);
        let mut ring = lock(&self.ring);
        let number = self.latest.fetch_add(1, Ordering::SeqCst) + 1;
        ring.push(number, update);
        drop(ring);
        self.published.notify_waiters();
    }

    /// Assigns a number to a change that is not published.
    pub(crate) fn skip(&self) {
        self.skip_here();
        if self.followed_elsewhere_until.load(Ordering::Relaxed) > 0
            && self.is_followed_elsewhere(self.clock.now())
        {
            self.outbox.publish_gap();
        }
    }

    /// Assigns a number to a change of another node that is missing.
    pub(crate) fn skip_here(&self) {
        self.latest.fetch_add(1, Ordering::SeqCst);
    }

    /// Subscribes: after the id `since` if it is given, from now on otherwise. Also from now on, with
    /// [`MissedUpdates`], if updates after `since` are no longer available.
    pub fn subscribe(
        self: &Arc<Self>,
        since: Option<&str>,
    ) -> (FeedSubscriber, Option<MissedUpdates>) {
        if self.subscribers.fetch_add(1, Ordering::SeqCst) == 0 {
            self.outbox.publish(Signal::LiveUpdatesWatched);
        }
        let latest = self.latest.load(Ordering::SeqCst);
        let mut subscriber = FeedSubscriber { feed: Arc::clone(self), last_read: latest };
        let Some(since) = since else { return (subscriber, None) };
        let number = since
            .split_once('-')
            .filter(|(run, _)| *run == self.run)
            .and_then(|(_, number)| number.parse().ok())
            .filter(|number| *number <= latest);
        match number {
            Some(number) if lock(&self.ring).read_after(number, latest).is_ok() => {
                subscriber.last_read = number;
                (subscriber, None)
            }
            Some(_) | None => (subscriber, Some(MissedUpdates)),
        }
    }
}

/// A position in the feed.
#[derive(Debug)]
pub struct FeedSubscriber {
    feed: Arc<Feed>,
    /// Number of the last update that was taken.
    last_read: u64,
}

impl FeedSubscriber {
    /// The id of a number, for a later `subscribe`.
    pub fn id(&self, number: u64) -> String {
        format!("{}-{number}", self.feed.run)
    }

    /// The id of the current position.
    pub fn position(&self) -> String {
        self.id(self.last_read)
    }

    /// The updates that are available now, without waiting.
    pub fn take_available(&mut self) -> Result<Vec<NumberedUpdate>, MissedUpdates> {
        let ring = lock(&self.feed.ring);
        let latest = self.feed.latest.load(Ordering::SeqCst);
        let updates = ring.read_after(self.last_read, latest);
        drop(ring);
        match &updates {
            Ok(updates) => {
                self.last_read = updates.last().map_or(self.last_read, |(number, _)| *number);
            }
            Err(MissedUpdates) => self.last_read = latest,
        }
        updates
    }

    /// Waits for at least one update.
    pub async fn next(&mut self) -> Result<Vec<NumberedUpdate>, MissedUpdates> {
        let feed = Arc::clone(&self.feed);
        loop {
            let mut published = std::pin::pin!(feed.published.notified());
            // Enabled before the read: an update published in between is not missed.
            published.as_mut().enable();
            let updates = self.take_available()?;
            if !updates.is_empty() {
                return Ok(updates);
            }
            published.await;
        }
    }
}

impl Drop for FeedSubscriber {
    fn drop(&mut self) {
        let until = self.feed.clock.now() + LINGER;
        self.feed.linger_until.fetch_max(until.as_millis(), Ordering::Relaxed);
        self.feed.subscribers.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests;
