//! Twilio signatures: the URL followed by the sorted names and values of the form.

use std::collections::{BTreeMap, BTreeSet};

use data_encoding::{BASE64, HEXLOWER, HEXLOWER_PERMISSIVE};
use http::HeaderName;
use ring::hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY;
use sha2::{Digest, Sha256};
use surehook_types::{secret::Secret, time::Timestamp};
use url::form_urlencoded;

use super::form;
use crate::{
    mac::HmacKey,
    request::{IncomingRequest, OutgoingRequest},
    verify::{
        RequestSignature, SignError, VerificationScheme, VerifyError, decode_signature,
        signature_header, signing_secret,
    },
};

static SIGNATURE: HeaderName = HeaderName::from_static("x-twilio-signature");
/// Query parameter with the hash of a body that is not a form.
const BODY_HASH: &str = "bodySHA256";

/// Verifies with the auth tokens of an account, the current one first.
#[derive(Debug)]
pub(super) struct TwilioScheme(pub(super) Vec<Secret>);

impl VerificationScheme for TwilioScheme {
    fn name(&self) -> &'static str {
        "twilio"
    }

    fn covers_url(&self) -> bool {
        true
    }

    /// Names and values run together in the signed text, so other forms have the same signature.
    fn signed_fingerprint(&self, request: &IncomingRequest<'_>) -> [u8; 32] {
        let mut hasher = Sha256::new();
        for part in [request.path, "?", request.query.unwrap_or_default(), "\n"] {
            hasher.update(part);
        }
        match form::is_form(request.headers) {
            true => hasher.update(sorted_fields(request.body)),
            false => hasher.update(request.body),
        }
        hasher.finalize().into()
    }

    fn verify(&self, request: &IncomingRequest<'_>, _: Timestamp) -> Result<usize, VerifyError> {
        let signature = decode_signature(&BASE64, signature_header(request.headers, &SIGNATURE)?)?;
        let fields = if form::is_form(request.headers) {
            sorted_fields(request.body)
        } else {
            check_body_hash(request.query, request.body)?;
            String::new()
        };
        let urls = with_and_without_port(&request.url()?);
        let is_match = |secret: &Secret| {
            let key = hmac_key(secret);
            urls.iter().any(|url| key.verify([url.as_bytes(), fields.as_bytes()], &signature))
        };
        self.0.iter().position(is_match).ok_or(VerifyError::Mismatch)
    }

    fn sign(
        &self,
        request: &OutgoingRequest<'_>,
        _: Timestamp,
    ) -> Result<RequestSignature, SignError> {
        let key = hmac_key(signing_secret(&self.0)?);
        let (fields, query) = if form::is_form(request.headers) {
            (sorted_fields(request.body), None)
        } else {
            (String::new(), missing_hash_param(request))
        };
        let mut signed = RequestSignature { query, ..RequestSignature::default() };
        let url = signed.signed_url(request.url);
        let signature = key.sign([&url, &fields].map(|text| text.as_bytes()));
        signed.headers.push((SIGNATURE.clone(), BASE64.encode(signature.as_ref())));
        Ok(signed)
    }
}

fn hmac_key(secret: &Secret) -> HmacKey {
    HmacKey::new(HMAC_SHA1_FOR_LEGACY_USE_ONLY, secret.expose())
}

/// The query parameter that the URL lacks to cover a body that is not a form.
fn missing_hash_param(request: &OutgoingRequest<'_>) -> Option<String> {
    let query = request.url.split_once('?').map(|(_, query)| query);
    let is_covered = request.body.is_empty() || check_body_hash(query, request.body).is_ok();
    (!is_covered).then(|| format!("{BODY_HASH}={}", HEXLOWER.encode(&Sha256::digest(request.body))))
}

/// The fields of a form sorted by name, without separators. Repeated names are sorted by value, and
/// equal pairs count once.
fn sorted_fields(body: &[u8]) -> String {
    let mut sorted: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for (name, value) in form_urlencoded::parse(body) {
        sorted.entry(name).or_default().insert(value);
    }
    let mut text = String::with_capacity(body.len());
    for (name, values) in &sorted {
        for value in values {
            text.push_str(name);
            text.push_str(value);
        }
    }
    text
}

/// A body that is not a form is covered by its hash in the URL.
fn check_body_hash(query: Option<&str>, body: &[u8]) -> Result<(), VerifyError> {
    let mut pairs = form_urlencoded::parse(query.unwrap_or_default().as_bytes());
    let Some((_, hash)) = pairs.find(|(name, _)| name == BODY_HASH) else {
        return if body.is_empty() {
            Ok(())
        } else {
            Err(VerifyError::Malformed { part: "signature" })
        };
    };
    let hash = decode_signature(&HEXLOWER_PERMISSIVE, hash.as_bytes())?;
    if hash == Sha256::digest(body)[..] { Ok(()) } else { Err(VerifyError::Mismatch) }
}

/// Some Twilio products sign the URL with the default port, others without any port.
pub(super) fn with_and_without_port(url: &str) -> Vec<String> {
    let mut spellings = vec![url.to_owned()];
    let Some((scheme, rest)) = url.split_once("://") else { return spellings };
    let (host, target) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    // The colons of an IPv6 address are in brackets.
    let after_bracket = host.rfind(']').map_or(0, |bracket| bracket + 1);
    spellings.push(match host[after_bracket..].rfind(':') {
        Some(colon) => format!("{scheme}://{}{target}", &host[..after_bracket + colon]),
        None => {
            let port = if scheme == "http" { 80 } else { 443 };
            format!("{scheme}://{host}:{port}{target}")
        }
    });
    spellings
}
