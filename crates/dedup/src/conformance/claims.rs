//! Claims and what follows them.

use std::time::Duration;

use super::{
    ClaimFixture,
    fixture::{LEASE, TTL, assert_about, expect_completed, expect_grant, expect_retry_after},
};
use crate::{
    Claim, ClaimRequest, ClaimUpdate, CompletionRequest, DedupError, LimitError,
    claim::{LEASE_MAX, LEASE_MIN, NAME_BYTES_MAX, RESULT_BYTES_MAX, TTL_MAX},
};

pub async fn first_claim_is_granted_and_the_next_is_in_progress(fixture: ClaimFixture) {
    let grant = fixture.grant("key").await;
    assert!(!grant.is_resumed);
    expect_retry_after(fixture.claim("key").await);
    expect_retry_after(fixture.claim("key").await);
}

pub async fn names_and_namespaces_are_independent(fixture: ClaimFixture) {
    let first = fixture.grant("one").await;
    let second = fixture.grant("two").await;
    assert_ne!(first.token, second.token);
    assert_ne!(first.operation.id, second.operation.id);
    let other = format!("{}x", fixture.namespace());
    let key = crate::ClaimKey::new(&other, "one").unwrap();
    let request = ClaimRequest { key, ..fixture.request("one") };
    expect_grant(fixture.lock.claim(request).await.unwrap());
    // A token is good for its own key only.
    assert_eq!(fixture.complete("two", first.token, b"").await, ClaimUpdate::StaleToken);
    assert_eq!(fixture.release("two", first.token).await, ClaimUpdate::StaleToken);
    expect_retry_after(fixture.claim("two").await);
}

pub async fn unusual_names_are_distinct_keys(fixture: ClaimFixture) {
    let long = "k".repeat(NAME_BYTES_MAX);
    let longest_but_one = "k".repeat(NAME_BYTES_MAX - 1);
    let names = [
        "a",
        "A",
        "a ",
        " a",
        "a/b",
        "a:b",
        "{a}",
        "}{",
        "a'b",
        "a\"b",
        "a\\b",
        "%s",
        "$1",
        "é",
        "e\u{301}",
        "日本語",
        "🦀",
        "*",
        "a*",
        &long,
        &longest_but_one,
    ];
    for name in names {
        fixture.grant(name).await;
    }
    for name in names {
        expect_retry_after(fixture.claim(name).await);
    }
}

pub async fn retry_after_is_the_rest_of_the_lease(fixture: ClaimFixture) {
    fixture.grant("key").await;
    assert_about(expect_retry_after(fixture.claim("key").await), LEASE);
    fixture.advance(LEASE / 2).await;
    assert_about(expect_retry_after(fixture.claim("key").await), LEASE / 2);
}

pub async fn completed_claim_returns_its_result(fixture: ClaimFixture) {
    let grant = fixture.grant("key").await;
    assert_eq!(fixture.complete("key", grant.token, b"result").await, ClaimUpdate::Applied);
    for _ in 0..2 {
        let completed = expect_completed(fixture.claim("key").await);
        assert_eq!(completed.result.as_ref(), b"result");
        assert_eq!(completed.fence, grant.fence);
        assert_eq!(completed.operation, grant.operation);
        assert!(completed.completed_at >= grant.operation.started_at);
        assert_about(completed.expires_in, TTL);
    }
}

pub async fn results_are_stored_byte_for_byte_up_to_the_limit(fixture: ClaimFixture) {
    let every_byte: Vec<u8> = (0..=255).collect();
    let largest: Vec<u8> = every_byte.iter().copied().cycle().take(RESULT_BYTES_MAX).collect();
    for (name, result) in [("empty", vec![]), ("bytes", every_byte), ("large", largest)] {
        let grant = fixture.grant(name).await;
        assert_eq!(fixture.complete(name, grant.token, &result).await, ClaimUpdate::Applied);
        assert!(expect_completed(fixture.claim(name).await).result == result, "case: {name}");
    }
}

pub async fn completed_claim_expires_with_its_ttl(fixture: ClaimFixture) {
    let first = fixture.grant("key").await;
    let request =
        CompletionRequest { ttl: LEASE * 3, ..fixture.completion("key", first.token, b"r") };
    assert_eq!(fixture.lock.complete(request).await, Ok(ClaimUpdate::Applied));
    fixture.advance(LEASE * 2).await;
    expect_completed(fixture.claim("key").await);
    fixture.advance(LEASE).await;
    let second = fixture.grant("key").await;
    assert!(!second.is_resumed);
    assert_ne!(second.operation.id, first.operation.id);
    assert!(second.fence > first.fence);
}

pub async fn crash_after_claim_does_not_swallow_the_retry(fixture: ClaimFixture) {
    // The first holder is never heard of again.
    fixture.grant("key").await;
    expect_retry_after(fixture.claim("key").await);
    fixture.advance(LEASE).await;
    let retry = fixture.grant("key").await;
    assert!(retry.is_resumed);
    assert_eq!(fixture.complete("key", retry.token, b"done").await, ClaimUpdate::Applied);
    assert_eq!(expect_completed(fixture.claim("key").await).result.as_ref(), b"done");
}

pub async fn expired_lease_is_granted_again_with_the_same_operation(fixture: ClaimFixture) {
    let mut last = fixture.grant("key").await;
    for _ in 0..3 {
        fixture.advance(LEASE).await;
        let next = fixture.grant("key").await;
        assert_eq!(next.operation, last.operation);
        assert!(next.is_resumed);
        assert_ne!(next.token, last.token);
        assert!(next.fence > last.fence);
        last = next;
    }
}

pub async fn abandoned_claim_is_forgotten_after_its_ttl(fixture: ClaimFixture) {
    let first = fixture.grant("key").await;
    fixture.advance(TTL).await;
    let second = fixture.grant("key").await;
    assert!(!second.is_resumed);
    assert_ne!(second.operation.id, first.operation.id);
    assert!(second.fence > first.fence);
}

pub async fn renewed_claim_is_remembered_for_its_own_ttl(fixture: ClaimFixture) {
    let first = fixture.grant("key").await;
    fixture.advance(TTL - LEASE).await;
    let second = fixture.grant("key").await;
    assert_eq!(second.operation, first.operation);
    // The ttl of the first claim has ended, the one of the second has not.
    fixture.advance(LEASE * 2).await;
    assert_eq!(fixture.grant("key").await.operation, first.operation);
}

pub async fn released_claim_is_granted_again_as_a_new_operation(fixture: ClaimFixture) {
    let first = fixture.grant("key").await;
    assert_eq!(fixture.release("key", first.token).await, ClaimUpdate::Applied);
    let second = fixture.grant("key").await;
    assert!(!second.is_resumed);
    assert_ne!(second.operation.id, first.operation.id);
    assert_ne!(second.token, first.token);
    assert!(second.fence > first.fence);
}

pub async fn fence_grows_through_expiry_release_and_completion(fixture: ClaimFixture) {
    let mut last = 0;
    for round in 0..12 {
        let grant = fixture.grant("key").await;
        assert!(grant.fence > last, "round {round}: {} after {last}", grant.fence);
        last = grant.fence;
        match round % 4 {
            0 => fixture.advance(LEASE).await,
            1 | 3 => {
                assert!(fixture.release("key", grant.token).await.is_applied());
            }
            _ => {
                assert!(fixture.complete("key", grant.token, b"r").await.is_applied());
                fixture.advance(TTL).await;
            }
        }
    }
}

pub async fn values_out_of_range_are_refused(fixture: ClaimFixture) {
    let refused = |limit: LimitError| Err(DedupError::Limit(limit));
    let request = fixture.request("key");
    let millis = Duration::from_millis(1);
    let cases = [
        (Duration::ZERO, TTL, LimitError::Lease),
        (LEASE_MIN - millis, TTL, LimitError::Lease),
        (LEASE_MAX + millis, TTL_MAX, LimitError::Lease),
        (LEASE_MIN, Duration::ZERO, LimitError::Ttl),
        (LEASE_MIN, TTL_MAX + millis, LimitError::Ttl),
        (LEASE, LEASE - millis, LimitError::TtlBelowLease),
    ];
    for (lease, ttl, limit) in cases {
        let claim = fixture.lock.claim(ClaimRequest { lease, ttl, ..request.clone() }).await;
        assert_eq!(claim, refused(limit));
    }
    // Nothing of that claimed the key, and the bounds themselves work.
    let longest = ClaimRequest { lease: LEASE_MAX, ttl: TTL_MAX, ..request };
    let grant = expect_grant(fixture.lock.claim(longest).await.unwrap());
    let extended = fixture.lock.extend(&fixture.key("key"), grant.token, Duration::ZERO).await;
    assert_eq!(extended, Err(DedupError::Limit(LimitError::Lease)));
    let completion = fixture.completion("key", grant.token, &[0; RESULT_BYTES_MAX + 1]);
    let completed = fixture.lock.complete(completion).await;
    assert_eq!(completed, Err(DedupError::Limit(LimitError::Result(RESULT_BYTES_MAX + 1))));
    let completion = fixture.completion("key", grant.token, b"");
    let endless = CompletionRequest { ttl: TTL_MAX + millis, ..completion };
    let completed = fixture.lock.complete(endless).await;
    assert_eq!(completed, Err(DedupError::Limit(LimitError::Ttl)));
    assert!(matches!(fixture.claim("key").await, Claim::InProgress { .. }));
}
