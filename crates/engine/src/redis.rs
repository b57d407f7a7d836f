//! Adds events to streams in Redis.
//!
//! One connection for each destination, opened by the [`GuardedConnector`] like every other and then
//! handed to the client: the client never looks up a name and never connects by itself. All attempts
//! share it, each waiting for its own reply. What breaks or hangs is given up as a whole, and the next
//! attempt opens anew.
//!
//! Whoever enters the server, and which database he takes, is said with plain commands of ours and not
//! by the client's own greeting: that one keeps from us what the server answered, and "too many
//! clients" is not "wrong password".
//!
//! `XADD` that was written and not answered may have been done. It is tried again, as it is with HTTP:
//! entries carry the id of their event, by which a consumer tells what it has seen.

mod bounded;

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use redis::{
    AsyncConnectionConfig, Cmd, ErrorKind, RedisConnectionInfo, RedisError, Value,
    aio::{ConnectionLike as _, MultiplexedConnection},
};
use rustls::{ClientConfig, pki_types::ServerName};
use surehook_core::{
    delivery::{AttemptFailure, FailureClass},
    destination::stream::{RedisLogin, RedisServer, RedisStream},
    store::ClaimedDelivery,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::{Instant, timeout},
};
use tokio_rustls::TlsConnector;
use tokio_util::task::AbortOnDropHandle;
use url::Host;

use self::bounded::{ReplyByteCounter, ReplyLimitedStream};
use crate::{
    connect::GuardedConnector,
    non_http::NonHttpResult,
    sender::{OPEN_TIMEOUT, POOL_IDLE_TIMEOUT, RESPONSE_BYTES_KEPT, failure::ExchangeError},
};

/// Adds to streams of one server.
pub(crate) struct StreamSender {
    server: RedisServer,
    connector: GuardedConnector,
    tls: Arc<ClientConfig>,
    line: Mutex<Option<RedisConnection>>,
    /// One opens, the others wait for it. When that failed last, and why.
    opening: tokio::sync::Mutex<Option<(Instant, NonHttpResult)>>,
}

impl fmt::Debug for StreamSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamSender").field("server", &self.server).finish_non_exhaustive()
    }
}

/// An open connection. The task that drives it ends with its last copy.
#[derive(Clone)]
struct RedisConnection {
    client: MultiplexedConnection,
    counter: ReplyByteCounter,
    driver: Arc<AbortOnDropHandle<()>>,
    used_at: Instant,
}

impl RedisConnection {
    fn is_usable(&self) -> bool {
        !self.driver.is_finished() && self.used_at.elapsed() < POOL_IDLE_TIMEOUT
    }

    async fn ask(&mut self, command: &Cmd) -> Result<Value, RedisError> {
        let reply = self.client.req_packed_command(command).await?;
        self.counter.start_over();
        reply.extract_error()
    }
}

impl StreamSender {
    /// Makes one without a connection yet.
    pub(crate) fn new(
        server: RedisServer,
        connector: GuardedConnector,
        tls: &ClientConfig,
    ) -> Self {
        // What HTTP agrees on in the handshake is nothing to Redis.
        let mut tls = tls.clone();
        tls.alpn_protocols.clear();
        let tls = Arc::new(tls);
        Self {
            server,
            connector,
            tls,
            line: Mutex::default(),
            opening: tokio::sync::Mutex::default(),
        }
    }

    /// Adds one event, within `deadline`.
    pub(crate) async fn add(
        &self,
        stream: &RedisStream,
        claimed: &ClaimedDelivery,
        deadline: Duration,
    ) -> NonHttpResult {
        let mut used = None;
        let adding = async {
            let line = used.insert(self.line().await?);
            Ok(line.ask(&entry(stream, claimed)).await)
        };
        let reply = timeout(deadline, adding).await.unwrap_or_else(|_| {
            Err(NonHttpResult::unanswered(
                AttemptFailure::Timeout,
                format!("no reply within {deadline:?}"),
            ))
        });
        let (ended, is_over) = match reply {
            Ok(Ok(Value::BulkString(id))) => return NonHttpResult::well(id),
            Ok(Ok(_)) => (not_redis(), true),
            Ok(Err(error)) => (meaning(&error), !is_refusal(&error) || leads_elsewhere(&error)),
            Err(ended) => (ended, true),
        };
        if let Some(line) = used.filter(|_| is_over) {
            self.give_up(&line);
        }
        ended
    }

    /// The connection, opened if there is none that can be used.
    async fn line(&self) -> Result<RedisConnection, NonHttpResult> {
        if let Some(line) = self.current() {
            return Ok(line);
        }
        let asked_at = Instant::now();
        let mut failed = self.opening.lock().await;
        if let Some(line) = self.current() {
            return Ok(line);
        }
        // Whoever waited while another one tried in vain has tried too.
        if let Some((at, ended)) = &*failed
            && *at >= asked_at
        {
            return Err(ended.clone());
        }
        let opened = timeout(OPEN_TIMEOUT, self.open()).await.unwrap_or_else(|_| {
            let detail = format!("the server was not ready within {OPEN_TIMEOUT:?}");
            Err(NonHttpResult::unanswered(AttemptFailure::Timeout, detail))
        });
        match opened {
            Ok(line) => {
                *self.slot() = Some(line.clone());
                Ok(line)
            }
            Err(ended) => {
                *failed = Some((Instant::now(), ended.clone()));
                Err(ended)
            }
        }
    }

    fn slot(&self) -> std::sync::MutexGuard<'_, Option<RedisConnection>> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn current(&self) -> Option<RedisConnection> {
        let mut slot = self.slot();
        let line = slot.as_mut().filter(|line| line.is_usable())?;
        line.used_at = Instant::now();
        Some(line.clone())
    }

    /// Nobody else takes this connection.
    fn give_up(&self, line: &RedisConnection) {
        let mut slot = self.slot();
        if slot.as_ref().is_some_and(|current| Arc::ptr_eq(&current.driver, &line.driver)) {
            *slot = None;
        }
    }

    async fn open(&self) -> Result<RedisConnection, NonHttpResult> {
        let RedisServer { is_tls, host, port, database, login } = &self.server;
        let stream = self.connector.dial(&host.to_string(), *port).await;
        let stream = stream.map_err(|error| broken(&error, AttemptFailure::Unreachable))?;
        let mut line = if *is_tls {
            let secured = self.secured(stream, host).await?;
            RedisConnection::start(secured).await
        } else {
            RedisConnection::start(stream).await
        }
        .map_err(|error| meaning(&error))?;
        if let Some(login) = login {
            line.enter(&auth(login)).await?;
        }
        if *database != 0 {
            line.enter(redis::cmd("SELECT").arg(*database)).await?;
        }
        Ok(line)
    }

    async fn secured(
        &self,
        stream: TcpStream,
        host: &Host,
    ) -> Result<tokio_rustls::client::TlsStream<TcpStream>, NonHttpResult> {
        let name = match host {
            Host::Domain(name) => ServerName::try_from(name.clone())
                .map_err(|error| broken(&error, AttemptFailure::Tls))?,
            Host::Ipv4(address) => ServerName::from(std::net::IpAddr::from(*address)),
            Host::Ipv6(address) => ServerName::from(std::net::IpAddr::from(*address)),
        };
        let shaken = TlsConnector::from(Arc::clone(&self.tls)).connect(name, stream).await;
        shaken.map_err(|error| broken(&error, AttemptFailure::Reset))
    }
}

impl RedisConnection {
    async fn start(
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> Result<Self, RedisError> {
        let (stream, counter) = ReplyLimitedStream::new(stream);
        // Nothing is said on opening, and every wait is bounded by us.
        let greeting = RedisConnectionInfo::default().set_skip_set_lib_name();
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let (client, driver) =
            MultiplexedConnection::new_with_config(&greeting, stream, config).await?;
        let driver = Arc::new(AbortOnDropHandle::new(tokio::spawn(driver)));
        Ok(Self { client, counter, driver, used_at: Instant::now() })
    }

    /// A command on the way in. What the server says to it is not repeated: it may hold a password.
    async fn enter(&mut self, command: &Cmd) -> Result<(), NonHttpResult> {
        match self.ask(command).await {
            Ok(_) => Ok(()),
            Err(error) => Err(meaning(&error).with_output(Vec::new())),
        }
    }
}

fn auth(login: &RedisLogin) -> Cmd {
    let mut command = redis::cmd("AUTH");
    if let Some(user) = &login.user {
        command.arg(user);
    }
    command.arg(login.password.expose());
    command
}

fn entry(stream: &RedisStream, claimed: &ClaimedDelivery) -> Cmd {
    let mut command = redis::cmd("XADD");
    command.arg(&stream.key);
    if let Some(most) = stream.max_length {
        // About so many: the server removes whole blocks, which costs it next to nothing.
        command.arg("MAXLEN").arg("~").arg(most);
    }
    command.arg("*");
    for (name, value) in RedisStream::fields(claimed) {
        command.arg(name).arg(&*value);
    }
    command
}

/// Whether the server itself said no, and the connection is fine.
fn is_refusal(error: &RedisError) -> bool {
    error.code().is_some()
}

/// Whether the server is not the one to write to any more; its name may lead to another by now.
fn leads_elsewhere(error: &RedisError) -> bool {
    matches!(error.code(), Some("READONLY" | "MASTERDOWN"))
}

/// What an error means.
fn meaning(error: &RedisError) -> NonHttpResult {
    let Some(code) = error.code() else {
        let is_parsed = error.kind() != ErrorKind::Parse;
        return if is_parsed { broken(error, AttemptFailure::Reset) } else { not_redis() };
    };
    let said = error.detail().unwrap_or_default();
    let (class, words) = refusal(code, said);
    let mut output = format!("{code} {said}").into_bytes();
    output.truncate(RESPONSE_BYTES_KEPT);
    NonHttpResult::badly(AttemptFailure::ErrorReply, class, words).with_output(output)
}

/// What the server's no means, by its first word.
fn refusal(code: &str, said: &str) -> (FailureClass, String) {
    let why = match code {
        "NOAUTH" => "it wants a password",
        // To those who have not entered it does not even listen to the end.
        "ERR" if said.contains("unauthenticated") => "it wants a password",
        "WRONGPASS" => "it does not take the user and password",
        "NOPERM" => "the user may not add to this stream",
        "DENIED" => "it talks only to its own machine",
        "WRONGTYPE" => "the key holds something else than a stream",
        "MOVED" | "ASK" => "another node of its cluster has the key; name that one",
        // All that has no word of its own: a command or a database that it does not have.
        "ERR" if !said.contains("max number of clients") => "it cannot do what it is asked for",
        _ => return (FailureClass::Transient, format!("Redis answered {}", word(code))),
    };
    (FailureClass::Config, format!("Redis answered {}: {why}", word(code)))
}

/// The first word of an error, as far as it can be shown.
fn word(code: &str) -> String {
    code.chars().filter(char::is_ascii_alphanumeric).take(32).collect()
}

fn not_redis() -> NonHttpResult {
    NonHttpResult::unanswered(AttemptFailure::Protocol, "the answer is not what Redis answers")
}

fn broken(error: &(dyn std::error::Error + 'static), otherwise: AttemptFailure) -> NonHttpResult {
    let ExchangeError { failure, detail, .. } = ExchangeError::from_chain(error, otherwise);
    NonHttpResult::unanswered(failure, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_redis_says_has_its_class() {
        let cases = [
            ("LOADING", "Redis is loading the dataset in memory", FailureClass::Transient),
            ("TRYAGAIN", "Multiple keys request during rehashing of slot", FailureClass::Transient),
            ("READONLY", "You can't write against a read only replica.", FailureClass::Transient),
            ("MASTERDOWN", "Link with MASTER is down", FailureClass::Transient),
            ("CLUSTERDOWN", "The cluster is down", FailureClass::Transient),
            ("OOM", "command not allowed when used memory > 'maxmemory'.", FailureClass::Transient),
            ("MISCONF", "Redis is configured to save RDB snapshots", FailureClass::Transient),
            ("BUSY", "Redis is busy running a script", FailureClass::Transient),
            ("NOREPLICAS", "Not enough good replicas to write.", FailureClass::Transient),
            ("ERR", "max number of clients reached", FailureClass::Transient),
            ("WHATEVER", "comes next", FailureClass::Transient),
            ("NOAUTH", "Authentication required.", FailureClass::Config),
            ("WRONGPASS", "invalid username-password pair", FailureClass::Config),
            ("NOPERM", "this user has no permissions", FailureClass::Config),
            ("DENIED", "Redis is running in protected mode", FailureClass::Config),
            ("WRONGTYPE", "Operation against a key", FailureClass::Config),
            ("MOVED", "3999 127.0.0.1:6381", FailureClass::Config),
            ("ERR", "Protocol error: unauthenticated multibulk length", FailureClass::Config),
            ("ERR", "unknown command 'XADD'", FailureClass::Config),
            ("ERR", "DB index is out of range", FailureClass::Config),
        ];
        for (code, said, expected) in cases {
            assert_eq!(refusal(code, said).0, expected, "case: {code} {said}");
        }
    }
}
