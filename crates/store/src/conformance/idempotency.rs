//! Keys of wishes: claimed once, answered for a day, and never in the way of a retry.

use std::time::Duration;

use surehook_core::{
    idempotency::{
        IdempotencyClaim, IdempotencyKey, IdempotentRequest, KEY_RETENTION, StoredResponse,
    },
    store::ReplayResult,
};

use super::World;

fn key(text: &str) -> IdempotencyKey {
    IdempotencyKey { scope: [1; 32], key: text.to_owned() }
}

fn answer(text: &str) -> StoredResponse {
    let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
    StoredResponse { status: 201, headers, body: text.as_bytes().to_vec() }
}

fn wish(world: &World, seed: u8) -> IdempotentRequest {
    IdempotentRequest { at: world.now, seed: [seed; 16] }
}

pub async fn claimed_key_returns_the_stored_response(mut world: World) {
    let first = wish(&world, 1);
    assert_eq!(
        world.claim_key(key("a"), [9; 32], first).await.unwrap(),
        IdempotencyClaim::Pending(first)
    );
    world.store_response(key("a"), answer("done")).await.unwrap();

    for _restarted in [false, true] {
        let again = world.claim_key(key("a"), [9; 32], wish(&world, 2)).await.unwrap();
        assert_eq!(again, IdempotencyClaim::Answered(answer("done")));
        let other = world.claim_key(key("a"), [8; 32], wish(&world, 3)).await.unwrap();
        assert_eq!(other, IdempotencyClaim::OtherRequest);
        world.reopen().await;
    }
}

pub async fn unfinished_claim_is_resumed_with_the_same_seed(mut world: World) {
    let first = wish(&world, 1);
    world.claim_key(key("a"), [9; 32], first).await.unwrap();
    world.wait(Duration::from_secs(60));
    world.reopen().await;

    let again = world.claim_key(key("a"), [9; 32], wish(&world, 2)).await.unwrap();
    assert_eq!(again, IdempotencyClaim::Pending(first), "the same time and dice, so the same ids");
    let other = world.claim_key(key("a"), [8; 32], wish(&world, 2)).await.unwrap();
    assert_eq!(other, IdempotencyClaim::OtherRequest);
}

pub async fn same_key_in_another_scope_is_a_new_claim(world: World) {
    let other = IdempotencyKey { scope: [2; 32], ..key("a") };
    world.claim_key(key("a"), [9; 32], wish(&world, 1)).await.unwrap();
    world.store_response(key("a"), answer("mine")).await.unwrap();

    let theirs = wish(&world, 2);
    let claimed = world.claim_key(other, [7; 32], theirs).await.unwrap();
    assert_eq!(claimed, IdempotencyClaim::Pending(theirs));
}

pub async fn released_key_can_be_claimed_again_unless_it_has_a_response(world: World) {
    world.claim_key(key("a"), [9; 32], wish(&world, 1)).await.unwrap();
    world.release_key(key("a")).await.unwrap();
    let second = wish(&world, 2);
    assert_eq!(
        world.claim_key(key("a"), [8; 32], second).await.unwrap(),
        IdempotencyClaim::Pending(second)
    );

    world.store_response(key("a"), answer("done")).await.unwrap();
    world.release_key(key("a")).await.unwrap();
    let again = world.claim_key(key("a"), [8; 32], wish(&world, 3)).await.unwrap();
    assert_eq!(again, IdempotencyClaim::Answered(answer("done")));
}

pub async fn key_can_be_claimed_again_after_its_retention_time(mut world: World) {
    world.claim_key(key("a"), [9; 32], wish(&world, 1)).await.unwrap();
    world.store_response(key("a"), answer("done")).await.unwrap();
    let kept_until = world.now + KEY_RETENTION;

    world.wait(KEY_RETENTION - Duration::from_millis(1));
    let again = world.claim_key(key("a"), [9; 32], wish(&world, 2)).await.unwrap();
    assert_eq!(again, IdempotencyClaim::Answered(answer("done")));
    world.wait(Duration::from_millis(1));
    assert_eq!(world.now, kept_until);
    let anew = wish(&world, 3);
    assert_eq!(
        world.claim_key(key("a"), [8; 32], anew).await.unwrap(),
        IdempotencyClaim::Pending(anew)
    );
}

pub async fn old_keys_are_pruned_in_slices(mut world: World) {
    for number in 0..300 {
        let wish = wish(&world, 1);
        world.claim_key(key(&format!("k{number}")), [9; 32], wish).await.unwrap();
    }
    world.wait(Duration::from_secs(1));
    world.claim_key(key("young"), [9; 32], wish(&world, 2)).await.unwrap();

    let border = world.now - Duration::from_secs(1);
    let mut forgotten = Vec::new();
    loop {
        let slice = world.prune_idempotency_keys(border).await.unwrap();
        if slice == 0 {
            break;
        }
        forgotten.push(slice);
    }

    assert_eq!(forgotten.iter().sum::<usize>(), 300);
    assert!(forgotten.len() > 1, "a slice is bounded, however much there is");
    let young = world.claim_key(key("young"), [9; 32], wish(&world, 3)).await.unwrap();
    assert_eq!(
        young,
        IdempotencyClaim::Pending(IdempotentRequest { at: world.now, seed: [2; 16] })
    );
}

pub async fn repeated_replay_with_the_same_id_returns_the_same_result(mut world: World) {
    let event = world.accept(world.arrival()).await;
    world.finish_due(world.crm, surehook_core::store::NextStep::Succeeded).await;
    let old = world.detail(event).await.deliveries[0].id;
    let new = world.id();
    let granted = world.replay(old, new, world.now).await.unwrap();
    assert_eq!(granted, ReplayResult::Created { delivery: new, destination: world.crm });

    world.wait(Duration::from_secs(1));
    assert_eq!(world.replay(old, new, world.now).await.unwrap(), granted);
    assert_eq!(world.detail(event).await.deliveries.len(), 2);
    let other = world.replay(old, world.id(), world.now).await.unwrap();
    assert!(matches!(other, ReplayResult::TooSoon { .. }), "{other:?}");
}
