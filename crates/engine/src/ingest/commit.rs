//! Commits the events of a request together, and hands their deliveries to their lanes.

use std::sync::Arc;

use surehook_core::{
    delivery::FailureClass,
    event::NewEvent,
    name::Name,
    store::{AdmitResult, ClaimedDelivery, ConfirmedDelivery, NextStep, StoreError},
    sync::SyncResult,
    time::Timestamp,
};

use super::{
    IngestError, ReceivedEvent,
    plan::{EventDraft, PlannedDelivery},
};
use crate::{
    Engine,
    feed::{EventReceived, LiveUpdate},
    lane::QueuedDelivery,
    waiters::WaiterResult,
};

impl Engine {
    /// Stores the events and, once they are on the disk, hands their deliveries to their lanes.
    pub(super) async fn commit(
        self: Arc<Self>,
        drafts: Vec<EventDraft>,
        source: Name,
    ) -> Result<Vec<ReceivedEvent>, IngestError> {
        let mut owed = Vec::with_capacity(drafts.len());
        let events: Arc<[NewEvent]> = drafts
            .into_iter()
            .map(|draft| {
                owed.push(draft.owed);
                draft.event
            })
            .collect();
        let admitted = self.store.admit(Arc::clone(&events)).await.map_err(IngestError::Store)?;
        if admitted.len() != events.len() {
            return Err(IngestError::Store(StoreError::Refused("no answer".to_owned())));
        }
        let committed = admitted.into_iter().zip(events.iter().zip(owed));
        committed
            .map(|(admitted, (event, owed))| self.committed(admitted, (event, &source), owed))
            .collect()
    }

    fn committed(
        &self,
        admitted: AdmitResult,
        (event, source): (&NewEvent, &Name),
        owed: Vec<PlannedDelivery>,
    ) -> Result<ReceivedEvent, IngestError> {
        let key = event.key.as_ref().map(|claim| claim.key.clone());
        match admitted {
            AdmitResult::Accepted { held, confirmed } => {
                if let Some(confirmed) = confirmed {
                    self.moved_by_status(&confirmed, event.received_at);
                }
                self.shared.feed.publish(event.received_at, || {
                    LiveUpdate::EventReceived(EventReceived {
                        id: event.id,
                        source: Some(source.to_string()),
                        key: key.as_ref().map(|key| key.as_str().to_owned()),
                        kind: event.kind.clone(),
                        received_at: event.received_at,
                        body_bytes: event.payload.body.len() as u64,
                    })
                });
                // Those that wait for their turn give their places back.
                for delivery in owed.into_iter().filter(|one| !held.contains(&one.new.id)) {
                    self.hand_over(delivery, event, source);
                }
                Ok(ReceivedEvent { event: event.id, key, duplicate: false })
            }
            AdmitResult::Duplicate(duplicate) => {
                for destination in duplicate.revived {
                    self.wake_lane(destination);
                }
                Ok(ReceivedEvent { event: duplicate.original, key, duplicate: true })
            }
            AdmitResult::DeliveredBefore(event) => {
                Ok(ReceivedEvent { event, key, duplicate: true })
            }
            AdmitResult::SourceGone => Err(IngestError::UnknownSource),
        }
    }

    /// A delivery that waited was moved by what this event says.
    fn moved_by_status(&self, moved: &ConfirmedDelivery, at: Timestamp) {
        let ConfirmedDelivery { delivery, event, destination, attempts, next } = *moved;
        self.shared.feed.publish(at, || {
            let lanes = &self.registry.load().lanes;
            let name = lanes.get(&destination).map(|lane| lane.name());
            LiveUpdate::settled(delivery, event, name, (next, attempts, at))
        });
        self.shared.waiters.tell(delivery, || {
            let class = matches!(next, NextStep::Dead(_)).then_some(FailureClass::Permanent);
            WaiterResult::Ended(SyncResult { next, class, response: Vec::new() })
        });
        match next {
            NextStep::RetryAt(due_at) => self.expect_due(destination, due_at),
            // Others of its ordering key may have waited for its end.
            NextStep::Succeeded | NextStep::Dead(_) => self.wake_lane(destination),
        }
    }

    fn hand_over(&self, delivery: PlannedDelivery, event: &NewEvent, source: &Name) {
        let PlannedDelivery { new, lane, slot, sent } = delivery;
        let (Some(lane), Some(slot), Some(lease)) = (lane, slot, new.claim) else {
            // Not the lane of a moment ago: it may have been replaced while this was committed.
            return self.wake_lane(new.destination);
        };
        let claimed = ClaimedDelivery {
            id: new.id,
            event: event.id,
            destination: new.destination,
            source: source.clone(),
            key: event.key.as_ref().map(|claim| claim.key.clone()),
            lease,
            attempts: 0,
            throttled: 0,
            created_at: event.received_at,
            received_at: event.received_at,
            payload: match sent.as_ref().and_then(|sent| sent.body.clone()) {
                Some(body) => event.payload.transformed(body),
                None => event.payload.clone(),
            },
            transform: sent.filter(|sent| sent.body.is_none()).map(|sent| sent.route),
            ordered: new.order_key.is_some(),
        };
        lane.offer(QueuedDelivery { claimed, slot });
    }
}
