//! Merging recent keys into their index: no key may be lost between the two.

use std::time::Duration;

use surehook_core::event::{DedupKeyClaim, NewEvent};
use surehook_store::conformance::StoreFixture;

use crate::harness::SqliteHarness;

/// Merging starts with the eighth key and moves two keys with each new one.
async fn fixture() -> StoreFixture {
    StoreFixture::new(SqliteHarness::with_slow_merge()).await
}

fn short_lived(fixture: &StoreFixture, key: &str) -> NewEvent {
    let claim = DedupKeyClaim {
        expires_at: fixture.now + Duration::from_secs(1),
        ..fixture.key_claim(key)
    };
    NewEvent { key: Some(claim), ..fixture.new_event() }
}

#[tokio::test]
async fn key_added_while_a_merge_is_pruned_is_kept() {
    let mut fixture = fixture().await;
    for number in 0..8 {
        fixture.accept(short_lived(&fixture, &format!("brief-{number}"))).await;
    }
    // The merge has started and most of its keys are expired now.
    fixture.wait(Duration::from_secs(1));
    fixture.prune(Duration::from_secs(9), fixture.now).await.unwrap();
    let late: Vec<_> =
        (0..6).map(|number| fixture.event_with_key(&format!("late-{number}"))).collect();
    for event in &late {
        fixture.accept(event.clone()).await;
    }

    fixture.reopen().await;

    for event in &late {
        assert_eq!(fixture.expect_duplicate(fixture.repeat_of(event)).await.original, event.id);
    }
}

/// Between the expired keys are more unexpired ones than a slice reads.
#[tokio::test]
async fn unexpired_keys_do_not_hide_expired_keys_from_pruning() {
    const MANY: usize = 3000;
    let mut fixture = StoreFixture::new(SqliteHarness::with_immediate_merge()).await;
    let without_deliveries = |event| NewEvent { deliveries: Vec::new(), ..event };
    let pair = |number: usize| {
        let (stays, goes) = (format!("stays-{number}"), format!("goes-{number}"));
        [fixture.event_with_key(&stays), short_lived(&fixture, &goes)].map(without_deliveries)
    };
    for first in (0..MANY).step_by(100) {
        fixture.admit((first..first + 100).flat_map(pair).collect()).await.unwrap();
    }
    fixture.wait(Duration::from_secs(1));

    assert_eq!(fixture.prune_all(Duration::from_secs(86_400)).await.keys, MANY);

    fixture.accept(short_lived(&fixture, "goes-0")).await;
    fixture.expect_duplicate(fixture.event_with_key("stays-0")).await;
}
