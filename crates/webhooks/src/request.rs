//! Incoming requests for verification and parsing, and outgoing requests for signing.

use http::{HeaderMap, header};

use crate::verify::VerifyError;

/// An incoming request, with the parts of its URL.
#[derive(Clone, Copy, Debug)]
pub struct IncomingRequest<'r> {
    /// Name of the source.
    pub source: &'r str,
    /// The rest of the path after the source name, including `/`.
    pub path: &'r str,
    /// The query string without `?`.
    pub query: Option<&'r str>,
    pub headers: &'r HeaderMap,
    /// The raw body.
    pub body: &'r [u8],
    /// The part of the public URL before `/in/`, such as `https://hooks.example.com`, if configured.
    pub origin: Option<&'r str>,
}

/// An outgoing request to sign.
#[derive(Clone, Copy, Debug)]
pub struct OutgoingRequest<'r> {
    /// The same at every attempt.
    pub id: &'r str,
    /// The full URL.
    pub url: &'r str,
    pub headers: &'r HeaderMap,
    /// The raw body.
    pub body: &'r [u8],
}

impl IncomingRequest<'_> {
    /// The URLs that the provider may have called, the most likely first. A configured origin gives
    /// exactly one; otherwise they are derived from the `Host` and forwarding headers.
    pub fn urls(&self) -> Vec<String> {
        let query = self.query.map(|query| format!("?{query}")).unwrap_or_default();
        let target = format!("/in/{}{}{query}", self.source, self.path);
        if let Some(origin) = self.origin {
            return vec![format!("{}{target}", origin.trim_end_matches('/'))];
        }
        let text = |name| self.headers.get(name).and_then(|value| value.to_str().ok());
        let host = text("x-forwarded-host").or_else(|| text(header::HOST.as_str()));
        let Some(host) = host.filter(|host| !host.is_empty()) else { return Vec::new() };
        let schemes = match text("x-forwarded-proto") {
            Some("http") => ["http", "https"],
            Some(_) | None => ["https", "http"],
        };
        schemes.map(|scheme| format!("{scheme}://{host}{target}")).to_vec()
    }

    /// Like [`Self::urls`], for a signature that covers the URL.
    pub(crate) fn known_urls(&self) -> Result<Vec<String>, VerifyError> {
        Some(self.urls()).filter(|urls| !urls.is_empty()).ok_or(VerifyError::UnknownUrl)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_come_from_origin_or_forwarding_headers() {
        type Case = (
            Option<&'static str>,
            &'static [(&'static str, &'static str)],
            &'static [&'static str],
        );
        let cases: [Case; 5] = [
            (Some("https://gw.test"), &[("host", "10.0.0.1")], &["https://gw.test/in/s/a?b=1"]),
            (Some("https://gw.test/hooks/"), &[], &["https://gw.test/hooks/in/s/a?b=1"]),
            (
                None,
                &[("host", "gw.test")],
                &["https://gw.test/in/s/a?b=1", "http://gw.test/in/s/a?b=1"],
            ),
            (
                None,
                &[
                    ("host", "gw:80"),
                    ("x-forwarded-host", "out.test"),
                    ("x-forwarded-proto", "http"),
                ],
                &["http://out.test/in/s/a?b=1", "https://out.test/in/s/a?b=1"],
            ),
            (None, &[], &[]),
        ];
        for (origin, pairs, expected) in cases {
            let headers = pairs
                .iter()
                .map(|(name, value)| {
                    (name.parse::<http::HeaderName>().unwrap(), value.parse().unwrap())
                })
                .collect();
            let request = IncomingRequest {
                source: "s",
                path: "/a",
                query: Some("b=1"),
                headers: &headers,
                body: b"",
                origin,
            };
            assert_eq!(request.urls(), expected, "case: {origin:?} {pairs:?}");
        }
    }
}
