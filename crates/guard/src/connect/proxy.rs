//! Connections through a proxy, and what is checked on the way.
//!
//! Two addresses are checked. The proxy's like a destination's, at every connect: `proxy` must not reach
//! what `url` may not. The destination's as far as it is known here:
//!
//! ```text
//!                  literal address    name
//! socks5           checked            resolved here, checked, and the address is given to the proxy
//! socks5h, http    checked            resolved here only for the check; all addresses must be allowed
//! ```
//!
//! With `socks5h` and `http` the proxy resolves the name again, and names unknown here pass: the proxy
//! itself has to refuse what must not be reached through it.

use std::net::SocketAddr;
use std::pin::pin;

use crate::proxy::{Proxy, ProxyKind};
use bytes::Bytes;
use http::uri::Scheme;
use http::{Request, StatusCode, Uri, header};
use http_body_util::Empty;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_socks::IntoTargetAddr;
use tokio_socks::tcp::Socks5Stream;

use super::{ConnectError, GuardedConnector, port_of, without_brackets};

/// The limit on the head of a proxy's response to CONNECT.
const RESPONSE_HEAD_BYTES_MAX: usize = 32 * 1024;

/// Connects to `uri` through `proxy`. For plain HTTP through an HTTP proxy, the result is the connection
/// to the proxy, which forwards each request.
pub(super) async fn connect_through(
    connector: &GuardedConnector,
    proxy: &Proxy,
    uri: &Uri,
) -> Result<TcpStream, ConnectError> {
    // The client never asks for a URI without a host; the empty name does not resolve.
    let (host, port) = (without_brackets(uri.host().unwrap_or_default()), port_of(uri));
    match proxy.kind {
        ProxyKind::Socks5 => {
            let mut failure = ConnectError::Proxy("there was no address to connect to");
            for address in connector.resolve_allowed(host).await? {
                let to = SocketAddr::new(address, port);
                match socks_connect(connect_to_proxy(connector, proxy).await?, proxy, to).await {
                    Ok(stream) => return Ok(stream),
                    Err(error) => failure = error,
                }
            }
            Err(failure)
        }
        ProxyKind::Socks5h => {
            connector.check_for_proxy(host).await?;
            let stream = connect_to_proxy(connector, proxy).await?;
            socks_connect(stream, proxy, (host, port)).await
        }
        ProxyKind::Http => {
            connector.check_for_proxy(host).await?;
            let stream = connect_to_proxy(connector, proxy).await?;
            if uri.scheme() == Some(&Scheme::HTTPS) {
                open_tunnel(stream, proxy, uri).await
            } else {
                Ok(stream)
            }
        }
    }
}

async fn connect_to_proxy(
    connector: &GuardedConnector,
    proxy: &Proxy,
) -> Result<TcpStream, ConnectError> {
    let connected = connector.connect_tcp(&proxy.host.to_string(), proxy.port).await;
    connected.map_err(|error| ConnectError::AtProxy(Box::new(error)))
}

async fn socks_connect(
    stream: TcpStream,
    proxy: &Proxy,
    to: impl IntoTargetAddr<'_>,
) -> Result<TcpStream, ConnectError> {
    let connected = match &proxy.user {
        Some(user) => {
            let (user, password) = (user.user.as_str(), user.password.as_str());
            Socks5Stream::connect_with_password_and_socket(stream, to, user, password).await
        }
        None => Socks5Stream::connect_with_socket(stream, to).await,
    };
    Ok(connected.map_err(|error| socks_failure(&error))?.into_inner())
}

fn socks_failure(error: &tokio_socks::Error) -> ConnectError {
    use ConnectError::{Proxy, ProxyRefused};
    use tokio_socks::Error;
    match error {
        Error::Io(_) | Error::ProxyServerUnreachable => Proxy("the proxy closed the connection"),
        Error::GeneralSocksServerFailure | Error::UnknownError => {
            Proxy("the proxy could not connect")
        }
        Error::NetworkUnreachable | Error::HostUnreachable | Error::TtlExpired => {
            Proxy("the proxy cannot reach the destination")
        }
        Error::ConnectionRefused => Proxy("the destination refused the proxy's connection"),
        Error::ConnectionNotAllowedByRuleset => {
            ProxyRefused("the proxy's rules do not allow the destination")
        }
        Error::PasswordAuthFailure(_) | Error::InvalidAuthValues(_) => {
            ProxyRefused(PROXY_AUTHENTICATION)
        }
        Error::NoAcceptableAuthMethods
        | Error::UnknownAuthMethod
        | Error::AuthorizationRequired => {
            ProxyRefused("the proxy requires another authentication method")
        }
        Error::CommandNotSupported | Error::AddressTypeNotSupported => {
            ProxyRefused("the proxy does not support this kind of connection")
        }
        Error::InvalidTargetAddress(_) => ProxyRefused("the host name is too long"),
        Error::ParseError(_)
        | Error::InvalidResponseVersion
        | Error::InvalidReservedByte
        | Error::UnknownAddressType
        | Error::IdentdAuthFailure
        | Error::InvalidUserIdAuthFailure => Proxy("the proxy does not speak SOCKS 5"),
    }
}

/// Asks an HTTP proxy for a tunnel (RFC 9110, 9.3.6).
async fn open_tunnel(
    stream: TcpStream,
    proxy: &Proxy,
    uri: &Uri,
) -> Result<TcpStream, ConnectError> {
    const BROKEN: ConnectError = ConnectError::Proxy("the proxy did not answer with HTTP");
    let to = format!("{}:{}", uri.host().unwrap_or_default(), port_of(uri));
    let mut request = Request::connect(&to).header(header::HOST, &to);
    if let Some(authorization) = proxy.authorization() {
        request = request.header(header::PROXY_AUTHORIZATION, authorization);
    }
    let request = request.body(Empty::<Bytes>::new()).map_err(|_| BROKEN)?;
    let mut builder = http1::Builder::new();
    builder.max_buf_size(RESPONSE_HEAD_BYTES_MAX);
    let (mut sender, connection) =
        builder.handshake(TokioIo::new(stream)).await.map_err(|_| BROKEN)?;
    let mut connection = pin!(connection.with_upgrades());
    let mut exchange = pin!(async move {
        let response = sender.send_request(request).await.map_err(|_| BROKEN)?;
        match response.status() {
            status if status.is_success() => hyper::upgrade::on(response).await.map_err(|_| BROKEN),
            status => Err(tunnel_failure(status)),
        }
    });
    let upgraded = tokio::select! {
        upgraded = &mut exchange => upgraded?,
        // The connection also ends when the tunnel is handed over.
        _ = &mut connection => exchange.await?,
    };
    let parts = upgraded.downcast::<TokioIo<TcpStream>>().map_err(|_| BROKEN)?;
    if parts.read_buf.is_empty() {
        Ok(parts.io.into_inner())
    } else {
        Err(ConnectError::Proxy("the proxy sent data after its response"))
    }
}

fn tunnel_failure(status: StatusCode) -> ConnectError {
    match status.as_u16() {
        407 => ConnectError::ProxyRefused(PROXY_AUTHENTICATION),
        408 | 429 => ConnectError::Proxy("the proxy is too busy to connect"),
        400..=499 => ConnectError::ProxyRefused("the proxy does not allow the destination"),
        _ => ConnectError::Proxy("the proxy could not connect"),
    }
}

/// The meaning of 407, also for a forwarded request.
pub const PROXY_AUTHENTICATION: &str = "the proxy does not accept the user and password";

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use bytes::BytesMut;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::super::testing;
    use super::*;

    /// A proxy that counts its connections and answers every request with `reply`.
    async fn start_proxy(reply: &'static [u8]) -> (u16, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&calls);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(async move {
                    let mut request = BytesMut::new();
                    stream.read_buf(&mut request).await.unwrap();
                    stream.write_all(reply).await.unwrap();
                    if !reply.is_empty() {
                        // Stays open until the client has read the answer and closed.
                        while stream.read_buf(&mut request).await.is_ok_and(|read| read > 0) {}
                    }
                });
            }
        });
        (port, calls)
    }

    fn connector(allow: &[&str], found: &[&str], proxy: &str) -> GuardedConnector {
        testing::connector(allow, found).with_proxy(Some(Proxy::parse(proxy).unwrap()))
    }

    async fn connect(connector: GuardedConnector, uri: &str) -> Result<TcpStream, ConnectError> {
        connector.connect(uri.parse().unwrap()).await
    }

    const ONLY_PROXY: &[&str] = &["127.0.0.1/32"];

    #[tokio::test]
    async fn blocked_address_is_not_given_to_a_proxy() {
        let (port, calls) = start_proxy(b"HTTP/1.1 200 OK\r\n\r\n").await;
        let cases: [(&str, &[&str], &str); 6] = [
            ("a literal", &[], "https://10.0.0.1/"),
            ("a literal in brackets", &[], "https://[::ffff:169.254.169.254]/"),
            ("a name", &["10.0.0.1"], "https://inside.test/"),
            ("a name with one blocked address", &["8.8.8.8", "10.0.0.1"], "https://mixed.test/"),
            ("plain http", &["169.254.169.254"], "http://metadata.test/"),
            ("this machine", &["127.0.0.2"], "http://self.test/"),
        ];
        for scheme in ["http", "socks5h"] {
            for (name, found, uri) in cases {
                let proxy = format!("{scheme}://127.0.0.1:{port}");
                let result = connect(connector(ONLY_PROXY, found, &proxy), uri).await;
                assert!(matches!(result, Err(ConnectError::Blocked(_))), "{scheme}: {name}");
            }
        }
        let proxy = format!("socks5://127.0.0.1:{port}");
        let result = connect(connector(ONLY_PROXY, &["10.0.0.1"], &proxy), "http://in.test/").await;
        assert!(matches!(result, Err(ConnectError::Blocked(_))), "socks5: {result:?}");
        assert_eq!(calls.load(Ordering::SeqCst), 0, "the proxy was called");
    }

    #[tokio::test]
    async fn address_of_the_proxy_itself_is_checked() {
        let (port, calls) = start_proxy(b"").await;
        for scheme in ["http", "socks5", "socks5h"] {
            for host in ["127.0.0.1", "proxy.test"] {
                let proxy = format!("{scheme}://{host}:{port}");
                let connector = connector(&[], &["127.0.0.1"], &proxy);
                let result = connect(connector, "https://8.8.8.8/").await;
                let Err(ConnectError::AtProxy(error)) = result else {
                    panic!("{proxy}: {result:?}")
                };
                assert!(matches!(*error, ConnectError::Blocked(_)), "{proxy}: {error}");
            }
        }
        assert_eq!(calls.load(Ordering::SeqCst), 0, "the proxy was called");
    }

    #[tokio::test]
    async fn name_unknown_here_is_resolved_by_the_proxy() {
        let (port, _) = start_proxy(b"HTTP/1.1 200 OK\r\n\r\n").await;
        let proxy = format!("http://127.0.0.1:{port}");

        let opened = connect(connector(ONLY_PROXY, &[], &proxy), "https://far.test/").await;
        assert!(opened.is_ok(), "{opened:?}");

        // With `socks5` the name is resolved here.
        let proxy = format!("socks5://127.0.0.1:{port}");
        let unknown = connect(connector(ONLY_PROXY, &[], &proxy), "https://far.test/").await;
        assert!(matches!(unknown, Err(ConnectError::Dns(_))), "{unknown:?}");
    }

    #[tokio::test]
    async fn socks5_proxy_gets_the_checked_address() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = format!("socks5://{}", listener.local_addr().unwrap());
        let serving = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut greeting = [0; 3];
            stream.read_exact(&mut greeting).await.unwrap();
            stream.write_all(&[5, 0]).await.unwrap();
            let mut request = [0; 10];
            stream.read_exact(&mut request).await.unwrap();
            stream.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await.unwrap();
            (request, stream)
        });

        let found = ["10.0.0.1", "8.8.4.4"];
        connect(connector(ONLY_PROXY, &found, &proxy), "https://mixed.test:8443/").await.unwrap();

        let (request, _open) = serving.await.unwrap();
        assert_eq!(request[..4], [5, 1, 0, 1], "an address, not a name");
        assert_eq!(request[4..8], Ipv4Addr::new(8, 8, 4, 4).octets());
        assert_eq!(request[8..], 8443_u16.to_be_bytes());
    }

    #[tokio::test]
    async fn proxy_answers_are_classified_as_failed_or_refused() {
        let cases: [(&str, &'static [u8], bool); 10] = [
            ("http", b"HTTP/1.1 407 No\r\n\r\n", true),
            ("http", b"HTTP/1.1 403 No\r\n\r\n", true),
            ("http", b"HTTP/1.1 429 Later\r\n\r\n", false),
            ("http", b"HTTP/1.1 502 Bad\r\n\r\n", false),
            ("http", b"HTTP/1.1 301 Elsewhere\r\nlocation: http://10.0.0.1\r\n\r\n", false),
            ("http", b"HTTP/1.1 200 OK\r\n\r\nearly", false),
            ("http", b"SSH-2.0\r\n\r\n", false),
            ("http", b"", false),
            ("socks5h", b"\x05\xff", true),
            ("socks5h", b"HTTP/1.1 400 Bad Request\r\n\r\n", false),
        ];
        for (scheme, reply, is_refusal) in cases {
            let (port, _) = start_proxy(reply).await;
            let proxy = format!("{scheme}://127.0.0.1:{port}");
            let connector = connector(ONLY_PROXY, &["8.8.8.8"], &proxy);
            let opening = connect(connector, "https://far.test/");
            let result = tokio::time::timeout(std::time::Duration::from_secs(20), opening).await;
            let reply = String::from_utf8_lossy(reply);
            match result.unwrap() {
                Err(ConnectError::ProxyRefused(_)) => assert!(is_refusal, "{reply}"),
                Err(ConnectError::Proxy(_)) => assert!(!is_refusal, "{reply}"),
                other => panic!("{reply}: {other:?}"),
            }
        }
    }
}
