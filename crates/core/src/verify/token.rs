//! Verification by a header that holds the secret itself.

use http::{HeaderMap, HeaderName, header};

use super::{Refused, VerifySpecError, after_scheme, header_name, matching_secret, only_value};
use crate::secret::Secret;

#[derive(Debug)]
pub(super) struct TokenVerifier {
    header: HeaderName,
    secrets: Vec<Secret>,
}

impl TokenVerifier {
    pub(super) fn header(&self) -> &HeaderName {
        &self.header
    }

    pub(super) fn new(header: &str, secrets: Vec<Secret>) -> Result<Self, VerifySpecError> {
        Ok(Self { header: header_name(header)?, secrets })
    }

    /// The header that passes [`Self::verify`].
    pub(super) fn sign(&self) -> (HeaderName, String) {
        let secret = self.secrets.first().map(Secret::expose).unwrap_or_default();
        let secret = String::from_utf8_lossy(secret);
        let is_bearer = self.header == header::AUTHORIZATION;
        let value = if is_bearer { format!("Bearer {secret}") } else { secret.into_owned() };
        (self.header.clone(), value)
    }

    pub(super) fn verify(&self, headers: &HeaderMap) -> Result<usize, Refused> {
        let value = only_value(headers, &self.header, "credentials")?
            .ok_or_else(|| Refused::MissingCredentials { header: self.header.clone() })?;
        let value = value.as_bytes();
        let token = if self.header == header::AUTHORIZATION {
            after_scheme(value, "bearer").unwrap_or(value)
        } else {
            value
        };
        matching_secret(&self.secrets, token).ok_or(Refused::Mismatch)
    }
}
