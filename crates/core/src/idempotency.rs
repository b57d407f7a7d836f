//! `Idempotency-Key`: a wish that is sent twice is granted once.
//!
//! A client that got no answer does not know whether its wish was granted. With a key it may ask
//! again: the answer is kept with the key and given again. What holds across a crash:
//!
//! - The **claim** of a key is on the disk before the wish is carried out, with the time and the
//!   dice of its first try. A wish that is tried again after a crash has the same time and dice, so
//!   whatever it creates has the same id as the first time and is created once.
//! - A claim without an answer never refuses anybody. Only a wish that is being carried out in this
//!   very process does ([`IdempotencyClaim::Pending`] is resumed, not waited for).

use std::time::Duration;

use async_trait::async_trait;

use crate::{
    ids::{Id, IdKind},
    key::fingerprint,
    store::StoreError,
    time::Timestamp,
};

/// How long an answer is kept with its key.
pub const KEY_RETENTION: Duration = Duration::from_secs(24 * 3600);
/// Keys kept at the same time; more are refused, because forgetting one early would break its word.
pub const KEYS_MAX: u64 = 100_000;
/// The longest key.
pub const KEY_BYTES_MAX: usize = 255;
/// A larger answer is not kept; its wish can still be tried again, see [`IdempotentRequest`].
pub const RESPONSE_BYTES_MAX: usize = 256 * 1024;

/// Whose key it is, and which.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct IdempotencyKey {
    /// The hash of the token that asked: the keys of two clients never meet.
    pub scope: [u8; 32],
    /// The key.
    pub key: String,
}

/// A header that is no key.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "an Idempotency-Key has 1 to {KEY_BYTES_MAX} printable ASCII characters, plain or in double quotes"
)]
pub struct ParseIdempotencyKeyError;

/// Reads the header: a structured string (`"…"`, as the draft wants it) or the bare text, as most
/// clients send it. Both name the same key.
pub fn parse_key(header: &[u8]) -> Result<String, ParseIdempotencyKeyError> {
    let text = std::str::from_utf8(header).map_err(|_| ParseIdempotencyKeyError)?.trim();
    let key = match text.strip_prefix('"') {
        Some(rest) => unquote(rest)?,
        None => text.to_owned(),
    };
    let printable = key.bytes().all(|byte| (0x20..0x7f).contains(&byte));
    let good = (1..=KEY_BYTES_MAX).contains(&key.len()) && printable && !key.trim().is_empty();
    if good { Ok(key) } else { Err(ParseIdempotencyKeyError) }
}

/// What follows the opening quote, up to the closing one (RFC 9651 §4.2.5).
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

/// The time and the dice of a wish, the same each time it is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdempotentRequest {
    /// When it was first tried.
    pub at: Timestamp,
    /// What is rolled for it.
    pub seed: [u8; 16],
}

impl IdempotentRequest {
    /// The id of what it creates. `what` tells two things of one wish apart.
    pub fn id<K: IdKind>(&self, what: &str) -> Id<K> {
        let text = [&self.seed[..], K::PREFIX.as_bytes(), b"/", what.as_bytes()].concat();
        let mut bits = [0; 16];
        bits.copy_from_slice(&fingerprint(&text)[..16]);
        Id::new(self.at, u128::from_be_bytes(bits))
    }
}

/// What was answered, as far as it is told again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredResponse {
    /// The status.
    pub status: u16,
    /// Headers that belong to the answer, by name.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

/// What is known of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdempotencyClaim {
    /// It is new, or was claimed by a process that died before it answered: carry the wish out.
    Pending(IdempotentRequest),
    /// It was answered.
    Answered(StoredResponse),
    /// It belongs to another request.
    OtherRequest,
    /// Too many keys are kept.
    Full,
}

/// Where answers are kept.
#[async_trait]
pub trait IdempotencyStore: Send + Sync {
    /// Claims a key for a request, or says what became of the one that has it. Durable after `Ok`.
    ///
    /// A key that is older than [`KEY_RETENTION`] is as good as new.
    async fn claim_key(
        &self,
        key: IdempotencyKey,
        request: [u8; 32],
        wish: IdempotentRequest,
    ) -> Result<IdempotencyClaim, StoreError>;

    /// Keeps the answer to a claimed key. Durable after `Ok`.
    async fn store_response(
        &self,
        key: IdempotencyKey,
        answer: StoredResponse,
    ) -> Result<(), StoreError>;

    /// Gives a claimed key back: nothing was done, and it may be used again. Leaves an answer alone.
    async fn release_key(&self, key: IdempotencyKey) -> Result<(), StoreError>;

    /// Forgets one bounded slice of the keys that were claimed before `before`; says how many.
    async fn prune_idempotency_keys(&self, before: Timestamp) -> Result<usize, StoreError>;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{DeliveryIdKind, RouteIdKind};

    #[test]
    fn a_key_is_read_plain_or_quoted() {
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

    #[test]
    fn a_wish_has_the_same_ids_each_time_and_others_have_others() {
        let wish =
            IdempotentRequest { at: Timestamp::from_millis(1_763_193_600_123), seed: [7; 16] };
        let other = IdempotentRequest { seed: [8; 16], ..wish };
        assert_eq!(wish.id::<RouteIdKind>(""), wish.id::<RouteIdKind>(""));
        assert_ne!(wish.id::<RouteIdKind>(""), other.id::<RouteIdKind>(""));
        assert_ne!(wish.id::<RouteIdKind>(""), wish.id::<RouteIdKind>("second"));
        assert_ne!(wish.id::<RouteIdKind>("").uuid(), wish.id::<DeliveryIdKind>("").uuid());
    }
}
