//! Idempotency keys: claimed once, with a stored response, and never blocking a retry.

use std::time::Duration;

use surehook_core::{
    idempotency::{
        IdempotencyClaim, IdempotencyKey, IdempotentRequest, KEY_RETENTION, StoredResponse,
    },
    store::ReplayResult,
};

use super::StoreFixture;

fn key(text: &str) -> IdempotencyKey {
    IdempotencyKey { scope: [1; 32], key: text.to_owned() }
}

fn stored_response(text: &str) -> StoredResponse {
    let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
    StoredResponse { status: 201, headers, body: text.as_bytes().to_vec() }
}

fn new_request(fixture: &StoreFixture, seed: u8) -> IdempotentRequest {
    IdempotentRequest { at: fixture.now, seed: [seed; 16] }
}

pub async fn claimed_key_returns_the_stored_response(mut fixture: StoreFixture) {
    let first = new_request(&fixture, 1);
    assert_eq!(
        fixture.claim_key(key("a"), [9; 32], first, fixture.now).await.unwrap(),
        IdempotencyClaim::Pending(first)
    );
    fixture.store_response(key("a"), stored_response("done")).await.unwrap();

    for _restarted in [false, true] {
        let again = fixture
            .claim_key(key("a"), [9; 32], new_request(&fixture, 2), fixture.now)
            .await
            .unwrap();
        assert_eq!(again, IdempotencyClaim::Answered(stored_response("done")));
        let other = fixture
            .claim_key(key("a"), [8; 32], new_request(&fixture, 3), fixture.now)
            .await
            .unwrap();
        assert_eq!(other, IdempotencyClaim::OtherRequest);
        fixture.reopen().await;
    }
}

pub async fn unfinished_claim_is_resumed_with_the_same_seed(mut fixture: StoreFixture) {
    let first = new_request(&fixture, 1);
    fixture.claim_key(key("a"), [9; 32], first, fixture.now).await.unwrap();
    fixture.wait(Duration::from_secs(60));
    fixture.reopen().await;

    let again =
        fixture.claim_key(key("a"), [9; 32], new_request(&fixture, 2), fixture.now).await.unwrap();
    assert_eq!(again, IdempotencyClaim::Pending(first), "the same time and seed give the same ids");
    let other =
        fixture.claim_key(key("a"), [8; 32], new_request(&fixture, 2), fixture.now).await.unwrap();
    assert_eq!(other, IdempotencyClaim::OtherRequest);
}

pub async fn same_key_in_another_scope_is_a_new_claim(fixture: StoreFixture) {
    let other = IdempotencyKey { scope: [2; 32], ..key("a") };
    fixture.claim_key(key("a"), [9; 32], new_request(&fixture, 1), fixture.now).await.unwrap();
    fixture.store_response(key("a"), stored_response("mine")).await.unwrap();

    let request = new_request(&fixture, 2);
    let claimed = fixture.claim_key(other, [7; 32], request, fixture.now).await.unwrap();
    assert_eq!(claimed, IdempotencyClaim::Pending(request));
}

pub async fn released_key_can_be_claimed_again_unless_it_has_a_response(fixture: StoreFixture) {
    fixture.claim_key(key("a"), [9; 32], new_request(&fixture, 1), fixture.now).await.unwrap();
    fixture.release_key(key("a")).await.unwrap();
    let second = new_request(&fixture, 2);
    assert_eq!(
        fixture.claim_key(key("a"), [8; 32], second, fixture.now).await.unwrap(),
        IdempotencyClaim::Pending(second)
    );

    fixture.store_response(key("a"), stored_response("done")).await.unwrap();
    fixture.release_key(key("a")).await.unwrap();
    let again =
        fixture.claim_key(key("a"), [8; 32], new_request(&fixture, 3), fixture.now).await.unwrap();
    assert_eq!(again, IdempotencyClaim::Answered(stored_response("done")));
}

pub async fn key_can_be_claimed_again_after_its_retention_time(mut fixture: StoreFixture) {
    fixture.claim_key(key("a"), [9; 32], new_request(&fixture, 1), fixture.now).await.unwrap();
    fixture.store_response(key("a"), stored_response("done")).await.unwrap();
    let kept_until = fixture.now + KEY_RETENTION;

    fixture.wait(KEY_RETENTION - Duration::from_millis(1));
    let again =
        fixture.claim_key(key("a"), [9; 32], new_request(&fixture, 2), fixture.now).await.unwrap();
    assert_eq!(again, IdempotencyClaim::Answered(stored_response("done")));
    fixture.wait(Duration::from_millis(1));
    assert_eq!(fixture.now, kept_until);
    let later_claim = new_request(&fixture, 3);
    assert_eq!(
        fixture.claim_key(key("a"), [8; 32], later_claim, fixture.now).await.unwrap(),
        IdempotencyClaim::Pending(later_claim)
    );
}

pub async fn old_keys_are_pruned_in_slices(mut fixture: StoreFixture) {
    for number in 0..300 {
        let request = new_request(&fixture, 1);
        fixture.claim_key(key(&format!("k{number}")), [9; 32], request, fixture.now).await.unwrap();
    }
    fixture.wait(Duration::from_secs(1));
    fixture.claim_key(key("young"), [9; 32], new_request(&fixture, 2), fixture.now).await.unwrap();

    let cutoff = fixture.now - Duration::from_secs(1);
    let mut slices = Vec::new();
    loop {
        let slice = fixture.prune_idempotency_keys(cutoff).await.unwrap();
        if slice == 0 {
            break;
        }
        slices.push(slice);
    }

    assert_eq!(slices.iter().sum::<usize>(), 300);
    assert!(slices.len() > 1, "a slice is bounded, however much there is");
    let young = fixture
        .claim_key(key("young"), [9; 32], new_request(&fixture, 3), fixture.now)
        .await
        .unwrap();
    assert_eq!(
        young,
        IdempotencyClaim::Pending(IdempotentRequest { at: fixture.now, seed: [2; 16] })
    );
}

pub async fn repeated_replay_with_the_same_id_returns_the_same_result(mut fixture: StoreFixture) {
    let event = fixture.accept(fixture.new_event()).await;
    fixture.finish_due(fixture.crm, surehook_core::store::NextStep::Succeeded).await;
    let old = fixture.event_detail(event).await.deliveries[0].id;
    let new = fixture.new_id();
    let created = fixture.replay(old, new, fixture.now).await.unwrap();
    assert_eq!(created, ReplayResult::Created { delivery: new, destination: fixture.crm });

    fixture.wait(Duration::from_secs(1));
    assert_eq!(fixture.replay(old, new, fixture.now).await.unwrap(), created);
    assert_eq!(fixture.event_detail(event).await.deliveries.len(), 2);
    let other = fixture.replay(old, fixture.new_id(), fixture.now).await.unwrap();
    assert!(matches!(other, ReplayResult::TooSoon { .. }), "{other:?}");
}
