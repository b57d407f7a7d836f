//! A store that fails on request: the double for tests of callers.
//!
//! It passes every call on to another store. A test names an operation and a [`StoreFault`]; the next
//! calls of that operation then fail before or after the other store has run it.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    fmt,
    ops::RangeInclusive,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use surehook_core::{
    access::ApiToken,
    callback::{CallbackResult, DueCallback},
    clock::{SavedClock, StoredClock},
    dead_letters::{DeadLetterGroup, DeadLetterGroupCursor, DeadLetterGroupFilter},
    decision::{EventDecision, NotRoutedReason},
    delivery::{Lease, state::DeliveryStatus},
    event::{DedupKeyClaim, DuplicateId, NewEvent, Payload},
    idempotency::{
        ClaimContext, ClaimDetail, ClaimFilter, ClaimRow, ClaimStep, ClaimStepResult, ClaimTotals,
        IdempotencyStore, NamespaceCounts,
    },
    lane::SavedLaneState,
    quarantine::{QuarantineResult, QuarantineStore, QuarantinedRequest},
    refused::{RefusedFilter, RefusedRequest},
    replay::{
        AdvanceReport, ChangeReplayResult, CreateReplayResult, NewReplay, PreviewDepth,
        ReplayPreview, ReplayRow, ReplaySpec, ReplayStore, ReplayTransition, SelectionReport,
    },
    requests::{ReceivedRequest, RequestCursor, RequestFilter},
    rollup::{RollupCounts, RollupQuery},
    store::{
        AdminStore, AdmitResult, CancelResult, ClaimBatch, ConfigChange, ConfigChangeResult,
        ConfigVersion, Configuration, DeliveryDetail, DeliveryFilter, DeliveryRow, DeliveryStore,
        DuplicateDetail, EventDetail, EventFilter, EventRow, HeldClaim, HistoryFilter, IngestStore,
        JoinRequest, JoinResult, ListPage, PageRequest, PruneReport, RecordedDelivery,
        RemoveTokenResult, ReplayResult, SettleResult, Settlement, Store, StoreCounts, StoreHealth,
    },
};
use surehook_dedup::ClaimKey;
use surehook_messaging::{
    media::StoredMedia,
    store::{DailySendCount, MessageStore},
};
use surehook_types::{
    ids::{DeliveryId, DestinationId, EventId, MediaId, ReplayId, RequestId, SourceId, TokenId},
    store_error::StoreError,
    time::Timestamp,
};
use surehook_webhooks::attribute::AttributeFilter;

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
    faults: Mutex<HashMap<&'static str, VecDeque<StoreFault>>>,
}

impl fmt::Debug for FaultyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultyStore").field("faults", &self.lock()).finish_non_exhaustive()
    }
}

impl FaultyStore {
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store, faults: Mutex::default() }
    }

    /// The next calls of the method with this name fail like this, one after the other.
    pub fn fail_next(&self, method: &'static str, faults: impl IntoIterator<Item = StoreFault>) {
        self.lock().entry(method).or_default().extend(faults);
    }

    /// How many of the requested faults of a method have not happened yet.
    pub fn faults_left(&self, method: &'static str) -> usize {
        self.lock().get(method).map_or(0, VecDeque::len)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<&'static str, VecDeque<StoreFault>>> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn run<T>(
        &self,
        method: &'static str,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let fault = self.lock().get_mut(method).and_then(VecDeque::pop_front);
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
    fn claim_due(destination: DestinationId, now: Timestamp, lease: Lease, limit: usize) -> ClaimBatch;
    fn claim_next(destination: DestinationId, now: Timestamp, lease: Lease) -> ClaimBatch;
    fn find_next_due(destination: DestinationId) -> Option<Timestamp>;
    fn settle(settlements: Vec<Settlement>) -> Vec<SettleResult>;
    fn record_crash_outcome(outcome: Settlement) -> SettleResult;
    fn renew(held: Vec<HeldClaim>, until: Timestamp) -> ();
    fn release(held: Vec<HeldClaim>, due_at: Timestamp) -> ();
    fn cancel_claimed(claim: HeldClaim, reason: NotRoutedReason, at: Timestamp) -> bool;
    fn list_due_callbacks(after: Option<DeliveryId>, limit: usize) -> Vec<DueCallback>;
    fn end_callback(delivery: DeliveryId, result: CallbackResult, at: Timestamp) -> ();
    fn release_expired(now: Timestamp) -> Vec<DestinationId>;
    fn save_lane(destination: DestinationId, state: SavedLaneState) -> ();
    fn load_lanes() -> BTreeMap<DestinationId, SavedLaneState>;
    fn load_clock() -> StoredClock;
    fn save_clock(clock: SavedClock) -> ();
    fn shorten_waits(now: Timestamp, step: Duration) -> usize;
    {}
}

pass_on! { AdminStore;
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
    fn count_held() -> BTreeMap<DeliveryStatus, u64>;
    fn find_oldest_due(now: Timestamp) -> BTreeMap<DestinationId, Timestamp>;
    fn prune(event_retention: Duration, now: Timestamp) -> PruneReport;
    fn roll_up() -> bool;
    fn list_rollups(query: RollupQuery) -> Vec<(Timestamp, RollupCounts)>;
    fn add_token(token: ApiToken) -> bool;
    fn list_tokens() -> Vec<ApiToken>;
    fn extend_session(id: TokenId, expires_at: Timestamp) -> ();
    fn remove_token(id: TokenId, now: Timestamp) -> RemoveTokenResult;
    {
        fn counts(&self) -> StoreCounts {
            self.store.counts()
        }

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
