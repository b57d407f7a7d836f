//! Everything that can be seen, against the model.

use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use surehook_core::{
    delivery::state::Status,
    store::{DeliveryFilter, DeliveryRow, EventFilter, Page},
};

use super::{history::Run, model::ModelDelivery, samples::without_zeros};

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
        self.compare_deliveries().await?;
        for to in [self.world.crm, self.world.mail] {
            let seen = self.world.next_due(to).await.unwrap();
            prop_assert_eq!(seen, self.model.next_due(to), "next due of {}", to);
        }
        Ok(())
    }

    async fn compare_events(&self) -> TestCaseResult {
        let page = Page { after: None, limit: 10_000 };
        let rows = self.world.events(EventFilter::default(), page).await.unwrap().rows;
        let ids: Vec<_> = rows.iter().rev().map(|row| row.id).collect();
        prop_assert_eq!(ids, self.model.events.keys().copied().collect::<Vec<_>>());
        for row in rows {
            let expected = &self.model.events[&row.id];
            let key = expected.admitted.key.as_ref().map(|claim| claim.key.as_str());
            prop_assert_eq!(row.source, expected.admitted.source);
            prop_assert_eq!(row.key.as_deref(), key);
            prop_assert_eq!(row.received_at, expected.admitted.received_at);
            let seen = (row.duplicates, row.last_duplicate_at);
            prop_assert_eq!(seen, (expected.duplicates, expected.last_duplicate_at));
            let body = self.world.body(row.id).await.unwrap();
            prop_assert_eq!(body.as_ref(), Some(&expected.admitted.payload));
        }
        Ok(())
    }

    async fn compare_deliveries(&self) -> TestCaseResult {
        let page = Page { after: None, limit: 10_000 };
        let rows = self.world.deliveries(DeliveryFilter::default(), page).await.unwrap().rows;
        let ids: Vec<_> = rows.iter().rev().map(|row| row.id).collect();
        prop_assert_eq!(ids, self.model.deliveries.keys().copied().collect::<Vec<_>>());
        none_waits_for_nobody(&rows)?;
        for row in rows {
            same(&row, &self.model.deliveries[&row.id])?;
            let attempts = self.world.delivery_detail(row.id).await.attempts;
            let numbers: Vec<u32> = attempts.iter().map(|row| row.attempt.number).collect();
            prop_assert_eq!(numbers, (1..=row.attempts).collect::<Vec<_>>());
        }
        Ok(())
    }
}

/// Whatever is held has somebody before it who is not.
fn none_waits_for_nobody(rows: &[DeliveryRow]) -> TestCaseResult {
    for held in rows.iter().filter(|row| row.status == Status::Held) {
        let is_first = |row: &DeliveryRow| {
            (row.destination, &row.order_key) == (held.destination, &held.order_key)
                && row.status != Status::Held
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
    Ok(())
}
