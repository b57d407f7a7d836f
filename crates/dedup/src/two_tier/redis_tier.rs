//! A fast tier in Redis, shared by several processes.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;

use super::{CachedCompletion, FastTier};
use crate::{
    ClaimKey, DedupError,
    redis::{RedisDedupConfig, RedisLink},
};

/// A [`FastTier`] in Redis: one string per key, which expires with the completion.
///
/// Whatever happens to the server costs speed only; `maxmemory-policy allkeys-lru` is fine.
#[derive(Clone, Debug)]
pub struct RedisFastTier {
    link: RedisLink,
    prefix: Arc<str>,
}

impl RedisFastTier {
    /// A tier that connects when it is asked for the first time.
    pub fn new(config: RedisDedupConfig) -> Self {
        let prefix = config.key_prefix().into();
        Self { link: config.link(), prefix }
    }

    fn redis_key(&self, key: &ClaimKey) -> String {
        format!("{}:done:{key}", self.prefix)
    }
}

#[async_trait]
impl FastTier for RedisFastTier {
    async fn find(&self, key: &ClaimKey) -> Result<Option<CachedCompletion>, DedupError> {
        let mut command = redis::cmd("GET");
        command.arg(self.redis_key(key));
        let stored: Option<Vec<u8>> = self.link.run(&command).await?;
        Ok(stored.and_then(|bytes| CachedCompletion::decode(key, Bytes::from(bytes))))
    }

    async fn store(
        &self,
        key: &ClaimKey,
        completion: CachedCompletion,
        ttl: Duration,
    ) -> Result<(), DedupError> {
        let mut command = redis::cmd("SET");
        command.arg(self.redis_key(key)).arg(&completion.encode(key)[..]).arg("PX");
        command.arg(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX).max(1));
        self.link.run(&command).await
    }
}
