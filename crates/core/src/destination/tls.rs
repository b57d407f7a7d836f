//! What a destination says about TLS: whom we trust there, and who we are.
//!
//! Files are named here and read by the engine. There is no way to switch certificates off.

use std::{fmt, path::PathBuf, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::secret::{Secret, SecretError, SecretRef};

const FILE_PREFIX: &str = "file:";

/// TLS settings as they are written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TlsSpec {
    /// Certificates that are trusted besides the usual ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<PemRef>,
    /// Trusts `ca` alone, and not the usual ones.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ca_only: bool,
    /// Who we are: the certificate, and those that lead to its root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_certificate: Option<PemRef>,
    /// The key of that certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_key: Option<PemRef>,
}

/// Where PEM text is: in a file, in the environment, or here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PemRef {
    /// `file:/path`.
    File(String),
    /// The text, or `env:NAME`.
    Text(SecretRef),
}

impl PemRef {
    /// Whether a private key is written out here; one in a file or in the environment is not.
    fn shows_a_key(&self) -> bool {
        match self {
            Self::File(_) => false,
            Self::Text(text) => {
                text.literal().is_some_and(|text| text.contains("PRIVATE KEY-----"))
            }
        }
    }
}

/// `Display` shows the place and masks the text.
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
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

/// TLS settings that make no sense.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsSpecError {
    /// A certificate without its key, or the other way round.
    #[error("client_certificate and client_key go together")]
    Half,
    /// Nobody would be trusted.
    #[error("ca_only needs a ca")]
    NobodyTrusted,
    /// A path that depends on where the gateway was started.
    #[error("{0}: write the whole path, such as file:/etc/surehook/ca.pem")]
    RelativePath(&'static str),
    /// A certificate is shown to whoever may see the destination; a key must not be.
    #[error("{0} holds a private key; put the key into client_key, where it is not shown")]
    KeyInCertificate(&'static str),
    /// A text cannot be looked up.
    #[error("{0}: {1}")]
    Secret(&'static str, SecretError),
}

/// Where PEM text is, its secrets looked up.
#[derive(Clone, Debug)]
pub enum PemSource {
    /// In a file.
    File(PathBuf),
    /// Here.
    Text(Secret),
}

/// What a destination says about TLS.
#[derive(Clone, Debug)]
pub struct TlsConfig {
    /// Certificates that are trusted.
    pub ca: Option<PemSource>,
    /// Whether the usual ones are not.
    pub ca_only: bool,
    /// Certificate and key of ours.
    pub identity: Option<(PemSource, PemSource)>,
}

impl TlsSpec {
    /// Looks texts up through `env`.
    pub fn build(&self, env: &dyn Fn(&str) -> Option<String>) -> Result<TlsConfig, TlsSpecError> {
        for (name, pem) in [("ca", &self.ca), ("client_certificate", &self.client_certificate)] {
            if pem.as_ref().is_some_and(PemRef::shows_a_key) {
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
            return Err(TlsSpecError::NobodyTrusted);
        }
        let certificate = pem("client_certificate", &self.client_certificate)?;
        let identity = match (certificate, pem("client_key", &self.client_key)?) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            (Some(_), None) | (None, Some(_)) => return Err(TlsSpecError::Half),
        };
        Ok(TlsConfig { ca: pem("ca", &self.ca)?, ca_only: self.ca_only, identity })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_checked_before_any_file_is_read() {
        let cases = [
            (r"{}", Ok(())),
            (r#"{"ca":"file:/ca.pem"}"#, Ok(())),
            (r#"{"ca":"file:ca.pem"}"#, Err(TlsSpecError::RelativePath("ca"))),
            (r#"{"ca_only":true}"#, Err(TlsSpecError::NobodyTrusted)),
            (r#"{"client_key":"file:/key.pem"}"#, Err(TlsSpecError::Half)),
            (r#"{"client_certificate":"-----BEGIN"}"#, Err(TlsSpecError::Half)),
            (
                r#"{"ca":"-----BEGIN EC PRIVATE KEY-----"}"#,
                Err(TlsSpecError::KeyInCertificate("ca")),
            ),
            (
                r#"{"client_certificate":"-----BEGIN PRIVATE KEY-----","client_key":"x"}"#,
                Err(TlsSpecError::KeyInCertificate("client_certificate")),
            ),
            // A file with both is not shown.
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
