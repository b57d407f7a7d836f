//! This process as a node: what it owns, until when, and how lanes move between nodes.
//!
//! A node renews one lease for all its lanes and duties. Lanes ask [`NodeState::is_owner`] before they
//! start anything, so nothing starts after the lease could have ended, even if the store cannot be
//! reached. The time is that of the monotonic clock: a step of the wall clock moves no deadline.
//!
//! Every node owns its share of the lanes, rounded up (`choose_lanes`). One that has more, because another
//! node has joined, gives the rest back: it starts nothing in them any more, waits until what runs has
//! ended, and only then releases them. So a planned hand-over repeats nothing and loses no order. A node
//! that stops gives back all its lanes like this, before it stops taking requests.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    hash::{DefaultHasher, Hash, Hasher},
    mem,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
use futures_util::future::join_all;
use surehook_core::{
    delivery::LaneEpoch,
    lane::LaneId,
    store::{
        Configuration, CoordinationStore, Duty, NewNode, NodeLease, NodesReport, OwnedLane, Signal,
    },
};
use surehook_types::{
    ids::{DestinationId, NodeId},
    rng::new_id,
    store_error::StoreError,
};
use tokio::sync::Notify;

use crate::{Engine, lane::Lane, lock::lock, registry::Registry};

/// A lease is renewed this many times before it ends.
const RENEWALS_PER_LEASE: u32 = 3;
const RENEWAL_PAUSE_MIN: Duration = Duration::from_millis(10);
/// The pause after the store could not be asked.
const ERROR_PAUSE: Duration = Duration::from_millis(500);
/// The least time between two looks at the lanes of all nodes.
const LANES_PAUSE: Duration = Duration::from_millis(20);
/// How long after the end of another node's lease its lanes are acquired.
const LEASE_END_MARGIN: Duration = Duration::from_millis(50);
/// A lane that no node has acquired for this long is acquired beyond the share of a node: the others may
/// be unable to run it.
const UNCLAIMED_MAX: Duration = Duration::from_secs(10);
/// A lane acquired beyond the share is not given back for this long.
const KEPT_FOR: Duration = Duration::from_secs(600);
/// The deadline of a lease that does not end.
const NEVER: u64 = u64::MAX;

/// How this process presents itself to others.
#[derive(Clone, Debug)]
pub struct NodeIdentity {
    /// For people.
    pub name: String,
    /// Where it listens for requests.
    pub address: Option<SocketAddr>,
}

/// The lease of this process and what it owns.
#[derive(Debug)]
pub(crate) struct NodeState {
    identity: NodeIdentity,
    id: ArcSwap<NodeId>,
    /// The origin of the deadline.
    started: Instant,
    /// Nanoseconds after `started`; zero before the node is registered.
    deadline: AtomicU64,
    /// How long a lease lasts, in milliseconds: the same for all nodes.
    lease_millis: AtomicU64,
    duties: ArcSwap<Vec<Duty>>,
    lanes: Mutex<LaneMoves>,
    /// When the lease of another node ends, unless it is renewed until then.
    next_lease_end: Mutex<Option<Instant>>,
    /// Nothing is acquired any more.
    is_leaving: AtomicBool,
    /// The lease has ended since the lanes were last looked at.
    has_lost_lanes: AtomicBool,
    /// Lanes, nodes or the configuration may have changed.
    pub(crate) lanes_changed: Notify,
    /// There may be requests for lanes of this node.
    pub(crate) requests_changed: Notify,
    /// There may be answers of the owners of other lanes.
    pub(crate) answers_changed: Notify,
}

/// Lanes on their way from one node to another.
#[derive(Debug, Default)]
struct LaneMoves {
    /// How many lanes this node should have at most.
    share: LaneShare,
    /// Owned in the store and not run any more.
    handing_over: BTreeSet<LaneId>,
    /// Replaced by lanes with another number of shards, and not given back yet.
    replaced: Vec<Arc<Lane>>,
    /// Since when no node is known to own a lane.
    unclaimed_since: HashMap<LaneId, Instant>,
    /// Acquired beyond the share, and when.
    kept_since: HashMap<LaneId, Instant>,
    /// Taken over and not started yet.
    taken_over: HashMap<LaneId, TakenOverLane>,
}

/// A lane that was taken over from another node.
#[derive(Clone, Copy, Debug)]
struct TakenOverLane {
    epoch: LaneEpoch,
    at: Instant,
    /// For how long nothing had been sent then.
    idle: Duration,
}

impl NodeState {
    pub(crate) fn new(id: NodeId, identity: NodeIdentity) -> Self {
        Self {
            identity,
            id: ArcSwap::from_pointee(id),
            started: Instant::now(),
            deadline: AtomicU64::new(0),
            lease_millis: AtomicU64::new(0),
            duties: ArcSwap::default(),
            lanes: Mutex::default(),
            next_lease_end: Mutex::default(),
            is_leaving: AtomicBool::new(false),
            has_lost_lanes: AtomicBool::new(false),
            lanes_changed: Notify::new(),
            requests_changed: Notify::new(),
            answers_changed: Notify::new(),
        }
    }

    pub(crate) fn id(&self) -> NodeId {
        **self.id.load()
    }

    /// For people.
    pub(crate) fn name(&self) -> &str {
        &self.identity.name
    }

    /// Whether the lease has not ended.
    pub(crate) fn is_owner(&self) -> bool {
        match self.deadline.load(Ordering::Acquire) {
            NEVER => true,
            deadline => self.started.elapsed().as_nanos() < u128::from(deadline),
        }
    }

    /// Whether no other process can use the store.
    pub(crate) fn is_alone(&self) -> bool {
        self.deadline.load(Ordering::Acquire) == NEVER
    }

    pub(crate) fn leads(&self, duty: Duty) -> bool {
        self.is_owner() && self.duties.load().contains(&duty)
    }

    fn lease(&self) -> Duration {
        Duration::from_millis(self.lease_millis.load(Ordering::Relaxed))
    }

    fn is_leaving(&self) -> bool {
        self.is_leaving.load(Ordering::Acquire)
    }

    /// Sets the deadline of a lease that was requested at `requested`.
    fn extend(&self, requested: Instant, lease: NodeLease) {
        let deadline = match lease {
            NodeLease::Unlimited => NEVER,
            NodeLease::For(duration) => {
                let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
                self.lease_millis.store(millis, Ordering::Relaxed);
                let end = requested.saturating_duration_since(self.started) + duration;
                u64::try_from(end.as_nanos()).unwrap_or(NEVER - 1)
            }
        };
        self.deadline.store(deadline, Ordering::Release);
    }

    fn end(&self) {
        self.deadline.store(0, Ordering::Release);
        self.duties.store(Arc::default());
        self.has_lost_lanes.store(true, Ordering::Release);
    }
}

impl LaneMoves {
    /// Updates what is known of lanes without an owner; returns those that have had none for long.
    fn note_unclaimed(&mut self, free: &[LaneId], now: Instant) -> Vec<LaneId> {
        self.unclaimed_since.retain(|lane, _| free.contains(lane));
        self.kept_since.retain(|_, since| now.duration_since(*since) < KEPT_FOR);
        let is_old = |lane: &&LaneId| {
            let since = *self.unclaimed_since.entry(**lane).or_insert(now);
            now.duration_since(since) >= UNCLAIMED_MAX
        };
        free.iter().filter(is_old).copied().collect()
    }

    /// Remembers for how long nothing was sent before a lane was acquired: the store tells it once, and the
    /// lane is started later.
    fn note_idle_time(&mut self, owned: &mut OwnedLane) {
        let Some(idle) = &mut owned.taken_over_after else { return };
        let (epoch, at) = (owned.epoch, Instant::now());
        if !idle.is_zero() {
            self.taken_over.insert(owned.lane, TakenOverLane { epoch, at, idle: *idle });
        }
        let known = self.taken_over.get(&owned.lane).filter(|known| known.epoch == epoch);
        *idle = known.map_or(Duration::ZERO, |known| known.idle + known.at.elapsed());
    }
}

/// The lanes that a node should own.
#[derive(Debug, Default, PartialEq, Eq)]
struct LaneChoice {
    /// Those that it owns.
    owned: Vec<LaneId>,
    /// Those without an owner. The first ones are within its share.
    free: Vec<LaneId>,
    /// How many of the free ones are within its share.
    room: usize,
    share: LaneShare,
}

/// How many lanes a node should have at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct LaneShare {
    /// Of destinations with one lane.
    whole: usize,
    /// Nodes that share the lanes of each other destination.
    nodes: usize,
}

impl LaneShare {
    /// How many of the lanes that are shared together with this one.
    fn of(self, lane: LaneId) -> usize {
        match lane.shard.is_whole() {
            true => self.whole,
            false => usize::from(lane.shard.count).div_ceil(self.nodes.max(1)),
        }
    }
}

/// The lanes that are shared among nodes together with this one: those of destinations with one lane, or
/// those of its destination, which are spread over the nodes.
fn sharing_group(lane: LaneId) -> Option<DestinationId> {
    (!lane.shard.is_whole()).then_some(lane.destination)
}

/// How many of these lanes are in each group.
fn count_groups(lanes: impl IntoIterator<Item = LaneId>) -> HashMap<Option<DestinationId>, usize> {
    let mut counts = HashMap::new();
    for lane in lanes {
        *counts.entry(sharing_group(lane)).or_default() += 1;
    }
    counts
}

impl LaneChoice {
    /// Chooses among the lanes that this node can run. `whole_lanes` counts the destinations with one lane.
    fn new(report: &NodesReport, node: NodeId, runnable: &[LaneId], whole_lanes: usize) -> Self {
        let is_alive = |id: NodeId| report.nodes.iter().any(|row| row.id == id && row.is_alive);
        let owners: BTreeMap<LaneId, NodeId> = report
            .lanes
            .iter()
            .filter_map(|row| Some((row.lane, row.owner?)))
            .filter(|(_, owner)| *owner == node || is_alive(*owner))
            .collect();
        let staying = report.nodes.iter().filter(|row| row.is_alive && !row.is_leaving);
        let nodes = staying.filter(|row| row.id != node).count() + 1;
        let share = LaneShare { whole: whole_lanes.div_ceil(nodes), nodes };
        let owned: Vec<LaneId> =
            runnable.iter().filter(|lane| owners.get(lane) == Some(&node)).copied().collect();
        // Lanes of another number of shards are given back first.
        let owned_counts: BTreeMap<DestinationId, u16> =
            owners.keys().map(|lane| (lane.destination, lane.shard.count)).collect();
        let is_free = |lane: &LaneId| {
            let count = owned_counts.get(&lane.destination);
            !owners.contains_key(lane) && count.is_none_or(|count| *count == lane.shard.count)
        };
        let mut free: Vec<LaneId> = runnable.iter().copied().filter(is_free).collect();
        // Nodes that look at the same time try different lanes first.
        free.sort_by_key(|lane| rank(node, *lane));
        let mut counts = count_groups(owned.iter().copied());
        let (mut within, beyond): (Vec<LaneId>, Vec<LaneId>) = free.into_iter().partition(|lane| {
            let count = counts.entry(sharing_group(*lane)).or_default();
            *count += 1;
            *count <= share.of(*lane)
        });
        let room = within.len();
        within.extend(beyond);
        Self { owned, free: within, room, share }
    }
}

/// When the first of the other nodes loses its lanes, unless it renews its lease until then.
fn next_lease_end(report: &NodesReport, node: NodeId, lease: Duration) -> Option<Instant> {
    let others = report.nodes.iter().filter(|row| row.is_alive && row.id != node);
    let left = others.map(|row| lease.saturating_sub(report.as_of.since(row.renewed_at))).min()?;
    Instant::now().checked_add(left + LEASE_END_MARGIN)
}

/// The preference of a node for a lane: different for each node.
fn rank(node: NodeId, lane: LaneId) -> u64 {
    let mut hasher = DefaultHasher::new();
    (node, lane).hash(&mut hasher);
    hasher.finish()
}

impl Engine {
    /// Registers this process as a node, under a new id; returns the lease.
    pub(crate) async fn join_nodes(&self) -> Result<NodeLease, StoreError> {
        let node = &self.shared.node;
        let id: NodeId = new_id(&*self.shared.rng, self.shared.clock.now());
        let NodeIdentity { name, address } = node.identity.clone();
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let requested = Instant::now();
        let lease = self.store.register_node(NewNode { id, name, version, address }).await?;
        node.id.store(Arc::new(id));
        node.extend(requested, lease);
        if lease != NodeLease::Unlimited {
            self.shared.signals.open();
            self.shared.signals.publish(Signal::NodesChanged);
        }
        self.lead_duties().await?;
        Ok(lease)
    }

    async fn lead_duties(&self) -> Result<(), StoreError> {
        if self.shared.node.is_leaving() {
            return Ok(());
        }
        let led = self.store.lead_duties(self.shared.node.id(), Duty::ALL.to_vec()).await?;
        let duties: Vec<Duty> = led.iter().map(|led| led.duty).collect();
        if **self.shared.node.duties.load() != duties {
            tracing::debug!(?led, "this process leads these duties");
            self.shared.node.duties.store(Arc::new(duties));
            // Their tasks wait for their next time.
            self.changed.notify_waiters();
        }
        Ok(())
    }

    /// Those of these lanes that this process owns and runs, after it has acquired those that it should
    /// have. `whole_lanes` counts the destinations with one lane.
    pub(crate) async fn acquire_lanes(
        &self,
        runnable: Vec<LaneId>,
        whole_lanes: usize,
    ) -> Result<BTreeMap<LaneId, OwnedLane>, StoreError> {
        let node = &self.shared.node;
        let wanted = match node.is_alone() {
            true => runnable,
            false => self.choose_lanes(&runnable, whole_lanes).await?,
        };
        let owned = self.store.acquire_lanes(node.id(), wanted).await?;
        let mut moves = lock(&node.lanes);
        let mut run_here = BTreeMap::new();
        for mut owned in owned {
            if !moves.handing_over.contains(&owned.lane) {
                moves.note_idle_time(&mut owned);
                run_here.insert(owned.lane, owned);
            }
        }
        Ok(run_here)
    }

    /// All acquired lanes have been started.
    pub(crate) fn forget_idle_times(&self) {
        lock(&self.shared.node.lanes).taken_over.clear();
    }

    async fn choose_lanes(
        &self,
        runnable: &[LaneId],
        whole_lanes: usize,
    ) -> Result<Vec<LaneId>, StoreError> {
        let node = &self.shared.node;
        let report = self.store.load_nodes().await?;
        let choice = LaneChoice::new(&report, node.id(), runnable, whole_lanes);
        let LaneChoice { owned, free, room, share } = choice;
        self.telemetry.set_nodes(report.nodes.iter().filter(|row| row.is_alive).count());
        *lock(&node.next_lease_end) = next_lease_end(&report, node.id(), node.lease());
        if node.is_leaving() {
            return Ok(owned);
        }
        let (acquired, rest) = free.split_at(room);
        let mut moves = lock(&node.lanes);
        moves.share = share;
        let now = Instant::now();
        let unclaimed = moves.note_unclaimed(rest, now);
        moves.kept_since.extend(unclaimed.iter().map(|lane| (*lane, now)));
        Ok([&owned[..], acquired, &unclaimed[..]].concat())
    }

    /// Renews the lease until the engine stops. Ends at once if the lease is unlimited.
    pub(crate) async fn keep_lease(self: Arc<Self>, mut lease: NodeLease) {
        while let NodeLease::For(duration) = lease {
            let wait = (duration / RENEWALS_PER_LEASE).max(RENEWAL_PAUSE_MIN);
            if tokio::time::timeout(wait, self.shared.stop.cancelled()).await.is_ok() {
                return;
            }
            match self.renew_lease().await {
                Ok(renewed) => lease = renewed,
                Err(error) => {
                    // Without a renewal, nothing starts after the deadline.
                    tracing::warn!(%error, "could not renew the lease of this process");
                    lease = NodeLease::For(ERROR_PAUSE * RENEWALS_PER_LEASE);
                }
            }
            // In a task of its own: what follows must not delay the next renewal.
            self.shared.node.lanes_changed.notify_one();
        }
    }

    async fn renew_lease(&self) -> Result<NodeLease, StoreError> {
        let node = &self.shared.node;
        let requested = Instant::now();
        match self.store.renew_node(node.id()).await? {
            Some(lease) => {
                // Lanes that noticed the end sleep until they are woken. It may have come while the store
                // was asked.
                if !node.is_owner() {
                    node.has_lost_lanes.store(true, Ordering::Release);
                }
                node.extend(requested, lease);
                self.lead_duties().await?;
                Ok(lease)
            }
            None => {
                tracing::warn!("the lease of this process has ended; its lanes are given up");
                node.end();
                self.join_nodes().await
            }
        }
    }

    /// Looks at the lanes of all nodes whenever something may have changed, until the engine stops.
    pub(crate) async fn keep_lanes(self: Arc<Self>) {
        loop {
            let lease_end = *lock(&self.shared.node.next_lease_end);
            // The renewals of this node would notice it too, but later.
            let lease_end = async {
                match lease_end {
                    Some(end) => tokio::time::sleep_until(end.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.shared.stop.cancelled() => return,
                () = self.shared.node.lanes_changed.notified() => {}
                () = lease_end => {}
            }
            lock(&self.shared.node.next_lease_end).take();
            if let Err(error) = self.update_lanes().await {
                tracing::warn!(%error, "could not read which lanes this process owns");
            }
            tokio::time::sleep(LANES_PAUSE).await;
        }
    }

    /// Acquires lanes that this process should have, gives back those that it should not have, and loads a
    /// configuration that another node has changed.
    async fn update_lanes(self: &Arc<Self>) -> Result<(), StoreError> {
        let node = &self.shared.node;
        self.lead_duties().await?;
        {
            // Not beside a change of the configuration, which loads it as well.
            let _changing = self.change_lock.lock().await;
            let registry = self.registry.load_full();
            let version = self.store.load_configuration_version().await?;
            // A misconfigured destination may still run under its old settings.
            let usable = registry.destinations.iter();
            let runnable: BTreeSet<LaneId> = usable
                .flat_map(|(id, usable)| LaneId::all(*id, usable.shards()))
                .chain(registry.all_lanes().map(|lane| lane.id()))
                .collect();
            let whole = runnable.iter().filter(|lane| lane.shard.is_whole()).count();
            let whole = registry.whole_lanes.max(whole);
            let owned = self.acquire_lanes(runnable.into_iter().collect(), whole).await?;
            let are_same = owned.len() == registry.all_lanes().count()
                && owned.iter().all(|(id, owned)| {
                    registry.lane(*id).is_some_and(|lane| lane.epoch() == owned.epoch)
                });
            let has_lost_lanes = node.has_lost_lanes.swap(false, Ordering::AcqRel);
            if (has_lost_lanes || !are_same || registry.version != version)
                && let Err(error) = self.reload().await
            {
                node.has_lost_lanes.store(true, Ordering::Release);
                return Err(error);
            }
        }
        let replaced = mem::take(&mut lock(&node.lanes).replaced);
        if !replaced.is_empty() {
            let engine = Arc::clone(self);
            self.shared.tasks.spawn(async move { engine.finish_lanes(replaced).await });
        }
        self.give_back_surplus();
        Ok(())
    }

    /// Has lanes given back whose destination has another number of shards now. Only then can those that
    /// replace them be acquired, so that all together never exceed the limits of the destination.
    pub(crate) fn release_replaced_lanes(&self, before: &Registry, configuration: &Configuration) {
        let shards: HashMap<DestinationId, u16> =
            configuration.destinations.iter().map(|one| (one.id, one.spec.shards)).collect();
        let is_replaced = |lane: &&Arc<Lane>| {
            let shards = shards.get(&lane.destination_id());
            shards.is_some_and(|shards| *shards != lane.id().shard.count)
        };
        let node = &self.shared.node;
        let mut moves = lock(&node.lanes);
        let is_moving = |lane: &&Arc<Lane>| moves.handing_over.contains(&lane.id());
        let replaced: Vec<Arc<Lane>> = before
            .all_lanes()
            .filter(|lane| is_replaced(lane) && !is_moving(lane))
            .cloned()
            .collect();
        if replaced.is_empty() {
            return;
        }
        moves.handing_over.extend(replaced.iter().map(|lane| lane.id()));
        moves.replaced.extend(replaced);
        drop(moves);
        node.lanes_changed.notify_one();
    }

    /// Gives lanes back that are beyond the share of this node, in the background.
    fn give_back_surplus(self: &Arc<Self>) {
        if self.shared.node.is_alone() {
            return;
        }
        let registry = self.registry.load_full();
        self.telemetry.set_node_lanes(registry.all_lanes().count());
        if !self.find_surplus(&registry).is_empty() {
            let engine = Arc::clone(self);
            self.shared.tasks.spawn(async move {
                let lanes = engine.hand_over_lanes(|registry| engine.find_surplus(registry)).await;
                tracing::info!(lanes, "another node has joined; gave lanes back for it");
            });
        }
    }

    /// The lanes beyond the share of this node.
    fn find_surplus(&self, registry: &Registry) -> Vec<LaneId> {
        let node = &self.shared.node;
        let moves = lock(&node.lanes);
        if node.is_alone() || node.is_leaving() {
            return Vec::new();
        }
        let mut counts = count_groups(registry.all_lanes().map(|lane| lane.id()));
        let mut lanes: Vec<(usize, LaneId)> = registry
            .all_lanes()
            .filter(|lane| !moves.kept_since.contains_key(&lane.id()))
            .map(|lane| (lane.deliveries_in_memory(), lane.id()))
            .collect();
        // Idle lanes move at once; those with slow attempts pause until these have ended.
        lanes.sort_unstable();
        let is_surplus = |id: &LaneId| {
            let count = counts.entry(sharing_group(*id)).or_default();
            let is_surplus = *count > moves.share.of(*id);
            *count -= usize::from(is_surplus);
            is_surplus
        };
        lanes.into_iter().map(|(_, id)| id).filter(is_surplus).collect()
    }

    /// Gives lanes back, each when its attempts have ended; returns how many. Others can acquire them
    /// then.
    async fn hand_over_lanes(&self, choose: impl FnOnce(&Registry) -> Vec<LaneId>) -> usize {
        let node = &self.shared.node;
        let lanes: Vec<Arc<Lane>> = {
            // Chosen under the lock: lanes that are being acquired meanwhile would be missed.
            let _changing = self.change_lock.lock().await;
            let registry = self.registry.load_full();
            let chosen = choose(&registry);
            let lanes: Vec<Arc<Lane>> =
                chosen.iter().filter_map(|id| registry.lane(*id).cloned()).collect();
            lock(&node.lanes).handing_over.extend(lanes.iter().map(|lane| lane.id()));
            if let Err(error) = self.reload().await {
                tracing::warn!(%error, "could not give lanes back");
                self.end_hand_over(&lanes);
                return 0;
            }
            lanes
        };
        let count = lanes.len();
        self.finish_lanes(lanes).await;
        count
    }

    /// Waits until the attempts of lanes that were ended have ended, and gives the lanes back.
    async fn finish_lanes(&self, lanes: Vec<Arc<Lane>>) {
        let node = &self.shared.node;
        join_all(lanes.iter().map(|lane| async move {
            lane.finish().await;
            if self.release_until_known(lane).await {
                self.telemetry.count_handover();
                self.shared.signals.publish(Signal::NodesChanged);
            }
            // Lanes that replace it may be this node's.
            node.lanes_changed.notify_one();
        }))
        .await;
    }

    /// Gives a lane back, and tries it again while this node owns it: no other lane of the destination may
    /// be able to begin before.
    async fn release_until_known(&self, lane: &Arc<Lane>) -> bool {
        let node = &self.shared.node;
        loop {
            // A reload beside this may have read that this node owns the lane, and would run it again.
            let changing = self.change_lock.lock().await;
            let released = self.store.release_lanes(node.id(), vec![lane.id()]).await;
            if released.is_ok() || !node.is_owner() || self.shared.abort.is_cancelled() {
                self.end_hand_over(std::slice::from_ref(lane));
            }
            drop(changing);
            let Err(error) = released else { return true };
            tracing::warn!(destination = %lane.destination_id(), %error, "could not give a lane back");
            if !node.is_owner() || self.shared.abort.is_cancelled() {
                return false;
            }
            tokio::time::sleep(ERROR_PAUSE).await;
        }
    }

    fn end_hand_over(&self, lanes: &[Arc<Lane>]) {
        let mut moves = lock(&self.shared.node.lanes);
        for lane in lanes {
            moves.handing_over.remove(&lane.id());
        }
    }

    /// Gives all lanes to other nodes before this one stops; for at most this long. Requests can be
    /// received meanwhile: their deliveries are stored for the new owners.
    pub async fn leave(&self, grace: Duration) {
        let node = &self.shared.node;
        if node.is_alone() {
            return;
        }
        node.is_leaving.store(true, Ordering::Release);
        if let Err(error) = self.store.begin_leaving(node.id()).await {
            tracing::warn!(%error, "could not announce that this process leaves");
        }
        self.shared.signals.publish(Signal::NodesChanged);
        let started = Instant::now();
        let all = |registry: &Registry| registry.all_lanes().map(|lane| lane.id()).collect();
        match tokio::time::timeout(grace, self.hand_over_lanes(all)).await {
            Ok(lanes) => {
                let took = started.elapsed();
                tracing::info!(lanes, ?took, "gave all lanes to other nodes");
            }
            // Their attempts are cut off by `stop`.
            Err(_) => tracing::warn!("some lanes have attempts that have not ended in time"),
        }
        // At once: `stop` may end the task that publishes signals before it has published this one.
        self.publish_departure().await;
    }

    /// Ends the lease, after everything of this process has stopped.
    pub(crate) async fn leave_nodes(&self) {
        let (store, id): (&dyn CoordinationStore, _) = (&*self.store, self.shared.node.id());
        if let Err(error) = store.remove_node(id).await {
            // Others wait until its lease has ended.
            tracing::warn!(%error, "could not give the lanes of this process back");
            return;
        }
        if !self.shared.node.is_alone() {
            self.publish_departure().await;
        }
    }

    /// Tells other nodes that lanes of this one are free.
    async fn publish_departure(&self) {
        let signals = vec![Signal::NodesChanged];
        if let Err(error) = self.store.publish_signals(self.shared.node.id(), signals).await {
            tracing::debug!(%error, "could not tell other nodes; they notice later");
        }
    }

    /// All nodes, and what they own.
    pub async fn load_nodes(&self) -> Result<NodesReport, StoreError> {
        self.store.load_nodes().await
    }

    /// The id of this process as a node.
    pub fn node_id(&self) -> NodeId {
        self.shared.node.id()
    }

    /// The number of lanes that this process owns and runs.
    pub fn owned_lanes(&self) -> usize {
        self.registry.load().all_lanes().count()
    }

    /// Whether the lease of this process has not ended, so that it may deliver.
    pub fn has_lease(&self) -> bool {
        self.shared.node.is_owner()
    }
}

#[cfg(test)]
mod tests {
    use surehook_core::store::{LaneOwnerRow, NodeRow};
    use surehook_types::time::Timestamp;

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_000);

    fn node_id(n: u128) -> NodeId {
        NodeId::new(NOW, n << 100)
    }

    fn lane_id(n: u128) -> LaneId {
        LaneId::whole(DestinationId::new(NOW, n << 100))
    }

    fn row(n: u128) -> NodeRow {
        NodeRow {
            id: node_id(n),
            name: "node".to_owned(),
            version: "1".to_owned(),
            address: None,
            started_at: NOW,
            renewed_at: NOW,
            is_alive: true,
            is_leaving: false,
        }
    }

    /// Lanes 1, 2, … with these owners; zero stands for none.
    fn report(nodes: Vec<NodeRow>, owners: &[u128]) -> NodesReport {
        let lanes: Vec<(LaneId, u128)> =
            (1..).zip(owners).map(|(lane, owner)| (lane_id(lane), *owner)).collect();
        report_of(nodes, &lanes)
    }

    fn choose(report: &NodesReport, node: u128, lanes: usize) -> LaneChoice {
        let runnable: Vec<LaneId> = (1..=lanes as u128).map(lane_id).collect();
        LaneChoice::new(report, node_id(node), &runnable, lanes)
    }

    fn state() -> NodeState {
        let identity = NodeIdentity { name: "node".to_owned(), address: None };
        NodeState::new(node_id(1), identity)
    }

    #[test]
    fn nothing_is_owned_before_the_lease_begins_and_after_it_could_have_ended() {
        let node = state();
        assert!(!node.is_owner());

        node.extend(Instant::now(), NodeLease::For(Duration::from_secs(3600)));
        assert!(node.is_owner() && !node.is_alone());
        // Counted from the request, not from the answer.
        let long_ago = node.started;
        node.extend(long_ago, NodeLease::For(Duration::ZERO));
        assert!(!node.is_owner());

        node.extend(long_ago, NodeLease::Unlimited);
        node.duties.store(Arc::new(vec![Duty::Prune]));
        assert!(node.is_alone() && node.leads(Duty::Prune) && !node.leads(Duty::RollUp));
        node.end();
        assert!(!node.is_owner() && !node.leads(Duty::Prune));
    }

    #[test]
    fn node_takes_its_share_of_free_lanes() {
        let alone = report(vec![row(1)], &[0, 0, 0]);
        assert_eq!(choose(&alone, 1, 3).room, 3);

        let two = report(vec![row(1), row(2)], &[1, 1, 2, 0, 0]);
        let (first, second) = (choose(&two, 1, 5), choose(&two, 2, 5));
        let share = LaneShare { whole: 3, nodes: 2 };
        assert_eq!((first.owned.len(), first.room, first.share), (2, 1, share));
        assert_eq!((second.owned.len(), second.room, second.share), (1, 2, share));
        assert_eq!(first.free.iter().collect::<BTreeSet<_>>(), second.free.iter().collect());
    }

    #[test]
    fn lanes_of_dead_nodes_are_free_and_leaving_nodes_do_not_count() {
        let dead = NodeRow { is_alive: false, ..row(2) };
        let choice = choose(&report(vec![row(1), dead], &[1, 2, 2, 2]), 1, 4);
        assert_eq!((choice.room, choice.free.len()), (3, 3));

        let leaving = NodeRow { is_leaving: true, ..row(2) };
        let choice = choose(&report(vec![row(1), leaving], &[1, 2, 2, 0]), 1, 4);
        assert_eq!(choice.free, [lane_id(4)], "it still owns two");
        assert_eq!(choice.room, 1);
    }

    /// Lanes with their owners; zero stands for none.
    fn report_of(nodes: Vec<NodeRow>, lanes: &[(LaneId, u128)]) -> NodesReport {
        let row = |(lane, owner): &(LaneId, u128)| LaneOwnerRow {
            lane: *lane,
            owner: (*owner > 0).then(|| node_id(*owner)),
            epoch: LaneEpoch(1),
            since: NOW,
        };
        NodesReport { nodes, lanes: lanes.iter().map(row).collect(), ..NodesReport::default() }
    }

    #[test]
    fn lanes_of_a_destination_are_spread_over_the_nodes() {
        let hot = DestinationId::new(NOW, 9 << 100);
        let shards: Vec<LaneId> = LaneId::all(hot, 3).collect();
        let lanes = [(shards[0], 1), (shards[1], 0), (shards[2], 0), (lane_id(1), 0)];
        let report = report_of(vec![row(1), row(2)], &lanes);
        let runnable = lanes.map(|(lane, _)| lane);

        let first = LaneChoice::new(&report, node_id(1), &runnable, 1);
        let second = LaneChoice::new(&report, node_id(2), &runnable, 1);

        // One more of the shards, and the lane of the other destination.
        assert_eq!((first.owned, first.room, first.free.len()), (vec![shards[0]], 2, 3));
        assert!(first.free[..2].contains(&lane_id(1)));
        assert_eq!((second.room, second.free.len()), (3, 3));
        let share = first.share;
        assert_eq!((share.of(shards[0]), share.of(lane_id(1))), (2, 1));
    }

    #[test]
    fn lanes_are_not_free_while_another_number_of_shards_is_owned() {
        let shards: Vec<LaneId> = LaneId::all(lane_id(1).destination, 2).collect();
        let old = lane_id(1);
        let free = |owner| {
            let report = report_of(vec![row(1), row(2)], &[(old, owner)]);
            LaneChoice::new(&report, node_id(1), &shards, 0).free.len()
        };
        assert_eq!((free(2), free(1), free(0), free(3)), (0, 0, 2, 2));
    }

    #[test]
    fn lane_without_owner_for_long_is_acquired_beyond_the_share() {
        let mut moves = LaneMoves::default();
        let now = Instant::now();
        assert!(moves.note_unclaimed(&[lane_id(1), lane_id(2)], now).is_empty());
        let later = now + UNCLAIMED_MAX / 2;
        assert!(moves.note_unclaimed(&[lane_id(1)], later).is_empty());
        let latest = now + UNCLAIMED_MAX;
        assert_eq!(moves.note_unclaimed(&[lane_id(1), lane_id(2)], latest), [lane_id(1)]);
    }
}
