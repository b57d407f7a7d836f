//! `OAuth2` client credentials (RFC 6749, 4.4): what is asked of the token endpoint, and what its
//! answer means. Who asks, and when, is the engine's affair.

use std::time::Duration;

use http::{HeaderMap, HeaderValue, Uri, header};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use url::{
    Url,
    form_urlencoded::{self, byte_serialize},
};

use super::auth::{AuthSpecError, basic, bearer};
use crate::{
    address::check_url,
    delivery::AttemptFailure,
    secret::{Secret, SecretRef, digest_parts},
};

/// How long a token is used if its endpoint does not say how long it lasts.
const LIFE_UNSAID: Duration = Duration::from_secs(300);
/// No token is used for longer, whatever its endpoint says.
const LIFE_MAX: Duration = Duration::from_secs(24 * 3600);
/// A token is given up this long before its end, so that it does not run out on the way.
const MARGIN_MAX: Duration = Duration::from_secs(30);

/// Where and how a token is fetched, as it is written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Oauth2Spec {
    /// The token endpoint.
    pub token_url: String,
    /// Who we are there. Not secret.
    #[schemars(length(min = 1))]
    pub client_id: String,
    /// What proves it.
    pub client_secret: SecretRef,
    /// What the token is to be good for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(regex(pattern = r"^[!#-\[\]-~]+$")))]
    pub scopes: Vec<String>,
    /// For whom it is, where the endpoint wants to know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub audience: Option<String>,
    /// Where id and secret are sent.
    #[serde(default)]
    pub auth_style: AuthStyle,
}

/// Where id and secret are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AuthStyle {
    /// In the header `authorization`, which every server must take.
    #[default]
    Basic,
    /// In the form.
    Body,
}

/// Where and how a token is fetched.
#[derive(Debug)]
pub struct Oauth2Config {
    /// The token endpoint.
    pub token_url: Uri,
    client_id: String,
    client_secret: Secret,
    scope: String,
    audience: Option<String>,
    style: AuthStyle,
}

/// A token, ready to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessToken {
    /// The value of `authorization`.
    pub header: HeaderValue,
    /// How long it may be used.
    pub life: Duration,
}

/// Why there is no token. The text is our own: the endpoint's might quote the secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenError {
    /// What kind of failure it is.
    pub failure: AttemptFailure,
    /// For the operator.
    pub detail: String,
}

impl Oauth2Spec {
    pub(super) fn build(
        &self,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Oauth2Config, AuthSpecError> {
        let url = Url::parse(&self.token_url)?;
        check_url(&url)?;
        if self.client_id.is_empty() {
            return Err(AuthSpecError::Empty("client_id"));
        }
        if self.audience.as_ref().is_some_and(String::is_empty) {
            return Err(AuthSpecError::Empty("audience"));
        }
        let is_word = |scope: &String| {
            let good = |byte: u8| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\';
            !scope.is_empty() && scope.bytes().all(good)
        };
        if !self.scopes.iter().all(is_word) {
            return Err(AuthSpecError::Scope);
        }
        Ok(Oauth2Config {
            // What `url` prints is plain ASCII, so the stricter parser takes it too.
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
    /// The headers and the body that ask for a token.
    pub fn request(&self) -> (HeaderMap, Vec<u8>) {
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
            // RFC 6749, 2.3.1: both are form-encoded before they are joined.
            AuthStyle::Basic => {
                headers.insert(header::AUTHORIZATION, basic(id.as_bytes(), secret.as_bytes()));
            }
            AuthStyle::Body => {
                body.push_str(&format!("&client_id={id}&client_secret={secret}"));
            }
        }
        (headers, body.into_bytes())
    }

    /// The same for two that ask for the same token in the same way.
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

/// What a token endpoint may say (RFC 6749, 5.1 and 5.2).
#[derive(Deserialize)]
struct Said {
    #[serde(default)]
    access_token: Option<String>,
    #[serde(default)]
    token_type: Option<String>,
    #[serde(default, deserialize_with = "seconds")]
    expires_in: Option<u64>,
    #[serde(default)]
    error: Option<String>,
}

/// A number, or a number as text, which some servers send. Anything else says nothing.
fn seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
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

/// The errors that RFC 6749 knows. Others are not repeated: they might hold anything.
const KNOWN_ERRORS: [&str; 6] = [
    "invalid_client",
    "invalid_grant",
    "invalid_request",
    "invalid_scope",
    "unauthorized_client",
    "unsupported_grant_type",
];

/// Reads the answer of a token endpoint.
pub fn parse_token_response(status: u16, body: &[u8]) -> Result<AccessToken, TokenError> {
    let said = serde_json::from_slice::<Said>(body).ok();
    let no = |failure, detail: String| Err(TokenError { failure, detail });
    if !(200..300).contains(&status) {
        let error = said.and_then(|said| said.error);
        let known = error.and_then(|error| KNOWN_ERRORS.into_iter().find(|known| *known == error));
        let why = known.map_or(String::new(), |known| format!(" {known}"));
        let (failure, words) = if is_refusal(status) {
            (AttemptFailure::TokenRefused, "refused to give a token")
        } else {
            (AttemptFailure::Token, "could not give a token")
        };
        return no(failure, format!("the token endpoint {words}: {status}{why}"));
    }
    // A page instead of a token is what a broken endpoint shows, and it may be mended.
    let Some((said, token)) = said.and_then(|mut said| {
        let token = said.access_token.take()?;
        Some((said, token))
    }) else {
        let detail = format!("the token endpoint answered {status} without an access_token");
        return no(AttemptFailure::Token, detail);
    };
    if said.token_type.is_some_and(|kind| !kind.eq_ignore_ascii_case("bearer")) {
        return no(
            AttemptFailure::TokenRefused,
            "the token endpoint gives no bearer tokens".to_owned(),
        );
    }
    match bearer(token.as_bytes()) {
        Some(header) => Ok(AccessToken { header, life: life(said.expires_in) }),
        None => {
            no(AttemptFailure::Token, "the token holds characters that a header cannot".to_owned())
        }
    }
}

/// Whether somebody must mend the settings before a token can be had.
fn is_refusal(status: u16) -> bool {
    (300..500).contains(&status) && !matches!(status, 408 | 425 | 429)
}

/// How long a token is used: a little less than it lasts.
fn life(expires_in: Option<u64>) -> Duration {
    let lasts = expires_in.map_or(LIFE_UNSAID, Duration::from_secs).min(LIFE_MAX);
    lasts - (lasts / 10).min(MARGIN_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn oauth2(more: &str) -> Result<Oauth2Config, AuthSpecError> {
        let json = format!(
            r#"{{"token_url":"https://id.test/token","client_id":"a b","client_secret":"s:é&"{more}}}"#
        );
        serde_json::from_str::<Oauth2Spec>(&json).unwrap().build(&|_| None)
    }

    #[test]
    fn id_and_secret_go_where_the_style_says() {
        let (headers, body) = oauth2("").unwrap().request();
        assert_eq!(String::from_utf8(body).unwrap(), "grant_type=client_credentials");
        // "a+b:s%3A%C3%A9%26"
        assert_eq!(headers["authorization"], "Basic YStiOnMlM0ElQzMlQTklMjY=");

        let more = r#","scopes":["read","write:all"],"audience":"https://api","auth_style":"body""#;
        let (headers, body) = oauth2(more).unwrap().request();
        assert!(!headers.contains_key("authorization"));
        assert_eq!(
            String::from_utf8(body).unwrap(),
            "grant_type=client_credentials&scope=read+write%3Aall&audience=https%3A%2F%2Fapi\
             &client_id=a+b&client_secret=s%3A%C3%A9%26"
        );
    }

    #[test]
    fn settings_that_make_no_sense_are_refused() {
        for more in [r#","scopes":["a b"]"#, r#","scopes":[""]"#, r#","audience":"""#] {
            assert!(oauth2(more).is_err(), "case: {more}");
        }
        for url in ["ftp://id.test", "https://user:pass@id.test/", "nothing"] {
            let json = format!(r#"{{"token_url":"{url}","client_id":"a","client_secret":"s"}}"#);
            let spec: Oauth2Spec = serde_json::from_str(&json).unwrap();
            assert!(spec.build(&|_| None).is_err(), "case: {url}");
        }
    }

    #[test]
    fn a_token_is_used_for_a_little_less_than_it_lasts() {
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
            assert_eq!(token.life, Duration::from_secs(secs), "case: {body}");
        }
    }

    #[test]
    fn what_is_no_token_is_told_apart_and_not_repeated() {
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
            (200, r#"{"access_token":"can ary"}"#, AttemptFailure::Token, "that a header cannot"),
            (
                200,
                r#"{"access_token":"canary","token_type":"mac"}"#,
                AttemptFailure::TokenRefused,
                "no bearer tokens",
            ),
        ];
        for (status, body, failure, words) in cases {
            let problem = parse_token_response(status, body.as_bytes()).unwrap_err();
            assert_eq!(problem.failure, failure, "case: {status} {body}");
            assert!(problem.detail.ends_with(words), "case: {status} {body}: {}", problem.detail);
            assert!(!problem.detail.contains("canary"), "{}", problem.detail);
        }
    }

    #[test]
    fn the_digest_changes_with_every_setting() {
        let same = oauth2("").unwrap().digest();
        assert_eq!(oauth2("").unwrap().digest(), same);
        for more in [r#","scopes":["a"]"#, r#","audience":"a""#, r#","auth_style":"body""#] {
            assert_ne!(oauth2(more).unwrap().digest(), same, "case: {more}");
        }
    }
}
