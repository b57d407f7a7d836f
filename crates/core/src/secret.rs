//! Secrets: kept so that they cannot be printed, stored or compared by accident.
//!
//! A [`SecretRef`] is what stands in the configuration: the secret itself, or the name of the
//! environment variable that holds it. A [`Secret`] is the resolved value. It has no `Serialize`,
//! no `Display` and no `PartialEq`, so the only ways to use one are [`Secret::expose`], which can
//! be searched for, and [`Secret::matches`], which takes the same time for every wrong guess.

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
    /// Wraps a value that is to be kept secret.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        let bytes = bytes.into().into_boxed_slice();
        Self { digest: Sha256::digest(&bytes).into(), bytes }
    }

    /// The bare bytes, for computing with them. Do not compare them; use [`Self::matches`].
    pub fn expose(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether `candidate` is this secret. How long it takes depends on the length of the
    /// candidate only, never on how much of it is right.
    pub fn matches(&self, candidate: &[u8]) -> bool {
        let digest: [u8; 32] = Sha256::digest(candidate).into();
        self.digest.ct_eq(&digest).into()
    }
}

/// Tells settings that hold secrets apart without keeping them: a hash over all parts, each with
/// its length, so that no two lists of parts look the same.
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

/// A secret as it is written in the configuration: literally, or as `env:NAME`.
///
/// `Display` and `Debug` show the name of a variable and mask a literal; use them for everything
/// that a person or a log sees. Serialization writes what was read, because settings must survive
/// being stored; it is not for answers of the API.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretRef(Written);

#[derive(Clone, PartialEq, Eq)]
enum Written {
    Literal(String),
    Env(String),
}

/// Why a secret cannot be used. No message holds any part of one.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// The setting holds nothing.
    #[error("the secret is empty; write the shared secret, or `env:NAME` to take it from NAME")]
    Empty,
    /// What follows `env:` is not the name of a variable.
    #[error("`env:{name}` names no environment variable; use letters, digits and underscores")]
    InvalidName {
        /// What was written after `env:`.
        name: String,
    },
    /// A masked secret was read back as if it were one.
    #[error("the secret is `{MASK}`, which only stands for a hidden one; write the secret itself")]
    Masked,
    /// The environment has no such variable.
    #[error("environment variable `{name}` is not set; set it to the secret")]
    Unset {
        /// The variable.
        name: String,
    },
    /// The variable is there and holds nothing.
    #[error("environment variable `{name}` is empty; set it to the secret")]
    EmptyVariable {
        /// The variable.
        name: String,
    },
}

impl SecretRef {
    /// Finds the secret itself; `env` looks up an environment variable.
    pub fn resolve(&self, env: &dyn Fn(&str) -> Option<String>) -> Result<Secret, SecretError> {
        match &self.0 {
            Written::Literal(text) => Ok(Secret::new(text.as_str())),
            Written::Env(name) => {
                let value = env(name).ok_or_else(|| SecretError::Unset { name: name.clone() })?;
                if value.trim().is_empty() {
                    return Err(SecretError::EmptyVariable { name: name.clone() });
                }
                Ok(Secret::new(value))
            }
        }
    }
}

impl SecretRef {
    /// What is written out here, if it is; the name of a variable is not.
    pub fn literal(&self) -> Option<&str> {
        match &self.0 {
            Written::Literal(text) => Some(text),
            Written::Env(_) => None,
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
            return Ok(Self(Written::Env(name.to_owned())));
        }
        match text.trim() {
            "" => Err(SecretError::Empty),
            MASK => Err(SecretError::Masked),
            _ => Ok(Self(Written::Literal(text.to_owned()))),
        }
    }
}

impl fmt::Display for SecretRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Written::Literal(_) => f.write_str(MASK),
            Written::Env(name) => write!(f, "{ENV_PREFIX}{name}"),
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
            Written::Literal(text) => serializer.serialize_str(text),
            Written::Env(_) => serializer.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for SecretRef {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
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
    fn only_the_whole_secret_matches() {
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
    fn a_secret_is_found_where_the_setting_says() {
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
    fn nothing_that_is_printed_holds_a_secret() {
        let literal: SecretRef = "hunter2".parse().unwrap();
        let variable: SecretRef = "env:META_APP_SECRET".parse().unwrap();

        assert_eq!(literal.to_string(), "•••");
        assert_eq!(format!("{literal:?}"), "SecretRef(•••)");
        assert_eq!(variable.to_string(), "env:META_APP_SECRET");
        assert_eq!(format!("{:?}", Secret::new("hunter2")), "Secret(•••)");
    }

    #[test]
    fn a_digest_tells_lists_apart_that_only_look_alike_together() {
        let of = |parts: &[&str]| digest_parts(parts.iter().map(|part| part.as_bytes()));
        assert_eq!(of(&["a", "bc"]), of(&["a", "bc"]));
        assert_ne!(of(&["a", "bc"]), of(&["ab", "c"]));
        assert_ne!(of(&["a"]), of(&["a", ""]));
    }

    #[test]
    fn settings_survive_being_stored() {
        for text in [r#""hunter2""#, r#""env:META_APP_SECRET""#] {
            let written: SecretRef = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::to_string(&written).unwrap(), text);
        }
        let masked = serde_json::from_str::<SecretRef>(r#""•••""#).unwrap_err();
        assert!(masked.to_string().contains("write the secret itself"), "{masked}");
    }
}
