//! What a case stands on: a store, a clock that is moved by hand, and builders.
//!
//! A builder gives something valid; a case writes down only what matters to it:
//! `NewEvent { revive_dead: false, ..world.keyed("k") }`.

use std::{
    fmt,
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use surehook_core::{
    attribute::Attributes,
    decision::IntakeRecord,
    delivery::{Lease, LeaseToken, ScheduleReason, state::DeliveryStatus},
    event::{DedupKeyClaim, NewDelivery, NewEvent},
    ids::{DeliveryId, DestinationId, EventId, Id, IdKind, SourceId},
    key::DedupKey,
    retention::RetentionSpec,
    source::SourceSpec,
    store::{
        AdmitResult, ClaimedDelivery, ConfigChange, DeliveryDetail, DeliveryRow, DuplicateOf,
        EventDetail, HeldClaim, NextStep, PruneReport, SettleResult, Settlement, Store, StoreError,
    },
    time::Timestamp,
};

use super::{
    Harness,
    samples::{attempt, claimed_at_birth, destination, held, in_doubt, payload, source},
};

/// How long a claim of [`World::claim`] lasts.
pub(super) const LEASE: Duration = Duration::from_secs(30);
/// How long a key of [`World::key`] is remembered.
pub(super) const WINDOW: Duration = Duration::from_secs(600);

/// An open store with two sources and two destinations, at a chosen time.
pub struct World {
    harness: Box<dyn Harness>,
    store: Option<Arc<dyn Store>>,
    serial: AtomicU32,
    /// The time, which only [`Self::wait`] moves.
    pub now: Timestamp,
    /// A source.
    pub shop: SourceId,
    /// Another source.
    pub bank: SourceId,
    /// A destination; where [`Self::arrival`] goes.
    pub crm: DestinationId,
    /// Another destination.
    pub mail: DestinationId,
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").field("now", &self.now).finish_non_exhaustive()
    }
}

impl Deref for World {
    type Target = dyn Store;
    fn deref(&self) -> &Self::Target {
        &**self.store.as_ref().unwrap()
    }
}

impl World {
    /// Opens an empty place and configures it.
    pub async fn new(harness: impl Harness + 'static) -> Self {
        let now = Timestamp::from_millis(1_800_000_000_000);
        let store = harness.open(now).await;
        let mut world = Self {
            harness: Box::new(harness),
            store: Some(store),
            serial: AtomicU32::new(1),
            now,
            shop: SourceId::new(now, 0),
            bank: SourceId::new(now, 0),
            crm: DestinationId::new(now, 0),
            mail: DestinationId::new(now, 0),
        };
        (world.shop, world.bank) = (world.id(), world.id());
        (world.crm, world.mail) = (world.id(), world.id());
        let changes = vec![
            ConfigChange::PutSource(world.shop, source("shop")),
            ConfigChange::PutSource(world.bank, source("bank")),
            ConfigChange::PutDestination(world.crm, destination("crm")),
            ConfigChange::PutDestination(world.mail, destination("mail")),
        ];
        world.change(changes, now).await.unwrap();
        world
    }

    /// The store, for a task of its own. It must be gone before [`Self::reopen`].
    pub fn store(&self) -> Arc<dyn Store> {
        Arc::clone(self.store.as_ref().unwrap())
    }

    /// Ends the process and starts it again, as far as the store can tell.
    pub async fn reopen(&mut self) {
        let store = self.store.take().unwrap();
        assert_eq!(Arc::strong_count(&store), 1, "somebody still holds the store");
        drop(store);
        self.store = Some(self.harness.open(self.now).await);
    }

    pub fn is_sole_owner(&self) -> bool {
        self.harness.is_sole_owner()
    }

    /// Lets time pass.
    pub fn wait(&mut self, span: Duration) {
        self.now = self.now + span;
    }

    fn next(&self) -> u32 {
        self.serial.fetch_add(1, Ordering::Relaxed)
    }

    /// A new id; later ones sort later.
    pub fn id<K: IdKind>(&self) -> Id<K> {
        // Below the bits that a version-7 UUID takes for itself.
        Id::new(self.now, u128::from(self.next()) << 48)
    }

    /// The right to work from now on, with a token of its own.
    pub fn lease(&self) -> Lease {
        Lease { token: LeaseToken(i64::from(self.next())), until: self.now + LEASE }
    }

    /// A key that is remembered from now on.
    pub fn key(&self, text: &str) -> DedupKeyClaim {
        DedupKeyClaim { key: DedupKey::new(text).unwrap(), expires_at: self.now + WINDOW }
    }

    /// A delivery that waits in the store.
    pub fn to(&self, destination: DestinationId) -> NewDelivery {
        NewDelivery {
            id: self.id(),
            destination,
            claim: None,
            delay: Duration::ZERO,
            order_key: None,
        }
    }

    /// An event of the shop for the CRM with an ordering key.
    pub fn in_line(&self, key: &str) -> NewEvent {
        let owed = NewDelivery { order_key: DedupKey::new(key), ..self.to(self.crm) };
        NewEvent { deliveries: vec![owed], ..self.arrival() }
    }

    /// An event of the shop for the CRM, without a key.
    pub fn arrival(&self) -> NewEvent {
        NewEvent {
            id: self.id(),
            request_id: self.id(),
            source: self.shop,
            received_at: self.now,
            key: None,
            kind: None,
            attributes: Attributes::default(),
            payload: payload(format!(r#"{{"order":{}}}"#, self.next()).as_bytes()),
            deliveries: vec![self.to(self.crm)],
            revive_dead: true,
            intake: IntakeRecord::default(),
            from_duplicate: None,
            releases: None,
            status_update: None,
            bodies: Vec::new(),
        }
    }

    /// The same with a key.
    pub fn keyed(&self, key: &str) -> NewEvent {
        NewEvent { key: Some(self.key(key)), ..self.arrival() }
    }

    /// The same with a key, for both destinations.
    pub fn keyed_for_both(&self, key: &str) -> NewEvent {
        let deliveries = vec![self.to(self.crm), self.to(self.mail)];
        NewEvent { deliveries, ..self.keyed(key) }
    }

    /// The sender's next try with the same bytes and the same key.
    pub fn again(&self, first: &NewEvent) -> NewEvent {
        let key = first.key.as_ref().map(|claim| self.key(claim.key.as_str()));
        let deliveries = first.deliveries.iter().map(|owed| self.to(owed.destination)).collect();
        NewEvent {
            id: self.id(),
            request_id: self.id(),
            received_at: self.now,
            key,
            deliveries,
            ..first.clone()
        }
    }

    /// Admits the events of one request.
    pub async fn admit(&self, events: Vec<NewEvent>) -> Result<Vec<AdmitResult>, StoreError> {
        (**self).admit(events.into()).await
    }

    /// Admits one event as a request of its own.
    pub async fn admit_one(&self, event: NewEvent) -> AdmitResult {
        let mut admitted = self.admit(vec![event]).await.unwrap();
        assert_eq!(admitted.len(), 1, "one answer for each event");
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
            panic!("a duplicate was taken for {admitted:?}")
        };
        duplicate
    }

    /// What a lane holds of an event whose only delivery was claimed at birth.
    pub fn claimed_at_birth(event: &NewEvent) -> ClaimedDelivery {
        claimed_at_birth(event).next().unwrap()
    }

    /// Claims what is due now.
    pub async fn claim(&self, destination: DestinationId, limit: usize) -> Vec<ClaimedDelivery> {
        self.claim_due(destination, self.now, self.lease(), limit).await.unwrap().claimed
    }

    /// Claims the one delivery that must be due.
    pub async fn claim_one(&self, destination: DestinationId) -> ClaimedDelivery {
        let mut claimed = self.claim(destination, 2).await;
        assert_eq!(claimed.len(), 1, "one delivery is due");
        claimed.remove(0)
    }

    /// The end of an attempt.
    pub fn settlement(&self, claimed: &ClaimedDelivery, next: NextStep) -> Settlement {
        let attempt = attempt(self.id(), claimed, self.now, next);
        let HeldClaim { delivery, token } = held(claimed);
        let ClaimedDelivery { destination, created_at, ordered, .. } = *claimed;
        let at = self.now;
        let schedule_reason = next.due_at().map(|_| ScheduleReason::Backoff);
        Settlement {
            delivery,
            destination,
            created_at,
            token,
            at,
            attempt,
            next,
            schedule_reason,
            ordered,
            sent: None,
        }
    }

    /// An attempt of which nobody knows how it ended: a will, or what is settled instead of it.
    pub fn will(&self, claimed: &ClaimedDelivery, next: NextStep) -> Settlement {
        let settlement = self.settlement(claimed, next);
        let attempt = in_doubt(settlement.attempt);
        let schedule_reason = next.due_at().map(|_| ScheduleReason::StatusAwaited);
        Settlement { attempt, schedule_reason, ..settlement }
    }

    /// Ends the process without a word, and lets the leases of what it held run out where another
    /// process could have them.
    pub async fn die(&mut self) {
        self.reopen().await;
        if !self.is_sole_owner() {
            self.wait(LEASE);
            self.release_expired(self.now).await.unwrap();
        }
    }

    /// Ends an attempt that must still count.
    pub async fn finish(&self, claimed: &ClaimedDelivery, next: NextStep) {
        let settled = self.settle(self.settlement(claimed, next)).await.unwrap();
        assert_eq!(settled, SettleResult::Recorded);
    }

    /// Tries everything that is due for `destination`, always with the same end.
    pub async fn finish_due(&self, destination: DestinationId, next: NextStep) {
        for claimed in self.claim(destination, 1000).await {
            self.finish(&claimed, next).await;
        }
    }

    /// Lets a source keep things for other times than the server.
    pub async fn keep(&self, id: SourceId, retention: RetentionSpec) {
        let name = if id == self.shop { "shop" } else { "bank" };
        let spec = SourceSpec { retention, ..source(name) };
        self.change(vec![ConfigChange::PutSource(id, spec)], self.now).await.unwrap();
    }

    /// Removes all that is past its time where events are kept for `events_kept`.
    pub async fn prune_all(&self, events_kept: Duration) -> PruneReport {
        let mut all = PruneReport::default();
        loop {
            let pruned = self.prune(events_kept, self.now).await.unwrap();
            all.events += pruned.events;
            all.bodies += pruned.bodies;
            all.attempts += pruned.attempts;
            all.keys += pruned.keys;
            if !pruned.more {
                return all;
            }
        }
    }

    /// An event that must be there.
    pub async fn detail(&self, event: EventId) -> EventDetail {
        self.event(event).await.unwrap().unwrap()
    }

    /// A delivery that must be there.
    pub async fn delivery_detail(&self, delivery: DeliveryId) -> DeliveryDetail {
        self.delivery(delivery).await.unwrap().unwrap()
    }

    /// The only delivery of an event.
    pub async fn only_delivery(&self, event: EventId) -> DeliveryRow {
        let mut deliveries = self.detail(event).await.deliveries;
        assert_eq!(deliveries.len(), 1, "the event has one delivery");
        deliveries.remove(0)
    }

    /// Where the deliveries of an event stand, oldest first.
    pub async fn statuses(&self, event: EventId) -> Vec<DeliveryStatus> {
        self.detail(event).await.deliveries.iter().map(|delivery| delivery.status).collect()
    }

    /// How many deliveries are in a status now.
    pub fn count(&self, status: DeliveryStatus) -> u64 {
        self.counts().by_status.get(&status).copied().unwrap_or_default()
    }
}
