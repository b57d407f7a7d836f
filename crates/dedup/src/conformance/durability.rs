//! Cases for a restart of the process. A backend that keeps nothing across one passes without a check.

use super::{
    ClaimFixture,
    fixture::{LEASE, expect_completed, expect_grant, expect_retry_after},
};

pub async fn claims_results_and_fences_survive_a_restart(fixture: ClaimFixture) {
    let held = fixture.grant("held").await;
    let completed = fixture.grant("completed").await;
    assert!(fixture.complete("completed", completed.token, b"result").await.is_applied());
    let released = fixture.grant("released").await;
    assert!(fixture.release("released", released.token).await.is_applied());
    let Some(lock) = fixture.reopen().await else { return };
    expect_retry_after(lock.claim(fixture.request("held")).await.unwrap());
    let again = expect_completed(lock.claim(fixture.request("completed")).await.unwrap());
    assert_eq!(again.result.as_ref(), b"result");
    assert_eq!(again.operation, completed.operation);
    assert!(
        expect_grant(lock.claim(fixture.request("released")).await.unwrap()).fence > released.fence
    );
    fixture.advance(LEASE).await;
    let resumed = expect_grant(lock.claim(fixture.request("held")).await.unwrap());
    assert_eq!(resumed.operation, held.operation);
    assert!(resumed.fence > held.fence);
}
