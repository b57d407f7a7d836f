//! The fixture of all cases: an open store, a clock that the case moves, and builders.
//!
//! Builders return valid values; a case overrides only what it is about:
//! `NewEvent { revive_dead: false, ..fixture.event_with_key("k") }`.

use std::{
    fmt,
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use surehook_core::{
    decision::IntakeRecord,
    delivery::{ClaimProof, LaneEpoch, state::DeliveryStatus},
    destination::DestinationSpec,
    event::{
        ConflictPolicy, DedupKeyClaim, HeaderBlock, KeyWindow, NewDelivery, NewEvent, Payload,
        RequestHead, SignedBytesClaim,
    },
    lane::{LaneId, OrderingFailurePolicy, OrderingSpec, SavedLaneState},
    retention::RetentionSpec,
    source::SourceSpec,
    store::{
        AbandonedClaim, AdmitResult, AttemptRecord, ClaimedDelivery, ConfigChange,
        ConfigChangeResult, DeliveryDetail, DeliveryFilter, DeliveryRow, DuplicateOf, EventDetail,
        EventFilter, EventRow, HeldClaim, ListPage, NewNode, NextStep, PageRequest, PruneReport,
        ReplayResult, SettleResult, Settlement, Store, StoreCounts,
    },
};
use surehook_guard::timing::AttemptTiming;
use surehook_retry::{AttemptFailure, FailureClass, ScheduleReason};
use surehook_types::{
    ids::{AttemptId, DeliveryId, DestinationId, EventId, Id, IdKind, NodeId, SourceId},
    store_error::StoreError,
    time::{HumanDuration, Timestamp},
};
use surehook_webhooks::{
    attribute::Attributes,
    key::{DedupKey, KeyDigest, KeyNamespace, KeyOrigin, fingerprint},
};

use super::StoreHarness;

/// Dedup window of a key by [`StoreFixture::key_claim`].
pub(super) const WINDOW: Duration = Duration::from_secs(600);

/// An open store with two sources, two destinations and a clock.
pub struct StoreFixture {
    harness: Box<dyn StoreHarness>,
    store: Option<Arc<dyn Store>>,
    serial: AtomicU32,
    /// The node that owns the lanes of both destinations.
    pub(super) node: NodeId,
    /// The epoch under which it owns them.
    pub(super) epoch: LaneEpoch,
    /// The current time, which only [`Self::wait`] changes.
    pub now: Timestamp,
    pub shop: SourceId,
    pub bank: SourceId,
    /// The destination of [`Self::new_event`].
    pub crm: DestinationId,
    pub mail: DestinationId,
}

impl fmt::Debug for StoreFixture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreFixture").field("now", &self.now).finish_non_exhaustive()
    }
}

impl Deref for StoreFixture {
    type Target = dyn Store;
    fn deref(&self) -> &Self::Target {
        &**self.store.as_ref().unwrap()
    }
}

impl StoreFixture {
    /// Opens an empty store and configures it.
    pub async fn new(harness: impl StoreHarness + 'static) -> Self {
        let now = Timestamp::from_millis(1_800_000_000_000);
        let store = harness.open(now).await;
        let mut fixture = Self {
            harness: Box::new(harness),
            store: Some(store),
            serial: AtomicU32::new(1),
            node: NodeId::new(now, 0),
            epoch: LaneEpoch::default(),
            now,
            shop: SourceId::new(now, 0),
            bank: SourceId::new(now, 0),
            crm: DestinationId::new(now, 0),
            mail: DestinationId::new(now, 0),
        };
        (fixture.shop, fixture.bank) = (fixture.new_id(), fixture.new_id());
        (fixture.crm, fixture.mail) = (fixture.new_id(), fixture.new_id());
        let changes = vec![
            ConfigChange::PutSource(fixture.shop, source_spec("shop")),
            ConfigChange::PutSource(fixture.bank, source_spec("bank")),
            ConfigChange::PutDestination(fixture.crm, destination_spec("crm")),
            ConfigChange::PutDestination(fixture.mail, destination_spec("mail")),
        ];
        fixture.change(changes, now).await.unwrap();
        fixture.join_as_node().await;
        fixture
    }

    /// Becomes the owner of the lanes, as a process does when it starts.
    async fn join_as_node(&mut self) {
        self.node = self.add_node("first").await;
        let lanes = [self.crm, self.mail].map(LaneId::whole).to_vec();
        let owned = self.acquire_lanes(self.node, lanes).await.unwrap();
        assert_eq!(owned.len(), 2);
        assert_eq!(owned[0].epoch, owned[1].epoch, "both are new, or had the same owner");
        self.epoch = owned[0].epoch;
    }

    /// Registers a process as a node.
    pub async fn add_node(&self, name: &str) -> NodeId {
        let (name, version) = (name.to_owned(), "1.0.0".to_owned());
        let address = Some(([192, 0, 2, 1], 8080).into());
        let node = NewNode { id: self.new_id(), name, version, address };
        let id = node.id;
        self.register_node(node).await.unwrap();
        id
    }

    /// The store for another task. It must be dropped before [`Self::reopen`].
    pub fn store(&self) -> Arc<dyn Store> {
        Arc::clone(self.store.as_ref().unwrap())
    }

    /// Closes the store and opens it again, like a restart of the process.
    pub async fn reopen(&mut self) {
        let store = self.store.take().unwrap();
        assert_eq!(Arc::strong_count(&store), 1, "a task still holds the store");
        drop(store);
        self.store = Some(self.harness.open(self.now).await);
        self.join_as_node().await;
    }

    /// Moves the clock forward.
    pub fn wait(&mut self, duration: Duration) {
        self.now = self.now + duration;
    }

    fn next_serial(&self) -> u32 {
        self.serial.fetch_add(1, Ordering::Relaxed)
    }

    /// A new id; ids are ascending.
    pub fn new_id<K: IdKind>(&self) -> Id<K> {
        // Below the bits that a version-7 UUID reserves.
        Id::new(self.now, u128::from(self.next_serial()) << 48)
    }

    /// A new claim by the current owner of the lanes.
    pub fn new_claim(&self) -> ClaimProof {
        ClaimProof { epoch: self.epoch, number: i64::from(self.next_serial()) }
    }

    /// A dedup key whose window starts now.
    pub fn key_claim(&self, text: &str) -> DedupKeyClaim {
        DedupKeyClaim {
            key: DedupKey::new(text).unwrap(),
            namespace: KeyNamespace::Body,
            origin: KeyOrigin::Explicit,
            expires_at: self.now + WINDOW,
            as_of: self.now,
            on_conflict: Some(ConflictPolicy::Duplicate),
        }
    }

    /// A claim on the signed bytes of a request, which are its body.
    pub fn signed_bytes(&self, source: SourceId, payload: &Payload) -> SignedBytesClaim {
        let digest = KeyDigest::of_signed_bytes(source, &payload.fingerprint, 0, "");
        let window = KeyWindow { expires_at: self.now + WINDOW, as_of: self.now };
        SignedBytesClaim { digest, window }
    }

    /// An unclaimed delivery without delay.
    pub fn delivery_to(&self, destination: DestinationId) -> NewDelivery {
        NewDelivery {
            id: self.new_id(),
            destination,
            claim: None,
            delay: Duration::ZERO,
            order_key: None,
            callback: None,
        }
    }

    /// An event of the shop for the CRM with an ordering key.
    pub fn ordered_event(&self, key: &str) -> NewEvent {
        let delivery = NewDelivery { order_key: DedupKey::new(key), ..self.delivery_to(self.crm) };
        NewEvent { deliveries: vec![delivery], ..self.new_event() }
    }

    /// An event of the shop for the CRM, without a dedup key.
    pub fn new_event(&self) -> NewEvent {
        NewEvent {
            id: self.new_id(),
            request_id: self.new_id(),
            source: self.shop,
            received_at: self.now,
            key: None,
            signed_bytes: None,
            earlier_key: None,
            compared_fingerprint: None,
            kind: None,
            attributes: Attributes::default(),
            payload: payload(format!(r#"{{"order":{}}}"#, self.next_serial()).as_bytes()),
            deliveries: vec![self.delivery_to(self.crm)],
            revive_dead: true,
            intake: IntakeRecord::default(),
            refuses_other_body: false,
            from_duplicate: None,
            releases: None,
            status_update: None,
            bodies: Vec::new(),
        }
    }

    /// An event of the shop for the CRM with a dedup key.
    pub fn event_with_key(&self, key: &str) -> NewEvent {
        NewEvent { key: Some(self.key_claim(key)), ..self.new_event() }
    }

    /// An event of the shop with a dedup key, for both destinations.
    pub fn event_for_both(&self, key: &str) -> NewEvent {
        let deliveries = vec![self.delivery_to(self.crm), self.delivery_to(self.mail)];
        NewEvent { deliveries, ..self.event_with_key(key) }
    }

    /// The same event sent again, with the same body and key.
    pub fn repeat_of(&self, first: &NewEvent) -> NewEvent {
        let (expires_at, as_of) = (self.now + WINDOW, self.now);
        let key = first.key.clone().map(|claim| DedupKeyClaim { expires_at, as_of, ..claim });
        let window = KeyWindow { expires_at, as_of };
        let signed_bytes = first.signed_bytes.map(|claim| SignedBytesClaim { window, ..claim });
        let deliveries = first
            .deliveries
            .iter()
            .map(|delivery| self.delivery_to(delivery.destination))
            .collect();
        NewEvent {
            id: self.new_id(),
            request_id: self.new_id(),
            received_at: self.now,
            key,
            signed_bytes,
            deliveries,
            ..first.clone()
        }
    }

    /// Admits the events of one request.
    pub async fn admit(&self, events: Vec<NewEvent>) -> Result<Vec<AdmitResult>, StoreError> {
        (**self).admit(events.into()).await
    }

    /// Admits one event as its own request.
    pub async fn admit_one(&self, event: NewEvent) -> AdmitResult {
        let mut admitted = self.admit(vec![event]).await.unwrap();
        assert_eq!(admitted.len(), 1, "one result per event");
        admitted.remove(0)
    }

    /// Admits an event that must be new.
    pub async fn accept(&self, event: NewEvent) -> EventId {
        let id = event.id;
        let admitted = self.admit_one(event).await;
        assert!(matches!(admitted, AdmitResult::Accepted { .. }), "{admitted:?}");
        id
    }

    /// Admits an event that must be a duplicate.
    pub async fn expect_duplicate(&self, event: NewEvent) -> DuplicateOf {
        let admitted = self.admit_one(event).await;
        let AdmitResult::Duplicate(duplicate) = admitted else {
            panic!("expected a duplicate, got {admitted:?}")
        };
        duplicate
    }

    /// The claim on an event whose only delivery was claimed at creation.
    pub fn claimed_at_creation(event: &NewEvent) -> ClaimedDelivery {
        claimed_at_creation(event).next().unwrap()
    }

    /// Claims deliveries that are due now.
    pub async fn claim(&self, destination: DestinationId, limit: usize) -> Vec<ClaimedDelivery> {
        self.claim_due(destination, self.now, self.new_claim(), limit).await.unwrap().claimed
    }

    /// Claims a delivery; exactly one must be due.
    pub async fn claim_one(&self, destination: DestinationId) -> ClaimedDelivery {
        let mut claimed = self.claim(destination, 2).await;
        assert_eq!(claimed.len(), 1, "exactly one delivery is due");
        claimed.remove(0)
    }

    /// Admits an event for the CRM and claims its delivery; no other one may be due.
    pub async fn accept_and_claim(&self) -> (EventId, ClaimedDelivery) {
        let event = self.accept(self.new_event()).await;
        (event, self.claim_one(self.crm).await)
    }

    /// The settlement of an attempt with a response that fits `next`.
    pub fn settlement(&self, claimed: &ClaimedDelivery, next: NextStep) -> Settlement {
        let attempt = next_attempt(self.new_id(), claimed, self.now, next);
        let HeldClaim { delivery, proof } = held_claim(claimed);
        let ClaimedDelivery { destination, created_at, ordered, .. } = *claimed;
        let at = self.now;
        let schedule_reason = next.due_at().map(|_| ScheduleReason::Backoff);
        Settlement {
            delivery,
            destination,
            created_at,
            proof,
            at,
            attempt,
            next,
            schedule_reason,
            ordered,
            sent: None,
        }
    }

    /// The settlement of an attempt with an unknown outcome, also used as a crash outcome.
    pub fn ambiguous_settlement(&self, claimed: &ClaimedDelivery, next: NextStep) -> Settlement {
        let settlement = self.settlement(claimed, next);
        let attempt = ambiguous_attempt(settlement.attempt);
        let schedule_reason = next.due_at().map(|_| ScheduleReason::StatusAwaited);
        Settlement { attempt, schedule_reason, ..settlement }
    }

    /// Ends a claim as if its attempt had ended without a result.
    pub async fn abandon_claim(&self, claimed: &ClaimedDelivery) {
        let ClaimedDelivery { id, destination, proof, .. } = *claimed;
        let claim = AbandonedClaim { destination, proof, delivery: Some(id), due_at: self.now };
        self.abandon(vec![claim], self.now).await.unwrap();
    }

    /// Settles one attempt.
    pub async fn settle(&self, settlement: Settlement) -> Result<SettleResult, StoreError> {
        let mut settled = (**self).settle(vec![settlement]).await?;
        assert_eq!(settled.len(), 1, "one result per settlement");
        Ok(settled.remove(0))
    }

    /// Settles an attempt, which must be recorded.
    pub async fn finish(&self, claimed: &ClaimedDelivery, next: NextStep) {
        let settled = self.settle(self.settlement(claimed, next)).await.unwrap();
        assert_eq!(settled, SettleResult::Recorded);
    }

    /// Claims and settles every due delivery of `destination` with the same result.
    pub async fn finish_due(&self, destination: DestinationId, next: NextStep) {
        for claimed in self.claim(destination, 1000).await {
            self.finish(&claimed, next).await;
        }
    }

    /// Replays a delivery, which must be possible; returns the new one.
    pub async fn replay_now(&self, old: DeliveryId) -> DeliveryId {
        let new = self.new_id();
        let replayed = self.replay(old, new, self.now).await.unwrap();
        assert!(matches!(replayed, ReplayResult::Created { .. }), "{replayed:?}");
        new
    }

    /// Saves the state of a lane as its owner.
    pub async fn save_lane(
        &self,
        destination: DestinationId,
        state: SavedLaneState,
    ) -> Result<(), StoreError> {
        (**self).save_lane(destination, self.epoch, state).await
    }

    /// Changes the configuration as it is now.
    pub async fn change(
        &self,
        changes: Vec<ConfigChange>,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let version = self.load_configuration_version().await?;
        let result = (**self).change(changes, version, now).await?;
        assert!(matches!(result, ConfigChangeResult::Changed(_)), "{result:?}");
        Ok(())
    }

    /// Changes the configuration, which must succeed.
    pub async fn apply(&self, change: ConfigChange) {
        self.change(vec![change], self.now).await.unwrap();
    }

    /// Sets the retention of a source.
    pub async fn set_retention(&self, id: SourceId, retention: RetentionSpec) {
        let name = if id == self.shop { "shop" } else { "bank" };
        let spec = SourceSpec { retention, ..source_spec(name) };
        self.apply(ConfigChange::PutSource(id, spec)).await;
    }

    /// Prunes everything that has expired; `event_retention` is the retention of the server.
    pub async fn prune_all(&self, event_retention: Duration) -> PruneReport {
        let mut all = PruneReport::default();
        loop {
            let pruned = self.prune(event_retention, self.now).await.unwrap();
            all.events += pruned.events;
            all.bodies += pruned.bodies;
            all.attempts += pruned.attempts;
            all.keys += pruned.keys;
            if !pruned.more {
                return all;
            }
        }
    }

    /// An event, which must exist.
    pub async fn event_detail(&self, event: EventId) -> EventDetail {
        self.find_event(event).await.unwrap().unwrap()
    }

    /// A delivery, which must exist.
    pub async fn delivery_detail(&self, delivery: DeliveryId) -> DeliveryDetail {
        self.find_delivery(delivery).await.unwrap().unwrap()
    }

    /// All events, newest first.
    pub async fn all_events(&self) -> Vec<EventRow> {
        self.list_events(EventFilter::default(), first_page(10_000)).await.unwrap().rows
    }

    /// All deliveries, newest first.
    pub async fn all_deliveries(&self) -> Vec<DeliveryRow> {
        self.list_deliveries(DeliveryFilter::default(), first_page(10_000)).await.unwrap().rows
    }

    /// The only delivery of an event.
    pub async fn only_delivery(&self, event: EventId) -> DeliveryRow {
        let mut deliveries = self.event_detail(event).await.deliveries;
        assert_eq!(deliveries.len(), 1, "the event has one delivery");
        deliveries.remove(0)
    }

    /// The statuses of the deliveries of an event, oldest first.
    pub async fn delivery_statuses(&self, event: EventId) -> Vec<DeliveryStatus> {
        self.event_detail(event).await.deliveries.iter().map(|delivery| delivery.status).collect()
    }

    pub async fn counts(&self) -> StoreCounts {
        self.store().counts().await.unwrap()
    }

    /// Current number of deliveries with a status.
    pub async fn count_deliveries(&self, status: DeliveryStatus) -> u64 {
        self.counts().await.by_status.get(&status).copied().unwrap_or_default()
    }
}

/// The first rows of a list.
pub(super) fn first_page<I>(limit: usize) -> PageRequest<I> {
    PageRequest { after: None, limit }
}

/// All rows of a list, read page by page.
pub(super) async fn read_pages<R, I: Copy>(
    limit: usize,
    list: impl AsyncFn(PageRequest<I>) -> Result<ListPage<R, I>, StoreError>,
) -> Vec<R> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let page = list(PageRequest { after, limit }).await.unwrap();
        assert!(page.rows.len() <= limit);
        all.extend(page.rows);
        after = page.next;
        if after.is_none() {
            return all;
        }
    }
}

/// The next attempt of a claimed delivery, with a response that fits `next`.
pub(super) fn next_attempt(
    id: AttemptId,
    claimed: &ClaimedDelivery,
    now: Timestamp,
    next: NextStep,
) -> AttemptRecord {
    let (status, class) = match next {
        NextStep::Succeeded => (200, None),
        NextStep::RetryAt(_) => (503, Some(FailureClass::Transient)),
        NextStep::Dead(_) => (400, Some(FailureClass::Permanent)),
    };
    AttemptRecord {
        id,
        number: claimed.attempts + 1,
        started_at: now,
        took: Duration::from_millis(12),
        timing: AttemptTiming::default(),
        status: Some(status),
        failure: None,
        class,
        detail: None,
        response: b"destination response".to_vec(),
    }
}

/// The same attempt without a response: the request may have arrived or not.
pub(super) fn ambiguous_attempt(attempt: AttemptRecord) -> AttemptRecord {
    AttemptRecord {
        status: None,
        failure: Some(AttemptFailure::Interrupted),
        class: Some(FailureClass::Ambiguous),
        response: Vec::new(),
        ..attempt
    }
}

/// The claims on the deliveries of an event that were claimed at creation.
pub(super) fn claimed_at_creation(event: &NewEvent) -> impl Iterator<Item = ClaimedDelivery> {
    event.deliveries.iter().filter_map(|delivery| {
        Some(ClaimedDelivery {
            id: delivery.id,
            event: event.id,
            destination: delivery.destination,
            // The source name is known only to the store.
            source: "claimed-at-creation".parse().ok()?,
            key: event.key.as_ref().map(|claim| claim.key.clone()),
            proof: delivery.claim?,
            attempts: 0,
            throttled: 0,
            created_at: event.received_at,
            received_at: event.received_at,
            payload: event.payload.clone(),
            pending_route: None,
            ordered: delivery.order_key.is_some(),
        })
    })
}

pub(super) fn held_claim(claimed: &ClaimedDelivery) -> HeldClaim {
    HeldClaim { delivery: claimed.id, proof: claimed.proof }
}

/// The proof of another claim by the same owner.
pub(super) fn other_claim(claimed: &ClaimedDelivery) -> ClaimProof {
    ClaimProof { number: -1, ..claimed.proof }
}

/// A payload with ordinary headers.
pub(super) fn payload(body: &[u8]) -> Payload {
    let head = RequestHead {
        path: "/orders".to_owned(),
        query: Some("a=1&b=".to_owned()),
        headers: HeaderBlock::from_bytes(b"content-type: application/json\r\nx-a: \xff\r\n".into()),
        remote: "192.0.2.1".into(),
    };
    Payload {
        head: Arc::new(head),
        body: Bytes::copy_from_slice(body),
        fingerprint: fingerprint(body),
    }
}

/// A valid source with default settings.
pub(super) fn source_spec(name: &str) -> SourceSpec {
    SourceSpec {
        name: name.parse().unwrap(),
        provider: "generic".to_owned(),
        verify: None,
        secrets: Vec::new(),
        allow_short_secrets: false,
        keys: None,
        verify_token: None,
        public_url: None,
        kinds: None,
        on_conflict: None,
        compare_bodies: None,
        replay_guard: None,
        dedup_window: Some(HumanDuration(WINDOW)),
        content_hash_window: None,
        revive_dead: true,
        max_body_bytes: None,
        sync: None,
        on_refusal: None,
        keep_refused_bodies: false,
        redact: Vec::new(),
        strip_secrets: false,
        retention: RetentionSpec::default(),
        silent_after: None,
        enabled: true,
    }
}

/// A valid destination with default settings.
pub(super) fn destination_spec(name: &str) -> DestinationSpec {
    DestinationSpec {
        url: format!("https://{name}.example/hook"),
        ..DestinationSpec::named(name.parse().unwrap())
    }
}

/// A destination with ordering.
pub(super) fn ordered_destination_spec(name: &str) -> DestinationSpec {
    let order =
        OrderingSpec { key: "/customer".to_owned(), on_failure: OrderingFailurePolicy::Dead };
    DestinationSpec { order: Some(order), ..destination_spec(name) }
}

/// The counts without zeros: a store may store them or not.
pub(super) fn without_zeros(mut counts: StoreCounts) -> StoreCounts {
    counts.by_status.retain(|_, count| *count > 0);
    counts.dead.retain(|_, count| count.total > 0 || count.pending > 0);
    counts
}
