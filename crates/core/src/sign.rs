//! Signs what is delivered, by Standard Webhooks version 1, so that a destination can tell that
//! a request is ours, whole and recent.
//!
//! The signed text is `{id}.{timestamp}.{body}`, the signature its HMAC-SHA256. A destination
//! whose secret is being rotated gets one signature for each secret, separated by spaces, and
//! accepts the request if any of them fits.

use std::fmt;
use std::str::FromStr;

use data_encoding::{BASE64, BASE64_NOPAD};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// What a secret begins with in its written form.
pub const SECRET_PREFIX: &str = "whsec_";

// The bounds of the specification. Less can be guessed, more adds nothing.
const KEY_BYTES_MIN: usize = 24;
const KEY_BYTES_MAX: usize = 64;

const VERSION_PREFIX: &str = "v1,";

/// A destination's signing secret, ready for use. Does not print.
#[derive(Clone)]
pub struct SigningSecret {
    // The key is absorbed once, here. A signature starts from a copy of this state, which saves
    // two of the hash blocks that a signature would cost otherwise.
    keyed: Hmac<Sha256>,
}

/// Why a text is not a signing secret. Never holds any of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ParseSigningSecretError {
    #[error("a signing secret starts with `{SECRET_PREFIX}`")]
    Prefix,
    #[error("what follows `{SECRET_PREFIX}` is not base64")]
    Encoding,
    #[error(
        "the signing secret is {bytes} bytes long; it must have \
         {KEY_BYTES_MIN} to {KEY_BYTES_MAX}"
    )]
    Length { bytes: usize },
}

impl FromStr for SigningSecret {
    type Err = ParseSigningSecretError;

    /// Reads `whsec_<base64>`. The padding of the base64 may be missing, as some tools omit it.
    fn from_str(text: &str) -> Result<Self, ParseSigningSecretError> {
        let encoded = text.strip_prefix(SECRET_PREFIX).ok_or(ParseSigningSecretError::Prefix)?;
        let key = decode_key(encoded).ok_or(ParseSigningSecretError::Encoding)?;
        if !(KEY_BYTES_MIN..=KEY_BYTES_MAX).contains(&key.len()) {
            return Err(ParseSigningSecretError::Length { bytes: key.len() });
        }
        Ok(Self::of_key(&key))
    }
}

/// The bytes of a key in base64, with or without padding.
pub(crate) fn decode_key(encoded: &str) -> Option<Vec<u8>> {
    BASE64_NOPAD.decode(encoded.trim_end_matches('=').as_bytes()).ok()
}

impl fmt::Debug for SigningSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningSecret(redacted)")
    }
}

impl SigningSecret {
    /// A key of any length: what others hand out need not keep to the bounds for ours.
    pub(crate) fn of_key(key: &[u8]) -> Self {
        Self { keyed: Hmac::new_from_slice(key).expect("HMAC takes keys of any length (RFC 2104)") }
    }

    /// Whether a signature was made with this secret.
    pub(crate) fn fits(&self, signed: [&[u8]; 3], signature: &[u8]) -> bool {
        self.mac(signed).verify_slice(signature).is_ok()
    }

    /// The signature of one request: `v1,<base64>`.
    ///
    /// Neither `id` nor the timestamp holds a dot, or the signed text could be cut in two ways;
    /// our ids are made of letters, digits and underscores.
    pub fn sign(&self, id: &str, timestamp_secs: i64, body: &[u8]) -> String {
        let mut signature = String::with_capacity(SIGNATURE_CHARS);
        self.append_signature(&mut signature, id, &timestamp_secs.to_string(), body);
        signature
    }

    fn append_signature(&self, to: &mut String, id: &str, timestamp: &str, body: &[u8]) {
        let mac = self.mac([id.as_bytes(), timestamp.as_bytes(), body]);
        to.push_str(VERSION_PREFIX);
        BASE64.encode_append(&mac.finalize().into_bytes(), to);
    }

    /// Over the id, the timestamp and the body.
    fn mac(&self, [id, timestamp, body]: [&[u8]; 3]) -> Hmac<Sha256> {
        let mut mac = self.keyed.clone();
        for part in [id, b".", timestamp, b".", body] {
            mac.update(part);
        }
        mac
    }
}

/// The length of one signature: the version, and 32 bytes in base64.
const SIGNATURE_CHARS: usize = VERSION_PREFIX.len() + 44;

/// The value of the `webhook-signature` header: a signature for each secret, in their order.
pub fn signature_header(
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

    // The example of the specification's own libraries.
    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const ID: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
    const TIMESTAMP_SECS: i64 = 1_614_265_330;
    const BODY: &[u8] = br#"{"test": 2432232314}"#;
    const SIGNATURE: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";

    fn secret(text: &str) -> SigningSecret {
        text.parse().unwrap()
    }

    fn secret_of(bytes: usize) -> String {
        format!("{SECRET_PREFIX}{}", BASE64.encode(&vec![7; bytes]))
    }

    #[test]
    fn the_published_example_is_signed_as_published() {
        assert_eq!(secret(SECRET).sign(ID, TIMESTAMP_SECS, BODY), SIGNATURE);
    }

    #[test]
    fn every_part_of_the_request_is_signed() {
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
        let secrets = [secret(SECRET), secret(&secret_of(32))];

        let header = signature_header(&secrets, ID, TIMESTAMP_SECS, BODY);

        let second = secrets[1].sign(ID, TIMESTAMP_SECS, BODY);
        assert_eq!(header, format!("{SIGNATURE} {second}"));
    }

    #[test]
    fn without_a_secret_the_header_is_empty() {
        assert_eq!(signature_header(&[], ID, TIMESTAMP_SECS, BODY), "");
    }

    #[test]
    fn a_secret_is_read_strictly() {
        let no_padding = secret_of(32).trim_end_matches('=').to_owned();
        let cases = [
            ("shortest", secret_of(24), None),
            ("longest", secret_of(64), None),
            ("without padding", no_padding, None),
            ("too short", secret_of(23), Some(ParseSigningSecretError::Length { bytes: 23 })),
            ("too long", secret_of(65), Some(ParseSigningSecretError::Length { bytes: 65 })),
            (
                "empty key",
                SECRET_PREFIX.to_owned(),
                Some(ParseSigningSecretError::Length { bytes: 0 }),
            ),
            ("no prefix", SECRET.replace(SECRET_PREFIX, ""), Some(ParseSigningSecretError::Prefix)),
            ("asymmetric key", "whsk_AAAA".to_owned(), Some(ParseSigningSecretError::Prefix)),
            ("not base64", "whsec_!!!!".to_owned(), Some(ParseSigningSecretError::Encoding)),
            ("URL-safe base64", SECRET.replace('r', "-"), Some(ParseSigningSecretError::Encoding)),
            (
                "a line break at the end",
                format!("{SECRET}\n"),
                Some(ParseSigningSecretError::Encoding),
            ),
        ];
        for (name, text, expected) in cases {
            assert_eq!(text.parse::<SigningSecret>().err(), expected, "case: {name}");
        }
    }

    #[test]
    fn a_secret_does_not_print() {
        assert_eq!(format!("{:?}", secret(SECRET)), "SigningSecret(redacted)");
    }

    proptest! {
        #[test]
        fn a_signature_is_always_a_valid_header_value(
            body in prop::collection::vec(any::<u8>(), 0..300), timestamp in any::<i64>(),
        ) {
            let header = signature_header(&[secret(SECRET)], ID, timestamp, &body);
            prop_assert_eq!(header.len(), SIGNATURE_CHARS);
            prop_assert!(http::HeaderValue::from_str(&header).is_ok());
        }
    }
}
