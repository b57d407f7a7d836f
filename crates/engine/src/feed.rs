//! What happens, as it happens: a numbered list of news that listeners follow.
//!
//! ```text
//!   door, lanes, changes ── publish (after the commit) ──► ring ──► listeners, each at its own place
//! ```
//!
//! - **Never a silent gap.** Every piece of news has a number, also one that nobody heard. A listener
//!   reads from the ring after the number it has; when a number in between is not there any more, it
//!   is told so ([`MissedUpdates`]) and must look at the whole again.
//! - **A slow listener slows nobody.** It has no queue of its own: it falls out of the ring.
//! - **Nearly free when nobody listens**: a look at two numbers and a step of a third. The ring goes on
//!   for a while after the last listener left, so that one that comes back misses nothing.
//!
//! News is about what is committed, and may be lost when the process dies: after a restart the numbers
//! belong to another run, and whoever names an old one is told to look at the whole again.

use std::{
    collections::VecDeque,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use schemars::JsonSchema;
use serde::Serialize;
use surehook_core::{
    attribute::EventKind,
    delivery::{DeadReason, state::DeliveryStatus},
    ids::{DeliveryId, DestinationId, EventId},
    rng::Rng,
    store::NextStep,
    time::{Clock, Timestamp},
};
use tokio::sync::Notify;

/// News kept for listeners that lag or come back.
const RING_MAX: usize = 8192;
/// News that a listener takes at once.
const TAKE_MAX: usize = 256;
/// How long the ring goes on after the last listener left.
const LINGER: Duration = Duration::from_secs(60);

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum LiveUpdate {
    /// An event was taken in.
    EventReceived(EventReceived),
    /// A delivery is in another state than before.
    DeliveryChanged(DeliveryChanged),
    /// A destination was created, changed, deleted, or does otherwise than before.
    DestinationChanged(DestinationChanged),
}

/// An event was taken in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct EventReceived {
    /// The event.
    pub id: EventId,
    /// The name of its source.
    pub source: Option<String>,
    /// Its key.
    pub key: Option<String>,
    /// What sort of thing happened.
    pub kind: Option<EventKind>,
    /// When it came.
    pub received_at: Timestamp,
    /// The length of its body.
    pub body_bytes: u64,
}

/// A delivery is in another state than before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct DeliveryChanged {
    /// The delivery.
    pub id: DeliveryId,
    /// Its event.
    pub event: EventId,
    /// The name of its destination.
    pub destination: Option<String>,
    /// What it is now.
    pub status: DeliveryStatus,
    /// Why it is dead.
    pub reason: Option<DeadReason>,
    /// Attempts so far.
    pub attempts: u32,
    /// When it is tried next.
    pub due_at: Option<Timestamp>,
    /// When it became so.
    pub at: Timestamp,
}

/// A destination was created, changed, deleted, or does otherwise than before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct DestinationChanged {
    /// The destination.
    pub id: DestinationId,
    /// Its name.
    pub name: Option<String>,
    /// What was done to it.
    pub change: DestinationChange,
    /// When.
    pub at: Timestamp,
}

/// What was done to a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DestinationChange {
    /// It was created or its settings were replaced.
    Put,
    /// It was deleted; what it was owed is cancelled.
    Deleted,
    /// It was paused or resumed, or its circuit moved.
    State,
}

impl LiveUpdate {
    /// The words for all kinds.
    pub const KINDS: [&'static str; 3] =
        ["event.received", "delivery.changed", "destination.changed"];

    /// What a settled attempt tells.
    pub(crate) fn settled(
        id: DeliveryId,
        event: EventId,
        destination: Option<String>,
        (next, attempts, at): (NextStep, u32, Timestamp),
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

    /// The word for its kind.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::EventReceived(_) => Self::KINDS[0],
            Self::DeliveryChanged(_) => Self::KINDS[1],
            Self::DestinationChanged(_) => Self::KINDS[2],
        }
    }
}

/// News with its number.
pub type NumberedUpdate = (u64, Arc<LiveUpdate>);

/// Some news is not there any more; the listener goes on from now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissedUpdates;

/// News without a hole: the first has the number `first`, each next one the next number.
#[derive(Debug, Default)]
struct UpdateRing {
    first: u64,
    news: VecDeque<Arc<LiveUpdate>>,
}

impl UpdateRing {
    fn push(&mut self, number: u64, news: Arc<LiveUpdate>) {
        if self.first + self.news.len() as u64 != number {
            // Somebody took a number and said nothing: what was before is not whole any more.
            self.news.clear();
        }
        if self.news.len() == RING_MAX {
            self.news.pop_front();
            self.first += 1;
        }
        if self.news.is_empty() {
            self.first = number;
        }
        self.news.push_back(news);
    }

    /// Up to [`TAKE_MAX`] after `after`, if nothing between them is missing. `latest` is the last
    /// number that was given.
    fn after(&self, after: u64, latest: u64) -> Result<Vec<NumberedUpdate>, MissedUpdates> {
        if after == latest {
            return Ok(Vec::new());
        }
        let end = self.first + self.news.len() as u64;
        if after + 1 < self.first || after + 1 >= end {
            return Err(MissedUpdates);
        }
        let skip = usize::try_from(after + 1 - self.first).map_err(|_| MissedUpdates)?;
        let numbers = after + 1..;
        Ok(numbers.zip(self.news.iter().skip(skip).take(TAKE_MAX).cloned()).collect())
    }
}

/// All the news of this run.
pub struct Feed {
    run: String,
    clock: Arc<dyn Clock>,
    listeners: AtomicUsize,
    linger_until: AtomicI64,
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
    pub(crate) fn new(clock: Arc<dyn Clock>, chance: &dyn Rng) -> Arc<Self> {
        Arc::new(Self {
            run: format!("{:012x}", chance.bits() >> 80),
            clock,
            listeners: AtomicUsize::new(0),
            linger_until: AtomicI64::new(0),
            latest: AtomicU64::new(0),
            ring: Mutex::default(),
            published: Notify::new(),
        })
    }

    fn ring(&self) -> MutexGuard<'_, UpdateRing> {
        // A panic elsewhere cannot leave the list half changed.
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether somebody listens, or did a moment before `at`.
    pub(crate) fn is_heard(&self, at: Timestamp) -> bool {
        self.listeners.load(Ordering::SeqCst) > 0
            || at.as_millis() < self.linger_until.load(Ordering::Relaxed)
    }

    /// Tells what happened at `at`, after it was committed. `make` is only asked if it is heard.
    pub(crate) fn publish(&self, at: Timestamp, make: impl FnOnce() -> LiveUpdate) {
        if !self.is_heard(at) {
            return self.pass_over();
        }
        let news = Arc::new(make());
        let mut ring = self.ring();
        let number = self.latest.fetch_add(1, Ordering::SeqCst) + 1;
        ring.push(number, news);
        drop(ring);
        self.published.notify_waiters();
    }

    /// Something happened that nobody hears: it has a number all the same.
    pub(crate) fn pass_over(&self) {
        self.latest.fetch_add(1, Ordering::SeqCst);
    }

    /// Begins to listen: after the id `since` if it is given, from now on otherwise. Says if what
    /// was after `since` is not there any more; then it begins now.
    pub fn subscribe(
        self: &Arc<Self>,
        since: Option<&str>,
    ) -> (FeedSubscriber, Option<MissedUpdates>) {
        self.listeners.fetch_add(1, Ordering::SeqCst);
        let latest = self.latest.load(Ordering::SeqCst);
        let mut listener = FeedSubscriber { feed: Arc::clone(self), after: latest };
        let Some(since) = since else { return (listener, None) };
        let number = since
            .split_once('-')
            .filter(|(run, _)| *run == self.run)
            .and_then(|(_, number)| number.parse().ok())
            .filter(|number| *number <= latest);
        match number {
            Some(number) if self.ring().after(number, latest).is_ok() => {
                listener.after = number;
                (listener, None)
            }
            Some(_) | None => (listener, Some(MissedUpdates)),
        }
    }
}

/// Somebody who listens.
#[derive(Debug)]
pub struct FeedSubscriber {
    feed: Arc<Feed>,
    after: u64,
}

impl FeedSubscriber {
    /// The id of a number: what a listener that comes back names.
    pub fn id(&self, number: u64) -> String {
        format!("{}-{number}", self.feed.run)
    }

    /// The id of the place where it stands.
    pub fn position(&self) -> String {
        self.id(self.after)
    }

    /// What is new now, without waiting.
    pub fn take_available(&mut self) -> Result<Vec<NumberedUpdate>, MissedUpdates> {
        let ring = self.feed.ring();
        let latest = self.feed.latest.load(Ordering::SeqCst);
        let news = ring.after(self.after, latest);
        drop(ring);
        match &news {
            Ok(news) => self.after = news.last().map_or(self.after, |(number, _)| *number),
            Err(MissedUpdates) => self.after = latest,
        }
        news
    }

    /// Waits for news; at least one.
    pub async fn next(&mut self) -> Result<Vec<NumberedUpdate>, MissedUpdates> {
        let feed = Arc::clone(&self.feed);
        loop {
            let mut published = std::pin::pin!(feed.published.notified());
            // From here on no call is missed, so the look comes after it.
            published.as_mut().enable();
            let news = self.take_available()?;
            if !news.is_empty() {
                return Ok(news);
            }
            published.await;
        }
    }
}

impl Drop for FeedSubscriber {
    fn drop(&mut self) {
        let until = self.feed.clock.now() + LINGER;
        self.feed.linger_until.fetch_max(until.as_millis(), Ordering::Relaxed);
        self.feed.listeners.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests;
