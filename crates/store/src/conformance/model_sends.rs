//! What the model knows of messages: wills, statuses, and what was sent.

use std::time::Duration;

use surehook_core::{
    delivery::{DeadReason, DeliveryState, DeliveryTransition, state::DeliveryStatus},
    event::{ProviderStatus, StatusUpdate},
    ids::{DeliveryId, DestinationId, EventId},
    rollup::RollupMetric,
    store::{ConfirmedDelivery, DailySendCount, HeldClaim, NextStep, SettleResult, Settlement},
    time::Timestamp,
};

use super::model::{Model, ModelDelivery, Whose};

impl ModelDelivery {
    /// Keeps what is said while it is under way; that it arrived is not unsaid.
    fn keep(&mut self, told: StatusUpdate) {
        if !self.said.as_ref().is_some_and(|before| before.status == ProviderStatus::Sent) {
            self.said = Some(told);
        }
    }
}

impl Model {
    pub(super) fn record_crash_outcome(
        &mut self,
        held: HeldClaim,
        will: &Settlement,
    ) -> SettleResult {
        let Some(delivery) = self.held(held) else { return SettleResult::LeaseLost };
        delivery.will = Some(will.clone());
        SettleResult::Recorded
    }

    /// Notes that a message was sent.
    pub(super) fn send(&mut self, settlement: &Settlement) {
        let Some(sent) = &settlement.sent else { return };
        *self.sent.entry((sent.day, settlement.destination)).or_default() += 1;
        if let Some(sent_id) = &sent.id {
            self.name(settlement.delivery, sent_id);
        }
    }

    pub(super) fn name(&mut self, delivery: DeliveryId, sent_id: &str) {
        self.deliveries.get_mut(&delivery).unwrap().sent_id = Some(sent_id.to_owned());
    }

    /// How much was sent to the destinations that are there.
    pub(super) fn count_sent_by_day(&self) -> Vec<DailySendCount> {
        let there = self.sent.iter().filter(|((_, to), _)| self.destinations.contains(to));
        there
            .map(|((day, destination), sent)| DailySendCount {
                destination: *destination,
                day: *day,
                sent: *sent,
            })
            .collect()
    }

    fn newest(&self, event: EventId, destination: DestinationId) -> Option<DeliveryId> {
        let owed = self.of_event(event).filter(|(_, owed)| owed.destination == destination);
        owed.filter(|(_, owed)| owed.state.status() != DeliveryStatus::Replayed)
            .map(|(id, _)| *id)
            .max()
    }

    /// What a status moves.
    pub(super) fn hear(&mut self, told: &StatusUpdate) -> Option<ConfirmedDelivery> {
        if !self.destinations.contains(&told.destination) {
            return None;
        }
        let id = self.newest(told.event, told.destination)?;
        let is_of_another = told.sent_id.is_some()
            && self
                .of_event(told.event)
                .any(|(other, owed)| *other != id && owed.sent_id == told.sent_id);
        if is_of_another {
            return None;
        }
        let delivery = self.deliveries.get_mut(&id)?;
        if delivery.state.status() == DeliveryStatus::InFlight {
            delivery.keep(told.clone());
            return None;
        }
        let attempts = delivery.attempts;
        let old = delivery.replay_of.and_then(|old| self.deliveries.get(&old));
        let in_doubt = |old: &ModelDelivery| {
            let has_other_name = old.sent_id.is_some() && old.sent_id != told.sent_id;
            old.reason == Some(DeadReason::Ambiguous) && !has_other_name
        };
        let went_out = told.status == ProviderStatus::Sent && old.is_some_and(in_doubt);
        let next = self.move_by(id, told, went_out)?;
        let (event, destination) = (told.event, told.destination);
        Some(ConfirmedDelivery { delivery: id, event, destination, attempts, next })
    }

    /// An answer that came after its claim was lost.
    pub(super) fn hear_late(&mut self, settlement: &Settlement) -> SettleResult {
        let sent_id = settlement.sent.as_ref().and_then(|sent| sent.id.clone());
        let (id, destination, at) = (settlement.delivery, settlement.destination, settlement.at);
        let is_there = self.destinations.contains(&destination);
        let Some(delivery) = self.deliveries.get_mut(&id) else { return SettleResult::LeaseLost };
        if sent_id.is_none() || settlement.next != NextStep::Succeeded || !is_there {
            return SettleResult::LeaseLost;
        }
        let event = delivery.event;
        let told = StatusUpdate { event, destination, at, sent_id, status: ProviderStatus::Sent };
        if delivery.state.status() == DeliveryStatus::InFlight {
            delivery.keep(told);
            return SettleResult::LeaseLost;
        }
        self.move_by(id, &told, true).map_or(SettleResult::LeaseLost, SettleResult::Overruled)
    }

    /// Moves a delivery that can hear what is said; says where.
    fn move_by(&mut self, id: DeliveryId, told: &StatusUpdate, went_out: bool) -> Option<NextStep> {
        let delivery = self.deliveries.get_mut(&id)?;
        let has_arrived = told.status == ProviderStatus::Sent;
        let was_dead = delivery.state.status() == DeliveryStatus::Dead;
        let hears = match delivery.state.status() {
            DeliveryStatus::Pending | DeliveryStatus::Scheduled => {
                delivery.attempts > 0 || went_out
            }
            DeliveryStatus::Held => went_out && has_arrived,
            DeliveryStatus::Dead => delivery.reason == Some(DeadReason::Ambiguous) && has_arrived,
            DeliveryStatus::InFlight
            | DeliveryStatus::Succeeded
            | DeliveryStatus::Cancelled
            | DeliveryStatus::Replayed => false,
        };
        if !hears {
            return None;
        }
        delivery.awaits = None;
        let (at, next) = (told.at, told.status.next_step());
        let (destination, created_at) = (delivery.destination, delivery.created_at);
        match next {
            NextStep::Succeeded => delivery.step(DeliveryTransition::Confirm { at }),
            NextStep::Dead(reason) => {
                delivery.step(DeliveryTransition::ConfirmFailure { at, reason })
            }
            // Not a move: it goes on waiting, for another time.
            NextStep::RetryAt(due_at) if delivery.state.status() == DeliveryStatus::Pending => {
                delivery.state = DeliveryState::Pending { due_at };
            }
            NextStep::RetryAt(due_at) => delivery.state = DeliveryState::Scheduled { due_at },
        }
        if let Some(sent_id) = &told.sent_id {
            delivery.sent_id = Some(sent_id.clone());
        }
        if delivery.state.status().is_final() {
            delivery.ended_at = Some(at);
            delivery.reason = next.reason();
            if !was_dead {
                self.call_next(id, at);
            }
        }
        match next {
            NextStep::Succeeded => {
                let tally = self.tally(Whose::Destination(destination), at);
                tally.latency.record(at.since(created_at));
            }
            NextStep::Dead(reason) => {
                self.ever.dead.entry(reason).or_default().total += 1;
                self.tally(Whose::Destination(destination), at).add(RollupMetric::dead(reason), 1);
            }
            NextStep::RetryAt(_) => {}
        }
        Some(next)
    }

    /// Ends claims without an attempt of their own: as the will says, or else due again.
    pub(super) fn end_claims(&mut self, ids: &[DeliveryId], now: Timestamp) {
        for id in ids {
            let delivery = self.deliveries.get_mut(id).unwrap();
            match delivery.will.take() {
                Some(will) => {
                    let held = HeldClaim { delivery: *id, token: will.token };
                    self.settle(held, &Settlement { at: now, ..will });
                }
                None => self.give_back(*id, now),
            }
        }
    }

    /// After a restart, what waits for a word of what may have arrived waits as long as before.
    pub(super) fn wait_anew(&mut self, now: Timestamp) {
        let week = Duration::from_secs(7 * 86_400);
        for delivery in self.deliveries.values_mut() {
            if let (DeliveryState::Scheduled { due_at }, Some(wait)) =
                (delivery.state, delivery.awaits)
            {
                let due_at = due_at.max(now + wait.min(week));
                delivery.state = DeliveryState::Scheduled { due_at };
            }
        }
    }

    /// Makes a delivery that is under way due again, and lets it hear what was said meanwhile.
    pub(super) fn give_back(&mut self, id: DeliveryId, due_at: Timestamp) {
        let delivery = self.deliveries.get_mut(&id).unwrap();
        delivery.step(DeliveryTransition::Release { due_at });
        delivery.will = None;
        if let Some(told) = delivery.said.take() {
            let went_out = told.status == ProviderStatus::Sent || delivery.replay_of.is_none();
            self.move_by(id, &told, went_out);
        }
    }
}
