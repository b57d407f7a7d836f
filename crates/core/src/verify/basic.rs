//! Verification by user and password in the `Authorization` header (RFC 7617).

use data_encoding::BASE64;
use http::header;

use super::{
    RequestSignature, SignError, VerificationScheme, VerifyError, VerifySpecError, after_scheme,
    matching_secret, only_value,
};
use crate::{
    request::{IncomingRequest, OutgoingRequest},
    secret::Secret,
    time::Timestamp,
};

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

    fn sign(&self, _: &OutgoingRequest<'_>, _: Timestamp) -> Result<RequestSignature, SignError> {
        let password = self.passwords.first().map(Secret::expose).unwrap_or_default();
        let credentials = BASE64.encode(&[self.user.expose(), b":", password].concat());
        let header = (header::AUTHORIZATION, format!("Basic {credentials}"));
        Ok(RequestSignature::headers(vec![header]))
    }

    fn verify(&self, request: &IncomingRequest<'_>, _: Timestamp) -> Result<usize, VerifyError> {
        let malformed = VerifyError::Malformed { part: "credentials" };
        let value = only_value(request.headers, &header::AUTHORIZATION, "credentials")?
            .ok_or(VerifyError::MissingCredentials { header: header::AUTHORIZATION })?;
        let Some(encoded) = after_scheme(value.as_bytes(), "basic") else {
            return Err(malformed);
        };
        let Ok(credentials) = BASE64.decode(encoded) else {
            return Err(malformed);
        };
        let Some(colon) = credentials.iter().position(|byte| *byte == b':') else {
            return Err(malformed);
        };
        let (user, password) = (&credentials[..colon], &credentials[colon + 1..]);
        // Both are compared before either is judged: a wrong user must not answer sooner.
        let password = matching_secret(&self.passwords, password);
        let user_matches = self.user.matches(user);
        password.filter(|_| user_matches).ok_or(VerifyError::Mismatch)
    }
}
