//! A request, put together from what a person gives.

use anyhow::anyhow;
use http::{HeaderMap, HeaderName, HeaderValue};
use surehook_core::request::IncomingRequest;

use crate::failure::Failure;

/// A request as it would have come in.
#[derive(Debug, Default)]
pub(super) struct Given {
    pub(super) source: String,
    pub(super) path: String,
    pub(super) query: Option<String>,
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
    pub(super) origin: Option<String>,
}

impl Given {
    pub(super) fn new(body: Vec<u8>) -> Self {
        Self { source: "source".to_owned(), body, ..Self::default() }
    }

    /// Reads a request as it goes over the wire. Lines may end with a bare newline.
    pub(super) fn parse(raw: &[u8]) -> Result<Self, Failure> {
        let wrong = |why: &str| Failure::refused(anyhow!("this is not an HTTP request: {why}"));
        let ends = [&b"\r\n\r\n"[..], b"\n\n"].map(|end| {
            raw.windows(end.len()).position(|part| part == end).map(|at| (at, at + end.len()))
        });
        let (head_end, body_start) = ends
            .into_iter()
            .flatten()
            .min()
            .ok_or_else(|| wrong("there is no empty line after the headers"))?;
        let head =
            std::str::from_utf8(&raw[..head_end]).map_err(|_| wrong("its head is no text"))?;
        let mut lines = head.lines();
        let target = lines.next().and_then(|line| line.split_whitespace().nth(1));
        let target =
            target.ok_or_else(|| wrong("its first line is not like POST /in/shop HTTP/1.1"))?;
        let mut given = Self::new(raw[body_start..].to_vec());
        given.address(target);
        for line in lines {
            given.header(line)?;
        }
        Ok(given)
    }

    /// Adds `Name: value`.
    pub(super) fn header(&mut self, line: &str) -> Result<(), Failure> {
        let wrong =
            || Failure::refused(anyhow!("`{line}` is not a header; write it as Name: value"));
        let (name, value) = line.split_once(':').ok_or_else(wrong)?;
        let name: HeaderName = name.trim().parse().map_err(|_| wrong())?;
        let value = HeaderValue::from_bytes(value.trim().as_bytes()).map_err(|_| wrong())?;
        self.headers.append(name, value);
        Ok(())
    }

    /// Takes the address apart: what stands before `/in/`, the source, the rest.
    pub(super) fn address(&mut self, address: &str) {
        let (address, query) = match address.split_once('?') {
            Some((address, query)) => (address, Some(query.to_owned())),
            None => (address, None),
        };
        self.query = query;
        let Some((origin, rest)) = address.split_once("/in/") else { return };
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
    fn a_raw_request_is_taken_apart() {
        for end in ["\r\n", "\n"] {
            let raw =
                ["POST /in/shop/a/b?c=d HTTP/1.1", "Host: gw.test", "X-Sig: 1: 2", "", "{\n\n}"];
            let given = Given::parse(raw.join(end).as_bytes()).unwrap();
            assert_eq!((given.source.as_str(), given.path.as_str()), ("shop", "/a/b"));
            assert_eq!(
                (given.query.as_deref(), &given.headers["x-sig"]),
                (Some("c=d"), &HeaderValue::from_static("1: 2"))
            );
            assert_eq!(given.body, b"{\n\n}");
            assert_eq!(given.incoming().urls()[0], "https://gw.test/in/shop/a/b?c=d");
        }
        for wrong in [&b"{}"[..], b"POST\n\n", b"POST / HTTP/1.1\nx\n\n", b"\xff / x\n\n"] {
            assert!(Given::parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn an_address_is_taken_apart() {
        let mut given = Given::new(Vec::new());
        given.address("https://hooks.example.com/x/in/shop?a=1");
        assert_eq!(given.incoming().urls(), ["https://hooks.example.com/x/in/shop?a=1"]);
    }
}
