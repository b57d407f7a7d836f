//! Verification by Standard Webhooks, with shared secrets (`v1`) and with key pairs (`v1a`).
//!
//! The signed text is `{id}.{timestamp}.{body}`. The header contains signatures prefixed with their
//! version; one match is enough, and unknown versions are ignored.

use std::fmt;

use data_encoding::BASE64;
use http::{HeaderMap, HeaderName};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use surehook_types::{secret::Secret, time::Timestamp};

use super::{
    CANDIDATES_MAX, RequestSignature, SignError, VerificationScheme, VerifyError, VerifySpecError,
    check_age, single_header, timestamp_header,
};
use crate::{
    request::{IncomingRequest, OutgoingRequest},
    sign::{SECRET_PREFIX, SigningSecret, decode_key},
};

/// Prefix of a public key.
const PUBLIC_PREFIX: &str = "whpk_";
/// Prefix of a private key.
const PRIVATE_PREFIX: &str = "whsk_";

/// Largest allowed difference between the timestamp and now, in either direction.
const TOLERANCE_SECS: u64 = 300;
/// Shorter secrets can be guessed. Some senders issue them, so they only give a warning.
const KEY_BYTES_ADVISED: usize = 24;
/// Length of an ed25519 key, public or private. A private key is often followed by its public key.
const ED25519_BYTES: usize = 32;

const SYMMETRIC: &[u8] = b"v1";
const ASYMMETRIC: &[u8] = b"v1a";

/// Header names of the specification, and of Svix, from which it originated.
const HEADER_FAMILIES: [HeaderFamily; 2] = [
    HeaderFamily {
        id: "webhook-id",
        timestamp: "webhook-timestamp",
        signature: "webhook-signature",
    },
    HeaderFamily { id: "svix-id", timestamp: "svix-timestamp", signature: "svix-signature" },
];

/// Every signature header, and the other headers of Svix: its libraries prefer each of them over
/// ours, so none may be forwarded with a changed body.
pub(crate) const SIGNATURE_HEADERS: [&str; 4] = [
    HEADER_FAMILIES[0].signature,
    HEADER_FAMILIES[1].signature,
    HEADER_FAMILIES[1].id,
    HEADER_FAMILIES[1].timestamp,
];

#[derive(Debug)]
struct HeaderFamily {
    id: &'static str,
    timestamp: &'static str,
    signature: &'static str,
}

impl HeaderFamily {
    /// The family in which a request is signed.
    fn of(headers: &HeaderMap) -> Option<&'static Self> {
        let is_signed =
            |family: &&Self| headers.get(family.signature).is_some_and(|value| !value.is_empty());
        HEADER_FAMILIES.iter().find(is_signed)
    }
}

/// The message id of a signed request.
pub(crate) fn message_id<'r>(request: &IncomingRequest<'r>) -> Option<&'r str> {
    let name = HeaderFamily::of(request.headers)?.id;
    request.headers.get(name)?.to_str().ok().filter(|id| !id.trim().is_empty())
}

/// A key that verifies signatures.
enum VerificationKey {
    Shared(SigningSecret),
    Public(Vec<u8>),
    /// A private key, which only tests need: it can also create signatures.
    Pair(Ed25519KeyPair),
}

impl fmt::Debug for VerificationKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("VerificationKey(•••)")
    }
}

impl VerificationKey {
    /// Parses one secret, with a warning if it is weak.
    fn parse(secret: &Secret) -> Result<(Self, Option<String>), &'static str> {
        let text = str::from_utf8(secret.expose()).map_err(|_| "it is not text")?.trim();
        if let Some(encoded) = text.strip_prefix(SECRET_PREFIX) {
            let key = decode_key(encoded).ok_or("what follows `whsec_` is not base64")?;
            let length = key.len();
            if length == 0 {
                return Err("nothing follows `whsec_`");
            }
            let warning = (length < KEY_BYTES_ADVISED).then(|| {
                format!("has {length} bytes and can be guessed; use at least {KEY_BYTES_ADVISED}")
            });
            return Ok((Self::Shared(SigningSecret::from_key(&key)), warning));
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

    fn matches(&self, version: &[u8], signed: [&[u8]; 3], signature: &[u8]) -> bool {
        match self {
            Self::Shared(secret) => version == SYMMETRIC && secret.matches(signed, signature),
            Self::Public(key) => version == ASYMMETRIC && is_signed_by(key, signed, signature),
            Self::Pair(pair) => {
                version == ASYMMETRIC && is_signed_by(pair.public_key().as_ref(), signed, signature)
            }
        }
    }
}

/// A key pair from the private key alone, or followed by its public key.
fn key_pair(bytes: &[u8]) -> Result<Ed25519KeyPair, &'static str> {
    let pair = match bytes.split_at_checked(ED25519_BYTES) {
        Some((seed, [])) => Ed25519KeyPair::from_seed_unchecked(seed),
        Some((seed, public)) => Ed25519KeyPair::from_seed_and_public_key(seed, public),
        None => return Err("what follows `whsk_` is shorter than an ed25519 key"),
    };
    pair.map_err(|_| "what follows `whsk_` is no ed25519 key, or its two halves do not match")
}

fn is_signed_by(public_key: &[u8], signed: [&[u8]; 3], signature: &[u8]) -> bool {
    UnparsedPublicKey::new(&ED25519, public_key).verify(&signed.join(&b'.'), signature).is_ok()
}

/// Verifies requests that are signed by Standard Webhooks.
#[derive(Debug)]
pub(crate) struct StandardWebhooksScheme(Vec<VerificationKey>);

impl StandardWebhooksScheme {
    /// Parses the secrets, the current one first: `whsec_…`, `whpk_…`, or for tests `whsk_…`. Also gives
    /// warnings for the operator about weak secrets.
    pub(crate) fn new(secrets: &[Secret]) -> Result<(Self, Vec<String>), VerifySpecError> {
        let mut keys = Vec::with_capacity(secrets.len());
        let mut warnings = Vec::new();
        for (number, secret) in (1..).zip(secrets) {
            let parsed = VerificationKey::parse(secret);
            let (key, warning) = parsed.map_err(|why| VerifySpecError::Secret { number, why })?;
            keys.push(key);
            warnings.extend(warning.map(|warning| format!("secret {number} {warning}")));
        }
        Ok((Self(keys), warnings))
    }
}

impl VerificationScheme for StandardWebhooksScheme {
    fn name(&self) -> &'static str {
        "standard-webhooks"
    }

    fn verify(&self, request: &IncomingRequest<'_>, now: Timestamp) -> Result<usize, VerifyError> {
        let missing = || VerifyError::MissingSignature {
            header: HeaderName::from_static(HEADER_FAMILIES[0].signature),
        };
        let family = HeaderFamily::of(request.headers).ok_or_else(missing)?;
        let candidates = candidates(request.headers, family)?;
        // Checked before hashing, so that a stale request costs little.
        let timestamp =
            timestamp_header(request.headers, &HeaderName::from_static(family.timestamp))?;
        check_age(timestamp, now.as_secs(), TOLERANCE_SECS)?;
        let id = single_header(request.headers, &HeaderName::from_static(family.id), "id")?
            .ok_or(VerifyError::MissingId)?
            .as_bytes();
        // A dot in the id would make one signature valid for two requests.
        if id.contains(&b'.') {
            return Err(VerifyError::Malformed { part: "id" });
        }
        let signed = [id, timestamp, request.body];
        let has_match = |key: &VerificationKey| {
            candidates.iter().any(|(version, signature)| key.matches(version, signed, signature))
        };
        self.0.iter().position(has_match).ok_or(VerifyError::Mismatch)
    }

    fn sign(
        &self,
        request: &OutgoingRequest<'_>,
        now: Timestamp,
    ) -> Result<RequestSignature, SignError> {
        let timestamp = now.as_secs().to_string();
        let signature = match self.0.first() {
            Some(VerificationKey::Shared(secret)) => {
                secret.sign(request.id, now.as_secs(), request.body)
            }
            Some(VerificationKey::Pair(pair)) => {
                let text = [request.id.as_bytes(), timestamp.as_bytes(), request.body].join(&b'.');
                format!("v1a,{}", BASE64.encode(pair.sign(&text).as_ref()))
            }
            Some(VerificationKey::Public(_)) | None => {
                return Err(SignError(
                    "a public key cannot sign; use the secret (`whsec_…`) or the private key (`whsk_…`)",
                ));
            }
        };
        let [family, _] = &HEADER_FAMILIES;
        let name = HeaderName::from_static;
        Ok(RequestSignature::headers(vec![
            (name(family.id), request.id.to_owned()),
            (name(family.timestamp), timestamp),
            (name(family.signature), signature),
        ]))
    }
}

/// A version and a decoded signature.
type VersionedSignature<'h> = (&'h [u8], Vec<u8>);

fn candidates<'h>(
    headers: &'h HeaderMap,
    family: &HeaderFamily,
) -> Result<Vec<VersionedSignature<'h>>, VerifyError> {
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

#[cfg(test)]
mod tests;
