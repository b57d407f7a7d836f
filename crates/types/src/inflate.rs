//! Decodes compressed bodies for key rules and filters.
//!
//! The body is stored and forwarded unchanged; the decoded form is temporary. Size and compression
//! ratio are limited (decompression bombs); beyond the limit a body counts as unreadable.

use std::{borrow::Cow, convert::Infallible, io::Read};

use bytes::Bytes;
use flate2::bufread::{GzDecoder, ZlibDecoder};
use http::{HeaderMap, HeaderValue, header::CONTENT_ENCODING};

/// Ten times the default body limit.
const DECODED_BYTES_MAX: usize = 10 << 20;

/// The first step in which a body is decoded; each further step doubles what there is.
const STEP_BYTES: usize = 16 << 10;

/// JSON compresses about tenfold; a hundredfold is a decompression bomb.
const RATIO_MAX: usize = 100;

/// The decoded body. `None` if the encoding is unknown, the limit is exceeded, or the data is corrupt:
/// a wrong checksum, a truncated end, or trailing bytes.
pub fn decode_body<'b>(headers: &HeaderMap, body: &'b [u8]) -> Option<Cow<'b, [u8]>> {
    decode_body_within(headers, body, DECODED_BYTES_MAX)
}

/// Like [`decode_body`], with a limit of `bytes_max` for the decoded body.
pub fn decode_body_within<'b>(
    headers: &HeaderMap,
    body: &'b [u8],
    bytes_max: usize,
) -> Option<Cow<'b, [u8]>> {
    decode_body_into(headers, body, bytes_max, &mut |_| Ok::<_, Infallible>(())).ok().flatten()
}

/// Like [`decode_body_within`]. Calls `reserve` with a number of bytes before it uses as many more;
/// an error of `reserve` ends the decoding.
fn decode_body_into<'b, E>(
    headers: &HeaderMap,
    body: &'b [u8],
    bytes_max: usize,
    reserve: &mut impl FnMut(usize) -> Result<(), E>,
) -> Result<Option<Cow<'b, [u8]>>, E> {
    let limit = body.len().saturating_mul(RATIO_MAX).min(bytes_max);
    let mut encodings = headers.get_all(CONTENT_ENCODING).iter();
    let Some(encoding) = encodings.next() else { return Ok(Some(Cow::Borrowed(body))) };
    if encodings.next().is_some() {
        return Ok(None);
    }
    let encoding = encoding.as_bytes().trim_ascii();
    let is = |name: &str| encoding.eq_ignore_ascii_case(name.as_bytes());
    let (decoded, has_rest) = if encoding.is_empty() || is("identity") {
        return Ok(Some(Cow::Borrowed(body)));
    } else if is("gzip") || is("x-gzip") {
        let mut decoder = GzDecoder::new(body);
        let decoded = read_bounded(&mut decoder, limit, reserve)?;
        (decoded, !decoder.into_inner().is_empty())
    } else if is("deflate") {
        let mut decoder = ZlibDecoder::new(body);
        let decoded = read_bounded(&mut decoder, limit, reserve)?;
        (decoded, !decoder.into_inner().is_empty())
    } else {
        return Ok(None);
    };
    Ok(decoded.filter(|_| !has_rest).map(Cow::Owned))
}

/// The headers for decoding the body of a duplicate, whose own headers are not stored.
///
/// They are those of the original, with `content-encoding` guessed from the bytes. Otherwise a
/// duplicate that is compressed when the original is not would be unreadable.
pub fn headers_for_duplicate<'h>(headers: &'h HeaderMap, body: &[u8]) -> Cow<'h, HeaderMap> {
    match (guess_encoding(body), headers.contains_key(CONTENT_ENCODING)) {
        (Some(encoding), false) => {
            let mut changed = headers.clone();
            changed.insert(CONTENT_ENCODING, HeaderValue::from_static(encoding));
            Cow::Owned(changed)
        }
        (None, true) if std::str::from_utf8(body).is_ok() => {
            let mut changed = headers.clone();
            changed.remove(CONTENT_ENCODING);
            Cow::Owned(changed)
        }
        (Some(_), true) | (None, _) => Cow::Borrowed(headers),
    }
}

/// The encoding of a body that is not text and starts like compressed data.
fn guess_encoding(body: &[u8]) -> Option<&'static str> {
    let encoding = match body {
        [0x1f, 0x8b, ..] => "gzip",
        // A zlib header: deflate with a window of at most 32 KiB, and a checksum over both bytes.
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

/// Whether a body is certainly not encoded as its headers say; `false` for unknown encodings.
pub fn has_wrong_encoding_header(headers: &HeaderMap, body: &[u8]) -> bool {
    let is_known = |encoding: &HeaderValue| {
        let encoding = encoding.as_bytes().trim_ascii();
        ["gzip", "x-gzip", "deflate"]
            .iter()
            .any(|name| encoding.eq_ignore_ascii_case(name.as_bytes()))
    };
    let mut encodings = headers.get_all(CONTENT_ENCODING).iter();
    let is_one = matches!((encodings.next(), encodings.next()), (Some(one), None) if is_known(one));
    // A body that starts correctly and is too large to decode may be valid.
    is_one && guess_encoding(body).is_none() && decode_body(headers, body).is_none()
}

/// The decoded form of a compressed request, for rules.
///
/// The bytes alone decide whether and how it is compressed: no signature covers the header, and with
/// another one a signed request would get another key. Contains only what differs from the request, so
/// an uncompressed request costs nothing.
#[derive(Debug)]
pub struct DecodedRequest {
    /// The headers without `content-encoding`, if there was one.
    headers: Option<HeaderMap>,
    /// The body, if it could be decoded.
    body: Option<Vec<u8>>,
}

impl DecodedRequest {
    /// Decodes the body by its `content-encoding`.
    pub fn new(headers: &HeaderMap, body: &[u8]) -> Self {
        match Self::new_within(headers, body, |_| Ok::<_, Infallible>(())) {
            Ok(decoded) => decoded,
            Err(never) => match never {},
        }
    }

    /// Calls `reserve` with a number of bytes before it uses as many more.
    pub fn new_within<E>(
        headers: &HeaderMap,
        body: &[u8],
        mut reserve: impl FnMut(usize) -> Result<(), E>,
    ) -> Result<Self, E> {
        let encoding = guess_encoding(body);
        if encoding.is_none() && !headers.contains_key(CONTENT_ENCODING) {
            return Ok(Self { headers: None, body: None });
        }
        let decoded = match encoding {
            None => None,
            Some(encoding) => {
                let declared = HeaderValue::from_static(encoding);
                let declared = HeaderMap::from_iter([(CONTENT_ENCODING, declared)]);
                decode_body_into(&declared, body, DECODED_BYTES_MAX, &mut reserve)?
                    .map(Cow::into_owned)
            }
        };
        let mut headers = headers.clone();
        headers.remove(CONTENT_ENCODING);
        Ok(Self { headers: Some(headers), body: decoded })
    }

    /// The headers and body of the whole request. A body that cannot be decoded stays compressed.
    pub fn request<'r>(
        &'r self,
        headers: &'r HeaderMap,
        body: &'r [u8],
    ) -> (&'r HeaderMap, &'r [u8]) {
        (self.headers.as_ref().unwrap_or(headers), self.body.as_deref().unwrap_or(body))
    }

    /// The headers and body of one event. The body of a part is never compressed, whatever the headers
    /// of the request say.
    pub fn event<'r>(
        &'r self,
        headers: &'r HeaderMap,
        body: &'r [u8],
        part: Option<&'r Bytes>,
    ) -> (&'r HeaderMap, &'r [u8]) {
        match part {
            Some(part) => (self.headers.as_ref().unwrap_or(headers), part),
            None => self.request(headers, body),
        }
    }
}

/// Reads to the end in growing steps; `None` beyond the limit or if the data is corrupt.
fn read_bounded<E>(
    decoder: &mut impl Read,
    limit: usize,
    reserve: &mut impl FnMut(usize) -> Result<(), E>,
) -> Result<Option<Vec<u8>>, E> {
    let mut plain = Vec::new();
    loop {
        // One byte more than allowed, to notice that the limit is exceeded.
        let step = plain.len().max(STEP_BYTES).min(limit + 1 - plain.len());
        reserve(step)?;
        plain.reserve_exact(step);
        match decoder.take(step as u64).read_to_end(&mut plain) {
            Ok(read) if read < step => return Ok(Some(plain)),
            Ok(_) if plain.len() <= limit => {}
            Ok(_) | Err(_) => return Ok(None),
        }
    }
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

    fn encoded(encoding: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(CONTENT_ENCODING, HeaderValue::from_static(encoding))])
    }

    #[test]
    fn limit_applies_to_the_decoded_size() {
        let body = gzip(&[b'a'; 50]);
        let headers = encoded("gzip");
        assert!(decode_body_within(&headers, &body, 50).is_some());
        assert!(decode_body_within(&headers, &body, 49).is_none());
    }

    #[test]
    fn memory_is_reserved_before_it_is_used() {
        // Digits in changing order compress well, but not like a decompression bomb.
        let plain: String = (0..150_000_u64).map(|number| (number * number).to_string()).collect();
        let (body, headers) = (gzip(plain.as_bytes()), encoded("gzip"));
        let mut reserved = 0;
        let count = |bytes| {
            reserved += bytes;
            Ok::<_, Infallible>(())
        };
        let decoded = DecodedRequest::new_within(&headers, &body, count).unwrap();
        let bytes = decoded.body.unwrap();
        assert!((bytes.len()..=2 * bytes.len()).contains(&reserved), "{reserved}");
        assert!(bytes.capacity() <= reserved);

        let mut left = 100_000_usize;
        let refuse = |bytes| left.checked_sub(bytes).map(|rest| left = rest).ok_or("full");
        assert_eq!(DecodedRequest::new_within(&headers, &body, refuse).unwrap_err(), "full");
    }

    #[test]
    fn duplicate_is_decoded_by_its_own_bytes() {
        let text = b"{\"token\":\"t\"}";
        for original in [HeaderMap::new(), encoded("gzip")] {
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
        // A body that starts like gzip and is corrupt cannot be decoded.
        let broken = [&gzip(text)[..20], b"x"].concat();
        assert_eq!(decode_body(&headers_for_duplicate(&none, &broken), &broken), None);
        // A text that starts like zlib by chance stays a text.
        assert_eq!(*headers_for_duplicate(&none, b"x^ is a text"), none);
    }

    #[test]
    fn encoding_header_does_not_change_what_is_read() {
        let plain = br#"{"id":1}"#.to_vec();
        for body in [plain.clone(), gzip(&plain), zlib(&plain)] {
            for header in ["", "identity", "gzip", "deflate", "br"] {
                let headers = if header.is_empty() { HeaderMap::new() } else { encoded(header) };
                let decoded = DecodedRequest::new(&headers, &body);
                let (headers, read) = decoded.request(&headers, &body);
                assert_eq!(read, plain, "{header}");
                assert!(!headers.contains_key(CONTENT_ENCODING), "{header}");
            }
        }
    }

    #[test]
    fn only_certainly_wrong_encoding_header_is_reported() {
        let body = gzip(b"{}");
        for (headers, body, expected) in [
            (HeaderMap::new(), &b"{}"[..], false),
            (encoded("gzip"), b"{}", true),
            (encoded("deflate"), b"{}", true),
            (encoded("gzip"), &body, false),
            (encoded("br"), b"{}", false),
            (encoded("identity"), b"{}", false),
        ] {
            assert_eq!(has_wrong_encoding_header(&headers, body), expected, "{headers:?} {body:?}");
        }
    }
}
