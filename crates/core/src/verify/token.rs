//! Verification by a header that holds the secret itself.

use http::{HeaderName, header};

use super::{
    RequestSignature, SignError, VerificationScheme, VerifyError, VerifySpecError, after_scheme,
    header_name, matching_secret, only_value,
};
use crate::{
    request::{IncomingRequest, OutgoingRequest},
    secret::Secret,
    time::Timestamp,
};

#[derive(Debug)]
pub(super) struct TokenVerifier {
    header: HeaderName,
    secrets: Vec<Secret>,
}

impl TokenVerifier {
    pub(super) fn new(header: &str, secrets: Vec<Secret>) -> Result<Self, VerifySpecError> {
        Ok(Self { header: header_name(header)?, secrets })
    }
}

impl VerificationScheme for TokenVerifier {
    fn name(&self) -> &'static str {
        "token"
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
        let value = only_value(request.headers, &self.header, "credentials")?
            .ok_or_else(|| VerifyError::MissingCredentials { header: self.header.clone() })?;
        let value = value.as_bytes();
        let token = if self.header == header::AUTHORIZATION {
            after_scheme(value, "bearer").unwrap_or(value)
        } else {
            value
        };
        matching_secret(&self.secrets, token).ok_or(VerifyError::Mismatch)
    }
}
