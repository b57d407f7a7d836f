//! A store of plain maps: slow, forgetful at the end of the process, and easy to believe.
//!
//! It knows the rules of the traits and nothing of SQL. Each move of a delivery goes through
//! [`DeliveryState::apply`], which is the law; a move that the law does not know is a panic.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use surehook_core::{
    delivery::{
        DeadReason, DeliveryState, DeliveryTransition, FailureClass, Lease, state::DeliveryStatus,
    },
    event::{NewEvent, StatusUpdate},
    ids::{DeliveryId, DestinationId, EventId, SourceId},
    key::DedupKey,
    retention::RetentionSpec,
    rollup::{BucketWidth, RollupCounts, RollupMetric},
    store::{
        ConfirmedDelivery, HeldClaim, NextStep, REPLAY_INTERVAL, ReplayResult, SettleResult,
        Settlement, StoreCounts,
    },
    time::Timestamp,
};

/// What a key stands for.
#[derive(Clone, Copy, Debug)]
struct Known {
    event: EventId,
    fingerprint: [u8; 32],
    expires_at: Timestamp,
}

/// An event with what was seen of it since.
#[derive(Clone, Debug)]
pub(super) struct ModelEvent {
    pub(super) admitted: NewEvent,
    pub(super) duplicates: u64,
    pub(super) last_duplicate_at: Option<Timestamp>,
    pub(super) body_is_gone: bool,
    /// Whether retention may take its time with it; see `aging`.
    pub(super) is_left_behind: bool,
}

/// A delivery with its past.
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
    /// Its place in the line, and when its first attempt may come.
    pub(super) place: u64,
    not_before: Timestamp,
    pub(super) attempts_are_gone: bool,
    /// What holds if nothing more is heard, and what a status said meanwhile.
    pub(super) will: Option<Settlement>,
    pub(super) said: Option<StatusUpdate>,
    /// How long it waits for a word of its last attempt, from the end of that.
    pub(super) awaits: Option<Duration>,
    /// What the service calls its message.
    pub(super) sent_id: Option<String>,
    /// When the event was last replayed to this destination, as far as this delivery knows.
    last_replay_at: Option<Timestamp>,
}

impl ModelDelivery {
    pub(super) fn step(&mut self, input: DeliveryTransition) {
        self.state = self.state.apply(input).unwrap();
    }

    pub(super) fn call(&mut self, now: Timestamp) {
        if self.state == DeliveryState::Held {
            self.step(DeliveryTransition::EndHold { due_at: now.max(self.not_before) });
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

    fn lease(&self) -> Option<Lease> {
        if let DeliveryState::InFlight(lease) = self.state { Some(lease) } else { None }
    }
}

/// What must become of an event that asks to be admitted.
#[derive(Clone, Debug)]
pub(super) enum Expected {
    Accepted {
        held: Vec<DeliveryId>,
        confirmed: Option<ConfirmedDelivery>,
    },
    /// `revived` are the old deliveries; each has an heir whose id the store chooses.
    Duplicate {
        original: EventId,
        bytes_differ: bool,
        revived: Vec<DeliveryId>,
    },
}

/// The maps.
#[derive(Debug, Default)]
pub(super) struct Model {
    pub(super) destinations: BTreeSet<DestinationId>,
    pub(super) events: BTreeMap<EventId, ModelEvent>,
    pub(super) deliveries: BTreeMap<DeliveryId, ModelDelivery>,
    keys: BTreeMap<(SourceId, DedupKey), Known>,
    pub(super) places: u64,
    /// What was counted and is never taken back.
    pub(super) ever: StoreCounts,
    /// The same by time, but for duplicates, of which memory does not tell the moment.
    pub(super) facts: BTreeMap<(Whose, Timestamp), RollupCounts>,
    /// How much was sent on each day.
    pub(super) sent: BTreeMap<(i32, DestinationId), u64>,
    /// What the sources keep for how long.
    pub(super) retention: BTreeMap<SourceId, RetentionSpec>,
}

/// Of which source or destination something was counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Whose {
    Source(SourceId),
    Destination(DestinationId),
}

impl Model {
    pub(super) fn admit(&mut self, event: &NewEvent) -> Expected {
        let key = event.key.as_ref().map(|claim| (event.source, claim.key.clone()));
        let known = key.as_ref().and_then(|key| self.keys.get(key)).copied();
        if let Some(known) = known.filter(|known| known.expires_at > event.received_at) {
            self.see(known.event, event.received_at);
            let revived =
                if event.revive_dead { self.revive(known.event, event) } else { Vec::new() };
            let bytes_differ = known.fingerprint != event.payload.fingerprint;
            return Expected::Duplicate { original: known.event, bytes_differ, revived };
        }
        match (key, &event.key) {
            (Some(key), Some(claim)) => {
                let fingerprint = event.payload.fingerprint;
                let known = Known { event: event.id, fingerprint, expires_at: claim.expires_at };
                self.keys.insert(key, known);
            }
            _ => {
                self.ever.no_key += 1;
                self.tally(Whose::Source(event.source), event.received_at)
                    .add(RollupMetric::NoKey, 1);
            }
        }
        self.ever.events += 1;
        self.tally(Whose::Source(event.source), event.received_at).add(RollupMetric::Accepted, 1);
        let mut held = Vec::new();
        for owed in &event.deliveries {
            // Not written, and so not claimed.
            if !self.destinations.contains(&owed.destination) {
                held.push(owed.id);
                continue;
            }
            let mut delivery = born(event.id, owed.destination, event.received_at);
            delivery.not_before = event.received_at + owed.delay;
            delivery.state = DeliveryState::Pending { due_at: delivery.not_before };
            delivery.order_key = owed.order_key.as_ref().map(|key| key.as_str().to_owned());
            self.stand_in_line(&mut delivery);
            if delivery.state == DeliveryState::Held {
                held.push(owed.id);
            } else if let Some(lease) = owed.claim {
                delivery.step(DeliveryTransition::Claim(lease));
            }
            self.deliveries.insert(owed.id, delivery);
        }
        let admitted = event.clone();
        let kept = ModelEvent {
            admitted,
            duplicates: 0,
            last_duplicate_at: None,
            body_is_gone: false,
            is_left_behind: false,
        };
        self.events.insert(event.id, kept);
        let confirmed = event.status_update.as_ref().and_then(|told| self.hear(told));
        Expected::Accepted { held, confirmed }
    }

    pub(super) fn tally(&mut self, whose: Whose, at: Timestamp) -> &mut RollupCounts {
        self.facts.entry((whose, BucketWidth::TenSeconds.start(at))).or_default()
    }

    /// Counts a sighting.
    pub(super) fn see(&mut self, original: EventId, at: Timestamp) {
        self.ever.duplicates += 1;
        if let Some(event) = self.events.get_mut(&original) {
            event.duplicates += 1;
            event.last_duplicate_at = Some(at);
        }
    }

    /// What memory may say about `event`; if it says so, that is a sighting.
    pub(super) fn may_recall(&self, event: &NewEvent) -> Option<EventId> {
        let claim = event.key.as_ref()?;
        let known = self.keys.get(&(event.source, claim.key.clone()))?;
        let fits = known.expires_at > event.received_at
            && known.fingerprint == event.payload.fingerprint
            && !self
                .of_event(known.event)
                .any(|(_, owed)| owed.state.status() == DeliveryStatus::Dead);
        fits.then_some(known.event)
    }

    pub(super) fn of_event(
        &self,
        event: EventId,
    ) -> impl Iterator<Item = (&DeliveryId, &ModelDelivery)> {
        self.deliveries.iter().filter(move |(_, delivery)| delivery.event == event)
    }

    fn revive(&mut self, event: EventId, by: &NewEvent) -> Vec<DeliveryId> {
        let latest: Vec<(DeliveryId, DeliveryStatus, DestinationId)> = self
            .of_event(event)
            .map(|(id, delivery)| (*id, delivery.state.status(), delivery.destination))
            .filter(|(_, status, _)| *status != DeliveryStatus::Replayed)
            .collect();
        let body_is_gone = self.events.get(&event).is_some_and(|event| event.body_is_gone);
        if body_is_gone || latest.iter().any(|(_, status, _)| *status != DeliveryStatus::Dead) {
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
            self.take_over(*old, stand_in(*old), by.received_at, None);
        }
        revived
    }

    fn take_over(
        &mut self,
        old: DeliveryId,
        new: DeliveryId,
        now: Timestamp,
        last_replay_at: Option<Timestamp>,
    ) {
        let was = self.deliveries.get_mut(&old).unwrap();
        was.step(DeliveryTransition::Replay { at: now });
        was.replayed_by = Some(new);
        was.last_replay_at = Some(now);
        let mut heir = born(was.event, was.destination, now);
        heir.replay_of = Some(old);
        heir.last_replay_at = last_replay_at;
        heir.order_key.clone_from(&was.order_key);
        if let Some(event) = self.events.get_mut(&heir.event) {
            event.is_left_behind = true;
        }
        self.stand_in_line(&mut heir);
        self.deliveries.insert(new, heir);
    }

    /// Learns which id the store gave to the heir of `old`.
    pub(super) fn name_heir(&mut self, old: DeliveryId, heir: DeliveryId) {
        let delivery = self.deliveries.remove(&stand_in(old)).unwrap();
        self.deliveries.insert(heir, delivery);
        self.deliveries.get_mut(&old).unwrap().replayed_by = Some(heir);
    }

    pub(super) fn claim(
        &mut self,
        destination: DestinationId,
        now: Timestamp,
        lease: Lease,
        limit: usize,
    ) -> Vec<DeliveryId> {
        let waiting = self.deliveries.iter().filter(|(_, owed)| owed.destination == destination);
        let mut due: Vec<(Timestamp, DeliveryId)> = waiting
            .filter_map(|(id, owed)| owed.due_at().map(|due_at| (due_at, *id)))
            .filter(|(due_at, _)| *due_at <= now)
            .collect();
        due.sort();
        due.truncate(limit);
        for (_, id) in &due {
            self.deliveries.get_mut(id).unwrap().step(DeliveryTransition::Claim(lease));
        }
        due.into_iter().map(|(_, id)| id).collect()
    }

    pub(super) fn next_due(&self, destination: DestinationId) -> Option<Timestamp> {
        let owed = self.deliveries.values().filter(|owed| owed.destination == destination);
        owed.filter_map(ModelDelivery::due_at).min()
    }

    /// The delivery, if `held` is the current claim on it.
    pub(super) fn held(&mut self, held: HeldClaim) -> Option<&mut ModelDelivery> {
        let delivery = self.deliveries.get_mut(&held.delivery)?;
        delivery.lease().is_some_and(|lease| lease.token == held.token).then_some(delivery)
    }

    pub(super) fn settle(&mut self, held: HeldClaim, settlement: &Settlement) -> SettleResult {
        if self.held(held).is_none() {
            return self.hear_late(settlement);
        }
        let Some(delivery) = self.held(held) else { return SettleResult::LeaseLost };
        let (at, attempt) = (settlement.at, &settlement.attempt);
        delivery.will = None;
        let said = delivery.said.take();
        let next = said.as_ref().map_or(settlement.next, |told| {
            told.status.apply_to_attempt(attempt.class, settlement.next)
        });
        delivery.awaits = match (attempt.class, next) {
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
            NextStep::Succeeded => delivery.step(DeliveryTransition::Succeed { at }),
            NextStep::RetryAt(due_at) => delivery.step(DeliveryTransition::Retry { due_at }),
            NextStep::Dead(reason) => delivery.step(DeliveryTransition::GiveUp { at, reason }),
        }
        if delivery.state.status().is_final() {
            delivery.ended_at = Some(at);
        }
        let is_retry = delivery.attempts > 1;
        self.ever.attempts += 1;
        self.ever.retries += u64::from(is_retry);
        if let NextStep::Dead(reason) = next {
            self.deliveries.get_mut(&held.delivery).unwrap().reason = Some(reason);
            self.ever.dead.entry(reason).or_default().total += 1;
            self.tally(Whose::Destination(destination), at).add(RollupMetric::dead(reason), 1);
        }
        let tally = self.tally(Whose::Destination(destination), at);
        tally.add(RollupMetric::attempt(attempt.class), 1);
        tally.attempt_time.record(attempt.took);
        if next == NextStep::Succeeded {
            tally.latency.record(at.since(created_at));
        }
        if self.deliveries[&held.delivery].ended_at.is_some() {
            self.call_next(held.delivery, at);
        }
        self.send(settlement);
        if next == settlement.next {
            return SettleResult::Recorded;
        }
        if let Some(sent_id) = said.and_then(|told| told.sent_id) {
            self.name(held.delivery, &sent_id);
        }
        SettleResult::Overruled(next)
    }

    pub(super) fn release(&mut self, held: HeldClaim, due_at: Timestamp) {
        if self.held(held).is_some() {
            self.give_back(held.delivery, due_at);
        }
    }

    pub(super) fn renew(&mut self, held: HeldClaim, until: Timestamp) {
        if let Some(delivery) = self.held(held) {
            delivery.step(DeliveryTransition::Renew(Lease { token: held.token, until }));
        }
    }

    /// Frees every claim that `ended` picks; says to which destinations they go.
    pub(super) fn release_where(
        &mut self,
        now: Timestamp,
        ended: impl Fn(Lease) -> bool,
    ) -> BTreeSet<DestinationId> {
        let held = self.deliveries.iter().filter(|(_, owed)| owed.lease().is_some_and(&ended));
        let (ids, destinations): (Vec<DeliveryId>, BTreeSet<DestinationId>) =
            held.map(|(id, owed)| (*id, owed.destination)).unzip();
        self.end_claims(&ids, now);
        destinations
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
        if self.events[&self.deliveries[&old].event].body_is_gone {
            return ReplayResult::BodyRemoved;
        }
        self.take_over(old, new, now, Some(now));
        ReplayResult::Created { delivery: new, destination }
    }

    pub(super) fn delete_destination(&mut self, destination: DestinationId, at: Timestamp) {
        if !self.destinations.remove(&destination) {
            return;
        }
        let owed = self.deliveries.values_mut().filter(|owed| owed.destination == destination);
        for delivery in owed.filter(|owed| !owed.state.status().is_final()) {
            delivery.step(DeliveryTransition::Cancel { at });
            (delivery.will, delivery.said) = (None, None);
            delivery.ended_at = Some(at);
        }
    }

    /// Forgets keys whose time has passed; says how many.
    pub(super) fn forget_keys(&mut self, now: Timestamp) -> usize {
        let before = self.keys.len();
        self.keys.retain(|_, known| known.expires_at > now);
        before - self.keys.len()
    }

    pub(super) fn counts(&self) -> StoreCounts {
        let mut counts = self.ever.clone();
        for delivery in self.deliveries.values() {
            *counts.by_status.entry(delivery.state.status()).or_default() += 1;
            if let DeliveryState::Dead { reason, .. } = delivery.state {
                counts.dead.entry(reason).or_default().pending += 1;
            }
        }
        counts
    }
}

fn born(event: EventId, destination: DestinationId, at: Timestamp) -> ModelDelivery {
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
        place: 0,
        not_before: at,
        attempts_are_gone: false,
        will: None,
        said: None,
        awaits: None,
        sent_id: None,
        last_replay_at: None,
    }
}

/// Keeps the place of an heir until the store says what it is called.
fn stand_in(old: DeliveryId) -> DeliveryId {
    DeliveryId::from_uuid(uuid::Uuid::from_u128(!old.uuid().as_u128()))
}
