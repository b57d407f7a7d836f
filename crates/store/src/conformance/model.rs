//! A model of the store made of plain maps, which the random histories are compared with.
//!
//! It implements the rules of the store traits without SQL. Each transition of a delivery goes
//! through [`DeliveryState::apply`]; an illegal transition panics.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use surehook_core::{
    delivery::{ClaimProof, DeliveryState, DeliveryTransition, state::DeliveryStatus},
    event::{ConflictPolicy, DuplicateReason, NewEvent, ProviderStatus, StatusUpdate},
    retention::RetentionSpec,
    rollup::{BucketWidth, RollupCounts, RollupMetric},
    store::{
        CancelResult, ConfirmedDelivery, HeldClaim, NextStep, REPLAY_INTERVAL, ReplayResult,
        SettleResult, Settlement, StoreCounts,
    },
};
use surehook_messaging::store::DailySendCount;
use surehook_retry::{DeadReason, FailureClass};
use surehook_types::{
    ids::{DeliveryId, DestinationId, EventId, SourceId},
    time::Timestamp,
};
use surehook_webhooks::key::KeyDigest;

#[derive(Clone, Copy, Debug)]
struct KnownKey {
    event: EventId,
    fingerprint: [u8; 32],
    expires_at: Timestamp,
}

/// The part of a body's fingerprint that is appended to a key for each further body of the key.
fn short_fingerprint(fingerprint: &[u8; 32]) -> [u8; 8] {
    std::array::from_fn(|index| fingerprint[index])
}

#[derive(Clone, Debug)]
pub(super) struct ModelEvent {
    pub(super) admitted: NewEvent,
    pub(super) duplicates: u64,
    pub(super) last_duplicate_at: Option<Timestamp>,
    pub(super) body_is_pruned: bool,
    /// Whether retention may prune it later than its time; see `compare`.
    pub(super) may_be_pruned_late: bool,
}

#[derive(Clone, Debug)]
pub(super) struct ModelDelivery {
    pub(super) event: EventId,
    pub(super) destination: DestinationId,
    pub(super) state: DeliveryState,
    pub(super) attempts: u32,
    pub(super) created_at: Timestamp,
    pub(super) ended_at: Option<Timestamp>,
    pub(super) reason: Option<DeadReason>,
    pub(super) replay_of: Option<DeliveryId>,
    pub(super) replayed_by: Option<DeliveryId>,
    pub(super) order_key: Option<String>,
    /// Position in the ordering queue.
    pub(super) queue_position: u64,
    earliest_attempt_at: Timestamp,
    pub(super) attempts_are_pruned: bool,
    /// The outcome to apply if the claim ends without a settlement.
    pub(super) crash_outcome: Option<Settlement>,
    pub(super) pending_status: Option<StatusUpdate>,
    /// How long it waits for a status, from the end of its last attempt.
    pub(super) status_wait: Option<Duration>,
    /// The id of the message at the provider.
    pub(super) sent_id: Option<String>,
    /// When the event was last replayed to this destination.
    last_replay_at: Option<Timestamp>,
}

impl ModelDelivery {
    pub(super) fn apply(&mut self, input: DeliveryTransition) {
        self.state = self.state.apply(input).unwrap();
    }

    pub(super) fn end_hold(&mut self, now: Timestamp) {
        if self.state == DeliveryState::Held {
            self.apply(DeliveryTransition::EndHold { due_at: now.max(self.earliest_attempt_at) });
        }
    }

    pub(super) fn due_at(&self) -> Option<Timestamp> {
        match self.state {
            DeliveryState::Pending { due_at } | DeliveryState::Scheduled { due_at } => Some(due_at),
            DeliveryState::InFlight(_)
            | DeliveryState::Held
            | DeliveryState::Succeeded { .. }
            | DeliveryState::Dead { .. }
            | DeliveryState::Cancelled { .. }
            | DeliveryState::Replayed { .. } => None,
        }
    }

    fn claim(&self) -> Option<ClaimProof> {
        if let DeliveryState::InFlight(proof) = self.state { Some(proof) } else { None }
    }
}

#[derive(Clone, Debug)]
pub(super) enum ExpectedAdmission {
    Accepted {
        held: Vec<DeliveryId>,
        confirmed: Option<ConfirmedDelivery>,
        key_conflict: Option<EventId>,
    },
    /// `revived` are the old deliveries; the store chooses the ids of their replays.
    Duplicate {
        original: EventId,
        reason: DuplicateReason,
        bytes_differ: bool,
        revived: Vec<DeliveryId>,
    },
}

#[derive(Debug, Default)]
pub(super) struct StoreModel {
    pub(super) destinations: BTreeSet<DestinationId>,
    pub(super) events: BTreeMap<EventId, ModelEvent>,
    pub(super) deliveries: BTreeMap<DeliveryId, ModelDelivery>,
    keys: BTreeMap<KeyDigest, KnownKey>,
    pub(super) next_queue_position: u64,
    /// Totals, which never decrease.
    pub(super) totals: StoreCounts,
    /// Counts by time, without duplicates, whose time is unknown if they were answered from memory.
    pub(super) rollups: BTreeMap<(CountSubject, Timestamp), RollupCounts>,
    /// Messages sent per day and destination.
    pub(super) sent: BTreeMap<(i32, DestinationId), u64>,
    pub(super) retention: BTreeMap<SourceId, RetentionSpec>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CountSubject {
    Source(SourceId),
    Destination(DestinationId),
}

impl StoreModel {
    pub(super) fn admit(&mut self, event: &NewEvent) -> ExpectedAdmission {
        let mut key_conflict = None;
        match self.find_original(event) {
            Ok(Some((known, reason))) => {
                self.count_sighting(known.event, event.received_at);
                let revived =
                    if event.revive_dead { self.revive(known.event, event) } else { Vec::new() };
                let bytes_differ = known.fingerprint != event.payload.fingerprint;
                let original = known.event;
                return ExpectedAdmission::Duplicate { original, reason, bytes_differ, revived };
            }
            Ok(None) => {}
            Err(holder) => key_conflict = Some(holder),
        }
        let fingerprint = event.payload.fingerprint;
        let known = |expires_at| KnownKey { event: event.id, fingerprint, expires_at };
        if let Some(signed) = event.signed_bytes {
            self.keys.insert(signed.digest, known(signed.window.expires_at));
        }
        match &event.key {
            Some(claim) => {
                let key = claim.digest(event.source);
                if let Some(holder) = key_conflict {
                    self.keys.insert(key.with_body(short_fingerprint(&holder.fingerprint)), holder);
                    self.totals.key_conflicts += 1;
                    self.tally(CountSubject::Source(event.source), event.received_at)
                        .add(RollupMetric::KeyConflicts, 1);
                }
                self.keys.insert(key, known(claim.expires_at));
            }
            None => {
                self.totals.no_key += 1;
                self.tally(CountSubject::Source(event.source), event.received_at)
                    .add(RollupMetric::NoKey, 1);
            }
        }
        self.totals.events += 1;
        self.tally(CountSubject::Source(event.source), event.received_at)
            .add(RollupMetric::Accepted, 1);
        let mut held = Vec::new();
        for planned in &event.deliveries {
            // The delivery is not stored, and so not claimed.
            if !self.destinations.contains(&planned.destination) {
                held.push(planned.id);
                continue;
            }
            let mut delivery = new_delivery(event.id, planned.destination, event.received_at);
            delivery.earliest_attempt_at = event.received_at + planned.delay;
            delivery.state = DeliveryState::Pending { due_at: delivery.earliest_attempt_at };
            delivery.order_key = planned.order_key.as_ref().map(|key| key.as_str().to_owned());
            self.join_ordering_queue(&mut delivery);
            if delivery.state == DeliveryState::Held {
                held.push(planned.id);
            } else if let Some(proof) = planned.claim {
                delivery.apply(DeliveryTransition::Claim(proof));
            }
            self.deliveries.insert(planned.id, delivery);
        }
        let admitted = event.clone();
        let stored = ModelEvent {
            admitted,
            duplicates: 0,
            last_duplicate_at: None,
            body_is_pruned: false,
            may_be_pruned_late: false,
        };
        self.events.insert(event.id, stored);
        let confirmed = event.status_update.as_ref().and_then(|update| self.apply_status(update));
        let key_conflict = key_conflict.map(|holder| holder.event);
        ExpectedAdmission::Accepted { held, confirmed, key_conflict }
    }

    fn find_key(&self, key: KeyDigest, at: Timestamp) -> Option<KnownKey> {
        self.keys.get(&key).copied().filter(|known| known.expires_at > at)
    }

    /// The original of a duplicate; `Err` is the holder of its key if the event is a new one.
    fn find_original(
        &self,
        event: &NewEvent,
    ) -> Result<Option<(KnownKey, DuplicateReason)>, KnownKey> {
        let mut conflict = None;
        if let Some(claim) = &event.key {
            let key = claim.digest(event.source);
            if let Some(holder) = self.find_key(key, claim.as_of) {
                let key_with_body = key.with_body(short_fingerprint(&event.payload.fingerprint));
                let accepts = claim.on_conflict == Some(ConflictPolicy::Accept);
                if holder.fingerprint == event.payload.fingerprint || claim.on_conflict.is_none() {
                    return Ok(Some((holder, DuplicateReason::SameKey)));
                }
                if let Some(original) = self.find_key(key_with_body, claim.as_of) {
                    return Ok(Some((original, DuplicateReason::SameKey)));
                }
                // Histories are too short for the limit of stored bodies.
                let stored = self.events.get(&holder.event);
                if !accepts && stored.is_some_and(|stored| !stored.body_is_pruned) {
                    return Ok(Some((holder, DuplicateReason::SameKey)));
                }
                conflict = Some(holder);
            }
        }
        if let Some(signed) = event.signed_bytes
            && let Some(original) = self.find_key(signed.digest, signed.window.as_of)
        {
            return Ok(Some((original, DuplicateReason::SameSignedBytes)));
        }
        conflict.map_or(Ok(None), Err)
    }

    pub(super) fn tally(&mut self, subject: CountSubject, at: Timestamp) -> &mut RollupCounts {
        self.rollups.entry((subject, BucketWidth::TenSeconds.start(at))).or_default()
    }

    pub(super) fn count_sighting(&mut self, original: EventId, at: Timestamp) {
        self.totals.duplicates += 1;
        if let Some(event) = self.events.get_mut(&original) {
            event.duplicates += 1;
            event.last_duplicate_at = Some(at);
        }
    }

    /// The only event that the store may answer from memory.
    pub(super) fn find_committed(&self, event: &NewEvent) -> Option<EventId> {
        let claim = event.key.as_ref()?;
        let key = claim.digest(event.source);
        let key_with_body = key.with_body(short_fingerprint(&event.payload.fingerprint));
        let is_same = |known: &KnownKey| known.fingerprint == event.payload.fingerprint;
        let find = |key| self.find_key(key, claim.as_of).filter(is_same);
        let known = find(key).or_else(|| find(key_with_body))?;
        let fits = known.expires_at > event.received_at
            && !self
                .deliveries_of_event(known.event)
                .any(|(_, delivery)| delivery.state.status() == DeliveryStatus::Dead);
        fits.then_some(known.event)
    }

    pub(super) fn deliveries_of_event(
        &self,
        event: EventId,
    ) -> impl Iterator<Item = (&DeliveryId, &ModelDelivery)> {
        self.deliveries.iter().filter(move |(_, delivery)| delivery.event == event)
    }

    fn revive(&mut self, event: EventId, duplicate: &NewEvent) -> Vec<DeliveryId> {
        let latest: Vec<(DeliveryId, DeliveryStatus, DestinationId)> = self
            .deliveries_of_event(event)
            .map(|(id, delivery)| (*id, delivery.state.status(), delivery.destination))
            .filter(|(_, status, _)| *status != DeliveryStatus::Replayed)
            .collect();
        let body_is_pruned = self.events.get(&event).is_some_and(|event| event.body_is_pruned);
        if body_is_pruned || latest.iter().any(|(_, status, _)| *status != DeliveryStatus::Dead) {
            return Vec::new();
        }
        let may_have_arrived =
            |id: &DeliveryId| self.deliveries[id].reason == Some(DeadReason::Ambiguous);
        let revived: Vec<DeliveryId> = latest
            .iter()
            .filter(|(_, _, destination)| self.destinations.contains(destination))
            .map(|(id, _, _)| *id)
            .filter(|id| !may_have_arrived(id))
            .collect();
        for old in &revived {
            self.replace_with_replay(*old, placeholder_id(*old), duplicate.received_at, None);
        }
        revived
    }

    fn replace_with_replay(
        &mut self,
        old: DeliveryId,
        new: DeliveryId,
        now: Timestamp,
        last_replay_at: Option<Timestamp>,
    ) {
        let old_delivery = self.deliveries.get_mut(&old).unwrap();
        old_delivery.apply(DeliveryTransition::Replay { at: now });
        old_delivery.replayed_by = Some(new);
        old_delivery.last_replay_at = Some(now);
        let mut replay = new_delivery(old_delivery.event, old_delivery.destination, now);
        replay.replay_of = Some(old);
        replay.last_replay_at = last_replay_at;
        replay.order_key.clone_from(&old_delivery.order_key);
        if let Some(event) = self.events.get_mut(&replay.event) {
            event.may_be_pruned_late = true;
        }
        self.join_ordering_queue(&mut replay);
        self.deliveries.insert(new, replay);
    }

    /// Sets the id that the store chose for the replay of `old`.
    pub(super) fn set_replay_id(&mut self, old: DeliveryId, replay: DeliveryId) {
        let delivery = self.deliveries.remove(&placeholder_id(old)).unwrap();
        self.deliveries.insert(replay, delivery);
        self.deliveries.get_mut(&old).unwrap().replayed_by = Some(replay);
    }

    pub(super) fn claim(
        &mut self,
        destination: DestinationId,
        now: Timestamp,
        proof: ClaimProof,
        limit: usize,
    ) -> Vec<DeliveryId> {
        let waiting =
            self.deliveries.iter().filter(|(_, delivery)| delivery.destination == destination);
        let mut due: Vec<(Timestamp, DeliveryId)> = waiting
            .filter_map(|(id, delivery)| delivery.due_at().map(|due_at| (due_at, *id)))
            .filter(|(due_at, _)| *due_at <= now)
            .collect();
        due.sort();
        due.truncate(limit);
        for (_, id) in &due {
            self.deliveries.get_mut(id).unwrap().apply(DeliveryTransition::Claim(proof));
        }
        due.into_iter().map(|(_, id)| id).collect()
    }

    pub(super) fn next_due(&self, destination: DestinationId) -> Option<Timestamp> {
        let deliveries =
            self.deliveries.values().filter(|delivery| delivery.destination == destination);
        deliveries.filter_map(ModelDelivery::due_at).min()
    }

    /// The delivery, if `claim` is the current claim on it.
    pub(super) fn claimed_delivery(&mut self, claim: HeldClaim) -> Option<&mut ModelDelivery> {
        let delivery = self.deliveries.get_mut(&claim.delivery)?;
        (delivery.claim() == Some(claim.proof)).then_some(delivery)
    }

    pub(super) fn settle(&mut self, claim: HeldClaim, settlement: &Settlement) -> SettleResult {
        if self.claimed_delivery(claim).is_none() {
            return self.apply_late_success(settlement);
        }
        let Some(delivery) = self.claimed_delivery(claim) else { return SettleResult::ClaimLost };
        let (at, attempt) = (settlement.at, &settlement.attempt);
        delivery.crash_outcome = None;
        let status = delivery.pending_status.take();
        let next = status.as_ref().map_or(settlement.next, |update| {
            update.status.apply_to_attempt(attempt.class, settlement.next)
        });
        delivery.status_wait = match (attempt.class, next) {
            (Some(FailureClass::Ambiguous), NextStep::RetryAt(due_at))
                if next == settlement.next =>
            {
                Some(due_at.since(attempt.started_at + attempt.took))
            }
            _ => None,
        };
        let (destination, created_at) = (delivery.destination, delivery.created_at);
        delivery.attempts += 1;
        match next {
            NextStep::Succeeded => delivery.apply(DeliveryTransition::Succeed { at }),
            NextStep::RetryAt(due_at) => delivery.apply(DeliveryTransition::Retry { due_at }),
            NextStep::Dead(reason) => delivery.apply(DeliveryTransition::GiveUp { at, reason }),
        }
        if delivery.state.status().is_final() {
            delivery.ended_at = Some(at);
        }
        let is_retry = delivery.attempts > 1;
        self.totals.attempts += 1;
        self.totals.retries += u64::from(is_retry);
        if let NextStep::Dead(reason) = next {
            self.deliveries.get_mut(&claim.delivery).unwrap().reason = Some(reason);
            self.totals.dead.entry(reason).or_default().total += 1;
            self.tally(CountSubject::Destination(destination), at)
                .add(RollupMetric::dead(reason), 1);
        }
        let tally = self.tally(CountSubject::Destination(destination), at);
        tally.add(RollupMetric::attempt(attempt.class), 1);
        tally.attempt_time.record(attempt.took);
        if next == NextStep::Succeeded {
            tally.latency.record(at.since(created_at));
        }
        if self.deliveries[&claim.delivery].ended_at.is_some() {
            self.release_next(claim.delivery, at);
        }
        self.record_sent(settlement);
        if next == settlement.next {
            return SettleResult::Recorded;
        }
        if let Some(sent_id) = status.and_then(|update| update.sent_id) {
            self.set_sent_id(claim.delivery, &sent_id);
        }
        SettleResult::Overruled(next)
    }

    pub(super) fn release(&mut self, claim: HeldClaim, due_at: Timestamp) {
        if self.claimed_delivery(claim).is_some() {
            self.return_claim(claim.delivery, due_at);
        }
    }

    /// Ends a claim without a settlement.
    pub(super) fn abandon(&mut self, claim: HeldClaim, now: Timestamp) {
        if self.claimed_delivery(claim).is_some() {
            self.end_claims(&[claim.delivery], now);
        }
    }

    /// Ends every claim without a settlement.
    pub(super) fn release_all(&mut self, now: Timestamp) {
        let claimed = self.deliveries.iter().filter(|(_, delivery)| delivery.claim().is_some());
        let ids: Vec<DeliveryId> = claimed.map(|(id, _)| *id).collect();
        self.end_claims(&ids, now);
    }

    pub(super) fn replay(
        &mut self,
        old: DeliveryId,
        new: DeliveryId,
        now: Timestamp,
    ) -> ReplayResult {
        let Some(found) = self.deliveries.get(&old) else { return ReplayResult::NotFound };
        let (status, destination) = (found.state.status(), found.destination);
        if let Some(again_at) = found.last_replay_at.map(|at| at + REPLAY_INTERVAL)
            && now < again_at
        {
            return ReplayResult::TooSoon { again_at };
        }
        let ended = matches!(status, DeliveryStatus::Dead | DeliveryStatus::Succeeded);
        if !ended || !self.destinations.contains(&destination) {
            return ReplayResult::NotReplayable(status);
        }
        if self.events[&self.deliveries[&old].event].body_is_pruned {
            return ReplayResult::BodyRemoved;
        }
        self.replace_with_replay(old, new, now, Some(now));
        ReplayResult::Created { delivery: new, destination }
    }

    pub(super) fn delete_destination(&mut self, destination: DestinationId, at: Timestamp) {
        if !self.destinations.remove(&destination) {
            return;
        }
        let deliveries =
            self.deliveries.values_mut().filter(|delivery| delivery.destination == destination);
        for delivery in deliveries.filter(|delivery| !delivery.state.status().is_final()) {
            delivery.apply(DeliveryTransition::Cancel { at });
            (delivery.crash_outcome, delivery.pending_status) = (None, None);
            delivery.ended_at = Some(at);
        }
    }

    /// Removes expired keys and returns their number.
    pub(super) fn forget_keys(&mut self, now: Timestamp) -> usize {
        let before = self.keys.len();
        self.keys.retain(|_, known| known.expires_at > now);
        before - self.keys.len()
    }

    pub(super) fn counts(&self) -> StoreCounts {
        let mut counts = self.totals.clone();
        for delivery in self.deliveries.values() {
            *counts.by_status.entry(delivery.state.status()).or_default() += 1;
            if let DeliveryState::Dead { reason, .. } = delivery.state {
                counts.dead.entry(reason).or_default().pending += 1;
            }
        }
        counts
    }
}

fn new_delivery(event: EventId, destination: DestinationId, at: Timestamp) -> ModelDelivery {
    ModelDelivery {
        event,
        destination,
        state: DeliveryState::Pending { due_at: at },
        attempts: 0,
        created_at: at,
        ended_at: None,
        reason: None,
        replay_of: None,
        replayed_by: None,
        order_key: None,
        queue_position: 0,
        earliest_attempt_at: at,
        attempts_are_pruned: false,
        crash_outcome: None,
        pending_status: None,
        status_wait: None,
        sent_id: None,
        last_replay_at: None,
    }
}

/// A temporary id for the replay of `old`, until the id that the store chose is known.
fn placeholder_id(old: DeliveryId) -> DeliveryId {
    DeliveryId::from_uuid(uuid::Uuid::from_u128(!old.uuid().as_u128()))
}

impl StoreModel {
    fn ordering_queue<'a>(
        &'a self,
        delivery: &'a ModelDelivery,
    ) -> impl Iterator<Item = (&'a DeliveryId, &'a ModelDelivery)> {
        self.deliveries.iter().filter(move |(_, other)| {
            other.destination == delivery.destination
                && other.order_key.is_some()
                && other.order_key == delivery.order_key
                && !other.state.status().is_final()
        })
    }

    /// Adds a new delivery to the end of its ordering queue.
    pub(super) fn join_ordering_queue(&mut self, delivery: &mut ModelDelivery) {
        self.next_queue_position += 1;
        delivery.queue_position = self.next_queue_position;
        if self.ordering_queue(delivery).next().is_some() {
            delivery.apply(DeliveryTransition::Hold);
        }
    }

    /// Makes the next delivery of the queue due after `ended` has ended.
    pub(super) fn release_next(&mut self, ended: DeliveryId, now: Timestamp) {
        let first = self
            .ordering_queue(&self.deliveries[&ended])
            .min_by_key(|(_, other)| other.queue_position);
        if let Some(first) = first.map(|(id, _)| *id) {
            self.deliveries.get_mut(&first).unwrap().end_hold(now);
        }
    }

    /// Ends all holds of a destination whose ordering was removed.
    pub(super) fn release_all_held(&mut self, destination: DestinationId, now: Timestamp) {
        let deliveries =
            self.deliveries.values_mut().filter(|delivery| delivery.destination == destination);
        deliveries.for_each(|delivery| delivery.end_hold(now));
    }

    pub(super) fn cancel(&mut self, id: DeliveryId, at: Timestamp) -> CancelResult {
        let Some(delivery) = self.deliveries.get_mut(&id) else { return CancelResult::NotFound };
        let (status, destination) = (delivery.state.status(), delivery.destination);
        if status.is_final() || status == DeliveryStatus::InFlight {
            return CancelResult::NotCancellable(status);
        }
        delivery.apply(DeliveryTransition::Cancel { at });
        delivery.ended_at = Some(at);
        self.release_next(id, at);
        CancelResult::Done { destination }
    }
}

impl ModelDelivery {
    /// Stores a status during an attempt; a failure does not replace a success.
    fn store_status(&mut self, update: StatusUpdate) {
        if !self.pending_status.as_ref().is_some_and(|before| before.status == ProviderStatus::Sent)
        {
            self.pending_status = Some(update);
        }
    }
}

impl StoreModel {
    pub(super) fn record_crash_outcome(
        &mut self,
        claim: HeldClaim,
        outcome: &Settlement,
    ) -> SettleResult {
        let Some(delivery) = self.claimed_delivery(claim) else { return SettleResult::ClaimLost };
        delivery.crash_outcome = Some(outcome.clone());
        SettleResult::Recorded
    }

    pub(super) fn record_sent(&mut self, settlement: &Settlement) {
        let Some(sent) = &settlement.sent else { return };
        *self.sent.entry((sent.day, settlement.destination)).or_default() += 1;
        if let Some(sent_id) = &sent.id {
            self.set_sent_id(settlement.delivery, sent_id);
        }
    }

    pub(super) fn set_sent_id(&mut self, delivery: DeliveryId, sent_id: &str) {
        self.deliveries.get_mut(&delivery).unwrap().sent_id = Some(sent_id.to_owned());
    }

    /// Messages sent per day to existing destinations.
    pub(super) fn count_sent_by_day(&self) -> Vec<DailySendCount> {
        let existing = self.sent.iter().filter(|((_, to), _)| self.destinations.contains(to));
        existing
            .map(|((day, destination), sent)| DailySendCount {
                destination: *destination,
                day: *day,
                sent: *sent,
            })
            .collect()
    }

    fn newest(&self, event: EventId, destination: DestinationId) -> Option<DeliveryId> {
        let deliveries = self
            .deliveries_of_event(event)
            .filter(|(_, delivery)| delivery.destination == destination);
        deliveries
            .filter(|(_, delivery)| delivery.state.status() != DeliveryStatus::Replayed)
            .map(|(id, _)| *id)
            .max()
    }

    /// Applies a status and returns the delivery that it changed.
    pub(super) fn apply_status(&mut self, update: &StatusUpdate) -> Option<ConfirmedDelivery> {
        if !self.destinations.contains(&update.destination) {
            return None;
        }
        let id = self.newest(update.event, update.destination)?;
        let is_about_another = update.sent_id.is_some()
            && self
                .deliveries_of_event(update.event)
                .any(|(other, delivery)| *other != id && delivery.sent_id == update.sent_id);
        if is_about_another {
            return None;
        }
        let delivery = self.deliveries.get_mut(&id)?;
        if delivery.state.status() == DeliveryStatus::InFlight {
            delivery.store_status(update.clone());
            return None;
        }
        let attempts = delivery.attempts;
        let old = delivery.replay_of.and_then(|old| self.deliveries.get(&old));
        let in_doubt = |old: &ModelDelivery| {
            let has_other_id = old.sent_id.is_some() && old.sent_id != update.sent_id;
            old.reason == Some(DeadReason::Ambiguous) && !has_other_id
        };
        let was_sent = update.status == ProviderStatus::Sent && old.is_some_and(in_doubt);
        let next = self.apply_status_to(id, update, was_sent)?;
        let (event, destination) = (update.event, update.destination);
        Some(ConfirmedDelivery { delivery: id, event, destination, attempts, next })
    }

    /// Applies a success that was settled after its claim was lost.
    pub(super) fn apply_late_success(&mut self, settlement: &Settlement) -> SettleResult {
        let sent_id = settlement.sent.as_ref().and_then(|sent| sent.id.clone());
        let (id, destination, at) = (settlement.delivery, settlement.destination, settlement.at);
        let has_destination = self.destinations.contains(&destination);
        let Some(delivery) = self.deliveries.get_mut(&id) else { return SettleResult::ClaimLost };
        if sent_id.is_none() || settlement.next != NextStep::Succeeded || !has_destination {
            return SettleResult::ClaimLost;
        }
        let event = delivery.event;
        let update = StatusUpdate { event, destination, at, sent_id, status: ProviderStatus::Sent };
        if delivery.state.status() == DeliveryStatus::InFlight {
            delivery.store_status(update);
            return SettleResult::ClaimLost;
        }
        self.apply_status_to(id, &update, true)
            .map_or(SettleResult::ClaimLost, SettleResult::Overruled)
    }

    /// Applies a status to a delivery whose outcome is open and returns the new step.
    fn apply_status_to(
        &mut self,
        id: DeliveryId,
        update: &StatusUpdate,
        was_sent: bool,
    ) -> Option<NextStep> {
        let delivery = self.deliveries.get_mut(&id)?;
        let is_success = update.status == ProviderStatus::Sent;
        let was_dead = delivery.state.status() == DeliveryStatus::Dead;
        let is_affected = match delivery.state.status() {
            DeliveryStatus::Pending | DeliveryStatus::Scheduled => {
                delivery.attempts > 0 || was_sent
            }
            DeliveryStatus::Held => was_sent && is_success,
            DeliveryStatus::Dead => delivery.reason == Some(DeadReason::Ambiguous) && is_success,
            DeliveryStatus::InFlight
            | DeliveryStatus::Succeeded
            | DeliveryStatus::Cancelled
            | DeliveryStatus::Replayed => false,
        };
        if !is_affected {
            return None;
        }
        delivery.status_wait = None;
        let (at, next) = (update.at, update.status.next_step());
        let (destination, created_at) = (delivery.destination, delivery.created_at);
        match next {
            NextStep::Succeeded => delivery.apply(DeliveryTransition::Confirm { at }),
            NextStep::Dead(reason) => {
                delivery.apply(DeliveryTransition::ConfirmFailure { at, reason });
            }
            // Not a transition: only the due time changes.
            NextStep::RetryAt(due_at) if delivery.state.status() == DeliveryStatus::Pending => {
                delivery.state = DeliveryState::Pending { due_at };
            }
            NextStep::RetryAt(due_at) => delivery.state = DeliveryState::Scheduled { due_at },
        }
        if let Some(sent_id) = &update.sent_id {
            delivery.sent_id = Some(sent_id.clone());
        }
        if delivery.state.status().is_final() {
            delivery.ended_at = Some(at);
            delivery.reason = next.reason();
            if !was_dead {
                self.release_next(id, at);
            }
        }
        match next {
            NextStep::Succeeded => {
                let tally = self.tally(CountSubject::Destination(destination), at);
                tally.latency.record(at.since(created_at));
            }
            NextStep::Dead(reason) => {
                self.totals.dead.entry(reason).or_default().total += 1;
                self.tally(CountSubject::Destination(destination), at)
                    .add(RollupMetric::dead(reason), 1);
            }
            NextStep::RetryAt(_) => {}
        }
        Some(next)
    }

    /// Ends claims without a settlement: with the crash outcome, or due again.
    pub(super) fn end_claims(&mut self, ids: &[DeliveryId], now: Timestamp) {
        for id in ids {
            let delivery = self.deliveries.get_mut(id).unwrap();
            match delivery.crash_outcome.take() {
                Some(outcome) => {
                    let claim = HeldClaim { delivery: *id, proof: outcome.proof };
                    self.settle(claim, &Settlement { at: now, ..outcome });
                }
                None => self.return_claim(*id, now),
            }
        }
    }

    /// After a restart, ambiguous deliveries wait for a status as long as before.
    pub(super) fn restart_status_waits(&mut self, now: Timestamp) {
        let week = Duration::from_secs(7 * 86_400);
        for delivery in self.deliveries.values_mut() {
            if let (DeliveryState::Scheduled { due_at }, Some(wait)) =
                (delivery.state, delivery.status_wait)
            {
                let due_at = due_at.max(now + wait.min(week));
                delivery.state = DeliveryState::Scheduled { due_at };
            }
        }
    }

    /// Makes a delivery in flight due again, and applies the status received meanwhile.
    pub(super) fn return_claim(&mut self, id: DeliveryId, due_at: Timestamp) {
        let delivery = self.deliveries.get_mut(&id).unwrap();
        delivery.apply(DeliveryTransition::Release { due_at });
        delivery.crash_outcome = None;
        if let Some(update) = delivery.pending_status.take() {
            let was_sent = update.status == ProviderStatus::Sent || delivery.replay_of.is_none();
            self.apply_status_to(id, &update, was_sent);
        }
    }
}
