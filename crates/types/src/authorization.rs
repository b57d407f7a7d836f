//! Values of `authorization` headers.

use data_encoding::BASE64;
use http::HeaderValue;

/// The value of `authorization` or `proxy-authorization` for a user and a password.
pub fn basic_header(user: &[u8], password: &[u8]) -> HeaderValue {
    let pair = [user, b":", password].concat();
    let text = format!("Basic {}", BASE64.encode(&pair));
    mark_sensitive(HeaderValue::try_from(text).expect("base64 is plain ASCII"))
}

/// The value of `authorization` for a token; `None` if it is not allowed in a header.
pub fn bearer_header(token: &[u8]) -> Option<HeaderValue> {
    // RFC 6750 allows fewer characters, but servers issue others too.
    let is_printable = !token.is_empty() && token.iter().all(u8::is_ascii_graphic);
    let value = HeaderValue::from_bytes(&[b"Bearer ", token].concat()).ok();
    value.filter(|_| is_printable).map(mark_sensitive)
}

fn mark_sensitive(mut value: HeaderValue) -> HeaderValue {
    value.set_sensitive(true);
    value
}
