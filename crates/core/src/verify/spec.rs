//! How a keyed hash is checked, as it is written in the configuration.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{secret::Secret, time::HumanDuration};

/// A shorter secret can be guessed. Some providers hand them out, so it is not an error.
const SECRET_BYTES_ADVISED: usize = 16;

/// How a keyed hash is checked, as it is written in the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HmacSpec {
    /// The header with the signature, or a list of which the first one present is used.
    pub header: HeaderNames,
    /// What stands before the signature, such as `sha256=`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prefix: String,
    /// Whether a signature without the prefix is fine too.
    #[serde(default, skip_serializing_if = "is_false")]
    pub prefix_optional: bool,
    /// How the signature is written.
    #[serde(default)]
    pub encoding: SignatureEncoding,
    /// The hash.
    #[serde(default)]
    pub algorithm: HmacAlgorithm,
    /// What the signature is made over, with `{body}`, `{timestamp}` and `{id}`.
    #[serde(default = "only_body")]
    pub template: String,
    /// The header with the time of signing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp_header: Option<String>,
    /// The parameter with the time of signing, in the header of the signature.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp_param: Option<String>,
    /// What the timestamp counts.
    #[serde(default)]
    pub timestamp_unit: TimestampUnit,
    /// How far the timestamp may be from now, in either direction.
    #[serde(default = "five_minutes")]
    pub tolerance: HumanDuration,
    /// The header with the id that the template names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id_header: Option<String>,
    /// The parameter with the signature, if the header is a list such as `t=…,v1=…`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature_param: Option<String>,
}

/// One header's name or several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "a header name or a list of header names")]
pub enum HeaderNames {
    /// `header = "x-signature"`
    One(String),
    /// `header = ["x-webhook-signature", "x-signature"]`
    Several(Vec<String>),
}

/// How the bytes of a signature are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SignatureEncoding {
    /// Hexadecimal, in either case.
    #[default]
    Hex,
    /// RFC 4648 section 4, canonical, with padding.
    Base64,
    /// RFC 4648 section 5, canonical, with or without padding.
    Base64url,
}

/// A hash function to build the keyed hash on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum HmacAlgorithm {
    /// For old senders only.
    Sha1,
    /// What nearly everybody uses.
    #[default]
    Sha256,
    /// The long one.
    Sha512,
}

/// What a timestamp counts since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TimestampUnit {
    /// Seconds.
    #[default]
    #[serde(rename = "s")]
    Seconds,
    /// Milliseconds.
    #[serde(rename = "ms")]
    Milliseconds,
}

fn only_body() -> String {
    "{body}".to_owned()
}

fn five_minutes() -> HumanDuration {
    HumanDuration::from_secs(300)
}

fn is_false(value: &bool) -> bool {
    !value
}

impl HmacSpec {
    /// The plainest scheme: hex of SHA-256 over the body, in `header`.
    pub fn new(header: impl Into<String>) -> Self {
        Self {
            header: HeaderNames::One(header.into()),
            prefix: String::new(),
            prefix_optional: false,
            encoding: SignatureEncoding::default(),
            algorithm: HmacAlgorithm::default(),
            template: only_body(),
            timestamp_header: None,
            timestamp_param: None,
            timestamp_unit: TimestampUnit::default(),
            tolerance: five_minutes(),
            id_header: None,
            signature_param: None,
        }
    }

    pub(super) fn has_timestamp(&self) -> bool {
        self.timestamp_header.is_some() || self.timestamp_param.is_some()
    }
}

/// What works and is still not wise.
pub(super) fn warnings(spec: &HmacSpec, secrets: &[Secret]) -> Vec<String> {
    let mut warnings = Vec::new();
    for (index, secret) in secrets.iter().enumerate() {
        let length = secret.expose().len();
        if length < SECRET_BYTES_ADVISED {
            warnings.push(format!(
                "secret {} has {length} bytes; use at least {SECRET_BYTES_ADVISED}, it can be guessed",
                index + 1
            ));
        }
    }
    if spec.has_timestamp() && !spec.template.contains("{timestamp}") {
        warnings.push(
            "the timestamp is not part of `template`: an old request can be sent again with a new one"
                .to_owned(),
        );
    }
    if spec.id_header.is_some() && !spec.template.contains("{id}") {
        warnings.push("`id_header` is not used: `template` has no `{id}`".to_owned());
    }
    warnings
}
