//! The PostgreSQL backend on a real server.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use data_encoding::BASE64;
use rustls::{ClientConfig, RootCertStore, crypto::ring};
use surehook_dedup::{
    Claim, ClaimKey, ClaimRequest, ClaimUpdate, CompletionRequest, DedupError, DedupLock,
    DurableDedupLock, PostgresDedupConfig, PostgresDedupLock,
    conformance::{DedupHarness, run_suite},
};
use surehook_test_servers::TestPostgres;
use tokio_postgres::{Client, Config};

use super::support::eventually;

const MINUTE: Duration = Duration::from_secs(60);

struct PostgresHarness {
    server: TestPostgres,
    lock: PostgresDedupLock,
    client: Client,
}

impl PostgresHarness {
    async fn start() -> Option<Self> {
        let server = TestPostgres::start().await?;
        let lock = PostgresDedupLock::connect(PostgresDedupConfig::new(server.config()));
        let lock = lock.await.unwrap();
        let client = server.client().await;
        Some(Self { server, lock, client })
    }

    async fn count_rows(&self) -> i64 {
        let row = self.client.query_one("SELECT count(*) FROM surehook_dedup_claims", &[]);
        row.await.unwrap().get(0)
    }
}

#[async_trait]
impl DedupHarness for PostgresHarness {
    fn lock(&self) -> Arc<dyn DedupLock> {
        Arc::new(self.lock.clone())
    }

    /// The clock of a database cannot be moved: everything in it becomes older instead.
    async fn advance(&self, by: Duration) {
        let millis = i64::try_from(by.as_millis()).unwrap();
        let age = "UPDATE surehook_dedup_claims
                      SET lease_until = lease_until - $1, expires_at = expires_at - $1";
        self.client.execute(age, &[&millis]).await.unwrap();
    }

    async fn reopen(&self) -> Option<Arc<dyn DedupLock>> {
        let config = PostgresDedupConfig::new(self.server.config()).connections(1);
        Some(Arc::new(PostgresDedupLock::connect(config).await.unwrap()))
    }
}

#[test]
fn heavy_conformance_suite_passes_on_postgres() {
    run_suite(PostgresHarness::start);
}

fn request(name: &str) -> ClaimRequest {
    let key = ClaimKey::new("test", name).unwrap();
    ClaimRequest { key, fingerprint: None, lease: MINUTE, ttl: MINUTE * 2 }
}

async fn complete(lock: &PostgresDedupLock, name: &str) {
    let Claim::Claimed(grant) = lock.claim(request(name)).await.unwrap() else {
        panic!("{name} should be free")
    };
    let completion = CompletionRequest {
        key: request(name).key,
        token: grant.token,
        result: name.to_owned().into(),
        ttl: MINUTE * 2,
    };
    assert_eq!(lock.complete(completion).await, Ok(ClaimUpdate::Applied));
}

#[tokio::test]
async fn heavy_postgres_crash_keeps_completions_and_the_lock_reconnects() {
    let Some(mut harness) = PostgresHarness::start().await else { return };
    complete(&harness.lock, "done").await;
    let epoch = harness.lock.epoch().await.unwrap();
    harness.server.stop_at_once();
    let refused = harness.lock.claim(request("new")).await;
    assert!(matches!(refused, Err(DedupError::Unavailable(_))), "{refused:?}");
    harness.server.start_again().await;
    let claim = eventually("the lock is connected again", || async {
        harness.lock.claim(request("done")).await.ok()
    });
    assert!(matches!(claim.await, Claim::Completed(_)));
    // The same history: a crash is no restore.
    assert_eq!(harness.lock.epoch().await, Ok(epoch));
    let renewed = harness.lock.renew_epoch().await.unwrap();
    assert_ne!(renewed, epoch);
    assert_eq!(harness.lock.epoch().await, Ok(renewed));
}

#[tokio::test]
async fn heavy_blocked_row_is_reported_after_the_timeout_and_delays_no_reader() {
    let Some(server) = TestPostgres::start().await else { return };
    let config = PostgresDedupConfig::new(server.config())
        .connections(1)
        .timeout(Duration::from_millis(300));
    let lock = PostgresDedupLock::connect(config).await.unwrap();
    complete(&lock, "done").await;
    // The row is locked by another transaction that does not end.
    let blocker = server.client().await;
    let hold = "BEGIN; UPDATE surehook_dedup_claims SET fence = fence + 1, expires_at = 0";
    blocker.batch_execute(hold).await.unwrap();
    assert!(matches!(lock.claim(request("done")).await, Ok(Claim::Completed(_))), "only reads");
    blocker
        .batch_execute("COMMIT; BEGIN; UPDATE surehook_dedup_claims SET fence = fence + 1")
        .await
        .unwrap();
    let blocked = lock.claim(request("done")).await;
    assert!(matches!(blocked, Err(DedupError::Unavailable(_))), "{blocked:?}");
    blocker.batch_execute("ROLLBACK").await.unwrap();
    let claim = eventually("the key is free", || async { lock.claim(request("done")).await.ok() });
    assert!(matches!(claim.await, Claim::Claimed(_)));
}

#[tokio::test]
async fn heavy_postgres_forgets_expired_keys() {
    let Some(harness) = PostgresHarness::start().await else { return };
    for number in 0..10 {
        complete(&harness.lock, &format!("key-{number}")).await;
    }
    harness.advance(MINUTE * 2).await;
    complete(&harness.lock, "recent").await;
    assert_eq!(harness.lock.prune(6).await, Ok(6));
    assert_eq!(harness.lock.prune(100).await, Ok(4));
    assert_eq!(harness.count_rows().await, 1);
    // After enough claims it happens by itself.
    harness.advance(MINUTE * 2).await;
    for batch in 0..2 {
        let requests = (0..100).map(|number| request(&format!("{batch}-{number}"))).collect();
        assert!(harness.lock.claim_many(requests).await.iter().all(Result::is_ok));
    }
    eventually("the old key is removed", || async {
        (harness.count_rows().await == 200).then_some(())
    })
    .await;
}

#[tokio::test]
async fn heavy_postgres_session_syncs_commits_and_caches_no_plan_of_an_empty_table() {
    let Some(harness) = PostgresHarness::start().await else { return };
    // Notes the settings of each session that writes.
    let watch = "CREATE TABLE settings (value text);
        CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            INSERT INTO settings VALUES (current_setting('synchronous_commit') || ' '
                                         || current_setting('plan_cache_mode'));
            RETURN NULL;
        END $$;
        CREATE TRIGGER note AFTER INSERT OR UPDATE ON surehook_dedup_claims
            FOR EACH ROW EXECUTE FUNCTION note()";
    harness.client.batch_execute(watch).await.unwrap();
    harness.client.batch_execute("ALTER ROLE postgres SET synchronous_commit = off").await.unwrap();
    let config = PostgresDedupConfig::new(harness.server.config()).connections(1);
    let lock = PostgresDedupLock::connect(config).await.unwrap();
    complete(&lock, "strict").await;
    let settings = harness.client.query("SELECT DISTINCT value FROM settings", &[]).await.unwrap();
    let settings: Vec<&str> = settings.iter().map(|row| row.get(0)).collect();
    assert_eq!(settings, ["on force_custom_plan"]);
}

struct TestCertificate {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl TestCertificate {
    fn new() -> Self {
        let signed = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let key = signed.signing_key.serialize_der();
        Self { certificate: signed.cert.der().to_vec(), key }
    }

    /// Trusts only this certificate.
    fn client_config(&self) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone().into()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        Arc::new(builder.with_root_certificates(roots).with_no_client_auth())
    }
}

fn pem(label: &str, der: &[u8]) -> String {
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", BASE64.encode(der))
}

#[tokio::test]
async fn heavy_postgres_is_reached_over_tls_only_with_a_trusted_certificate() {
    let (trusted, other) = (TestCertificate::new(), TestCertificate::new());
    let server = TestPostgres::start_with_tls(
        pem("CERTIFICATE", &trusted.certificate),
        pem("PRIVATE KEY", &trusted.key),
    );
    let Some(server) = server.await else { return };
    let config: Config = format!(
        "host=localhost hostaddr=127.0.0.1 port={} user=postgres dbname=postgres sslmode=require",
        server.port()
    )
    .parse()
    .unwrap();
    let lock = PostgresDedupConfig::with_rustls(config.clone(), trusted.client_config());
    let lock = PostgresDedupLock::connect(lock).await.unwrap();
    complete(&lock, "key").await;
    let encrypted = "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
                      WHERE ssl AND query LIKE '%surehook_dedup_claims%'";
    let sessions: i64 = server.client().await.query_one(encrypted, &[]).await.unwrap().get(0);
    assert!(sessions > 0);

    for refused in [
        PostgresDedupConfig::with_rustls(config.clone(), other.client_config()),
        PostgresDedupConfig::new(config),
    ] {
        let refused = PostgresDedupLock::connect(refused).await;
        assert!(matches!(refused, Err(DedupError::Unavailable(_))), "{refused:?}");
    }
}
