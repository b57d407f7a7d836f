//! Opens TCP connections to destinations, and only to addresses that the policy allows.
//!
//! The check is here, at the socket, because here is the only place where it holds: a name that
//! was harmless when its destination was saved may resolve to anything an hour later. A name is
//! resolved, every address it has is judged, and the connection is made to an address that was
//! judged, not to the name; nobody resolves it a second time in between.
//!
//! ```text
//! Uri ─> literal address ───────────┐
//!    └─> name ─resolve─> addresses ─┴─judge─> allowed ones ─connect─> peer ─judge─> stream
//!                                        └─> none: Blocked
//! ```
//!
//! Names are resolved by the system, hosts file and search domains included: a name should mean
//! to the gateway what it means to the machine on which it runs. That opens nothing, because
//! addresses are judged and names are not.
//!
//! A destination may name a proxy; [`proxy`] says what is judged then. The proxy variables of the
//! environment are not read: they would send everything through somebody else's judgment.

mod line;
pub(crate) mod proxy;

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use http::Uri;
use http::uri::Scheme;
use surehook_core::address::{AddressPolicy, BlockedAddress};
use surehook_core::destination::proxy::Proxy;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};
use tower::Service;

pub use self::line::GuardedStream;
use crate::stopwatch::{ConnectStage, Stopwatch};

/// How long all addresses of a destination together may take to accept a connection.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a name may take to resolve, waiting for a turn included.
pub const RESOLVE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a name may take that somebody else resolves again: it is only looked at, and where
/// nothing but the proxy can resolve names, every connection waits for this.
const LOOK_TIMEOUT: Duration = Duration::from_secs(2);

/// A lookup holds a thread of the runtime until the system gives up on it, long after we did.
/// Two for each connector keep one destination with a dead name server from taking them all.
const LOOKUPS_MAX: usize = 2;

/// Nobody needs more, and a name server may answer with thousands.
const ADDRESSES_MAX: usize = 16;

/// What each address gets even if there are many, so that a far one has a chance.
const ADDRESS_TIMEOUT_MIN: Duration = Duration::from_secs(1);

/// Finds the addresses of a name.
#[async_trait]
pub trait Resolver: fmt::Debug + Send + Sync {
    /// The addresses of `host`, the preferred one first.
    async fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>>;
}

/// Asks the operating system.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemResolver;

#[async_trait]
impl Resolver for SystemResolver {
    async fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        // The port only completes the call; it does not take part in the lookup.
        let found = tokio::net::lookup_host((host, 0)).await?;
        Ok(found.map(|address| address.ip()).collect())
    }
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Every address of the destination is refused by the policy; this is one of them.
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
    /// The connection to the proxy itself.
    #[error("the proxy: {0}")]
    AtProxy(#[source] Box<ConnectError>),
    /// The proxy may do better later.
    #[error("{0}")]
    Proxy(&'static str),
    /// The proxy will not do it until somebody mends the settings.
    #[error("{0}")]
    ProxyRefused(&'static str),
}

impl ConnectError {
    fn from_connect(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::ConnectionRefused {
            Self::Refused
        } else {
            Self::Unreachable(error)
        }
    }
}

/// The connector of one destination. Clones share the bound on lookups.
#[derive(Debug, Clone)]
pub struct GuardedConnector {
    policy: Arc<AddressPolicy>,
    resolver: Arc<dyn Resolver>,
    lookups: Arc<Semaphore>,
    connect_timeout: Duration,
    proxy: Option<Arc<Proxy>>,
    watch: Stopwatch,
}

impl GuardedConnector {
    /// Connects to what `policy` allows, within [`CONNECT_TIMEOUT`].
    pub fn new(policy: Arc<AddressPolicy>, resolver: Arc<dyn Resolver>) -> Self {
        let lookups = Arc::new(Semaphore::new(LOOKUPS_MAX));
        Self {
            policy,
            resolver,
            lookups,
            connect_timeout: CONNECT_TIMEOUT,
            proxy: None,
            watch: Stopwatch::default(),
        }
    }

    /// The same through a proxy.
    pub fn with_proxy(self, proxy: Option<Proxy>) -> Self {
        Self { proxy: proxy.map(Arc::new), ..self }
    }

    /// The same with another bound on the time to connect.
    pub fn with_connect_timeout(self, connect_timeout: Duration) -> Self {
        Self { connect_timeout, ..self }
    }

    /// The addresses of `host` that may be called, at least one; nobody is called.
    pub async fn resolve_allowed(&self, host: &str) -> Result<Vec<IpAddr>, ConnectError> {
        self.allowed_addresses(host).await
    }

    /// Opens a connection, as an attempt would, and closes it unused.
    pub async fn try_connect(&self, uri: Uri) -> Result<(), ConnectError> {
        self.clone().connect(uri).await.map(drop)
    }

    async fn connect(self, uri: Uri) -> Result<GuardedStream, ConnectError> {
        let line = match &self.proxy {
            Some(proxy) => proxy::open(&self, proxy, &uri).await?,
            None => {
                // The client never asks for a URI without a host; the empty name does not resolve.
                let host = uri.host().unwrap_or_default();
                GuardedStream::to_destination(self.dial(host, port_of(&uri)).await?)
            }
        };
        if uri.scheme() == Some(&Scheme::HTTPS) {
            self.watch.begin(ConnectStage::Tls);
        }
        Ok(line)
    }

    /// A connection to `host`, not through any proxy, for what is no HTTP.
    pub(crate) async fn dial(&self, host: &str, port: u16) -> Result<TcpStream, ConnectError> {
        let addresses = self.allowed_addresses(host).await?;
        let stream = self.connect_to_any(&addresses, port).await?;
        let peer = stream.peer_addr().map_err(ConnectError::Unreachable)?;
        // The last word: whatever went before, this is what we are connected to.
        self.policy.check(peer.ip())?;
        // A request is written in one go; waiting for more to come would only delay it.
        stream.set_nodelay(true).map_err(ConnectError::Unreachable)?;
        Ok(stream)
    }

    /// Judges `host` for somebody else who resolves it again and takes the address he likes: one
    /// that is refused is enough. A name that cannot be resolved here cannot be judged here.
    async fn judge_for_another(&self, host: &str) -> Result<(), ConnectError> {
        let found = match literal(host) {
            Some(address) => vec![address],
            None => self.resolve(host, LOOK_TIMEOUT).await.unwrap_or_default(),
        };
        found.into_iter().try_for_each(|address| Ok(self.policy.check(address)?))
    }

    /// The addresses of `host` that may be called, at least one.
    async fn allowed_addresses(&self, host: &str) -> Result<Vec<IpAddr>, ConnectError> {
        let found = match literal(host) {
            Some(address) => vec![address],
            None => self.resolve(host, RESOLVE_TIMEOUT).await.map_err(ConnectError::Dns)?,
        };
        let mut blocked = None;
        let mut allowed = Vec::new();
        for address in found {
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

    async fn resolve(&self, host: &str, within: Duration) -> io::Result<Vec<IpAddr>> {
        self.watch.begin(ConnectStage::Dns);
        let lookup = self.clone().look_up(host.to_owned());
        timeout(within, lookup).await.map_err(io::Error::from)?
    }

    /// Resolves in a task of its own, because the system's lookup goes on after we stop waiting
    /// for it, and it must keep its turn until it is over.
    async fn look_up(self, host: String) -> io::Result<Vec<IpAddr>> {
        let turn = self.lookups.acquire_owned().await.map_err(io::Error::other)?;
        let lookup = tokio::spawn(async move {
            let found = self.resolver.resolve(&host).await;
            drop(turn);
            found
        });
        lookup.await.map_err(io::Error::other)?
    }

    /// Tries the addresses in turn. The error is that of the last one.
    async fn connect_to_any(&self, ips: &[IpAddr], port: u16) -> Result<TcpStream, ConnectError> {
        let deadline = self.watch.begin(ConnectStage::Connect) + self.connect_timeout;
        let mut failure = ConnectError::Timeout { after: self.connect_timeout };
        for (tried, ip) in ips.iter().enumerate() {
            let left = deadline.saturating_duration_since(Instant::now());
            let connecting = TcpStream::connect(SocketAddr::new(*ip, port));
            failure = match timeout(share_of(left, ips.len() - tried), connecting).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => ConnectError::from_connect(error),
                Err(_) => ConnectError::Timeout { after: self.connect_timeout },
            };
        }
        Err(failure)
    }
}

impl Service<Uri> for GuardedConnector {
    type Response = GuardedStream;
    type Error = ConnectError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, ConnectError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let guarded = Self { watch: Stopwatch::of_attempt(), ..self.clone() };
        Box::pin(guarded.connect(uri))
    }
}

/// The address that `host` is, if it is one. Other spellings of addresses (`2130706433`) go to
/// the resolver, which may or may not know them; what it makes of them is judged.
fn literal(host: &str) -> Option<IpAddr> {
    bare(host).parse().ok()
}

/// A host without the brackets that a URL puts around an IPv6 address.
fn bare(host: &str) -> &str {
    host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host)
}

fn port_of(uri: &Uri) -> u16 {
    let usual = match uri.scheme_str() {
        Some("https") => 443,
        Some("redis" | "rediss") => 6379,
        _ => 80,
    };
    uri.port_u16().unwrap_or(usual)
}

/// How much of the time that is left the next of `untried` addresses gets.
fn share_of(left: Duration, untried: usize) -> Duration {
    let count = u32::try_from(untried).unwrap_or(u32::MAX).max(1);
    (left / count).max(ADDRESS_TIMEOUT_MIN).min(left)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::net::TcpListener;

    use super::*;

    /// Answers every name with the same addresses.
    #[derive(Debug)]
    struct Fixed(Vec<IpAddr>);

    #[async_trait]
    impl Resolver for Fixed {
        async fn resolve(&self, _: &str) -> io::Result<Vec<IpAddr>> {
            Ok(self.0.clone())
        }
    }

    /// Never answers; counts who is asking.
    #[derive(Debug, Default)]
    struct Stuck {
        asked: AtomicUsize,
    }

    #[async_trait]
    impl Resolver for Stuck {
        async fn resolve(&self, _: &str) -> io::Result<Vec<IpAddr>> {
            self.asked.fetch_add(1, Ordering::SeqCst);
            std::future::pending().await
        }
    }

    fn connector(allow: &[&str], found: &[&str]) -> GuardedConnector {
        let allow = allow.iter().map(|net| net.parse().unwrap()).collect();
        let found = found.iter().map(|address| address.parse().unwrap()).collect();
        GuardedConnector::new(Arc::new(AddressPolicy::new(allow)), Arc::new(Fixed(found)))
    }

    async fn connect(connector: &GuardedConnector, uri: &str) -> Result<IpAddr, ConnectError> {
        let uri: Uri = uri.parse().unwrap();
        let stream = connector.dial(uri.host().unwrap(), port_of(&uri)).await?;
        Ok(stream.peer_addr().unwrap().ip())
    }

    async fn listen(address: &str) -> (TcpListener, u16) {
        let listener = TcpListener::bind((address, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        (listener, port)
    }

    #[tokio::test]
    async fn refused_literals_are_not_connected_to() {
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
    async fn the_system_reads_odd_spellings_of_an_address_and_the_policy_judges_what_it_reads() {
        for host in ["2130706433", "0x7f.1", "0177.0.0.1", "127.1", "localhost"] {
            let policy = Arc::new(AddressPolicy::default());
            let connector = GuardedConnector::new(policy, Arc::new(SystemResolver));

            let result = connect(&connector, &format!("http://{host}:1/")).await;

            assert!(matches!(result, Err(ConnectError::Blocked(_))), "{host}: {result:?}");
        }
    }

    #[tokio::test]
    async fn of_a_mixed_answer_only_the_allowed_addresses_are_called() {
        let (_listener, port) = listen("127.0.0.2").await;
        let connector = connector(&["127.0.0.2/32"], &["127.0.0.1", "127.0.0.2", "10.0.0.1"]);

        let peer = connect(&connector, &format!("http://mixed.test:{port}/")).await.unwrap();

        assert_eq!(peer, IpAddr::from([127, 0, 0, 2]));
    }

    #[tokio::test]
    async fn the_next_address_is_tried_when_one_refuses() {
        let (_listener, port) = listen("127.0.0.2").await;
        let connector = connector(&["127.0.0.0/8"], &["127.0.0.3", "127.0.0.2"]);

        let peer = connect(&connector, &format!("http://two.test:{port}/")).await.unwrap();

        assert_eq!(peer, IpAddr::from([127, 0, 0, 2]));
    }

    #[tokio::test]
    async fn failures_are_told_apart() {
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

    #[tokio::test(start_paused = true)]
    async fn a_stuck_lookup_ends_in_time_but_keeps_its_turn() {
        let resolver = Arc::new(Stuck::default());
        let policy = Arc::new(AddressPolicy::default());
        let connector = GuardedConnector::new(policy, Arc::clone(&resolver) as Arc<dyn Resolver>);

        for _ in 0..5 {
            let result = connect(&connector, "http://stuck.test/").await;
            assert!(matches!(result, Err(ConnectError::Dns(_))), "{result:?}");
        }

        assert_eq!(resolver.asked.load(Ordering::SeqCst), LOOKUPS_MAX);
    }

    #[test]
    fn many_addresses_share_the_time_but_each_gets_a_second() {
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
    fn the_port_is_that_of_the_uri_or_the_usual_one() {
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
