//! Opens TCP connections to destinations, and only to addresses that the policy allows.
//!
//! The address is checked at the socket, the only place where the check holds: a name that was harmless
//! when its destination was saved may resolve to anything an hour later. A name is resolved once, every
//! address is checked, and the connection is made to a checked address, not to the name.
//!
//! Names are resolved by the system, hosts file and search domains included. That is safe, because
//! addresses are checked and names are not. With a proxy, [`proxy`] says what is checked. The proxy
//! variables of the environment are not read: they would bypass the policy.

pub mod proxy;

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::address::{AddressPolicy, BlockedAddress};
use crate::proxy::Proxy;
use async_trait::async_trait;
use http::Uri;
use http::uri::Scheme;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};
use tower::Service;

use crate::stopwatch::{ConnectStage, Stopwatch};

/// The timeout of connecting, for all addresses of a destination together.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The timeout of resolving a name, including the wait for a free lookup.
pub const RESOLVE_TIMEOUT: Duration = Duration::from_secs(5);

/// The timeout of resolving a name that the proxy resolves again. Short: where only the proxy can
/// resolve names, every connection waits for this.
const PROXIED_RESOLVE_TIMEOUT: Duration = Duration::from_secs(2);

/// A lookup occupies a thread of the runtime until the system gives up, long after our timeout. Two per
/// connector keep one destination with a dead name server from taking all threads.
const LOOKUPS_MAX: usize = 2;

/// A name server may answer with thousands.
const ADDRESSES_MAX: usize = 16;

/// The least time for each address, so that a distant one has a chance.
const ADDRESS_TIMEOUT_MIN: Duration = Duration::from_secs(1);

/// Resolves names to addresses.
#[async_trait]
pub trait Resolver: fmt::Debug + Send + Sync {
    /// The addresses of `host`, the preferred one first.
    async fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>>;
}

/// The resolver of the operating system.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemResolver;

#[async_trait]
impl Resolver for SystemResolver {
    async fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        // The port is required by the call and not used by the lookup.
        let addresses = tokio::net::lookup_host((host, 0)).await?;
        Ok(addresses.map(|address| address.ip()).collect())
    }
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The policy refuses every address of the destination; this is one of them.
    #[error(transparent)]
    Blocked(#[from] BlockedAddress),
    #[error("the name could not be resolved")]
    Dns(#[source] io::Error),
    #[error("the connection was refused")]
    Refused,
    #[error("no connection within {after:?}")]
    Timeout { after: Duration },
    #[error("the address cannot be reached")]
    Unreachable(#[source] io::Error),
    /// The gateway itself has no free file, socket or memory. Says nothing about the destination.
    #[error("the gateway itself has no free file, socket or memory for a connection")]
    NoResources,
    /// The connection to the proxy itself failed.
    #[error("the proxy: {0}")]
    AtProxy(#[source] Box<ConnectError>),
    /// The proxy failed; a retry may help.
    #[error("{0}")]
    Proxy(&'static str),
    /// The proxy refused; the settings have to be fixed.
    #[error("{0}")]
    ProxyRefused(&'static str),
}

impl ConnectError {
    fn from_connect(error: io::Error) -> Self {
        if is_resource_shortage(&error) {
            Self::NoResources
        } else if error.kind() == io::ErrorKind::ConnectionRefused {
            Self::Refused
        } else {
            Self::Unreachable(error)
        }
    }

    fn from_lookup(error: io::Error) -> Self {
        // The resolver reports a socket that it could not open as "temporary failure".
        let probe = std::fs::File::open("/dev/null").err();
        let is_shortage =
            is_resource_shortage(&error) || probe.as_ref().is_some_and(is_resource_shortage);
        if is_shortage { Self::NoResources } else { Self::Dns(error) }
    }
}

/// Whether the operating system refused a file, socket, process or memory to this process.
pub fn is_resource_shortage(error: &io::Error) -> bool {
    use rustix::io::Errno;

    let shortages = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOBUFS];
    let code = error.raw_os_error();
    shortages.iter().any(|errno| code == Some(errno.raw_os_error()))
}

/// The connector of one destination. Clones share the limit on lookups.
#[derive(Debug, Clone)]
pub struct GuardedConnector {
    policy: Arc<AddressPolicy>,
    resolver: Arc<dyn Resolver>,
    lookups: Arc<Semaphore>,
    proxy: Option<Arc<Proxy>>,
    stopwatch: Stopwatch,
}

impl GuardedConnector {
    /// Connects to what `policy` allows, within [`CONNECT_TIMEOUT`].
    pub fn new(policy: Arc<AddressPolicy>, resolver: Arc<dyn Resolver>) -> Self {
        let lookups = Arc::new(Semaphore::new(LOOKUPS_MAX));
        Self { policy, resolver, lookups, proxy: None, stopwatch: Stopwatch::default() }
    }

    pub fn with_proxy(self, proxy: Option<Proxy>) -> Self {
        Self { proxy: proxy.map(Arc::new), ..self }
    }

    /// Opens a connection as an attempt would, and closes it unused.
    pub async fn try_connect(&self, uri: Uri) -> Result<(), ConnectError> {
        self.clone().connect(uri).await.map(drop)
    }

    async fn connect(self, uri: Uri) -> Result<TcpStream, ConnectError> {
        let stream = match &self.proxy {
            Some(proxy) => proxy::connect_through(&self, proxy, &uri).await?,
            None => {
                // The client never asks for a URI without a host; the empty name does not resolve.
                let host = uri.host().unwrap_or_default();
                self.connect_tcp(host, port_of(&uri)).await?
            }
        };
        if uri.scheme() == Some(&Scheme::HTTPS) {
            self.stopwatch.begin(ConnectStage::Tls);
        }
        Ok(stream)
    }

    /// Connects to `host` directly, without a proxy.
    pub async fn connect_tcp(&self, host: &str, port: u16) -> Result<TcpStream, ConnectError> {
        let addresses = self.resolve_allowed(host).await?;
        let stream = self.connect_to_any(&addresses, port).await?;
        let peer = stream.peer_addr().map_err(ConnectError::Unreachable)?;
        // The peer is what we are really connected to.
        self.policy.check(peer.ip())?;
        // A request is written at once; Nagle would only delay it.
        stream.set_nodelay(true).map_err(ConnectError::Unreachable)?;
        Ok(stream)
    }

    /// Checks a `host` that the proxy resolves again: since it may choose any address, all of them must
    /// be allowed. A name that cannot be resolved here cannot be checked here.
    async fn check_for_proxy(&self, host: &str) -> Result<(), ConnectError> {
        let addresses = match literal(host) {
            Some(address) => vec![address],
            None => self.resolve(host, PROXIED_RESOLVE_TIMEOUT).await.unwrap_or_default(),
        };
        addresses.into_iter().try_for_each(|address| Ok(self.policy.check(address)?))
    }

    /// The addresses of `host` that may be called, at least one. Connects to none of them.
    pub async fn resolve_allowed(&self, host: &str) -> Result<Vec<IpAddr>, ConnectError> {
        let addresses = match literal(host) {
            Some(address) => vec![address],
            None => self.resolve(host, RESOLVE_TIMEOUT).await.map_err(ConnectError::from_lookup)?,
        };
        let mut blocked = None;
        let mut allowed = Vec::new();
        for address in addresses {
            match self.policy.check(address) {
                Ok(()) => allowed.push(address),
                Err(reason) => blocked = Some(reason),
            }
        }
        allowed.truncate(ADDRESSES_MAX);
        match blocked {
            Some(reason) if allowed.is_empty() => Err(reason.into()),
            None if allowed.is_empty() => Err(ConnectError::Dns(io::ErrorKind::NotFound.into())),
            Some(_) | None => Ok(allowed),
        }
    }

    async fn resolve(&self, host: &str, limit: Duration) -> io::Result<Vec<IpAddr>> {
        self.stopwatch.begin(ConnectStage::Dns);
        let lookup = self.clone().look_up(host.to_owned());
        timeout(limit, lookup).await.map_err(io::Error::from)?
    }

    /// Resolves in a task of its own: the system's lookup continues after our timeout, and must keep its
    /// permit until it ends.
    async fn look_up(self, host: String) -> io::Result<Vec<IpAddr>> {
        let permit = self.lookups.acquire_owned().await.map_err(io::Error::other)?;
        let lookup = tokio::spawn(async move {
            let addresses = self.resolver.resolve(&host).await;
            drop(permit);
            addresses
        });
        lookup.await.map_err(io::Error::other)?
    }

    /// Tries the addresses one after the other. The error is that of the last one.
    async fn connect_to_any(&self, ips: &[IpAddr], port: u16) -> Result<TcpStream, ConnectError> {
        let deadline = self.stopwatch.begin(ConnectStage::Connect) + CONNECT_TIMEOUT;
        let mut failure = ConnectError::Timeout { after: CONNECT_TIMEOUT };
        for (index, ip) in ips.iter().enumerate() {
            let left = deadline.saturating_duration_since(Instant::now());
            let connecting = TcpStream::connect(SocketAddr::new(*ip, port));
            failure = match timeout(share_of(left, ips.len() - index), connecting).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => ConnectError::from_connect(error),
                Err(_) => ConnectError::Timeout { after: CONNECT_TIMEOUT },
            };
        }
        Err(failure)
    }
}

impl Service<Uri> for GuardedConnector {
    type Response = TokioIo<TcpStream>;
    type Error = ConnectError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, ConnectError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connector = Self { stopwatch: Stopwatch::of_attempt(), ..self.clone() };
        Box::pin(async move { connector.connect(uri).await.map(TokioIo::new) })
    }
}

/// The address, if `host` is one. Other spellings (`2130706433`) are left to the resolver, and its result
/// is checked.
fn literal(host: &str) -> Option<IpAddr> {
    without_brackets(host).parse().ok()
}

/// A host without the brackets that a URL puts around an IPv6 address.
fn without_brackets(host: &str) -> &str {
    host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host)
}

fn port_of(uri: &Uri) -> u16 {
    let default = match uri.scheme_str() {
        Some("https") => 443,
        Some("redis" | "rediss") => 6379,
        _ => 80,
    };
    uri.port_u16().unwrap_or(default)
}

/// The share of the remaining time for the next of `untried` addresses.
fn share_of(left: Duration, untried: usize) -> Duration {
    let count = u32::try_from(untried).unwrap_or(u32::MAX).max(1);
    (left / count).max(ADDRESS_TIMEOUT_MIN).min(left)
}

/// Resolves every name to the same addresses.
#[derive(Debug)]
pub struct StaticResolver(pub Vec<IpAddr>);

impl StaticResolver {
    pub fn localhost() -> Self {
        Self(vec![IpAddr::from([127, 0, 0, 1])])
    }
}

#[async_trait]
impl Resolver for StaticResolver {
    async fn resolve(&self, _: &str) -> io::Result<Vec<IpAddr>> {
        Ok(self.0.clone())
    }
}

#[cfg(test)]
mod testing {
    use super::*;

    /// A connector that may call `allow` and resolves every name to `found`.
    pub(super) fn connector(allow: &[&str], found: &[&str]) -> GuardedConnector {
        let allow = allow.iter().map(|net| net.parse().unwrap()).collect();
        let found = found.iter().map(|address| address.parse().unwrap()).collect();
        GuardedConnector::new(Arc::new(AddressPolicy::new(allow)), Arc::new(StaticResolver(found)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::net::TcpListener;

    use super::{testing::connector, *};

    /// Never answers; counts the lookups.
    #[derive(Debug, Default)]
    struct StuckResolver {
        lookups: AtomicUsize,
    }

    #[async_trait]
    impl Resolver for StuckResolver {
        async fn resolve(&self, _: &str) -> io::Result<Vec<IpAddr>> {
            self.lookups.fetch_add(1, Ordering::SeqCst);
            std::future::pending().await
        }
    }

    async fn connect(connector: &GuardedConnector, uri: &str) -> Result<IpAddr, ConnectError> {
        let uri: Uri = uri.parse().unwrap();
        let stream = connector.connect_tcp(uri.host().unwrap(), port_of(&uri)).await?;
        Ok(stream.peer_addr().unwrap().ip())
    }

    async fn listen(address: &str) -> (TcpListener, u16) {
        let listener = TcpListener::bind((address, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        (listener, port)
    }

    #[tokio::test]
    async fn blocked_literal_addresses_are_not_connected_to() {
        let cases = [
            ("loopback", "http://127.0.0.1/"),
            ("IPv6 loopback", "http://[::1]/"),
            ("mapped", "http://[::ffff:127.0.0.1]/"),
            ("metadata", "http://169.254.169.254/latest/meta-data"),
            ("private", "https://10.0.0.1/"),
        ];
        for (name, uri) in cases {
            let result = connect(&connector(&[], &["8.8.8.8"]), uri).await;
            assert!(matches!(result, Err(ConnectError::Blocked(_))), "case: {name}");
        }
    }

    #[tokio::test]
    async fn unusual_spellings_of_blocked_addresses_are_blocked() {
        for host in ["2130706433", "0x7f.1", "0177.0.0.1", "127.1", "localhost"] {
            let policy = Arc::new(AddressPolicy::default());
            let connector = GuardedConnector::new(policy, Arc::new(SystemResolver));

            let result = connect(&connector, &format!("http://{host}:1/")).await;

            assert!(matches!(result, Err(ConnectError::Blocked(_))), "{host}: {result:?}");
        }
    }

    #[tokio::test]
    async fn only_allowed_addresses_of_a_name_are_called() {
        let (_listener, port) = listen("127.0.0.2").await;
        let connector = connector(&["127.0.0.2/32"], &["127.0.0.1", "127.0.0.2", "10.0.0.1"]);

        let peer = connect(&connector, &format!("http://mixed.test:{port}/")).await.unwrap();

        assert_eq!(peer, IpAddr::from([127, 0, 0, 2]));
    }

    #[tokio::test]
    async fn next_address_is_tried_when_one_refuses() {
        let (_listener, port) = listen("127.0.0.2").await;
        let connector = connector(&["127.0.0.0/8"], &["127.0.0.3", "127.0.0.2"]);

        let peer = connect(&connector, &format!("http://two.test:{port}/")).await.unwrap();

        assert_eq!(peer, IpAddr::from([127, 0, 0, 2]));
    }

    #[tokio::test]
    async fn connect_failures_have_distinct_errors() {
        let (listener, port) = listen("127.0.0.1").await;
        drop(listener);
        let closed_port = format!("http://closed.test:{port}/");

        let refused = connect(&connector(&["127.0.0.0/8"], &["127.0.0.1"]), &closed_port).await;
        let nowhere = connect(&connector(&[], &[]), "http://empty.test/").await;
        let blocked = connect(&connector(&[], &["127.0.0.1"]), &closed_port).await;

        assert!(matches!(refused, Err(ConnectError::Refused)), "{refused:?}");
        assert!(matches!(nowhere, Err(ConnectError::Dns(_))), "{nowhere:?}");
        assert!(matches!(blocked, Err(ConnectError::Blocked(_))), "{blocked:?}");
    }

    #[test]
    fn missing_file_or_memory_is_reported_as_no_resources() {
        let errno = io::Error::from_raw_os_error;
        let (files_of_process, files_of_system, memory, refused) = (24, 23, 12, 111);
        for code in [files_of_process, files_of_system, memory] {
            assert!(matches!(ConnectError::from_connect(errno(code)), ConnectError::NoResources));
            assert!(matches!(ConnectError::from_lookup(errno(code)), ConnectError::NoResources));
        }
        assert!(matches!(ConnectError::from_connect(errno(refused)), ConnectError::Refused));
        assert!(matches!(ConnectError::from_lookup(errno(refused)), ConnectError::Dns(_)));
    }

    #[tokio::test(start_paused = true)]
    async fn stuck_lookup_times_out_and_keeps_its_permit() {
        let resolver = Arc::new(StuckResolver::default());
        let policy = Arc::new(AddressPolicy::default());
        let connector = GuardedConnector::new(policy, Arc::clone(&resolver) as Arc<dyn Resolver>);

        for _ in 0..5 {
            let result = connect(&connector, "http://stuck.test/").await;
            assert!(matches!(result, Err(ConnectError::Dns(_))), "{result:?}");
        }

        assert_eq!(resolver.lookups.load(Ordering::SeqCst), LOOKUPS_MAX);
    }

    #[test]
    fn addresses_share_the_timeout_with_a_minimum_of_one_second_each() {
        let cases = [
            ("one", 5_000, 1, 5_000),
            ("two", 5_000, 2, 2_500),
            ("many", 5_000, 16, 1_000),
            ("little left", 300, 4, 300),
            ("nothing left", 0, 4, 0),
        ];
        for (name, left, untried, expected) in cases {
            let share = share_of(Duration::from_millis(left), untried);
            assert_eq!(share, Duration::from_millis(expected), "case: {name}");
        }
    }

    #[test]
    fn port_is_that_of_the_uri_or_the_default() {
        let cases = [
            ("http", "http://a.test/", 80),
            ("https", "https://a.test/", 443),
            ("redis", "redis://a.test/0", 6379),
            ("written", "https://a.test:8443/", 8443),
        ];
        for (name, uri, expected) in cases {
            assert_eq!(port_of(&uri.parse().unwrap()), expected, "case: {name}");
        }
    }
}
