//! Claims in a PostgreSQL table.

mod combiner;
#[cfg(feature = "postgres-rustls")]
mod rustls_connect;
mod session;
mod statements;

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use data_encoding::HEXLOWER;
use surehook_types::{rng::Rng, time::Timestamp};
use tokio_postgres::{Config, NoTls, Row};

#[cfg(feature = "postgres-rustls")]
pub use self::rustls_connect::RustlsConnector;
use self::{
    combiner::StepCombiner,
    session::{OpenConnection, SessionPool},
};
use crate::{
    DedupError, DedupLock, DurableDedupLock, Fingerprint, StoreEpoch, ThreadRandom,
    batch::BatchPlan,
    claim::{
        Claim, ClaimGrant, ClaimKey, ClaimOperation, ClaimRequest, ClaimToken, ClaimUpdate,
        CompletedClaim, CompletionRequest, check_lease,
    },
};

/// Number of granted claims after which expired keys are removed.
const CLAIMS_PER_PRUNE: usize = 128;
/// Number of expired keys that are removed at a time: more than were added since the last time.
const KEYS_PER_PRUNE: i64 = 512;
/// Maximum number of statements for one claim. A statement is repeated if a concurrent transaction
/// changed the key first; that transaction has made progress.
const CLAIM_STATEMENTS_MAX: usize = 20;

/// How a [`PostgresDedupLock`] connects.
pub struct PostgresDedupConfig {
    config: Config,
    opener: Box<dyn OpenConnection>,
    connections: usize,
    timeout: Duration,
    rng: Arc<dyn Rng>,
}

impl fmt::Debug for PostgresDedupConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresDedupConfig")
            .field("connections", &self.connections)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

impl PostgresDedupConfig {
    /// A server without TLS. The tables are created in the first schema of the role's `search_path`.
    /// With `target_session_attrs=read-write` and several hosts, the primary is found again after a
    /// failover.
    pub fn new(config: Config) -> Self {
        Self::with_opener(config, Box::new(NoTls))
    }

    /// A server with TLS. `sslmode=require` in the configuration refuses servers without.
    #[cfg(feature = "postgres-rustls")]
    pub fn with_rustls(config: Config, tls: Arc<rustls::ClientConfig>) -> Self {
        Self::with_opener(config, Box::new(RustlsConnector::new(tls)))
    }

    fn with_opener(config: Config, opener: Box<dyn OpenConnection>) -> Self {
        let (connections, timeout) = (8, Duration::from_secs(5));
        Self { config, opener, connections, timeout, rng: Arc::new(ThreadRandom) }
    }

    /// Maximum number of connections. Default: 8.
    #[must_use]
    pub fn connections(mut self, connections: usize) -> Self {
        self.connections = connections;
        self
    }

    /// How long a step may take, and how long connecting may take; 5 s unless set.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The source of tokens and ids. Default: the random numbers of the process.
    #[must_use]
    pub fn rng(mut self, rng: Arc<dyn Rng>) -> Self {
        self.rng = rng;
        self
    }
}

/// A [`DedupLock`] in a PostgreSQL table.
///
/// - **Durable** as the server is: `Ok` means committed with `synchronous_commit = on`, or as the role
///   has it if that is more. With asynchronous standbys a failover may lose the last commits.
/// - Times are by the clock of the database: those of the callers do not matter.
/// - A claim that finds the key settled only reads. Steps that wait for a connection are combined in one
///   statement and share its commit.
/// - The epoch changes by itself when a standby is promoted, after a recovery to a point in time, and
///   when a dump is restored to another cluster. After a dump is restored to the same cluster, call
///   [`renew_epoch`](DurableDedupLock::renew_epoch).
/// - Expired keys are removed in the background; [`prune`](Self::prune) does it at once.
/// - It works as long as the tokio runtime runs in which it was connected.
#[derive(Clone)]
pub struct PostgresDedupLock {
    runner: Arc<StepRunner>,
    claims: StepCombiner<ClaimRequest, Claim>,
    completions: StepCombiner<CompletionRequest, ClaimUpdate>,
}

/// Runs claims and completions, one statement for several keys.
struct StepRunner {
    pool: SessionPool,
    rng: Arc<dyn Rng>,
    granted_count: AtomicUsize,
}

impl fmt::Debug for PostgresDedupLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PostgresDedupLock")
    }
}

fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

fn duration(millis: i64) -> Duration {
    Duration::from_millis(u64::try_from(millis).unwrap_or(0))
}

/// A requested claim, with the ids it gets if it is granted.
struct ClaimAttempt<'a> {
    request: &'a ClaimRequest,
    token: ClaimToken,
    operation: [u8; 16],
}

impl PostgresDedupLock {
    /// Creates the tables if they are missing.
    pub async fn connect(config: PostgresDedupConfig) -> Result<Self, DedupError> {
        let PostgresDedupConfig { config, opener, connections, timeout, rng } = config;
        let pool = SessionPool::new(config, opener, connections, timeout);
        let epoch = HEXLOWER.encode(&rng.next_u128().to_be_bytes());
        pool.run_setup(&statements::setup_script(&epoch)).await?;
        let runner = Arc::new(StepRunner { pool, rng, granted_count: AtomicUsize::new(0) });
        let workers = connections.div_ceil(2);
        let claim_runner = runner.clone();
        let claims = StepCombiner::start(workers, move |requests| {
            let runner = claim_runner.clone();
            async move { runner.claim_all(&requests).await }
        });
        let completion_runner = runner.clone();
        let completions = StepCombiner::start(workers, move |requests| {
            let runner = completion_runner.clone();
            async move { runner.complete_all(&requests).await }
        });
        Ok(Self { runner, claims, completions })
    }

    /// Removes at most `max` keys whose ttl has ended; returns how many.
    pub async fn prune(&self, max: i64) -> Result<u64, DedupError> {
        self.runner.prune(max).await
    }
}

impl StepRunner {
    async fn prune(&self, max: i64) -> Result<u64, DedupError> {
        self.pool
            .run(|session| async move { session.client.execute(&session.steps.prune, &[&max]).await })
            .await
    }

    /// All claims, one statement for those of distinct keys.
    async fn claim_all(
        self: &Arc<Self>,
        requests: &[ClaimRequest],
    ) -> Vec<Result<Claim, DedupError>> {
        let mut plan = BatchPlan::new(requests, |request| &request.key, ClaimRequest::check);
        for round in std::mem::take(&mut plan.rounds) {
            let distinct: Vec<_> = round.iter().map(|index| &requests[*index]).collect();
            let result = self.claim_distinct(&distinct).await;
            if let Ok(claims) = &result {
                let granted = claims.iter().filter(|claim| matches!(claim, Claim::Claimed(_)));
                self.count_granted(granted.count());
            }
            plan.answer(&round, split_result(result, round.len()));
        }
        plan.finish()
    }

    /// All completions, one statement for those of distinct keys.
    async fn complete_all(
        &self,
        requests: &[CompletionRequest],
    ) -> Vec<Result<ClaimUpdate, DedupError>> {
        let mut plan = BatchPlan::new(requests, |request| &request.key, CompletionRequest::check);
        for round in std::mem::take(&mut plan.rounds) {
            let distinct: Vec<_> = round.iter().map(|index| &requests[*index]).collect();
            let result = self.complete_distinct(&distinct).await;
            plan.answer(&round, split_result(result, round.len()));
        }
        plan.finish()
    }

    /// Counts granted claims, and removes expired keys from time to time.
    fn count_granted(self: &Arc<Self>, granted: usize) {
        let before = self.granted_count.fetch_add(granted, Ordering::Relaxed);
        if before / CLAIMS_PER_PRUNE != (before + granted) / CLAIMS_PER_PRUNE {
            let runner = self.clone();
            tokio::spawn(async move {
                // A failure does not matter: the next removal comes soon.
                drop(runner.prune(KEYS_PER_PRUNE).await);
            });
        }
    }

    /// Claims distinct keys; answers in their order.
    async fn claim_distinct(&self, requests: &[&ClaimRequest]) -> Result<Vec<Claim>, DedupError> {
        let mut claims: Vec<Option<Claim>> = vec![None; requests.len()];
        for _ in 0..CLAIM_STATEMENTS_MAX {
            let undecided: Vec<usize> =
                (0..requests.len()).filter(|index| claims[*index].is_none()).collect();
            if undecided.is_empty() {
                break;
            }
            let attempts: Vec<_> =
                undecided.iter().map(|index| self.new_attempt(requests[*index])).collect();
            let rows = self.run_claim(&attempts).await?;
            let by_key: HashMap<(&str, &str), usize> = attempts
                .iter()
                .enumerate()
                .map(|(position, attempt)| {
                    ((attempt.request.key.namespace(), attempt.request.key.name()), position)
                })
                .collect();
            for row in &rows {
                if let Some(position) = by_key.get(&(row.get("namespace"), row.get("name"))) {
                    claims[undecided[*position]] = Some(read_claim(row, &attempts[*position])?);
                }
            }
        }
        let claims: Option<Vec<_>> = claims.into_iter().collect();
        claims.ok_or_else(|| DedupError::Unavailable("a key changes too often".to_owned()))
    }

    fn new_attempt<'a>(&self, request: &'a ClaimRequest) -> ClaimAttempt<'a> {
        ClaimAttempt {
            request,
            token: ClaimToken::from_bytes(self.rng.next_u128().to_be_bytes()),
            operation: self.rng.next_u128().to_be_bytes(),
        }
    }

    async fn run_claim(&self, attempts: &[ClaimAttempt<'_>]) -> Result<Vec<Row>, DedupError> {
        let namespaces: Vec<_> =
            attempts.iter().map(|attempt| attempt.request.key.namespace()).collect();
        let names: Vec<_> = attempts.iter().map(|attempt| attempt.request.key.name()).collect();
        let fingerprints: Vec<Option<&[u8]>> = attempts
            .iter()
            .map(|attempt| attempt.request.fingerprint.as_ref().map(|bytes| &bytes.as_bytes()[..]))
            .collect();
        let leases: Vec<_> = attempts.iter().map(|attempt| millis(attempt.request.lease)).collect();
        let ttls: Vec<_> = attempts.iter().map(|attempt| millis(attempt.request.ttl)).collect();
        let tokens: Vec<_> = attempts.iter().map(|attempt| &attempt.token.as_bytes()[..]).collect();
        let operations: Vec<_> = attempts.iter().map(|attempt| &attempt.operation[..]).collect();
        let run = self.pool.run(|session| async move {
            session
                .client
                .query(
                    &session.steps.claim,
                    &[&namespaces, &names, &fingerprints, &leases, &ttls, &tokens, &operations],
                )
                .await
        });
        run.await
    }

    /// Completes claims of distinct keys; answers in their order.
    async fn complete_distinct(
        &self,
        requests: &[&CompletionRequest],
    ) -> Result<Vec<ClaimUpdate>, DedupError> {
        let namespaces: Vec<_> = requests.iter().map(|request| request.key.namespace()).collect();
        let names: Vec<_> = requests.iter().map(|request| request.key.name()).collect();
        let tokens: Vec<_> = requests.iter().map(|request| &request.token.as_bytes()[..]).collect();
        let results: Vec<_> = requests.iter().map(|request| request.result.as_ref()).collect();
        let ttls: Vec<_> = requests.iter().map(|request| millis(request.ttl)).collect();
        let run = self.pool.run(|session| async move {
            let values = [&namespaces as _, &names as _, &tokens as _, &results as _, &ttls as _];
            let mut rows = session.client.query(&session.steps.complete, &values).await?;
            // The others may have been completed by an earlier call, even by one that ran until now, which
            // the statement before does not see.
            if rows.len() < requests.len() {
                let values = [&namespaces as _, &names as _, &tokens as _];
                rows.extend(session.client.query(&session.steps.find_completed, &values).await?);
            }
            Ok(rows)
        });
        let rows = run.await?;
        let applied: Vec<(&str, &str)> =
            rows.iter().map(|row| (row.get("namespace"), row.get("name"))).collect();
        let update = |request: &&CompletionRequest| {
            let key = (request.key.namespace(), request.key.name());
            if applied.contains(&key) { ClaimUpdate::Applied } else { ClaimUpdate::StaleToken }
        };
        Ok(requests.iter().map(update).collect())
    }
}

fn read_array<const N: usize>(row: &Row, column: &str) -> Result<[u8; N], DedupError> {
    let bytes: &[u8] = row.get(column);
    bytes.try_into().map_err(|_| DedupError::Corrupt(format!("a value has {} bytes", bytes.len())))
}

fn read_claim(row: &Row, attempt: &ClaimAttempt<'_>) -> Result<Claim, DedupError> {
    let operation = ClaimOperation {
        id: read_array(row, "operation")?,
        started_at: Timestamp::from_millis(row.get("started_at")),
    };
    let fence = u64::try_from(row.get::<_, i64>("fence")).unwrap_or(0);
    if row.get("granted") {
        let is_resumed = operation.id != attempt.operation;
        return Ok(Claim::Claimed(ClaimGrant {
            token: attempt.token,
            fence,
            operation,
            is_resumed,
        }));
    }
    if row.get("differs") {
        return Ok(Claim::OtherFingerprint);
    }
    if row.get::<_, i16>("state") == statements::IN_PROGRESS {
        let retry_after = duration(row.get("lease_rest")).max(Duration::from_millis(1));
        return Ok(Claim::InProgress { retry_after });
    }
    Ok(Claim::Completed(CompletedClaim {
        result: Bytes::copy_from_slice(row.get::<_, Option<&[u8]>>("result").unwrap_or_default()),
        fence,
        operation,
        completed_at: Timestamp::from_millis(row.get("completed_at")),
        expires_in: duration(row.get("expires_in")),
    }))
}

/// Splits the result of one statement into a result for each of its requests.
fn split_result<T: Clone>(
    result: Result<Vec<T>, DedupError>,
    requests: usize,
) -> Vec<Result<T, DedupError>> {
    match result {
        Ok(values) => values.into_iter().map(Ok).collect(),
        Err(error) => vec![Err(error); requests],
    }
}

fn claim_update(rows: u64) -> ClaimUpdate {
    if rows > 0 { ClaimUpdate::Applied } else { ClaimUpdate::StaleToken }
}

#[async_trait]
impl DedupLock for PostgresDedupLock {
    async fn claim(&self, request: ClaimRequest) -> Result<Claim, DedupError> {
        request.check()?;
        self.claims.submit(request).await
    }

    async fn extend(
        &self,
        key: &ClaimKey,
        token: ClaimToken,
        lease: Duration,
    ) -> Result<ClaimUpdate, DedupError> {
        check_lease(lease)?;
        let run = self.runner.pool.run(|session| async move {
            let (token, lease) = (&token.as_bytes()[..], millis(lease));
            let values = [&key.namespace() as _, &key.name() as _, &token as _, &lease as _];
            session.client.execute(&session.steps.extend, &values).await
        });
        run.await.map(claim_update)
    }

    async fn complete(&self, request: CompletionRequest) -> Result<ClaimUpdate, DedupError> {
        request.check()?;
        self.completions.submit(request).await
    }

    async fn release(&self, key: &ClaimKey, token: ClaimToken) -> Result<ClaimUpdate, DedupError> {
        let run = self.runner.pool.run(|session| async move {
            let token = &token.as_bytes()[..];
            let values = [&key.namespace() as _, &key.name() as _, &token as _];
            session.client.execute(&session.steps.release, &values).await
        });
        run.await.map(claim_update)
    }

    /// One statement for all distinct keys.
    async fn claim_many(&self, requests: Vec<ClaimRequest>) -> Vec<Result<Claim, DedupError>> {
        self.runner.claim_all(&requests).await
    }

    /// One statement for all distinct keys.
    async fn complete_many(
        &self,
        requests: Vec<CompletionRequest>,
    ) -> Vec<Result<ClaimUpdate, DedupError>> {
        self.runner.complete_all(&requests).await
    }
}

#[async_trait]
impl DurableDedupLock for PostgresDedupLock {
    async fn epoch(&self) -> Result<StoreEpoch, DedupError> {
        let run = self.runner.pool.run(|session| async move {
            let stored = session.client.query_one(statements::EPOCH, &[]).await?;
            // Some hosted servers do not show their timeline: there, only the stored id counts.
            let timeline = session.client.query_one(statements::TIMELINE, &[]).await;
            let timeline = timeline.map_or_else(|_| String::new(), |row| row.get(0));
            Ok((stored.get::<_, Vec<u8>>(0), timeline))
        });
        let (stored, timeline) = run.await?;
        let hash = Fingerprint::of(&[&stored, timeline.as_bytes()]);
        let mut epoch = [0; 16];
        epoch.copy_from_slice(&hash.as_bytes()[..16]);
        Ok(StoreEpoch::from_bytes(epoch))
    }

    async fn renew_epoch(&self) -> Result<StoreEpoch, DedupError> {
        let stored = self.runner.rng.next_u128().to_be_bytes();
        let run = self.runner.pool.run(|session| async move {
            session.client.execute(statements::RENEW_EPOCH, &[&&stored[..]]).await
        });
        run.await?;
        self.epoch().await
    }
}
