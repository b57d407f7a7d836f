//! Unpacks a compressed body so that keys and filters can look into it.
//!
//! The body is stored and forwarded as it came; what is unpacked here is thrown away. A small body
//! can unpack to a huge one, so both the size and the ratio have a bound, and beyond it there is
//! simply nothing to be seen.

use std::{borrow::Cow, io::Read};

use bytes::Bytes;
use flate2::bufread::{GzDecoder, ZlibDecoder};
use http::{HeaderMap, HeaderValue, header::CONTENT_ENCODING};

/// Ten times the largest body that is taken by default.
const UNPACKED_BYTES_MAX: usize = 10 << 20;

/// JSON shrinks to a tenth or so; a hundredth is a bomb or a body of nothing but zeros.
const RATIO_MAX: usize = 100;

/// The body as its sender meant it. Nothing if it is packed in a way that is unknown, too far, or
/// broken: a checksum that fails, a cut end, or something after it.
pub fn decode_body<'b>(headers: &HeaderMap, body: &'b [u8]) -> Option<Cow<'b, [u8]>> {
    decode_body_within(headers, body, UNPACKED_BYTES_MAX)
}

/// The same for whoever looks at many: nothing also if it unpacks to more than `bytes_max`.
pub fn decode_body_within<'b>(
    headers: &HeaderMap,
    body: &'b [u8],
    bytes_max: usize,
) -> Option<Cow<'b, [u8]>> {
    let limit = body.len().saturating_mul(RATIO_MAX).min(bytes_max);
    let mut encodings = headers.get_all(CONTENT_ENCODING).iter();
    let Some(encoding) = encodings.next() else { return Some(Cow::Borrowed(body)) };
    if encodings.next().is_some() {
        return None;
    }
    let encoding = encoding.as_bytes().trim_ascii();
    let is = |name: &str| encoding.eq_ignore_ascii_case(name.as_bytes());
    if encoding.is_empty() || is("identity") {
        Some(Cow::Borrowed(body))
    } else if is("gzip") || is("x-gzip") {
        let mut decoder = GzDecoder::new(body);
        let plain = read_bounded(&mut decoder, limit)?;
        decoder.into_inner().is_empty().then_some(Cow::Owned(plain))
    } else if is("deflate") {
        let mut decoder = ZlibDecoder::new(body);
        let plain = read_bounded(&mut decoder, limit)?;
        decoder.into_inner().is_empty().then_some(Cow::Owned(plain))
    } else {
        None
    }
}

/// The headers under which the body of a copy is looked into, whose own were not kept.
///
/// They are those of the original, but packed or not as the bytes themselves say. Otherwise a copy that
/// came packed when the original did not would hide what is in it.
pub fn headers_for_duplicate<'h>(headers: &'h HeaderMap, body: &[u8]) -> Cow<'h, HeaderMap> {
    let looks = looks_packed(body);
    match (looks, headers.contains_key(CONTENT_ENCODING)) {
        (Some(encoding), false) => {
            let mut packed = headers.clone();
            packed.insert(CONTENT_ENCODING, HeaderValue::from_static(encoding));
            Cow::Owned(packed)
        }
        (None, true) if std::str::from_utf8(body).is_ok() => {
            let mut bare = headers.clone();
            bare.remove(CONTENT_ENCODING);
            Cow::Owned(bare)
        }
        (Some(_), true) | (None, _) => Cow::Borrowed(headers),
    }
}

/// The encoding of a body that is no text and begins as a packed one does.
fn looks_packed(body: &[u8]) -> Option<&'static str> {
    let encoding = match body {
        [0x1f, 0x8b, ..] => "gzip",
        // Deflate in a window of at most 32 KiB, and a checksum over both bytes.
        [first, second, ..]
            if first & 0x0f == 8
                && first >> 4 <= 7
                && u16::from_be_bytes([*first, *second]) % 31 == 0 =>
        {
            "deflate"
        }
        _ => return None,
    };
    std::str::from_utf8(body).is_err().then_some(encoding)
}

/// Whether a body is certainly not packed as its headers say. Of a way that is unknown here nobody
/// knows.
pub fn has_wrong_encoding_header(headers: &HeaderMap, body: &[u8]) -> bool {
    let is_known = |encoding: &HeaderValue| {
        let encoding = encoding.as_bytes().trim_ascii();
        ["gzip", "x-gzip", "deflate"]
            .iter()
            .any(|name| encoding.eq_ignore_ascii_case(name.as_bytes()))
    };
    let mut encodings = headers.get_all(CONTENT_ENCODING).iter();
    let is_one = matches!((encodings.next(), encodings.next()), (Some(one), None) if is_known(one));
    // What begins as it should and is too large to be unpacked may be true.
    is_one && looks_packed(body).is_none() && decode_body(headers, body).is_none()
}

/// A request as rules read it: unpacked, with headers that say so. Here is what differs from the
/// request as it came; nothing does if it is not packed, and then it costs nothing.
#[derive(Debug)]
pub struct DecodedRequest {
    /// The headers without the encoding, if they name one.
    bare: Option<HeaderMap>,
    /// The body, if it could be unpacked.
    unpacked: Option<Vec<u8>>,
}

impl DecodedRequest {
    /// Unpacks what is packed.
    pub fn new(headers: &HeaderMap, body: &[u8]) -> Self {
        if !headers.contains_key(CONTENT_ENCODING) {
            return Self { bare: None, unpacked: None };
        }
        let mut bare = headers.clone();
        bare.remove(CONTENT_ENCODING);
        let unpacked = match decode_body(headers, body) {
            Some(Cow::Owned(unpacked)) => Some(unpacked),
            Some(Cow::Borrowed(_)) | None => None,
        };
        Self { bare: Some(bare), unpacked }
    }

    /// The request as one. What cannot be unpacked stays as it came, and rules see nothing in it.
    pub fn request<'r>(
        &'r self,
        headers: &'r HeaderMap,
        body: &'r [u8],
    ) -> (&'r HeaderMap, &'r [u8]) {
        match (&self.bare, &self.unpacked) {
            (Some(bare), Some(unpacked)) => (bare, unpacked),
            _ => (headers, body),
        }
    }

    /// One event of it, with its own body if it has one. A part is never packed, whatever the headers of the whole say.
    pub fn event<'r>(
        &'r self,
        headers: &'r HeaderMap,
        body: &'r [u8],
        part: Option<&'r Bytes>,
    ) -> (&'r HeaderMap, &'r [u8]) {
        match part {
            Some(part) => (self.bare.as_ref().unwrap_or(headers), part),
            None => self.request(headers, body),
        }
    }
}

fn read_bounded(decoder: &mut impl Read, limit: usize) -> Option<Vec<u8>> {
    let mut plain = Vec::new();
    // One byte more than allowed, to tell "just fits" from "does not".
    decoder.take(limit as u64 + 1).read_to_end(&mut plain).ok()?;
    (plain.len() <= limit).then_some(plain)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::{
        Compression,
        write::{GzEncoder, ZlibEncoder},
    };

    use super::*;

    fn gzip(plain: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(plain).unwrap();
        encoder.finish().unwrap()
    }

    fn zlib(plain: &[u8]) -> Vec<u8> {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(plain).unwrap();
        encoder.finish().unwrap()
    }

    fn packed(encoding: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(CONTENT_ENCODING, HeaderValue::from_static(encoding))])
    }

    #[test]
    fn a_bound_is_for_what_is_unpacked() {
        let body = gzip(&[b'a'; 50]);
        let headers = packed("gzip");
        assert!(decode_body_within(&headers, &body, 50).is_some());
        assert!(decode_body_within(&headers, &body, 49).is_none());
    }

    #[test]
    fn a_copy_is_looked_into_as_it_is_packed_itself() {
        let text = b"{\"token\":\"t\"}";
        for original in [HeaderMap::new(), packed("gzip")] {
            for body in [text.to_vec(), gzip(text)] {
                let headers = headers_for_duplicate(&original, &body);
                assert_eq!(
                    decode_body(&headers, &body).as_deref(),
                    Some(&text[..]),
                    "{original:?}"
                );
            }
        }
        let (none, deflated) = (HeaderMap::new(), zlib(text));
        let headers = headers_for_duplicate(&none, &deflated);
        assert_eq!(decode_body(&headers, &deflated).as_deref(), Some(&text[..]));
        // What begins as a packed one and is broken cannot be looked into.
        let broken = [&gzip(text)[..20], b"x"].concat();
        assert_eq!(decode_body(&headers_for_duplicate(&none, &broken), &broken), None);
        // A text that begins so by chance is a text.
        assert_eq!(*headers_for_duplicate(&none, b"x^ is a text"), none);
    }

    #[test]
    fn only_what_is_certainly_not_packed_belies_its_headers() {
        let body = gzip(b"{}");
        for (headers, body, expected) in [
            (HeaderMap::new(), &b"{}"[..], false),
            (packed("gzip"), b"{}", true),
            (packed("deflate"), b"{}", true),
            (packed("gzip"), &body, false),
            (packed("br"), b"{}", false),
            (packed("identity"), b"{}", false),
        ] {
            assert_eq!(has_wrong_encoding_header(&headers, body), expected, "{headers:?} {body:?}");
        }
    }
}
