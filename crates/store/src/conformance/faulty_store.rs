//! A store that fails on request: the double for tests of callers.
//!
//! It passes every call on to another store. A test names an operation and a [`StoreFault`]; the next
//! calls of that operation then fail before or after the other store has run it. It can also withhold
//! lanes, duties and the lease from its process, as if there were other nodes.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    fmt, mem,
    ops::RangeInclusive,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use surehook_core::{
    access::{ApiToken, StoredLoginLink, TokenHash},
    alert::log::AlertLog,
    callback::{CallbackResult, DueCallback},
    clock::{SavedClock, StoredClock},
    dead_letters::{DeadLetterGroup, DeadLetterGroupCursor, DeadLetterGroupFilter},
    decision::{EventDecision, NotRoutedReason},
    delivery::{ClaimProof, LaneEpoch, state::DeliveryStatus},
    event::{DedupKeyClaim, DuplicateId, NewEvent, Payload},
    idempotency::{
        ClaimContext, ClaimDetail, ClaimFilter, ClaimRow, ClaimStep, ClaimStepResult, ClaimTotals,
        IdempotencyStore, NamespaceCounts,
    },
    lane::{LaneId, SavedLaneState},
    quarantine::{QuarantineResult, QuarantineStore, QuarantinedRequest},
    refused::{RefusedFilter, RefusedRequest},
    replay::{
        AdvanceReport, ChangeReplayResult, CreateReplayResult, NewReplay, PreviewDepth,
        ReplayPreview, ReplayRow, ReplaySpec, ReplayStore, ReplayTransition, SelectionReport,
    },
    requests::{ReceivedRequest, RequestCursor, RequestFilter},
    rollup::{BucketWidth, DestinationRollup, RollupCounts, RollupQuery},
    store::{
        AbandonedClaim, AdminStore, AdmitResult, CancelResult, ClaimBatch, ConfigChange,
        ConfigChangeResult, ConfigVersion, Configuration, CoordinationStore, DatabaseHealth,
        DeliveryDetail, DeliveryFilter, DeliveryRow, DeliveryStore, DuplicateDetail, Duty,
        EventDetail, EventFilter, EventRow, HeldClaim, HistoryFilter, IngestStore,
        InitialTokenResult, JoinRequest, JoinResult, LaneAnswer, LaneRequest, LedDuty, ListPage,
        NewNode, NodeLease, NodesReport, OwnedLane, PageRequest, PruneReport, RecordedDelivery,
        RemoveTokenResult, ReplayResult, SettleResult, Settlement, Signal, SignalBatch,
        SignalPosition, Store, StoreCounts, StoreHealth, StoredAlerts, WaitingCount,
    },
};
use surehook_dedup::ClaimKey;
use surehook_messaging::{
    media::StoredMedia,
    store::{DailySendCount, MessageStore},
};
use surehook_types::{
    ids::{
        DeliveryId, DestinationId, EventId, LaneRequestId, MediaId, NodeId, ReplayId, RequestId,
        SourceId, TokenId,
    },
    store_error::StoreError,
    time::Timestamp,
};
use surehook_webhooks::attribute::AttributeFilter;
use tokio::sync::Semaphore;

/// How a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreFault {
    /// The operation is refused and nothing is written.
    Refused,
    /// The outcome is unknown, and nothing was written.
    UnknownNotCommitted,
    /// The outcome is unknown, and everything was written.
    UnknownCommitted,
}

/// A store whose next calls of an operation fail as a test asks.
pub struct FaultyStore {
    store: Arc<dyn Store>,
    state: Mutex<FaultState>,
}

#[derive(Debug)]
struct FaultState {
    faults: HashMap<&'static str, VecDeque<StoreFault>>,
    calls: HashMap<&'static str, usize>,
    holds: HashMap<&'static str, HeldCall>,
    ownership: GrantedOwnership,
    lease_has_ended: bool,
}

/// A call that waits until it is released.
#[derive(Clone, Debug)]
pub struct HeldCall {
    calls_before: usize,
    begun: Arc<Semaphore>,
    released: Arc<Semaphore>,
}

impl HeldCall {
    /// Waits until the call has begun.
    pub async fn begun(&self) {
        drop(self.begun.acquire().await);
    }

    pub fn release(&self) {
        self.released.add_permits(1);
    }
}

/// The lease, lanes and duties that a process is granted, as if other nodes had the rest.
#[derive(Clone, Debug)]
pub struct GrantedOwnership {
    pub lease: NodeLease,
    /// Destinations whose lanes another node owns.
    pub withheld_lanes: Vec<DestinationId>,
    pub duties: Vec<Duty>,
}

impl Default for GrantedOwnership {
    fn default() -> Self {
        let (lease, duties) = (NodeLease::Unlimited, Duty::ALL.to_vec());
        Self { lease, withheld_lanes: Vec::new(), duties }
    }
}

impl fmt::Debug for FaultyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultyStore").field("state", &self.lock()).finish_non_exhaustive()
    }
}

impl FaultyStore {
    pub fn new(store: Arc<dyn Store>) -> Self {
        let state = FaultState {
            faults: HashMap::new(),
            calls: HashMap::new(),
            holds: HashMap::new(),
            ownership: GrantedOwnership::default(),
            lease_has_ended: false,
        };
        Self { store, state: Mutex::new(state) }
    }

    /// Makes the next calls of the method with this name fail, one call for each fault.
    pub fn fail_next(&self, method: &'static str, faults: impl IntoIterator<Item = StoreFault>) {
        self.lock().faults.entry(method).or_default().extend(faults);
    }

    /// Holds a call of the method with this name: the next one after `calls_before` others.
    pub fn hold(&self, method: &'static str, calls_before: usize) -> HeldCall {
        let (begun, released) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let held = HeldCall { calls_before, begun, released };
        self.lock().holds.insert(method, held.clone());
        held
    }

    /// How many of the requested faults of a method have not happened yet.
    pub fn faults_left(&self, method: &'static str) -> usize {
        self.lock().faults.get(method).map_or(0, VecDeque::len)
    }

    /// How often a method was called.
    pub fn calls(&self, method: &'static str) -> usize {
        self.lock().calls.get(method).copied().unwrap_or_default()
    }

    /// Sets what the process is granted from now on, when it registers, renews its lease, or asks for
    /// lanes and duties.
    pub fn grant(&self, ownership: GrantedOwnership) {
        self.lock().ownership = ownership;
    }

    /// Makes the next renewal find that the lease has ended.
    pub fn end_lease(&self) {
        self.lock().lease_has_ended = true;
    }

    fn lock(&self) -> MutexGuard<'_, FaultState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a call and returns how it fails.
    fn count_call(&self, method: &'static str) -> Option<StoreFault> {
        let mut state = self.lock();
        *state.calls.entry(method).or_default() += 1;
        state.faults.get_mut(method).and_then(VecDeque::pop_front)
    }

    /// The hold of a call that begins, if it is to be held.
    fn take_hold(&self, method: &'static str) -> Option<HeldCall> {
        let mut state = self.lock();
        let held = state.holds.get_mut(method)?;
        if held.calls_before > 0 {
            held.calls_before -= 1;
            return None;
        }
        state.holds.remove(method)
    }

    async fn run<T>(
        &self,
        method: &'static str,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        if let Some(held) = self.take_hold(method) {
            held.begun.add_permits(1);
            drop(held.released.acquire().await);
        }
        let fault = self.count_call(method);
        let unknown = || StoreError::Unknown(format!("a test asked for it: {method}"));
        match fault {
            None => call.await,
            Some(StoreFault::Refused) => Err(StoreError::Refused(method.to_owned())),
            Some(StoreFault::UnknownNotCommitted) => Err(unknown()),
            Some(StoreFault::UnknownCommitted) => call.await.and_then(|_| Err(unknown())),
        }
    }
}

/// Implements the asynchronous methods of a store trait by passing them on.
macro_rules! pass_on {
    ($trait:ident;
     $(fn $method:ident($($name:ident: $argument:ty),*) -> $result:ty;)*
     { $($other:item)* }) => {
        #[async_trait]
        impl $trait for FaultyStore {
            $(async fn $method(&self, $($name: $argument),*) -> Result<$result, StoreError> {
                self.run(stringify!($method), self.store.$method($($name),*)).await
            })*
            $($other)*
        }
    };
}

pass_on! { IngestStore;
    fn admit(events: Arc<[NewEvent]>) -> Vec<AdmitResult>;
    fn join(request: JoinRequest) -> JoinResult;
    {
        fn find_committed(
            &self,
            source: SourceId,
            claim: &DedupKeyClaim,
            fingerprint: &[u8; 32],
            seen_at: Timestamp,
        ) -> Option<EventId> {
            self.store.find_committed(source, claim, fingerprint, seen_at)
        }
    }
}

pass_on! { DeliveryStore;
    fn claim_due(destination: DestinationId, now: Timestamp, proof: ClaimProof, limit: usize) -> ClaimBatch;
    fn claim_next(destination: DestinationId, now: Timestamp, proof: ClaimProof) -> ClaimBatch;
    fn find_next_due(destination: DestinationId) -> Option<Timestamp>;
    fn settle(settlements: Vec<Settlement>) -> Vec<SettleResult>;
    fn record_crash_outcome(outcome: Settlement) -> SettleResult;
    fn release(held: Vec<HeldClaim>, due_at: Timestamp) -> ();
    fn abandon(claims: Vec<AbandonedClaim>, now: Timestamp) -> ();
    fn cancel_claimed(claim: HeldClaim, reason: NotRoutedReason, at: Timestamp) -> bool;
    fn list_due_callbacks(after: Option<DeliveryId>, limit: usize) -> Vec<DueCallback>;
    fn end_callback(delivery: DeliveryId, result: CallbackResult, at: Timestamp) -> ();
    fn save_lane(destination: DestinationId, epoch: LaneEpoch, state: SavedLaneState) -> ();
    fn load_lanes() -> BTreeMap<DestinationId, SavedLaneState>;
    fn load_clock() -> StoredClock;
    fn save_clock(clock: SavedClock) -> ();
    fn shorten_waits(now: Timestamp, step: Duration) -> usize;
    {}
}

pass_on! { CoordinationStore;
    fn begin_leaving(node: NodeId) -> ();
    fn remove_node(node: NodeId) -> ();
    fn release_lanes(node: NodeId, lanes: Vec<LaneId>) -> ();
    fn load_nodes() -> NodesReport;
    fn publish_signals(node: NodeId, signals: Vec<Signal>) -> ();
    fn poll_signals(node: NodeId, after: Option<SignalPosition>, wait: Duration) -> SignalBatch;
    fn add_lane_request(request: LaneRequest) -> ();
    fn list_lane_requests(node: NodeId) -> Vec<LaneRequest>;
    fn answer_lane_request(id: LaneRequestId, answer: LaneAnswer) -> ();
    fn find_lane_answer(id: LaneRequestId) -> Option<LaneAnswer>;
    {
        async fn register_node(&self, node: NewNode) -> Result<NodeLease, StoreError> {
            self.run("register_node", self.store.register_node(node)).await?;
            Ok(self.lock().ownership.lease)
        }

        async fn renew_node(&self, node: NodeId) -> Result<Option<NodeLease>, StoreError> {
            self.run("renew_node", self.store.renew_node(node)).await?;
            if mem::take(&mut self.lock().lease_has_ended) {
                self.store.remove_node(node).await?;
                return Ok(None);
            }
            Ok(Some(self.lock().ownership.lease))
        }

        async fn acquire_lanes(
            &self,
            node: NodeId,
            lanes: Vec<LaneId>,
        ) -> Result<Vec<OwnedLane>, StoreError> {
            let mut owned =
                self.run("acquire_lanes", self.store.acquire_lanes(node, lanes)).await?;
            let withheld = self.lock().ownership.withheld_lanes.clone();
            owned.retain(|owned| !withheld.contains(&owned.lane.destination));
            Ok(owned)
        }

        async fn lead_duties(
            &self,
            node: NodeId,
            duties: Vec<Duty>,
        ) -> Result<Vec<LedDuty>, StoreError> {
            let mut led = self.run("lead_duties", self.store.lead_duties(node, duties)).await?;
            let granted = self.lock().ownership.duties.clone();
            led.retain(|led| granted.contains(&led.duty));
            Ok(led)
        }
    }
}

pass_on! { AdminStore;
    fn load_alerts() -> StoredAlerts;
    fn save_alerts(expected: u64, log: AlertLog) -> Option<u64>;
    fn load_configuration() -> Configuration;
    fn load_configuration_version() -> ConfigVersion;
    fn change(changes: Vec<ConfigChange>, expected: ConfigVersion, now: Timestamp) -> ConfigChangeResult;
    fn list_events(filter: EventFilter, page: PageRequest<EventId>) -> ListPage<EventRow, EventId>;
    fn list_events_with_each(filters: Vec<AttributeFilter>, limit: usize) -> Vec<Vec<EventRow>>;
    fn find_event(id: EventId) -> Option<EventDetail>;
    fn find_event_row(id: EventId) -> Option<EventRow>;
    fn find_duplicate(id: DuplicateId) -> Option<DuplicateDetail>;
    fn find_body(id: EventId) -> Option<Payload>;
    fn list_deliveries(filter: DeliveryFilter, page: PageRequest<DeliveryId>) -> ListPage<DeliveryRow, DeliveryId>;
    fn list_deliveries_of(events: Vec<EventId>) -> Vec<DeliveryRow>;
    fn find_delivery(id: DeliveryId) -> Option<DeliveryDetail>;
    fn list_history(filter: HistoryFilter, page: PageRequest<DeliveryId>) -> Vec<RecordedDelivery>;
    fn list_dead_letter_groups(filter: DeadLetterGroupFilter, page: PageRequest<DeadLetterGroupCursor>) -> ListPage<DeadLetterGroup, DeadLetterGroupCursor>;
    fn find_delivery_body(id: DeliveryId) -> Option<Payload>;
    fn record_decision(decision: EventDecision) -> ();
    fn store_refused(refused: Vec<RefusedRequest>) -> ();
    fn list_refused(filter: RefusedFilter, page: PageRequest<RequestId>) -> Vec<RefusedRequest>;
    fn list_requests(filter: RequestFilter, page: PageRequest<RequestCursor>) -> ListPage<ReceivedRequest, RequestCursor>;
    fn find_refused(id: RequestId) -> Option<RefusedRequest>;
    fn replay(id: DeliveryId, new: DeliveryId, now: Timestamp) -> ReplayResult;
    fn cancel(id: DeliveryId, now: Timestamp) -> CancelResult;
    fn cancel_for_deleted_destinations() -> bool;
    fn counts() -> StoreCounts;
    fn inspect_database() -> Option<DatabaseHealth>;
    fn count_held() -> BTreeMap<DeliveryStatus, u64>;
    fn find_oldest_due(now: Timestamp) -> BTreeMap<DestinationId, Timestamp>;
    fn count_waiting(now: Timestamp, limit: u64) -> BTreeMap<DestinationId, WaitingCount>;
    fn prune(event_retention: Duration, now: Timestamp) -> PruneReport;
    fn roll_up() -> bool;
    fn list_rollups(query: RollupQuery) -> Vec<(Timestamp, RollupCounts)>;
    fn list_destination_rollups(width: BucketWidth, since: Timestamp) -> Vec<DestinationRollup>;
    fn add_token(token: ApiToken) -> bool;
    fn add_initial_token(token: ApiToken, generated: bool) -> InitialTokenResult;
    fn list_tokens() -> Vec<ApiToken>;
    fn extend_session(id: TokenId, expires_at: Timestamp) -> ();
    fn add_login_link(link: StoredLoginLink, now: Timestamp) -> ();
    fn take_login_link(hash: TokenHash, now: Timestamp) -> Option<StoredLoginLink>;
    fn remove_token(id: TokenId, now: Timestamp) -> RemoveTokenResult;
    {
        fn health(&self) -> StoreHealth {
            self.store.health()
        }

        async fn wait_for_failure(&self) -> String {
            self.store.wait_for_failure().await
        }
    }
}

pass_on! { ReplayStore;
    fn create_replay(job: NewReplay) -> CreateReplayResult;
    fn preview_replay(spec: ReplaySpec, now: Timestamp, depth: PreviewDepth) -> ReplayPreview;
    fn select_replay(id: ReplayId) -> SelectionReport;
    fn advance_replay(id: ReplayId, limit: usize, open_max: u64, now: Timestamp) -> Option<AdvanceReport>;
    fn change_replay(id: ReplayId, input: ReplayTransition, now: Timestamp) -> ChangeReplayResult;
    fn find_replay(id: ReplayId) -> Option<ReplayRow>;
    fn list_replays(page: PageRequest<ReplayId>) -> Vec<ReplayRow>;
    fn list_unfinished_replays() -> Vec<ReplayId>;
    fn prune_replays(before: Timestamp) -> bool;
    {}
}

pass_on! { QuarantineStore;
    fn quarantine(request: QuarantinedRequest, bytes_max: u64) -> QuarantineResult;
    fn list_quarantined(source: Option<SourceId>, page: PageRequest<RequestId>) -> Vec<QuarantinedRequest>;
    fn list_quarantined_ids(source: SourceId, page: PageRequest<RequestId>) -> Vec<RequestId>;
    fn find_quarantined(id: RequestId) -> Option<QuarantinedRequest>;
    fn discard_quarantined(id: RequestId) -> bool;
    {
        fn may_have_quarantined(&self, source: SourceId) -> bool {
            self.store.may_have_quarantined(source)
        }
    }
}

pass_on! { IdempotencyStore;
    fn run_claim_steps(steps: Vec<ClaimStep>, context: ClaimContext) -> Vec<ClaimStepResult>;
    fn list_claims(filter: ClaimFilter, page: PageRequest<ClaimKey>, as_of: Timestamp) -> Vec<ClaimRow>;
    fn find_claim(key: ClaimKey, as_of: Timestamp) -> Option<ClaimDetail>;
    fn count_claims(as_of: Timestamp) -> Vec<NamespaceCounts>;
    fn count_all_claims(as_of: Timestamp) -> ClaimTotals;
    fn prune_claims(as_of: Timestamp) -> usize;
    {}
}

pass_on! { MessageStore;
    fn store_media(media: StoredMedia) -> ();
    fn find_media(id: MediaId) -> Option<StoredMedia>;
    fn use_media(id: MediaId, now: Timestamp) -> Option<StoredMedia>;
    fn count_sent_on(destination: DestinationId, day: i32) -> u64;
    fn count_sent_by_day(days: RangeInclusive<i32>) -> Vec<DailySendCount>;
    {}
}
