//! The connection to Redis: a single server, the primary that Sentinel names, or a cluster.
//!
//! All callers share one connection, which sends their commands without waiting for answers. It is
//! opened when it is needed and opened again when it breaks.

use std::{
    fmt,
    sync::{Arc, PoisonError, RwLock},
    time::{Duration, Instant},
};

use redis::{
    AsyncConnectionConfig, Client, Cmd, FromRedisValue, IntoConnectionInfo as _, ProtocolVersion,
    RedisConnectionInfo, RedisError, RedisFuture, RedisResult, ScriptInvocation, ServerErrorKind,
    Value,
    aio::MultiplexedConnection,
    cluster::ClusterClient,
    cluster_async::ClusterConnection,
    sentinel::{SentinelClient, SentinelNodeConnectionInfo, SentinelServerType},
};
use tokio::sync::Mutex;

use crate::DedupError;

/// A server that could not be reached is not tried again for this long.
const RECONNECT_DELAY: Duration = Duration::from_millis(100);

/// How Redis is deployed, with the client for it.
#[derive(Clone)]
pub(super) enum RedisTopology {
    Single(Box<Client>),
    Sentinel(Arc<Mutex<SentinelClient>>),
    Cluster(Box<ClusterClient>),
}

pub(super) fn single(url: &str) -> RedisResult<RedisTopology> {
    let info = url.into_connection_info()?;
    let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
    Client::open(info.set_redis_settings(settings)).map(Box::new).map(RedisTopology::Single)
}

pub(super) fn sentinel(
    sentinel_urls: &[&str],
    primary_name: &str,
    node: RedisConnectionInfo,
) -> RedisResult<RedisTopology> {
    let node = node.set_protocol(ProtocolVersion::RESP3);
    let client = SentinelClient::build(
        sentinel_urls.to_vec(),
        String::from(primary_name),
        Some(SentinelNodeConnectionInfo::default().set_redis_connection_info(node)),
        SentinelServerType::Master,
    )?;
    Ok(RedisTopology::Sentinel(Arc::new(Mutex::new(client))))
}

pub(super) fn cluster(node_urls: &[&str], timeout: Duration) -> RedisResult<RedisTopology> {
    let client = ClusterClient::builder(node_urls.to_vec())
        .use_protocol(ProtocolVersion::RESP3)
        .connection_timeout(timeout)
        .response_timeout(timeout)
        .build()?;
    Ok(RedisTopology::Cluster(Box::new(client)))
}

/// An open connection of either kind.
#[derive(Clone)]
pub(super) enum RedisChannel {
    Server(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl redis::aio::ConnectionLike for RedisChannel {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        match self {
            Self::Server(connection) => connection.req_packed_command(command),
            Self::Cluster(connection) => connection.req_packed_command(command),
        }
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a redis::Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        match self {
            Self::Server(connection) => connection.req_packed_commands(pipeline, offset, count),
            Self::Cluster(connection) => connection.req_packed_commands(pipeline, offset, count),
        }
    }

    fn get_db(&self) -> i64 {
        match self {
            Self::Server(connection) => connection.get_db(),
            Self::Cluster(connection) => connection.get_db(),
        }
    }
}

/// Why there is no connection, since when.
struct ConnectFailure {
    text: String,
    at: Instant,
}

struct LinkState {
    topology: RedisTopology,
    timeout: Duration,
    /// The open connection and its number.
    open: RwLock<Option<(u64, RedisChannel)>>,
    /// Held while connecting.
    connecting: Mutex<ConnectProgress>,
}

#[derive(Default)]
struct ConnectProgress {
    opened: u64,
    failure: Option<ConnectFailure>,
}

/// The shared connection of a lock or a fast tier.
#[derive(Clone)]
pub(crate) struct RedisLink(Arc<LinkState>);

impl fmt::Debug for RedisLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RedisLink")
    }
}

impl RedisLink {
    pub(super) fn new(topology: RedisTopology, timeout: Duration) -> Self {
        let (open, connecting) = (RwLock::new(None), Mutex::default());
        Self(Arc::new(LinkState { topology, timeout, open, connecting }))
    }

    /// Runs a command.
    #[cfg(feature = "two-tier")]
    pub(crate) async fn run<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, DedupError> {
        let (number, mut channel) = self.channel().await?;
        let answer = self.limit(command.query_async(&mut channel)).await;
        answer.map_err(|error| self.handle_error(number, &error))
    }

    pub(super) async fn invoke<T: FromRedisValue>(
        &self,
        script: &ScriptInvocation<'_>,
    ) -> Result<T, DedupError> {
        let (number, mut channel) = self.channel().await?;
        let answer = self.limit(script.invoke_async(&mut channel)).await;
        answer.map_err(|error| self.handle_error(number, &error))
    }

    async fn limit<T>(&self, work: impl Future<Output = RedisResult<T>>) -> RedisResult<T> {
        let timeout = tokio::time::timeout(self.0.timeout, work);
        timeout.await.unwrap_or_else(|_| Err(timeout_error()))
    }

    fn open_channel(&self) -> Option<(u64, RedisChannel)> {
        self.0.open.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn channel(&self) -> Result<(u64, RedisChannel), DedupError> {
        if let Some(channel) = self.open_channel() {
            return Ok(channel);
        }
        // In a task of its own: if the caller gives up, the connection is there for the next one.
        let link = self.clone();
        let connect = tokio::spawn(async move { link.connect().await });
        connect.await.map_err(|_| DedupError::Unavailable("the runtime is stopping".to_owned()))?
    }

    async fn connect(&self) -> Result<(u64, RedisChannel), DedupError> {
        let mut progress = self.0.connecting.lock().await;
        if let Some(channel) = self.open_channel() {
            return Ok(channel);
        }
        if let Some(failure) = &progress.failure
            && failure.at.elapsed() < RECONNECT_DELAY
        {
            return Err(DedupError::Unavailable(failure.text.clone()));
        }
        match self.limit(self.open_new()).await {
            Ok(channel) => {
                progress.opened += 1;
                progress.failure = None;
                let opened = (progress.opened, channel);
                *self.0.open.write().unwrap_or_else(PoisonError::into_inner) = Some(opened.clone());
                Ok(opened)
            }
            Err(error) => {
                let text = format!("cannot connect to Redis: {error}");
                progress.failure = Some(ConnectFailure { text: text.clone(), at: Instant::now() });
                Err(DedupError::Unavailable(text))
            }
        }
    }

    async fn open_new(&self) -> RedisResult<RedisChannel> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.0.timeout))
            .set_response_timeout(Some(self.0.timeout));
        match &self.0.topology {
            RedisTopology::Single(client) => client
                .get_multiplexed_async_connection_with_config(&config)
                .await
                .map(RedisChannel::Server),
            RedisTopology::Sentinel(client) => client
                .lock()
                .await
                .get_async_connection_with_config(&config)
                .await
                .map(RedisChannel::Server),
            RedisTopology::Cluster(client) => {
                client.get_async_connection().await.map(RedisChannel::Cluster)
            }
        }
    }

    /// Converts an error, and drops the connection with this number if it is broken or leads to a server
    /// that is no longer the primary.
    fn handle_error(&self, number: u64, error: &RedisError) -> DedupError {
        let is_broken = error.is_io_error()
            || error.is_timeout()
            || error.is_unrecoverable_error()
            || matches!(
                error.kind(),
                redis::ErrorKind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown)
            );
        if is_broken {
            let mut open = self.0.open.write().unwrap_or_else(PoisonError::into_inner);
            if open.as_ref().is_some_and(|(current, _)| *current == number) {
                *open = None;
            }
        }
        DedupError::Unavailable(format!("Redis: {error}"))
    }
}

fn timeout_error() -> RedisError {
    std::io::Error::new(std::io::ErrorKind::TimedOut, "no answer in time").into()
}
