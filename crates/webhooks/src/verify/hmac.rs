//! Verification by an HMAC over the body and, if the template has them, timestamp, id and URL.
//!
//! The signature may be a whole header (`x-signature: sha256=…`) or a parameter in one
//! (`t=1531420618,v1=…,v1=…`). A candidate counts only if it decodes to exactly as many bytes as
//! the algorithm yields; then [`HmacKey::verify_any`] decides, never `==` and never a shorter slice
//! (CVE-2024-21491 was a comparison that stopped at the shorter one).

use std::time::Duration;

use data_encoding::{BASE64, BASE64URL, BASE64URL_NOPAD, HEXLOWER, HEXLOWER_PERMISSIVE};
use http::{HeaderMap, HeaderName};
use ring::hmac::{Algorithm, HMAC_SHA1_FOR_LEGACY_USE_ONLY, HMAC_SHA256, HMAC_SHA512};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use surehook_types::{
    inflate,
    secret::Secret,
    time::{HumanDuration, Timestamp},
};

use super::{
    SignError, VerificationScheme, VerifyError, VerifySpecError, parse_header_name, single_header,
    timestamp_header,
};
use crate::{
    key::{JsonPointer, JsonPointerSet, fingerprint},
    mac::HmacKey,
    request::{IncomingRequest, OutgoingRequest},
};

/// Settings of HMAC verification, as written in the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HmacSpec {
    /// Header with the signature, or a list of headers of which the first one present is used.
    pub header: HeaderNames,
    /// Text before the signature, such as `sha256=`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prefix: String,
    /// Whether a signature without the prefix is accepted too.
    #[serde(default, skip_serializing_if = "is_false")]
    pub prefix_optional: bool,
    /// Encoding of the signature.
    #[serde(default)]
    pub encoding: SignatureEncoding,
    /// Hash algorithm.
    #[serde(default)]
    pub algorithm: HmacAlgorithm,
    /// The signed text, with the placeholders `{body}`, `{timestamp}`, `{id}` and `{url}`.
    #[serde(default = "only_body")]
    pub template: String,
    /// Header with the time of signing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp_header: Option<String>,
    /// Parameter with the time of signing, in the signature header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp_param: Option<String>,
    /// How the timestamp is written: a number with this unit, or a date.
    #[serde(default)]
    pub timestamp_unit: TimestampUnit,
    /// Largest allowed difference between the timestamp and now, in either direction.
    #[serde(default = "five_minutes")]
    pub tolerance: HumanDuration,
    /// Header with the id that the template uses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id_header: Option<String>,
    /// Parameter with the signature, if the header is a list such as `t=…,v1=…`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature_param: Option<String>,
    /// What separates the parameters of such a list.
    #[serde(default, skip_serializing_if = "ParamSeparator::is_default")]
    pub param_separator: ParamSeparator,
}

/// What separates the parameters of a signature header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ParamSeparator {
    /// `t=…,v1=…`
    #[default]
    #[serde(rename = ",")]
    Comma,
    /// `ts=…;h1=…`
    #[serde(rename = ";")]
    Semicolon,
}

impl ParamSeparator {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }

    const fn as_char(self) -> char {
        match self {
            Self::Comma => ',',
            Self::Semicolon => ';',
        }
    }
}

/// One header name or several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a header name or a list of header names")]
pub enum HeaderNames {
    /// `header = "x-signature"`
    One(String),
    /// `header = ["x-webhook-signature", "x-signature"]`
    Several(Vec<String>),
}

impl HeaderNames {
    /// The names, in the order in which they are tried.
    pub fn names(&self) -> &[String] {
        match self {
            Self::One(name) => std::slice::from_ref(name),
            Self::Several(names) => names,
        }
    }
}

/// Encoding of a signature.
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

/// Hash algorithm of an HMAC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum HmacAlgorithm {
    /// Only for senders that offer nothing stronger.
    Sha1,
    /// Used by most providers.
    #[default]
    Sha256,
    /// A 64-byte signature.
    Sha512,
}

impl HmacAlgorithm {
    fn algorithm(self) -> Algorithm {
        match self {
            Self::Sha1 => HMAC_SHA1_FOR_LEGACY_USE_ONLY,
            Self::Sha256 => HMAC_SHA256,
            Self::Sha512 => HMAC_SHA512,
        }
    }
}

/// How a timestamp is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TimestampUnit {
    /// Seconds since 1970.
    #[default]
    #[serde(rename = "s")]
    Seconds,
    /// Milliseconds since 1970.
    #[serde(rename = "ms")]
    Milliseconds,
    /// A date and a time with their offset from UTC, such as `2026-11-15T08:00:00Z` (ISO 8601, RFC 3339).
    #[serde(rename = "iso8601")]
    Iso8601,
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
    /// The simplest scheme: SHA-256 over the body, in hex, in `header`.
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
            param_separator: ParamSeparator::default(),
        }
    }

    pub(super) fn has_timestamp(&self) -> bool {
        self.timestamp_header.is_some() || self.timestamp_param.is_some()
    }
}

/// Warnings about settings that work but are weak.
pub(super) fn warnings(spec: &HmacSpec) -> Vec<String> {
    let mut warnings = Vec::new();
    if spec.has_timestamp() && !spec.template.contains("{timestamp}") {
        warnings.push(
            "`template` has no `{timestamp}`: an old request can be resent with a new timestamp"
                .to_owned(),
        );
    }
    if spec.id_header.is_some() && !spec.template.contains("{id}") {
        warnings.push("`id_header` is not used: `template` has no `{id}`".to_owned());
    }
    warnings
}

/// One part of the text that a signature covers, such as `v0:{timestamp}:{body}`.
#[derive(Debug, PartialEq, Eq)]
enum SignedPart {
    Literal(Box<[u8]>),
    Body,
    Timestamp,
    Id,
    Url,
}

fn parse_template(text: &str) -> Result<Vec<SignedPart>, VerifySpecError> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some((literal, after)) = rest.split_once('{') {
        let (name, tail) = after.split_once('}').ok_or(VerifySpecError::UnclosedPlaceholder)?;
        parts.push(SignedPart::Literal(literal.as_bytes().into()));
        parts.push(match name {
            "body" => SignedPart::Body,
            "timestamp" => SignedPart::Timestamp,
            "id" => SignedPart::Id,
            "url" => SignedPart::Url,
            _ => return Err(VerifySpecError::UnknownPlaceholder { name: name.to_owned() }),
        });
        rest = tail;
    }
    parts.push(SignedPart::Literal(rest.as_bytes().into()));
    parts.retain(|part| !matches!(part, SignedPart::Literal(text) if text.is_empty()));
    if !parts.contains(&SignedPart::Body) {
        return Err(VerifySpecError::NoBody);
    }
    Ok(parts)
}

/// Whether `id` contains the literal that follows it in the template. With
/// `{id}.{timestamp}.{body}`, a dot in the id would make one signature valid for two requests.
fn is_ambiguous(template: &[SignedPart], id: &[u8]) -> bool {
    template.windows(2).any(|pair| match pair {
        [SignedPart::Id, SignedPart::Literal(end)] => {
            id.windows(end.len()).any(|window| window == end.as_ref())
        }
        _ => false,
    })
}

/// Maximum number of signatures of a request. A rotation needs two; a longer list would only cost time.
pub(crate) const CANDIDATES_MAX: usize = 10;

/// Bytes of the longest signature, SHA-512.
const SIGNATURE_MAX: usize = 64;

/// The decoded signatures of one request. On the stack, because every request has some.
struct SignatureCandidates {
    bytes: [[u8; SIGNATURE_MAX]; CANDIDATES_MAX],
    /// Bytes of each signature, by the algorithm.
    signature_length: usize,
    /// The number of well-formed signatures.
    decoded: usize,
    /// The number of all signatures.
    seen: usize,
}

impl SignatureCandidates {
    fn new(algorithm: Algorithm) -> Self {
        let signature_length = algorithm.digest_algorithm().output_len();
        let bytes = [[0; SIGNATURE_MAX]; CANDIDATES_MAX];
        Self { bytes, signature_length, decoded: 0, seen: 0 }
    }

    /// Adds a signature. One that does not decode is only counted: during a rotation another one
    /// may be right.
    fn push(&mut self, text: &[u8], encoding: SignatureEncoding) -> Result<(), VerifyError> {
        if self.seen == CANDIDATES_MAX {
            return Err(VerifyError::TooManySignatures);
        }
        self.seen += 1;
        if decode(text, encoding, &mut self.bytes[self.decoded][..self.signature_length]) {
            self.decoded += 1;
        }
        Ok(())
    }

    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.bytes[..self.decoded].iter().map(|bytes| &bytes[..self.signature_length])
    }
}

/// Decodes `text` into `signature`; `false` unless it is canonical and of exactly that length.
fn decode(text: &[u8], encoding: SignatureEncoding, signature: &mut [u8]) -> bool {
    let codec = match encoding {
        SignatureEncoding::Hex => &HEXLOWER_PERMISSIVE,
        SignatureEncoding::Base64 => &BASE64,
        SignatureEncoding::Base64url if text.ends_with(b"=") => &BASE64URL,
        SignatureEncoding::Base64url => &BASE64URL_NOPAD,
    };
    if text.len() != codec.encode_len(signature.len()) {
        return false;
    }
    // `decode_mut` needs room for the length rounded up by padding.
    let mut buffer = [0; SIGNATURE_MAX + 2];
    let Ok(buffer_length) = codec.decode_len(text.len()) else { return false };
    match codec.decode_mut(text, &mut buffer[..buffer_length]) {
        Ok(length) if length == signature.len() => {
            signature.copy_from_slice(&buffer[..length]);
            true
        }
        Ok(_) | Err(_) => false,
    }
}

/// Milliseconds since 1970 have 13 digits until the year 2286.
const TIMESTAMP_DIGITS_MAX: usize = 13;

/// The values that a signature covers.
#[derive(Clone, Copy)]
struct SignedContent<'r> {
    template: &'r [SignedPart],
    body: &'r [u8],
    timestamp: &'r [u8],
    id: &'r [u8],
    url: &'r str,
}

impl<'r> SignedContent<'r> {
    fn parts(self) -> impl Iterator<Item = &'r [u8]> {
        self.template.iter().map(move |part| match part {
            SignedPart::Literal(text) => text,
            SignedPart::Body => self.body,
            SignedPart::Timestamp => self.timestamp,
            SignedPart::Id => self.id,
            SignedPart::Url => self.url.as_bytes(),
        })
    }
}

/// The location of the timestamp of the signature.
#[derive(Debug)]
enum TimestampLocation {
    Header(HeaderName),
    Param(Box<[u8]>),
}

#[derive(Debug)]
pub(super) struct HmacVerifier {
    headers: Vec<HeaderName>,
    /// Whether each header may have a valid signature, not only the first one present.
    reads_all_headers: bool,
    prefix: Box<[u8]>,
    prefix_optional: bool,
    encoding: SignatureEncoding,
    algorithm: HmacAlgorithm,
    template: Vec<SignedPart>,
    timestamp: Option<TimestampLocation>,
    unit: TimestampUnit,
    tolerance: HumanDuration,
    id: Option<HeaderName>,
    signature_param: Option<Box<[u8]>>,
    separator: ParamSeparator,
    body_timestamp: Option<BodyTimestamp>,
    keys: Vec<HmacKey>,
}

/// The time of sending in the body, where no header has one.
#[derive(Debug)]
struct BodyTimestamp {
    pointer: JsonPointerSet,
    max_age: Duration,
}

impl BodyTimestamp {
    /// A body without the field is accepted: the signature covers that it is absent.
    fn check(&self, request: &IncomingRequest<'_>, now: Timestamp) -> Result<(), VerifyError> {
        let decoded = inflate::decode_body(request.headers, request.body);
        let values = self.pointer.find_scalars(decoded.as_deref().unwrap_or(request.body));
        match values.first().and_then(Option::as_deref) {
            Some(text) => check_max_age(parse_epoch(text.as_bytes())?, now, self.max_age),
            None => Ok(()),
        }
    }
}

impl HmacVerifier {
    /// Accepts a signature in any of the headers.
    pub(super) fn with_all_headers(self) -> Self {
        Self { reads_all_headers: true, ..self }
    }

    /// Also checks the age of a time in the body, in seconds or milliseconds since 1970.
    pub(super) fn with_body_timestamp(self, pointer: &JsonPointer, max_age: Duration) -> Self {
        let mut set = JsonPointerSet::default();
        set.push(pointer);
        Self { body_timestamp: Some(BodyTimestamp { pointer: set, max_age }), ..self }
    }

    pub(super) fn new(spec: &HmacSpec, secrets: &[Secret]) -> Result<Self, VerifySpecError> {
        let template = parse_template(&spec.template)?;
        let has_id = template.contains(&SignedPart::Id);
        if template.contains(&SignedPart::Timestamp) && !spec.has_timestamp() {
            return Err(VerifySpecError::NoTimestamp);
        }
        if has_id && spec.id_header.is_none() {
            return Err(VerifySpecError::NoId);
        }
        Ok(Self {
            headers: parse_header_names(&spec.header)?,
            reads_all_headers: false,
            prefix: spec.prefix.as_bytes().into(),
            prefix_optional: spec.prefix_optional,
            encoding: spec.encoding,
            algorithm: spec.algorithm,
            timestamp: timestamp_location(spec)?,
            unit: spec.timestamp_unit,
            tolerance: spec.tolerance,
            // An id that the signature does not cover proves nothing, so it is not required.
            id: spec.id_header.as_deref().map(parse_header_name).transpose()?.filter(|_| has_id),
            template,
            signature_param: spec.signature_param.as_deref().map(parse_param_name).transpose()?,
            separator: spec.param_separator,
            body_timestamp: None,
            keys: secrets
                .iter()
                .map(|secret| HmacKey::new(spec.algorithm.algorithm(), secret.expose()))
                .collect(),
        })
    }

    fn present_header(&self, headers: &HeaderMap) -> Result<&HeaderName, VerifyError> {
        let is_present = |name: &&HeaderName| headers.get(*name).is_some_and(|v| !v.is_empty());
        self.headers
            .iter()
            .find(is_present)
            .ok_or_else(|| VerifyError::MissingSignature { header: self.headers[0].clone() })
    }

    /// Collects the signatures, and returns the timestamp if it is a parameter of the same header.
    fn read_signatures<'h>(
        &self,
        headers: &'h HeaderMap,
        header: &HeaderName,
        candidates: &mut SignatureCandidates,
    ) -> Result<Option<&'h [u8]>, VerifyError> {
        let mut timestamp = None;
        for value in headers.get_all(header) {
            let Some(signature_param) = &self.signature_param else {
                self.push_candidate(value.as_bytes(), candidates)?;
                continue;
            };
            for (name, value) in params(value.as_bytes(), self.separator) {
                if name == signature_param.as_ref() {
                    self.push_candidate(value, candidates)?;
                } else if self.is_timestamp_param(name) && timestamp.replace(value).is_some() {
                    return Err(VerifyError::Malformed { part: "timestamp" });
                }
            }
        }
        Ok(timestamp)
    }

    fn push_candidate(
        &self,
        value: &[u8],
        candidates: &mut SignatureCandidates,
    ) -> Result<(), VerifyError> {
        match value.strip_prefix(self.prefix.as_ref()) {
            Some(bare) => candidates.push(bare, self.encoding),
            None if self.prefix_optional => candidates.push(value, self.encoding),
            // Counted as malformed.
            None => candidates.push(&[], self.encoding),
        }
    }

    fn is_timestamp_param(&self, name: &[u8]) -> bool {
        matches!(&self.timestamp, Some(TimestampLocation::Param(param)) if param.as_ref() == name)
    }

    fn timestamp<'h>(
        &self,
        headers: &'h HeaderMap,
        parameter: Option<&'h [u8]>,
    ) -> Result<Option<&'h [u8]>, VerifyError> {
        match &self.timestamp {
            None => Ok(None),
            Some(TimestampLocation::Param(_)) => {
                parameter.map(Some).ok_or(VerifyError::MissingTimestamp)
            }
            Some(TimestampLocation::Header(name)) => timestamp_header(headers, name).map(Some),
        }
    }

    fn check_age(&self, timestamp: &[u8], now: Timestamp) -> Result<(), VerifyError> {
        let tolerance = self.tolerance.0;
        // Compared in the sender's unit, so that a fraction of a second does not count.
        match self.unit {
            TimestampUnit::Seconds => check_age(timestamp, now.as_secs(), tolerance.as_secs()),
            TimestampUnit::Milliseconds => {
                let tolerance = u64::try_from(tolerance.as_millis()).unwrap_or(u64::MAX);
                check_age(timestamp, now.as_millis(), tolerance)
            }
            TimestampUnit::Iso8601 => {
                let signed_at = parse_date(timestamp)?;
                let difference = now.since(signed_at).max(signed_at.since(now));
                if difference > tolerance { Err(VerifyError::Stale) } else { Ok(()) }
            }
        }
    }

    fn id<'h>(&self, headers: &'h HeaderMap) -> Result<Option<&'h [u8]>, VerifyError> {
        let Some(name) = &self.id else { return Ok(None) };
        let id = single_header(headers, name, "id")?.ok_or(VerifyError::MissingId)?.as_bytes();
        if is_ambiguous(&self.template, id) {
            return Err(VerifyError::Malformed { part: "id" });
        }
        Ok(Some(id))
    }
}

impl VerificationScheme for HmacVerifier {
    fn name(&self) -> &'static str {
        match self.algorithm {
            HmacAlgorithm::Sha1 => "hmac-sha1",
            HmacAlgorithm::Sha256 => "hmac-sha256",
            HmacAlgorithm::Sha512 => "hmac-sha512",
        }
    }

    fn verify(&self, request: &IncomingRequest<'_>, now: Timestamp) -> Result<usize, VerifyError> {
        let headers = request.headers;
        let mut candidates = SignatureCandidates::new(self.algorithm.algorithm());
        let header = self.present_header(headers)?;
        let timestamp_param = self.read_signatures(headers, header, &mut candidates)?;
        if self.reads_all_headers {
            for other in self.headers.iter().filter(|other| *other != header) {
                self.read_signatures(headers, other, &mut candidates)?;
            }
        }
        if candidates.seen == 0 {
            return Err(VerifyError::MissingSignature { header: header.clone() });
        }
        if candidates.decoded == 0 {
            return Err(VerifyError::Malformed { part: "signature" });
        }
        // Checked before hashing, so that a stale request costs little.
        let timestamp = self.timestamp(headers, timestamp_param)?;
        timestamp.map(|timestamp| self.check_age(timestamp, now)).transpose()?;
        let id = self.id(headers)?;
        let signed = SignedContent {
            template: &self.template,
            body: request.body,
            timestamp: timestamp.unwrap_or_default(),
            id: id.unwrap_or_default(),
            url: "",
        };
        let matching_key = |signed: SignedContent<'_>| {
            self.keys.iter().position(|key| key.verify_any(signed.parts(), candidates.iter()))
        };
        let key_index = if self.covers_url() {
            matching_key(SignedContent { url: &request.url()?, ..signed })
        } else {
            matching_key(signed)
        };
        let key_index = key_index.ok_or(VerifyError::Mismatch)?;
        // Only a verified body is parsed.
        self.body_timestamp.as_ref().map(|time| time.check(request, now)).transpose()?;
        Ok(key_index)
    }

    fn covers_url(&self) -> bool {
        self.template.contains(&SignedPart::Url)
    }

    fn max_age(&self) -> Option<Duration> {
        let in_body = self.body_timestamp.as_ref().map(|time| time.max_age);
        self.timestamp.as_ref().map(|_| self.tolerance.0).or(in_body)
    }

    fn signs_header(&self, name: &HeaderName) -> bool {
        self.id.as_ref() == Some(name)
    }

    /// Without the URL, which may have several spellings.
    fn signed_fingerprint(&self, request: &IncomingRequest<'_>) -> [u8; 32] {
        if matches!(*self.template, [SignedPart::Body]) {
            return fingerprint(request.body);
        }
        let headers = request.headers;
        let mut candidates = SignatureCandidates::new(self.algorithm.algorithm());
        let timestamp_param = self.present_header(headers).ok().and_then(|header| {
            self.read_signatures(headers, header, &mut candidates).ok().flatten()
        });
        let timestamp = self.timestamp(headers, timestamp_param).ok().flatten();
        let signed = SignedContent {
            template: &self.template,
            body: request.body,
            timestamp: timestamp.unwrap_or_default(),
            id: self.id(headers).ok().flatten().unwrap_or_default(),
            url: "",
        };
        let mut hasher = Sha256::new();
        signed.parts().for_each(|part| hasher.update(part));
        hasher.finalize().into()
    }

    fn sign(
        &self,
        request: &OutgoingRequest<'_>,
        now: Timestamp,
    ) -> Result<super::RequestSignature, SignError> {
        let timestamp = match self.unit {
            TimestampUnit::Seconds => now.as_secs().to_string(),
            TimestampUnit::Milliseconds => now.as_millis().to_string(),
            TimestampUnit::Iso8601 => now.to_string(),
        };
        let signed = SignedContent {
            template: &self.template,
            body: request.body,
            timestamp: timestamp.as_bytes(),
            id: request.id.as_bytes(),
            url: request.url,
        };
        let key = self.keys.first().ok_or(SignError("there is no secret to sign with"))?;
        let encoding = match self.encoding {
            SignatureEncoding::Hex => &HEXLOWER,
            SignatureEncoding::Base64 => &BASE64,
            SignatureEncoding::Base64url => &BASE64URL,
        };
        let signature = encoding.encode(key.sign(signed.parts()).as_ref());
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut value = format!("{}{signature}", text(&self.prefix));
        if let Some(param) = &self.signature_param {
            value = format!("{}={value}", text(param));
        }
        let mut headers = Vec::new();
        match &self.timestamp {
            Some(TimestampLocation::Param(param)) => {
                let separator = self.separator.as_char();
                value = format!("{}={timestamp}{separator}{value}", text(param));
            }
            Some(TimestampLocation::Header(name)) => headers.push((name.clone(), timestamp)),
            None => {}
        }
        headers.extend(self.id.clone().map(|name| (name, request.id.to_owned())));
        headers.extend(self.headers.first().map(|name| (name.clone(), value)));
        Ok(super::RequestSignature::headers(headers))
    }
}

/// The `name=value` pairs of a list; other items are ignored.
fn params(list: &[u8], separator: ParamSeparator) -> impl Iterator<Item = (&[u8], &[u8])> {
    let separator = separator.as_char();
    list.split(move |byte| char::from(*byte) == separator).filter_map(|item| {
        let equals = item.iter().position(|byte| *byte == b'=')?;
        Some((item[..equals].trim_ascii(), item[equals + 1..].trim_ascii()))
    })
}

/// How far the clock of a sender may be ahead of ours, where the tolerance for the past is longer.
const CLOCK_AHEAD_MAX: Duration = Duration::from_secs(300);

/// Checks that a signed time is at most `max_age` old. For providers whose retries may keep the time of
/// the first attempt, so that `max_age` covers all of them; a replayed request is a duplicate meanwhile.
pub(crate) fn check_max_age(
    signed_at: Timestamp,
    now: Timestamp,
    max_age: Duration,
) -> Result<(), VerifyError> {
    let is_old = now.since(signed_at) > max_age;
    if is_old || signed_at.since(now) > CLOCK_AHEAD_MAX { Err(VerifyError::Stale) } else { Ok(()) }
}

/// A time in seconds or milliseconds since 1970, told apart by the number of digits.
pub(crate) fn parse_epoch(text: &[u8]) -> Result<Timestamp, VerifyError> {
    let number = parse_timestamp(text).ok_or(VerifyError::Malformed { part: "timestamp" })?;
    let is_millis = text.len() == TIMESTAMP_DIGITS_MAX;
    Ok(Timestamp::from_millis(if is_millis { number } else { number * 1000 }))
}

/// Checks that a timestamp differs from `now` by at most the tolerance, all in the same unit.
pub(crate) fn check_age(timestamp: &[u8], now: i64, tolerance: u64) -> Result<(), VerifyError> {
    let signed_at =
        parse_timestamp(timestamp).ok_or(VerifyError::Malformed { part: "timestamp" })?;
    if now.abs_diff(signed_at) > tolerance { Err(VerifyError::Stale) } else { Ok(()) }
}

/// The longest date with nanoseconds and an offset is shorter.
const DATE_BYTES_MAX: usize = 40;

/// Parses a date and a time with their offset from UTC. A date without an offset could mean any hour.
fn parse_date(text: &[u8]) -> Result<Timestamp, VerifyError> {
    let malformed = VerifyError::Malformed { part: "timestamp" };
    let text = std::str::from_utf8(text).ok().filter(|text| text.len() <= DATE_BYTES_MAX);
    text.and_then(|text| text.parse().ok()).ok_or(malformed)
}

/// Accepts digits only: no sign, no fraction, and no leading zero, so that a time has one spelling.
fn parse_timestamp(text: &[u8]) -> Option<i64> {
    let is_number = text.iter().all(u8::is_ascii_digit);
    let leads_with_zero = text.len() > 1 && text[0] == b'0';
    if !is_number || leads_with_zero || text.is_empty() || text.len() > TIMESTAMP_DIGITS_MAX {
        return None;
    }
    Some(text.iter().fold(0, |value, digit| value * 10 + i64::from(digit - b'0')))
}

fn parse_header_names(names: &HeaderNames) -> Result<Vec<HeaderName>, VerifySpecError> {
    match names {
        HeaderNames::One(name) => Ok(vec![parse_header_name(name)?]),
        HeaderNames::Several(names) if names.is_empty() => Err(VerifySpecError::NoHeader),
        HeaderNames::Several(names) => names.iter().map(|name| parse_header_name(name)).collect(),
    }
}

fn timestamp_location(spec: &HmacSpec) -> Result<Option<TimestampLocation>, VerifySpecError> {
    match (&spec.timestamp_header, &spec.timestamp_param) {
        (Some(_), Some(_)) => Err(VerifySpecError::TwoTimestamps),
        (Some(header), None) => Ok(Some(TimestampLocation::Header(parse_header_name(header)?))),
        (None, Some(_)) if spec.signature_param.is_none() => Err(VerifySpecError::NoSignatureParam),
        (None, Some(param)) => Ok(Some(TimestampLocation::Param(parse_param_name(param)?))),
        (None, None) => Ok(None),
    }
}

fn parse_param_name(name: &str) -> Result<Box<[u8]>, VerifySpecError> {
    if name.is_empty() || name.contains([',', ';', '=']) || name.contains(char::is_whitespace) {
        return Err(VerifySpecError::InvalidParam { name: name.to_owned() });
    }
    Ok(name.as_bytes().into())
}
