//! The proxy through which an instance connects to WhatsApp.

use surehook_types::secret::Secret;

/// Supported proxy protocols.
pub const PROTOCOLS: [&str; 3] = ["http", "https", "socks5"];

/// Longest host name.
const HOST_BYTES_MAX: usize = 253;

/// A checked proxy.
#[derive(Clone, Debug)]
pub struct InstanceProxy {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) protocol: Option<&'static str>,
    pub(super) login: Option<(String, Secret)>,
}

/// Why proxy settings are invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InstanceProxyError {
    #[error(
        "the proxy host must be a name or an address only, such as p.webshare.io, without `://`, port or path"
    )]
    Host,
    #[error("the proxy port must be between 1 and 65535")]
    Port,
    #[error("the proxy protocol must be http, https or socks5")]
    Protocol,
    #[error("a proxy needs both user and password, or neither")]
    Login,
    #[error("proxy user and password must be text without line breaks")]
    Text,
}

impl InstanceProxy {
    pub fn new(
        host: &str,
        port: u16,
        protocol: Option<&str>,
        user: Option<&str>,
        password: Option<Secret>,
    ) -> Result<Self, InstanceProxyError> {
        let host = host.trim();
        let is_allowed = |c: char| c.is_alphanumeric() || "-._".contains(c);
        let is_address = host.parse::<std::net::IpAddr>().is_ok();
        let is_name =
            !host.is_empty() && host.len() <= HOST_BYTES_MAX && host.chars().all(is_allowed);
        if !is_address && !is_name {
            return Err(InstanceProxyError::Host);
        }
        if port == 0 {
            return Err(InstanceProxyError::Port);
        }
        let find_protocol = |text: &str| PROTOCOLS.into_iter().find(|known| *known == text);
        let protocol = protocol
            .map(|text| find_protocol(text).ok_or(InstanceProxyError::Protocol))
            .transpose()?;
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

    /// User and password; empty strings if there are none.
    pub(super) fn login(&self) -> (&str, &str) {
        let Some((user, password)) = &self.login else { return ("", "") };
        // `new` checked that it is UTF-8.
        (user, std::str::from_utf8(password.expose()).unwrap_or_default())
    }
}
