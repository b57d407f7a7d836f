//! TLS settings of a destination: trusted certificates and client certificate.
//!
//! The engine reads the files. Certificate verification cannot be disabled.

use std::borrow::Cow;
use std::{fmt, path::PathBuf, str::FromStr};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use surehook_types::secret::{Env, Secret, SecretError, SecretRef};

const FILE_PREFIX: &str = "file:";

/// The TLS settings of a destination.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TlsSpec {
    /// CA certificates to trust in addition to the system's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<PemRef>,
    /// Trusts only `ca`, not the system's certificates.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ca_only: bool,
    /// Client certificate with its chain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_certificate: Option<PemRef>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_key: Option<PemRef>,
}

/// A reference to PEM text: a file, an environment variable, or the text itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PemRef {
    /// `file:/path`.
    File(String),
    /// The text, or `env:NAME`.
    Text(SecretRef),
}

impl PemRef {
    /// Whether a private key is part of the settings, and not in a file or the environment.
    fn contains_private_key(&self) -> bool {
        match self {
            Self::File(_) => false,
            Self::Text(text) => {
                text.literal().is_some_and(|text| text.contains("PRIVATE KEY-----"))
            }
        }
    }
}

/// Shows a file path and masks text.
impl fmt::Display for PemRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{FILE_PREFIX}{path}"),
            Self::Text(secret) => write!(f, "{secret}"),
        }
    }
}

impl FromStr for PemRef {
    type Err = SecretError;

    fn from_str(text: &str) -> Result<Self, SecretError> {
        match text.strip_prefix(FILE_PREFIX) {
            Some(path) => Ok(Self::File(path.to_owned())),
            None => text.parse().map(Self::Text),
        }
    }
}

impl Serialize for PemRef {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::File(_) => serializer.collect_str(self),
            Self::Text(secret) => secret.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for PemRef {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

/// Why TLS settings are invalid.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsSpecError {
    #[error("set client_certificate and client_key, both or neither")]
    IncompleteIdentity,
    #[error("ca_only needs a ca")]
    MissingCa,
    #[error("{0}: use an absolute path, such as file:/etc/surehook/ca.pem")]
    RelativePath(&'static str),
    /// A certificate is visible to every user who can see the destination; a key must not be.
    #[error("{0} contains a private key; put the key into client_key, which is hidden")]
    KeyInCertificate(&'static str),
    #[error("{0}: {1}")]
    Secret(&'static str, SecretError),
}

/// PEM text with its secret resolved, or the file that contains it.
#[derive(Clone, Debug)]
pub enum PemSource {
    File(PathBuf),
    Text(Secret),
}

/// Checked TLS settings.
#[derive(Clone, Debug)]
pub struct TlsConfig {
    /// Trusted CA certificates.
    pub ca: Option<PemSource>,
    /// Trusts only `ca`.
    pub ca_only: bool,
    /// Client certificate and key.
    pub identity: Option<(PemSource, PemSource)>,
}

impl TlsSpec {
    /// Resolves secrets through `env`.
    pub fn build(&self, env: Env<'_>) -> Result<TlsConfig, TlsSpecError> {
        for (name, pem) in [("ca", &self.ca), ("client_certificate", &self.client_certificate)] {
            if pem.as_ref().is_some_and(PemRef::contains_private_key) {
                return Err(TlsSpecError::KeyInCertificate(name));
            }
        }
        let pem = |name, pem: &Option<PemRef>| match pem {
            None => Ok(None),
            Some(PemRef::File(path)) if path.starts_with('/') => {
                Ok(Some(PemSource::File(path.into())))
            }
            Some(PemRef::File(_)) => Err(TlsSpecError::RelativePath(name)),
            Some(PemRef::Text(secret)) => {
                let text =
                    secret.resolve(env).map_err(|error| TlsSpecError::Secret(name, error))?;
                Ok(Some(PemSource::Text(text)))
            }
        };
        if self.ca_only && self.ca.is_none() {
            return Err(TlsSpecError::MissingCa);
        }
        let certificate = pem("client_certificate", &self.client_certificate)?;
        let identity = match (certificate, pem("client_key", &self.client_key)?) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            (Some(_), None) | (None, Some(_)) => return Err(TlsSpecError::IncompleteIdentity),
        };
        Ok(TlsConfig { ca: pem("ca", &self.ca)?, ca_only: self.ca_only, identity })
    }
}

impl JsonSchema for PemRef {
    fn schema_name() -> Cow<'static, str> {
        "Pem".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "minLength": 1,
            "description": "PEM text, `env:NAME` or `file:/path`. Answers show a literal key as `•••`.",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tls_settings_are_checked_before_reading_files() {
        let cases = [
            (r"{}", Ok(())),
            (r#"{"ca":"file:/ca.pem"}"#, Ok(())),
            (r#"{"ca":"file:ca.pem"}"#, Err(TlsSpecError::RelativePath("ca"))),
            (r#"{"ca_only":true}"#, Err(TlsSpecError::MissingCa)),
            (r#"{"client_key":"file:/key.pem"}"#, Err(TlsSpecError::IncompleteIdentity)),
            (r#"{"client_certificate":"-----BEGIN"}"#, Err(TlsSpecError::IncompleteIdentity)),
            (
                r#"{"ca":"-----BEGIN EC PRIVATE KEY-----"}"#,
                Err(TlsSpecError::KeyInCertificate("ca")),
            ),
            (
                r#"{"client_certificate":"-----BEGIN PRIVATE KEY-----","client_key":"x"}"#,
                Err(TlsSpecError::KeyInCertificate("client_certificate")),
            ),
            // A file with both is not visible.
            (r#"{"client_certificate":"file:/both.pem","client_key":"file:/both.pem"}"#, Ok(())),
            (
                r#"{"ca":"env:MISSING"}"#,
                Err(TlsSpecError::Secret("ca", SecretError::Unset { name: "MISSING".to_owned() })),
            ),
        ];
        for (json, expected) in cases {
            let spec: TlsSpec = serde_json::from_str(json).unwrap();
            assert_eq!(spec.build(&|_| None).map(drop), expected, "case: {json}");
            assert_eq!(serde_json::to_string(&spec).unwrap(), json, "case: {json}");
        }
        assert!(serde_json::from_str::<TlsSpec>(r#"{"insecure":true}"#).is_err());
    }
}
