//! Unpacks a compressed body so that keys and filters can look into it.
//!
//! The body is stored and forwarded as it came; what is unpacked here is thrown away. A small body
//! can unpack to a huge one, so both the size and the ratio have a bound, and beyond it there is
//! simply nothing to be seen.

use std::{borrow::Cow, io::Read};

use bytes::Bytes;
use flate2::bufread::{GzDecoder, ZlibDecoder};
use http::{HeaderMap, header::CONTENT_ENCODING};

/// Ten times the largest body that is taken by default.
const UNPACKED_BYTES_MAX: usize = 10 << 20;

/// JSON shrinks to a tenth or so; a hundredth is a bomb or a body of nothing but zeros.
const RATIO_MAX: usize = 100;

/// The body as its sender meant it. Nothing if it is packed in a way that is unknown, too far, or
/// broken: a checksum that fails, a cut end, or something after it.
pub fn plain<'b>(headers: &HeaderMap, body: &'b [u8]) -> Option<Cow<'b, [u8]>> {
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
        let plain = read_bounded(&mut decoder, body.len())?;
        decoder.into_inner().is_empty().then_some(Cow::Owned(plain))
    } else if is("deflate") {
        let mut decoder = ZlibDecoder::new(body);
        let plain = read_bounded(&mut decoder, body.len())?;
        decoder.into_inner().is_empty().then_some(Cow::Owned(plain))
    } else {
        None
    }
}

/// A request as rules read it: unpacked, with headers that say so. Here is what differs from the
/// request as it came; nothing does if it is not packed, and then it costs nothing.
#[derive(Debug)]
pub struct Readable {
    /// The headers without the encoding, if they name one.
    bare: Option<HeaderMap>,
    /// The body, if it could be unpacked.
    unpacked: Option<Vec<u8>>,
}

impl Readable {
    /// Unpacks what is packed.
    pub fn new(headers: &HeaderMap, body: &[u8]) -> Self {
        if !headers.contains_key(CONTENT_ENCODING) {
            return Self { bare: None, unpacked: None };
        }
        let mut bare = headers.clone();
        bare.remove(CONTENT_ENCODING);
        let unpacked = match plain(headers, body) {
            Some(Cow::Owned(unpacked)) => Some(unpacked),
            Some(Cow::Borrowed(_)) | None => None,
        };
        Self { bare: Some(bare), unpacked }
    }

    /// The request as one. What cannot be unpacked stays as it came, and rules see nothing in it.
    pub fn whole<'r>(
        &'r self,
        (headers, body): (&'r HeaderMap, &'r [u8]),
    ) -> (&'r HeaderMap, &'r [u8]) {
        match (&self.bare, &self.unpacked) {
            (Some(bare), Some(unpacked)) => (bare, unpacked),
            _ => (headers, body),
        }
    }

    /// One event of it, with its own body if it has one. A part is never packed, whatever the headers of the whole say.
    pub fn of<'r>(
        &'r self,
        came: (&'r HeaderMap, &'r [u8]),
        part: Option<&'r Bytes>,
    ) -> (&'r HeaderMap, &'r [u8]) {
        match part {
            Some(body) => (self.bare.as_ref().unwrap_or(came.0), body),
            None => self.whole(came),
        }
    }
}

fn read_bounded(decoder: &mut impl Read, packed_bytes: usize) -> Option<Vec<u8>> {
    let limit = packed_bytes.saturating_mul(RATIO_MAX).min(UNPACKED_BYTES_MAX);
    let mut plain = Vec::new();
    // One byte more than allowed, to tell "just fits" from "does not".
    decoder.take(limit as u64 + 1).read_to_end(&mut plain).ok()?;
    (plain.len() <= limit).then_some(plain)
}
