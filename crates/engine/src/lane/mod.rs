//! A lane: everything that goes to one destination, apart from all others.
//!
//! ```text
//!   door ── reserve ──► commit ──► offer ─┐
//!                                         ▼
//!   store ◄── claim_due ── supervisor ─► queue ──► workers (at most `concurrency`) ──► settle
//! ```
//!
//! A delivery that the lane has room for is claimed in the very commit that admits its event and
//! is offered to the lane from memory. What does not fit stays `pending` in the store, and the
//! supervisor fetches it when there is room. So memory is bounded, and the store is the truth: what
//! is lost from memory is found again by its lease.
//!
//! - A **slot** is a place in the lane's memory. It is taken before the commit and given back when
//!   the attempt is settled, so a slow store slows the lane down instead of filling the memory.
//! - While there is a **backlog** in the store, new events join it there, or they would overtake it
//!   for ever.
//! - A **cool-down** that a destination asks for holds the whole lane.
//!
//! Nothing here is shared between lanes but the store and a budget of bytes: a destination that
//! hangs fills its own slots and nobody else's.

mod attempt;
mod supervisor;

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use surehook_core::{
    chance::Chance,
    delivery::Lease,
    destination::Destination,
    ids::{DeliveryId, DestinationId},
    store::{Claimed, DeliveryStore, Held},
    time::{Clock, Timestamp},
};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::attempt::Carrier;
use crate::{
    feed::Feed,
    inbox::Inbox,
    sender::HttpSenderConfig,
    telemetry::{LaneMetrics, Telemetry},
};

/// How long a claim lasts unless it is renewed.
pub(crate) const LEASE: Duration = Duration::from_secs(90);
/// Claims older than this are renewed; three renewals may fail before a lease is lost.
pub(crate) const RENEW_AFTER: Duration = Duration::from_secs(20);
/// Deliveries of one destination in memory.
const SLOTS: usize = 4096;

/// What all lanes share.
pub(crate) struct Shared {
    pub(crate) store: Arc<dyn DeliveryStore>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) chance: Arc<dyn Chance>,
    pub(crate) telemetry: Arc<Telemetry>,
    pub(crate) feed: Arc<Feed>,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) http: HttpSenderConfig,
    /// Bytes of bodies that may wait in all lanes together.
    pub(crate) budget: Arc<Budget>,
    /// No new attempts.
    pub(crate) stop: CancellationToken,
    /// No more waiting for attempts that run.
    pub(crate) abort: CancellationToken,
    pub(crate) tasks: TaskTracker,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shared")
    }
}

/// A bound on bytes, shared by all lanes.
#[derive(Debug)]
pub(crate) struct Budget {
    used: AtomicUsize,
    max: usize,
}

impl Budget {
    pub(crate) fn new(max: usize) -> Self {
        Self { used: AtomicUsize::new(0), max }
    }

    fn try_take(self: &Arc<Self>, bytes: usize) -> Option<Share> {
        let used = self.used.fetch_add(bytes, Ordering::Relaxed);
        let share = Share { budget: Arc::clone(self), bytes };
        // A single body that is larger than the whole budget must still get through alone.
        (used == 0 || used + bytes <= self.max).then_some(share)
    }
}

/// Some bytes of the budget, given back when dropped.
#[derive(Debug)]
struct Share {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A place in a lane's memory.
#[derive(Debug)]
pub(crate) struct Slot {
    _place: OwnedSemaphorePermit,
    _bytes: Share,
}

/// A delivery in memory.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) claimed: Claimed,
    pub(crate) slot: Slot,
}

/// A claim that the lane holds, and since when.
#[derive(Clone, Copy, Debug)]
struct Holding {
    held: Held,
    since: Timestamp,
}

#[derive(Debug, Default)]
struct Inside {
    queue: VecDeque<Job>,
    running: u32,
    holding: HashMap<DeliveryId, Holding>,
}

/// An attempt that runs. Sets the lane right if it panics: its place would be lost for ever
/// otherwise, and its claim renewed for ever.
struct Attempting<'a> {
    lane: &'a Lane,
    delivery: DeliveryId,
}

impl<'a> Attempting<'a> {
    fn begin(lane: &'a Lane, delivery: DeliveryId) -> Self {
        lane.metrics.in_flight.inc();
        Self { lane, delivery }
    }
}

impl Drop for Attempting<'_> {
    fn drop(&mut self) {
        self.lane.metrics.in_flight.dec();
        if std::thread::panicking() {
            self.lane.let_go(self.delivery);
            self.lane.inside().running -= 1;
        }
    }
}

/// The lane of one destination.
#[derive(Debug)]
pub(crate) struct Lane {
    id: DestinationId,
    destination: ArcSwap<Destination>,
    carrier: Carrier,
    shared: Arc<Shared>,
    metrics: LaneMetrics,
    slots: Arc<Semaphore>,
    inside: Mutex<Inside>,
    backlog: AtomicBool,
    cool_until: AtomicI64,
    next_due: AtomicI64,
    changed: Notify,
    stop: CancellationToken,
}

impl Lane {
    /// Makes the lane and starts its supervisor.
    pub(crate) fn start(destination: Arc<Destination>, shared: Arc<Shared>) -> Arc<Self> {
        let metrics = shared.telemetry.lane(destination.name.as_str());
        let lane = Arc::new(Self {
            id: destination.id,
            carrier: Carrier::new(&shared),
            metrics,
            slots: Arc::new(Semaphore::new(SLOTS)),
            inside: Mutex::default(),
            backlog: AtomicBool::new(true),
            cool_until: AtomicI64::new(0),
            next_due: AtomicI64::new(i64::MAX),
            changed: Notify::new(),
            stop: shared.stop.child_token(),
            destination: ArcSwap::new(destination),
            shared,
        });
        lane.shared.tasks.spawn(supervisor::run(Arc::clone(&lane)));
        lane
    }

    /// The destination's name.
    pub(crate) fn name(&self) -> String {
        self.destination.load().name.to_string()
    }

    /// Takes over changed settings. What runs goes on under the old ones.
    pub(crate) fn update(self: &Arc<Self>, destination: Arc<Destination>) {
        self.destination.store(destination);
        self.fill();
        self.changed.notify_one();
    }

    /// Ends the lane; its destination is gone.
    pub(crate) fn end(&self) {
        self.stop.cancel();
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        // A panic elsewhere cannot leave the lists half changed.
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for a place for a delivery that is about to be committed, and the lease it gets.
    pub(crate) fn reserve(&self, bytes: usize, now: Timestamp) -> Option<(Slot, Lease)> {
        if self.backlog.load(Ordering::Acquire) || self.stop.is_cancelled() {
            return None;
        }
        Some((self.take_slot(bytes)?, self.new_lease(now)))
    }

    fn take_slot(&self, bytes: usize) -> Option<Slot> {
        let place = Arc::clone(&self.slots).try_acquire_owned().ok()?;
        let bytes = self.shared.budget.try_take(bytes)?;
        Some(Slot { _place: place, _bytes: bytes })
    }

    fn new_lease(&self, now: Timestamp) -> Lease {
        Lease { token: self.shared.chance.lease_token(), until: now + LEASE }
    }

    /// Takes a delivery that was committed as claimed.
    pub(crate) fn offer(self: &Arc<Self>, job: Job) {
        let mut inside = self.inside();
        let held = Held { delivery: job.claimed.id, token: job.claimed.lease.token };
        let since = job.claimed.lease.until - LEASE;
        inside.holding.insert(held.delivery, Holding { held, since });
        if self.may_start(&inside) {
            inside.running += 1;
            drop(inside);
            self.spawn_worker(job);
        } else {
            inside.queue.push_back(job);
        }
    }

    /// There is something for this lane in the store.
    pub(crate) fn nudge(&self) {
        self.backlog.store(true, Ordering::Release);
        self.changed.notify_one();
    }

    fn may_start(&self, inside: &Inside) -> bool {
        inside.running < self.destination.load().concurrency
            && !self.is_cooling()
            && !self.stop.is_cancelled()
    }

    fn is_cooling(&self) -> bool {
        let until = self.cool_until.load(Ordering::Relaxed);
        until != 0 && self.shared.clock.now().as_millis() < until
    }

    /// Holds the whole lane until then.
    fn cool_down(&self, until: Timestamp) {
        self.cool_until.fetch_max(until.as_millis(), Ordering::Relaxed);
        self.metrics.cooling.set(1);
        self.changed.notify_one();
    }

    /// Starts as many workers as may run.
    fn fill(self: &Arc<Self>) {
        loop {
            let mut inside = self.inside();
            if !self.may_start(&inside) {
                return;
            }
            let Some(job) = inside.queue.pop_front() else { return };
            inside.running += 1;
            drop(inside);
            self.spawn_worker(job);
        }
    }

    fn spawn_worker(self: &Arc<Self>, job: Job) {
        let lane = Arc::clone(self);
        self.shared.tasks.spawn(async move {
            let mut next = Some(job);
            while let Some(job) = next {
                let attempting = Attempting::begin(&lane, job.claimed.id);
                lane.attempt(job).await;
                drop(attempting);
                next = lane.next_job();
            }
        });
    }

    /// The next job for a worker that is free, or the end of that worker.
    fn next_job(&self) -> Option<Job> {
        let mut inside = self.inside();
        inside.running -= 1;
        let next = if self.may_start(&inside) { inside.queue.pop_front() } else { None };
        inside.running += u32::from(next.is_some());
        let waiting = inside.queue.len();
        drop(inside);
        // The supervisor fetches the next ones before the workers have nothing to do.
        if waiting < supervisor::LOW_WATER && self.backlog.load(Ordering::Relaxed) {
            self.changed.notify_one();
        }
        next
    }

    fn let_go(&self, delivery: DeliveryId) {
        self.inside().holding.remove(&delivery);
    }

    /// Claims that were made a while ago and are still held.
    pub(crate) fn aging(&self, now: Timestamp) -> Vec<Held> {
        let inside = self.inside();
        let aging =
            inside.holding.values().filter(|holding| now.since(holding.since) > RENEW_AFTER);
        aging.map(|holding| holding.held).collect()
    }

    /// Takes what has not been started out of memory, for the store to have it back.
    pub(crate) fn surrender(&self) -> Vec<Held> {
        let mut inside = self.inside();
        let queue = std::mem::take(&mut inside.queue);
        let given = queue
            .iter()
            .filter_map(|job| inside.holding.remove(&job.claimed.id))
            .collect::<Vec<_>>();
        given.into_iter().map(|holding| holding.held).collect()
    }

    /// Whether the lane could take a due delivery right now and there is no reason not to.
    pub(crate) fn has_room(&self) -> bool {
        let inside = self.inside();
        self.may_start(&inside) && inside.queue.is_empty()
    }

    /// Until when the lane cools down, if it does.
    pub(crate) fn cooling_until(&self) -> Option<Timestamp> {
        let until = self.cool_until.load(Ordering::Relaxed);
        self.is_cooling().then(|| Timestamp::from_millis(until))
    }
}
