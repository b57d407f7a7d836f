//! New keys on their way into their index: what is removed there must have arrived here.

use std::time::Duration;

use surehook_core::event::{KeyClaim, NewEvent};
use surehook_store::conformance::World;

use crate::harness::SqliteHarness;

/// Folding begins with the eighth key and takes two with each new one.
async fn world() -> World {
    World::new(SqliteHarness::folding_slowly()).await
}

fn brief(world: &World, key: &str) -> NewEvent {
    let claim = KeyClaim { expires_at: world.now + Duration::from_secs(1), ..world.key(key) };
    NewEvent { key: Some(claim), ..world.arrival() }
}

#[tokio::test]
async fn a_key_that_comes_while_others_are_pruned_from_a_fold_is_kept() {
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
