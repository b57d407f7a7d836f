//! Incoming requests for verification and parsing, and outgoing requests for signing.

use http::{HeaderMap, HeaderValue, header};

use crate::verify::VerifyError;

/// An incoming request, with the parts of its URL.
#[derive(Clone, Copy, Debug)]
pub struct IncomingRequest<'r> {
    /// Name of the source in the gateway; empty in other programs.
    pub source: &'r str,
    /// The rest of the path after the source name or after the configured URL, including `/`.
    pub path: &'r str,
    /// The query string without `?`.
    pub query: Option<&'r str>,
    /// The headers.
    pub headers: &'r HeaderMap,
    /// The raw body.
    pub body: &'r [u8],
    /// The configured public URL that the provider calls: with a source the part before `/in/`, such as
    /// `https://hooks.example.com`, otherwise everything before `path`.
    pub origin: Option<&'r str>,
}

/// An outgoing request to sign.
#[derive(Clone, Copy, Debug)]
pub struct OutgoingRequest<'r> {
    /// The same at every attempt.
    pub id: &'r str,
    /// The full URL.
    pub url: &'r str,
    /// The headers.
    pub headers: &'r HeaderMap,
    /// The raw body.
    pub body: &'r [u8],
}

impl IncomingRequest<'_> {
    /// The URL that the provider called, for a signature that covers it.
    ///
    /// It comes from the settings only: a request can claim any host, and a request signed for another
    /// URL would be believed.
    pub fn url(&self) -> Result<String, VerifyError> {
        let origin = self.origin.ok_or(VerifyError::UnknownUrl)?.trim_end_matches('/');
        let query = self.query.map(|query| format!("?{query}")).unwrap_or_default();
        Ok(match self.source {
            "" => format!("{origin}{}{query}", self.path),
            source => format!("{origin}/in/{source}{}{query}", self.path),
        })
    }

    /// The value of a header, if it occurs once, is text and is not empty.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.get_all(name).iter();
        match (values.next(), values.next()) {
            (Some(value), None) => value.to_str().ok().filter(|text| !text.is_empty()),
            _ => None,
        }
    }
}

/// The origins that a request claims to have called, the most likely first, by its `Host` and forwarding
/// headers. Anyone can write them.
pub fn claimed_origins(headers: &HeaderMap) -> Vec<String> {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let host = text("x-forwarded-host").or_else(|| text(header::HOST.as_str()));
    let Some(host) = host.filter(|host| !host.is_empty()) else { return Vec::new() };
    let schemes = match text("x-forwarded-proto") {
        Some("http") => ["http", "https"],
        Some(_) | None => ["https", "http"],
    };
    schemes.map(|scheme| format!("{scheme}://{host}")).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&str, &str)| {
            (name.parse::<http::HeaderName>().unwrap(), value.parse().unwrap())
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn url_comes_from_the_configured_origin_only() {
        let headers = headers(&[("host", "evil.test"), ("x-forwarded-host", "evil.test")]);
        let url_of = |source, origin| {
            let (path, query) = ("/a", Some("b=1"));
            IncomingRequest { source, path, query, headers: &headers, body: b"", origin }.url()
        };
        let url = |origin| url_of("s", origin);
        assert_eq!(
            url_of("", Some("https://app.test/hooks")).unwrap(),
            "https://app.test/hooks/a?b=1"
        );
        assert_eq!(url(Some("https://gw.test")).unwrap(), "https://gw.test/in/s/a?b=1");
        assert_eq!(
            url(Some("https://gw.test/hooks/")).unwrap(),
            "https://gw.test/hooks/in/s/a?b=1"
        );
        assert_eq!(url(None), Err(VerifyError::UnknownUrl));
    }

    #[test]
    fn claimed_origins_come_from_host_and_forwarding_headers() {
        type Case = (&'static [(&'static str, &'static str)], &'static [&'static str]);
        let cases: [Case; 3] = [
            (&[("host", "gw.test")], &["https://gw.test", "http://gw.test"]),
            (
                &[
                    ("host", "gw:80"),
                    ("x-forwarded-host", "out.test"),
                    ("x-forwarded-proto", "http"),
                ],
                &["http://out.test", "https://out.test"],
            ),
            (&[], &[]),
        ];
        for (pairs, expected) in cases {
            assert_eq!(claimed_origins(&headers(pairs)), expected, "case: {pairs:?}");
        }
    }
}
