//! Adds events to Redis streams.
//!
//! Each destination has one connection, opened by the [`GuardedConnector`] and then given to the client,
//! which never resolves a name or connects by itself. All attempts share it. A connection that breaks or
//! hangs is dropped, and the next attempt opens a new one. `AUTH` and `SELECT` are sent as plain commands:
//! the client's own handshake hides the server's reply, and "too many clients" is not "wrong password".
//!
//! An `XADD` without a reply may have been executed. It is retried, as with HTTP: entries carry the event
//! id, by which consumers recognize duplicates.

use std::{
    fmt, io,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use redis::{
    AsyncConnectionConfig, Cmd, ErrorKind, RedisConnectionInfo, RedisError, Value,
    aio::{ConnectionLike as _, MultiplexedConnection},
};
use rustls::{ClientConfig, pki_types::ServerName};
use surehook_core::{
    destination::stream::{RedisLogin, RedisServer, RedisStream},
    store::ClaimedDelivery,
};
use surehook_guard::connect::GuardedConnector;
use surehook_retry::{AttemptFailure, FailureClass};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::{Instant, timeout},
};
use tokio_rustls::TlsConnector;
use tokio_util::task::AbortOnDropHandle;
use url::Host;

use crate::{
    lock::lock,
    non_http::NonHttpResult,
    sender::{
        OPEN_TIMEOUT, POOL_IDLE_TIMEOUT, RESPONSE_BYTES_KEPT,
        exchange_error::{ErrorLink, ExchangeError},
    },
    sockets::{SocketBudget, SocketPermit},
};

/// Adds to the streams of one server.
pub(crate) struct StreamSender {
    server: RedisServer,
    connector: GuardedConnector,
    tls: Arc<ClientConfig>,
    sockets: SocketBudget,
    connection: Mutex<Option<RedisConnection>>,
    /// Serializes opening. Holds the time and the result of the last failure.
    opening: tokio::sync::Mutex<Option<(Instant, NonHttpResult)>>,
}

impl fmt::Debug for StreamSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamSender").field("server", &self.server).finish_non_exhaustive()
    }
}

/// An open connection. The task that drives it ends with its last clone.
#[derive(Clone)]
struct RedisConnection {
    client: MultiplexedConnection,
    counter: ReplyByteCounter,
    driver: Arc<AbortOnDropHandle<()>>,
    used_at: Instant,
    _socket: Arc<SocketPermit>,
}

impl RedisConnection {
    fn is_usable(&self) -> bool {
        !self.driver.is_finished() && self.used_at.elapsed() < POOL_IDLE_TIMEOUT
    }

    async fn execute(&mut self, command: &Cmd) -> Result<Value, RedisError> {
        let reply = self.client.req_packed_command(command).await?;
        self.counter.reset();
        reply.extract_error()
    }
}

impl StreamSender {
    pub(crate) fn new(
        server: RedisServer,
        connector: GuardedConnector,
        tls: &ClientConfig,
        sockets: SocketBudget,
    ) -> Self {
        // ALPN is for HTTP only.
        let mut tls = tls.clone();
        tls.alpn_protocols.clear();
        let tls = Arc::new(tls);
        Self {
            server,
            connector,
            tls,
            sockets,
            connection: Mutex::default(),
            opening: tokio::sync::Mutex::default(),
        }
    }

    /// Adds one event, within `time_limit`.
    pub(crate) async fn add(
        &self,
        stream: &RedisStream,
        claimed: &ClaimedDelivery,
        time_limit: Duration,
    ) -> NonHttpResult {
        let mut used = None;
        let adding = async {
            let connection = used.insert(self.connection().await?);
            Ok(connection.execute(&xadd_command(stream, claimed)).await)
        };
        let reply = timeout(time_limit, adding).await.unwrap_or_else(|_| {
            Err(NonHttpResult::unanswered(
                AttemptFailure::Timeout,
                format!("no reply within {time_limit:?}"),
            ))
        });
        let (result, is_broken) = match reply {
            Ok(Ok(Value::BulkString(id))) => return NonHttpResult::succeeded(id),
            Ok(Ok(_)) => (not_redis(), true),
            Ok(Err(error)) => {
                let is_broken = !is_error_reply(&error) || is_wrong_server(&error);
                (interpret_error(&error), is_broken)
            }
            Err(result) => (result, true),
        };
        if let Some(connection) = used.filter(|_| is_broken) {
            self.discard(&connection);
        }
        result
    }

    /// The open connection, or a new one.
    async fn connection(&self) -> Result<RedisConnection, NonHttpResult> {
        if let Some(connection) = self.current() {
            return Ok(connection);
        }
        let asked_at = Instant::now();
        let mut failed = self.opening.lock().await;
        if let Some(connection) = self.current() {
            return Ok(connection);
        }
        // An attempt that waited while another one failed to open shares its failure.
        if let Some((at, result)) = &*failed
            && *at >= asked_at
        {
            return Err(result.clone());
        }
        let opened = timeout(OPEN_TIMEOUT, self.open()).await.unwrap_or_else(|_| {
            let detail = format!("the server was not ready within {OPEN_TIMEOUT:?}");
            Err(NonHttpResult::unanswered(AttemptFailure::Timeout, detail))
        });
        match opened {
            Ok(connection) => {
                *lock(&self.connection) = Some(connection.clone());
                Ok(connection)
            }
            Err(result) => {
                *failed = Some((Instant::now(), result.clone()));
                Err(result)
            }
        }
    }

    fn current(&self) -> Option<RedisConnection> {
        let mut current = lock(&self.connection);
        let connection = current.as_mut().filter(|connection| connection.is_usable())?;
        connection.used_at = Instant::now();
        Some(connection.clone())
    }

    /// Drops the connection, unless another one has replaced it.
    fn discard(&self, broken: &RedisConnection) {
        let mut current = lock(&self.connection);
        if current.as_ref().is_some_and(|pooled| Arc::ptr_eq(&pooled.driver, &broken.driver)) {
            *current = None;
        }
    }

    async fn open(&self) -> Result<RedisConnection, NonHttpResult> {
        let RedisServer { is_tls, host, port, database, login } = &self.server;
        let socket = self.sockets.take(1);
        let socket =
            socket.map_err(|error| connection_failure(&error, AttemptFailure::NoResources))?;
        let stream = self.connector.connect_tcp(&host.to_string(), *port).await;
        let stream =
            stream.map_err(|error| connection_failure(&error, AttemptFailure::Unreachable))?;
        let mut connection = if *is_tls {
            let secured = self.start_tls(stream, host).await?;
            RedisConnection::start(secured, socket).await
        } else {
            RedisConnection::start(stream, socket).await
        }
        .map_err(|error| interpret_error(&error))?;
        if let Some(login) = login {
            connection.log_in(&auth_command(login)).await?;
        }
        if *database != 0 {
            connection.log_in(redis::cmd("SELECT").arg(*database)).await?;
        }
        Ok(connection)
    }

    async fn start_tls(
        &self,
        stream: TcpStream,
        host: &Host,
    ) -> Result<tokio_rustls::client::TlsStream<TcpStream>, NonHttpResult> {
        let name = match host {
            Host::Domain(name) => ServerName::try_from(name.clone())
                .map_err(|error| connection_failure(&error, AttemptFailure::Tls))?,
            Host::Ipv4(address) => ServerName::from(std::net::IpAddr::from(*address)),
            Host::Ipv6(address) => ServerName::from(std::net::IpAddr::from(*address)),
        };
        let secured = TlsConnector::from(Arc::clone(&self.tls)).connect(name, stream).await;
        secured.map_err(|error| connection_failure(&error, AttemptFailure::Reset))
    }
}

impl RedisConnection {
    async fn start(
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        socket: SocketPermit,
    ) -> Result<Self, RedisError> {
        let (stream, counter) = ReplyLimitedStream::new(stream);
        // No handshake by the client, and no timeout: ours apply.
        let no_handshake = RedisConnectionInfo::default().set_skip_set_lib_name();
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let (client, driver) =
            MultiplexedConnection::new_with_config(&no_handshake, stream, config).await?;
        let driver = Arc::new(AbortOnDropHandle::new(tokio::spawn(driver)));
        Ok(Self { client, counter, driver, used_at: Instant::now(), _socket: Arc::new(socket) })
    }

    /// Executes `AUTH` or `SELECT`. The reply is not stored: it may contain a password.
    async fn log_in(&mut self, command: &Cmd) -> Result<(), NonHttpResult> {
        match self.execute(command).await {
            Ok(_) => Ok(()),
            Err(error) => Err(interpret_error(&error).with_output(Vec::new())),
        }
    }
}

fn auth_command(login: &RedisLogin) -> Cmd {
    let mut command = redis::cmd("AUTH");
    if let Some(user) = &login.user {
        command.arg(user);
    }
    command.arg(login.password.expose());
    command
}

fn xadd_command(stream: &RedisStream, claimed: &ClaimedDelivery) -> Cmd {
    let mut command = redis::cmd("XADD");
    command.arg(&stream.key);
    if let Some(max) = stream.max_length {
        // Approximate: the server removes whole blocks, which costs it next to nothing.
        command.arg("MAXLEN").arg("~").arg(max);
    }
    command.arg("*");
    for (name, value) in RedisStream::fields(claimed) {
        command.arg(name).arg(&*value);
    }
    command
}

/// Whether the server replied with an error; the connection is fine then.
fn is_error_reply(error: &RedisError) -> bool {
    error.code().is_some()
}

/// Whether the server no longer accepts writes; its name may resolve to another one by now.
fn is_wrong_server(error: &RedisError) -> bool {
    matches!(error.code(), Some("READONLY" | "MASTERDOWN"))
}

fn interpret_error(error: &RedisError) -> NonHttpResult {
    let Some(code) = error.code() else {
        let is_parse_error = error.kind() == ErrorKind::Parse;
        return if is_parse_error {
            not_redis()
        } else {
            connection_failure(error, AttemptFailure::Reset)
        };
    };
    let message = error.detail().unwrap_or_default();
    let (class, detail) = interpret_reply(code, message);
    let mut output = format!("{code} {message}").into_bytes();
    output.truncate(RESPONSE_BYTES_KEPT);
    NonHttpResult::failed(AttemptFailure::ErrorReply, class, detail).with_output(output)
}

/// The class and description of an error reply, by its code.
fn interpret_reply(code: &str, message: &str) -> (FailureClass, String) {
    let reason = match code {
        "NOAUTH" => "it requires a password",
        // Before `AUTH`, the server refuses long commands with this.
        "ERR" if message.contains("unauthenticated") => "it requires a password",
        "WRONGPASS" => "it does not accept the user and password",
        "NOPERM" => "the user may not add to this stream",
        "DENIED" => "it is in protected mode and accepts local connections only",
        "WRONGTYPE" => "the key is not a stream",
        "MOVED" | "ASK" => "another node of the cluster has the key; use that one",
        // Errors without a code of their own, such as an unknown command or database.
        "ERR" if !message.contains("max number of clients") => "it cannot execute the command",
        _ => return (FailureClass::Transient, format!("Redis answered {}", printable(code))),
    };
    (FailureClass::Config, format!("Redis answered {}: {reason}", printable(code)))
}

fn printable(code: &str) -> String {
    code.chars().filter(char::is_ascii_alphanumeric).take(32).collect()
}

fn not_redis() -> NonHttpResult {
    NonHttpResult::unanswered(
        AttemptFailure::Protocol,
        "the server does not speak the Redis protocol",
    )
}

fn connection_failure(error: &ErrorLink, otherwise: AttemptFailure) -> NonHttpResult {
    let ExchangeError { failure, detail, .. } = ExchangeError::from_chain(error, otherwise);
    NonHttpResult::unanswered(failure, detail)
}

/// The limit on bytes between two complete replies: a kilobyte for each of the most concurrent attempts.
const REPLY_BYTES_MAX: usize = 1024 * 1024;

/// The bytes since the last complete reply.
#[derive(Clone, Debug, Default)]
struct ReplyByteCounter(Arc<AtomicUsize>);

impl ReplyByteCounter {
    fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    fn add(&self, bytes: usize) -> usize {
        self.0.fetch_add(bytes, Ordering::Relaxed) + bytes
    }
}

/// A connection that fails when a reply exceeds its limit.
///
/// The client buffers a reply until it is complete, however long it claims to be. Replies to our commands
/// are short; a server that sends a gigabyte must not fill the memory.
#[derive(Debug)]
struct ReplyLimitedStream<S> {
    stream: S,
    counter: ReplyByteCounter,
}

impl<S> ReplyLimitedStream<S> {
    fn new(stream: S) -> (Self, ReplyByteCounter) {
        let counter = ReplyByteCounter::default();
        (Self { stream, counter: counter.clone() }, counter)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ReplyLimitedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        if self.counter.add(buf.filled().len() - before) > REPLY_BYTES_MAX {
            return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ReplyLimitedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::*;

    #[test]
    fn error_replies_are_classified() {
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
        for (code, message, expected) in cases {
            assert_eq!(interpret_reply(code, message).0, expected, "case: {code} {message}");
        }
    }

    #[tokio::test]
    async fn endless_reply_is_cut_off_and_each_reply_has_its_own_limit() {
        let (mut stream, counter) = ReplyLimitedStream::new(tokio::io::repeat(b'x'));
        let mut reply = vec![0; REPLY_BYTES_MAX];
        for _ in 0..3 {
            stream.read_exact(&mut reply).await.unwrap();
            counter.reset();
        }
        stream.read_exact(&mut reply).await.unwrap();

        let error = stream.read_exact(&mut reply).await.unwrap_err();

        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
