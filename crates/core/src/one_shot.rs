//! One-shot deliveries: a webhook to a URL that is named in the request instead of a configured destination.
//!
//! Behind each URL is a destination of the kind `origin`. It is created with the first request to that
//! origin and stands for all its URLs, so one-shot deliveries have what all deliveries have: a lane with
//! limits and a circuit breaker, retries, dead letters, replay. The path and the query are stored with
//! the event. Which URLs a token may name is listed in the token ([`UrlPattern`]); the address policy
//! applies to each attempt as to all others.

use std::{fmt, str::FromStr};

use http::Uri;
use surehook_guard::address::{DestinationUrlError, check_url};
use surehook_retry::RetrySpec;
use surehook_types::{json_text, name::Name, redact, time::HumanDuration};
use url::{Position, Url};

use crate::{
    destination::{DestinationSpec, TIMEOUT, kind::DestinationKind},
    event::RequestHead,
};

/// Maximum number of destinations of the kind `origin`: each has a lane in memory.
pub const ORIGINS_MAX: usize = 1000;

/// Most URL patterns of a token.
pub const TOKEN_URLS_MAX: usize = 50;

/// A URL that is delivered to without a configured destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OneShotUrl {
    /// Scheme, host and port, such as `https://app.example`.
    pub origin: String,
    /// The path, with its leading `/`.
    pub path: String,
    /// Without the question mark.
    pub query: Option<String>,
}

/// Why a URL cannot be delivered to.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseOneShotUrlError {
    #[error("{0}")]
    Syntax(#[from] url::ParseError),
    #[error("{0}")]
    Url(#[from] DestinationUrlError),
    /// It would be stored in plain text with each event.
    #[error(
        "the URL holds a secret; configure a destination with this URL, where it is stored encrypted, and name that"
    )]
    HoldsSecret,
}

impl FromStr for OneShotUrl {
    type Err = ParseOneShotUrlError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let url = Url::parse(text)?;
        check_url(&url)?;
        if redact::mask_url(url.as_str()) != url.as_str() {
            return Err(ParseOneShotUrlError::HoldsSecret);
        }
        Ok(Self {
            origin: url[..Position::BeforePath].to_owned(),
            path: url.path().to_owned(),
            query: url.query().map(str::to_owned),
        })
    }
}

impl OneShotUrl {
    fn host(&self) -> &str {
        let host = self.origin.split_once("://").map_or("", |(_, authority)| authority);
        // The port follows the last colon, unless that is inside an IPv6 address.
        match host.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => host,
            Some(_) | None => host,
        }
    }

    /// The destination that is created for the origin; `is_taken` says which names exist.
    pub fn destination(
        &self,
        retry: Option<RetrySpec>,
        timeout: Option<HumanDuration>,
        is_taken: impl Fn(&str) -> bool,
    ) -> DestinationSpec {
        DestinationSpec {
            kind: DestinationKind::Origin,
            url: self.origin.clone(),
            retry: retry.unwrap_or_default(),
            timeout: timeout.unwrap_or(HumanDuration(TIMEOUT)),
            ..DestinationSpec::named(self.free_name(is_taken))
        }
    }

    /// The host as a name, such as `app-example`, with a number if it is taken.
    fn free_name(&self, is_taken: impl Fn(&str) -> bool) -> Name {
        let to_name_char = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '-' };
        let host: String = self.host().to_ascii_lowercase().chars().map(to_name_char).collect();
        let host = host.trim_matches('-');
        let host = if host.is_empty() { "origin" } else { &host[..host.len().min(56)] };
        let numbered = (2..).map(|number: u32| format!("{host}-{number}"));
        let mut names = std::iter::once(host.to_owned()).chain(numbered);
        let free = names.find(|name| !is_taken(name)).and_then(|name| name.parse().ok());
        // Letters, digits and `-` with a letter or digit in front are a name.
        free.unwrap_or_else(|| Name::from_static("origin"))
    }
}

impl fmt::Display for OneShotUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.origin, self.path)?;
        self.query.as_ref().map_or(Ok(()), |query| write!(f, "?{query}"))
    }
}

/// The URL of one request to an origin; `None` if the request names no path.
pub fn url_at_origin(origin: &Uri, head: &RequestHead) -> Option<Uri> {
    if !head.path.starts_with('/') {
        return None;
    }
    let target = match &head.query {
        Some(query) => format!("{}?{query}", head.path),
        None => head.path.clone(),
    };
    let mut parts = origin.clone().into_parts();
    parts.path_and_query = Some(target.parse().ok()?);
    Uri::from_parts(parts).ok()
}

/// URLs that a token may name: an origin, and a path that ends with `*` or stands for itself. The host
/// may begin with `*.` for all subdomains.
///
/// `https://app.example/*`, `https://*.app.example/hooks/*`, `http://127.0.0.1:9000/done`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UrlPattern {
    scheme: String,
    host: HostPattern,
    port: Option<u16>,
    path: PathPattern,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum HostPattern {
    Exact(String),
    /// All subdomains of this, which begins with a dot.
    Subdomains(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum PathPattern {
    Exact(String),
    Prefix(String),
}

/// The text is not a valid [`UrlPattern`].
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid URL pattern `{0}`; use https://HOST/PATH, where HOST may begin with `*.` and PATH may end with `*`, such as https://*.app.example/hooks/*"
)]
pub struct ParseUrlPatternError(String);

impl FromStr for UrlPattern {
    type Err = ParseUrlPatternError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || ParseUrlPatternError(text.to_owned());
        let (scheme, rest) = text.split_once("://").ok_or_else(invalid)?;
        let (rest, is_subdomains) = match rest.strip_prefix("*.") {
            Some(rest) => (rest, true),
            None => (rest, false),
        };
        let (rest, is_prefix) = match rest.strip_suffix('*') {
            Some(rest) => (rest, true),
            None => (rest, false),
        };
        // Parsed like the URLs that it is compared with, so that both are written in the same way.
        let url = Url::parse(&format!("{scheme}://{rest}")).map_err(|_| invalid())?;
        let has_path = rest.contains('/');
        let is_plain = check_url(&url).is_ok() && url.query().is_none() && !rest.contains('*');
        let host = url.host_str().filter(|_| is_plain && has_path).ok_or_else(invalid)?;
        if is_subdomains && !matches!(url.host(), Some(url::Host::Domain(_))) {
            return Err(invalid());
        }
        let path = url.path().to_owned();
        Ok(Self {
            scheme: url.scheme().to_owned(),
            host: match is_subdomains {
                true => HostPattern::Subdomains(format!(".{host}")),
                false => HostPattern::Exact(host.to_owned()),
            },
            port: url.port(),
            path: if is_prefix { PathPattern::Prefix(path) } else { PathPattern::Exact(path) },
        })
    }
}

impl UrlPattern {
    pub fn allows(&self, url: &OneShotUrl) -> bool {
        let Ok(origin) = Url::parse(&url.origin) else { return false };
        let host = origin.host_str().unwrap_or_default();
        let has_host = match &self.host {
            HostPattern::Exact(expected) => host == expected,
            HostPattern::Subdomains(ending) => {
                host.len() > ending.len() && host.ends_with(ending.as_str())
            }
        };
        let has_path = match &self.path {
            PathPattern::Exact(expected) => url.path == *expected,
            PathPattern::Prefix(prefix) => url.path.starts_with(prefix.as_str()),
        };
        has_host && has_path && origin.scheme() == self.scheme && origin.port() == self.port
    }
}

impl fmt::Display for UrlPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (wildcard, host) = match &self.host {
            HostPattern::Exact(host) => ("", host.as_str()),
            HostPattern::Subdomains(ending) => ("*", ending.as_str()),
        };
        write!(f, "{}://{wildcard}{host}", self.scheme)?;
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))?;
        match &self.path {
            PathPattern::Exact(path) => f.write_str(path),
            PathPattern::Prefix(path) => write!(f, "{path}*"),
        }
    }
}

json_text!(UrlPattern, "UrlPattern", {
    "description": "URLs: an origin, and a path that ends with `*` or stands for itself. The host may begin with `*.`.",
    "examples": ["https://*.app.example/hooks/*"],
});

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn one_shot(text: &str) -> OneShotUrl {
        text.parse().unwrap()
    }

    #[test]
    fn url_is_split_into_origin_path_and_query() {
        let cases = [
            ("https://app.example", "https://app.example", "/", None),
            ("HTTPS://App.Example:443/a/../b?x=1", "https://app.example", "/b", Some("x=1")),
            ("http://127.0.0.1:9000/h%20i", "http://127.0.0.1:9000", "/h%20i", None),
            ("http://[::1]:9000/", "http://[::1]:9000", "/", None),
        ];
        for (text, origin, path, query) in cases {
            let url = one_shot(text);
            assert_eq!((&*url.origin, &*url.path, url.query.as_deref()), (origin, path, query));
            let head = RequestHead {
                path: url.path.clone(),
                query: url.query.clone(),
                remote: Arc::default(),
                ..RequestHead::default()
            };
            let rebuilt = url_at_origin(&origin.parse().unwrap(), &head).unwrap();
            assert_eq!(rebuilt.to_string(), url.to_string(), "case: {text}");
        }
        assert_eq!(url_at_origin(&Uri::from_static("http://a"), &RequestHead::default()), None);
    }

    #[test]
    fn url_with_a_secret_or_without_http_is_refused() {
        for text in [
            "ftp://app.example/",
            "https://user:pass@app.example/",
            "https://app.example/#part",
            "https://app.example/in?token=abc",
            "https://hooks.slack.com/services/T0/B0/abc",
            "app.example",
        ] {
            assert!(text.parse::<OneShotUrl>().is_err(), "case: {text}");
        }
    }

    #[test]
    fn pattern_allows_only_its_scheme_host_port_and_path() {
        let cases = [
            ("https://app.example/*", "https://app.example/jobs/7?x=1", true),
            ("https://app.example/*", "http://app.example/jobs", false),
            ("https://app.example/*", "https://app.example:8443/jobs", false),
            ("https://app.example:443/*", "https://app.example/jobs", true),
            ("https://app.example/*", "https://app.example.evil.example/", false),
            ("https://app.example/done", "https://app.example/done?x=1", true),
            ("https://app.example/done", "https://app.example/done/more", false),
            ("https://app.example/hooks/*", "https://app.example/hooks/../admin", false),
            ("https://app.example/hooks/*", "https://app.example/hooks/%2e%2e/admin", false),
            ("https://*.app.example/*", "https://eu.app.example/", true),
            ("https://*.app.example/*", "https://a.b.app.example/", true),
            ("https://*.app.example/*", "https://app.example/", false),
            ("https://*.app.example/*", "https://notapp.example/", false),
            ("http://127.0.0.1:9000/*", "http://0x7f.1:9000/done", true),
        ];
        for (pattern, url, is_allowed) in cases {
            let pattern: UrlPattern = pattern.parse().unwrap();
            assert_eq!(pattern.allows(&one_shot(url)), is_allowed, "case: {pattern} {url}");
            assert_eq!(pattern.to_string().parse(), Ok(pattern));
        }
    }

    #[test]
    fn ambiguous_pattern_is_refused() {
        for text in [
            "*",
            "https://*",
            "https://*/",
            "https://app.example",
            "https://a*.example/*",
            "https://app.example/*/x",
            "https://app.example/?x=*",
            "https://*.1.2.3.4/*",
            "ftp://app.example/*",
        ] {
            assert!(text.parse::<UrlPattern>().is_err(), "case: {text}");
        }
    }

    #[test]
    fn destination_is_named_after_the_host() {
        let long = format!("https://{}.example/", "a".repeat(63));
        let cases = [
            ("https://App.example:8443/x", "app-example"),
            ("http://[::1]:9000/", "1"),
            ("https://taken.example/", "taken-example-2"),
            (long.as_str(), &"a".repeat(56)),
        ];
        for (url, name) in cases {
            let is_taken = |name: &str| name == "taken-example";
            let spec = one_shot(url).destination(None, None, is_taken);
            assert_eq!((spec.name.as_str(), spec.kind), (name, DestinationKind::Origin));
        }
    }
}
