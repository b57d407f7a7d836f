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
//! - A **hold** is a time in which a number sends nothing: its quiet hours, or the rest of a day on which
//!   it has sent enough (`sending`). What waits is given back to the store.
//! - The **gate** says what may start: a pause, the circuit and the rate stand there (`gate`). What
//!   changes there is written down by the supervisor, and so outlives the process (`control`).
//!
//! Nothing here is shared between lanes but the store and a budget of bytes: a destination that
//! hangs fills its own slots and nobody else's.

mod attempt;
mod carrier;
mod control;
mod gate;
mod message;
mod sending;
mod slots;
mod supervisor;

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
use http::HeaderMap;
use surehook_core::{
    delivery::{DeadReason, Lease},
    destination::Destination,
    ids::{DeliveryId, DestinationId},
    key::DedupKey,
    lane::{SavedLaneState, circuit::CircuitPermit},
    rng::Rng,
    store::{ClaimBatch, ClaimedDelivery, DeliveryStore, HeldClaim},
    time::{Clock, Timestamp},
};
use tokio::sync::{Notify, Semaphore};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub(crate) use self::slots::{LaneSlot, MemoryBudget};
use self::{
    carrier::LaneTransport,
    gate::{LaneGate, StartPermission},
    sending::MessageSendState,
};
use crate::{
    destination_client::{DestinationClient, PreparedDestination},
    feed::Feed,
    inbox::Inbox,
    media::MediaFiles,
    programs::AllowedPrograms,
    registry::DestinationPolicy,
    sender::HttpSenderConfig,
    source_secrets::SourceSecretsTable,
    telemetry::{LaneMetrics, Telemetry},
    tls::TrustStore,
    transform::Transforms,
    waiters::{WaiterResult, Waiters},
};

/// How long a claim lasts unless it is renewed.
pub(crate) const LEASE: Duration = Duration::from_secs(90);
/// Claims older than this are renewed; three renewals may fail before a lease is lost.
pub(crate) const RENEW_AFTER: Duration = Duration::from_secs(20);
/// Deliveries of one destination in memory.
const SLOTS: usize = 4096;

/// What all lanes share.
pub(crate) struct LaneContext {
    pub(crate) store: Arc<dyn DeliveryStore>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) chance: Arc<dyn Rng>,
    pub(crate) telemetry: Arc<Telemetry>,
    pub(crate) feed: Arc<Feed>,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) http: HttpSenderConfig,
    /// The files of messages.
    pub(crate) media: Arc<MediaFiles>,
    pub(crate) trust: TrustStore,
    /// What may be run.
    pub(crate) programs: Arc<AllowedPrograms>,
    /// Bytes of bodies that may wait in all lanes together.
    pub(crate) budget: Arc<MemoryBudget>,
    /// No new attempts.
    pub(crate) stop: CancellationToken,
    /// No more waiting for attempts that run.
    pub(crate) abort: CancellationToken,
    pub(crate) tasks: TaskTracker,
    /// Senders that wait for an attempt.
    pub(crate) waiters: Arc<Waiters>,
    /// What routes make of bodies, as configured now.
    pub(crate) transforms: ArcSwap<Transforms>,
    pub(crate) secrets: ArcSwap<SourceSecretsTable>,
}

impl LaneContext {
    /// What destinations are judged against.
    pub(crate) fn ground(&self) -> DestinationPolicy<'_> {
        let Self { http, trust, programs, .. } = self;
        DestinationPolicy { addresses: &http.policy, trust, programs }
    }
}

impl fmt::Debug for LaneContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shared")
    }
}

/// A delivery in memory.
#[derive(Debug)]
pub(crate) struct QueuedDelivery {
    pub(crate) claimed: ClaimedDelivery,
    pub(crate) slot: LaneSlot,
}

/// A claim that the lane holds, and since when.
#[derive(Clone, Copy, Debug)]
struct TrackedClaim {
    held: HeldClaim,
    since: Timestamp,
    /// When the delivery was created, if others of its ordering key may wait for it.
    in_line: Option<Timestamp>,
}

#[derive(Debug)]
struct Inside {
    queue: VecDeque<QueuedDelivery>,
    running: u32,
    holding: HashMap<DeliveryId, TrackedClaim>,
    gate: LaneGate,
    sending: MessageSendState,
}

impl Inside {
    /// Remembers a claim, to renew it while it lasts.
    fn hold(&mut self, claimed: &ClaimedDelivery) {
        let held = HeldClaim { delivery: claimed.id, token: claimed.lease.token };
        let since = claimed.lease.until - LEASE;
        let in_line = claimed.ordered.then_some(claimed.created_at);
        self.holding.insert(held.delivery, TrackedClaim { held, since, in_line });
    }

    /// Whether a claim is of a backlog that is drained, and others may wait for it.
    fn is_backlog_in_line(&self, holding: &TrackedClaim) -> bool {
        holding.in_line.is_some_and(|created_at| self.gate.is_backlog(created_at))
    }

    fn let_go(&mut self, delivery: DeliveryId, now: Timestamp) {
        if let Some(holding) = self.holding.remove(&delivery)
            && self.is_backlog_in_line(&holding)
        {
            self.gate.move_line(now);
        }
    }

    /// Counts the attempt that starts now.
    fn begin(&mut self, claimed: &ClaimedDelivery, clock: Duration) -> CircuitPermit {
        let created_at = claimed.created_at;
        // Only one that could end a drain has to know.
        let in_line = self.gate.drain().is_some()
            && !self.gate.is_backlog(created_at)
            && self.holding.values().any(|holding| self.is_backlog_in_line(holding));
        self.running += 1;
        self.gate.begin(created_at, in_line, clock)
    }
}

/// An attempt that runs. Sets the lane right if it panics: its place would be lost for ever
/// otherwise, and its claim renewed for ever.
struct RunningAttemptGuard<'a> {
    lane: &'a Lane,
    delivery: DeliveryId,
    ticket: CircuitPermit,
}

impl<'a> RunningAttemptGuard<'a> {
    fn begin(lane: &'a Lane, delivery: DeliveryId, ticket: CircuitPermit) -> Self {
        lane.metrics.in_flight.inc();
        Self { lane, delivery, ticket }
    }
}

impl Drop for RunningAttemptGuard<'_> {
    fn drop(&mut self) {
        self.lane.metrics.in_flight.dec();
        if std::thread::panicking() {
            self.lane.let_go(self.delivery);
            let mut inside = self.lane.inside();
            inside.running -= 1;
            inside.gate.circuit.abandon(self.ticket);
        }
    }
}

/// The lane of one destination.
#[derive(Debug)]
pub(crate) struct Lane {
    id: DestinationId,
    destination: ArcSwap<Destination>,
    carrier: LaneTransport,
    shared: Arc<LaneContext>,
    metrics: LaneMetrics,
    slots: Arc<Semaphore>,
    inside: Mutex<Inside>,
    /// Its gate may let less through than the concurrency says: the door has to ask.
    narrow: AtomicBool,
    /// When the lane's own clock began, which never steps.
    begun: Instant,
    /// What the store knows of the state of this lane.
    kept: Mutex<SavedLaneState>,
    /// One change of what the store knows at a time.
    saving: tokio::sync::Mutex<()>,
    backlog: AtomicBool,
    cool_until: AtomicI64,
    next_due: AtomicI64,
    changed: Notify,
    stop: CancellationToken,
}

impl Lane {
    /// Makes the lane and starts its supervisor.
    pub(crate) fn start(
        prepared: PreparedDestination,
        shared: Arc<LaneContext>,
        kept: SavedLaneState,
    ) -> Arc<Self> {
        let destination = Arc::clone(&prepared.destination);
        let metrics = shared.telemetry.lane(destination.name.as_str());
        let gate = LaneGate::new(kept.clone(), &destination.lane, shared.clock.now());
        let cool_until = kept.cool_until.map_or(0, Timestamp::as_millis);
        let inside = Inside {
            queue: VecDeque::new(),
            running: 0,
            holding: HashMap::new(),
            gate,
            sending: MessageSendState::new(&destination),
        };
        let lane = Arc::new(Self {
            id: destination.id,
            carrier: LaneTransport::new(prepared, &shared),
            metrics,
            slots: Arc::new(Semaphore::new(SLOTS)),
            narrow: AtomicBool::new(inside.gate.is_narrow()),
            inside: Mutex::new(inside),
            begun: Instant::now(),
            kept: Mutex::new(kept),
            saving: tokio::sync::Mutex::default(),
            backlog: AtomicBool::new(true),
            cool_until: AtomicI64::new(cool_until),
            next_due: AtomicI64::new(i64::MAX),
            changed: Notify::new(),
            stop: shared.stop.child_token(),
            destination: ArcSwap::new(destination),
            shared,
        });
        lane.show();
        lane.shared.tasks.spawn(supervisor::run(Arc::clone(&lane)));
        lane
    }

    /// The destination's id.
    pub(crate) fn id(&self) -> DestinationId {
        self.id
    }

    /// The destination as it is configured now.
    pub(crate) fn destination(&self) -> Arc<Destination> {
        self.destination.load_full()
    }

    /// The destination's name.
    pub(crate) fn outlet(&self) -> Arc<DestinationClient> {
        self.carrier.outlet.load_full()
    }

    pub(crate) fn name(&self) -> String {
        self.destination.load().name.to_string()
    }

    /// Whether the destination has this name.
    pub(crate) fn is_called(&self, name: &str) -> bool {
        self.destination.load().name.as_str() == name
    }

    /// How long a fresh delivery waits before its first attempt.
    pub(crate) fn delay(&self) -> Duration {
        self.destination.load().lane.delay
    }

    /// The ordering key of an event, if this lane is ordered and the event has one.
    pub(crate) fn order_key(
        &self,
        headers: &HeaderMap,
        body: &[u8],
        of_provider: Option<&DedupKey>,
    ) -> Option<DedupKey> {
        let destination = self.destination.load();
        let order = destination.lane.order.as_ref()?;
        let key = order.key(headers, body, of_provider);
        if key.is_none() {
            self.metrics.no_order_key.inc();
        }
        key
    }

    /// Takes over changed settings. What runs goes on under the old ones.
    pub(crate) fn update(self: &Arc<Self>, prepared: PreparedDestination) {
        let destination = Arc::clone(&prepared.destination);
        self.carrier.update(prepared, &self.shared);
        let mut inside = self.inside();
        inside.gate.update(&destination.lane);
        let before = self.destination.load_full();
        inside.sending.update(&before, &destination, self.shared.clock.now());
        if before.transport != destination.transport {
            // What is said of the old address says nothing of the new one.
            inside.gate.circuit.close();
            self.cool_until.store(0, Ordering::Relaxed);
        }
        self.destination.store(destination);
        // Quiet hours that were changed end or begin at once.
        inside.gate.rests = self.hold(&inside).is_some();
        self.narrow.store(inside.gate.is_narrow(), Ordering::Release);
        drop(inside);
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
    pub(crate) fn reserve(&self, bytes: usize, now: Timestamp) -> Option<(LaneSlot, Lease)> {
        if self.backlog.load(Ordering::Acquire) || self.stop.is_cancelled() {
            return None;
        }
        if self.narrow.load(Ordering::Acquire) && !self.has_place() {
            return None;
        }
        Some((self.take_slot(bytes)?, self.new_lease(now)))
    }

    /// Whether a fresh delivery could be tried soon enough to wait for that in memory.
    fn has_place(&self) -> bool {
        let full = self.destination.load().concurrency;
        let inside = self.inside();
        // What comes now must not overtake a backlog that is drained at a rate.
        if inside.gate.drain().is_some() {
            return false;
        }
        let running = usize::try_from(inside.running).unwrap_or(SLOTS);
        let places = inside.gate.queue_max(SLOTS, full).saturating_add(running);
        SLOTS - self.slots.available_permits() < places
    }

    fn take_slot(&self, bytes: usize) -> Option<LaneSlot> {
        let place = Arc::clone(&self.slots).try_acquire_owned().ok()?;
        let bytes = self.shared.budget.try_take(bytes)?;
        Some(LaneSlot::new(place, bytes))
    }

    fn new_lease(&self, now: Timestamp) -> Lease {
        Lease { token: self.shared.chance.lease_token(), until: now + LEASE }
    }

    /// Takes a delivery that was committed as claimed.
    pub(crate) fn offer(self: &Arc<Self>, job: QueuedDelivery) {
        let mut inside = self.inside();
        inside.hold(&job.claimed);
        inside.queue.push_back(job);
        let started = self.start_first(&mut inside);
        let waits = started.is_none()
            && (matches!(self.may_start(&inside), StartPermission::At(_))
                || !self.may_send(&inside));
        // Somebody took it in before the gate was shut, or by its rate it comes later.
        let wake = waits || inside.gate.is_shut();
        drop(inside);
        if let Some((job, ticket)) = started {
            self.spawn_worker(job, ticket);
        }
        if wake {
            self.changed.notify_one();
        }
    }

    /// There is something for this lane in the store.
    pub(crate) fn wake_lane(&self) {
        self.backlog.store(true, Ordering::Release);
        self.changed.notify_one();
    }

    fn may_start(&self, inside: &Inside) -> StartPermission {
        if self.is_cooling() || self.stop.is_cancelled() || !self.may_send(inside) {
            return StartPermission::NotNow;
        }
        let full = self.destination.load().concurrency;
        inside.gate.may_start(inside.running, full, self.begun.elapsed())
    }

    /// Takes the first of those that wait, if one may start.
    fn start_first(&self, inside: &mut Inside) -> Option<(QueuedDelivery, CircuitPermit)> {
        if inside.queue.is_empty() || self.may_start(inside) != StartPermission::Now {
            return None;
        }
        let job = inside.queue.pop_front()?;
        let ticket = inside.begin(&job.claimed, self.begun.elapsed());
        Some((job, ticket))
    }

    /// How long the first of those that wait has to wait for its rate.
    fn until_next_start(&self) -> Option<Duration> {
        let inside = self.inside();
        match self.may_start(&inside) {
            StartPermission::At(at) if !inside.queue.is_empty() => {
                Some(at.saturating_sub(self.begun.elapsed()))
            }
            StartPermission::At(_) | StartPermission::Now | StartPermission::NotNow => None,
        }
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
            let Some((job, ticket)) = self.start_first(&mut self.inside()) else { return };
            self.spawn_worker(job, ticket);
        }
    }

    fn spawn_worker(self: &Arc<Self>, job: QueuedDelivery, ticket: CircuitPermit) {
        let lane = Arc::clone(self);
        self.shared.tasks.spawn(async move {
            let mut next = Some((job, ticket));
            while let Some((job, ticket)) = next {
                let attempting = RunningAttemptGuard::begin(&lane, job.claimed.id, ticket);
                lane.attempt(job, ticket).await;
                drop(attempting);
                next = lane.next_job();
            }
        });
    }

    /// The next job for a worker that is free, or the end of that worker.
    fn next_job(&self) -> Option<(QueuedDelivery, CircuitPermit)> {
        let mut inside = self.inside();
        inside.running -= 1;
        let next = self.start_first(&mut inside);
        // The supervisor fetches the next ones before the workers have nothing to do.
        let low = inside.queue.len() < supervisor::low_water(self, &inside)
            && self.backlog.load(Ordering::Relaxed);
        // By its rate the next one comes later, and only the supervisor has a clock.
        let later = next.is_none() && !inside.queue.is_empty();
        drop(inside);
        if low || later {
            self.changed.notify_one();
        }
        next
    }

    /// What may be tried of what was claimed. Who waits for the rest waits in vain.
    fn pick(&self, claims: ClaimBatch) -> Vec<ClaimedDelivery> {
        for damaged in claims.damaged {
            let told = || WaiterResult::given_up(DeadReason::Unrecoverable);
            self.shared.waiters.tell(damaged, told);
        }
        claims.claimed
    }

    fn let_go(&self, delivery: DeliveryId) {
        self.inside().let_go(delivery, self.shared.clock.now());
    }

    /// Claims that were made a while ago and are still held.
    pub(crate) fn aging(&self, now: Timestamp) -> Vec<HeldClaim> {
        let inside = self.inside();
        let aging =
            inside.holding.values().filter(|holding| now.since(holding.since) > RENEW_AFTER);
        aging.map(|holding| holding.held).collect()
    }

    /// Takes what has not been started out of memory, for the store to have it back.
    pub(crate) fn surrender(&self) -> Vec<HeldClaim> {
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
        self.may_start(&inside) == StartPermission::Now && inside.queue.is_empty()
    }

    /// Until when the lane cools down, if it does.
    pub(crate) fn cooling_until(&self) -> Option<Timestamp> {
        let until = self.cool_until.load(Ordering::Relaxed);
        self.is_cooling().then(|| Timestamp::from_millis(until))
    }
}
