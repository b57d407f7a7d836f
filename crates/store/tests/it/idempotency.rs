//! The number of stored idempotency keys is bounded.

use std::time::Duration;

use surehook_core::idempotency::{
    IdempotencyClaim, IdempotencyKey, IdempotencyStore as _, IdempotentRequest, KEY_RETENTION,
    KEYS_MAX,
};

use crate::harness::{NOW, open, open_file};

#[tokio::test]
async fn keys_beyond_the_limit_are_refused_until_old_ones_expire() {
    let folder = tempfile::tempdir().unwrap();
    drop(open(folder.path()));
    let first_at = (NOW - Duration::from_secs(60)).as_millis();
    for (seq, at) in [(1, first_at), (i64::try_from(KEYS_MAX).unwrap(), NOW.as_millis())] {
        let sql = "INSERT INTO idempotency_results (seq, scope, key, request, seed, created_at)
                   VALUES (?1, zeroblob(32), ?1, zeroblob(32), zeroblob(16), ?2)";
        open_file(folder.path()).execute(sql, [seq, at]).unwrap();
    }
    let store = open(folder.path());
    let key = IdempotencyKey { scope: [1; 32], key: "new".to_owned() };
    let request = IdempotentRequest { at: NOW, seed: [1; 16] };

    assert_eq!(
        store.claim_key(key.clone(), [1; 32], request, request.at).await.unwrap(),
        IdempotencyClaim::Full
    );
    // The oldest key has expired.
    let later = IdempotentRequest { at: NOW + KEY_RETENTION - Duration::from_secs(60), ..request };
    assert_eq!(
        store.claim_key(key, [1; 32], later, later.at).await.unwrap(),
        IdempotencyClaim::Pending(later)
    );
}
