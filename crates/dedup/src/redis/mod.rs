//! Claims in Redis: a single server, Sentinel or Cluster.
//!
//! # What Redis cannot promise
//!
//! Redis answers before a write is on disk or on a replica. A claim or a result can be **lost** by a
//! failover before replication, by a restart with `appendfsync everysec` or without persistence, by
//! eviction (`maxmemory-policy` other than `noeviction`) and by `FLUSHALL`. The key is then free and the
//! work may be done twice; the fence still grows, because it continues at the current time. Use it
//! alone where that is acceptable, or as the fast tier in front of a durable backend, where losing it
//! costs speed only.

mod link;
mod scripts;

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::future::join_all;
use redis::{FromRedisValue, RedisConnectionInfo, RedisResult, Value};
use surehook_types::{rng::Rng, time::Timestamp};

pub(crate) use self::link::RedisLink;
use self::{link::RedisTopology, scripts::StepScripts};
use crate::{
    DedupError, DedupLock, ThreadRandom,
    batch::BatchPlan,
    claim::{
        Claim, ClaimGrant, ClaimKey, ClaimOperation, ClaimRequest, ClaimToken, ClaimUpdate,
        CompletedClaim, CompletionRequest, check_lease,
    },
};

/// How a [`RedisDedupLock`] connects.
#[derive(Clone)]
pub struct RedisDedupConfig {
    topology: RedisTopology,
    prefix: String,
    timeout: Duration,
    rng: Arc<dyn Rng>,
}

impl fmt::Debug for RedisDedupConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisDedupConfig")
            .field("prefix", &self.prefix)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

fn invalid(error: &redis::RedisError) -> DedupError {
    DedupError::Unavailable(format!("invalid address of Redis: {error}"))
}

impl RedisDedupConfig {
    /// One server: `redis://user:password@host:6379/0`, or `rediss://` with the feature `redis-rustls`.
    pub fn single(url: &str) -> Result<Self, DedupError> {
        link::single(url).map(Self::new).map_err(|error| invalid(&error))
    }

    /// The primary of `primary_name` as these Sentinels know it; `node` has the login and the database
    /// of the Redis servers.
    pub fn sentinel(
        sentinel_urls: &[&str],
        primary_name: &str,
        node: RedisConnectionInfo,
    ) -> Result<Self, DedupError> {
        let topology = link::sentinel(sentinel_urls, primary_name, node);
        topology.map(Self::new).map_err(|error| invalid(&error))
    }

    /// A cluster, found through any of its nodes.
    pub fn cluster(node_urls: &[&str]) -> Result<Self, DedupError> {
        let topology = link::cluster(node_urls, DEFAULT_TIMEOUT);
        topology.map(Self::new).map_err(|error| invalid(&error))
    }

    fn new(topology: RedisTopology) -> Self {
        let (prefix, rng) = ("surehook-dedup".to_owned(), Arc::new(ThreadRandom));
        Self { topology, prefix, timeout: DEFAULT_TIMEOUT, rng }
    }

    /// Prefix of the names of all keys in Redis; `surehook-dedup` unless set.
    #[must_use]
    pub fn prefix(mut self, prefix: &str) -> Self {
        prefix.clone_into(&mut self.prefix);
        self
    }

    /// How long a step may take, and how long connecting may take; 1 s unless set.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The random numbers, unless those of the process.
    #[must_use]
    pub fn rng(mut self, rng: Arc<dyn Rng>) -> Self {
        self.rng = rng;
        self
    }
}

#[cfg(feature = "two-tier")]
impl RedisDedupConfig {
    pub(crate) fn key_prefix(&self) -> &str {
        &self.prefix
    }

    pub(crate) fn link(self) -> RedisLink {
        RedisLink::new(self.topology, self.timeout)
    }
}

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(1);

/// A [`DedupLock`] in Redis. See the [module](self) for what it does not promise.
///
/// Needs Redis 7 or newer, or a server that is compatible with it. Nothing is sent before the first
/// step. Times are by the clock of Redis.
#[derive(Clone, Debug)]
pub struct RedisDedupLock {
    link: RedisLink,
    prefix: Arc<str>,
    scripts: Arc<StepScripts>,
    rng: Arc<dyn Rng>,
}

impl RedisDedupLock {
    /// A lock that connects with its first step.
    pub fn new(config: RedisDedupConfig) -> Self {
        let RedisDedupConfig { topology, prefix, timeout, rng } = config;
        Self {
            link: RedisLink::new(topology, timeout),
            prefix: prefix.into(),
            scripts: Arc::new(StepScripts::new()),
            rng,
        }
    }

    fn redis_key(&self, key: &ClaimKey) -> String {
        format!("{}:claim:{key}", self.prefix)
    }

    async fn claim_checked(&self, request: &ClaimRequest) -> Result<Claim, DedupError> {
        let token = ClaimToken::from_bytes(self.rng.next_u128().to_be_bytes());
        let operation = self.rng.next_u128().to_be_bytes();
        let fingerprint = request.fingerprint.as_ref().map(|value| &value.as_bytes()[..]);
        let mut script = self.scripts.claim.key(self.redis_key(&request.key));
        script
            .arg(millis(request.lease))
            .arg(millis(request.ttl))
            .arg(fingerprint.unwrap_or_default())
            .arg(token.as_bytes())
            .arg(&operation);
        let reply: Vec<Value> = self.link.invoke(&script).await?;
        read_claim(reply, token)
            .map_err(|error| DedupError::Corrupt(format!("{}: {error}", request.key)))
    }

    async fn complete_checked(
        &self,
        request: &CompletionRequest,
    ) -> Result<ClaimUpdate, DedupError> {
        let mut script = self.scripts.complete.key(self.redis_key(&request.key));
        script.arg(request.token.as_bytes()).arg(request.result.as_ref()).arg(millis(request.ttl));
        self.link.invoke(&script).await.map(update_of)
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

fn update_of(changed: bool) -> ClaimUpdate {
    if changed { ClaimUpdate::Applied } else { ClaimUpdate::StaleToken }
}

/// Takes the values of a reply one after the other.
struct ReplyReader(std::vec::IntoIter<Value>);

impl ReplyReader {
    fn next<T: FromRedisValue>(&mut self) -> RedisResult<T> {
        Ok(T::from_redis_value(self.0.next().unwrap_or(Value::Nil))?)
    }

    fn next_time(&mut self) -> RedisResult<Timestamp> {
        self.next().map(Timestamp::from_millis)
    }

    fn next_duration(&mut self) -> RedisResult<Duration> {
        let millis: i64 = self.next()?;
        Ok(Duration::from_millis(u64::try_from(millis).unwrap_or(0)))
    }

    fn next_operation(&mut self) -> RedisResult<ClaimOperation> {
        let bytes: Vec<u8> = self.next()?;
        let id = bytes.try_into().map_err(|_| wrong_reply("operation"))?;
        Ok(ClaimOperation { id, started_at: self.next_time()? })
    }
}

fn wrong_reply(what: &'static str) -> redis::RedisError {
    (redis::ErrorKind::Parse, "unexpected reply", what.to_owned()).into()
}

fn read_claim(reply: Vec<Value>, token: ClaimToken) -> RedisResult<Claim> {
    let mut reply = ReplyReader(reply.into_iter());
    let kind: String = reply.next()?;
    match kind.as_str() {
        "claimed" => Ok(Claim::Claimed(ClaimGrant {
            token,
            fence: reply.next()?,
            operation: reply.next_operation()?,
            is_resumed: reply.next()?,
        })),
        "in_progress" => Ok(Claim::InProgress {
            retry_after: reply.next_duration()?.max(Duration::from_millis(1)),
        }),
        "completed" => Ok(Claim::Completed(CompletedClaim {
            fence: reply.next()?,
            operation: reply.next_operation()?,
            completed_at: reply.next_time()?,
            expires_in: reply.next_duration()?,
            result: Bytes::from(reply.next::<Vec<u8>>()?),
        })),
        "other" => Ok(Claim::OtherFingerprint),
        _ => Err(wrong_reply("kind")),
    }
}

#[async_trait]
impl DedupLock for RedisDedupLock {
    async fn claim(&self, request: ClaimRequest) -> Result<Claim, DedupError> {
        request.check()?;
        self.claim_checked(&request).await
    }

    async fn extend(
        &self,
        key: &ClaimKey,
        token: ClaimToken,
        lease: Duration,
    ) -> Result<ClaimUpdate, DedupError> {
        check_lease(lease)?;
        let mut script = self.scripts.extend.key(self.redis_key(key));
        script.arg(token.as_bytes()).arg(millis(lease));
        self.link.invoke(&script).await.map(update_of)
    }

    async fn complete(&self, request: CompletionRequest) -> Result<ClaimUpdate, DedupError> {
        request.check()?;
        self.complete_checked(&request).await
    }

    async fn release(&self, key: &ClaimKey, token: ClaimToken) -> Result<ClaimUpdate, DedupError> {
        let mut script = self.scripts.release.key(self.redis_key(key));
        script.arg(token.as_bytes());
        self.link.invoke(&script).await.map(update_of)
    }

    /// All distinct keys are sent without waiting for answers.
    async fn claim_many(&self, requests: Vec<ClaimRequest>) -> Vec<Result<Claim, DedupError>> {
        let mut plan = BatchPlan::new(&requests, |request| &request.key, ClaimRequest::check);
        for round in std::mem::take(&mut plan.rounds) {
            let claims = round.iter().map(|index| self.claim_checked(&requests[*index]));
            plan.answer(&round, join_all(claims).await);
        }
        plan.finish()
    }

    /// All distinct keys are sent without waiting for answers.
    async fn complete_many(
        &self,
        requests: Vec<CompletionRequest>,
    ) -> Vec<Result<ClaimUpdate, DedupError>> {
        let mut plan = BatchPlan::new(&requests, |request| &request.key, CompletionRequest::check);
        for round in std::mem::take(&mut plan.rounds) {
            let updates = round.iter().map(|index| self.complete_checked(&requests[*index]));
            plan.answer(&round, join_all(updates).await);
        }
        plan.finish()
    }
}
