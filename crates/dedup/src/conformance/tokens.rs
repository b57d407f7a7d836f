//! Steps of the holder, and tokens that are no longer current.

use super::{
    ClaimFixture,
    fixture::{LEASE, TTL, assert_about, expect_completed, expect_grant, expect_retry_after},
};
use crate::{ClaimRequest, ClaimToken, ClaimUpdate, CompletionRequest};

pub async fn holder_extends_its_lease(fixture: ClaimFixture) {
    let grant = fixture.grant("key").await;
    for _ in 0..3 {
        fixture.advance(LEASE / 2).await;
        assert_eq!(fixture.extend("key", grant.token, LEASE).await, ClaimUpdate::Applied);
    }
    assert_about(expect_retry_after(fixture.claim("key").await), LEASE);
    // A lease can also be made shorter.
    assert_eq!(fixture.extend("key", grant.token, LEASE / 4).await, ClaimUpdate::Applied);
    assert_about(expect_retry_after(fixture.claim("key").await), LEASE / 4);
    fixture.advance(LEASE / 4).await;
    assert!(fixture.grant("key").await.is_resumed);
}

pub async fn extended_lease_outlives_the_ttl_of_the_claim(fixture: ClaimFixture) {
    let request = ClaimRequest { ttl: LEASE, ..fixture.request("key") };
    let grant = expect_grant(fixture.lock.claim(request).await.unwrap());
    fixture.advance(LEASE / 2).await;
    assert_eq!(fixture.extend("key", grant.token, LEASE * 2).await, ClaimUpdate::Applied);
    fixture.advance(LEASE).await;
    expect_retry_after(fixture.claim("key").await);
    assert_eq!(fixture.complete("key", grant.token, b"r").await, ClaimUpdate::Applied);
}

pub async fn stale_token_changes_nothing(fixture: ClaimFixture) {
    let slow = fixture.grant("key").await;
    fixture.advance(LEASE).await;
    let current = fixture.grant("key").await;
    assert_eq!(fixture.extend("key", slow.token, LEASE * 9).await, ClaimUpdate::StaleToken);
    assert_eq!(fixture.complete("key", slow.token, b"slow").await, ClaimUpdate::StaleToken);
    assert_eq!(fixture.release("key", slow.token).await, ClaimUpdate::StaleToken);
    assert_about(expect_retry_after(fixture.claim("key").await), LEASE);
    assert_eq!(fixture.complete("key", current.token, b"current").await, ClaimUpdate::Applied);
    assert_eq!(fixture.complete("key", slow.token, b"slow").await, ClaimUpdate::StaleToken);
    assert_eq!(fixture.release("key", slow.token).await, ClaimUpdate::StaleToken);
    assert_eq!(expect_completed(fixture.claim("key").await).result.as_ref(), b"current");
}

pub async fn holder_with_expired_lease_may_complete_until_another_claims(fixture: ClaimFixture) {
    let grant = fixture.grant("key").await;
    fixture.advance(LEASE * 2).await;
    assert_eq!(fixture.complete("key", grant.token, b"late").await, ClaimUpdate::Applied);
    let completed = expect_completed(fixture.claim("key").await);
    assert_eq!(completed.result.as_ref(), b"late");
    assert_about(completed.expires_in, TTL);
}

pub async fn holder_with_expired_lease_may_extend_until_another_claims(fixture: ClaimFixture) {
    let grant = fixture.grant("key").await;
    fixture.advance(LEASE * 2).await;
    assert_eq!(fixture.extend("key", grant.token, LEASE).await, ClaimUpdate::Applied);
    expect_retry_after(fixture.claim("key").await);
    fixture.advance(LEASE).await;
    assert_eq!(fixture.release("key", grant.token).await, ClaimUpdate::Applied);
    assert!(!fixture.grant("key").await.is_resumed);
}

pub async fn completing_twice_keeps_the_first_result(fixture: ClaimFixture) {
    let grant = fixture.grant("key").await;
    assert_eq!(fixture.complete("key", grant.token, b"first").await, ClaimUpdate::Applied);
    let shorter =
        CompletionRequest { ttl: LEASE, ..fixture.completion("key", grant.token, b"second") };
    assert_eq!(fixture.lock.complete(shorter).await, Ok(ClaimUpdate::Applied));
    let completed = expect_completed(fixture.claim("key").await);
    assert_eq!(completed.result.as_ref(), b"first");
    assert_about(completed.expires_in, TTL);
}

pub async fn token_is_stale_after_release(fixture: ClaimFixture) {
    let grant = fixture.grant("key").await;
    assert_eq!(fixture.release("key", grant.token).await, ClaimUpdate::Applied);
    assert_eq!(fixture.release("key", grant.token).await, ClaimUpdate::StaleToken);
    assert_eq!(fixture.extend("key", grant.token, LEASE).await, ClaimUpdate::StaleToken);
    assert_eq!(fixture.complete("key", grant.token, b"r").await, ClaimUpdate::StaleToken);
    fixture.grant("key").await;
}

pub async fn token_is_stale_after_completion_except_to_complete(fixture: ClaimFixture) {
    let grant = fixture.grant("key").await;
    assert_eq!(fixture.complete("key", grant.token, b"r").await, ClaimUpdate::Applied);
    assert_eq!(fixture.release("key", grant.token).await, ClaimUpdate::StaleToken);
    assert_eq!(fixture.extend("key", grant.token, LEASE).await, ClaimUpdate::StaleToken);
    assert_eq!(expect_completed(fixture.claim("key").await).result.as_ref(), b"r");
}

pub async fn token_is_stale_when_the_claim_is_forgotten(fixture: ClaimFixture) {
    let abandoned = fixture.grant("abandoned").await;
    let completed = fixture.grant("completed").await;
    assert_eq!(fixture.complete("completed", completed.token, b"r").await, ClaimUpdate::Applied);
    fixture.advance(TTL).await;
    assert_eq!(fixture.extend("abandoned", abandoned.token, LEASE).await, ClaimUpdate::StaleToken);
    assert_eq!(fixture.complete("abandoned", abandoned.token, b"").await, ClaimUpdate::StaleToken);
    assert_eq!(fixture.release("abandoned", abandoned.token).await, ClaimUpdate::StaleToken);
    assert_eq!(fixture.complete("completed", completed.token, b"").await, ClaimUpdate::StaleToken);
}

pub async fn unknown_key_has_no_current_token(fixture: ClaimFixture) {
    let token = ClaimToken::from_bytes([0; 16]);
    assert_eq!(fixture.extend("key", token, LEASE).await, ClaimUpdate::StaleToken);
    assert_eq!(fixture.complete("key", token, b"r").await, ClaimUpdate::StaleToken);
    assert_eq!(fixture.release("key", token).await, ClaimUpdate::StaleToken);
    fixture.grant("key").await;
}
