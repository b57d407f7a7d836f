//! Nodes of an embedded store: the lock on the folder proves that all of them are in this process.
//!
//! So they need no rows, and a lease never ends. Usually there is one. Tests start several, to show what a
//! node does beside others.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use surehook_core::{
    delivery::LaneEpoch,
    lane::LaneId,
    store::{
        ConfigVersion, Duty, DutyRow, DutyTerm, HANDOVERS_KEPT, HandoverRow, LANE_REQUESTS_KEPT,
        LaneAnswer, LaneOwnerRow, LaneRequest, LedDuty, NewNode, NodeRow, NodesReport, OwnedLane,
        Signal, SignalBatch, SignalPosition, TokensVersion,
    },
};
use surehook_types::{
    ids::{LaneRequestId, NodeId},
    time::Timestamp,
};
use tokio::sync::Notify;

/// Signals that are kept for nodes that have not read them.
const SIGNALS_KEPT: usize = 10_000;

/// What the nodes of this process know of each other.
#[derive(Debug)]
pub(super) struct LocalNodes {
    state: Mutex<NodesState>,
    published: Notify,
    /// The time at `opened`.
    opened_at: Timestamp,
    opened: Instant,
}

#[derive(Debug, Default)]
struct NodesState {
    nodes: BTreeMap<NodeId, NodeRow>,
    lanes: BTreeMap<LaneId, LaneOwnership>,
    duties: BTreeMap<Duty, DutyRow>,
    /// Newest first.
    handovers: VecDeque<HandoverRow>,
    /// Oldest first; the last one has the position `last_signal`.
    signals: VecDeque<(NodeId, Signal)>,
    last_signal: i64,
    tokens: TokensVersion,
    requests: BTreeMap<LaneRequestId, (LaneRequest, Option<LaneAnswer>)>,
}

#[derive(Clone, Copy, Debug)]
struct LaneOwnership {
    owner: Option<NodeId>,
    last_owner: NodeId,
    since: Timestamp,
}

impl LocalNodes {
    pub(super) fn new(opened_at: Timestamp) -> Self {
        Self {
            state: Mutex::default(),
            published: Notify::new(),
            opened_at,
            opened: Instant::now(),
        }
    }

    /// A panic while the lock is held cannot leave the state half changed in a way that matters.
    fn lock(&self) -> MutexGuard<'_, NodesState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Timestamp {
        self.opened_at + self.opened.elapsed()
    }

    pub(super) fn register(&self, node: NewNode) {
        let now = self.now();
        let NewNode { id, name, version, address } = node;
        let (started_at, renewed_at) = (now, now);
        let (is_alive, is_leaving) = (true, false);
        let row =
            NodeRow { id, name, version, address, started_at, renewed_at, is_alive, is_leaving };
        self.lock().nodes.insert(id, row);
    }

    pub(super) fn begin_leaving(&self, node: NodeId) {
        if let Some(row) = self.lock().nodes.get_mut(&node) {
            row.is_leaving = true;
        }
    }

    /// Returns `false` for a node that was removed.
    pub(super) fn renew(&self, node: NodeId) -> bool {
        let now = self.now();
        let mut state = self.lock();
        state.nodes.get_mut(&node).map(|row| row.renewed_at = now).is_some()
    }

    pub(super) fn remove(&self, node: NodeId) {
        let now = self.now();
        let mut state = self.lock();
        state.nodes.remove(&node);
        state.release_lanes(node, now, |_| true);
        for duty in state.duties.values_mut().filter(|duty| duty.leader == Some(node)) {
            (duty.leader, duty.since) = (None, now);
        }
    }

    pub(super) fn acquire_lanes(
        &self,
        node: NodeId,
        lanes: Vec<LaneId>,
        epoch: LaneEpoch,
    ) -> Vec<OwnedLane> {
        let now = self.now();
        let mut state = self.lock();
        let acquire = |lane: LaneId| state.acquire_lane(node, lane, epoch, now);
        lanes.into_iter().filter_map(acquire).collect()
    }

    pub(super) fn release_lanes(&self, node: NodeId, lanes: &[LaneId]) {
        let now = self.now();
        self.lock().release_lanes(node, now, |lane| lanes.contains(lane));
    }

    pub(super) fn lead_duties(
        &self,
        node: NodeId,
        duties: Vec<Duty>,
        term: DutyTerm,
    ) -> Vec<LedDuty> {
        let now = self.now();
        let mut state = self.lock();
        let led = duties.into_iter().filter(|duty| {
            let free = DutyRow { duty: *duty, leader: Some(node), term, since: now };
            let row = state.duties.entry(*duty).or_insert_with(|| free.clone());
            if row.leader.is_none() {
                *row = free;
            }
            row.leader == Some(node)
        });
        led.map(|duty| LedDuty { duty, term }).collect()
    }

    pub(super) fn report(&self, epoch: LaneEpoch) -> NodesReport {
        let state = self.lock();
        let lanes = state.lanes.iter().map(|(lane, ownership)| {
            let LaneOwnership { owner, since, .. } = *ownership;
            LaneOwnerRow { lane: *lane, owner, epoch, since }
        });
        NodesReport {
            as_of: self.now(),
            nodes: state.nodes.values().cloned().collect(),
            lanes: lanes.collect(),
            duties: state.duties.values().cloned().collect(),
            handovers: state.handovers.iter().cloned().collect(),
        }
    }

    pub(super) fn publish(&self, node: NodeId, signals: Vec<Signal>) {
        let mut state = self.lock();
        // Usually there is no node to read them.
        if state.nodes.keys().all(|known| *known == node) {
            return;
        }
        for signal in signals {
            state.last_signal += 1;
            state.signals.push_back((node, signal));
        }
        let surplus = state.signals.len().saturating_sub(SIGNALS_KEPT);
        state.signals.drain(..surplus);
        drop(state);
        self.published.notify_waiters();
    }

    pub(super) async fn poll(
        &self,
        node: NodeId,
        after: Option<SignalPosition>,
        wait: Duration,
    ) -> SignalBatch {
        let mut published = std::pin::pin!(self.published.notified());
        // Enabled before the read: a signal published in between is not missed.
        published.as_mut().enable();
        let batch = self.lock().read_signals(node, after);
        if after.is_none() || batch.has_gap || !batch.signals.is_empty() {
            return batch;
        }
        let _none_in_time = tokio::time::timeout(wait, published).await;
        self.lock().read_signals(node, after)
    }

    pub(super) fn count_token_change(&self) {
        self.lock().tokens.0 += 1;
    }

    pub(super) fn add_request(&self, request: LaneRequest) {
        let kept_since = request.requested_at - LANE_REQUESTS_KEPT;
        let mut state = self.lock();
        state.requests.retain(|_, (request, _)| request.requested_at >= kept_since);
        state.requests.entry(request.id).or_insert((request, None));
    }

    pub(super) fn list_requests(&self, node: NodeId) -> Vec<LaneRequest> {
        let state = self.lock();
        let owned: Vec<LaneId> = state.lanes_of(node).collect();
        let open = state.requests.values().filter(|(_, answer)| answer.is_none());
        let of_owner = |(request, _): &(LaneRequest, _)| {
            let LaneId { destination, shard } = request.lane;
            let is_same =
                |lane: &&LaneId| lane.destination == destination && lane.shard.index == shard.index;
            let lane = *owned.iter().find(is_same)?;
            Some(LaneRequest { lane, ..request.clone() })
        };
        open.filter_map(of_owner).collect()
    }

    pub(super) fn answer_request(&self, id: LaneRequestId, answer: LaneAnswer) {
        if let Some((_, given)) = self.lock().requests.get_mut(&id) {
            given.get_or_insert(answer);
        }
    }

    pub(super) fn find_answer(&self, id: LaneRequestId) -> Option<LaneAnswer> {
        self.lock().requests.get(&id).and_then(|(_, answer)| answer.clone())
    }
}

impl NodesState {
    fn lanes_of(&self, node: NodeId) -> impl Iterator<Item = LaneId> {
        let lanes = self.lanes.iter().filter(move |(_, ownership)| ownership.owner == Some(node));
        lanes.map(|(lane, _)| *lane)
    }

    /// The lane, if the node owns it afterwards.
    fn acquire_lane(
        &mut self,
        node: NodeId,
        lane: LaneId,
        epoch: LaneEpoch,
        now: Timestamp,
    ) -> Option<OwnedLane> {
        let before = self.lanes.get(&lane).copied();
        if let Some(owner) = before.and_then(|before| before.owner) {
            let owned = OwnedLane { lane, epoch, taken_over_after: None };
            return (owner == node).then_some(owned);
        }
        let has_other_shards = |other: &LaneId| {
            other.destination == lane.destination && other.shard.count != lane.shard.count
        };
        let others: Vec<(LaneId, LaneOwnership)> = self
            .lanes
            .iter()
            .filter(|(other, _)| has_other_shards(other))
            .map(|(other, ownership)| (*other, *ownership))
            .collect();
        if others.iter().any(|(_, ownership)| ownership.owner.is_some()) {
            return None;
        }
        let before = before.or_else(|| others.first().map(|(_, ownership)| *ownership));
        let from = before.map(|before| before.last_owner);
        let handover = HandoverRow { lane, from, to: node, at: now, is_planned: true };
        self.handovers.push_front(handover);
        self.handovers.truncate(HANDOVERS_KEPT);
        self.lanes.retain(|other, _| !has_other_shards(other));
        self.lanes.insert(lane, LaneOwnership { owner: Some(node), last_owner: node, since: now });
        // Other lanes of the destination may have sent something just now.
        let has_others = !others.is_empty() || !lane.shard.is_whole();
        let taken_over_after = has_others.then_some(Duration::ZERO);
        Some(OwnedLane { lane, epoch, taken_over_after })
    }

    fn release_lanes(
        &mut self,
        node: NodeId,
        now: Timestamp,
        is_released: impl Fn(&LaneId) -> bool,
    ) {
        for (lane, ownership) in &mut self.lanes {
            if ownership.owner == Some(node) && is_released(lane) {
                (ownership.owner, ownership.since) = (None, now);
            }
        }
    }

    fn read_signals(&self, node: NodeId, after: Option<SignalPosition>) -> SignalBatch {
        let position = SignalPosition(self.last_signal);
        let before_first = self.last_signal - i64::try_from(self.signals.len()).unwrap_or(0);
        let after = after.unwrap_or(position).0;
        let skipped = usize::try_from(after - before_first).unwrap_or(0);
        let unread = self.signals.iter().skip(skipped).filter(|(from, _)| *from != node);
        SignalBatch {
            signals: unread.map(|(_, signal)| signal.clone()).collect(),
            position,
            has_gap: after < before_first,
            configuration: ConfigVersion::default(),
            tokens: self.tokens,
        }
    }
}
