//! A request built from command line arguments or a file.

use anyhow::anyhow;
use http::{HeaderMap, HeaderName, HeaderValue};
use surehook_webhooks::request::{IncomingRequest, claimed_origins};

use crate::error::CliError;

#[derive(Debug, Default)]
pub(super) struct OfflineRequest {
    pub(super) source: String,
    pub(super) path: String,
    pub(super) query: Option<String>,
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
    pub(super) origin: Option<String>,
}

impl OfflineRequest {
    pub(super) fn new(body: Vec<u8>) -> Self {
        Self { source: "source".to_owned(), body, ..Self::default() }
    }

    /// Parses a raw HTTP request. Lines may end with a bare newline.
    pub(super) fn parse(raw: &[u8]) -> Result<Self, CliError> {
        let invalid = |reason: &str| CliError::refused(anyhow!("invalid HTTP request: {reason}"));
        let ends = [&b"\r\n\r\n"[..], b"\n\n"].map(|end| {
            raw.windows(end.len()).position(|part| part == end).map(|at| (at, at + end.len()))
        });
        let (head_end, body_start) = ends
            .into_iter()
            .flatten()
            .min()
            .ok_or_else(|| invalid("no empty line after the headers"))?;
        let head =
            std::str::from_utf8(&raw[..head_end]).map_err(|_| invalid("the head is not text"))?;
        let mut lines = head.lines();
        let target = lines.next().and_then(|line| line.split_whitespace().nth(1));
        let target = target
            .ok_or_else(|| invalid("the first line must look like POST /in/shop HTTP/1.1"))?;
        let mut request = Self::new(raw[body_start..].to_vec());
        request.set_url(target);
        for line in lines {
            request.add_header(line)?;
        }
        // The user passes the whole request, so its headers are trusted.
        if request.origin.is_none() {
            request.origin = claimed_origins(&request.headers).into_iter().next();
        }
        Ok(request)
    }

    /// Adds a header of the form `Name: value`.
    pub(super) fn add_header(&mut self, line: &str) -> Result<(), CliError> {
        let wrong = || CliError::refused(anyhow!("`{line}` is not a header; use Name: value"));
        let (name, value) = line.split_once(':').ok_or_else(wrong)?;
        let name: HeaderName = name.trim().parse().map_err(|_| wrong())?;
        let value = HeaderValue::from_bytes(value.trim().as_bytes()).map_err(|_| wrong())?;
        self.headers.append(name, value);
        Ok(())
    }

    /// Splits a URL into origin, source, path and query.
    pub(super) fn set_url(&mut self, url: &str) {
        let (url, query) = match url.split_once('?') {
            Some((url, query)) => (url, Some(query.to_owned())),
            None => (url, None),
        };
        self.query = query;
        let Some((origin, rest)) = url.split_once("/in/") else { return };
        if !origin.is_empty() {
            self.origin = Some(origin.to_owned());
        }
        let (source, path) = rest.find('/').map_or((rest, ""), |slash| rest.split_at(slash));
        (self.source, self.path) = (source.to_owned(), path.to_owned());
    }

    pub(super) fn incoming(&self) -> IncomingRequest<'_> {
        IncomingRequest {
            source: &self.source,
            path: &self.path,
            query: self.query.as_deref(),
            headers: &self.headers,
            body: &self.body,
            origin: self.origin.as_deref(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_request_is_parsed() {
        for end in ["\r\n", "\n"] {
            let raw =
                ["POST /in/shop/a/b?c=d HTTP/1.1", "Host: gw.test", "X-Sig: 1: 2", "", "{\n\n}"];
            let request = OfflineRequest::parse(raw.join(end).as_bytes()).unwrap();
            assert_eq!((request.source.as_str(), request.path.as_str()), ("shop", "/a/b"));
            assert_eq!(
                (request.query.as_deref(), &request.headers["x-sig"]),
                (Some("c=d"), &HeaderValue::from_static("1: 2"))
            );
            assert_eq!(request.body, b"{\n\n}");
            assert_eq!(request.incoming().url().unwrap(), "https://gw.test/in/shop/a/b?c=d");
        }
        for invalid in [&b"{}"[..], b"POST\n\n", b"POST / HTTP/1.1\nx\n\n", b"\xff / x\n\n"] {
            assert!(OfflineRequest::parse(invalid).is_err(), "{invalid:?}");
        }
    }

    #[test]
    fn url_is_split_into_origin_and_source() {
        let mut request = OfflineRequest::new(Vec::new());
        request.set_url("https://hooks.example.com/x/in/shop?a=1");
        assert_eq!(request.incoming().url().unwrap(), "https://hooks.example.com/x/in/shop?a=1");
    }
}
