//! A destination that expects a provider's own signature, made anew over what is sent.

use http::{HeaderMap, HeaderName, HeaderValue};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    provider::{self, Provider, preset_names},
    request::OutgoingRequest,
    secret::{SecretError, SecretRef},
    time::Timestamp,
    verify::{SignError, Verifier, VerifySpecError},
};

/// Whose signature each request carries, as it is written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SignAsSpec {
    /// The provider that the destination believes to hear from.
    #[schemars(extend("enum" = preset_names()))]
    pub provider: String,
    /// What the destination checks with.
    pub secret: SecretRef,
}

/// A signature that cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum SignAsSpecError {
    /// The provider is not known.
    #[error("provider `{0}` is not known; known are: {known}", known = preset_names().join(", "))]
    UnknownProvider(String),
    /// A secret cannot be looked up.
    #[error("{0}")]
    Secret(#[from] SecretError),
    /// The secret does not fit the provider.
    #[error("{0}")]
    Verify(#[from] VerifySpecError),
    /// The provider has no signature that we could make.
    #[error("requests cannot be signed as {0}: {1}")]
    SignError(&'static str, #[source] SignError),
    /// The provider has only its address.
    #[error("{0} is known by its address, not by a signature; write its token into `url`")]
    InTheAddress(&'static str),
    /// Two settings that make the same header.
    #[error("`{0}` is made by `{1}` already; keep one of the two")]
    Twice(String, &'static str),
}

/// Signs in a provider's way.
#[derive(Debug)]
pub struct ProviderSigner {
    provider: &'static dyn Provider,
    verifier: Verifier,
}

impl SignAsSpec {
    /// Looks the secret up through `env`, and signs once to see that it works.
    pub fn build(
        &self,
        url: &str,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<ProviderSigner, SignAsSpecError> {
        let provider = provider::find(&self.provider)
            .ok_or_else(|| SignAsSpecError::UnknownProvider(self.provider.clone()))?;
        let verifier = provider.verifier(vec![self.secret.resolve(env)?])?;
        let headers = HeaderMap::new();
        let outgoing = OutgoingRequest { id: "id", url, headers: &headers, body: b"{}" };
        let signed = verifier
            .sign(&outgoing, Timestamp::from_millis(0))
            .map_err(|error| SignAsSpecError::SignError(provider.name(), error))?;
        if !signed.path.is_empty() {
            return Err(SignAsSpecError::InTheAddress(provider.name()));
        }
        Ok(ProviderSigner { provider, verifier })
    }
}

impl ProviderSigner {
    /// Takes the provider's signature that came away, and puts one over `body` in its place.
    pub fn sign(
        &self,
        headers: &mut HeaderMap,
        (id, url, body): (&str, &str, &[u8]),
        now: Timestamp,
    ) -> Result<(), SignError> {
        for name in self.provider.signature_headers() {
            headers.remove(*name);
        }
        let signed = self.verifier.sign(&OutgoingRequest { id, url, headers, body }, now)?;
        for (name, text) in signed.headers {
            let value = HeaderValue::from_str(&text)
                .map_err(|_| SignError("the signature holds characters that a header cannot"))?;
            headers.insert(name, value);
        }
        Ok(())
    }

    /// Whether it is this header that holds the signature.
    pub fn sets(&self, name: &HeaderName) -> bool {
        self.provider.signature_headers().iter().any(|header| *name == *header)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::IncomingRequest;

    const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);
    const URL: &str = "https://example.com/hook";

    fn build(provider: &str, secret: &str) -> Result<ProviderSigner, SignAsSpecError> {
        let spec = SignAsSpec { provider: provider.to_owned(), secret: secret.parse().unwrap() };
        spec.build(URL, &|_| None)
    }

    #[test]
    fn the_signature_that_came_gives_way_to_one_over_what_is_sent() {
        let sign_as = build("stripe", "whsec_of_the_destination").unwrap();
        let mut headers = HeaderMap::new();
        headers.append("stripe-signature", HeaderValue::from_static("t=1,v1=00"));
        headers.append("stripe-signature", HeaderValue::from_static("t=2,v1=00"));
        headers.append("x-other", HeaderValue::from_static("stays"));

        sign_as.sign(&mut headers, ("evt_1", URL, b"{}"), NOW).unwrap();

        assert_eq!(headers["x-other"], "stays");
        let came = IncomingRequest {
            source: "s",
            path: "",
            query: None,
            headers: &headers,
            body: b"{}",
            origin: None,
        };
        assert!(sign_as.verifier.verify(&came, NOW).is_ok());
        assert!(sign_as.verifier.verify(&IncomingRequest { body: b"{ }", ..came }, NOW).is_err());
    }

    #[test]
    fn what_cannot_sign_says_why() {
        let cases = [
            ("stripey", "a secret", "`stripey` is not known"),
            ("generic", "a secret", "has no default verification"),
            ("stripe", "env:MISSING", "`MISSING` is not set"),
        ];
        for (provider, secret, expected) in cases {
            let error = build(provider, secret).unwrap_err().to_string();
            assert!(error.contains(expected), "case: {provider}: {error}");
        }
    }
}
