//! The way to a destination through a proxy, and what is judged on it.
//!
//! Two addresses are asked about. The proxy's is judged like a destination's, at every connect:
//! whoever may write a destination may not use `proxy` to reach what `url` may not. The
//! destination's is judged as well as it can be seen from here:
//!
//! ```text
//!             literal address    name
//! socks5      judged             resolved here, judged, and the address is given to the proxy
//! socks5h,    judged             resolved here only to be judged: refused if any address is;
//! http                           the proxy resolves it again, and one that is unknown here passes
//! ```
//!
//! So with `socks5h` and `http` the last word on names is the proxy's, and it has to refuse what
//! must not be reached through it.

use std::net::SocketAddr;
use std::pin::pin;

use bytes::Bytes;
use http::uri::Scheme;
use http::{Request, StatusCode, Uri, header};
use http_body_util::Empty;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use surehook_core::destination::proxy::{Proxy, ProxyKind};
use tokio::net::TcpStream;
use tokio_socks::IntoTargetAddr;
use tokio_socks::tcp::Socks5Stream;

use super::{ConnectError, GuardedConnector, Line, bare, port_of};

/// The most that a proxy's answer to CONNECT may take.
const ANSWER_BYTES_MAX: usize = 32 * 1024;

/// Opens a connection to `uri` through `proxy`.
pub(super) async fn open(
    guarded: &GuardedConnector,
    proxy: &Proxy,
    uri: &Uri,
) -> Result<Line, ConnectError> {
    // The client never asks for a URI without a host; the empty name does not resolve.
    let (host, port) = (bare(uri.host().unwrap_or_default()), port_of(uri));
    match proxy.kind {
        ProxyKind::Socks5 => {
            let mut failure = ConnectError::Proxy("the proxy was given no address");
            for address in guarded.allowed_addresses(host).await? {
                let to = SocketAddr::new(address, port);
                match socks(dial(guarded, proxy).await?, proxy, to).await {
                    Ok(stream) => return Ok(Line::to_destination(stream)),
                    Err(error) => failure = error,
                }
            }
            Err(failure)
        }
        ProxyKind::Socks5h => {
            guarded.judge_for_another(host).await?;
            let stream = dial(guarded, proxy).await?;
            Ok(Line::to_destination(socks(stream, proxy, (host, port)).await?))
        }
        ProxyKind::Http => {
            guarded.judge_for_another(host).await?;
            let stream = dial(guarded, proxy).await?;
            if uri.scheme() == Some(&Scheme::HTTPS) {
                Ok(Line::to_destination(tunnel(stream, proxy, uri).await?))
            } else {
                Ok(Line::to_proxy(stream))
            }
        }
    }
}

async fn dial(guarded: &GuardedConnector, proxy: &Proxy) -> Result<TcpStream, ConnectError> {
    let dialed = guarded.dial(&proxy.host.to_string(), proxy.port).await;
    dialed.map_err(|error| ConnectError::AtProxy(Box::new(error)))
}

async fn socks(
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

/// What an answer of a SOCKS server means.
fn socks_failure(error: &tokio_socks::Error) -> ConnectError {
    use tokio_socks::Error;
    match error {
        Error::Io(_) | Error::ProxyServerUnreachable => {
            ConnectError::Proxy("the proxy broke the connection off")
        }
        Error::GeneralSocksServerFailure | Error::UnknownError => {
            ConnectError::Proxy("the proxy could not connect")
        }
        Error::NetworkUnreachable | Error::HostUnreachable | Error::TtlExpired => {
            ConnectError::Proxy("the proxy cannot reach the destination")
        }
        Error::ConnectionRefused => {
            ConnectError::Proxy("the destination refused the proxy's connection")
        }
        Error::ConnectionNotAllowedByRuleset => {
            ConnectError::ProxyRefused("the proxy's rules do not allow the destination")
        }
        Error::PasswordAuthFailure(_) | Error::InvalidAuthValues(_) => {
            ConnectError::ProxyRefused("the proxy does not accept the user and password")
        }
        Error::NoAcceptableAuthMethods
        | Error::UnknownAuthMethod
        | Error::AuthorizationRequired => {
            ConnectError::ProxyRefused("the proxy wants another authentication")
        }
        Error::CommandNotSupported | Error::AddressTypeNotSupported => {
            ConnectError::ProxyRefused("the proxy does not support such connections")
        }
        Error::InvalidTargetAddress(_) => ConnectError::ProxyRefused("the name is too long"),
        Error::ParseError(_)
        | Error::InvalidResponseVersion
        | Error::InvalidReservedByte
        | Error::UnknownAddressType
        | Error::IdentdAuthFailure
        | Error::InvalidUserIdAuthFailure => {
            ConnectError::Proxy("the proxy does not speak SOCKS 5")
        }
    }
}

/// Asks an HTTP proxy for a tunnel (RFC 9110, 9.3.6).
async fn tunnel(stream: TcpStream, proxy: &Proxy, uri: &Uri) -> Result<TcpStream, ConnectError> {
    const BROKEN: ConnectError = ConnectError::Proxy("the proxy gave no answer in HTTP");
    let to = format!("{}:{}", uri.host().unwrap_or_default(), port_of(uri));
    let mut request = Request::connect(&to).header(header::HOST, &to);
    if let Some(authorization) = proxy.authorization() {
        request = request.header(header::PROXY_AUTHORIZATION, authorization);
    }
    let request = request.body(Empty::<Bytes>::new()).map_err(|_| BROKEN)?;
    let mut builder = http1::Builder::new();
    builder.max_buf_size(ANSWER_BYTES_MAX);
    let (mut sender, connection) =
        builder.handshake(TokioIo::new(stream)).await.map_err(|_| BROKEN)?;
    let mut connection = pin!(connection.with_upgrades());
    let mut exchange = pin!(async move {
        let answer = sender.send_request(request).await.map_err(|_| BROKEN)?;
        match answer.status() {
            status if status.is_success() => hyper::upgrade::on(answer).await.map_err(|_| BROKEN),
            status => Err(tunnel_failure(status)),
        }
    });
    let upgraded = tokio::select! {
        upgraded = &mut exchange => upgraded?,
        // It ends when the tunnel is handed over, too.
        _ = &mut connection => exchange.await?,
    };
    let parts = upgraded.downcast::<TokioIo<TcpStream>>().map_err(|_| BROKEN)?;
    if parts.read_buf.is_empty() {
        Ok(parts.io.into_inner())
    } else {
        Err(ConnectError::Proxy("the proxy sent more than its answer"))
    }
}

/// What a proxy's refusal of a tunnel means.
fn tunnel_failure(status: StatusCode) -> ConnectError {
    match status.as_u16() {
        407 => ConnectError::ProxyRefused(PROXY_AUTHENTICATION),
        408 | 429 => ConnectError::Proxy("the proxy is too busy to connect"),
        400..=499 => ConnectError::ProxyRefused("the proxy does not allow the destination"),
        _ => ConnectError::Proxy("the proxy could not connect"),
    }
}

/// What 407 means, also as an answer to a request that a proxy was to pass on.
pub(crate) const PROXY_AUTHENTICATION: &str = "the proxy does not accept the user and password";
