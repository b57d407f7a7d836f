//! Signs requests in the format of a provider, for destinations that verify the provider's signature.

use http::{HeaderMap, HeaderName, HeaderValue};
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
        let outgoing = OutgoingRequest { id: "id", url, headers: &HeaderMap::new(), body: b"{}" };
        let signed = verifier
            .sign(&outgoing, Timestamp::from_millis(0))
            .map_err(|error| SignAsSpecError::NotSignable(provider.name, error))?;
        if !signed.path.is_empty() {
            return Err(SignAsSpecError::TokenInUrl(provider.name));
        }
        Ok(ProviderSigner { provider, verifier })
    }
}

impl ProviderSigner {
    /// Replaces the received signature of the provider with a signature of `body`. Returns the URL to call
    /// instead of `url`, if the signature changes its query.
    pub fn sign(
        &self,
        headers: &mut HeaderMap,
        id: &str,
        url: &str,
        body: &[u8],
        now: Timestamp,
    ) -> Result<Option<String>, SignError> {
        for name in self.provider.signature_headers {
            headers.remove(*name);
        }
        let signed = self.verifier.sign(&OutgoingRequest { id, url, headers, body }, now)?;
        let signed_url = signed.changes_url().then(|| signed.signed_url(url));
        for (name, text) in signed.headers {
            let value = HeaderValue::from_str(&text).map_err(|_| {
                SignError("the signature contains characters that are not allowed in a header")
            })?;
            headers.insert(name, value);
        }
        Ok(signed_url)
    }

    /// Whether signing sets this header.
    pub fn sets(&self, name: &HeaderName) -> bool {
        self.provider.signature_headers.iter().any(|header| *name == *header)
    }
}

#[cfg(test)]
mod tests {
    use http::header::CONTENT_TYPE;
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

        let signed_url = signer.sign(&mut headers, "evt_1", URL, b"{}", NOW).unwrap();

        assert_eq!(signed_url, None);
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
    fn twilio_signs_forms_in_a_header_and_other_bodies_in_the_url_too() {
        let signer = build("twilio", "auth-token-of-32-characters-long").unwrap();
        let form = HeaderValue::from_static("application/x-www-form-urlencoded");
        let mut headers = HeaderMap::from_iter([(CONTENT_TYPE, form)]);
        let signed_url = signer.sign(&mut headers, "evt_1", URL, b"Body=hi&From=%2B55", NOW);
        assert_eq!(signed_url.unwrap(), None);
        assert!(headers.contains_key("x-twilio-signature"));

        let mut headers = HeaderMap::new();
        let with_query = format!("{URL}?a=1");
        let signed_url = signer.sign(&mut headers, "evt_1", &with_query, b"{}", NOW).unwrap();
        let signed_url = signed_url.unwrap();
        // The SHA-256 of `{}`.
        let hash = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a";
        assert_eq!(signed_url, format!("{URL}?a=1&bodySHA256={hash}"));
        let accepts = |body: &[u8]| {
            let request = IncomingRequest {
                source: "",
                path: "/hook",
                query: signed_url.split_once('?').map(|(_, query)| query),
                headers: &headers,
                body,
                origin: Some("https://example.com"),
            };
            signer.verifier.verify(&request, NOW).is_ok()
        };
        assert!(accepts(b"{}") && !accepts(b"{ }"));
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
