//! The SQLite backend: the suite on a real file, and what only a file has.

use std::{path::PathBuf, sync::Arc, time::Duration};

use async_trait::async_trait;
use rusqlite::Connection;
use surehook_dedup::{
    Claim, ClaimKey, ClaimRequest, ClaimUpdate, CompletionRequest, DedupError, DedupLock,
    DurableDedupLock, SqliteDedupConfig, SqliteDedupLock,
    conformance::{CountingRng, DedupHarness, SteppedClock},
    sqlite::rules::{self, ClaimStatus},
};
use tempfile::TempDir;

pub(crate) struct SqliteHarness {
    folder: TempDir,
    pub(crate) lock: SqliteDedupLock,
    pub(crate) clock: Arc<SteppedClock>,
}

impl SqliteHarness {
    pub(crate) fn open() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(SteppedClock::default());
        let config = SqliteDedupConfig::new(folder.path().join("dedup.db"))
            .clock(clock.clone())
            .rng(Arc::new(CountingRng::default()));
        let lock = SqliteDedupLock::open(config).unwrap();
        Self { folder, lock, clock }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("dedup.db")
    }

    /// As another process would open it; its random numbers are its own.
    fn open_again(&self) -> SqliteDedupLock {
        let rng = Arc::new(surehook_dedup::ThreadRandom);
        let config = SqliteDedupConfig::new(self.path()).clock(self.clock.clone()).rng(rng);
        SqliteDedupLock::open(config).unwrap()
    }
}

#[async_trait]
impl DedupHarness for SqliteHarness {
    fn lock(&self) -> Arc<dyn DedupLock> {
        Arc::new(self.lock.clone())
    }

    async fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    async fn reopen(&self) -> Option<Arc<dyn DedupLock>> {
        Some(Arc::new(self.open_again()))
    }
}

async fn harness() -> Option<SqliteHarness> {
    Some(SqliteHarness::open())
}

surehook_dedup::dedup_conformance!(suite, harness);

const MINUTE: Duration = Duration::from_secs(60);

fn request(name: &str) -> ClaimRequest {
    let key = ClaimKey::new("test", name).unwrap();
    ClaimRequest { key, fingerprint: None, lease: MINUTE, ttl: MINUTE * 2 }
}

async fn complete(lock: &SqliteDedupLock, name: &str) {
    let Claim::Claimed(grant) = lock.claim(request(name)).await.unwrap() else {
        panic!("{name} should be free")
    };
    let key = request(name).key;
    let completion = CompletionRequest {
        key,
        token: grant.token,
        result: name.to_owned().into(),
        ttl: MINUTE * 2,
    };
    assert_eq!(lock.complete(completion).await, Ok(ClaimUpdate::Applied));
}

fn count_rows(harness: &SqliteHarness) -> u64 {
    let connection = Connection::open(harness.path()).unwrap();
    connection
        .query_row("SELECT count(*) FROM surehook_dedup_claims", [], |row| row.get(0))
        .unwrap()
}

#[tokio::test]
async fn expired_rows_are_removed_by_later_claims() {
    let harness = SqliteHarness::open();
    for number in 0..20 {
        complete(&harness.lock, &format!("old-{number}")).await;
    }
    harness.clock.advance(MINUTE * 2);
    for number in 0..20 {
        complete(&harness.lock, &format!("new-{number}")).await;
    }
    assert_eq!(count_rows(&harness), 20);
    harness.clock.advance(MINUTE * 2);
    assert_eq!(harness.lock.prune(15).await, Ok(15));
    assert!(harness.lock.prune(15).await.unwrap() <= 5);
    assert_eq!(count_rows(&harness), 0);
}

#[tokio::test]
async fn epoch_is_stored_in_the_file_and_renewed_on_request() {
    let harness = SqliteHarness::open();
    let first = harness.lock.epoch().await.unwrap();
    let other = harness.open_again();
    assert_eq!(other.epoch().await, Ok(first));
    let second = other.renew_epoch().await.unwrap();
    assert_ne!(first, second);
    assert_eq!(harness.lock.epoch().await, Ok(second));
}

#[tokio::test]
async fn locked_file_is_reported_and_nothing_takes_effect() {
    let harness = SqliteHarness::open();
    let config = SqliteDedupConfig::new(harness.path()).busy_timeout(Duration::from_millis(20));
    let lock = SqliteDedupLock::open(config).unwrap();
    let holder = Connection::open(harness.path()).unwrap();
    holder.execute_batch("BEGIN IMMEDIATE").unwrap();
    let refused = lock.claim(request("key")).await;
    assert!(matches!(refused, Err(DedupError::Unavailable(_))), "{refused:?}");
    holder.execute_batch("ROLLBACK").unwrap();
    assert!(matches!(lock.claim(request("key")).await, Ok(Claim::Claimed(_))));
}

#[tokio::test]
async fn unreadable_row_is_reported_and_others_are_answered() {
    let harness = SqliteHarness::open();
    complete(&harness.lock, "good").await;
    complete(&harness.lock, "damaged").await;
    let connection = Connection::open(harness.path()).unwrap();
    connection
        .execute("UPDATE surehook_dedup_claims SET token = x'00' WHERE name = 'damaged'", [])
        .unwrap();
    let damaged = harness.lock.claim(request("damaged")).await;
    assert!(matches!(damaged, Err(DedupError::Corrupt(_))), "{damaged:?}");
    assert!(matches!(harness.lock.claim(request("good")).await, Ok(Claim::Completed(_))));
}

#[tokio::test]
async fn file_of_a_newer_version_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dedup.db");
    Connection::open(&path).unwrap().pragma_update(None, "user_version", 99).unwrap();
    let refused = SqliteDedupLock::open(SqliteDedupConfig::new(&path)).unwrap_err();
    assert!(refused.to_string().contains("version 99"), "{refused}");
}

#[tokio::test]
async fn list_and_stats_show_each_state_in_key_order() {
    let harness = SqliteHarness::open();
    complete(&harness.lock, "c-done").await;
    assert!(matches!(harness.lock.claim(request("b-left")).await, Ok(Claim::Claimed(_))));
    harness.clock.advance(MINUTE);
    assert!(matches!(harness.lock.claim(request("a-held")).await, Ok(Claim::Claimed(_))));
    let Ok(Claim::Claimed(grant)) = harness.lock.claim(request("d-free")).await else {
        panic!("the key should be free")
    };
    let released = harness.lock.release(&request("d-free").key, grant.token).await;
    assert_eq!(released, Ok(ClaimUpdate::Applied));
    let elsewhere = ClaimKey::new("another", "key").unwrap();
    let request = ClaimRequest { key: elsewhere.clone(), ..request("x") };
    assert!(matches!(harness.lock.claim(request).await, Ok(Claim::Claimed(_))));

    let connection = Connection::open(harness.path()).unwrap();
    let now = surehook_dedup::Clock::now(&*harness.clock);
    let all = rules::list(&connection, None, None, now, 100).unwrap();
    assert_eq!(all[0].key, elsewhere);
    let names: Vec<_> = all[1..].iter().map(|listed| listed.key.name()).collect();
    assert_eq!(names, ["a-held", "b-left", "c-done", "d-free"]);
    assert!(matches!(all[1].status, ClaimStatus::InProgress { lease_until } if lease_until > now));
    assert!(matches!(all[2].status, ClaimStatus::Abandoned { lease_until } if lease_until <= now));
    assert!(matches!(all[3].status, ClaimStatus::Completed { result_bytes: 6, .. }));
    assert_eq!((all[4].status, all[4].fence), (ClaimStatus::Released, grant.fence));
    // One page after the other gives the same list.
    let mut paged = Vec::new();
    while let [next] =
        &rules::list(&connection, None, paged.last().map(|(_, key)| key), now, 1).unwrap()[..]
    {
        paged.push((next.status, next.key.clone()));
    }
    assert_eq!(paged.len(), all.len());
    assert_eq!(rules::list(&connection, Some("test"), None, now, 100).unwrap(), all[1..]);

    let stats = rules::stats(&connection, Some("test"), now).unwrap();
    let [stats] = &stats[..] else { panic!("one namespace") };
    let counts = (stats.in_progress, stats.abandoned, stats.completed, stats.released);
    assert_eq!((counts, stats.result_bytes), ((1, 1, 1, 1), 6));
    assert_eq!(rules::stats(&connection, None, now).unwrap().len(), 2);
}
