//! HMAC over a text in several parts.

use std::fmt;

use ring::hmac::{Algorithm, Context, HMAC_SHA256, Key, Tag};
use subtle::ConstantTimeEq;

/// A key that has absorbed its secret, which saves two hash blocks per signature.
#[derive(Clone)]
pub(crate) struct HmacKey(Key);

impl HmacKey {
    pub(crate) fn new(algorithm: Algorithm, secret: &[u8]) -> Self {
        Self(Key::new(algorithm, secret))
    }

    pub(crate) fn sha256(secret: &[u8]) -> Self {
        Self::new(HMAC_SHA256, secret)
    }

    /// The signature of the parts, one after the other.
    pub(crate) fn sign<'p>(&self, parts: impl IntoIterator<Item = &'p [u8]>) -> Tag {
        let mut context = Context::with_key(&self.0);
        for part in parts {
            context.update(part);
        }
        context.sign()
    }

    /// Whether `signature` is the signature of the parts.
    pub(crate) fn verify<'p>(
        &self,
        parts: impl IntoIterator<Item = &'p [u8]>,
        signature: &[u8],
    ) -> bool {
        self.verify_any(parts, [signature])
    }

    /// Whether one of the candidates is the signature of the parts, compared in constant time and in
    /// full length.
    pub(crate) fn verify_any<'p, 'c>(
        &self,
        parts: impl IntoIterator<Item = &'p [u8]>,
        candidates: impl IntoIterator<Item = &'c [u8]>,
    ) -> bool {
        let signature = self.sign(parts);
        candidates.into_iter().any(|candidate| signature.as_ref().ct_eq(candidate).into())
    }
}

impl fmt::Debug for HmacKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HmacKey(•••)")
    }
}
