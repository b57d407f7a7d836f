//! Checks that a request really comes from the source it claims to come from.
//!
//! Here is what a *generic* source can be set up with; providers with a scheme of their own build
//! on the same parts. A [`VerifySpec`] is what is written in the configuration, a [`Verifier`] is
//! what is meant: header names parsed, the template cut into parts, the keys of the HMAC already
//! mixed in, so that a request costs one pass over its body for each secret.
//!
//! What holds:
//! - The raw bytes are checked, as they came. Nothing is parsed or written anew before.
//! - It fails closed: whatever is missing, doubtful or malformed is [`Refused`].
//! - Signatures and passwords are compared in constant time and in full length.
//! - Every secret is tried, the current one first; [`Verified::secret_index`] says which it was, so
//!   that an operator can see when the previous one is no longer in use.
//! - No error holds a secret or the signature that would have been right.

mod basic;
mod candidates;
mod hmac;
mod spec;
mod template;
#[cfg(test)]
mod tests;
mod token;

use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::spec::{Algorithm, Encoding, HeaderNames, HmacSpec, TimestampUnit};
use crate::{secret::Secret, time::Timestamp};

/// How requests of a generic source are checked, as it is written in the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum VerifySpec {
    /// Not at all: whoever knows the address may send.
    #[default]
    None,
    /// By a keyed hash over the body.
    Hmac(#[serde(deserialize_with = "crate::object::required")] Box<HmacSpec>),
    /// By a header that holds the secret itself.
    Token {
        /// The header. In `authorization` the secret may follow `Bearer `.
        header: String,
    },
    /// By user and password (RFC 7617); the secret is the password.
    Basic {
        /// The user.
        user: String,
    },
}

/// Why a [`VerifySpec`] makes no sense.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerifySpecError {
    /// Something is to be checked, and there is nothing to check it with.
    #[error("`verify` needs at least one secret; set `secrets`, or write `verify = \"none\"`")]
    NoSecret,
    /// Secrets that would never be looked at: more likely a forgotten `verify`.
    #[error("`secrets` are set but `verify` is \"none\"; choose hmac, token or basic")]
    UnusedSecrets,
    /// Not the name of a header.
    #[error("`{name}` is not a header name")]
    InvalidHeader {
        /// What was written.
        name: String,
    },
    /// `header = []`.
    #[error("`header` names no header")]
    NoHeader,
    /// `template` has `{something}` that means nothing.
    #[error("`template` has the unknown placeholder `{{{name}}}`; known are body, timestamp, id")]
    UnknownPlaceholder {
        /// What stands between the braces.
        name: String,
    },
    /// `template` has an opening brace that is never closed.
    #[error("`template` has a `{{` without its `}}`")]
    UnclosedPlaceholder,
    /// A signature that does not cover the body proves nothing about it.
    #[error("`template` has no `{{body}}`; the signature would not cover the body")]
    NoBody,
    /// `{timestamp}` without a place to take it from.
    #[error("`template` has `{{timestamp}}`; set `timestamp_header` or `timestamp_param`")]
    NoTimestamp,
    /// `{id}` without a place to take it from.
    #[error("`template` has `{{id}}`; set `id_header`")]
    NoId,
    /// Two places for one timestamp.
    #[error("`timestamp_header` and `timestamp_param` are both set; keep one")]
    TwoTimestamps,
    /// Parameters are read only where the signature is one of them.
    #[error("`timestamp_param` needs `signature_param`, the name of the signature in that header")]
    NoSignatureParam,
    /// A parameter's name that could never be met.
    #[error("`{name}` cannot be a parameter's name; leave out spaces, commas and equals signs")]
    InvalidParam {
        /// What was written.
        name: String,
    },
    /// RFC 7617 ends the user at the first colon.
    #[error("`user` must not be empty or hold a colon")]
    InvalidUser,
}

/// A request that was checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verified {
    /// The rule that let it in: `none`, `hmac-sha256`, `token`, `basic`, …
    pub by: &'static str,
    /// Which secret fitted: 0 is the current one, the others are previous.
    pub secret_index: usize,
}

/// Why a request is not let in.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The header with the signature is missing or empty.
    #[error("the header `{header}` with the signature is missing")]
    MissingSignature {
        /// The header, the first one if several would do.
        header: HeaderName,
    },
    /// The timestamp that belongs to the signature is missing.
    #[error("the timestamp of the signature is missing")]
    MissingTimestamp,
    /// The id that belongs to the signature is missing.
    #[error("the id of the signature is missing")]
    MissingId,
    /// The token, or user and password, are missing.
    #[error("the header `{header}` with the credentials is missing")]
    MissingCredentials {
        /// The header.
        header: HeaderName,
    },
    /// Something is there and cannot be read, or is there twice.
    #[error("the {part} of the request is malformed")]
    Malformed {
        /// `signature`, `timestamp`, `id` or `credentials`.
        part: &'static str,
    },
    /// Rotation needs two signatures; a long list is an attempt to make us work.
    #[error("the request has more than {} signatures", candidates::CANDIDATES_MAX)]
    TooManySignatures,
    /// Signed too long ago, or in the future.
    #[error("the timestamp of the signature is outside the tolerance")]
    Stale,
    /// Well-formed, and wrong.
    #[error("the signature or password is not made with a secret of this source")]
    Mismatch,
}

impl Refused {
    /// A stable name for metrics and the API.
    pub fn code(&self) -> &'static str {
        match self {
            Self::MissingSignature { .. } => "missing_signature",
            Self::MissingTimestamp => "missing_timestamp",
            Self::MissingId => "missing_id",
            Self::MissingCredentials { .. } => "missing_credentials",
            Self::Malformed { .. } => "malformed",
            Self::TooManySignatures => "too_many_signatures",
            Self::Stale => "stale",
            Self::Mismatch => "mismatch",
        }
    }
}

/// A [`VerifySpec`] with its secrets, ready to check requests.
#[derive(Debug)]
pub struct Verifier {
    scheme: Scheme,
    warnings: Vec<String>,
    /// How each secret is named in the story of an event; written once, used for every request.
    labels: Vec<Arc<str>>,
}

#[derive(Debug)]
enum Scheme {
    None,
    Hmac(Box<hmac::HmacVerifier>),
    Token(token::TokenVerifier),
    Basic(basic::BasicVerifier),
}

impl Verifier {
    /// Checks the settings and makes ready. `secrets` has the current one first.
    pub fn new(spec: &VerifySpec, secrets: Vec<Secret>) -> Result<Self, VerifySpecError> {
        if *spec == VerifySpec::None && !secrets.is_empty() {
            return Err(VerifySpecError::UnusedSecrets);
        }
        if *spec != VerifySpec::None && secrets.is_empty() {
            return Err(VerifySpecError::NoSecret);
        }
        let mut warnings = Vec::new();
        let many = secrets.len();
        let scheme = match spec {
            VerifySpec::None => Scheme::None,
            VerifySpec::Hmac(spec) => {
                warnings = spec::warnings(spec, &secrets);
                Scheme::Hmac(Box::new(hmac::HmacVerifier::new(spec, &secrets)?))
            }
            VerifySpec::Token { header } => {
                Scheme::Token(token::TokenVerifier::new(header, secrets)?)
            }
            VerifySpec::Basic { user } => Scheme::Basic(basic::BasicVerifier::new(user, secrets)?),
        };
        let by = scheme.name();
        let label = |number| match many {
            0 | 1 => by.into(),
            _ => format!("{by} secret {number} of {many}").into(),
        };
        let labels = (1..=many.max(1)).map(label).collect();
        Ok(Self { scheme, warnings, labels })
    }

    /// What a check came to, for people: `hmac-sha256 secret 1 of 2`.
    pub fn label(&self, verified: Verified) -> Option<Arc<str>> {
        self.labels.get(verified.secret_index).cloned()
    }

    /// What works and is still not wise, in sentences for the operator.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The header that holds the secret itself, which nobody must be shown.
    pub fn secret_header(&self) -> Option<&HeaderName> {
        match &self.scheme {
            Scheme::Token(token) => Some(token.header()),
            Scheme::None | Scheme::Hmac(_) | Scheme::Basic(_) => None,
        }
    }

    /// The headers that make a request pass [`Self::verify`], made with the first secret: what
    /// the sender of a test needs. `id` is for schemes that sign one.
    pub fn sign(&self, id: &str, body: &[u8], now: Timestamp) -> Vec<(HeaderName, String)> {
        match &self.scheme {
            Scheme::None => Vec::new(),
            Scheme::Hmac(hmac) => hmac.sign(id, body, now),
            Scheme::Token(token) => vec![token.sign()],
            Scheme::Basic(basic) => vec![basic.sign()],
        }
    }

    /// Checks one request. `now` is compared with its timestamp, if the scheme has one.
    pub fn verify(
        &self,
        headers: &HeaderMap,
        body: &[u8],
        now: Timestamp,
    ) -> Result<Verified, Refused> {
        let secret_index = match &self.scheme {
            Scheme::None => 0,
            Scheme::Hmac(hmac) => hmac.verify(headers, body, now)?,
            Scheme::Token(token) => token.verify(headers)?,
            Scheme::Basic(basic) => basic.verify(headers)?,
        };
        Ok(Verified { by: self.scheme.name(), secret_index })
    }
}

impl Scheme {
    fn name(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Hmac(hmac) => hmac.name(),
            Self::Token(_) => "token",
            Self::Basic(_) => "basic",
        }
    }
}

fn header_name(name: &str) -> Result<HeaderName, VerifySpecError> {
    name.parse().map_err(|_| VerifySpecError::InvalidHeader { name: name.to_owned() })
}

/// A header that may stand there once at most: of two, nobody knows which one was meant.
fn only_value<'h>(
    headers: &'h HeaderMap,
    name: &HeaderName,
    part: &'static str,
) -> Result<Option<&'h HeaderValue>, Refused> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (_, Some(_)) => Err(Refused::Malformed { part }),
        (value, None) => Ok(value.filter(|value| !value.is_empty())),
    }
}

/// The position of the secret that `candidate` is. All are tried, whatever the first ones say.
fn matching_secret(secrets: &[Secret], candidate: &[u8]) -> Option<usize> {
    let mut found = None;
    for (index, secret) in secrets.iter().enumerate() {
        if secret.matches(candidate) {
            found = found.or(Some(index));
        }
    }
    found
}

/// What follows an authentication scheme's name and its spaces (RFC 9110 section 11.4).
fn after_scheme<'h>(value: &'h [u8], scheme: &str) -> Option<&'h [u8]> {
    let (name, rest) = value.split_at_checked(scheme.len())?;
    if !name.eq_ignore_ascii_case(scheme.as_bytes()) || !rest.starts_with(b" ") {
        return None;
    }
    Some(rest.trim_ascii_start())
}
