//! Deduplication keys: within the window of a source, two requests with the same [`DedupKey`] are
//! duplicates. The first [`KeyRule`] that matches gives the key; without one a request has no key.
//!
//! A value is a string, unchanged, or a number in its spelling, so that no large integer is rounded
//! into another key. Absent, `null`, blank, boolean, array and object values never match: they would
//! make unrelated events duplicates.
//!
//! A key is *explicit* or *guessed* ([`KeyOrigin`]): the same explicit key is the same event, whatever the
//! body; the same guessed key is the same event only with the same body.
//!
//! The body is parsed once for all pointers (see `json_walk`). Of repeated names the last one counts.
//! A body that is not UTF-8 JSON matches nothing. A compressed body is decoded within limits.

mod digest;
mod event_key;
mod json_fingerprint;
mod json_walk;
mod pointer;
mod rules;
#[cfg(test)]
mod tests;

use std::{fmt, fmt::Write as _, sync::Arc};

use data_encoding::HEXLOWER;
use serde::{Serialize, Serializer};
use sha2::{Digest, Sha256};
use surehook_types::string_enum;

pub(crate) use self::json_walk::scalar_text;
pub use self::{
    digest::{KeyDigest, KeyNamespace},
    event_key::EventKeyMatch,
    json_fingerprint::json_fingerprint,
    json_walk::JsonPointerSet,
    pointer::{JsonPointer, ParseJsonPointerError},
    rules::{FoundKey, KeyError, KeyRule, KeyRules, ParseKeyRuleError},
};

string_enum! {
    /// Why a value is taken for the key of an event.
    pub enum KeyOrigin {
        /// Meant as a key: the provider's event id, an idempotency header, a rule that the operator wrote.
        Explicit = "explicit",
        /// A field of the body that many senders use for an id; it may be the id of an object that
        /// changes.
        Guessed = "guessed",
    }
}

/// Longest key that is stored unchanged. Keys are indexed, so they must be short.
const KEY_BYTES_MAX: usize = 255;

/// The key by which duplicates are recognized. Never empty, at most 255 bytes.
///
/// A longer value, or one with a zero byte (which `PostgreSQL` cannot store in text), is replaced by
/// `sha256:` and its hash. `Display` escapes characters that could forge a log line.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DedupKey(Arc<str>);

impl DedupKey {
    /// The key for `value`; `None` if it is blank.
    pub fn new(value: &str) -> Option<Self> {
        if value.trim().is_empty() {
            return None;
        }
        if value.len() > KEY_BYTES_MAX || value.contains('\0') {
            return Some(Self::hashed("sha256:", value.as_bytes()));
        }
        Some(Self(value.into()))
    }

    fn hashed(prefix: &str, bytes: &[u8]) -> Self {
        Self((prefix.to_owned() + &HEXLOWER.encode(&fingerprint(bytes))).into())
    }

    /// The key as text, unescaped.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for DedupKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            if c == '\\' || c.is_control() || breaks_line_or_direction(c) {
                write!(f, "{}", c.escape_default())?;
            } else {
                f.write_char(c)?;
            }
        }
        Ok(())
    }
}

/// Line and paragraph separators, and marks that change the text direction.
fn breaks_line_or_direction(c: char) -> bool {
    matches!(c, '\u{2028}' | '\u{2029}' | '\u{200e}' | '\u{200f}')
        || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

impl fmt::Debug for DedupKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DedupKey({self})")
    }
}

impl Serialize for DedupKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

/// Stands for the signed content of a request, the position of an event in it, and the kind of the event.
pub(crate) fn signed_bytes_key(fingerprint: &[u8; 32], position: usize, kind: &str) -> DedupKey {
    let mut bytes = fingerprint.to_vec();
    bytes.extend((position as u64).to_be_bytes());
    bytes.extend(kind.as_bytes());
    DedupKey::hashed("signed:", &bytes)
}

/// SHA-256 of a body, to recognize duplicates with a different body.
pub fn fingerprint(body: &[u8]) -> [u8; 32] {
    Sha256::digest(body).into()
}

/// The key of a body by its content: `hash:` and the SHA-256.
///
/// Different events may have equal bytes, so it needs a window of minutes, not of days.
pub fn content_hash_key(body: &[u8]) -> DedupKey {
    DedupKey::hashed("hash:", body)
}
