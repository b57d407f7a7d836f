//! Compares everything that can be read from the store with the model.
//!
//! Retention may prune events late that were unfinished or dead when they expired, so the model
//! takes over from the store which events are gone. Checked is that nothing is pruned too early, and
//! that nothing stays which had no reason to stay.

use std::{collections::BTreeMap, time::Duration};

use proptest::{prelude::*, test_runner::TestCaseResult};
use surehook_core::{
    dead_letters::{DeadLetterCause, DeadLetterGroupFilter},
    delivery::state::DeliveryStatus,
    event::NewEvent,
    retention::{EventProgress, ExpiredParts, RetentionSpec},
    rollup::{self, BucketWidth, RollupCounts, RollupMetric, RollupQuery},
    store::{DeliveryFilter, DeliveryRow, EventFilter},
};
use surehook_types::{
    ids::{EventId, GroupId, SourceId},
    time::{HumanDuration, Timestamp},
};
use surehook_webhooks::attribute::{AttributeFilter, AttributeName, Attributes, EventKind};

use super::{
    fixture::{first_page, without_zeros},
    history::{HistoryRun, SearchFields},
    model::{CountSubject, ModelDelivery, ModelEvent, StoreModel},
};

impl SearchFields {
    pub(super) fn attributes(self) -> Attributes {
        let mut attributes = Attributes::default();
        attributes.push_some(AttributeName::Phone, self.phone);
        attributes
    }
}

impl HistoryRun {
    /// All counts except duplicates, which may have been answered from memory and not written yet.
    pub(super) async fn compare_counts(&self) -> TestCaseResult {
        let (mut seen, mut expected) = (self.fixture.counts().await, self.model.counts());
        (seen.duplicates, expected.duplicates) = (0, 0);
        prop_assert_eq!(without_zeros(seen), without_zeros(expected));
        Ok(())
    }

    /// Everything; valid only right after a restart, when no write is pending in memory.
    pub(super) async fn compare(&self) -> TestCaseResult {
        prop_assert_eq!(
            without_zeros(self.fixture.counts().await),
            without_zeros(self.model.counts())
        );
        self.compare_events().await?;
        for phone in [None, Some("5511987654321"), Some("5511900000000"), Some("12@lid")] {
            for kind in [None, Some("message"), Some("status")] {
                self.find(SearchFields { kind, phone }).await?;
            }
        }
        self.compare_deliveries().await?;
        self.compare_groups().await?;
        self.compare_rollups().await?;
        let sent = self.fixture.count_sent_by_day(0..=i32::MAX).await.unwrap();
        prop_assert_eq!(sent, self.model.count_sent_by_day());
        for to in [self.fixture.crm, self.fixture.mail] {
            let seen = self.fixture.find_next_due(to).await.unwrap();
            prop_assert_eq!(seen, self.model.next_due(to), "next due of {}", to);
        }
        Ok(())
    }

    async fn compare_events(&self) -> TestCaseResult {
        let rows = self.fixture.all_events().await;
        let ids: Vec<_> = rows.iter().rev().map(|row| row.id).collect();
        prop_assert_eq!(ids, self.model.events.keys().copied().collect::<Vec<_>>());
        for row in rows {
            let expected = &self.model.events[&row.id];
            let key = expected.admitted.key.as_ref().map(|claim| claim.key.as_str());
            prop_assert_eq!(row.source, expected.admitted.source);
            prop_assert_eq!(row.key.as_deref(), key);
            prop_assert_eq!(&row.kind, &expected.admitted.kind);
            prop_assert_eq!(&row.attributes, &expected.admitted.attributes);
            prop_assert_eq!(row.received_at, expected.admitted.received_at);
            let seen = (row.duplicates, row.last_duplicate_at);
            prop_assert_eq!(seen, (expected.duplicates, expected.last_duplicate_at));
            let body = self.fixture.find_body(row.id).await.unwrap();
            let kept = Some(&expected.admitted.payload).filter(|_| !expected.body_is_pruned);
            prop_assert_eq!(body.as_ref(), kept);
            prop_assert_eq!(row.body_removed, expected.body_is_pruned);
        }
        Ok(())
    }

    /// Compares a search with a scan of all events of the model.
    pub(super) async fn find(&self, fields: SearchFields) -> TestCaseResult {
        let kind = fields.kind.and_then(EventKind::new);
        let filters =
            fields.phone.and_then(|phone| AttributeFilter::new(AttributeName::Phone, phone));
        let attributes = Vec::from_iter(filters);
        let all = self.model.events.iter().rev();
        let matches = |event: &NewEvent| {
            (kind.is_none() || kind == event.kind)
                && attributes.iter().all(|filter| event.attributes.matches(filter))
        };
        let expected = all.filter(|(_, event)| matches(&event.admitted)).map(|(id, _)| *id);
        let expected: Vec<EventId> = expected.collect();
        let filter = EventFilter { kind, attributes: attributes.clone(), ..EventFilter::default() };
        let page = first_page(10_000);
        let found = self.fixture.list_events(filter, page).await.unwrap().rows;
        prop_assert_eq!(found.iter().map(|row| row.id).collect::<Vec<_>>(), expected);
        Ok(())
    }

    async fn compare_deliveries(&self) -> TestCaseResult {
        let page = first_page(10_000);
        let rows =
            self.fixture.list_deliveries(DeliveryFilter::default(), page).await.unwrap().rows;
        let ids: Vec<_> = rows.iter().rev().map(|row| row.id).collect();
        prop_assert_eq!(ids, self.model.deliveries.keys().copied().collect::<Vec<_>>());
        check_held_deliveries(&rows)?;
        for row in rows {
            check_delivery(&row, &self.model.deliveries[&row.id])?;
            let attempts = self.fixture.delivery_detail(row.id).await.attempts;
            let numbers: Vec<u32> = attempts.iter().map(|row| row.attempt.number).collect();
            let are_gone = self.model.deliveries[&row.id].attempts_are_pruned;
            let kept = if are_gone { 0 } else { row.attempts };
            prop_assert_eq!(numbers, (1..=kept).collect::<Vec<_>>());
        }
        Ok(())
    }
}

impl HistoryRun {
    /// Every dead delivery is in the group of its cause, no other delivery is in a group, and the counts
    /// of the groups match the deliveries.
    async fn compare_groups(&self) -> TestCaseResult {
        let page = first_page(10_000);
        let rows =
            self.fixture.list_deliveries(DeliveryFilter::default(), page).await.unwrap().rows;
        let mut dead: BTreeMap<GroupId, Vec<DeliveryRow>> = BTreeMap::new();
        for row in rows {
            prop_assert_eq!(row.group.is_some(), row.status == DeliveryStatus::Dead, "{:?}", row);
            let Some(group) = row.group else { continue };
            let last = self.fixture.delivery_detail(row.id).await.attempts.pop();
            if let (Some(last), Some(reason)) = (last, row.reason) {
                let causes = [
                    DeadLetterCause::from_attempt(&last.attempt),
                    DeadLetterCause::from_status_update(reason),
                ];
                let groups = causes.map(|cause| cause.group_id(row.destination));
                prop_assert!(groups.contains(&group), "{:?} died of {:?}", row, last);
            }
            dead.entry(group).or_default().push(row);
        }
        let page = first_page(10_000);
        let groups = self
            .fixture
            .list_dead_letter_groups(DeadLetterGroupFilter::default(), page)
            .await
            .unwrap()
            .rows;
        let counted = groups.iter().map(|group| (group.id, group.count)).collect();
        let row_count = |rows: &Vec<DeliveryRow>| u64::try_from(rows.len()).unwrap();
        let expected: BTreeMap<_, _> = dead.iter().map(|(id, all)| (*id, row_count(all))).collect();
        prop_assert_eq!(expected, counted);
        for group in groups {
            let all = &dead[&group.id];
            prop_assert_eq!(group.cause.group_id(group.destination), group.id);
            prop_assert_eq!((group.newest_delivery, group.newest_event), (all[0].id, all[0].event));
            let ended = || all.iter().filter_map(|row| row.ended_at);
            prop_assert!(ended().all(|at| (group.first_seen..=group.last_seen).contains(&at)));
        }
        Ok(())
    }
}

/// All counters of a bucket except duplicates.
fn counters(tally: &RollupCounts) -> Vec<u64> {
    let counts = RollupMetric::ALL.into_iter().filter(|count| *count != RollupMetric::Duplicates);
    counts.map(|count| tally.get(count)).collect()
}

impl HistoryRun {
    /// Compares the stored buckets of each width with all counts of the model.
    async fn compare_rollups(&self) -> TestCaseResult {
        let ends = [self.fixture.shop, self.fixture.bank].map(CountSubject::Source);
        let others = [self.fixture.crm, self.fixture.mail].map(CountSubject::Destination);
        for (subject_id, width) in
            ends.into_iter().chain(others).flat_map(|w| BucketWidth::ALL.map(|x| (w, x)))
        {
            let since = width.start(self.fixture.now - width.retention());
            let mut expected: BTreeMap<Timestamp, RollupCounts> = BTreeMap::new();
            for ((of, start), tally) in &self.model.rollups {
                if *of == subject_id && width.start(*start) >= since {
                    expected.entry(width.start(*start)).or_default().merge(tally);
                }
            }
            let subject = match subject_id {
                CountSubject::Source(id) => rollup::RollupSubject::Source(Some(id)),
                CountSubject::Destination(id) => rollup::RollupSubject::Destination(Some(id)),
            };
            let until = self.fixture.now + width.retention();
            let query = RollupQuery { subject, width, since, until };
            let mut seen = self.fixture.list_rollups(query).await.unwrap();
            // The model has no buckets with only duplicates.
            seen.retain(|(_, tally)| {
                counters(tally).iter().any(|many| *many > 0) || tally.latency.count() > 0
            });
            prop_assert_eq!(seen.len(), expected.len(), "{:?} {:?}", subject_id, width);
            for ((at, seen), (start, expected)) in seen.iter().zip(&expected) {
                prop_assert_eq!((at, counters(seen)), (start, counters(expected)));
                prop_assert_eq!(&seen.latency, &expected.latency);
                prop_assert_eq!(&seen.attempt_time, &expected.attempt_time);
            }
        }
        Ok(())
    }
}

/// Every held delivery has an unfinished delivery before it that is not held.
fn check_held_deliveries(rows: &[DeliveryRow]) -> TestCaseResult {
    for held in rows.iter().filter(|row| row.status == DeliveryStatus::Held) {
        let is_first = |row: &DeliveryRow| {
            (row.destination, &row.order_key) == (held.destination, &held.order_key)
                && row.status != DeliveryStatus::Held
                && !row.status.is_final()
        };
        prop_assert!(rows.iter().any(is_first), "{} is held behind no other delivery", held.id);
    }
    Ok(())
}

fn check_delivery(row: &DeliveryRow, expected: &ModelDelivery) -> TestCaseResult {
    prop_assert_eq!((row.event, row.destination), (expected.event, expected.destination));
    prop_assert_eq!(row.status, expected.state.status());
    prop_assert_eq!((row.reason, row.attempts), (expected.reason, expected.attempts));
    prop_assert_eq!((row.created_at, row.due_at), (expected.created_at, expected.due_at()));
    prop_assert_eq!(row.ended_at, expected.ended_at);
    prop_assert_eq!(&row.order_key, &expected.order_key);
    prop_assert_eq!(row.replay_of, expected.replay_of);
    prop_assert_eq!(row.replayed_by, expected.replayed_by);
    prop_assert_eq!(&row.sent_id, &expected.sent_id);
    Ok(())
}

/// Events that could not be pruned when they expired are checked again after this time.
const RECHECK_INTERVAL: Duration = Duration::from_secs(86_400);

impl StoreModel {
    fn event_progress(&self, event: EventId) -> EventProgress {
        let progress = |(_, delivery): (_, &ModelDelivery)| match delivery.state.status() {
            DeliveryStatus::Dead => EventProgress::Dead,
            DeliveryStatus::Succeeded | DeliveryStatus::Cancelled | DeliveryStatus::Replayed => {
                EventProgress::Ended
            }
            DeliveryStatus::Pending
            | DeliveryStatus::InFlight
            | DeliveryStatus::Scheduled
            | DeliveryStatus::Held => EventProgress::Pending,
        };
        self.deliveries_of_event(event).map(progress).max().unwrap_or(EventProgress::Ended)
    }

    /// Which parts of an event may be pruned, and whether they must be.
    fn expired_parts(
        &self,
        id: EventId,
        event: &ModelEvent,
        server: Duration,
        now: Timestamp,
    ) -> (ExpiredParts, bool) {
        let spec = self.retention.get(&event.admitted.source).copied().unwrap_or_default();
        let policy = spec.resolve(server);
        let expired =
            policy.expired_parts(event.admitted.received_at, self.event_progress(id), now);
        let expired_if_ended =
            policy.expired_parts(event.admitted.received_at, EventProgress::Ended, now);
        (expired, expired == expired_if_ended && !event.may_be_pruned_late)
    }

    fn remove_event(&mut self, event: EventId) {
        self.events.remove(&event);
        self.deliveries.retain(|_, delivery| delivery.event != event);
    }
}

impl HistoryRun {
    pub(super) async fn set_retention(&mut self, source: SourceId, retention: RetentionSpec) {
        self.fixture.set_retention(source, retention).await;
        self.model.retention.insert(source, retention);
    }

    /// Prunes, checks what the store removed and removes the same from the model.
    pub(super) async fn prune(&mut self, server: Duration) -> TestCaseResult {
        let now = self.fixture.now;
        let pruned = self.fixture.prune_all(server).await;
        prop_assert_eq!(pruned.keys, self.model.forget_keys(now));
        let ids: Vec<EventId> = self.model.events.keys().copied().collect();
        let mut events = 0;
        for id in ids {
            let event = &self.model.events[&id];
            let (due, must) = self.model.expired_parts(id, event, server, now);
            let Some(seen) = self.fixture.find_event(id).await.unwrap() else {
                prop_assert!(due.event, "{} was pruned too early", id);
                self.model.remove_event(id);
                events += 1;
                continue;
            };
            prop_assert!(!(must && due.event), "{} was not pruned", id);
            let was_gone = event.body_is_pruned;
            prop_assert!(seen.event.body_removed || !was_gone);
            prop_assert!(
                !seen.event.body_removed || was_gone || due.body,
                "the body of {} was pruned too early",
                id
            );
            prop_assert!(
                seen.event.body_removed || !(must && due.body),
                "the body of {} was not pruned",
                id
            );
            let event = self.model.events.get_mut(&id).unwrap();
            event.body_is_pruned = seen.event.body_removed;
            event.may_be_pruned_late |= !must;
            self.check_attempts(id, due.attempts, must).await?;
        }
        prop_assert_eq!(pruned.events, events);
        Ok(())
    }

    async fn check_attempts(&mut self, event: EventId, due: bool, must: bool) -> TestCaseResult {
        let delivery =
            self.model.deliveries.iter_mut().filter(|(_, delivery)| delivery.event == event);
        for (id, delivery) in delivery.filter(|(_, delivery)| delivery.attempts > 0) {
            let are_gone = self.fixture.delivery_detail(*id).await.attempts.is_empty();
            prop_assert!(
                !are_gone || due || delivery.attempts_are_pruned,
                "attempts of {} were pruned too early",
                id
            );
            prop_assert!(are_gone || !(must && due), "attempts of {} were not pruned", id);
            delivery.attempts_are_pruned |= are_gone;
        }
        Ok(())
    }

    /// After the retention time all bodies and attempts are pruned, except those of unfinished events.
    pub(super) async fn prune_bodies_and_attempts(&mut self) -> TestCaseResult {
        let brief = Some(HumanDuration::from_secs(1));
        let spec = RetentionSpec { bodies: brief, attempts: brief, ..RetentionSpec::default() };
        let spec = RetentionSpec { dead_letters: brief, ..spec };
        let server = Duration::from_secs(86_400 * 365);
        for source in [self.fixture.shop, self.fixture.bank] {
            self.set_retention(source, spec).await;
        }
        for _ in 0..2 {
            self.fixture.wait(RECHECK_INTERVAL);
            self.prune(server).await?;
        }
        for (id, event) in &self.model.events {
            let is_unfinished = self.model.event_progress(*id) == EventProgress::Pending;
            prop_assert!(
                event.body_is_pruned || is_unfinished,
                "the body of {} was never pruned",
                id
            );
            for (delivery_id, delivery) in self.model.deliveries_of_event(*id) {
                let are_left = delivery.attempts > 0 && !delivery.attempts_are_pruned;
                prop_assert!(
                    !are_left || is_unfinished,
                    "attempts of {} were never pruned",
                    delivery_id
                );
            }
        }
        self.reopen().await;
        self.compare().await?;
        self.prune_all_events().await
    }

    /// Finally all events are pruned, except unfinished ones.
    async fn prune_all_events(&mut self) -> TestCaseResult {
        let brief =
            RetentionSpec { events: Some(HumanDuration::from_secs(1)), ..RetentionSpec::default() };
        for source in [self.fixture.shop, self.fixture.bank] {
            self.set_retention(source, brief).await;
        }
        for _ in 0..2 {
            self.fixture.wait(RECHECK_INTERVAL);
            self.prune(Duration::from_secs(1)).await?;
        }
        for id in self.model.events.keys() {
            prop_assert_eq!(
                self.model.event_progress(*id),
                EventProgress::Pending,
                "{} was never pruned",
                id
            );
        }
        self.compare_counts().await
    }
}
