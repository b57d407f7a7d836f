//! Several keys in one call.

use std::time::Duration;

use super::{
    ClaimFixture,
    fixture::{expect_completed, expect_grant, expect_retry_after},
};
use crate::{ClaimRequest, ClaimUpdate, DedupError, LimitError, claim::BATCH_MAX};

pub async fn batch_is_answered_in_order(fixture: ClaimFixture) {
    let names: Vec<String> = (0..BATCH_MAX).map(|number| format!("key-{number}")).collect();
    // Every third is held, every third is completed.
    for (index, name) in names.iter().enumerate() {
        if index % 3 > 0 {
            let grant = fixture.grant(name).await;
            if index % 3 == 2 {
                assert!(fixture.complete(name, grant.token, name.as_bytes()).await.is_applied());
            }
        }
    }
    let requests = names.iter().map(|name| fixture.request(name)).collect();
    let claims = fixture.lock.claim_many(requests).await;
    assert_eq!(claims.len(), BATCH_MAX);
    let mut completions = Vec::new();
    for (index, (claim, name)) in claims.into_iter().zip(&names).enumerate() {
        let claim = claim.unwrap();
        match index % 3 {
            0 => {
                let token = expect_grant(claim).token;
                completions.push(fixture.completion(name, token, name.as_bytes()));
            }
            1 => drop(expect_retry_after(claim)),
            _ => assert_eq!(expect_completed(claim).result, name.as_bytes()),
        }
    }
    let expected = vec![Ok(ClaimUpdate::Applied); completions.len()];
    assert_eq!(fixture.lock.complete_many(completions).await, expected);
    for name in names.iter().step_by(3) {
        assert_eq!(expect_completed(fixture.claim(name).await).result, name.as_bytes());
    }
}

pub async fn key_twice_in_a_batch_is_claimed_once(fixture: ClaimFixture) {
    let requests = ["a", "b", "a"].map(|name| fixture.request(name)).to_vec();
    let mut claims = fixture.lock.claim_many(requests).await.into_iter().map(Result::unwrap);
    expect_grant(claims.next().unwrap());
    expect_grant(claims.next().unwrap());
    expect_retry_after(claims.next().unwrap());
}

pub async fn batch_reports_each_failure_by_itself(fixture: ClaimFixture) {
    let wrong = ClaimRequest { lease: Duration::ZERO, ..fixture.request("wrong") };
    let requests = vec![fixture.request("a"), wrong, fixture.request("b")];
    let claims = fixture.lock.claim_many(requests).await;
    assert!(claims[0].is_ok() && claims[2].is_ok());
    assert_eq!(claims[1], Err(DedupError::Limit(LimitError::Lease)));
}

pub async fn completions_of_a_batch_are_checked_one_by_one(fixture: ClaimFixture) {
    let first = fixture.grant("a").await;
    let released = fixture.grant("b").await;
    assert!(fixture.release("b", released.token).await.is_applied());
    let oversized = vec![0; crate::claim::RESULT_BYTES_MAX + 1];
    let completions = vec![
        fixture.completion("b", released.token, b"stale"),
        fixture.completion("a", first.token, &oversized),
        fixture.completion("a", first.token, b"done"),
        fixture.completion("a", first.token, b"again"),
    ];
    let expected = [
        Ok(ClaimUpdate::StaleToken),
        Err(DedupError::Limit(LimitError::Result(oversized.len()))),
        Ok(ClaimUpdate::Applied),
        Ok(ClaimUpdate::Applied),
    ];
    assert_eq!(fixture.lock.complete_many(completions).await, expected);
    assert_eq!(expect_completed(fixture.claim("a").await).result.as_ref(), b"done");
    fixture.grant("b").await;
}

pub async fn oversized_batch_is_refused(fixture: ClaimFixture) {
    let count = BATCH_MAX + 1;
    let requests = (0..count).map(|number| fixture.request(&number.to_string())).collect();
    let refused = DedupError::Limit(LimitError::Batch(count));
    assert_eq!(fixture.lock.claim_many(requests).await, vec![Err(refused); count]);
    fixture.grant("0").await;
}

pub async fn empty_batch_has_no_answers(fixture: ClaimFixture) {
    assert_eq!(fixture.lock.claim_many(Vec::new()).await, Vec::new());
    assert_eq!(fixture.lock.complete_many(Vec::new()).await, Vec::new());
}
