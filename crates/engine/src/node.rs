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
    store::{CoordinationStore, Duty, NewNode, NodeLease, NodesReport, OwnedLane, Signal},
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
    share: usize,
    /// Owned in the store and not run any more.
    handing_over: BTreeSet<DestinationId>,
    /// Since when no node is known to own a lane.
    unclaimed_since: HashMap<DestinationId, Instant>,
    /// Acquired beyond the share, and when.
    kept_since: HashMap<DestinationId, Instant>,
    /// Taken over and not started yet.
    taken_over: HashMap<DestinationId, TakenOverLane>,
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
    fn note_unclaimed(&mut self, free: &[DestinationId], now: Instant) -> Vec<DestinationId> {
        self.unclaimed_since.retain(|lane, _| free.contains(lane));
        self.kept_since.retain(|_, since| now.duration_since(*since) < KEPT_FOR);
        let is_old = |lane: &&DestinationId| {
            let since = *self.unclaimed_since.entry(**lane).or_insert(now);
            now.duration_since(since) >= UNCLAIMED_MAX
        };
        free.iter().filter(is_old).copied().collect()
    }

    /// Remembers for how long nothing was sent before a lane was acquired: the store tells it once, and the
    /// lane is started later.
    fn note_idle_time(&mut self, lane: &mut OwnedLane) {
        let Some(idle) = &mut lane.taken_over_after else { return };
        let (epoch, at) = (lane.epoch, Instant::now());
        if !idle.is_zero() {
            self.taken_over.insert(lane.destination, TakenOverLane { epoch, at, idle: *idle });
        }
        let known = self.taken_over.get(&lane.destination).filter(|known| known.epoch == epoch);
        *idle = known.map_or(Duration::ZERO, |known| known.idle + known.at.elapsed());
    }
}

/// The lanes that a node should own.
#[derive(Debug, Default, PartialEq, Eq)]
struct LaneChoice {
    /// Those that it owns.
    owned: Vec<DestinationId>,
    /// Those without an owner. The first ones are within its share.
    free: Vec<DestinationId>,
    /// How many of the free ones are within its share.
    room: usize,
    /// How many lanes it should have at most.
    share: usize,
}

impl LaneChoice {
    /// Chooses among the lanes that this node can run. `lanes_total` counts those of all nodes.
    fn new(
        report: &NodesReport,
        node: NodeId,
        runnable: &[DestinationId],
        lanes_total: usize,
    ) -> Self {
        let is_alive = |id: NodeId| report.nodes.iter().any(|row| row.id == id && row.is_alive);
        let owners: BTreeMap<DestinationId, NodeId> = report
            .lanes
            .iter()
            .filter_map(|lane| Some((lane.destination, lane.owner?)))
            .filter(|(_, owner)| *owner == node || is_alive(*owner))
            .collect();
        let staying = report.nodes.iter().filter(|row| row.is_alive && !row.is_leaving);
        let others = staying.filter(|row| row.id != node).count();
        let share = lanes_total.div_ceil(others + 1);
        let owned: Vec<DestinationId> =
            runnable.iter().filter(|lane| owners.get(lane) == Some(&node)).copied().collect();
        let mut free: Vec<DestinationId> =
            runnable.iter().filter(|lane| !owners.contains_key(lane)).copied().collect();
        // Nodes that look at the same time try different lanes first.
        free.sort_by_key(|lane| rank(node, *lane));
        let room = share.saturating_sub(owned.len()).min(free.len());
        Self { owned, free, room, share }
    }
}

/// When the first of the other nodes loses its lanes, unless it renews its lease until then.
fn next_lease_end(report: &NodesReport, node: NodeId, lease: Duration) -> Option<Instant> {
    let others = report.nodes.iter().filter(|row| row.is_alive && row.id != node);
    let left = others.map(|row| lease.saturating_sub(report.as_of.since(row.renewed_at))).min()?;
    Instant::now().checked_add(left + LEASE_END_MARGIN)
}

/// The preference of a node for a lane: different for each node.
fn rank(node: NodeId, lane: DestinationId) -> u64 {
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

    /// The lanes of these destinations that this process owns and runs, after it has acquired those that
    /// it should have. `lanes_total` counts the lanes of all nodes.
    pub(crate) async fn acquire_lanes(
        &self,
        runnable: Vec<DestinationId>,
        lanes_total: usize,
    ) -> Result<BTreeMap<DestinationId, OwnedLane>, StoreError> {
        let node = &self.shared.node;
        let wanted = match node.is_alone() {
            true => runnable,
            false => self.choose_lanes(&runnable, lanes_total).await?,
        };
        let owned = self.store.acquire_lanes(node.id(), wanted).await?;
        let mut moves = lock(&node.lanes);
        let mut run_here = BTreeMap::new();
        for mut lane in owned {
            if !moves.handing_over.contains(&lane.destination) {
                moves.note_idle_time(&mut lane);
                run_here.insert(lane.destination, lane);
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
        runnable: &[DestinationId],
        lanes_total: usize,
    ) -> Result<Vec<DestinationId>, StoreError> {
        let node = &self.shared.node;
        let report = self.store.load_nodes().await?;
        let choice = LaneChoice::new(&report, node.id(), runnable, lanes_total);
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
            let runnable: BTreeSet<DestinationId> =
                registry.destinations.keys().chain(registry.lanes.keys()).copied().collect();
            let total = registry.destinations_total.max(runnable.len());
            let owned = self.acquire_lanes(runnable.into_iter().collect(), total).await?;
            let are_same = owned.len() == registry.lanes.len()
                && owned.iter().all(|(id, owned)| {
                    registry.lanes.get(id).is_some_and(|lane| lane.epoch() == owned.epoch)
                });
            let has_lost_lanes = node.has_lost_lanes.swap(false, Ordering::AcqRel);
            if (has_lost_lanes || !are_same || registry.version != version)
                && let Err(error) = self.reload().await
            {
                node.has_lost_lanes.store(true, Ordering::Release);
                return Err(error);
            }
        }
        self.give_back_surplus();
        Ok(())
    }

    /// Gives lanes back that are beyond the share of this node, in the background.
    fn give_back_surplus(self: &Arc<Self>) {
        let registry = self.registry.load_full();
        self.telemetry.set_node_lanes(registry.lanes.len());
        if !self.find_surplus(&registry).is_empty() {
            let engine = Arc::clone(self);
            self.shared.tasks.spawn(async move {
                let lanes = engine.hand_over_lanes(|registry| engine.find_surplus(registry)).await;
                tracing::info!(lanes, "another node has joined; gave lanes back for it");
            });
        }
    }

    /// The lanes beyond the share of this node.
    fn find_surplus(&self, registry: &Registry) -> Vec<DestinationId> {
        let node = &self.shared.node;
        let moves = lock(&node.lanes);
        let surplus = registry.lanes.len().saturating_sub(moves.share);
        if node.is_alone() || node.is_leaving() {
            return Vec::new();
        }
        let mut lanes: Vec<(usize, DestinationId)> = registry
            .lanes
            .iter()
            .filter(|(id, _)| !moves.kept_since.contains_key(id))
            .map(|(id, lane)| (lane.deliveries_in_memory(), *id))
            .collect();
        // Idle lanes move at once; those with slow attempts pause until these have ended.
        lanes.sort_unstable();
        lanes.into_iter().map(|(_, id)| id).take(surplus).collect()
    }

    /// Gives lanes back, each when its attempts have ended; returns how many. Others can acquire them
    /// then.
    async fn hand_over_lanes(&self, choose: impl FnOnce(&Registry) -> Vec<DestinationId>) -> usize {
        let node = &self.shared.node;
        let lanes: Vec<Arc<Lane>> = {
            // Chosen under the lock: lanes that are being acquired meanwhile would be missed.
            let _changing = self.change_lock.lock().await;
            let registry = self.registry.load_full();
            let chosen = choose(&registry);
            let lanes: Vec<Arc<Lane>> =
                chosen.iter().filter_map(|id| registry.lanes.get(id).cloned()).collect();
            lock(&node.lanes).handing_over.extend(lanes.iter().map(|lane| lane.id()));
            if let Err(error) = self.reload().await {
                tracing::warn!(%error, "could not give lanes back");
                self.end_hand_over(&lanes);
                return 0;
            }
            lanes
        };
        join_all(lanes.iter().map(|lane| async move {
            lane.finish().await;
            // A reload beside this may have read that this node owns the lane, and would run it again.
            let changing = self.change_lock.lock().await;
            let released = self.store.release_lanes(node.id(), vec![lane.id()]).await;
            self.end_hand_over(std::slice::from_ref(lane));
            drop(changing);
            match released {
                Ok(()) => {
                    self.telemetry.count_handover();
                    self.shared.signals.publish(Signal::NodesChanged);
                }
                // It is run here again, or its next owner waits until the lease has ended.
                Err(error) => {
                    tracing::warn!(destination = %lane.id(), %error, "could not give a lane back");
                    node.lanes_changed.notify_one();
                }
            }
        }))
        .await;
        lanes.len()
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
        let all = |registry: &Registry| registry.lanes.keys().copied().collect();
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
        self.registry.load().lanes.len()
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

    fn lane_id(n: u128) -> DestinationId {
        DestinationId::new(NOW, n << 100)
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
        let lanes = (1..).zip(owners).map(|(lane, owner)| LaneOwnerRow {
            destination: lane_id(lane),
            owner: (*owner > 0).then(|| node_id(*owner)),
            epoch: LaneEpoch(1),
            since: NOW,
        });
        NodesReport { nodes, lanes: lanes.collect(), ..NodesReport::default() }
    }

    fn choose(report: &NodesReport, node: u128, lanes: usize) -> LaneChoice {
        let runnable: Vec<DestinationId> = (1..=lanes as u128).map(lane_id).collect();
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
        assert_eq!((first.owned.len(), first.room, first.share), (2, 1, 3));
        assert_eq!((second.owned.len(), second.room, second.share), (1, 2, 3));
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
