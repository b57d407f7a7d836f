//! How two requests are known to be one event.
//!
//! A source has a list of [`KeyRule`]s. The first one that finds a value in the request gives the
//! [`DedupKey`]; within the source's window a second request with the same key is a duplicate.
//! Without a hit there is no key, and a request without a key is a duplicate of nothing.
//!
//! What counts as a value:
//! - A string, exactly as it is: no trimming, no case folding, no Unicode normalization.
//! - A number, exactly as it is spelled in the JSON text, so that no large integer is rounded into
//!   another one. `1` and `1.0` are two keys; a sender repeats itself byte for byte.
//! - Nothing else. Absent, `null`, empty, only white space, `true`, `[]` and `{}` are passed over:
//!   they would make one event of all that have them.
//!
//! The body is read once for all pointers, without building a tree (see `json_walk`). If an object has
//! a name twice, the last one counts, as in most JSON libraries. A body that is not JSON, or not
//! UTF-8, has no hits. A compressed body is unpacked for this purpose only, and within bounds.

mod digest;
mod json_walk;
mod pointer;
mod rules;
#[cfg(test)]
mod tests;

use std::{fmt, fmt::Write as _, sync::Arc};

use data_encoding::HEXLOWER;
use serde::{Serialize, Serializer};
use sha2::{Digest, Sha256};

pub(crate) use self::json_walk::scalar_text;
pub use self::{
    digest::KeyDigest,
    json_walk::JsonPointerSet,
    pointer::{JsonPointer, ParseJsonPointerError},
    rules::{FoundKey, KeyError, KeyRule, KeyRules, ParseKeyRuleError},
};

/// Longest key that is kept as it is. The databases index keys, and an index likes them short.
const KEY_BYTES_MAX: usize = 255;

/// What makes two requests of one source the same event. Never empty, at most 255 bytes.
///
/// A value that is longer, or that holds a zero byte (which `PostgreSQL` cannot store in text), is
/// replaced by `sha256:` and the hash of it. `Display` escapes what could forge a line of a log.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DedupKey(Arc<str>);

impl DedupKey {
    /// The key for `value`; none if it is empty or only white space.
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

    /// The key, as it is stored and compared.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for DedupKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            if c == '\\' || c.is_control() || turns_text(c) {
                write!(f, "{}", c.escape_default())?;
            } else {
                f.write_char(c)?;
            }
        }
        Ok(())
    }
}

/// Line and paragraph separators, and the marks that make text run the other way.
fn turns_text(c: char) -> bool {
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

/// SHA-256 of a body: tells whether two requests with one key have the same content.
pub fn fingerprint(body: &[u8]) -> [u8; 32] {
    Sha256::digest(body).into()
}

/// The key of a body by its content, for sources that ask for it. It starts with `hash:`.
///
/// Two events may well have equal bytes, so it needs a window of minutes, not of days.
pub fn content_hash_key(body: &[u8]) -> DedupKey {
    DedupKey::hashed("hash:", body)
}
