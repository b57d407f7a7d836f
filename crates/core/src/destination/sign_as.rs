//! Signs requests in the format of a provider, for destinations that verify the provider's signature.

use http::{HeaderMap, HeaderName, HeaderValue, header::CONTENT_TYPE};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use surehook_types::{
    secret::{Env, SecretError, SecretRef},
    time::Timestamp,
};
use surehook_webhooks::{
    provider::{self, Provider, preset_names},
    request::OutgoingRequest,
    verify::{SignError, Verifier, VerifySpecError},
};

use crate::source::ProviderName;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SignAsSpec {
    /// Provider whose signature format the destination expects.
    #[schemars(with = "ProviderName")]
    pub provider: String,
    /// Secret with which the destination verifies the signature.
    pub secret: SecretRef,
    /// Accepts a secret of fewer than 16 bytes, which can be guessed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_short_secret: bool,
}

/// Why `sign_as` settings are invalid.
#[derive(Debug, thiserror::Error)]
pub enum SignAsSpecError {
    #[error("unknown provider `{0}`; available: {known}", known = preset_names().join(", "))]
    UnknownProvider(String),
    #[error("{0}")]
    Secret(#[from] SecretError),
    #[error("{0}")]
    Verify(#[from] VerifySpecError),
    #[error("requests cannot be signed as {0}: {1}")]
    NotSignable(&'static str, #[source] SignError),
    #[error(
        "{0} authenticates by a token in the URL, not by a signature; put the token into `url`"
    )]
    TokenInUrl(&'static str),
    #[error("`{1}` already sets `{0}`; remove one of the two")]
    Twice(String, &'static str),
}

/// Signs requests in the format of a provider.
#[derive(Debug)]
pub struct ProviderSigner {
    provider: &'static Provider,
    /// Holds the format and the secret, so it can sign as well as verify.
    verifier: Verifier,
}

impl SignAsSpec {
    /// Refuses a secret that can be guessed, unless `stored`, the current settings, has the same.
    pub fn check_secret_length(
        &self,
        stored: Option<&Self>,
        env: Env<'_>,
    ) -> Result<(), SignAsSpecError> {
        if self.allow_short_secret || stored.is_some_and(|stored| stored.secret == self.secret) {
            return Ok(());
        }
        Ok(self.secret.check_length(env, "allow_short_secret")?)
    }

    /// Resolves the secret through `env`, and signs once to check that it works.
    pub fn build(&self, url: &str, env: Env<'_>) -> Result<ProviderSigner, SignAsSpecError> {
        let provider = provider::find(&self.provider)
            .ok_or_else(|| SignAsSpecError::UnknownProvider(self.provider.clone()))?;
        let verifier = provider.verifier(vec![self.secret.resolve(env)?])?;
        // Some providers sign only forms in a header.
        let form = HeaderValue::from_static("application/x-www-form-urlencoded");
        let types = [None, Some(form)];
        for content_type in types {
            let headers: HeaderMap =
                content_type.map(|value| (CONTENT_TYPE, value)).into_iter().collect();
            let outgoing = OutgoingRequest { id: "id", url, headers: &headers, body: b"a=1" };
            let signed = verifier
                .sign(&outgoing, Timestamp::from_millis(0))
                .map_err(|error| SignAsSpecError::NotSignable(provider.name, error))?;
            if signed.path.is_empty() {
                return Ok(ProviderSigner { provider, verifier });
            }
        }
        Err(SignAsSpecError::TokenInUrl(provider.name))
    }
}

impl ProviderSigner {
    /// Replaces the received signature of the provider with a signature of `body`.
    pub fn sign(
        &self,
        headers: &mut HeaderMap,
        id: &str,
        url: &str,
        body: &[u8],
        now: Timestamp,
    ) -> Result<(), SignError> {
        for name in self.provider.signature_headers {
            headers.remove(*name);
        }
        let signed = self.verifier.sign(&OutgoingRequest { id, url, headers, body }, now)?;
        if !signed.path.is_empty() {
            return Err(SignError(
                "this provider signs a body that is not a form in the URL, which is fixed; give the route \
                 of such events another destination",
            ));
        }
        for (name, text) in signed.headers {
            let value = HeaderValue::from_str(&text).map_err(|_| {
                SignError("the signature contains characters that are not allowed in a header")
            })?;
            headers.insert(name, value);
        }
        Ok(())
    }

    /// Whether signing sets this header.
    pub fn sets(&self, name: &HeaderName) -> bool {
        self.provider.signature_headers.iter().any(|header| *name == *header)
    }
}

#[cfg(test)]
mod tests {
    use surehook_webhooks::request::IncomingRequest;

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);
    const URL: &str = "https://example.com/hook";

    fn build(provider: &str, secret: &str) -> Result<ProviderSigner, SignAsSpecError> {
        let spec = SignAsSpec {
            provider: provider.to_owned(),
            secret: secret.parse().unwrap(),
            allow_short_secret: false,
        };
        spec.build(URL, &|_| None)
    }

    #[test]
    fn received_signature_is_replaced_by_signature_of_sent_body() {
        let signer = build("stripe", "whsec_of_the_destination").unwrap();
        let mut headers = HeaderMap::new();
        headers.append("stripe-signature", HeaderValue::from_static("t=1,v1=00"));
        headers.append("stripe-signature", HeaderValue::from_static("t=2,v1=00"));
        headers.append("x-other", HeaderValue::from_static("stays"));

        signer.sign(&mut headers, "evt_1", URL, b"{}", NOW).unwrap();

        assert_eq!(headers["x-other"], "stays");
        let received = IncomingRequest {
            source: "s",
            path: "",
            query: None,
            headers: &headers,
            body: b"{}",
            origin: None,
        };
        assert!(signer.verifier.verify(&received, NOW).is_ok());
        assert!(
            signer.verifier.verify(&IncomingRequest { body: b"{ }", ..received }, NOW).is_err()
        );
    }

    #[test]
    fn twilio_signs_forms_for_the_url_of_the_destination() {
        let signer = build("twilio", "auth-token-of-32-characters-long").unwrap();
        let form = || {
            let value = HeaderValue::from_static("application/x-www-form-urlencoded");
            HeaderMap::from_iter([(CONTENT_TYPE, value)])
        };
        let mut headers = form();
        signer.sign(&mut headers, "evt_1", URL, b"Body=hi&From=%2B55", NOW).unwrap();
        assert!(headers.contains_key("x-twilio-signature"));

        let json = signer.sign(&mut HeaderMap::new(), "evt_1", URL, b"{}", NOW).unwrap_err();
        assert!(json.0.contains("not a form"), "{json}");
        let error = build("evolution-go", "token-of-the-instance").unwrap_err().to_string();
        assert!(error.contains("in the URL"), "{error}");
    }

    #[test]
    fn invalid_sign_as_settings_are_rejected_with_reason() {
        let cases = [
            ("stripey", "a secret", "unknown provider `stripey`"),
            ("generic", "a secret", "has no default verification"),
            ("stripe", "env:MISSING", "`MISSING` is not set"),
        ];
        for (provider, secret, expected) in cases {
            let error = build(provider, secret).unwrap_err().to_string();
            assert!(error.contains(expected), "case: {provider}: {error}");
        }
    }
}
