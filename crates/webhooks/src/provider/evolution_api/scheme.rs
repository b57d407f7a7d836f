//! Verification of Evolution API by a shared secret: a JWT signed with it, or the secret itself in the
//! header `apikey` or as the first path segment.
//!
//! A global webhook sends no headers, so it can only use the path. None of the three covers the body:
//! a captured request can be resent with another body.

use data_encoding::BASE64URL_NOPAD;
use http::{HeaderName, header::AUTHORIZATION};
use serde::Deserialize;
use surehook_types::{secret::Secret, time::Timestamp};

use super::super::secret_path;
use crate::{
    mac::HmacKey,
    request::{IncomingRequest, OutgoingRequest},
    verify::{
        RequestSignature, SignError, VerificationScheme, VerifyError, find_matching_secret,
        signing_secret, single_header, strip_auth_scheme,
    },
};

/// The header that an instance can be configured to send.
pub(super) const APIKEY: &str = "apikey";
/// Lifetime of a token.
const LIFETIME_SECS: i64 = 600;
/// A token is created once for all attempts, and the last attempt comes half an hour later.
const LEEWAY_SECS: i64 = 1800;

const JWT_HEADER: &[u8] = br#"{"alg":"HS256","typ":"JWT"}"#;

#[derive(Debug)]
pub(super) struct SharedSecretScheme {
    secrets: Vec<Secret>,
    apikey: HeaderName,
}

#[derive(Deserialize)]
struct JwtHeader {
    alg: String,
}

#[derive(Deserialize)]
struct JwtClaims {
    exp: i64,
}

impl SharedSecretScheme {
    pub(super) fn new(secrets: Vec<Secret>) -> Self {
        Self { secrets, apikey: HeaderName::from_static(APIKEY) }
    }

    /// Verifies `header.claims.signature` (RFC 7515). Accepts only HS256, because the algorithm named in
    /// a token cannot be trusted.
    fn verify_jwt(&self, token: &[u8], now: Timestamp) -> Result<usize, VerifyError> {
        let malformed = || VerifyError::Malformed { part: "credentials" };
        let mut dots = token.iter().enumerate().filter(|(_, byte)| **byte == b'.');
        let (Some((first, _)), Some((second, _)), None) = (dots.next(), dots.next(), dots.next())
        else {
            return Err(malformed());
        };
        let decode = |text: &[u8]| BASE64URL_NOPAD.decode(text).map_err(|_| malformed());
        let header = decode(&token[..first])?;
        let header: JwtHeader = serde_json::from_slice(&header).map_err(|_| malformed())?;
        if header.alg != "HS256" {
            return Err(malformed());
        }
        let signature = decode(&token[second + 1..])?;
        let is_signed = |secret: &Secret| {
            HmacKey::sha256(secret.expose()).verify([&token[..second]], &signature)
        };
        let index = self.secrets.iter().position(is_signed).ok_or(VerifyError::Mismatch)?;
        let claims = decode(&token[first + 1..second])?;
        let claims: JwtClaims = serde_json::from_slice(&claims).map_err(|_| malformed())?;
        if now.as_secs() > claims.exp.saturating_add(LEEWAY_SECS) {
            return Err(VerifyError::Stale);
        }
        Ok(index)
    }
}

impl VerificationScheme for SharedSecretScheme {
    fn name(&self) -> &'static str {
        "shared-secret"
    }

    fn signs_content(&self) -> bool {
        false
    }

    fn verify(&self, request: &IncomingRequest<'_>, now: Timestamp) -> Result<usize, VerifyError> {
        if let Some((index, _)) = secret_path::split_secret(&self.secrets, request.path) {
            return Ok(index);
        }
        let apikey = single_header(request.headers, &self.apikey, "credentials")?;
        let matching =
            apikey.and_then(|value| find_matching_secret(&self.secrets, value.as_bytes()));
        if let Some(index) = matching {
            return Ok(index);
        }
        match single_header(request.headers, &AUTHORIZATION, "credentials")? {
            Some(value) => match strip_auth_scheme(value.as_bytes(), "bearer") {
                Some(token) => self.verify_jwt(token, now),
                None => Err(VerifyError::Malformed { part: "credentials" }),
            },
            None if apikey.is_some() || secret_path::has_candidate(request.path) => {
                Err(VerifyError::Mismatch)
            }
            None => Err(VerifyError::MissingCredentials { header: AUTHORIZATION }),
        }
    }

    fn sign(&self, _: &OutgoingRequest<'_>, now: Timestamp) -> Result<RequestSignature, SignError> {
        let key = HmacKey::sha256(signing_secret(&self.secrets)?.expose());
        let (from, until) = (now.as_secs(), now.as_secs().saturating_add(LIFETIME_SECS));
        let claims =
            format!(r#"{{"iat":{from},"exp":{until},"app":"evolution","action":"webhook"}}"#);
        let encode = |bytes: &[u8]| BASE64URL_NOPAD.encode(bytes);
        let signed = format!("{}.{}", encode(JWT_HEADER), encode(claims.as_bytes()));
        let signature = key.sign([signed.as_bytes()]);
        let value = format!("Bearer {signed}.{}", encode(signature.as_ref()));
        Ok(RequestSignature::headers(vec![(AUTHORIZATION, value)]))
    }

    fn secret_header(&self) -> Option<&HeaderName> {
        Some(&self.apikey)
    }

    fn path_without_secret<'p>(&self, path: &'p str) -> Option<&'p str> {
        secret_path::split_secret(&self.secrets, path).map(|(_, rest)| rest)
    }
}
