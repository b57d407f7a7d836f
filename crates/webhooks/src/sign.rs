//! Signs deliveries as specified by Standard Webhooks (`v1` signatures).
//!
//! The signature is the HMAC-SHA256 of `{id}.{timestamp}.{body}`. While a secret is rotated, the header
//! has one signature per secret, separated by spaces; the receiver accepts any match.

use std::fmt;
use std::str::FromStr;

use data_encoding::{BASE64, BASE64_NOPAD};

use crate::mac::HmacKey;

/// Prefix of a signing secret.
pub const SECRET_PREFIX: &str = "whsec_";

// Limits of the specification.
pub(crate) const KEY_BYTES_MIN: usize = 24;
const KEY_BYTES_MAX: usize = 64;

const VERSION_PREFIX: &str = "v1,";

/// The signing secret of a destination. Its `Debug` output hides the key.
#[derive(Clone)]
pub struct SigningSecret {
    key: HmacKey,
}

/// Why a text is not a signing secret. Never contains the secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ParseSigningSecretError {
    /// The prefix is missing.
    #[error("a signing secret starts with `{SECRET_PREFIX}`")]
    Prefix,
    /// The key cannot be decoded.
    #[error("the part after `{SECRET_PREFIX}` is not valid base64")]
    Encoding,
    /// The key is too short or too long.
    #[error(
        "the signing secret has {bytes} bytes; it must have {KEY_BYTES_MIN} to {KEY_BYTES_MAX}"
    )]
    Length {
        /// Its length.
        bytes: usize,
    },
}

impl FromStr for SigningSecret {
    type Err = ParseSigningSecretError;

    /// Parses `whsec_<base64>`. The padding is optional, because some tools omit it.
    fn from_str(text: &str) -> Result<Self, ParseSigningSecretError> {
        let encoded = text.strip_prefix(SECRET_PREFIX).ok_or(ParseSigningSecretError::Prefix)?;
        let key = decode_key(encoded).ok_or(ParseSigningSecretError::Encoding)?;
        if !(KEY_BYTES_MIN..=KEY_BYTES_MAX).contains(&key.len()) {
            return Err(ParseSigningSecretError::Length { bytes: key.len() });
        }
        Ok(Self::from_key(&key))
    }
}

/// Decodes a base64 key, with or without padding.
pub(crate) fn decode_key(encoded: &str) -> Option<Vec<u8>> {
    BASE64_NOPAD.decode(encoded.trim_end_matches('=').as_bytes()).ok()
}

impl fmt::Debug for SigningSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningSecret(redacted)")
    }
}

impl SigningSecret {
    /// Accepts a key of any length, because other issuers ignore the limits of the specification.
    pub(crate) fn from_key(key: &[u8]) -> Self {
        Self { key: HmacKey::sha256(key) }
    }

    /// Whether `signature` was made with this secret.
    pub(crate) fn matches(&self, signed: SignedMessage<'_>, signature: &[u8]) -> bool {
        self.key.verify(signed.parts(), signature)
    }

    /// The signature of one request: `v1,<base64>`.
    ///
    /// `id` must not contain a dot, or the signed text would be ambiguous; our ids consist of letters,
    /// digits and underscores.
    pub fn sign(&self, id: &str, timestamp_secs: i64, body: &[u8]) -> String {
        let mut signature = String::with_capacity(SIGNATURE_CHARS);
        self.append_signature(&mut signature, id, &timestamp_secs.to_string(), body);
        signature
    }

    fn append_signature(&self, to: &mut String, id: &str, timestamp: &str, body: &[u8]) {
        let (id, timestamp) = (id.as_bytes(), timestamp.as_bytes());
        let signature = self.key.sign(SignedMessage { id, timestamp, body }.parts());
        to.push_str(VERSION_PREFIX);
        BASE64.encode_append(signature.as_ref(), to);
    }
}

/// The content that a signature covers.
#[derive(Clone, Copy)]
pub(crate) struct SignedMessage<'m> {
    pub(crate) id: &'m [u8],
    pub(crate) timestamp: &'m [u8],
    pub(crate) body: &'m [u8],
}

impl<'m> SignedMessage<'m> {
    /// The parts of `{id}.{timestamp}.{body}`.
    pub(crate) fn parts(self) -> [&'m [u8]; 5] {
        [self.id, b".", self.timestamp, b".", self.body]
    }
}

/// Length of one signature: the version and 32 bytes in base64.
const SIGNATURE_CHARS: usize = VERSION_PREFIX.len() + 44;

/// The value of the `webhook-signature` header: one signature per secret, in order.
pub fn build_signature_header(
    secrets: &[SigningSecret],
    id: &str,
    timestamp_secs: i64,
    body: &[u8],
) -> String {
    let timestamp = timestamp_secs.to_string();
    let mut header = String::with_capacity(secrets.len() * (SIGNATURE_CHARS + 1));
    for secret in secrets {
        if !header.is_empty() {
            header.push(' ');
        }
        secret.append_signature(&mut header, id, &timestamp, body);
    }
    header
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    // Example from the specification's libraries.
    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const ID: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
    const TIMESTAMP_SECS: i64 = 1_614_265_330;
    const BODY: &[u8] = br#"{"test": 2432232314}"#;
    const SIGNATURE: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";

    fn secret(text: &str) -> SigningSecret {
        text.parse().unwrap()
    }

    fn secret_with_key_bytes(bytes: usize) -> String {
        format!("{SECRET_PREFIX}{}", BASE64.encode(&vec![7; bytes]))
    }

    #[test]
    fn published_example_gives_published_signature() {
        assert_eq!(secret(SECRET).sign(ID, TIMESTAMP_SECS, BODY), SIGNATURE);
    }

    #[test]
    fn signature_covers_id_timestamp_and_body() {
        let cases = [
            ("another id", "msg_2", TIMESTAMP_SECS, BODY),
            ("another time", ID, TIMESTAMP_SECS + 1, BODY),
            ("another body", ID, TIMESTAMP_SECS, b"{}".as_slice()),
        ];
        for (name, id, timestamp, body) in cases {
            assert_ne!(secret(SECRET).sign(id, timestamp, body), SIGNATURE, "case: {name}");
        }
    }

    #[test]
    fn each_secret_gives_one_signature_in_order() {
        let secrets = [secret(SECRET), secret(&secret_with_key_bytes(32))];

        let header = build_signature_header(&secrets, ID, TIMESTAMP_SECS, BODY);

        let second = secrets[1].sign(ID, TIMESTAMP_SECS, BODY);
        assert_eq!(header, format!("{SIGNATURE} {second}"));
    }

    #[test]
    fn header_without_secrets_is_empty() {
        assert_eq!(build_signature_header(&[], ID, TIMESTAMP_SECS, BODY), "");
    }

    #[test]
    fn secret_prefix_encoding_and_length_are_validated() {
        let no_padding = secret_with_key_bytes(32).trim_end_matches('=').to_owned();
        let cases = [
            ("shortest", secret_with_key_bytes(24), None),
            ("longest", secret_with_key_bytes(64), None),
            ("without padding", no_padding, None),
            (
                "too short",
                secret_with_key_bytes(23),
                Some(ParseSigningSecretError::Length { bytes: 23 }),
            ),
            (
                "too long",
                secret_with_key_bytes(65),
                Some(ParseSigningSecretError::Length { bytes: 65 }),
            ),
            (
                "empty key",
                SECRET_PREFIX.to_owned(),
                Some(ParseSigningSecretError::Length { bytes: 0 }),
            ),
            ("no prefix", SECRET.replace(SECRET_PREFIX, ""), Some(ParseSigningSecretError::Prefix)),
            ("asymmetric key", "whsk_AAAA".to_owned(), Some(ParseSigningSecretError::Prefix)),
            ("not base64", "whsec_!!!!".to_owned(), Some(ParseSigningSecretError::Encoding)),
            ("URL-safe base64", SECRET.replace('r', "-"), Some(ParseSigningSecretError::Encoding)),
            ("trailing line break", format!("{SECRET}\n"), Some(ParseSigningSecretError::Encoding)),
        ];
        for (name, text, expected) in cases {
            assert_eq!(text.parse::<SigningSecret>().err(), expected, "case: {name}");
        }
    }

    #[test]
    fn debug_output_hides_the_secret() {
        assert_eq!(format!("{:?}", secret(SECRET)), "SigningSecret(redacted)");
    }

    proptest! {
        #[test]
        fn signature_is_always_a_valid_header_value(
            body in prop::collection::vec(any::<u8>(), 0..300), timestamp in any::<i64>(),
        ) {
            let header = build_signature_header(&[secret(SECRET)], ID, timestamp, &body);
            prop_assert_eq!(header.len(), SIGNATURE_CHARS);
            prop_assert!(http::HeaderValue::from_str(&header).is_ok());
        }
    }
}
