//! A lane: all deliveries to one destination, isolated from those to others.
//!
//! ```text
//!   ingest ── reserve ──► commit ──► enqueue ─┐
//!                                             ▼
//!   store ◄── claim_due ── supervisor ─────► queue ──► workers (at most `concurrency`) ──► settle
//! ```
//!
//! A delivery that the lane has room for is claimed in the commit that stores its event, and queued
//! from memory. Everything else stays `pending` in the store until the supervisor fetches it. So memory
//! is bounded and the store is the truth: what is lost from memory is made due again there.
//!
//! - A **slot** is a place in the lane's memory, held from before the commit until the result is on
//!   disk: a slow store slows the lane down instead of filling the memory.
//! - While there is a **backlog** in the store, new deliveries join it there, or they would overtake it
//!   forever.
//! - A **cool-down** that the destination asks for (429) holds the whole lane.
//! - A **send hold** stops messages: quiet hours, or the daily limit (`message`).
//! - A lane of the kind `listen` starts nothing without a listener (`listen`).
//! - The **gate** of core decides what may start: pause, circuit, rate. The supervisor saves its state,
//!   so that it survives a restart (`control`).
//!
//! Lanes share only the store and a memory budget: a destination that hangs fills its own slots. The lanes
//! of a destination with several [shards](surehook_core::lane::shard) share the waiting deliveries, and
//! tell each other of pauses and cool-downs (`shard_news`).

mod attempt;
mod control;
mod message;
mod supervisor;

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
use http::HeaderMap;
use surehook_core::{
    delivery::{ClaimProof, LaneEpoch},
    destination::Destination,
    lane::{
        LaneId, SavedLaneState,
        gate::{LaneGate, StartPermission},
        scheduler::{LaneScheduler, LaneTime, QueueItem},
    },
    store::{
        AbandonedClaim, ClaimBatch, ClaimedDelivery, DeliveryStore, HeldClaim, OwnedLane, Signal,
    },
};
use surehook_messaging::store::MessageStore;
use surehook_retry::{DeadReason, circuit::CircuitPermit};
use surehook_types::{
    ids::{DeliveryId, DestinationId},
    rng::Rng,
    time::{Clock, Timestamp},
};
use surehook_webhooks::key::DedupKey;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub(crate) use self::control::show_shards;
use self::message::MessageSendState;
use crate::{
    clock_guard::ClockGuard,
    destination_client::{DestinationClient, PreparedDestination},
    feed::Feed,
    inbox::Inbox,
    listen::Listeners,
    lock::lock,
    lost_claims::{LOST_ATTEMPT_DELAY, LostClaims},
    media::MediaFiles,
    node::NodeState,
    otlp::Tracer,
    programs::AllowedPrograms,
    routing::RouteTable,
    sender::HttpSenderConfig,
    shard_news::ShardNews,
    signals::SignalOutbox,
    source_secrets::SourceSecretsTable,
    telemetry::{LaneMetrics, Telemetry},
    tls::TrustStore,
    waiters::{AwaitedElsewhere, WaiterResult, Waiters},
};

/// How often a lane that ends looks whether its attempts have ended.
const FINISH_POLL: Duration = Duration::from_millis(10);
/// Deliveries of one destination in memory.
const SLOTS: usize = 4096;

/// The dependencies and state that all lanes share.
pub(crate) struct LaneContext {
    pub(crate) store: Arc<dyn DeliveryStore>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) guard: ClockGuard,
    pub(crate) rng: Arc<dyn Rng>,
    pub(crate) telemetry: Arc<Telemetry>,
    /// `None` if no traces are sent: then nothing is measured or built for them.
    pub(crate) tracer: Option<Tracer>,
    pub(crate) feed: Arc<Feed>,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) http: HttpSenderConfig,
    pub(crate) messages: Arc<dyn MessageStore>,
    pub(crate) media: Arc<MediaFiles>,
    pub(crate) trust: TrustStore,
    pub(crate) programs: ArcSwap<AllowedPrograms>,
    /// Bytes of bodies that may wait in all lanes together.
    pub(crate) budget: Arc<MemoryBudget>,
    /// When a shortage of our own resources was last logged, in milliseconds.
    pub(crate) shortage_logged_at: AtomicI64,
    /// No new attempts.
    pub(crate) stop: CancellationToken,
    /// Running attempts are cut off.
    pub(crate) abort: CancellationToken,
    pub(crate) tasks: TaskTracker,
    pub(crate) waiters: Arc<Waiters>,
    pub(crate) node: NodeState,
    pub(crate) signals: Arc<SignalOutbox>,
    pub(crate) lost_claims: LostClaims,
    pub(crate) shard_news: ShardNews,
    /// A message has ended, so a callback may be due.
    pub(crate) callbacks_due: Notify,
    pub(crate) routes: ArcSwap<RouteTable>,
    pub(crate) secrets: ArcSwap<SourceSecretsTable>,
}

impl LaneContext {
    /// Gives everyone who waits for the delivery its recorded result; senders on other nodes read it
    /// themselves.
    pub(crate) fn notify_waiters(
        &self,
        delivery: DeliveryId,
        result: impl FnOnce() -> WaiterResult,
    ) {
        let AwaitedElsewhere(is_awaited) = self.waiters.notify(delivery, result);
        if is_awaited {
            self.signals.publish(Signal::DeliverySettled(delivery));
        }
    }
}

impl fmt::Debug for LaneContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LaneContext")
    }
}

/// A claimed delivery in memory.
#[derive(Debug)]
pub(crate) struct QueuedDelivery {
    pub(crate) claimed: ClaimedDelivery,
    pub(crate) slot: LaneSlot,
}

impl QueueItem for QueuedDelivery {
    fn created_at(&self) -> Timestamp {
        self.claimed.created_at
    }
}

/// A claim that the lane holds.
#[derive(Clone, Copy, Debug)]
struct TrackedClaim {
    claim: HeldClaim,
    /// When the delivery was created, if others of its ordering queue may wait for it.
    ordered_since: Option<Timestamp>,
}

#[derive(Debug)]
struct LaneState {
    scheduler: LaneScheduler<QueuedDelivery>,
    claims: HashMap<DeliveryId, TrackedClaim>,
    messages: MessageSendState,
}

impl TrackedClaim {
    /// Whether it belongs to a backlog that is drained, and others may wait for it.
    fn is_ordered_backlog(&self, gate: &LaneGate) -> bool {
        self.ordered_since.is_some_and(|created_at| gate.is_backlog(created_at))
    }
}

impl LaneState {
    fn track_claim(&mut self, claimed: &ClaimedDelivery) {
        let claim = HeldClaim { delivery: claimed.id, proof: claimed.proof };
        let ordered_since = claimed.ordered.then_some(claimed.created_at);
        self.claims.insert(claim.delivery, TrackedClaim { claim, ordered_since });
    }

    fn release_claim(&mut self, delivery: DeliveryId, now: Timestamp) {
        let gate = &mut self.scheduler.gate;
        if let Some(tracked) = self.claims.remove(&delivery)
            && tracked.is_ordered_backlog(gate)
        {
            gate.note_ordered_backlog_end(now);
        }
    }
}

/// Counts an attempt while it runs. If the attempt panics, the guard also frees its worker.
struct RunningAttemptGuard<'a> {
    lane: &'a Lane,
    permit: CircuitPermit,
}

impl<'a> RunningAttemptGuard<'a> {
    fn new(lane: &'a Lane, permit: CircuitPermit) -> Self {
        lane.metrics.in_flight.inc();
        Self { lane, permit }
    }
}

impl Drop for RunningAttemptGuard<'_> {
    fn drop(&mut self) {
        self.lane.metrics.in_flight.dec();
        if std::thread::panicking() {
            let mut state = self.lane.lock();
            state.scheduler.release_place();
            state.scheduler.gate.circuit.abandon(self.permit);
        }
    }
}

/// The claim on a delivery, from its attempt until the result is in the store. If it is dropped before,
/// because a task panicked, was dropped or could not write, the delivery becomes due again.
pub(super) struct ClaimGuard {
    lane: Arc<Lane>,
    claim: HeldClaim,
    has_ended: bool,
}

impl ClaimGuard {
    fn new(lane: &Arc<Lane>, claimed: &ClaimedDelivery) -> Self {
        let claim = HeldClaim { delivery: claimed.id, proof: claimed.proof };
        Self { lane: Arc::clone(lane), claim, has_ended: false }
    }

    /// The claim has ended in the store.
    fn end(mut self) {
        self.has_ended = true;
    }
}

impl Drop for ClaimGuard {
    fn drop(&mut self) {
        self.lane.release_claim(self.claim.delivery);
        if !self.has_ended {
            let due_at = self.lane.shared.clock.now() + LOST_ATTEMPT_DELAY;
            self.lane.abandon(&[self.claim], due_at);
        }
    }
}

/// A lane of one destination.
#[derive(Debug)]
pub(crate) struct Lane {
    id: LaneId,
    /// The epoch under which this process owns the lane.
    epoch: LaneEpoch,
    destination: ArcSwap<Destination>,
    client: ArcSwap<DestinationClient>,
    shared: Arc<LaneContext>,
    metrics: LaneMetrics,
    slots: Arc<Semaphore>,
    state: Mutex<LaneState>,
    /// The gate may allow less than the concurrency; read before the lock is taken.
    is_limited: AtomicBool,
    /// The origin of the lane's monotonic clock.
    started: Instant,
    /// The state as it is in the store.
    saved: Mutex<SavedLaneState>,
    /// The outcome of the last write of `saved` is unknown.
    is_saved_state_unknown: AtomicBool,
    /// Serializes writes of `saved`.
    saving: tokio::sync::Mutex<()>,
    backlog: AtomicBool,
    next_due: AtomicI64,
    /// Attempts in a row that found no free file, socket or memory of the gateway.
    shortages: AtomicU32,
    listeners: Listeners,
    changed: Notify,
    stop: CancellationToken,
}

impl Lane {
    /// Creates the lane and starts its supervisor.
    pub(crate) fn start(
        prepared: PreparedDestination,
        shared: Arc<LaneContext>,
        owned: OwnedLane,
        saved: SavedLaneState,
    ) -> Arc<Self> {
        let destination = Arc::clone(&prepared.destination);
        let metrics = shared.telemetry.lane(destination.name.as_str());
        let now = shared.clock.now();
        let mut state = LaneState {
            scheduler: LaneScheduler::new(saved.clone(), &destination.lane, now),
            claims: HashMap::new(),
            messages: MessageSendState::new(&destination),
        };
        if let Some(idle) = owned.taken_over_after {
            // The owner before may have sent something just then.
            state.scheduler.gate.use_up_rates(Duration::ZERO, idle);
            state.messages.assume_all_were_sent_to(Duration::ZERO);
        }
        let lane = Arc::new(Self {
            id: owned.lane,
            epoch: owned.epoch,
            client: ArcSwap::from_pointee(DestinationClient::new(prepared, &shared.http, None)),
            metrics,
            slots: Arc::new(Semaphore::new(SLOTS)),
            is_limited: AtomicBool::new(state.scheduler.gate.is_limited()),
            state: Mutex::new(state),
            started: Instant::now(),
            saved: Mutex::new(saved),
            is_saved_state_unknown: AtomicBool::new(false),
            saving: tokio::sync::Mutex::default(),
            backlog: AtomicBool::new(true),
            next_due: AtomicI64::new(i64::MAX),
            shortages: AtomicU32::new(0),
            listeners: Listeners::default(),
            changed: Notify::new(),
            stop: shared.stop.child_token(),
            destination: ArcSwap::new(destination),
            shared,
        });
        lane.update_metrics();
        lane.shared.tasks.spawn(supervisor::run(Arc::clone(&lane)));
        lane
    }

    pub(crate) fn id(&self) -> LaneId {
        self.id
    }

    pub(crate) fn destination_id(&self) -> DestinationId {
        self.id.destination
    }

    pub(crate) fn epoch(&self) -> LaneEpoch {
        self.epoch
    }

    /// The destination as it is configured now.
    pub(crate) fn destination(&self) -> Arc<Destination> {
        self.destination.load_full()
    }

    pub(crate) fn client(&self) -> Arc<DestinationClient> {
        self.client.load_full()
    }

    pub(crate) fn name(&self) -> String {
        self.destination.load().name.to_string()
    }

    /// How long a new delivery waits before its first attempt.
    pub(crate) fn delay(&self) -> Duration {
        self.destination.load().lane.delay
    }

    /// The ordering key of an event, if this lane is ordered and the event has one.
    pub(crate) fn order_key(
        &self,
        headers: &HeaderMap,
        body: &[u8],
        provider_key: Option<&DedupKey>,
    ) -> Option<DedupKey> {
        let destination = self.destination.load();
        let order = destination.lane.order.as_ref()?;
        let key = order.key(headers, body, provider_key);
        if key.is_none() {
            self.metrics.no_order_key.inc();
        }
        key
    }

    /// Applies changed settings. Running attempts finish under the old ones.
    pub(crate) fn update(self: &Arc<Self>, prepared: PreparedDestination) {
        let destination = Arc::clone(&prepared.destination);
        let client =
            DestinationClient::new(prepared, &self.shared.http, Some(&*self.client.load()));
        self.client.store(Arc::new(client));
        let mut state = self.lock();
        state.scheduler.gate.update(&destination.lane);
        let before = self.destination.load_full();
        state.messages.update(&before, &destination, self.shared.clock.now());
        if before.transport != destination.transport {
            // Failures of the old address say nothing about the new one.
            state.scheduler.forget_failures();
        }
        self.destination.store(destination);
        // Changed quiet hours take effect at once.
        state.scheduler.gate.is_on_hold = self.send_hold(&state).is_some() || self.lacks_listener();
        self.set_limited(&state.scheduler.gate);
        drop(state);
        self.start_workers();
        self.changed.notify_one();
    }

    /// Ends the lane after its destination was deleted, or another node has become its owner.
    pub(crate) fn end(&self) {
        self.stop.cancel();
    }

    fn lock(&self) -> MutexGuard<'_, LaneState> {
        lock(&self.state)
    }

    fn set_limited(&self, gate: &LaneGate) {
        self.is_limited.store(gate.is_limited(), Ordering::Release);
    }

    /// Reserves a slot and a claim for a delivery that is about to be committed; `None` if it has to
    /// wait in the store.
    pub(crate) fn reserve(&self, bytes: usize) -> Option<(LaneSlot, ClaimProof)> {
        if self.backlog.load(Ordering::Acquire) || self.is_stopped() {
            return None;
        }
        if self.is_limited.load(Ordering::Acquire) && !self.has_queue_room() {
            return None;
        }
        Some((self.take_slot(bytes)?, self.new_claim()))
    }

    /// Whether a new delivery would start soon enough to wait in memory.
    fn has_queue_room(&self) -> bool {
        let concurrency = self.concurrency();
        let state = self.lock();
        state.scheduler.has_room(SLOTS - self.slots.available_permits(), SLOTS, concurrency)
    }

    fn take_slot(&self, bytes: usize) -> Option<LaneSlot> {
        let permit = Arc::clone(&self.slots).try_acquire_owned().ok()?;
        let memory = self.shared.budget.try_take(bytes)?;
        Some(LaneSlot { _permit: permit, memory })
    }

    fn new_claim(&self) -> ClaimProof {
        ClaimProof::random(self.epoch, &*self.shared.rng)
    }

    /// Whether nothing may start: the process stops, the lane has ended, or the process may not be its
    /// owner any more.
    fn is_stopped(&self) -> bool {
        self.stop.is_cancelled() || !self.shared.node.is_owner()
    }

    /// Ends claims that this lane does not work on, in the background.
    fn abandon(&self, claims: &[HeldClaim], due_at: Timestamp) {
        let destination = self.id.destination;
        self.shared.lost_claims.add(claims.iter().map(|claim| AbandonedClaim {
            destination,
            proof: claim.proof,
            delivery: Some(claim.delivery),
            due_at,
        }));
    }

    /// Ends what may have been claimed with this proof, in the background.
    fn abandon_all(&self, proof: ClaimProof) {
        let (destination, due_at) = (self.id.destination, self.shared.clock.now());
        let claim = AbandonedClaim { destination, proof, delivery: None, due_at };
        self.shared.lost_claims.add([claim]);
    }

    /// Queues a delivery that is committed and claimed, and starts it if it may start now.
    pub(crate) fn enqueue(self: &Arc<Self>, queued: QueuedDelivery) {
        let mut state = self.lock();
        state.track_claim(&queued.claimed);
        state.scheduler.enqueue(queued);
        let started = self.start_next(&mut state);
        let waits_for_time = started.is_none()
            && (matches!(self.start_permission(&state), StartPermission::At(_))
                || !self.can_send(&state));
        // The gate may have closed after the slot was reserved.
        let needs_supervisor = waits_for_time || state.scheduler.gate.is_closed();
        drop(state);
        if let Some((queued, permit)) = started {
            self.spawn_worker(queued, permit);
        }
        if needs_supervisor {
            self.changed.notify_one();
        }
    }

    /// The programs that ask for the deliveries of this lane, if it is of that kind.
    pub(crate) fn listeners(&self) -> &Listeners {
        &self.listeners
    }

    /// Starts what has waited for a listener.
    pub(crate) fn wake_for_listener(self: &Arc<Self>) {
        let is_on_hold = self.lock().scheduler.gate.is_on_hold;
        if is_on_hold {
            self.wake();
        } else {
            self.start_workers();
        }
    }

    /// Cancelled when the lane or the process ends.
    pub(crate) fn stop_token(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Tells the lane that the store has due deliveries for it.
    pub(crate) fn wake(&self) {
        self.backlog.store(true, Ordering::Release);
        self.changed.notify_one();
    }

    /// The wall clock went back by this much: what is waited for is as far away as before.
    pub(crate) fn shorten_waits(&self, step: Duration) {
        self.lock().scheduler.shorten_waits(step);
    }

    /// Makes sure that the supervisor reads the store by then.
    pub(crate) fn expect_due(&self, due_at: Timestamp) {
        let due_at = due_at.as_millis();
        let before = self.next_due.fetch_min(due_at, Ordering::SeqCst);
        if due_at < before {
            self.changed.notify_one();
        }
    }

    fn concurrency(&self) -> u32 {
        self.destination.load().concurrency
    }

    fn time(&self) -> LaneTime {
        LaneTime { now: self.shared.clock.now(), elapsed: self.started.elapsed() }
    }

    fn start_permission(&self, state: &LaneState) -> StartPermission {
        if self.is_stopped() || !self.can_send(state) {
            return StartPermission::Denied;
        }
        state.scheduler.start_permission(self.concurrency(), self.time())
    }

    /// Takes the first queued delivery, if it may start now.
    fn start_next(&self, state: &mut LaneState) -> Option<(QueuedDelivery, CircuitPermit)> {
        if state.scheduler.queued() == 0 || self.is_stopped() || !self.can_send(state) {
            return None;
        }
        let LaneState { scheduler, claims, .. } = state;
        scheduler.start_next(self.concurrency(), self.time(), |gate| {
            claims.values().any(|tracked| tracked.is_ordered_backlog(gate))
        })
    }

    /// How long the first queued delivery has to wait for the rate limit.
    fn until_next_start(&self) -> Option<Duration> {
        let state = self.lock();
        if self.is_stopped() || !self.can_send(&state) {
            return None;
        }
        state.scheduler.until_next_start(self.concurrency(), self.time())
    }

    /// Another lane of the destination was asked to send nothing until then.
    pub(crate) fn cool_down(&self, until: Timestamp) {
        self.lock().scheduler.cool_down(until);
        self.changed.notify_one();
    }

    /// The end of the cool-down, if the lane cools down.
    pub(crate) fn cooling_until(&self) -> Option<Timestamp> {
        let now = self.shared.clock.now();
        self.lock().scheduler.cooling_until(now)
    }

    /// Starts as many workers as may run.
    fn start_workers(self: &Arc<Self>) {
        loop {
            let Some((queued, permit)) = self.start_next(&mut self.lock()) else { return };
            self.spawn_worker(queued, permit);
        }
    }

    fn spawn_worker(self: &Arc<Self>, queued: QueuedDelivery, permit: CircuitPermit) {
        let lane = Arc::clone(self);
        // Boxed: the runtime copies the future of a task several times, and this one is large.
        self.shared.tasks.spawn(Box::pin(async move {
            let mut next = Some((queued, permit));
            while let Some((queued, permit)) = next {
                let guard = RunningAttemptGuard::new(&lane, permit);
                lane.run_attempt(queued, permit).await;
                drop(guard);
                next = lane.next_delivery();
            }
        }));
    }

    /// The next delivery for a worker that is free; `None` ends the worker.
    fn next_delivery(&self) -> Option<(QueuedDelivery, CircuitPermit)> {
        let mut state = self.lock();
        state.scheduler.release_place();
        let next = self.start_next(&mut state);
        // The supervisor fetches more before the workers run out of work.
        let is_low =
            self.backlog.load(Ordering::Relaxed) && state.scheduler.is_low(self.concurrency());
        // The rate limit delays the next one, and only the supervisor has a timer.
        let is_delayed = next.is_none() && state.scheduler.queued() > 0;
        drop(state);
        if is_low || is_delayed {
            self.changed.notify_one();
        }
        next
    }

    /// The deliveries that can be attempted. Senders that wait for a damaged one are notified that it
    /// is dead.
    fn take_claimed(&self, claims: ClaimBatch) -> Vec<ClaimedDelivery> {
        for damaged in claims.damaged {
            let dead = || WaiterResult::dead(DeadReason::Unrecoverable);
            self.shared.notify_waiters(damaged, dead);
        }
        claims.claimed
    }

    fn release_claim(&self, delivery: DeliveryId) {
        self.lock().release_claim(delivery, self.shared.clock.now());
    }

    /// Empties the queue, for the caller to return the deliveries to the store.
    pub(crate) fn take_queued_claims(&self) -> Vec<HeldClaim> {
        let mut state = self.lock();
        let queue = state.scheduler.take_queued();
        let taken = queue
            .iter()
            .filter_map(|queued| state.claims.remove(&queued.claimed.id))
            .collect::<Vec<_>>();
        taken.into_iter().map(|tracked| tracked.claim).collect()
    }

    /// Returns what is queued and waits until every attempt has ended and is recorded, after the lane was
    /// [ended](Self::end). Nothing of this process is in flight afterwards.
    pub(crate) async fn finish(&self) {
        loop {
            // Deliveries may still come from commits that began before.
            if let Err(error) = self.return_queued().await {
                tracing::warn!(destination = %self.id.destination, %error, "could not return queued deliveries to the store");
            }
            if self.slots.available_permits() == SLOTS {
                break;
            }
            tokio::time::sleep(FINISH_POLL).await;
        }
        if let Err(error) = self.save_state().await {
            tracing::warn!(destination = %self.id.destination, %error, "could not save the state of a lane");
        }
    }

    /// Deliveries of this lane in memory, whose attempts have not begun or not ended.
    pub(crate) fn deliveries_in_memory(&self) -> usize {
        SLOTS - self.slots.available_permits()
    }

    /// Whether the lane is idle although a due delivery could start now.
    pub(crate) fn is_ready_and_idle(&self) -> bool {
        let state = self.lock();
        self.start_permission(&state) == StartPermission::Now && state.scheduler.queued() == 0
    }
}

/// A bound on the bytes of queued bodies, shared by all lanes.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    used: AtomicUsize,
    max: usize,
}

impl MemoryBudget {
    pub(crate) fn new(max: usize) -> Self {
        Self { used: AtomicUsize::new(0), max }
    }

    fn try_take(self: &Arc<Self>, bytes: usize) -> Option<MemoryShare> {
        let used = self.used.fetch_add(bytes, Ordering::Relaxed);
        let share = MemoryShare { budget: Arc::clone(self), bytes };
        // A single body that is larger than the whole budget must still pass alone.
        (used == 0 || used + bytes <= self.max).then_some(share)
    }
}

/// A part of the budget, returned when dropped.
#[derive(Debug)]
struct MemoryShare {
    budget: Arc<MemoryBudget>,
    bytes: usize,
}

impl Drop for MemoryShare {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A place in a lane's memory.
#[derive(Debug)]
pub(crate) struct LaneSlot {
    _permit: OwnedSemaphorePermit,
    memory: MemoryShare,
}

impl LaneSlot {
    /// Counts the bytes of a body that is already in memory, beyond the budget if need be.
    fn count_bytes(&mut self, bytes: usize) {
        self.memory.budget.used.fetch_add(bytes, Ordering::Relaxed);
        self.memory.bytes += bytes;
    }
}
