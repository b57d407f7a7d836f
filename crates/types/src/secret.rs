//! Secrets that cannot be printed, stored or compared by accident.
//!
//! A [`SecretRef`] is a setting: the secret itself, or the name of the environment variable that holds
//! it. A [`Secret`] is the resolved value. It has no `Serialize`, no `Display` and no `PartialEq`: the
//! only ways to use one are [`Secret::expose`], which is easy to search for, and [`Secret::matches`],
//! which takes the same time for every wrong guess.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use std::borrow::Cow;
use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::redact::MASK;

const ENV_PREFIX: &str = "env:";

/// A value that only two parties should know. Never empty when it comes from a [`SecretRef`].
#[derive(Clone)]
pub struct Secret {
    bytes: Box<[u8]>,
    /// SHA-256 of `bytes`: digests have one length, so comparing them cannot leak the secret's.
    digest: [u8; 32],
}

impl Secret {
    /// The secret with these bytes.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        let bytes = bytes.into().into_boxed_slice();
        Self { digest: Sha256::digest(&bytes).into(), bytes }
    }

    /// The bytes, for computing with them. To compare, use [`Self::matches`].
    pub fn expose(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether `candidate` is this secret. The time depends on the length of the candidate only, not on
    /// how much of it is right.
    pub fn matches(&self, candidate: &[u8]) -> bool {
        let digest: [u8; 32] = Sha256::digest(candidate).into();
        self.digest.ct_eq(&digest).into()
    }
}

/// Hash over all parts, each with its length, to compare settings that contain secrets without storing
/// them.
pub fn digest_parts<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_le_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({MASK})")
    }
}

/// A secret in the settings: literal, or `env:NAME`.
///
/// `Display` and `Debug` show the name of a variable and mask a literal; use them for people and logs.
/// Serialization writes the literal, because settings are stored; never use it for API answers.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretRef(SecretSource);

#[derive(Clone, PartialEq, Eq)]
enum SecretSource {
    Literal(String),
    Env(String),
}

/// A shorter shared secret can be guessed.
pub const SHARED_SECRET_BYTES_MIN: usize = 16;

/// Looks up an environment variable.
pub type Env<'e> = &'e dyn Fn(&str) -> Option<String>;

/// Why a secret cannot be used. No message contains any part of a secret.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// There is no secret.
    #[error(
        "the secret is empty; write the shared secret, or `env:NAME` to read it from the environment"
    )]
    Empty,
    /// `env:` is followed by something that cannot be a variable.
    #[error("`env:{name}` is not a valid variable name; use letters, digits and underscores")]
    InvalidName {
        /// The text after `env:`.
        name: String,
    },
    /// A masked secret was sent back as a value.
    #[error("`{MASK}` is the placeholder of a masked secret; write the secret itself")]
    Masked,
    /// The environment variable does not exist.
    #[error("environment variable `{name}` is not set; set it to the secret")]
    Unset {
        /// Name of the variable.
        name: String,
    },
    /// The environment variable is empty.
    #[error("environment variable `{name}` is empty; set it to the secret")]
    EmptyVariable {
        /// Name of the variable.
        name: String,
    },
    /// It is short enough to be guessed.
    #[error(
        "the secret has {bytes} bytes and can be guessed; use at least {SHARED_SECRET_BYTES_MIN}, or write {flag} = true to use it anyway"
    )]
    Short {
        /// Its length.
        bytes: usize,
        /// The setting that allows it.
        flag: &'static str,
    },
}

impl SecretRef {
    /// Resolves the secret; `env` looks up an environment variable.
    pub fn resolve(&self, env: Env<'_>) -> Result<Secret, SecretError> {
        match &self.0 {
            SecretSource::Literal(text) => Ok(Secret::new(text.as_str())),
            SecretSource::Env(name) => {
                let value = env(name).ok_or_else(|| SecretError::Unset { name: name.clone() })?;
                if value.trim().is_empty() {
                    return Err(SecretError::EmptyVariable { name: name.clone() });
                }
                Ok(Secret::new(value))
            }
        }
    }

    /// Refuses a shared secret that can be guessed. `flag` names the setting that allows it.
    pub fn check_length(&self, env: Env<'_>, flag: &'static str) -> Result<(), SecretError> {
        let bytes = self.resolve(env)?.expose().len();
        if bytes < SHARED_SECRET_BYTES_MIN {
            return Err(SecretError::Short { bytes, flag });
        }
        Ok(())
    }

    /// The literal secret; `None` for a variable.
    pub fn literal(&self) -> Option<&str> {
        match &self.0 {
            SecretSource::Literal(text) => Some(text),
            SecretSource::Env(_) => None,
        }
    }
}

impl FromStr for SecretRef {
    type Err = SecretError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(name) = text.strip_prefix(ENV_PREFIX) {
            let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
            if name.is_empty() || !name.bytes().all(is_word) {
                return Err(SecretError::InvalidName { name: name.to_owned() });
            }
            return Ok(Self(SecretSource::Env(name.to_owned())));
        }
        match text.trim() {
            "" => Err(SecretError::Empty),
            MASK => Err(SecretError::Masked),
            _ => Ok(Self(SecretSource::Literal(text.to_owned()))),
        }
    }
}

impl fmt::Display for SecretRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            SecretSource::Literal(_) => f.write_str(MASK),
            SecretSource::Env(name) => write!(f, "{ENV_PREFIX}{name}"),
        }
    }
}

impl fmt::Debug for SecretRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretRef({self})")
    }
}

impl Serialize for SecretRef {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            SecretSource::Literal(text) => serializer.serialize_str(text),
            SecretSource::Env(_) => serializer.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for SecretRef {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

impl JsonSchema for SecretRef {
    fn schema_name() -> Cow<'static, str> {
        "Secret".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "minLength": 1,
            "description": "A secret, or `env:NAME` to take it from the environment. Answers show a literal one as `•••`.",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(name: &str) -> Option<String> {
        match name {
            "META_APP_SECRET" => Some("s3cret".to_owned()),
            "BLANK" => Some(" \n".to_owned()),
            _ => None,
        }
    }

    #[test]
    fn only_the_exact_secret_matches() {
        let secret = Secret::new("s3cret");
        let cases = [
            ("itself", "s3cret", true),
            ("nothing", "", false),
            ("a prefix", "s3cre", false),
            ("more", "s3crett", false),
            ("other case", "S3cret", false),
            ("trailing zero", "s3cret\0", false),
        ];
        for (name, candidate, expected) in cases {
            assert_eq!(secret.matches(candidate.as_bytes()), expected, "case: {name}");
        }
    }

    #[test]
    fn secret_resolves_from_literal_or_environment() {
        let unset = |name: &str| SecretError::Unset { name: name.to_owned() };
        let empty = |name: &str| SecretError::EmptyVariable { name: name.to_owned() };
        let invalid = |name: &str| SecretError::InvalidName { name: name.to_owned() };
        let cases = [
            ("literal", "hunter2", Ok("hunter2")),
            ("spaces belong to it", " hunter2 ", Ok(" hunter2 ")),
            ("variable", "env:META_APP_SECRET", Ok("s3cret")),
            ("unset variable", "env:OTHER", Err(unset("OTHER"))),
            ("blank variable", "env:BLANK", Err(empty("BLANK"))),
            ("no name", "env:", Err(invalid(""))),
            ("odd name", "env:A B", Err(invalid("A B"))),
            ("empty", "", Err(SecretError::Empty)),
            ("blank", "  ", Err(SecretError::Empty)),
            ("the mask", "•••", Err(SecretError::Masked)),
        ];
        for (name, text, expected) in cases {
            let found = text.parse::<SecretRef>().and_then(|written| written.resolve(&environment));
            let found = found.map(|secret| String::from_utf8(secret.expose().to_vec()).unwrap());
            assert_eq!(found, expected.map(ToOwned::to_owned), "case: {name}");
        }
    }

    #[test]
    fn display_and_debug_never_show_a_secret() {
        let literal: SecretRef = "hunter2".parse().unwrap();
        let variable: SecretRef = "env:META_APP_SECRET".parse().unwrap();

        assert_eq!(literal.to_string(), "•••");
        assert_eq!(format!("{literal:?}"), "SecretRef(•••)");
        assert_eq!(variable.to_string(), "env:META_APP_SECRET");
        assert_eq!(format!("{:?}", Secret::new("hunter2")), "Secret(•••)");
    }

    #[test]
    fn digest_differs_for_lists_that_concatenate_equally() {
        let of = |parts: &[&str]| digest_parts(parts.iter().map(|part| part.as_bytes()));
        assert_eq!(of(&["a", "bc"]), of(&["a", "bc"]));
        assert_ne!(of(&["a", "bc"]), of(&["ab", "c"]));
        assert_ne!(of(&["a"]), of(&["a", ""]));
    }

    #[test]
    fn secret_settings_round_trip_through_json() {
        for text in [r#""hunter2""#, r#""env:META_APP_SECRET""#] {
            let written: SecretRef = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::to_string(&written).unwrap(), text);
        }
        let masked = serde_json::from_str::<SecretRef>(r#""•••""#).unwrap_err();
        assert!(masked.to_string().contains("write the secret itself"), "{masked}");
    }
}
