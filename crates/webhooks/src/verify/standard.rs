//! Verifies Standard Webhooks signatures: shared secrets (`v1`) and key pairs (`v1a`).
//!
//! The signed text is `{id}.{timestamp}.{body}`. The header contains signatures prefixed with their
//! version; one match is enough, and unknown versions are ignored.

use std::{fmt, time::Duration};

use data_encoding::BASE64;
use http::{HeaderMap, HeaderName, HeaderValue};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use surehook_types::{secret::Secret, time::Timestamp};

use super::{
    CANDIDATES_MAX, RequestSignature, SignError, VerificationScheme, VerifyError, VerifySpecError,
    check_age, single_header, timestamp_header,
};
use crate::{
    key::fingerprint,
    request::{IncomingRequest, OutgoingRequest},
    sign::{KEY_BYTES_MIN, SECRET_PREFIX, SignedMessage, SigningSecret, decode_key},
};

const PUBLIC_PREFIX: &str = "whpk_";
const PRIVATE_PREFIX: &str = "whsk_";

/// Largest allowed difference between the timestamp and now, in either direction.
const TOLERANCE_SECS: u64 = 300;
/// Length of an ed25519 key, public or private. A private key is often followed by its public key.
const ED25519_BYTES: usize = 32;

const SYMMETRIC: &str = "v1";
const ASYMMETRIC: &str = "v1a";

/// Header names of the specification, and of Svix, from which it originated.
const HEADER_FAMILIES: [HeaderFamily; 2] = [
    HeaderFamily {
        id: "webhook-id",
        timestamp: "webhook-timestamp",
        signature: "webhook-signature",
    },
    HeaderFamily { id: "svix-id", timestamp: "svix-timestamp", signature: "svix-signature" },
];

/// Headers removed when the body was changed. Includes `svix-id` and `svix-timestamp`, because Svix
/// libraries prefer the `svix-*` headers over the `webhook-*` headers that we add.
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
    fn detect(headers: &HeaderMap) -> Option<&'static Self> {
        let is_signed =
            |family: &&Self| headers.get(family.signature).is_some_and(|value| !value.is_empty());
        HEADER_FAMILIES.iter().find(is_signed)
    }
}

/// The message id of a signed request.
pub(crate) fn message_id<'r>(request: &IncomingRequest<'r>) -> Option<&'r str> {
    let name = HeaderFamily::detect(request.headers)?.id;
    request.headers.get(name)?.to_str().ok().filter(|id| !id.trim().is_empty())
}

/// A key that verifies signatures.
enum SignatureKey {
    Shared(SigningSecret),
    Public(Vec<u8>),
    /// A private key: verifies like its public key, and can also sign.
    Pair(Ed25519KeyPair),
}

impl fmt::Debug for SignatureKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SignatureKey(redacted)")
    }
}

impl SignatureKey {
    /// Parses one secret, with a warning if it is weak.
    fn parse(secret: &Secret) -> Result<(Self, Option<String>), &'static str> {
        let text = str::from_utf8(secret.expose()).map_err(|_| "it is not text")?.trim();
        if let Some(encoded) = text.strip_prefix(SECRET_PREFIX) {
            let key = decode_key(encoded).ok_or("the part after `whsec_` is not valid base64")?;
            let length = key.len();
            if length == 0 {
                return Err("nothing follows `whsec_`");
            }
            // Some senders issue shorter ones, so they only give a warning.
            let warning = (length < KEY_BYTES_MIN).then(|| {
                format!("has {length} bytes; Standard Webhooks requires at least {KEY_BYTES_MIN}")
            });
            return Ok((Self::Shared(SigningSecret::from_key(&key)), warning));
        }
        if let Some(encoded) = text.strip_prefix(PUBLIC_PREFIX) {
            let key = decode_key(encoded).ok_or("the part after `whpk_` is not valid base64")?;
            if key.len() != ED25519_BYTES {
                return Err("the part after `whpk_` is not the 32 bytes of an ed25519 key");
            }
            return Ok((Self::Public(key), None));
        }
        if let Some(encoded) = text.strip_prefix(PRIVATE_PREFIX) {
            let key = decode_key(encoded).ok_or("the part after `whsk_` is not valid base64")?;
            let warning = "is the private key of the sender; `whpk_…` is enough to check requests";
            return Ok((Self::Pair(key_pair(&key)?), Some(warning.to_owned())));
        }
        Err("it must start with `whsec_` (a shared secret) or `whpk_` (a public key)")
    }

    fn matches(&self, version: &str, signed: SignedMessage<'_>, signature: &[u8]) -> bool {
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
        None => return Err("the part after `whsk_` is shorter than an ed25519 key"),
    };
    pair.map_err(|_| "the part after `whsk_` is not an ed25519 key, or its two halves do not match")
}

fn is_signed_by(public_key: &[u8], signed: SignedMessage<'_>, signature: &[u8]) -> bool {
    UnparsedPublicKey::new(&ED25519, public_key).verify(&signed.parts().concat(), signature).is_ok()
}

/// The keys of a sender, the current one first.
#[derive(Debug)]
pub(crate) struct StandardWebhooksScheme(Vec<SignatureKey>);

impl StandardWebhooksScheme {
    /// Parses the secrets, the current one first: `whsec_…`, `whpk_…`, or `whsk_…`. Also gives warnings for
    /// the operator about weak secrets.
    pub(crate) fn new(secrets: &[Secret]) -> Result<(Self, Vec<String>), VerifySpecError> {
        let mut keys = Vec::with_capacity(secrets.len());
        let mut warnings = Vec::new();
        for (number, secret) in (1..).zip(secrets) {
            let parsed = SignatureKey::parse(secret);
            let (key, warning) =
                parsed.map_err(|reason| VerifySpecError::Secret { number, reason })?;
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

    fn max_age(&self) -> Option<Duration> {
        Some(Duration::from_secs(TOLERANCE_SECS))
    }

    fn verify(&self, request: &IncomingRequest<'_>, now: Timestamp) -> Result<usize, VerifyError> {
        let missing = || VerifyError::MissingSignature {
            header: HeaderName::from_static(HEADER_FAMILIES[0].signature),
        };
        let family = HeaderFamily::detect(request.headers).ok_or_else(missing)?;
        let signatures = parse_signatures(request.headers, family)?;
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
        let signed = SignedMessage { id, timestamp, body: request.body };
        let has_match = |key: &SignatureKey| {
            signatures.iter().any(|(version, signature)| key.matches(version, signed, signature))
        };
        self.0.iter().position(has_match).ok_or(VerifyError::Mismatch)
    }

    fn signed_fingerprint(&self, request: &IncomingRequest<'_>) -> [u8; 32] {
        let header = |name| request.headers.get(name).map(HeaderValue::as_bytes);
        let family = HeaderFamily::detect(request.headers);
        let id = family.and_then(|family| header(family.id)).unwrap_or_default();
        let timestamp = family.and_then(|family| header(family.timestamp)).unwrap_or_default();
        let signed = SignedMessage { id, timestamp, body: request.body };
        fingerprint(&signed.parts().concat())
    }

    fn sign(
        &self,
        request: &OutgoingRequest<'_>,
        now: Timestamp,
    ) -> Result<RequestSignature, SignError> {
        let timestamp = now.as_secs().to_string();
        let signature = match self.0.first() {
            Some(SignatureKey::Shared(secret)) => {
                secret.sign(request.id, now.as_secs(), request.body)
            }
            Some(SignatureKey::Pair(pair)) => {
                let (id, timestamp) = (request.id.as_bytes(), timestamp.as_bytes());
                let signed = SignedMessage { id, timestamp, body: request.body };
                let signature = pair.sign(&signed.parts().concat());
                format!("{ASYMMETRIC},{}", BASE64.encode(signature.as_ref()))
            }
            None => return Err(SignError("no secret is configured")),
            Some(SignatureKey::Public(_)) => {
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
type VersionedSignature<'h> = (&'h str, Vec<u8>);

fn parse_signatures<'h>(
    headers: &'h HeaderMap,
    family: &HeaderFamily,
) -> Result<Vec<VersionedSignature<'h>>, VerifyError> {
    let values = headers.get_all(family.signature).iter();
    let entries = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b' '));
    let mut found = Vec::new();
    for (seen, entry) in entries.filter(|entry| !entry.is_empty()).enumerate() {
        if seen == CANDIDATES_MAX {
            return Err(VerifyError::TooManySignatures);
        }
        let Some(comma) = entry.iter().position(|byte| *byte == b',') else { continue };
        let (version, encoded) = (&entry[..comma], &entry[comma + 1..]);
        if let (Ok(version), Ok(signature)) = (str::from_utf8(version), BASE64.decode(encoded))
            && (version == SYMMETRIC || version == ASYMMETRIC)
        {
            found.push((version, signature));
        }
    }
    if found.is_empty() { Err(VerifyError::Malformed { part: "signature" }) } else { Ok(found) }
}

#[cfg(test)]
mod tests;
