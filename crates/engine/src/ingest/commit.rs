//! Commits the events of a request together, and hands their deliveries to their lanes.

use std::sync::Arc;

use surehook_core::{
    attribute::EventKind,
    delivery::Class,
    event::Payload,
    ids::EventId,
    key::DedupKey,
    name::Name,
    store::{Admitted, Claimed, Confirmed, Next, StoreError},
    sync::Ending,
    time::Timestamp,
};

use super::{
    IngestError, Received,
    plan::{Draft, Planned},
};
use crate::{
    Engine,
    feed::{EventReceived, News},
    lane::Job,
    waiters::Told,
};

/// What each delivery of an event carries with it.
struct Owed {
    event: EventId,
    source: Name,
    key: Option<DedupKey>,
    kind: Option<EventKind>,
    received_at: Timestamp,
    payload: Payload,
}

impl Engine {
    /// Stores the events and, once they are on the disk, hands their deliveries to their lanes.
    pub(super) async fn commit(
        self: Arc<Self>,
        drafts: Vec<Draft>,
        source: Name,
    ) -> Result<Vec<Received>, IngestError> {
        let mut events = Vec::with_capacity(drafts.len());
        let mut waiting = Vec::with_capacity(drafts.len());
        for Draft { event, owed } in drafts {
            let common = Owed {
                event: event.id,
                source: source.clone(),
                key: event.key.as_ref().map(|claim| claim.key.clone()),
                kind: event.kind.clone(),
                received_at: event.received_at,
                payload: event.payload.clone(),
            };
            waiting.push((common, owed));
            events.push(event);
        }
        let admitted = self.store.admit(events).await.map_err(IngestError::Store)?;
        if admitted.len() != waiting.len() {
            return Err(IngestError::Store(StoreError::Refused("no answer".to_owned())));
        }
        let committed = admitted.into_iter().zip(waiting);
        committed
            .map(|(admitted, (owed, planned))| self.committed(admitted, owed, planned))
            .collect()
    }

    fn committed(
        &self,
        admitted: Admitted,
        owed: Owed,
        planned: Vec<Planned>,
    ) -> Result<Received, IngestError> {
        match admitted {
            Admitted::Accepted { held, confirmed } => {
                if let Some(confirmed) = confirmed {
                    self.moved_by_status(&confirmed, owed.received_at);
                }
                self.shared.feed.publish(owed.received_at, || {
                    News::EventReceived(EventReceived {
                        id: owed.event,
                        source: Some(owed.source.to_string()),
                        key: owed.key.as_ref().map(|key| key.as_str().to_owned()),
                        kind: owed.kind.clone(),
                        received_at: owed.received_at,
                        body_bytes: owed.payload.body.len() as u64,
                    })
                });
                // Those that wait for their turn give their places back.
                for delivery in planned.into_iter().filter(|one| !held.contains(&one.new.id)) {
                    self.hand_over(delivery, &owed);
                }
                Ok(Received { event: owed.event, key: owed.key, duplicate: false })
            }
            Admitted::Duplicate(duplicate) => {
                for destination in duplicate.revived {
                    self.nudge(destination);
                }
                Ok(Received { event: duplicate.original, key: owed.key, duplicate: true })
            }
            Admitted::DeliveredBefore(event) => {
                Ok(Received { event, key: owed.key, duplicate: true })
            }
            Admitted::SourceGone => Err(IngestError::UnknownSource),
        }
    }

    /// A delivery that waited was moved by what this event says.
    fn moved_by_status(&self, moved: &Confirmed, at: Timestamp) {
        let Confirmed { delivery, event, destination, attempts, next } = *moved;
        self.shared.feed.publish(at, || {
            let lanes = &self.registry.load().lanes;
            let name = lanes.get(&destination).map(|lane| lane.name());
            News::settled(delivery, event, name, (next, attempts, at))
        });
        self.shared.waiters.tell(delivery, || {
            let class = matches!(next, Next::Dead(_)).then_some(Class::Permanent);
            Told::Ended(Ending { next, class, response: Vec::new() })
        });
        match next {
            Next::RetryAt(due_at) => self.expect_due(destination, due_at),
            // Others of its ordering key may have waited for its end.
            Next::Succeeded | Next::Dead(_) => self.nudge(destination),
        }
    }

    fn hand_over(&self, delivery: Planned, owed: &Owed) {
        let Planned { new, lane, slot, sent } = delivery;
        let (Some(lane), Some(slot), Some(lease)) = (lane, slot, new.claim) else {
            // Not the lane of a moment ago: it may have been replaced while this was committed.
            return self.nudge(new.destination);
        };
        let claimed = Claimed {
            id: new.id,
            event: owed.event,
            destination: new.destination,
            source: owed.source.clone(),
            key: owed.key.clone(),
            lease,
            attempts: 0,
            throttled: 0,
            created_at: owed.received_at,
            received_at: owed.received_at,
            payload: match sent.as_ref().and_then(|sent| sent.body.clone()) {
                Some(body) => owed.payload.transformed(body),
                None => owed.payload.clone(),
            },
            transform: sent.filter(|sent| sent.body.is_none()).map(|sent| sent.route),
            ordered: new.order_key.is_some(),
        };
        lane.offer(Job { claimed, slot });
    }
}
