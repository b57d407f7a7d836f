//! Verification by credentials in a header: a token, or user and password.

use data_encoding::BASE64;
use http::{HeaderName, header};
use surehook_types::{secret::Secret, time::Timestamp};

use super::{
    RequestSignature, SignError, VerificationScheme, VerifyError, VerifySpecError,
    find_matching_secret, parse_header_name, single_header, strip_auth_scheme,
};
use crate::request::{IncomingRequest, OutgoingRequest};

/// A header that contains the secret itself.
#[derive(Debug)]
pub(super) struct TokenVerifier {
    header: HeaderName,
    secrets: Vec<Secret>,
}

impl TokenVerifier {
    pub(super) fn new(header: &str, secrets: Vec<Secret>) -> Result<Self, VerifySpecError> {
        Ok(Self { header: parse_header_name(header)?, secrets })
    }
}

impl VerificationScheme for TokenVerifier {
    fn name(&self) -> &'static str {
        "token"
    }

    fn signs_content(&self) -> bool {
        false
    }

    fn secret_header(&self) -> Option<&HeaderName> {
        Some(&self.header)
    }

    fn sign(&self, _: &OutgoingRequest<'_>, _: Timestamp) -> Result<RequestSignature, SignError> {
        let secret = self.secrets.first().map(Secret::expose).unwrap_or_default();
        let secret = String::from_utf8_lossy(secret);
        let is_bearer = self.header == header::AUTHORIZATION;
        let value = if is_bearer { format!("Bearer {secret}") } else { secret.into_owned() };
        Ok(RequestSignature::headers(vec![(self.header.clone(), value)]))
    }

    fn verify(&self, request: &IncomingRequest<'_>, _: Timestamp) -> Result<usize, VerifyError> {
        let value = single_header(request.headers, &self.header, "credentials")?
            .ok_or_else(|| VerifyError::MissingCredentials { header: self.header.clone() })?;
        let value = value.as_bytes();
        let token = if self.header == header::AUTHORIZATION {
            strip_auth_scheme(value, "bearer").unwrap_or(value)
        } else {
            value
        };
        find_matching_secret(&self.secrets, token).ok_or(VerifyError::Mismatch)
    }
}

/// User and password in the `Authorization` header (RFC 7617).
#[derive(Debug)]
pub(super) struct BasicVerifier {
    user: Secret,
    passwords: Vec<Secret>,
}

impl BasicVerifier {
    pub(super) fn new(user: &str, passwords: Vec<Secret>) -> Result<Self, VerifySpecError> {
        if user.is_empty() || user.contains(':') {
            return Err(VerifySpecError::InvalidUser);
        }
        Ok(Self { user: Secret::new(user), passwords })
    }
}

impl VerificationScheme for BasicVerifier {
    fn name(&self) -> &'static str {
        "basic"
    }

    fn credential_header(&self) -> Option<&HeaderName> {
        Some(&header::AUTHORIZATION)
    }

    fn signs_content(&self) -> bool {
        false
    }

    fn sign(&self, _: &OutgoingRequest<'_>, _: Timestamp) -> Result<RequestSignature, SignError> {
        let password = self.passwords.first().map(Secret::expose).unwrap_or_default();
        let credentials = BASE64.encode(&[self.user.expose(), b":", password].concat());
        let header = (header::AUTHORIZATION, format!("Basic {credentials}"));
        Ok(RequestSignature::headers(vec![header]))
    }

    fn verify(&self, request: &IncomingRequest<'_>, _: Timestamp) -> Result<usize, VerifyError> {
        let malformed = VerifyError::Malformed { part: "credentials" };
        let value = single_header(request.headers, &header::AUTHORIZATION, "credentials")?
            .ok_or(VerifyError::MissingCredentials { header: header::AUTHORIZATION })?;
        let Some(encoded) = strip_auth_scheme(value.as_bytes(), "basic") else {
            return Err(malformed);
        };
        let Ok(credentials) = BASE64.decode(encoded) else {
            return Err(malformed);
        };
        let Some(colon) = credentials.iter().position(|byte| *byte == b':') else {
            return Err(malformed);
        };
        let (user, password) = (&credentials[..colon], &credentials[colon + 1..]);
        // Both are always compared, so that a wrong user is not refused sooner than a wrong password.
        let password = find_matching_secret(&self.passwords, password);
        let user_matches = self.user.matches(user);
        password.filter(|_| user_matches).ok_or(VerifyError::Mismatch)
    }
}
