//! The proxy of a destination.

use http::HeaderValue;
use percent_encoding::percent_decode_str;
use surehook_types::{
    authorization::basic_header,
    secret::{SecretError, digest_parts},
};
use url::{Host, Url};

/// Longest SOCKS user or password, in bytes (RFC 1929).
const SOCKS_FIELD_MAX: usize = 255;

/// Why a proxy URL is invalid. No text contains any part of the URL, which may contain a password.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProxySpecError {
    #[error("{0}")]
    Secret(#[from] SecretError),
    #[error("invalid URL; use the form http://user:password@proxy.example:3128")]
    Syntax,
    #[error("unsupported scheme; use http://, socks5:// or socks5h://")]
    Scheme,
    #[error("a proxy URL must not have a path, query or fragment")]
    Path,
    #[error("set both user and password or neither, in UTF-8 and without control characters")]
    Credentials,
    #[error("user and password may have at most {SOCKS_FIELD_MAX} bytes each")]
    TooLong,
}

/// The protocol of a proxy, and which side resolves names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyKind {
    /// `http`: CONNECT for https, absolute URLs for http. The proxy resolves names.
    Http,
    /// `socks5`: we resolve names, and the proxy gets a checked address.
    Socks5,
    /// `socks5h`: the proxy resolves names.
    Socks5h,
}

#[derive(Clone, PartialEq, Eq)]
pub struct ProxyUser {
    pub user: String,
    pub password: String,
}

impl std::fmt::Debug for ProxyUser {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ProxyUser(•••)")
    }
}

/// A checked proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proxy {
    pub kind: ProxyKind,
    pub host: Host,
    pub port: u16,
    pub user: Option<ProxyUser>,
}

impl Proxy {
    /// Parses a URL such as `http://user:password@host:port`.
    pub fn parse(text: &str) -> Result<Self, ProxySpecError> {
        let url = Url::parse(text.trim()).map_err(|_| ProxySpecError::Syntax)?;
        let (kind, default_port) = match url.scheme() {
            "http" => (ProxyKind::Http, 80),
            "socks5" => (ProxyKind::Socks5, 1080),
            "socks5h" => (ProxyKind::Socks5h, 1080),
            _ => return Err(ProxySpecError::Scheme),
        };
        if !matches!(url.path(), "" | "/") || url.query().is_some() || url.fragment().is_some() {
            return Err(ProxySpecError::Path);
        }
        let host = url.host_str().filter(|host| !host.is_empty()).ok_or(ProxySpecError::Syntax)?;
        // `url` normalizes the host only for http; parse it again, so that all schemes get the same.
        let host = Host::parse(host).map_err(|_| ProxySpecError::Syntax)?;
        let port = url.port().unwrap_or(default_port);
        Ok(Self { kind, host, port, user: parse_user(&url, kind)? })
    }

    /// The value of `proxy-authorization`.
    pub fn authorization(&self) -> Option<HeaderValue> {
        let user = self.user.as_ref()?;
        Some(basic_header(user.user.as_bytes(), user.password.as_bytes()))
    }

    /// Equal for equal proxies.
    pub fn digest(&self) -> [u8; 32] {
        let (host, port) = (self.host.to_string(), self.port.to_le_bytes());
        let (user, password) = match &self.user {
            Some(user) => (user.user.as_bytes(), user.password.as_bytes()),
            None => (&b""[..], &b""[..]),
        };
        digest_parts([&[self.kind as u8][..], host.as_bytes(), &port, user, password])
    }
}

fn parse_user(url: &Url, kind: ProxyKind) -> Result<Option<ProxyUser>, ProxySpecError> {
    let (user, password) = (url.username(), url.password().unwrap_or_default());
    if user.is_empty() && password.is_empty() {
        return Ok(None);
    }
    let decode = |text| percent_decode(text).ok_or(ProxySpecError::Credentials);
    let (user, password) = (decode(user)?, decode(password)?);
    let is_socks = match kind {
        ProxyKind::Http => false,
        ProxyKind::Socks5 | ProxyKind::Socks5h => true,
    };
    // A colon in the user would become part of the password.
    if user.is_empty() || password.is_empty() || (!is_socks && user.contains(':')) {
        return Err(ProxySpecError::Credentials);
    }
    if is_socks && (user.len() > SOCKS_FIELD_MAX || password.len() > SOCKS_FIELD_MAX) {
        return Err(ProxySpecError::TooLong);
    }
    Ok(Some(ProxyUser { user, password }))
}

/// Decodes the percent-encoding of a URL's user or password. `None` if the result is not plain text.
pub fn percent_decode(text: &str) -> Option<String> {
    let text = percent_decode_str(text).decode_utf8().ok()?;
    (!text.contains(char::is_control)).then(|| text.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxy_url_is_parsed() {
        let cases = [
            ("http://proxy.test:3128", "Http proxy.test 3128 "),
            ("http://proxy.test/", "Http proxy.test 80 "),
            ("http://u:p@proxy.test:3128", "Http proxy.test 3128 u/p"),
            ("http://u%40x:p%3a%20%25@10.0.0.1:1", "Http 10.0.0.1 1 u@x/p: %"),
            ("socks5://[::1]:9", "Socks5 [::1] 9 "),
            ("socks5://2130706433", "Socks5 127.0.0.1 1080 "),
            ("socks5h://u:p%C3%A9@proxy.test", "Socks5h proxy.test 1080 u/pé"),
        ];
        for (text, expected) in cases {
            let proxy = Proxy::parse(text).unwrap();
            let user = proxy.user.as_ref().map(|user| format!("{}/{}", user.user, user.password));
            let read = format!(
                "{:?} {} {} {}",
                proxy.kind,
                proxy.host,
                proxy.port,
                user.unwrap_or_default()
            );
            assert_eq!(read, expected, "case: {text}");
        }
    }

    #[test]
    fn invalid_proxy_url_is_rejected_without_repeating_it() {
        let long = format!("socks5://u:{}@h", "x".repeat(256));
        let cases = [
            ("proxy.test:3128", ProxySpecError::Scheme),
            ("canary", ProxySpecError::Syntax),
            ("https://canary@h:1", ProxySpecError::Scheme),
            ("http://u:canary@h/path", ProxySpecError::Path),
            ("http://h?canary", ProxySpecError::Path),
            ("http://canary@h", ProxySpecError::Credentials),
            ("http://:canary@h", ProxySpecError::Credentials),
            ("http://a%3ab:canary@h", ProxySpecError::Credentials),
            ("http://u:can%0d%0aary@h", ProxySpecError::Credentials),
            ("http://u:can%ffary@h", ProxySpecError::Credentials),
            (&long, ProxySpecError::TooLong),
        ];
        for (text, expected) in cases {
            let error = Proxy::parse(text).unwrap_err();
            assert!(!error.to_string().contains("canary"), "{error}");
            assert_eq!(error, expected, "case: {text}");
        }
        let proxy = Proxy::parse("http://u:canary@h").unwrap();
        assert!(!format!("{proxy:?}").contains("canary"));
    }

    #[test]
    fn proxy_digest_changes_with_every_part() {
        let texts = [
            "http://h",
            "http://h:81",
            "http://i",
            "socks5://h",
            "socks5h://h",
            "http://a:b@h",
            "http://a:c@h",
            "http://ab:c@h",
        ];
        let digests: std::collections::HashSet<_> =
            texts.iter().map(|text| Proxy::parse(text).unwrap().digest()).collect();
        assert_eq!(digests.len(), texts.len());
    }
}
