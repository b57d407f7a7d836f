//! A request as text, so that seeds and findings can be read and written by hand:
//!
//! ```text
//! /path?query
//! header: value
//!
//! the body
//! ```

use http::{HeaderMap, HeaderName, HeaderValue};

/// A request made by the fuzzer.
#[derive(Clone, Debug)]
pub(crate) struct Wire {
    pub(crate) target: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Wire {
    /// Parses leniently; parts that no HTTP server would accept are dropped.
    pub(crate) fn read(data: &[u8]) -> Self {
        let (head, body) = split(data, b"\n\n").unwrap_or((data, b""));
        let (target, lines) = split(head, b"\n").unwrap_or((head, b""));
        let mut headers = HeaderMap::new();
        for line in lines.split(|byte| *byte == b'\n').take(64) {
            let Some((name, value)) = split(line, b":") else { continue };
            let name = HeaderName::from_bytes(name.trim_ascii());
            if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(value.trim_ascii())) {
                headers.append(name, value);
            }
        }
        // Path and query are ASCII without spaces.
        let is_sendable = |byte: &u8| byte.is_ascii_graphic() && *byte != b'#';
        let target = target.iter().copied().filter(is_sendable).map(char::from).collect();
        Self { target, headers, body: body.to_vec() }
    }

    pub(crate) fn write(&self) -> Vec<u8> {
        let mut data = self.target.clone().into_bytes();
        data.push(b'\n');
        for (name, value) in &self.headers {
            data.extend_from_slice(name.as_str().as_bytes());
            data.extend_from_slice(b": ");
            data.extend_from_slice(value.as_bytes());
            data.push(b'\n');
        }
        data.push(b'\n');
        data.extend_from_slice(&self.body);
        data
    }
}

fn split<'d>(data: &'d [u8], at: &[u8]) -> Option<(&'d [u8], &'d [u8])> {
    let found = data.windows(at.len()).position(|window| window == at)?;
    Some((&data[..found], &data[found + at.len()..]))
}
