//! The `Idempotency-Key` header.

/// Longest key.
pub const KEY_BYTES_MAX: usize = 255;

/// The header is not a key.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid Idempotency-Key; use 1 to {KEY_BYTES_MAX} printable ASCII characters, plain or in double quotes"
)]
pub struct ParseIdempotencyKeyError;

/// Parses the header: a structured string (`"…"`, as in the IETF draft) or the bare text that most
/// clients send. Both name the same key.
pub fn parse_key(header: &[u8]) -> Result<String, ParseIdempotencyKeyError> {
    let text = std::str::from_utf8(header).map_err(|_| ParseIdempotencyKeyError)?.trim();
    let key = match text.strip_prefix('"') {
        Some(rest) => unquote(rest)?,
        None => text.to_owned(),
    };
    let is_printable = key.bytes().all(|byte| (0x20..0x7f).contains(&byte));
    let is_valid =
        (1..=KEY_BYTES_MAX).contains(&key.len()) && is_printable && !key.trim().is_empty();
    if is_valid { Ok(key) } else { Err(ParseIdempotencyKeyError) }
}

/// The text after the opening quote up to the closing one (RFC 9651 §4.2.5).
fn unquote(text: &str) -> Result<String, ParseIdempotencyKeyError> {
    let mut key = String::with_capacity(text.len());
    let mut chars = text.chars();
    loop {
        match chars.next() {
            Some('"') if chars.as_str().is_empty() => return Ok(key),
            Some('\\') => match chars.next() {
                Some(escaped @ ('"' | '\\')) => key.push(escaped),
                Some(_) | None => return Err(ParseIdempotencyKeyError),
            },
            Some('"') | None => return Err(ParseIdempotencyKeyError),
            Some(plain) => key.push(plain),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idempotency_key_parses_plain_and_quoted() {
        let long = "k".repeat(KEY_BYTES_MAX);
        let too_long = "k".repeat(KEY_BYTES_MAX + 1);
        let cases: [(&[u8], Option<&str>); 17] = [
            (b"abc", Some("abc")),
            (b"\"abc\"", Some("abc")),
            (b"  abc ", Some("abc")),
            (b"\"a b\"", Some("a b")),
            (b"\"a\\\"b\\\\\"", Some("a\"b\\")),
            (b"8e03978e-40d5-43dd-bc93-6894a57f9324", Some("8e03978e-40d5-43dd-bc93-6894a57f9324")),
            (long.as_bytes(), Some(&long)),
            (too_long.as_bytes(), None),
            (b"", None),
            (b"   ", None),
            (b"\"\"", None),
            (b"\"  \"", None),
            (b"\"abc", None),
            (b"\"abc\"x", None),
            (b"\"a\\b\"", None),
            (b"a\tb", None),
            (b"caf\xc3\xa9", None),
        ];
        for (header, key) in cases {
            let case = String::from_utf8_lossy(header);
            assert_eq!(parse_key(header).ok().as_deref(), key, "case: {case}");
        }
        assert!(parse_key(b"\xff").is_err());
    }
}
