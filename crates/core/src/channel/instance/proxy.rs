//! The proxy through which an instance talks to WhatsApp.

use crate::secret::Secret;

/// How a proxy may be talked to.
pub const PROTOCOLS: [&str; 3] = ["http", "https", "socks5"];

/// The longest name of a host.
const HOST_BYTES_MAX: usize = 253;

/// A proxy, checked.
#[derive(Clone, Debug)]
pub struct InstanceProxy {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) protocol: Option<&'static str>,
    pub(super) login: Option<(String, Secret)>,
}

/// Why a proxy cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InstanceProxyError {
    /// It is no host.
    #[error(
        "the host of a proxy is a name or an address alone, such as p.webshare.io: no `://`, no port, no path"
    )]
    Host,
    /// It is no port.
    #[error("the port of a proxy is between 1 and 65535")]
    Port,
    /// Nobody knows how to talk to it.
    #[error("the protocol of a proxy is one of http, https, socks5")]
    Protocol,
    /// One without the other.
    #[error("a proxy has a user and a password, or neither; give both")]
    Login,
    /// It cannot be sent.
    #[error("the user and the password of a proxy are texts without line breaks")]
    Text,
}

impl InstanceProxy {
    /// Checks what is written.
    pub fn new(
        host: &str,
        port: u16,
        protocol: Option<&str>,
        user: Option<&str>,
        password: Option<Secret>,
    ) -> Result<Self, InstanceProxyError> {
        let host = host.trim();
        let is_plain = |c: char| c.is_alphanumeric() || "-._".contains(c);
        let is_address = host.parse::<std::net::IpAddr>().is_ok();
        let is_name =
            !host.is_empty() && host.len() <= HOST_BYTES_MAX && host.chars().all(is_plain);
        if !is_address && !is_name {
            return Err(InstanceProxyError::Host);
        }
        if port == 0 {
            return Err(InstanceProxyError::Port);
        }
        let known = |text: &str| PROTOCOLS.into_iter().find(|known| *known == text);
        let protocol =
            protocol.map(|text| known(text).ok_or(InstanceProxyError::Protocol)).transpose()?;
        let user = user.filter(|user| !user.is_empty()).map(str::to_owned);
        let login = match (user, password) {
            (Some(user), Some(password)) => Some((user, password)),
            (None, None) => None,
            _ => return Err(InstanceProxyError::Login),
        };
        if let Some((user, password)) = &login {
            let is_line = |text: &str| !text.contains(char::is_control);
            let is_text = std::str::from_utf8(password.expose()).is_ok_and(is_line);
            if !is_text || !is_line(user) {
                return Err(InstanceProxyError::Text);
            }
        }
        Ok(Self { host: host.to_owned(), port, protocol, login })
    }

    /// User and password as they are sent; empty without them.
    pub(super) fn login(&self) -> (&str, &str) {
        let Some((user, password)) = &self.login else { return ("", "") };
        // It was looked at when the proxy was made.
        (user, std::str::from_utf8(password.expose()).unwrap_or_default())
    }
}
