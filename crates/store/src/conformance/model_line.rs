//! The lines of the model: who waits for whom.

use surehook_core::{
    delivery::{DeliveryTransition, state::DeliveryStatus},
    ids::{DeliveryId, DestinationId},
    store::CancelResult,
    time::Timestamp,
};

use super::model::{Model, ModelDelivery};

impl Model {
    fn line<'a>(
        &'a self,
        of: &'a ModelDelivery,
    ) -> impl Iterator<Item = (&'a DeliveryId, &'a ModelDelivery)> {
        self.deliveries.iter().filter(move |(_, other)| {
            other.destination == of.destination
                && other.order_key.is_some()
                && other.order_key == of.order_key
                && !other.state.status().is_final()
        })
    }

    /// A delivery that is being born goes to the end of its line.
    pub(super) fn stand_in_line(&mut self, delivery: &mut ModelDelivery) {
        self.places += 1;
        delivery.place = self.places;
        if self.line(delivery).next().is_some() {
            delivery.step(DeliveryTransition::Hold);
        }
    }

    /// A delivery has ended: the first of those behind it has its turn.
    pub(super) fn call_next(&mut self, ended: DeliveryId, now: Timestamp) {
        let first = self.line(&self.deliveries[&ended]).min_by_key(|(_, other)| other.place);
        if let Some(first) = first.map(|(id, _)| *id) {
            self.deliveries.get_mut(&first).unwrap().call(now);
        }
    }

    /// The destination has no order any more.
    pub(super) fn call_all(&mut self, destination: DestinationId, now: Timestamp) {
        let owed = self.deliveries.values_mut().filter(|owed| owed.destination == destination);
        owed.for_each(|delivery| delivery.call(now));
    }

    pub(super) fn cancel(&mut self, id: DeliveryId, at: Timestamp) -> CancelResult {
        let Some(delivery) = self.deliveries.get_mut(&id) else { return CancelResult::NotFound };
        let (status, destination) = (delivery.state.status(), delivery.destination);
        if status.is_final() || status == DeliveryStatus::InFlight {
            return CancelResult::NotCancellable(status);
        }
        delivery.step(DeliveryTransition::Cancel { at });
        delivery.ended_at = Some(at);
        self.call_next(id, at);
        CancelResult::Done { destination }
    }
}
