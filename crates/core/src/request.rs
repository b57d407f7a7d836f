//! Requests as rules see them: what came in, and what is about to go out.

use http::{HeaderMap, header};

/// A request at the door, with what its provider knows of its address.
#[derive(Clone, Copy, Debug)]
pub struct IncomingRequest<'r> {
    /// The name of the source.
    pub source: &'r str,
    /// What follows the source's name in the path, `/` included.
    pub path: &'r str,
    /// The query without the question mark.
    pub query: Option<&'r str>,
    /// The headers.
    pub headers: &'r HeaderMap,
    /// The body, exactly.
    pub body: &'r [u8],
    /// What stands before `/in/` in the address that the provider calls, such as
    /// `https://hooks.example.com`; not known unless somebody configured it.
    pub origin: Option<&'r str>,
}

/// A request that is being made, for schemes that sign.
#[derive(Clone, Copy, Debug)]
pub struct OutgoingRequest<'r> {
    /// An id that is the same at every attempt.
    pub id: &'r str,
    /// The whole address that is called.
    pub url: &'r str,
    /// The headers so far.
    pub headers: &'r HeaderMap,
    /// The body, exactly.
    pub body: &'r [u8],
}

impl IncomingRequest<'_> {
    /// The addresses that the provider may have called, the likeliest first. A configured origin is
    /// the only one; without it there is only what the proxies in front of us let through.
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

    /// A header as text, if it is there once and is text.
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
    fn the_address_is_what_the_provider_called() {
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
