//! How a response is stored as the result of a claim.
//!
//! ```text
//! version (1 byte) ─ status (2) ─ number of headers (2) ─ per header: length (2), name, length (2), value ─ body
//! ```
//!
//! A result of version 0 stands for a response that was too large.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};

/// A response that was sent and could not be stored.
pub(crate) const NOT_STORED: Bytes = Bytes::from_static(&[0]);
const VERSION: u8 = 1;

/// Headers that belong to one connection or one point in time; the server sets them anew. Cookies are
/// credentials, and a stored copy would outlive them.
const SKIPPED: [HeaderName; 8] = [
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::DATE,
    header::SET_COOKIE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("keep-alive"),
];

/// The stored form; `None` if a header is too long for it.
pub(crate) fn encode(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Option<Bytes> {
    let kept = || headers.iter().filter(|(name, _)| !SKIPPED.contains(name));
    let mut stored = BytesMut::with_capacity(body.len() + 256);
    stored.put_u8(VERSION);
    stored.put_u16(status.as_u16());
    stored.put_u16(u16::try_from(kept().count()).ok()?);
    for (name, value) in kept() {
        for text in [name.as_str().as_bytes(), value.as_bytes()] {
            stored.put_u16(u16::try_from(text.len()).ok()?);
            stored.put_slice(text);
        }
    }
    stored.put_slice(body);
    Some(stored.freeze())
}

/// The response; `None` if it was not stored, or cannot be read.
pub(crate) fn decode<B: From<Bytes>>(mut stored: Bytes) -> Option<Response<B>> {
    if stored.try_get_u8().ok()? != VERSION {
        return None;
    }
    let status = StatusCode::from_u16(stored.try_get_u16().ok()?).ok()?;
    let count = stored.try_get_u16().ok()?;
    let mut headers = HeaderMap::with_capacity(usize::from(count) + 1);
    for _ in 0..count {
        let name = HeaderName::from_bytes(&take_text(&mut stored)?).ok()?;
        let value = HeaderValue::from_maybe_shared(take_text(&mut stored)?).ok()?;
        headers.append(name, value);
    }
    let mut response = Response::new(B::from(stored));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    Some(response)
}

fn take_text(stored: &mut Bytes) -> Option<Bytes> {
    let length = usize::from(stored.try_get_u16().ok()?);
    (length <= stored.len()).then(|| stored.split_to(length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_response_has_status_headers_and_body_of_the_first() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("location", "/orders/1"),
            ("x-tag", "a"),
            ("x-tag", "b"),
            ("set-cookie", "session=1"),
            ("content-length", "5"),
            ("date", "Wed, 18 Nov 2026 14:00:00 GMT"),
        ] {
            headers.append(name, HeaderValue::from_static(value));
        }
        headers.append("x-latin", HeaderValue::from_bytes(b"caf\xe9").unwrap());
        let stored = encode(StatusCode::CREATED, &headers, b"hello").unwrap();
        let response: Response<Bytes> = decode(stored).unwrap();
        assert_eq!((response.status(), &response.body()[..]), (StatusCode::CREATED, &b"hello"[..]));
        let kept = response.headers();
        assert_eq!(kept["location"], "/orders/1");
        assert_eq!(kept["x-latin"].as_bytes(), b"caf\xe9");
        assert_eq!(kept.get_all("x-tag").iter().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(kept.len(), 4, "{kept:?}");
    }

    #[test]
    fn damaged_or_missing_response_is_not_read() {
        let headers = HeaderMap::from_iter([(header::LOCATION, HeaderValue::from_static("/x"))]);
        let stored = encode(StatusCode::OK, &headers, b"").unwrap();
        for length in 0..stored.len() {
            assert!(decode::<Bytes>(stored.slice(..length)).is_none(), "{length} bytes");
        }
        assert!(decode::<Bytes>(NOT_STORED).is_none());
        let mut other_version = stored.to_vec();
        other_version[0] = 2;
        assert!(decode::<Bytes>(other_version.into()).is_none());
        assert!(decode::<Bytes>(stored).is_some());
    }
}
