//! One key for two different requests.

use super::{
    ClaimFixture,
    fixture::{LEASE, TTL, expect_completed, expect_grant, expect_retry_after},
};
use crate::{Claim, Fingerprint};

const FIRST: Option<Fingerprint> = Some(Fingerprint::from_bytes([1; 32]));
const SECOND: Option<Fingerprint> = Some(Fingerprint::from_bytes([2; 32]));

pub async fn other_fingerprint_is_reported_in_every_state(fixture: ClaimFixture) {
    let first = expect_grant(fixture.claim_with_fingerprint("key", FIRST).await);
    assert_eq!(fixture.claim_with_fingerprint("key", SECOND).await, Claim::OtherFingerprint);
    expect_retry_after(fixture.claim_with_fingerprint("key", FIRST).await);
    fixture.advance(LEASE).await;
    // Abandoned: another request must not take the operation over.
    assert_eq!(fixture.claim_with_fingerprint("key", SECOND).await, Claim::OtherFingerprint);
    let resumed = expect_grant(fixture.claim_with_fingerprint("key", FIRST).await);
    assert_eq!(resumed.operation, first.operation);
    assert!(fixture.complete("key", resumed.token, b"r").await.is_applied());
    assert_eq!(fixture.claim_with_fingerprint("key", SECOND).await, Claim::OtherFingerprint);
    expect_completed(fixture.claim_with_fingerprint("key", FIRST).await);
}

pub async fn missing_fingerprint_matches_any(fixture: ClaimFixture) {
    expect_grant(fixture.claim_with_fingerprint("with", FIRST).await);
    expect_retry_after(fixture.claim_with_fingerprint("with", None).await);
    let without = expect_grant(fixture.claim_with_fingerprint("without", None).await);
    expect_retry_after(fixture.claim_with_fingerprint("without", FIRST).await);
    assert!(fixture.complete("without", without.token, b"r").await.is_applied());
    expect_completed(fixture.claim_with_fingerprint("without", FIRST).await);
    expect_completed(fixture.claim_with_fingerprint("without", SECOND).await);
}

pub async fn first_fingerprint_is_kept(fixture: ClaimFixture) {
    expect_grant(fixture.claim_with_fingerprint("with", FIRST).await);
    expect_grant(fixture.claim_with_fingerprint("without", None).await);
    fixture.advance(LEASE).await;
    // A claim without one does not erase it, and one that has it sets it.
    expect_grant(fixture.claim_with_fingerprint("with", None).await);
    assert_eq!(fixture.claim_with_fingerprint("with", SECOND).await, Claim::OtherFingerprint);
    expect_grant(fixture.claim_with_fingerprint("without", FIRST).await);
    assert_eq!(fixture.claim_with_fingerprint("without", SECOND).await, Claim::OtherFingerprint);
}

pub async fn release_and_expiry_forget_the_fingerprint(fixture: ClaimFixture) {
    let grant = expect_grant(fixture.claim_with_fingerprint("released", FIRST).await);
    assert!(fixture.release("released", grant.token).await.is_applied());
    expect_grant(fixture.claim_with_fingerprint("released", SECOND).await);
    assert_eq!(fixture.claim_with_fingerprint("released", FIRST).await, Claim::OtherFingerprint);
    expect_grant(fixture.claim_with_fingerprint("expired", FIRST).await);
    fixture.advance(TTL).await;
    expect_grant(fixture.claim_with_fingerprint("expired", SECOND).await);
    assert_eq!(fixture.claim_with_fingerprint("expired", FIRST).await, Claim::OtherFingerprint);
}
