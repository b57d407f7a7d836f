//! Everything that can be seen, against the model.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use surehook_core::{
    attribute::{AttributeFilter, AttributeName, Attributes, EventKind},
    dead_letters::{DeadLetterGroupFilter, DeathCause},
    delivery::state::DeliveryStatus,
    event::NewEvent,
    ids::{EventId, GroupId},
    rollup::{self, BucketWidth, RollupCounts, RollupMetric, RollupQuery},
    store::{DeliveryFilter, DeliveryRow, EventFilter, PageRequest},
    time::Timestamp,
};

use super::{
    history::{About, Run},
    model::{ModelDelivery, Whose},
    samples::without_zeros,
};

impl About {
    pub(super) fn attributes(self) -> Attributes {
        let mut attributes = Attributes::default();
        attributes.push_some(AttributeName::Phone, self.phone);
        attributes
    }
}

impl Run {
    /// All counts but that of duplicates, which memory may have answered and not written yet.
    pub(super) fn compare_counts(&self) -> TestCaseResult {
        let (mut seen, mut expected) = (self.world.counts(), self.model.counts());
        (seen.duplicates, expected.duplicates) = (0, 0);
        prop_assert_eq!(without_zeros(seen), without_zeros(expected));
        Ok(())
    }

    /// Everything; only right after a restart, when nothing waits in memory.
    pub(super) async fn compare(&self) -> TestCaseResult {
        prop_assert_eq!(without_zeros(self.world.counts()), without_zeros(self.model.counts()));
        self.compare_events().await?;
        for phone in [None, Some("5511987654321"), Some("5511900000000"), Some("12@lid")] {
            for kind in [None, Some("message"), Some("status")] {
                self.find(About { kind, phone }).await?;
            }
        }
        self.compare_deliveries().await?;
        self.compare_groups().await?;
        self.compare_rollups().await?;
        let sent = self.world.count_sent_by_day(0..=i32::MAX).await.unwrap();
        prop_assert_eq!(sent, self.model.count_sent_by_day());
        for to in [self.world.crm, self.world.mail] {
            let seen = self.world.next_due(to).await.unwrap();
            prop_assert_eq!(seen, self.model.next_due(to), "next due of {}", to);
        }
        Ok(())
    }

    async fn compare_events(&self) -> TestCaseResult {
        let page = PageRequest { after: None, limit: 10_000 };
        let rows = self.world.events(EventFilter::default(), page).await.unwrap().rows;
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
            let body = self.world.body(row.id).await.unwrap();
            let kept = Some(&expected.admitted.payload).filter(|_| !expected.body_is_gone);
            prop_assert_eq!(body.as_ref(), kept);
            prop_assert_eq!(row.body_removed, expected.body_is_gone);
        }
        Ok(())
    }

    /// What is found, against a look at every event.
    pub(super) async fn find(&self, about: About) -> TestCaseResult {
        let kind = about.kind.and_then(EventKind::new);
        let wanted =
            about.phone.and_then(|phone| AttributeFilter::new(AttributeName::Phone, phone));
        let attributes = Vec::from_iter(wanted);
        let all = self.model.events.iter().rev();
        let is_meant = |event: &NewEvent| {
            (kind.is_none() || kind == event.kind)
                && attributes.iter().all(|wanted| event.attributes.matches(wanted))
        };
        let expected = all.filter(|(_, event)| is_meant(&event.admitted)).map(|(id, _)| *id);
        let expected: Vec<EventId> = expected.collect();
        let filter = EventFilter { kind, attributes: attributes.clone(), ..EventFilter::default() };
        let page = PageRequest { after: None, limit: 10_000 };
        let found = self.world.events(filter, page).await.unwrap().rows;
        prop_assert_eq!(found.iter().map(|row| row.id).collect::<Vec<_>>(), expected);
        Ok(())
    }

    async fn compare_deliveries(&self) -> TestCaseResult {
        let page = PageRequest { after: None, limit: 10_000 };
        let rows = self.world.deliveries(DeliveryFilter::default(), page).await.unwrap().rows;
        let ids: Vec<_> = rows.iter().rev().map(|row| row.id).collect();
        prop_assert_eq!(ids, self.model.deliveries.keys().copied().collect::<Vec<_>>());
        none_waits_for_nobody(&rows)?;
        for row in rows {
            same(&row, &self.model.deliveries[&row.id])?;
            let attempts = self.world.delivery_detail(row.id).await.attempts;
            let numbers: Vec<u32> = attempts.iter().map(|row| row.attempt.number).collect();
            let are_gone = self.model.deliveries[&row.id].attempts_are_gone;
            let kept = if are_gone { 0 } else { row.attempts };
            prop_assert_eq!(numbers, (1..=kept).collect::<Vec<_>>());
        }
        Ok(())
    }
}

impl Run {
    /// Every dead delivery is in the group of what it died of, nobody else is in one, and the counts
    /// are those of a look at all of them.
    async fn compare_groups(&self) -> TestCaseResult {
        let page = PageRequest { after: None, limit: 10_000 };
        let rows = self.world.deliveries(DeliveryFilter::default(), page).await.unwrap().rows;
        let mut dead: BTreeMap<GroupId, Vec<DeliveryRow>> = BTreeMap::new();
        for row in rows {
            prop_assert_eq!(row.group.is_some(), row.status == DeliveryStatus::Dead, "{:?}", row);
            let Some(group) = row.group else { continue };
            let last = self.world.delivery_detail(row.id).await.attempts.pop();
            if let (Some(last), Some(reason)) = (last, row.reason) {
                let causes =
                    [DeathCause::from_attempt(&last.attempt), DeathCause::from_status(reason)];
                let groups = causes.map(|cause| cause.group_id(row.destination));
                prop_assert!(groups.contains(&group), "{:?} died of {:?}", row, last);
            }
            dead.entry(group).or_default().push(row);
        }
        let page = PageRequest { after: None, limit: 10_000 };
        let groups = self
            .world
            .list_dead_letter_groups(DeadLetterGroupFilter::default(), page)
            .await
            .unwrap()
            .rows;
        let counted = groups.iter().map(|group| (group.id, group.count)).collect();
        let looked_at = |rows: &Vec<DeliveryRow>| u64::try_from(rows.len()).unwrap();
        let expected: BTreeMap<_, _> = dead.iter().map(|(id, all)| (*id, looked_at(all))).collect();
        prop_assert_eq!(expected, counted);
        for group in groups {
            let all = &dead[&group.id];
            prop_assert_eq!(group.cause.group_id(group.destination), group.id);
            prop_assert_eq!(group.newest, (all[0].id, all[0].event));
            let ended = || all.iter().filter_map(|row| row.ended_at);
            prop_assert!(ended().all(|at| (group.first_seen..=group.last_seen).contains(&at)));
        }
        Ok(())
    }
}

/// Everything that is counted by time, but for duplicates.
fn counted(tally: &RollupCounts) -> Vec<u64> {
    let counts = RollupMetric::ALL.into_iter().filter(|count| *count != RollupMetric::Duplicates);
    counts.map(|count| tally.get(count)).collect()
}

impl Run {
    /// What is kept of each width, against all that ever happened.
    async fn compare_rollups(&self) -> TestCaseResult {
        let ends = [self.world.shop, self.world.bank].map(Whose::Source);
        let others = [self.world.crm, self.world.mail].map(Whose::Destination);
        for (subject, width) in
            ends.into_iter().chain(others).flat_map(|w| BucketWidth::ALL.map(|x| (w, x)))
        {
            let since = width.start(self.world.now - width.retention());
            let mut expected: BTreeMap<Timestamp, RollupCounts> = BTreeMap::new();
            for ((of, start), tally) in &self.model.facts {
                if *of == subject && width.start(*start) >= since {
                    expected.entry(width.start(*start)).or_default().merge(tally);
                }
            }
            let asked = match subject {
                Whose::Source(id) => rollup::RollupSubject::Source(Some(id)),
                Whose::Destination(id) => rollup::RollupSubject::Destination(Some(id)),
            };
            let until = self.world.now + width.retention();
            let query = RollupQuery { subject: asked, width, since, until };
            let mut seen = self.world.rollups(query).await.unwrap();
            // A bucket of nothing but duplicates is not in the model.
            seen.retain(|(_, tally)| {
                counted(tally).iter().any(|many| *many > 0) || tally.latency.count() > 0
            });
            prop_assert_eq!(seen.len(), expected.len(), "{:?} {:?}", subject, width);
            for ((at, seen), (start, expected)) in seen.iter().zip(&expected) {
                prop_assert_eq!((at, counted(seen)), (start, counted(expected)));
                prop_assert_eq!(&seen.latency, &expected.latency);
                prop_assert_eq!(&seen.attempt_time, &expected.attempt_time);
            }
        }
        Ok(())
    }
}

/// Whatever is held has somebody before it who is not.
fn none_waits_for_nobody(rows: &[DeliveryRow]) -> TestCaseResult {
    for held in rows.iter().filter(|row| row.status == DeliveryStatus::Held) {
        let is_first = |row: &DeliveryRow| {
            (row.destination, &row.order_key) == (held.destination, &held.order_key)
                && row.status != DeliveryStatus::Held
                && !row.status.is_final()
        };
        prop_assert!(rows.iter().any(is_first), "{} waits for nobody", held.id);
    }
    Ok(())
}

fn same(row: &DeliveryRow, expected: &ModelDelivery) -> TestCaseResult {
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
