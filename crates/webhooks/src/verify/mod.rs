//! Verification that a request comes from the source it claims to come from.
//!
//! A [`VerifySpec`] is written in the configuration; a [`Verifier`] is made from it and the secrets. Providers add their own [`VerificationScheme`]s. What must hold:
//! - The raw bytes are verified, before anything is parsed.
//! - It fails closed: anything missing, ambiguous or malformed is a [`VerifyError`].
//! - Signatures and passwords are compared in constant time and in full length.
//! - Every secret is tried, the current one first; [`VerifiedRequest::secret_index`] shows when the
//!   previous one is no longer in use.
//! - No error contains a secret or the expected signature.

mod certificate;
mod credentials;
pub mod diagnosis;
mod hmac;
pub(crate) mod standard;
#[cfg(test)]
mod tests;

use std::{fmt, sync::Arc, time::Duration};

use data_encoding::Encoding;
use http::{HeaderMap, HeaderName, HeaderValue};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use surehook_types::{object, secret::Secret, time::Timestamp};
use url::Url;

pub use self::certificate::CertificateChain;
pub(crate) use self::hmac::{CANDIDATES_MAX, check_age, check_max_age, parse_epoch};
pub use self::hmac::{
    HeaderNames, HmacAlgorithm, HmacSpec, ParamSeparator, SignatureEncoding, TimestampUnit,
};
use self::{
    credentials::{BasicVerifier, TokenVerifier},
    hmac::HmacVerifier,
};
use crate::{
    key::{JsonPointer, fingerprint},
    request::{IncomingRequest, OutgoingRequest},
};

/// How requests of a source are verified, as written in the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum VerifySpec {
    /// No verification: anyone who knows the URL can send.
    #[default]
    None,
    /// An HMAC over the body.
    Hmac(#[serde(deserialize_with = "surehook_types::object::required")] Box<HmacSpec>),
    /// A header that contains the secret itself.
    #[serde(deserialize_with = "token_fields")]
    #[schemars(with = "TokenVerifySpec")]
    Token {
        /// Header name. In `authorization` the secret may follow `Bearer `.
        header: String,
    },
    /// HTTP basic authentication (RFC 7617); the secret is the password.
    #[serde(deserialize_with = "basic_fields")]
    #[schemars(with = "BasicVerifySpec")]
    Basic {
        /// User name.
        user: String,
    },
}

// The fields of `VerifySpec::Token`, with a schema name of their own for client generators.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TokenVerifySpec {
    /// Header name. In `authorization` the secret may follow `Bearer `.
    header: String,
}

// The fields of `VerifySpec::Basic`, likewise.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct BasicVerifySpec {
    /// User name.
    user: String,
}

fn token_fields<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    object::required(from).map(|TokenVerifySpec { header }| header)
}

fn basic_fields<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    object::required(from).map(|BasicVerifySpec { user }| user)
}

/// Why a [`VerifySpec`] is invalid.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerifySpecError {
    /// There is nothing to verify with.
    #[error("`verify` needs at least one secret; set `secrets`, or write `verify = \"none\"`")]
    NoSecret,
    /// Secrets that would never be used: most likely a forgotten `verify`.
    #[error("`secrets` are set but `verify` is \"none\"; choose hmac, token or basic")]
    UnusedSecrets,
    /// The text is not a header name.
    #[error("`{name}` is not a header name")]
    InvalidHeader {
        /// The text.
        name: String,
    },
    /// `header = []`.
    #[error("`header` names no header")]
    NoHeader,
    /// The template has a placeholder that does not exist.
    #[error(
        "`template` has the unknown placeholder `{{{name}}}`; known are body, timestamp, id, url"
    )]
    UnknownPlaceholder {
        /// Its name.
        name: String,
    },
    /// The template has a brace that is not closed.
    #[error("`template` has a `{{` without its `}}`")]
    UnclosedPlaceholder,
    /// A signature that does not cover the body proves nothing about it.
    #[error("`template` has no `{{body}}`; the signature would not cover the body")]
    NoBody,
    /// The template needs a timestamp.
    #[error("`template` has `{{timestamp}}`; set `timestamp_header` or `timestamp_param`")]
    NoTimestamp,
    /// The template needs an id.
    #[error("`template` has `{{id}}`; set `id_header`")]
    NoId,
    /// It is unclear which timestamp is signed.
    #[error("`timestamp_header` and `timestamp_param` are both set; keep one")]
    TwoTimestamps,
    /// Parameters are read only where the signature is one of them.
    #[error("`timestamp_param` needs `signature_param`, the name of the signature in that header")]
    NoSignatureParam,
    /// The text is not the name of a parameter.
    #[error("`{name}` is not a parameter name; leave out spaces, commas and equals signs")]
    InvalidParam {
        /// The text.
        name: String,
    },
    /// The provider has no default scheme.
    #[error("this provider has no default verification; set `verify`")]
    NoDefaultScheme,
    /// Not a valid secret of this provider. The message contains nothing of the secret.
    #[error("secret {number}: {reason}")]
    Secret {
        /// Position, counted from 1.
        number: usize,
        /// What a secret of this provider looks like.
        reason: &'static str,
    },
    /// RFC 7617 ends the user at the first colon.
    #[error("`user` must not be empty or hold a colon")]
    InvalidUser,
}

/// The result of a successful verification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerifiedRequest {
    /// Name of the scheme: `none`, `hmac-sha256`, `token`, `basic`, …
    pub by: &'static str,
    /// Position of the matching secret: 0 is the current one, the others are previous ones.
    pub secret_index: usize,
}

/// Why a request is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    /// The signature is missing.
    #[error("the signature header `{header}` is missing")]
    MissingSignature {
        /// The first one if several are accepted.
        header: HeaderName,
    },
    /// The timestamp is missing.
    #[error("the timestamp of the signature is missing")]
    MissingTimestamp,
    /// The id is missing.
    #[error("the id of the signature is missing")]
    MissingId,
    /// The token or password is missing.
    #[error("the credentials header `{header}` is missing")]
    MissingCredentials {
        /// The header that should contain it.
        header: HeaderName,
    },
    /// The secret is missing.
    #[error("the secret is missing: it is neither in the URL nor in the body")]
    MissingSecret,
    /// A part cannot be decoded or occurs twice.
    #[error("the {part} of the request is malformed")]
    Malformed {
        /// `signature`, `timestamp`, `id`, `credentials` or `handshake`.
        part: &'static str,
    },
    /// More signatures than a rotation of secrets needs.
    #[error("the request has more than {CANDIDATES_MAX} signatures")]
    TooManySignatures,
    /// The request is too old, or from the future.
    #[error("the timestamp of the signature is outside the tolerance")]
    Stale,
    /// The signature covers the URL, and there is no `public_url`.
    #[error("the URL that the sender called is unknown; set `public_url`")]
    UnknownUrl,
    /// The handshake cannot be checked.
    #[error("the source has no `verify_token`; set it to the token entered at the provider")]
    NoVerifyToken,
    /// The handshake has another verify token.
    #[error(
        "the verify token of the handshake is not that of the source; enter the same text at the provider and in `verify_token`"
    )]
    WrongVerifyToken,
    /// The certificate is not the provider's, expired, or not what it should be.
    #[error("the certificate of the signature cannot be trusted: {0}")]
    UntrustedCertificate(&'static str),
    /// The signature, token or password is wrong.
    #[error("the signature or password does not match any secret of this source")]
    Mismatch,
}

impl VerifyError {
    /// Whether the request carries no credentials at all: anyone can send it, and fixing a secret
    /// would not make it valid.
    pub fn has_no_credentials(&self) -> bool {
        matches!(
            self,
            Self::MissingSignature { .. } | Self::MissingCredentials { .. } | Self::MissingSecret
        )
    }

    /// A stable code for metrics and the API.
    pub fn code(&self) -> &'static str {
        match self {
            Self::MissingSignature { .. } => "missing_signature",
            Self::MissingTimestamp => "missing_timestamp",
            Self::MissingId => "missing_id",
            Self::MissingCredentials { .. } | Self::MissingSecret => "missing_credentials",
            Self::Malformed { .. } => "malformed",
            Self::TooManySignatures => "too_many_signatures",
            Self::Stale => "stale",
            Self::UnknownUrl => "unknown_address",
            Self::NoVerifyToken => "no_verify_token",
            Self::WrongVerifyToken => "wrong_verify_token",
            Self::UntrustedCertificate(_) => "untrusted_certificate",
            Self::Mismatch => "mismatch",
        }
    }
}

/// What makes a request pass verification: headers, and changes of the URL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestSignature {
    /// Headers to add.
    pub headers: Vec<(HeaderName, String)>,
    /// Suffix for the path of the source, for senders that can configure only a URL.
    pub path: String,
    /// Parameter to append to the query, as `name=value`.
    pub query: Option<String>,
}

impl RequestSignature {
    /// A signature in headers only.
    pub fn headers(headers: Vec<(HeaderName, String)>) -> Self {
        Self { headers, ..Self::default() }
    }

    /// Whether another URL must be called.
    pub fn changes_url(&self) -> bool {
        !self.path.is_empty() || self.query.is_some()
    }

    /// The URL to call, or its path and query.
    pub fn signed_url(&self, url: &str) -> String {
        let (base, query) = match url.split_once('?') {
            Some((base, query)) => (base, Some(query)),
            None => (url, None),
        };
        let parameters: Vec<&str> = query.into_iter().chain(self.query.as_deref()).collect();
        let mut signed = format!("{base}{}", self.path);
        if !parameters.is_empty() {
            signed.push('?');
            signed.push_str(&parameters.join("&"));
        }
        signed
    }
}

/// Why a request cannot be signed here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SignError(pub &'static str);

/// A way to verify requests, with its secrets.
pub trait VerificationScheme: fmt::Debug + Send + Sync {
    /// A stable name, such as `hmac-sha256`.
    fn name(&self) -> &'static str;

    /// The position of the secret that the request was signed with.
    fn verify(&self, request: &IncomingRequest<'_>, now: Timestamp) -> Result<usize, VerifyError>;

    /// Signs a request with the first secret, so that it passes [`Self::verify`].
    fn sign(
        &self,
        request: &OutgoingRequest<'_>,
        now: Timestamp,
    ) -> Result<RequestSignature, SignError>;

    /// The URL of the signing certificate, if one must be fetched first. Then
    /// [`Self::verify_with_certificate`] replaces [`Self::verify`].
    fn certificate_url(&self, _: &IncomingRequest<'_>) -> Result<Option<Url>, VerifyError> {
        Ok(None)
    }

    /// Like [`Self::verify`], with the fetched certificate.
    fn verify_with_certificate(
        &self,
        request: &IncomingRequest<'_>,
        _: &CertificateChain<'_>,
        now: Timestamp,
    ) -> Result<usize, VerifyError> {
        self.verify(request, now)
    }

    /// The header that contains the secret itself and must never be shown.
    fn secret_header(&self) -> Option<&HeaderName> {
        None
    }

    /// The header that contains the secret itself, possibly encoded, and is not stored.
    fn credential_header(&self) -> Option<&HeaderName> {
        self.secret_header()
    }

    /// Whether the signature covers the URL, which must then be known.
    fn covers_url(&self) -> bool {
        false
    }

    /// How old a signed timestamp may be; `None` if the signature covers none. Dedup keys must be
    /// remembered at least as long, or a captured request could be accepted twice.
    fn max_age(&self) -> Option<Duration> {
        None
    }

    /// Whether a signature vouches for the content of a request. Otherwise a secret is sent along, and
    /// an attacker who has seen it can send anything.
    fn signs_content(&self) -> bool {
        true
    }

    /// Whether the signature covers the body.
    fn signs_body(&self) -> bool {
        self.signs_content()
    }

    /// Whether the signature covers only a short checksum of the body, so that another body can be made
    /// for it.
    fn signs_checksum(&self) -> bool {
        false
    }

    /// Whether the signature covers a header.
    fn signs_header(&self, _: &HeaderName) -> bool {
        false
    }

    /// The fingerprint of what the signature of a verified request covers: an attacker who has only this
    /// request cannot send another one with another fingerprint. That of the body, unless the signature covers
    /// more or less.
    fn signed_fingerprint(&self, request: &IncomingRequest<'_>) -> [u8; 32] {
        fingerprint(request.body)
    }

    /// The path without a leading secret; `None` if there is none.
    fn path_without_secret<'p>(&self, _path: &'p str) -> Option<&'p str> {
        None
    }
}

/// Accepts every request.
#[derive(Debug)]
struct NoVerification;

impl VerificationScheme for NoVerification {
    fn name(&self) -> &'static str {
        UNVERIFIED
    }

    fn verify(&self, _: &IncomingRequest<'_>, _: Timestamp) -> Result<usize, VerifyError> {
        Ok(0)
    }

    fn sign(&self, _: &OutgoingRequest<'_>, _: Timestamp) -> Result<RequestSignature, SignError> {
        Ok(RequestSignature::default())
    }

    fn signs_content(&self) -> bool {
        false
    }
}

/// Name of the scheme that verifies nothing.
pub const UNVERIFIED: &str = "none";

/// A [`VerificationScheme`] with its warnings and the labels of its secrets.
#[derive(Debug)]
pub struct Verifier {
    scheme: Box<dyn VerificationScheme>,
    warnings: Vec<String>,
    /// How the timeline of an event names each secret; shared by all requests.
    labels: Vec<Arc<str>>,
}

impl Verifier {
    /// Validates the settings. `secrets` has the current one first.
    pub fn new(spec: &VerifySpec, secrets: Vec<Secret>) -> Result<Self, VerifySpecError> {
        if *spec == VerifySpec::None && !secrets.is_empty() {
            return Err(VerifySpecError::UnusedSecrets);
        }
        if *spec != VerifySpec::None && secrets.is_empty() {
            return Err(VerifySpecError::NoSecret);
        }
        let count = secrets.len();
        Ok(match spec {
            VerifySpec::None => Self::from_scheme(count, NoVerification),
            VerifySpec::Hmac(spec) => Self::from_scheme(count, HmacVerifier::new(spec, &secrets)?)
                .with_warnings(hmac::warnings(spec)),
            VerifySpec::Token { header } => {
                Self::from_scheme(count, TokenVerifier::new(header, secrets)?)
            }
            VerifySpec::Basic { user } => {
                Self::from_scheme(count, BasicVerifier::new(user, secrets)?)
            }
        })
    }

    /// A verifier for an HMAC scheme.
    pub fn hmac(spec: HmacSpec, secrets: Vec<Secret>) -> Result<Self, VerifySpecError> {
        Self::new(&VerifySpec::Hmac(Box::new(spec)), secrets)
    }

    /// A verifier for an HMAC whose headers each contain the signature by another key.
    pub(crate) fn hmac_in_any_header(
        spec: &HmacSpec,
        secrets: &[Secret],
    ) -> Result<Self, VerifySpecError> {
        let scheme = HmacVerifier::new(spec, secrets)?.with_all_headers();
        Ok(Self::from_scheme(secrets.len(), scheme))
    }

    /// A verifier for an HMAC over a body that contains the time of sending at `pointer`.
    pub(crate) fn hmac_with_body_timestamp(
        spec: &HmacSpec,
        secrets: &[Secret],
        pointer: &JsonPointer,
        max_age: Duration,
    ) -> Result<Self, VerifySpecError> {
        let scheme = HmacVerifier::new(spec, secrets)?.with_body_timestamp(pointer, max_age);
        let warnings = hmac::warnings(spec);
        Ok(Self::from_scheme(secrets.len(), scheme).with_warnings(warnings))
    }

    /// A verifier for a scheme with this number of secrets.
    pub fn from_scheme(secrets: usize, scheme: impl VerificationScheme + 'static) -> Self {
        let by = scheme.name();
        let label = |number| match secrets {
            0 | 1 => by.into(),
            _ => format!("{by} secret {number} of {secrets}").into(),
        };
        let labels = (1..=secrets.max(1)).map(label).collect();
        Self { scheme: Box::new(scheme), warnings: Vec::new(), labels }
    }

    pub(crate) fn with_warnings(mut self, warnings: Vec<String>) -> Self {
        self.warnings = warnings;
        self
    }

    /// A label for people: `hmac-sha256 secret 1 of 2`.
    pub fn label(&self, verified: VerifiedRequest) -> Option<Arc<str>> {
        self.labels.get(verified.secret_index).cloned()
    }

    /// The stable name of the scheme.
    pub fn name(&self) -> &'static str {
        self.scheme.name()
    }

    /// Warnings for the operator about weak settings.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Whether the signature covers the URL, which must then be known.
    pub fn covers_url(&self) -> bool {
        self.scheme.covers_url()
    }

    /// How old a signed timestamp may be; `None` if the signature covers none.
    pub fn max_age(&self) -> Option<Duration> {
        self.scheme.max_age()
    }

    /// Whether a signature vouches for the content of a request.
    pub fn signs_content(&self) -> bool {
        self.scheme.signs_content()
    }

    /// Whether the signature covers the body.
    pub fn signs_body(&self) -> bool {
        self.scheme.signs_body()
    }

    /// Whether a header is as trustworthy as the rest of a verified request: the signature covers it, or
    /// the scheme has no signature at all.
    pub fn vouches_for_header(&self, name: &HeaderName) -> bool {
        !self.scheme.signs_content() || self.scheme.signs_header(name)
    }

    /// Whether the signature covers only a short checksum of the body.
    pub fn signs_checksum(&self) -> bool {
        self.scheme.signs_checksum()
    }

    /// The fingerprint of what the signature of a verified request covers.
    pub fn signed_fingerprint(&self, request: &IncomingRequest<'_>) -> [u8; 32] {
        self.scheme.signed_fingerprint(request)
    }

    /// The header that contains the secret itself and must never be shown.
    pub fn secret_header(&self) -> Option<&HeaderName> {
        self.scheme.secret_header()
    }

    /// The header that contains the secret itself, possibly encoded, and is not stored.
    pub fn credential_header(&self) -> Option<&HeaderName> {
        self.scheme.credential_header()
    }

    /// The path without a leading secret; `None` if there is none.
    pub fn path_without_secret<'p>(&self, path: &'p str) -> Option<&'p str> {
        self.scheme.path_without_secret(path)
    }

    /// Signs a request with the first secret, so that it passes [`Self::verify`]. For test events and
    /// for destinations that expect the provider's signature.
    pub fn sign(
        &self,
        request: &OutgoingRequest<'_>,
        now: Timestamp,
    ) -> Result<RequestSignature, SignError> {
        self.scheme.sign(request, now)
    }

    /// Verifies a request. `now` is compared with its timestamp, if the scheme has one.
    pub fn verify(
        &self,
        request: &IncomingRequest<'_>,
        now: Timestamp,
    ) -> Result<VerifiedRequest, VerifyError> {
        let secret_index = self.scheme.verify(request, now)?;
        Ok(VerifiedRequest { by: self.scheme.name(), secret_index })
    }

    /// The URL of the signing certificate, if one must be fetched first. It always belongs to the
    /// provider, whatever the request contains.
    pub fn certificate_url(
        &self,
        request: &IncomingRequest<'_>,
    ) -> Result<Option<Url>, VerifyError> {
        self.scheme.certificate_url(request)
    }

    /// Verifies a request with the certificate fetched for it.
    pub fn verify_with_certificate(
        &self,
        request: &IncomingRequest<'_>,
        certificate: &CertificateChain<'_>,
        now: Timestamp,
    ) -> Result<VerifiedRequest, VerifyError> {
        let secret_index = self.scheme.verify_with_certificate(request, certificate, now)?;
        Ok(VerifiedRequest { by: self.scheme.name(), secret_index })
    }
}

pub(crate) fn parse_header_name(name: &str) -> Result<HeaderName, VerifySpecError> {
    name.parse().map_err(|_| VerifySpecError::InvalidHeader { name: name.to_owned() })
}

/// A header that may occur at most once: with two, it is unclear which one counts.
pub(crate) fn single_header<'h>(
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

/// The header with the signature.
pub(crate) fn signature_header<'h>(
    headers: &'h HeaderMap,
    name: &HeaderName,
) -> Result<&'h [u8], VerifyError> {
    let value = single_header(headers, name, "signature")?;
    let missing = || VerifyError::MissingSignature { header: name.clone() };
    value.map(HeaderValue::as_bytes).ok_or_else(missing)
}

/// The header with the time of signing.
pub(crate) fn timestamp_header<'h>(
    headers: &'h HeaderMap,
    name: &HeaderName,
) -> Result<&'h [u8], VerifyError> {
    let value = single_header(headers, name, "timestamp")?;
    value.map(HeaderValue::as_bytes).ok_or(VerifyError::MissingTimestamp)
}

/// Like [`single_header`], for a header that must be text.
pub(crate) fn text_header<'h>(
    headers: &'h HeaderMap,
    name: &HeaderName,
    part: &'static str,
) -> Result<Option<&'h str>, VerifyError> {
    let value = single_header(headers, name, part)?;
    value.map(|value| value.to_str().map_err(|_| VerifyError::Malformed { part })).transpose()
}

pub(crate) fn decode_signature(encoding: &Encoding, text: &[u8]) -> Result<Vec<u8>, VerifyError> {
    encoding.decode(text).map_err(|_| VerifyError::Malformed { part: "signature" })
}

/// The secret to sign with: the current one.
pub(crate) fn signing_secret(secrets: &[Secret]) -> Result<&Secret, SignError> {
    secrets.first().ok_or(SignError("there is no secret to sign with"))
}

/// The position of the secret equal to `candidate`. All are compared, to take constant time.
pub(crate) fn find_matching_secret(secrets: &[Secret], candidate: &[u8]) -> Option<usize> {
    let mut found = None;
    for (index, secret) in secrets.iter().enumerate() {
        if secret.matches(candidate) {
            found = found.or(Some(index));
        }
    }
    found
}

/// The credentials after the name of an authentication scheme (RFC 9110 section 11.4).
pub(crate) fn strip_auth_scheme<'h>(value: &'h [u8], scheme: &str) -> Option<&'h [u8]> {
    let (name, rest) = value.split_at_checked(scheme.len())?;
    if !name.eq_ignore_ascii_case(scheme.as_bytes()) || !rest.starts_with(b" ") {
        return None;
    }
    Some(rest.trim_ascii_start())
}
