//! Checks that a request really comes from the source it claims to come from.
//!
//! Here is what a *generic* source can be set up with; providers with a scheme of their own build
//! on the same parts ([`VerificationScheme`]). A [`VerifySpec`] is what is written in the configuration, a
//! [`Verifier`] is what is meant: header names parsed, the template cut into parts, the keys of the HMAC already
//! mixed in, so that a request costs one pass over its body for each secret.
//!
//! What holds:
//! - The raw bytes are checked, as they came. Nothing is parsed or written anew before.
//! - It fails closed: whatever is missing, doubtful or malformed is [`VerifyError`].
//! - Signatures and passwords are compared in constant time and in full length.
//! - Every secret is tried, the current one first; [`VerifiedRequest::secret_index`] says which it was, so
//!   that an operator can see when the previous one is no longer in use.
//! - No error holds a secret or the signature that would have been right.

mod basic;
mod candidates;
mod certificate;
pub mod diagnosis;
mod hmac;
mod spec;
pub(crate) mod standard;
mod template;
#[cfg(test)]
mod tests;
mod token;

use std::{fmt, sync::Arc};

use http::{HeaderMap, HeaderName, HeaderValue};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use url::Url;

pub(crate) use self::candidates::CANDIDATES_MAX;
pub use self::certificate::Certificate;
pub(crate) use self::hmac::parse_timestamp;
pub use self::spec::{HeaderNames, HmacAlgorithm, HmacSpec, SignatureEncoding, TimestampUnit};
use crate::{
    object,
    request::{IncomingRequest, OutgoingRequest},
    secret::Secret,
    time::Timestamp,
};

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
    #[serde(deserialize_with = "token_fields")]
    Token {
        /// The header. In `authorization` the secret may follow `Bearer `.
        header: String,
    },
    /// By user and password (RFC 7617); the secret is the password.
    #[serde(deserialize_with = "basic_fields")]
    Basic {
        /// The user.
        user: String,
    },
}

fn token_fields<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Fields {
        header: String,
    }
    object::required(from).map(|Fields { header }| header)
}

fn basic_fields<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Fields {
        user: String,
    }
    object::required(from).map(|Fields { user }| user)
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
    #[error(
        "`template` has the unknown placeholder `{{{name}}}`; known are body, timestamp, id, url"
    )]
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
    /// A provider without a preset for it.
    #[error("`verify` must be written out for this provider")]
    NoUsualWay,
    /// A secret that cannot be one of this provider's. Says nothing of the secret itself.
    #[error("secret {number}: {why}")]
    Secret {
        /// Which one, counted from 1.
        number: usize,
        /// What is wrong with it, and what it looks like.
        why: &'static str,
    },
    /// RFC 7617 ends the user at the first colon.
    #[error("`user` must not be empty or hold a colon")]
    InvalidUser,
}

/// A request that was checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerifiedRequest {
    /// The rule that let it in: `none`, `hmac-sha256`, `token`, `basic`, …
    pub by: &'static str,
    /// Which secret fitted: 0 is the current one, the others are previous.
    pub secret_index: usize,
}

/// Why a request is not let in.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
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
    /// The secret is nowhere in the request.
    #[error("the secret is missing: it stands neither in the address nor in the body")]
    MissingSecret,
    /// Something is there and cannot be read, or is there twice.
    #[error("the {part} of the request is malformed")]
    Malformed {
        /// `signature`, `timestamp`, `id`, `credentials` or `handshake`.
        part: &'static str,
    },
    /// Rotation needs two signatures; a long list is an attempt to make us work.
    #[error("the request has more than {} signatures", candidates::CANDIDATES_MAX)]
    TooManySignatures,
    /// Signed too long ago, or in the future.
    #[error("the timestamp of the signature is outside the tolerance")]
    Stale,
    /// The signature covers the address that was called, and that is not known.
    #[error("the address that the sender called is not known; set `public_url`")]
    UnknownAddress,
    /// The provider asks who we are, and the source does not know the answer.
    #[error("the source has no `verify_token`; set it to the one that is entered at the provider")]
    NoVerifyToken,
    /// The certificate that the request was signed with is not the provider's.
    #[error("the certificate of the signature cannot be trusted: {0}")]
    UntrustedCertificate(&'static str),
    /// Well-formed, and wrong.
    #[error("the signature or password is not made with a secret of this source")]
    Mismatch,
}

impl VerifyError {
    /// Whether the request shows nothing that could prove anything: anybody can send such a one,
    /// and no secret that is mended lets it in.
    pub fn has_no_credentials(&self) -> bool {
        matches!(
            self,
            Self::MissingSignature { .. } | Self::MissingCredentials { .. } | Self::MissingSecret
        )
    }

    /// A stable name for metrics and the API.
    pub fn code(&self) -> &'static str {
        match self {
            Self::MissingSignature { .. } => "missing_signature",
            Self::MissingTimestamp => "missing_timestamp",
            Self::MissingId => "missing_id",
            Self::MissingCredentials { .. } | Self::MissingSecret => "missing_credentials",
            Self::Malformed { .. } => "malformed",
            Self::TooManySignatures => "too_many_signatures",
            Self::Stale => "stale",
            Self::UnknownAddress => "unknown_address",
            Self::NoVerifyToken => "no_verify_token",
            Self::UntrustedCertificate(_) => "untrusted_certificate",
            Self::Mismatch => "mismatch",
        }
    }
}

/// What was made to let a request pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestSignature {
    /// Headers to set.
    pub headers: Vec<(HeaderName, String)>,
    /// What is to be added to the path of the source, for senders that have only their address.
    pub path: String,
}

impl RequestSignature {
    /// Headers alone.
    pub fn headers(headers: Vec<(HeaderName, String)>) -> Self {
        Self { headers, path: String::new() }
    }
}

/// Why a request cannot be signed here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SignError(pub &'static str);

/// One way to check requests, with its secrets at hand.
pub trait VerificationScheme: fmt::Debug + Send + Sync {
    /// A word for it, such as `hmac-sha256`.
    fn name(&self) -> &'static str;

    /// The position of the secret that the request was made with.
    fn verify(&self, request: &IncomingRequest<'_>, now: Timestamp) -> Result<usize, VerifyError>;

    /// What makes a request pass [`Self::verify`], made with the first secret.
    fn sign(
        &self,
        request: &OutgoingRequest<'_>,
        now: Timestamp,
    ) -> Result<RequestSignature, SignError>;

    /// Where the certificate is that the request was signed with, if that must be fetched first.
    /// Then [`Self::verify_with_certificate`] takes the place of [`Self::verify`].
    fn certificate_url(&self, _: &IncomingRequest<'_>) -> Result<Option<Url>, VerifyError> {
        Ok(None)
    }

    /// The position of the secret, checked with the certificate that was fetched.
    fn verify_with_certificate(
        &self,
        request: &IncomingRequest<'_>,
        _: &Certificate<'_>,
        now: Timestamp,
    ) -> Result<usize, VerifyError> {
        self.verify(request, now)
    }

    /// The header that holds the secret itself, which nobody must be shown.
    fn secret_header(&self) -> Option<&HeaderName> {
        None
    }

    /// Whether the signature covers the address that was called, so that this must be known.
    fn covers_url(&self) -> bool {
        false
    }

    /// The path without the secret that may stand at its beginning; `None` if it holds none.
    fn path_without_secret<'p>(&self, _path: &'p str) -> Option<&'p str> {
        None
    }
}

/// Lets everybody in.
#[derive(Debug)]
struct Open;

impl VerificationScheme for Open {
    fn name(&self) -> &'static str {
        UNVERIFIED
    }

    fn verify(&self, _: &IncomingRequest<'_>, _: Timestamp) -> Result<usize, VerifyError> {
        Ok(0)
    }

    fn sign(&self, _: &OutgoingRequest<'_>, _: Timestamp) -> Result<RequestSignature, SignError> {
        Ok(RequestSignature::default())
    }
}

/// How it is told that nothing was checked.
pub const UNVERIFIED: &str = "none";

/// A [`VerificationScheme`] ready to check requests, and how its outcome is told.
#[derive(Debug)]
pub struct Verifier {
    scheme: Box<dyn VerificationScheme>,
    warnings: Vec<String>,
    /// How each secret is named in the story of an event; written once, used for every request.
    labels: Vec<Arc<str>>,
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
        let many = secrets.len();
        Ok(match spec {
            VerifySpec::None => Self::own(Box::new(Open), many),
            VerifySpec::Hmac(spec) => {
                let warnings = spec::warnings(spec, &secrets);
                let scheme = Box::new(hmac::HmacVerifier::new(spec, &secrets)?);
                Self { warnings, ..Self::own(scheme, many) }
            }
            VerifySpec::Token { header } => {
                Self::own(Box::new(token::TokenVerifier::new(header, secrets)?), many)
            }
            VerifySpec::Basic { user } => {
                Self::own(Box::new(basic::BasicVerifier::new(user, secrets)?), many)
            }
        })
    }

    /// A provider that signs with a keyed hash.
    pub fn hmac(spec: HmacSpec, secrets: Vec<Secret>) -> Result<Self, VerifySpecError> {
        Self::new(&VerifySpec::Hmac(Box::new(spec)), secrets)
    }

    /// A scheme of a provider's own, which has so many secrets.
    pub fn own(scheme: Box<dyn VerificationScheme>, secrets: usize) -> Self {
        let by = scheme.name();
        let label = |number| match secrets {
            0 | 1 => by.into(),
            _ => format!("{by} secret {number} of {secrets}").into(),
        };
        let labels = (1..=secrets.max(1)).map(label).collect();
        Self { scheme, warnings: Vec::new(), labels }
    }

    /// The same, with what is not wise about its settings.
    pub(crate) fn warning(mut self, warnings: Vec<String>) -> Self {
        self.warnings = warnings;
        self
    }

    /// What a check came to, for people: `hmac-sha256 secret 1 of 2`.
    pub fn label(&self, verified: VerifiedRequest) -> Option<Arc<str>> {
        self.labels.get(verified.secret_index).cloned()
    }

    /// A word for how it checks.
    pub fn name(&self) -> &'static str {
        self.scheme.name()
    }

    /// What works and is still not wise, in sentences for the operator.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Whether the signature covers the address that was called, so that this must be known.
    pub fn covers_url(&self) -> bool {
        self.scheme.covers_url()
    }

    /// The header that holds the secret itself, which nobody must be shown.
    pub fn secret_header(&self) -> Option<&HeaderName> {
        self.scheme.secret_header()
    }

    /// The path without the secret that may stand at its beginning; `None` if it holds none.
    pub fn path_without_secret<'p>(&self, path: &'p str) -> Option<&'p str> {
        self.scheme.path_without_secret(path)
    }

    /// What makes a request pass [`Self::verify`], made with the first secret: what the sender of a
    /// test needs, and a destination that expects the provider's own signature.
    pub fn sign(
        &self,
        request: &OutgoingRequest<'_>,
        now: Timestamp,
    ) -> Result<RequestSignature, SignError> {
        self.scheme.sign(request, now)
    }

    /// Checks one request. `now` is compared with its timestamp, if the scheme has one.
    pub fn verify(
        &self,
        request: &IncomingRequest<'_>,
        now: Timestamp,
    ) -> Result<VerifiedRequest, VerifyError> {
        let secret_index = self.scheme.verify(request, now)?;
        Ok(VerifiedRequest { by: self.scheme.name(), secret_index })
    }

    /// Where the certificate is that the request was signed with, if that must be fetched first. It
    /// is the provider's address, whatever the request says.
    pub fn certificate_url(
        &self,
        request: &IncomingRequest<'_>,
    ) -> Result<Option<Url>, VerifyError> {
        self.scheme.certificate_url(request)
    }

    /// Checks one request with the certificate that was fetched for it.
    pub fn verify_with_certificate(
        &self,
        request: &IncomingRequest<'_>,
        certificate: &Certificate<'_>,
        now: Timestamp,
    ) -> Result<VerifiedRequest, VerifyError> {
        let secret_index = self.scheme.verify_with_certificate(request, certificate, now)?;
        Ok(VerifiedRequest { by: self.scheme.name(), secret_index })
    }
}

pub(crate) fn header_name(name: &str) -> Result<HeaderName, VerifySpecError> {
    name.parse().map_err(|_| VerifySpecError::InvalidHeader { name: name.to_owned() })
}

/// A header that may stand there once at most: of two, nobody knows which one was meant.
pub(crate) fn only_value<'h>(
    headers: &'h HeaderMap,
    name: &HeaderName,
    part: &'static str,
) -> Result<Option<&'h HeaderValue>, VerifyError> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (_, Some(_)) => Err(VerifyError::Malformed { part }),
        (value, None) => Ok(value.filter(|value| !value.is_empty())),
    }
}

/// The position of the secret that `candidate` is. All are tried, whatever the first ones say.
pub(crate) fn matching_secret(secrets: &[Secret], candidate: &[u8]) -> Option<usize> {
    let mut found = None;
    for (index, secret) in secrets.iter().enumerate() {
        if secret.matches(candidate) {
            found = found.or(Some(index));
        }
    }
    found
}

/// What follows an authentication scheme's name and its spaces (RFC 9110 section 11.4).
pub(crate) fn after_scheme<'h>(value: &'h [u8], scheme: &str) -> Option<&'h [u8]> {
    let (name, rest) = value.split_at_checked(scheme.len())?;
    if !name.eq_ignore_ascii_case(scheme.as_bytes()) || !rest.starts_with(b" ") {
        return None;
    }
    Some(rest.trim_ascii_start())
}
