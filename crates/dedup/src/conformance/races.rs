//! Cases with concurrent callers, each in a thread of its own.

use std::{
    sync::{Arc, Barrier},
    thread,
    time::Duration,
};

use tokio::runtime::Handle;

use super::{
    ClaimFixture,
    fixture::{LEASE, TTL, expect_completed, expect_retry_after},
};
use crate::{Claim, ClaimKey, ClaimRequest, ClaimUpdate, DedupLock, claim::BATCH_MAX};

const THREADS: usize = 50;
const ROUNDS: usize = 200;

/// Runs `step(thread)` in this many threads, which start together.
async fn run_threads<T, S, F>(threads: usize, step: S) -> Vec<T>
where
    T: Send + 'static,
    S: Fn(usize) -> F + Send + Sync + 'static,
    F: Future<Output = T>,
{
    let (barrier, step) = (Arc::new(Barrier::new(threads)), Arc::new(step));
    let runtime = Handle::current();
    let handles: Vec<_> = (0..threads)
        .map(|index| {
            let (barrier, step, runtime) = (barrier.clone(), step.clone(), runtime.clone());
            thread::spawn(move || {
                barrier.wait();
                runtime.block_on(step(index))
            })
        })
        .collect();
    let join = || handles.into_iter().map(|thread| thread.join().unwrap()).collect();
    tokio::task::block_in_place(join)
}

fn request(namespace: &str, name: &str) -> ClaimRequest {
    let key = ClaimKey::new(namespace, name).unwrap();
    ClaimRequest { key, fingerprint: None, lease: LEASE, ttl: TTL }
}

async fn wins(lock: &dyn DedupLock, request: ClaimRequest) -> bool {
    matches!(lock.claim(request).await.unwrap(), Claim::Claimed(_))
}

pub async fn fifty_threads_have_one_winner_in_each_of_200_rounds(fixture: ClaimFixture) {
    let (lock, namespace) = (fixture.lock.clone(), fixture.namespace().to_owned());
    let round_start = Arc::new(Barrier::new(THREADS));
    let results = run_threads(THREADS, move |_| {
        let (lock, namespace, start) = (lock.clone(), namespace.clone(), round_start.clone());
        async move {
            let mut won = Vec::new();
            for round in 0..ROUNDS {
                start.wait();
                won.push(wins(&*lock, request(&namespace, &round.to_string())).await);
            }
            won
        }
    })
    .await;
    for round in 0..ROUNDS {
        let winners = results.iter().filter(|won| won[round]).count();
        assert_eq!(winners, 1, "round {round}");
    }
}

pub async fn threads_with_different_keys_all_win(fixture: ClaimFixture) {
    let (lock, namespace) = (fixture.lock.clone(), fixture.namespace().to_owned());
    let results = run_threads(THREADS, move |thread| {
        let (lock, request) = (lock.clone(), request(&namespace, &thread.to_string()));
        async move { wins(&*lock, request).await }
    })
    .await;
    assert_eq!(results, vec![true; THREADS]);
}

pub async fn expired_lease_is_taken_over_by_one_of_twenty(fixture: ClaimFixture) {
    for round in 0..10 {
        let name = format!("key-{round}");
        let first = fixture.grant(&name).await;
        fixture.advance(LEASE).await;
        let (lock, namespace) = (fixture.lock.clone(), fixture.namespace().to_owned());
        let claims = run_threads(20, move |_| {
            let (lock, request) = (lock.clone(), request(&namespace, &name));
            async move { lock.claim(request).await.unwrap() }
        })
        .await;
        let mut winners = 0;
        for claim in claims {
            if let Claim::Claimed(grant) = &claim {
                winners += 1;
                assert_eq!(grant.operation, first.operation);
                assert!(grant.fence > first.fence);
            } else {
                expect_retry_after(claim);
            }
        }
        assert_eq!(winners, 1, "round {round}");
    }
}

pub async fn takeover_and_late_completion_never_both_succeed(fixture: ClaimFixture) {
    for round in 0..20 {
        let name = format!("key-{round}");
        let grant = fixture.grant(&name).await;
        fixture.advance(LEASE).await;
        let (lock, namespace) = (fixture.lock.clone(), fixture.namespace().to_owned());
        let completion = fixture.completion(&name, grant.token, b"late");
        let takeover = request(&namespace, &name);
        let results = run_threads(2, move |thread| {
            let (lock, completion, takeover) = (lock.clone(), completion.clone(), takeover.clone());
            async move {
                if thread == 0 {
                    lock.complete(completion).await.unwrap() == ClaimUpdate::Applied
                } else {
                    wins(&*lock, takeover).await
                }
            }
        })
        .await;
        assert_ne!(results[0], results[1], "round {round}: completed {}", results[0]);
        if results[0] {
            assert_eq!(expect_completed(fixture.claim(&name).await).result.as_ref(), b"late");
        } else {
            let retry_after = expect_retry_after(fixture.claim(&name).await);
            assert!(retry_after > Duration::ZERO);
        }
    }
}

pub async fn concurrent_completions_with_one_token_all_succeed(fixture: ClaimFixture) {
    for round in 0..10 {
        let name = format!("key-{round}");
        let grant = fixture.grant(&name).await;
        let lock = fixture.lock.clone();
        let completions: Vec<_> =
            (0..8_u8).map(|thread| fixture.completion(&name, grant.token, &[thread])).collect();
        // The answer to each may have been lost before, so none may be called stale.
        let results = run_threads(8, move |thread| {
            let (lock, completion) = (lock.clone(), completions[thread].clone());
            async move { lock.complete(completion).await }
        })
        .await;
        assert_eq!(results, vec![Ok(ClaimUpdate::Applied); 8], "round {round}");
        let first = expect_completed(fixture.claim(&name).await).result;
        assert_eq!(expect_completed(fixture.claim(&name).await).result, first);
    }
}

pub async fn concurrent_batches_claim_each_key_once(fixture: ClaimFixture) {
    for round in 0..5 {
        let (lock, namespace) = (fixture.lock.clone(), fixture.namespace().to_owned());
        // In different orders: a backend that locks rows must not deadlock.
        let results = run_threads(8, move |thread| {
            let mut requests: Vec<_> = (0..BATCH_MAX)
                .map(|number| request(&namespace, &format!("key-{round}-{number}")))
                .collect();
            requests.rotate_left(thread * 12);
            if thread % 2 == 1 {
                requests.reverse();
            }
            let lock = lock.clone();
            async move {
                let claims = lock.claim_many(requests).await.into_iter().map(Result::unwrap);
                claims.filter(|claim| matches!(claim, Claim::Claimed(_))).count()
            }
        })
        .await;
        assert_eq!(results.iter().sum::<usize>(), BATCH_MAX, "round {round}");
    }
}
