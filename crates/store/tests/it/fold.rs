//! New keys on their way into their index: what is removed there must have arrived here.

use std::time::Duration;

use surehook_core::event::{DedupKeyClaim, NewEvent};
use surehook_store::conformance::World;

use crate::harness::SqliteHarness;

/// Folding begins with the eighth key and takes two with each new one.
async fn world() -> World {
    World::new(SqliteHarness::folding_slowly()).await
}

fn brief(world: &World, key: &str) -> NewEvent {
    let claim = DedupKeyClaim { expires_at: world.now + Duration::from_secs(1), ..world.key(key) };
    NewEvent { key: Some(claim), ..world.arrival() }
}

#[tokio::test]
async fn key_added_while_a_merge_is_pruned_is_kept() {
    let mut world = world().await;
    for number in 0..8 {
        world.accept(brief(&world, &format!("brief-{number}"))).await;
    }
    // The fold has begun and most of it is past its time now.
    world.wait(Duration::from_secs(1));
    world.prune(Duration::from_secs(9), world.now).await.unwrap();
    let late: Vec<_> = (0..6).map(|number| world.keyed(&format!("late-{number}"))).collect();
    for event in &late {
        world.accept(event.clone()).await;
    }

    world.reopen().await;

    for event in &late {
        assert_eq!(world.expect_duplicate(world.again(event)).await.original, event.id);
    }
}

/// More than a slice looks at stay, in between those that go.
#[tokio::test]
async fn unexpired_keys_do_not_hide_expired_keys_from_pruning() {
    const MANY: usize = 3000;
    let mut world = World::new(SqliteHarness::folding()).await;
    let nothing_owed = |event| NewEvent { deliveries: Vec::new(), ..event };
    let pair = |number: usize| {
        let (stays, goes) = (format!("stays-{number}"), format!("goes-{number}"));
        [world.keyed(&stays), brief(&world, &goes)].map(nothing_owed)
    };
    for first in (0..MANY).step_by(100) {
        world.admit((first..first + 100).flat_map(pair).collect()).await.unwrap();
    }
    world.wait(Duration::from_secs(1));

    assert_eq!(world.prune_all(Duration::from_secs(86_400)).await.keys, MANY);

    world.accept(brief(&world, "goes-0")).await;
    world.expect_duplicate(world.keyed("stays-0")).await;
}
