//! `OAuth2` client credentials (RFC 6749, 4.4): the token request and its response. The engine sends it.

use std::time::Duration;

use http::{HeaderMap, HeaderValue, Uri, header};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use surehook_guard::address::check_url;
use surehook_retry::AttemptFailure;
use surehook_types::{
    authorization::{basic_header, bearer_header},
    secret::{Env, Secret, SecretRef, digest_parts},
};
use url::{
    Url,
    form_urlencoded::{self, byte_serialize},
};

use super::auth::AuthSpecError;

/// Lifetime of a token without `expires_in`.
const DEFAULT_LIFETIME: Duration = Duration::from_secs(300);
/// Longest lifetime of a token, even if its endpoint grants more.
const LIFETIME_MAX: Duration = Duration::from_secs(24 * 3600);
/// A token is renewed before it expires, so that it does not expire in transit: by a tenth of its
/// lifetime, at most by this.
const MARGIN_MAX: Duration = Duration::from_secs(30);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Oauth2Spec {
    pub token_url: String,
    /// Client id, not secret.
    #[schemars(length(min = 1))]
    pub client_id: String,
    pub client_secret: SecretRef,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(regex(pattern = r"^[!#-\[\]-~]+$")))]
    pub scopes: Vec<String>,
    /// Audience, if the endpoint needs one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub audience: Option<String>,
    /// Where client id and secret are sent.
    #[serde(default)]
    pub auth_style: AuthStyle,
}

/// Where client id and secret are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AuthStyle {
    /// In the header `authorization`, which every server must support.
    #[default]
    Basic,
    /// In the form body.
    Body,
}

/// Checked `oauth2` settings.
#[derive(Debug)]
pub struct Oauth2Config {
    pub token_url: Uri,
    client_id: String,
    client_secret: Secret,
    scope: String,
    audience: Option<String>,
    style: AuthStyle,
}

/// An access token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessToken {
    /// The value of `authorization`.
    pub header: HeaderValue,
    /// How long it may be used.
    pub usable_for: Duration,
}

/// Why no token was obtained. The text is our own: that of the endpoint might quote the secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenError {
    pub failure: AttemptFailure,
    pub detail: String,
}

impl Oauth2Spec {
    pub(super) fn build(&self, env: Env<'_>) -> Result<Oauth2Config, AuthSpecError> {
        let url = Url::parse(&self.token_url)?;
        check_url(&url)?;
        if self.client_id.is_empty() {
            return Err(AuthSpecError::Empty("client_id"));
        }
        if self.audience.as_ref().is_some_and(String::is_empty) {
            return Err(AuthSpecError::Empty("audience"));
        }
        let is_valid_scope = |scope: &String| {
            let is_allowed = |byte: u8| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\';
            !scope.is_empty() && scope.bytes().all(is_allowed)
        };
        if !self.scopes.iter().all(is_valid_scope) {
            return Err(AuthSpecError::Scope);
        }
        Ok(Oauth2Config {
            // A URL is ASCII, so the stricter parser accepts it too.
            token_url: Uri::try_from(url.as_str()).map_err(|_| url::ParseError::IdnaError)?,
            client_id: self.client_id.clone(),
            client_secret: self.client_secret.resolve(env)?,
            scope: self.scopes.join(" "),
            audience: self.audience.clone(),
            style: self.auth_style,
        })
    }
}

impl Oauth2Config {
    /// Headers and body of the token request.
    pub fn token_request(&self) -> (HeaderMap, Vec<u8>) {
        let mut headers = HeaderMap::new();
        let form = HeaderValue::from_static("application/x-www-form-urlencoded");
        headers.insert(header::CONTENT_TYPE, form);
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        let mut body = form_urlencoded::Serializer::new(String::new());
        body.append_pair("grant_type", "client_credentials");
        if !self.scope.is_empty() {
            body.append_pair("scope", &self.scope);
        }
        if let Some(audience) = &self.audience {
            body.append_pair("audience", audience);
        }
        let mut body = body.finish();
        let id: String = byte_serialize(self.client_id.as_bytes()).collect();
        let secret: String = byte_serialize(self.client_secret.expose()).collect();
        match self.style {
            // RFC 6749, 2.3.1: both are form-encoded first.
            AuthStyle::Basic => {
                headers
                    .insert(header::AUTHORIZATION, basic_header(id.as_bytes(), secret.as_bytes()));
            }
            AuthStyle::Body => {
                body.push_str(&format!("&client_id={id}&client_secret={secret}"));
            }
        }
        (headers, body.into_bytes())
    }

    /// A digest of all settings: equal if the same token is requested in the same way.
    pub fn digest(&self) -> [u8; 32] {
        let url = self.token_url.to_string();
        let audience = self.audience.as_deref().map(str::as_bytes);
        digest_parts([
            url.as_bytes(),
            self.client_id.as_bytes(),
            self.client_secret.expose(),
            self.scope.as_bytes(),
            audience.unwrap_or_default(),
            &[u8::from(audience.is_some()), u8::from(self.style == AuthStyle::Body)],
        ])
    }
}

/// The response of a token endpoint (RFC 6749, 5.1 and 5.2).
#[derive(Deserialize)]
struct TokenResponse {
    #[serde(default)]
    access_token: Option<String>,
    #[serde(default)]
    token_type: Option<String>,
    #[serde(default, deserialize_with = "deserialize_seconds")]
    expires_in: Option<u64>,
    #[serde(default)]
    error: Option<String>,
}

/// A number, or a number as text, which some servers send. Anything else counts as missing.
fn deserialize_seconds<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<u64>, D::Error> {
    let value = serde_json::Value::deserialize(deserializer)?;
    let text = || value.as_str().and_then(|text| text.parse().ok());
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the cast saturates, and the life of a token is bounded after it"
    )]
    let fraction = || value.as_f64().map(|seconds| seconds as u64);
    Ok(value.as_u64().or_else(text).or_else(fraction))
}

/// The errors of RFC 6749. Others are not repeated: they might contain anything.
const KNOWN_ERRORS: [&str; 6] = [
    "invalid_client",
    "invalid_grant",
    "invalid_request",
    "invalid_scope",
    "unauthorized_client",
    "unsupported_grant_type",
];

/// Parses the response of a token endpoint.
pub fn parse_token_response(status: u16, body: &[u8]) -> Result<AccessToken, TokenError> {
    let response = serde_json::from_slice::<TokenResponse>(body).ok();
    let fail = |failure, detail: String| Err(TokenError { failure, detail });
    if !(200..300).contains(&status) {
        let error = response.and_then(|response| response.error);
        let known = error.and_then(|error| KNOWN_ERRORS.into_iter().find(|known| *known == error));
        let suffix = known.map_or(String::new(), |known| format!(" {known}"));
        let (failure, problem) = if is_refusal(status) {
            (AttemptFailure::TokenRefused, "refused to issue a token")
        } else {
            (AttemptFailure::Token, "could not issue a token")
        };
        return fail(failure, format!("the token endpoint {problem}: {status}{suffix}"));
    }
    // An HTML page instead of a token is a temporary failure of the endpoint.
    let Some((response, token)) = response.and_then(|mut response| {
        let token = response.access_token.take()?;
        Some((response, token))
    }) else {
        let detail = format!("the token endpoint answered {status} without an access_token");
        return fail(AttemptFailure::Token, detail);
    };
    if response.token_type.is_some_and(|kind| !kind.eq_ignore_ascii_case("bearer")) {
        return fail(
            AttemptFailure::TokenRefused,
            "the token endpoint does not issue bearer tokens".to_owned(),
        );
    }
    match bearer_header(token.as_bytes()) {
        Some(header) => {
            Ok(AccessToken { header, usable_for: usable_lifetime(response.expires_in) })
        }
        None => fail(
            AttemptFailure::Token,
            "the token contains characters that are not allowed in a header".to_owned(),
        ),
    }
}

/// Whether the settings must be fixed before a token can be issued.
fn is_refusal(status: u16) -> bool {
    (300..500).contains(&status) && !matches!(status, 408 | 425 | 429)
}

/// How long a token is used: slightly less than its lifetime.
fn usable_lifetime(expires_in: Option<u64>) -> Duration {
    let lifetime = expires_in.map_or(DEFAULT_LIFETIME, Duration::from_secs).min(LIFETIME_MAX);
    lifetime - (lifetime / 10).min(MARGIN_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn oauth2(fields: &str) -> Result<Oauth2Config, AuthSpecError> {
        let json = format!(
            r#"{{"token_url":"https://id.test/token","client_id":"a b","client_secret":"s:é&"{fields}}}"#
        );
        serde_json::from_str::<Oauth2Spec>(&json).unwrap().build(&|_| None)
    }

    #[test]
    fn client_credentials_are_sent_by_auth_style() {
        let (headers, body) = oauth2("").unwrap().token_request();
        assert_eq!(String::from_utf8(body).unwrap(), "grant_type=client_credentials");
        // "a+b:s%3A%C3%A9%26"
        assert_eq!(headers["authorization"], "Basic YStiOnMlM0ElQzMlQTklMjY=");

        let fields =
            r#","scopes":["read","write:all"],"audience":"https://api","auth_style":"body""#;
        let (headers, body) = oauth2(fields).unwrap().token_request();
        assert!(!headers.contains_key("authorization"));
        assert_eq!(
            String::from_utf8(body).unwrap(),
            "grant_type=client_credentials&scope=read+write%3Aall&audience=https%3A%2F%2Fapi\
             &client_id=a+b&client_secret=s%3A%C3%A9%26"
        );
    }

    #[test]
    fn invalid_oauth2_settings_are_rejected() {
        for fields in [r#","scopes":["a b"]"#, r#","scopes":[""]"#, r#","audience":"""#] {
            assert!(oauth2(fields).is_err(), "case: {fields}");
        }
        for url in ["ftp://id.test", "https://user:pass@id.test/", "nothing"] {
            let json = format!(r#"{{"token_url":"{url}","client_id":"a","client_secret":"s"}}"#);
            let spec: Oauth2Spec = serde_json::from_str(&json).unwrap();
            assert!(spec.build(&|_| None).is_err(), "case: {url}");
        }
    }

    #[test]
    fn token_is_used_for_less_than_its_lifetime() {
        let cases = [
            (r#"{"access_token":"t","expires_in":3600}"#, 3570),
            (r#"{"access_token":"t","expires_in":"3600"}"#, 3570),
            (r#"{"access_token":"t","expires_in":3600.5}"#, 3570),
            (r#"{"access_token":"t","expires_in":100,"token_type":"BEARER"}"#, 90),
            (r#"{"access_token":"t","expires_in":0}"#, 0),
            (r#"{"access_token":"t","expires_in":-5}"#, 0),
            (r#"{"access_token":"t","expires_in":99999999999}"#, 86_370),
            (r#"{"access_token":"t","expires_in":null}"#, 270),
            (r#"{"access_token":"t"}"#, 270),
        ];
        for (body, secs) in cases {
            let token = parse_token_response(200, body.as_bytes()).unwrap();
            assert_eq!(token.header, "Bearer t", "case: {body}");
            assert_eq!(token.usable_for, Duration::from_secs(secs), "case: {body}");
        }
    }

    #[test]
    fn token_failures_are_distinguished_without_repeating_response() {
        let cases = [
            (
                401,
                r#"{"error":"invalid_client"}"#,
                AttemptFailure::TokenRefused,
                "401 invalid_client",
            ),
            (
                400,
                r#"{"error":"invalid_scope"}"#,
                AttemptFailure::TokenRefused,
                "400 invalid_scope",
            ),
            (400, r#"{"error":"canary"}"#, AttemptFailure::TokenRefused, "token: 400"),
            (404, "canary", AttemptFailure::TokenRefused, "token: 404"),
            (302, "", AttemptFailure::TokenRefused, "token: 302"),
            (408, "", AttemptFailure::Token, "token: 408"),
            (429, "", AttemptFailure::Token, "token: 429"),
            (500, "canary", AttemptFailure::Token, "token: 500"),
            (503, "", AttemptFailure::Token, "token: 503"),
            (200, "<html>canary", AttemptFailure::Token, "without an access_token"),
            (200, r#"{"error":"canary"}"#, AttemptFailure::Token, "without an access_token"),
            (
                200,
                r#"{"access_token":"can ary"}"#,
                AttemptFailure::Token,
                "not allowed in a header",
            ),
            (
                200,
                r#"{"access_token":"canary","token_type":"mac"}"#,
                AttemptFailure::TokenRefused,
                "not issue bearer tokens",
            ),
        ];
        for (status, body, failure, suffix) in cases {
            let error = parse_token_response(status, body.as_bytes()).unwrap_err();
            assert_eq!(error.failure, failure, "case: {status} {body}");
            assert!(error.detail.ends_with(suffix), "case: {status} {body}: {}", error.detail);
            assert!(!error.detail.contains("canary"), "{}", error.detail);
        }
    }

    #[test]
    fn oauth2_digest_changes_with_every_setting() {
        let digest = oauth2("").unwrap().digest();
        assert_eq!(oauth2("").unwrap().digest(), digest);
        for fields in [r#","scopes":["a"]"#, r#","audience":"a""#, r#","auth_style":"body""#] {
            assert_ne!(oauth2(fields).unwrap().digest(), digest, "case: {fields}");
        }
    }
}
