//! Verification by Standard Webhooks, with secrets that both sides know (`v1`) and with key pairs
//! (`v1a`).
//!
//! The signed text is `{id}.{timestamp}.{body}`. The header holds any number of signatures, each
//! with its version before it; one that fits is enough. Versions that are not known are passed over.

use std::fmt;

use data_encoding::BASE64;
use http::{HeaderMap, HeaderName};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};

use super::{
    RequestSignature, SignError, VerificationScheme, VerifyError, VerifySpecError,
    candidates::CANDIDATES_MAX, only_value, parse_timestamp,
};
use crate::{
    request::{IncomingRequest, OutgoingRequest},
    secret::Secret,
    sign::{SECRET_PREFIX, SigningSecret, decode_key},
    time::Timestamp,
};

/// What a public key begins with in its written form.
const PUBLIC_PREFIX: &str = "whpk_";
/// What a private key begins with in its written form.
const PRIVATE_PREFIX: &str = "whsk_";

/// How far the timestamp may be from now, in either direction.
const TOLERANCE_SECS: u64 = 300;
/// A shorter secret can be guessed. Some hand them out, so it is not an error.
const KEY_BYTES_ADVISED: usize = 24;
/// Bytes of an ed25519 key, public or private; a private one is often written with the public one
/// behind it.
const ED25519_BYTES: usize = 32;

const SYMMETRIC: &[u8] = b"v1";
const ASYMMETRIC: &[u8] = b"v1a";

/// The headers, by the names of the specification and by those of Svix, which it grew out of.
const FAMILIES: [Family; 2] = [
    Family { id: "webhook-id", timestamp: "webhook-timestamp", signature: "webhook-signature" },
    Family { id: "svix-id", timestamp: "svix-timestamp", signature: "svix-signature" },
];

/// Every header that holds a signature, and what else of Svix would be taken for a part of ours:
/// its libraries look for each of its headers first.
pub(crate) const SIGNATURE_HEADERS: [&str; 4] =
    [FAMILIES[0].signature, FAMILIES[1].signature, FAMILIES[1].id, FAMILIES[1].timestamp];

#[derive(Debug)]
struct Family {
    id: &'static str,
    timestamp: &'static str,
    signature: &'static str,
}

impl Family {
    /// The one that a request is signed in.
    fn of(headers: &HeaderMap) -> Option<&'static Self> {
        let is_signed =
            |family: &&Self| headers.get(family.signature).is_some_and(|value| !value.is_empty());
        FAMILIES.iter().find(is_signed)
    }
}

/// The id of a request that is signed this way.
pub(crate) fn message_id<'r>(request: &IncomingRequest<'r>) -> Option<&'r str> {
    let name = Family::of(request.headers)?.id;
    request.headers.get(name)?.to_str().ok().filter(|id| !id.trim().is_empty())
}

/// One way to tell who signed.
enum Key {
    Shared(SigningSecret),
    Public(Vec<u8>),
    /// Nobody needs it to check requests; whoever has it can make them.
    Pair(Ed25519KeyPair),
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(•••)")
    }
}

impl Key {
    /// Reads one secret; also says what is not wise about it.
    fn read(secret: &Secret) -> Result<(Self, Option<String>), &'static str> {
        let text = str::from_utf8(secret.expose()).map_err(|_| "it is not text")?.trim();
        if let Some(encoded) = text.strip_prefix(SECRET_PREFIX) {
            let key = decode_key(encoded).ok_or("what follows `whsec_` is not base64")?;
            let length = key.len();
            if length == 0 {
                return Err("nothing follows `whsec_`");
            }
            let warning = (length < KEY_BYTES_ADVISED).then(|| {
                format!("has {length} bytes; use at least {KEY_BYTES_ADVISED}, it can be guessed")
            });
            return Ok((Self::Shared(SigningSecret::of_key(&key)), warning));
        }
        if let Some(encoded) = text.strip_prefix(PUBLIC_PREFIX) {
            let key = decode_key(encoded).ok_or("what follows `whpk_` is not base64")?;
            if key.len() != ED25519_BYTES {
                return Err("what follows `whpk_` is not the 32 bytes of an ed25519 key");
            }
            return Ok((Self::Public(key), None));
        }
        if let Some(encoded) = text.strip_prefix(PRIVATE_PREFIX) {
            let key = decode_key(encoded).ok_or("what follows `whsk_` is not base64")?;
            let warning = "is the private key of the sender; `whpk_…` is enough to check requests";
            return Ok((Self::Pair(key_pair(&key)?), Some(warning.to_owned())));
        }
        Err("it must start with `whsec_` (a shared secret) or `whpk_` (a public key)")
    }

    fn fits(&self, version: &[u8], signed: [&[u8]; 3], signature: &[u8]) -> bool {
        match self {
            Self::Shared(secret) => version == SYMMETRIC && secret.fits(signed, signature),
            Self::Public(key) => version == ASYMMETRIC && is_signed_by(key, signed, signature),
            Self::Pair(pair) => {
                version == ASYMMETRIC && is_signed_by(pair.public_key().as_ref(), signed, signature)
            }
        }
    }
}

/// The private key alone, or followed by the public one, which must belong to it.
fn key_pair(bytes: &[u8]) -> Result<Ed25519KeyPair, &'static str> {
    let pair = match bytes.split_at_checked(ED25519_BYTES) {
        Some((seed, [])) => Ed25519KeyPair::from_seed_unchecked(seed),
        Some((seed, public)) => Ed25519KeyPair::from_seed_and_public_key(seed, public),
        None => return Err("what follows `whsk_` is shorter than an ed25519 key"),
    };
    pair.map_err(|_| "what follows `whsk_` is no ed25519 key, or its two halves do not fit")
}

fn is_signed_by(public_key: &[u8], signed: [&[u8]; 3], signature: &[u8]) -> bool {
    UnparsedPublicKey::new(&ED25519, public_key).verify(&signed.join(&b'.'), signature).is_ok()
}

/// Checks requests that are signed by Standard Webhooks.
#[derive(Debug)]
pub(crate) struct StandardWebhooks {
    keys: Vec<Key>,
    warnings: Vec<String>,
}

impl StandardWebhooks {
    /// Reads the secrets, the current one first: `whsec_…`, `whpk_…`, or for tests `whsk_…`.
    pub(crate) fn new(secrets: &[Secret]) -> Result<Self, VerifySpecError> {
        let mut keys = Vec::with_capacity(secrets.len());
        let mut warnings = Vec::new();
        for (number, secret) in (1..).zip(secrets) {
            let read = Key::read(secret);
            let (key, warning) = read.map_err(|why| VerifySpecError::Secret { number, why })?;
            keys.push(key);
            warnings.extend(warning.map(|warning| format!("secret {number} {warning}")));
        }
        Ok(Self { keys, warnings })
    }

    /// What works and is still not wise, in sentences for the operator.
    pub(crate) fn warnings(&self) -> Vec<String> {
        self.warnings.clone()
    }
}

impl VerificationScheme for StandardWebhooks {
    fn name(&self) -> &'static str {
        "standard-webhooks"
    }

    fn verify(&self, request: &IncomingRequest<'_>, now: Timestamp) -> Result<usize, VerifyError> {
        let missing = || VerifyError::MissingSignature {
            header: HeaderName::from_static(FAMILIES[0].signature),
        };
        let family = Family::of(request.headers).ok_or_else(missing)?;
        let candidates = candidates(request.headers, family)?;
        // Before the hashing: a stale request should cost nothing.
        let timestamp = only(request.headers, family.timestamp, "timestamp")?
            .ok_or(VerifyError::MissingTimestamp)?;
        check_age(timestamp, now)?;
        let id = only(request.headers, family.id, "id")?.ok_or(VerifyError::MissingId)?;
        // A dot in it would let the same signature stand for another cut of the same bytes.
        if id.contains(&b'.') {
            return Err(VerifyError::Malformed { part: "id" });
        }
        let signed = [id, timestamp, request.body];
        let fits = |key: &Key| {
            candidates.iter().any(|(version, signature)| key.fits(version, signed, signature))
        };
        self.keys.iter().position(fits).ok_or(VerifyError::Mismatch)
    }

    fn sign(
        &self,
        request: &OutgoingRequest<'_>,
        now: Timestamp,
    ) -> Result<RequestSignature, SignError> {
        let timestamp = now.as_secs().to_string();
        let signature = match self.keys.first() {
            Some(Key::Shared(secret)) => secret.sign(request.id, now.as_secs(), request.body),
            Some(Key::Pair(pair)) => {
                let text = [request.id.as_bytes(), timestamp.as_bytes(), request.body].join(&b'.');
                format!("v1a,{}", BASE64.encode(pair.sign(&text).as_ref()))
            }
            Some(Key::Public(_)) | None => {
                return Err(SignError(
                    "a public key cannot sign; give the secret (`whsec_…`) or the private key (`whsk_…`)",
                ));
            }
        };
        let [family, _] = &FAMILIES;
        let name = HeaderName::from_static;
        Ok(RequestSignature::headers(vec![
            (name(family.id), request.id.to_owned()),
            (name(family.timestamp), timestamp),
            (name(family.signature), signature),
        ]))
    }
}

fn only<'h>(
    headers: &'h HeaderMap,
    name: &'static str,
    part: &'static str,
) -> Result<Option<&'h [u8]>, VerifyError> {
    let value = only_value(headers, &HeaderName::from_static(name), part)?;
    Ok(value.map(http::HeaderValue::as_bytes))
}

/// A version and a signature.
type Candidate<'h> = (&'h [u8], Vec<u8>);

/// The signatures of a request, each with its version.
fn candidates<'h>(
    headers: &'h HeaderMap,
    family: &Family,
) -> Result<Vec<Candidate<'h>>, VerifyError> {
    let values = headers.get_all(family.signature).iter();
    let words = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b' '));
    let mut found = Vec::new();
    for (seen, word) in words.filter(|word| !word.is_empty()).enumerate() {
        if seen == CANDIDATES_MAX {
            return Err(VerifyError::TooManySignatures);
        }
        let Some(comma) = word.iter().position(|byte| *byte == b',') else { continue };
        let (version, encoded) = (&word[..comma], &word[comma + 1..]);
        if let Ok(signature) = BASE64.decode(encoded)
            && (version == SYMMETRIC || version == ASYMMETRIC)
        {
            found.push((version, signature));
        }
    }
    if found.is_empty() { Err(VerifyError::Malformed { part: "signature" }) } else { Ok(found) }
}

fn check_age(timestamp: &[u8], now: Timestamp) -> Result<(), VerifyError> {
    let signed_at =
        parse_timestamp(timestamp).ok_or(VerifyError::Malformed { part: "timestamp" })?;
    if now.as_secs().abs_diff(signed_at) > TOLERANCE_SECS {
        return Err(VerifyError::Stale);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
