//! Verification by a keyed hash over the body and, if the template says so, a timestamp and an id.
//!
//! The signature may be a whole header (`x-signature: sha256=…`) or a parameter in one
//! (`t=1531420618,v1=…,v1=…`). A candidate counts only if it decodes to exactly as many bytes as
//! the algorithm yields; then [`Mac::verify_slice`] decides, never `==` and never a shorter slice
//! (CVE-2024-21491 was a comparison that stopped at the shorter one).

use data_encoding::{BASE64, BASE64URL, HEXLOWER};
use hmac::{Hmac, KeyInit, Mac};
use http::{HeaderMap, HeaderName};
use sha1::Sha1;
use sha2::{Sha256, Sha512};

use super::{
    SignError, VerificationScheme, VerifyError, VerifySpecError,
    candidates::SignatureCandidates,
    header_name, only_value,
    spec::{HeaderNames, HmacAlgorithm, HmacSpec, SignatureEncoding, TimestampUnit},
    template::{SignedPart, SignedTemplate},
};
use crate::{
    request::{IncomingRequest, OutgoingRequest},
    secret::Secret,
    time::{HumanDuration, Timestamp},
};

/// Milliseconds since 1970 have 13 digits until the year 2286.
const TIMESTAMP_DIGITS_MAX: usize = 13;

/// A hash with one secret already mixed in; requests are hashed with a clone of it.
enum Keyed {
    Sha1(Hmac<Sha1>),
    Sha256(Hmac<Sha256>),
    Sha512(Hmac<Sha512>),
}

impl std::fmt::Debug for Keyed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keyed(•••)")
    }
}

impl Keyed {
    fn sign(&self, signed: &RequestSignature<'_>) -> Vec<u8> {
        match self {
            Self::Sha1(mac) => signed.mac(mac.clone()).finalize().into_bytes().to_vec(),
            Self::Sha256(mac) => signed.mac(mac.clone()).finalize().into_bytes().to_vec(),
            Self::Sha512(mac) => signed.mac(mac.clone()).finalize().into_bytes().to_vec(),
        }
    }

    fn new(algorithm: HmacAlgorithm, secret: &Secret) -> Self {
        let key = secret.expose();
        match algorithm {
            HmacAlgorithm::Sha1 => Self::Sha1(keyed(key)),
            HmacAlgorithm::Sha256 => Self::Sha256(keyed(key)),
            HmacAlgorithm::Sha512 => Self::Sha512(keyed(key)),
        }
    }

    fn signed(&self, signed: &RequestSignature<'_>, candidates: &SignatureCandidates) -> bool {
        match self {
            Self::Sha1(mac) => signed.by(mac.clone(), candidates),
            Self::Sha256(mac) => signed.by(mac.clone(), candidates),
            Self::Sha512(mac) => signed.by(mac.clone(), candidates),
        }
    }
}

fn keyed<M: KeyInit>(key: &[u8]) -> M {
    M::new_from_slice(key).expect("HMAC takes keys of any length (RFC 2104)")
}

/// Everything that a signature is made over.
#[derive(Clone, Copy)]
struct RequestSignature<'r> {
    template: &'r SignedTemplate,
    body: &'r [u8],
    timestamp: &'r [u8],
    id: &'r [u8],
    url: &'r str,
}

impl RequestSignature<'_> {
    fn by<M: Mac + Clone>(&self, mac: M, candidates: &SignatureCandidates) -> bool {
        let mac = self.mac(mac);
        candidates.iter().any(|candidate| mac.clone().verify_slice(candidate).is_ok())
    }

    fn mac<M: Mac>(&self, mut mac: M) -> M {
        for part in self.template.parts() {
            mac.update(match part {
                SignedPart::Literal(text) => text,
                SignedPart::Body => self.body,
                SignedPart::Timestamp => self.timestamp,
                SignedPart::Id => self.id,
                SignedPart::Url => self.url.as_bytes(),
            });
        }
        mac
    }
}

/// Where the time of signing is found.
#[derive(Debug)]
enum TimestampPlace {
    Header(HeaderName),
    Param(Box<[u8]>),
}

#[derive(Debug)]
pub(super) struct HmacVerifier {
    headers: Vec<HeaderName>,
    prefix: Box<[u8]>,
    prefix_optional: bool,
    encoding: SignatureEncoding,
    algorithm: HmacAlgorithm,
    template: SignedTemplate,
    timestamp: Option<TimestampPlace>,
    unit: TimestampUnit,
    tolerance: HumanDuration,
    id: Option<HeaderName>,
    signature_param: Option<Box<[u8]>>,
    keys: Vec<Keyed>,
}

impl HmacVerifier {
    pub(super) fn new(spec: &HmacSpec, secrets: &[Secret]) -> Result<Self, VerifySpecError> {
        let template = SignedTemplate::parse(&spec.template)?;
        if template.has(&SignedPart::Timestamp) && !spec.has_timestamp() {
            return Err(VerifySpecError::NoTimestamp);
        }
        if template.has(&SignedPart::Id) && spec.id_header.is_none() {
            return Err(VerifySpecError::NoId);
        }
        Ok(Self {
            headers: header_names(&spec.header)?,
            prefix: spec.prefix.as_bytes().into(),
            prefix_optional: spec.prefix_optional,
            encoding: spec.encoding,
            algorithm: spec.algorithm,
            timestamp: timestamp_place(spec)?,
            unit: spec.timestamp_unit,
            tolerance: spec.tolerance,
            // An id that the signature does not cover says nothing, so it is not asked for.
            id: match &spec.id_header {
                Some(name) if template.has(&SignedPart::Id) => Some(header_name(name)?),
                Some(name) => header_name(name).map(|_| None)?,
                None => None,
            },
            template,
            signature_param: spec.signature_param.as_deref().map(param_name).transpose()?,
            keys: secrets.iter().map(|secret| Keyed::new(spec.algorithm, secret)).collect(),
        })
    }

    fn present_header(&self, headers: &HeaderMap) -> Result<&HeaderName, VerifyError> {
        let is_present = |name: &&HeaderName| headers.get(*name).is_some_and(|v| !v.is_empty());
        self.headers
            .iter()
            .find(is_present)
            .ok_or_else(|| VerifyError::MissingSignature { header: self.headers[0].clone() })
    }

    /// Collects the signatures, and gives back the timestamp if it stands beside them.
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
            for (name, value) in params(value.as_bytes()) {
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
            None => candidates.push(&[], self.encoding),
        }
    }

    fn is_timestamp_param(&self, name: &[u8]) -> bool {
        matches!(&self.timestamp, Some(TimestampPlace::Param(param)) if param.as_ref() == name)
    }

    fn timestamp<'h>(
        &self,
        headers: &'h HeaderMap,
        in_list: Option<&'h [u8]>,
    ) -> Result<Option<&'h [u8]>, VerifyError> {
        let found = match &self.timestamp {
            None => return Ok(None),
            Some(TimestampPlace::Param(_)) => in_list,
            Some(TimestampPlace::Header(name)) => {
                only_value(headers, name, "timestamp")?.map(http::HeaderValue::as_bytes)
            }
        };
        found.map(Some).ok_or(VerifyError::MissingTimestamp)
    }

    fn check_age(&self, timestamp: Option<&[u8]>, now: Timestamp) -> Result<(), VerifyError> {
        let Some(digits) = timestamp else { return Ok(()) };
        let signed_at =
            parse_timestamp(digits).ok_or(VerifyError::Malformed { part: "timestamp" })?;
        let tolerance = self.tolerance.0;
        // Compared in the sender's unit: 300 s and a fraction are still 300 s to it.
        let (now, tolerance) = match self.unit {
            TimestampUnit::Seconds => (now.as_secs(), u128::from(tolerance.as_secs())),
            TimestampUnit::Milliseconds => (now.as_millis(), tolerance.as_millis()),
        };
        if u128::from(now.abs_diff(signed_at)) > tolerance {
            return Err(VerifyError::Stale);
        }
        Ok(())
    }

    fn id<'h>(&self, headers: &'h HeaderMap) -> Result<Option<&'h [u8]>, VerifyError> {
        let Some(name) = &self.id else { return Ok(None) };
        let id = only_value(headers, name, "id")?.ok_or(VerifyError::MissingId)?.as_bytes();
        if self.template.is_ambiguous(id) {
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
        let mut candidates = SignatureCandidates::new(self.algorithm);
        let header = self.present_header(headers)?;
        let in_list = self.read_signatures(headers, header, &mut candidates)?;
        if candidates.seen == 0 {
            return Err(VerifyError::MissingSignature { header: header.clone() });
        }
        if candidates.decoded == 0 {
            return Err(VerifyError::Malformed { part: "signature" });
        }
        // Before the hashing: a stale request should cost nothing.
        let timestamp = self.timestamp(headers, in_list)?;
        self.check_age(timestamp, now)?;
        let id = self.id(headers)?;
        let signed = RequestSignature {
            template: &self.template,
            body: request.body,
            timestamp: timestamp.unwrap_or_default(),
            id: id.unwrap_or_default(),
            url: "",
        };
        let by = |signed: &RequestSignature<'_>| {
            self.keys.iter().position(|key| key.signed(signed, &candidates))
        };
        if !self.template.has(&SignedPart::Url) {
            return by(&signed).ok_or(VerifyError::Mismatch);
        }
        let urls = request.urls();
        if urls.is_empty() {
            return Err(VerifyError::UnknownAddress);
        }
        urls.iter()
            .find_map(|url| by(&RequestSignature { url, ..signed }))
            .ok_or(VerifyError::Mismatch)
    }

    fn covers_url(&self) -> bool {
        self.template.has(&SignedPart::Url)
    }

    fn sign(
        &self,
        request: &OutgoingRequest<'_>,
        now: Timestamp,
    ) -> Result<super::RequestSignature, SignError> {
        let timestamp = match self.unit {
            TimestampUnit::Seconds => now.as_secs(),
            TimestampUnit::Milliseconds => now.as_millis(),
        };
        let timestamp = timestamp.to_string();
        let signed = RequestSignature {
            template: &self.template,
            body: request.body,
            timestamp: timestamp.as_bytes(),
            id: request.id.as_bytes(),
            url: request.url,
        };
        let bytes = self.keys.first().map(|key| key.sign(&signed)).unwrap_or_default();
        let signature = match self.encoding {
            SignatureEncoding::Hex => HEXLOWER.encode(&bytes),
            SignatureEncoding::Base64 => BASE64.encode(&bytes),
            SignatureEncoding::Base64url => BASE64URL.encode(&bytes),
        };
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut value = format!("{}{signature}", text(&self.prefix));
        if let Some(param) = &self.signature_param {
            value = format!("{}={value}", text(param));
        }
        let mut headers = Vec::new();
        match &self.timestamp {
            Some(TimestampPlace::Param(param)) => {
                value = format!("{}={timestamp},{value}", text(param));
            }
            Some(TimestampPlace::Header(name)) => headers.push((name.clone(), timestamp)),
            None => {}
        }
        headers.extend(self.id.clone().map(|name| (name, request.id.to_owned())));
        headers.extend(self.headers.first().map(|name| (name.clone(), value)));
        Ok(super::RequestSignature::headers(headers))
    }
}

/// The `name=value` pairs of a comma-separated list. What is no pair is passed over.
fn params(list: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    list.split(|byte| *byte == b',').filter_map(|item| {
        let equals = item.iter().position(|byte| *byte == b'=')?;
        Some((item[..equals].trim_ascii(), item[equals + 1..].trim_ascii()))
    })
}

/// Digits only: no sign, no fraction, no leading zero that would spell one time in two ways.
pub(crate) fn parse_timestamp(text: &[u8]) -> Option<i64> {
    let is_number = text.iter().all(u8::is_ascii_digit);
    let leads_with_zero = text.len() > 1 && text[0] == b'0';
    if !is_number || leads_with_zero || text.is_empty() || text.len() > TIMESTAMP_DIGITS_MAX {
        return None;
    }
    Some(text.iter().fold(0, |value, digit| value * 10 + i64::from(digit - b'0')))
}

fn header_names(names: &HeaderNames) -> Result<Vec<HeaderName>, VerifySpecError> {
    match names {
        HeaderNames::One(name) => Ok(vec![header_name(name)?]),
        HeaderNames::Several(names) if names.is_empty() => Err(VerifySpecError::NoHeader),
        HeaderNames::Several(names) => names.iter().map(|name| header_name(name)).collect(),
    }
}

fn timestamp_place(spec: &HmacSpec) -> Result<Option<TimestampPlace>, VerifySpecError> {
    match (&spec.timestamp_header, &spec.timestamp_param) {
        (Some(_), Some(_)) => Err(VerifySpecError::TwoTimestamps),
        (Some(header), None) => Ok(Some(TimestampPlace::Header(header_name(header)?))),
        (None, Some(_)) if spec.signature_param.is_none() => Err(VerifySpecError::NoSignatureParam),
        (None, Some(param)) => Ok(Some(TimestampPlace::Param(param_name(param)?))),
        (None, None) => Ok(None),
    }
}

fn param_name(name: &str) -> Result<Box<[u8]>, VerifySpecError> {
    if name.is_empty() || name.contains([',', '=']) || name.contains(char::is_whitespace) {
        return Err(VerifySpecError::InvalidParam { name: name.to_owned() });
    }
    Ok(name.as_bytes().into())
}
