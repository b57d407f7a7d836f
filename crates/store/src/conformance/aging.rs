//! Retention in random histories: what may be gone, and what must be.
//!
//! What was not final, or dead, when its time came may go later than its time, so the store decides
//! when, and the model learns it. What may never be is checked at each step: that something is gone
//! whose time has not come, or that something is there of which nothing stood in the way.

use std::time::Duration;

use proptest::{prelude::*, test_runner::TestCaseResult};
use surehook_core::{
    delivery::state::DeliveryStatus,
    ids::{EventId, SourceId},
    retention::{EventStanding, ExpiredParts, RetentionSpec},
    time::{HumanDuration, Timestamp},
};

use super::{
    history::Run,
    model::{Model, ModelEvent},
};

/// The longest that retention takes its time.
const SECOND_LOOK: Duration = Duration::from_secs(86_400);

impl Model {
    fn standing(&self, event: EventId) -> EventStanding {
        let of = |(_, owed): (_, &super::model::ModelDelivery)| match owed.state.status() {
            DeliveryStatus::Dead => EventStanding::Dead,
            DeliveryStatus::Succeeded | DeliveryStatus::Cancelled | DeliveryStatus::Replayed => {
                EventStanding::Ended
            }
            DeliveryStatus::Pending
            | DeliveryStatus::InFlight
            | DeliveryStatus::Scheduled
            | DeliveryStatus::Held => EventStanding::Pending,
        };
        self.of_event(event).map(of).max().unwrap_or(EventStanding::Ended)
    }

    /// What may be gone of an event, and whether it must be.
    fn due(
        &self,
        id: EventId,
        event: &ModelEvent,
        server: Duration,
        now: Timestamp,
    ) -> (ExpiredParts, bool) {
        let spec = self.retention.get(&event.admitted.source).copied().unwrap_or_default();
        let keep = spec.resolve(server);
        let due = keep.expired_parts(event.admitted.received_at, self.standing(id), now);
        let past = keep.expired_parts(event.admitted.received_at, EventStanding::Ended, now);
        (due, due == past && !event.is_left_behind)
    }

    fn forget(&mut self, event: EventId) {
        self.events.remove(&event);
        self.deliveries.retain(|_, delivery| delivery.event != event);
    }
}

impl Run {
    pub(super) async fn keep(&mut self, source: SourceId, retention: RetentionSpec) {
        self.world.keep(source, retention).await;
        self.model.retention.insert(source, retention);
    }

    /// Prunes, and learns what has gone by that.
    pub(super) async fn prune(&mut self, server: Duration) -> TestCaseResult {
        let now = self.world.now;
        let pruned = self.world.prune_all(server).await;
        prop_assert_eq!(pruned.keys, self.model.forget_keys(now));
        let ids: Vec<EventId> = self.model.events.keys().copied().collect();
        let mut events = 0;
        for id in ids {
            let event = &self.model.events[&id];
            let (due, must) = self.model.due(id, event, server, now);
            let Some(seen) = self.world.event(id).await.unwrap() else {
                prop_assert!(due.event, "{} went before its time", id);
                self.model.forget(id);
                events += 1;
                continue;
            };
            prop_assert!(!(must && due.event), "{} was overlooked", id);
            let was_gone = event.body_is_gone;
            prop_assert!(seen.event.body_removed || !was_gone);
            prop_assert!(!seen.event.body_removed || was_gone || due.body, "the body of {}", id);
            prop_assert!(
                seen.event.body_removed || !(must && due.body),
                "the body of {} stayed",
                id
            );
            let event = self.model.events.get_mut(&id).unwrap();
            event.body_is_gone = seen.event.body_removed;
            event.is_left_behind |= !must;
            self.learn_attempts(id, due.attempts, must).await?;
        }
        prop_assert_eq!(pruned.events, events);
        Ok(())
    }

    async fn learn_attempts(&mut self, event: EventId, due: bool, must: bool) -> TestCaseResult {
        let owed = self.model.deliveries.iter_mut().filter(|(_, owed)| owed.event == event);
        for (id, delivery) in owed.filter(|(_, owed)| owed.attempts > 0) {
            let are_gone = self.world.delivery_detail(*id).await.attempts.is_empty();
            prop_assert!(!are_gone || due || delivery.attempts_are_gone, "attempts of {}", id);
            prop_assert!(are_gone || !(must && due), "attempts of {} stayed", id);
            delivery.attempts_are_gone |= are_gone;
        }
        Ok(())
    }

    /// In the end all that is due is gone, and all that is owed is whole.
    pub(super) async fn grow_old(&mut self) -> TestCaseResult {
        let brief = Some(HumanDuration::from_secs(1));
        let spec = RetentionSpec { bodies: brief, attempts: brief, ..RetentionSpec::default() };
        let spec = RetentionSpec { dead_letters: brief, ..spec };
        let server = Duration::from_secs(86_400 * 365);
        for source in [self.world.shop, self.world.bank] {
            self.keep(source, spec).await;
        }
        for _ in 0..2 {
            self.world.wait(SECOND_LOOK);
            self.prune(server).await?;
        }
        for (id, event) in &self.model.events {
            let is_owed = self.model.standing(*id) == EventStanding::Pending;
            prop_assert!(event.body_is_gone || is_owed, "the body of {} stayed for good", id);
            for (delivery, owed) in self.model.of_event(*id) {
                let are_left = owed.attempts > 0 && !owed.attempts_are_gone;
                prop_assert!(!are_left || is_owed, "attempts of {} stayed for good", delivery);
            }
        }
        self.reopen().await;
        self.compare().await?;
        self.come_to_an_end().await
    }

    /// Last of all the events go, but for those that are still owed.
    async fn come_to_an_end(&mut self) -> TestCaseResult {
        let brief =
            RetentionSpec { events: Some(HumanDuration::from_secs(1)), ..RetentionSpec::default() };
        for source in [self.world.shop, self.world.bank] {
            self.keep(source, brief).await;
        }
        for _ in 0..2 {
            self.world.wait(SECOND_LOOK);
            self.prune(Duration::from_secs(1)).await?;
        }
        for id in self.model.events.keys() {
            prop_assert_eq!(
                self.model.standing(*id),
                EventStanding::Pending,
                "{} stayed for good",
                id
            );
        }
        self.compare_counts()
    }
}
